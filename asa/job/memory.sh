# How many processes of this job the kernel has killed for lack of memory, as far as its node shows that, by Slurm's
# names of control groups. Version 2 counts for a group and all below it; version 1 for each group alone, while it
# exists, so that what srun started is counted only while it runs.
asa_add_kills() {
  while read -r asa_oom_id asa_oom_count; do
    [ "$asa_oom_id" != oom_kill ] || asa_killed=$((asa_killed + asa_oom_count))
  done <"$1"
}
asa_kills() {
  asa_killed=0
  [ -n "${SLURM_JOB_ID-}" ] && [ -r /proc/self/cgroup ] || return 0
  while IFS=: read -r asa_oom_id asa_oom_controllers asa_oom_group; do
    case ,$asa_oom_controllers, in
      ,,) asa_oom_root=/sys/fs/cgroup asa_oom_events=memory.events ;;
      *,memory,*) asa_oom_root=/sys/fs/cgroup/memory asa_oom_events=memory.oom_control ;;
      *) continue ;;
    esac
    case $asa_oom_group/ in *"/job_$SLURM_JOB_ID/"*) ;; *) continue ;; esac
    asa_oom_own=$asa_oom_root$asa_oom_group
    asa_oom_job=$asa_oom_root${asa_oom_group%%"/job_$SLURM_JOB_ID"*}/job_$SLURM_JOB_ID
    if [ "$asa_oom_events" != memory.events ]; then
      for asa_oom_own in "$asa_oom_job" "$asa_oom_job"/* "$asa_oom_job"/*/*; do
        asa_oom_file=$asa_oom_own/$asa_oom_events
        [ ! -r "$asa_oom_file" ] || asa_add_kills "$asa_oom_file"
      done
    elif [ -r "$asa_oom_job/$asa_oom_events" ]; then
      asa_add_kills "$asa_oom_job/$asa_oom_events"
    else
      while [ "$asa_oom_own" != "$asa_oom_job" ] && [ ! -r "$asa_oom_own/$asa_oom_events" ]; do
        asa_oom_own=${asa_oom_own%/*}
      done
      [ ! -r "$asa_oom_own/$asa_oom_events" ] || asa_add_kills "$asa_oom_own/$asa_oom_events"
    fi
  done </proc/self/cgroup
}

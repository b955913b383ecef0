# How many processes of this job the kernel has killed for lack of memory, as far as its node shows that, by Slurm's
# names of control groups. Version 2 counts for a group and all below it; version 1 for each group alone, while it
# exists, so that what srun started is counted only while it runs.
asa_add_kills() {
  while read -r asa_oom_id asa_oom_count; do
    [ "$asa_oom_id" != oom_kill ] || asa_killed=$((asa_killed + asa_oom_count))
  done <"$1"
}
# Where they are counted is looked up once: shells read byte by byte, and each task asks.
asa_oom_file= asa_oom_job=
if [ -n "${SLURM_JOB_ID-}" ] && [ -r /proc/self/cgroup ]; then
  while IFS=: read -r asa_oom_id asa_oom_controllers asa_oom_group; do
    case $asa_oom_group/ in *"/job_$SLURM_JOB_ID/"*) ;; *) continue ;; esac
    asa_oom_top=${asa_oom_group%%"/job_$SLURM_JOB_ID"*}/job_$SLURM_JOB_ID
    case ,$asa_oom_controllers, in
      *,memory,*) asa_oom_job=/sys/fs/cgroup/memory$asa_oom_top ;;
      ,,) # the job's, or the next below it that this process may read
        asa_oom_top=/sys/fs/cgroup$asa_oom_top asa_oom_own=/sys/fs/cgroup$asa_oom_group
        if [ -r "$asa_oom_top/memory.events" ]; then asa_oom_own=$asa_oom_top; fi
        while [ "$asa_oom_own" != "$asa_oom_top" ] && [ ! -r "$asa_oom_own/memory.events" ]; do
          asa_oom_own=${asa_oom_own%/*}
        done
        asa_oom_file=$asa_oom_own/memory.events
        ;;
    esac
  done </proc/self/cgroup
fi
asa_kills() {
  asa_killed=0
  [ -z "$asa_oom_file" ] || [ ! -r "$asa_oom_file" ] || asa_add_kills "$asa_oom_file"
  [ -n "$asa_oom_job" ] || return 0
  for asa_oom_own in "$asa_oom_job" "$asa_oom_job"/* "$asa_oom_job"/*/*; do
    [ ! -r "$asa_oom_own/memory.oom_control" ] || asa_add_kills "$asa_oom_own/memory.oom_control"
  done
}

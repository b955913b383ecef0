# How a job of Slurm gets more nodes: other jobs of the run wait for them in the queue, and this one takes them over.

# Lists the jobs whose nodes are for this one and which are in one of some states, each with its name.
for_here() {
  squeue --local -h -a -u "`id -u`" -t "$1" -o '%A:%j' 2>/dev/null | awk -v of=".$token-g" 'index($0, of)'
}

# At its end nobody is to wait for nodes, or have some, for this job.
expects() { trap leave_none EXIT; }
leave_none() { for other in `for_here PENDING,RUNNING`; do withdraw "${other%%:*}" "${other#*:}"; done; }
withdraw() { scancel --name="$2" "$1" >&2 || :; }

# Only here, while this job runs, is that done: were it over, Slurm would leave the nodes to no job at all.
take_over() { # a job's number, and its name
  (cd -- "$marks" && scontrol update "JobId=$1" NumNodes=0) >&2 || return 1
  rm -f "$marks/slurm_job_$1_resize.sh" "$marks/slurm_job_$1_resize.csh"
  note_began "$1" "$run/$marks_in/${2##*.}" || say "cannot write down that the nodes of job $1 are here"
  see_nodes || say "could not find out which nodes it has now"
}

# As that job would write it down, had it a script.
note_began() { # its number, and its folder
  owned "$2" && enclose "$2" && facts "" | sed "s/^job=.*/job=$1/" | fresh "$2/.began.$job" &&
    mv -f "$2/.began.$job" "$2/began"
}

see_nodes() {
  if only NumNodes=ALL && [ -e "$marks/slurm_job_${job}_resize.sh" ]; then
    resized
  else
    # shellcheck disable=SC2046 # words
    set -- `squeue --local -h -j "$job" -o '%D %C %N'`
    [ $# -eq 3 ] || return 1
    SLURM_JOB_NUM_NODES=$1 SLURM_NNODES=$1 SLURM_JOB_CPUS_PER_NODE="$(($2 / $1))(x$1)"
    SLURM_JOB_NODELIST=$3 SLURM_NODELIST=$3
    export SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_JOB_CPUS_PER_NODE SLURM_JOB_NODELIST SLURM_NODELIST
    unset SLURM_NTASKS SLURM_NPROCS SLURM_TASKS_PER_NODE
  fi
  kept=`cores_here`
}

# Waits until the job has some number of nodes. The controller is asked less often the longer that takes.
more() {
  wanted=$1
  set -- 1 2 3 4 5 10 20 30
  since=`date +%s`
  while [ "${SLURM_JOB_NUM_NODES:-1}" -lt "$wanted" ]; do
    [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
    for other in `for_here RUNNING`; do
      [ "${SLURM_JOB_NUM_NODES:-1}" -ge "$wanted" ] || take_over "${other%%:*}" "${other#*:}" || {
        # A controller that was restarted has forgotten whom its nodes are for: a client asks for others. Or only the
        # answer was lost.
        withdraw "${other%%:*}" "${other#*:}"
        see_nodes || :
      }
    done
    [ "${SLURM_JOB_NUM_NODES:-1}" -lt "$wanted" ] || break
    if [ -n "$max_idle" ] && now=`date +%s` && [ "$((now - since + idled))" -gt "$max_idle" ]; then
      say "it did not get $wanted nodes within $max_idle seconds: it gives its cores back"
      finish 89 gave-back
    fi
    sleep "$1" &
    child=$!
    wait "$child" || :
    child=
    [ $# -eq 1 ] || shift
  done
  now=`date +%s` || now=$since
  idled=$((idled + now - since))
  say "has ${SLURM_JOB_NUM_NODES:-1} nodes from now on"
}

# What a job of Slurm does before a step: it gives back what it needs no more, and shows the step its share.

# Slurm 22.05 refuses a number that the job had asked for as its least when it was submitted, but takes names.
only() { (cd -- "$marks" && scontrol update "JobId=$job" "$1") >&2; }

# Names the first nodes of the job.
first() { scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n "$1" | paste -s -d , -; }

# Names its first nodes, this one among them, on which its script runs: nodes that it got later may come before it.
first_with_this() {
  scontrol show hostnames "$SLURM_JOB_NODELIST" |
    awk -v here="${SLURMD_NODENAME-}" '$0 != here { print 2, $0; next } { print 1, $0 }' |
    sort -s -n -k 1,1 | head -n "$1" | cut -d ' ' -f 2 | paste -s -d , -
}

# Slurm wrote down what the job's environment must be from now on.
resized() {
  # shellcheck disable=SC1090 # of Slurm's making
  [ ! -e "$marks/slurm_job_${job}_resize.sh" ] || . "$marks/slurm_job_${job}_resize.sh"
  rm -f "$marks/slurm_job_${job}_resize.sh" "$marks/slurm_job_${job}_resize.csh"
}

cores_here() {
  printf '%s\n' "${SLURM_JOB_CPUS_PER_NODE:-}" |
    awk -F, '{ for (i = 1; i <= NF; i++) { split($i, p, /[(x)]+/); sum += p[1] * (p[2] ? p[2] : 1) } print sum + 0 }'
}

# Gives back all but the first nodes, if those have the cores. That it cannot be done is no failure, only expensive.
keep() {
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt "$1" ] || return 0
  # shellcheck disable=SC2016 # of awk
  of_first='{ for (i = 1; i <= NF && n > 0; i++) { split($i, p, /[(x)]+/); k = p[2] ? p[2] : 1; if (k > n) k = n
    sum += k * p[1]; n -= k } print sum + 0 }'
  cores=$(printf '%s\n' "${SLURM_JOB_CPUS_PER_NODE:-}" | awk -F, -v n="$1" "$of_first")
  if [ "${cores:-0}" -lt "$2" ]; then
    say "its first $1 nodes have not the $2 cores that it needs: it gives none back"
  elif only "NumNodes=$1" || only "ReqNodeList=$(first_with_this "$1")"; then
    resized
    kept=$cores
    say "keeps $kept cores from now on"
  else
    say "could not give back all but $1 nodes, and goes on with them"
  fi
}

# Begins no step that the job has too few cores for: one that gave some back may be requeued without them.
room() {
  has=$(cores_here)
  [ "${has:-0}" -gt 0 ] && [ "$has" -lt "$1" ] || return 0
  say "it has $has cores, and its next step needs $1: what is left is for another job"
  finish 88 too-few-cores
}

# Shows a step its own numbers of tasks, cores of each and tasks per node, as in a job of its own: else what it starts
# by `srun` or `mpirun` would fill the whole allocation. It sees the first nodes, each filled before the next.
share() {
  # shellcheck disable=SC2016 # of awk
  fill='function put() { if (run) { t = t sep last (run > 1 ? "(x" run ")" : "")
      c = c sep last * size (run > 1 ? "(x" run ")" : ""); sep = ","; run = 0 } }
    { for (i = 1; i <= NF; i++) { split($i, p, /[(x)]+/); k = int(p[1] / size); if (k > most) k = most
      for (r = p[2] ? p[2] : 1; r > 0 && n > 0; r--) { own = k < n ? k : n; if (own == 0) continue
        if (own != last) put()
        last = own; run++; nodes++; n -= own } } put(); if (n == 0) print nodes, t, c }'
  has=${SLURM_JOB_CPUS_PER_NODE:-}
  # shellcheck disable=SC2046 # words
  set -- "$1" "$2" $(printf '%s\n' "$has" | awk -F, -v n="$1" -v size="$2" -v most="$3" "$fill")
  if [ $# -ne 5 ]; then
    say "its nodes have not the room for $1 tasks of $2 cores that a step asks for"
    seen=
    return
  fi
  list=$SLURM_JOB_NODELIST
  [ "${SLURM_JOB_NUM_NODES:-1}" -eq "$3" ] || list=$(first "$3")
  seen="SLURM_NTASKS=$1 SLURM_NPROCS=$1 SLURM_TASKS_PER_NODE=$4 SLURM_JOB_CPUS_PER_NODE=$5
    SLURM_JOB_NUM_NODES=$3 SLURM_NNODES=$3 SLURM_JOB_NODELIST=$list SLURM_NODELIST=$list
    ${SLURM_CPUS_PER_TASK:+SLURM_CPUS_PER_TASK=$2} ${SRUN_CPUS_PER_TASK:+SRUN_CPUS_PER_TASK=$2}"
}

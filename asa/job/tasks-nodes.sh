# Runs a text on each node of the job: one srun for several nodes would pass a signal to all processes there, and not
# only to the tasks.
# shellcheck disable=SC2086 # words
asa_run_on_each() {
  if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] && command -v srun >/dev/null 2>&1; then
    asa_on_each="--nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --cpu-bind=none"
    # shellcheck disable=SC2317,SC2016 # called by traps; for the shells there
    asa_pass_on() {
      asa_heard=$((asa_heard + 1))
      case $1 in
        USR1 | USR2)
          srun $asa_on_each --overlap sh -c 'kill -s "$1" "$(cat "$2.$SLURM_PROCID")"' asa-signal "$1" "$asa_list" || :
          return
          ;;
        HUP | INT | TERM) asa_ended_by=$1 ;;
      esac
      if [ -n "$asa_child" ]; then asa_tell_process "$asa_child" "$1"; else asa_early="$asa_early $1"; fi
    }
    set -- srun $asa_on_each --kill-on-bad-exit=0 "$@" "${SLURM_JOB_CPUS_PER_NODE:-?}"
  else
    set -- "$@" ''
  fi
  asa_run "$@"
}

# Whether a task that has ended may have been interrupted with its job: it may have saved its state and exited. Whoever
# ends a job lists its processes, then signals one after the other. So a pause is started after the task's end: if a
# signal ends the pause, the pause was on that list and the task was not: the task had ended by itself.
# A job of this computer has the variables of one of Slurm, too, with its own number.
asa_in_slurm() { case ${SLURM_JOB_ID-} in '' | "${ASA_JOB_ID%%@*}") return 1 ;; esac; }
asa_sleep=`command -v sleep` # a program, which a signal ends, and no part of a shell
case $asa_sleep in /*) ;; *) asa_sleep='env sleep' ;; esac
asa_interrupted() {
  if [ -n "$asa_ended_by" ] || [ -e "$asa_running/ending" ]; then return 0; fi
  asa_in_slurm || return 1
  for asa_pause in 0.3 1; do
    { $asa_sleep "$asa_pause"; } 2>/dev/null
    case $? in 0) break ;; 129 | 130 | 143) return 1 ;; esac
  done
  [ -n "$asa_ended_by" ] || [ -e "$asa_running/ending" ]
}
asa_ended_by= # set once this process is signalled to end, as its tasks are
asa_heed() {
  trap 'asa_ended_by=1' HUP INT TERM
  trap : CONT USR1 USR2
}

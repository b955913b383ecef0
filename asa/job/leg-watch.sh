# The watch checks every five seconds whether the next leg waits, or the walltime is nearly over, and then lets this
# shell pass on the signal, once. It does not keep the job's output open, whose end it would delay.
ASA_LEG_END=$asa_legs_named/wanted.$asa_leg
asa_wanted=$asa_legs/wanted.$asa_leg
export ASA_LEG ASA_LEG_END
asa_end_s=$((asa_start + asa_walltime))
case ${SLURM_JOB_END_TIME-} in '' | *[!0-9]*) ;; *) asa_end_s=$SLURM_JOB_END_TIME ;; esac
if [ -n "$asa_warning" ]; then
  trap : "$asa_warning"
  asa_shell=$$ asa_ready=`date +%s`
  (
    trap - CONT HUP INT TERM USR1 USR2
    while sleep "${ASA_LEG_LOOK_S:-5}" && kill -0 "$asa_shell"; do
      asa_look
      if [ ! -e "$asa_wanted" ] && [ "`date +%s`" -ge "$((asa_end_s - asa_warn_s))" ]; then
        : >"$asa_wanted"
      fi
      # what has just begun may not be able yet to save anything
      if [ -e "$asa_wanted" ] && [ "`date +%s`" -ge "$((asa_ready + asa_settles))" ]; then
        date +%s >"$asa_legs/.told.$asa_leg"
        kill -s "$asa_warning" "$asa_shell"
        exit
      fi
    done
  ) >/dev/null 2>&1 </dev/null &
  asa_watch=$!
fi

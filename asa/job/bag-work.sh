# A worker: runs the tasks that it is given, one after the other. A program of its own, with tasks in its foreground: they
# would ignore SIGINT and SIGQUIT in the background of a shell. The end of a task that completed starts no process.
asa_slot=$1 asa_running=$2 asa_log=$3 asa_spare=$4 asa_base=$5 asa_all=$6 asa_list=$7 asa_sh=$8
export ASA_TASK
asa_now() { # in hundredths of seconds
  if [ -n "$asa_base" ] && read -r asa_up asa_rest </proc/uptime; then
    asa_time=$((asa_base + ${asa_up%.*} * 100 + 1${asa_up#*.} - 100))
  else
    asa_time=$(date +%s)00
  fi
}
asa_task() { # which of those begun here, its place, its number and its text
  ASA_TASK=$3
  asa_now
  asa_began=$asa_time
  asa_kills
  asa_had_killed=$asa_killed
  asa_start "$4"
  asa_code=$?
  asa_kills
  asa_now
  [ "$asa_code" -ne 0 ] || [ "$asa_killed" -eq "$asa_had_killed" ] || asa_code=137
  if [ "$asa_code" -eq 0 ]; then
    asa_line="$1 :$2 0 $asa_began $asa_time;"
    if [ -z "$asa_ended_by" ] && asa_in_slurm; then
      echo "$asa_slot $asa_line" >&9
      return
    fi
    asa_interrupted || asa_record "$asa_line"
  # what ends the whole job may reach a task first: Slurm signals one process after the other
  elif [ "$asa_code" -gt 128 ]; then
    (asa_heed; sleep 1; asa_fail "$@") 8<&-
  elif asa_in_slurm; then
    (asa_heed; asa_fail "$@") 8<&- &
  else
    (asa_heed; asa_fail "$@") 8<&-
  fi
  echo "$asa_slot" >&9
}
# In a process of its own: signals for the task are sent to the worker's children, but not to those which are shells.
asa_fail() {
  asa_word_of_task "$((asa_time - asa_began))"
  case $asa_word in '' | failed) [ "$asa_killed" -eq "$asa_had_killed" ] || asa_word=out-of-memory ;; esac
  if asa_interrupted; then return; fi
  asa_say_failed "$3" "$asa_all" "$4"
  asa_record "$1 :$2 $asa_code $asa_began $asa_time${asa_word:+ $asa_word};"
}
asa_heed
exec 8<>"$asa_running/$asa_slot" </dev/null
echo "$asa_slot" >&9
asa_is_over() {
  [ -n "$asa_ended_by" ] || [ -e "$asa_running/ending" ] || [ -e "$asa_running/last" ] ||
    ! kill -s 0 "$PPID" 2>/dev/null # whoever hands out tasks was killed, and would never say that this is the end
}
until asa_is_over; do
  asa_hear 8
  case $asa_word in
    '') continue ;;
    end) break ;;
  esac
  if asa_is_over; then break; fi
  asa_rest=${asa_word#* } asa_text=${asa_word#* * }
  asa_task "${asa_word%% *}" "${asa_rest%% *}" "${asa_text%% *}" "${asa_text#* }"
done
until wait; do :; done

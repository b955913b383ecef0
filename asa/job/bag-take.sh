# Runs on each node of the job: takes chunks, and lets its workers run their tasks. A worker is a number that is free or
# busy; one that becomes free writes to a pipe. A task that is interrupted with the job does not count.
asa_me=$asa_me.${asa_cpus:+$SLURM_PROCID}
[ -n "${asa_me##*.}" ] || asa_me=${asa_me}0
read -r asa_count asa_divisor asa_before <"$asa_dir/list"
asa_log=$asa_dir/logs/$asa_me
asa_spare=$((64 * asa_workers))
: >>"$asa_log" && awk -v n="$asa_spare" 'BEGIN { while (n-- > 0) printf "%63s\n", "" }' | cat >"$asa_log.spare" ||
  asa_give_up "no task is begun: there is no space to note its end in $asa_dir"
if read -r asa_up asa_rest </proc/uptime 2>/dev/null; then
  asa_base=$(($(date +%s) * 100 - ${asa_up%.*} * 100 - 1${asa_up#*.} + 100))
else
  asa_base=
fi
asa_now() { # in hundredths of seconds
  if [ -n "$asa_base" ] && read -r asa_up asa_rest </proc/uptime; then
    asa_time=$((asa_base + ${asa_up%.*} * 100 + 1${asa_up#*.} - 100))
  else
    asa_time=$(date +%s)00
  fi
}
asa_note() { # of the process that runs, for signals; the file's space was taken at the beginning
  printf '%-15s\n' "$1" 1<>"$asa_place"
  [ ! -e "$asa_running/ending" ] || asa_tell_process "$1" TERM
}
asa_task() { # a worker's number, the task's place, its number and its text
  ASA_TASK=$3
  export ASA_TASK
  asa_place=$asa_running/$1 asa_slot=$1
  asa_now
  asa_began=$asa_time
  asa_kills
  asa_had_killed=$asa_killed
  asa_start "$4" </dev/null 3<&- 7<&- 9>&-
  asa_code=$?
  asa_kills
  [ "$asa_code" -ne 0 ] || [ "$asa_killed" -eq "$asa_had_killed" ] || asa_code=137
  printf '%-15s\n' '' 1<>"$asa_place"
  asa_now
  asa_word_of_task "$((asa_time - asa_began))"
  case $asa_word in '' | failed) [ "$asa_killed" -eq "$asa_had_killed" ] || asa_word=out-of-memory ;; esac
  asa_line=":$2 $asa_code $asa_began $asa_time${asa_word:+ $asa_word};"
  if [ "$asa_code" -eq 0 ] && [ -z "$asa_ended_by" ] && asa_in_slurm; then
    echo "$asa_slot $asa_begun $asa_line" >&9
    return
  fi
  # what ends the whole job may reach a task first: Slurm tells one process after the other
  if [ "$asa_code" -gt 128 ]; then
    sleep 1
  elif asa_in_slurm; then
    echo "$asa_slot" >&9
    asa_slot=
  fi
  if ! asa_interrupted; then
    [ "$asa_code" -eq 0 ] || asa_say_failed "$3" "$((asa_count + asa_before))" "$4"
    asa_record "$asa_begun $asa_line"
  fi
  [ -z "$asa_slot" ] || echo "$asa_slot" >&9
}
asa_record() { # which of those that were begun here, and its record
  printf '%s\n' "${1#* }" >>"$asa_log" 2>/dev/null && return
  printf '%-63s\n' "${1#* }" | dd of="$asa_log.spare" bs=64 seek=$((${1%% *} % asa_spare)) conv=notrunc 2>/dev/null
  printf 'asa: the disk is full: no more tasks are begun here\n' >&2
  echo full >&9
}
# In Slurm, tasks that completed at about the same time share the pause that shows whether they were interrupted. It
# begins at once, unless there are many.
asa_completed= asa_settling=0
asa_heard_of() { # what a worker wrote
  case $1 in *:*) asa_completed=$asa_completed${1#* } ;; esac
}
asa_settle() {
  [ -n "$asa_completed" ] && [ "$asa_settling" -lt 8 ] || return 0
  (
    asa_child= asa_ended_by=
    for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_pass_on $asa_signal" "$asa_signal"; done
    if asa_interrupted; then asa_completed=; fi
    while [ -n "$asa_completed" ]; do
      asa_record "${asa_completed%%;*};"
      asa_completed=${asa_completed#*;}
    done
    echo settled >&9
  ) 3<&- 7<&- &
  asa_completed= asa_settling=$((asa_settling + 1))
}
asa_signals=0 asa_ending=
asa_tell() {
  asa_signals=$((asa_signals + 1))
  case $1 in HUP | INT | TERM) asa_ending=1; : >"$asa_running/ending" ;; esac
  asa_one=0
  while [ "$asa_one" -lt "$asa_workers" ]; do
    asa_one=$((asa_one + 1)) asa_pid=
    read -r asa_pid <"$asa_running/$asa_one" || :
    [ -z "$asa_pid" ] || asa_tell_process "$asa_pid" "$1"
  done
}
asa_free= asa_busy=0 asa_begun=0 asa_ticking= asa_full= asa_dry= asa_part=
while [ "$asa_busy" -lt "$asa_workers" ]; do
  asa_busy=$((asa_busy + 1)) asa_free="$asa_free $asa_busy"
  printf '%-15s\n' '' >"$asa_running/$asa_busy" || asa_end unable 87
done
asa_busy=0
for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_tell $asa_signal" "$asa_signal"; done

asa_claim() { # a name; whether it is ours now. Nobody's: it cannot be written
  ln -s "$asa_me" "$asa_dir/claims/$1" 2>/dev/null && return
  asa_owner=`readlink "$asa_dir/claims/$1"` || { asa_trouble=1; return 1; }
  [ "$asa_owner" = "$asa_me" ]
}
asa_at=1 asa_chunk=1 asa_ours=' ' asa_trouble=
asa_take() { # what to do next: the tasks from asa_first to asa_last
  asa_trouble=
  while [ "$asa_at" -le "$asa_count" ]; do
    asa_first=$asa_at asa_size=$(((asa_count - asa_at + 1) / asa_divisor)) asa_name=$asa_chunk
    [ "$asa_size" -gt 0 ] || asa_size=1
    asa_last=$((asa_at + asa_size - 1))
    if [ ! -h "$asa_dir/claims/$asa_name" ] && asa_claim "$asa_name"; then asa_mine=1; else asa_mine=; fi
    [ -z "$asa_trouble" ] || { asa_first=1 asa_last=0; return 1; }
    asa_at=$((asa_last + 1)) asa_chunk=$((asa_chunk + 1))
    [ -z "$asa_mine" ] || return 0
  done
  for asa_given in "$asa_dir"/returned/*; do
    [ -s "$asa_given" ] || continue
    asa_number=0
    while read -r asa_first asa_last; do
      asa_number=$((asa_number + 1))
      asa_name=${asa_given##*/}+$asa_number
      case $asa_ours in *" $asa_name "*) continue ;; esac
      if [ ! -h "$asa_dir/claims/$asa_name" ] && asa_claim "$asa_name"; then
        asa_ours="$asa_ours$asa_name "
        return 0
      fi
    done <"$asa_given"
  done
  asa_first=1 asa_last=0
  return 1
}
# The lines of what was taken, read from the list so many at a time that small chunks share one reading.
asa_line=1 asa_until=0
asa_find() {
  if [ "$asa_first" -lt "$asa_line" ] || [ "$asa_last" -gt "$asa_until" ]; then
    asa_line=$asa_first asa_until=$((asa_first + 255))
    [ "$asa_until" -ge "$asa_last" ] || asa_until=$asa_last
    sed -n -e "$((asa_line + 1)),$((asa_until + 1))p" -e "$((asa_until + 1))q" "$asa_dir/list" >"$asa_running/lines" &&
      exec 3<"$asa_running/lines" || asa_full=1
  fi
  while [ "$asa_line" -lt "$asa_first" ]; do
    IFS= read -r asa_text <&3 || return 0
    asa_line=$((asa_line + 1))
  done
}
asa_first=1 asa_last=0
while [ -z "$asa_ending$asa_full" ]; do
  if [ -z "$asa_free" ] || [ -n "$asa_dry" ]; then
    if [ -n "$asa_dry" ]; then
      [ "$asa_busy" -gt 0 ] || break
      [ -n "$asa_ticking" ] || { (sleep 1; echo tick >&9) >/dev/null 2>&1 & asa_ticking=$!; }
    fi
    asa_word=
    if IFS= read -r asa_word <&9; then
      asa_word=$asa_part$asa_word asa_part=
    else # a signal came in between
      asa_part=$asa_part$asa_word asa_word=
    fi
    case $asa_word in
      '') ;;
      tick) asa_ticking= asa_dry= ;;
      full) asa_full=1 ;;
      settled) asa_settling=$((asa_settling - 1)) ;;
      *)
        asa_heard_of "$asa_word"
        asa_free="$asa_free ${asa_word%% *}" asa_busy=$((asa_busy - 1))
        ;;
    esac
    asa_settle
    continue
  fi
  if [ "$asa_first" -gt "$asa_last" ]; then
    asa_take || { asa_dry=1; continue; }
    asa_find
  fi
  [ ! -e "$asa_dir/returned/$asa_me" ] || break # somebody knows that this job is no more
  IFS= read -r asa_text <&3 || { asa_full=1; break; }
  asa_free=${asa_free# } asa_begun=$((asa_begun + 1)) asa_busy=$((asa_busy + 1))
  asa_slot=${asa_free%% *}
  case $asa_free in *' '*) asa_free=" ${asa_free#* }" ;; *) asa_free= ;; esac
  asa_task "$asa_slot" "$asa_first" "${asa_text%% *}" "${asa_text#* }" &
  asa_first=$((asa_first + 1)) asa_line=$((asa_line + 1))
done
[ -z "$asa_ticking" ] || kill "$asa_ticking" 2>/dev/null || :
while :; do
  asa_before_it=$asa_signals
  wait || :
  [ "$asa_before_it" -eq "$asa_signals" ] || continue
  echo last >&9
  while IFS= read -r asa_word <&9 && [ "$asa_word" != last ]; do asa_heard_of "$asa_word"; done
  [ -n "$asa_completed" ] || break
  asa_settling=0
  asa_settle
done
if [ -n "$asa_ending$asa_full" ]; then
  asa_give_back "$asa_me" || echo "asa: what this job had taken cannot be given back: $asa_named cannot be written" >&2
fi
[ -z "$asa_ending" ] || exit 143
[ -z "$asa_full$asa_trouble" ] || asa_end unable 87

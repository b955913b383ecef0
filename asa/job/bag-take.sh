# Runs on each node of the job: takes chunks, and hands their tasks to its workers, one to each that is free. A worker
# that becomes free writes to a pipe. A task that is interrupted with the job does not count.
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
# In Slurm, tasks that completed at about the same time share the pause that shows whether they were interrupted. It
# begins at once, unless there are many.
asa_completed= asa_settling=0
asa_heard_of() { # what a worker wrote
  case $1 in *:*) asa_completed=$asa_completed${1#* } ;; esac
}
asa_settle() {
  [ -n "$asa_completed" ] && [ "$asa_settling" -lt 8 ] || return 0
  (
    asa_heed
    if asa_interrupted; then asa_completed=; fi
    while [ -n "$asa_completed" ]; do
      asa_record "${asa_completed%%;*};"
      asa_completed=${asa_completed#*;}
    done
    echo settled >&9
  ) 3<&- 7<&- &
  asa_completed= asa_settling=$((asa_settling + 1))
}
# Signals are passed on to what the workers have started, but not to a copy of a worker: that is a shell which notes an
# end, or does not run its program yet.
asa_children() { # of a process
  asa_found=
  if [ -r "/proc/$1/task/$1/children" ]; then
    read -r asa_found <"/proc/$1/task/$1/children" || :
  else
    asa_found=`ps -A -o ppid= -o pid= 2>/dev/null | awk -v of="$1" '$1 == of { print $2 }'` || :
  fi
}
asa_signalled=' '
asa_tell_tasks() { # a signal, and whether it is for those alone that were not signalled to end; whether a worker is left
  asa_left= asa_tries=10
  for asa_pid in $asa_pids; do
    kill -s 0 "$asa_pid" 2>/dev/null || continue
    asa_left=1
    asa_children "$asa_pid"
    for asa_child in $asa_found; do
      case $2$asa_signalled in 1*" $asa_child "*) continue ;; esac
      while cmp -s "/proc/$asa_pid/cmdline" "/proc/$asa_child/cmdline" 2>/dev/null; do
        [ "$asa_tries" -gt 0 ] || continue 2
        asa_tries=$((asa_tries - 1))
        sleep 0.05 || sleep 1
      done
      kill -s "$1" "$asa_child" 2>/dev/null || continue
      [ -z "$asa_ending" ] || asa_signalled="$asa_signalled$asa_child "
    done
  done
  [ -n "$asa_left" ]
}
asa_signals=0 asa_ending=
asa_tell() {
  asa_signals=$((asa_signals + 1))
  case $1 in HUP | INT | TERM) asa_ending=1; : >"$asa_running/ending" ;; esac
  asa_tell_tasks "$1" '' || :
}
asa_free= asa_busy=0 asa_begun=0 asa_ticking= asa_full= asa_dry= asa_pids= asa_begun_workers=0
[ "$asa_workers" -le "$asa_count" ] || asa_workers=$((asa_count + !asa_count)) # one, if there is nothing to do
for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_tell $asa_signal" "$asa_signal"; done
asa_begin_worker() { # which then says that it is free
  asa_begun_workers=$((asa_begun_workers + 1)) asa_busy=$((asa_busy + 1))
  mkfifo "$asa_running/$asa_begun_workers" || asa_end unable 87
  # shellcheck disable=SC2086 # words
  $asa_env $asa_sh -c "$asa_worker" asa-worker "$asa_begun_workers" "$asa_running" "$asa_log" "$asa_spare" "$asa_base" \
    "$((asa_count + asa_before))" "$asa_list" "$asa_sh" 3<&- 7<&- &
  asa_pids="$asa_pids $!"
}

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
  if [ -n "$asa_dry" ] || { [ -z "$asa_free" ] && [ "$asa_begun_workers" -eq "$asa_workers" ]; }; then
    if [ -n "$asa_dry" ]; then
      [ "$asa_busy" -gt 0 ] || break
      [ -n "$asa_ticking" ] || { (sleep 1; echo tick >&9) >/dev/null 2>&1 & asa_ticking=$!; }
    fi
    asa_hear 9
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
  if [ -z "$asa_free" ]; then
    asa_begin_worker
    continue
  fi
  IFS= read -r asa_text <&3 || { asa_full=1; break; }
  asa_free=${asa_free# } asa_begun=$((asa_begun + 1)) asa_busy=$((asa_busy + 1))
  asa_slot=${asa_free%% *}
  case $asa_free in *' '*) asa_free=" ${asa_free#* }" ;; *) asa_free= ;; esac
  # opened for both, since to open it for writing would wait for a worker that was ended
  printf '%s\n' "$asa_begun $asa_first $asa_text" 1<>"$asa_running/$asa_slot"
  asa_first=$((asa_first + 1)) asa_line=$((asa_line + 1))
done
: >"$asa_running/last" # for a worker that does not listen yet
while [ "$asa_begun_workers" -gt 0 ]; do
  echo end 1<>"$asa_running/$asa_begun_workers"
  asa_begun_workers=$((asa_begun_workers - 1))
done
while :; do
  asa_before_it=$asa_signals
  while [ -n "$asa_ending" ] && asa_tell_tasks TERM 1; do sleep 0.2 || sleep 1; done
  # shellcheck disable=SC2086 # numbers; what ticks is not waited for; bash complains of those that it has waited for
  wait $asa_pids 2>/dev/null || :
  [ "$asa_settling" -eq 0 ] || wait || :
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
# Not sooner: a copy of bash that is signalled as soon as it is made removes what is to be removed in the end.
[ -z "$asa_ticking" ] || kill "$asa_ticking" 2>/dev/null || :
[ -z "$asa_ending" ] || exit 143
[ -z "$asa_full$asa_trouble" ] || asa_end unable 87

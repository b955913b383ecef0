"""The text by which a job takes tasks from a bag, for any POSIX shell; see `asa.bags` for what the files are."""

from __future__ import annotations

# The rounds' lists and logs, read by awk. A record is whole from its colon to its semicolon: a disk may fill up within
# one, and the next is written behind what there was space for. Its line's end comes last, for bash writes up to each.
READING = r"""
asa_give_up() {
  asa_told=$*
  [ -z "${asa_held-}" ] || case $asa_told in
    *"$asa_held"*) asa_told=${asa_told%%"$asa_held"*}$asa_named${asa_told#*"$asa_held"} ;;
  esac
  printf 'asa: %s\n' "$asa_told" >&2
  asa_end unable 87
}
# Of a round: the place in its list, and the exit code, of each task that has ended, but for jobs that are in doubt.
asa_ended() { # its folder, tokens
  (
    cd "$1" || exit
    asa_doubt=${2-}
    ls returned logs >/dev/null 2>&1 || : # makes NFS look at the server again
    set -- logs/*
    [ -e "$1" ] || exit 0
    set -- returned/* "$@"
    [ -e "$1" ] || shift
    awk -v doubt=" $asa_doubt " '
      FNR == 1 {
        who = FILENAME
        given = sub(/^returned\//, "", who)
        sub(/^logs\//, "", who)
        sub(/\.spare$/, "", who)
        in_doubt = index(doubt, " " substr(who, 1, index(who, ".") - 1) " ")
      }
      in_doubt { next }
      given { for (place = $1; place <= $2; place++) gone[who, place] = 1; next }
      { sub(/.*:/, "") }
      /^[0-9]+ [0-9]+ [0-9]+ [0-9]+( [a-z-]+)?; *$/ { if (!((who, $1) in gone)) print $1, $2 }
    ' "$@"
  )
}
# What a taker had taken and not ended is given back, in pieces.
asa_give_back() {
  [ ! -e "$asa_dir/returned/$1" ] || return 0
  [ -e "$asa_dir/logs/$1" ] && [ -e "$asa_dir/logs/$1.spare" ] || return
  asa_draft=$asa_dir/.returned.$1.$$
  ls -l "$asa_dir/claims" | awk -v me="$1" -v dir="$asa_dir" -v count="$asa_count" -v divisor="$asa_divisor" '
    listing && $(NF - 1) == "->" && $NF == me { taken[$(NF - 2)] = 1; next }
    !listing { sub(/.*:/, "") }
    !listing && /^[0-9]+ [0-9]+ [0-9]+ [0-9]+( [a-z-]+)?; *$/ { ended[$1] = 1 }
    function left(from, to, most,   place, begin) {
      for (place = from; place <= to; place++) {
        if (place in ended) continue
        if (!most) { all++; continue }
        begin = place
        while (place < to && place - begin + 1 < most && !((place + 1) in ended)) place++
        print begin, place
      }
    }
    function each(most,   number, at, size, name, part, line, pieces) {
      for (at = 1; at <= count; at += size) {
        size = int((count - at + 1) / divisor)
        if (size < 1) size = 1
        if (++number in taken) left(at, at + size - 1, most)
      }
      for (name in taken) if (split(name, part, "+") == 2) {
        for (number = 0; (getline line < (dir "/returned/" part[1])) > 0; )
          if (++number == part[2]) { split(line, pieces, " "); left(pieces[1], pieces[2], most) }
        close(dir "/returned/" part[1])
      }
    }
    END { all = 0; each(0); most = int(all / divisor); each(most < 1 ? 1 : most) }
  ' listing=1 - listing= "$asa_dir/logs/$1" "$asa_dir/logs/$1.spare" | cat >"$asa_draft" &&
    ln "$asa_draft" "$asa_dir/returned/$1" 2>/dev/null
  asa_failed=$?
  rm -f "$asa_draft"
  [ "$asa_failed" -eq 0 ] || [ -e "$asa_dir/returned/$1" ]
}
""".strip()

# Makes the round's folder and list, unless another job did; finds a name for this start of this job, and gives back
# what was taken by its earlier ones, which a requeue has ended.
OPENING = r"""
asa_dir=$asa_bag/$asa_round
mkdir -p "$asa_dir/claims" "$asa_dir/logs" "$asa_dir/returned" "$asa_dir/takers" || asa_give_up "cannot make $asa_dir"
asa_unique=$(uname -n).$$.$(date +%s)
asa_earlier() { # what earlier rounds have done
  asa_since=$asa_round
  while [ "$asa_since" -gt 0 ] && [ ! -e "$asa_bag/$((asa_since - 1))/forgotten" ]; do
    asa_since=$((asa_since - 1))
  done
  while [ "$asa_since" -lt "$asa_round" ]; do
    if [ -s "$asa_bag/$asa_since/list" ]; then
      echo R
      asa_ended "$asa_bag/$asa_since" "${asa_in_doubt-}" | sed 's/^/E /'
      sed -e 1d -e 's/^/L /' <"$asa_bag/$asa_since/list"
    fi
    asa_since=$((asa_since + 1))
  done
}
if [ ! -s "$asa_dir/list" ]; then
  asa_own=$asa_dir/.list.$asa_unique
  { asa_earlier; asa_tasks | sed 's/^/S /'; } | awk -v divisor="$asa_divisor" -v head="$asa_own.head" '
    /^R/ { split("", well); place = 0 }
    /^E/ { if ($3 == 0) well[$2] = 1 }
    /^L/ { if (++place in well) did[$2] = substr($0, length($2) + 4) }
    /^S/ {
      task = substr($0, 3)
      if ((++number in did) && did[number] == task) before++; else { print number, task; n++ }
    }
    END { print n + 0, divisor, before + 0 >head }
  ' | cat >"$asa_own.tasks" && cat "$asa_own.head" "$asa_own.tasks" >"$asa_own" &&
    ln "$asa_own" "$asa_dir/list" 2>/dev/null
  rm -f "$asa_own" "$asa_own.head" "$asa_own.tasks"
fi
[ -s "$asa_dir/list" ] || asa_give_up "cannot write into $asa_dir"
read -r asa_count asa_divisor asa_before <"$asa_dir/list"
asa_start=0
while :; do
  asa_start=$((asa_start + 1))
  asa_me=$asa_taker.$asa_start
  ln -s "$asa_unique" "$asa_dir/takers/$asa_me" 2>/dev/null && break
  case $(readlink "$asa_dir/takers/$asa_me") in
    "$asa_unique") break ;; # its answer was lost
    '') asa_give_up "cannot write into $asa_dir" ;;
  esac
  for asa_log in "$asa_dir/logs/$asa_me".*[0-9]; do
    [ ! -e "$asa_log" ] || asa_give_back "${asa_log##*/}" || asa_give_up "cannot write into $asa_dir"
  done
done
""".strip()

OUTCOME_OF_A_TASK = "  asa_word= # there is none for a task: its exit code is all"

# Runs on each node of the job: takes chunks, and has its workers run their tasks. A worker is a number that is free or
# busy; who becomes free says so in a pipe. A task that is interrupted as this job is ended does not count.
TAKING = r"""
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
  asa_run $asa_sh -c -- "$4" </dev/null 3<&- 7<&- 9>&-
  asa_code=$?
  asa_kills
  [ "$asa_code" -ne 0 ] || [ "$asa_killed" -eq "$asa_had_killed" ] || asa_code=137
  printf '%-15s\n' '' 1<>"$asa_place"
  asa_now
  asa_word= # there is none for a task: its exit code is all
  case $asa_word in '' | failed) [ "$asa_killed" -eq "$asa_had_killed" ] || asa_word=out-of-memory ;; esac
  # what ends the whole job may reach a task first: Slurm tells one process after the other
  if [ "$asa_code" -gt 128 ]; then
    sleep 1
  elif [ -n "${SLURM_JOB_ID-}" ]; then
    echo "$asa_slot" >&9
    asa_slot=
  fi
  if ! asa_interrupted; then
    [ "$asa_code" -eq 0 ] ||
      printf 'asa: task %s of %s failed with exit code %s: %s\n' "$3" "$((asa_count + asa_before))" "$asa_code" "$4" >&2
    asa_record ":$2 $asa_code $asa_began $asa_time${asa_word:+ $asa_word};"
  fi
  [ -z "$asa_slot" ] || echo "$asa_slot" >&9
}
asa_record() {
  printf '%s\n' "$1" >>"$asa_log" 2>/dev/null && return
  printf '%-63s\n' "$1" | dd of="$asa_log.spare" bs=64 seek=$((asa_begun % asa_spare)) conv=notrunc 2>/dev/null
  printf 'asa: the disk is full: no more tasks are begun here\n' >&2
  echo full >&9
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
      *) asa_free="$asa_free $asa_word" asa_busy=$((asa_busy - 1)) ;;
    esac
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
  [ "$asa_before_it" -ne "$asa_signals" ] || break
done
if [ -n "$asa_ending$asa_full" ]; then
  asa_give_back "$asa_me" || echo "asa: what this job had taken cannot be given back: $asa_named cannot be written" >&2
fi
[ -z "$asa_ending" ] || exit 143
[ -z "$asa_full$asa_trouble" ] || asa_end unable 87
""".strip()

# Whether all tasks have ended, and well. Who took some looks twice: the last line of another may be seen late.
CLOSING = r"""
asa_count_ended() {
  set -- $(asa_ended "$asa_dir" | awk '{ n++; if ($2) failed++ } END { print n + 0, failed + 0 }')
  asa_n=$1 asa_failed=$2
}
asa_took() {
  for asa_log in "$asa_dir/logs/$asa_me".*[0-9]; do [ ! -s "$asa_log" ] || return 0; done
  return 1
}
asa_count_ended
if [ "$asa_n" -lt "$asa_count" ] && asa_took; then sleep 1; asa_count_ended; fi
""".strip()

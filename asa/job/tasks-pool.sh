asa_note() { # a link for the number of the process that is run: one needs no space on a full disk
  ln -sf "$1" "$asa_place"
  [ ! -e "${asa_place%/*}/ending" ] || asa_tell_process "$1" TERM # the others were signalled without it
}
asa_task() {
  if [ -z "$asa_done" ] || [ "$(head -n 1 "$asa_done/$1" 2>/dev/null)" != "$2" ]; then
    # space for the note is taken before, lest a disk that fills up meanwhile loses it
    if [ -n "$asa_done" ] && ! printf '%s\n' "$2" "$asa_token" | cat >"$asa_done/.$1"; then
      : >"$asa_running/failed"
      printf 'asa: task %s of %s is not begun: %s has no space to note its end\n' "$1" "$asa_count" "$asa_named" >&2
      echo "$asa_slot" >&9
      return
    fi
    ASA_TASK=$1
    export ASA_TASK
    asa_place=$asa_running/$asa_slot
    asa_kills
    asa_had_killed=$asa_killed
    asa_start "$2" </dev/null 7<&- 9>&-
    asa_code=$?
    asa_kills
    [ "$asa_code" -ne 0 ] || [ "$asa_killed" -eq "$asa_had_killed" ] || asa_code=137
    rm -f "$asa_place"
    if [ "$asa_code" -ne 0 ]; then
      : >"$asa_running/failed"
      asa_say_failed "$1" "$asa_count" "$2"
      # what ends the whole job may reach a task first: no other begins before this shell would have heard of it
      [ "$asa_code" -le 128 ] || sleep 1
    else
      echo "$asa_slot" >&9
      asa_slot=
      [ -z "$asa_done" ] || asa_interrupted || mv -f "$asa_done/.$1" "$asa_done/$1" || :
    fi
  fi
  [ -z "$asa_slot" ] || echo "$asa_slot" >&9
}
asa_signals=0 asa_ending=
asa_tell() {
  asa_signals=$((asa_signals + 1))
  case $1 in HUP | INT | TERM) asa_ending=1; : >"$asa_running/ending" ;; esac
  for asa_place in "$asa_running"/[0-9]*; do
    [ ! -L "$asa_place" ] || asa_tell_process "`readlink "$asa_place"`" "$1"
  done
}
for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_tell $asa_signal" "$asa_signal"; done
asa_slot=0
while [ "$asa_slot" -lt "$asa_workers" ]; do
  asa_slot=$((asa_slot + 1))
  echo "$asa_slot" >&9
done
asa_number=0
while IFS= read -r asa_line; do
  asa_number=$((asa_number + 1))
  asa_turn=$(((asa_number - 1) % asa_all - asa_first))
  [ "$asa_turn" -ge 0 ] && [ "$asa_turn" -lt "$asa_workers" ] || continue
  asa_slot=
  until [ -n "$asa_slot" ] || [ -n "$asa_ending" ]; do IFS= read -r asa_slot <&9 || :; done
  [ -z "$asa_ending" ] || break
  asa_task "$asa_number" "$asa_line" &
done <"$asa_list"
while :; do
  asa_before=$asa_signals
  wait || :
  [ "$asa_before" -ne "$asa_signals" ] || break
done
[ -z "$asa_ending" ] || exit 143
[ ! -e "$asa_running/failed" ]

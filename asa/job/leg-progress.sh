# A stage's progress, as its files show it: names, which may contain a step's number; contents of small files; size and
# time of large ones; for folders the same of their files.
asa_list() { ls -lnd --full-time -- "$1" 2>/dev/null || ls -lnd -- "$1"; }
asa_show() {
  eval "set -- $asa_progress"
  for asa_path do
    printf '%s\n' "$asa_path"
    if [ -d "$asa_path" ]; then
      ls -lnA --full-time -- "$asa_path" 2>/dev/null || ls -lnA -- "$asa_path"
    elif [ -e "$asa_path" ]; then
      asa_size=`wc -c <"$asa_path"` || asa_size=
      if [ "${asa_size:-65537}" -le 65536 ]; then cksum <"$asa_path"; else asa_list "$asa_path"; fi
    else
      echo none
    fi
  done 2>/dev/null | cksum
}
# shellcheck disable=SC2120 # `set` gives them
asa_line() {
  eval "set -- $asa_progress"
  [ -f "$1" ] || return 0
  if [ "`head -c 200 "$1" | LC_ALL=C tr -d '[:print:][:space:]' | wc -c`" -eq 0 ]; then
    head -c 200 "$1" | head -n 1
  else
    printf '%s, %s bytes\n' "${1##*/}" "`wc -c <"$1"`"
  fi
}
asa_digest_of() { [ ! -s "$asa_legs/at.$1" ] || head -n 1 "$asa_legs/at.$1"; }
asa_stall() {
  asa_over left
  asa_say "nothing of what shows its progress changed in the last two legs: $asa_progress"
  asa_end stalled 91
}
if [ -s "$asa_legs/at.$asa_leg" ]; then # the job was put back into the queue
  asa_at=`asa_digest_of "$asa_leg"`
else
  asa_at=begun
  [ -z "$asa_progress" ] || asa_at=`asa_show`
  asa_shown=
  # shellcheck disable=SC2119 # likewise
  [ -z "$asa_progress" ] || asa_shown=`asa_line`
  printf '%s\n%s\n' "$asa_at" "$asa_shown" >"$asa_legs/.at.$asa_leg.$$" &&
    mv -f "$asa_legs/.at.$asa_leg.$$" "$asa_legs/at.$asa_leg" || asa_unwritable
fi
if [ -n "$asa_progress" ] && [ "$asa_leg" -gt 2 ]; then
  asa_one=`asa_digest_of "$asa_before"` asa_two=`asa_digest_of "$((asa_leg - 2))"`
  if [ "$asa_at" = "$asa_one" ] && [ "$asa_at" = "$asa_two" ]; then asa_stall; fi
fi

# Runs a stage, or a task of a list, unless it completed before, though its worker may have died before it reported
# that. Space for the note is reserved first. What was signalled to end may have saved its state and exited: it has not
# completed.
[ ! -e "$asa_done" ] || exit 0
mkdir -p "${asa_done%/*}" && : >"$asa_done.draft" || exit 87
asa_ending= asa_began=$(date +%s)
trap asa_ending=1 HUP INT TERM
sh -c "$asa_text" # a process of its own: its number leads to the folders that it holds open
asa_code=$?
[ "$asa_code" -eq 0 ] || exit "$asa_code"
[ -z "$asa_ending" ] || exit 143
echo "$asa_began $(date +%s)" 2>/dev/null >"$asa_done.draft" || :
mv -f "$asa_done.draft" "$asa_done"

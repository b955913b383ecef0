# Runs a script's text as the batch system would: as a file, by the interpreter that its first line names.
asa_forget() { :; }
if [ -n "$asa_shown" ]; then # the folder for it, if all nodes of the job are to see it
  [ "$asa_shown" != . ] || asa_shown=$PWD
  (umask go-w; mkdir -p "$asa_shown") || asa_end unable 87
fi
asa_script=`mktemp "${asa_shown:-$asa_temporary}/${asa_shown:+.}asa-XXXXXXXX"` || asa_end unable 87
trap 'rm -f "$asa_script"; ${asa_at_end:-:}' EXIT
printf '%s\n' "$asa_command" | cat >"$asa_script" || asa_end unable 87
eval "asa_run $asa_inside $asa_interpreter \"\$asa_script\""

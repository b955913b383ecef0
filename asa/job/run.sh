# Runs a program, and passes on signals, which a shell with a program in the foreground would not do. A program in the
# background would ignore SIGINT and SIGQUIT. A signal ends `wait` early: a program that may still run is waited for
# again; if it had ended at that moment, the first answer holds.
asa_run() {
  asa_child= asa_heard=0 asa_code= asa_ended_by= asa_early=
  for asa_signal in CONT HUP INT TERM USR1 USR2; do trap "asa_pass_on $asa_signal" "$asa_signal"; done
  $asa_env "$@" &
  asa_child=$!
  for asa_signal in $asa_early; do asa_tell_process "$asa_child" "$asa_signal"; done
  while :; do
    asa_was=$asa_heard
    wait "$asa_child" && asa_new=0 || asa_new=$?
    [ "$asa_new" -lt 256 ] || asa_new=$((asa_new - 128)) # as ksh counts signals
    case $asa_code:$asa_new in [0-9]*:127 | [0-9]*:-*) ;; *) asa_code=$asa_new ;; esac
    [ "$asa_was" -ne "$asa_heard" ] || break
  done
  asa_child=
  return "$asa_code"
}
asa_pass_on() {
  asa_heard=$((asa_heard + 1))
  case $1 in HUP | INT | TERM) asa_ended_by=$1 ;; esac
  if [ -n "$asa_child" ]; then asa_tell_process "$asa_child" "$1"; else asa_early="$asa_early $1"; fi
}

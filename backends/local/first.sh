# The first process of a job on this machine. If there are two, the one that makes a file first is the job's process,
# and the other ends. Signals trapped here have their default in the script, whereas ignored ones would stay ignored.
trap : HUP INT TERM USR1 USR2
job=$1
read -r own </proc/$$/stat
set -C
printf '%s %s\n' "$2" "$own" 2>/dev/null >"$job/process" && [ -s "$job/process" ] || exit 88
set +C
if (umask go-w; true >>"$3" && true >>"$4") 2>/dev/null; then # `:` would end the shell
  /bin/sh "$job/script" >>"$3" 2>>"$4"
  code=$?
else
  code='no output'
fi
printf '%s\n' "$code" >"$job/code"
case $code in [0-9]*) exit "$code" ;; *) exit 1 ;; esac

#!/bin/bash
# What each step of a trial runs: it notes beside this file that it begins and ends, whatever asa makes of it.
#
#   step.sh NAME SECONDS HOW     HOW: ok | fail:N[:CODE] | hang:N | lacks:N (the first N executions), fail:always,
#                                or what SIGTERM does: save (it ends with 0), stays (it goes on), late:N (1, in N s)
#
# Lines of `marks`, each appended by one write: what happened, the step, its nonce, then
#   start JOB RESTARTS TIME NODE PID BIRTH    |    beside OTHER-NONCE    |    end TIME EXIT-CODE
#   finds STAGE CORES TASKS: what it is told. EXIT-CODE is told0 after SIGTERM, and lacks0 without its outputs.
name=$1 seconds=$2 how=$3 marks=${BASH_SOURCE[0]%/*}/marks nonce=$$-$RANDOM$RANDOM
mark() { printf '%s\n' "$*" >>"$marks"; }
now() { echo "$((${EPOCHREALTIME%.*} - ${ASA_TRIAL_SKEW:-0})).${EPOCHREALTIME#*.}"; } # a clock that is wrong is the trial's
birth() { local told; told=$(<"/proc/$1/stat") 2>/dev/null || return 1; set -- ${told##*) }; [ "$1" != Z ] && echo "${20}"; }

before=$(grep -c "^start $name " "$marks" 2>/dev/null)
mark start "$name" "$nonce" "${SLURM_JOB_ID:-local}" "${SLURM_RESTART_COUNT:-0}" "$(now)" "${SLURMD_NODENAME:-here}" $$ "$(birth $$)"
while read -r _ _ other _ _ _ _ pid born; do # is an execution that began before still there?
  [ "$other" = "$nonce" ] && break
  grep -q "^end $name $other " "$marks" || { [ "$(birth "$pid" 2>/dev/null)" = "$born" ] && mark beside "$name" "$nonce" "$other"; }
done < <(grep "^start $name " "$marks")

mark finds "$name" "$nonce" "${ASA_STAGE:--}" "${ASA_CORES:--}" "${SLURM_NTASKS:--}"

told='' ends=0
until_over() { # also where its children are told to end, too
  while [ "${EPOCHREALTIME/./}" -lt "$ends" ] && [ -z "$told" -o "$how" = stays ]; do sleep 0.2 & wait $!; done 2>/dev/null
}

code=0 gives=${BASH_SOURCE[0]%/*}/gives/$name
case $how in
  fail:always) code=1 ;;
  fail:*:*) how=${how#*:} && [ "${before:-0}" -lt "${how%:*}" ] && code=${how#*:} ;;
  fail:*) [ "${before:-0}" -lt "${how#*:}" ] && code=1 ;;
  hang:*) [ "${before:-0}" -lt "${how#*:}" ] && seconds=900 ;;
  lacks:*) [ "${before:-0}" -lt "${how#*:}" ] && gives='' code=lacks0 ;;
  save | stays | late:*) trap 'told=yes' TERM ;;
esac
case $how in
  save | stays | late:*)
    printf -v ends '%.0f' "${seconds}e6" && ends=$((${EPOCHREALTIME/./} + ends))
    until_over
    [ -z "$told" ] || code=told0
    if [ "$code" = told0 ] && [ "${how#late:}" != "$how" ]; then
      trap '' TERM
      told='' code=1 ends=$((${EPOCHREALTIME/./} + ${how#*:}000000))
      until_over
    fi ;;
  *) sleep "$seconds" || exit ;; # it was killed first, and this shell is next
esac
[ "$code" != 0 ] || [ ! -d "$gives" ] || cp "$gives"/* "${BASH_SOURCE[0]%/*}/"
mark end "$name" "$nonce" "$(now)" "$code"
exit "${code##*[a-z]}"

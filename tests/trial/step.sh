#!/bin/bash
# What each step of a trial runs: it notes beside this file that it begins and ends, whatever asa makes of it.
#
#   step.sh NAME SECONDS HOW     HOW: ok | fail:N | hang:N (the first N executions), fail:always
#
# Lines of `marks`, each appended by one write: what happened, the step, its nonce, then
#   start JOB RESTARTS TIME NODE PID BIRTH    |    beside OTHER-NONCE    |    end TIME EXIT-CODE
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

code=0
case $how in
  fail:always) code=1 ;;
  fail:*) [ "${before:-0}" -lt "${how#*:}" ] && code=1 ;;
  hang:*) [ "${before:-0}" -lt "${how#*:}" ] && seconds=900 ;;
esac
sleep "$seconds"
mark end "$name" "$nonce" "$(now)" "$code"
exit "$code"

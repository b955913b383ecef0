# How a job's script runs its payload, and passes signals on to it.

# Where signals are trapped commands are substituted the old way: one that arrives while bash 5.2 reads `$(` is lost.

# A signal that the batch system sends to the script alone, as a warning that time runs out, is for the payload.
pass_on() {
  heard=$((heard + 1))
  if [ "$1" = TERM ]; then
    if [ -n "$over" ]; then ending=1; else signals=$((signals + 1)); fi
  fi
  for lane in $lanes; do pass_to_lane "$lane" "$1"; done
  if [ -n "$child" ]; then asa_tell_process "$child" "$1"; else early="$early $1"; fi
}

# A trapped signal ends `wait` early: the child may still run, and is waited for again. If it had ended at that moment,
# the second `wait` may no longer know it (127, in bash -1), and the first answer holds.
await_child() {
  reap "$child"
  child= # its number may be another's soon
  # A process that is signalled to end may save its state and exit with 0 before Slurm, which signals one process after
  # the other, reaches this one. So may srun, and longer before, if Slurm takes the job away before its tasks begin.
  [ "$code" -ne 0 ] || [ -z "${SLURM_JOB_ID-}" ] || sleep "${wary:-0.3}" || sleep 1 || :
  over=1
}
reap() {
  code=
  while :; do
    before=$heard
    wait "$1" && new=0 || new=$?
    [ "$new" -lt 256 ] || new=$((new - 128)) # as ksh counts signals
    case $code:$new in [0-9]*:127 | [0-9]*:-*) ;; *) code=$new ;; esac
    [ "$before" -ne "$heard" ] || break
  done
}

# What runs in the background has SIGINT and SIGQUIT ignored, and so has all that it starts, unless told otherwise.
run() { # a text, and what it reads, if that is the payload
  over= wary= word= outcome=$marks/.outcome.$job$inner
  case ${SLURM_JOB_ID:+${2:-$1}} in *srun* | *mpirun* | *mpiexec*) wary=1 ;; esac
  command=$1 number=0
  held=
  case ${2:-$1} in *ASA_RUN_HELD*) [ "$run" = "$named" ] || held=$run:$named ;; esac
  case ${2:-$1} in *asa_outcome=*) set -- "ASA_OUTCOME=$outcome" ;; *) set -- ;; esac
  [ -z "$held" ] || set -- "$@" "ASA_RUN_HELD=$held"
  ! env --default-signal=INT,QUIT true 2>/dev/null || set -- --default-signal=INT,QUIT "$@"
  while [ "$number" -lt "$entries" ]; do
    number=$((number + 1))
    eval "set -- \"\$@\" \"\$entry_$number\""
  done
  early= # signals that come before the number of what begins is known
  [ "$signals" -eq 0 ] || { code=143; return; } # told to end while this was prepared: nothing is begun
  asa_kills
  killed=$asa_killed
  # shellcheck disable=SC2086 # words for `env`, and a shell with an option
  env "$@" $seen $shell -c -- "$command" 8<&- &
  child=$!
  for signal in $early; do asa_tell_process "$child" "$signal"; done
  await_child
  [ "$code" -eq 0 ] || ! word=`readlink "$outcome" 2>/dev/null` || rm -f "$outcome"
  [ -z "$heeds" ] || heed_memory
}
# A process that was killed within a pipe may not show in the exit code.
heed_memory() {
  asa_kills
  [ "$asa_killed" -gt "$killed" ] || return 0
  case $word in
    '' | failed | output-missing) ;;
    tasks-failed) [ -z "$shares" ] || return 0 ;; # which tells others that none is left to take
    *) return 0 ;;
  esac
  say "the kernel killed $((asa_killed - killed)) of its processes, since memory was used up"
  word=out-of-memory
  [ "$code" -ne 0 ] || code=137
}

# The text may be too long for an argument, so it is in a file. The shell that runs the file first removes it.
run_file() {
  file=$marks/.payload.$job$inner
  # shellcheck disable=SC2016 # for the shell that is to run it
  printf 'rm -f "$asa_file"; unset asa_file\n%s\n' "$1" | fresh "$file" 077 || give_up "cannot write into $marks"
  asa_file=$file
  export asa_file
  # shellcheck disable=SC2016 # likewise
  run '. "$asa_file"' "$1"
  unset asa_file
  rm -f "$file"
}

# A link that is there already may be this job's own: it was put back into the queue, or a server answered late.
take_start() { ln -s "$owner" "$gate/start" 2>/dev/null || [ -n "`readlink "$gate/start"`" ]; }

superseded() {
  say "what this job was to run was asked for again in another: nothing more is run here"
  word=twin
  [ -z "$inner" ] || hand_up
  exit 86
}

# All steps of a job together may wait for a certain time: each for what the steps before it have left of that.
idled=0
await() {
  awaited=$1
  # shellcheck disable=SC2086 # words
  set -- $pauses
  since=`date +%s`
  for post in $awaited; do
    while :; do
      ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
      [ ! -e "$posts/$post" ] || break
      [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
      if [ -e "$posts/$post~no" ]; then
        say "it is not to wait any longer: it gives its cores back"
        finish 89 gave-back
      fi
      if [ -n "$max_idle" ] && now=`date +%s` && [ "$((now - since + idled))" -gt "$max_idle" ]; then
        say "what it waits for did not come within $max_idle seconds: it gives its cores back"
        finish 89 gave-back
      fi
      sleep "$1" 2>/dev/null & # some take no fractions
      child=$!
      wait "$child" || :
      child=
      [ $# -eq 1 ] || shift
    done
  done
  now=`date +%s` || now=$since
  idled=$((idled + now - since))
}

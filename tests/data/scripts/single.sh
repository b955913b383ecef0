#!/bin/sh
# Written by asa for the job fit.a1.
# Its walltime in seconds: 90.5
# Where Slurm says that its memory ran out: ignore
job=${SLURM_JOB_ID:?}
owner=$job whole= count=
pauses='1 2 3 4 5'
token=a1
named=/r
asa_hold() { # a folder, a number that stands for it
  asa_named=$1 asa_held=$1
  [ -d "$1" ] && (eval "exec $2<\"\$1\"") 2>/dev/null || return 0
  eval "exec $2<\"\$1\""
  [ -d "/proc/$$/fd/$2/." ] || return 0 # a system without such names
  [ "$1/." -ef "/proc/$$/fd/$2/." ] || return 1
  asa_held=/proc/$$/fd/$2
}
asa_hold "$named" 8 || exit 87 # exchanged at this moment
run=$asa_held
marks="$run"/marks/a1
posts="$run"/posts
awaits=r%2Fgen
posted=r%2Ffit
max_idle=60
folder=/home/me
shares=
steps=''
gate=$marks
trusted=

signals=0 # to end
heard=0 # of any kind
child=
kept= # cores, once others were given back
seen= # in place of what the environment says
wary= # of what the payload says of its end
over= # the payload, or the step, has ended
lanes= # processes that run the steps of a wave, each by itself
lane_steps= # their steps' numbers
inner= # the number of the step, in such a process
ending= # told to end after that
word= # how it ended; see `asa.outcome`
unset ASA_OUTCOME

# Variables whose names not every shell keeps, as those of functions that bash exported, and those of names that this
# script uses itself come numbered, and are put back for the payload alone; its shell is bash where sh may drop them.
shell=sh
entries=0
while eval "entry=\${ASA_ENTRY_$((entries + 1))-}" && [ -n "$entry" ]; do
  entries=$((entries + 1))
  eval "entry_$entries=\$entry"
  unset "ASA_ENTRY_$entries"
  case ${entry%%=*} in *[!A-Za-z0-9_]*) shell='bash --posix' ;; esac
done
command -v bash >/dev/null 2>&1 || shell=sh

# `echo` would read a backslash as more than itself.
say() {
  told=$*
  case $told in *"$run"*) told=${told%%"$run"*}$named${told#*"$run"} ;; esac
  printf 'asa: %s\n' "$told" >&2
}
give_up() { say "$*"; exit 87; }

# Where signals are trapped commands are substituted the old way: one that arrives while bash 5.2 reads `$(` is lost.

asa_owned() {
  [ ! -O "$1" ] || return 0
  (
    trap '' HUP INT TERM USR1 USR2
    cd -P -- "$1" || exit 1
    asa_owner=`ls -ldn . | awk '{ print $3 }'`
    [ "$asa_owner" != 0 ] || exit 0
    asa_probe=`mktemp -u ./.owner.XXXXXXXXXX` && [ -n "$asa_probe" ] || exit 1
    umask 077
    set -C
    asa_made=`{ ls -lLdn /dev/fd/9 | awk '{ print $1, $3 }'; } 9>"$asa_probe"`
    rm -f "$asa_probe"
    case $asa_owner:$asa_made in [0-9]*:-*" $asa_owner") ;; *) exit 1 ;; esac
  ) 2>/dev/null
}
owned() { [ -n "$trusted" ] || [ ! -e "$1" ] || asa_owned "$1"; }
enclose() { (umask go-w; mkdir -p "$1"); }
# A new file, for nobody else to change; what lies there is removed, and no link followed.
fresh() {
  if [ -e "$1" ] || [ -L "$1" ]; then rm -f "$1"; fi
  (umask "${2-go-w}"; set -C; cat >"$1")
}

# A file comes into being whole: written beside its place, then renamed. `cat` tells of a full disk, `printf` may not.
drafted() { draft=${1%/*}/.${1##*/}.$job; }
prepare() { drafted "$1"; facts "$2" | fresh "$draft"; }
commit() { drafted "$1"; mv -f "$draft" "$1"; }
drop() { drafted "$1"; rm -f "$draft"; }
facts() {
  printf 'job=%s\nhost=%s\ntime=%s\n' "$job" "$(uname -n)" "$(date +%s)"
  [ -z "$kept" ] || printf 'cores=%s\n' "$kept"
  [ -n "$1" ] || return 0
  [ "$1" -eq 0 ] && how=completed || how=${word:-failed}
  printf 'code=%s\nsignals=%s\noutcome=%s\n' "$1" "$signals" "$how"
}
mark() { patiently write "$marks/$1" "" || give_up "cannot write into $marks"; }
write() { prepare "$1" "$2" && commit "$1"; }

# A full disk may have space again soon.
patiently() {
  until "$@"; do
    [ "$patience" -gt 0 ] && [ "$signals" -eq 0 ] || return 1
    patience=$((patience - 2))
    sleep 2 || :
  done
}

# Space is taken beforehand; afterwards only the time is written, over the one that is there, and the name changed.
reserve() { patiently prepare "$1" "$2" || give_up "cannot write into ${1%/*}"; }
settle() {
  drafted "$1"
  if [ -f "$draft" ] && [ ! -L "$draft" ]; then
    { facts "$2" | cat 1<>"$draft"; } 2>/dev/null || :
    patiently commit "$1"
  else
    patiently write "$1" "$2"
  fi
}

# What the batch system tells the script alone, as a warning that time runs out, is for the payload.
pass_on() {
  heard=$((heard + 1))
  if [ "$1" = TERM ]; then
    if [ -n "$over" ]; then ending=1; else signals=$((signals + 1)); fi
  fi
  for lane in $lanes; do pass_to_lane "$lane" "$1"; done
  [ -z "$child" ] || asa_tell_process "$child" "$1"
}

asa_tell_process() { # its number, a signal
  for asa_try in 1 2 3 4 5 6 7 8 9 10; do
    cmp -s "/proc/$$/cmdline" "/proc/$1/cmdline" 2>/dev/null || break
    sleep 0.05 || sleep 1
  done
  kill -s "$2" "$1" 2>/dev/null || :
}

asa_add_kills() {
  while read -r asa_oom_id asa_oom_count; do
    [ "$asa_oom_id" != oom_kill ] || asa_killed=$((asa_killed + asa_oom_count))
  done <"$1"
}
asa_kills() {
  asa_killed=0
  [ -n "${SLURM_JOB_ID-}" ] && [ -r /proc/self/cgroup ] || return 0
  while IFS=: read -r asa_oom_id asa_oom_controllers asa_oom_group; do
    case ,$asa_oom_controllers, in
      ,,) asa_oom_root=/sys/fs/cgroup asa_oom_events=memory.events ;;
      *,memory,*) asa_oom_root=/sys/fs/cgroup/memory asa_oom_events=memory.oom_control ;;
      *) continue ;;
    esac
    case $asa_oom_group/ in *"/job_$SLURM_JOB_ID/"*) ;; *) continue ;; esac
    asa_oom_own=$asa_oom_root$asa_oom_group
    asa_oom_job=$asa_oom_root${asa_oom_group%%"/job_$SLURM_JOB_ID"*}/job_$SLURM_JOB_ID
    if [ "$asa_oom_events" != memory.events ]; then
      for asa_oom_own in "$asa_oom_job" "$asa_oom_job"/* "$asa_oom_job"/*/*; do
        asa_oom_file=$asa_oom_own/$asa_oom_events
        [ ! -r "$asa_oom_file" ] || asa_add_kills "$asa_oom_file"
      done
    elif [ -r "$asa_oom_job/$asa_oom_events" ]; then
      asa_add_kills "$asa_oom_job/$asa_oom_events"
    else
      while [ "$asa_oom_own" != "$asa_oom_job" ] && [ ! -r "$asa_oom_own/$asa_oom_events" ]; do
        asa_oom_own=${asa_oom_own%/*}
      done
      [ ! -r "$asa_oom_own/$asa_oom_events" ] || asa_add_kills "$asa_oom_own/$asa_oom_events"
    fi
  done </proc/self/cgroup
}

# What runs in the background ignores INT, and not every shell lets that be changed: URG stands for it.
pass_to_lane() {
  case $2 in INT) kill -s URG "$1" 2>/dev/null || : ;; *) kill -s "$2" "$1" 2>/dev/null || : ;; esac
}

# A signal that is trapped ends `wait` early: then the child may still run, and is waited for again. Where it had ended
# in that moment the second `wait` may know it no more (127, in bash -1), and the first one's answer stands.
await_child() {
  reap "$child"
  child= # its number may be another's soon
  # What is told to end may save its state and exit with 0, before Slurm, which signals one process after the other,
  # reaches this one. So may srun, if Slurm takes the job away before its tasks begin, and longer before.
  [ "$code" -ne 0 ] || [ -z "${SLURM_JOB_ID-}" ] || sleep "${wary:-0.3}" || sleep 1 || :
  over=1
}
reap() {
  code=
  while :; do
    before=$heard
    wait "$1" && new=0 || new=$?
    case $code:$new in [0-9]*:127 | [0-9]*:-*) ;; *) code=$new ;; esac
    [ "$before" -ne "$heard" ] || break
  done
}

# A step of a wave runs in a process of its own: if it fails, that is noted, and the others go on.
beside() {
  inner=$1 own=$2 lanes= child=
  for signal in CONT HUP TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done
  trap "pass_on INT" URG
}
# One that was told to end before its process was known is told again.
joined() {
  lanes="$lanes $1" lane_steps="$lane_steps $2"
  [ "$signals" -eq 0 ] || kill -s TERM "$1" 2>/dev/null || :
}
leave() {
  code=$1
  [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  drop "$marks/step-$inner-ended"
  [ -z "$own" ] || drop "$posts/$own"
  [ "$word" = gave-back ] || write "$marks/step-$inner-failed" "$code" || :
  hand_up
  exit "$code"
}
# What such a process tells of its end, beside its exit code; a link needs no space.
hand_up() { [ -z "$inner" ] || ln -sf "${word:-failed}" "$marks/.lane.$job.$inner" || :; }
handed_up() { word=`readlink "$marks/.lane.$job.$1"` && rm -f "$marks/.lane.$job.$1" || word=; }
# The wave's end: what failed counts for more than what gave its cores back, since nobody handed it over.
gather() {
  failed= why= held= twin=
  set -- $lane_steps
  lane_steps=
  for lane in $lanes; do
    reap "$lane"
    lanes=${lanes# "$lane"}
    [ "$code" -eq 0 ] || handed_up "$1"
    shift
    case $code$word in
      0*) ;;
      *gave-back) held=$code ;;
      *twin) twin=$code ;; # it has another job, and so has what else did not complete
      *) [ -n "$failed" ] || { failed=$code why=$word; } ;;
    esac
  done
  [ -z "$twin" ] || [ -n "$failed" ] || exit "$twin"
  code=${failed:-${held:-0}}
  if [ -n "$failed" ]; then word=$why; elif [ -n "$held" ]; then word=gave-back; else word=; fi
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
}

all_posted() {
  [ -n "$posted" ] || return 1
  ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
  for post in $posted; do
    [ -e "$posts/$post" ] || return 1
  done
}

# Of an array: once all elements have posted, so does the whole; who looks last sees all.
post_whole() {
  [ -n "$whole" ] && [ ! -e "$posts/$whole" ] || return 0
  [ "`ls "$posts/$whole+" | wc -l`" -ge "$count" ] || return 0
  patiently write "$posts/$whole" ""
}

# Posts are made before the mark of the end, so that a node may fail in between.
finish() { # an exit code, a word
  word=${2-}
  [ -z "$inner" ] || leave "$1"
  code=$1
  if [ -n "$shares" ] && [ "$word" = part-done ]; then # its part is done, and the whole is not
    for post in $posted; do drop "$posts/$post"; done
    posted= code=0
  else
    [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  fi
  if [ "$code" -eq 0 ]; then
    for post in $posted; do
      [ -e "$posts/$post" ] || settle "$posts/$post" "" ||
        give_up "it completed, but that cannot be written into $posts"
    done
    post_whole || give_up "it completed, but that cannot be written into $posts"
    settle "$marks/ended" 0 || give_up "it completed, but that cannot be written into $marks"
  else
    for post in $posted; do drop "$posts/$post"; done
    write "$marks/ended" "$code" || give_up "cannot write into $marks"
  fi
  exit "$code"
}

# A link that is there already may be this job's own: it was put back into the queue, or a server answered late.
take_start() { ln -s "$owner" "$gate/start" 2>/dev/null || [ -n "`readlink "$gate/start"`" ]; }

superseded() {
  say "what this job was to run was asked for again in another: nothing more is run here"
  word=twin
  hand_up
  exit 86
}

for signal in CONT HUP INT TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done

patience=${ASA_PATIENCE_S:-60}
patiently enclose "$marks" || give_up "cannot make $marks"
[ -z "$whole" ] || patiently enclose "$posts/$whole+" || give_up "cannot write into $posts"
for place in "$run" "$posts" "$gate" "$marks"; do
  owned "$place" || give_up "$place belongs to another user: nothing is run"
done
# What it prints is for its group to read where the run's folder is, whatever the umask says.
case `ls -ld "$run/logs" 2>/dev/null` in
  drwxr-[xs]---*)
    for place in 1 2; do
      [ ! -f "/dev/fd/$place" ] || [ ! -O "/dev/fd/$place" ] || chmod g+r,go-w "/dev/fd/$place" || :
    done
    ;;
esac
[ ! -e "$gate/superseded" ] || superseded
if [ -n "$token" ]; then
  if ! ln -s "$owner" "$gate/claim" 2>/dev/null; then
    holder=`readlink "$gate/claim"` || give_up "cannot write into $gate"
    if [ "$holder" != "$owner" ]; then
      say "job $holder has the same payload and came first: nothing is run here"
      exit 86
    fi
    # The same job was put back into the queue. What completed stays completed: others may build on it already.
    if [ -f "$marks/ended" ] && grep -qx code=0 "$marks/ended" 2>/dev/null; then
      post_whole || give_up "cannot write into $posts"
      say "the payload completed before this job was put back into the queue"
      exit 0
    fi
  fi
  if all_posted; then
    say "the payload has completed before"
    post_whole || give_up "cannot write into $posts"
    settle "$marks/ended" 0 || give_up "cannot write into $marks"
    exit 0
  fi
fi
# Of the steps of an earlier run those that completed are still true.
rm -f "$marks"/step-*-failed || give_up "cannot write into $marks"
for file in "$marks"/step-*-began; do
  [ -e "${file%-began}-ended" ] || rm -f "$file" || give_up "cannot write into $marks"
done
rm -f "$marks/began" "$marks/ended" "$marks"/.outcome.* "$marks"/.lane.* || give_up "cannot write into $marks"

# What waits before a step has the time that those before it left.
idled=0
await() {
  awaited=$1
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
      sleep "$1" &
      child=$!
      wait "$child" || :
      child=
      [ $# -eq 1 ] || shift
    done
  done
  now=`date +%s` || now=$since
  idled=$((idled + now - since))
}
await "$awaits"
[ "$signals" -eq 0 ] || finish 143

cd -- "$folder" || { say "cannot work in $folder"; finish 87 folder-missing; }
[ ! -e "$gate/superseded" ] || superseded
reserve "$marks/ended" 0
[ -n "$steps" ] || for post in $posted; do reserve "$posts/$post" ""; done
if [ -n "$token" ]; then
  patiently take_start || give_up "cannot write into $gate"
  if [ "`readlink "$gate/start"`" != "$owner" ]; then
    say "its cores were given back before the payload began"
    finish 89 gave-back
  fi
fi
mark began

# What runs in the background has SIGINT and SIGQUIT ignored, and so has all that it starts, unless told otherwise.
run() {
  over= wary= word= outcome=$marks/.outcome.$job$inner
  case ${SLURM_JOB_ID:+${2:-$1}} in *srun* | *mpirun* | *mpiexec*) wary=1 ;; esac
  text=$1 number=0
  case ${2:-$1} in *asa_outcome=*) set -- "ASA_OUTCOME=$outcome" ;; *) set -- ;; esac
  ! env --default-signal=INT,QUIT true 2>/dev/null || set -- --default-signal=INT,QUIT "$@"
  while [ "$number" -lt "$entries" ]; do
    number=$((number + 1))
    eval "set -- \"\$@\" \"\$entry_$number\""
  done
  [ "$signals" -eq 0 ] || { code=143; return; } # told to end while this was prepared: nothing is begun
  asa_kills
  killed=$asa_killed
  env "$@" $seen $shell -c -- "$text" 8<&- &
  child=$!
  [ "$signals" -eq 0 ] || asa_tell_process "$child" TERM
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

# No argument may be so long as a file, which is no more once the shell that runs it has begun to read.
run_file() {
  file=$marks/.payload.$job$inner
  printf 'rm -f "$asa_file"; unset asa_file
%s
' "$1" | fresh "$file" 077 || give_up "cannot write into $marks"
  asa_file=$file
  export asa_file
  run '. "$asa_file"' "$1"
  unset asa_file
  rm -f "$file"
}

# Whether a step is still to be run.
due() {
  [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
  [ ! -e "$gate/superseded" ] || superseded
  [ -n "$3" ] || return 0
  ls "$posts" >/dev/null 2>&1 || :
  [ -e "$posts/$3" ] || return 0
  say "step $2 has completed before"
  [ -e "$marks/step-$1-ended" ] || { mark "step-$1-began"; mark "step-$1-ended"; }
  return 1
}

step() {
  mark "step-$1-began"
  [ -z "$3" ] || reserve "$posts/$3" ""
  reserve "$marks/step-$1-ended" ""
  say "step $2"
  "$4" "$5"
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code" "$word"
  [ -z "$3" ] || settle "$posts/$3" "" || give_up "step $2 completed, but that cannot be written into $posts"
  settle "$marks/step-$1-ended" "" || give_up "cannot write into $marks"
}

# The payload.
heeds=1
run 'echo '"'"'steps=x'"'"'
steps='"'"'of its own'"'"'
posted=none
awaits='"'"'x'"'"'
# Its walltime in seconds: 5
'
finish "$code" "$word"

#!/bin/sh
# Written by asa for the job flow_broken.9a69e9122b63-3-0.
job=${ASA_JOB_ID:?}
pauses='0.1 0.2 0.3 0.5'
token=9a69e9122b63-3-0
marks=/tmp/gold/runs/flow-20261123-043729-9a69/marks/9a69e9122b63-3-0
posts=/tmp/gold/runs/flow-20261123-043729-9a69/posts
awaits=9a69e9122b63b0b4%2Fsplit
posted=9a69e9122b63b0b4%2Fbroken
most_idle=
folder=/tmp/gold
steps=''

signals=0 # to end
heard=0 # of any kind
child=
kept= # cores, once others were given back
seen= # in place of what the environment says
wary= # of what the payload says of its end
over= # the payload, or the step, has ended
ending= # told to end after that

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
say() { printf 'asa: %s\n' "$*" >&2; }
give_up() { say "$*"; exit 87; }

# A file comes into being whole: written beside its place, then renamed. `cat` tells of a full disk, `printf` may not.
draft() { printf '%s\n' "${1%/*}/.${1##*/}.$job"; }
prepare() { facts "$2" | cat >"$(draft "$1")"; }
commit() { mv -f "$(draft "$1")" "$1"; }
facts() {
  printf 'job=%s\nhost=%s\ntime=%s\n' "$job" "$(uname -n)" "$(date +%s)"
  [ -z "$kept" ] || printf 'cores=%s\n' "$kept"
  [ -z "$1" ] || printf 'code=%s\nsignals=%s\n' "$1" "$signals"
}
mark() { patiently write "$marks/$1" "" || give_up "cannot write into $marks"; }
write() { prepare "$1" "$2" && commit "$1"; }

# A full disk may have room again soon.
patiently() {
  until "$@"; do
    [ "$patience" -gt 0 ] && [ "$signals" -eq 0 ] || return 1
    patience=$((patience - 2))
    sleep 2 || :
  done
}

# Room is taken beforehand; afterwards only the time is written, over the one that is there, and the name changed.
reserve() { patiently prepare "$1" "$2" || give_up "cannot write into ${1%/*}"; }
settle() {
  if [ -e "$(draft "$1")" ]; then
    { facts "$2" | cat 1<>"$(draft "$1")"; } 2>/dev/null || :
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
  [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null || :
}

# A signal that is trapped ends `wait` early: then the child may still run, and is waited for again. Where it had ended
# in that moment the second `wait` may know it no more (127, in bash -1), and the first one's answer stands.
await_child() {
  code=
  while :; do
    before=$heard
    wait "$child" && new=0 || new=$?
    case $code:$new in [0-9]*:127 | [0-9]*:-*) ;; *) code=$new ;; esac
    [ "$before" -ne "$heard" ] || break
  done
  # srun ends well, too, if Slurm takes the job away before its tasks begin: the script hears of that a moment later
  [ "$code" -ne 0 ] || [ -z "$wary" ] || sleep 1 || :
  over=1
  child=
}

all_posted() {
  [ -n "$posted" ] || return 1
  ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
  for post in $posted; do
    [ -e "$posts/$post" ] || return 1
  done
}

# Posts are made before the mark of the end, so that a node may fail in between.
finish() {
  code=$1
  [ "$code" -ne 0 ] || [ "$signals" -eq 0 ] || code=143
  if [ "$code" -eq 0 ]; then
    for post in $posted; do
      [ -e "$posts/$post" ] || settle "$posts/$post" "" ||
        give_up "it ended well, but that cannot be written into $posts"
    done
    settle "$marks/ended" 0 || give_up "it ended well, but that cannot be written into $marks"
  else
    for post in $posted; do rm -f "$(draft "$posts/$post")"; done
    write "$marks/ended" "$code" || give_up "cannot write into $marks"
  fi
  exit "$code"
}

superseded() {
  say "what this job was to run was asked for again in another: nothing more is run here"
  exit 86
}

for signal in CONT HUP INT TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done

patience=${ASA_PATIENCE_S:-60}
patiently mkdir -p "$marks" || give_up "cannot make $marks"
[ ! -e "$marks/superseded" ] || superseded
if [ -n "$token" ]; then
  if ! ln -s "$job" "$marks/claim" 2>/dev/null; then
    holder=$(readlink "$marks/claim") || give_up "cannot write into $marks"
    if [ "$holder" != "$job" ]; then
      say "job $holder has the same payload and came first: nothing is run here"
      exit 86
    fi
    # The same job was put back into the queue. What ended well stays ended: others may build on it already.
    if [ -f "$marks/ended" ] && grep -qx code=0 "$marks/ended" 2>/dev/null; then
      say "the payload ended well before this job was put back into the queue"
      exit 0
    fi
  fi
  if all_posted; then
    say "the payload has ended well before"
    settle "$marks/ended" 0 || give_up "cannot write into $marks"
    exit 0
  fi
fi
# Of the steps of an earlier run those that ended well are still true.
for file in "$marks"/step-*-began; do
  [ -e "${file%-began}-ended" ] || rm -f "$file" || give_up "cannot write into $marks"
done
rm -f "$marks/began" "$marks/ended" || give_up "cannot write into $marks"

set -- $pauses
since=$(date +%s)
for post in $awaits; do
  while :; do
    ls "$posts" >/dev/null 2>&1 || : # makes NFS look at the server again
    [ ! -e "$posts/$post" ] || break
    [ "$signals" -eq 0 ] || finish 143
    if [ -n "$most_idle" ] && [ "$(($(date +%s) - since))" -gt "$most_idle" ]; then
      say "what it waits for did not come within $most_idle seconds: it gives its cores back"
      finish 89
    fi
    sleep "$1" &
    child=$!
    wait "$child" || :
    child=
    [ $# -eq 1 ] || shift
  done
done
[ "$signals" -eq 0 ] || finish 143

cd -- "$folder" || { say "cannot work in $folder"; finish 87; }
[ ! -e "$marks/superseded" ] || superseded
reserve "$marks/ended" 0
[ -n "$steps" ] || for post in $posted; do reserve "$posts/$post" ""; done
mark began

# What runs in the background has SIGINT and SIGQUIT ignored, and so has all that it starts, unless told otherwise.
run() {
  over= wary=
  case ${SLURM_JOB_ID:+${2:-$1}} in *srun* | *mpirun* | *mpiexec*) wary=1 ;; esac
  text=$1 number=0
  set --
  ! env --default-signal=INT,QUIT true 2>/dev/null || set -- --default-signal=INT,QUIT
  while [ "$number" -lt "$entries" ]; do
    number=$((number + 1))
    eval "set -- \"\$@\" \"\$entry_$number\""
  done
  env "$@" $seen $shell -c -- "$text" &
  child=$!
  [ "$signals" -eq 0 ] || kill -TERM "$child" 2>/dev/null || :
  await_child
  case $code in 88 | 89) code=1 ;; esac # which say something else of a job
}

# No argument may be so long as a file, which is no more once the shell that runs it has begun to read.
run_file() {
  file=$marks/.payload.$job
  mask=$(umask)
  umask 077
  printf 'rm -f "$asa_file"; unset asa_file
%s
' "$1" | cat >"$file" || give_up "cannot write into $marks"
  umask "$mask"
  asa_file=$file
  export asa_file
  run '. "$asa_file"' "$1"
  unset asa_file
  rm -f "$file"
}

# Whether a step is still to be run.
due() {
  [ "$signals" -eq 0 ] && [ -z "$ending" ] || finish 143
  [ ! -e "$marks/superseded" ] || superseded
  [ -n "$3" ] || return 0
  ls "$posts" >/dev/null 2>&1 || :
  [ -e "$posts/$3" ] || return 0
  say "step $2 has ended well before"
  [ -e "$marks/step-$1-ended" ] || { mark "step-$1-began"; mark "step-$1-ended"; }
  return 1
}

step() {
  mark "step-$1-began"
  [ -z "$3" ] || reserve "$posts/$3" ""
  reserve "$marks/step-$1-ended" ""
  say "step $2"
  "$4" "$5"
  [ "$code" -eq 0 ] && [ "$signals" -eq 0 ] || finish "$code"
  [ -z "$3" ] || settle "$posts/$3" "" || give_up "step $2 ended well, but that cannot be written into $posts"
  settle "$marks/step-$1-ended" "" || give_up "cannot write into $marks"
}

# The payload.
run 'export ASA_STAGE=broken ASA_CORES=4
exit 3'
finish "$code"

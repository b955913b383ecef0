# Whether a job's script may run what it is for, and when: then the mark of its beginning is made.
signals=0 # to end
heard=0 # of any kind
child= code=0 early=
ran_on=${SLURM_JOB_NODELIST-} # which Slurm forgets
kept= # cores, once others were given back
seen= # in place of what the environment says
wary= # of what the payload says of its end
over= # the payload, or the step, has ended
lanes= # processes that run the steps of a wave, each by itself
lane_steps= # their steps' numbers
inner= # the number of the step, in such a process
ending= # told to end after that
word= # how it ended
unset ASA_OUTCOME

# Some variables arrive under numbers, and get their names back for the payload only: those whose names not every shell
# keeps, such as functions exported by bash, and those whose names this script uses itself. The payload's shell is bash
# if sh may drop them.
shell='sh'
entries=0
while eval "entry=\${ASA_ENTRY_$((entries + 1))-}" && [ -n "$entry" ]; do
  entries=$((entries + 1))
  eval "entry_$entries=\$entry"
  unset "ASA_ENTRY_$entries"
  case ${entry%%=*} in *[!A-Za-z0-9_]*) shell='bash --posix' ;; esac
done
command -v bash >/dev/null 2>&1 || shell='sh'

for signal in CONT HUP INT TERM USR1 USR2; do trap "pass_on $signal" "$signal"; done

patiently enclose "$marks" || give_up "cannot make $marks"
[ -z "$whole" ] || patiently enclose "$posts/$whole+" || give_up "cannot write into $posts"
for place in "$run" "$posts" "$gate" "$marks"; do
  owned "$place" || give_up "$place belongs to another user: nothing is run"
done
# What it prints is for its group to read where the run's folder is, whatever the umask says.
for_group=
case `ls -ld "$run/logs" 2>/dev/null` in
  drwxr-[xs]---*)
    for_group=1
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

# Runs the lines of a list as tasks, so many at once. A line's number tells it from the others. What completed is noted
# beside its text, so that a stage that is run again, after a failure or on another node, does not run it again. Several
# nodes take turns, each with as many lines as it has cores for, so that none is still busy when others have long been
# idle. A task begins with a slot, which it gives back. A signal goes on to the tasks that run; after one that tells to
# end no more begin.
asa_list=$1 asa_done=$2 asa_workers=$3 asa_cpus_per_task=$4 asa_cpus=$5 asa_first=0 asa_all=$3
[ -r "$asa_list" ] || sleep 5
if [ -n "$asa_done" ]; then
  asa_hold_own "$asa_done"
  asa_done=$asa_held asa_list=$asa_held/${asa_list##*/}
fi
[ -r "$asa_list" ] || { echo "asa: no list of tasks on $(uname -n)" >&2; asa_end unable 87; }
asa_count=$(grep -c '' <"$asa_list")

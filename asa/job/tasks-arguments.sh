# Runs the lines of a list as tasks, a given number at a time. A line is identified by its number. A completed task is
# noted with its text, so that a stage that runs again, after a failure or on another node, does not repeat it. Several
# nodes take turns, each with as many lines as it has cores for, so that none is still busy when others have long been
# idle. A task takes a slot when it begins, and gives it back. A signal is passed on to the running tasks; after one to
# end, no more begin.
asa_list=$1 asa_done=$2 asa_workers=$3 asa_cpus_per_task=$4 asa_cpus=$5 asa_first=0 asa_all=$3
[ -r "$asa_list" ] || sleep 5
if [ -n "$asa_done" ]; then
  asa_hold_own "$asa_done"
  asa_done=$asa_held asa_list=$asa_held/${asa_list##*/}
fi
[ -r "$asa_list" ] || { echo "asa: no list of tasks on $(uname -n)" >&2; asa_end unable 87; }
asa_count=$(grep -c '' <"$asa_list")

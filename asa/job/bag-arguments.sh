# Arguments of the process that takes tasks on a node of the job.
asa_list=$1 asa_dir=$2 asa_me=$3 asa_workers=$4 asa_cpus_per_task=$5 asa_cpus=$6
[ -r "$asa_dir/list" ] || sleep 5
[ -r "$asa_dir/list" ] || asa_give_up "no list of tasks on $(uname -n)"
asa_hold_own "$asa_dir"
asa_dir=$asa_held asa_list=$asa_held/takers/${asa_list##*/}

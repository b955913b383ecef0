# A job that was submitted as an element of an array, with others that ask for the same: what it prints and its name are
# those that it would have alone, and its payload sees no array.
# Where Slurm appends to the output of a job that was put back into the queue, what it printed before comes first.
appends=
while read -r fact value; do
  case $fact:$value in flags:*[2367]???) appends=1 ;; esac # O_APPEND
done 2>/dev/null <"/proc/$$/fdinfo/1" || :
for kind in out err; do
  log=$run/logs/$output-e$SLURM_ARRAY_TASK_ID.$kind its=$run/logs/$member-$number.$kind
  [ -f "$log" ] || continue
  [ -z "$appends" ] || [ ! -f "$its" ] || cat "$its" >>"$log" || :
  mv -f "$log" "$its" || :
done
export SLURM_JOB_NAME="$member"
unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN
unset SLURM_ARRAY_TASK_STEP

# A job that was submitted as an element of an array, with others that ask for the same: what it prints has the name that
# it would have alone, and its payload sees no array.
for kind in out err; do
  log=$run/logs/$output-e$SLURM_ARRAY_TASK_ID.$kind
  [ ! -f "$log" ] || mv -f "$log" "$run/logs/$member-$number.$kind" || :
done
unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN
unset SLURM_ARRAY_TASK_STEP

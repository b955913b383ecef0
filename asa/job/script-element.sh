# What tells an element of an array from the others: its number, and where its marks and its post are. What holds for
# the job as a whole, as whose claim it is, stays in its own folder.
owner=${SLURM_ARRAY_JOB_ID:?} element=${SLURM_ARRAY_TASK_ID:?}
[ -n "$token" ] || gate=${marks%/*}/job.$owner
if [ -n "$ranges" ]; then # its number follows from its place among all
  place=$element element=
  for range in $ranges; do
    first=${range%%:*} last=${range#*:} step=${range##*:}
    last=${last%:*}
    number=$(((last - first) / step + 1))
    if [ "$place" -lt "$number" ]; then element=$((first + place * step)); break; fi
    place=$((place - number))
  done
  [ -n "$element" ] || exit 87
fi
job=${owner}_$element marks=$gate/e$element
SLURM_ARRAY_TASK_ID=$element
export SLURM_ARRAY_TASK_ID
if [ -n "$posted" ]; then whole=$posted posted=$posted+/$element; fi

# What an element of an array has of its own: its number, and the places of its marks and completion marker. What holds
# for the whole job, such as the owner of its claim, stays in the job's folder.
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

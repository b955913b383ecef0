# Runs an element of an array when it is its turn, with a time limit of its own; the task's text is its number.
asa_limit="timeout -k 10 $asa_limit_s"
$asa_limit true 2>/dev/null || asa_limit=
# In Slurm, what is known of the whole job is right for what `srun` starts in it; elsewhere an element is shown its part.
asa_seen=
if [ -n "${SLURM_NTASKS-}" ] && ! asa_in_slurm; then
  asa_seen="SLURM_NTASKS=$asa_element_tasks SLURM_NPROCS=$asa_element_tasks SLURM_TASKS_PER_NODE=$asa_element_tasks
    SLURM_CPUS_ON_NODE=$asa_element_cores SLURM_JOB_CPUS_PER_NODE=$asa_element_cores"
fi
asa_start() {
  # shellcheck disable=SC2086 # words
  env $asa_seen SLURM_ARRAY_TASK_ID="$1" ASA_OUTCOME="$asa_running/outcome.$ASA_TASK" \
    $asa_limit $asa_sh "$asa_list.element" 8<&- 9>&-
}
asa_say_failed() { printf 'asa: element %s failed with exit code %s\n' "$3" "$asa_code" >&2; }
asa_word_of_task() { # how long it took, in hundredths of seconds
  asa_word=
  if [ "$asa_code" -ne 0 ]; then
    asa_word=`readlink "$asa_running/outcome.$ASA_TASK"` || asa_word=failed
    rm -f "$asa_running/outcome.$ASA_TASK"
  fi
  # who was ended by `timeout` had all the time that an element has
  if [ "$asa_code" -eq 124 ] || [ "$asa_code" -eq 137 ]; then
    [ "$1" -lt "$((asa_limit_s * 100))" ] || asa_word=overtime
  fi
}

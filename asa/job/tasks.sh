# A list of tasks in one job.
[ -z "$asa_done" ] || mkdir -p "$asa_done" || asa_done=
if [ -n "$asa_done" ]; then
  asa_hold_own "$asa_done"
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ] || asa_done=$asa_held
fi
asa_list=$(mktemp "${asa_done:-$asa_temporary}/.tasks-XXXXXXXX") || asa_end unable 87 # for all nodes to see
trap 'rm -f "$asa_list" "$asa_list".*' EXIT
asa_check_tasks
asa_tasks | cat >"$asa_list" || asa_end unable 87
asa_write_element
asa_forget() { [ -z "$asa_done" ] || rm -f "$asa_done"/[0-9]*; }
# What completed in jobs that are in doubt is run again.
if [ -n "$asa_done" ] && [ -n "$asa_in_doubt" ]; then
  for asa_note in "$asa_done"/[0-9]*; do
    [ -e "$asa_note" ] || continue
    case " $asa_in_doubt " in *" $(sed -n 2p "$asa_note") "*) rm -f "$asa_note" || asa_end unable 87 ;; esac
  done
fi
asa_count=$(grep -c '' <"$asa_list")
asa_refuse_none "$asa_count"
# shellcheck disable=SC2086 # words
asa_run_on_each $asa_sh -c "$asa_inner" asa-tasks "$asa_list" "$asa_done" "$asa_workers" "$asa_cpus_per_task"
asa_code=$?
case $asa_code in 143) exit 143 ;; 87) asa_end unable 87 ;; esac # which is of the text on a node, and of no task
# srun may say that all went well when Slurm took its step away: only what each task has left behind tells
asa_number=0
while [ "$asa_code" -eq 0 ] && [ -n "$asa_done" ] && [ "$asa_number" -lt "$asa_count" ]; do
  asa_number=$((asa_number + 1))
  [ -e "$asa_done/$asa_number" ] || ls "$asa_done" >/dev/null 2>&1 || :
  [ -e "$asa_done/$asa_number" ] || {
    printf 'asa: task %s of %s did not end\n' "$asa_number" "$asa_count" >&2
    asa_code=1
  }
done
[ "$asa_code" -eq 0 ] || asa_end tasks-failed 83

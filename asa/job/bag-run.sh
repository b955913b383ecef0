# Has each node of the job take tasks; then says whether all tasks have ended, and whether all have completed.
asa_refuse_none "$((asa_count + asa_before))"
asa_list=$asa_dir/takers/.$asa_me
asa_write_element
# shellcheck disable=SC2086 # words
asa_run_on_each $asa_sh -c "$asa_inner" asa-tasks "$asa_list" "$asa_dir" "$asa_me" "$asa_workers" "$asa_cpus_per_task"
asa_code=$?
case $asa_code in 0) ;; 87) asa_end unable 87 ;; *) exit "$asa_code" ;; esac
asa_count_ended() {
  # shellcheck disable=SC2046 # words
  set -- $(asa_ended "$asa_dir" | awk '{ n++; if ($2) failed++ } END { print n + 0, failed + 0 }')
  asa_n=$1 asa_failed=$2
}
asa_took() {
  for asa_log in "$asa_dir/logs/$asa_me".*[0-9]; do [ ! -s "$asa_log" ] || return 0; done
  return 1
}
# A job that took some looks again: the last record of another job or node may be seen late. If there are no other jobs,
# nobody would see that record afterwards.
asa_pauses=1
[ -n "$asa_has_others" ] || [ "${SLURM_JOB_NUM_NODES:-1}" -eq 1 ] || asa_pauses='1 2 4'
asa_count_ended
for asa_pause in $asa_pauses; do
  if [ "$asa_n" -ge "$asa_count" ] || ! asa_took; then break; fi
  sleep "$asa_pause"
  asa_count_ended
done
if [ "$asa_n" -lt "$asa_count" ] && [ -z "$asa_has_others" ]; then
  printf 'asa: %s of %s tasks did not end\n' "$((asa_count - asa_n))" "$((asa_count + asa_before))" >&2
  asa_end tasks-failed 83
fi
if [ "$asa_n" -lt "$asa_count" ]; then
  printf 'asa: none of the %s tasks is left to take, and others run %s\n' "$asa_count" "$((asa_count - asa_n))" >&2
  asa_end part-done 90
fi
[ "$asa_failed" -eq 0 ] || asa_end tasks-failed 83

# A task of a list, as it is run where there is no pool.
trap : HUP INT TERM
sh -c -- "$asa_task" </dev/null && exit
asa_code=$?
printf 'asa: task %s of %s failed: %s\n' "$ASA_TASK" "$asa_count" "$asa_task" >&2
exit "$asa_code"

trap - EXIT
if [ -n "$asa_threads" ]; then export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$asa_threads}"; fi

# The beginning of a job's script: which job it is, and where the run has its folders.
job= whole= count=${count-} # elements, of an array
eval "job=\${$job_in:?}"
owner=$job
# The run's folder may be mounted late. It is not made here: where it is missing, others could make it as well.
patience=${ASA_PATIENCE_S:-60}
until asa_hold "$named" 8; do
  [ "$patience" -gt 0 ] || { printf 'asa: %s is not there: nothing is run\n' "$named" >&2; exit 87; }
  patience=$((patience - 2))
  sleep 2
done
run=$asa_held
unset ASA_RUN_HELD
marks=$run/$marks_in/${token:-job.$job} posts=$run/$posts_in
gate=$marks

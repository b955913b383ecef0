# The beginning of a job's script: which job it is, and where the run has its folders.
job= whole= count=${count-} # elements, of an array
eval "job=\${$job_in:?}"
owner=$job
# It may be mounted late. What is made in the place of one that is not there others could make, too.
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

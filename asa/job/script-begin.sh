# The beginning of a job's script: what it stands for, and where.
job= whole= count=${count-} # elements, of an array
eval "job=\${$job_in:?}"
owner=$job
asa_hold "$named" 8 || exit 87 # exchanged at this moment
run=$asa_held
marks=$run/$marks_in/${token:-job.$job} posts=$run/$posts_in
gate=$marks

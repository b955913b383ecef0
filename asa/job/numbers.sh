# What tells elements of an array from each other, for what may run where the job's variables are not.
ASA_ELEMENT=${SLURM_ARRAY_TASK_ID:?}
export ASA_ELEMENT SLURM_ARRAY_TASK_ID
asa_numbers="ASA_ELEMENT=$ASA_ELEMENT SLURM_ARRAY_TASK_ID=$ASA_ELEMENT SLURM_ARRAY_JOB_ID=${SLURM_ARRAY_JOB_ID-}"
for asa_name in COUNT MIN MAX STEP; do
  eval "asa_numbers=\"\$asa_numbers SLURM_ARRAY_TASK_$asa_name=\$SLURM_ARRAY_TASK_$asa_name\""
done

#!/bin/bash -l
#SBATCH --job-name=x --nodes=2 --ntasks-per-node=4
#SBATCH -c 2 -t 1-02:03:04 --mem-per-cpu=2G
#SBATCH --array=1-9:2%3
#SBATCH -o %x-%A_%a.out --gres=gpu:2 --dependency=afterok:1 --export=A=1,ALL
module load x
export A="$B"
srun -n 4 ./a $SLURM_ARRAY_TASK_ID <<E
text
E

#!/bin/sh
# Starts Open MPI's daemon on a node of this job by srun, in place of ssh: also on a node that the job got later.
#
#   mpirun --mca plm rsh --mca plm_rsh_agent ./srun_agent.sh --mca plm_rsh_no_tree_spawn 1 ...
node=$1
shift
exec srun --overlap --jobid="$SLURM_JOB_ID" -N1 -n1 -w "$node" /bin/sh -c "$*" </dev/null

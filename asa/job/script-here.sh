# What a job of this computer does before a step, or all that it runs: it shows it the variables by which scripts that
# were written for Slurm know their job. A variable that is set already stays.
as_in_slurm() { # its name, tasks, cores of each, all cores, walltime in s, MiB of memory or nothing, the partition
  [ -n "${slurm_began-}" ] || slurm_began=`date +%s`
  slurm_node=`uname -n` slurm_node=${slurm_node%%.*} slurm_job=${job%%@*}
  seen="SLURM_JOB_ID=$slurm_job SLURM_JOBID=$slurm_job SLURM_JOB_NAME=$1 SLURM_JOB_PARTITION=${7:-local} SLURM_CLUSTER_NAME=local
    SLURM_NTASKS=$2 SLURM_NPROCS=$2 SLURM_TASKS_PER_NODE=$2 SLURM_CPUS_PER_TASK=$3 SRUN_CPUS_PER_TASK=$3
    SLURM_CPUS_ON_NODE=$4 SLURM_JOB_CPUS_PER_NODE=$4 ${6:+SLURM_MEM_PER_NODE=$6}
    SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 SLURM_JOB_NODELIST=$slurm_node SLURM_NODELIST=$slurm_node SLURM_SUBMIT_HOST=$slurm_node
    SLURM_JOB_START_TIME=$slurm_began SLURM_JOB_END_TIME=$((slurm_began + $5))
    SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0"
  # MPI would take them as a sign that Slurm starts its processes
  seen="$seen HYDRA_BOOTSTRAP=fork I_MPI_HYDRA_BOOTSTRAP=fork
    OMPI_MCA_plm=^slurm OMPI_MCA_ras=^slurm PRTE_MCA_plm=^slurm PRTE_MCA_ras=^slurm"
  slurm_all=$seen seen=
  for slurm_word in $slurm_all; do
    eval "[ -n \"\${${slurm_word%%=*}+1}\" ]" || seen="$seen $slurm_word"
  done
}

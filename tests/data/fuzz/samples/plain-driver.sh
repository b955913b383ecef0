#!/bin/sh
first=$(sbatch --parsable a.sh)
second=$(sbatch --parsable --dependency=afterok:$first b.sh x 'y z')
export N=3
sbatch --dependency=afterok:${first}:$second -J last b.sh

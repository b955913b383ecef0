#!/bin/sh
# A forecast as many of us submit one: six batch scripts, each waiting for what it needs.
initial=$(sbatch --parsable initial.sbatch)
members=$(sbatch --parsable --dependency=afterok:"$initial" members.sbatch)
merge=$(sbatch --parsable --dependency=afterok:"$members" merge.sbatch)
verify=$(sbatch --parsable --dependency=afterok:"$merge" verify.sbatch)
archive=$(sbatch --parsable --dependency=afterok:"$members":"$merge" archive.sbatch)
sbatch --dependency=afterok:"$verify":"$archive" mail.sbatch

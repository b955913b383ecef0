#!/bin/sh
# The pipeline as many of us submit it: each job waits for the one before, and on most sites only then gains priority.
split=$(sbatch --parsable split.sbatch)
count=$(sbatch --parsable --dependency=afterok:"$split" count.sbatch)
spectrum=$(sbatch --parsable --dependency=afterok:"$count" spectrum.sbatch)
filter=$(sbatch --parsable --dependency=afterok:"$spectrum" filter.sbatch)
sbatch --dependency=afterok:"$filter" report.sbatch

#!/bin/bash
set -e
A=$(sbatch --parsable a.sh)
B=$(sbatch --parsable -d afterok:$A b.sh)
jid=$(sbatch -n 2 --dependency=afterok:$A:${B} a.sh | awk '{print $4}')
if [ -n "$jid" ]; then echo yes; fi
for x in 1 2; do sbatch b.sh $x; done
sbatch <<'E'
#!/bin/sh
#SBATCH -t 5
true
E
sbatch --wrap 'echo hi' -d afterany:$jid

"""The batch script of a job of Slurm: as everywhere, but for where it finds its number."""

from __future__ import annotations

from asa.backends.shell import script
from asa.backends.shell.script import Payload

__all__ = ["LONGEST_SCRIPT_BYTES", "batch_script"]

LONGEST_SCRIPT_BYTES = 4 << 20
"""Slurm takes no longer script, unless its administrators set `max_script_size`."""


_KEEP = """
# Slurm 22.05 refuses a number that the job had asked for as its least when it was submitted, but takes names.
only() { (cd -- "$marks" && scontrol update "JobId=$job" "$1") >&2; }

# Gives back all but the first nodes, if those have the cores. That it cannot be done is no failure, only dear.
keep() {
  [ "${SLURM_JOB_NUM_NODES:-1}" -gt "$1" ] || return 0
  of_first='{ for (i = 1; i <= NF && n > 0; i++) { split($i, p, /[(x)]+/); k = p[2] ? p[2] : 1; if (k > n) k = n
    sum += k * p[1]; n -= k } print sum + 0 }'
  cores=$(printf '%s\\n' "${SLURM_JOB_CPUS_PER_NODE:-}" | awk -F, -v n="$1" "$of_first")
  if [ "${cores:-0}" -lt "$2" ]; then
    say "its first $1 nodes have not the $2 cores that it needs: it gives none back"
  elif only "NumNodes=$1" || only "ReqNodeList=$(scontrol show hostnames | head -n "$1" | paste -s -d , -)"; then
    # Slurm wrote down what a job's environment has to be from now on
    [ ! -e "$marks/slurm_job_${job}_resize.sh" ] || . "$marks/slurm_job_${job}_resize.sh"
    rm -f "$marks/slurm_job_${job}_resize.sh" "$marks/slurm_job_${job}_resize.csh"
    kept=$cores
    say "keeps $kept cores from now on"
  else
    say "could not give back all but $1 nodes, and goes on with them"
  fi
}
"""


def batch_script(payload: Payload) -> str:
    """Write the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    return script.batch_script(payload, "SLURM_JOB_ID", keep=_KEEP)

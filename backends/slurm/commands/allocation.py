"""Runs salloc for a job that runs nothing, and lets it wait for its nodes by itself.

Its process must live until the job starts: the controller then reports to it, and ends a job that nobody hears of
(22.05 and 26.05: FAILED, after some seconds). So it is begun in a session of its own, where the commands run, and
outlives this client; it ends by itself as soon as the job has its nodes. If it takes too long, or is signalled, it
withdraws the job.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ..link import SlurmJob, whole
from ..options import checked, left_open
from ..words import words_of
from .process import Done
from .writing import clean

_ACCEPTED = re.compile(r"(?m)^salloc: (?:Pending|Granted) job allocation (\d+)$")
_STATUS = re.compile(r"(?m)^asa: exit (\d+)\n?\Z")
_OF_A_SCRIPT = frozenset({"output", "error", "array", "hold"})  # what asa says, but of batch jobs only
# options of sbatch that salloc does not have
_OF_SBATCH = frozenset({
    "batch", "export", "export-file", "ignore-pbs", "input", "no-requeue", "open-mode", "parsable", "propagate",
    "requeue", "test-only", "tres-bind", "wait",
})  # fmt: skip
# What salloc prints until it has a job goes to who waits for that; it is read to its end afterwards, since without a
# reader a signal would end salloc. `exec` closes descriptors: of one that is closed for a part of a command, a shell
# keeps a copy, and whoever waits for the end of the output would wait for salloc.
_LEFT = (
    "exec 3>&1; setsid sh -c '"
    '{ exec 3>&-; timeout -k 60 "$0" "$@" </dev/null; echo "asa: exit $?"; } 2>&1 | { while IFS= read -r line; do '
    'printf "%s\\n" "$line" >&3; case $line in *"job allocation "[0-9]*) break ;; esac; done; '
    'exec 3>&-; exec cat >/dev/null; } &\' "$0" "$@" >/dev/null 2>&1'
)


def salloc(job: SlurmJob, patience_s: float) -> list[str]:
    """Write the command that submits a job which runs nothing, and returns once Slurm has accepted or refused it.

    `patience_s`: seconds after which the job is withdrawn if it still waits.
    """
    options = checked(job.options, job.name, left_open(job))
    said = [*(pair for pair in words_of(job) if pair[0] not in _OF_A_SCRIPT), *options]
    words = [*_written((name, value) for name, value in said if name not in _OF_SBATCH)]
    command = clean("salloc", "--no-shell", *words)
    return ["sh", "-c", _LEFT, str(math.ceil(patience_s)), *command]


def _written(options: Iterable[tuple[str, str | None]]) -> Iterable[str]:
    return (f"--{name}" if value is None else f"--{name}={value}" for name, value in options)


def accepted_as(done: Done) -> str | None:
    r"""Return the number of the job that Slurm accepted; None if it did not.

    Examples
    --------
    >>> accepted_as(Done(0, "salloc: Pending job allocation 12\n"))
    '12'
    """
    match = _ACCEPTED.search(done.stdout)
    return match and match[1]


def as_sbatch(done: Done) -> Done:
    r"""Return the outcome as if sbatch had said it, whose words are known.

    Examples
    --------
    >>> said = "salloc: error: Job submit/allocate failed: Invalid qos\nasa: exit 1\n"
    >>> as_sbatch(Done(0, said))
    Done(returncode=1, stdout='', stderr='sbatch: error: Batch job submission failed: Invalid qos\n')
    """
    status = _STATUS.search(done.stdout)
    text = _STATUS.sub("", done.stdout).replace("Job submit/allocate failed:", "Batch job submission failed:")
    code = whole(status[1]) if status else None
    return Done(done.returncode if code is None else code, "", re.sub(r"(?m)^salloc: ", "sbatch: ", text))

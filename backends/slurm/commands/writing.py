"""Writes the commands for Slurm, with options and environment."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from asa.errors import SubmitRejectedError

from ..answers import CUT_OFF
from ..link import SlurmJob
from ..options import checked, left_open
from ..words import words_of

# Variables that would change what a command does or prints. Those that only give a default for an option, such as
# SBATCH_ACCOUNT, stay, since the user wants them.
_UNSET: Final[Mapping[str, Sequence[str]]] = {
    "squeue": (
        "SQUEUE_ACCOUNT", "SQUEUE_ARRAY", "SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_LICENSES",
        "SQUEUE_NAMES", "SQUEUE_PARTITION", "SQUEUE_PRIORITY", "SQUEUE_QOS", "SQUEUE_SORT", "SQUEUE_STATES",
        "SQUEUE_USERS",
    ),
    "sacct": ("SACCT_FORMAT",),
    "sacctmgr": (),
    "scancel": (
        "SCANCEL_ACCOUNT", "SCANCEL_BATCH", "SCANCEL_CRON", "SCANCEL_CTLD", "SCANCEL_FULL", "SCANCEL_HURRY",
        "SCANCEL_INTERACTIVE", "SCANCEL_NAME", "SCANCEL_PARTITION", "SCANCEL_QOS", "SCANCEL_STATE", "SCANCEL_USER",
        "SCANCEL_WCKEY",
    ),
    "scrontab": (),
    "salloc": (
        "SALLOC_ACCOUNT", "SALLOC_CLUSTERS", "SALLOC_CONSTRAINT", "SALLOC_IMMEDIATE", "SALLOC_KILL_CMD",
        "SALLOC_PARTITION", "SALLOC_QOS", "SALLOC_WAIT_ALL_NODES", "SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE",
        "SLURM_JOBID", "SLURM_JOB_ID",
    ),
    # inside a job, `scontrol update` leaves scripts in its working directory
    "scontrol": ("SLURM_JOBID", "SLURM_JOB_ID"),
    "sbatch": (
        "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_EXPORT", "SBATCH_GET_USER_ENV", "SBATCH_INPUT",
        "SBATCH_NO_REQUEUE", "SBATCH_WAIT", "SLURM_EXIT_ERROR",
    ),
}  # fmt: skip

_CLUSTERS: Final = "SLURM_CLUSTERS"  # which sacct does not read: with `CommandLink.cluster`, all commands agree
_OF_ALL_CLUSTERS: Final = ("sacctmgr",)

# sh reads the script up to its length, and leaves the environment after it to sbatch, as descriptor 3. So neither
# appears in the list of processes or needs a file, and both pass through ssh. If a connection breaks, only a part of
# the script may arrive; it is not submitted then.
_TWO_INPUTS = (
    'exec 3<&0; script=$(head -c "$0"; echo x); '
    f'[ "$(printf %s "$script" | wc -c)" -eq $(($0+1)) ] || {{ echo "{CUT_OFF}" >&2; exit 1; }}; '
    'printf %s "${script%x}" | "$@"'
)


def clean(program: str, *arguments: str) -> list[str]:
    """Return a command whose output does not depend on the user's settings; times are seconds since 1970."""
    unset = [word for name in (*_UNSET[program], _CLUSTERS) for word in ("-u", name)]
    # without this length, a list of array elements is cut off; elements that differ have lines of their own, but not in
    # 26.05, which has no --array-unique either
    shown = ["SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", *["SQUEUE_ARRAY_UNIQUE=1"] * (program == "squeue")]
    return ["env", *unset, "LC_ALL=C", *shown, program, *arguments]


def on_cluster(command: Sequence[str], cluster: str) -> list[str]:
    """Address a command to another cluster of the site's accounting; an empty name leaves it as it is.

    ``SLURM_CLUSTERS`` would not do: sacct ignores it, and tells of the jobs with these numbers on the first cluster.

    Examples
    --------
    >>> on_cluster(clean("sacct", "-X"), "big")[-4:]
    ['sacct', '-M', 'big', '-X']
    """
    if not cluster or (program := program_of(command)) in _OF_ALL_CLUSTERS:
        return [*command]
    at = command.index(program) + 1
    return [*command[:at], "-M", cluster, *command[at:]]


def program_of(command: Sequence[str]) -> str:
    """Return which of Slurm's programs a command runs."""
    return next(word for word in command if word in _UNSET)


def as_this_user(command: Sequence[str]) -> list[str]:
    """Restrict squeue or sacct to the jobs of the user who runs it, in all versions and on any host.

    The controller then sends only these jobs. Without it, for ``squeue -j`` with several numbers, it sends the jobs of
    all users.
    """
    return ["sh", "-c", 'exec "$0" "$@" -u "$(id -u)"', *command]


def sacctmgr(what: str, fields: Sequence[str], *conditions: str) -> list[str]:
    """Return a query of accounting's tables; the answer has a heading and a line for each entry."""
    return clean("sacctmgr", "-P", "-r", "show", what, *conditions, f"format={','.join(fields)}")


def of_this_user(command: Sequence[str]) -> list[str]:
    """Restrict sacctmgr to the associations of the user who runs it, on any host."""
    return ["sh", "-c", 'exec "$0" "$@" user="$(id -un)"', *command]


def through(prefix: Sequence[str], command: Sequence[str], *, remote_shell: bool | None) -> list[str]:
    """Put a prefix before a command, quoted if a shell at the other end will read it.

    Examples
    --------
    >>> through(["ssh", "login"], ["scontrol", "show", "config; date"], remote_shell=None)
    ['ssh', 'login', "scontrol show 'config; date'"]
    >>> through(["sudo", "-u", "ada"], ["squeue", "-h"], remote_shell=None)
    ['sudo', '-u', 'ada', 'squeue', '-h']
    """
    if remote_shell is None:
        remote_shell = bool(prefix) and PurePath(prefix[0]).name == "ssh"
    return [*prefix, shlex.join(command)] if remote_shell else [*prefix, *command]


def sbatch(job: SlurmJob, timeout_s: float) -> list[str]:
    """Write the command that submits a job; its input is from `sbatch_input`.

    It has a time limit on the host where it runs, also through ssh: a late retry of sbatch would submit a job that was
    already looked for and not found.

    With ``--export-file`` the job gets exactly this environment, since sbatch first unsets its own. 26.05 reads the
    file only with ``--export=ALL``. Other values are wrong: Slurm would add the variables of a login shell (22.05 even
    with NIL), and pass ``SLURM_EXPORT_ENV`` to the job's own ``srun``.
    """
    return _with_input(job, sbatch_command(job), timeout_s)


def test_only(job: SlurmJob, timeout_s: float) -> list[str]:
    """Return the command that asks when a job would start, without submitting it; its input is the same.

    Times are in UTC if Slurm ignores the requested format.
    """
    command = sbatch_command(job)
    index = command.index("--parsable")
    return _with_input(job, ["env", "TZ=UTC", *command[:index], "--test-only", *command[index + 1 :]], timeout_s)


def _with_input(job: SlurmJob, command: list[str], timeout_s: float) -> list[str]:
    _refuse_null("an option", *command)
    length = len(job.script.encode(errors="surrogateescape"))
    return ["sh", "-c", _TWO_INPUTS, str(length), "timeout", "-s", "KILL", f"{timeout_s:g}", *command]


def sbatch_command(job: SlurmJob) -> list[str]:
    """Write sbatch with its options.

    Raises `SubmitRejectedError`: an option must be given by another key of a stage.
    """
    checked(job.options, job.name, left_open(job))
    own = (f"--{name}" if value is None else f"--{name}={value}" for name, value in words_of(job))
    return clean("sbatch", "--parsable", "--export-file=3", "--export=ALL", *own, *job.options)


def sbatch_input(job: SlurmJob) -> str:
    """Write the script, followed by the environment.

    Slurm itself sets ``SLURM_JOB_NAME``, but 22.05 does not with ``--export-file``.
    """
    _refuse_null("the script", job.script)
    variables = {"SLURM_JOB_NAME": job.name} | dict(job.environment)
    for name, value in variables.items():
        _refuse_null(f"the variable {name!r}", name, value)
        if not name or "=" in name:
            raise SubmitRejectedError(f"{name!r} is no name of a variable", where=job.name)
    return job.script + "".join(f"{name}={value}\0" for name, value in variables.items())


def _refuse_null(what: str, *texts: str) -> None:
    if any("\0" in text for text in texts):
        raise SubmitRejectedError(f"{what} contains a null character")

"""`CommandLink`: the port `SlurmLink` over sbatch, squeue, sacct, scancel and scontrol."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from asa.core.reading import TooLargeError
from asa.errors import BackendError, UnavailableError

from ..accounting import SACCT_COMMAND
from ..link import (
    MEMBERS,
    IdentifiedJob,
    SlurmAbout,
    SlurmCluster,
    SlurmJob,
    SlurmLimits,
    SlurmNode,
    SlurmPartition,
    SlurmRecord,
    whole,
)
from ..resizing import MORE_NODES
from ..together import cleared_up, unclear
from ..words import minutes
from . import process, refusals
from .allocation import accepted_as, as_sbatch, salloc
from .cancelling import not_cancelled, scancel_words
from .direct import submit_here
from .process import Done, Runner
from .reading import (
    ASSOCIATION_LIMITS,
    QUALITY_LIMITS,
    QueueFormat,
    RecordFormat,
    read_configuration,
    read_job_id,
    read_limits,
    read_nodes,
    read_partitions,
    read_start_s,
)
from .writing import (
    as_this_user,
    clean,
    of_this_user,
    on_cluster,
    program_of,
    sacctmgr,
    sbatch,
    sbatch_command,
    sbatch_input,
    test_only,
    through,
)

_LOOK_BACK_S: Final = 7 * 86400
_MAX_IDS: Final = 1000  # upper bound for one command; for more, squeue is asked for all jobs of the user
# upper bound of the characters in a list on a command line; systems accept 128 kB for an argument
_MAX_LIST: Final = 30_000
_MAX_ESTIMATE_S: Final = 10.0  # for an estimate, which a submission waits for but does not need
# options without which an answer of squeue is as good: it takes longer, or has more jobs, which are left out here
_DISPENSABLE: Final = frozenset({"--local", "--name"})
_JOB_ID = re.compile(r"[0-9]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+-]+")
_VERSION = re.compile(r"(?<!\d)\d++\.\d+[\w.-]*")
_LAST_OF_WHERE = re.compile(r"(?m)^SlurmctldPort\b.*\n")  # last of the needed lines in alphabetical order


class CommandLink:
    """Slurm by its commands: written for versions since 20.02, tested with 22.05, 24.11 and 26.05.

    Each request is one command, and no file is written. Answers are in our own formats, with times in seconds since
    1970; ``--json`` differs between versions, and costs the controller and the client far more.

    The state of jobs comes from ``squeue -O`` with ``-t all``: only this shows submission, eligibility, accrual of age,
    expected and real start, end, exit code and restarts of all the user's jobs in one call, for as long as the
    controller remembers them (its ``MinJobAge``).

    Variables such as ``SBATCH_ACCOUNT`` still give defaults for what a job does not specify. A job's environment
    consists of `SlurmJob.environment` and the variables that Slurm sets itself.

    `timeout_s`: seconds after which a command is killed, with all its child processes. ``sbatch`` itself would retry
    for two minutes while Slurm has too many jobs: such a submission ends in doubt.
    `remote_shell`: whether a shell reads the command after the prefix, so that it must be quoted; by default true if
    the prefix begins with ``ssh``. It must be a Bourne shell.
    `cluster`: name of another cluster of the site's accounting, on which everything happens; empty for the usual one.

    Examples
    --------
    >>> from asa.backends.slurm.commands import Done
    >>> link = CommandLink(run=lambda command, stdin, timeout_s: Done(0, "MinJobAge = 300 sec"))
    >>> link.settings()["MinJobAge"], link.calls["settings"]
    ('300 sec', 1)
    """

    changeable = frozenset({"held", "walltime_s", "nodes", MORE_NODES, MEMBERS})
    cancels_by_name = True

    def __init__(
        self,
        *,
        prefix: Sequence[str] = (),
        timeout_s: float = 60.0,
        run: Runner | None = None,
        clock: Callable[[], float] = time.time,
        remote_shell: bool | None = None,
        cluster: str = "",
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._prefix = tuple(prefix)
        self._timeout_s = timeout_s
        self._run = run or process.run
        self._is_here = run is None and not prefix
        self._clock = clock
        self._remote_shell = remote_shell
        self._cluster = cluster
        self._has_accounting = False  # whether sacct has answered: its absence is then a temporary fault
        self._refused: set[str] = set()  # options that the squeue here does not take, and that are left out

    def about(self) -> SlurmAbout:
        """Return which cluster answers; runs up to two commands."""
        means = "Slurm's commands" + (f" through {PurePath(self._prefix[0]).name}" if self._prefix else "")
        try:
            settings = read_configuration(self._answer("about", clean("scontrol", "show", "config")))
        except UnavailableError:  # this command can run while only the controller is away
            version = _VERSION.search(self._answer("about", clean("scontrol", "--version")))
            return SlurmAbout(means, version=version[0] if version else "", controller_up=False)
        return SlurmAbout(
            means,
            version=settings.get("SLURM_VERSION", ""),
            cluster=settings.get("ClusterName", ""),
            accounting=settings.get("AccountingStorageType", "").endswith("slurmdbd") and self._accounting_answers(),
        )

    def cluster(self) -> SlurmCluster:
        """Return the cluster."""
        printed = self._answer("cluster", clean("scontrol", "show", "config"))
        settings = read_configuration(printed)
        # an incomplete answer is no evidence of another cluster
        if "ClusterName" not in settings or not _LAST_OF_WHERE.search(printed):
            raise UnavailableError("its answer is empty or cut off", where="scontrol")
        next_number = settings.get("NEXT_JOB_ID", "")
        host = settings.get("SlurmctldHost[0]", "")
        return SlurmCluster(
            settings.get("ClusterName", ""),
            whole(next_number),
            f"{host} port {settings.get('SlurmctldPort', '')}" if host else "",
        )

    def settings(self) -> Mapping[str, str]:
        """Return the cluster's configuration; values that are not set are empty."""
        return read_configuration(self._answer("settings", clean("scontrol", "show", "config")))

    def limits(self, cluster: str) -> Sequence[SlurmLimits]:
        """Return the limits of this user on a cluster, their accounts and qualities; runs up to three commands."""
        here = [f"cluster={cluster}"] if cluster else []
        own = read_limits(self._answer("limits", of_this_user(sacctmgr("assoc", ASSOCIATION_LIMITS, *here))))
        if not own:
            return []
        accounts = ",".join(sorted({row.account for row in own}))
        whole = sacctmgr("assoc", ASSOCIATION_LIMITS, *here, f"account={accounts}", "user=")
        theirs = read_limits(self._answer("limits", whole))
        names = ",".join(sorted({name for row in own for name in row.qualities}))
        qualities = self._answer("limits", sacctmgr("qos", QUALITY_LIMITS, f"name={names}")) if names else ""
        return [*own, *theirs, *read_limits(qualities)]

    def partitions(self) -> Sequence[SlurmPartition]:
        """Return the partitions."""
        return read_partitions(self._lines("partitions", "partition"))

    def nodes(self) -> Sequence[SlurmNode]:
        """Return the nodes."""
        return read_nodes(self._lines("nodes", "node"))

    def submit(self, job: SlurmJob) -> str:
        """Submit a job; return its id."""
        command, text = sbatch(job, self._timeout_s), sbatch_input(job)
        try:
            if self._is_here:
                self.calls["submit"] += 1
                environment = text[len(job.script) :]
                done = submit_here(
                    on_cluster(sbatch_command(job), self._cluster), job.script, environment, self._timeout_s
                )
            else:
                done = self._do("submit", command, text)
        except TimeoutError as error:
            raise refusals.in_doubt(job.name, self._too_long(error)) from None
        except TooLargeError as error:
            raise refusals.in_doubt(job.name, str(error.strerror)) from None
        except OSError as error:
            raise refusals.not_started(program_of(command), error) from None
        if done.returncode == 0 and (job_id := read_job_id(done.stdout)) is not None:
            return job_id
        raise refusals.submission(job.name, done)

    def allocate(self, job: SlurmJob, patience_s: float) -> str:
        """Submit a job that runs nothing, by ``salloc``, whose process stays until the job starts."""
        try:
            done = self._do("allocate", salloc(job, patience_s))
        except TimeoutError as error:
            raise refusals.in_doubt(job.name, self._too_long(error)) from None
        except TooLargeError as error:
            raise refusals.in_doubt(job.name, str(error.strerror)) from None
        except OSError as error:
            raise refusals.not_started("salloc", error) from None
        if (job_id := accepted_as(done)) is not None:
            return job_id
        raise refusals.submission(job.name, as_sbatch(done))

    def estimated_start_s(self, job: SlurmJob) -> float | None:
        """Ask when a job would start if it were submitted, by ``sbatch --test-only``."""
        timeout_s = min(self._timeout_s, _MAX_ESTIMATE_S)
        try:
            done = self._do("estimated_start_s", test_only(job, timeout_s), sbatch_input(job), timeout_s)
        except OSError:
            return None
        return read_start_s(done.stdout + done.stderr) if done.returncode == 0 else None

    def test(self, job: SlurmJob, timeout_s: float) -> str | None:
        """Ask whether a job could run, by ``sbatch --test-only``."""
        try:
            done = self._do("test", test_only(job, timeout_s), sbatch_input(job), timeout_s)
        except OSError:
            return None
        return refusals.objection(done)

    def preview(self, job: SlurmJob) -> Mapping[str, str]:
        """Return the command that `submit` would run; its input is the script, then the variables."""
        here = on_cluster(sbatch_command(job), self._cluster)
        command = through(self._prefix, here, remote_shell=self._remote_shell)
        return {"command": shlex.join(command), "variables": " ".join(sorted(job.environment))}

    def jobs(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask the controller for the given jobs of this user."""
        wanted = _numbers(job_ids)
        return {record.job_id: record for record in self._queued("jobs", wanted) if record.job_id in wanted}

    def holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask the controller which of this user's jobs now have the given numbers; those of other users are missing."""
        wanted = _numbers(job_ids)
        return [row for row in self._queued("holders", wanted) if row.numbers & wanted.keys()]

    def denies(self, job_id: str) -> bool:
        """Ask the controller for one of this user's jobs; return whether it says that it does not know it."""
        form = QueueFormat()
        done = self._squeue("denies", form, "-j", ",".join(_numbers([job_id])), mine=True)
        is_denied = refusals.is_unknown_job(done)
        if not is_denied:
            list(_understood(form, done))  # raises if there is no answer
        return is_denied

    def of_anybody(self, job_id: str) -> list[SlurmRecord]:
        """Ask the controller which job has a number now; the answer is small even for another user's job."""
        form = QueueFormat()
        done = self._squeue("of_anybody", form, "-j", job_id, mine=False)
        return [] if refusals.is_unknown_job(done) else list(_understood(form, done))

    def past_holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask accounting which of this user's jobs had the given numbers."""
        wanted = _numbers(job_ids)
        records = (row for row in self._recorded("past_holders", wanted) if row.numbers & wanted.keys())
        return sorted(records, key=lambda record: record.submit_s)

    def queue(self) -> list[SlurmRecord]:
        """Ask the controller for all users' jobs."""
        form = QueueFormat()
        return list(_understood(form, self._squeue("queue", form, mine=False)))

    def named(self, names: Collection[str]) -> list[SlurmRecord]:
        """Ask for this user's jobs with the given names; in accounting, of the last seven days. Runs two commands.

        A requeued job has several records in accounting; here it has one.
        """
        if not names:
            return []
        form = QueueFormat()
        queued = _understood(form, self._squeue("named", form, *_by_name(names), mine=True))
        known = [record for record in queued if record.name in names]
        seen = {(record.job_id, record.name) for record in known}
        recorded = self.recorded(names, self._clock() - _LOOK_BACK_S)
        return known + [record for record in recorded if (record.job_id, record.name) not in seen]

    def recorded(self, names: Collection[str], since_s: float) -> list[SlurmRecord]:
        """Ask accounting for this user's jobs with the given names, since a time."""
        if not names:
            return []
        records = self._records("named", "-S", f"uts{math.floor(since_s)}", *_by_name(names))
        return [record for record in records if record.name in names]

    def past(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask accounting for the given jobs of this user."""
        wanted = _numbers(job_ids)
        records = sorted(self._recorded("past", wanted), key=lambda record: record.submit_s)
        return {record.job_id: record for record in records if record.job_id in wanted}

    def accounting(self, since_s: float, until_s: float) -> str:
        """Ask accounting for the jobs of a time span, like `SACCT_COMMAND`."""
        _, program, *options = shlex.split(SACCT_COMMAND)
        options[options.index("-S") + 1] = f"uts{math.floor(since_s)}"
        done = self._ask("accounting", clean(program, *options, "-E", f"uts{math.ceil(until_s)}"))
        if done.returncode and refusals.has_no_accounting(done):
            raise BackendError(
                f"no accounting here: {refusals.words(done)}",
                where=program,
                hint="Learn from a file that the site's staff made with sacct, or from runs of your own.",
            )
        header = options[options.index("-o") + 1].replace(",", "|")
        if done.returncode or (start := done.stdout.find(header)) < 0:
            raise refusals.reading_failed(program, done)
        return done.stdout[start:]

    def cancel(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """Cancel the given jobs, up to a thousand with one command."""
        left: dict[str, BackendError] = {}
        for some in (jobs[at : at + _MAX_IDS] for at in range(0, len(jobs), _MAX_IDS)):
            try:
                left |= not_cancelled(some, self._ask("cancel", clean("scancel", *scancel_words(some))))
            except UnavailableError as error:
                left |= {job.job_id: error for job in some}
        return left

    def update(
        self,
        job: IdentifiedJob,
        *,
        held: bool | None = None,
        walltime_s: float | None = None,
        nodes: int | Sequence[str] | None = None,
    ) -> None:
        """Change a job: walltime and nodes with one command; hold or release it with another."""
        number = job.job_id
        changes = [
            *([] if walltime_s is None else [f"TimeLimit={minutes(walltime_s)}"]),
            *(
                []
                if nodes is None
                else [f"NumNodes={nodes}" if isinstance(nodes, int) else f"ReqNodeList={','.join(nodes)}"]
            ),
        ]
        if held:
            self._change(number, "hold", number)
        if changes:
            self._change(number, "update", f"JobId={number}", *changes)
        if held is False:
            self._change(number, "release", number)

    def scrontab(self, *options: str, table: str = "") -> Done:
        """Ask for the user's table of recurring jobs, or change it; see `.scrontab`."""
        if self._cluster:
            raise BackendError(
                "has no option for another cluster",
                where="scrontab",
                hint=f"Start asa on a login node of {self._cluster}, or use --detach-by timer, cron or job.",
            )
        return self._ask("scrontab", clean("scrontab", *options), table)

    def clusters(self) -> Sequence[str]:
        """Return the clusters that accounting knows."""
        return self._answer("clusters", clean("sacctmgr", "-n", "-P", "show", "cluster", "format=Cluster")).split()

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _change(self, job_id: str, *text: str) -> None:
        done = self._ask("update", clean("scontrol", *text))
        if done.returncode:
            raise refusals.refused("scontrol", job_id, done)

    def _queued(self, method: str, wanted: Collection[str]) -> Iterator[SlurmRecord]:
        """Ask for this user's jobs with the given numbers; for all if these are too many for a command line."""
        if not wanted:
            return
        form = QueueFormat()
        which = ["-j", ",".join(wanted)] if len(wanted) <= _MAX_IDS else []
        done = self._squeue(method, form, *which, mine=True)
        if len(wanted) == 1 and refusals.is_unknown_job(done):  # with several numbers, squeue leaves unknown ones out
            return
        yield from self._told_apart(method, list(_understood(form, done)))

    def _told_apart(self, method: str, records: Sequence[SlurmRecord]) -> Sequence[SlurmRecord]:
        """Return records; where squeue does not tell which jobs are held, as it tells of them one by one."""
        if not (numbers := unclear(records)):
            return records
        form = QueueFormat()
        done = self._squeue(method, form, "-r", "-j", ",".join(numbers), mine=True)
        return records if done.returncode else cleared_up(records, form.read(_whole(form, done, "squeue")))

    def _recorded(self, method: str, wanted: Collection[str]) -> list[SlurmRecord]:
        """Ask accounting for this user's jobs with the given numbers, up to a thousand with one command."""
        every = list(wanted)
        portions = (every[at : at + _MAX_IDS] for at in range(0, len(every), _MAX_IDS))
        return [record for some in portions for record in self._records(method, "-j", ",".join(some))]

    def _squeue(self, method: str, form: QueueFormat, *options: str, mine: bool) -> Done:
        """Run squeue; an option that it refuses and that can be done without is left out from then on."""
        # without --local, squeue first asks whether there is a federation
        words = ["--local", "-h", "-a", "-t", "all", "-O", form.option, *options]
        command = clean("squeue", *(word for word in words if word.partition("=")[0] not in self._refused))
        done = self._ask(method, as_this_user(command) if mine else command)
        refused = refusals.refused_option(done)
        if refused in _DISPENSABLE - self._refused:
            self._refused.add(refused)
            return self._squeue(method, form, *options, mine=mine)
        return done

    def _records(self, method: str, *options: str) -> list[SlurmRecord]:
        form = RecordFormat()
        done = self._ask(method, as_this_user(clean("sacct", "-X", "-D", *form.options, *options)))
        if done.returncode == 0:
            self._has_accounting = True
            return form.read(_whole(form, done, "sacct"))
        if refusals.has_no_accounting(done) and not self._has_accounting:
            return []
        raise refusals.reading_failed("sacct", done)

    def _accounting_answers(self) -> bool:
        return self._ask("about", clean("sacct", "-X", "-n", "-P", "-S", "now", "-o", "JobIDRaw")).returncode == 0

    def _answer(self, method: str, command: Sequence[str]) -> str:
        done = self._ask(method, command)
        if done.returncode:
            raise refusals.reading_failed(program_of(command), done)
        return done.stdout

    def _lines(self, method: str, what: str) -> str:
        """Return the lines that scontrol prints for all objects of a kind; a line without end is incomplete."""
        printed = self._answer(method, clean("scontrol", "-a", "-o", "show", what))
        if printed and not printed.endswith("\n"):
            raise UnavailableError("its answer is cut off", where="scontrol")
        return printed

    def _ask(self, method: str, command: Sequence[str], stdin: str = "") -> Done:
        """Run a command that may safely be repeated."""
        try:
            return self._do(method, command, stdin)
        except TimeoutError as error:
            raise UnavailableError(self._too_long(error), where=program_of(command)) from None
        except TooLargeError as error:
            raise UnavailableError(str(error.strerror), where=program_of(command)) from None
        except OSError as error:
            raise refusals.not_started(program_of(command), error) from None

    def _do(self, method: str, command: Sequence[str], stdin: str = "", timeout_s: float = math.inf) -> Done:
        self.calls[method] += 1
        whole = through(self._prefix, on_cluster(command, self._cluster), remote_shell=self._remote_shell)
        return self._run(whole, stdin, min(timeout_s, self._timeout_s))

    def _too_long(self, error: TimeoutError) -> str:
        return f"no answer within {self._timeout_s:g} s {' '.join(str(error).split())}".rstrip()


def _understood(form: QueueFormat, done: Done) -> Iterator[SlurmRecord]:
    if done.returncode:
        raise refusals.reading_failed("squeue", done)
    return form.read(_whole(form, done, "squeue"))


def _whole(form: QueueFormat | RecordFormat, done: Done, program: str) -> str:
    """Return the output; raise if it was cut off, since any job may be missing."""
    if form.is_cut(done.stdout):
        raise UnavailableError("its answer is cut off", where=program)
    return done.stdout


def _by_name(names: Collection[str]) -> list[str]:
    """Restrict squeue or sacct to jobs with the given names, unless one has a comma, which neither can quote."""
    listed = ",".join(sorted(names))
    return [f"--name={listed}"] if all(map(_PLAIN_NAME.fullmatch, names)) and len(listed) <= _MAX_LIST else []


def _numbers(job_ids: Collection[str]) -> dict[str, None]:
    """Keep valid numbers of jobs: with any other text Slurm would refuse the whole list."""
    return {job_id: None for job_id in job_ids if _JOB_ID.fullmatch(job_id)}

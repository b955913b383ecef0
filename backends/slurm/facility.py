"""Slurm as a facility: access to a site, its abilities, and its record of past jobs."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from asa.backend import Advice, Capabilities, Examination, JobSpec, PastRun
from asa.core import temporary
from asa.errors import BackendError, InputError, TraceError
from asa.history import JobHistory, read_history
from asa.workflow import MAX_CORES

from .examination import Examiner
from .link import SlurmJob, SlurmLink, SlurmPartition
from .sbatch_variables import filled, sbatch_options, sbatch_settings
from .settings import CommandSettings, RestSettings, SlurmSettings, check, uid_of
from .survey import age_accrues, capabilities

if TYPE_CHECKING:
    from .backend import SlurmBackend
    from .commands import CommandLink, Done
    from .rest import TokenSource

_OFFLINE_CORES = 64  # cores per node, if not known
_CLUSTERS = "SLURM_CLUSTERS"
_TOKEN_VARIABLE = "SLURM_JWT"  # noqa: S105 - the name of one
_SHUT_OUT = re.compile(r"not let us in|\btoken\b|authenticat", re.IGNORECASE)
_AGE_UNKNOWN = (
    "whether a job gains priority while it waits for another is not reported here; taken as no."
    " `asa doctor --probe --save NAME` finds out"
)


class SlurmFacility:
    """Slurm, over any link.

    `default_system`: name of the system if neither the user nor Slurm gives one.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        open_link: Callable[[], SlurmLink],
        *,
        default_system: str = "slurm",
        secrets: Collection[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        unset = {name: value for name, value in sbatch_settings(os.environ).items() if not getattr(settings, name)}
        self.settings = settings.model_copy(update=unset)
        self._secrets = secrets
        self._open_link = open_link
        self._default_system = default_system
        self._clock = clock
        self._learned: list[str] = []

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user; more after connecting."""
        phrases = []
        if self.settings.kill_invalid_depend:
            phrases.append("the site itself cancels jobs whose dependency can never be met")
        if self.settings.min_job_age is not None and self.settings.longest_poll_s < self.settings.max_poll:
            phrases.append(
                f"it forgets jobs {self.settings.min_job_age:.0f} s after their end,"
                f" and is asked every {self.settings.longest_poll_s:.0f} s at least"
            )
        return [*phrases, *self._learned]

    def connect(self, folder: Path, *, sleep: Callable[[float], bool | None] = time.sleep) -> SlurmBackend:
        """Connect one run, whose scripts, outputs and markers are in a folder that compute nodes see.

        See `asa.backend.Facility.connect`.
        """
        return self.connect_among_others(folder, folder, sleep=sleep)

    def connect_among_others(
        self, folder: Path, own: Path, *, sleep: Callable[[float], bool | None] = time.sleep
    ) -> SlurmBackend:
        """Connect one run, some of whose jobs are on other clusters; see `asa.backend.AmongOthers`."""
        from .backend import SlurmBackend  # noqa: PLC0415 - a list of backends needs it not
        from .defaults import JobDefaults  # noqa: PLC0415 - as above

        settings = self.settings
        link = self._open_link()
        try:
            site = self._capabilities(link)
            backend = SlurmBackend(
                link,
                folder,
                site,
                own=own,
                defaults=JobDefaults(
                    account=settings.account,
                    qos=settings.qos,
                    partition=settings.partition,
                    constraint=settings.constraint,
                    environment=settings.environment,
                    inherit=settings.inherit,
                    secrets=self._secrets,
                    options=sbatch_options(os.environ),
                ),
                poll_s=settings.poll,
                max_poll_s=settings.longest_poll_s,
                sleep=sleep,
                survey=lambda: self._capabilities(link),
            )
            backend.check_cluster()
        except BaseException:
            link.close()
            raise
        return backend

    def advice(self, reason: str) -> Advice:
        """Explain why a job is pending, or how it failed, without asking Slurm."""
        from .explanations import advice  # noqa: PLC0415 - as above

        return advice(reason)

    def remedy(self, trouble: str) -> str:
        """Return what a user can do about a problem; empty if one can only wait."""
        from .commands.refusals import remedy_of  # noqa: PLC0415 - as above

        return remedy_of(trouble)

    def examine(self, *, probe: bool) -> Examination:
        """Examine the site, and find the best way to ask it; with `probe`, also submit a job that never runs."""
        with closing(self._open_link()) as link:
            return Examiner(link, self.settings, default_system=self._default_system, clock=self._clock).examine(
                probe=probe
            )

    def history(self, since_s: float) -> JobHistory:
        """Read the history of jobs since a time, in seconds since 1970, from Slurm's accounting."""
        if self.settings.accounting is False:
            raise BackendError(
                "its settings say that there is no accounting",
                where="accounting",
                hint="If there is, take that setting away.",
            )
        with closing(self._open_link()) as link:
            text = link.accounting(since_s, self._clock())
            with temporary.file("accounting-", mode="w", errors="replace", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                try:
                    history = read_history(file.name)
                except TraceError as error:
                    where = f"the accounting of {self._system(link)}"
                    raise TraceError(error.message, where=where, hint="Go further back with --since.") from error
            name = self.settings.system or history.system or self._system(link)
        return replace(history, system=name, source=f"the accounting of {name}")

    def past_runs(self, names: Collection[str], since_s: float) -> Sequence[PastRun]:
        """Read this user's past jobs of the given names from Slurm's accounting; see `asa.backend.RemembersRuns`."""
        if self.settings.accounting is False:
            return []
        with closing(self._open_link()) as link:
            records = link.recorded(names, since_s)
        return [
            PastRun(
                record.name,
                max(record.end_s - record.start_s, 0.0),
                record.end_s,
                completed=record.states[0] == "COMPLETED",
            )
            for record in records
            if record.start_s is not None
            and record.end_s is not None
            and record.states[:1] in (("COMPLETED",), ("TIMEOUT",))
        ]

    def _system(self, link: SlurmLink) -> str:
        return self.settings.system or link.about().cluster or self._default_system

    def _capabilities(self, link: SlurmLink) -> Capabilities:
        accrues = self.settings.age_accrues
        config = {} if self.settings.says_all else dict(link.settings())
        if accrues is None:
            accrues = age_accrues(config)
        self._learned = [_AGE_UNKNOWN] if accrues is None else []
        system, partitions = self._system(link), link.partitions()
        return capabilities(
            system,
            partitions,
            link.nodes(),
            self.settings,
            accrues=bool(accrues),
            accounts=self._accounts(link, partitions),
            changeable=link.changeable,
            config=config,
        )

    def _accounts(self, link: SlurmLink, partitions: Sequence[SlurmPartition]) -> Sequence[str]:
        """Return the accounts for jobs that name none, if the account matters; none if not known."""
        if self.settings.account or self.settings.accounting is False:
            return [self.settings.account] if self.settings.account else []
        if not any(partition.accounts or partition.barred_accounts for partition in partitions):
            return []
        try:
            about = link.about()
            own = link.limits(about.cluster) if about.accounting else []
        except BackendError:
            return []
        return sorted({row.account for row in own if row.user and row.account})


class SlurmRest(SlurmFacility):
    """Slurm by its REST daemon, slurmrestd. Needs `url`, and a token in SLURM_JWT, except through your own socket.

    Parameters
    ----------
    **settings
        As in `asa.backends.slurm.settings.RestSettings`; may be text.

    Raises
    ------
    InputError
        One of them makes no sense; `where` is its name.
    """

    def __init__(self, **settings: Any) -> None:
        checked = check(RestSettings, settings)
        parts = urlsplit(checked.url)
        secrets = [checked.token_env] if checked.token_env else []
        super().__init__(
            checked, lambda: _rest_link(checked), default_system=parts.hostname or "slurm", secrets=secrets
        )
        self._rest = checked

    def connect_among_others(
        self, folder: Path, own: Path, *, sleep: Callable[[float], bool | None] = time.sleep
    ) -> SlurmBackend:
        """Connect one run; see `SlurmFacility.connect_among_others`.

        Raises
        ------
        InputError
            As there; or a token would be sent unencrypted, or to another user of this computer.
        """
        from .rest import InClearError, StrangerError  # noqa: PLC0415 - as below

        try:
            return super().connect_among_others(folder, own, sleep=sleep)
        except (InClearError, StrangerError) as error:  # waiting does not help here
            raise InputError(error.message, where="url", hint=error.hint) from None

    def remedy(self, trouble: str) -> str:
        """Return what a user can do about a problem; if access is denied, how to give a new token."""
        settings = self._rest
        if not _SHUT_OUT.search(trouble):
            return ""
        if settings.token_file is not None:
            return f"Write a new token into {settings.token_file}: scontrol token. It is read anew."
        if settings.token_command:
            return f"The token comes from the command {settings.token_command[0]}, run anew: see that it works."
        variable = settings.token_env or _TOKEN_VARIABLE
        return (
            f"A token from ${variable} cannot be renewed in this process: leave the run, which harms nothing, and"
            f" resume it with a new {variable}, or with --option token_file=FILE, which is read anew."
        )


class SlurmCommands(SlurmFacility):
    """Slurm by its commands: sbatch, squeue, scancel, sacct; here, or over ssh by `prefix`.

    Parameters
    ----------
    **settings
        As in `asa.backends.slurm.settings.CommandSettings`; may be text.

    Raises
    ------
    InputError
        One of them makes no sense; `where` is its name.
    """

    def __init__(self, **settings: Any) -> None:
        checked = check(CommandSettings, settings)
        if not (checked.cluster or checked.prefix):
            checked = checked.model_copy(update={"cluster": _cluster_of_variables()})
        self._offline_note = ""
        if checked.offline:
            self._offline_note = "Slurm is not asked, so that its partitions and limits are not known"
            if checked.cores_per_node is None:
                self._offline_note += (
                    f"; nodes are taken to have {_OFFLINE_CORES} cores, unless cores_per_node says otherwise"
                )
            known = {
                "accounting": False,
                "cores_per_node": checked.cores_per_node or _OFFLINE_CORES,
                "max_cores": checked.max_cores or MAX_CORES,
            }
            checked = checked.model_copy(update=known)
        self._commands = checked
        super().__init__(checked, lambda: _command_link(checked))

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the user; if Slurm is not called, only that."""
        return [self._offline_note] if self._offline_note else super().notes

    def recurring_jobs(self) -> str:
        """Read the user's scrontab; see `asa.backend.Recurring`."""
        from .commands import scrontab  # noqa: PLC0415 - for few runs

        return scrontab.read(_command_link(self._commands))

    def recurring_job(self, spec: JobSpec, when: str, output: Path) -> str:
        """Write a job's lines of the scrontab; see `asa.backend.Recurring`."""
        from .commands import scrontab  # noqa: PLC0415 - as above

        settings = self.settings
        job = SlurmJob(
            spec.name,
            script="",
            folder=str(output.parent),
            cores=spec.cores,
            walltime_s=spec.walltime_s,
            stdout=str(output),
            stderr=str(output),
            partition=settings.partition,
            qos=settings.qos,
            constraint=settings.constraint,
            account=settings.account,
            memory_bytes=spec.memory_bytes,
            options=self._commands.scrontab_options,
        )
        return scrontab.entry(filled(job, sbatch_options(os.environ)), when, spec.command)

    def set_recurring_jobs(self, table: str) -> None:
        """Replace the user's scrontab; see `asa.backend.Recurring`."""
        from .commands import scrontab  # noqa: PLC0415 - as above

        scrontab.write(_command_link(self._commands), table)

    @classmethod
    def found_here(cls) -> str:
        """Why this computer seems to belong to a Slurm site; empty if it does not."""
        return "sbatch and squeue are on this computer" if shutil.which("sbatch") and shutil.which("squeue") else ""


def _rest_link(settings: RestSettings) -> SlurmLink:
    from .rest import RestLink  # noqa: PLC0415 - httpx is needed only for requests

    return RestLink(
        settings.url,
        token=_token(settings),
        user=settings.user,
        api=settings.api,
        verify=settings.verify,
        timeout_s=settings.timeout,
        allow_insecure=settings.allow_insecure,
        served_by=[uid_of(settings.served_by)] if settings.served_by else [],
    )


def _token(settings: RestSettings) -> TokenSource | None:
    """Return the source of the token; None if no setting names one and none is in the environment."""
    from .rest import TokenSource  # noqa: PLC0415 - as above

    if settings.token_file is not None:
        return TokenSource.from_file(settings.token_file, bearer=settings.bearer)
    if settings.token_command:
        return TokenSource.from_command(settings.token_command, bearer=settings.bearer)
    if settings.token_env or os.environ.get(_TOKEN_VARIABLE):
        return TokenSource.from_environment(settings.token_env or _TOKEN_VARIABLE, bearer=settings.bearer)
    return None


def _cluster_of_variables() -> str:
    """Return the cluster that the user's variables name for all of Slurm's commands.

    Raises `InputError`: they name several.
    """
    names = os.environ.get(_CLUSTERS, "")
    if "," in names or names == "all":
        raise InputError(
            f"names several clusters ({names})", where=_CLUSTERS, hint="Name one: --option cluster=NAME goes before it."
        )
    return names


def _command_link(settings: CommandSettings) -> CommandLink:
    from .commands import CommandLink  # noqa: PLC0415 - needed only to run commands

    run = _run_nothing if settings.offline else None
    return CommandLink(prefix=settings.prefix, timeout_s=settings.timeout, run=run, cluster=settings.cluster)


def _run_nothing(command: Sequence[str], stdin: str, timeout_s: float) -> Done:  # noqa: ARG001 - as a runner
    """Answer like a Slurm without jobs and settings; refuse changes."""
    from .commands import Done  # noqa: PLC0415 - as above

    asks = any(program in {"scontrol", "squeue", "sacct", "sacctmgr"} for program in command)
    if not asks:
        hint = "It is for --dry-run; leave the setting out to run something."
        raise InputError("nothing is submitted offline", where="offline", hint=hint)
    return Done(0, "")

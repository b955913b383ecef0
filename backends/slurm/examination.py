"""Examines a Slurm site for `asa doctor`, and explains the consequences for its user."""

from __future__ import annotations

import math
import shlex
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from asa.backend import Examination, Finding, Setting, Verdict
from asa.core.owned import whose
from asa.errors import AccessError, AsaError, BackendError, InputError
from asa.units import format_duration

from .link import MEMBERS, SlurmAbout, SlurmLimits, SlurmLink, SlurmNode, SlurmPartition, SlurmRecord
from .preflight import ENFORCED
from .probe import Prober, Revelation
from .settings import DEFAULT_POLL_S, RestSettings, SlurmSettings
from .survey import USUAL_PLANNED, age_accrues, capabilities, kills_invalid, partition_limits, planned_together

_LISTED_PARTITIONS = 8
_LOOKED_AT = 4  # own jobs of a typical run, for timing a look
_LOOKS = 3
_MIN_SHARE = 50  # lower bound of the interval between queries of the queue, in durations of a query
_MAX_POLL_S = 60.0
_TOKEN_SHORT_S = 600.0
_TOKEN_LONG_S = 24 * 3600.0
_SLOW_LOOK_S = 0.2
_SHORT_MEMORY_S = 120.0
_T = TypeVar("_T")
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_ENTERS = stat.S_IXGRP | stat.S_IXOTH
_WAITING = ("Resources", "Priority")


_REACHED = (
    "A job beyond a limit on those in the queue is not accepted, and asked for again until it is; one beyond another "
    "waits in the queue, for ever if it exceeds that by itself, unless the site refuses such jobs."
)
_LIMITS = {
    "MaxJobs": "running jobs: {}",
    "MaxSubmitJobs": "jobs in the queue: {}",
    "MaxTRES": "one job: {}",
    "MaxWall": "one job: {}",
    "GrpJobs": "running jobs: {}",
    "GrpSubmitJobs": "jobs in the queue: {}",
    "GrpTRES": "at once: {}",
    "GrpTRESMins": "minutes in all: {}",
    "GrpWall": "in all: {}",
    "MaxJobsPerUser": "running jobs of a user: {}",
    "MaxSubmitJobsPerUser": "jobs of a user in the queue: {}",
    "MaxTRESPerUser": "a user at once: {}",
}
_AGE = {
    True: "jobs gain priority while they wait for a dependency",
    False: "jobs gain no priority while they wait for a dependency",
}
_KILLS = {
    True: "those whose dependency failed are cancelled by the site",
    False: "those whose dependency failed stay in the queue for ever",
}


def _shown(file: Path) -> str:
    """Return who else, besides this user and root, can read or change a file with a secret; empty for none."""
    try:
        status = file.stat()
        is_closed = any(not folder.stat().st_mode & _ENTERS for folder in file.absolute().parents)
    except OSError:
        return ""
    if owner := whose(status):
        return f"belongs to {owner}"
    return "can be read or changed by other users" if status.st_mode & _OF_OTHERS and not is_closed else ""


def considerate_poll_s(look_s: float) -> float:
    """Return the interval between queries at which the site spends at most a fiftieth of its time on them.

    Examples
    --------
    >>> [considerate_poll_s(look_s) for look_s in (0.005, 0.1, 0.5, 10.0)]
    [2.0, 5.0, 25.0, 60.0]
    """
    return min(max(DEFAULT_POLL_S, float(math.ceil(look_s * _MIN_SHARE - 1e-9))), _MAX_POLL_S)


@dataclass(slots=True)
class _Findings:
    """Collects the findings."""

    findings: list[Finding] = field(default_factory=list)
    settings: dict[str, Setting] = field(default_factory=dict)
    observed: dict[str, Setting] = field(default_factory=dict)

    def add(self, topic: str, text: str, verdict: Verdict = "good", consequence: str = "") -> None:
        self.findings.append(Finding(topic, text, verdict, consequence))

    def add_error(self, topic: str, error: AsaError, verdict: Verdict = "bad") -> None:
        words = f"{error.where}: {error.message}" if error.where else error.message
        self.add(topic, words, verdict, error.hint or "")


class Examiner:
    """Examines a site, once."""

    def __init__(
        self,
        link: SlurmLink,
        settings: SlurmSettings,
        *,
        default_system: str = "slurm",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._link, self._settings, self._default_system = link, settings, default_system
        self._clock, self._sleep, self._timer = clock, sleep, timer

    def examine(self, *, probe: bool) -> Examination:
        """Examine everything; with `probe`, also with a held job that never runs."""
        findings = _Findings()
        try:
            about = self._reach(findings)
            if about is not None:
                self._look_around(findings, about, probe=probe)
        except AccessError as error:
            findings.add_error("Access", error)
        except BackendError as error:
            findings.add_error("Reachable", error)
        return Examination(tuple(findings.findings), findings.settings, findings.observed)

    def _look_around(self, findings: _Findings, about: SlurmAbout, *, probe: bool) -> None:
        config = self._link.settings()
        self._partitions(findings, self._link.partitions(), self._link.nodes(), about)
        queue, queue_s = self._timed(self._link.queue)
        probed = self._probe(findings, config) if probe else None
        if probed is not None and probed.partition and not findings.observed.get("partition"):
            # otherwise waits would have another name than in accounting
            findings.settings["partition"] = probed.partition
        self._age(findings, config, probed, asked=probe)
        self._configuration(findings, config)
        self._accounting(findings, about)
        self._own_limits(findings, config, about)
        self._clocks(findings, probed, asked=probe)
        self._estimates(findings, queue)
        self._cost(findings, queue, queue_s)

    # ------------------------------------------------------------------ the answering cluster

    def _reach(self, findings: _Findings) -> SlurmAbout | None:
        about, took_s = self._timed(self._link.about)
        name = f"Slurm {about.version}".strip() + (f", cluster {about.cluster}" if about.cluster else "")
        text = f"{name}; {about.means}, {_milliseconds(took_s)}"
        findings.observed["version"] = about.version
        findings.observed["means"] = about.means
        if about.cluster:
            findings.observed["cluster"] = about.cluster
        if not about.controller_up:
            findings.add(
                "Reachable",
                f"{text}; its controller does not answer",
                "bad",
                "Nothing can be submitted until it does.",
            )
            return None
        findings.add("Reachable", text)
        self._access(findings, about)
        return about

    def _access(self, findings: _Findings, about: SlurmAbout) -> None:
        if not isinstance(self._settings, RestSettings):
            return
        from .rest.exchange import is_in_clear  # noqa: PLC0415 - not needed with commands

        if self._settings.allow_insecure and is_in_clear(self._settings.url):
            findings.add(
                "Secrecy",
                "a token may go to another host in clear, as allow_insecure = true has it",
                "note",
                "Whoever listens on the way can act as you: https, or an ssh tunnel, would keep it secret.",
            )
        if self._settings.token_file is not None and (why := _shown(self._settings.token_file)):
            findings.add(
                "Secrecy",
                f"the token in {self._settings.token_file} {why}",
                "note",
                f"Whoever has it can act as you: chmod 600 {shlex.quote(str(self._settings.token_file))}",
            )
        if about.token_ends_s is None:
            return
        left_s = about.token_ends_s - self._clock()
        renews = self._settings.token_file is not None or bool(self._settings.token_command)
        lasts = f"the token lasts for {format_duration(left_s)}" if left_s > 0 else "the token has expired"
        if renews:
            findings.add("Access", lasts, "good", "It is read anew before it ends.")
        elif left_s > _TOKEN_LONG_S:
            findings.add("Access", lasts)
        else:
            findings.add(
                "Access",
                lasts,
                "note" if left_s > _TOKEN_SHORT_S else "bad",
                "A run that takes longer is stuck then: set token_file or token_command, which are read anew.",
            )

    # ------------------------------------------------------------------ nodes and partitions

    def _partitions(
        self, findings: _Findings, partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode], about: SlurmAbout
    ) -> None:
        lines = _partition_lines(partitions, nodes)
        try:
            site = capabilities(
                self._settings.system or about.cluster or self._default_system,
                partitions,
                nodes,
                self._settings,
                accrues=False,
            )
        except InputError as error:
            findings.add("Partitions", "\n".join([*lines, error.message]), "bad", error.hint or "")
            return
        findings.observed["partitions"] = len(partitions)
        findings.observed["max_cores"] = site.max_cores
        of_jobs = [partition for partition in partitions if partition.name == site.partition]
        own = sum(node.cores for node in nodes if not of_jobs or site.partition in node.partitions)
        findings.observed["cores"] = max(own, *(job.cores for job in of_jobs), 0)
        findings.observed["cores_per_node"] = site.cores_per_node
        findings.observed["whole_nodes"] = site.whole_nodes
        if site.partition:
            findings.observed["partition"] = site.partition
        chosen = site.partitions.get(site.partition)
        sizes = f"A node has {site.cores_per_node} cores, the largest job {site.max_cores:,}."
        if not site.partition:
            unknown = "Which is the default is not reported by these means: set partition to where your jobs go."
            findings.add("Partitions", "\n".join(lines), "note", f"{unknown} {sizes}")
        elif chosen is not None and not chosen.is_up:
            closed = f"{site.partition!r}, where jobs go, takes none now: set another partition, or wait."
            findings.add("Partitions", "\n".join(lines), "bad", closed)
        else:
            findings.add("Partitions", "\n".join(lines), "good", f"Jobs go to {site.partition!r}. {sizes}")

    # ------------------------------------------------------------------ scheduling rules

    def _age(self, findings: _Findings, config: Mapping[str, str], probed: Revelation | None, *, asked: bool) -> None:
        topic, configured, known = "Age rule", age_accrues(config), self._settings.age_accrues
        seen = configured if configured is not None else (probed.accrues if probed else None)
        source = "by the configuration" if configured is not None else "by the probe"
        if seen is not None:
            findings.settings["age_accrues"] = seen
        elif known is not None:
            source = "as set or found before"
        accrues = known if seen is None else seen
        if accrues is None:
            how = "The probe did not tell either: ask the site" if asked else "`asa doctor --probe` finds out"
            findings.add(
                topic,
                "not reported",
                "note",
                f"Until then asa assumes that they gain no priority. {how}, or set age_accrues.",
            )
        elif known not in (None, accrues):
            findings.add(topic, f"{_AGE[accrues]}, {source}", "note", _conflict(_AGE[not accrues]))
        elif accrues:
            findings.add(
                topic,
                f"{_AGE[accrues]}, {source}",
                "good",
                "A job that is submitted early, with a dependency, moves up the queue meanwhile.",
            )
        else:
            findings.add(
                topic,
                f"{_AGE[accrues]}, {source}",
                "note",
                "So it gains nothing to submit early with one. asa-plan, which `asa run` takes unless the site file or "
                "--strategy says otherwise, submits without one where that is worth the cores that may idle.",
            )

    def _configuration(self, findings: _Findings, config: Mapping[str, str]) -> None:
        if not config:
            findings.add(
                "Configuration",
                "not shown by these means: MinJobAge, kill_invalid_depend and limits are not known",
                "note",
                "Slurm's defaults are taken; what you know of the site can be set (min_job_age, kill_invalid_depend).",
            )
        self._invalid_dependencies(findings, config)
        self._privacy(findings, config)
        self._memory(findings, config)
        self._message_time(findings, config)
        if (size := config.get("MaxArraySize", "")).isdecimal():
            findings.settings["max_array_size"] = int(size)  # the REST API does not report it
        limits = {"MaxJobCount": "jobs at once", "MaxArraySize": "elements of an array"}
        if known := [f"{config[name]} {words}" for name, words in limits.items() if config.get(name)]:
            findings.add("Limits", f"the controller takes {', '.join(known)}")
        self._planned_ahead(findings, config)
        findings.findings += self._settings.resizing_found(self._link.changeable, config)
        findings.settings |= self._settings.resizing_settings(config)

    def _planned_ahead(self, findings: _Findings, config: Mapping[str, str]) -> None:
        """Report that the scheduler plans ahead for few of the jobs that are submitted with one command."""
        most = planned_together(config)
        if most is None or MEMBERS not in self._link.changeable:
            return
        if most < min(self._settings.max_together, USUAL_PLANNED):
            findings.add(
                "Plans",
                f"of jobs submitted with one command, Slurm plans ahead for {most} (bf_max_job_array_resv={most})",
                "note",
                "The others begin once there is room, but no place is kept for them: jobs behind them may be planned "
                "there, and the starts that Slurm expects are too early. max_together = 1 submits each by itself.",
            )

    @staticmethod
    def _privacy(findings: _Findings, config: Mapping[str, str]) -> None:
        """Report whether other users' jobs are visible, whose waits and queue the forecasts use."""
        if "PrivateData" not in config:
            return
        hidden = {part.strip().lower() for part in config["PrivateData"].split(",")}
        if "jobs" in hidden:
            findings.add(
                "Queue",
                "jobs of other users are hidden (PrivateData=jobs)",
                "note",
                "Forecasts are made from your own jobs only, and nobody knows who waits before you.",
            )
        else:
            findings.add(
                "Queue", "everybody's jobs are shown", "good", "Forecasts take into account who waits and runs."
            )

    def _invalid_dependencies(self, findings: _Findings, config: Mapping[str, str]) -> None:
        topic, seen, known = "Failed dependencies", kills_invalid(config), self._settings.kill_invalid_depend
        if seen is not None:
            findings.settings["kill_invalid_depend"] = seen
        kills = known if seen is None else seen
        if kills is None:
            return
        if known not in (None, kills):
            findings.add(topic, _KILLS[kills], "note", _conflict(_KILLS[not kills]))
        else:
            findings.add(topic, _KILLS[kills], "good" if kills else "note", "" if kills else "asa cancels its own.")

    def _memory(self, findings: _Findings, config: Mapping[str, str]) -> None:
        seen_s, known_s = _seconds(config.get("MinJobAge", "")), self._settings.min_job_age
        if seen_s:
            findings.settings["min_job_age"] = f"{seen_s:.0f}s"
        age_s = seen_s or known_s
        if not age_s:
            return
        topic, words = "Ended jobs", f"the controller forgets a job {format_duration(age_s)} after its end"
        if known_s not in (None, age_s):
            findings.add(topic, words, "note", _conflict(f"{format_duration(known_s)} after it"))
            return
        looks_s = self._settings.model_copy(update={"min_job_age": age_s}).longest_poll_s
        findings.add(
            topic,
            words,
            "good" if age_s >= _SHORT_MEMORY_S else "note",
            f"asa asks about its jobs at least every {format_duration(looks_s)}.",
        )

    def _message_time(self, findings: _Findings, config: Mapping[str, str]) -> None:
        message_s = _seconds(config.get("MessageTimeout", ""))
        timeout_s = getattr(self._settings, "timeout", None)
        if message_s is None or timeout_s is None:
            return
        patient = timeout_s > message_s
        findings.add(
            "Timeout",
            f"Slurm gives up on its controller after {format_duration(message_s)},"
            f" asa after {format_duration(timeout_s)}",
            "good" if patient else "note",
            "" if patient else f"Set timeout above {format_duration(message_s)}, or good answers come too late.",
        )

    # ------------------------------------------------------------------ the past

    def _accounting(self, findings: _Findings, about: SlurmAbout) -> None:
        topic, without = "Accounting", "How forgotten jobs ended is known from the marks that they leave behind alone."
        if self._settings.accounting is False:
            findings.add(topic, "none, by the settings", "note", without)
            return
        if not about.accounting:
            findings.observed["accounting"] = False
            findings.add(topic, "none that can be read", "note", without)
            return
        now = self._clock()
        try:
            text, took_s = self._timed(lambda: self._link.accounting(now - 3600.0, now))
        except BackendError as error:
            findings.add_error(topic, error, "note")
            return
        findings.observed["accounting"] = True
        records, users = _accounts(text)
        whose = f"; {users} users" if users > 1 else ""
        findings.add(
            topic,
            f"can be read: {records:,} records of the last hour{whose}, {_milliseconds(took_s)}",
            "good",
            "`asa learn --since 30d` learns from it how long jobs wait here.",
        )
        self._other_clusters(findings, about)

    def _other_clusters(self, findings: _Findings, about: SlurmAbout) -> None:
        """Name the clusters to which the user may go as well."""
        try:
            others = sorted({*self._link.clusters()} - {about.cluster})
        except BackendError:
            return
        if not others:
            return
        how = "url=URL" if isinstance(self._settings, RestSettings) else f"cluster={others[0]}"
        findings.add(
            "Other clusters",
            f"accounting also has {', '.join(others)}",
            "good",
            f"`asa doctor --option {how} --save {others[0]}` makes a site of {others[0]}. "
            "`asa run --site ONE,OTHER` goes to the site where the workflow is forecast to end first; if both see the "
            "same files, `clusters` in a site file lets stages of one run go to either.",
        )

    def _own_limits(self, findings: _Findings, config: Mapping[str, str], about: SlurmAbout) -> None:
        topic = "Your limits"
        if self._settings.accounting is False or not about.accounting:
            return
        try:
            every = self._link.limits(about.cluster)
        except BackendError as error:
            findings.add_error(topic, error, "note")
            return
        lines = [
            f"{_whose(row)}: {', '.join(_limit(*pair) for pair in row.limits.items())}" for row in every if row.limits
        ]
        if not every:
            findings.add(topic, "accounting knows no account of yours on this cluster", "note")
        elif not lines:
            findings.add(topic, "none is set for you, your accounts or QOS")
        elif (enforced := config.get("AccountingStorageEnforce")) is not None and not ENFORCED.search(enforced):
            findings.add(topic, "\n".join(lines), "good", "The site does not enforce them.")
        else:
            findings.add(topic, "\n".join(lines), "good", _REACHED)

    # ------------------------------------------------------------------ a job that never runs

    def _probe(self, findings: _Findings, config: Mapping[str, str]) -> Revelation | None:
        prober = Prober(self._link, self._settings, clock=self._clock, sleep=self._sleep)
        try:
            revealed = prober.probe(age=age_accrues(config) is None)
        except BackendError as error:
            findings.add_error("Probe", error, "note")
            return None
        if revealed.left_over:
            findings.add("Probe", revealed.left_over, "note", f"It never runs. Cancel it: scancel {revealed.job_id}")
        elif revealed.offset_s is None:
            findings.add("Probe", f"job {revealed.job_id} was accepted and never listed; it was cancelled", "note")
        else:
            sent = f" to {revealed.partition!r}" if revealed.partition else ""
            findings.add("Probe", f"job {revealed.job_id} was submitted{sent} on hold and cancelled; it never ran")
        return revealed

    def _clocks(self, findings: _Findings, probed: Revelation | None, *, asked: bool) -> None:
        if probed is None or probed.offset_s is None:
            if not asked:
                findings.add("Clocks", "not compared", "note", "`asa doctor --probe` compares them.")
            return
        ahead_s = probed.offset_s
        if not ahead_s:
            findings.add("Clocks", "Slurm's agrees with this computer's")
            return
        findings.observed["clock_offset_s"] = ahead_s
        way = "ahead of" if ahead_s > 0 else "behind"
        findings.add(
            "Clocks",
            f"Slurm's is {abs(ahead_s):.1f} s {way} this computer's",
            "note",
            "All times are Slurm's: asa learns the difference as it submits.",
        )

    # ------------------------------------------------------------------ the queue, and the cost of querying it

    def _estimates(self, findings: _Findings, queue: Sequence[SlurmRecord]) -> None:
        waiting = [r for r in queue if r.states[:1] == ("PENDING",) and r.reason in _WAITING]
        estimated = sum(record.expected_start_s is not None for record in waiting)
        if not waiting:
            findings.add("Start estimates", "nobody's job waits for resources now, so none can be seen")
        elif estimated:
            findings.add("Start estimates", f"Slurm has one for {estimated:,} of {len(waiting):,} jobs that wait")
        else:
            findings.add(
                "Start estimates",
                f"Slurm has none for {len(waiting):,} jobs that wait",
                "note",
                "Predictions are made from past waits and the queue.",
            )

    def _cost(self, findings: _Findings, queue: Sequence[SlurmRecord], queue_s: float) -> None:
        look_s = self._look_s([record.job_id for record in queue[:_LOOKED_AT]])
        poll_s = considerate_poll_s(look_s)
        if poll_s > DEFAULT_POLL_S:
            findings.settings["poll"] = f"{poll_s:.0f}s"
        chosen = "poll" in self._settings.model_fields_set
        used_s = self._settings.poll if chosen else poll_s
        hasty = used_s < poll_s
        findings.add(
            "A look",
            f"at one's own jobs takes {_milliseconds(look_s)},"
            f" at everybody's ({len(queue):,}) {_milliseconds(queue_s)}",
            "note" if hasty or look_s > _SLOW_LOOK_S else "good",
            f"The settings ask for one every {format_duration(used_s)}; every {format_duration(poll_s)} is considerate."
            if hasty
            else f"Looks at the queue are at least {format_duration(used_s)} apart.",
        )

    def _look_s(self, job_ids: Sequence[str]) -> float:
        """Time a look of a run; the fastest of several tries, since the rest is chance."""
        wanted = job_ids or ["1"]
        return min(self._timed(lambda: self._link.jobs(wanted))[1] for _ in range(_LOOKS))

    def _timed(self, ask: Callable[[], _T]) -> tuple[_T, float]:
        begin = self._timer()
        answer = ask()
        return answer, self._timer() - begin


def _partition_lines(partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode]) -> list[str]:
    """Describe partitions, a line each; if there are many, the default and the largest."""
    if not partitions:
        return ["none is reported"]
    order = sorted(partitions, key=lambda p: (not p.is_default, not p.is_up, -p.cores, p.name))
    lines = [_partition_line(partition, nodes) for partition in order[:_LISTED_PARTITIONS]]
    if rest := order[_LISTED_PARTITIONS:]:
        lines.append(f"and {len(rest)} more, of which {sum(p.is_up for p in rest)} are up")
    return lines


def _partition_line(partition: SlurmPartition, nodes: Sequence[SlurmNode]) -> str:
    limits = partition_limits(partition, nodes)
    size = f"{partition.nodes} node{'s' * (partition.nodes > 1)}" if partition.nodes else ""
    if limits.cores_per_node:
        size += f" of {limits.cores_per_node} cores" if size else f"nodes of {limits.cores_per_node} cores"
    words = [size] if size else []
    if partition.max_nodes is not None:
        words.append(f"at most {partition.max_nodes} a job")
    if partition.max_walltime_s is not None:
        words.append(f"up to {format_duration(partition.max_walltime_s)}")
    words += ["default"] * partition.is_default + ["down"] * (not partition.is_up)
    return f"{partition.name}: {', '.join(words)}"


def _whose(limits: SlurmLimits) -> str:
    if limits.quality:
        return f"QOS {limits.quality}"
    where = f" in partition {limits.partition}" if limits.partition else ""
    return f"{'you, with' if limits.user else 'all of'} account {limits.account}{where}"


def _limit(name: str, value: str) -> str:
    return f"{_LIMITS[name].format(value)} ({name})" if name in _LIMITS else f"{name} {value}"


def _conflict(text: str) -> str:
    return f"What is set, or was found before, says: {text}; and that wins. Change it, or --save this."


def _seconds(text: str) -> float | None:
    """Parse a time of slurm.conf, such as ``300 sec``."""
    number = text.split(maxsplit=1)[0] if text.strip() else ""
    return float(number) if number.isdecimal() else None


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms" if seconds < 10 else f"{seconds:,.0f} s"


def _accounts(text: str) -> tuple[int, int]:
    """Count the records and the users in the output of sacct."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return 0, 0
    columns = [name.strip().lower() for name in lines[0].split("|")]
    user = columns.index("user") if "user" in columns else 0
    return len(lines) - 1, len({line.split("|")[user] for line in lines[1:] if line.count("|") >= user})

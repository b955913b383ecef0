"""One workflow of a host, from its first ready job to its end: what every host needs, whatever its graph is made of.

A host reads its graph as `HostJob`s, says what the job of each asks for, and hands over commands. The rest is here: the
run begins with the first ready job; jobs that are new, changed or no longer wanted are found; and its user is told.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from asa.backend import Capabilities
from asa.core.patterns import pattern
from asa.errors import AsaError, RunError
from asa.hosted.asking import HostRequest
from asa.hosted.ending import Ending, EndKind
from asa.hosted.expected import Expectations
from asa.hosted.gained import gained
from asa.hosted.graph import Graph, HostJob
from asa.hosted.options import GivenOptions
from asa.hosted.printed import printed
from asa.hosted.run import (
    HostedRun,
    Settings,
    begin,
    command_of,
    keep_parts,
    last_words,
    never_start,
    wind_up,
)
from asa.hosted.settings import bank_folder, open_batch_system
from asa.printable import printable
from asa.sites import OpenedSite
from asa.strategies.planned import at_price
from asa.units import parse_duration
from asa.workflow import Stage

_LAST_LINES = 15
_EXIT_CODE = pattern(r" \(exit code \d+\)$")
_KILL_S, _LOOK_S = 150.0, 0.1
_Left = tuple[str, HostJob, tuple[str, ...]]  # a stage's name, its job, and the stages that it follows
_Measured = Iterable[tuple[str, int, float, float]]  # see `Expectations.measured`


@dataclass(frozen=True, slots=True)
class HostTerms:
    """What a host is called, and how its users say what asa's messages speak of.

    `name`: of the host.
    `option`: returns one of its options for asa, as ``walltime``, in its users' spelling.
    `time_limit`: what a workflow writes to limit the time of a job.
    `remedy`: what the user may do about a job that could never start.
    """

    name: str
    option: Callable[[str], str]
    time_limit: str
    remedy: str


class AsksFor(ABC):
    """A host's own reading of what its jobs ask for."""

    @abstractmethod
    def request(self, node: HostJob, site: Capabilities) -> HostRequest:
        """Return what a job asks for."""

    def measured(self) -> _Measured:
        """Return the host's own measurements of run times; by default it keeps none."""
        return ()

    def news(self) -> str:
        """Return a text for the user on what is read otherwise than written; empty if there is nothing new."""
        return ""


@contextmanager
def errors_as(kind: type[Exception]) -> Iterator[None]:
    """Turn errors of asa into those that the host's commands show as their own."""
    try:
        yield
    except AsaError as error:
        raise kind(f"asa: {error}") from error


@dataclass(slots=True)
class HostSession:
    """A workflow of a host; see the module's docstring.

    `terms`: of the host.
    `given`: the options of its user.
    `asks`: reads what jobs ask for.
    `runs`: the folder of asa's runs.
    `workflow`: its name, under which run times are learned.
    `max_jobs`: upper bound of the jobs that are handed over at a time; None for none.
    `say`, `warn`: called with a text for the user.
    `on_job`: called with a stage that was handed over and the job that runs it.
    """

    terms: HostTerms
    given: GivenOptions
    asks: Callable[[OpenedSite], AsksFor]
    runs: Path
    workflow: str
    max_jobs: int | None
    say: Callable[[str], None]
    warn: Callable[[str], None]
    on_job: Callable[[str, str], object] = lambda _stage, _job_id: None
    # set when a stage has ended, or the run cannot go on; whoever has looked clears it
    news: threading.Event = field(default_factory=threading.Event, init=False)
    run: HostedRun | None = field(default=None, init=False)  # once a job is ready
    _graph: Graph = field(default_factory=Graph, init=False)
    _labels: dict[str, str] = field(default_factory=dict, init=False)  # of stages that were handed over
    # by stage that ran out of time: what its next try gets if the host gives no time
    _longer_s: dict[str, float] = field(default_factory=dict, init=False)
    _told: dict[str, str] = field(default_factory=dict, init=False)  # by stage: the job that the user was told runs it
    # by kind of job: what its command will run; and the kinds of which that is in the run's folder
    _parts: dict[str, Mapping[str, str]] = field(default_factory=dict, init=False)
    _kept: set[str] = field(default_factory=set, init=False)
    _outage: str = field(default="", init=False)  # what the user was told last of the batch system
    _opened: OpenedSite = field(init=False)
    _settings: Settings = field(init=False)
    _default_s: float = field(init=False)
    _asks: AsksFor = field(init=False)
    _expected: Expectations = field(init=False)

    def __post_init__(self) -> None:
        """Open the batch system, and end the jobs that an earlier host has left in this folder."""
        given = self.given
        self._default_s = parse_duration(str(given.walltime))
        self._opened = open_batch_system(given.backend, given.site, given.option or [], self.terms.option("option"))
        self._asks = self.asks(self._opened)
        self._settings = Settings(
            strategy=at_price(given.strategy or self._opened.strategy or "asa-plan", self._opened.price),
            estimator=given.estimator,
            bank=bank_folder(given.bank),
            history=given.history,
            max_jobs=self.max_jobs,
        )
        wind_up(self.runs, self.terms.name, lambda text: self.say(printable(text)))

    @property
    def site(self) -> Capabilities:
        """The abilities of the batch system; known once the run has begun."""
        return self._expected.site

    # ------------------------------------------------------------------ the graph

    def knows(self, keys: Iterable[Hashable]) -> bool:
        """Whether every one of these ready jobs has a stage that can still be handed over."""
        return self.run is not None and self._graph.knows(keys)

    def read(self, nodes: Iterable[HostJob]) -> None:
        """Read all remaining jobs: the run begins with them, or takes in what is new, and drops what is not wanted."""
        news, dropped = self._graph.read(nodes)
        if self.run is None:
            self._begin(news)
            return
        self.run.drop(dropped, f"{self.terms.name} wants it no more")
        stages = self._stages(news, self.run.folder.path)
        if text := self._expected.news():
            self.say(printable(f"asa: {text}".rstrip()))
        self._keep_parts(self.run.folder.path)
        if impossible := self.run.extend(stages):
            words = never_start(impossible, self.run.folder.plan.place)
            self.warn(printable(f"asa: {words}\nEach fails in its turn. {self.terms.remedy}"))

    def _begin(self, news: Sequence[_Left]) -> None:
        def make(site: Capabilities, folder: Path) -> list[Stage]:
            self._expected = Expectations(
                self._settings.bank,
                self.workflow,
                site,
                self._default_s,
                self.terms.time_limit,
                self.terms.option("walltime"),
            )
            self._expected.measured(self._asks.measured())
            return self._stages(news, folder)

        folder = begin(
            self.runs,
            self.workflow,
            self.terms.name,
            self._opened,
            settings=self._settings,
            make=make,
            remedy=self.terms.remedy,
        )
        if words := folder.not_shared():
            self.warn(printable(f"asa: {words}"))
        self._keep_parts(folder.path)
        run = HostedRun(folder, self._opened, self.news.set)
        run.start()
        self.run = run
        plan, site = folder.plan, folder.plan.capabilities.system
        why = f" ({self._opened.why})" if self._opened.why else ""
        who = f"; waits are predicted by {plan.estimator}: {plan.estimator_why}" if plan.estimator_why else ""
        self.say(
            printable(
                f"asa: {len(news)} job{'' if len(news) == 1 else 's'} on {site}, by {plan.backend}{why}."
                f" Strategy {plan.strategy}{who}.\n"
                f"{self._expected.news()}{self._asks.news()}See the run with: asa status {folder.path}"
            )
        )

    def _stages(self, news: Sequence[_Left], folder: Path) -> list[Stage]:
        stages = [self._stage(*new, folder) for new in news]
        for stage in stages:
            self._graph.note(stage)
        return stages

    def _stage(self, name: str, node: HostJob, after: tuple[str, ...], folder: Path) -> Stage:
        command = command_of(folder, name, [*self._parts.setdefault(node.kind, node.parts)])
        asked = self._asks.request(node, self.site)
        longer_s = self._longer_s.get(name)
        return asked.stage(node, name, command, after=after, expected=self._expected, longer_s=longer_s)

    def _keep_parts(self, folder: Path) -> None:
        for kind in self._parts.keys() - self._kept:
            keep_parts(folder, self._parts[kind])
            self._kept.add(kind)

    # ------------------------------------------------------------------ jobs that are ready

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Hand over all jobs within this context together, so that they can share an allocation."""
        with self.run.at_once() if self.run is not None else nullcontext():
            yield

    def stage_of(self, key: Hashable) -> str:
        """Return the name of a job's stage."""
        return self._graph.stage_of(key)

    def hand_over(self, node: HostJob, command: str, *, may_come_again: bool) -> str:
        """Hand over a job that was read before: it may begin; return the name of its stage.

        `node`: the job as it is now.
        `command`: text for `sh`.
        `may_come_again`: whether the host would hand it over again if it failed.
        """
        assert self.run is not None
        name = self._graph.stage_of(node.key)
        asked = self._stage(name, node, self._graph.after(name), self.run.folder.path)
        if news := self._asks.news():
            self.say(printable(f"asa: {news}"))
        is_other = self._graph.note(asked)
        self._graph.handed_over(name)
        self._labels[name] = node.label
        text = f"#!/bin/sh\n# Stage {name} of asa's run.\n{command}\n"
        self.run.claim(name, text, asked=asked if is_other else None, may_come_again=may_come_again)
        return name

    def hear(self) -> list[Ending]:
        """Return the stages that have ended since the last call; see `HostedRun.endings`.

        The user is told which job runs each stage, and whether the batch system answers.
        """
        if self.run is None:
            return []
        ended = self.run.endings()
        jobs = {name: self.run.job_of(name) for name in list(self._labels)} | {one.stage: one.job_id for one in ended}
        for name, job_id in jobs.items():
            if job_id and self._told.get(name) != job_id:
                self._told[name] = job_id
                self.say(printable(f"asa: {self._labels[name]}: job {job_id}; its output: {self._logs(name)}"))
                self.on_job(name, job_id)
        self._tell_outage()
        return ended

    def running(self) -> dict[str, float]:
        """Return the stages that run, and for how many seconds each has run; see `HostedRun.running`."""
        return self.run.running() if self.run is not None else {}

    def ended(self, ending: Ending) -> None:
        """Note that the host was told of the end of a stage."""
        self._labels.pop(ending.stage, None)
        if ending.how is EndKind.OUT_OF_TIME:
            self._longer_s[ending.stage] = 2 * ending.walltime_s
        if not ending.may_come_again:
            self._graph.ended(ending.stage)

    def withdraw(self, stages: Iterable[str]) -> list[Ending]:
        """Cancel the jobs of stages that were handed over, and wait until they are gone; return all ends until then.

        Raises `RunError`: they cannot be cancelled now.
        """
        left, ended, end_s = set(stages), list[Ending](), time.monotonic() + _KILL_S
        if self.run is not None and left:
            self.run.withdraw(left, f"{self.terms.name} has killed it")
        while left:
            ended += self.hear()
            left -= {ending.stage for ending in ended}
            if time.monotonic() > end_s:
                names = ", ".join(sorted(left))
                raise RunError("cannot be cancelled now", where=f"job {names}", hint="See: asa status.")
            time.sleep(_LOOK_S if left else 0.0)
        return ended

    def _tell_outage(self) -> None:
        """Say once that the batch system does not answer, and once that it answers again."""
        outage = self.run.outage if self.run is not None else ""
        if outage and not self._outage:
            self.warn(printable(f"asa: {outage}"))
        elif self._outage and not outage:
            self.say("asa: the batch system answers again")
        self._outage = outage

    def _logs(self, stage: str) -> str:
        """Return the command that shows what a stage printed."""
        return f"asa logs {stage}" + (f" --run {self.run.folder.path}" if self.run is not None else "")

    def failure(self, ending: Ending) -> str:
        """Return how a job failed, with the last that its command printed; before `ended` is called."""
        where = f"job {ending.job_id}" if ending.job_id else "its job"
        reason = (ending.reason or "failed").removeprefix(f"stage {ending.stage!r} ").removeprefix("ended as ")
        log = last_words(ending.log)
        found = printed(self.terms.name, log)
        end = ""
        if found is not None and found.end:  # the exit code is that of the host in the job
            reason, end = _EXIT_CODE.sub("", reason), f" Its command ended with {found.end}."
        text = f"asa: {self._labels[ending.stage]}: {where}: {reason.rstrip('.')}.{end}\n"
        if found is not None and not found.own:
            text += f"Its command printed no errors. All of its output: {self._logs(ending.stage)}\n"
        elif words := log if found is None else found.own:
            text += f"The last of {ending.log}:\n" + "\n".join(words.splitlines()[-_LAST_LINES:]) + "\n"
        return printable(text)

    # ------------------------------------------------------------------ the end

    def cancel(self) -> bool:
        """Cancel all jobs, also those that were asked for ahead of time; return whether there is a run."""
        if self.run is None:
            return False
        self.run.cancel(f"{self.terms.name} was signalled to end")
        return True

    def end(self, *, waits: bool = True) -> None:
        """Give back what is no longer needed, wait until it has ended or the user interrupts, and say what was gained.

        `waits`: False if the user has interrupted already, so that the next host in this folder waits instead.
        """
        run, self.run, is_over = self.run, None, False
        if run is None:
            return
        with suppress(KeyboardInterrupt):
            is_over = waits and run.end()
        if is_over and (words := gained(run.folder)):
            self.say(printable(f"asa: {words}"))
        elif not is_over:
            self.warn(
                f"Some of asa's jobs have not ended yet. The next {self.terms.name} in this folder sees to them; "
                f"or now: asa cancel {run.folder.path}"
            )

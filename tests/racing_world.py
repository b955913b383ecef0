"""A simulated machine of 8 cores for jobs that race, what must hold of a run on it, and submissions that come late.

Also a strategy that has one job take the place of another, here and on real daemons.
"""

from dataclasses import dataclass, replace

import numpy as np
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable

from asa.backend import JobState
from asa.core import plugins
from asa.errors import SubmitInDoubtError, SubmitRejectedError
from asa.records import StageEnded, StageStarted
from asa.runner import read_journal
from asa.runner.entries import Intended
from asa.runner.state import RunState
from asa.shapes import Moldable, Scaling
from asa.strategies import Strategy
from asa.strategies.base import Choice, ForecastKind, Keep, Plan, PlannedJob
from asa.workflow import Stage, Workflow

WIDTHS = Moldable((8, 2, 4), scaling=Scaling("tasks"))  # 100 s on 8 cores, 400 s on 2


def stage(name, *after):
    return Stage(name, cores=8, walltime_s=200, expected_run_s=100, after=after, moldable=WIDTHS)


CHAIN = Workflow("chain", [stage("a"), stage("b", "a"), stage("c", "b")])


def machine(others):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    return SimulatedBackend(Engine(8, JobTable(*columns), now=0), Machine("m", 1, 8))


def ran(world, folder):
    """For each stage, the jobs that ran it, and completed."""
    found = {name: [] for name in CHAIN.stages}
    for intent in {e.token: e for e in read_journal(folder / "journal.jsonl")[0] if isinstance(e, Intended)}.values():
        for status in world.find([intent.token])[intent.token]:
            if status.payload_start_s is not None:
                assert status.state is JobState.COMPLETED, "no payload is ended that has begun"
                stages = intent.planned.stages
                for name in stages if len(stages) == 1 else [step.name for step in status.steps]:
                    found[name].append(status.job_id)
    return found


def check(world, folder, result):
    assert result.outcome == "completed", result.reason
    assert sorted(r.stages[0] for r in result.records if isinstance(r, StageEnded)) == ["a", "b", "c"]
    assert {name: len(jobs) for name, jobs in ran(world, folder).items()} == {"a": 1, "b": 1, "c": 1}
    assert all(s.state.is_final for statuses in world.find(world._tokens).values() for s in statuses)
    began = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageStarted)}
    ended = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    assert began["b"] >= ended["a"]
    assert began["c"] >= ended["b"]
    assert replayed(folder, result) == shown(result)


def replayed(folder, result):
    state = RunState("chain", CHAIN, machine(()).capabilities, "r" * 12, None, "")
    records = []
    for entry in read_journal(folder / "journal.jsonl")[0]:
        records += [getattr(news, "record", news) for news in state.apply(entry)]
    assert {name: view.phase.value for name, view in state.stages.items()} == dict.fromkeys("abc", "done")
    assert state.outcome == result.outcome
    return [repr(record) for record in records]


def shown(result):
    return [repr(record) for record in result.records if type(record).__name__ != "Predicted"]


class Late:
    """A world that answers nothing to the n-th submission, which arrives some time later."""

    def __init__(self, inner, at, delay_s):
        self.inner, self.at, self.delay_s, self.seen, self.under_way = inner, at, delay_s, 0, []
        self.capabilities = replace(inner.capabilities, accepts_late=True)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, spec):
        self.seen += 1
        if self.seen - 1 != self.at:
            return self.inner.submit(spec)
        self.under_way.append((self.now() + self.delay_s, spec))
        raise SubmitInDoubtError("no answer came in time")

    def wait(self, until):
        due_s = min((at_s for at_s, _ in self.under_way), default=None)
        if due_s is None or (until is not None and until < due_s):
            return self.inner.wait(until)
        if changed := self.inner.wait(due_s):
            return changed
        [spec] = [spec for at_s, spec in self.under_way if at_s <= self.now()]
        self.under_way.clear()
        self.inner.submit(spec)
        return []


def refused(_, *__):
    raise SubmitRejectedError("never")


@dataclass(frozen=True)
class Exchange(Strategy):
    """Asks for each stage alone in a narrow job, and once for more stages in a wide job in place of the first one."""

    stages: tuple[str, ...] = ("a", "b")
    narrow: int = 2
    wide: int = 8
    after_s: float = 60.0  # how long the narrow one is pending before

    @property
    def forecast(self):
        return ForecastKind.NONE

    @property
    def replaces(self):
        return True

    def plan(self, view, forecast):
        del forecast
        narrow = {name: Choice(self.shape(view, name, self.narrow)) for name in view.workflow.stages}
        asked = [
            PlannedJob((name,), view.now_s, Keep.NOTHING, "narrow", racer=int(name == "a"))
            for name in view.to_run_now()
        ]
        wake_s = None
        old = next((one for one in view.racers if one.is_pending and one.number == 1), None)
        if old is not None and not any(one.number > 1 for one in view.racers):
            if view.now_s < old.submit_s + self.after_s:
                wake_s = old.submit_s + self.after_s
            else:
                shapes = tuple(self.shape(view, name, self.wide) for name in self.stages)
                new = PlannedJob(self.stages, view.now_s, Keep.NOTHING, "wide", racer=2, shapes=shapes)
                asked.append(replace(new, replaces=old.job_id))
        return Plan.of(asked, wake_s=wake_s, choices=narrow)

    @staticmethod
    def shape(view, name, width):
        return next(one for one in view.workflow.stages[name].shapes if one.width == width)


def exchanging(strategy):
    """Have runs of the strategy ``per-stage`` do as another one says, in this process."""
    load = plugins.load

    def loaded(group, name):
        return (lambda: strategy) if (group, name) == ("asa.strategies", "per-stage") else load(group, name)

    plugins.load = loaded

"""Jobs that replace pending ones: the new job is submitted first, and only one of the two ever runs."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from mortal_client import Killed, Mortal, MortalWithdrawingBackend, Wrong, answer_lost, deferred, go, lost, unavailable
from racing_world import CHAIN, Exchange, Late, check, machine, refused

from asa.records import Cancelled, Started, Submitted
from asa.runner import read_journal
from asa.runner.entries import Accepted, GivingUp
from asa.shapes import Moldable, RunAt
from asa.strategies import Strategy, load_strategy
from asa.strategies.base import ForecastKind
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

# submit, request, run, cores: what others hold
LONG = ((0, 3000, 2000, 8),)  # both are pending for long
NOW = ((0, 900, 60, 8),)  # both may start when the exchange is made
SOON = ((0, 900, 62, 8),)
WORLDS = pytest.mark.parametrize("others", [LONG, NOW, SOON], ids=["long", "now", "soon"])


EXCHANGE = Exchange()


def entries(folder):
    return read_journal(folder / "journal.jsonl")[0]


def asked(result):
    return [(r.stages, r.cores) for r in result.records if isinstance(r, Submitted)]


def withdrawn(result):
    return {r.job_id: r.reason for r in result.records if isinstance(r, Cancelled)}


@pytest.mark.parametrize("stages", [("a",), ("a", "b"), ("a", "b", "c")])
def test_the_new_one_is_accepted_in_the_same_second_before_the_pending_one_is_withdrawn(stages, tmp_path):
    result = go(world := machine(LONG), tmp_path, Exchange(stages), flow=CHAIN)
    check(world, tmp_path, result)
    rest = [((name,), 2) for name in "abc" if name not in stages]
    assert asked(result) == [(("a",), 2), (stages, 8), *rest], "nothing is asked for anew"
    assert withdrawn(result) == {"1": "job 2 takes its place"}
    journal = entries(tmp_path)
    [taken] = [at for at, e in enumerate(journal) if isinstance(e, Accepted) and e.status.job_id == "2"]
    [given] = [at for at, e in enumerate(journal) if isinstance(e, GivingUp)]
    assert taken < given
    assert journal[given].at_s == journal[taken].status.submit_s == 60.0


@pytest.mark.parametrize("how", [lost, answer_lost, unavailable, deferred])
@WORLDS
def test_a_pending_job_stays_until_the_new_one_is_accepted(how, others, tmp_path):
    world = machine(others)
    check(world, tmp_path, go(Wrong(world, "submit", 1, how), tmp_path, EXCHANGE, flow=CHAIN))


def test_a_pending_job_stays_where_the_new_one_is_refused(tmp_path):
    world = machine(LONG)
    result = go(Wrong(world, "submit", 1, refused), tmp_path, EXCHANGE, flow=CHAIN)
    check(world, tmp_path, result)
    assert asked(result) == [((name,), 2) for name in "abc"]
    assert not withdrawn(result)


@pytest.mark.parametrize("delay_s", [2, 13, 90, 800])
@pytest.mark.parametrize("others", [LONG, SOON], ids=["long", "soon"])
def test_a_new_one_that_turns_up_late(delay_s, others, tmp_path):
    """The former job is pending, or has begun."""
    world = Late(machine(others), 1, delay_s)
    check(world, tmp_path, go(world, tmp_path, EXCHANGE, flow=CHAIN))


@WORLDS
def test_a_pending_job_that_cannot_be_withdrawn_in_time(others, tmp_path):
    for at in range(2):
        (folder := tmp_path / f"{at}").mkdir()
        world = machine(others)
        check(world, folder, go(Wrong(world, "cancel", at, unavailable), folder, EXCHANGE, flow=CHAIN))


@pytest.mark.full
@WORLDS
@pytest.mark.parametrize("stages", [("a",), ("a", "b")])
def test_a_client_killed_at_any_point_of_an_exchange_goes_on_where_it_was(others, stages, tmp_path):
    strategy, plain = Exchange(stages), Mortal()
    (tmp_path / "plain").mkdir()
    world = machine(others)
    check(world, tmp_path / "plain", go(world, tmp_path / "plain", strategy, plain, CHAIN, MortalWithdrawingBackend))
    for at in range(plain.count):
        (folder := tmp_path / f"{at}").mkdir()
        world = machine(others)
        with pytest.raises(Killed):
            go(world, folder, strategy, Mortal(at), CHAIN, MortalWithdrawingBackend)
        if at % 2:
            world.wait(400.0)  # nobody looks for a while
        check(world, folder, go(world, folder, strategy, flow=CHAIN, backend=MortalWithdrawingBackend))


class Starting:
    """A world in which a job starts just after the client has decided something; the client's next query shows it."""

    def __init__(self, inner, until_s):
        self.inner, self.until_s, self.submitted = inner, until_s, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def submit(self, spec):
        self.submitted += 1
        job_id = self.inner.submit(spec)
        if self.submitted == 2:
            while self.inner.now() < self.until_s:
                self.inner.wait(self.until_s)
        return job_id


def test_a_pending_job_that_starts_as_the_new_one_is_accepted_is_kept(tmp_path):
    world = machine(SOON)
    result = go(Starting(world, 63.0), tmp_path, Exchange(("a",)), flow=CHAIN)
    check(world, tmp_path, result)
    assert list(withdrawn(result)) == ["2"], "the new one is of no use any more"
    assert {r.job_id for r in result.records if isinstance(r, Started) and "a" in r.stages} == {"1"}


# ---------------------------------------------------------------------- as asa-plan does it

POINTS = (RunAt(2, 8000.0), RunAt(8, 2000.0))
WIDE = Stage("wide", cores=8, walltime_s=4000.0, expected_run_s=2000.0, command="x", moldable=Moldable((8, 2), POINTS))
FLOW = Workflow("chain", [WIDE])


class OfTwoMinds:
    """A forecast in which 2 cores are always the better request, except for a queued job: 8 cores would be better."""

    is_informed = True
    sees_queue = True

    def __init__(self):
        self.is_hidden = False

    def predict(self, stages, needed_s):
        del stages, needed_s
        return WaitForecast((60.0,) * 9, 60.0)

    def predict_each(self, stages, requests):
        del stages
        best = 8 if self.is_hidden else 2
        waits_s = [0.0 if one.cores in {best, 1} else 1e6 for one in requests]
        return [WaitForecast((wait_s,) * 9, wait_s) for wait_s in waits_s]

    @contextmanager
    def instead_of(self, job_id, stages):
        del job_id, stages
        self.is_hidden = True
        yield lambda _queued, _other: np.tile([50_000.0, 0.0], (20, 1))
        self.is_hidden = False


@dataclass(frozen=True)
class Planned(Strategy):
    """The plans of asa-plan, by that forecast."""

    own: Strategy = field(default_factory=lambda: load_strategy("asa-plan"))

    @property
    def forecast(self):
        return ForecastKind.NONE

    @property
    def replaces(self):
        return True

    def plan(self, view, forecast):
        return self.own.plan(view, OfTwoMinds())


class WithoutRaces:
    """A world where jobs must not race."""

    def __init__(self, inner):
        self.inner, self.capabilities = inner, replace(inner.capabilities, races=False)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.parametrize("may_race", [True, False], ids=["races", "no races"])
def test_the_shape_for_which_a_queued_job_was_given_up_is_what_is_asked_for(may_race, tmp_path):
    """Any other plan would request the former shape again, at the end of the queue."""
    world = machine(LONG)
    result = go(world if may_race else WithoutRaces(world), tmp_path, Planned(), flow=FLOW)
    assert result.outcome == "completed", result.reason
    assert [cores for stages, cores in asked(result) if "wide" in stages] == [2, 8]
    assert list(withdrawn(result)) == ["1"]
    journal = [e for e in entries(tmp_path) if isinstance(e, GivingUp | Accepted)]
    second = [isinstance(e, GivingUp) for e in journal].index(True)
    assert second == (2 if may_race else 1), "first the new one, where both may be in the queue"
    if may_race:
        assert journal[second].at_s == journal[1].status.submit_s


def test_a_shape_that_is_refused_costs_a_queued_job_nothing(tmp_path):
    result = go(Wrong(machine(LONG), "submit", 1, refused), tmp_path, Planned(), flow=FLOW)
    assert result.outcome == "completed", result.reason
    assert [cores for stages, cores in asked(result) if "wide" in stages] == [2]
    assert not withdrawn(result)

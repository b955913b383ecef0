"""A deferred submission delays the jobs that depend on it and other jobs of its target, and no more."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import BEGIN_S, FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.continuation import Continuation
from asa.elements import parse_array
from asa.errors import SubmitDeferredError, SubmitInDoubtError, UnavailableError
from asa.estimators import WaitBank
from asa.exactly_once import AGAIN_S
from asa.records import Deferred, Ended, Retrying, StageEnded, StageStarted, Submitted
from asa.runner import Run, RunFolder, RunPlan, run_all
from asa.runner.entries import Unsent, read_entry
from asa.runner.look import look
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

CORES = 64
SITE = Capabilities("x", 512, 64, age_accrues=False)


def machine():
    return SimulatedBackend(Engine(CORES, JobTable(*np.zeros((4, 0), dtype=np.int64)), now=0), Machine("m", 1, CORES))


def stage(name, after=(), *, partition="", **more):
    command = "" if "tasks" in more else "sleep 30"
    named = {"cores": 1, "walltime_s": 600, "expected_run_s": 30, "command": command} | more
    return Stage(name, after=tuple(after), partition=partition, **named)


class Picky:
    """A machine that is asked whether it takes each job, and records when each job was tried, and the answer."""

    def __init__(self, says, world=None):
        self.world, self.says, self.tried, self.shared = world or machine(), says, [], set()

    def __getattr__(self, name):
        return getattr(self.world, name)

    def submit(self, spec):
        name, now = spec.name.partition("/")[2], self.world.now()
        error = self.says(name, now, spec)
        self.tried += [(now, one, error is None) for one in name.split("+")]
        self.shared.update(name.split("+") if "+" in name else ())
        if error is not None:
            raise error
        return self.world.submit(spec)

    def accepted(self):
        return {name: at_s for at_s, name, is_in in reversed(self.tried) if is_in}

    def times(self, name):
        return [at_s for at_s, tried, _ in self.tried if tried == name]


def go(world, flow, strategy="per-stage", **more):
    [result] = run_all(world, [Run(flow, load_strategy(strategy), bank=WaitBank("last"), id="r" * 12, **more)])
    assert result.outcome == "completed", result.reason
    ended = [r.stages[0] for r in result.records if isinstance(r, StageEnded)]
    assert sorted(ended) == sorted(flow.stages)
    return result


def odd(name):
    return UnavailableError(f"{name} is not to my liking", is_unexplained=True)


@pytest.mark.parametrize("error", [SubmitDeferredError("the partition is INACTIVE"), odd("bad")])
@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa", "asa-naive", "asa-plan"])
def test_a_stage_that_is_deferred_holds_up_only_itself_and_what_depends_on_it(strategy, error):
    stages = [stage("bad"), stage("behind", ["bad"]), stage("a"), stage("b", ["a"]), stage("c"), stage("d", "bc")]
    world = Picky(lambda name, now, _: error if name == "bad" and now < 500 else None)
    result = go(world, Workflow("flow", stages), strategy)
    accepted, ends = world.accepted(), {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    assert accepted["a"] == accepted["c"] == 0
    assert ends["d"] < 200, "what does not depend on it completes meanwhile"
    assert 500 <= accepted["bad"] <= 500 + AGAIN_S[-1]
    assert accepted["behind"] >= accepted["bad"]
    pauses = np.diff(world.times("bad"))
    assert list(pauses[:5]) == list(AGAIN_S)
    assert set(pauses[5:]) == {AGAIN_S[-1]}


def test_two_of_a_target_hold_up_others_of_it_and_none_of_another():
    """Jobs of one target are tried one at a time, in turns; those not yet tried come first."""
    stages = [stage(f"gpu{n}", options=("--qos=gpu",)) for n in range(5)] + [stage("a"), stage("b", options=("--x",))]
    world = Picky(lambda name, now, _: SubmitDeferredError("closed") if "gpu" in name and now < 300 else None)
    go(world, Workflow("flow", stages))
    accepted = world.accepted()
    assert accepted["a"] == accepted["b"] == 0
    refused = [(at_s, name) for at_s, name, is_in in world.tried if not is_in]
    assert [name for _, name in refused[:6]] == ["gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu0"]
    assert [at_s for at_s, _ in refused[1:7]] == [0, 5, 15, 35, 75, 135]
    assert len({accepted[f"gpu{n}"] for n in (2, 3, 4)}) == 1, "once one is accepted, it is open"


def test_one_that_is_never_accepted_starves_no_other_however_often_it_comes_first():
    """Two jobs that are always refused close their target; a good job then waits for one pause at most."""
    stages = [stage("bad0"), stage("bad1"), *(stage(f"s{n}", [f"s{n - 1}"] if n else ()) for n in range(6))]
    world = Picky(lambda name, now, _: odd(name) if "bad" in name and now < 800 else None)
    result = go(world, Workflow("flow", stages))
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    accepted = world.accepted()
    for number in range(1, 6):
        waited_s = accepted[f"s{number}"] - ends[f"s{number - 1}"]
        assert waited_s <= AGAIN_S[-1]
    assert ends["s5"] < 6 * (30 + AGAIN_S[-1])


@pytest.mark.full
@pytest.mark.parametrize("targets", [1, 4])
def test_a_site_that_defers_everything_is_asked_once_a_target_and_pause(targets):
    stages = [stage(f"s{n}", account=f"project{n % targets}") for n in range(200)]
    world = Picky(lambda _, now, __: SubmitDeferredError("too many jobs") if now < 3600 else None)
    go(world, Workflow("flow", stages))
    refused = [at_s for at_s, _, is_in in world.tried if not is_in]
    assert len(refused) <= targets * (3600 / AGAIN_S[-1] + 2 * len(AGAIN_S))
    assert max(Counter(refused).values()) <= 2 * targets
    assert max(world.accepted().values()) <= 3600 + AGAIN_S[-1], "as soon as one is accepted, all are tried"


def test_one_that_was_refused_for_long_is_not_kept_out_by_one_that_was_not():
    """The jobs take turns: the number of refusals does not decide which is tried."""
    stages = [stage("old"), stage("short"), stage("young", ["short"])]
    until_s = {"old": 400, "young": 850, "short": 0}
    world = Picky(lambda name, now, _: odd(name) if now < until_s[name] else None)
    go(world, Workflow("flow", [stages[0], replace(stages[1], expected_run_s=350), stages[2]]))
    assert len([at_s for at_s in world.times("old") if at_s < 350]) > 5
    assert world.accepted()["old"] <= 400 + 2 * AGAIN_S[-1]


def test_a_batch_system_that_is_away_holds_up_all():
    """The whole system is retried like one job: with growing pauses, and at once for all other jobs when it is back."""
    stages = [stage(f"s{n}", account=f"project{n}") for n in range(20)]
    world = Picky(lambda _, now, __: UnavailableError("no controller") if now < 100 else None)
    result = go(world, Workflow("flow", stages))
    assert [at_s for at_s, _, is_in in world.tried if not is_in] == [0, 5, 15, 35, 75]
    assert set(world.accepted().values()) == {135}
    assert len([r for r in result.records if isinstance(r, Deferred)]) == 5


def all_before(world, flow, result):
    """Check that a job of a stage was accepted only after all its predecessors were accepted, or had ended."""
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    first = {name: min(at_s for at_s, tried, is_in in world.tried if is_in and tried == name) for name in flow.stages}
    for name, one in flow.stages.items():
        for before in one.after:
            accepted = [at_s for at_s, tried, is_in in world.tried if is_in and tried == before]
            count = 1 if before in world.shared else flow.stages[before].job_count
            are_there = len(accepted) >= count and max(accepted[:count]) <= first[name]
            assert ends[before] <= first[name] or are_there, (before, name)


@pytest.mark.parametrize("strategy", ["per-stage", "chained"])
def test_more_jobs_of_a_stage_that_are_deferred_hold_up_what_depends_on_it(strategy):
    """All jobs of a stage are accepted before its successors' jobs; independent stages continue."""
    many = stage("many", cores=8, walltime_s=3600, expected_run_s=1000, tasks=("t",), jobs=(4, 4))
    flow = Workflow("flow", [many, stage("after", ["many"]), stage("a"), stage("b", "a")])
    there = []

    def says(name, now, _):
        if name != "many" or len(there) < 2 or now >= 300:
            there.append(name) if name == "many" else None
            return None
        return SubmitDeferredError("too many jobs of this kind")

    world = Picky(says)
    result = go(world, flow, strategy)
    all_before(world, flow, result)
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    accepted = [at_s for at_s, name, is_in in world.tried if is_in and name == "many"]
    assert accepted[:2] == [0, 0]
    assert all(300 <= at_s <= 360 for at_s in accepted[2:4])
    assert ends["b"] < 100


@pytest.mark.parametrize("strategy", ["chained", "asa"])
def test_a_next_leg_that_is_deferred_holds_up_nothing_else(strategy):
    legs = stage("legs", walltime_s=100, expected_run_s=250, continues=Continuation.warned("USR1@5s"))
    flow = Workflow("flow", [legs, stage("after", ["legs"]), stage("a"), stage("b", "a"), stage("c", "b")])
    world = Picky(lambda name, now, _: SubmitDeferredError("no") if name.startswith("legs.2") and now < 400 else None)
    result = go(world, flow, strategy)
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    assert ends["c"] < 200
    assert ends["legs"] > 400
    assert min(world.times("after")) >= min(at_s for at_s, name, is_in in world.tried if is_in and name == "legs.3")


# ---------------------------------------------------------------------- any pattern of refusals


def drawn(rng):
    """Draw a graph, and for each stage, target and time whether and how a submission is refused."""
    count = rng.randrange(3, 12)
    shared = {"cores": 4, "tasks": ("t",), "jobs": (2, 2), "command": ""}
    stages = [
        stage(
            f"s{n}",
            [f"s{m}" for m in range(n) if rng.random() < 0.25],
            account=rng.choice(["", "p", "q"]),
            expected_run_s=rng.choice([5, 30, 200]),
            **(shared if rng.random() < 0.25 else {}),
        )
        for n in range(count)
    ]
    until_s = {f"s{n}": rng.choice([0, 0, 0, 40, 700]) for n in range(count)}
    closed_s = {account: rng.choice([0, 0, 300]) for account in ("", "p", "q")}
    away = [(at_s := rng.randrange(0, 600), at_s + rng.randrange(1, 120)) for _ in range(rng.randrange(3))]
    kind = {f"s{n}": rng.random() < 0.5 for n in range(count)}

    def says(names, now, spec):
        if any(begin <= now < end for begin, end in away):
            return UnavailableError("no controller")
        if now < closed_s[spec.account]:
            return SubmitDeferredError("the account has too many jobs")
        for name in names.split("+"):
            if now < until_s[name]:
                return odd(name) if kind[name] else SubmitDeferredError("not now")
        return None

    return Workflow("flow", stages), says, until_s, closed_s, away


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa", "asa-naive", "asa-plan"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_refused_no_stage_waits_for_another_s_refusals(strategy, seed):
    """By the model, a stage is accepted once it is due and not refused, after a pause for each job in the turn."""
    flow, says, until_s, closed_s, away = drawn(random.Random(seed))
    world = Picky(says)
    result = go(world, flow, strategy)
    accepted = world.accepted()
    ends = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageEnded)}
    begun = {r.stages[0]: r.time_s for r in result.records if isinstance(r, StageStarted)}
    all_before(world, flow, result)
    for name, one in flow.stages.items():
        assert all(ends[before] <= begun[name] for before in one.after)
        if strategy == "per-stage":
            due_s = max([0.0, *(ends[before] for before in one.after)])
            free_s = max([due_s, until_s[name], closed_s[one.account], *(end for _, end in away)])
            rivals = {tried for _, tried, is_in in world.tried if not is_in} & {
                other.name for other in flow.stages.values() if other.account == one.account and other.name != name
            }
            assert accepted[name] - free_s <= (1 + len(rivals)) * AGAIN_S[-1], name
    refused = [name for _, name, is_in in world.tried if not is_in]
    assert len(refused) <= sum(until_s.values()) / 5 + 3 * 12 + 3 * 24
    assert not [r for r in result.records if isinstance(r, Retrying)]
    submitted = Counter(r.stages[0] for r in result.records if isinstance(r, Submitted))
    assert all(submitted[name] <= one.job_count for name, one in flow.stages.items())
    assert {r.state for r in result.records if isinstance(r, Ended)} <= {"completed", "cancelled"}


# ---------------------------------------------------------------------- clients that look once


class Closed(FakeLink):
    """Slurm in memory that refuses some jobs for a while."""

    until_s, bad, error = 0.0, (), SubmitDeferredError("closed")

    def submit(self, job):
        self.tried = getattr(self, "tried", [])
        name = job.name.partition("_")[2].partition(".")[0]
        self.tried.append((self.clock(), name))
        if name in self.bad and self.clock() < self.until_s:
            raise self.error
        return super().submit(job)


def looked(tmp_path, stages, bad, lasts_s, error, every_s=60.0):
    """Look at a run each minute, each time as a client that remembers nothing, until it has ended."""
    plan = RunPlan("abcd1234", "flow", "flow", tuple(stages), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    begun_s = clock()
    link = Closed(clock, folder.path)
    link.until_s, link.bad, link.error = begun_s + lasts_s, bad, error
    while folder.state()[0].outcome is None and clock() < begun_s + 4 * 3600:
        look(folder, lambda run: SlurmBackend(link, run.path, SITE, clock=clock, sleep=clock.sleep))
        clock.sleep(every_s)
    return link, folder, begun_s


IN_DOUBT = SubmitInDoubtError("that is odd", is_unexplained=True)


@pytest.mark.parametrize("error", [SubmitDeferredError("closed"), odd("bad"), IN_DOUBT])
def test_clients_that_look_once_starve_nobody_either(error, tmp_path):
    """Two jobs that are never accepted come first in each look; the journal has the number of their deferrals."""
    stages = [stage("bad0"), stage("bad1"), *(stage(f"s{n}", [f"s{n - 1}"] if n else ()) for n in range(4))]
    _, folder, begun_s = looked(tmp_path, stages, {"bad0", "bad1"}, 850.0, error)
    state, records = folder.state()
    assert state.outcome == "completed", state.reason
    ends = {r.stages[0]: r.time_s - begun_s for r in records if isinstance(r, StageEnded)}
    assert ends["s3"] < 800
    assert ends["bad0"] > 850


def test_a_look_at_a_closed_target_tries_one_job(tmp_path):
    stages = [stage(f"s{n}") for n in range(30)]
    link, folder, begun_s = looked(tmp_path, stages, {one.name for one in stages}, 900.0, SubmitDeferredError("closed"))
    assert folder.state()[0].outcome == "completed"
    tried = Counter(int(at_s - begun_s) // 60 for at_s, _ in link.tried if at_s < link.until_s)
    assert tried[0] == 2
    assert max(tried[minute] for minute in range(1, 15)) == 1
    assert len({name for at_s, name in link.tried if at_s < link.until_s}) == 16


class Moody(FakeLink):
    """A Slurm in memory that answers many submissions in one of the ways in which they are not accepted."""

    def moody(self, seed, until_s):
        self.random, self.until_s = random.Random(seed), until_s
        return self

    def submit(self, job):
        if self.clock() < self.until_s and self.random.random() < 0.5:
            raise self.random.choice([SubmitDeferredError("later"), odd("it"), UnavailableError("away"), IN_DOUBT])
        return super().submit(job)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", ["chained", "per-stage", "asa-plan"])
def test_parts_of_arrays_come_before_what_depends_on_them(strategy, seed, tmp_path):
    """Submissions fail at random: each element still runs once, and after all its predecessors are submitted."""
    numbers = parse_array("1-9%4" if seed % 2 else "1-9").elements
    sweep = stage("b", "a", array=parse_array(str(numbers)), command="sleep 5")
    stages = [stage("a"), sweep, stage("c", "b"), stage("x"), stage("y", "x"), stage("z", "cy")]
    site = replace(SITE, arrays=True, max_array_size=1001, max_queued=4)
    plan = RunPlan("abcd1234", "flow", "flow", tuple(stages), strategy, "slurm-cli", site, created_s=1.7e9, history=0)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = Moody(clock, folder.path).moody(seed, clock() + 500)
    for part in ("marks", "posts"):
        (folder.path / part).mkdir(exist_ok=True)
    rng = random.Random(seed)
    while folder.state()[0].outcome is None and clock() < BEGIN_S + 3600:
        look(folder, lambda run: SlurmBackend(link, run.path, site, clock=clock, sleep=clock.sleep))
        clock.sleep(rng.choice([5.0, 20.0, 60.0]))
    state, _ = folder.state()
    assert state.outcome == "completed", state.reason
    elements = [job for job in link.all.values() if job.array_id]
    assert sorted(job.number for job in elements) == list(numbers)
    [last] = [job for job in link.all.values() if "_c." in job.job.name]
    assert all(job.submit_s <= last.submit_s for job in elements)
    assert all(job.end_s <= last.payload_s for job in elements)


def test_what_older_journals_say_of_what_was_not_sent_is_read():
    entry = read_entry('{"token": "t", "at_s": 1.0, "reason": "why", "doubtful": false, "kind": "unsent"}')
    assert entry == Unsent("t", 1.0, "why")

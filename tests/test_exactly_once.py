"""Jobs submitted exactly once: against a batch system that loses answers, takes jobs late or twice, and forgets."""

import random
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from asa.backend import Capabilities, Condition, JobSpec, JobState, JobStatus
from asa.errors import JobNotFoundError, SubmitDeferredError, SubmitInDoubtError, SubmitRejectedError, UnavailableError
from asa.estimators import WaitBank
from asa.exactly_once import AGAIN_S, DUPLICATE, LATE_S, Attempt, Submitter
from asa.pool.submission import PoolJobs
from asa.waits import LEVELS, WaitForecast

SOON = WaitForecast((1.0,) * len(LEVELS), 1.0)


class World:
    """Jobs that start some time after they came; of those of a token the first to start runs the payload."""

    def __init__(self, seed=0, *, faults=0.0, accepts_late=True):
        self.random, self.faults = random.Random(seed), faults
        self.clock_s, self.jobs, self.sent = 1000.0, {}, []
        self.late, self.holders, self.starts_s, self.cancelled = [], {}, {}, []
        self.capabilities = Capabilities("world", 64, 16, age_accrues=True, accepts_late=accepts_late)
        self.condition = Condition(0.0)

    def now(self):
        return self.clock_s

    def fails(self, name):
        if self.random.random() < self.faults:
            raise UnavailableError(f"no answer to {name}")

    def arrive(self, token):
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = token, JobStatus(job_id, JobState.PENDING, self.clock_s, eligible_s=self.clock_s)
        self.starts_s[job_id] = self.clock_s + self.random.uniform(1, 120)
        return job_id

    def submit(self, spec):
        self.sent.append(spec.token)
        self.fails("submit")
        fault = self.random.choice(["deferred", "answer", "lost", "late", "twice"])
        if self.random.random() >= self.faults:
            fault = ""
        if fault == "deferred":
            raise SubmitDeferredError("too many")
        if fault == "late" and self.capabilities.accepts_late:
            self.late.append((self.clock_s + self.random.uniform(0, 250), spec.token))
        if fault in {"late", "lost"}:
            raise SubmitInDoubtError("no answer")
        job_id = self.arrive(spec.token)
        if fault == "twice":
            self.arrive(spec.token)
        if fault == "answer":
            raise SubmitInDoubtError("no answer")
        return job_id

    def find(self, tokens):
        self.fails("find")
        found = {token: [status for own, status in self.jobs.values() if own == token] for token in tokens}
        for token, statuses in found.items():
            statuses.sort(key=lambda status: status.job_id != self.holders.get(token))
        return found

    def status(self, job_ids):
        self.fails("status")
        if lacking := [job_id for job_id in job_ids if job_id not in self.jobs]:
            raise JobNotFoundError("no such job", where=lacking[0])
        return {job_id: self.jobs[job_id][1] for job_id in job_ids}

    def cancel(self, job_id):
        self.fails("cancel")
        self.cancelled.append(job_id)
        if not self.jobs[job_id][1].state.is_final and self.random.random() >= self.faults:  # else it is forgotten
            self.become(job_id, state=JobState.CANCELLED, end_s=self.clock_s)

    def become(self, job_id, **changes):
        token, was = self.jobs[job_id]
        self.jobs[job_id] = token, replace(was, **changes)

    def wait(self, until_s):
        self.clock_s = max(self.clock_s, until_s)
        for at_s, token in [one for one in self.late if one[0] <= self.clock_s]:
            self.late.remove((at_s, token))
            self.arrive(token)
        for job_id, (token, status) in list(self.jobs.items()):
            if status.state is JobState.PENDING and self.starts_s[job_id] <= self.clock_s:
                self.become(job_id, state=JobState.RUNNING, start_s=self.clock_s)
                if self.holders.setdefault(token, job_id) != job_id:
                    self.become(job_id, state=JobState.FAILED, end_s=self.clock_s, reason=DUPLICATE)
        return [status for _, status in self.jobs.values()]

    def live(self, token):
        return [status for own, status in self.jobs.values() if own == token and not status.state.is_final]


class Pool:
    """Jobs of a pool, as its desk has them; `known` is what the pool was told last of each token."""

    def __init__(self, world):
        self.world, self.known, self.refused = world, {}, {}
        self.jobs = PoolJobs(world, WaitBank(), self.take)

    def take(self):
        self.known |= self.jobs.statuses
        self.refused |= self.jobs.refused
        self.jobs.statuses, self.jobs.refused = {}, {}

    def go_on(self, seconds):
        until_s = self.world.now() + seconds
        while self.world.now() < until_s:
            self.jobs.see_to_all()
            self.jobs.clear_what_was_left()
            for status in self.world.wait(self.world.now() + 1):
                self.jobs.heard(status)
            self.take()
            yield


def want(pool, tokens):
    for token in tokens:
        pool.jobs.want(JobSpec(token, 1, 3600.0, token=token), SOON)


@pytest.mark.parametrize("accepts_late", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_each_job_that_is_wanted_runs_once_and_no_other(seed, accepts_late):
    """Whatever fails for ten minutes; what a pool is told of a job that it wants never is that it has ended."""
    world = World(seed, faults=0.4, accepts_late=accepts_late)
    pool, tokens = Pool(world), [f"t{number}" for number in range(6)]
    want(pool, tokens)
    unwanted = {token: world.random.uniform(0, 500) for token in tokens[::2]}
    for _ in pool.go_on(600):
        for token in [token for token, after_s in unwanted.items() if world.clock_s > 1000 + after_s]:
            del unwanted[token]
            pool.jobs.want_no_more(token)
        assert not any(pool.known[token].state.is_final for token in tokens[1::2] if token in pool.known)
    world.faults = 0.0
    for _ in pool.go_on(700):
        pass
    for token in tokens[1::2]:
        [status] = world.live(token)
        assert (pool.known[token], status.job_id) == (status, world.holders[token])
    for token in tokens[::2]:
        assert token in pool.refused or pool.known[token].state.is_final
    assert pool.jobs.left_behind() == []
    pool.jobs.sweep()
    assert not any(world.live(token) for token in tokens[::2])


@pytest.mark.parametrize("seed", range(10))
def test_what_an_earlier_pool_left_ends_also_if_it_comes_late(seed):
    """It may have died in the middle of a submission."""
    world = World(seed)
    pool = Pool(world)
    for at_s in (0, 30, 200):
        world.late.append((1000.0 + at_s, f"t{at_s}"))
    world.wait(1000.0)
    world.faults = 0.4
    pool.jobs.clear({"t0", "t30", "t200"})
    for _ in pool.go_on(250):
        pass
    world.faults = 0.0
    for _ in pool.go_on(400):
        pass
    assert not any(world.live(token) for token in ("t0", "t30", "t200"))
    assert len(world.jobs) == 3


def test_a_job_whose_number_another_has_is_no_more():
    """A controller that lost its latest state gives numbers out again."""
    world = World()
    pool = Pool(world)
    want(pool, ["t1"])
    next(pool.go_on(1))
    world.jobs.clear()
    want(pool, ["t2"])
    for _ in pool.go_on(150):
        pass
    assert (pool.known["t1"].state, pool.known["t2"].state) == (JobState.FAILED, JobState.RUNNING)
    pool.jobs.want_no_more("t1")
    assert world.cancelled == [], "it is another's"


@dataclass(slots=True)
class Owner(Submitter):
    """The plainest there can be."""

    jobs: dict = field(default_factory=dict)
    tokens: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)

    def status_of(self, job_id):
        return self.jobs.get(job_id)

    def job_of(self, token):
        return self.tokens.get(token)

    def is_to_be_sent(self, token):
        return False

    def accepted(self, token, status):
        self.notes.append(("accepted", token, status.job_id))
        self.tokens[token] = status.job_id
        self.jobs[status.job_id] = status

    def unsent(self, token, at_s, reason, *, doubtful, cause):
        self.notes.append(("doubtful" if doubtful else "unsent", token))

    def surplus(self, token, job_id, at_s):
        self.notes.append(("surplus", token, job_id))

    def heard(self, status):
        self.jobs[status.job_id] = status


def send(owner, attempt):
    return owner.send("t", attempt, partial(owner.backend.submit, JobSpec("j", 1, 60.0, token="t")))


def raising(error):
    def submit(_spec):
        raise error

    return submit


@pytest.mark.parametrize("accepts_late", [True, False])
def test_what_is_not_found_is_sent_again_after_two_looks_where_it_may_come_late(accepts_late):
    world = World(accepts_late=accepts_late)
    owner, attempt, submit = Owner(world), Attempt(), world.submit
    world.submit = raising(SubmitInDoubtError("no answer"))
    assert send(owner, attempt) is None
    owner.clear_up({"t": attempt})
    if accepts_late:
        assert owner.notes == []
        assert attempt.again_s == world.clock_s + LATE_S[0]
        assert owner.clear_up({"t": attempt}) == attempt.again_s, "not before"
        world.clock_s = attempt.again_s
        owner.clear_up({"t": attempt})
    assert owner.notes == [("doubtful" if accepts_late else "unsent", "t")]
    world.submit = submit
    send(owner, attempt)
    assert owner.notes[1:] == [("accepted", "t", "1")]
    assert attempt.failures == 0


def test_pauses_grow_from_one_failure_to_the_next():
    world = World()
    owner, attempt = Owner(world), Attempt()
    world.submit = raising(SubmitDeferredError("too many"))
    for pause_s in (*AGAIN_S, AGAIN_S[-1]):
        send(owner, attempt)
        assert attempt.again_s == world.clock_s + pause_s
    world.clock_s -= 5000  # somebody sets the clock back
    attempt.is_due(world.clock_s)
    assert attempt.again_s == world.clock_s + AGAIN_S[-1]


def test_a_refusal_is_told_and_whatever_else_is_raised_leaves_it_open():
    world = World()
    owner, refusal = Owner(world), SubmitRejectedError("no such partition")
    world.submit = raising(refusal)
    assert send(owner, Attempt()) is refusal
    world.submit = raising(ValueError("a fault of a backend's"))
    with pytest.raises(ValueError, match="a fault"):
        send(owner, Attempt())
    assert owner.notes == []


def cancels(owner):
    """Have a job cancelled; say whether it has ended."""
    owner.cancel(["1"])
    return owner.status_of("1").state.is_final


def test_a_cancellation_is_told_until_it_is_taken_and_again_while_the_job_does_not_end():
    """A controller that dies may have forgotten it."""
    world = World()
    owner = Owner(world)
    send(owner, Attempt())
    world.faults = 1.0
    assert (cancels(owner), world.cancelled, owner.cancelled_s("1")) == (False, [], None)
    world.faults, became, world.become = 0.0, world.become, lambda *_, **__: None
    first_s = world.clock_s
    assert (cancels(owner), world.cancelled) == (False, ["1"])
    world.clock_s += AGAIN_S[-1] - 1
    assert (cancels(owner), world.cancelled) == (False, ["1"])
    world.become = became
    world.clock_s += 1
    assert (cancels(owner), world.cancelled, owner.cancelled_s("1")) == (True, ["1", "1"], first_s)
    assert cancels(owner)
    assert world.cancelled == ["1", "1"], "it has ended"


def test_a_job_that_the_batch_system_does_not_know_any_more_has_ended():
    """Others that are asked for with it are heard of."""
    world = World()
    owner = Owner(world)
    send(owner, Attempt())
    owner.heard(JobStatus("gone", JobState.RUNNING, 900.0, start_s=950.0))
    assert owner.ask(["gone", "1"])
    assert (owner.jobs["gone"].state, owner.jobs["gone"].end_s) == (JobState.FAILED, world.clock_s)
    assert owner.jobs["1"].state is JobState.PENDING
    world.faults = 1.0
    assert not owner.ask(["1"])


def test_a_second_job_that_could_not_be_cancelled_is_looked_for_again():
    world = World()
    owner, attempt, cancel = Owner(world), Attempt(), world.cancel
    for _ in range(2):
        world.arrive("t")
    world.cancel = raising(UnavailableError("no answer"))
    owner.clear_up({"t": attempt})
    assert owner.notes == [("accepted", "t", "1")]
    next_s = owner.look_for_duplicates({})
    assert next_s == world.clock_s + LATE_S[0]
    world.clock_s, world.cancel = next_s, cancel
    owner.look_for_duplicates({})
    assert owner.notes[1:] == [("surplus", "t", "2")]
    assert [status.job_id for status in world.live("t")] == ["1"]


def test_the_one_that_runs_the_payload_takes_the_place_of_one_that_gave_way():
    world = World()
    owner = Owner(world)
    send(owner, Attempt())
    other = world.arrive("t")
    world.starts_s |= {other: world.clock_s, "1": world.clock_s + 1}
    world.wait(world.clock_s)
    for status in world.wait(world.clock_s + 2)[:1]:
        owner.heard(status)
    assert owner.jobs["1"].reason == DUPLICATE
    world.faults = 1.0
    world.clock_s = owner.follow_duplicate("t", "1")
    world.faults = 0.0
    owner.follow_duplicate("t", "1")
    assert (owner.tokens, owner.jobs[other].state) == ({"t": other}, JobState.RUNNING)


def test_one_that_gave_way_to_a_job_that_nobody_knows_is_lost_after_some_looks():
    world = World()
    owner = Owner(world)
    send(owner, Attempt())
    world.become("1", state=JobState.FAILED, reason=DUPLICATE)
    for _ in LATE_S:
        world.clock_s = owner.follow_duplicate("t", "1")
    assert owner.follow_duplicate("t", "1") is None

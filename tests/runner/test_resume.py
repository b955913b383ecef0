"""A client that dies anywhere, and a client whose calls fail, over a simulated machine that outlives it.

Whatever happens, each stage runs to its end exactly once, and the waits that were observed are those that the machine
knows of.
"""

import itertools
import os
import random
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from mortal_client import FLOW, Killed, Mortal, Wrong, answer_lost, deferred, go, lost, unavailable

from asa.backend import JobSpec, JobState, JobStatus
from asa.core.store import LineFile
from asa.errors import (
    JournalError,
    LeaseError,
    SubmitDeferredError,
    SubmitInDoubtError,
    SubmitRejectedError,
)
from asa.estimators.store import WaitStore
from asa.metrics import measure
from asa.observations import observation_of
from asa.records import Cancelled, Deferred, Observed, Requeued, StageEnded, Submitted
from asa.runner import CancelRequest, Journal, Run, read_journal, run_all
from asa.runner.entries import Accepted, Again, Begun, Intended, Shaped
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.shapes import Moldable, Scaling
from asa.strategies import Cancellation, ForecastKind, Keep, Phase, Plan, PlannedJob, Substitute
from asa.strategies.base import Choice
from asa.strategies.per_stage import PerStage
from asa.strategies.planned import Planned
from asa.strategies.planning import Aim
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

STRATEGIES = ("per-stage", "chained", "asa", "asa-naive", "big-job", "elastic", "asa-paper")


class Growing(Planned):
    """`asa-plan` where age does not accrue, and only jobs that grow, and the cores that join them, wait briefly."""

    is_informed = True

    def plan(self, view, forecast):
        del forecast
        site = replace(view.capabilities, age_accrues=False)
        return super().plan(replace(view, capabilities=site), self)

    def predict(self, stages, needed_s):
        del stages, needed_s
        return WaitForecast((400.0,) * 9, 400.0)

    def predict_size(self, stages, needed_s, cores, walltime_s):
        del stages, needed_s, cores, walltime_s
        return WaitForecast((0.0,) * 9, 0.0)


class Fickle(Planned):
    """`asa-plan` whose predicted waits change with each question, so that it changes its mind about shapes."""

    is_informed = True

    def __init__(self, seed):
        super().__init__(Aim(price_s=3000.0 * 10.0**seed))
        object.__setattr__(self, "draw", random.Random(seed))

    def plan(self, view, forecast):
        del forecast
        return super().plan(view, self)

    def predict(self, stages, needed_s):
        del stages, needed_s
        return WaitForecast((50.0,) * 9, 50.0)

    def predict_each(self, stages, requests):
        del stages
        waits = [self.draw.uniform(0.0, 300.0) for _ in requests]
        return [WaitForecast((wait_s,) * 9, wait_s) for wait_s in waits]


MOLDABLE = Workflow(
    "moldable",
    [
        replace(
            stage,
            expected_run_s=stage.walltime_s / 2,
            moldable=Moldable((*{1: (1,), 4: (4, 1, 2, 8), 8: (8, 2, 4)}[stage.cores],), scaling=Scaling("tasks")),
        )
        for stage in FLOW.stages.values()
    ],
)


def machine(others=((0, 100, 100, 8), (160, 100, 100, 8))):
    columns = np.array(others, dtype=np.int64).reshape(-1, 4).T
    return SimulatedBackend(Engine(8, JobTable(*columns), now=0), Machine("m", 1, 8))


def payloads(world):
    """Count the completed jobs of each token, except those whose cores joined another job."""
    every = world.find(token for token in world._tokens if "-g" not in token)
    return {t: [s for s in statuses if s.state is JobState.COMPLETED] for t, statuses in every.items()}


def check(world, folder, result):
    assert result.outcome == "completed", result.reason
    ended = [r.stages[0] for r in result.records if isinstance(r, StageEnded)]
    assert sorted(ended) == ["a", "b", "c", "d"]
    done = [statuses for statuses in payloads(world).values() if statuses]
    assert all(len(statuses) == 1 for statuses in done)
    assert sum(len(statuses) for statuses in done) in {4, 1}  # a Big Job is one
    assert all(s.state.is_final for statuses in world.find(world._tokens).values() for s in statuses)
    measure(FLOW, result.records)
    for record in result.records:
        if isinstance(record, Observed) and record.bound == "exact":
            status = world.status([record.job_id])[record.job_id]
            assert record.wait_s == status.start_s - status.submit_s
    told = [r for r in result.records if isinstance(r, Observed)]
    assert len({r.job_id for r in told}) == len(told)
    with WaitStore(folder / "bank") as store:
        kept = store.read()
    assert len(kept) == len(told), "each wait is in the store once"
    submitted = [r.job_id for r in result.records if isinstance(r, Submitted)]
    assert len(set(submitted)) == len(submitted)


@pytest.mark.parametrize("strategy", [*STRATEGIES, Growing(Aim(grow=True))])
def test_a_client_killed_at_any_point_goes_on_where_it_was(strategy, tmp_path):
    plain = Mortal()
    (tmp_path / "plain").mkdir()
    world = machine()
    expected = go(world, tmp_path / "plain", strategy, plain)
    check(world, tmp_path / "plain", expected)
    assert plain.count > 15
    assert any(r.joins for r in expected.records if isinstance(r, Submitted)) == (
        strategy == "elastic" or isinstance(strategy, Growing)
    )
    for at in range(plain.count):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine()
        with pytest.raises(Killed):
            go(world, folder, strategy, Mortal(at))
        again = go(world, folder, strategy)
        check(world, folder, again)


def cores_chosen(folder):
    """Return pairs of cores for each submission: by the journal's latest choice of shape, and as requested."""
    chosen, pairs = {}, []
    for entry in read_journal(folder / "journal.jsonl")[0]:
        if isinstance(entry, Shaped):
            chosen[entry.stage] = entry.choice.shape.width
        elif isinstance(entry, Intended):
            needs = [chosen.get(name, MOLDABLE.stages[name].cores) for name in entry.planned.stages]
            pairs.append((max(needs), entry.spec.cores))
    return pairs


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.full
def test_shapes_that_change_with_each_plan_and_a_client_killed_at_any_point(seed, tmp_path):
    plain = Mortal()
    (tmp_path / "plain").mkdir()
    world = machine()
    expected = go(world, tmp_path / "plain", Fickle(seed), plain, MOLDABLE)
    assert expected.outcome == "completed"
    widths = {cores for cores, _ in cores_chosen(tmp_path / "plain")}
    for at in range(plain.count):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine()
        with pytest.raises(Killed):
            go(world, folder, Fickle(seed), Mortal(at), MOLDABLE)
        again = go(world, folder, Fickle(seed + 1), None, MOLDABLE)
        assert again.outcome == "completed", again.reason
        assert sorted(r.stages[0] for r in again.records if isinstance(r, StageEnded)) == ["a", "b", "c", "d"]
        done = [statuses for statuses in payloads(world).values() if statuses]
        assert all(len(statuses) == 1 for statuses in done)
        pairs = cores_chosen(folder)
        assert all(written == asked for written, asked in pairs), pairs
        widths |= {cores for cores, _ in pairs}
    assert len(widths) > 2


class GivesWay(PerStage):
    """A Per-Stage that gives up its first job for a wider one, and wants neither of them in its next plan."""

    replaces = True

    def plan(self, view, forecast):
        plan, first = super().plan(view, forecast), view.stages["a"]
        if first.phase is Phase.QUEUED and not first.resubmissions:
            wide = Substitute(PlannedJob(("a",), view.now_s, Keep.NOTHING, "wider"), {"a": self.choice(view, 8)})
            return Plan.of((), [Cancellation(first.job_id, "a wider one is better", wide)])
        width = 2 if first.resubmissions else 4
        return replace(plan, choices={"a": self.choice(view, width)} if first.phase is Phase.WAITING else {})

    def choice(self, view, width):
        return Choice(next(one for one in view.workflow.stages["a"].shapes if one.width == width))


@pytest.mark.full
@pytest.mark.parametrize("refused", [1, 99])
def test_what_a_queued_job_is_given_up_for_is_what_is_asked_for_next_whoever_asks(refused, tmp_path):
    """`asa-plan` once withdrew a job for a wider one, and then requested the old shape again."""

    def widths(folder):
        entries = read_journal(folder / "journal.jsonl")[0]
        sent = {entry.token: entry.spec.cores for entry in entries if isinstance(entry, Intended)}
        return [sent[entry.token] for entry in entries if isinstance(entry, Accepted) and entry.token in sent]

    plain = Mortal()
    (tmp_path / "plain").mkdir()
    world = Wrong(machine(((0, 100, 100, 8),)), "submit", refused, deferred)
    assert go(world, tmp_path / "plain", GivesWay(), plain, MOLDABLE).outcome == "completed"
    assert widths(tmp_path / "plain")[:2] == [4, 8]
    for at in range(plain.count):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine(((0, 100, 100, 8),))
        with pytest.raises(Killed):
            go(Wrong(world, "submit", refused, deferred), folder, GivesWay(), Mortal(at), MOLDABLE)
        again = go(world, folder, GivesWay(), None, MOLDABLE)
        assert again.outcome == "completed", again.reason
        assert widths(folder)[:2] == [4, 8]
        assert sorted(r.stages[0] for r in again.records if isinstance(r, StageEnded)) == ["a", "b", "c", "d"]
        assert all(len(statuses) == 1 for statuses in payloads(world).values() if statuses)


def test_where_what_a_job_is_given_up_for_is_refused_that_job_is_asked_for_again(tmp_path):
    world, asked = machine(((0, 100, 100, 8),)), []

    def refuses_wide(submit, spec):
        asked.append(spec.cores)
        if spec.cores == 8:
            raise SubmitRejectedError("more cores than your account may have")
        return submit(spec)

    class Site:
        def __getattr__(self, name):
            found = getattr(world, name)
            return found if name != "submit" else partial(refuses_wide, found)

    narrow = Workflow("narrow", [MOLDABLE.stages["a"]])
    result = go(Site(), tmp_path, GivesWay(), None, narrow)
    assert result.outcome == "completed", result.reason
    assert asked == [4, 8, 4]
    [deferred_once] = [r for r in result.records if isinstance(r, Deferred)]
    assert "may have" in deferred_once.reason


def test_a_job_that_begins_as_it_is_given_up_runs_and_nothing_takes_its_place(tmp_path):
    world = machine(((0, 100, 100, 8),))

    class Late(GivesWay):
        """A strategy that gives up the job just before it starts; the batch system refuses the cancellation."""

        def plan(self, view, forecast):
            if view.stages["a"].phase is Phase.QUEUED and view.now_s < 100:
                return Plan.of((), (), 100.0)
            return super().plan(view, forecast)

    result = go(world, tmp_path, Late(), None, MOLDABLE)
    assert result.outcome == "completed"
    assert all(len(statuses) == 1 for statuses in payloads(world).values() if statuses)


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["chained", "asa-naive"])
def test_a_client_killed_twice_goes_on(strategy, tmp_path):
    for at, later in itertools.product(range(3, 40, 4), range(0, 12, 3)):
        folder = tmp_path / f"{at}-{later}"
        folder.mkdir()
        world = machine()
        for mortal in (Mortal(at), Mortal(later)):
            try:
                go(world, folder, strategy, mortal)
            except Killed:
                continue
        check(world, folder, go(world, folder, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES[:4])
@pytest.mark.parametrize("how", [lost, answer_lost, unavailable, deferred])
def test_a_submission_that_goes_wrong_is_made_once(strategy, how, tmp_path):
    for at in range(4):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = machine()
        result = go(Wrong(world, "submit", at, how), folder, strategy)
        check(world, folder, result)
        again = [r for r in result.records if isinstance(r, Deferred)]
        assert len(again) == (how is not answer_lost), "what was accepted is found, and not sent again"


@pytest.mark.parametrize("kind", ["status", "find", "cancel"])
def test_a_call_that_cannot_be_made_is_made_later(kind, tmp_path):
    for at in range(6):
        folder = tmp_path / str(at)
        folder.mkdir()
        world = Wrong(machine(), kind, at, unavailable)
        check(world.inner, folder, go(Wrong(world, "submit", 1, answer_lost), folder, "asa-naive"))


def test_what_is_looked_for_in_vain_is_looked_for_twice_and_not_at_once(tmp_path):
    world, told = machine(), []
    real_find, real_submit = world.find, world.submit

    def find(tokens):
        told.append(("find", world.now()))
        return real_find(tokens)

    def submit(spec):
        told.append(("submit", world.now()))
        return real_submit(spec)

    world.find, world.submit = find, submit
    go(Wrong(world, "submit", 0, lost), tmp_path, "chained")
    assert [what for what, _ in told[:3]] == ["find", "find", "submit"]
    assert told[1][1] - told[0][1] >= 10


def test_what_is_written_is_on_the_disk(tmp_path, monkeypatch):
    """An entry is on disk before the batch system is called, and before the next step."""
    real, synced = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(descriptor) or real(descriptor))
    journal = Journal(tmp_path / "journal.jsonl")
    for count in range(1, 4):
        journal.append(Begun(float(count)))
        assert len(synced) == count + 1, "each entry, and once the folder"
    journal.close()


def test_a_journal_that_another_writes_to_is_left_alone(tmp_path):
    ours = Journal(tmp_path / "journal.jsonl")
    ours.append(Begun(1.0))
    theirs = Journal(tmp_path / "journal.jsonl")
    theirs.append(Begun(2.0))
    with pytest.raises(LeaseError, match="another client"):
        ours.append(Begun(3.0))
    assert [entry.at_s for entry in read_journal(tmp_path / "journal.jsonl")[0]] == [1.0, 2.0]


def test_a_lease_that_cannot_be_read_stops_the_journal(tmp_path):
    def guard():
        raise OSError(116, "Stale file handle")

    with pytest.raises(JournalError, match="Stale file handle"):
        Journal(tmp_path / "journal.jsonl", guard=guard).append(Begun(1.0))


def test_a_job_that_is_deferred_again_and_again_is_written_once(tmp_path):
    world, refusals = machine(), itertools.count()

    class Full:
        def __getattr__(self, name):
            return getattr(world, name)

        def submit(self, spec):
            if next(refusals) < 500:
                raise SubmitDeferredError("too many jobs")
            return world.submit(spec)

    assert go(Full(), tmp_path, "per-stage").outcome == "completed"
    entries = read_journal(tmp_path / "journal.jsonl")[0]
    assert sum(isinstance(entry, Intended) for entry in entries) == 4
    assert sum(isinstance(entry, Again) for entry in entries) == 500


def test_a_clock_that_is_set_back_holds_nothing_up(tmp_path):
    """The clock is set back by an hour while a submission is deferred."""
    world = machine()
    world.wait(90.0)

    class Shifting:
        back_s, deferred = 0.0, False

        def __getattr__(self, name):
            return getattr(world, name)

        def now(self):
            return world.now() - self.back_s

        def wait(self, until_s):
            return world.wait(None if until_s is None else until_s + self.back_s)

        def submit(self, spec):
            if not self.deferred:
                self.deferred = True
                raise SubmitDeferredError("too many jobs")
            return world.submit(spec)

        def set_back(self):
            self.back_s = 3600.0 if self.deferred else 0.0
            return ()

    shifting = Shifting()
    assert go(shifting, tmp_path, "per-stage", requests=shifting.set_back).outcome == "completed"
    assert world.now() < 1000


@pytest.mark.parametrize(("changes", "kind"), [({}, "exact"), ({"held": True}, "at_most"), ({"restarts": 1}, None)])
def test_what_a_start_tells_of_the_wait(changes, kind):
    status = JobStatus("1", JobState.RUNNING, 100.0, eligible_s=100.0, start_s=160.0, **changes)
    told = observation_of(JobSpec("x", 1, 60.0), status, machine().capabilities)
    assert (told and told.kind) == kind
    assert told is None or told.wait_s == 60


def late(world):
    """Let the first submission arrive half a minute after it was given up."""
    held = []

    class Late:
        def __getattr__(self, name):
            return getattr(world, name)

        def submit(self, spec):
            if not held:
                held.append((world.now() + 30, spec))
                raise SubmitInDoubtError("no answer in time")
            return world.submit(spec)

        def wait(self, until_s):
            changed = []
            while not changed and held[-1] and (until_s is None or held[-1][0] <= until_s):
                changed = world.wait(held[-1][0])
                if world.now() >= held[-1][0]:
                    world.submit(held[-1][1])
                    held.append(())
            return changed or world.wait(until_s)

    return Late()


def test_of_a_job_that_turns_up_late_there_is_only_one(tmp_path):
    world = machine()
    result = go(late(world), tmp_path, "chained")
    check(world, tmp_path, result)
    [surplus] = [r for r in result.records if isinstance(r, Cancelled)]
    assert "duplicate" in surplus.reason


class Wavering:
    """A strategy that groups stages differently each time."""

    forecast = ForecastKind.NONE

    def __init__(self, seed):
        self._random = random.Random(seed)

    def plan(self, view, forecast):
        ready = [name for name in view.workflow.order if view.stages[name].phase is Phase.WAITING]
        if not ready or not view.is_ready(ready[0]):
            return Plan.of(())
        group = tuple(ready[: self._random.randint(1, len(ready))])
        return Plan.of([PlannedJob(group, view.now_s, Keep.NOTHING, "")])


@pytest.mark.parametrize("seed", range(20))
def test_stages_in_a_job_that_turns_up_late_are_in_no_other_job(seed, tmp_path):
    """The strategy regroups the stages then: for each stage, one job runs."""
    world, specs = machine(), {}
    submit = world.submit

    def noted(spec):
        specs[job_id := submit(spec)] = spec
        return job_id

    world.submit = noted
    journal = Journal(tmp_path / "journal.jsonl")
    try:
        [result] = run_all(late(world), [Run(FLOW, Wavering(seed), id="r" * 12, journal=journal)])
    finally:
        journal.close()
    assert result.outcome == "completed"
    done = Counter(p for job_id, spec in specs.items() if _completed(world, job_id) for p in spec.posts)
    assert sorted(done.values()) == [1, 1, 1, 1]
    assert len(specs) > len({spec.token for spec in specs.values()}), "one turned up late"


def _completed(world, job_id):
    return world.status([job_id])[job_id].state is JobState.COMPLETED


def test_a_dead_client_s_journal_may_end_in_the_middle_of_a_line(tmp_path):
    world = machine()
    with pytest.raises(Killed):
        go(world, tmp_path, "chained", Mortal(30))
    path = tmp_path / "journal.jsonl"
    sound = path.read_bytes()
    for tail in (b'{"kind": "acc', b"\0" * 64, b"\0" * 5 + b"\n", b'{"kind": "accepted", "tok'):
        path.write_bytes(sound + tail)
        assert read_journal(path)[1] == len(sound)
    check(world, tmp_path, go(world, tmp_path, "chained"))
    assert b"\0" not in path.read_bytes()


def test_a_journal_damaged_in_the_middle_is_refused(tmp_path):
    go(machine(), tmp_path, "chained")
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[3] = b'{"kind": "unheard-of"}'
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(JournalError, match=":4: is damaged"):
        read_journal(path)


@pytest.mark.parametrize("damage", ["random", "its end", "a bit", "text", "two lines"])
def test_a_journal_damaged_at_its_end_is_refused(damage, tmp_path):
    """A crash can only truncate the last line; with other damage a completed run would seem never to have begun."""
    go(machine(), tmp_path, "chained")
    path = tmp_path / "journal.jsonl"
    sound = path.read_bytes()
    drawn, last = random.Random(7), sound[:-1].rindex(b"\n") + 1
    path.write_bytes(
        {
            "random": drawn.randbytes(len(sound)),
            "its end": sound[:last] + drawn.randbytes(len(sound) - last),
            "a bit": sound[: last + 30] + bytes([sound[last + 30] ^ 0x84]) + sound[last + 31 :],
            "text": sound + b"It was a dark and stormy night",
            "two lines": sound + b"\0\0\n\0\0\n",
        }[damage]
    )
    with pytest.raises(JournalError, match="is damaged"):
        read_journal(path)


def test_nothing_is_submitted_that_cannot_be_written_down(tmp_path, monkeypatch):
    """The disk is full from the second submission on; when there is space again, the run continues."""
    world = machine()
    written = LineFile.append

    def append(file, line):
        if file.path.exists() and file.path.stat().st_size > 900:
            raise OSError(28, "No space left on device")
        written(file, line)

    monkeypatch.setattr(LineFile, "append", append)
    with pytest.raises(JournalError, match="No space left"):
        go(world, tmp_path, "chained")
    known = [entry for entry in read_journal(tmp_path / "journal.jsonl")[0] if isinstance(entry, Intended)]
    assert len(world._tokens) <= len(known)
    monkeypatch.undo()
    check(world, tmp_path, go(world, tmp_path, "chained"))


def test_a_run_is_cancelled_when_somebody_asks(tmp_path):
    world = machine()
    requests = iter([[], [CancelRequest("flow")]])
    result = go(world, tmp_path, "chained", requests=lambda: next(requests, []))
    assert result.outcome == "cancelled"
    every = [s for statuses in world.find(world._tokens).values() for s in statuses]
    assert len(every) == 4
    assert all(s.state.is_final for s in every)


def test_a_run_that_ended_stays_ended(tmp_path):
    world = machine()
    first = go(world, tmp_path, "chained")
    jobs = len(world._tokens)
    again = go(world, tmp_path, "chained")
    assert (again.outcome, again.records) == (first.outcome, first.records)
    assert len(world._tokens) == jobs


class Restless:
    """A world whose first job is requeued after it has run for a while, as when its node fails."""

    def __init__(self, inner):
        self.inner, self.lost = inner, {}

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def status(self, job_ids):
        return {i: self.seen(s) for i, s in self.inner.status(job_ids).items()}

    def wait(self, until_s):
        now = self.inner.now()
        until_s = now + 20 if until_s is None else min(until_s, now + 20)
        self.inner.wait(until_s)
        return list(self.status([str(i + 1) for i in range(len(self.inner._engine.clients))]).values())

    def seen(self, status):
        if status.job_id != "1" or status.start_s is None:
            return status
        ran = self.inner.now() - status.start_s
        if ran < 30:
            return status
        if ran < 60:
            return replace(
                status, state=JobState.PENDING, start_s=None, payload_start_s=None, restarts=1, reason="BeginTime"
            )
        later = status.start_s + 55
        return replace(status, start_s=later, payload_start_s=later, restarts=1)


def test_a_requeue_is_seen_and_nothing_learned_from_it(tmp_path):
    result = go(Restless(machine()), tmp_path, "per-stage")
    assert result.outcome == "completed"
    assert [r.job_id for r in result.records if isinstance(r, Requeued)] == ["1"]
    [first] = [r for r in result.records if isinstance(r, Observed) and r.job_id == "1"]
    assert first.wait_s == 100  # until its first start


def test_who_takes_anothers_place_leaves_open_what_is_being_submitted():
    """The job of b may have been accepted, whatever happens to the job of a: it is looked for before resubmission."""
    stages = [Stage(name, cores=1, walltime_s=10) for name in "ab"]
    state = RunState("w", Workflow("w", stages), machine().capabilities, "u")
    planned = [PlannedJob((name,), 0.0, Keep.NOTHING, "") for name in "ab"]
    specs = [spec_of(state, one) for one in planned]
    entries = [
        Intended(specs[0].token, planned[0], specs[0], 0.0),
        Accepted(specs[0].token, JobStatus("1", JobState.PENDING, 0.0)),
        Intended(specs[1].token, planned[1], specs[1], 1.0),
        Accepted(specs[0].token, JobStatus("2", JobState.PENDING, 0.0)),
    ]
    for entry in entries:
        list(state.apply(entry))
    assert list(state.jobs.open_intents.values()) == [entries[2]]
    assert (state.jobs["1"].given_up, state.stages["a"].job_id) == (True, "2")

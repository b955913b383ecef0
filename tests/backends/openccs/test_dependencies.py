"""Requests that depend on others: how they are written, and that every plan keeps to them whatever happens."""

import json
from random import Random

import pytest
from asa.backends.openccs.dependencies import DependencyKind, RequestDependency
from asa.backends.openccs.jobs import CcsOutcome, JobPhase, RefusedError
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import RequestError, RequestParts, ResourceRequest
from asa.backends.openccs.system import CcsSystem, Node
from asa.backends.openccs.why import why
from hypothesis import given
from hypothesis import strategies as st
from plain_planner import Held, PlainPlanner

from asa.errors import InputError

THREE = CcsSystem("three", tuple(Node(name, {"ncpus": 4}) for name in "abc"), extension_percent=100)
LIVE = (JobPhase.PLANNED, JobPhase.RUNNING)
RANDOMS = st.integers(0, 2**32 - 1).map(Random)


def planned(on_entry=None):
    """Return a plan, and how to submit to it."""
    plan = RequestPlan(THREE, on_entry=on_entry)

    def submit(name, text, now=0):
        return plan.submit(ResourceRequest.parse(f"rset={text}"), now=now, name=name)

    return plan, submit


def starts(plan):
    return {name: job.start_s for name, job in plan.jobs.items()}


def on(plan, name):
    return plan.cluster.names_of(plan.jobs[name].placement)


# ---------------------------------------------------------------------- how they are written


def test_dependencies_are_read_and_written_alike():
    text = "rset=ncpus=1,depend=afterok:a:b[3]+after:c"
    request = ResourceRequest.parse(text)
    assert request.depend == (
        RequestDependency(DependencyKind.AFTER_OK, ("a", "b[3]")),
        RequestDependency(DependencyKind.AFTER, ("c",)),
    )
    assert str(request) == text
    assert ResourceRequest.parse("rset=ncpus=1,depend=none").depend == ()


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("afterany", 28, "the name of a job is missing here"),
        ("afterok:a:", 30, "the name of a job is missing here"),
        ("afterokay:a", 20, "'afterokay' is no dependency"),
        ("", 20, "a dependency is missing here"),
        ("afterok:a+", 30, "a dependency is missing here"),
    ],
)
def test_a_wrong_dependency_is_pointed_at(text, at, message):
    with pytest.raises(RequestError, match=message) as caught:
        ResourceRequest.parse(f"rset=ncpus=1,depend={text}")
    assert caught.value.position == at


# ---------------------------------------------------------------------- what becomes of them


@pytest.mark.parametrize(
    ("kind", "start", "if_failed", "if_cancelled"),
    [("after", 0, 0, None), ("afterany", 10, 4, 4), ("afterok", 10, None, None), ("afternotok", 10, 4, 4)],
)
def test_a_job_starts_when_what_it_depends_on_has_happened(kind, start, if_failed, if_cancelled):
    for has_failed, expected in ((True, if_failed), (False, 4 if kind != "afternotok" else None), (None, if_cancelled)):
        plan, submit = planned()
        submit("a", "ncpus=4,walltime=10s")
        [job] = submit("b", f"ncpus=4,walltime=10s,depend={kind}:a")
        assert job.start_s == start
        if has_failed is not None:
            plan.begin("a", now=0)
        plan.end("a", now=4, failed=bool(has_failed))
        plan.backfill(now=4)
        job = plan.jobs["b"]
        if kind == "after" and has_failed is not None:
            assert (job.phase, job.start_s) == (JobPhase.PLANNED, 0)
        elif expected is None:
            assert (job.phase, job.outcome, job.start_s) == (JobPhase.ENDED, CcsOutcome.CANCELLED, None)
            assert "it depends on a by" in job.why
        else:
            assert (job.phase, job.start_s) == (JobPhase.PLANNED, expected)


def test_a_job_after_an_array_waits_for_all_its_elements_and_one_after_an_element_for_that():
    plan, submit = planned()
    submit("s", "ncpus=4,walltime=10s,array=5")
    assert submit("all", "ncpus=1,walltime=1s,depend=afterok:s")[0].start_s == 20
    assert submit("first", "ncpus=1,walltime=1s,depend=afterok:s[0]")[0].start_s == 10
    plan.end("s[4]", now=0)
    assert [plan.jobs[name].outcome for name in ("all", "first")] == [CcsOutcome.CANCELLED, CcsOutcome.NONE]


def test_a_job_may_not_begin_before_what_it_depends_on_has_ended():
    plan, submit = planned()
    submit("a", "ncpus=4,walltime=10s")
    submit("b", "ncpus=4,walltime=10s,depend=afterany:a")
    plan.begin("a", now=0)
    assert plan.due(10) == []
    with pytest.raises(InputError, match="cannot start: it waits for a"):
        plan.begin("b", now=10)
    plan.end("a", now=10)
    assert [job.id for job in plan.due(10)] == ["b"]


def test_dependents_of_an_extended_job_start_later_and_theirs_as_well():
    plan, submit = planned()
    submit("a", "ncpus=4,walltime=10s")
    submit("b", "ncpus=4,walltime=10s,depend=afterok:a")
    submit("c", "ncpus=4,walltime=10s,depend=afterok:b")
    plan.begin("a", now=0)
    submit("d", "2:ncpus=4,walltime=20s,depend=after:a", now=1)  # beside it
    plan.extend("a", 5, now=1)
    assert starts(plan) == {"a": 0, "b": 15, "c": 25, "d": 1}
    plan.end("b", now=1)
    submit("e", "ncpus=4,walltime=2s,start=18,depend=after:a", now=1)  # does not wait for its end
    assert on(plan, "e") == ["a"]
    with pytest.raises(RefusedError, match="not free"):
        plan.extend("a", 4, now=1)
    assert starts(plan) == {"a": 0, "b": None, "c": None, "d": 1, "e": 18}


def test_what_cannot_be_depended_on_is_refused():
    plan, submit = planned()
    submit("a", "ncpus=4,walltime=10s")
    submit("b", "ncpus=4,walltime=10s,depend=afterany:a")
    submit("c", "ncpus=4,walltime=10s,depend=afterany:b")
    with pytest.raises(RefusedError, match="depends on 'x', which is not in the plan"):
        submit("d", "ncpus=1,depend=after:x")
    with pytest.raises(RefusedError, match="depends on 'd', which is not in the plan"):
        submit("d", "ncpus=1,depend=after:d")
    before = starts(plan)
    with pytest.raises(RefusedError, match="would wait for itself"):
        plan.alter("a", RequestParts.parse("depend=afterany:c"), now=0)
    with pytest.raises(RefusedError, match="no room"):
        submit("d", "ncpus=1,walltime=1s,start=15,depend=afterany:b")
    assert starts(plan) == before
    plan.end("a", now=0)
    with pytest.raises(RefusedError, match="depends on a by afterok, which was cancelled"):
        submit("d", "ncpus=1,depend=afterok:a")
    assert plan.alter("c", RequestParts.parse("depend=none"), now=0).start_s == 0


def test_why_names_the_job_that_is_waited_for():
    plan, submit = planned()
    submit("a", "ncpus=4,walltime=10s")
    submit("b", "ncpus=4,walltime=10s,depend=afterany:a")
    answer = why(plan, "b", now=0)
    assert [(one.cause, one.start_s) for one in answer.constraints if one.start_s is not None] == [("dependency", 0)]
    assert "At 0:00:00: it waits for a until 0:00:10." in answer.sentences()


# ---------------------------------------------------------------------- whatever happens


class Ordered:
    """A plan with dependencies, on which random things happen, and what has to hold whatever they are."""

    def __init__(self, random):
        self.random, self.journal, self.now, self.down = random, [], 0, set()
        self.plan, self.submit_text = planned(lambda entry: self.journal.append(json.loads(json.dumps(entry))))
        self.moved = set()  # jobs that may start later because of what happens

    def one_of(self, *phases):
        jobs = [job for job in self.plan.jobs.values() if job.phase in phases]
        return self.random.choice(jobs) if jobs else None

    def submit(self):
        random, text = self.random, ""
        known = list(self.plan.jobs)
        if known and random.random() < 0.7:
            names = random.sample(known, min(len(known), random.randint(1, 2)))
            text = f",depend={random.choice(['after', 'afterany', 'afterok', 'afternotok'])}:{':'.join(names)}"
        text += random.choice(["", "", ",priority=1"])
        chunks = f"{random.randint(1, 2)}:ncpus={random.randint(1, 4)}"
        self.submit_text(f"j{len(known)}", f"{chunks},walltime={random.randint(1, 9)}s{text}", self.now)

    def time(self):
        self.now += self.random.randint(1, 5)
        while True:
            over = [j for j in self.plan.jobs.values() if j.phase is JobPhase.RUNNING and j.placement.end <= self.now]
            due = self.plan.due(self.now)
            for job in over:
                self.plan.end(job.id, now=self.now, failed=self.random.random() < 0.3)
            for job in due:
                if self.plan.jobs[job.id].phase is JobPhase.PLANNED:
                    self.plan.begin(job.id, now=self.now)
            if not over and not due:
                return

    def end(self):
        if job := self.one_of(JobPhase.PLANNED, JobPhase.WAITING, JobPhase.RUNNING):
            self.plan.end(job.id, now=self.now, failed=self.random.random() < 0.5)

    def extend(self):
        if job := self.one_of(JobPhase.RUNNING):
            self.plan.extend(job.id, self.random.randint(1, 4), now=self.now)

    def alter(self):
        if job := self.one_of(JobPhase.PLANNED, JobPhase.WAITING):
            self.moved = {job.id}
            other = self.random.choice(list(self.plan.jobs))
            what = self.random.choice([f"walltime={self.random.randint(1, 9)}s", f"depend=afterany:{other}"])
            self.plan.alter(job.id, RequestParts.parse(what), now=self.now)

    def fail(self):
        node = self.random.choice("abc")
        place = "abc".index(node)
        live = [job for job in self.plan.jobs.values() if job.phase in LIVE]
        self.moved = {job.id for job in live if place in job.placement.nodes}
        self.down.add(node)
        self.plan.fail(node, now=self.now)

    def late(self):
        """A job that is due is not allocated in time: its node goes down, and jobs of lower rank may be displaced."""
        if due := self.plan.due(self.now):
            job = self.random.choice(due)
            place = self.random.choice(job.placement.nodes.tolist())
            live = [other for other in self.plan.jobs.values() if other.phase in LIVE]
            self.moved = {other.id for other in live if place in other.placement.nodes}
            self.moved |= {other.id for other in live if other.rank > job.rank and other.phase is JobPhase.PLANNED}
            self.down.add("abc"[place])
            self.plan.late(job.id, "abc"[place], now=self.now)

    def recover(self):
        for node in sorted(self.down):
            self.plan.recover(node, now=self.now)
        self.down.clear()

    def backfill(self):
        self.plan.backfill(now=self.now)

    def live(self):
        before, self.moved = dict(self.plan.jobs), set()
        acts = [self.submit, self.time, self.end, self.extend, self.alter, self.fail, self.late, self.recover]
        acts.append(self.backfill)
        act = self.random.choices(acts, [9, 5, 2, 2, 2, 1, 1, 1.5, 2])[0]
        try:
            act()
        except RefusedError:
            assert self.plan.jobs == before
        self.check(before)

    def check(self, before):
        jobs = self.plan.jobs
        plain = PlainPlanner(THREE, self.now, frozenset(self.down))
        for job in jobs.values():
            if job.phase in LIVE:
                plain.hold(Held.of(job, THREE))
        assert list(plain.overbooked()) == []
        for job in jobs.values():
            self.is_in_order(before, job)
            if job.id in before:
                self.keeps_its_promise(before, job)
        again = RequestPlan.reload(THREE, self.journal)
        assert again.jobs == jobs
        assert [again.readiness(job) for job in jobs.values()] == [self.plan.readiness(job) for job in jobs.values()]

    def others(self, job):
        for dependency in job.request.depend:
            yield from ((dependency.kind, self.plan.jobs[name]) for name in dependency.names)

    def is_in_order(self, before, job):
        """A job starts after what it depends on, as planned or as it was; one that never can is cancelled."""
        has_begun = job.phase is JobPhase.RUNNING and (job.id not in before or before[job.id].phase is not job.phase)
        for kind, other in self.others(job):
            has_ended = other.phase is JobPhase.ENDED
            if has_begun:
                assert has_ended or (kind == "after" and other.phase is JobPhase.RUNNING)
            if job.phase is JobPhase.PLANNED and not has_ended:
                assert job.start_s >= (other.start_s if kind == "after" else other.placement.end)
            if job.phase in {JobPhase.WAITING, JobPhase.PLANNED}:
                assert not (kind == "afterok" and other.outcome in {CcsOutcome.FAILED, CcsOutcome.CANCELLED})
                assert not (kind == "afternotok" and other.outcome is CcsOutcome.COMPLETED)
                assert not (kind == "after" and other.outcome is CcsOutcome.CANCELLED)

    def keeps_its_promise(self, before, job):
        """A job starts later only if its node failed, it was altered or displaced, or waits for one that is later."""
        was = before[job.id]
        is_later = was.phase is JobPhase.PLANNED and job.phase in {JobPhase.PLANNED, JobPhase.WAITING}
        if not is_later or was.start_s is None or (job.start_s is not None and job.start_s <= was.start_s):
            return
        others = [(before[other.id], other) for _, other in self.others(job) if other.id in before]
        assert job.id in self.moved or any(ends(after) > ends(earlier) for earlier, after in others)


def ends(job):
    return job.placement.end if job.placement is not None else float("inf")


@given(RANDOMS)
def test_whatever_happens_jobs_start_in_order_and_no_later_than_promised(random):
    world = Ordered(random)
    for _ in range(25):
        world.live()

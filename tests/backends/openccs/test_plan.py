"""The plan through all that happens to it, against a planner that goes through all seconds and all ways to place.

`Watched` does to a plan what is done to it in life, works out from the plan before what has to come of it, and
compares.
"""

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from asa.backends.openccs.jobs import CcsOutcome, JobPhase, RefusedError, entry_of
from asa.backends.openccs.limits import Limit
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import RequestParts, ResourceRequest
from asa.backends.openccs.system import Admission, CcsSystem, CcsTimeouts, Node, Reserve
from hypothesis import given
from hypothesis import strategies as st
from plain_planner import Held, PlainPlanner, a_request, a_system, has_one_sort, lasts

from asa.errors import InputError

BEGIN = 1000
"""Nothing is before this second."""

LIVE = (JobPhase.PLANNED, JobPhase.RUNNING)

RANDOMS = st.integers(0, 2**32 - 1).map(Random)


def rank(job):
    """Jobs are looked at by priority, then as they came."""
    return -job.request.priority, job.submit_s


def dense(vector, since, until):
    """Return the values of a vector, second by second."""
    times, items = (part.tolist() for part in vector.steps)
    counts = []
    for start, end, held in zip(times, [*times[1:], until], items, strict=True):
        counts += [held] * max(min(end, until) - max(start, since), 0)
    return counts


def state(plan, now):
    """Return all visible facts of a plan: its jobs in order, usage from now on, its nodes."""
    until = 1 + max([now, *(job.placement.end for job in plan.jobs.values() if job.phase in LIVE)])
    cluster = plan.cluster
    return (
        [entry_of(job, 0) for job in plan.jobs.values()],
        {name: (vector.available, dense(vector, now, until)) for name, vector in cluster.used.items()},
        {name: {r: dense(v, now, until) for r, v in cluster.used_on(name).items()} for name in cluster.names},
        [name for name in cluster.names if cluster.is_up(name)],
    )


class Watched:
    """A plan, the actions on it, and the facts that are known from outside."""

    def __init__(self, random, *, max_sorts):
        self.random, self.max_sorts = random, max_sorts
        self.system = replace(a_system(random), extension_percent=random.choice([10, 100, 1000]))
        self.journal = []  # every entry
        self.plan = RequestPlan(self.system, on_entry=self.tell)
        self.now = BEGIN
        self.first = {}  # how long each job that was extended was to run at first
        self.lasts = {}  # how long each job is to run, as it was last agreed
        self.down = set()
        self.kept = []  # how many entries there were at some moments, and all that could be seen then
        self.counts = Counter()

    def tell(self, entry):
        self.journal.append(json.loads(json.dumps(entry)))

    # ---- what should be

    def request(self, job):
        """Return the request of a job, for the duration last agreed."""
        return replace(job.request, walltime_s=self.lasts[job.id])

    def held(self, job):
        return Held.of(replace(job, request=self.request(job)), self.system)

    def plain(self, jobs):
        """Return the resources that these jobs hold from now on."""
        plain = PlainPlanner(self.system, self.now, frozenset(self.down))
        for job in jobs:
            if job.phase in LIVE:
                plain.hold(self.held(job))
        return plain

    def settle(self, plain, job, told, end=None):
        """Let a job have the place that it was given, which has to be its first before an end; None is none."""
        request = self.request(job)
        first = plain.planned(request, self.now, end)
        if has_one_sort(request):
            assert (told and told.start) == first, f"{job.id} at {self.now}: {request}"
        if told is None:
            self.counts["none for greed"] += first is not None
            return
        assert first is not None
        assert first <= told.start
        self.counts["later for greed"] += first < told.start
        assert plain.fits(request, told.start)
        held = Held.placed(request, told, self.system)
        assert list(plain.complaints(held)) == []
        if has_one_sort(request):
            assert held == plain.cheapest(request, told.start)
        plain.hold(held)

    def settle_all(self, before, jobs, end_of=None):
        """Let jobs without resources be planned anew, in order of rank; all other jobs stay as they are."""
        ids = {job.id for job in jobs}
        plain = self.plain(job for job in before.values() if job.id not in ids)
        for job in sorted(jobs, key=rank):
            self.settle(plain, job, self.plan.jobs[job.id].placement)
            self.is_planned(job.id)
        self.others_are(before, ids)

    def is_planned(self, name):
        job = self.plan.jobs[name]
        assert job.phase is (JobPhase.WAITING if job.placement is None else JobPhase.PLANNED)

    def others_are(self, before, changed=()):
        """Check that all jobs but some are unchanged."""
        assert list(self.plan.jobs) == list(before)
        assert [name for name, job in before.items() if name not in changed and self.plan.jobs[name] is not job] == []

    def check(self):
        """Check the invariants of the plan."""
        jobs = self.plan.jobs.values()
        plain = self.plain(jobs)
        assert list(plain.overbooked()) == []
        for job in jobs:
            if job.phase in LIVE:
                assert job.placement.end - job.placement.start == self.lasts[job.id]
                assert list(plain.complaints(self.held(job))) == []
                request = job.request
                assert request.start_s in {None, job.placement.start}
                if job.phase is JobPhase.PLANNED and request.deadline_s is not None:  # running jobs may be extended
                    assert job.placement.end <= request.deadline_s
            assert (job.placement is None) == (job.phase is JobPhase.WAITING) or job.phase is JobPhase.ENDED
            assert job.phase is not JobPhase.WAITING or job.why
        until = plain.last + 2
        there = Counter(self.system.licences)
        for node in self.system.nodes:
            there.update({} if node.name in self.down else node.resources)
            for name, vector in self.plan.cluster.used_on(node.name).items():
                counts = plain.used[node.name][name]
                assert dense(vector, self.now, until) == counts + [0] * (until - self.now - len(counts))
        sums = [plain.at(second) for second in range(self.now, until)]
        for name, vector in self.plan.cluster.used.items():
            assert dense(vector, self.now, until) == [at[name] for at in sums], name
            assert vector.available == there[name]

    def a_request(self, more=""):
        """Some request, most often one that can be."""
        requests = (a_request(self.random, self.system, self.max_sorts, more) for _ in range(self.random.randint(1, 9)))
        for request in requests:
            if PlainPlanner(self.system).fits(request, 0):
                break
        return request

    # ---- what happens

    def submit(self):
        random, end = self.random, ""
        when = random.choice(["", "", "", "start", "deadline"])
        if when:
            end = f",{when}={self.now + random.choice([0, 5, random.randint(0, 40)])}"
        if random.random() < 0.15:
            end += f",array={random.randint(2, 5)}"
        end += f",priority={random.randint(1, 3)}" if random.random() < 0.3 else ""
        request = self.a_request(end)
        before, entries = dict(self.plan.jobs), len(self.journal)
        try:
            new = self.plan.submit(request, now=self.now)
        except RefusedError as error:
            self.others_are(before)
            assert len(self.journal) - entries <= 1
            self.refused(request, error)
            return "refused"
        indices = [None] if request.array is None else list(request.array)
        assert [job.id.partition("[")[1:] for job in new] == [
            ("[", f"{index}]") if index is not None else ("", "") for index in indices
        ]
        assert all(job is self.plan.jobs[job.id] for job in new)
        assert not {job.id for job in new} & set(before)
        self.lasts |= {job.id: lasts(request, self.system) for job in new}
        plain = self.plain(before.values())
        for job in new:
            self.settle(plain, job, job.placement)
            self.is_planned(job.id)
        self.others_are(before | {job.id: job for job in new}, {job.id for job in new})
        return "array" if request.array else when or "as soon as can be"

    def submitted(self, more):
        """Submit some request; the jobs, or none if it is refused."""
        try:
            return self.plan.submit(self.a_request(more), now=self.now)
        except RefusedError:
            return []

    def parse(self, text):
        return ResourceRequest.parse(text, self.system.kinds)

    def refused(self, request, error):
        """Whether a request is refused: it is impossible, or impossible at its required time."""
        one = replace(request, start_s=None, deadline_s=None)
        if not PlainPlanner(self.system).fits(one, 0):
            return
        if "there is no room for it" in str(error):
            assert request.start_s is not None or request.deadline_s is not None
            plain = self.plain(self.plan.jobs.values())
            for _ in request.array or [None]:
                first = plain.planned(request, self.now)
                if first is None or not has_one_sort(request):
                    return
                plain.hold(plain.cheapest(request, first))
            raise AssertionError(f"there is room for {request}")
        assert not has_one_sort(request), f"{request} can be: {error}"
        self.counts["refused for greed"] += 1

    def backfill(self):
        before, most = dict(self.plan.jobs), self.random.choice([None, None, 1, 3])
        found = [job for job in before.values() if job.phase in {JobPhase.PLANNED, JobPhase.WAITING}]
        found = sorted((job for job in found if job.start_s is None or job.start_s > self.now), key=rank)[:most]
        moved = self.plan.backfill(now=self.now, most=most)
        self.backfilled(before, found, moved)
        return "backfill"

    def backfilled(self, before, looked_at, moved):
        """Each had its first start with all others where they were, or had moved to before."""
        now = dict(before)
        for job in looked_at:
            after = self.plan.jobs[job.id]
            plain = self.plain(other for other in now.values() if other.id != job.id)
            if job.placement is None:
                self.settle(plain, job, after.placement)
            elif after is not job:
                assert job.request.start_s is None
                assert after.start_s < job.start_s
                self.settle(plain, job, after.placement)
            elif job.request.start_s is None:
                self.settle(plain, job, None, job.placement.end - 1)
            now[job.id] = after
            self.is_planned(job.id)
        changed = [job for job in looked_at if self.plan.jobs[job.id] is not job]
        assert moved == [self.plan.jobs[job.id] for job in changed]
        self.others_are(before, {job.id for job in changed})

    def end(self):
        live = [job for job in self.plan.jobs.values() if job.phase is not JobPhase.ENDED]
        if not live:
            return "nothing"
        self.ended(self.random.choice(live))
        return "end"

    def ended(self, job):
        before = dict(self.plan.jobs)
        self.plan.end(job.id, now=self.now, why="enough")
        after = self.plan.jobs[job.id]
        assert (after.phase, after.why) == (JobPhase.ENDED, "enough")
        if job.phase is JobPhase.RUNNING:
            assert (after.start_s, after.outcome) == (job.start_s, CcsOutcome.COMPLETED)
            assert after.placement.end == max(min(job.placement.end, self.now), job.start_s)
        else:
            assert (after.placement, after.outcome) == (None, CcsOutcome.CANCELLED)
        self.others_are(before, {job.id})

    def time_goes_on(self):
        """Jobs begin when they are due, unless a node takes too long, and end by when they have to."""
        self.now += self.random.randint(1, 6)
        for job in list(self.plan.jobs.values()):
            if job.phase is JobPhase.RUNNING and job.placement.end <= self.now:
                self.ended(job)
            elif job.phase is JobPhase.PLANNED and job.placement.end <= self.now:
                self.ended(job)  # nobody looked for longer than it would have lasted
        while due := self.plan.due(self.now):
            assert all(job.phase is JobPhase.PLANNED and job.start_s <= self.now for job in due)
            job = due[0]
            if self.random.random() < 0.25 and len(self.down) < len(self.system.nodes):
                self.late(job)
                continue
            before = dict(self.plan.jobs)
            begun = self.plan.begin(job.id, now=self.now)
            assert begun == replace(job, phase=JobPhase.RUNNING, begun_s=self.now)
            self.others_are(before, {job.id})
        return "time"

    def met(self, node):
        """Return the jobs that have resources on a node from now on."""
        jobs = [job for job in self.plan.jobs.values() if job.phase in LIVE and job.placement.end > self.now]
        return [job for job in jobs if node in self.held(job).nodes]

    def fail(self):
        up = [name for name in self.plan.cluster.names if name not in self.down]
        if len(up) < 2:
            return "nothing"
        node, before = self.random.choice(up), dict(self.plan.jobs)
        met = self.met(node)
        self.down.add(node)
        told = self.plan.fail(node, now=self.now)
        assert told == [self.plan.jobs[job.id] for job in sorted(met, key=rank)]
        self.settle_all(before, met)
        return "fail"

    def recover(self):
        if not self.down:
            return "nothing"
        node, before = self.random.choice(sorted(self.down)), dict(self.plan.jobs)
        self.down.remove(node)
        found = [job for job in before.values() if job.phase in {JobPhase.PLANNED, JobPhase.WAITING}]
        found = sorted((job for job in found if job.start_s is None or job.start_s > self.now), key=rank)
        self.backfilled(before, found, self.plan.recover(node, now=self.now))
        return "recover"

    def late(self, job):
        """A node does not let a job in: the node goes away, and lower ranks make room if that helps."""
        node = self.random.choice(list(self.held(job).nodes))
        before, met = dict(self.plan.jobs), self.met(node)
        self.down.add(node)
        told = self.plan.late(job.id, node, now=self.now)
        after = self.plan.jobs
        changed = {name for name, was in before.items() if after[name] is not was}
        assert {one.id for one in told} == changed
        assert all(after[one.id] is one for one in told)
        assert {one.id for one in met} <= changed
        assert all(rank(before[name]) > rank(job) for name in changed - {one.id for one in met})
        self.others_are(before, changed)
        if all(has_one_sort(one.request) for one in before.values() if one.phase is not JobPhase.ENDED):
            expected = self.as_if_late(job, before, met)
            starts = {name: after[name].start_s for name in expected}
            assert starts == {name: held and held.start for name, held in expected.items()}
            self.counts["made room"] += len(changed) > len(met)
        self.counts["late"] += 1

    def as_if_late(self, job, before, met):
        """What becomes of all whom it concerns, where each has chunks of one sort."""
        ids = {one.id for one in met}
        held = {one.id: self.held(one) for one in before.values() if one.phase in LIVE and one.id not in ids}
        concerned = sorted(met, key=rank)
        for one in concerned:
            self.place(held, one)
        if held[job.id] is None or held[job.id].start != self.now:
            until = self.now + self.lasts[job.id]
            below = [one for one in before.values() if one.phase is JobPhase.PLANNED or one.id in ids]
            below = [one for one in below if one.request.start_s is None and one.request.deadline_s is None]
            below = [one for one in below if rank(one) > rank(job) and held[one.id] and held[one.id].start < until]
            gone = self.who_makes_room(held, job, sorted(below, key=rank)[::-1])
            held |= dict.fromkeys(one.id for one in gone)
            concerned += gone
            for one in [job, *sorted(gone, key=rank)] if gone else []:
                self.place(held, one)
        return {one.id: held[one.id] for one in concerned}

    def beside(self, held, without=()):
        plain = PlainPlanner(self.system, self.now, frozenset(self.down))
        for name, one in held.items():
            if one is not None and name not in without:
                plain.hold(one)
        return plain

    def place(self, held, job):
        """Plan a job anew beside what others hold."""
        plain, request = self.beside(held, {job.id}), self.request(job)
        start = plain.planned(request, self.now)
        held[job.id] = start and plain.cheapest(request, start)

    def who_makes_room(self, held, job, below):
        """As few as may be, from the first of these, without whom a job could start now; nobody if it cannot."""
        for many in range(1, len(below) + 1):
            plain = self.beside(held, {job.id, *(one.id for one in below[:many])})
            if plain.planned(self.request(job), self.now, self.now + self.lasts[job.id]) == self.now:
                return below[:many]
        return []

    def extend(self):
        running = [job for job in self.plan.jobs.values() if job.phase is JobPhase.RUNNING]
        if not running:
            return "nothing"
        job, by = self.random.choice(running), self.random.randint(1, 8)
        before = dict(self.plan.jobs)
        plain, held = self.plain(before.values()), self.held(job)
        longer, more = replace(job.request, walltime_s=self.lasts[job.id] + by), range(held.end, held.end + by)
        can_be = plain.has_sums(longer, more.start, more.stop) and not list(
            plain.complaints(replace(held, request=longer))
        )
        for name, amounts in held.nodes.items():
            room = plain.room(plain.nodes[name], longer, more.start, more.stop)
            can_be = can_be and room is not None and all(room[one] >= items for one, items in amounts.items() if items)
        first = self.first.get(job.id, self.lasts[job.id])
        is_much = self.lasts[job.id] + by > first + first * self.system.extension_percent // 100
        try:
            after = self.plan.extend(job.id, by, now=self.now)
        except RefusedError:
            assert is_much or not can_be, f"{job} can last {by} s more"
            self.others_are(before)
            return "not extended"
        assert can_be, f"{job} cannot last {by} s more"
        assert not is_much
        self.first[job.id] = first
        self.lasts[job.id] += by
        assert (after.phase, after.placement.end, after.start_s) == (JobPhase.RUNNING, more.stop, job.start_s)
        self.others_are(before, {job.id})
        return "extend"

    def shorten(self):
        """Let a job that runs end earlier, but not as early as now: its rest is free, and others are as they were."""
        running = [job for job in self.plan.jobs.values() if job.phase is JobPhase.RUNNING]
        if not running:
            return "nothing"
        job, before = self.random.choice(running), dict(self.plan.jobs)
        lasts_s = self.random.randint(1, self.lasts[job.id])
        parts = RequestParts.parse(f"walltime={lasts_s}s")
        if job.start_s + lasts_s <= self.now < job.placement.end:
            with pytest.raises(RefusedError, match="would have ended already"):
                self.plan.alter(job.id, parts, now=self.now)
            self.others_are(before)
            return "not shortened"
        self.plan.alter(job.id, parts, now=self.now)
        self.first.setdefault(job.id, self.lasts[job.id])
        self.lasts[job.id] = lasts_s
        assert self.plan.jobs[job.id].placement.end == job.start_s + lasts_s
        self.others_are(before, {job.id})
        return "shorten"

    def alter(self):
        found = [job for job in self.plan.jobs.values() if job.phase in {JobPhase.PLANNED, JobPhase.WAITING}]
        if not found:
            return "nothing"
        job = self.random.choice(found)
        when = self.random.choice(["", "", "start", "deadline"])
        end = f",{when}={self.now + self.random.randint(0, 40)}" if when else ""
        parts = RequestParts.parse(str(self.a_request(end)), self.system.kinds)
        request = job.request.altered(parts)
        before, was, entries = dict(self.plan.jobs), state(self.plan, self.now), len(self.journal)
        try:
            after = self.plan.alter(job.id, parts, now=self.now)
        except RefusedError as error:
            self.others_are(before)
            assert state(self.plan, self.now) == was
            assert len(self.journal) == entries
            kept = self.plan.jobs
            self.plan.jobs = {name: one for name, one in kept.items() if name != job.id}  # it holds nothing for itself
            self.refused(replace(request, array=None), error)
            self.plan.jobs = kept
            return "not altered"
        assert (after.request, after.id) == (request, job.id)
        self.first.pop(job.id, None)
        self.lasts[job.id] = lasts(request, self.system)
        self.settle(self.plain(one for one in before.values() if one.id != job.id), after, after.placement)
        self.is_planned(job.id)
        self.others_are(before, {job.id})
        return "alter"

    def forget(self):
        before = dict(self.plan.jobs)
        was = state(self.plan, self.now)
        self.plan.forget_before(self.now)
        assert list(self.plan.jobs) == [name for name, job in before.items() if job.phase is not JobPhase.ENDED]
        assert state(self.plan, self.now)[2:] == was[2:]
        return "forget"

    def reload(self):
        """Replace the plan by one made of the journal."""
        again = RequestPlan.reload(self.system, self.journal, on_entry=self.tell)
        assert state(again, self.now) == state(self.plan, self.now)
        self.plan = again
        return "reload"

    def live(self):
        """Apply one random action."""
        crowd = sum(job.phase is not JobPhase.ENDED for job in self.plan.jobs.values())
        what = self.random.choices(
            [self.submit, self.time_goes_on, self.backfill, self.end, self.fail, self.recover, self.extend, self.alter],
            [9 if crowd < 14 else 2, 5, 2, 2 if crowd < 14 else 5, 0.6, 0.8, 1.5, 1],
        )[0]
        what = self.shorten if what == self.extend and self.random.random() < 0.3 else what
        what = self.random.choices([what, self.forget, self.reload], [30, 1, 0.7])[0]
        self.counts[what()] += 1
        self.check()
        if self.random.random() < 0.1:
            self.kept.append((len(self.journal), self.now, state(self.plan, self.now)))


@pytest.mark.full
@pytest.mark.parametrize("max_sorts", [1, 2], ids=["one sort", "two sorts"])
@pytest.mark.parametrize("seed", range(10))
def test_a_plan_lives_as_the_plain_planner_says(seed, max_sorts):
    """Through a hundred things that happen; and what was told of it makes the same plan again, up to any moment."""
    watched = Watched(Random(seed), max_sorts=max_sorts)
    for _ in range(100):
        watched.live()
    for entries, now, seen in watched.kept:
        assert state(RequestPlan.reload(watched.system, watched.journal[:entries]), now) == seen


# ---------------------------------------------------------------------- requests come


@given(RANDOMS)
def test_an_array_is_planned_as_its_elements_would_be_one_by_one(random):
    one, other = (Watched(Random(random.getrandbits(32)), max_sorts=1) for _ in range(2))
    other.system, other.plan = one.system, RequestPlan(one.system)
    for number in range(3):
        text, many = str(one.a_request()), random.randint(2, 6)
        try:
            array = one.plan.submit(one.parse(f"{text},array=0-{many - 1}"), now=BEGIN + number)
        except RefusedError:
            with pytest.raises(RefusedError):
                other.plan.submit(one.parse(text), now=BEGIN + number)
            continue
        jobs = [other.plan.submit(one.parse(text), now=BEGIN + number)[0] for _ in range(many)]
        assert [str(job.placement) for job in array] == [str(job.placement) for job in jobs]
        assert [job.id for job in array] == [f"{array[0].id.partition('[')[0]}[{index}]" for index in range(many)]
    assert state(one.plan, BEGIN)[1:] == state(other.plan, BEGIN)[1:]


@given(RANDOMS)
def test_who_is_late_starts_at_once_if_lower_ranks_can_make_room(random):
    """Many jobs of all ranks are planned and none runs, so that there is room to be made."""
    watched = Watched(random, max_sorts=1)
    for _ in range(7):
        for job in watched.submitted(f",priority={random.randint(1, 4)}"):
            watched.lasts[job.id] = lasts(job.request, watched.system)
    due = watched.plan.due(BEGIN)
    if due:
        watched.late(min(due, key=rank) if random.random() < 0.7 else random.choice(due))
        watched.check()


def test_a_large_array_is_planned_in_parts_and_requests_that_came_meanwhile_are_before_the_rest():
    journal = []
    plan, submit = planned(on_entry=lambda entry: journal.append(json.loads(json.dumps(entry))))
    first = submit("ncpus=4,walltime=1s,array=1101", name="a")
    other = submit("ncpus=4,walltime=1s,array=600", name="b")
    assert [job.start_s for job in first[:500]] == [1000 + number // 2 for number in range(500)]
    assert {job.phase for job in first[500:]} == {JobPhase.WAITING}
    assert other[0].start_s == 1250
    assert submit("ncpus=4,walltime=1s", name="c").start_s == 1500
    assert plan.backfill(now=BEGIN) == []
    again = RequestPlan.reload(TWO, journal)  # which plans the rest when it is looked at next
    assert {job.phase for job in again.backfill(now=BEGIN)} == {JobPhase.PLANNED}
    parts = []
    while part := plan.plan_later(now=BEGIN):
        parts.append((part[0].id, len(part)))
    assert parts == [("a[500]", 500), ("b[500]", 100), ("a[1000]", 101)]
    for one in (plan, again):
        ends = Counter(job.start_s for job in one.jobs.values())
        assert ends == dict.fromkeys(range(1000, 1851), 2)


def test_a_large_array_with_a_deadline_is_planned_whole_or_not_at_all():
    plan, submit = planned()
    with pytest.raises(RefusedError, match="before its deadline"):
        submit("ncpus=4,walltime=1s,array=1201,deadline=1600")
    assert not plan.jobs
    assert submit("ncpus=4,walltime=1s,array=1200,deadline=1600")[-1].start_s == 1599


@given(RANDOMS)
def test_backfilling_until_nobody_moves_leaves_nobody_who_could(random):
    watched = Watched(random, max_sorts=2)
    for _ in range(8):
        watched.submitted("")
    for name in random.sample(list(watched.plan.jobs), len(watched.plan.jobs) // 3):
        watched.plan.end(name, now=BEGIN)
    before = dict(watched.plan.jobs)
    moved = watched.plan.backfill(now=BEGIN, passes=0)
    watched.others_are(before, {job.id for job in moved})
    assert all(job is watched.plan.jobs[job.id] and job.start_s < before[job.id].start_s for job in moved)
    assert watched.plan.backfill(now=BEGIN) == []


TWO = CcsSystem("two", (Node("a", {"ncpus": 4}), Node("b", {"ncpus": 4})), licences={"g03": 2})


def planned(system=TWO, on_entry=None):
    """A plan, and how to submit to it."""
    plan = RequestPlan(system, on_entry=on_entry)

    def submit(text, now=BEGIN, **more):
        jobs = plan.submit(ResourceRequest.parse(f"rset={text}", system.kinds), now=now, **more)
        return jobs[0] if len(jobs) == 1 else jobs

    return plan, submit


def on(plan, name):
    """Return the start and the nodes of a job."""
    job = plan.jobs[name]
    return (job.start_s, plan.cluster.names_of(job.placement)) if job.placement else None


def test_requests_are_planned_behind_what_is_planned_or_before_it_where_there_is_room():
    plan, submit = planned()
    for text in ("2:ncpus=4,walltime=20s", "2:ncpus=3,place=scatter,walltime=10s", "ncpus=1,walltime=30s"):
        submit(text)
    assert [on(plan, name) for name in "123"] == [(1000, ["a", "b"]), (1020, ["a", "b"]), (1020, ["a"])]
    assert submit("ncpus=1,walltime=5s", now=1003).start_s == 1020
    assert [job.phase for job in plan.jobs.values()] == [JobPhase.PLANNED] * 4


def test_a_request_without_a_walltime_lasts_as_long_as_the_system_says():
    _, submit = planned(replace(TWO, walltime_s=77))
    assert submit("ncpus=1").placement.end == BEGIN + 77


@pytest.mark.parametrize(
    ("when", "start"),
    [
        ("start=1000", 1000),
        ("start=1020", 1020),
        ("start=1005", None),
        ("start=999", None),
        ("deadline=1010", 1000),
        ("deadline=1009", None),
        ("deadline=1029", None),
        ("deadline=1030", 1020),
        ("deadline=9999", 1020),
    ],
)
def test_a_fixed_start_and_a_deadline_are_held_or_the_request_is_refused(when, start):
    """Where all is used from 1010 to 1019, or from 1000 on if a deadline is to be late."""
    plan, submit = planned()
    early = when in {"start=1000", "start=1005", "start=999", "deadline=1010", "deadline=1009", "start=1020"}
    submit(f"2:ncpus=4,start={1010 if early else 1000},walltime={10 if early else 20}s")
    before = state(plan, BEGIN)
    if start is None:
        with pytest.raises(RefusedError, match="there is no room for it"):
            submit(f"2:ncpus=4,walltime=10s,{when}")
        assert state(plan, BEGIN) == before
    else:
        assert submit(f"2:ncpus=4,walltime=10s,{when}").start_s == start


def test_an_array_that_cannot_be_whole_leaves_nothing():
    journal = []
    plan, submit = planned(on_entry=journal.append)
    submit("ncpus=4,walltime=10s")
    before = state(plan, BEGIN)
    with pytest.raises(RefusedError, match="deadline"):
        submit("ncpus=4,walltime=10s,deadline=1020,array=4", user="alice")
    assert state(plan, BEGIN) == before == state(RequestPlan.reload(TWO, journal), BEGIN)
    assert [job.start_s for job in submit("ncpus=4,walltime=10s,deadline=1020,array=3")] == [1000, 1010, 1010]


def test_what_can_never_be_is_refused_at_once():
    plan, submit = planned()
    for text, why in (
        ("ncpus=5", "cannot be placed|none has that"),
        ("9:ncpus=1", "asks for 9 of ncpus, of which there are 8"),
        ("ncpus=1,g03=3", "asks for 3 of g03, of which there are 2"),
        ("3:ncpus=1,place=scatter", "cannot be placed on its nodes, even when these are empty"),
    ):
        with pytest.raises(RefusedError, match=why):
            submit(text, name="mine")
    assert not plan.jobs


def test_names_are_given_once():
    plan, submit = planned()
    assert submit("ncpus=1", name="1").id == "1"
    assert submit("ncpus=1").id == "2"
    with pytest.raises(RefusedError, match="job '2'"):
        submit("ncpus=1", name="2")
    plan.end("2", now=BEGIN)
    with pytest.raises(RefusedError, match="job '2'"):  # it is still known
        submit("ncpus=1", name="2")
    submit("ncpus=1,array=5-6,walltime=1s", name="3")
    assert not {job.id for job in submit("ncpus=1,array=5-6,walltime=1s")} & {"3[5]", "3[6]"}


def test_a_number_is_not_given_again_after_a_crash():
    journal = []
    plan, submit = planned(on_entry=journal.append)
    submit("ncpus=1")
    plan.end("1", now=BEGIN)
    plan.forget_before(BEGIN)
    assert not plan.jobs
    again = RequestPlan.reload(TWO, journal)
    assert again.submit(ResourceRequest.parse("rset=ncpus=1"), now=BEGIN)[0].id != "1"


# ---------------------------------------------------------------------- they run, and leave


def test_jobs_are_due_at_their_start_in_order():
    plan, submit = planned()
    for text in ("2:ncpus=4,walltime=10s", "ncpus=1,walltime=10s", "ncpus=1,walltime=9s,priority=2"):
        submit(text)
    assert [job.id for job in plan.due(999)] == []
    assert [job.id for job in plan.due(1009)] == ["1"]
    assert [job.id for job in plan.due(1010)] == ["1", "3", "2"]
    plan.begin("1", now=1000)
    assert [job.id for job in plan.due(1010)] == ["3", "2"]


def test_what_a_phase_does_not_allow_is_said():
    plan, submit = planned()
    submit("ncpus=1,walltime=10s")
    with pytest.raises(InputError, match="there is no job 'x' in the plan"):
        plan.begin("x", now=BEGIN)
    plan.begin("1", now=BEGIN)
    with pytest.raises(InputError, match="is running, not"):
        plan.begin("1", now=BEGIN)
    plan.end("1", now=BEGIN + 3)
    with pytest.raises(InputError, match="is ended, not"):
        plan.end("1", now=BEGIN + 3)
    with pytest.raises(InputError, match="there is no node 'c'"):
        plan.fail("c", now=BEGIN)
    assert plan.jobs["1"].placement.end == BEGIN + 3


def test_who_ends_early_makes_room_by_backfilling_in_order_of_priority_and_nobody_starts_later():
    plan, submit = planned()
    submit("2:ncpus=4,walltime=100s")
    for text in (
        "2:ncpus=4,walltime=10s",
        "ncpus=4,walltime=10s",
        "ncpus=3,walltime=50s,priority=5",
        "ncpus=1,walltime=5s",
    ):
        submit(text)
    assert [on(plan, name)[0] for name in "2345"] == [1100, 1110, 1110, 1110]
    plan.begin("1", now=1000)
    plan.end("1", now=1010)
    assert [on(plan, name)[0] for name in "2345"] == [1100, 1110, 1110, 1110]
    assert [plan.cluster.used["ncpus"].at(second) for second in (1000, 1009, 1010, 1099)] == [8, 8, 0, 0]
    assert [job.id for job in plan.backfill(now=1010, most=1)] == ["4"]
    assert [job.id for job in plan.backfill(now=1010)] == ["2", "3", "5"]
    assert [on(plan, name) for name in "2345"] == [
        (1060, ["a", "b"]),
        (1010, ["b"]),
        (1010, ["a"]),
        (1010, ["a"]),
    ]
    assert plan.backfill(now=1010) == []


def test_a_fixed_start_stays_where_it_is_when_others_move():
    plan, submit = planned()
    submit("2:ncpus=4,walltime=20s")
    submit("ncpus=4,walltime=10s,start=1030")
    submit("2:ncpus=4,walltime=15s")
    plan.end("1", now=1000)
    assert [job.id for job in plan.backfill(now=1000)] == ["3"]
    assert [on(plan, name)[0] for name in "23"] == [1030, 1000]


# ---------------------------------------------------------------------- what is not as planned


def test_jobs_of_a_node_that_goes_away_are_planned_anew_and_wait_if_they_cannot_be():
    plan, submit = planned()
    submit("ncpus=4,walltime=10s")
    submit("2:ncpus=4,walltime=10s,priority=3")
    submit("ncpus=4,walltime=10s")
    submit("ncpus=1,walltime=10s,start=1020")
    assert [on(plan, name) for name in "1234"] == [(1000, ["a"]), (1010, ["a", "b"]), (1000, ["b"]), (1020, ["a"])]
    plan.begin("1", now=1000)
    met = plan.fail("a", now=1005)
    assert [(job.id, job.phase, job.start_s) for job in met] == [
        ("2", JobPhase.WAITING, None),
        ("1", JobPhase.PLANNED, 1010),
        ("4", JobPhase.PLANNED, 1020),
    ]
    assert [job.why for job in met] == ["node a went away"] * 3
    assert on(plan, "3") == (1000, ["b"])
    late = submit("ncpus=1,walltime=10s,start=1030", now=1006)
    assert (late.start_s, plan.fail("b", now=1006)[-1].phase) == (1030, JobPhase.WAITING)
    assert all(job.phase is JobPhase.WAITING for job in plan.jobs.values())
    assert submit("ncpus=1,walltime=10s", now=1007).phase is JobPhase.WAITING
    assert {job.id for job in plan.recover("b", now=1040)} == {"1", "3", "6"}  # too late for 4 and 5
    assert {job.id for job in plan.recover("a", now=1050)} >= {"2"}
    assert {name for name, job in plan.jobs.items() if job.phase is JobPhase.WAITING} == {"4", "5"}


def test_a_late_job_displaces_lower_ranks_from_the_last_and_no_more_than_need_be():
    system = CcsSystem("four", tuple(Node(name, {"ncpus": 4}) for name in "abcd"))
    plan, submit = planned(system)
    submit("ncpus=4,walltime=10s,priority=5")
    for priority in (9, 2, 1):
        submit(f"ncpus=4,walltime=10s,priority={priority}")
    submit("ncpus=4,walltime=5s,priority=0")
    told = plan.late("1", "a", now=1000)
    assert {job.id: job.start_s for job in told} == {"1": 1000, "4": 1010, "5": 1010}
    assert on(plan, "1") == (1000, ["d"])
    assert [on(plan, name)[0] for name in "2345"] == [1000, 1000, 1010, 1010]
    assert sum(plan.cluster.used["ncpus"].at(second) for second in range(1000, 1100)) == 4 * (40 + 5)


def test_a_late_job_displaces_nobody_who_has_a_fixed_start():
    plan, submit = planned()
    submit("ncpus=4,walltime=10s,priority=5")
    submit("ncpus=4,walltime=10s,start=1005")
    assert {job.id: job.start_s for job in plan.late("1", "a", now=1000)} == {"1": 1015}
    assert on(plan, "2") == (1005, ["b"])


def test_a_late_job_that_no_lower_rank_can_make_room_for_displaces_nobody():
    plan, submit = planned()
    submit("ncpus=4,walltime=10s,priority=5")
    submit("ncpus=3,walltime=10s,priority=9")
    submit("ncpus=1,walltime=10s,priority=1")
    assert {job.id: job.start_s for job in plan.late("1", "a", now=1000)} == {"1": 1010}
    assert [on(plan, name)[0] for name in "23"] == [1000, 1000]


def test_a_job_that_is_not_released_in_time_takes_its_node_down():
    system = replace(TWO, timeouts=CcsTimeouts(release_s=3))
    journal = []
    plan, submit = planned(system, on_entry=journal.append)
    submit("2:ncpus=4,walltime=10s")
    submit("ncpus=1,walltime=10s,depend=afterok:1")
    assert submit("2:ncpus=4,walltime=10s").start_s == 1026
    plan.begin("1", now=1000)
    assert plan.over_s(plan.jobs["1"]) == 1010
    assert plan.release("1", now=1004).placement.end == 1007
    assert plan.due(1006) == []
    plan.backfill(now=1004)
    assert [on(plan, name)[0] for name in "23"] == [1007, 1020]
    assert {job.id for job in plan.late_release("1", "a", now=1007)} == {"2", "3"}
    assert plan.jobs["1"].outcome is CcsOutcome.COMPLETED
    assert (on(plan, "2"), on(plan, "3")) == ((1007, ["b"]), None)
    again = RequestPlan.reload(system, json.loads(json.dumps(journal)))
    assert state(again, 1007) == state(plan, 1007)


def test_the_time_of_allocation_and_release_is_planned_and_no_limit_counts_it():
    node = Node("a", {"ncpus": 4}, admits=(Admission(at_most_s=11),))
    system = replace(TWO, timeouts=CcsTimeouts(allocate_s=2, release_s=3), nodes=(node,))
    plan = RequestPlan(system, [Limit("user", "*", "ncpus", duration_s=10)])
    for start in (1000, 1015, 1030):
        [job] = plan.submit(ResourceRequest.parse("rset=ncpus=4,walltime=10s"), now=BEGIN, user="ann")
        assert (job.start_s, job.placement.end) == (start, start + 15)
    assert plan.allocate("1", now=1000).phase is JobPhase.ALLOCATING
    plan.begin("1", now=1002)
    assert plan.over_s(plan.jobs["1"]) == 1012
    with pytest.raises(RefusedError, match="longer than"):
        plan.submit(ResourceRequest.parse("rset=ncpus=4,walltime=11s"), now=BEGIN, user="ann")


def test_a_job_is_told_once_that_its_time_is_almost_over_and_again_if_it_is_extended():
    plan, submit = planned(replace(TWO, extension_percent=100))
    submit("ncpus=1,walltime=10s,notify=4s")
    assert plan.notice_s(plan.jobs["1"]) is None
    plan.begin("1", now=1001)  # a second late: it has to end when planned
    assert plan.notice_s(plan.jobs["1"]) == 1006
    assert plan.notice_s(plan.notify("1", now=1006)) is None
    assert plan.notice_s(plan.extend("1", 5, now=1008)) == 1011


def parts(text):
    return RequestParts.parse(text)


def test_a_running_job_can_last_longer_if_its_resources_are_free():
    plan, submit = planned(replace(TWO, extension_percent=100))
    for text in ("ncpus=3,walltime=10s", "ncpus=4,walltime=10s", "2:ncpus=4,walltime=10s"):
        submit(text)
    plan.begin("1", now=1000)
    before = state(plan, 1000)
    with pytest.raises(RefusedError, match="job '1'"):
        plan.extend("1", 1, now=1005)
    for by in (0, -3):
        with pytest.raises(RefusedError, match="Give a second or more"):
            plan.extend("1", by, now=1005)
    assert state(plan, 1000) == before
    plan.end("3", now=1005)
    assert plan.extend("1", 7, now=1005).placement.end == 1017
    assert submit("2:ncpus=4,walltime=10s", now=1005).start_s == 1017
    plan.fail("a", now=1006)
    assert (plan.jobs["1"].start_s, plan.jobs["1"].placement.end) == (1010, 1027)  # again, and as long


def test_extensions_are_at_most_a_part_of_the_first_walltime_together():
    plan, submit = planned(replace(TWO, extension_percent=25))
    submit("ncpus=1,walltime=10s")
    with pytest.raises(InputError, match="is planned, not running"):
        plan.extend("1", 1, now=1000)
    plan.begin("1", now=1000)
    plan.extend("1", 1, now=1000)
    with pytest.raises(RefusedError, match="may last 1s more"):
        plan.extend("1", 2, now=1001)
    plan.alter("1", parts("walltime=8s"), now=1002)
    assert plan.extend("1", 4, now=1003).placement.end == 1012
    with pytest.raises(RefusedError, match="may last 0s more"):
        plan.extend("1", 1, now=1003)


def test_an_extended_job_leaves_what_is_kept_for_others_and_stays_where_it_is_admitted():
    gpu = Node("a", {"ncpus": 8, "gpus": 1})
    plan, submit = planned(CcsSystem("gpu", (gpu,), reserves=(Reserve("gpus", {"ncpus": 2}),), extension_percent=100))
    submit("ncpus=2,walltime=10s")
    assert submit("ncpus=6,walltime=10s").start_s == 1010
    plan.begin("1", now=1000)
    with pytest.raises(RefusedError, match="not free"):
        plan.extend("1", 5, now=1001)
    short, other = Node("a", {"ncpus": 8}, admits=(Admission(at_most_s=12),)), Node("b", {"ncpus": 9})
    plan, submit = planned(CcsSystem("short", (short, other), extension_percent=100))
    submit("ncpus=2,walltime=10s")
    plan.begin("1", now=1000)
    assert plan.extend("1", 2, now=1001).placement.end == 1012
    with pytest.raises(RefusedError, match="not free"):
        plan.extend("1", 1, now=1001)


def test_an_extension_is_remembered_after_a_crash():
    journal = []
    system = replace(TWO, extension_percent=50)
    plan, submit = planned(system, on_entry=journal.append)
    submit("2:ncpus=4,walltime=10s")
    plan.begin("1", now=1000)
    plan.extend("1", 5, now=1001)
    again = RequestPlan.reload(system, json.loads(json.dumps(journal)))
    with pytest.raises(RefusedError, match="may last 0s more"):
        again.extend("1", 1, now=1001)
    for one in (plan, again):
        assert one.fail("a", now=1002)[0].phase is JobPhase.WAITING
        [job] = one.recover("a", now=1003)
        assert (job.placement.start, job.placement.end) == (1003, 1018)


def test_an_altered_job_is_planned_anew_or_stays_as_it_was():
    plan, submit = planned()
    for text in ("2:ncpus=4,walltime=10s", "ncpus=4,walltime=10s", "ncpus=4,walltime=10s"):
        submit(text)
    before = state(plan, 1000)
    for text in ("rset=ncpus=5", "rset=ncpus=1,start=1005", "rset=ncpus=1,deadline=1019", "array=2"):
        with pytest.raises(RefusedError, match="job '2'"):
            plan.alter("2", parts(text), now=1001)
        assert state(plan, 1000) == before
    assert plan.alter("2", parts("rset=2:ncpus=4,walltime=1h"), now=1001).start_s == 1020
    assert plan.alter("3", parts("rset=2:ncpus=4,walltime=9s"), now=1002).start_s == 1010
    assert [job.id for job in plan.backfill(now=1003)] == ["2"]
    assert [on(plan, name)[0] for name in "123"] == [1000, 1019, 1010]


# ---------------------------------------------------------------------- after a crash


def test_no_moment_of_what_is_told_has_two_jobs_in_one_place_or_one_on_a_node_that_is_down():
    """Whatever is written of a plan when it is cut off is a plan."""
    journal = []
    plan, submit = planned(on_entry=journal.append)
    for text in (
        "ncpus=4,walltime=10s,priority=5",
        "ncpus=4,walltime=10s",
        "2:ncpus=4,walltime=10s",
        "ncpus=1,walltime=4s",
    ):
        submit(text)
    submit("ncpus=2,walltime=3s,array=3")
    plan.fail("a", now=1000)
    plan.recover("a", now=1001)
    plan.fail("b", now=1002)
    for count in range(len(journal) + 1):
        again = RequestPlan.reload(TWO, journal[:count])
        plain = PlainPlanner(TWO, 1002)
        for job in again.jobs.values():
            if job.placement is not None:
                plain.hold(Held.of(job, TWO))
                assert all(again.cluster.is_up(name) for name in again.cluster.names_of(job.placement))
        assert list(plain.overbooked()) == []


def test_a_journal_of_an_earlier_version_is_read():
    """It says neither how jobs ended nor when they began."""
    journal = []
    plan, submit = planned(on_entry=lambda entry: journal.append(json.loads(json.dumps(entry))))
    for _ in range(3):
        submit("ncpus=4,walltime=10s")
    plan.begin("1", now=1000)
    plan.begin("2", now=1000)
    plan.end("2", now=1004)
    for entry in journal:
        for name in ("first_walltime_s", "outcome", "begun_s", "notified_s"):
            del entry[name]
    again = RequestPlan.reload(TWO, journal)
    assert again.over_s(again.jobs["1"]) == 1010
    assert again.jobs["2"].outcome is CcsOutcome.COMPLETED
    assert again.jobs["3"] == plan.jobs["3"]


def test_a_job_of_a_second_at_the_beginning_of_time_is_a_job_like_others():
    plan, submit = planned()
    assert submit("2:ncpus=4,walltime=1s", now=0).start_s == 0
    assert submit("2:ncpus=4,walltime=1s", now=0).start_s == 1
    with pytest.raises(RefusedError):
        submit("ncpus=4,walltime=1s,start=0", now=0)
    with pytest.raises(RefusedError):
        submit("ncpus=4,walltime=1s,deadline=0", now=0)
    plan.end("1", now=0)
    assert [job.start_s for job in plan.backfill(now=0)] == [0]
    assert plan.backfill(now=0) == []

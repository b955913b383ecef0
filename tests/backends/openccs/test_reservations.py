"""Reservations, which are systems of their own, and the plan's journal."""

import json
from dataclasses import replace

import pytest
from asa.backends.openccs.jobs import JobPhase, RefusedError
from asa.backends.openccs.journal import open_plan
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.rusv import FOREVER
from asa.backends.openccs.system import CcsSystem, Node

from asa.errors import StateError

SYSTEM = CcsSystem("four", tuple(Node(f"n{i}", {"ncpus": 4}) for i in range(4)), licences={"g03": 2})


def ask(text):
    return ResourceRequest.parse(f"rset={text}", SYSTEM.kinds)


def submit(plan, text, now=100, **more):
    [job] = plan.submit(ask(text), now=now, **more)
    return job


def starts(plan):
    return {name: job.start_s for name, job in plan.jobs.items()}


@pytest.fixture
def plan():
    return RequestPlan(SYSTEM)


@pytest.fixture
def inside(plan):
    """Return a reservation of two nodes from 1000 to 2000."""
    return plan.reserve(ask("2:ncpus=4,sw=g03,start=1000,walltime=1000s"), now=100, name="course", user="anna")


def test_a_reservation_keeps_its_resources_from_others(plan, inside):
    assert submit(plan, "4:ncpus=4,walltime=900s").start_s == 100
    assert submit(plan, "4:ncpus=4,walltime=901s").start_s == 2000
    assert submit(plan, "2:ncpus=4,walltime=901s").start_s == 1000
    assert plan.cluster.used["g03"].at(1500) == 1


def test_jobs_in_it_are_planned_within_it(plan, inside):
    """They get no other nodes, and no other time."""
    assert submit(inside, "ncpus=4,walltime=600s").start_s == 1000
    assert submit(inside, "ncpus=4,walltime=600s").start_s == 1000
    waiting = submit(inside, "ncpus=4,walltime=600s")
    assert (waiting.start_s, waiting.phase) == (None, JobPhase.WAITING)
    assert submit(inside, "ncpus=2,walltime=400s,sw=g03").start_s == 1600
    with pytest.raises(RefusedError, match="12 of ncpus"):
        submit(inside, "3:ncpus=4,walltime=10s")
    with pytest.raises(RefusedError, match="lasts 1001 s, and what it is to run in 1000 s"):
        submit(inside, "ncpus=1,walltime=1001s")
    with pytest.raises(RefusedError, match="2 of g03"):
        submit(inside, "ncpus=1,walltime=10s,g03=2")
    names = {name for job in inside.jobs.values() if job.placement for name in inside.cluster.names_of(job.placement)}
    assert names == set(plan.cluster.names_of(plan.jobs["course"].placement))


def test_its_end_is_theirs(plan, inside):
    job = submit(inside, "ncpus=4,walltime=600s")
    plan.begin("course", now=1000)
    inside.begin(job.id, now=1000)
    plan.end("course", now=1300)
    assert not plan.reservations
    assert inside.jobs[job.id].phase is JobPhase.ENDED
    assert inside.jobs[job.id].why == "reservation course has ended"
    assert submit(plan, "4:ncpus=4,walltime=10s", now=1300).start_s == 1300


def test_a_reservation_whose_node_goes_away_moves_with_its_jobs(plan, inside):
    jobs = [submit(inside, "ncpus=4,walltime=400s") for _ in range(3)]
    [node] = inside.cluster.names_of(jobs[0].placement)
    plan.fail(node, now=500)
    assert plan.jobs["course"].start_s == 1000
    assert node not in plan.cluster.names_of(plan.jobs["course"].placement)
    assert plan.reservations["course"] is inside
    assert node not in inside.cluster.names
    assert sorted(starts(inside).values()) == [1000, 1000, 1400]
    assert submit(plan, "2:ncpus=4,walltime=1000s", now=500).start_s == 2000, "one is left beside it"
    assert submit(plan, "1:ncpus=4,walltime=1000s", now=500).start_s == 500


def test_one_that_finds_no_others_keeps_its_time_and_its_other_nodes(plan, inside):
    jobs = [submit(inside, "ncpus=4,walltime=400s") for _ in range(2)]
    submit(plan, "2:ncpus=4,walltime=3000s")
    [node] = inside.cluster.names_of(jobs[0].placement)
    plan.fail(node, now=500)
    assert plan.jobs["course"].start_s == 1000
    assert sorted(starts(inside).values()) == [1000, 1400]
    plan.recover(node, now=600)
    assert sorted(starts(inside).values()) == [1000, 1000]


def test_one_that_has_begun_stays(plan, inside):
    job = submit(inside, "ncpus=4,walltime=400s")
    plan.begin("course", now=1000)
    inside.begin(job.id, now=1000)
    [node] = inside.cluster.names_of(job.placement)
    plan.fail(node, now=1100)
    assert inside.jobs[job.id].start_s == 1100
    assert inside.jobs[job.id].phase is JobPhase.PLANNED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ncpus=4,walltime=10s", "has one start"),
        ("ncpus=4,walltime=10s,start=500,array=2", "has one start"),
        ("5:ncpus=4,walltime=10s,start=500", "of which there are 16"),
        ("ncpus=4,walltime=10s,start=50", "no room for it at its start"),
    ],
)
def test_what_cannot_be_reserved_is_refused(plan, text, why):
    with pytest.raises(RefusedError, match=why):
        plan.reserve(ask(text), now=100, name="r")
    assert not plan.reservations
    assert not plan.jobs


# ---------------------------------------------------------------------- the journal


def lived(path):
    """Return a plan with many past events."""
    plan = open_plan(path, SYSTEM)
    inside = plan.reserve(ask("2:ncpus=4,start=1000,walltime=1000s"), now=100, name="course")
    submit(inside, "ncpus=4,walltime=600s")
    first = submit(plan, "4:ncpus=4,walltime=300s")
    plan.submit(ask("ncpus=2,walltime=500s,array=5"), now=110)
    plan.begin(first.id, now=110)
    submit(plan, "2:ncpus=4,walltime=800s,sw=g03")
    plan.fail("n3", now=120)
    plan.fail(inside.cluster.names[0], now=121)
    for name in plan.cluster.names:
        plan.recover(name, now=150)
    return plan


def same(one, other):
    assert one.jobs == other.jobs
    assert {name: str(vector) for name, vector in one.cluster.used.items()} == {
        name: str(vector) for name, vector in other.cluster.used.items()
    }
    for name in one.cluster.names:
        assert one.cluster.used_on(name) == other.cluster.used_on(name)
        assert one.cluster.is_up(name) == other.cluster.is_up(name)
    assert one.reservations.keys() == other.reservations.keys()
    for name, inside in one.reservations.items():
        same(inside, other.reservations[name])


def test_after_a_crash_the_plan_is_the_same(tmp_path):
    path = tmp_path / "journal"
    plan = lived(path)
    plan.forget_before(150)
    again = open_plan(path, SYSTEM)
    same(plan, again)
    for one in (plan, again):
        submit(one, "2:ncpus=4,walltime=100s", now=160)
        submit(one.reservations["course"], "ncpus=3,walltime=100s", now=160)
    same(plan, again)


def test_a_line_that_was_cut_off_is_cut_away(tmp_path):
    path = tmp_path / "journal"
    lived(path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    before = open_plan(_copy(tmp_path, b"".join(lines[:-1])), SYSTEM)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        torn = _copy(tmp_path, b"".join(lines[:-1]) + lines[-1][:cut])
        again = open_plan(torn, SYSTEM)
        assert again.jobs == before.jobs
        submit(again, "ncpus=1,walltime=5s", now=200, name="new")
        assert "new" in open_plan(torn, SYSTEM).jobs


def _copy(folder, text):
    path = folder / "copy"
    path.write_bytes(text)
    return path


@pytest.mark.parametrize(
    "text", [b"{\n", b"[]\n", b"\xff\n", b'{"kind": "job"}\n', b'{"kind": "node", "name": "n9", "up": false}\n']
)
def test_what_is_no_journal_is_refused(tmp_path, text):
    with pytest.raises(StateError):
        open_plan(_copy(tmp_path, text), SYSTEM)


@pytest.mark.parametrize("text", [b"precious, without a line end", b'{"kind": "mine", "x": 1}\n{"kind": "mine"', b"\n"])
def test_another_s_file_stays_as_it_is(tmp_path, text):
    path = _copy(tmp_path, text)
    with pytest.raises(StateError, match="is no journal"):
        open_plan(path, SYSTEM)
    assert path.read_bytes() == text


def test_a_journal_is_of_one_system(tmp_path):
    """Its jobs are on nodes by their indices."""
    path = tmp_path / "journal"
    lived(path)
    before = path.read_bytes()
    for other in (
        replace(SYSTEM, nodes=SYSTEM.nodes[::-1]),
        replace(SYSTEM, name="five"),
        replace(SYSTEM, licences={}),
    ):
        with pytest.raises(StateError, match="as it was, which is not"):
            open_plan(path, other)
    assert path.read_bytes() == before
    assert open_plan(str(path), SYSTEM).jobs


def test_a_plan_whose_journal_cannot_be_written_goes_no_further(tmp_path):
    path = tmp_path / "folder" / "journal"
    path.parent.mkdir()
    plan = open_plan(path, SYSTEM)
    submit(plan, "ncpus=1,walltime=5s", name="one")
    path.rename(tmp_path / "journal")
    path.parent.rmdir()
    with pytest.raises(StateError, match="cannot be written"):
        submit(plan, "ncpus=1,walltime=5s", name="two")
    with pytest.raises(StateError, match="may not go on"):
        submit(plan, "ncpus=1,walltime=5s", name="three")
    assert list(open_plan(tmp_path / "journal", SYSTEM).jobs) == ["one"]


def test_a_step_is_a_line(tmp_path):
    """Any beginning of the journal is an earlier plan."""
    path = tmp_path / "journal"
    lived(path)
    for line in path.read_text().splitlines()[1:]:
        assert json.loads(line)["kind"] in {"job", "step", "inside"}
    lines = path.read_bytes().splitlines(keepends=True)
    for many in range(1, len(lines) + 1):
        plan = open_plan(_copy(tmp_path, b"".join(lines[:many])), SYSTEM)
        for name in plan.cluster.names:
            assert all(vector.min_free_within(0, FOREVER) >= 0 for vector in plan.cluster.used_on(name).values())

"""Stages that may run before all their predecessors end: after starts, first completions, matching elements."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from slurm_world import SITE, World

from asa.cli.explain import _delay
from asa.elements import Elements, parse_array
from asa.errors import WorkflowError
from asa.workflow import Stage, Workflow

STRATEGIES = ["per-stage", "chained", "asa", "asa-plan"]


def stage(name, run_s, after="", code=0, **more):
    command = f"sleep {run_s}" + (f"; exit {code}" if code else "")
    return Stage(name, cores=1, walltime_s=7200, command=command, after=tuple(after.split()), **more)


def stage_of(job):
    return job.job.name.rpartition(".")[0].rpartition("_")[2]


def times(world):
    """Return when each stage's job began and ended."""
    jobs = [job for job in world.link.all.values() if job.start_s is not None and not job.array_id]
    return {stage_of(job): (job.start_s, job.end_s) for job in jobs}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_client_begins_once_its_server_has_run_for_a_while(tmp_path, strategy):
    """The server outlives its client; a stage after both waits for both."""
    stages = (
        stage("first", 60),
        stage("server", 3000, "first"),
        stage("client", 30, "server", after_start=("server",), start_delay_s=300.0),
        stage("last", 5, "client server"),
    )
    world = World(tmp_path, stages, strategy=strategy)
    result = world.drive()
    assert result.outcome == "completed", result.reason
    found = times(world)
    assert 300 <= found["client"][0] - found["server"][0] <= 420
    assert found["client"][1] < found["server"][1] <= found["last"][0]
    measured = {one.stages[0]: one.time_s for one in result.records if type(one).__name__ == "StageEnded"}
    assert measured["client"] < measured["server"]


@pytest.mark.parametrize("when", ["success", "any"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_delay_is_over_when_what_began_has_ended_or_something_else_is_enough(tmp_path, strategy, when):
    more = {"when": when, "after_start": ("server",), "start_delay_s": 3000.0}
    stages = (
        stage("other", 200),
        stage("server", 400),
        stage("client", 5, "other server" if when == "any" else "server", **more),
    )
    world = World(tmp_path, stages, strategy=strategy)
    assert world.drive().outcome == "completed"
    found = times(world)
    assert 0 <= found["client"][0] - found["other" if when == "any" else "server"][1] <= 120


def test_explain_says_how_long_a_stage_waits_for_what_has_begun(tmp_path):
    stages = (stage("server", 3000), stage("client", 5, "server", after_start=("server",), start_delay_s=600.0))
    world, told = World(tmp_path, stages), []

    def asks(states, *_):
        run, one = SimpleNamespace(now_s=world.clock()), SimpleNamespace(stage="client", state="waiting")
        told.extend(_delay(states[0], run, one))

    assert world.drive(on_pass=asks).outcome == "completed"
    assert "It begins once 'server' ran for 10m00s, 9m59s from now, or ended." in told
    assert not list(
        _delay(world.folder.state()[0], SimpleNamespace(now_s=0.0), SimpleNamespace(stage="client", state="done"))
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_delay_begins_anew_with_what_began(tmp_path, strategy):
    """The server's node fails before the client may begin."""
    stages = (stage("server", 3000), stage("client", 5, "server", after_start=("server",), start_delay_s=600.0))
    world = World(tmp_path, stages, strategy=strategy)

    tick = world.link._tick

    def fails(job):
        tick(job)
        if stage_of(job) == "server" and not job.restarts and job.start_s == world.link._now_s - 300:
            job.state, job.start_s, job.eligible_s, job.payload_s, job.restarts = "PENDING", None, None, None, 1

    world.link._tick = fails
    assert world.drive().outcome == "completed"
    found = times(world)
    assert next(iter(world.link.all.values())).restarts
    assert 600 <= found["client"][0] - found["server"][0] <= 720


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_first_that_completes_is_enough(tmp_path, strategy):
    """A failure does not count as a completion, and slower stages continue."""
    stages = (
        stage("bad", 10, code=3),
        stage("quick", 100),
        stage("slow", 4000),
        stage("next", 50, "bad quick slow", when="any"),
        stage("none", 5, "bad", when="any"),
    )
    world = World(tmp_path, stages, strategy=strategy)
    result = world.drive()
    found = times(world)
    assert found["quick"][1] <= found["next"][0] <= found["quick"][1] + 120
    assert "none" not in found
    assert result.outcome == "failed"
    phases = {name: view.phase.value for name, view in world.folder.state()[0].stages.items()}
    assert phases == {"bad": "failed", "quick": "done", "slow": "done", "next": "done", "none": "blocked"}


class Rows(World):
    """Two arrays `a` and `b`; each element of `b` needs the element of `a` with the same number."""

    def __init__(self, path, elements, own, *, rng, bad=(), retries=0, at_once=0, when="always", **run):
        self.lasts_s = {number: rng.randint(20, 3000) for number in elements}
        self.bad = {number: list(codes) for number, codes in bad}
        theirs = parse_array(str(Elements.of(elements)) + (f"%{at_once}" if at_once else ""))
        stages = (
            stage("a", 1000, array=theirs, retries=retries),
            stage("b", 7, "a", array=parse_array(str(Elements.of(own))), after_matching=("a",)),
            stage("c", 5, "b", when=when),
        )
        super().__init__(path, stages, **run)

    def _of_element(self, number, run_s, code):
        if run_s != 1000:
            return run_s, 0
        ends = self.bad.get(number, [])
        return self.lasts_s[number], ends.pop(0) if ends else 0

    def of(self, name):
        jobs = [job for job in self.link.all.values() if job.array_id and stage_of(job) == name]
        return [job for job in jobs if job.start_s is not None]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_each_element_runs_once_its_counterpart_has_completed(tmp_path, seed):
    """Elements fail, are retried or exceed limits: each still runs once, after its counterpart, and soon."""
    rng = random.Random(seed)
    elements = sorted(rng.sample(range(20), rng.randint(2, 9)))
    own = sorted(rng.sample(elements, rng.randint(1, len(elements))))
    retries = rng.choice([0, 1])
    bad = [(number, [1] * rng.choice([1, 2])) for number in elements if rng.random() < 0.2]
    at_once, size = rng.choice([0, 0, 2]), rng.choice([1001, 1001, 4])
    site = replace(SITE, max_array_size=size if max(elements) < size else 1001)
    strategy = rng.choice(STRATEGIES)
    world = Rows(
        tmp_path, elements, own, rng=rng, bad=bad, retries=retries, at_once=at_once, strategy=strategy, site=site
    )
    result = world.drive()
    lost = {number for number, codes in bad if len(codes) > retries}
    completed_s = {job.number: job.end_s for job in world.of("a") if job.exit_code == 0}
    assert set(completed_s) == set(elements) - lost
    ran = sorted(job.number for job in world.of("b"))
    assert ran == sorted(set(own) - lost)
    for job in world.of("b"):
        assert 0 <= job.start_s - completed_s[job.number] <= 200, job.number
    assert result.outcome == ("failed" if lost else "completed"), result.reason
    phases = {name: view.phase.value for name, view in world.folder.state()[0].stages.items()}
    assert phases["a"] == ("failed" if lost else "done")
    assert phases["b"] == ("done" if not lost.intersection(own) else "failed" if set(own) - lost else "blocked")
    assert phases["c"] == "done"


def test_what_could_not_run_runs_once_its_counterpart_has(tmp_path):
    """The user retries a failed element; only its counterpart runs after it."""
    world = Rows(tmp_path, [1, 2, 3], [1, 2, 3], rng=random.Random(1), bad=[(2, [1])])
    assert world.drive().outcome == "failed"
    state = world.folder.state()[0]
    assert "2 needed those of another array" in state.stages["b"].reason
    assert world.drive(retry=True).outcome == "completed"
    assert sorted(job.number for job in world.of("b")) == [1, 2, 3]
    assert world.of("b")[-1].number == 2


@pytest.mark.parametrize("strategy", [*STRATEGIES, "elastic"])
def test_what_follows_elements_is_submitted_only_with_the_last_of_them(tmp_path, strategy):
    """An earlier submission would hold its cores while the first array still runs."""
    world = Rows(tmp_path, [1, 2, 3], [1, 2, 3], rng=random.Random(3), strategy=strategy, when="success")
    assert max(world.lasts_s.values()) - min(world.lasts_s.values()) > 1000
    assert world.drive().outcome == "completed"
    assert sum(not one.array for one in world.link.submitted) == 1
    [last] = (job for job in world.link.all.values() if not job.array_id)
    assert last.payload_s - last.start_s <= 5
    assert last.submit_s <= max(job.start_s for job in world.of("b")) + 60


@pytest.mark.full
def test_many_elements_that_complete_one_by_one_are_gathered(tmp_path):
    """There are two submissions per minute at most; the last elements are submitted at once."""
    world = Rows(tmp_path, range(1, 101), range(1, 101), rng=random.Random(5))
    world.lasts_s = {number: 60 + 6 * number for number in range(1, 101)}
    assert world.drive().outcome == "completed"
    ends_s = {job.number: job.end_s for job in world.of("a")}
    assert max(job.start_s - ends_s[job.number] for job in world.of("b")) <= 40
    assert sum(bool(one.array) for one in world.link.submitted) <= 2 + 600 / 30
    [last] = (job for job in world.of("b") if job.number == 100)
    assert last.start_s - ends_s[100] <= 20


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_element_waits_for_its_counterparts_in_all_arrays(tmp_path, strategy, fails):
    """Other elements of each array may complete first, and one of the arrays may have failed."""
    lasts_s = {(1000, 1): 30, (1000, 2): 400, (1100, 1): 900, (1100, 2): 30}

    class Two(World):
        def _of_element(self, number, run_s, code):
            return lasts_s.get((run_s, number), run_s), int(fails and (run_s, number) == (1000, 2))

    array = parse_array("1-2")
    stages = (
        stage("a", 1000, array=array),
        stage("b", 1100, array=array),
        stage("c", 5, "a b", array=array, after_matching=("a", "b")),
    )
    world = Two(tmp_path, stages, strategy=strategy)
    assert world.drive().outcome == ("failed" if fails else "completed")
    ran = [job for job in world.link.all.values() if stage_of(job) == "c"]
    assert sorted(job.number for job in ran) == ([1] if fails else [1, 2])
    ends = {(stage_of(job), job.number): job.end_s for job in world.link.all.values() if job.array_id}
    for job in ran:
        assert 0 <= job.start_s - max(ends["a", job.number], ends["b", job.number]) <= 200


def test_a_site_without_arrays_runs_them_one_array_after_the_other(tmp_path):
    world = Rows(tmp_path, [1, 2, 3], [1, 3], rng=random.Random(1), site=replace(SITE, arrays=False))
    result = world.drive()
    assert result.outcome == "completed", result.reason
    found = times(world)
    assert found["a"][1] <= found["b"][0]


def test_what_contradicts_itself_is_refused():
    array = parse_array("1-4")
    for says, more in (
        ("after_start: 'b' is not in its `after`", {"after_start": ("b",)}),
        ("'a' is in its after_any and its after_start", {"after_any": ("a",), "after_start": ("a",)}),
        ("has a start_delay, but no after_start", {"start_delay_s": 5.0}),
        ("has an after_matching, but is no job array", {"after_matching": ("a",)}),
        ("and is to run when 'any'", {"after_matching": ("a",), "array": array, "when": "any"}),
    ):
        with pytest.raises(WorkflowError, match=says):
            stage("x", 5, "a", **more)
    one = stage("b", 5, "a", array=array, after_matching=("a",))
    with pytest.raises(WorkflowError, match="stage 'a' is no job array"):
        Workflow("w", [stage("a", 5), one])
    with pytest.raises(WorkflowError, match="stage 'a' has no elements 3-4"):
        Workflow("w", [stage("a", 5, array=parse_array("0-2")), one])

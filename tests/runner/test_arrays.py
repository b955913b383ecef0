"""Stages that are job arrays: on a Slurm in memory, whose elements begin, fail and vanish as a test says."""

import random
from dataclasses import replace

import pytest
from asa.backends.simulated import SimulatedSite
from asa.backends.slurm.backend import SlurmBackend
from slurm_world import SITE
from slurm_world import World as AnyWorld
from typer.testing import CliRunner

from asa.backend import PartitionLimits
from asa.cli.app import app
from asa.cli.kinds.elements import element_standing
from asa.elements import Elements, parse_array
from asa.metrics import measure
from asa.records import Ended, Retrying, StageEnded, Submitted
from asa.runner import Run, drive, run_all
from asa.runner.entries import Intended, Narrowed
from asa.runner.look import look
from asa.strategies import load_strategy
from asa.workflow import Stage, Workflow

SWEEP = Stage("b", cores=1, walltime_s=600, after=("a",), command="sleep 5", array=parse_array("1-9%4"))
STAGES = (Stage("a", cores=1, walltime_s=600, command="sleep 2"), SWEEP, Stage("c", cores=1, after=("b",), command="x"))


class World(AnyWorld):
    """A run of an array between two other stages."""

    def __init__(self, path, stages=STAGES, **options):
        super().__init__(path, stages, **options)


def test_it_is_one_submission_and_each_element_runs_once(tmp_path):
    world = World(tmp_path)
    world.completed(world.drive())
    assert world.asked == ["1-9%4"]
    elements = [job for job in world.link.all.values() if job.array_id]
    moments = {at for job in elements for at in (job.start_s, job.end_s)}
    assert max(sum(job.start_s <= at < job.end_s for job in elements) for at in moments) == 4


def test_only_those_are_asked_for_again_that_failed(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, retries=2), STAGES[2]), codes={3: [1, 1], 7: [2]})
    result = world.drive()
    world.completed(result)
    assert world.asked == ["1-9%4", "3,7%4", "3%4"]
    told = [r.reason for r in result.records if isinstance(r, Retrying)]
    assert told == ["elements 3 failed (exit code 1); 7 failed (exit code 2)", "element 3 failed (exit code 1)"]


def test_what_fails_for_good_is_told_and_resumed_by_itself(tmp_path):
    world = World(tmp_path, codes={2: [1], 5: [127]})
    result = world.drive()
    assert result.outcome == "failed"
    assert (
        "2 of 9 elements did not complete: 2 failed (exit code 1); 5 failed (its command was not found" in result.reason
    )
    standing = element_standing(world.folder.state()[0], "b")
    assert (standing.completed, standing.failed, standing.pending_count) == ("1,3-4,6-9", "2,5", 0)
    world.completed(world.drive(retry=True))
    assert world.asked == ["1-9%4", "2,5%4"]


def test_elements_that_ended_alike_are_explained_together(tmp_path):
    """Elements with the same exit code share a line, whatever the reasons; the output shown is the first one's."""
    world = World(tmp_path, codes={2: [1], 3: [4], 7: [1], 8: [1], 9: [127]})
    assert world.drive().outcome == "failed"
    state, _ = world.folder.state()
    failures = state.units.elements.failures["abcd12345678/b"]
    failures[7] = replace(failures[7], reason="")
    words = "2,7-8 failed (exit code 1); 3 failed (exit code 4); 9 failed (its command was not found)"
    assert element_standing(state, "b").told == words
    [token] = [job.spec.token for job in state.jobs.values() if job.spec.array]
    for number in (2, 7):
        (world.folder.path / "logs").mkdir(exist_ok=True)
        (world.folder.path / "logs" / f"flow_b.{token}-abcdef-e{number}.err").write_text(f"case {number} is bad\n")
    done = CliRunner().invoke(app, ["explain", "b", "--run", str(world.folder.path)], env={"COLUMNS": "120"})
    assert done.exit_code == 0
    told = [line.strip() for line in done.output.splitlines()]
    assert "Job 2, a job array, failed after it had run 17s: of 9 elements 4 completed, 5 did not complete." in told
    at = told.index("Elements 2,7-8 failed (exit code 1).")
    assert told[at + 1 : at + 3] == ["Element 3 failed (exit code 4).", "Element 9 failed (its command was not found)."]
    assert "case 2 is bad" in told
    assert "case 7 is bad" not in told


def test_what_would_end_so_again_is_not_tried_again(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, retries=5), STAGES[2]), codes={2: [1], 5: [127]})
    assert world.drive().outcome == "failed"
    assert world.asked == ["1-9%4", "2%4"], "those others that may do better are"


def test_more_memory_after_137_and_more_time_after_a_time_out(tmp_path):
    limits = {"": PartitionLimits(memory_per_node_bytes=64 << 30)}
    site = replace(SITE, partitions=limits)
    stage = replace(SWEEP, retries=1, memory_bytes=1 << 30, array=parse_array("1-3"))
    world = World(tmp_path, (STAGES[0], stage, STAGES[2]), site=site, codes={2: [137]})
    world.link.of_element = lambda number, run_s, code: (
        (5000.0 if number == 3 and len(world.asked) == 0 else run_s),
        world._of_element(number, run_s, code)[1],
    )
    result = world.drive()
    world.completed(result, "1-3")
    first, again = [job for job in world.link.submitted if job.array]
    assert (again.array, again.memory_bytes, again.walltime_s) == ("2-3", 2 << 30, 1200.0)
    assert first.memory_bytes == 1 << 30


@pytest.mark.parametrize("at_once", ["", "%2"])
def test_limits_lead_to_several_arrays_and_the_throttle_holds_over_all(tmp_path, at_once):
    stage = replace(SWEEP, array=parse_array(f"1-9{at_once}"))
    world = World(tmp_path, (STAGES[0], stage, STAGES[2]), site=replace(SITE, max_array_size=4))
    world.link.max_array_size = 4
    world.completed(world.drive())
    assert len(world.asked) == 3
    elements = [job for job in world.link.all.values() if job.array_id]
    assert sorted(job.number for job in elements) == list(range(1, 10))
    if at_once:
        moments = {job.start_s for job in elements}
        assert max(sum(job.start_s <= at < job.end_s for job in elements) for at in moments) == 2
    last = next(job for job in world.link.all.values() if job.job.name.startswith("flow_c"))
    assert last.start_s >= max(job.end_s for job in elements)


def test_a_limit_that_nobody_told_is_found_out_and_kept_in_the_journal(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, array=parse_array("100-130:3")), STAGES[2]))
    world.link.max_array_size = 6
    world.completed(world.drive(), "100-130:3")
    assert [one for one in world.entries if isinstance(one, Narrowed)]
    assert all(parse_array(one).elements.last < 6 for one in world.asked), "numbered from 0 on"


def test_so_many_are_submitted_as_may_be(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, array=parse_array("1-20")), STAGES[2]), strategy="per-stage")
    world.link.max_submitted = 6
    world.completed(world.drive(), "1-20")
    assert sorted(job.number for job in world.link.all.values() if job.array_id) == list(range(1, 21))


def test_what_looks_once_knows_of_what_was_refused(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, array=parse_array("1-20")), STAGES[2]), strategy="per-stage")
    world.link.max_submitted = 6
    for _ in range(200):
        if look(world.folder, world.connect) is not None and world.folder.state()[0].outcome:
            break
        world.clock.sleep(7.0)
    state, records = world.folder.state()
    assert state.outcome == "completed", state.reason
    sizes = [len(one.spec.array.elements) for one in world.entries if isinstance(one, Intended) and one.spec.array]
    assert sizes.count(20) == 1, "so many are asked for once"
    assert [r.stages for r in records if isinstance(r, StageEnded)] == [("a",), ("b",), ("c",)]


def test_an_element_that_somebody_cancels_is_not_run_again_by_itself_and_stops_no_other(tmp_path):
    site = replace(SITE, max_array_size=5)
    world = World(tmp_path, (STAGES[0], replace(SWEEP, retries=3, array=parse_array("1-9")), STAGES[2]), site=site)

    def connect(run):
        def sleep(seconds):
            arrays = list(world.link.arrays_of)
            if arrays and not cancelled:
                cancelled.append(arrays[0])
                world.link.cancel_element(arrays[0], 2)
            return world.clock.sleep(seconds)

        return SlurmBackend(world.link, run.path, site, clock=world.clock, sleep=sleep)

    cancelled = []
    result = drive(world.folder, connect)
    assert result.outcome == "failed"
    assert "1 of 9 elements did not complete: 2 was cancelled" in result.reason
    assert element_standing(world.folder.state()[0], "b").completed == "1,3-9"
    world.completed(world.drive(retry=True))


def test_requeued_elements_are_waited_for(tmp_path):
    world, done = World(tmp_path), []

    def connect(run):
        def sleep(seconds):
            running = [job for job in world.link.all.values() if job.array_id and job.state == "RUNNING"]
            if running and len(done) < 3:
                done.append(running[0].job_id)
                world.link.requeue(running[0].job_id)
            return world.clock.sleep(seconds)

        return SlurmBackend(world.link, run.path, SITE, clock=world.clock, sleep=sleep)

    result = drive(world.folder, connect)
    world.completed(result)
    assert world.asked == ["1-9%4"]


def test_core_hours_are_those_of_each_element(tmp_path):
    world = World(tmp_path, strategy="per-stage")
    result = world.drive()
    [ended] = [r for r in result.records if isinstance(r, Ended) and r.stages == ("b",)]
    elements = [job for job in world.link.all.values() if job.array_id]
    assert ended.ran_s == sum(job.end_s - job.start_s for job in elements)
    assert measure(world.folder.plan.make_workflow(), result.records).core_hours >= ended.ran_s / 3600


def test_what_elements_held_before_they_were_requeued_counts_whichever_client_saw_it(tmp_path):
    """A new client looks each time; one element is requeued once, and one twice."""
    world = World(tmp_path, strategy="per-stage")
    world.link.of_element = lambda *_: (50.0, 0)
    spent_s, requeued = [], []
    for _ in range(200):
        look(world.folder, world.connect)
        if world.folder.state()[0].outcome:
            break
        for job in world.link.all.values():
            is_due = requeued.count(job.job_id) < {2: 1, 3: 2}.get(job.number, 0)
            if job.array_id and job.state == "RUNNING" and is_due:
                spent_s.append(int(world.link.now_s) - job.start_s)
                requeued.append(job.job_id)
                world.link.requeue(job.job_id)
        world.clock.sleep(3.0)
    state, records = world.folder.state()
    assert state.outcome == "completed", state.reason
    [ended] = [r for r in records if isinstance(r, Ended) and r.stages == ("b",)]
    elements = [job for job in world.link.all.values() if job.array_id]
    assert len(spent_s) == 3
    assert min(spent_s) > 0
    assert ended.ran_s == pytest.approx(sum(job.end_s - job.start_s for job in elements) + sum(spent_s))


def test_elements_that_the_controller_forgot_are_known_by_their_marks(tmp_path):
    world = World(tmp_path, (STAGES[0], replace(SWEEP, array=parse_array("1-30%2")), STAGES[2]), min_job_age_s=4.0)
    world.completed(world.drive(), "1-30")
    assert world.asked == ["1-30%2"]


def test_an_answer_that_was_lost_submits_no_array_twice(tmp_path):
    world = World(tmp_path)
    submit, lost = world.link.submit, []

    def once(job):
        world.link.in_doubt = bool(job.array) and not lost
        lost.extend([1] if job.array else [])
        try:
            return submit(job)
        finally:
            world.link.in_doubt = False

    world.link.submit = once
    world.completed(world.drive())
    assert world.asked == ["1-9%4"]


_FEW = 8  # of the worlds, for `make test`


@pytest.mark.parametrize(
    "seed", [*range(_FEW), *(pytest.param(one, marks=pytest.mark.full) for one in range(_FEW, 40))]
)
def test_whatever_elements_do_and_whoever_dies_each_completes_once(tmp_path, seed):
    """Clients look once and die in between, while elements fail, are requeued, or are refused."""
    rng = random.Random(seed)
    numbers = sorted(rng.sample(range(40), rng.randint(1, 12)))
    array = replace(parse_array("0"), elements=Elements.of(numbers), at_once=rng.choice([0, 1, 3]))
    retries = 3
    codes = {n: [rng.choice([1, 137, 0]) for _ in range(rng.randint(0, retries))] for n in numbers}
    site = replace(SITE, max_array_size=rng.choice([3, 7, 1001]), max_queued=rng.choice([None, 4]))
    strategy = rng.choice(["chained", "per-stage", "asa-plan"])
    stages = (STAGES[0], replace(SWEEP, array=array, retries=retries), STAGES[2])
    world = World(tmp_path, stages, strategy=strategy, site=site, codes=codes)
    world.link.max_submitted = rng.choice([None, 5])
    world.link.max_array_size = rng.choice([site.max_array_size, 4, 1001])
    for _ in range(400):
        look(world.folder, world.connect)
        if world.folder.state()[0].outcome:
            break
        running = [job for job in world.link.all.values() if job.array_id and job.state == "RUNNING"]
        if running and rng.random() < 0.1:
            world.link.requeue(rng.choice(running).job_id)
        world.clock.sleep(rng.choice([1.0, 5.0, 20.0]))
    state, records = world.folder.state()
    assert state.outcome == "completed", state.reason
    ended_well = [job.number for job in world.link.all.values() if job.array_id and job.state == "COMPLETED"]
    assert sorted(ended_well) == numbers
    submitted = [r for r in records if isinstance(r, Submitted) and r.array]
    assert len(submitted) == len(world.asked)


# ---------------------------------------------------------------------- where there are no arrays


def test_on_a_simulated_machine_elements_take_turns():
    stage = replace(SWEEP, expected_run_s=60.0, array=parse_array("1-40%8"))
    flow = Workflow("w", [STAGES[0], stage, STAGES[2]])
    world = SimulatedSite("hpc2n").open(seed=3)
    [result] = run_all(world, [Run(flow, load_strategy("per-stage"))])
    assert result.outcome == "completed"
    jobs = [r for r in result.records if isinstance(r, Submitted) and r.stages == ("b",)]
    assert len(jobs) == 8
    assert {(job.cores, job.walltime_s) for job in jobs} == {(1, 3030.0)}

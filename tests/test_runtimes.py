"""Run times of stages: kept for good, forecast with honest ranges, turned into advice."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backend import Capabilities, ElementEnd, ElementsStatus, JobState, JobStatus, StepTimes
from asa.elements import Elements, parse_array
from asa.errors import InputError, StateError
from asa.history import read_history
from asa.records import Ended, RunResumed, StageEnded, StageStarted, Submitted
from asa.runtimes import RunForecast, RunTime, RunTimes, advise, expect, forecast_run, run_times_of
from asa.shapes import Moldable, RunAt, Scaling, run_time_at
from asa.strategies import Keep
from asa.units import round_walltime
from asa.workflow import Stage, Workflow

SITE = Capabilities(system="hpc2n", cores_per_node=4, max_cores=640, age_accrues=True)


def runs(times, cores=4, *, system="hpc2n", sizes=None, cut=(), stage="search", flow="blast"):
    """Make run times, the latest last."""
    return [
        RunTime(
            flow, stage, cores, float(run_s), float(i), system, None if sizes is None else float(sizes[i]),
            "at_least" if i in cut else "exact", f"{flow}-{stage}-{cores}-{system}-{i}",
        )
        for i, run_s in enumerate(times)
    ]  # fmt: skip


def forecast(times, cores=4, *, size=None, system="hpc2n", **options):
    return forecast_run(runs(times, **options), cores, input_size=size, system=system)


# ---------------------------------------------------------------------- keeping


def test_what_is_told_again_is_kept_once(tmp_path):
    """By another process, too, and after reading it from the disk."""
    told = runs([10, 20, 30])
    assert RunTimes(tmp_path).observe(told[:2]) == 2
    assert RunTimes(tmp_path).observe(told) == 1
    assert RunTimes(tmp_path).observe(told) == 0
    assert RunTimes(tmp_path).read() == told
    assert RunTimes(tmp_path).of("blast", "merge") == []


def test_of_one_run_the_good_end_counts(tmp_path):
    """It was cut off, then cut off later, then it completed: in whatever order that is told, and by whom."""
    cut, later, whole = (
        RunTime("w", "s", 1, run_s, 0.0, kind=kind, id="one")
        for run_s, kind in ((50.0, "at_least"), (90.0, "at_least"), (70.0, "exact"))
    )
    here, there = RunTimes(tmp_path), RunTimes(tmp_path)
    assert here.observe([later, cut]) == 1
    assert there.read() == [later]
    assert there.observe([whole]) == 1
    assert here.observe([later, cut]) == 0
    assert here.read() == there.read() == [whole]


def test_nothing_is_there_before_something_is_kept(tmp_path):
    """A look makes no folder."""
    folder = tmp_path / "bank"
    log = RunTimes(folder)
    assert (log.read(), log.forecast("w", "s", 1), log.forget("w"), log.observe([])) == ([], None, 0, 0)
    assert not folder.exists()


def test_forgetting_removes_a_stage_or_a_workflow_for_good(tmp_path):
    """Their names are on the disk no more; the others stay."""
    log = RunTimes(tmp_path)
    for stage in ("search", "merge"):
        log.observe(runs([1, 2], stage=stage))
    log.observe(runs([3], flow="other"))
    assert log.forget("blast", "search") == 2
    assert log.forget("blast", "search") == 0
    assert {(run.workflow, run.stage) for run in RunTimes(tmp_path).read()} == {("blast", "merge"), ("other", "search")}
    assert log.forget("blast") == 2
    assert b"blast" not in b"".join(file.read_bytes() for file in log.folder.iterdir())
    assert [run.workflow for run in log.read()] == ["other"]


def test_what_was_forgotten_does_not_come_back(tmp_path):
    """A run tells all that it knows whenever it is gone on with; after more was forgotten and merged, too."""
    old, new = runs([1, 2], stage="search"), runs([3, 4], stage="search", cores=8)
    log, other = RunTimes(tmp_path), RunTimes(tmp_path)
    log.observe(old)
    late = RunTimes(tmp_path)
    late.read()
    assert log.forget("blast", "search") == 2
    for teller in (log, other, late, RunTimes(tmp_path)):
        assert teller.observe(old) == 0
    assert other.observe([*old, *new]) == 2
    assert RunTimes(tmp_path).read() == new
    log.observe(runs([9], flow="other"))
    log.forget("other")
    for i in range(80):  # so many that they are merged
        log.observe(runs([i], stage=f"s{i}"))
    assert RunTimes(tmp_path).observe([*old, *runs([9], flow="other")]) == 0
    assert b"blast-search-4" not in b"".join(file.read_bytes() for file in log.folder.iterdir())


def test_what_was_about_to_be_told_when_it_was_forgotten_is_not_read(tmp_path):
    """A writer that had read before, and writes after."""
    log = RunTimes(tmp_path)
    log.observe(runs([1, 2]))
    [file] = log.folder.iterdir()
    content = file.read_bytes()
    log.forget("blast")
    (log.folder / "kept-0123456789abcdef.jsonl").write_bytes(content)
    assert RunTimes(tmp_path).read() == []


def test_many_files_become_few(tmp_path):
    """And nothing is lost; somebody who reads all the while sees it whole."""
    writer, reader = RunTimes(tmp_path), RunTimes(tmp_path)
    told = runs(range(150))
    for i, run in enumerate(told):
        writer.observe([run])
        assert len(reader.read()) == i + 1
    assert len(list(writer.folder.iterdir())) <= 65
    assert RunTimes(tmp_path).read() == told


def test_what_was_taken_is_passed_over_even_if_it_is_still_there(tmp_path):
    """As where a process that forgets is killed before it has deleted, or may not delete."""
    log = RunTimes(tmp_path)
    log.observe(runs([1, 2]))
    [old] = log.folder.iterdir()
    content = old.read_bytes()
    log.forget("blast", "search")
    old.write_bytes(content)
    assert RunTimes(tmp_path).read() == []
    log.observe(runs([5], stage="merge"))
    assert RunTimes(tmp_path).forget("blast", "merge") == 1  # which tidies up, too
    assert RunTimes(tmp_path).read() == []
    assert not old.exists()


def test_damage_is_left_out_and_counted(tmp_path):
    """Lines that are cut, no run time, no JSON; a file that is none of ours."""
    log = RunTimes(tmp_path)
    log.observe(runs([1, 2, 3]))
    [file] = log.folder.iterdir()
    lines = file.read_bytes().splitlines(keepends=True)
    nan = lines[2].replace(b"2.0", b"NaN", 1)
    file.write_bytes(b"".join([*lines[:2], nan, b"\0\0\n", b"[" * 100_000 + b"\n", lines[3][:-9]]))
    (log.folder / "kept-0123456789abcdef.jsonl").write_bytes(b"")
    (log.folder / "notes.txt").write_bytes(b"mine")
    log = RunTimes(tmp_path)
    assert [run.run_s for run in log.read()] == [1.0]
    assert log.damaged == 5


def test_a_later_version_is_refused(tmp_path):
    """Its fields may mean something else."""
    log = RunTimes(tmp_path)
    log.observe(runs([1]))
    [file] = log.folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(StateError, match="version 2"):
        RunTimes(tmp_path).read()


@pytest.mark.parametrize(
    "bad",
    [{"run_s": math.nan}, {"run_s": -1.0}, {"run_s": math.inf}, {"cores": 0}, {"input_size": 0.0}, {"at_s": math.nan}],
)
def test_what_no_stage_runs_like_is_refused(bad):
    """Before it can spoil anything."""
    with pytest.raises(InputError, match="no stage"):
        RunTime(**{"workflow": "w", "stage": "s", "cores": 1, "run_s": 1.0, "at_s": 0.0, **bad})


def _write_many(folder, which):
    log = RunTimes(folder)
    for run in runs(range(40), stage=f"s{which}"):
        log.observe([run])


def test_many_write_and_one_forgets_at_once(tmp_path):
    """Nothing of the others is lost, while files are merged under their hands."""
    RunTimes(tmp_path).observe(runs([1], flow="gone"))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, i)) for i in range(4)]
    for writer in writers:
        writer.start()
    assert RunTimes(tmp_path).forget("gone") == 1
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    found = RunTimes(tmp_path).read()
    assert sorted((run.stage, run.run_s) for run in found) == [(f"s{i}", float(j)) for i in range(4) for j in range(40)]


WRITER = """
import sys
from asa.runtimes import RunTime, RunTimes
log = RunTimes(sys.argv[1])
for i in range(10**6):
    log.observe([RunTime("w", "s", 1, 1.0, float(i), id=f"{sys.argv[2]}-{i}-{j}") for j in range(3)])
    print(i, flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_runs(tmp_path):
    """With kill -9 at any moment, in the middle of merging, too; what it said it kept is there."""
    for attempt in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(attempt)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(60 + attempt):
            line = writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        last = int((line + writer.communicate()[0]).split()[-1])
        log = RunTimes(tmp_path)
        own = [run.id for run in log.read() if run.id.startswith(f"{attempt}-")]
        assert len(own) in {3 * (last + 1), 3 * (last + 2)}
        assert log.damaged == 0


# ---------------------------------------------------------------------- what a run tells


def began(stage, at_s, job):
    return StageStarted(time_s=at_s, run="r", stages=(stage,), job_id=job)


def done(stage, at_s, job):
    return StageEnded(time_s=at_s, run="r", stages=(stage,), job_id=job)


def sent(job, *stages, cores=4):
    return Submitted(
        time_s=0.0, run="r", stages=stages, job_id=job, cores=cores, walltime_s=100.0, keep=Keep.NOTHING,
        predicted_wait_s=None, resubmission=0, reason="",
    )  # fmt: skip


def over(job, at_s, *stages, state=JobState.TIMEOUT, payload_s=5.0):
    return Ended(
        time_s=at_s, run="r", stages=stages, job_id=job, state=state, cores=4, start_s=1.0, payload_start_s=payload_s
    )


FLOW = Workflow(
    "flow",
    [
        Stage("a", nodes=2, walltime_s=100, input_size=7.0),
        Stage("b", cores=1, walltime_s=100, after=("a",)),
        Stage("t", cores=2, walltime_s=100, after=("b",), tasks=("x", "y")),
    ],
)


def told(records, *statuses):
    return run_times_of("id", FLOW, SITE, records, {status.job_id: status for status in statuses})


def facts(times):
    return [(run.stage, run.cores, run.run_s, run.kind) for run in times]


def test_a_stage_ran_from_its_beginning_to_its_end():
    """Not from its job's; on the cores that it had."""
    [one] = told([sent("1", "a", cores=8), began("a", 30.0, "1"), over("1", 70.0, "a", state=JobState.COMPLETED),
                  done("a", 70.0, "1")])  # fmt: skip
    assert (one.workflow, one.stage, one.cores, one.run_s, one.at_s) == ("flow", "a", 8, 40.0, 70.0)
    assert (one.system, one.input_size, one.kind) == ("hpc2n", 7.0, "exact")


def test_a_stage_that_failed_tells_nothing_and_one_cut_off_a_bound():
    """Then it completed on a second try, which has the same id, so that it stands for both."""
    failed = [sent("1", "b"), began("b", 10.0, "1"), over("1", 15.0, "b", state=JobState.FAILED)]
    assert told(failed) == []
    cut = [sent("1", "b"), began("b", 10.0, "1"), over("1", 110.0, "b")]
    assert facts(told(cut)) == [("b", 4, 100.0, "at_least")]
    whole = [*cut, sent("2", "b"), began("b", 200.0, "2"), done("b", 350.0, "2")]
    first, second = told(whole)
    assert (first.id, first.kind, second.kind, second.run_s) == (second.id, "at_least", "exact", 150.0)
    again = [*whole, RunResumed(time_s=400.0, run="r"), sent("3", "b"), began("b", 500.0, "3"), done("b", 640.0, "3")]
    assert len({run.id for run in told(again)}) == 2  # run once more, it is another run


def test_a_job_that_only_waited_for_its_turn_tells_nothing():
    """Its payload never began."""
    assert told([sent("1", "b"), over("1", 110.0, "b", payload_s=None)]) == []


def test_tasks_that_went_on_where_they_stopped_are_added_up():
    """The last attempt did only the rest."""
    records = [
        sent("1", "t", cores=2), began("t", 0.0, "1"), over("1", 60.0, "t", state=JobState.FAILED),
        sent("2", "t", cores=2), began("t", 100.0, "2"), over("2", 200.0, "t"),
        sent("3", "t", cores=2), began("t", 300.0, "3"), done("t", 330.0, "3"),
    ]  # fmt: skip
    assert facts(told(records)) == [("t", 2, 160.0, "at_least"), ("t", 2, 190.0, "exact")]
    requeued = JobStatus("3", JobState.COMPLETED, 0.0, restarts=1)
    assert told(records, requeued)[-1].kind == "at_least"


def test_tasks_that_are_run_once_more_begin_from_nothing():
    """They failed, and then not they alone were asked for again but what they follow, which had completed."""
    records = [
        sent("1", "b"), began("b", 0.0, "1"), done("b", 10.0, "1"),
        sent("2", "t", cores=2), began("t", 20.0, "2"), over("2", 80.0, "t", state=JobState.FAILED),
        RunResumed(time_s=1000.0, run="r", anew=("b", "t")),
        sent("3", "b"), began("b", 1010.0, "3"), done("b", 1020.0, "3"),
        sent("4", "t", cores=2), began("t", 1030.0, "4"), over("4", 1040.0, "t", state=JobState.FAILED),
        sent("5", "t", cores=2), began("t", 1050.0, "5"), done("t", 1090.0, "5"),
    ]  # fmt: skip
    assert facts(told(records)) == [("b", 4, 10.0, "exact"), ("b", 4, 10.0, "exact"), ("t", 2, 50.0, "exact")]
    again = [
        RunResumed(time_s=2000.0, run="r"),
        sent("6", "t", cores=2),
        began("t", 2010.0, "6"),
        done("t", 2040.0, "6"),
    ]
    assert facts(told([*records, *again]))[-1] == ("t", 2, 30.0, "exact")


def test_of_a_shared_job_only_times_that_were_told_count():
    """Else they are those that were expected. One step completed before the job was cut off in the next."""
    shared = [sent("1", "a", "b", cores=8), began("a", 0.0, "1"), done("a", 50.0, "1")]
    assert told(shared, JobStatus("1", JobState.COMPLETED, 0.0)) == []
    steps = (StepTimes("a", 2.0, 50.0), StepTimes("b", 51.0))
    assert facts(told(shared, JobStatus("1", JobState.COMPLETED, 0.0, steps=steps))) == [("a", 8, 50.0, "exact")]
    broken = [sent("1", "a", "b", cores=8), over("1", 151.0, "a", "b")]
    assert facts(told(broken, JobStatus("1", JobState.TIMEOUT, 0.0, steps=steps))) == [
        ("a", 8, 48.0, "exact"),
        ("b", 1, 100.0, "at_least"),
    ]


ARRAY = Workflow("flow", [Stage("a", cores=2, walltime_s=100, array=parse_array("1-4"), command="x", input_size=7.0)])


def of_array(records, *statuses, in_turn_s=None, flow=ARRAY):
    return run_times_of("id", flow, SITE, records, {status.job_id: status for status in statuses}, in_turn_s=in_turn_s)


def part(job, longest_s, ends=(), state=JobState.COMPLETED):
    return JobStatus(job, state, 0.0, elements=ElementsStatus(ended=ends, longest_s=longest_s))


def test_an_array_counts_as_one_run_of_its_longest_element():
    """It may have been submitted in two parts; an element that failed says nothing, and was submitted again."""
    records = [
        sent("1", "a", cores=2), began("a", 5.0, "1"), over("1", 70.0, "a", state=JobState.FAILED),
        sent("2", "a", cores=2), over("2", 90.0, "a", state=JobState.COMPLETED), done("a", 90.0, "2"),
    ]  # fmt: skip
    failed = ElementEnd(Elements.of([2]), JobState.FAILED, 1)
    [one] = of_array(records, part("1", 40.0, (failed,), JobState.FAILED), part("2", 20.0))
    assert (one.stage, one.cores, one.run_s, one.at_s, one.kind, one.input_size) == ("a", 2, 40.0, 90.0, "exact", 7.0)
    assert of_array(records[:3], part("1", 40.0, (failed,), JobState.FAILED)) == [], "as long as it has not completed"
    assert of_array(records, part("1", None), part("2", None)) == [], "of runs of versions that did not note it"
    [short] = of_array(records, part("1", None), part("2", 0.0))
    assert (short.run_s, short.kind) == (0.0, "exact"), "each began and ended within one second"


def test_an_element_that_reached_its_walltime_is_a_bound():
    killed = ElementEnd(Elements.of([2]), JobState.TIMEOUT)
    records = [sent("1", "a", cores=2), began("a", 5.0, "1"), over("1", 110.0, "a")]
    [one] = of_array(records, part("1", 100.0, (killed,), JobState.TIMEOUT))
    assert (one.run_s, one.kind) == (100.0, "at_least")
    again = [*records, sent("2", "a", cores=2), over("2", 400.0, "a", state=JobState.COMPLETED), done("a", 400.0, "2")]
    first, second = of_array(again, part("1", 100.0, (killed,), JobState.TIMEOUT), part("2", 130.0))
    assert (first.id, second.run_s, second.kind) == (second.id, 130.0, "exact")


def test_elements_that_take_turns_in_jobs_run_on_an_element_s_cores():
    """A job has several of them, so its own time says nothing."""
    records = [sent("1", "a", cores=2), began("a", 5.0, "1"), over("1", 70.0, "a", state=JobState.COMPLETED),
               done("a", 70.0, "1")]  # fmt: skip
    flow = ARRAY.in_turn(4, 4)
    assert flow.stages["a"].cores == 4, "two jobs of two cores"
    [one] = of_array(records, in_turn_s={"a": 30.0}, flow=flow)
    assert (one.cores, one.run_s, one.kind) == (2, 30.0, "exact")


# ---------------------------------------------------------------------- forecasts

some_times = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


@given(some_times, st.lists(st.booleans(), min_size=60, max_size=60), st.sampled_from([1, 4, 640]),
       st.sampled_from([None, 1e-3, 1.0, 1e6]), st.sampled_from(["hpc2n", "", "other"]))  # fmt: skip
def test_quantiles_ascend_whatever_was_seen(times, cut, cores, size, system):
    """And are finite and not negative."""
    seen = forecast(
        times, cores, size=size, system=system, sizes=[1 + i % 7 for i in range(len(times))],
        cut={i for i, is_cut in enumerate(cut) if is_cut},
    )  # fmt: skip
    assert list(seen.quantiles_s) == sorted(seen.quantiles_s)
    assert seen.quantiles_s[0] >= 0
    assert math.isfinite(seen.p99_s)
    assert seen.count == len(times)


@given(st.floats(0, 1e6), st.integers(1, 80))
def test_equal_run_times_are_forecast_exactly(run_s, count):
    """The p50 from the first on; all quantiles once enough were seen."""
    seen = forecast([run_s] * count)
    assert seen.p50_s == pytest.approx(run_s)
    if count >= 20:
        assert seen.quantiles_s == pytest.approx([run_s] * 4)
    if count < 5 and run_s > 10:
        assert seen.p90_s > 1.05 * run_s  # nobody is so sure yet


@given(some_times, st.floats(0.1, 100))
def test_longer_runs_are_forecast_longer(times, factor):
    """In the unit in which they were told, where they are long enough for a second not to matter."""
    long = [1e5 + t for t in times]
    assert forecast([factor * 100 * t for t in long]).quantiles_s == pytest.approx(
        [factor * 100 * q for q in forecast(long).quantiles_s], rel=1e-3
    )


def coverage(draw, count, tries=1500):
    """Share of next runs up to p90, and up to p99."""
    rng = np.random.default_rng(7)
    within = np.zeros(2)
    for _ in range(tries):
        *times, following = draw(rng, count + 1)
        seen = forecast(times)
        within += following <= seen.p90_s, following <= seen.p99_s
    return within / tries


@pytest.mark.full
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: 600 * rng.lognormal(0, 0.3, n),
        lambda rng, n: 300 + rng.exponential(300, n),
        lambda rng, n: np.where(rng.random(n) < 0.8, 600, 2400) * rng.lognormal(0, 0.05, n),
        lambda rng, n: 600 + 5 * rng.standard_normal(n),
    ],
    ids=["log-normal", "exponential", "two kinds", "steady"],
)
@pytest.mark.parametrize("count", [30, 100])
def test_p90_is_exceeded_by_one_run_in_ten(draw, count):
    """After 30 runs, of whatever distribution."""
    p90, p99 = coverage(draw, count)
    assert 0.85 <= p90 <= 0.95
    assert p99 >= 0.96


def test_few_runs_have_a_wide_range():
    """Five runs of a stage of usual spread: p90 holds about as often as it says."""
    p90, _ = coverage(lambda rng, n: 600 * rng.lognormal(0, 0.25, n), 5)
    assert 0.83 <= p90 <= 0.97


def test_a_shift_is_followed():
    """The input has doubled six runs ago."""
    seen = forecast([600.0] * 50 + [1200.0] * 6)
    assert 900 < seen.p50_s <= 1200
    assert seen.p90_s >= 1200


def test_an_outlier_does_not_move_the_middle():
    """A node was slow once."""
    assert forecast([600, 610, 590, 605, 6000, 600, 595]).p50_s == pytest.approx(600, rel=0.02)


def test_runs_that_were_cut_off_tell_that_it_takes_longer():
    """Taken for exact, they would teach that it always fits."""
    times = [3000, 3600, 3100, 3600, 2900, 3600]
    naive, seen = forecast(times), forecast(times, cut={1, 3, 5})
    assert seen.p50_s > naive.p50_s
    assert seen.p90_s > 3600
    assert (seen.cut_off, seen.longest_cut_s) == (3, 3600.0)
    assert seen.how == "from 6 runs, 3 of them cut off at the walltime"
    alone = forecast([3600.0], cut={0})
    assert alone.p50_s > 3600


@pytest.mark.parametrize("power", [0.0, 0.7, 1.0, 1.6])
def test_run_times_of_other_sizes_are_scaled(power):
    """By the power that they show; for a size four times the largest seen."""
    rng = np.random.default_rng(3)
    sizes = rng.choice([1, 2, 5, 10, 20], 30)
    times = 600 * sizes**power * rng.lognormal(0, 0.1, 30)
    times[4] *= 20  # an outlier
    seen = forecast(times, size=80.0, sizes=sizes)
    assert seen.p50_s == pytest.approx(600 * 80.0**power, rel=0.25)
    assert "scaled by input size" in seen.how


def test_one_size_is_scaled_in_proportion_and_with_doubt():
    """Until more is known. What is not scaled is as sure as ever."""
    times, sizes = [600.0] * 30, [10.0] * 30
    same = forecast(times, size=10.0, sizes=sizes)
    double = forecast(times, size=20.0, sizes=sizes)
    assert same.quantiles_s == pytest.approx([600.0] * 4)
    assert same.how == "from 30 runs"
    assert double.p50_s == pytest.approx(1200.0)
    assert double.p90_s > 1.3 * 1200
    assert forecast(times, size=None, sizes=sizes).p50_s == 600.0
    assert forecast(times, size=20.0).p50_s == 600.0  # no sizes were told


def test_another_width_is_a_guess_that_covers_all_scaling():
    """From none to perfect; what was seen on the width itself comes before, however little it is."""
    seen = forecast_run(runs([1600.0] * 30, 4), 16, system="hpc2n")
    assert 400 < seen.p50_s < 1600
    assert seen.quantiles_s[0] < 420
    assert seen.p90_s > 1550
    assert seen.is_guess
    assert seen.how == "from 30 runs, on 4 cores, a guess for 16 cores"
    both = forecast_run([*runs([1600.0] * 30, 4), *runs([500.0], 16)], 16, system="hpc2n")
    assert (both.p50_s, both.count, both.is_guess) == (500.0, 1, False)
    elsewhere = forecast_run([*runs([1600.0] * 30, 16, system="theta"), *runs([900.0], 64)], 16, system="hpc2n")
    assert (elsewhere.count, elsewhere.is_guess) == (30, True)


def test_the_run_times_of_all_stages_are_one_reading(tmp_path, monkeypatch):
    """A workflow of many stages asks for them once, not once a stage: at its beginning and at its end."""
    known = RunTimes(tmp_path)
    known.observe(run for n in range(40) for run in runs([600.0 + n, 610.0], stage=f"s{n}"))
    reads, read = [], known._segments.steadily
    monkeypatch.setattr(known._segments, "steadily", lambda gather: reads.append(1) or read(gather))
    stages = [Stage(f"s{n}", cores=4, walltime_s=3600, learns_run=True) for n in range(50)]
    expected = expect(Workflow("blast", stages), known, SITE)
    assert len(reads) == 1
    assert set(expected.forecasts) == {f"s{n}" for n in range(40)}
    assert {name: known.of("blast", name) for name in expected.forecasts} == known.by_stage("blast")


def test_a_forecast_is_quick():
    """For thousands of runs, too."""
    many = runs(np.random.default_rng(0).lognormal(6, 1, 5000), sizes=np.random.default_rng(1).integers(1, 9, 5000))
    began_s = time.perf_counter()
    forecast_run(many, 4, input_size=3.0, system="hpc2n")
    assert time.perf_counter() - began_s < 0.5


def test_on_a_real_log_ranges_hold_and_the_middle_errs_less(data, capsys):
    """Each user's jobs of one width and walltime as a stage that runs again and again, forecast one by one."""
    history = read_history(data / "swf" / "KTH-SP2-1996-2-unfiltered.swf.gz").first(6000)
    stages, told = {}, []
    columns = (history.user, history.cores, history.walltime_s, history.run_s, history.started)
    for user, cores, walltime_s, run_s, started in zip(*(column.tolist() for column in columns), strict=True):
        if user < 0 or not started or run_s < 0:
            continue
        known = stages.setdefault((user, cores, walltime_s), [])
        if len(known) >= 3:
            seen = forecast_run(known, cores)
            past = [run.run_s for run in known]
            told.append([run_s, seen.p50_s, seen.p90_s, seen.p99_s, past[-1], np.mean(past), np.median(past)])
        known.append(RunTime("log", "job", cores, run_s, float(len(known))))
    real, p50, p90, p99, *others = np.array(told).T

    def error(predicted):
        return float(np.mean(np.abs(np.log((predicted + 10) / (real + 10)))))

    covered = [float(np.mean(real <= quantile)) for quantile in (p50, p90, p99)]
    errors = [error(predicted) for predicted in (p50, *others)]
    with capsys.disabled():
        names = ("p50", "last", "mean", "median")
        errs = ", ".join(f"{name} {value:.3f}" for name, value in zip(names, errors, strict=True))
        within = ", ".join(f"{share:.3f}" for share in covered)
        sys.stdout.write(f"\n{len(real)} runs: within p50, p90, p99: {within}; mean |ln ratio|: {errs}\n")
    assert 0.45 <= covered[0] <= 0.6
    assert 0.85 <= covered[1] <= 0.95
    assert covered[2] >= 0.96
    assert errors[0] < min(errors[2:])
    assert errors[0] < 1.05 * errors[1]


# ---------------------------------------------------------------------- what is made of it


def test_only_stages_that_learn_expect_what_was_seen(tmp_path):
    """On this system's whole nodes; never more than the walltime."""
    flow = Workflow(
        "blast",
        [
            Stage("search", nodes=1, walltime_s=7200, expected_run_s=100, learns_run=True),
            Stage("merge", cores=4, walltime_s=600, expected_run_s=50, after=("search",)),
            Stage("plot", cores=4, walltime_s=600, expected_run_s=60, learns_run=True),
            Stage("slow", cores=4, walltime_s=600, learns_run=True),
        ],
    )
    log = RunTimes(tmp_path)
    assert expect(flow, log, SITE).workflow.stages == flow.stages
    for stage, run_s in (("search", 800.0), ("merge", 5.0), ("slow", 900.0)):
        log.observe(runs([run_s] * 5, stage=stage))
    found = expect(flow, log, SITE)
    assert [stage.expected_run_s for stage in found.workflow.stages.values()] == [800.0, 50, 60, 600]
    assert {name: known.how for name, known in found.forecasts.items()} == {
        "search": "from 5 runs",
        "slow": "from 5 runs",
    }
    assert found.workflow.walltime_s == flow.walltime_s


def test_what_would_not_fit_into_the_whole_is_not_expected(tmp_path):
    """The file says how long all may take together; the run is not refused for what was learned."""
    stages = [Stage(name, cores=4, walltime_s=600, expected_run_s=100, learns_run=True) for name in ("search", "b")]
    flow = Workflow("blast", [stages[0], Stage("b", cores=4, walltime_s=600, after=("search",))], walltime_s=800)
    RunTimes(tmp_path).observe(runs([300.0] * 5))
    found = expect(flow, RunTimes(tmp_path), SITE)
    assert found.workflow is flow
    assert "walltime of 13m20s" in found.trouble


def of_widths(law=None, until=(), own=8, learns=True, walltime_s=36_000.0, **shapes):
    points = tuple(RunAt(*one) for one in until)
    expected = run_time_at(own, points, law)
    moldable = Moldable((4, 8, 16, 32), points, law or Scaling(), **shapes)
    return Workflow("blast", [Stage("search", cores=own, walltime_s=walltime_s, learns_run=learns, moldable=moldable,
                                    expected_run_s=expected and expected.run_s)])  # fmt: skip


def learn(tmp_path, flow, *known):
    log = RunTimes(tmp_path)
    for cores, run_s in known:
        log.observe(runs([run_s] * 5, cores=cores))
    found = expect(flow, log, SITE)
    assert not found.trouble
    stage = found.workflow.stages["search"]
    return found, {shape.width: round(shape.run_s) for shape in stage.shapes}


def test_run_times_are_learned_at_each_width(tmp_path):
    """What ran wins over what the file says, there alone; the rest follows from both."""
    file = of_widths(until=((4, 8000.0), (8, 5000.0), (16, 3000.0)))
    found, run_s = learn(tmp_path, file, (8, 4000.0), (32, 1000.0), (64, 10.0))
    assert run_s == {4: 8000, 8: 4000, 16: 3000, 32: 1000}
    stage = found.workflow.stages["search"]
    assert stage.expected_run_s == 4000.0
    assert stage.run_spread > 0
    assert found.forecasts["search"].how == "from 5 runs"
    same = of_widths(until=((4, 8000.0), (8, 5000.0)), learns=False)
    assert expect(same, RunTimes(tmp_path), SITE).workflow.stages == same.stages


def test_a_width_that_never_ran_follows_from_those_that_did(tmp_path):
    found, run_s = learn(tmp_path, of_widths(), (4, 8000.0), (16, 2000.0))
    assert run_s == {4: 8000, 8: 4000, 16: 2000}  # 32 is beyond, and no law is named
    assert found.forecasts["search"].how == "from 10 runs on 4, 16 cores"
    assert found.forecasts["search"].p50_s == pytest.approx(4000)
    _, run_s = learn(tmp_path, of_widths(Scaling("amdahl")))
    assert run_s[32] == pytest.approx(1000, abs=20)


def test_one_width_that_ran_is_a_guess_for_its_own_as_ever(tmp_path):
    found, run_s = learn(tmp_path, of_widths(), (4, 8000.0))
    assert run_s == {4: 8000, 8: round(8000 * math.sqrt(0.5))}
    assert "a guess" in found.forecasts["search"].how
    _, run_s = learn(tmp_path, of_widths(until=((8, 5000.0),)))
    assert run_s == {4: 8000, 8: 5000}, "the file says what holds at 8"


def test_what_ran_longer_than_it_may_is_expected_to_run_as_long_as_it_may(tmp_path):
    said = {"walltime_at": ((8, 3600.0), (32, 1200.0)), "walltime_s": 3600.0}
    found, run_s = learn(tmp_path, of_widths(**said), (8, 9000.0), (32, 2000.0))
    assert run_s == {8: 3600, 16: round(math.sqrt(3600 * 1200)), 32: 1200}
    assert found.workflow.stages["search"].walltime_s == 3600.0
    found, run_s = learn(tmp_path / "other", of_widths(walltime_s=3600.0), (4, 9000.0), (16, 5000.0))
    assert run_s[8] == 3600, "between the two it takes longer than it may"


def test_only_whole_runs_on_this_system_tell_of_a_width(tmp_path):
    log = RunTimes(tmp_path)
    log.observe(runs([9.0] * 5, cores=16, system="elsewhere"))
    log.observe(runs([9.0] * 5, cores=32, cut=range(5)))
    stage = of_widths(until=((8, 5000.0),)).stages["search"]
    assert expect(Workflow("blast", [stage]), log, SITE).workflow.stages["search"].moldable == stage.moldable


def test_widths_that_are_given_the_same_cores_are_not_told_apart(tmp_path):
    """On nodes of its own, of 4 cores."""
    log = RunTimes(tmp_path)
    log.observe(runs([9.0] * 5))
    stage = Stage("search", cores=2, learns_run=True, exclusive=True, moldable=Moldable((2, 3, 8)))
    found = expect(Workflow("blast", [stage]), log, SITE).workflow.stages["search"]
    assert (found.expected_run_s, found.moldable) == (9.0, stage.moldable)
    nodes = Stage(
        "search", nodes=2, learns_run=True, moldable=Moldable((1, 2), scaling=Scaling("amdahl", parallel=1.0))
    )
    found = expect(Workflow("blast", [nodes]), log, SITE).workflow.stages["search"]
    assert [shape.run_s for shape in found.shapes] == pytest.approx([9.0, 4.5])


def steady(p99_s, *, p90_s=None, count=14, longest_s=None, cut_s=0.0, is_guess=False):
    p90_s = p99_s if p90_s is None else p90_s
    longest_s = p99_s if longest_s is None else longest_s
    return RunForecast((1.0, 1.0, p90_s, p99_s), count, int(cut_s > 0), longest_s, cut_s, "", is_guess)


@pytest.mark.parametrize(
    ("asked_min", "known", "verdict", "suggested_min"),
    [
        (120, steady(14 * 60), "less", 20),
        (120, steady(14 * 60, longest_s=40 * 60), "less", 45),  # a tenth more than the longest
        (120, steady(14 * 60, longest_s=80 * 60), "fits", 120),
        (30, steady(14 * 60), "less", 20),
        (20, steady(12 * 60), "fits", 20),
        (15, steady(14 * 60), "more", 20),
        (15, steady(8 * 60, count=2, cut_s=15 * 60), "more", 20),
        (120, steady(14 * 60, cut_s=15 * 60), "less", 20),  # it was cut off when it asked for less
        (120, steady(14 * 60, count=4), "unknown", 120),
        (120, steady(14 * 60, is_guess=True), "unknown", 120),
        (120, None, "unknown", 120),
    ],
)
def test_advice_on_a_walltime(asked_min, known, verdict, suggested_min):
    """Enough for p99 and the longest, where it pays; more where it is close or was cut off."""
    given_advice = advise("s", 60.0 * asked_min, known)
    assert (given_advice.verdict, given_advice.suggested_s / 60) == (verdict, suggested_min)


def test_no_more_is_advised_than_the_site_gives():
    """What cannot be had is no advice."""
    assert advise("s", 86400.0, steady(100_000.0), max_s=86400.0).verdict == "fits"
    assert advise("s", 43200.0, steady(100_000.0), max_s=86400.0).suggested_s == 86400.0


@given(st.floats(0, 1e7), st.floats(60, 1e7), st.integers(0, 100))
def test_advice_never_kills_what_ran_before(longest_s, asked_s, count):
    """A tenth above the longest at least, and less only where it is less by a third."""
    known = steady(longest_s / 2, longest_s=longest_s, count=count)
    found = advise("s", asked_s, known)
    if found.verdict == "less":
        assert found.suggested_s >= 1.1 * longest_s
        assert found.suggested_s <= asked_s * 2 / 3
    assert round_walltime(longest_s) >= longest_s

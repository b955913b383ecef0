"""The screens of a run: at every width, in every state."""

import io
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from asa.backends.simulated import Machine, SimulatedBackend
from asa.backends.simulated.engine import Engine, JobTable
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from asa.backend import Capabilities, Condition, JobState, JobStatus, StepTimes
from asa.cli import live
from asa.cli.events import event_line
from asa.cli.logs import last_lines, log_file
from asa.cli.runs import latest_job
from asa.cli.screen import draw, summary
from asa.cli.standing import metrics_of, stand
from asa.core.locks import Holder
from asa.records import Predicted
from asa.runner import Run, RunFolder, RunPlan, run_all
from asa.runner.course import RunEnding
from asa.runner.entries import Accepted, Begun, Claimed, Dropped, GivingUp, Intended, Reported, Stopped
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import load_strategy
from asa.strategies.base import Keep, PlannedJob
from asa.waits import WaitForecast
from asa.workflow import Stage, Workflow

NOW_S = 1_700_000_000.0
STAGES = tuple(
    Stage(name, cores=cores, walltime_s=7200, after=after, command="true")
    for name, cores, after in [
        ("fetch-the-references", 1, ()),
        ("project", 112, ("fetch-the-references",)),
        ("background", 56, ("project",)),
        ("add", 1, ("project", "background")),
    ]
)
FORECAST = WaitForecast((10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0), 300.0)
HOLDER = Holder("t", "login.ab12", 4711, NOW_S, NOW_S)


@pytest.fixture
def folder(tmp_path):
    site = Capabilities("site", 448, 28, age_accrues=False)
    plan = RunPlan("0123456789abcdef", "mosaic", "mosaic", STAGES, "asa", "slurm-rest", site, created_s=NOW_S)
    return RunFolder.create(tmp_path, plan)


def state_of(folder):
    state = RunState("mosaic", folder.plan.make_workflow(), folder.plan.capabilities, folder.plan.id)
    tell(state, Begun(NOW_S))
    return state


def tell(state, *entries):
    return [news for entry in entries for news in state.apply(entry)]


def submitted(state, *names, keep=Keep.NOTHING, job_id=None):
    planned = PlannedJob(names, NOW_S, keep, "now", FORECAST)
    spec = spec_of(state, planned)
    number = job_id or str(len(state.jobs) + 100)
    status = JobStatus(number, JobState.PENDING, NOW_S)
    tell(state, Intended(spec.token, planned, spec, NOW_S), Accepted(spec.token, status))
    return status


def shown(folder, state, width, *, now_s=NOW_S + 600, **options):
    run = stand(folder, state, [], now_s, condition=Condition(now_s - 12, **options), driver=HOLDER, next_s=now_s + 90)
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(draw(run, width))
    return file.getvalue()


def words(folder, state, now_s=NOW_S + 600):
    return {stage.stage: stage.state for stage in stand(folder, state, [], now_s).stages}


def test_every_state_has_its_words(folder):
    """A pending job is queued, dependent or held; an idle one is allocated."""
    state = state_of(folder)
    assert set(words(folder, state).values()) == {"waiting"}
    first = submitted(state, "fetch-the-references")
    assert words(folder, state)["fetch-the-references"] == "queued"
    tell(state, Reported(replace(first, reason="JobHeldUser", held=True)))
    assert words(folder, state)["fetch-the-references"] == "held"
    tell(state, Reported(replace(first, held=True, eligible_s=NOW_S, reason="Priority")))
    assert words(folder, state)["fetch-the-references"] == "queued", "it was released"
    second = submitted(state, "project", keep=Keep.AWAIT)
    assert words(folder, state)["project"] == "queued"
    tell(state, Reported(replace(second, state=JobState.RUNNING, eligible_s=NOW_S, start_s=NOW_S + 5)))
    assert words(folder, state)["project"] == "allocated"
    submitted(state, "background", keep=Keep.DEPENDENCY)
    assert words(folder, state)["background"] == "queued (dependency)"
    running = replace(first, state=JobState.RUNNING, eligible_s=NOW_S, start_s=NOW_S + 9, payload_start_s=NOW_S + 9)
    tell(state, Reported(running))
    assert words(folder, state)["fetch-the-references"] == "running"
    tell(state, GivingUp(second.job_id, "too early", NOW_S + 10))
    assert words(folder, state)["project"] == "being cancelled"
    tell(state, Reported(replace(running, state=JobState.TIMEOUT, end_s=NOW_S + 99, reason="TimeLimit")))
    assert words(folder, state)["fetch-the-references"] == "timed out"
    assert words(folder, state)["add"] == "blocked"


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_dropped_stage_has_no_job_and_no_wait(folder, has_begun):
    """Its job was for another stage, or is given back, so that the stage shows nothing of it."""
    state = RunState("mosaic", folder.plan.make_workflow(), folder.plan.capabilities, folder.plan.id)
    tell(state, Begun(NOW_S, fail_fast=False, is_open=True))
    status = submitted(state, "project")
    if has_begun:
        tell(state, Reported(replace(status, state=JobState.RUNNING, eligible_s=NOW_S, start_s=NOW_S + 5)))
    tell(state, Dropped(("project",), "Snakemake wants it no more", NOW_S + 6))
    predicted = [Predicted(time_s=NOW_S, run="mosaic", stages=("project",), wait_s=99.0, needed_s=NOW_S)]
    told = {one.stage: one for one in stand(folder, state, predicted, NOW_S + 600).stages}["project"]
    assert told.state == "dropped"
    assert told.reason == "Snakemake wants it no more"
    assert (told.job_id, told.wait_s, told.start_s, told.predicted_wait_s) == (None, None, None, None)
    assert told.cores == 112


def test_a_stage_that_could_never_start_is_refused(folder):
    """The refusal comes as soon as the host hands the stage over."""
    state = RunState("mosaic", folder.plan.make_workflow(), folder.plan.capabilities, folder.plan.id)
    tell(state, Begun(NOW_S, fail_fast=False, is_open=True))
    tell(state, Claimed("fetch-the-references", NOW_S, None, False, "could never start on site: 999 cores"))
    told = stand(folder, state, [], NOW_S + 600).stages[0]
    assert (told.state, told.reason) == ("refused", "could never start on site: 999 cores")
    assert words(folder, state)["project"] == "blocked"


@given(st.sampled_from(JobState), st.booleans(), st.sampled_from(["", "Dependency", "JobHeldAdmin", "Resources"]))
def test_what_is_pending_is_never_running(kind, keeps, reason):
    """The batch system's own words do not matter."""
    site = Capabilities("site", 448, 28, age_accrues=False)
    flow = RunPlan("0123", "m", "m", STAGES, "asa", "b", site).make_workflow()
    state = RunState("m", flow, site, "0123")
    submitted(state, "fetch-the-references")
    status = submitted(state, "project", keep=Keep.DEPENDENCY if keeps else Keep.NOTHING)
    started = None if kind is JobState.PENDING else NOW_S + 1
    told = replace(status, state=kind, reason=reason, start_s=started, payload_start_s=started)
    if kind.is_final:
        told = replace(told, end_s=NOW_S + 2)
    tell(state, Reported(told))
    path = Path("m")
    folder = type("Folder", (), {"path": path, "plan": None, "owner": "another", "last_left": lambda _: ""})()
    [stage] = [s for s in stand(folder, state, [], NOW_S + 5).stages if s.stage == "project"]
    assert (stage.state == "running") == (kind is JobState.RUNNING)


def test_stages_that_share_a_job_are_told_apart_by_its_steps(folder):
    """Some stages run, have run or wait; where nothing is reported, nothing is claimed."""
    state = state_of(folder)
    names = state.workflow.order
    status = submitted(state, *names)
    runs = replace(status, state=JobState.RUNNING, eligible_s=NOW_S, start_s=NOW_S, payload_start_s=NOW_S)
    tell(state, Reported(runs))
    assert set(words(folder, state).values()) == {"in a running job"}
    steps = (StepTimes(names[0], NOW_S, NOW_S + 5), StepTimes(names[1], NOW_S + 5))
    tell(state, Reported(replace(runs, steps=steps)))
    assert list(words(folder, state).values()) == ["done", "running", "waiting in its job", "waiting in its job"]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_the_table_fits(folder, width):
    """The terminal may have any width; reasons and the scheduler's own estimates are in the table or below it."""
    state = state_of(folder)
    first = submitted(state, "fetch-the-references")
    tell(state, Reported(replace(first, eligible_s=NOW_S, reason="Resources", expected_start_s=NOW_S + 1500)))
    submitted(state, "project", keep=Keep.DEPENDENCY)
    text = shown(folder, state, width, trouble="it does not answer")
    assert max(map(len, text.splitlines())) <= width
    told = " ".join(text.split())
    for said in ("Resources", "in 15m00s", "as of 12s ago", "it does not answer", "Next action", "10m00s+", "5m00s"):
        assert said in told
    assert ("Submitted" in text) == (width >= 110)


def test_waits_do_not_count_before_a_job_may_start(folder):
    """A dependent job gains no priority on this system."""
    state = state_of(folder)
    submitted(state, "fetch-the-references")
    second = submitted(state, "project", keep=Keep.DEPENDENCY)

    def project():
        return next(s for s in stand(folder, state, [], NOW_S + 600, driver=HOLDER).stages if s.stage == "project")

    assert project().wait_s is None
    tell(state, Reported(replace(second, eligible_s=NOW_S + 540)))
    assert project().wait_s == 60
    assert project().is_growing


def test_where_nobody_looks_times_stand_still(folder):
    """Later events are unknown."""
    state = state_of(folder)
    first = submitted(state, "fetch-the-references")
    tell(state, Reported(replace(first, eligible_s=NOW_S)))
    run = stand(folder, state, [], NOW_S + 9000, condition=Condition(NOW_S + 60))
    assert (run.state, run.age_s, run.stages[0].wait_s) == ("detached", 8940, 60)


def test_what_does_not_fit_on_the_screen_is_counted(folder):
    """Running stages are shown first."""
    state = state_of(folder)
    tell(state, Reported(replace(submitted(state, "fetch-the-references"), eligible_s=NOW_S)))
    run = stand(folder, state, [], NOW_S)
    file = io.StringIO()
    Console(file=file, width=80).print(draw(run, 80, 13))
    assert "1 more stages" in file.getvalue()
    assert "fetch-the-references" in file.getvalue()


def test_where_nothing_is_too_high_all_stages_are_shown_however_many(folder):
    run = stand(folder, state_of(folder), [], NOW_S)
    many = replace(run, stages=run.stages * 6000)
    assert len(many.stages) > 10_000
    began_s = time.process_time()
    _, table, *rest = draw(many, 80).renderables
    assert table.row_count == len(many.stages)
    _, table, *_ = draw(many, 80, len(many.stages)).renderables
    assert table.row_count == len(many.stages) - 10
    assert time.process_time() - began_s < 10.0, "as long as each is compared with few"
    assert "more stages" not in str(rest)


def test_the_summary_tells_the_metrics_and_events_are_lines(folder):
    """The run is on a simulated machine."""
    others = np.array([[0], [100], [100], [448]], dtype=np.int64)
    world = SimulatedBackend(Engine(448, JobTable(*others), now=0), Machine("m", 16, 28))
    run = Run(folder.plan.make_workflow(), load_strategy("chained"), name="mosaic")
    [result] = run_all(world, [run])
    lines = [line for record in result.records if (line := event_line(record)) is not None]
    assert all("\n" not in line for line in lines)
    assert lines[-1].endswith("the run completed")
    state = RunState("mosaic", run.workflow, folder.plan.capabilities, "x")
    state.ending.outcome = "completed"
    assert metrics_of(state, result.records).makespan_s > 0
    file = io.StringIO()
    standing = replace(stand(folder, state, result.records, NOW_S), metrics=metrics_of(state, result.records))
    Console(file=file, width=80).print(summary(standing))
    assert "critical path" in file.getvalue()


def test_the_longer_nothing_happens_the_less_is_drawn(monkeypatch):
    """The screen is drawn each second at first, once a minute at least, and whenever something happens."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    table = live.LiveTable(Console(file=io.StringIO(), force_terminal=True))
    assert table.due_s() == 0
    pauses = []
    while clock[0] < 36_000:
        table._shown_s, table._is_old = clock[0], False
        pauses.append(table.due_s())
        clock[0] += pauses[-1]
    assert pauses[0] == 1
    assert max(pauses) == pytest.approx(60)
    assert pauses == pytest.approx(sorted(pauses))
    assert len(pauses) < 800  # in ten hours
    table.happened(None)
    assert table.due_s() == 0


@given(st.lists(st.text("ab\n", max_size=30), max_size=20), st.integers(1, 12))
def test_the_last_lines_are_the_last_lines(tmp_path_factory, parts, count):
    """The length of the file does not matter."""
    file = tmp_path_factory.mktemp("logs") / "x"
    text = "\n".join(parts)
    file.write_text(text)
    assert last_lines(file, count) == "".join(text.splitlines(keepends=True)[-count:])


@pytest.mark.parametrize("pattern", ["mosaic_{}.{}.100.err", "mosaic_{}.{}-0a1b2c.err", "{1}.err"])
def test_the_output_of_a_job_is_found_by_its_token(folder, pattern):
    """A backend may name files in any way; the newest file counts, and no file of a token with the same beginning."""
    state = state_of(folder)
    status = submitted(state, "fetch-the-references")
    token = state.jobs[status.job_id].spec.token
    assert log_file(folder, state, "fetch-the-references", "err") is None
    (folder.path / "logs").mkdir()
    (folder.path / "logs" / pattern.format("fetch", f"{token}1")).touch()
    assert log_file(folder, state, "fetch-the-references", "err") is None
    ours = folder.path / "logs" / pattern.format("fetch", token)
    ours.touch()
    assert log_file(folder, state, "fetch-the-references", "err") == ours
    assert log_file(folder, state, "fetch-the-references", "out") is None
    assert log_file(folder, state, "project", "err") is None


def test_stages_of_one_job_are_told_apart(folder):
    """They are distinguished while the job runs, after a stage failed, and while the others wait again."""
    sided = tuple(
        replace(stage, after=("fetch-the-references",)) if stage.name == "background" else stage for stage in STAGES
    )
    last = Stage("mourn", cores=1, walltime_s=7200, after=("project",), when="failed", command="true")
    flow = Workflow("mosaic", [*sided, last])
    state = RunState("mosaic", flow, folder.plan.capabilities, folder.plan.id, ending=RunEnding(fail_fast=False))
    tell(state, Begun(NOW_S, fail_fast=False))
    assert words(folder, state)["mourn"] == "conditional"
    assert "runs if a stage that it depends on fails" in shown(folder, state, 160)
    names = ("fetch-the-references", "project", "background", "add")
    status = submitted(state, *names)
    running = replace(status, state=JobState.RUNNING, eligible_s=NOW_S, start_s=NOW_S, payload_start_s=NOW_S)
    steps = (StepTimes(names[0], NOW_S, NOW_S + 60, 1), StepTimes(names[1], NOW_S + 60, None, 112))
    tell(state, Reported(replace(running, steps=steps)))
    assert list(words(folder, state).values()) == [
        "done", "running", "waiting in its job", "waiting in its job", "conditional",
    ]  # fmt: skip
    tell(state, Reported(replace(status, restarts=1)))
    assert list(words(folder, state).values()) == ["done", "queued", "queued", "queued", "conditional"]
    tell(state, Reported(replace(running, restarts=1, steps=steps)))
    failed = replace(
        running, restarts=1, steps=steps, state=JobState.FAILED, end_s=NOW_S + 90, exit_code=3, reason="NonZeroExitCode"
    )
    tell(state, Reported(failed))
    assert list(words(folder, state).values()) == ["done", "failed", "waiting", "blocked", "waiting"]
    run = stand(folder, state, [], NOW_S + 600, driver=HOLDER)
    assert [stage.exit_code for stage in run.stages] == [0, 3, None, None, None]
    assert run.tally == "1 stage completed, 1 failed, 1 does not run"
    assert [stage.reason for stage in run.stages][1:4] == ["NonZeroExitCode", "", "stage 'project' failed"]
    assert "1 stage completed, 1 failed, 1 does not run" in shown(folder, state, 80)
    tell(state, Stopped("cancelled", "you asked for it", NOW_S + 100))
    assert list(words(folder, state).values()) == ["done", "failed", "not run", "blocked", "not run"]


def test_a_stage_that_is_tried_again_waits(folder):
    """The row says what happened to its job, whose output remains readable."""
    flow = Workflow("mosaic", [replace(STAGES[0], retries=1)])
    state = RunState("mosaic", flow, folder.plan.capabilities, folder.plan.id)
    tell(state, Begun(NOW_S))
    first = submitted(state, "fetch-the-references")
    started = replace(first, eligible_s=NOW_S, start_s=NOW_S, payload_start_s=NOW_S)
    tell(state, Reported(replace(started, state=JobState.FAILED, end_s=NOW_S + 9, exit_code=1)))
    [stage] = stand(folder, state, [], NOW_S + 10).stages
    assert (stage.state, stage.reason, stage.job_id) == ("waiting", "job 100 failed as it ran", None)
    assert latest_job(state, "fetch-the-references").status.job_id == "100"


def test_the_cores_that_a_job_lacks_for_a_stage_are_shown_with_that_stage(folder):
    """They are requested, pending or joined, and are never shown as a job of the stage's own."""
    state = state_of(folder)
    state.capabilities = replace(state.capabilities, shrink_by=1, grow_by=1)
    names = ("fetch-the-references", "project", "background")
    planned = PlannedJob(names, NOW_S, Keep.NOTHING, "now", widths=(1, 112, 56))
    spec = spec_of(state, planned)
    running = JobStatus("100", JobState.RUNNING, NOW_S, NOW_S, NOW_S, NOW_S)
    tell(state, Intended(spec.token, planned, spec, NOW_S), Accepted(spec.token, running))
    tell(state, Reported(replace(running, steps=(StepTimes(names[0], NOW_S, None, 1),))))
    more = PlannedJob(("project",), NOW_S + 700, Keep.NOTHING, "111 more cores for its job", joins="100")
    state.planned = (more,)
    told = shown(folder, state, 160).splitlines()
    [line] = [line for line in told if line.startswith("project")]
    assert line.split()[:7] == ["project", "waiting", "in", "its", "job", "100", "112"]
    assert line.rstrip().endswith("more cores requested in 1m40s")
    spec = spec_of(state, more)
    queued = JobStatus("101", JobState.PENDING, NOW_S + 700)
    [record] = tell(state, Intended(spec.token, more, spec, NOW_S), Accepted(spec.token, queued))
    state.planned = ()
    assert event_line(record)[21:] == (
        "project: submitted as job 101 to join job 100, 111 cores for 5h48m: 111 more cores for its job"
    )
    assert "111 more cores queued, as job 101" in shown(folder, state, 160)
    tell(state, Reported(replace(queued, state=JobState.RUNNING, start_s=NOW_S + 800)))
    assert "111 more cores joined, as job 101" in shown(folder, state, 160)
    joined = stand(folder, state, [], NOW_S + 900).stages
    assert [(stage.job_id, stage.state) for stage in joined][1:3] == [("100", "waiting in its job")] * 2
    lost = replace(running, state=JobState.FAILED, end_s=NOW_S + 900, exit_code=1)
    ended = replace(queued, state=JobState.COMPLETED, start_s=NOW_S + 800, end_s=NOW_S + 900)
    tell(state, Reported(lost), Reported(ended))
    assert latest_job(state, "project").status.job_id == "100"

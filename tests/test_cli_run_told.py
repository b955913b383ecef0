"""Notices about a run besides its events: trouble, holds, refusals, cancellations; at every width, as JSON."""

import io
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from asa.backend import Advice, Backend, Capabilities, Condition, ElementsStatus, JobState, JobStatus
from asa.cli import driving
from asa.cli.events import notice_line
from asa.cli.explain import explain
from asa.cli.live import JsonLines, Lines
from asa.cli.notices import Notices
from asa.cli.runs import advice_on, facility_of, remedy_on, retry_command
from asa.cli.screen import draw, summary
from asa.cli.standing import stand
from asa.cli.status import _headings, runs
from asa.core.locks import Holder
from asa.elements import parse_elements
from asa.errors import InputError
from asa.exactly_once import Cause
from asa.metrics import RunMetrics, StageTimes
from asa.runner import RunFolder, RunPlan, find_run
from asa.runner.entries import Accepted, Begun, GivenUp, GivingUp, Intended, Reported, Retried, Stopped, Unsent
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies.base import Keep, PlannedJob
from asa.workflow import Stage

NOW_S = 1_700_000_000.0
STAGES = (
    Stage("fetch", cores=1, walltime_s=7200, command="true"),
    Stage("project-the-images", cores=112, walltime_s=7200, after=("fetch",), command="true"),
    Stage("add", cores=1, walltime_s=7200, after=("project-the-images",), command="true"),
)
WORLD = Mock(spec=Backend)
HOLDER = Holder("t", "login.ab12", 4711, NOW_S, NOW_S)
SITE = Capabilities("site", 448, 28, age_accrues=False)


@pytest.fixture
def folder(tmp_path):
    plan = RunPlan(
        "0123456789abcdef", "mosaic", "mosaic", STAGES, "asa", "slurm-rest", SITE,
        settings={"url": "http://slurm.example.org:6820"}, created_s=NOW_S, source="/home/ann/mosaic.toml",
    )  # fmt: skip
    return RunFolder.create(tmp_path / "runs", plan)


class Case:
    """A run's state, and the journal that tells it."""

    def __init__(self, folder):
        self.folder = folder
        self.state = RunState("mosaic", folder.plan.make_workflow(), SITE, folder.plan.id)
        self.tell(Begun(NOW_S))

    def tell(self, *entries):
        with self.folder.driven() as journal:
            for entry in entries:
                journal.append(entry)
                list(self.state.apply(entry))

    def intend(self, name, keep=Keep.NOTHING):
        planned = PlannedJob((name,), NOW_S, keep, "now")
        spec = spec_of(self.state, planned)
        self.tell(Intended(spec.token, planned, spec, NOW_S))
        return spec.token

    def submit(self, name, keep=Keep.NOTHING):
        token = self.intend(name, keep)
        status = JobStatus(str(100 + len(self.state.jobs)), JobState.PENDING, NOW_S)
        self.tell(Accepted(token, status))
        return status

    def standing(self, **options):
        return stand(self.folder, self.state, [], NOW_S + 600, **options)

    def stage(self, name, **options):
        return next(stage for stage in self.standing(**options).stages if stage.stage == name)

    def drawn(self, width, **options):
        file = io.StringIO()
        Console(file=file, width=width, highlight=False).print(draw(self.standing(driver=HOLDER, **options), width))
        return file.getvalue()

    def explained(self, *arguments):
        done = CliRunner().invoke(
            _app(explain), [*arguments, "--runs", str(self.folder.path.parent)], env={"COLUMNS": "200"}
        )
        assert done.exit_code == 0, done.output
        return done.stdout


def _app(command):
    app = typer.Typer()
    app.command()(command)
    return app


@pytest.fixture
def case(folder):
    return Case(folder)


# ---------------------------------------------------------------------- trouble, holds, reasons


def advise(reason):
    return Advice("Somebody keeps it back.", "Let JOBID go.") if "Held" in reason else Advice("It is that.")


def told(notices, state=None, trouble="", at_s=NOW_S):
    return [notice_line(n)[21:] for n in notices.news(Condition(NOW_S, trouble), state, at_s)]


def test_trouble_is_told_when_it_begins_and_when_it_ends():
    """Each is announced once, however the message changes meanwhile, with a hint."""
    notices = Notices(advise, lambda trouble: "Bring a new token." if "expired" in trouble else "")
    assert told(notices) == []
    assert told(notices, trouble="nobody listens") == [
        "problem with the batch system: nobody listens. Trying again; jobs go on."
    ]
    assert told(notices, trouble="nobody listens") == []
    assert told(notices, trouble="no answer") == []
    [line] = told(notices, trouble="expired")
    assert line.endswith("Bring a new token.")
    assert told(notices, trouble="expired again") == []
    assert told(notices, at_s=NOW_S + 90) == ["the batch system answers again, after 1m30s"]
    assert told(notices) == []


@given(st.lists(st.sampled_from(["", "", "no answer", "refused"]), max_size=30))
def test_each_trouble_that_began_ends_once(troubles):
    """Beginnings and ends alternate."""
    notices = Notices(advise, lambda _: "")
    kinds = [n.kind for trouble in (*troubles, "") for n in notices.news(Condition(NOW_S, trouble), None, NOW_S)]
    assert kinds == ["trouble", "troubleover"] * (len(kinds) // 2)
    assert bool(kinds) == any(troubles)


def test_nobody_is_told_to_wait_for_a_job_of_which_nobody_has_heard(case):
    """While no client drives the run, the job may have been cancelled: the last report is given with its time."""
    status = case.submit("fetch")
    case.tell(Reported(replace(status, reason="Priority")))
    told = " ".join(case.explained("fetch").split())
    assert "it may have started or been cancelled since" in told
    assert "Reason given: Priority" in told
    assert "starts by itself" not in told


def test_holds_and_uncommon_reasons_are_told(case):
    """The notice has Slurm's own reason in parentheses; reasons that occur in every queue are left out."""
    notices = Notices(advise, lambda _: "")
    first = case.submit("fetch")

    def heard(reason):
        case.tell(Reported(replace(first, reason=reason)))
        return told(notices, case.state)

    assert heard("Priority") == heard("Resources") == heard("Dependency") == heard("") == []
    assert heard("JobHeldUser") == ["fetch: job 100 is on hold: Somebody keeps it back. Let 100 go. (JobHeldUser)"]
    assert heard("JobHeldUser") == []
    assert heard("Priority") == ["fetch: job 100 is not on hold any more"]
    assert heard("QOSUsageThreshold") == ["fetch: job 100 waits: It is that. (QOSUsageThreshold)"]
    assert heard("Priority") == heard("QOSUsageThreshold") == []
    assert heard("ReqNodeNotAvail, UnavailableNodes:n1") != []
    assert heard("ReqNodeNotAvail, UnavailableNodes:n2") == []


def test_elements_on_hold_are_told_whatever_the_others_do(case):
    notices = Notices(advise, lambda _: "")
    runs = replace(case.submit("fetch"), state=JobState.RUNNING, start_s=NOW_S, payload_start_s=NOW_S)

    def heard(held, running="1"):
        elements = ElementsStatus(running=parse_elements(running))
        if held:
            elements = replace(elements, held=parse_elements(held), held_reason="JobHeldUser")
        case.tell(Reported(replace(runs, elements=elements)))
        return told(notices, case.state)

    because = "Somebody keeps it back. Let 100 go. (JobHeldUser)"
    assert heard("") == []
    assert heard("2") == [f"fetch: element 2 of job 100 is on hold: {because}"]
    assert heard("2", "3") == []
    assert heard("2,5") == [f"fetch: elements 2,5 of job 100 are on hold: {because}"]
    assert heard("") == ["fetch: elements 2,5 of job 100 are not on hold any more"]
    assert heard("1,4,9,16,25,36,49,64,81,100,121,144,169,196") == [
        f"fetch: 14 elements of job 100 are on hold: {because}"
    ]


def test_notices_are_lines_or_json(capsys):
    """Output that is no terminal gets lines or JSON."""
    [notice] = Notices(advise, lambda _: "").news(Condition(NOW_S, "no answer"), None, NOW_S)
    Lines().noticed(notice)
    assert "no answer" in capsys.readouterr().out
    JsonLines().noticed(notice)
    line = json.loads(capsys.readouterr().out)
    assert (line["schema"], line["kind"], line["reason"]) == (1, "trouble", "no answer")


def test_a_token_from_the_environment_cannot_be_renewed(folder, monkeypatch, case):
    """Each mention of the trouble says so, and how to continue."""
    trouble = "http://slurm.example.org:6820: Slurm does not let us in (HTTP status 401)"
    words = remedy_on(facility_of(folder), folder, trouble)
    for said in ("$SLURM_JWT cannot be renewed in this process", "--option token_file=FILE", "asa resume "):
        assert said in words
    assert not remedy_on(facility_of(folder), folder, "http://slurm.example.org:6820: nobody listens there")
    text = " ".join(case.drawn(80, condition=Condition(NOW_S, trouble), remedy=words).split())
    assert "cannot be renewed" in text
    assert advice_on(facility_of(folder), "JobHeldUser").remedy


def test_who_waits_long_for_a_connection_is_told(monkeypatch):
    """The notice goes to stderr, and only appears after a long wait."""
    said = threading.Event()

    class Heard(io.StringIO):
        def flush(self):
            said.set()

    heard = Heard()
    monkeypatch.setattr(sys, "stderr", heard)
    monkeypatch.setattr(driving, "_LONG_S", 0.01)
    with driving.opened(lambda: said.wait(60) and WORLD) as world:
        assert world is WORLD
    assert heard.getvalue() == "Still connecting to the batch system ...\n"
    monkeypatch.setattr(driving, "_LONG_S", 60.0)
    with driving.opened(lambda: WORLD):
        pass
    assert heard.getvalue().count("\n") == 1


# ---------------------------------------------------------------------- refused, cancelled


def test_a_stage_that_was_refused_is_named_with_the_refusal(case):
    """The refusal is in the table, or below it if narrow, and in explanations; a resubmitted stage is not refused."""
    token = case.intend("fetch")
    case.tell(Stopped("failed", "stage 'fetch' was refused: Invalid qos. Name another.", NOW_S, token))
    assert (case.stage("fetch").state, case.stage("add").state) == ("refused", "not run")
    assert "fetch: refused: Invalid qos. Name another." in " ".join(case.drawn(80).split())
    assert "Invalid qos" in case.drawn(160)
    text = case.explained("fetch")
    for words in ("fetch: refused", "refused its job of 1 core for 2h00m", "Invalid qos", "in /home/ann/mosaic.toml"):
        assert words in text
    assert "asa resume --retry --workflow /home/ann/mosaic.toml" in text
    case.tell(Retried(NOW_S + 1))
    assert case.stage("fetch").state == "waiting"


def test_the_end_names_what_was_refused(case, capsys):
    """The summary also has the command to continue."""
    token = case.intend("fetch")
    case.tell(Stopped("failed", "stage 'fetch' was refused: Invalid qos", NOW_S, token))
    assert driving.tell_end(case.folder) == 1
    text = capsys.readouterr().err
    for words in ("stage 'fetch' was refused: Invalid qos", "asa explain fetch", "--workflow /home/ann/mosaic.toml"):
        assert words in text
    assert "asa logs" not in text


def test_what_asa_cancelled_is_told_apart_from_what_others_did(case):
    """There is no advice on the user's own cancellations."""
    first, second = case.submit("fetch"), case.submit("project-the-images", Keep.DEPENDENCY)
    case.tell(
        Reported(replace(first, state=JobState.CANCELLED, end_s=NOW_S + 9, reason="None")),
        GivingUp(second.job_id, "the workflow failed", NOW_S + 10),
        GivenUp(second.job_id, "the workflow failed", NOW_S + 10),
        Reported(replace(second, state=JobState.CANCELLED, end_s=NOW_S + 11, reason="DependencyNeverSatisfied")),
    )
    assert "cancelled, but not by asa" in case.explained("fetch")
    text = case.explained("project-the-images")
    assert "Job 101 was cancelled by asa, since the workflow failed." in text
    assert "DependencyNeverSatisfied" not in text
    assert "What to do" not in text
    assert case.stage("project-the-images").state == "blocked"
    assert "stage 'fetch' failed" in case.drawn(160)


def test_an_explanation_is_json_too(case):
    """The document has the same words."""
    case.submit("fetch")
    document = json.loads(case.explained("--output", "json"))
    assert (document["schema"], document["state"]) == (1, "detached")
    stages = {stage["stage"]: stage for stage in document["stages"]}
    assert (stages["fetch"]["state"], stages["fetch"]["job_id"]) == ("queued", "100")
    assert any("1 core for 2h00m" in line for line in stages["fetch"]["told"])


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("width", [44, 60, 80, 109, 110, 140])
def test_no_word_of_the_table_is_broken(case, width):
    """Columns are left out, and long states shortened."""
    first = case.submit("fetch")
    case.tell(Reported(replace(first, eligible_s=NOW_S, reason="Resources", expected_start_s=NOW_S + 1500)))
    case.submit("project-the-images", Keep.DEPENDENCY)
    text = case.drawn(width)
    assert max(map(len, text.splitlines())) <= width
    lines = text.splitlines()
    top = next(i for i, line in enumerate(lines) if line.startswith("Stage"))
    words = {word for line in lines[top : top + 4] for word in line.split()}
    for name in ("fetch", "project-the-images", "add", "queued", "waiting"):
        assert name in words
    assert words & {"dependent", "(dependency)"}
    assert {*lines[top].split()} <= {
        "Stage", "State", "Job", "Cores", "Submitted", "Waited", "Predicted", "Starts", "Ran", "Reason",
    }  # fmt: skip
    assert "Waited" in lines[top]


def test_the_summary_says_what_was_asked_for_again(case):
    """Its wait counts whatever happened in between."""
    stages = [replace(stage, resubmissions=stage.stage == "add") for stage in case.standing().stages]
    times = tuple(StageTimes(stage.stage, 1.0, 2.0, critical=True) for stage in stages)
    metrics = RunMetrics(10.0, 3.0, 1.0, 0.0, 0, 0, 0, 1, times)
    file = io.StringIO()
    Console(file=file, width=80).print(summary(replace(case.standing(), stages=stages, metrics=metrics)))
    [line] = [line for line in file.getvalue().splitlines() if line.startswith("add ")]
    assert line.rstrip().endswith("submitted again")
    assert file.getvalue().count("submitted again") == 2


def test_the_summary_of_many_stages_lists_what_tells_something(case):
    """The critical path, and what was submitted again or did not run; the others are counted."""
    one = case.standing().stages[0]
    stages = [replace(one, stage=f"s{n}", resubmissions=n == 77, state="done") for n in range(200)]
    times = tuple(StageTimes(f"s{n}", 1.0, 2.0, critical=n in {90, 150}) for n in range(200) if n != 120)
    metrics = RunMetrics(10.0, 3.0, 1.0, 0.0, 0, 0, 0, 1, times)
    file = io.StringIO()
    Console(file=file, width=80).print(summary(replace(case.standing(), stages=stages, metrics=metrics)))
    names = [line.split()[0] for line in file.getvalue().splitlines() if line.startswith("s") and line[1:2].isdigit()]
    assert names == [f"s{n}" for n in (*range(36), 77, 90, 120, 150)]
    assert "... and 160 more stages" in file.getvalue()


@pytest.fixture
def several(tmp_path):
    """Runs of long names, one of which cannot be read, in a folder."""
    place = tmp_path / "several"
    plan = RunPlan("aaaa", "a-run-with-a-long-name-for-a-narrow-table", "w", STAGES, "asa", "b", SITE, created_s=NOW_S)
    made = [RunFolder.create(place, plan)]
    made.append(RunFolder.create(place, replace(plan, id="bbbb", name="flow", created_s=NOW_S + 1)))
    made.append(RunFolder.create(place, replace(plan, id="cccc", name="flow2", created_s=NOW_S + 2)))
    made.append(RunFolder.create(place, replace(plan, id="dddd", name="flow", created_s=NOW_S + 3)))
    lost = place / "lost-1"
    lost.mkdir()
    (lost / "run.json").symlink_to("run.json")  # a loop, which nobody can read, root neither
    return place, [run.path.name for run in made]


def test_names_of_runs_are_whole_where_there_is_no_terminal(several):
    """Names are whole at any width; a run that cannot be read has a row with its path."""
    place, names = several
    shown = CliRunner().invoke(_app(runs), ["--runs", str(place)], env={"COLUMNS": "40"}).stdout
    for name in names:
        assert any(line.startswith(f"{name} ") for line in shown.splitlines())
    [row] = [line for line in shown.splitlines() if line.startswith("lost-1")]
    assert f"damaged: {place / 'lost-1' / 'run.json'}: cannot be read" in row
    assert len(shown.splitlines()) == 6


@pytest.mark.parametrize(
    ("width", "kept"),
    [(200, 5), (80, 4), (70, 3), (50, 2)],
)
def test_a_narrow_list_of_runs_loses_columns_not_letters(width, kept):
    """The name and the state stay."""
    cells = {
        "Run": _Cell(42), "Strategy": _Cell(14), "Done": _Cell(3), "Age": _Cell(5), "State": _Cell(100),
    }  # fmt: skip
    headings = _headings([cells], width)
    assert len(headings) == kept
    assert {"Run", "State"} <= {*headings}


class _Cell:
    def __init__(self, cell_len):
        self.cell_len = cell_len


# ---------------------------------------------------------------------- finding runs, changing them


def test_a_runs_own_name_wins_over_beginnings(several):
    """The latest run of that name is taken."""
    place, names = several
    assert find_run(place, "flow").path.name == names[3]
    assert find_run(place, "flow2").path.name == names[2]
    assert find_run(place, names[1]).path.name == names[1]
    with pytest.raises(InputError, match="several runs begin"):
        find_run(place, "flo")


def test_a_run_that_cannot_be_read_is_told_with_its_path(several):
    """The message differs from that for an absent run."""
    place, _ = several
    with pytest.raises(InputError, match=r"run\.json: cannot be read") as caught:
        find_run(place, "lost-1")
    assert "permissions" in caught.value.hint
    (place.parent / "file").touch()
    with pytest.raises(InputError, match=r"file: cannot be read"):
        find_run(place.parent / "file", "flow")
    with pytest.raises(InputError, match="there is no run here"):
        RunFolder(place / "nowhere")


def test_a_run_is_revised_as_a_whole(folder):
    folder.revise(source="/x/y.toml", parameters={"a": 1})
    plan = RunFolder(folder.path).plan
    assert (plan.source, plan.parameters, plan.stages) == ("/x/y.toml", {"a": 1}, folder.plan.stages)
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".run.json")]


def test_the_hint_names_the_file_from_here(folder, monkeypatch):
    """The hint has a relative path for a file in or below the current folder."""
    monkeypatch.chdir(folder.path)
    folder.revise(source=str(Path.cwd() / "flows" / "m.toml"))
    assert "--workflow flows/m.toml" in retry_command(folder)
    folder.revise(source="")
    assert "--workflow" not in retry_command(folder)


# ---------------------------------------------------------------------- submissions that are not accepted


LIMIT = "mosaic.fetch: is not accepted now: sbatch: error: AssocMaxSubmitJobLimit\nBatch job submission failed"


def test_what_is_not_accepted_is_told_with_the_reason_and_since_when(case):
    """The stage is resubmitted repeatedly, so a time of submission would say nothing."""
    for after_s in (60.0, 90.0, 120.0):
        token = case.intend("fetch")
        case.tell(Unsent(token, NOW_S + after_s, LIMIT))
    state, records = case.folder.state()
    told = stand(case.folder, state, records, NOW_S + 600, driver=HOLDER)
    [fetch] = [stage for stage in told.stages if stage.stage == "fetch"]
    assert (fetch.state, fetch.put_off_s, fetch.as_dict()["put_off_s"]) == ("waiting", NOW_S + 60, NOW_S + 60)
    for width in (80, 200):
        file = io.StringIO()
        Console(file=file, width=width, highlight=False).print(draw(told, width))
        shown = " ".join(file.getvalue().split())
        assert "not accepted since" in shown
        assert "AssocMaxSubmitJobLimit" in "".join(shown.split())
        assert "at once" not in shown
    behind = [PlannedJob((one.name,), NOW_S, Keep.NOTHING, "now") for one in STAGES if one.after]
    told = stand(case.folder, state, records, NOW_S + 600, driver=HOLDER, planned=behind)
    assert {one.plan for one in told.stages if one.stage != "fetch"} == {"submitted once fetch is accepted"}
    assert all(one.planned_s is None for one in told.stages)
    explained = " ".join(case.explained("fetch").split())
    assert "The batch system has not accepted it since" in explained
    assert "The limit of jobs in the queue is reached for its user or account." in explained
    case.submit("fetch")
    state, records = case.folder.state()
    assert all(stage.put_off_s is None for stage in stand(case.folder, state, records, NOW_S + 600).stages)


def test_a_stage_behind_others_of_its_kind_says_that_it_waits_for_its_turn(tmp_path):
    """Two jobs of a partition were deferred: the third is tried in its turn, one of another partition at once."""
    stages = [Stage(name, cores=1, walltime_s=60, command="x", partition="gpu") for name in "abc"]
    stages.append(Stage("d", cores=1, walltime_s=60, command="x"))
    plan = RunPlan("0" * 12, "flow", "flow", tuple(stages), "per-stage", "slurm-cli", SITE, created_s=NOW_S)
    case = Case(RunFolder.create(tmp_path, plan))
    for name in "ab":
        case.tell(Unsent(case.intend(name), NOW_S, LIMIT, cause=Cause.ANSWER))
    plans = [PlannedJob((name,), NOW_S, Keep.NOTHING, "now") for name in "abcd"]
    told = {one.stage: one for one in case.standing(driver=HOLDER, planned=plans).stages}
    assert all("AssocMaxSubmitJobLimit" in told[name].put_off for name in "ab")
    assert told["c"].plan == (
        "submitted in its turn: jobs for partition gpu are tried one at a time until one is accepted"
    )
    assert (told["c"].planned_s, told["d"].planned_s) == (None, NOW_S)
    case.submit("a")
    told = {one.stage: one for one in case.standing(driver=HOLDER, planned=plans).stages}
    assert told["c"].planned_s == NOW_S


def test_one_more_job_of_a_stage_that_is_not_accepted_is_told(tmp_path):
    stage = Stage("many", cores=4, walltime_s=600, tasks=("t",), jobs=(2, 2))
    plan = RunPlan("0" * 12, "flow", "flow", (stage,), "per-stage", "slurm-cli", SITE, created_s=NOW_S)
    case = Case(RunFolder.create(tmp_path, plan))
    case.submit("many")
    mate = PlannedJob(("many",), NOW_S, Keep.NOTHING, "one of 2", mate=1)
    spec = spec_of(case.state, mate)
    case.tell(Intended(spec.token, mate, spec, NOW_S), Unsent(spec.token, NOW_S, LIMIT, cause=Cause.ANSWER))
    [many] = case.standing(driver=HOLDER).stages
    assert (many.state, many.put_off_s) == ("queued", NOW_S)
    assert "one more job is not accepted since" in " ".join(case.drawn(200).split())
    assert "has not accepted one more job for it since" in " ".join(case.explained("many").split())


def test_a_wait_that_was_longer_than_predicted_is_no_hit_in_words(case):
    """A prediction of 5 s for a wait of 6.6 minutes led to no early allocation, but it was not accurate."""
    times = tuple(StageTimes(stage.name, 396.0, 60.0, critical=True) for stage in STAGES)
    metrics = RunMetrics(1.0, 1.0, 1.0, 0.0, hits=5, misses=1, undecided=0, resubmissions=0, stages=times, too_short=4)
    file = io.StringIO()
    Console(file=file, width=100).print(summary(replace(case.standing(), metrics=metrics)))
    assert "Predicted waits: 1 about right, 4 too short, 1 too long." in file.getvalue()

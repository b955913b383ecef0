"""The progress of a run, for notebooks and terminals."""

import io
import re
import sys
import types

import numpy as np
import pytest

from asa import Flow, QueuedJob, WaitBank, stage
from asa.backend import JobState, StepTimes
from asa.errors import InputError
from asa.progress import RunProgress, follower
from asa.records import Ended, Retrying, RunEnded, RunStarted, StageEnded, StageStarted, Started, Submitted
from asa.strategies.base import Keep
from asa.waits import LEVELS


def told():
    """A run of three stages, of which one is done, one runs, and one waits."""

    def submitted(time_s, name, cores):
        return Submitted(
            time_s=time_s, run="r", stages=(name,), job_id=f"j-{name}", cores=cores, walltime_s=60.0, keep=Keep.NOTHING,
            predicted_wait_s=None, resubmission=0, reason="",
        )  # fmt: skip

    def of(kind, time_s, name):
        return kind(time_s=time_s, run="r", stages=(name,), job_id=f"j-{name}")

    return [
        RunStarted(time_s=0.0, run="r"),
        submitted(0.0, "a<b>", 4),
        of(Started, 10.0, "a<b>"),
        of(StageStarted, 10.0, "a<b>"),
        submitted(20.0, "c", 8),
        of(StageEnded, 100.0, "a<b>"),
        of(Started, 110.0, "c"),
        of(StageStarted, 110.0, "c"),
    ]


STAGES = ("a<b>", "c", "d")


def test_a_line_says_how_far_a_run_is():
    progress = RunProgress("fit", STAGES, told())
    line = progress.line()
    assert repr(progress) == line
    assert line == "fit  [########                ]  1 of 3 stages done, 1 running; 1m50s so far"


def test_a_table_has_each_stage_with_its_state_and_times_and_no_markup_of_names():
    page = RunProgress("fit", STAGES, told())._repr_html_()
    rows = re.findall("<tr>(.*?)</tr>", page)[1:]
    cells = [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<td[^>]*>(.*?)</td>", row)] for row in rows]
    assert cells[0] == ["a&lt;b&gt;", "done", "4", "j-a&lt;b&gt;", "10s", "1m30s"]
    assert cells[1] == ["c", "running", "8", "j-c", "1m30s", "0s"]
    assert cells[2][:2] == ["d", "waiting"]
    assert '<progress value="1" max="3"' in page


def test_a_failure_and_what_follows_it():
    ended = Ended(
        time_s=200.0, run="r", stages=("c",), job_id="j-c", state=JobState.FAILED, cores=8, start_s=110.0,
        payload_start_s=110.0,
    )  # fmt: skip
    progress = RunProgress("fit", STAGES, [*told(), ended])
    assert progress.stages["c"].state == "failed"
    assert "1 failed" in progress.line()
    progress.add(Retrying(time_s=201.0, run="r", stages=("c",), job_id="j-c"))
    assert progress.stages["c"].state == "waiting"
    late = Ended(
        time_s=202.0, run="r", stages=("a<b>",), job_id="j-a<b>", state=JobState.COMPLETED, cores=4, start_s=10.0,
        payload_start_s=10.0,
    )  # fmt: skip
    progress.add(late)
    assert progress.stages["a<b>"].state == "done", "it stays so when its job has ended, too"


def test_the_wait_of_a_stage_is_that_of_its_job_not_the_run_time_of_stages_before_it_there():
    records = [
        Submitted(
            time_s=0.0, run="r", stages=("c", "d"), job_id="j", cores=4, walltime_s=60.0, keep=Keep.NOTHING,
            predicted_wait_s=None, resubmission=0, reason="",
        ),
        Started(time_s=5.0, run="r", stages=("c", "d"), job_id="j"),
        StageStarted(time_s=5.0, run="r", stages=("c",), job_id="j"),
        StageEnded(time_s=50.0, run="r", stages=("c",), job_id="j"),
        StageStarted(time_s=50.0, run="r", stages=("d",), job_id="j"),
    ]  # fmt: skip
    assert RunProgress("fit", STAGES, records[:3]).stages["d"].state == "waiting in its job"
    page = RunProgress("fit", STAGES, records)._repr_html_()
    assert page.count("<td>5s</td>") == 2


def test_the_steps_of_a_job_show_how_far_it_is_before_it_ends():
    progress = RunProgress("fit", STAGES, told())
    progress.reach([StepTimes("c", 110.0, 160.0), StepTimes("d", 160.0, None)])
    progress.now_s = 190.0
    assert [stage.state for stage in progress.stages.values()] == ["done", "done", "running"]
    page = progress._repr_html_()
    assert "<td>50s</td>" in page
    assert "<td>30s</td>" in page
    progress.reach([StepTimes("d", 160.0, 185.0, exit_code=1)])
    assert progress.stages["d"].state == "failed"


def test_of_many_stages_those_that_matter_are_in_the_table():
    names = [f"s{number}" for number in range(100)]
    progress = RunProgress("fit", [*names, "c"], told())
    page = progress._repr_html_()
    assert page.count("<tr>") == 1 + 40
    assert ">c<" in page
    assert "... and 61 more stages" in page


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_has_a_table_that_is_drawn_anew_and_a_file_nothing_unless_asked():
    stream = Terminal()
    show = follower(RunProgress("fit", STAGES), wanted=None, stream=stream)
    for record in [*told(), RunEnded(time_s=300.0, run="r", outcome="completed")]:
        show.add(record)
    show.close()
    last = stream.getvalue().rpartition("fit: ")[2]
    assert last.startswith("completed after 5m00s\n[########                ]  1 of 3 stages done, 1 running\n")
    assert re.search(r"c +\S*running", last)
    for wanted, lines in ((None, 0), (False, 0), (True, 1)):
        plain = io.StringIO()
        show = follower(RunProgress("fit", STAGES), wanted=wanted, stream=plain)
        for record in told():
            show.add(record)
        show.close()
        assert len(plain.getvalue().splitlines()) == lines


@pytest.fixture
def drawn(monkeypatch):
    """What a notebook shows, in order: the program runs in one."""
    pages = []

    class Handle:
        @staticmethod
        def update(shown):
            pages.append(shown._repr_html_())

    def display(shown, *, display_id):
        assert display_id
        assert "<table>" in shown._repr_html_()
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    module.display = types.ModuleType("IPython.display")
    module.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    return pages


def test_a_notebook_has_a_table_that_is_drawn_anew(drawn):
    show = follower(RunProgress("fit", STAGES), wanted=None, stream=io.StringIO())
    for record in [*told(), RunEnded(time_s=300.0, run="r", outcome="failed")]:
        show.add(record)
    show.close()
    assert "fit</b>: failed" in drawn[-1]


def test_while_nothing_happens_a_notebook_shows_how_long_stages_run(drawn, monkeypatch):
    """Also where the last record came so soon after another one that it was not drawn."""
    show = follower(RunProgress("fit", STAGES), wanted=None, stream=io.StringIO())
    for record in told():
        show.add(record)
    monkeypatch.setattr("asa.progress._LONGEST_LIVE_S", 0.0)  # a moment has passed
    show.look(170.0)
    assert re.search(r"running</span></td><td>8</td><td>j-c</td><td>1m30s</td><td>1m00s</td>", drawn[-1])


def test_what_is_shown_of_a_flow_a_stage_and_a_bank_is_short():
    flow = Flow("mosaic")
    assert repr(flow) == "Flow('mosaic', 0 stages)"
    made = flow.stage("project", "true " * 100, cores=4, walltime="20min")
    assert repr(made).startswith("Stage(name='project', cores=4, walltime_s=1200.0, command='true")
    assert len(repr(made)) < 140
    assert repr(flow) == "Flow('mosaic', 1 stage: project)"
    fan = flow.stage("fan", "true", array="1-20%4", after=made)
    assert "array=Array('1-20%4')" in repr(fan)
    assert "moldable=Moldable(widths=(2, 4))" in repr(flow.stage("wide", "true", cores=[2, 4]))
    for number in range(20):
        flow.stage(f"s{number}", "true")
    assert repr(flow).endswith(", s4, ...)")
    bank = WaitBank(seed=1)
    bank.predict(QueuedJob(0.0, 4, 3600.0, system="here"))
    assert repr(bank) == "WaitBank('asa', 0 waits learned of 'here')"


@stage(cores=2, walltime="5min")
def fitted(x):
    return x


def test_what_is_shown_of_a_function_and_its_calls_is_its_name_not_the_command_of_its_job():
    assert repr(fitted) == "StageFunction(fitted, cores=2, walltime='5min')"
    assert repr(fitted.bind(3)) == "Call(fitted, cores=2, walltime='5min')"
    assert (
        repr(Flow("x").call(fitted.bind(3))) == "Stage(name='fitted', cores=2, walltime_s=300.0, command=<fitted(...)>)"
    )


def test_a_forecast_is_shown_with_its_quantiles_which_have_names():
    forecast = WaitBank(seed=1).predict(QueuedJob(0.0, 4, 3600.0))
    assert (forecast.p10, forecast.p50, forecast.p90) == tuple(forecast.at(level) for level in (0.1, 0.5, 0.9))
    assert re.fullmatch(r"WaitForecast\(\w+ \(p10 \w+ to p90 \w+\)\)", repr(forecast))


def test_many_requests_are_arrays_in_and_out():
    bank = WaitBank("asa-queue", seed=1)
    cores = np.array([[1, 8], [64, 512]])
    waits = bank.predict_many(cores, 3600.0, system="s")
    assert waits.shape == (2, 2)
    one = bank.predict(QueuedJob(0.0, 64, 3600.0, system="s"))
    assert tuple(waits[1, 0])[: len(LEVELS)] == one.quantiles_s
    assert waits["wait_s"][1, 0] == one.wait_s
    with pytest.raises(InputError, match="differ in shape"):
        bank.predict_many([1, 2], [60.0, 60.0, 60.0])
    assert bank.predict_many([], 60.0).shape == (0,)

"""The progress of a run, for notebooks and terminals."""

import io
import re
import sys
import types

import numpy as np
import pytest

from asa import Flow, QueuedJob, WaitBank
from asa.backend import JobState
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
    line = RunProgress("fit", STAGES, told()).line()
    assert line == "fit  [########                ]  1 of 3 stages done, 1 running, 1m50s so far"


def test_a_table_has_each_stage_with_its_state_and_times_and_no_markup_of_names():
    page = RunProgress("fit", STAGES, told())._repr_html_()
    rows = re.findall("<tr>(.*?)</tr>", page)[1:]
    cells = [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<td>(.*?)</td>", row)] for row in rows]
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


def test_a_terminal_has_one_line_that_is_written_anew_and_a_file_none_unless_asked():
    stream = Terminal()
    show = follower(RunProgress("fit", STAGES), wanted=None, stream=stream)
    for record in [*told(), RunEnded(time_s=300.0, run="r", outcome="completed")]:
        show(record)
    written = stream.getvalue()
    assert written.count("\r") == 9
    assert written.endswith("\n")
    for wanted, lines in ((None, 0), (False, 0), (True, 1)):
        plain = io.StringIO()
        show = follower(RunProgress("fit", STAGES), wanted=wanted, stream=plain)
        for record in told():
            show(record)
        assert len(plain.getvalue().splitlines()) == lines


def test_a_notebook_has_a_table_that_is_drawn_anew(monkeypatch):
    drawn = []

    class Handle:
        @staticmethod
        def update(shown):
            drawn.append(shown.outcome)

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
    show = follower(RunProgress("fit", STAGES), wanted=None, stream=io.StringIO())
    for record in [*told(), RunEnded(time_s=300.0, run="r", outcome="failed")]:
        show(record)
    assert drawn[-1] == "failed"


def test_what_is_shown_of_a_flow_a_stage_and_a_bank_is_short():
    flow = Flow("mosaic")
    assert repr(flow) == "Flow('mosaic', 0 stages)"
    made = flow.stage("project", "true " * 100, cores=4, walltime="20min")
    assert repr(made).startswith("Stage(name='project', cores=4, walltime_s=1200.0, command='true")
    assert len(repr(made)) < 140
    assert repr(flow) == "Flow('mosaic', 1 stage: project)"
    for number in range(20):
        flow.stage(f"s{number}", "true")
    assert repr(flow).endswith(", s6, ...)")
    bank = WaitBank(seed=1)
    bank.predict(QueuedJob(0.0, 4, 3600.0, system="here"))
    assert repr(bank) == "WaitBank('asa', 0 waits learned of 'here')"


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

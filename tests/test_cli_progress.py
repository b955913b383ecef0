"""The progress of long commands without a terminal, and their continuation."""

import signal
import sys
import time

import pytest
from forked import Command

from asa.cli import progress
from asa.cli.compiling import compile_if_lacking
from asa.cli.progress import with_progress
from asa.estimators import readiness
from asa.estimators.choice import NOT_COMPILED


def test_there_is_a_line_now_and_then(capsys, monkeypatch):
    """Commands that take seconds print none."""
    now_s = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s[0])

    def work(on_progress):
        for done in range(100):
            on_progress("running cells", done, 100)
            now_s[0] += 1.0
        return "done"

    assert with_progress(work) == "done"
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "running cells: 20 of 100, after 20s"
    assert len(lines) == 4


def test_a_phase_in_which_code_is_compiled_is_told_of_at_once_and_once(capsys):
    def work(on_progress):
        for done in range(3):
            on_progress("running workflows, while faster code for them is compiled", done, 3)
            on_progress("running cells", done, 3)

    with_progress(work)
    told = capsys.readouterr().err
    assert told.splitlines() == ["running workflows, while faster code for them is compiled: 0 of 3, after 0s"]


@pytest.mark.parametrize("begins", [True, False])
def test_code_that_is_compiled_for_later_is_told_of_in_the_reason_for_an_estimator_and_not_again(
    capsys, monkeypatch, begins
):
    monkeypatch.setattr(readiness, "compile_later", lambda: begins)
    monkeypatch.setattr(readiness, "is_short", lambda _bank: False)
    why = compile_if_lacking(NOT_COMPILED, None, quiet=False)
    assert ("is being compiled in the background" in why) == begins
    assert begins or why == NOT_COMPILED
    assert not capsys.readouterr().err
    monkeypatch.setattr(readiness, "is_short", lambda _bank: True)
    assert not compile_if_lacking("", None, quiet=False)
    assert ("what would do better is being compiled" in capsys.readouterr().err) == begins


@pytest.mark.parametrize("kept", [None, "kept.jsonl"])
def test_who_interrupts_it_is_told_how_it_goes_on(capsys, monkeypatch, kept):
    """The message appears if there are partial results to continue from."""
    monkeypatch.setattr(sys, "argv", ["/usr/bin/asa", "campaign", "paper", "--results", "a file"])

    def work(on_progress):
        on_progress("running cells", 1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_progress(work, kept=kept)
    told = capsys.readouterr().err
    assert ("the same command continues from there: asa campaign paper --results 'a file'" in told) == (
        kept is not None
    )


@pytest.mark.full
def test_an_interrupted_campaign_says_so_and_goes_on(tmp_path):
    kept = tmp_path / "kept.jsonl"
    started = Command("campaign", "paper", "--seeds", 20, "--jobs", 1, "--results", kept, cwd=tmp_path)
    for _ in range(600):
        if kept.exists():
            break
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert f"are in {kept}; the same command continues from there: asa campaign paper" in err

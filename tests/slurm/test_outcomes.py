"""The outcome that a job's script reports, on real daemons: programs keep their exit codes, files may come late."""

import threading
import time

import pytest
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import until
from trial.verdict import entries_in

from asa.backend import JobState
from asa.outcome import JobOutcome
from asa.records import Ended


@pytest.mark.parametrize("link", LINKS)
def test_a_programs_own_exit_code_is_tried_again_as_any_other(slurm, link):
    """Also codes by which a job's script reports that an input is missing, or that another job runs the stage."""
    codes = dict(zip("abcdefgh", (82, 84, 86, 88, 89, 90, 91, 124), strict=True))
    stages = [
        stage(name, then=f"[ -e once.{name} ] || {{ touch once.{name}; exit {code}; }}", retries=1)
        for name, code in codes.items()
    ]
    run = SlurmRun(slurm, stages, link=link, strategy="per-stage")
    result = run.result()
    assert result.outcome == "completed", result.reason
    assert run.ran == dict.fromkeys(codes, 2)
    marks = [mark.read_text() for mark in (run.folder.path / "marks").glob("*/ended")]
    assert sum("outcome=failed" in mark for mark in marks) == len(codes)


@pytest.mark.parametrize("link", LINKS)
def test_what_comes_late_is_waited_for_and_what_comes_later_is_tried_again(slurm, link):
    """A file system shows one file two seconds after the end of the stage that wrote it, and another after eight."""
    as_users = {"environment": (("ASA_LATENCY_S", ""),)}
    stages = [
        stage("a", then="rm -rf out"),
        stage("b", "a", then="cat out/soon", inputs=("out/soon",), outputs=("out/too",), **as_users),
        stage("c", "a", then="cat out/later", inputs=("out/later",), input_patience_s=1.0, retries=2, **as_users),
    ]
    run = SlurmRun(slurm, stages, link=link, strategy="per-stage")
    out = run.place / "out"

    def disk():
        until(lambda: run.ran["a"], what="the first stage")
        time.sleep(2.0)
        out.mkdir(exist_ok=True)
        for name, after_s in (("soon", 0.0), ("too", 3.0), ("later", 3.0)):
            time.sleep(after_s)
            (out / name).write_text("x")

    shown = threading.Thread(target=disk, daemon=True)
    shown.start()
    result = run.result()
    shown.join(10)
    assert result.outcome == "completed", result.reason
    assert run.ran == {"a": 1, "b": 1, "c": 1}, "what waited in vain did not begin"
    failed = [one for one in result.records if isinstance(one, Ended) and one.state is JobState.FAILED]
    assert failed
    assert {one.stages for one in failed} == {("c",)}
    assert said_of(run, "c") == {JobOutcome.INPUT_MISSING}


def said_of(run, name):
    """Return how the jobs of a failed stage ended, by the journal."""
    entries = list(entries_in((run.folder.path / "journal.jsonl").read_bytes()))
    ours = {job["JobId"] for job in run.jobs().get(name, ())} | {
        entry["status"]["job_id"]
        for entry in entries
        if entry["kind"] == "accepted" and f"-{ord(name) - ord('a') + 1}-" in entry["token"]
    }
    ends = [entry["status"] for entry in entries if entry["kind"] == "told" and entry["status"]["job_id"] in ours]
    return {JobOutcome(end["outcome"]) for end in ends if end["state"] == "failed"}

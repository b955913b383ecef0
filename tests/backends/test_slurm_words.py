"""All states of jobs that Slurm reports are known; for states of later versions a job's times decide."""

import ctypes
import ctypes.util
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.slurm.commands.reading import QueueFormat, RecordFormat
from asa.backends.slurm.explanations import advice
from asa.backends.slurm.reasons import kind
from asa.backends.slurm.rest import reading
from asa.backends.slurm.states import STATES, ended_as, is_held, status_of

from asa.backend import JobState

DESCRIPTIONS = Path(os.environ.get("ASA_DATA") or "../shared/data") / "slurm-openapi"
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm/libslurmfull.so")
NOW = time.time()


def states_in(document):
    """Find what a description lists as states of jobs."""
    if isinstance(document, dict):
        listed = document.get("enum", ())
        if "PENDING" in listed and "RUNNING" in listed:
            yield from listed
        for value in document.values():
            yield from states_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from states_in(value)


@pytest.mark.skipif(not DESCRIPTIONS.is_dir(), reason="the published descriptions are not here")
def test_every_state_of_every_description_is_known():
    found = {path.name: set(states_in(json.loads(path.read_text()))) for path in DESCRIPTIONS.glob("slinky-v*.json")}
    assert len(found) >= 6
    assert set().union(*found.values()) == STATES.keys()
    assert "EXPEDITING" not in found["slinky-v0043-slurm-openapi.gen.json"]
    assert "EXPEDITING" in found["slinky-v0044-slurm-openapi.gen.json"]


@pytest.mark.parametrize("word", STATES)
def test_a_state_is_taken_as_the_table_says(word):
    record = reading.record({
        "job_id": 7, "name": "x", "job_state": [word], "submit_time": NOW - 900, "start_time": NOW - 800, "nodes": "n1",
        "end_time": NOW + 9000, "time_limit": 600,
    })  # fmt: skip
    state = status_of(record, NOW).state
    wanted = STATES[word].kind
    assert (ended_as(record) is not None) is state.is_final is (wanted == "ended")
    assert (state is JobState.PENDING) is (wanted in {"waits", "held"})


def library():
    try:
        reason = ctypes.CDLL(str(LIBRARY)).slurm_job_reason_string
    except (OSError, AttributeError):
        pytest.skip("Slurm's library of 22.05 is not here")
    reason.restype = ctypes.c_char_p
    return {name for n in range(300) if not (name := reason(n).decode()).isdecimal()}


def test_every_reason_of_slurm_is_known():
    unknown = {name for name in library() if kind(name) == "unknown"}
    assert unknown <= {"None", "InvalidReason"}


@pytest.mark.parametrize(
    "reason",
    [
        "MpiPortsBusy", "MaxPoweredUpNodes", "NvidiaImexChannels", "Constraints", "MaxBBRunMinsPerUser",  # since 24.11
        "Reservation later was deleted", "job requeued in special exit state",
        "PrologSlurmctld failed, job killed", "RESV_DEL_HOLD (ReservationDeleted)",
    ],
)  # fmt: skip
def test_reasons_of_newer_releases_are_known(reason):
    assert kind(reason) != "unknown"


@pytest.mark.parametrize(
    "reason",
    [
        "JobHeldUser", "JobHeldAdmin", "SPECIAL_EXIT (JobHeldUser)", "REQUEUE_HOLD", "RESV_DEL_HOLD",
        "ReservationDeleted", "BadConstraints", "Constraints", "DependencyNeverSatisfied", "BurstBufferOperation",
        "InvalidAccount", "job requeued in held state", "launch failed requeued held", "QOSMinGRES",
    ],
)  # fmt: skip
def test_of_what_never_starts_by_itself_nothing_else_is_said(reason):
    told = advice(reason)
    assert told.remedy
    assert "by itself" not in told.remedy


# ---------------------------------------------------------------------- words that nobody knows

FIELDS = {
    "JobArrayID": "7", "UserName": "ada", "Reason": "None", "EligibleTime": "110", "AccrueTime": "110",
    "NumCPUs": "4", "NumNodes": "1", "Partition": "long", "RestartCnt": "0", "Dependency": "(null)",
    "TimeLimit": "1:00:00",
}  # fmt: skip


def by_squeue(*, start_s, end_s, nodes, code, word):
    fields = FIELDS | {
        "State": word, "SubmitTime": f"{NOW - 9000:.0f}", "StartTime": _time(start_s), "EndTime": _time(end_s),
        "NodeList": nodes, "exit_code": f"{code}:0",
    }  # fmt: skip
    line = "".join(f"{fields[name]}|" for name in QueueFormat._FIELDS)
    (record,) = QueueFormat("@").read(f"7@{line}x@(null)@\n")
    return record


def by_rest(*, start_s, end_s, nodes, code, word):
    return reading.record({
        "job_id": 7, "name": "x", "user_name": "ada", "job_state": [word], "submit_time": NOW - 9000, "nodes": nodes,
        "start_time": start_s or 0, "end_time": end_s or 0, "time_limit": 60, "state_reason": "None",
        "exit_code": {"return_code": {"set": True, "number": code}},
    })  # fmt: skip


def _time(time_s):
    return f"{time_s:.0f}" if time_s else "N/A"


@pytest.mark.parametrize("read", [by_squeue, by_rest])
@pytest.mark.parametrize("word", ["FROBBING", "EXPEDITING"])
@pytest.mark.parametrize(
    ("start_s", "end_s", "nodes", "code", "state"),
    [
        (None, None, "", 0, JobState.PENDING),
        (500, 4100, "", 0, JobState.PENDING),  # as Slurm expects it
        (-50, -50, "", 0, JobState.CANCELLED),
        (-500, 3100, "n1", 0, JobState.RUNNING),
        (-4000, -400, "n1", 0, JobState.RUNNING),  # beyond its walltime, as a site may allow
        (-500, 3100, "n1", 7, JobState.RUNNING),  # the code is of its last start
        (-500, -100, "n1", 7, JobState.FAILED),
        (-500, -100, "n1", 0, JobState.FAILED),  # a success would say so by its mark
        (-100, -100, "n1", 0, JobState.FAILED),  # as a job that took less than a second
    ],
)
def test_a_job_of_a_state_that_says_nothing_is_where_its_times_say(read, word, start_s, end_s, nodes, code, state):
    """Times are given relative to now."""
    start_s, end_s = (None if time_s is None else NOW + time_s for time_s in (start_s, end_s))
    record = read(start_s=start_s, end_s=end_s, nodes=nodes, code=code, word=word)
    status = status_of(record, NOW)
    assert status.state is state
    assert (ended_as(record) is not None) is state.is_final
    assert word in record.states
    assert (status.start_s is not None) is bool(nodes)
    if word not in STATES:
        assert status.reason == word


def test_an_unknown_word_is_shown_with_the_newest_reason():
    record = reading.record({
        "job_id": 7, "name": "x", "job_state": ["PENDING", "FROBBING"], "submit_time": 5, "state_reason": "Priority"
    })  # fmt: skip
    assert status_of(record, NOW).reason == "FROBBING (Priority)"
    assert "FROBBING (Priority)" in advice("FROBBING (Priority)").meaning


@pytest.mark.parametrize(("has_ended", "state"), [(False, JobState.RUNNING), (True, JobState.FAILED)])
def test_accounting_says_by_a_time_that_a_job_has_ended(has_ended, state):
    end = f"{NOW - 100:.0f}" if has_ended else "Unknown"
    fields = {
        "JobIDRaw": "7", "JobID": "7", "User": "ada", "State": "FROBBED by 5", "Submit": f"{NOW - 900:.0f}",
        "Eligible": f"{NOW - 900:.0f}", "Start": f"{NOW - 800:.0f}", "End": end, "TimelimitRaw": "60", "ReqCPUS": "4",
        "AllocCPUS": "4", "NNodes": "1", "NodeList": "n7", "Partition": "long", "ExitCode": "0:0", "JobName": "x",
        "Comment": "",
    }  # fmt: skip
    [record] = RecordFormat("@").read("@".join(fields.values()) + "@\n")
    assert status_of(record, NOW).state is state


@pytest.mark.parametrize("word", ["SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD"])
def test_what_slurm_holds_waits_and_is_held(word):
    record = by_squeue(start_s=None, end_s=None, nodes="", code=7, word=word)
    assert status_of(record, NOW).state is JobState.PENDING
    assert status_of(record, NOW).reason == word
    assert kind(word) == "held"
    released = replace(record, reason="BeginTime")  # as Slurm has it until the job starts
    assert (is_held(record), is_held(released)) == (True, False)
    assert status_of(released, NOW).reason == "BeginTime"

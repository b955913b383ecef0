"""Reading the output of sacct: strange lines are counted or refused."""

import gzip
import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from asa.backends.slurm.accounting import SACCT_COMMAND, read_history
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import TraceError
from asa.units import format_walltime

NOON = 1709294400  # 2024-03-01T12:00:00 UTC
NAMES = ("JobID", "User", "Partition", "Submit", "Eligible", "Start", "End", "State", "TimelimitRaw", "ReqCPUS")


def clock(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def job(number=1, wait=300, run=60, /, **changes):
    """Describe a valid job by column, submitted the given minutes after noon, with changes."""
    submit = NOON + 60 * number
    told = {
        "JobID": str(number),
        "User": "ada",
        "Partition": "batch",
        "Submit": clock(submit),
        "Eligible": clock(submit),
        "Start": clock(submit + wait),
        "End": clock(submit + wait + run),
        "State": "COMPLETED",
        "TimelimitRaw": "60",
        "ReqCPUS": "4",
    }
    return told | changes


def text(*jobs, names=None, end="\n", trailing=""):
    names = names or list(dict.fromkeys([*NAMES, *(name for told in jobs for name in told)]))
    lines = ["|".join(names), *("|".join(told.get(name, "") for name in names) for told in jobs)]
    return "".join(line + trailing + end for line in lines)


@pytest.fixture
def read(tmp_path):
    def read(*jobs, zone=UTC, raw=None, **layout):
        path = tmp_path / "jobs.txt"
        path.write_bytes((text(*jobs, **layout) if raw is None else raw).encode())
        return read_history(path, zone=zone)

    return read


def test_a_job_is_read_as_it_is_told(read):
    """The test checks every column of a history."""
    history = read(job(2, 0, 7, User="bob", ReqCPUS="128", TimelimitRaw="1440"), job(1, Partition="gpu"))
    assert history.submit_s.tolist() == [NOON + 60, NOON + 120]
    assert history.wait_s.tolist() == [300, 0]
    assert history.run_s.tolist() == [60, 7]
    assert history.cores.tolist() == [4, 128]
    assert history.walltime_s.tolist() == [3600, 86400]
    assert history.started.tolist() == [True, True]
    assert [history.users[place] for place in history.user] == ["ada", "bob"]
    assert [history.partitions[place] for place in history.partition] == ["gpu", "batch"]
    assert history.oddities == {}
    assert (history.system, history.machine_cores) == ("", 0)


GONE = {"Start": "Unknown", "State": "CANCELLED by 1234", "End": clock(NOON + 60 + 900)}
KEPT_BACK = "kept back at first: waits from when it was eligible"
NO_START = "ended before it started: waited at least so long"
BACKWARDS = "ended before its start by the clock: run time unknown"
STILLBORN = "cancelled in the second of its start: never started, waited at least so long"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"JobID": "7.batch"}, "left out: step of a job"),
        ({"JobID": "7.0"}, "left out: step of a job"),
        ({"JobID": "7.extern"}, "left out: step of a job"),
        ({"JobID": "7_3.batch"}, "left out: step of a job"),
        ({"JobID": "7+0.batch"}, "left out: step of a job"),
        ({"JobID": "7+1"}, "left out: part of a heterogeneous job"),
        ({"User": "ada|eve"}, "left out: not the fields of the first line"),
        ({"User": "ada\neve"}, "left out: not the fields of the first line"),
        ({"State": "PENDING", "Start": "Unknown", "End": "Unknown"}, "left out: still pending"),
        ({"JobID": "7_[5-9%2]", "State": "PENDING", "Start": "None", "End": "Unknown"}, "left out: still pending"),
        ({"State": "REVOKED"}, "left out: revoked, another cluster started it"),
        ({"Reservation": "maintenance"}, "left out: in a reservation"),
        ({"Restarts": "1"}, "left out: requeued, its first record is not there"),
        ({"Reason": "JobArrayTaskLimit"}, "left out: held by its user, an administrator or its own array's limit"),
        ({"Reason": "JobHeldUser"}, "left out: held by its user, an administrator or its own array's limit"),
        (GONE | {"Eligible": "Unknown"}, "left out: never eligible"),
        (GONE | {"Eligible": clock(NOON + 5000)}, "left out: never eligible"),
        ({"State": "CANCELLED", "Start": GONE["End"], "End": GONE["End"], "Eligible": "Unknown"},
         "left out: never eligible"),
        ({"Start": "Unknown"}, "left out: submission, or both start and end, unknown"),
        (GONE | {"End": "Unknown"}, "left out: submission, or both start and end, unknown"),
        ({"Submit": "Unknown"}, "left out: submission, or both start and end, unknown"),
        ({"Start": clock(NOON)}, "left out: wait below 0, as if a clock was set"),
        ({"Eligible": clock(NOON + 9999)}, "left out: wait below 0, as if a clock was set"),
        ({"ReqCPUS": "0"}, "left out: width 0 or unknown"),
        ({"ReqCPUS": ""}, "left out: width 0 or unknown"),
        ({"ReqCPUS": "9" * 400}, "left out: width 0 or unknown"),
    ],
)  # fmt: skip
def test_what_tells_no_wait_is_left_out_and_counted(read, odd, words):
    """A valid job beside it stays."""
    history = read(job(1, **odd), job(5))
    assert history.submit_s.tolist() == [NOON + 300]
    assert [count for said, count in history.oddities.items() if said == words] in ([1], [2])
    assert [said for said in history.oddities if said.startswith("left out")] == [words]


@pytest.mark.parametrize(
    ("odd", "words", "begin", "wait", "started"),
    [
        ({"Eligible": clock(NOON + 160)}, KEPT_BACK, NOON + 160, 200, True),
        ({"Eligible": "Unknown"}, None, NOON + 60, 300, True),
        ({"Eligible": clock(NOON)}, None, NOON + 60, 300, True),
        (GONE, NO_START, NOON + 60, 900, False),
        (GONE | {"Start": "None", "State": "CANCELLED"}, NO_START, NOON + 60, 900, False),
        (GONE | {"Start": "N/A", "State": "DEADLINE"}, NO_START, NOON + 60, 900, False),
        (GONE | {"Start": "", "State": "FAILED"}, NO_START, NOON + 60, 900, False),
        (GONE | {"JobID": "7_[5-9]"}, NO_START, NOON + 60, 900, False),
        (GONE | {"Start": GONE["End"]}, STILLBORN, NOON + 60, 900, False),
        (GONE | {"Start": GONE["End"], "State": "DEADLINE"}, STILLBORN, NOON + 60, 900, False),
        (GONE | {"Start": "0"}, NO_START, NOON + 60, 900, False),
        ({"State": "CANCELLED", "End": clock(NOON + 300)}, BACKWARDS, NOON + 60, 300, True),
        ({"State": "FAILED", "End": clock(NOON + 360)}, None, NOON + 60, 300, True),
        ({"State": "CANCELLED by 0"}, None, NOON + 60, 300, True),
        ({"State": "RUNNING", "End": "Unknown"}, None, NOON + 60, 300, True),
        ({"JobID": "7_3"}, None, NOON + 60, 300, True),
        ({"Restarts": "0", "Reservation": "", "Reason": "Priority"}, None, NOON + 60, 300, True),
        ({"Reservation": "None", "Reason": "Dependency"}, None, NOON + 60, 300, True),
    ],
)
def test_a_wait_counts_for_what_it_tells(read, odd, words, begin, wait, started):
    """The wait has a start, a length, and says whether it is a lower bound."""
    history = read(job(1, **odd))
    assert history.submit_s.tolist() == [begin]
    assert history.wait_s.tolist() == [wait]
    assert history.started.tolist() == [started]
    assert history.oddities == ({words: 1} if words else {})


def test_the_run_time_is_what_lies_between_start_and_end(read):
    """It is unknown while a job runs, or if it never ran; it is taken from Elapsed where there is no End."""
    alive = job(2, State="RUNNING", End=clock(NOON + 9999))
    assert read(job(1, 300, 0, State="FAILED"), alive, job(3, **GONE)).run_s.tolist() == [0, -1, -1]
    names = [name for name in NAMES if name != "End"]
    for column, told in (("ElapsedRaw", "93784"), ("Elapsed", "1-02:03:04")):
        assert read(job(1, **{column: told}), names=[*names, column]).run_s.tolist() == [93784]
    cancelled = job(1, State="CANCELLED by 7", Elapsed="00:00:00")
    assert read(cancelled, names=[*names, "Elapsed"]).started.tolist() == [False]


def test_of_a_requeued_job_the_first_record_is_kept(read):
    """The first record is the one submitted first, wherever it is in the file."""
    first = job(1, 300, State="REQUEUED")
    again = [job(2, 999, JobID="1"), job(3, 5, JobID="1", Restarts="2")]
    for order in ([first, *again], [again[1], first, again[0]]):
        history = read(*order)
        assert (history.submit_s.tolist(), history.wait_s.tolist()) == ([NOON + 60], [300])
        assert history.oddities == {"left out: told again, as sacct -D tells what was requeued": 2}


def test_jobs_of_one_second_stay_in_the_order_of_the_file(read):
    """A user's script may submit many jobs in one second."""
    told = [job(number % 3, number, JobID=str(number)) for number in range(100)]
    assert read(*told).wait_s.tolist() == sorted(range(100), key=lambda number: number % 3)


def test_records_of_other_jobs_are_not_taken_for_requeued_ones(read):
    """They are other tasks of an array, or another user's job after ids began anew."""
    assert len(read(job(1, JobID="7_1"), job(2, JobID="7_2"), job(3, JobID="7"), job(4, JobID="7", User="bob"))) == 4


def test_files_put_one_after_the_other_are_one(read):
    """A job that was pending or running in the first has its end in the second; the second header is no job."""
    pending = job(1, State="PENDING", Start="Unknown", End="Unknown")
    running = job(2, State="RUNNING", End="Unknown")
    history = read(raw=text(pending, running) + text(job(1), job(2)))
    assert history.wait_s.tolist() == [300, 300]
    assert history.run_s.tolist() == [60, 60]
    assert history.oddities == {"left out: told again, as sacct -D tells what was requeued": 2}


@pytest.mark.parametrize("digits", [12, 400, 5000])
def test_numbers_without_end_are_no_crash(read, digits):
    """Python refuses to parse very long numbers."""
    endless = "9" * digits
    history = read(job(1, TimelimitRaw=endless), job(2, ReqCPUS=endless), job(3, Restarts=endless), job(4))
    assert history.submit_s.tolist() == [NOON + 60, NOON + 240]
    assert np.isfinite(history.walltime_s).all()
    names = [name for name in NAMES if name != "End"]
    assert read(job(1, ElapsedRaw=endless), names=[*names, "ElapsedRaw"]).run_s[0] < float("inf")


@pytest.mark.parametrize("spelled", ["UNLIMITED", "Partition_Limit", "", "Unknown", "0", "00:00:00", "soon"])
def test_where_there_is_no_limit_seven_days_stand_for_it(read, spelled):
    """Requests of other jobs do not matter."""
    rows = [job(1, TimelimitRaw=spelled), job(2, TimelimitRaw="600"), job(3, TimelimitRaw="60")]
    rows += [job(4, TimelimitRaw="6000", Partition="other"), job(5, TimelimitRaw=spelled, Partition="third")]
    history = read(*rows)
    assert history.walltime_s.tolist() == [7 * 86400, 36000, 3600, 360000, 7 * 86400]
    assert history.oddities == {"no limit of its own: 7 days taken": 2}


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [("1-02:03:04", 93784), ("02:00:00", 7200), ("30:00", 1800), ("365-00:00:00", 31536000), ("90", 5400)],
)
@pytest.mark.parametrize("name", ["Timelimit", "TimelimitRaw"])
def test_limits_are_read_in_every_spelling(read, spelled, seconds, name):
    """A bare number is minutes in both columns."""
    names = [*(known for known in NAMES if known != "TimelimitRaw"), name]
    assert read(job(1, **{name: spelled}), names=names).walltime_s.tolist() == [seconds]


@pytest.mark.parametrize(
    ("columns", "cores"),
    [
        ({"ReqCPUS": "4", "AllocCPUS": "32"}, 4),
        ({"ReqCPUS": "0", "AllocCPUS": "32"}, 32),
        ({"NCPUS": "48"}, 48),
        ({"ReqTRES": "billing=9,cpu=16,gres/gpu=2,mem=64G,node=1"}, 16),
        ({"ReqTRES": "cpu=16"}, 16),
        ({"ReqTRES": "billing=7,mem=1G,node=1", "AllocTRES": "billing=7,cpu=2,mem=1G"}, 2),
        ({"NNodes": "12"}, 12),
        ({"ReqNodes": "2K"}, 2048),
    ],
)
def test_the_width_is_found_where_it_is(read, columns, cores):
    """Requested sizes come before allocated ones, and processors before nodes."""
    names = [*(known for known in NAMES if known != "ReqCPUS"), *columns]
    history = read(job(1, **columns), names=names)
    assert history.cores.tolist() == [cores]
    counted = {"no cores told: nodes stand for them": 1} if "odes" in names[-1] else {}
    assert history.oddities == counted


@pytest.mark.parametrize(
    "written",
    ["2024-03-01T12:00:00", "2024-03-01 12:00:00", "1709294400", "2024-03-01T12:00:00+0000",
     "2024-03-01T13:00:00+01:00", "2024-03-01T07:00:00-0500", "2024-03-01T12:00:00Z"],
)  # fmt: skip
def test_times_are_read_in_every_spelling(read, written):
    """All spellings mean the same time."""
    assert read(job(1, Submit=written)).submit_s.tolist() == [NOON + 60]  # from when it was eligible
    assert read(job(1, Submit=written), names=[n for n in NAMES if n != "Eligible"]).submit_s.tolist() == [NOON]


@pytest.mark.parametrize(
    "written",
    ["12:00:00", "yesterday", "2024-02-30T12:00:00", "2024-03-01T25:00:00", "2024-03-01T12:60:00",
     "2024-03-01T1a:00:00", "2024-03-01T12:00:00+99:00", "1709294400000", "9" * 400, "²", "Fri 12:00"],
)  # fmt: skip
def test_a_time_that_cannot_be_read_is_refused_by_line(read, tmp_path, written):
    """The hint says how to print a better file."""
    with pytest.raises(TraceError, match=r"Start is '.*', which is no time") as caught:
        read(job(1), job(2, Start=written), job(3))
    assert caught.value.where == f"{tmp_path / 'jobs.txt'}:3"
    assert SACCT_COMMAND in caught.value.hint


@pytest.fixture
def central_europe(monkeypatch):
    """Set the local zone by its rule instead of its name, so that no time zone database is needed."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_clock_times_are_local_ones(read, central_europe):
    """The test covers winter and summer."""
    winter = job(1, Submit="2024-01-05T12:00:00", Eligible="", Start="2024-01-05T12:10:00", End="2024-01-05T13:00:00")
    summer = job(2, Submit="2024-07-05T12:00:00", Eligible="", Start="2024-07-06T12:00:00", End="2024-07-06T13:00:00")
    history = read(winter, summer, zone=None)
    expected = [datetime(2024, month, 5, 12 - offset, tzinfo=UTC).timestamp() for month, offset in ((1, 1), (7, 2))]
    assert history.submit_s.tolist() == expected
    assert history.wait_s.tolist() == [600, 86400]


@pytest.mark.parametrize(
    ("submit", "start", "wait"),
    [
        ("2024-03-31T01:30:00", "2024-03-31T03:30:00", 3600),  # set forward at 2
        ("2024-03-30T12:00:00", "2024-03-31T12:00:00", 23 * 3600),
        ("2024-03-31T00:10:00", "2024-03-31T23:10:00", 22 * 3600),
        ("2024-10-27T01:30:00", "2024-10-27T03:30:00", 3 * 3600),  # set back at 3
        ("2024-10-27T01:30:00", "2024-10-27T02:30:00", 3600),
        ("2024-10-26T12:00:00", "2024-10-27T12:00:00", 25 * 3600),
        ("2024-03-31T02:30:00", "2024-03-31T03:30:00", 0),  # a time that never was
        ("2024-10-27T02:50:00", "2024-10-27T02:10:00", None),  # 20 minutes in truth
    ],
)
@pytest.mark.parametrize("local", [False, True])
def test_no_change_of_clocks_raises(read, request, submit, start, wait, local):
    """Waits across a change are right where the clock is unambiguous."""
    if local:
        request.getfixturevalue("central_europe")
    told = job(1, Submit=submit, Eligible="Unknown", Start=start, End="2024-11-01T00:00:00")
    history = read(told, job(9), zone=None if local else ZoneInfo("Europe/Stockholm"))
    expected = [300] if wait is None else [300, wait]
    assert history.wait_s.tolist() == expected
    assert history.oddities == ({"left out: wait below 0, as if a clock was set": 1} if wait is None else {})


def test_a_cluster_is_the_system(read, tmp_path):
    """Clusters have separate queues, so several cannot be one system."""
    assert read(job(1, Cluster="alpha"), job(2, Cluster="alpha")).system == "alpha"
    with pytest.raises(TraceError, match=r"several clusters \(alpha, beta\)") as caught:
        read(job(1, Cluster="alpha"), job(2, Cluster="beta"))
    assert "-M" in caught.value.hint


def test_without_eligible_what_was_kept_back_is_known_by_its_reason_only(read):
    """Other jobs' waits count from their submission, and a note says so."""
    names = [*(name for name in NAMES if name != "Eligible"), "Reason"]
    history = read(job(1, Reason="Dependency"), job(2, Reason="BeginTime"), job(3, Reason="Resources"), names=names)
    assert history.submit_s.tolist() == [NOON + 180]
    assert history.oddities == {
        "left out: held by its user, an administrator or its own array's limit": 2,
        "no column Eligible: waits from its submission": 1,
    }


@pytest.mark.parametrize("missing", ["JobID", "Submit", "Start", "State", "TimelimitRaw", "ReqCPUS"])
def test_a_missing_column_is_named_with_the_command_that_prints_it(read, tmp_path, missing):
    """All missing columns are named at once."""
    with pytest.raises(TraceError, match=f"has no column {missing}\n") as caught:
        read(job(1), names=[name for name in NAMES if name != missing])
    assert caught.value.where == f"{tmp_path / 'jobs.txt'}:1"
    assert SACCT_COMMAND in caught.value.hint


def test_several_missing_columns_are_named_together(read):
    """A single run of the command then suffices."""
    with pytest.raises(TraceError, match="no column State and no column ReqCPUS and no column TimelimitRaw"):
        read(job(1), names=["JobID", "Submit", "Start"])


def test_what_sacct_prints_for_people_is_refused(read):
    """Its columns are truncated."""
    with pytest.raises(TraceError, match="default output"):
        read(raw="JobID           JobName  Partition      State\n------- ---------- ---------- ----------\n")


@pytest.mark.parametrize(
    "other", ["a|b\n1|2\n", "1|2|3\n", "; MaxProcs: 4\n1 2 3\n", "JobID,Submit,Start\n", "|\n", "\n"]
)
def test_files_of_other_kinds_are_left_to_others(read, other):
    """The reader does not guess."""
    assert read(raw=other) is None


def test_a_file_without_a_usable_job_is_refused_with_the_reasons(read):
    """A file with only its header is refused, too."""
    with pytest.raises(TraceError, match=r"no job whose wait is known \(1 left out: still pending; 2 left out: width"):
        read(job(1, State="PENDING"), job(2, ReqCPUS="0"), job(3, ReqCPUS="0"))
    with pytest.raises(TraceError, match="no lines but the first"):
        read()


def test_the_command_asks_for_all_that_is_needed(read):
    """A file with just the command's columns is read without a single fallback."""
    names = SACCT_COMMAND.rsplit(" ", 1)[1].split(",")
    assert set(NAMES) <= set(names)
    told = job(1, **{name: str(NOON + at) for at, name in enumerate(["Submit", "Eligible", "Start", "End"])})
    assert SACCT_COMMAND.startswith("SLURM_TIME_FORMAT=%s ")
    history = read(told | {"Eligible": str(NOON)}, names=names)
    assert (history.submit_s.tolist(), history.wait_s.tolist(), history.oddities) == ([NOON], [2], {})


def test_names_that_are_no_utf_8_do_not_stop_the_reading(tmp_path):
    """A job's name may be anything that its user typed."""
    path = tmp_path / "jobs"
    path.write_bytes(b"\xef\xbb\xbf" + text(job(1, JobName="x\u2028y")).encode() + b"\xff|\xfe\n")
    history = read_history(path, zone=UTC)
    assert history.wait_s.tolist() == [300]
    assert history.oddities == {"left out: not the fields of the first line": 1}


JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "submit": st.integers(NOON, NOON + 40 * 86400),
            "held": st.integers(0, 3) | st.integers(0, 10**5),
            "wait": st.integers(0, 10**6),
            "run": st.integers(1, 10**6),
            "cores": st.integers(1, 10**6),
            "limit_min": st.integers(1, 10**5),
            "user": st.sampled_from(["ada", "bob", "zoë", ""]),
            "partition": st.sampled_from(["batch", "gpu", "a,b", ""]),
            "fate": st.sampled_from(["COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED by 7", "never"]),
        }
    ),
    min_size=1,
    max_size=15,
)
TIMES = {
    "epoch": str,
    "clock": clock,
    "offset": lambda seconds: datetime.fromtimestamp(seconds, timezone(timedelta(hours=-5))).strftime("%FT%T%z"),
}
LIMITS = {"TimelimitRaw": str, "Timelimit": lambda minutes: format_walltime(60 * minutes)}
WIDTHS = {
    "ReqCPUS": str,
    "AllocCPUS": str,
    "NCPUS": str,
    "ReqTRES": lambda cores: f"billing=1,cpu={cores},mem=4G",
    "AllocTRES": lambda cores: f"cpu={cores},node=1",
}


@given(
    JOBS,
    st.sampled_from(sorted(TIMES)),
    st.sampled_from(sorted(LIMITS)),
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(["JobID", "JobIDRaw"]),
    st.sampled_from(["Unknown", "None", ""]),
    st.sampled_from(["", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.randoms(),
)
def test_any_jobs_in_any_layout_are_read_back(
    tmp_path, jobs, times, limit, width, ident, none, trailing, end, packed, luck
):
    """Columns have any order and case, others in between, and steps between the jobs; files are plain or compressed."""
    rows = []
    for number, told in enumerate(jobs):
        at = TIMES[times]
        ready = told["submit"] + told["held"]
        row = {
            ident: str(number),
            "User": told["user"],
            "Partition": told["partition"],
            "Submit": at(told["submit"]),
            "Eligible": at(ready),
            "Start": none if told["fate"] == "never" else at(ready + told["wait"]),
            "End": at(ready + told["wait"] + (told["run"] if told["fate"] != "never" else 0)),
            "State": "CANCELLED by 7" if told["fate"] == "never" else told["fate"],
            limit: LIMITS[limit](told["limit_min"]),
            width: WIDTHS[width](told["cores"]),
            "JobName": "sim",
            "ExitCode": "0:0",
        }
        rows += [row, row | {ident: f"{number}.batch", "User": ""}]
    names = list(rows[0])
    luck.shuffle(names)
    raw = text(*rows, names=names, end=end, trailing=trailing)
    header, rest = raw.split(end, 1)
    raw = (luck.choice([str.lower, str.upper, str])(header) + end + rest).encode()
    path = tmp_path / "jobs"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    history = read_history(path, zone=UTC)
    expected = sorted(jobs, key=lambda told: told["submit"] + told["held"])
    assert history.submit_s.tolist() == [told["submit"] + told["held"] for told in expected]
    assert history.wait_s.tolist() == [told["wait"] for told in expected]
    assert history.cores.tolist() == [told["cores"] for told in expected]
    assert history.walltime_s.tolist() == [60 * told["limit_min"] for told in expected]
    assert history.started.tolist() == [told["fate"] != "never" for told in expected]
    assert history.run_s.tolist() == [told["run"] if told["fate"] != "never" else -1 for told in expected]
    assert [history.users[place] if place >= 0 else "" for place in history.user] == [told["user"] for told in expected]
    sent = [history.partitions[place] if place >= 0 else "" for place in history.partition]
    assert sent == [told["partition"] for told in expected]
    assert history.oddities.get("left out: step of a job") == len(jobs)
    assert history.oddities.get(KEPT_BACK, 0) == sum(told["held"] > 0 for told in jobs)
    assert history.oddities.get(NO_START, 0) == sum(told["fate"] == "never" for told in jobs)


@given(st.lists(st.text(alphabet="|0123456789.-:TUnknow\r\n _[]+%\x00é", max_size=60), max_size=8))
def test_no_garbage_gives_anything_but_a_history_or_a_sentence(tmp_path, lines):
    """The invalid text follows a valid header and a valid job."""
    path = tmp_path / "jobs"
    path.write_text(text(job(1)) + "\n".join(lines), newline="")
    try:
        history = read_history(path, zone=UTC)
    except TraceError:
        return
    assert len(history) >= 1
    assert (history.wait_s >= 0).all()


FIELDS = ["", "Unknown", "0", "1", "1709294400", "2024-03-01T12:00:00", "CANCELLED by 1", "PENDING", "cpu=3", "7_[1-3]"]


@given(st.lists(st.sampled_from([*FIELDS, "UNLIMITED", "4294967294"]), min_size=10, max_size=10))
def test_fields_in_the_wrong_places_give_a_history_or_a_sentence(tmp_path, fields):
    """Waits stay finite and are never negative; widths and limits are positive."""
    path = tmp_path / "jobs"
    path.write_text(text(job(1)) + "|".join(fields) + "\n")
    try:
        history = read_history(path, zone=UTC)
    except TraceError:
        return
    assert ((history.wait_s >= 0) & (history.wait_s < 1e12)).all()
    assert (history.cores > 0).all()
    assert ((history.walltime_s > 0) & (history.walltime_s < 1e12)).all()


def test_reading_is_quick(tmp_path):
    """A line takes about 10 microseconds; the test's limit is many times that, so that a loaded machine passes."""
    path = tmp_path / "jobs"
    one = text(*(job(number) for number in range(1, 201))).splitlines(keepends=True)
    rows = [line.split("|", 1)[1] for line in one[1:]]
    path.write_text(one[0] + "".join(f"{number}|{rows[number % 200]}" for number in range(20_000)))
    begun = time.process_time()
    assert len(read_history(path, zone=UTC)) == 20_000
    assert time.process_time() - begun < 3.0


REAL = """\
Cluster|JobID|User|Partition|Submit|Eligible|Start|End|State|TimelimitRaw|ReqCPUS|Reservation|Reason
testbed|1|asatest|normal|1795262692|1795262692|1795262705|1795262707|COMPLETED|5|14||None
testbed|2|asatest|normal|1795262692|1795262692|1795262706|1795262709|COMPLETED|5|28||None
testbed|3|asatest|normal|1795262692|1795262692|1795262704|1795262705|COMPLETED|5|42||None
testbed|4|asatest|normal|1795262693|1795262693|1795262704|1795262706|COMPLETED|5|56||None
testbed|5|asatest|normal|1795262693|1795262693|1795262700|1795262703|COMPLETED|5|70||None
testbed|6|asatest|normal|1795262693|1795262693|1795262699|1795262700|COMPLETED|5|84||None
testbed|7|asatest|normal|1795262693|1795262693|1795262696|1795262698|COMPLETED|5|98||None
testbed|8|asatest|normal|1795262693|1795262693|1795262693|1795262696|COMPLETED|5|112||None
testbed|9|asatest|normal|1795262693|1795262693|1795262697|1795262700|COMPLETED|2|2||None
testbed|10|asatest|normal|1795262693|1795262700|1795262701|1795262701|COMPLETED|2|2||Dependency
testbed|13|asatest|normal|1795262693|1795262693|1795262704|1795262704|FAILED|1440|56||None
testbed|14|asatest|normal|1795262693|1795262693|1795262693|1795262693|CANCELLED by 999|10|112||None
testbed|15|asatest|normal|1795262693|1795262698|1795262698|1795262698|COMPLETED|1|1||BeginTime
testbed|11_0|asatest|normal|1795262693|1795262693|1795262697|1795262698|COMPLETED|1|1||None
testbed|11_1|asatest|normal|1795262693|1795262693|1795262697|1795262698|COMPLETED|1|1||None
testbed|11_2|asatest|normal|1795262693|1795262698|1795262699|1795262700|COMPLETED|1|1||JobArrayTaskLimit
testbed|11_3|asatest|normal|1795262693|1795262698|1795262699|1795262700|COMPLETED|1|1||JobArrayTaskLimit
"""
"""What `SACCT_COMMAND` printed on a cluster of four nodes under Slurm 22.05, after a few jobs."""


def test_what_a_real_sacct_prints_is_read(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(REAL)
    history = read_history(path)
    assert history.system == "testbed"
    assert list(history.users) == ["asatest"]
    told = dict(
        zip(zip(history.cores.tolist(), history.walltime_s.tolist(), strict=True), history.wait_s.tolist(), strict=True)
    )
    assert [told[14 * i, 300.0] for i in range(1, 9)] == [13, 14, 12, 11, 7, 6, 3, 0]
    assert told[56, 86_400.0] == 11, "a job that failed has waited, too"
    cancelled = history.started.tolist().index(False)
    assert (history.cores[cancelled], history.wait_s[cancelled]) == (112, 0), "cancelled before it started"
    assert sorted(history.wait_s[history.cores == 2].tolist()) == [1, 4], "after a dependency it waited a second"
    assert len(history) == 15


# ---------------------------------------------------------------------- texts with a |, and other ways to ask sacct

TEXTS = ("JobID", "JobName", *NAMES[1:], "Comment")


def test_a_name_with_the_mark_between_columns_is_read(read):
    history = read(
        job(1, JobName="a"),
        job(2, 600, JobName="grep x|sort"),
        job(3, 900, JobName="a|b|c|"),
        names=("JobName", *NAMES),
    )
    assert history.wait_s.tolist() == [300, 600, 900]
    assert history.oddities == {"read: has a | in its text": 2}


def test_of_several_texts_the_one_is_taken_with_which_times_are_where_they_belong(read):
    history = read(job(1, JobName="a"), job(2, JobName="x|y"), job(3, Comment="x||y"), names=TEXTS)
    assert history.wait_s.tolist() == [300, 300, 300]
    assert history.oddities == {"read: has a | in its text": 2}


def test_a_mark_that_may_be_in_one_text_or_another_is_no_reason_for_a_guess(read):
    """The job may be one of ada, or one of y."""
    names = ("JobID", "JobName", "User", "Comment", *NAMES[2:])
    history = read(job(1, JobName="a"), job(2, JobName="x|y"), names=names)
    assert history.oddities == {"left out: not the fields of the first line": 1}
    history = read(job(1, JobName="x|y"), job(2, Comment="x|y"), names=(*NAMES, "JobName", "Account", "Comment"))
    assert history.oddities == {"read: has a | in its text": 2}


def test_a_mark_elsewhere_than_in_a_text_is_no_reason_for_times_of_other_columns(read):
    history = read(job(1, JobName="a"), job(2, Partition="x|y", JobName="a"), names=("JobName", *NAMES))
    assert history.oddities == {"left out: not the fields of the first line": 1}


def test_what_a_shell_prints_before_is_left_out(read):
    history = read(raw="Welcome to the cluster\n\n" + text(job(1), job(2)))
    assert len(history) == 2
    assert history.oddities == {"left out: before the names of the columns": 1}
    with pytest.raises(TraceError) as caught:
        read(raw="Welcome\n" + text(job(1), names=["JobID", "Submit", "Start", "State"]))
    assert caught.value.where.endswith(":2")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda told: told.split("\n", 1)[1], "does not begin with the names of its columns"),
        (lambda told: told.replace("|", ","), "parted by ','"),
        (lambda told: told.replace("|", "\t"), "parted by tabs"),
        (lambda told: told.replace("|", ";"), "parted by ';'"),
        (lambda told: '{\n "meta": {"Slurm": {"release": "24.05"}},\n "jobs": []}', "is JSON"),
        (lambda told: "7    align  batch  proj  4  COMPLETED  0:0\n", "does not have their names"),
    ],
)
def test_what_sacct_printed_otherwise_is_refused_by_its_cause(read, spoil, why):
    with pytest.raises(TraceError, match=why) as caught:
        read(raw=spoil(text(job(1), job(2))))
    assert "sacct -a -D -X -P" in caught.value.hint

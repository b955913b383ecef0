"""``asa ccs``: a file of requests as a plan, as a table, JSON and a figure; and errors in the file."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from asa.errors import AsaError
from asa.studies.ccs.commands import app

SYSTEM = """
name = "mini"
[[nodes]]
name = "n"
count = 8
resources = {ncpus = 16, mem = "64g"}
[[nodes]]
name = "g"
count = 2
resources = {ncpus = 16, mem = "64g", gpus = 2}
properties = {acc = "tesla"}
"""

JOBS = """# a small machine
at=2017-08-01T08:00 alice@physics big: rset=8:ncpus=16,walltime=2h

bob@ small: rset=2:ncpus=4:mem=8g+ncpus=1:gpus=1,walltime=30m,place=scatter
at=2017-08-01T08:10 carol@chem wide: rset=9:ncpus=16,walltime=1d
rset=ncpus=1,walltime=10m,deadline=2017-08-01T12:00    # a comment
@chem sweep: rset=ncpus=4,walltime=1h,array=0-2
"""
HOUR = 3600
EIGHT = 1501574400  # o'clock on that day


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a system and requests."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini.toml").write_text(SYSTEM)
    (tmp_path / "jobs.txt").write_text(JOBS)
    return tmp_path


def ccs(*arguments, code=0, columns=120):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, (done.output, done.exception)
    return done


def plan(*arguments, code=0):
    document = json.loads(
        ccs("plan", "jobs.txt", "--system", "mini.toml", *arguments, "--output", "json", code=code).stdout
    )
    assert document["schema"] == 1
    return document, {job["job"]: job for job in document["jobs"]}


def why(*arguments):
    return json.loads(ccs("why", *arguments, "--system", "mini.toml", "--output", "json").stdout)


def words(text):
    return " ".join(text.split())


# ---------------------------------------------------------------------- the plan


@pytest.mark.full
def test_a_plan_as_json(place):
    """The document has users, requests, times and nodes, in the order of the starts."""
    document, jobs = plan()
    assert document["system"] == "mini"
    assert document["resources"] == {"ncpus": 160, "mem": 640 << 30, "gpus": 4}
    assert document["now_s"] == EIGHT + 600
    assert list(jobs) == ["big", "4", "sweep[0]", "sweep[1]", "sweep[2]", "small", "wide"]
    assert [job["start_s"] for job in jobs.values()] == sorted(job["start_s"] for job in jobs.values())
    big, small = jobs["big"], jobs["small"]
    assert (big["user"], big["group"], big["cores"], big["state"]) == ("alice", "physics", 128, "running")
    assert big["nodes"] == [f"n{i}" for i in range(1, 9)]
    assert (small["user"], small["group"], small["submit_s"], small["state"]) == ("bob", "", EIGHT, "planned")
    assert small["start_s"] == EIGHT + 7200
    assert jobs["sweep[2]"]["group"] == "chem"
    assert jobs["sweep[2]"]["submit_s"] == EIGHT + 600


def test_a_plan_as_a_table(place):
    """Each job has a line; dates are given unless they are today's, and lists of nodes are shortened."""
    told = ccs("plan", "jobs.txt", "--system", "mini.toml").stdout
    lines = [words(line) for line in told.splitlines()]
    assert lines[0] == "mini at 2017-08-01 08:10 UTC: 5 running, 2 planned"
    assert "wide carol@chem 9:ncpus=16 144 10:30 2h20m 2017-08-02 10:30 n[1-8],g1 planned" in lines
    assert "4 ncpus=1 1 08:10 08:20 g1 running" in lines


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_nothing_is_cut_off(place, columns):
    """In a narrow terminal, cells are folded and never shortened."""
    told = ccs("plan", "jobs.txt", "--system", "mini.toml", columns=columns).stdout
    assert "…" not in told
    assert max(map(len, told.splitlines())) <= columns


def test_the_plan_at_another_time(place):
    """Later requests are absent, and jobs that have ended by then are marked."""
    _, early = plan("--now", "2017-08-01T08:09")
    assert {name: job["state"] for name, job in early.items()} == {"big": "running", "small": "planned"}
    _, late = plan("--now", "2017-08-01T10:10")
    states = [late[name]["state"] for name in ("big", "4", "small", "wide")]
    assert states == ["ended", "ended", "running", "planned"]


def test_requests_are_taken_in_the_order_of_their_times(place):
    """Earlier requests are planned first, wherever they are in the file; a job's number is that of its request."""
    (place / "jobs.txt").write_text("at=100 rset=10:ncpus=16,walltime=1m\nat=50 rset=10:ncpus=16,walltime=1m\n")
    _, jobs = plan()
    assert {name: job["start_s"] for name, job in jobs.items()} == {"1": 110, "2": 50}


def test_a_large_array_lets_others_of_its_time_in(place):
    """They are planned behind its first 500 jobs, and before the others."""
    (place / "jobs.txt").write_text(
        "a: rset=ncpus=16,walltime=1,array=1200\nb: rset=10:ncpus=16,walltime=1\nat=9 c: rset=ncpus=16,walltime=1\n"
    )
    _, jobs = plan()
    assert jobs["a[499]"]["start_s"] == 49 * 60
    assert [jobs[name]["start_s"] for name in ("b", "a[500]", "a[1199]", "c")] == [3000, 3060, 120 * 60, 121 * 60]
    assert jobs["a[1199]"]["promised_s"] == 120 * 60


def test_what_is_refused(place):
    """The output has the reason, other requests are planned, and the exit code says so."""
    more = "x: rset=11:ncpus=16,walltime=1h\nlate: rset=10:ncpus=16,walltime=1h,deadline=2017-08-01T10:00\n"
    (place / "jobs.txt").write_text(JOBS + more)
    _, jobs = plan(code=1)
    assert [name for name, job in jobs.items() if job["state"] == "refused"] == ["x", "late"]
    assert jobs["x"]["why"] == "asks for 176 of ncpus, of which there are 160"
    assert jobs["late"]["start_s"] is None
    told = words(ccs("plan", "jobs.txt", "--system", "mini.toml", code=1).stdout)
    assert "2 refused" in told
    assert "late refused: there is no room for it before its deadline" in told


def test_limits_hold_and_release(place):
    """A user who has used up an area waits until one of the user's jobs has ended."""
    (place / "limits.toml").write_text('[[limits]]\nuser = "*"\nresource = "ncpus"\narea = "40h"\n')
    (place / "jobs.txt").write_text("ann@ a: rset=2:ncpus=16,walltime=1h\nann@ b: rset=ncpus=16,walltime=1h\n")
    _, now = plan("--limits", "limits.toml")
    assert (now["b"]["state"], now["b"]["start_s"]) == ("waiting", None)
    _, later = plan("--limits", "limits.toml", "--now", "3600")
    assert (later["b"]["state"], later["b"]["start_s"]) == ("running", 3600)
    told = ccs("plan", "jobs.txt", "--system", "mini.toml", "--limits", "limits.toml").stdout
    assert "b waiting: there is no time at which it can have what it asks for" in told


def test_rules_of_users_and_groups(place):
    """Default values are in the plan, and who is not valid is refused."""
    (place / "limits.toml").write_text(
        '[[consumers]]\nuser = "*"\ndefault = "walltime=2h,rset=mem=32g"\n'
        '[[consumers]]\ngroup = "chem"\nvalidity = "2017-08-02/"\n'
    )
    _, jobs = plan("--limits", "limits.toml", code=1)
    assert jobs["big"]["request"] == "rset=8:ncpus=16:mem=32g,walltime=0-02:00:00"
    assert jobs["wide"]["state"] == jobs["sweep"]["state"] == "refused"
    assert jobs["wide"]["why"] == "group 'chem' is not valid now, but 2017-08-02T00:00:00Z/"


def test_oculus_without_a_word(place):
    """Without another name, the system is the paper's cluster."""
    (place / "jobs.txt").write_text("rset=600:ncpus=1,walltime=5,place=scatter,sw=g03\n")
    told = words(ccs("plan", "jobs.txt").stdout)
    assert "616 nodes, 9,920 cores" in told
    assert "600:ncpus=1 scatter sw=g03 600 0:00:00 0:05:00" in told


# ---------------------------------------------------------------------- why


def test_why_a_job_is_not_earlier(place):
    """The answer has the first lack, the holders, and the binding constraints."""
    told = why("wide", "jobs.txt")
    assert told["job"]["job"] == "wide"
    assert told["could_start_from_s"] == EIGHT + 600
    [short] = told["at"]["lacks"]
    assert (short["cause"], short["of"], short["needed"], short["free"]) == ("jobs", "ncpus", 144, 19)
    assert short["holders"][0] == {"job": "big", "user": "alice", "items": 128, "until_s": EIGHT + 7200}
    assert [one["of"] for one in told["constraints"] if one["binds"]] == ["ncpus", ""]
    shown = words(ccs("why", "wide", "jobs.txt", "--system", "mini.toml").stdout)
    assert "wide, of carol@chem, is planned to run from 10:30 to 2017-08-02 10:30 on n[1-8],g1, in 2h20m." in shown
    assert "cores that other jobs hold 08:10 2h20m" in shown


@pytest.mark.parametrize("at", ["2017-08-01T09:40", str(EIGHT + 6000), "1h30m"])
def test_why_not_at_this_time(place, at):
    """The time is a date, a number of seconds, or relative to now."""
    told = why("wide", "jobs.txt", "--at", at)
    assert told["at"]["at_s"] == EIGHT + 6000
    assert [holder["job"] for holder in told["at"]["lacks"][0]["holders"]] == ["big"]


def test_why_a_job_was_refused(place):
    """The refusal is judged by the plan at that time, not by later events."""
    late = "at=2017-08-01T08:20 late: rset=10:ncpus=16,walltime=1h,deadline=2017-08-01T10:00\n"
    (place / "jobs.txt").write_text(f"{JOBS}{late}at=2017-08-01T08:30 rset=ncpus=1,walltime=1h\n")
    told = why("late", "jobs.txt")
    assert (told["job"]["state"], told["now_s"]) == ("refused", EIGHT + 1200)
    assert {one["cause"] for one in told["constraints"] if one["binds"]} == {"deadline", "jobs"}
    assert "late was refused: there is no room for it before its deadline." in told["words"]


def test_why_an_array_was_refused(place):
    """One of its jobs alone would fit."""
    (place / "jobs.txt").write_text("all: rset=10:ncpus=16,walltime=1h,deadline=3600,array=2\n")
    assert "One such job would have room at 0:00:00, but not all of its array." in why("all", "jobs.txt")["words"]


def test_why_an_unknown_job(place):
    """The nearest name is suggested."""
    assert "Did you mean 'wide'?" in ccs("why", "wid", "jobs.txt", "--system", "mini.toml", code=2).stderr


def test_why_tells_of_what_binds_together(place):
    """A limit and other jobs bind together: without only one of them the job would not start sooner."""
    (place / "limits.toml").write_text('[[limits]]\nuser = "ann"\nresource = "ncpus"\nitems = "80"\n')
    lines = [f"{who}@ {name}: rset=5:ncpus=16,walltime=1h" for who, name in (("ann", "a"), ("bob", "b"), ("ann", "c"))]
    (place / "jobs.txt").write_text("\n".join(lines))
    told = why("c", "jobs.txt", "--limits", "limits.toml")
    assert [one["cause"] for one in told["together"]] == ["consumer", "jobs"]
    assert not any(one["binds"] for one in told["constraints"])


# ---------------------------------------------------------------------- events


def happened(document):
    return {event["event"]: event for event in document["events"]}


def test_an_early_end_moves_others_sooner_than_promised(place):
    """Those that move have both starts in the document, and in the table."""
    (place / "jobs.txt").write_text(f"{JOBS}at=2017-08-01T09:00 end big\n")
    document, jobs = plan()
    assert (jobs["big"]["state"], jobs["big"]["end_s"]) == ("ended", EIGHT + HOUR)
    assert {name: (jobs[name]["promised_s"], jobs[name]["start_s"]) for name in ("small", "wide")} == {
        "small": (EIGHT + 2 * HOUR, EIGHT + HOUR),
        "wide": (EIGHT + 2 * HOUR + 1800, EIGHT + HOUR + 1800),
    }
    assert [move["job"] for move in happened(document)["end big"]["moved"]] == ["small", "wide"]
    told = words(ccs("plan", "jobs.txt", "--system", "mini.toml").stdout)
    assert "What happened 09:00 end big: moves small from 10:00 to 09:00, wide from 10:30 to 09:30" in told


def test_events_of_all_kinds(place):
    """Each happens at its time, in the order of the lines; one that cannot happen is refused, and changes nothing."""
    (place / "jobs.txt").write_text(
        """at=0 a: rset=8:ncpus=16,walltime=100
b: rset=8:ncpus=16,walltime=100
at=60 extend a 1m
at=120 fail n1
fail g1
at=180 alter b: walltime=50,rset=2:ncpus=16
at=240 recover n1
recover g1
at=300 submit ann@ c: rset=10:ncpus=16,walltime=1
extend c 1m
at=301 end c
"""
    )
    document, jobs = plan("--now", "300", code=1)
    events = happened(document)
    assert "what it has is not free for 1m00s more" in events["extend a 1m"]["refused"]
    moves = {name: [tuple(move.values()) for move in event["moved"]] for name, event in events.items()}
    assert moves == {
        "extend a 1m": [],
        "fail n1": [("a", 0, 120), ("b", 6000, 6120)],  # a runs again, on n2 to n8 and g1
        "fail g1": [],  # a has g2
        "alter b: walltime=50,rset=2:ncpus=16": [],
        "recover n1": [],
        "recover g1": [("b", 6120, 240)],
        "extend c 1m": [],
    }
    assert (jobs["b"]["nodes"], jobs["b"]["end_s"]) == (["n1", "g1"], 240 + 3000)
    assert events["extend c 1m"]["refused"].startswith("is planned, not running")
    assert "end c" not in events
    assert jobs["c"]["user"] == "ann"


def test_a_running_job_is_extended_by_a_tenth_at_most(place):
    """Extensions add up, and an altered walltime counts as one."""
    lines = ["a: rset=ncpus=16,walltime=100", "at=60 extend a 4m", "alter a: walltime=110", "extend a 1m"]
    (place / "jobs.txt").write_text("\n".join([*lines, "at=120 alter a: walltime=90", "at=121 alter a: rset=ncpus=1"]))
    document, jobs = plan(code=1)
    refused = {name: event["refused"] for name, event in happened(document).items()}
    assert refused == {
        "extend a 4m": None,
        "alter a: walltime=110": None,
        "extend a 1m": "may last 0s more (10 % of its first walltime in all), not 1m00s",
        "alter a: walltime=90": None,
        "alter a: rset=ncpus=1": "runs, and only its walltime may change",
    }
    assert jobs["a"]["end_s"] == 90 * 60


def test_events_of_an_array_are_of_each_of_its_jobs(place):
    """An element has its own name, too; those that ended stay as they are."""
    lines = ["s: rset=10:ncpus=16,walltime=10,array=4", "at=60 end s[0]", "at=120 alter s: walltime=5", "at=180 end s"]
    (place / "jobs.txt").write_text("\n".join(lines))
    document, jobs = plan("--now", "150")
    assert happened(document)["alter s: walltime=5"]["refused"] is None
    assert [jobs[f"s[{i}]"]["start_s"] for i in range(4)] == [0, 60, 360, 660]
    _, jobs = plan()
    assert [jobs[f"s[{i}]"]["state"] for i in range(4)] == ["ended", "ended", "cancelled", "cancelled"]


def test_what_depends_on_a_failed_job(place):
    """Both ways are in the plan until one is known; then the other is cancelled, and the table says why."""
    lines = ["a: rset=ncpus=16,walltime=60", "b: rset=ncpus=1,depend=afterok:a", "c: rset=ncpus=1,depend=afternotok:a"]
    (place / "jobs.txt").write_text("\n".join([*lines, "d: rset=ncpus=1,depend=afterany:c", "at=600 end a failed"]))
    _, jobs = plan("--now", "0")
    assert {name: job["start_s"] for name, job in jobs.items()} == {"a": 0, "b": 3600, "c": 3600, "d": 7200}
    _, jobs = plan()
    assert {name: (job["state"], job["start_s"]) for name, job in jobs.items()} == {
        "a": ("failed", 0),
        "b": ("cancelled", None),
        "c": ("running", 600),
        "d": ("planned", 4200),
    }
    told = words(ccs("plan", "jobs.txt", "--system", "mini.toml").stdout)
    assert "b cancelled: it depends on a by afterok, which has failed" in told
    _, jobs = plan("--now", "9000")
    assert jobs["d"]["state"] == "ended"


SLOW = f"""[timeouts]
allocate = "2m"
release = "3m"
{SYSTEM.replace('name = "mini"', "", 1)}"""


def test_nodes_that_do_not_answer_are_down_once_that_takes_too_long(place):
    """The job in question starts in their place, and displaces one of lower priority; later ones are planned anew."""
    (place / "mini.toml").write_text(SLOW)
    (place / "jobs.txt").write_text(
        """at=0 a: rset=10:ncpus=16,walltime=60,notify=10m
b: rset=6:ncpus=16,walltime=60,priority=5
c: rset=4:ncpus=16,walltime=60,priority=1
at=600 hang n1
at=3750 recover n1
hang n2
"""
    )
    document, jobs = plan("--now", "0")
    assert [jobs[name]["start_s"] for name in "abc"] == [0, 3900, 3900]
    document, jobs = plan("--now", "3800")
    assert [event["event"] for event in document["events"]] == [
        "hang n1",
        "a is notified that its time is over in 10m00s",
        "recover n1",  # within the three minutes that its release may take
        "hang n2",
    ]
    assert [(jobs[name]["state"], jobs[name]["start_s"]) for name in "abc"] == [
        ("ended", 0),
        ("allocating", 3750),
        ("running", 3750),
    ]
    document, jobs = plan("--now", "3900")
    [down] = [event for event in document["events"] if event["event"].startswith("n2 is down")]
    assert (down["at_s"], down["event"]) == (3870, "n2 is down: it took too long to allocate b")
    assert {move["job"]: move["to_s"] for move in down["moved"]} == {"b": 3750 + 3900}


@pytest.mark.parametrize(("priority", "b_s", "d_s"), [(1, 120, 120 + 3900), (9, 900 + 3900, 900)])
def test_a_job_that_could_not_be_allocated_displaces_one_of_lower_priority(place, priority, b_s, d_s):
    """It starts as soon as its node is known to be down, and the other behind it; one of higher priority stays."""
    (place / "mini.toml").write_text(SLOW)
    (place / "jobs.txt").write_text(
        f"""at=0 hang n2
b: rset=5:ncpus=16,walltime=60,priority=5
x: rset=1:ncpus=16,walltime=10,priority=5
d: rset=5:ncpus=16,walltime=60,depend=afterany:x,priority={priority}
"""
    )
    _, jobs = plan("--now", "0")
    assert {name: jobs[name]["start_s"] for name in "bxd"} == {"b": 0, "x": 0, "d": 900}
    document, jobs = plan("--now", "121")
    assert {name: jobs[name]["start_s"] for name in "bxd"} == {"b": b_s, "x": 0, "d": d_s}
    assert document["events"][-1]["event"] == "n2 is down: it took too long to allocate b"


def test_jobs_in_a_reservation(place):
    """They run in its resources, and end with it."""
    (place / "jobs.txt").write_text(
        """reserve ann@ kept: rset=2:ncpus=16,start=3600,walltime=2h
in: rset=ncpus=16,walltime=1h,reservation=kept,array=5
other: rset=10:ncpus=16,walltime=2h
at=5000 end kept
"""
    )
    _, jobs = plan("--now", "0")
    assert [jobs[f"in[{i}]"]["start_s"] for i in range(5)] == [3600, 3600, 7200, 7200, None]
    assert set(jobs["in[0]"]["nodes"] + jobs["in[1]"]["nodes"]) == set(jobs["kept"]["nodes"])
    assert jobs["other"]["start_s"] == 10800
    document, jobs = plan()
    assert {name: job["state"] for name, job in jobs.items()} == {
        "kept": "ended",
        "other": "running",
        **{f"in[{i}]": "ended" if i < 2 else "cancelled" for i in range(5)},
    }
    assert jobs["in[3]"]["why"] == "reservation kept has ended"
    assert [move["to_s"] for move in happened(document)["end kept"]["moved"] if move["job"] == "other"] == [5000]


# ---------------------------------------------------------------------- a log


@pytest.fixture
def log(place):
    """Return a log of five jobs on eight cores."""
    rows = [(7, 0, 60, 8, 100), (8, 10, 60, 4, 100), (9, 10, 60, 4, 50), (11, 20, 60, 8, 60), (12, 30, 5, 1, 5)]
    lines = [
        f"{i} {at} -1 {run} {cores} -1 -1 {cores} {asked} -1 1 3 2 1 1 1 -1 -1" for i, at, run, cores, asked in rows
    ]
    header = ["; MaxProcs: 8", "; UnixStartTime: 1000000000"]
    (place / "log.swf").write_text("\n".join([*header, *lines]) + "\n")
    return place / "log.swf"


def test_a_log_is_planned_by_its_requests(log):
    """Its first jobs are planned, with its own ids, dates and requests."""
    document = json.loads(ccs("plan", "--trace", log, "--jobs", 4, "--output", "json").stdout)
    assert (document["nodes"], document["resources"]) == (1, {"ncpus": 8})
    starts = {job["job"]: job["start_s"] - 10**9 for job in document["jobs"]}
    assert starts == {"7": 0, "8": 100, "9": 100, "11": 200}
    assert document["jobs"][0]["user"] == "u3"
    told = words(ccs("why", "11", "--trace", log).stdout)
    assert "11, of u3@g2, is planned to run from 01:50 to 01:51 on log, in 2m50s." in told


# ---------------------------------------------------------------------- the picture


@pytest.mark.parametrize(("name", "begin"), [("plan.png", b"\x89PNG"), ("plan.svg", b"<?xml")])
def test_a_picture(place, name, begin):
    """Each job is a block, with its name if there is space."""
    ccs("plan", "jobs.txt", "--system", "mini.toml", "--picture", name)
    assert (place / name).read_bytes().startswith(begin)


def drawn(place, *arguments):
    ccs("plan", *arguments, "--picture", "plan.svg")
    svg = (place / "plan.svg").read_text()
    return set(re.findall(r"<!-- (.+?) -->", svg))


def test_what_is_in_the_picture(place):
    """Nodes are rows on a small system; dates and the time are given; names are in the blocks."""
    texts = drawn(place, "jobs.txt", "--system", "mini.toml")
    assert {"n1", "g2", "big", "wide", "now", "time (UTC, 2017)"} <= texts
    (place / "jobs.txt").write_text("big: rset=300:ncpus=16,walltime=1h\nthen: rset=400:ncpus=16,walltime=1h\n")
    texts = drawn(place, "jobs.txt")
    assert {"big", "then", "cores, of 9,920", "time (h:min)"} <= texts
    assert "norm001" not in texts


def test_a_picture_of_a_log(log):
    """Cores of the one node are stacked."""
    assert {"7", "8", "cores, of 8"} <= drawn(log.parent, "--trace", log)


def test_a_picture_of_nothing(place):
    """No job has a place, and the figure is drawn nevertheless."""
    (place / "jobs.txt").write_text("rset=ncpus=999,walltime=1h\n")
    done = ccs("plan", "jobs.txt", "--system", "mini.toml", "--picture", "p.png", code=1)
    assert "No picture was drawn" in done.stderr
    assert not (place / "p.png").exists()


def test_a_picture_that_cannot_be_drawn_is_told_first(place):
    """The error comes before anything is planned."""
    assert "is no kind of figure" in ccs("plan", "jobs.txt", "--picture", "p.docx", code=2).stderr


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("line", "at", "message"),
    [
        ("ann@ x: rset=ncpus=two", 19, "'two' is no whole number"),
        ("rset=2:ncpus=1:nodes=3", 15, "there is no resource 'nodes'"),
        ("at=2017-13-01 rset=ncpus=1", 3, "'2017-13-01' is no time"),
        ("at= rset=ncpus=1", 3, "a time is missing here"),
        ("a b c: rset=ncpus=1", 2, "'b' does not belong here"),
        ("a@b@c x: rset=ncpus=1", 0, "'a@b@c' does not belong here"),
        ("x a@b: rset=ncpus=1", 2, "'a@b' does not belong here"),
        ("x:   # nothing", 2, "a request is missing here"),
        ("taken: rset=ncpus=1", 0, "line 1 has a job 'taken' already"),
        ("\x1b[31mred: rset=ncpus=1", 0, "holds a character that cannot be shown"),
        ("8:ncpus=2", 9, "rset= is missing"),
        ("end tken", 4, "no line above submits a job 'tken'"),
        ("fail n99", 5, "there is no node 'n99'"),
        ("extend taken", 12, "a duration is missing here"),
        ("extend taken soon", 13, "'soon' is no duration"),
        ("end taken now", 10, "'now' does not belong here"),
        ("extnd taken 10m", 0, "neither an event nor a request begins so"),
        ("fail", 0, "its job or node is missing"),
        ("alter taken", 6, "says not what to alter"),
        ("alter taken: walltme=1", 13, "there is no resource 'walltme'"),
        ("reserve taken: rset=ncpus=1", 8, "line 1 has a job 'taken' already"),
    ],
)
def test_a_line_that_is_wrong(place, line, at, message):
    """The error names file, line and character."""
    (place / "jobs.txt").write_text(f"taken: rset=ncpus=1\n\n{line}\n")
    told = ccs("plan", "jobs.txt", code=2).stderr.splitlines()
    assert told[0] == "jobs.txt:3:"
    assert told[2].startswith(" " * at + "^ ")
    assert message in told[2]


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ([], "FILE: name a file"),
        (["jobs.txt", "--trace", "log.swf"], "FILE: name a file"),
        (["nowhere.txt"], "nowhere.txt: cannot be read"),
        (["picture.png"], "picture.png: cannot be read"),
        (["empty.txt"], "empty.txt: asks for nothing"),
        (["jobs.txt", "--system", "oculs"], "--system: there is no system 'oculs'\nDid you mean 'oculus'?"),
        (["jobs.txt", "--system", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["jobs.txt", "--system", "jobs.txt"], "jobs.txt: cannot be read"),
        (["jobs.txt", "--limits", "nowhere.toml"], "nowhere.toml"),
        (["jobs.txt", "--now", "noon"], "--now:\nnoon\n^ 'noon' is no time"),
        (["--trace", "jobs.txt"], "jobs.txt"),
        (["--trace", "jobs.txt", "--system", "mini.toml"], "--system: does not go with --trace"),
    ],
)
def test_what_cannot_be_used(place, arguments, where):
    """The error says what, where, and what to do."""
    (place / "empty.txt").write_text("# nothing\n\n")
    (place / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    assert where in ccs("plan", *arguments, code=2).stderr


@pytest.mark.parametrize("at", ["2 fortnights", "soon", "-5"])
def test_a_time_that_is_none(place, at):
    """The error names the option."""
    told = ccs("why", "big", "jobs.txt", "--system", "mini.toml", f"--at={at}", code=2).stderr
    assert told.startswith("--at")


PIECES = [
    "at=",
    "5",
    " ",
    "\t",
    ":",
    "=",
    "@",
    "a",
    "b ",
    "#",
    "\n",
    "rset=",
    "ncpus=",
    "2:",
    "+",
    ",",
    "walltime=9",
    "start=3",
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=30))
@example("at=5@:rset=ncpus=2")
@example("rset=ncpus=2,walltime=9999y")
def test_any_file_is_planned_or_pointed_at(tmp_path_factory, text):
    """Each file gives a plan, or an error with its position."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "any.txt").write_text(text, encoding="utf-8", newline="")
    (folder / "mini.toml").write_text(SYSTEM)
    done = CliRunner().invoke(app, ["plan", str(folder / "any.txt"), "--system", str(folder / "mini.toml")])
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == 2
        assert done.exception.where.startswith(str(folder / "any.txt"))
    else:
        assert done.exit_code in {0, 1}, done.exception


def test_help_needs_nothing_heavy():
    """`asa --help` stays fast: modules for planning and drawing are loaded when a command runs."""
    code = (
        "import sys, asa.studies.ccs.commands\n"
        "print([name for name in ('numpy', 'numba', 'matplotlib', 'rich.table') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_shows_how_a_file_is_written():
    """The help has an example that can be planned."""
    told = CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "120"}).stdout
    [example_line] = [line.strip(" `") for line in told.splitlines() if "alice@physics big:" in line]
    assert example_line == "at=2017-08-01T08:00 alice@physics big: rset=8:ncpus=16,walltime=2h"
    assert (
        "Exit codes: 0 all are in the plan, 1 a request or an event was refused, 2 the input cannot be used."
        in words(told)
    )


@pytest.mark.full
def test_the_planner_is_faster_than_the_papers():
    """By far, so that other processes do not disturb it; with a smaller plan, to be quick."""
    done = CliRunner().invoke(app, ["bench", "--jobs", "1000", "--output", "json"])
    assert done.exit_code == 0, done.output
    times = {figure["what"]: figure["times_papers"] for figure in json.loads(done.stdout)["figures"]}
    for what in ("backfills", "submissions", "an array of 1,000 jobs"):  # each ten times and more
        assert times.pop(what) > 1
    [(_, recovery), (_, sort), (what, memory)] = times.items()
    assert min(recovery, sort) > 0
    assert what.startswith("memory with")
    assert memory > 1

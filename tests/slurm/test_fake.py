"""The stand-in for Slurm answers as real daemons do; its clock and its faults do what they are set to."""

import json
import math
import re
import subprocess
import time
from collections import Counter

import httpx
import pytest
from asa.backends.slurm.link import SlurmJob
from asa.backends.slurm.rest import RestLink
from hypothesis import given
from hypothesis import strategies as st
from slurm_fake import (
    FAULTS,
    TEMPLATES,
    FakeSlurm,
    Fault,
    FaultyTransport,
    Killed,
    RefusedError,
    node_range,
    parse_dependency,
    random_faults,
)
from slurm_fake_link import cancel, own
from slurm_testbed import NEWEST, OLDEST, until

VERSIONS = (OLDEST, NEWEST)


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def make(tmp_path, version):
    """Make fakes of a version, and end what runs on them."""
    made = []

    def one(**settings):
        fake = FakeSlurm(tmp_path / f"fake{len(made)}", settings.pop("version", version), **settings)
        made.append(fake)
        return fake

    yield one
    for fake in made:
        fake.stop()


@pytest.fixture
def fake(make):
    return make(accounting=True, min_job_age_s=1e6)


class Talker:
    """A client of the stand-in or of real daemons, with the field names of the version."""

    def __init__(self, transport, version, folder):
        self.old = version == "22.05"
        self.api = "v0.0.38" if self.old else "v0.0.42"
        self.refused = 422 if version == NEWEST else 500
        self.folder = str(folder)
        self.http = httpx.Client(transport=transport, base_url="http://localhost", timeout=60.0)
        self.ids = []

    def ask(self, method, path, body=None, room="slurm", **more):
        answer = self.http.request(method, f"/{room}/{self.api}/{path}", json=body, **more)
        return answer.status_code, answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    def submit(self, script="exit 0", **job):
        path = {"PATH": "/usr/bin:/bin"}
        environment = path if self.old else [f"{name}={value}" for name, value in path.items()]
        asked = {"name": "j", "current_working_directory": self.folder, "environment": environment, "time_limit": 5}
        asked |= job
        asked = {name: value for name, value in asked.items() if value is not None}
        status, body = self.ask("POST", "job/submit", {"script": f"#!/bin/sh\n{script}\n", "job": asked})
        if isinstance(body, dict) and body.get("job_id"):
            self.ids.append(body["job_id"])
        return status, body

    def job_id(self, *args, **job):
        return self.submit(*args, **job)[1]["job_id"]

    def count(self, nodes):
        return nodes if self.old else str(nodes)

    def record(self, job_id):
        return self.ask("GET", f"job/{job_id}")[1]["jobs"][0]

    def state(self, job_id):
        return "".join(self.record(job_id)["job_state"])

    def field(self, job_id, name):
        value = self.record(job_id)[name]
        return value["number"] if isinstance(value, dict) and "number" in value else value


@pytest.fixture
def talker(fake, version, tmp_path):
    return Talker(fake, version, tmp_path)


# ---- as the real daemons


def play(talker, wait):  # noqa: PLR0915 - one story
    """Send all requests that a client needs; return the answers by name."""
    told = {}

    def note(name, answer):
        told[name] = answer
        return answer[1].get("job_id") if isinstance(answer[1], dict) else None

    def look(name, job_id, true):
        wait(lambda: true(talker.record(job_id)))
        note(name, talker.ask("GET", f"job/{job_id}"))

    def is_in(*states):
        return lambda record: record["job_state"] in (*states, *([state] for state in states))

    def waits_for(reason):
        return lambda record: record["state_reason"] == reason

    note("ping", talker.ask("GET", "ping"))
    note("partitions", talker.ask("GET", "partitions"))
    failing = note("submit", talker.submit("exit 3"))
    look("failed", failing, is_in("FAILED"))
    running = note("submit with more", talker.submit("exec sleep 300", tasks=2, cpus_per_task=2, comment="a comment"))
    look("running", running, is_in("RUNNING"))
    note("nodes", talker.ask("GET", "nodes"))
    note("diag", talker.ask("GET", "diag"))
    held = note("submit held", talker.submit(hold=True))
    look("held", held, waits_for("JobHeldUser"))
    waiting = note("submit dependent", talker.submit(dependency=f"afterok:{running},after:{running}+60"))
    look("waits", waiting, waits_for("Dependency"))
    vain = note("submit in vain", talker.submit(dependency=f"afterok:{failing}"))
    look("waits in vain", vain, waits_for("DependencyNeverSatisfied"))
    later = note("submit for later", talker.submit(begin_time="now+1hour"))
    wait(lambda: talker.field(later, "accrue_time"))  # which the scheduler's next look sets
    look("waits for its time", later, waits_for("BeginTime"))
    note("unknown dependency", talker.submit(dependency="afterok:999999", hold=True))
    note("met dependency", talker.submit(dependency=f"afterany:{failing}", hold=True))
    for name, job in {
        "bad dependency": {"dependency": "bogus:1"},
        "bad partition": {"partition": "nope"},
        "bad feature": {"constraints": "x"},
        "bad key": {"flurb": 1},
        "bad time": {"begin_time": "garbage"},
        "time since 1970": {"begin_time": "uts1900000000", "hold": True},
        "no environment": {"environment": None},
        "empty environment": {"environment": {} if talker.old else []},
        "wrong environment": {"environment": "PATH=/bin"},
        "too many nodes": {"nodes": talker.count(99)},
        "too many cores": {"tasks": 200},
        "too wide a task": {"cpus_per_task": 40, "name": "refused"},
        "too much memory": {"memory_per_node": 10**9},
        "too long": {"partition": "debug", "time_limit": 600},
        "clock limit": {"time_limit": "00:05:00", "hold": True},
        "boxed limit": {"time_limit": {"set": True, "infinite": False, "number": 5}, "hold": True},
        "text for a number": {"tasks": "2", "hold": True},
        "other nodes": {"nodes": "1" if talker.old else 1, "hold": True},
    }.items():
        note(name, talker.submit(**job))
    note("no script", talker.ask("POST", "job/submit", {"job": {}}))
    note("a list", talker.ask("POST", "job/submit", []))
    refused = [job for job in talker.ask("GET", "jobs")[1]["jobs"] if job["name"] == "refused"][-1]
    talker.ids.append(refused["job_id"])
    told["refused"] = 200, {"jobs": [refused]}

    for name, number, change in [
        ("hold", waiting, {"hold": True}),
        ("release", waiting, {"hold": False}),
        ("lower limit of a running job", running, {"time_limit": 3}),
        ("higher limit of a running job", running, {"time_limit": 60}),
        ("more nodes of a running job", running, {"nodes": talker.count(3)}),
        ("limit of a pending job", waiting, {"time_limit": 9}),
        ("nodes of a pending job", waiting, {"nodes": talker.count(2)}),
        ("wrapped", waiting, {"job": {"time_limit": 8}}),
        ("unknown key", waiting, {"flurb": 1}),
        ("bad limit", waiting, {"time_limit": "xx"}),
        ("nothing", waiting, {}),
        ("change an ended job", failing, {"time_limit": 1}),
        ("change an unknown job", 999999, {"hold": True}),
    ]:
        note(name, talker.ask("POST", f"job/{number}", change))
    look("changed", waiting, waits_for("Dependency"))

    note("unknown job", talker.ask("GET", "job/999999"))
    note("no number", talker.ask("GET", "job/abc"))
    note("cancel no number", talker.ask("DELETE", "job/abc"))
    note("cancel an unknown job", talker.ask("DELETE", "job/999999"))
    note("cancel an ended job", talker.ask("DELETE", f"job/{failing}"))
    note("cancel a held job", talker.ask("DELETE", f"job/{held}"))
    many = {"jobs": ["999999", str(failing)]}
    note("cancel several jobs", talker.ask("DELETE", "jobs/", many))
    note("cancel a job of another name", talker.ask("DELETE", "jobs/", {"jobs": [str(running)], "job_name": "x"}))
    look("cancelled while held", held, is_in("CANCELLED"))
    note("states", talker.ask("GET", f"jobs/state?job_id={failing}&job_id={held}&job_id=999999"))
    note("states with a comma", talker.ask("GET", f"jobs/state?job_id={failing},{held}"))
    note("states with a hidden comma", talker.ask("GET", f"jobs/state?job_id={failing}%2C{held}"))
    note("no news", talker.ask("GET", "jobs?update_time=4000000000"))
    note("wrong method", talker.ask("PUT", "ping", {}))
    note("wrong path", talker.ask("GET", "nope"))
    note("no JSON", talker.ask("POST", "job/submit", content=b'{"script": "x", '))
    note("cancel a running job", talker.ask("DELETE", f"job/{running}"))
    look("cancelled", running, is_in("CANCELLED"))
    look("waits in vain for one that was cancelled", waiting, waits_for("DependencyNeverSatisfied"))
    wide = note("submit on two nodes", talker.submit("exit 0", nodes=talker.count(2), tasks=3))
    look("completed", wide, is_in("COMPLETED"))

    def is_known(job_id):
        jobs = talker.ask("GET", f"job/{job_id}", room="slurmdb")[1]["jobs"]
        return jobs and jobs[0]["time"]["end"] and jobs[0]["name"] == "j"  # its end may come before the rest of it

    wait(lambda: is_known(failing) and is_known(wide))
    note("accounted", talker.ask("GET", f"job/{failing}", room="slurmdb"))
    note("accounted nothing", talker.ask("GET", "job/999999", room="slurmdb"))
    note("accounting of two", talker.ask("GET", accounted_two(talker, failing, wide), room="slurmdb"))
    note("clusters", talker.ask("GET", "clusters", room="slurmdb"))
    note("accounting from a bad time", talker.ask("GET", "jobs?start_time=utsabc", room="slurmdb"))
    note("accounting of nobody", talker.ask("GET", "jobs?users=nobody", room="slurmdb"))
    for job_id in talker.ids:
        talker.ask("DELETE", f"job/{job_id}")
    return {name: (status, plain(body, talker)) for name, (status, body) in told.items()}


def accounted_two(talker, one, other):
    numbers = f"step={one}%2C{other}" if talker.old else f"step={one}&step={other}"
    return f"jobs?{numbers}&skip_steps=true"


TIMES = {
    "accrue_time", "eligible_time", "end_time", "last_sched_evaluation", "start_time", "submit_time", "last_update",
    "submission", "eligible", "end", "start", "priority", "last_busy",
    "reason_changed_at",
}  # fmt: skip
"""That they are set is compared, not to what."""
ELSEWHERE = {
    "allocating_node", "association_id", "batch_host", "elapsed", "group_id", "job_resources", "latency",
    "max_nodes", "nodes", "scheduled_nodes", "source", "tres", "user_id", "group", "user", "free_mem", "free_memory",
    "last_backfill",  # a daemon that is new has none yet
    "cpu_load", "port", "boot_time", "slurmd_start_time", "alloc_cpus", "range", "list",
    "hostname", "operating_system", "address", "total_time", "average_time", "mail_user", "id", "reason_set_by_user",
    "job_size_str", "planned", "owner", "tres_used", "alloc_idle_cpus", "idle_cpus", "tres_weighted", "state_flags",
}  # fmt: skip
"""That they are of the same type is compared."""

SCHEDULERS_FLAGS = {
    "BACKFILL_ATTEMPTED", "SCHEDULING_ATTEMPTED", "TRES_STR_CALC", "CLEAR_SCHEDULING", "STARTED_ON_SCHEDULE",
    "STARTED_ON_BACKFILL", "STARTED_ON_SUBMIT", "DEPENDENT",
}  # fmt: skip
"""How the scheduler went about it."""
TEXTS_WITH_IDS = {
    "dependency", "description", "job_id", "step_id", "standard_error", "standard_output", "stdout_expanded", "stdout",
    "current_working_directory", "working_directory",
}  # fmt: skip


def plain(value, talker, name=""):  # noqa: PLR0911 - one a kind
    """Remove from an answer what differs between clusters or moments."""
    if name in TIMES:
        return _is_set(value)
    if name in ELSEWHERE:
        return shape(value)
    if name == "flags":
        return sorted(set(value) - SCHEDULERS_FLAGS)
    if isinstance(value, dict):
        return {key: plain(inner, talker, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner, talker) for inner in value]
    if name == "job_id" and value in talker.ids:
        return talker.ids.index(value) + 1
    return _text(value, talker) if isinstance(value, str) and name in TEXTS_WITH_IDS else value


def _is_set(value):
    if isinstance(value, dict):
        return {key: bool(inner) if key == "number" else inner for key, inner in value.items()}
    return bool(value)


def _text(text, talker):
    text = text.replace(talker.folder, "/folder")
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+", "date", text)
    text = re.sub(r"/\S+sock->fd:\d+", "socket", text)
    ids = {str(job_id): str(index) for index, job_id in enumerate(talker.ids, start=1)}
    return re.sub(r"(?<![\d+])\d+(?!\d| bit)", lambda found: ids.get(found[0], found[0]), text)  # no number of a type


def shape(value):
    """Return the keys and types of a value; of a list, those of its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value and not isinstance(value[0], str) else []
    return type(value).__name__


SHAPES_ONLY = {"nodes", "diag", "partitions", "clusters"}


_NOT_ALWAYS_SO = re.compile(r"(?<=format=int)\d+|(?<=with signal )\d+")  # in words, and not the same each time


def compared(told):
    return {name: shape(answer) if name in SHAPES_ONLY else answer for name, answer in told.items()}


def differences(mine, theirs, where=""):
    """Yield where two values differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in mine.keys() | theirs.keys():
            if key not in mine or key not in theirs:
                yield f"{where}/{key} only in {'mine' if key in mine else 'theirs'}"
            else:
                yield from differences(mine[key], theirs[key], f"{where}/{key}")
    elif isinstance(mine, list | tuple) and isinstance(theirs, list | tuple) and len(mine) == len(theirs):
        for index, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            yield from differences(a, b, f"{where}/{index}")
    elif where.endswith("/job_id/number") and type(mine) is type(theirs):
        return  # the real one has had other jobs
    elif _NOT_ALWAYS_SO.sub("", str(mine)) != _NOT_ALWAYS_SO.sub("", str(theirs)):
        yield f"{where}: {mine!r}, real {theirs!r}"


def passing(fake):
    """Wait on a fake's clock."""

    def wait(true):
        for _ in range(600):
            if true():
                return
            fake.sleep(1)
        raise AssertionError("it does not come")

    return wait


@pytest.mark.parametrize("name", ["job", "accounted", "node"])
def test_its_answers_have_the_keys_and_types_of_recorded_ones(fake, talker, version, name):
    recorded = json.loads((TEMPLATES / f"templates-{fake.dialect.templates or version}.json").read_text())[name]
    job_id = talker.job_id("exit 3")
    fake.sleep(3)
    running = talker.record(job_id)
    fake.sleep(60)
    told = {
        "job": running,
        "accounted": talker.ask("GET", f"job/{job_id}", room="slurmdb")[1]["jobs"][0],
        "node": talker.ask("GET", "nodes")[1]["nodes"][0],
    }[name]
    assert list(differences(shape(told), shape(recorded))) == []


def test_it_answers_as_the_real_one(slurm, tmp_path, request):
    version = request.node.callspec.params["slurm"]
    transport = httpx.HTTPTransport(uds=slurm.socket)
    real = Talker(transport, version, slurm.folder("fake"))
    theirs = compared(play(real, lambda true: until(true, what="a state")))
    transport.close()
    fake = FakeSlurm(tmp_path / "fake", version, accounting=True, completing_s=2.0)
    try:
        mine = compared(play(Talker(fake, version, tmp_path), passing(fake)))
    finally:
        fake.stop()
    if found := sorted(differences(mine, theirs)):
        pytest.fail("\n".join(found))


# ---- its clock, its queue


def marked(file, text="x", run_s=None):
    """Write a payload that adds a line to a file."""
    return f"echo {text} >> {file}" + ("" if run_s is None else f"\n# virtual-run-s: {run_s}")


def lines(file):
    return file.read_text().split() if file.exists() else []


def test_a_script_really_runs_and_its_code_is_the_jobs(fake, talker, tmp_path):
    script = 'echo "$SLURM_JOB_ID $SLURM_JOB_NAME $PWD $EXTRA"; exit 7'
    extra = {"EXTRA": "b c"}
    environment = extra if talker.old else ["EXTRA=b c"]
    job_id = talker.job_id(script, name="fit.a1", environment=environment, standard_output=f"{tmp_path}/%x-%j.out")
    fake.sleep(60)
    assert (tmp_path / f"fit.a1-{job_id}.out").read_text() == f"{job_id} fit.a1 {tmp_path} b c\n"
    assert talker.state(job_id) == "FAILED"
    assert fake.jobs[job_id].exit_code == 7


def test_a_job_lasts_as_long_as_its_script_says(fake, talker):
    short, named, asleep = talker.job_id("true"), talker.job_id("# virtual-run-s: 120"), talker.job_id("sleep 200")
    fake.sleep(3600)
    spans = {j: talker.field(j, "end_time") - talker.field(j, "start_time") for j in (short, named, asleep)}
    assert spans == {short: 10, named: 120, asleep: 200}


def test_scripts_live_by_the_virtual_clock(fake, talker, tmp_path):
    talker.submit(f"date +%s > {tmp_path}/a; sleep 90; date +%s > {tmp_path}/b")
    started_s = fake.clock() + fake.latency_s
    began = time.monotonic()
    fake.sleep(120)
    assert time.monotonic() - began < 20
    assert [int((tmp_path / name).read_text()) - started_s for name in ("a", "b")] == [0, 90]


def test_a_script_that_looks_for_anothers_mark_idles_until_it_is_there(fake, talker, tmp_path):
    mark = tmp_path / "mark"
    early = talker.job_id(
        f"until [ -e {mark} ]; do sleep 2; done; {marked(tmp_path / 'order', 'early')}", time_limit=60
    )
    fake.sleep(600)
    assert talker.state(early) == "RUNNING"
    talker.submit(f"sleep 300; {marked(tmp_path / 'order', 'late')}; touch {mark}", time_limit=60)
    submitted_s = fake.clock()
    fake.sleep(1000)
    assert lines(tmp_path / "order") == ["late", "early"]
    assert 300 <= talker.field(early, "end_time") - submitted_s <= 304


def test_who_looks_in_the_same_second_looks_last(fake, talker, tmp_path):
    for name in "abcde":
        mark = tmp_path / name
        maker = talker.job_id(f"sleep 100; touch {mark}")
        seeker = talker.job_id(f"until [ -e {mark} ]; do sleep 5; done")
        fake.sleep(150)
        assert talker.field(seeker, "end_time") == talker.field(maker, "end_time")


def test_a_script_that_hangs_is_told_of(make, version, tmp_path, monkeypatch):
    monkeypatch.setattr("slurm_fake.MAX_REAL_S", 0.2)
    fake = make()
    Talker(fake, version, tmp_path).submit("while :; do :; done")
    with pytest.raises(RuntimeError, match="script of job 1 was busy"):
        fake.sleep(60)


def test_the_time_limit_ends_a_job_and_its_script(fake, talker, tmp_path):
    job_id = talker.job_id(f"sleep 600; {marked(tmp_path / 'out')}", time_limit=2)
    fake.sleep(3600)
    assert talker.state(job_id) == "TIMEOUT"
    assert talker.field(job_id, "end_time") - talker.field(job_id, "start_time") == 120
    assert lines(tmp_path / "out") == []


def test_cancelling_ends_the_script_which_may_say_goodbye(fake, talker, tmp_path):
    job_id = talker.job_id(f"trap 'echo bye > {tmp_path}/out; exit 1' TERM; sleep 100 & wait")
    fake.sleep(20)
    talker.ask("DELETE", f"job/{job_id}")
    assert talker.state(job_id) == "CANCELLED"
    assert lines(tmp_path / "out") == ["bye"]


def test_jobs_start_first_come_first_served(fake, talker):
    blocker = talker.job_id("sleep 100", tasks=100)
    wide, small = talker.job_id(tasks=20), talker.job_id()
    fake.sleep(10)
    states = [talker.state(job) for job in (blocker, wide, small)]
    assert states == ["RUNNING", "PENDING", "PENDING"]
    assert [talker.field(job, "state_reason") for job in (wide, small)] == ["Resources", "Priority"]
    assert talker.field(wide, "start_time") == talker.field(blocker, "end_time")
    fake.sleep(110)
    assert talker.field(wide, "start_time") >= talker.field(blocker, "end_time")
    assert talker.field(small, "start_time") >= talker.field(wide, "start_time")


def test_by_priority_the_wider_job_of_the_same_age_comes_first(make, version, tmp_path):
    fake = make(by_priority=True, min_job_age_s=1e6)
    talker = Talker(fake, version, tmp_path)
    talker.submit("sleep 100", tasks=112)
    fake.sleep(5)
    small, wide = talker.job_id(tasks=10), talker.job_id(tasks=110)
    fake.sleep(300)
    assert talker.field(wide, "start_time") < talker.field(small, "start_time")


@pytest.mark.parametrize(("accrues", "first"), [(False, "fresh"), (True, "dependent")])
def test_whether_age_accrues_for_a_dependent_job(make, version, tmp_path, accrues, first):
    fake = make(by_priority=True, age_accrues=accrues, min_job_age_s=1e6)
    talker = Talker(fake, version, tmp_path)
    before = talker.job_id("sleep 1000", time_limit=60)
    ids = {"dependent": talker.job_id("sleep 50", dependency=f"afterok:{before}", tasks=112)}
    fake.sleep(900)
    fake.occupy(112, fake.clock() + 60, fake.clock() + 400)
    ids["fresh"] = talker.job_id("sleep 50", tasks=112)
    fake.sleep(3600)
    assert min(ids, key=lambda name: talker.field(ids[name], "start_time")) == first


def test_foreign_load_takes_cores(fake, talker):
    begins_s = fake.clock()
    fake.occupy(112, begins_s, begins_s + 500)
    job_id = talker.job_id()
    fake.sleep(600)
    assert talker.field(job_id, "start_time") == begins_s + 501
    assert {job["user_name"] for job in talker.ask("GET", "jobs")[1]["jobs"]} == {"asatest", "other"}


def test_dependencies_are_kept(fake, talker, tmp_path):
    out = tmp_path / "out"
    first = talker.job_id(f"sleep 50; {marked(out, 'first')}")
    second = talker.job_id(marked(out, "second"), dependency=f"afterok:{first}")
    after = talker.job_id(marked(out, "after"), dependency=f"after:{first}+2")
    both = talker.job_id(marked(out, "both"), dependency=f"afterany:{second}:{after}")
    fake.sleep(600)
    assert lines(out) == ["first", "second", "after", "both"]
    assert talker.field(after, "eligible_time") == talker.field(first, "start_time") + 120
    assert talker.field(both, "eligible_time") == talker.field(after, "end_time")


def test_one_of_several_may_be_enough(fake, talker):
    slow, quick = talker.job_id("sleep 200"), talker.job_id()
    either = talker.job_id(dependency=f"afterok:{slow}?afterok:{quick}")
    fake.sleep(60)
    assert [talker.state(job) for job in (slow, either)] == ["RUNNING", "COMPLETED"]


def test_a_job_is_forgotten_and_a_dependency_on_it_treated_as_the_version_does(make, version, tmp_path):
    fake = make(min_job_age_s=300)
    talker = Talker(fake, version, tmp_path)
    first = talker.job_id("exit 1")
    fake.sleep(200)
    assert talker.ask("GET", f"job/{first}")[0] == 200
    fake.sleep(200)
    assert talker.ask("GET", f"job/{first}")[0] in (404, 500)
    status, body = talker.submit(dependency=f"afterok:{first}")
    fake.sleep(60)
    if version == "22.05":
        assert talker.state(body["job_id"]) == "COMPLETED"
    else:
        assert (status, body["errors"][0]["error_number"]) == (talker.refused, 2038)


def test_accounting_remembers_what_the_controller_forgot(make, version, tmp_path):
    fake = make(accounting=True)
    talker = Talker(fake, version, tmp_path)
    first = talker.job_id("exit 1")
    fake.sleep(1000)
    assert talker.ask("GET", "jobs")[1]["jobs"] == []
    jobs = talker.ask("GET", f"job/{first}", room="slurmdb")[1]["jobs"]
    assert [job["job_id"] for job in jobs] == [first]


def test_without_accounting_there_is_no_such_address(make, version, tmp_path):
    assert Talker(make(accounting=False), version, tmp_path).ask("GET", "jobs", room="slurmdb")[0] == 404


def test_begin_hold_and_release(fake, talker):
    submitted_s = fake.clock()
    later, held = talker.job_id(begin_time="now+10minutes"), talker.job_id(hold=True)
    fake.sleep(300)
    assert [talker.field(j, "state_reason") for j in (later, held)] == ["BeginTime", "JobHeldUser"]
    talker.ask("POST", f"job/{held}", {"hold": False})
    fake.sleep(400)
    assert talker.field(later, "start_time") == submitted_s + 601
    assert talker.field(held, "eligible_time") == submitted_s + 300


def test_an_administrators_hold_is_not_the_users_to_lift(fake, talker):
    job_id = talker.job_id(begin_time="now+1hour")
    fake.hold(job_id)
    assert talker.field(job_id, "state_reason") == "JobHeldAdmin"
    assert talker.ask("POST", f"job/{job_id}", {"hold": False})[0] == talker.refused
    fake.release(job_id)
    assert talker.field(job_id, "state_reason") == "BeginTime"


def test_when_a_node_fails_its_jobs_are_queued_again(fake, talker, tmp_path):
    out = tmp_path / "out"
    job_id = talker.job_id(f"{marked(out, 'began')}; sleep 100; {marked(out, 'ended')}", time_limit=60)
    fatal = talker.job_id("sleep 100", requeue=False)
    fake.sleep(50)
    fake.fail_node("n001")
    failed_s = fake.clock()
    assert (talker.state(job_id), talker.state(fatal)) == ("PENDING", "NODE_FAIL")
    assert (talker.field(job_id, "restart_cnt"), talker.field(job_id, "submit_time")) == (1, failed_s)
    fake.sleep(1000)
    assert lines(out) == ["began", "began", "ended"]
    assert talker.field(job_id, "nodes") == "n002"
    states = [job["state"]["current"] for job in talker.ask("GET", f"job/{job_id}", room="slurmdb")[1]["jobs"]]
    assert ["".join(state) for state in states] == ["NODE_FAIL", "COMPLETED"]


def test_a_running_job_shrinks_where_the_version_can(fake, talker):
    job_id = talker.job_id("sleep 100", nodes=talker.count(2))
    fake.sleep(10)
    status, body = talker.ask("POST", f"job/{job_id}", {"nodes": talker.count(1)})
    if talker.old:
        assert (status, body["errors"][0]["error_number"]) == (500, 2073)
    else:
        assert (status, talker.field(job_id, "node_count")) == (200, 1)


def test_completing_comes_between(make, version, tmp_path):
    fake = make(completing_s=5)
    talker = Talker(fake, version, tmp_path)
    job_id = talker.job_id()
    dependent = talker.job_id(dependency=f"afterok:{job_id}")
    fake.sleep(12)
    assert talker.state(job_id) == ("COMPLETING" if talker.old else "COMPLETEDCOMPLETING")
    assert talker.state(dependent) == "PENDING"
    fake.sleep(5)
    assert talker.state(job_id) == "COMPLETED"
    assert talker.state(dependent) == "RUNNING"


def test_the_controller_may_be_down(fake, talker):
    job_id = talker.job_id()
    fake.controller_up = False
    assert talker.ask("GET", "ping")[0] == (500 if talker.old else 200)
    assert talker.submit()[0] == (500 if talker.old else 502)
    fake.sleep(60)
    fake.controller_up = True
    assert talker.state(job_id) == "COMPLETED"


def test_a_missing_folder_fails_the_job(fake, talker):
    job_id = talker.job_id(current_working_directory="/does/not/exist")
    fake.sleep(60)
    assert talker.state(job_id) == "FAILED"


def test_nothing_is_made_up(fake, talker):
    with pytest.raises(NotImplementedError, match="licenses"):
        talker.submit(licenses="x")


def test_it_is_quick(make, version, tmp_path):
    """A chain of four stages whose scripts do nothing, looked at every few seconds."""
    fake = make(min_job_age_s=1e6)
    talker = Talker(fake, version, tmp_path)
    fake._scripts.start = lambda job, *_: bool(setattr(job, "process", subprocess.CompletedProcess([], 0)) or True)
    talker.ask("GET", "ping")
    began_s = time.process_time()
    jobs = [talker.job_id("# virtual-run-s: 100")]
    for _ in range(3):
        jobs.append(talker.job_id("# virtual-run-s: 100", dependency=f"afterok:{jobs[-1]}"))
    for _ in range(50):
        fake.sleep(10)
        talker.ask("GET", "jobs")
    spent_s = time.process_time() - began_s
    assert [talker.state(job) for job in jobs] == ["COMPLETED"] * 4
    assert spent_s < 0.5


@given(st.sets(st.integers(1, 60), min_size=1))
def test_names_of_nodes_are_written_as_ranges(numbers):
    text = node_range([f"n{number:03d}" for number in numbers])
    found = set()
    for part in text.removeprefix("n").strip("[]").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


@given(st.lists(st.tuples(st.sampled_from(["after", "afterok", "afterany"]), st.integers(1, 99), st.integers(0, 9))))
def test_dependencies_read_as_they_are_written(asked):
    text = ",".join(f"{kind}:{number}" + (f"+{delay}" if delay else "") for kind, number, delay in asked)
    clauses, _ = parse_dependency(text)
    assert [(clause.type, clause.job_id, clause.delay_min) for clause in clauses] == asked


@pytest.mark.parametrize("text", ["bogus:1", "afterok", "afterok:", "afterok:x", "afterok:1,,afterok:2"])
def test_other_dependencies_are_refused(text):
    with pytest.raises(RefusedError):
        parse_dependency(text)


# ---- faults


@pytest.fixture
def wrap(fake, version, tmp_path):
    """Make a client of the stand-in over a transport with faults."""

    def one(plan):
        transport = FaultyTransport(fake, plan, fake.clock)
        return Talker(transport, version, tmp_path), transport

    return one


HOW = {
    "refuse": (httpx.ConnectError, 0),
    "drop-before": (httpx.ReadTimeout, 0),
    "drop-after": (httpx.ReadTimeout, 1),
    "delay": (httpx.ReadTimeout, 0),
    "duplicate": (None, 2),
    "garble-status": (502, 1),
    "garble-body": (200, 1),
    "garble-json": (200, 1),
    "reset": (httpx.ReadError, 1),
    "empty": (200, 1),
    "kill-before": (Killed, 0),
    "kill-after": (Killed, 1),
}


def test_every_fault_is_known():
    assert set(HOW) == set(FAULTS)
    with pytest.raises(ValueError, match="no fault"):
        Fault("bogus")


@pytest.mark.parametrize("kind", FAULTS)
def test_what_a_fault_does(fake, wrap, kind):
    talker, transport = wrap({1: kind})
    talker.ask("GET", "ping")
    shows, arrivals = HOW[kind]
    if isinstance(shows, type):
        with pytest.raises(shows):
            talker.submit()
    else:
        answer = talker.http.post(f"/slurm/{talker.api}/job/submit", json={"script": "x"})
        assert shows in (None, answer.status_code)
    assert transport.exchanges[1].arrivals == arrivals
    assert talker.ask("GET", "ping")[0] == 200
    told = [(exchange.index, exchange.method, exchange.fault) for exchange in transport.exchanges]
    assert told == [(0, "GET", ""), (1, "POST", kind), (2, "GET", "")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("garble-body", "{"), ("garble-json", '{"errors": []}'), ("garble-status", "<html>"), ("empty", "")],
)
def test_what_is_garbled_holds_no_job_id(fake, wrap, kind, text):
    talker, _ = wrap({0: kind})
    path = {"PATH": "/bin"}
    job = {"current_working_directory": "/", "environment": path if talker.old else ["PATH=/bin"]}
    body = {"script": "#!/bin/sh\n", "job": job}
    answer = talker.http.post(f"/slurm/{talker.api}/job/submit", json=body)
    assert answer.text.startswith(text)
    with pytest.raises((ValueError, KeyError)):
        answer.json()["job_id"]
    assert len(fake.jobs) == 1


def test_garbled_by_a_gateway_that_did_not_pass_it_on(fake, wrap):
    talker, _ = wrap({0: Fault("garble-status", reaches=False)})
    assert talker.submit()[0] == 502
    assert fake.jobs == {}


def test_a_delayed_request_arrives_when_it_is_due(fake, wrap):
    talker, transport = wrap({0: Fault("delay", delay_s=25)})
    begins_s = fake.clock()
    with pytest.raises(httpx.ReadTimeout):
        talker.submit()
    for _ in range(2):  # the client looks twice
        fake.sleep(10)
        assert talker.ask("GET", "jobs")[1]["jobs"] == []
    fake.sleep(100)
    assert [job.submit_s for job in fake.jobs.values()] == [begins_s + 25]
    assert transport.exchanges[0].arrivals == 1


def test_over_a_transport_without_a_clock_it_arrives_before_the_next_exchange(fake, version, tmp_path):
    class Plain(httpx.BaseTransport):
        def handle_request(self, request):
            return fake.handle_request(request)

    talker = Talker(FaultyTransport(Plain(), {0: Fault("delay", delay_s=25)}, fake.clock), version, tmp_path)
    with pytest.raises(httpx.ReadTimeout):
        talker.submit()
    fake.sleep(24)
    assert talker.ask("GET", "jobs")[1]["jobs"] == []
    fake.sleep(1)
    assert len(talker.ask("GET", "jobs")[1]["jobs"]) == 1


@pytest.mark.parametrize(("answer", "seen"), [("first", 1), ("second", 2)])
def test_of_a_doubled_request_one_answer_is_seen(fake, wrap, answer, seen):
    talker, _ = wrap({0: Fault("duplicate", answer=answer)})
    assert talker.job_id() == seen
    assert set(fake.jobs) == {1, 2}


def test_a_lost_request_may_show_otherwise(wrap):
    talker, _ = wrap({0: Fault("drop-before", raises=httpx.WriteError)})
    with pytest.raises(httpx.WriteError):
        talker.submit()


def test_a_plan_may_choose_by_what_is_asked(wrap):
    talker, transport = wrap(lambda exchange: "refuse" if exchange.method == "DELETE" else None)
    job_id = talker.job_id()
    with pytest.raises(httpx.ConnectError):
        talker.ask("DELETE", f"job/{job_id}")
    assert [exchange.outcome for exchange in transport.exchanges] == [200, "ConnectError"]


def test_nothing_but_the_test_catches_a_kill():
    assert not issubclass(Killed, Exception)


@given(st.floats(0, 1), st.integers(0, 1000))
def test_random_faults_are_the_same_for_the_same_seed_and_kill_nobody(rate, seed):
    one, other = random_faults(rate, seed), random_faults(rate, seed)
    drawn = [one(None) for _ in range(50)]
    assert drawn == [other(None) for _ in range(50)]
    assert not any(fault and fault.kind.startswith("kill") for fault in drawn)


def test_random_faults_come_at_their_rate():
    plan = random_faults(0.2, 1)
    faults = Counter(fault.kind for fault in (plan(None) for _ in range(5000)) if fault)
    assert 0.18 < faults.total() / 5000 < 0.22
    assert set(faults) == set(FAULTS[:-2])


def test_over_a_real_socket(slurm, request):
    version = request.node.callspec.params["slurm"]
    inner = httpx.HTTPTransport(uds=slurm.socket)
    transport = FaultyTransport(inner, {1: "drop-after", 2: "duplicate"})
    talker = Talker(transport, version, slurm.folder("faulty"))
    talker.ask("GET", "ping")
    with pytest.raises(httpx.ReadTimeout):
        talker.submit(name="faulty", hold=True)
    talker.submit(name="faulty", hold=True)
    jobs = [job for job in talker.ask("GET", "jobs")[1]["jobs"] if job["name"] == "faulty"]
    assert len(jobs) == 3
    for job in jobs:
        talker.ask("DELETE", f"job/{job['job_id']}")
    inner.close()


# ---- the link


@pytest.fixture
def link(fake):
    link = RestLink("http://localhost", transport=fake, clock=fake.clock)
    yield link
    link.close()


@pytest.fixture
def slurm_job(tmp_path):
    def one(name, script="exit 0", **more):
        return SlurmJob(
            name=name, script=f"#!/bin/sh\n{script}\n", folder=str(tmp_path), cores=2, walltime_s=600,
            stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"), environment={"PATH": "/usr/bin:/bin"}, **more,
        )  # fmt: skip

    return one


def test_the_link_drives_it(fake, link, slurm_job, tmp_path):
    about = link.about()
    assert (about.version[:5], about.controller_up, about.accounting) == (fake.version, True, True)
    first = link.submit(slurm_job("first", f"sleep 100; {marked(tmp_path / 'order', 'first')}"))
    second = link.submit(slurm_job("second", marked(tmp_path / "order", "second"), dependency=f"afterok:{first}"))
    held = link.submit(slurm_job("held", held=True))
    later = link.submit(slurm_job("later", begin_s=math.ceil(fake.clock()) + 500))
    fake.sleep(10)
    records = link.jobs([first, second, held, later])
    assert [records[job].states[0] for job in (first, second, held, later)] == ["RUNNING", *["PENDING"] * 3]
    assert [records[job].reason for job in (second, held, later)] == ["Dependency", "JobHeldUser", "BeginTime"]
    link.update(own(held), held=False)
    link.update(own(later), held=True)
    fake.sleep(300)
    records = link.jobs([first, second, held, later])
    assert [records[job].states[0] for job in (first, second, held, later)] == [*["COMPLETED"] * 3, "PENDING"]
    assert records[second].eligible_s == records[first].end_s
    assert records[first].exit_code == 0
    assert lines(tmp_path / "order") == ["first", "second"]
    cancel(link, later)
    assert link.jobs([later])[later].states[0] == "CANCELLED"
    assert {record.job_id for record in link.queue()} == {first, second, held, later}
    assert [record.job_id for record in link.named(["second"])] == [second]
    assert [partition.name for partition in link.partitions()] == ["normal", "debug"]
    assert [node.cores for node in link.nodes()] == [28] * 4


def test_the_link_finds_in_accounting_what_was_forgotten(fake, link, slurm_job):
    fake.min_job_age_s = 300
    job_id = link.submit(slurm_job("old", "exit 3"))
    fake.sleep(1000)
    assert link.jobs([job_id]) == {}
    assert link.past([job_id])[job_id].states == ("FAILED",)
    assert [record.name for record in link.named(["old"])] == ["old"]

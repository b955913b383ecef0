"""What asa's own processes, plug-ins and environment tell it: messages, journals, spools, caches, variables.

These readers belong to the table of `fuzz.readers`. Most of what they read was written by asa, but may be damaged, of
another version, or of a program that speaks its protocol.
"""

import contextlib
import importlib
import io
import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
import types
import zlib
from functools import cache
from itertools import chain
from pathlib import Path

from asa.errors import AsaError, UnavailableError
from fuzz.mutation import CANARY
from fuzz.readers import FLOW, ROOT, _choice, _reader, command, of_text

_OWN = "aaaabbbbcccc-1-0"
_ALL_SIGNALS = "a signal to what is no job of this server"


def _lines(*documents):
    return "".join(f"{json.dumps(one)}\n" for one in documents)


def _documents(data, most):
    """Yield the objects among the lines, as a server would read them."""
    from asa.core.documents import read_json

    for line in data.split(b"\n")[:most]:
        with contextlib.suppress(ValueError):
            document = read_json(line or b"{}")
            if isinstance(document, dict):
                yield document


# ---------------------------------------------------------------------- recordings


def _call(program, *arguments, **environment):
    return {
        "program": program,
        "arguments": list(arguments),
        "folder": "/w",
        "environment": {"USER": "me"} | environment,
    }


_SCRIPT = "#!/bin/bash\n#SBATCH -n 4 --time=1:00:00\n#SBATCH --array=1-4%2\nsrun ./a\n"
_CALLS = _lines(
    _call("sbatch", "--parsable", "-n4", "-t", "10", "a.sh", "x"),
    {"path": "/w/a.sh", "text": _SCRIPT},
    _call("sbatch", "--dependency=afterok:1000001", "--wrap=true", "-J", "b", SBATCH_ACCOUNT="astro"),
    _call("squeue", "-h", "-u", "me", "-o", "%i %T %.10j"),
    _call("squeue", "--Format=jobid:10,state,name", "-j", "1000001_[1-4]", SQUEUE_FORMAT="%A"),
    _call("sacct", "-n", "-X", "-P", "-j", "1000001", "--format=JobID%20,State,ExitCode"),
    _call("scontrol", "show", "job", "1000001"),
)
_MORE_CALLS = _lines(
    _call("sbatch", "--wait"),
    {"text": _SCRIPT},
    _call("sbatch", "-d", "singleton", "--hold", "--wrap", "sleep 1"),
    _call("scontrol", "update", "JobId=1000001", "TimeLimit=2:00:00"),
    _call("scontrol", "release", "1000001,1000002_1"),
    _call("scancel", "--name=b", "-u", "me"),
    _call("srun", "-n2", "hostname"),
    _call("salloc", "-N1", "bash"),
    _call("sbatch", "--test-only", "--wrap=x"),
    _call("sacct", "-b"),
    _call("ssh", "node1", "sbatch", "x"),
    _call("sinfo", "-h"),
)


def _is_sound(asked):
    """Whether a call, or the submission that it made, has the types that stand-ins send: texts alone."""
    return (
        isinstance(getattr(asked, "program", ""), str)
        and isinstance(asked.folder, str)
        and isinstance(asked.arguments, list | tuple)
        and all(isinstance(word, str) for word in asked.arguments)
        and isinstance(asked.environment, dict)
        and all(isinstance(value, str) for value in asked.environment.values())
        and not getattr(asked, "lineage", ())
    )


@_reader(
    "recorded calls",
    of_text(_CALLS, _MORE_CALLS),
    lambda: (
        "--dependency=",
        "afterok:",
        "--array=",
        "--format=",
        "%i",
        "-j",
        "1000001",
        "--wrap=",
        "scontrol",
        "JobId=",
    ),
    programs=("sinfo", "sacctmgr", "sacct", "scontrol"),
)
def _recorded_calls(path, data):
    """Calls of Slurm's programs by a driver, and what their stand-ins read; then a workflow is made of them."""
    from asa.importers.recording.programs import OWN_PROGRAMS, Asked, Programs
    from asa.importers.recording.queue import RecordedQueue
    from asa.importers.recording.recorder import LeftByDriver, Recording
    from asa.importers.recording.translation import translate
    from asa.importers.scripts import ImportChoices

    queue = RecordedQueue("me", lambda: zlib.crc32(data) % 7)
    answers = Programs(queue, "", is_session=bool(zlib.crc32(data) % 2))
    documents = list(_documents(data, 30))
    while documents:
        try:
            asked = Asked(**documents.pop(0))
        except TypeError:
            continue
        talk = lambda _: documents.pop(0) if documents else {}  # noqa: E731
        # of what no stand-in sends, the recorder hears no more
        wrong = () if _is_sound(asked) else (ValueError, KeyError, TypeError, IndexError, AttributeError)
        with contextlib.suppress(*wrong):
            answer = answers.answer(asked, talk)
            json.dumps(answer)
            assert isinstance(answer["code"], int)
            assert asked.program not in OWN_PROGRAMS or set(answer) <= {"code", "output", "error", "awaits"}
    submitted = [job for job in queue.jobs if _is_sound(job)]
    recording = Recording(
        (("sh", "driver.sh"),), path.parent, {}, tuple(submitted), tuple(answers.refused), tuple(answers.remarks), 0,
        False, (), (), (), LeftByDriver(), (), 60.0, True, None, "",
    )  # fmt: skip
    translate(recording, Path("kept"), ImportChoices())


_ENDED = {
    "code": 0, "was_ended": False, "why_not": "", "behind": ["sleep 9"], "closed": ["/x"], "fixed": [],
    "new": ["/w/new"], "folders": ["/w"], "changed": [], "removed": ["/w/old"], "left": [["/w/large", 123456789]],
    "temporary": [], "read": ["/w/in"],
}  # fmt: skip


@_reader(
    "recording end",
    lambda: [json.dumps(_ENDED).encode(), b'{"no_view": "mount: not permitted"}'],
    lambda: tuple(_ENDED),
    file="keep/ended.json",
    provide=lambda folder: ((folder / "keep/made/w").mkdir(parents=True), (folder / "keep/made/w/new").write_text("x")),
)
def _recording_end(path, _data):
    from asa.importers.recording import recorder

    ended = recorder._ended(path.parent, ["sh", "driver.sh"])
    recorder._made(path.parent, ended)


_KEPT = {"commands": [["sh", "d.sh"]], "folder": "/w", "recorded": "2026-01-01T00:00:00+00:00", "jobs": []}


@_reader(
    "recording kept",
    lambda: [
        json.dumps(_KEPT | {"read": {"/etc/hostname": "sha256 00", "/w/x": "names 11"}, "file": "sha256 0"}).encode()
    ],
    file="flow.recorded/record.json",
    provide=lambda folder: (folder / "flow.toml").write_text(FLOW),
)
def _recording_kept(path, _data):
    from asa.spec.recorded import changed_since, is_as_recorded, is_of_recording

    flow = path.parent.with_name("flow.toml")
    changed_since(flow)
    is_as_recorded(flow)
    is_of_recording(path.parent)


# ---------------------------------------------------------------------- pools


_CONTACT = {"address": "tls://10.0.0.1:8786", "system": "c", "cores": 4, "resources": {"cores": 4.0, "memory": 1e9}}


@_reader("pool contact", lambda: [json.dumps(_CONTACT).encode()], lambda: tuple(_CONTACT), file="pool/contact.json")
def _pool_contact(path, _data):
    from asa.backend import JobSpec
    from asa.pool.joining import contact_of
    from asa.pool.stages import _needs

    path.parent.chmod(0o700)
    contact = contact_of(path.parent)
    for name, amount in _needs(JobSpec("a", token=_OWN, cores=1, walltime_s=60.0, command="true"), 1).items():
        amount > contact.resources.get(name, 0.0)  # noqa: B015 - as `submit` compares them
    f"{contact.address:s} {contact.system:s} {contact.cores:d}"


@cache
def _handed_over():
    from asa.backend import Dependency, JobSpec
    from asa.core.typed import written

    first = JobSpec("a", token=_OWN, cores=1, walltime_s=60.0, command="true", posts=("p",))
    then = JobSpec(
        "b", token="aaaabbbbcccc-2-0", cores=2, walltime_s=60.0, command="x", dependencies=(Dependency("1"),)
    )
    return [f'{{"spec": {written(spec)}, "submit_s": 1700000000.0, "restarts": 0}}'.encode() for spec in (first, then)]


def _provide_pool(folder):
    (folder / "run/pool").mkdir(parents=True)
    (folder / "run/pool/1.begin").write_text('{"time_s": 1700000000.0}')
    (folder / "run/pool/1.end").write_text('{"time_s": 1700000001.0, "code": 0}')


def _stages(folder):
    from asa.backend import Capabilities
    from asa.pool.stages import StagesBackend
    from asa.workflow import Stage, Workflow

    two = [Stage("a", cores=1, command="true"), Stage("b", cores=2, command="true", after=("a",))]
    return StagesBackend(
        folder, Workflow("w", two), Capabilities("x", 4, 4, age_accrues=True), {"cores": 4}, lambda _: True
    )


@_reader("pool job", _handed_over, file="run/pool/1.job", provide=_provide_pool)
def _pool_job(path, data):
    if zlib.crc32(data) % 4 == 0:
        (path.parent / "2.job").write_bytes(_handed_over()[1])
    try:
        backend = _stages(path.parents[1])
        backend.status(backend._jobs)
        backend.find([_OWN])
        for job in backend._jobs.values():
            backend._awaits(job)
    finally:
        (path.parent / "2.job").unlink(missing_ok=True)


@_reader(
    "pool state",
    lambda: [
        b'{"time_s": 1700000000.0}',
        b'{"time_s": 1700000001.0, "code": 1, "part": 2}',
        b"1700000000.0 1700000001.0",
    ],
    lambda: ("time_s", "code", "1e999"),
    file="run/pool/state",
    provide=lambda folder: (
        (folder / "run/pool").mkdir(parents=True),
        (folder / "run/pool/1.job").write_bytes(_handed_over()[0]),
    ),
)
def _pool_state(path, data):
    """What workers note of a stage: each of its files at once."""
    from asa.pool import stages

    backend = _stages(path.parents[1])
    [job] = backend._jobs.values()
    names = [backend._file(job, what) for what in ("begin", "end", "cancel")]
    names += [backend._done_in(job) / "stage"]
    try:
        for number, name in enumerate(names):
            if data and zlib.crc32(data) >> number & 1:
                name.parent.mkdir(parents=True, exist_ok=True)
                name.write_bytes(data)
        backend.status(["1"])
        backend.find([_OWN])
        backend._code(job)
        stages._times(path)
    finally:
        for name in names:
            name.unlink(missing_ok=True)


@_reader("pool tokens", of_text("aaaabbbbcccc-1-0\nddddeeeeffff-2-0\n"), file="pool/tokens")
def _pool_tokens(path, _data):
    from asa.pool.roster import Roster

    roster = Roster.__new__(Roster)
    roster._tokens_file = path
    roster.left_over()


# ---------------------------------------------------------------------- malleable programs


_WISH = {"minimum": 1, "maximum": 8, "factor": 2, "preferred": 4}
_ASKS = [
    {"v": 1, "what": "check", "job": "1", "processes": 4, "wish": _WISH, "to": 0, "wait_s": 0.0},
    {"v": 1, "what": "ask", "job": "1", "processes": 2, "wish": _WISH | {"preferred": None}, "to": 0, "wait_s": 0.0},
    {"v": 1, "what": "expand", "job": "1", "processes": 2, "wish": None, "to": 4, "wait_s": 0.0},
    {"v": 1, "what": "done", "job": "1", "processes": 1, "wish": None, "to": 0, "wait_s": 0.0},
]


class _NotStarted:
    """A program that is not started, but refused as `subprocess.Popen` would refuse it."""

    pid = -1

    def __init__(self, command, *, cwd, env, **_):
        [os.fsencode(word) for word in (*command, cwd, *env, *env.values())]


def _manager(folder):
    """Return a manager of four nodes that starts no program; job 1 has three of them, and job 2 waits."""
    from asa.backends.dmr import manager

    class Manager(manager.LocalManager):
        def _watch(self, running):
            """Follow no program."""

    manager.subprocess = types.SimpleNamespace(Popen=_NotStarted, DEVNULL=-3, STDOUT=-2)
    made = Manager(4, folder=folder)
    waits = made._changed.wait_for
    made._changed.wait_for = lambda is_met, wait_s: waits(is_met, wait_s if wait_s > threading.TIMEOUT_MAX else 0.0)
    made.submit(["true"], 3)
    made.submit(["true"], 2)
    return made


class _Site:
    """A site that takes nodes back."""

    def __init__(self):
        from asa.backend import Capabilities

        self.capabilities = Capabilities("site", 32, 8, age_accrues=True, shrink_by=8)

    def queue_events(self, *_, **__):
        from asa.waits import QueuedJob, QueueEvent

        return [QueueEvent("submitted", "9", 0.0, QueuedJob(0.0, 8, 60.0))]

    def shrink(self, job_id, nodes):
        assert (job_id, type(nodes)) == ("1", int)
        assert 1 <= nodes < 4, nodes


_SUBMITS = {
    "what": "submit",
    "command": ["true", "x"],
    "nodes": 1,
    "name": "n",
    "environment": {"A": "b"},
    "folder": "/",
}


@_reader(
    "dmr request",
    lambda: [json.dumps(one).encode() + b"\n" for one in (*_ASKS, _SUBMITS)],
    lambda: ("check", "ask", "done", "expand", "submit", "1"),
    provide=lambda folder: (folder / "m").mkdir(),
)
def _dmr_request(path, data):
    """A program's request to a manager, as it comes out of a socket."""
    from asa.backends.dmr import desk
    from asa.backends.dmr.in_job import JobManager

    from asa.dmr.protocol import Reply

    with contextlib.closing(_manager(path.parent / "m")) as local:
        for clerk in (local, JobManager(_Site(), "1", 4)):
            written = io.BytesIO()
            visit = desk._Visit.__new__(desk._Visit)
            here, there = socket.socketpair()
            with here, there:
                visit.connection, visit.rfile, visit.wfile = here, io.BytesIO(data), written
                visit.server = types.SimpleNamespace(clerk=clerk)
                visit.handle()
            if answer := written.getvalue():
                answer = json.loads(answer)
                assert "job" in answer or "error" in answer or Reply.heard(answer)
        assert sum(local._ledger.allocated.values()) + local.free == 4
        assert all(
            job.state.is_final or number in {*local._orders, *local._running} for number, job in local._jobs.items()
        )
        local._running.clear()


_ANSWERED = [
    {"v": 1, "action": "shrink", "processes": 2, "why": "others wait", "nodes": []},
    {"v": 1, "action": "expand", "processes": 8, "why": "", "nodes": ["n1", "n2"]},
    {"v": 1, "action": "no action", "processes": 4, "why": "nothing"},
]


@_reader(
    "dmr reply",
    lambda: [json.dumps(one).encode() + b"\n" for one in _ANSWERED],
    lambda: ("expand", "shrink", "no action"),
)
def _dmr_reply(_path, data):
    """A manager's answer to a program: only what makes sense is done."""
    from asa.dmr import session

    made = session.Session("/nowhere", "1", 4, answer_s=0.0)
    call = session._Call.__new__(session._Call)
    call._socket, there = socket.socketpair()
    call._heard = b""
    with call._socket, there:
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            there.send(data + b"\n" * (not data.endswith(b"\n")))
        there.close()
        made._begin = lambda _: call
        made._left_alone_until_s = -1e300
        answer = made.check_status(1, 8)
        assert answer.processes >= 1
        assert answer.action == "no action" or answer.processes != answer.before


# ---------------------------------------------------------------------- hosts


_PRINTED = """\
[Tue Dec  1 12:00:00 2026]
rule map:
    input: a.fq
    output: a.bam
    jobid: 0
    wildcards: sample=a
    resources: mem_mb=1000, tmpdir=/tmp

bwa: no such index
RuleException:
CalledProcessError in file Snakefile, line 3:
Command 'set -euo pipefail;  bwa mem a.fq' returned non-zero exit status 3.
[Tue Dec  1 12:00:01 2026]
Error in rule map:
    jobid: 0
Shutting down, this might take some time.
"""


@_reader(
    "host log",
    of_text(
        _PRINTED,
        _PRINTED.replace("returned non-zero exit status 3.", "died with <Signals.SIGKILL: 9>."),
        "rule a:\nx\n",
    ),
    lambda: ("rule x:\n", "    ", "        ", "RuleException:\n", "Error in rule ", "localrule a:\n", "]\n"),
)
def _host_log(_path, data):
    from asa.hosted.printed import printed

    text = data.decode("utf-8", "replace")
    found = printed("Snakemake", text)
    assert found is None or len(found.own) <= len(text) + 1


def _of_plugin(name):
    """Import a module of Snakemake's plug-in, also where there is no Snakemake."""
    package = "snakemake_executor_plugin_asa"
    folder = str(ROOT / "asa/hosted/plugins" / package)
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [folder]
    return importlib.import_module(f"{package}.{name}")


_PARTITIONS = """\
partitions:
  short:
    max_runtime: 2h
    max_mem_mb: 64000
    max_threads: 28
  gpu:
    cluster: big
    max_runtime: 2d12h
    max_gpu: 4
    available_gpu_models: [a100, v100]
    available_constraints: [ib]
    supports_mpi: false
"""
_RESOURCES = {
    "threads": 4, "runtime": 90, "mem_mb": 2000, "disk_mb": "<TBD>", "gpu": 1, "gpu_model": "a100", "tasks": 2,
    "nodes": 1, "cpus_per_task": 2, "slurm_partition": "short", "slurm_account": "astro",
    "slurm_extra": "'--qos=long --mail-type=END'", "constraint": "ib", "mpi": "srun", "clusters": "big", "_cores": 4,
}  # fmt: skip


@_reader(
    "host partitions",
    of_text(_PARTITIONS),
    lambda: ("max_runtime: ", "max_", "2d12h", "60:30", "cluster: ", "&a ", "*a", "!!python/object:os.system ", "- "),
    file="partitions.yaml",
)
def _host_partitions(path, _data):
    partitions, resources = _of_plugin("partitions"), _of_plugin("resources")
    job = resources.JobResources("map", _RESOURCES, 4)
    read = partitions.Partitions.read(path)
    read.of_job(job, "", "")
    read.of_job(job, "short", "big")


@_reader(
    "host resources",
    lambda: [
        json.dumps(_RESOURCES).encode(),
        json.dumps({"mem_mb_per_cpu": 500, "tasks_per_gpu": 2, "gres": "gpu:a100:2", "nodes": 2}).encode(),
    ],
    lambda: (*_RESOURCES, "gres", "tasks_per_node", "mem_mb_per_cpu", "inf", "nan", "--array=1-4", "--wrap=x"),
)
def _host_resources(_path, data):
    """A job's resources, as rules and profiles give them."""
    from asa.backend import Capabilities
    from asa.core.documents import read_json

    requests, resources = _of_plugin("requests"), _of_plugin("resources")
    try:
        values = read_json(data)
    except ValueError:
        return
    if not isinstance(values, dict):
        return
    site = Capabilities("c", 64, 16, age_accrues=True)
    for is_local in (False, True):
        reader = requests.RequestReader({"qos": "long"}, is_local)
        with contextlib.suppress(AsaError):
            asked = reader.of(resources.JobResources("map", values, 4), site)
            assert not any(str(one).startswith(f"--{CANARY}") for one in asked.options)
        reader.news()


_BENCHMARK = "s\th:m:s\tmax_rss\n1.25\t0:00:01\t10.0\n2.5\t0:00:02\t-\n"


@_reader("host benchmark", of_text(_BENCHMARK), file="a.tsv")
def _host_benchmark(path, _data):
    from asa.backend import Capabilities
    from asa.hosted.expected import Expectations

    job = types.SimpleNamespace(benchmark=path, rule=types.SimpleNamespace(name="map"), threads=4)
    site = Capabilities("c", 64, 16, age_accrues=True)
    expected = Expectations(None, "w", site, 600.0, "runtime", "--default")
    expected.measured(_of_plugin("reading").benchmarks(types.SimpleNamespace(jobs=[job])))
    walltime_s, run_s, _ = expected.of("map", 4, None, 86400.0)
    assert 0 < run_s <= walltime_s <= 86400.0


# ---------------------------------------------------------------------- the queue of this machine


def _order(**more):
    from dataclasses import asdict

    from asa.backends.local.spool import JobOrder

    made = JobOrder("1@h", 1, 4, 60.0, 1.7e9, "/r", "/r/o", "/r/e", {"A": "b"}, 0o22)
    return json.dumps(asdict(made) | more).encode()


_STANDING = {"state": "running", "eligible_s": 1.7e9, "start_s": 1.7e9, "walltime_s": 30.0}


def _process(pid=1, start=None):
    from asa.backends.local import processes
    from asa.backends.local.spool import process_space

    stat = processes._stat(pid)
    fields = ["S", "0", pid, pid, *"0" * 15, start or (stat[19] if stat else 7), 0]
    return f"{processes.boot()} {process_space()} {pid} (sh) {' '.join(map(str, fields))}\n"


def _spooled():
    """Return states of a spool: sections with the name of a file, and what is in it."""
    whole = {
        "jobs/1/order.json": _order(),
        "jobs/1/status.json": json.dumps(_STANDING).encode(),
        "jobs/1/process": _process().encode(),
        "jobs/1/code": b"",
        "jobs/2/order.json": _order(
            job_id="2@h", dependencies=[[1, "afterok", 0.0]], begin_s=1.7e9, affinity=[0], nice=5
        ),
        "ended/3/order.json": _order(job_id="3@h"),
        "ended/3/status.json": json.dumps(
            _STANDING | {"state": "completed", "end_s": 1.7e9 + 9, "exit_code": 0}
        ).encode(),
        "outlook": b'{"head": 2, "starts": {"2": 1700000100.0}}',
        "changes": b"1\n2\n",
        "count": b"000000000003\n",
        "trouble": b" " * 512,
    }
    processes = [
        b"",
        _process(0).encode(),
        _process(-1).encode(),
        _process(os.getppid()).encode(),
        _process(2**22).encode(),
    ]
    return [
        b"".join(b"==> %s <==\n%s\n" % (name.encode(), text) for name, text in (whole | more).items())
        for more in (
            {},
            *({"jobs/1/process": text} for text in processes),
            {"jobs/1/code": b"3\n"},
            {"jobs/1/code": b"no output\n", "jobs/1/cancel": b""},
            {"jobs/1/walltime": b"90.5", "jobs/2/hold": b""},
        )
    ]


_SECTION = re.compile(rb"(?m)^==> ((?:(?:jobs|ended)/\d{1,3}/)?[a-z.]{1,20}) <==\n")
_MADE = ("bell", "lock", "server.pid", "server.log")


def _put_spool(root, data):
    from asa.backends.local.spool import Spool

    spool = Spool(root)
    spool.make()
    parts = _SECTION.split(data)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        path = root / name.decode()
        if path.name not in _MADE and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text[:-1] if text.endswith(b"\n") else text)
    return spool


class _Signals:
    """Notes in place of signals whom they would reach."""

    def __enter__(self):
        self._was = os.kill, os.killpg
        self.sent = []
        os.kill = os.killpg = lambda pid, number: self.sent.append((pid, number))
        return self

    def __exit__(self, *_):
        os.kill, os.killpg = self._was
        # none of the processes that samples name is a job's
        assert not [pid for pid, number in self.sent if number], _ALL_SIGNALS


def _words_of_spools():
    return (
        *(
            "completed",
            "running",
            "pending",
            "afterok",
            "after-or-end",
            "==> jobs/1/cancel <==\n",
            "==> jobs/4/order.json <==",
        ),
        *("==> jobs/1/walltime <==\n", "==> jobs/1/code <==\n", "(sh)", "status.json", "==> count <==\n"),
        *map(_process, (0, 1, -1, os.getppid())),
    )


@_reader("local server", _spooled, _words_of_spools)
def _local_server(path, data):
    """The server of a spool goes on with what is there; it starts nothing, and signals nobody."""
    from asa.backends.local import server

    def begin(folder, order):
        [os.fsencode(text) for text in (folder, order.stdout, order.stderr, *chain(*order.environment.items()))]
        assert all(type(core) is int for core in order.affinity)
        if "\0" in f"{folder}{order.stdout}{order.stderr}{order.environment}" or any(
            "=" in name for name in order.environment
        ):
            raise ValueError("embedded null byte")
        raise OSError(2, "no program is started here")

    server.begin = begin
    with tempfile.TemporaryDirectory(dir=path.parent) as root, _Signals():
        clock_s = 1.7e9
        made = server.Server(_put_spool(Path(root, "h"), data), clock=lambda: clock_s)
        made._open()
        try:
            for number in range(4):
                made._looked_s = made._retry_s = -1e9
                made._foreseen_s = -1e9
                made._work()
                made._due_s()
                clock_s += (1.0, 100.0, 1e5, 0.0)[number]
            made._numbers_with_news()
        finally:
            os.close(made._bell)
            os.close(made._changes)
            for job in made.running.values():
                made._unwatch(job)


@_reader("local client", _spooled, _words_of_spools)
def _local_client(path, data):
    """A client reads a spool that a server has left."""
    from asa.backends.local import backend as local
    from asa.backends.local.feed import LocalQueueFeed

    from asa.backend import Capabilities, JobSpec

    local.start_server = lambda *_: None
    with tempfile.TemporaryDirectory(dir=path.parent) as root, _Signals():
        spool = _put_spool(Path(root, "h"), data)
        jobs = Path(root, "run/jobs")
        jobs.mkdir(parents=True)
        (jobs / "1@h").write_text(f"a.{_OWN}\n{_OWN}\n")
        backend = local.LocalBackend(
            Path(root), "h", Path(root, "run"), Capabilities("c", 4, 4, age_accrues=False), environment={},
            work=Path(root), sleep=lambda _: True, clock=lambda: 1.7e9 + 50,
        )  # fmt: skip
        calls = [
            lambda: backend.status(["1@h"]),
            lambda: backend.status(["2@h", "3@h"]),
            lambda: backend.find([_OWN]),
            lambda: backend.queue_events(10, ends=True),
            lambda: backend.submit(JobSpec("n", token="aaaabbbbcccc-9-0", cores=1, walltime_s=60.0, command="true")),
            lambda: backend.wait(0.0),
            lambda: backend.change_walltime("2@h", 90.0),
            lambda: backend.cancel("1@h"),
            lambda: backend.condition,
            lambda: LocalQueueFeed("c").news(spool, (), 10, ends=True),
        ]
        for call in calls:
            with contextlib.suppress(AsaError):
                call()


# ---------------------------------------------------------------------- caches and journals


_LEARNS = 90


@cache
def _learned():
    """Return a bank of few waits, and what an estimator learned of it, as texts."""
    from asa.estimators import kept
    from asa.estimators.queue_aware import QueueAwareAsa, queue_aware_asa
    from asa.estimators.store import WaitStore
    from asa.estimators.stored import WaitRecord
    from asa.waits import QueuedJob, Surroundings, at_least, exactly

    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        bank, file = Path(folder, "bank"), Path(folder, "learned.json")
        with contextlib.closing(WaitStore(bank, durable=False)) as store:
            for place in range(_LEARNS):
                wait_s = 10 ** draw.gauss(2.5, 0.7)
                job = QueuedJob(100.0 * place, draw.choice((1, 16)), 3600.0, f"u{place % 5}", "x", "batch")
                seen = exactly(wait_s) if place % 9 else at_least(wait_s)
                store.extend([WaitRecord(job, seen, run_s=float(draw.randrange(10, 900)))])
        store = WaitStore(bank, create=False)
        make = lambda: queue_aware_asa(Surroundings(0, 64))  # noqa: E731
        kept.learn(store, file, lambda _: ("x", "s", make), QueueAwareAsa.from_state, 7000.0)
        return {
            str(one.relative_to(bank)): one.read_bytes() for one in bank.rglob("*") if one.is_file()
        }, file.read_bytes()


def _provide_bank(folder):
    for name, content in _learned()[0].items():
        path = folder / "bank" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@_reader("learned", lambda: [_learned()[1]], file="learned.json", provide=_provide_bank)
def _learned_state(path, data):
    """What an estimator learned: it is used, or learned anew."""
    from asa.estimators import kept
    from asa.estimators.queue_aware import QueueAwareAsa, queue_aware_asa
    from asa.estimators.store import WaitStore
    from asa.waits import QueuedJob, Surroundings

    make = lambda: queue_aware_asa(Surroundings(0, 64))  # noqa: E731
    if path.is_file() and not path.is_symlink():  # the modes of devices are not the test's to change
        path.chmod(0o600)
    store = WaitStore(path.parent / "bank", create=False)
    kept.is_current(path, store)
    if zlib.crc32(data) % 8:
        known = kept.load(path, store, QueueAwareAsa.from_state)
        if known is None:  # else all is learned anew, which takes a while
            return
        known.live(store.news(), 10_000.0)
    else:
        known = kept.learn(store, path, lambda _: ("x", "s", make), QueueAwareAsa.from_state, 10_000.0)
    forecast = known.estimator.predict(QueuedJob(12_000.0, 16, 3600.0, "u1", "x", "batch"))
    assert all(wait_s >= 0 for wait_s in forecast.quantiles_s)


@cache
def _four_nodes():
    from asa.backends.openccs.system import CcsSystem, Node

    return CcsSystem("four", tuple(Node(f"n{number}", {"ncpus": 16}) for number in range(4)))


@cache
def _plan_journal():
    from asa.backends.openccs.journal import open_plan
    from asa.backends.openccs.requests import ResourceRequest

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "plan")
        plan = open_plan(path, _four_nodes())
        ask = ResourceRequest.parse
        inside = plan.reserve(ask("rset=2:ncpus=4,start=1000,walltime=1000s"), now=100, name="course")
        inside.submit(ask("rset=ncpus=4,walltime=600s"), now=100)
        [first] = plan.submit(ask("rset=2:ncpus=16,walltime=1h"), now=100)
        plan.submit(ask("rset=ncpus=2,walltime=500s,array=5"), now=110)
        plan.begin(first.id, now=110)
        return path.read_bytes()


@_reader("plan journal", lambda: [_plan_journal()], file="plan")
def _plan_of_journal(path, _data):
    from asa.backends.openccs.journal import open_plan
    from asa.backends.openccs.requests import ResourceRequest

    plan = open_plan(path, _four_nodes())
    plan.submit(ResourceRequest.parse("rset=ncpus=2,walltime=500s"), now=10_000)
    open_plan(path, _four_nodes())


@cache
def _abilities():
    from asa.backend import Capabilities, PartitionLimits
    from asa.core.typed import written

    batch = PartitionLimits(max_walltime_s=86400.0, max_nodes=4)
    return [
        written(Capabilities("big", 64, 16, age_accrues=True, partition="batch", partitions={"batch": batch})).encode()
    ]


@_reader("abilities", _abilities, file="own/abilities.json")
def _abilities_of_cluster(path, _data):
    """What a cluster that is away could do, in what a site of several can."""
    from asa.backend import JobSpec
    from asa.clusters.abilities import abilities_of
    from asa.clusters.away import AbsentCluster, kept

    if (known := kept(path.parent)) is not None:
        absent = AbsentCluster(known, UnavailableError("is away"), lambda: None)
        both = abilities_of({"a": absent.capabilities, "b": known}, moves_s=60.0)
        both.impossible(JobSpec("a", token=_OWN, cores=8, walltime_s=60.0, command="true", partition="batch@a"))
        str(absent.condition)


_KEEPER = {
    "way": "cron", "mark": "asa-0123456789ab", "number": 5, "since_s": 1.7e9, "chain": "1 2", "umask": 18,
    "environment": {"PATH": "/usr/bin:/bin"},
}  # fmt: skip


@_reader("keeper", lambda: [json.dumps(_KEEPER).encode()], file="run/kept.json")
def _keeper(path, _data):
    from asa import keepers

    with contextlib.suppress(OSError):
        path.with_name(keepers._FILE).write_bytes(path.read_bytes()) if path.name != keepers._FILE else None
    keepers.kept(path.parent)


# ---------------------------------------------------------------------- variables


_VARIABLES = (
    (
        "ASA_RUNS=runs\nASA_BANK=bank\nASA_SITES=sites\nASA_POOLS=pools\nASA_TRUSTED=/x:/y\nASA_READ_FACTOR=2\nASA_KEEP=A,B_*\n"
        "XDG_CACHE_HOME=/nonexistent\nXDG_DATA_HOME=rel\nCOLUMNS=80\nTZ=UTC\nLC_ALL=C\n"
    ),
    "ASA_DMR=/x\nASA_DMR_JOB=1\nASA_DMR_PROCESSES=4\nASA_DMR_PERIOD=1.5\nASA_DMR_TIMEOUT=2\nASA_CORES=4\nASA_STAGE=a\n",
    (
        "SBATCH_ACCOUNT=astro\nSBATCH_PARTITION=long\nSBATCH_TIMELIMIT=1-0\nSBATCH_EXCLUSIVE=\nSBATCH_ARRAY_INX=1-4%2\n"
        "SBATCH_MEM_PER_NODE=4G\nSBATCH_GPUS=2\nSLURM_HINT=nomultithread\nSLURM_CLUSTERS=big\nSLURM_CONF=/etc/slurm.conf\n"
    ),
    (
        "SLURM_JOB_ID=7\nSLURM_JOB_NODELIST=n[1-4]\nSLURM_NTASKS=4\nSLURM_CPUS_PER_TASK=2\nSLURM_JOB_NUM_NODES=2\n"
        "SLURM_JOB_END_TIME=1700000000\nSLURM_JOB_QOS=q\nSLURM_JWT=x\nASA_POOL=/nowhere\nASA_LEG=2\nASA_LEG_END=1\nASA_VALUES=v\n"
    ),
)
_NAME = re.compile(
    r"(?:ASA|SBATCH|SLURM|SQUEUE|SACCT|XDG|LC|NUMBA)_[A-Z_0-9]{1,40}|COLUMNS|LINES|TZ|TERM|LANG|SHELL|USER"
)


@cache
def _names_of_variables():
    """Return the names that asa's source has."""
    names = set()
    for room in ("asa", "backends"):
        for file in (ROOT / room).rglob("*.py"):
            names.update(re.findall(r"\b(?:ASA|SBATCH|SLURM)_[A-Z_]{2,30}\b", file.read_text()))
    return tuple(f"{name}=" for name in sorted(names))


@contextlib.contextmanager
def _environment(variables):
    was = dict(os.environ)
    try:
        for name, value in variables.items():
            with contextlib.suppress(ValueError, UnicodeError):  # what no environment can hold
                os.environ[name] = value
        time.tzset()
        yield
    finally:
        os.environ.clear()
        os.environ.update(was)
        time.tzset()


@_reader(
    "variables",
    of_text(*_VARIABLES),
    _names_of_variables,
    file="x",
    programs=("scontrol", "sinfo", "sh"),
    provide=lambda folder: (folder / "flow.toml").write_text(FLOW),
)
def _variables(path, data):
    """Variables of the environment, a line each."""
    from asa.backends.slurm.facility import SlurmCommands
    from asa.backends.slurm.sbatch_variables import sbatch_options, sbatch_settings

    from asa.core import computer, reading
    from asa.dmr.session import Session
    from asa.pool.joining import contact_of, named_pool

    lines = (line.partition("=") for line in data.decode("utf-8", "surrogateescape").splitlines())
    own = ("HOME", "TMPDIR", "ASA_TRACEBACK")
    variables = {name: value for name, _, value in lines if _NAME.fullmatch(name) and name not in own}
    for name, folder in (("ASA_RUNS", "runs"), ("ASA_BANK", "bank"), ("ASA_POOLS", "pools")):
        if name in variables and not variables[name].startswith((".", "/proc", "/dev", "/nonexistent")):
            variables[name] = str(path.parent / folder)
    with _environment(variables):
        reading.bound(1)
        sbatch_settings(os.environ)
        assert not any("\n" in option for option in sbatch_options(os.environ))
        calls = (
            Session.of_environment,
            lambda: SlurmCommands(offline=True).notes,
            lambda: contact_of(named_pool()) if named_pool() else None,
            computer.__name__.upper,
        )
        for call in calls:
            with contextlib.suppress(AsaError):
                call()
        flow = path.with_name("flow.toml")
        command(
            *_choice(
                data,
                ("runs",),
                ("status",),
                ("bank", "show"),
                ("list",),
                ("check", flow),
                ("run", flow, "--dry-run", "--backend", "local", "--bank", "none"),
                (
                    "run",
                    flow,
                    "--dry-run",
                    "--scripts",
                    "--backend",
                    "slurm-cli",
                    "--option",
                    "offline=yes",
                    "--bank",
                    "none",
                ),
            )
        )

"""Parts of this machine's queue, without processes: settings, the outlook, files."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from asa.backends.local import LocalMachine, examination, processes
from asa.backends.local.outlook import Awaited, foresee
from asa.backends.local.server import Server
from asa.backends.local.settings import cores_here, default_spool
from asa.backends.local.spool import Changes, JobOrder, Spool, SpooledStanding, host, process_space, put, written
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError, TraceError


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"cores": "many"}, "cores"),
        ({"cores": -1}, "cores"),
        ({"spool": "relative"}, "spool"),
        ({"environment": "x"}, "environment"),
        ({"coers": 1}, "coers"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(settings, where):
    with pytest.raises(InputError) as caught:
        LocalMachine(**settings)
    assert caught.value.where == where


def test_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    machine = LocalMachine(environment="A=1,B=x=y")
    assert machine.settings.environment == {"A": "1", "B": "x=y"}
    assert machine.settings.cores == machine.capabilities.max_cores == cores_here()
    assert machine.settings.spool == default_spool() == tmp_path / "asa" / "local"
    assert machine.notes


def test_a_job_is_no_part_of_the_job_that_its_client_runs_in(monkeypatch, tmp_path):
    """Within `salloc -N2` it would otherwise spread its tasks over that allocation."""
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURMD_NODENAME", "PMI_RANK", "PMIX_NAMESPACE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    machine = LocalMachine(spool=str(tmp_path / "spool"), environment={"PMI_MMAP": "own"})
    inherited = machine.connect(tmp_path / "run")._environment
    told = {name: value for name, value in inherited.items() if name.startswith(("SLURM", "PMI"))}
    assert told.pop("SLURM_SUBMIT_DIR") == str(Path.cwd()), "where scripts go"
    assert told == {"SLURM_CONF": "/etc/slurm/slurm.conf", "PMI_MMAP": "own"}


def test_what_jobs_have_of_another_session_is_a_finding(monkeypatch, tmp_path):
    machine = LocalMachine(spool=str(tmp_path / "spool"))
    spool = Spool(tmp_path / "spool" / host())
    spool.make()
    bell = os.open(spool.bell, os.O_RDONLY | os.O_NONBLOCK)
    spool.pid.write_text(f"{os.getpid()}\n")
    limits = {"self": {"cpu.max": "max 100000", "memory.max": "max"}, str(os.getpid()): {"cpu.max": "50000 100000"}}
    try:
        assert "server's limits" not in {f.topic for f in machine.examine(probe=False).findings}
        monkeypatch.setattr(examination, "_limits", limits.__getitem__)
        monkeypatch.setattr(os, "getpriority", lambda _, pid: 7 if pid else 0)
        told = {f.topic: f for f in machine.examine(probe=False).findings}
    finally:
        os.close(bell)
    assert "cpu.max 50000 100000, here max 100000" in told["server's limits"].told
    assert told["server's priority"].told == "nice 7"
    assert {told[topic].verdict for topic in ("server's limits", "server's priority")} == {"note"}


def test_a_bad_queue_folder_is_a_finding(tmp_path):
    (tmp_path / "file").touch()
    found = LocalMachine(spool=str(tmp_path / "file")).examine(probe=True)
    assert not found.is_usable
    machine = LocalMachine(spool=str(tmp_path / "spool"))
    machine.connect(tmp_path / "run")
    with pytest.raises(TraceError, match="no job"):
        machine.history(0.0)


_JOBS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(0, 60)), max_size=15)


@given(_JOBS, st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2)), max_size=2))
def test_an_outlook_is_a_schedule(jobs, running):
    """It has a start for each waiting job, never needs more cores than there are, and keeps the order of readiness."""
    pending = [
        Awaited(10 + n, cores, 4, float(walltime), float(ready)) for n, (cores, walltime, ready) in enumerate(jobs)
    ]
    starts = foresee(0.0, {n: (-1.0, float(end), cores) for n, (end, cores) in enumerate(running)}, pending)
    assert starts.keys() == {job.number for job in pending}
    spans = [(0.0, float(end), cores) for end, cores in running]
    spans += [(starts[job.number], starts[job.number] + job.walltime_s, job.cores) for job in pending]
    for moment, _, _ in spans:
        assert sum(cores for start, end, cores in spans if start <= moment < end) <= 4
    for n, first in enumerate(pending):
        assert starts[first.number] >= first.ready_s
        assert all(
            starts[later.number] >= starts[first.number] for later in pending[n:] if later.ready_s >= first.ready_s
        )


def test_a_schedule_waits_for_what_it_depends_on():
    jobs = [Awaited(2, 1, 4, 10.0, 0.0), Awaited(3, 1, 4, 10.0, 0.0, ((2, "after", 5.0),))]
    jobs += [
        Awaited(4, 1, 4, 1.0, 0.0, ((3, "afterok", 0.0), (1, "afterany", 0.0))),
        Awaited(5, 1, 4, 1.0, 0.0, ((9, "after", 0.0),)),
    ]
    assert foresee(0.0, {1: (0.0, 30.0, 1)}, jobs) == {2: 0.0, 3: 5.0, 4: 30.0}


def test_changes_are_told_once_and_a_new_file_of_them_is_noticed(tmp_path):
    path = tmp_path / "changes"
    path.write_text("1\n")
    changes = Changes(path)
    assert changes.fresh() == set()
    with path.open("a") as file:
        file.write("2\n3\n4")
    assert changes.fresh() == {2, 3}
    with path.open("a") as file:
        file.write("5\n")
    assert changes.fresh() == {45}
    (tmp_path / "new").write_text("7\n")
    (tmp_path / "new").replace(path)
    assert changes.fresh() is None


def test_a_spool_tells_of_what_is_there(tmp_path):
    spool = Spool(tmp_path / "spool")
    spool.make()
    spool.make()
    assert not spool.ring(), "there is no server"
    numbers = [spool.next_number() for _ in range(3)]
    assert numbers == [1, 2, 3]
    assert spool.order(1) is None
    assert not spool.holds(1)
    (spool.ended / "8").mkdir()
    (spool.ended / "8" / "status.json").write_bytes(written(SpooledStanding(state="failed", exit_code=0)))
    assert spool.standing(8) == SpooledStanding(state="failed", exit_code=0)
    (spool.ended / "8" / "status.json").write_text("[]")
    with pytest.raises(ValueError, match="object"):
        spool.standing(8)
    assert oct(spool.root.stat().st_mode & 0o777) == "0o700"
    assert spool.root.stat().st_uid == os.getuid()


# ---------------------------------------------------------------------- whom the server signals


@pytest.fixture
def signalled(monkeypatch):
    """Note which processes would be signalled, and signal none."""
    found = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda pid, number, name=name: found.append((name, pid, number)))
    return found


def _planted(pid, start=None):
    """Return the file of a job's process as it would be of any process, with the start that it really has."""
    stat = processes._stat(pid)
    fields = ["S", "1", str(pid), str(pid), *"0" * 15, start or (stat[19] if stat else "7"), "0"]
    return f"{processes.boot()} {process_space()} {pid} (sh) {' '.join(fields)}\n"


def _serve_a_planted_job(tmp_path, text):
    """Let a server take over a running job with such a process, cancel it, and end what is left; return the server."""
    spool = Spool(tmp_path / "spool")
    spool.make()
    order = JobOrder("1@h", 1, 1, 0.001, 0.0, str(tmp_path), "/o", "/e", {}, 0o22)
    number = spool.next_number()
    spool.publish(number, order, b"true\n", held=False)
    put(spool.jobs / "1" / "status.json", written(SpooledStanding(state="running", start_s=1.0, eligible_s=1.0)))
    put(spool.jobs / "1" / "process", text.encode())
    (spool.jobs / "1" / "cancel").touch()
    now_s = 1e9
    server = Server(spool, clock=lambda: now_s)
    server._open()
    try:
        for _ in range(3):
            server._looked_s = server._retry_s = -1e9
            server._work()
            now_s += 1e6
        (spool.jobs / "1" / "order.json").write_text("{") if (spool.jobs / "1").exists() else None
        server.running.clear()
        server._looked_s = -1e9
        server._work()  # rejects what it cannot read
    finally:
        os.close(server._bell)
        os.close(server._changes)
    return server


@pytest.mark.parametrize("pid", ["0", "1", "-1", "-7", "own", "session", "4194305", "9" * 40, "9" * 5000])
def test_a_planted_process_file_has_nothing_signalled(tmp_path, signalled, pid):
    number = {"own": os.getpid(), "session": os.getsid(0)}.get(pid, pid)
    text = f"{processes.boot()} {process_space()} {number} (sh) S 1 {'0 ' * 16} 7 0\n"
    if len(pid) < 8:
        text = _planted(int(number))
    _serve_a_planted_job(tmp_path, text)
    (tmp_path / "process").write_text(text)
    assert processes.doing_of(tmp_path) is None
    assert signalled == []


@pytest.mark.parametrize("pid", [0, 1, -1])
def test_no_signal_goes_to_all_processes_whoever_asks(signalled, pid):
    doing = processes.Doing(processes.boot(), process_space(), pid, (processes._stat(pid) or ["7"] * 20)[19])
    assert not doing.is_alive
    doing.end_rest()
    processes.tell_session(pid, signal.SIGKILL)
    assert signalled == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root may signal processes of others")
@pytest.mark.parametrize("is_over", [False, True])
def test_a_process_of_another_user_is_never_signalled(tmp_path, signalled, is_over):
    """Also not what it leaves in its session after its end."""
    program = ["sh", "-c", "sleep 60 & echo; exit"] if is_over else ["sh", "-c", "echo; read -r x; exit"]
    theirs = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=64203, group=64203, start_new_session=True
    )
    try:
        theirs.stdout.read(1)
        text = _planted(theirs.pid)
        if is_over:
            theirs.wait()
        _serve_a_planted_job(tmp_path, text)
        assert signalled == []
    finally:
        ours = list(processes._in_session(theirs.pid))
        for pid in ours:
            subprocess.run([shutil.which("kill"), "-9", str(pid)], check=True)
        theirs.communicate()


def test_a_job_s_own_process_is_signalled(tmp_path, signalled):
    own = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        _serve_a_planted_job(tmp_path, _planted(own.pid))
        assert ("killpg", own.pid, signal.SIGTERM) in signalled
    finally:
        own.communicate()

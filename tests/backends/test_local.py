"""The queue of one machine: real processes and real servers, also killed ones."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from asa.backends.local import server as server_module
from asa.backends.local.backend import LocalBackend, start_server
from asa.backends.local.processes import boot
from asa.backends.local.server import MAX_LOCAL, Server
from asa.backends.local.spool import Spool, SpooledStanding, locked, put, written
from local_queue import Queue, ended, job, lines, running
from slurm_testbed import until

from asa.backend import Adjustable, Backend, Dependency, DependencyType, Examinable, Facility, JobState, Shrinking
from asa.errors import BackendError, JobNotFoundError, SubmitRejectedError, UnavailableError
from asa.payload import payload_text
from asa.testing import check_backend
from asa.workflow import Stage


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path)
    yield queue
    queue.close()


@pytest.mark.full
def test_it_keeps_the_contract_under_load(tmp_path):
    queue = Queue(tmp_path, cores=40)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        check_backend(queue.connect, run_s=0.5, at_once=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        queue.close()


@pytest.mark.full
def test_it_keeps_the_contract_while_its_server_is_killed_again_and_again(tmp_path):
    queue, is_over, kills = Queue(tmp_path, cores=40), threading.Event(), []
    queue.connect()

    def kill():
        moments = random.Random(3)
        while not is_over.wait(moments.uniform(0.0, 1.5)):
            try:
                if queue.spool.ring():  # else the number may be another's by now
                    os.kill(int(queue.spool.pid.read_text()), signal.SIGKILL)
                    kills.append(time.monotonic())
            except (OSError, ValueError):
                pass

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        check_backend(queue.connect, run_s=1.0, at_once=True)
    finally:
        is_over.set()
        killer.join()
        queue.close()
    assert len(kills) > 2


def test_ports(queue):
    assert isinstance(queue.machine, Facility)
    assert isinstance(queue.machine, Examinable)
    backend = queue.connect()
    assert isinstance(backend, Backend)
    assert isinstance(backend, Adjustable)
    assert not isinstance(backend, Shrinking), "a machine is one node"
    assert list(backend.preview(job("echo x"))) == ["script"]


def test_nobody_overtakes(queue):
    """A job that would fit waits behind one that does not."""
    backend = queue.connect(cores=2)
    first = backend.submit(job("sleep 1"))
    wide = backend.submit(job("sleep 0.2", cores=2))
    narrow = [backend.submit(job("sleep 0.1")) for _ in range(3)]
    running(backend, first)
    until(lambda: backend.status([wide])[wide].reason == "Resources", what="the reason of the first in the queue")
    assert {s.reason for s in backend.status(narrow).values()} == {"Priority"}
    statuses = ended(backend, first, wide, *narrow)
    assert statuses[1].start_s >= statuses[0].end_s
    assert min(s.start_s for s in statuses[2:]) >= statuses[1].end_s
    assert sorted(s.start_s for s in statuses) == [s.start_s for s in statuses]


def test_who_may_have_fewer_cores_waits_for_them(queue):
    """Two clients share a queue, and one is limited to fewer cores."""
    wide, narrow = queue.connect("wide", cores=4), queue.connect("narrow", cores=2)
    three = wide.submit(job("sleep 1", cores=3))
    running(wide, three)
    one = narrow.submit(job())
    last = ended(narrow, one)
    assert last.start_s >= ended(wide, three).end_s


def test_a_job_starts_at_once_and_its_end_is_heard_soon(queue):
    backend = queue.connect()
    ended(backend, backend.submit(job()))  # now there is a server
    delays, lags = [], []
    for _ in range(5):
        status = ended(backend, backend.submit(job()))
        lags.append(time.time() - status.end_s)
        delays.append(status.start_s - status.submit_s)
    assert min(delays) < 0.05
    assert min(lags) < 0.2


def test_expected_starts(queue):
    backend = queue.connect(cores=1)
    first = backend.submit(job("sleep 30", walltime_s=100))
    second = backend.submit(job(walltime_s=50))
    third = backend.submit(job(dependencies=(Dependency(second),)))
    started = running(backend, first)

    def foretold():
        told = backend.status([second, third])
        return told[second].expected_start_s and told[third].expected_start_s and told

    told = until(foretold, what="expected starts")
    assert told[second].expected_start_s == pytest.approx(started.start_s + 100, abs=2)
    assert told[third].expected_start_s == pytest.approx(started.start_s + 150, abs=2)


def test_an_end_is_enough_where_the_delay_is_longer(queue):
    backend = queue.connect(cores=2)
    first = backend.submit(job("sleep 0.5"))
    soon, late = (
        backend.submit(job(dependencies=(Dependency(first, DependencyType.AFTER, delay_s, or_end=delay_s > 1),)))
        for delay_s in (300.0, 1.0)
    )
    before, after, at_its_time = ended(backend, first, soon, late)
    assert before.end_s <= after.start_s < before.end_s + 2
    assert at_its_time.start_s >= before.start_s + 1.0


def test_local_stages_run_beside_the_queue_a_few_at_a_time(queue):
    backend = queue.connect(cores=1)
    running(backend, backend.submit(job("sleep 60")))
    waiting = backend.submit(job())
    told = ended(backend, *(backend.submit(job("sleep 0.4", cores=7, local=True)) for _ in range(MAX_LOCAL + 3)))
    assert {s.state for s in told} == {JobState.COMPLETED}
    at_once = [sum(a.start_s <= b.start_s < a.end_s for a in told) for b in told]
    assert max(at_once) == MAX_LOCAL
    assert backend.status([waiting])[waiting].state is JobState.PENDING


def test_what_anybody_posts_is_awaited(queue):
    """Also markers of a job of Slurm in the same run."""
    backend = queue.connect()
    waiting = backend.submit(job(awaits=("u/far",), local=True))
    running(backend, waiting)
    assert backend.status([waiting])[waiting].payload_start_s is None
    (queue.root / "run" / "posts" / "u%2Ffar").touch()
    assert ended(backend, waiting).state is JobState.COMPLETED


def test_output_lies_where_that_of_slurm_does(queue):
    backend = queue.connect()
    ended(backend, backend.submit(job("echo out; echo err >&2; echo $ASA_JOB_ID", token="a-1")))
    [out] = (queue.root / "run" / "logs").glob("test.a-1-??????.out")
    assert out.read_text().startswith("out\n1@")
    assert out.with_suffix(".err").read_text() == "err\n"


@pytest.mark.full
def test_thousands_of_tasks_in_a_job(queue):
    tasks = tuple(f": task {n} {'with a long list of files ' * 4}" for n in range(5000))
    text = payload_text(Stage("s", cores=1, tasks=(*tasks, f"echo last >{queue.root}/did")), 8)
    assert len(text) > 500_000
    backend = queue.connect()
    one = job(text, walltime_s=600.0)  # twenty seconds, where nothing else runs
    assert ended(backend, backend.submit(one)).exit_code == 0
    assert lines(queue.root / "did") == ["last"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_a_job_has_the_cores_and_the_priority_of_its_own_client(queue):
    """Not those of the client that started the server."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_cores)})
    try:
        ended(first := queue.connect("first"), first.submit(job(f"nproc >{queue.root}/one")))
    finally:
        os.sched_setaffinity(0, all_cores)
    wide = queue.connect("wide")
    wide._nice = 3  # this process could not become as it was
    ended(wide, wide.submit(job(f"nproc >{queue.root}/all; nice >>{queue.root}/all")))
    assert lines(queue.root / "one") == ["1"]
    assert lines(queue.root / "all") == [str(len(all_cores)), "3"]


# ---------------------------------------------------------------------- ends


def test_who_ignores_the_request_to_end_is_killed_with_all_its_processes(queue):
    """Also those in another process group."""
    command = f"trap '' TERM; set -m; sleep 600 & echo $! >{queue.root}/child; touch {queue.root}/up; wait; sleep 600"
    backend = queue.connect()
    job_id = backend.submit(job(command, walltime_s=1.0))
    status = ended(backend, job_id)
    assert (status.state, status.reason) == (JobState.TIMEOUT, "TimeLimit")
    assert status.end_s - status.start_s == pytest.approx(6.0, abs=2.5)
    [child] = lines(queue.root / "child")
    until(lambda: not Path(f"/proc/{child}").exists() or _is_dead(child), what="the end of the child")


def _is_dead(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def test_who_is_asked_to_end_may_tidy_up(queue):
    backend = queue.connect()
    command = f"trap 'echo tidy >{queue.root}/did; exit 0' TERM; touch {queue.root}/up; while :; do sleep 0.1; done"
    job_id = backend.submit(job(command))
    until((queue.root / "up").exists)
    backend.cancel(job_id)
    assert ended(backend, job_id).state is JobState.CANCELLED
    assert lines(queue.root / "did") == ["tidy"]


def test_what_a_job_leaves_behind_ends_with_it(queue):
    backend = queue.connect()
    ended(backend, backend.submit(job(f"sleep 600 & echo $! >{queue.root}/child")))
    [child] = lines(queue.root / "child")
    until(lambda: not Path(f"/proc/{child}").exists() or _is_dead(child), what="the end of the child")


def test_a_running_jobs_walltime_can_be_changed(queue):
    backend = queue.connect()
    job_id = backend.submit(job("sleep 60"))
    running(backend, job_id)
    backend.change_walltime(job_id, 0.5)
    assert ended(backend, job_id).state is JobState.TIMEOUT
    with pytest.raises(BackendError, match="has ended"):
        backend.change_walltime(job_id, 10.0)


def test_a_job_whose_processes_were_killed_is_lost(queue):
    backend = queue.connect()
    job_id = backend.submit(job(f"echo $$ >{queue.root}/pid; sleep 600"))
    until(lambda: lines(queue.root / "pid"))
    os.killpg(os.getpgid(int(lines(queue.root / "pid")[0])), signal.SIGKILL)
    status = ended(backend, job_id)
    assert (status.state, status.reason, status.exit_code) == (JobState.FAILED, "Lost", None)
    assert "killed from outside" in backend.advice("Lost").meaning


def test_a_job_whose_output_cannot_be_written_says_so(queue):
    backend = queue.connect(cores=1)
    first = backend.submit(job("sleep 0.5"))
    second = backend.submit(job())
    running(backend, first)
    logs = queue.root / "run" / "logs"
    logs.rename(logs.with_name("elsewhere"))
    assert ended(backend, second).reason == "OutputUnwritable"


# ---------------------------------------------------------------------- clients and servers that are no more

_CLIENT = """
import sys, pathlib
from local_queue import Queue, job
backend = Queue(pathlib.Path(sys.argv[1])).connect()
print(backend.submit(job(f"sleep 1; echo x >>{sys.argv[1]}/did; exit 3", token="t-1")), flush=True)
backend.wait(None); backend.wait(None); backend.wait(None)
"""


def test_jobs_survive_their_client(queue):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(queue.root)], stdout=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    ) as client:  # fmt: skip
        job_id = client.stdout.readline().strip()
        os.killpg(client.pid, signal.SIGKILL)  # all that a terminal would take along
    backend = queue.connect()
    [found] = backend.find(["t-1"])["t-1"]
    assert found.job_id == job_id
    status = ended(backend, job_id)
    assert (status.state, status.exit_code) == (JobState.FAILED, 3)
    assert lines(queue.root / "did") == ["x"]


def test_jobs_survive_the_server(queue):
    backend = queue.connect()
    ids = [backend.submit(job(f"sleep {s}; exit {code}")) for s, code in ((0.3, 0), (0.3, 4), (4, 5))]
    late = backend.submit(job(dependencies=(Dependency(ids[2], DependencyType.AFTERANY),)))
    for job_id in ids:
        running(backend, job_id)
    queue.kill_server()
    until(lambda: all((queue.spool.jobs / i.split("@")[0] / "code").exists() for i in ids[:2]), what="two ends")
    seen_s = time.time()
    time.sleep(0.2)
    told = ended(backend, *ids, late)
    assert [(s.state, s.exit_code) for s in told[:3]] == [
        (JobState.COMPLETED, 0), (JobState.FAILED, 4), (JobState.FAILED, 5),
    ]  # fmt: skip
    assert told[3].start_s >= told[2].end_s
    assert max(s.end_s for s in told[:2]) <= seen_s + 0.1, "they ended when they did, not when that was seen"


def test_a_limit_holds_across_servers(queue):
    backend = queue.connect()
    job_id = backend.submit(job("sleep 60", walltime_s=2.0))
    running(backend, job_id)
    queue.kill_server()
    assert ended(backend, job_id).state is JobState.TIMEOUT


@pytest.mark.parametrize("how", ["reboot", "recycled", "code"])
def test_what_runs_no_more_is_told_from_what_has_its_number(queue, how):
    """Process numbers are reused, and begin anew when the computer starts."""
    backend = queue.connect()
    job_id = backend.submit(job("sleep 60"))
    running(backend, job_id)
    folder = queue.spool.jobs / job_id.split("@")[0]
    until(lambda: (folder / "process").exists() and (folder / "process").read_text())
    queue.kill_server()
    told = (folder / "process").read_text()
    os.killpg(int(told.split()[2]), signal.SIGKILL)
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # no number is given away again within the tick in which it was given
    innocent = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        stat = Path(f"/proc/{innocent.pid}/stat").read_text()
        if how == "reboot":
            (folder / "process").write_text(
                told.replace(boot(), "another-start").replace(told.split()[2], stat.split()[0])
            )
        else:
            (folder / "process").write_text(told.replace(f" {told.split()[2]} (", f" {innocent.pid} ("))
        if how == "code":
            (folder / "code").write_text("7\n")
        status = ended(backend, job_id)
        assert (status.reason, status.exit_code) == (("NonZeroExitCode", 7) if how == "code" else ("Lost", None))
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("how", ["waiting", "glancing"])
def test_who_has_jobs_sees_to_a_server_however_it_waits(queue, how):
    """Also a client that never waits, as one that mainly uses another batch system."""
    backend = queue.connect()
    queue.server() if queue.is_served() else ended(backend, backend.submit(job()))
    os.kill(queue.server(), signal.SIGSTOP)
    job_id = backend.submit(job())
    queue.kill_server()
    pause_s = 0.0 if how == "glancing" else 0.3
    until(lambda: any(s.state.is_final for s in backend.wait(backend.now() + pause_s)), what=f"the end of {job_id}")


def test_one_server_serves(queue):
    queue.connect()
    for _ in range(8):
        start_server(queue.spool, 30.0)
    pid = queue.server()

    def servers():
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        return sum(b"asa_queue" in command and os.fsencode(queue.spool.root) in command for command in commands)

    until(lambda: servers() == 1, what="the end of all but one")
    assert queue.server() == pid


def test_a_server_without_work_ends_and_another_comes(queue, tmp_path):
    backend = LocalBackend(
        tmp_path / "spool", queue.spool.root.name, tmp_path / "run", queue.machine.capabilities,
        environment=dict(os.environ), work=tmp_path, linger_s=0.2,
    )  # fmt: skip
    for _ in range(3):
        assert ended(backend, backend.submit(job())).state is JobState.COMPLETED
        until(lambda: not queue.is_served(), what="the end of the server")


# ---------------------------------------------------------------------- bad days


def test_a_broken_file_stops_nobody_else(queue):
    backend = queue.connect()
    broken, sound = backend.submit(job(held=True)), backend.submit(job(held=True))
    queue.kill_server()
    (queue.spool.jobs / broken.split("@")[0] / "order.json").write_text('{"cores": ')
    backend.release(sound)
    assert ended(backend, sound).state is JobState.COMPLETED
    assert ended(backend, broken).reason == "BrokenFile"


def test_a_full_disk_is_told_and_waited_for(queue, monkeypatch):
    """The server cannot write the states of jobs, and goes on once it can."""
    is_full, write = threading.Event(), server_module.put

    def refuse(path, data):
        if is_full.is_set() and path.name == "status.json":
            raise OSError(28, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(server_module, "put", refuse)
    queue.spool.make()
    server = Server(queue.spool, linger_s=60.0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        until(queue.spool.ring, what="the server")
        backend = queue.connect()
        first = backend.submit(job("sleep 0.5; exit 6"))
        running(backend, first)
        is_full.set()
        second = backend.submit(job())
        until(lambda: "No space left" in backend.condition.trouble, what="the trouble")
        time.sleep(0.5)
        assert backend.status([second])[second].state is JobState.PENDING
        is_full.clear()
        assert [s.exit_code for s in ended(backend, first, second)] == [6, 0]
        until(lambda: backend.condition.trouble == "")
    finally:
        server.leave()
        thread.join(timeout=60)


def test_a_server_that_does_not_start_is_told_of(queue, monkeypatch):
    backend = queue.connect()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        job_id = backend.submit(job())
        until(lambda: backend.wait(backend.now() + 0.2) or "does not start" in backend.condition.trouble)
    assert ended(backend, job_id).state is JobState.COMPLETED
    until(lambda: backend.wait(backend.now() + 0.2) or backend.condition.trouble == "")


def test_a_folder_that_cannot_be_had_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="Not a directory") as caught:
        Queue(tmp_path / "file").machine.connect(tmp_path / "run")
    assert "spool=" in caught.value.hint


@pytest.mark.full
def test_another_hosts_jobs_are_not_dead(queue, tmp_path):
    backend = queue.connect()
    job_id = backend.submit(job("sleep 60", token="t-1"))
    running(backend, job_id)

    def elsewhere(spool):
        return LocalBackend(
            spool, "login2", tmp_path / "run", queue.machine.capabilities, environment={}, work=tmp_path
        )

    for spool in (tmp_path / "spool", tmp_path / "no shared home"):
        other = elsewhere(spool)
        [found] = other.find(["t-1"])["t-1"]
        assert found.job_id == job_id
        assert not found.state.is_final
        assert f"runs on {job_id.split('@')[1]}, and this is login2" in other.condition.trouble
        assert list(other.wait(other.now() + 0.3)) == []
        with pytest.raises(UnavailableError, match="depends on"):
            other._dependencies(job(dependencies=(Dependency(job_id),)))
    with pytest.raises(UnavailableError, match="not to be seen"):
        other.cancel(job_id)
    near = elsewhere(tmp_path / "spool")
    near.cancel(job_id)
    assert ended(near, job_id).state is JobState.CANCELLED


class Container:
    """A client in a restarted container: it has the same host name, and other processes."""

    def __init__(self, queue, clock=time.time):
        self.queue, self.clock = queue, clock
        self.capabilities = queue.machine.capabilities

    def connect(self, number, **options):
        return LocalBackend(
            self.queue.root / "spool", f"box-{number}", self.queue.root / "run", self.capabilities,
            environment=dict(os.environ), work=self.queue.root, clock=self.clock, **options,
        )  # fmt: skip

    def spool(self, number):
        return Spool(self.queue.root / "spool" / f"box-{number}")


@pytest.mark.parametrize("stage", ["pending", "running", "ended", "gone"])
def test_a_job_of_a_container_that_was_started_anew_is_lost_in_time(queue, monkeypatch, stage):
    monkeypatch.setattr(LocalBackend, "_start", lambda _: None)  # what served it died with the container
    later = [0.0]
    box = Container(queue, clock=lambda: time.time() + later[0])
    old = box.connect(4026532290)
    job_id = old.submit(job(token="t-1", walltime_s=1000.0))
    folder = box.spool(4026532290).jobs / "1"
    if stage in {"running", "ended"}:
        put(folder / "status.json", written(SpooledStanding(state="running", eligible_s=1.0, start_s=time.time())))
    if stage == "ended":
        marks = queue.root / "run" / "marks" / "t-1"
        marks.mkdir()
        (marks / "ended").write_text(f"job={job_id}\nhost=box\ntime={int(time.time())}\ncode=4\nsignals=0\n")
    if stage == "gone":
        shutil.rmtree(box.spool(4026532290).root)
    new = box.connect(4026533001)
    [found] = new.find(["t-1"])["t-1"]
    if stage == "ended":
        assert (found.state, found.exit_code) == (JobState.FAILED, 4)
        return
    assert not found.state.is_final
    assert "if that container is no more" in new.condition.trouble
    if stage == "running":
        later[0] = 900.0
        assert not box.connect(4026533002).status([job_id])[job_id].state.is_final
        later[0] = 1000.0
    later[0] += 130.0
    with locked(box.spool(4026532290).lock) if stage != "gone" else nullcontext():
        told = box.connect(4026533002).status([job_id])[job_id]
        assert told.state.is_final == (stage == "gone"), "somebody serves it still"
    told = box.connect(4026533003).status([job_id])[job_id]
    assert (told.state, told.reason) == (JobState.FAILED, "Lost")
    if stage != "gone":
        assert (folder / "cancel").exists(), "nobody runs it later"


def test_what_the_queue_forgot_the_run_remembers(queue):
    backend = queue.connect()
    well, badly, never = (backend.submit(job(c, token=f"t-{i}")) for i, c in enumerate(("true", "exit 9", "true")))
    ended(backend, well, badly, never)
    queue.kill_server(signal.SIGTERM)
    for folder in queue.spool.ended.iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    again = queue.connect()
    found = again.find(["t-0", "t-1", "t-9"])
    assert found["t-9"] == []
    assert (found["t-0"][0].state, found["t-1"][0].exit_code) == (JobState.COMPLETED, 9)
    with pytest.raises(JobNotFoundError):
        queue.connect("another").status([well])
    with pytest.raises(SubmitRejectedError, match="not known"):
        queue.connect("another").submit(job(dependencies=(Dependency(well),)))


def test_old_jobs_are_swept(queue):
    queue.spool.make()
    for number, age_days in ((1, 9), (2, 8), (3, 1)):
        folder = queue.spool.ended / str(number)
        folder.mkdir()
        put(folder / "status.json", written(SpooledStanding(state="completed", end_s=1.0)))
        os.utime(folder, (0, time.time() - age_days * 86400))
    queue.spool.count.write_text("3\n")
    backend = queue.connect()
    assert backend.submit(job()).startswith("4@")
    until(lambda: not {1, 2} & set(queue.spool.ended_numbers()), what="the sweep")
    assert 3 in queue.spool.ended_numbers()


def test_what_a_killed_client_left_without_an_order_is_swept(queue):
    queue.spool.make()
    old, fresh = queue.spool.next_number(), queue.spool.next_number()
    os.utime(queue.spool.jobs / str(old), (0, time.time() - 2 * 86400))
    backend = queue.connect()
    ended(backend, backend.submit(job()))
    until(lambda: queue.spool.numbers() == [fresh], what="the sweep")


def test_a_lost_count_gives_no_number_twice(queue):
    backend = queue.connect()
    first = backend.submit(job())
    ended(backend, first)
    queue.spool.count.write_text("")
    assert backend.submit(job()).startswith("2@")


# ---------------------------------------------------------------------- what others see


def test_other_runs_are_told_of(queue):
    mine, others = queue.connect("mine", cores=1), queue.connect("others", cores=1)
    past = others.submit(job())
    ended(others, past)
    mine.submit(job("sleep 0.1"))
    told = mine.queue_events(10, ends=True)
    assert [(e.what, e.key) for e in told] == [("submitted", "1"), ("started", "1"), ("ended", "1")]
    assert list(mine.queue_events(10, ends=True)) == []
    later = others.submit(job())
    ended(others, later)
    fresh = []
    until(lambda: fresh.extend(mine.queue_events(10, ends=True)) or len(fresh) == 3, what="three events")
    assert [e.what for e in fresh] == ["submitted", "started", "ended"]
    assert fresh[0].job.cores == 1


def test_history_and_examination(queue):
    backend = queue.connect(cores=1)
    ended(backend, *(backend.submit(job("sleep 0.2")) for _ in range(3)))
    until(lambda: len(queue.machine.history(0.0)) == 3, what="the end of the third job in the server's own words")
    told = queue.machine.history(0.0)
    assert told.started.all()
    assert told.wait_s[2] >= 0.3
    examination = queue.machine.examine(probe=True)
    assert examination.is_usable
    assert {f.topic for f in examination.findings} >= {"cores", "load", "memory", "queue", "server", "probe"}
    json.dumps(dict(examination.observed))


def test_an_idle_client_and_server_cost_little(queue):
    backend = queue.connect()
    running(backend, backend.submit(job("sleep 600")))
    backend.wait(backend.now() + 3)
    server, client_s = _cpu_s(queue.server()), time.process_time()
    backend.wait(backend.now() + 4)
    assert time.process_time() - client_s < 4 * 0.02
    assert _cpu_s(queue.server()) - server < 4 * 0.01


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

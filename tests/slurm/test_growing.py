"""Jobs that get more nodes while they run, on real daemons of all versions."""

import os
import signal
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.dmr.desk import ManagerDesk
from asa.backends.dmr.in_job import JobManager
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink
from slurm_runs import SlurmRun, busy_nodes, site, stage, told_jobs
from slurm_testbed import RELEASES, Testbed, missing, until

from asa.backend import JobSpec, JobState, Step
from asa.dmr import Action, Session
from asa.errors import BackendError, SubmitDeferredError, SubmitRejectedError
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.records import Submitted
from asa.waits import QueuedJob, exactly

_PERMITS = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=5,sched_min_interval=10000,bf_interval=1,bf_resolution=10,"
    "bf_continue,bf_max_job_test=1000,default_queue_depth=1000,permit_job_expansion"
)
_TELLS = (
    "echo $SLURM_NTASKS $SLURM_JOB_NUM_NODES $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE >>told;"
    " srun sh -c 'echo $SLURMD_NODENAME' >>'hosts-{}'; "
)


@pytest.fixture(scope="module", params=RELEASES)
def slurm(request):
    """Yield a cluster that lets jobs grow: 4 nodes of 28 cores."""
    if reason := missing(request.param):
        pytest.skip(reason)
    root = Path(f"/tmp/asa-{os.getpid()}-grow{request.param}")
    testbed = Testbed(root, release=request.param, accounting=True, conf=_PERMITS)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.fixture(autouse=True)
def every_node_is_free_again(slurm):
    """Slurm loses nodes that are moved to a job which has ended: after a test, none is left to nobody."""
    slurm.empty()
    yield
    slurm.empty()
    until(lambda: _nodes(slurm, "idle") == 4, what="four free nodes")


def _nodes(slurm, state):
    return int(slurm.run_as_root("sinfo", "-h", "-p", "normal", "-t", state, "-o", "%D").strip() or 0)


def _grows(slurm):
    return replace(site(slurm), grow_by=slurm.cores_per_node)


class Growing:
    """A job of two steps, the second wider than the first, and the backend of its client."""

    def __init__(self, slurm, *, first="sleep 1", then="sleep 1", max_await_s=None):
        self.slurm = slurm
        self.run = SlurmRun(slurm, [stage("a")], link="commands", of_plan={"capabilities": _grows(slurm)})
        steps = [Step("narrow", first, 28, tasks=28), Step("wide", f"{_TELLS.format('wide')}{then}", 56, tasks=56)]
        self.spec = JobSpec("ab", 28, 600.0, steps=tuple(steps), token="a1", max_await_s=max_await_s)
        self.backend = self.run.connect(time.sleep)
        self.job = self.backend.submit(self.spec)
        self.sees(self.job, JobState.RUNNING)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.backend.close()

    def asks(self, *, number=0, walltime_s=300.0, cores=28):
        """Ask for a node."""
        token = f"{self.spec.token}-g1-{number}"
        return self.backend.grow(self.job, JobSpec("ab+28", cores, walltime_s, token=token))

    def sees(self, job, state):
        """Wait until the client sees a job in a state."""

        def seen():
            self.backend.wait(self.backend.now() + 1)
            status = self.backend.status([job])[job]
            return status if status.state is state else None

        return until(seen, what=lambda: f"{job} {state}: {self.backend.status([job])}, {self.told()}")

    def told(self):
        """Return what Slurm shows of all jobs, and what the job wrote."""
        errors = "\n".join(path.read_text() for path in self.run.folder.path.glob("logs/*.err"))
        return self.slurm.run("squeue", "-a", "-t", "all", "-o", "%i %j %T %r %N %C") + errors

    def state(self, job):
        return self.slurm.run("squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T").strip()

    def is_wide(self):
        """The second step ran on two nodes."""
        assert len(self.hosts("wide")) == 56, self.told()
        assert len(set(self.hosts("wide"))) == 2
        return True

    def hosts(self, name):
        path = self.run.place / f"hosts-{name}"
        return path.read_text().split() if path.exists() else []


def resizers(job_name):
    """Return the processes of salloc that wait for a job's nodes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"salloc") and any(job_name.encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


# ---------------------------------------------------------------------- whole runs


WIDTHS = {"a": 28, "b": 84, "c": 28, "d": 56}


@pytest.mark.parametrize("strategy", ["elastic", "asa-plan:grow=yes"])
def test_a_workflow_grows_and_shrinks_in_one_job(slurm, strategy):
    """Its stages see as many tasks and nodes as in jobs of their own, and it pays for no more."""
    is_planned = strategy != "elastic"
    names = list(WIDTHS)
    stages = [
        stage(name, names[at - 1] if at else "", f"{_TELLS.format(name)}sleep 3", cores=cores)
        for at, (name, cores) in enumerate(WIDTHS.items())
    ]
    if is_planned:  # a plan takes one job that grows for longer stages
        stages = [replace(one, expected_run_s=100.0) for one in stages]
    of_plan = {"capabilities": _grows(slurm)}
    estimator = "asa-queue" if is_planned else "last"
    run = SlurmRun(slurm, stages, strategy=strategy, estimator=estimator, link="commands", of_plan=of_plan)
    if is_planned:
        with WaitStore(run.place / "bank") as store:
            store.extend(_short_waits())
    result = run.result()
    assert result.outcome == "completed", result.reason
    whole, *more = [record for record in result.records if isinstance(record, Submitted)]
    assert (whole.stages, whole.cores) == (tuple(names), 28)
    asked = [(record.stages, record.cores, record.joins) for record in more]
    needed = [(("b",), 56, whole.job_id), (("d",), 28, whole.job_id)]
    assert sorted(set(asked)) == needed, "what comes too early is given back, and asked for once more"
    told = (run.place / "told").read_text().split("\n")
    assert told[:4] == ["28 1 28 28", "84 3 28(x3) 28(x3)", "28 1 28 28", "56 2 28(x2) 28(x2)"]
    hosts = {name: (run.place / f"hosts-{name}").read_text().split() for name in names}
    assert {name: len(found) for name, found in hosts.items()} == WIDTHS
    assert {name: len(set(found)) for name, found in hosts.items()} == {"a": 1, "b": 3, "c": 1, "d": 2}
    states = [job["JobState"] for jobs in run.jobs().values() for job in jobs]
    assert states.count("COMPLETED") >= 3
    assert set(states) <= {"COMPLETED", "CANCELLED"}


def _short_waits():
    """Return waits of 10 s for jobs of any size."""
    for number in range(30):
        job = QueuedJob(1e9 + number, 28 * (1 + number % 3), 600.0, system="testbed", partition="normal")
        yield WaitRecord(job, exactly(10.0), id=f"x{number}")


def test_doctor_tells_that_jobs_can_grow(slurm):
    run = SlurmRun(slurm, [stage("a")], link="commands")
    found = run.facility.examine(probe=False)
    [growing] = [one for one in found.findings if one.topic == "Growing jobs"]
    assert (growing.verdict, found.settings["grow"]) == ("good", True)
    assert "permit_job_expansion" in growing.told
    with closing(run.connect(time.sleep)) as backend:
        assert backend.capabilities.grow_by == 28
    over_rest = SlurmRun(slurm, [stage("a")], link="rest", grow=True)
    with closing(over_rest.connect(time.sleep)) as backend:
        assert backend.capabilities.grow_by == 0
        with pytest.raises(BackendError, match="by these means") as refused:
            backend.grow(backend.submit(JobSpec("a", 28, 60.0, "true")), JobSpec("more", 28, 60.0))
    assert "slurm-cli" in refused.value.hint


@contextmanager
def _beside(slurm, tmp_path, monkeypatch):
    """Yield a job of a node, and its program, next to which a manager runs."""
    others = [_submit(slurm, "-n28", "--exclusive", "-w", name) for name in ("n002", "n004")]
    job = _submit(slurm, "-n28", "--exclusive", "-w", "n003", "--no-requeue")
    until(lambda: [_shown(slurm, one, "%T") for one in (*others, job)] == ["RUNNING"] * 3, what="their starts")
    folder = slurm.folder(f"beside-{time.time_ns()}")
    monkeypatch.chdir(folder)  # one that the jobs see
    link = CommandLink(prefix=slurm.prefix)
    backend = SlurmBackend(link, folder / "run", _grows(slurm), queue_poll_s=0.2, poll_s=0.2, max_poll_s=1.0)
    manager = JobManager(backend, job, 28, partition="normal", growth=JobSpec("more-nodes", 1, 1.0, partition="normal"))
    with closing(link), closing(ManagerDesk(tmp_path / "s", manager)), closing(manager):
        yield job, Session(str(tmp_path / "s"), job, 28)


def test_a_program_grows_and_shrinks_by_its_checks(slurm, tmp_path, monkeypatch):
    """Its manager takes over the nodes of a request, and gives back those that came last; its script's node stays."""
    with _beside(slurm, tmp_path, monkeypatch) as (job, program):
        answer = until(lambda: program.check_status(28, 56), what="an answer")
        assert (answer.action, answer.processes, answer.nodes) == (Action.EXPAND, 56, ("n001",))
        assert _shown(slurm, job, "%C %N") == "56 n[001,003]"
        assert len(slurm.run("squeue", "-h", "-o", "%i").split()) == 3
        assert not program.check_status(28, 56)
        answer = program.check_status(28, 28)
        assert (answer.action, answer.processes) == (Action.SHRINK, 28)
        program.acknowledge()
        assert _shown(slurm, job, "%T %C %N") == "RUNNING 28 n003"
        until(lambda: _nodes(slurm, "idle") == 1, what="the node that was given back")
        with busy_nodes(slurm, 1):
            until(lambda: "waits" in program.check_status(56, 56).why, what="another request")
            assert slurm.run("squeue", "-h", "-t", "PD", "-o", "%j").startswith("more-nodes")
    until(lambda: not slurm.run("squeue", "-h", "-t", "PD"), what="its withdrawal")
    assert _shown(slurm, job, "%T") == "RUNNING"


@pytest.mark.parametrize("fault", ["its resizer is killed", "a restarted controller has forgotten it"])
def test_a_program_grows_by_another_request_if_one_is_lost(slurm, tmp_path, monkeypatch, fault):
    with _beside(slurm, tmp_path, monkeypatch) as (job, program):
        if fault == "its resizer is killed":
            with busy_nodes(slurm, 1):
                until(lambda: "waits" in program.check_status(56, 56).why, what="a request")
                for process in resizers("more-nodes"):
                    _kill(process)
        else:
            until(lambda: "waits" in program.check_status(28, 56).why, what="a request")
            until(lambda: _nodes(slurm, "idle") == 0, what="its node")
            slurm.restart_controller()
        said = set()

        def grows():
            answer = program.check_status(56, 56)
            said.add(answer.why)
            return answer

        assert until(grows, what=lambda: str(said)).nodes == ("n001",)
        assert _shown(slurm, job, "%T %C %N") == "RUNNING 56 n[001,003]"
        assert len(slurm.run("squeue", "-h", "-o", "%i").split()) == 3
    assert not resizers("more-nodes")


def _submit(slurm, *options):
    return slurm.run("sbatch", "--parsable", "-t10", "-o/dev/null", *options, "--wrap", "sleep 300").strip()


def _shown(slurm, job, what):
    return slurm.run("squeue", "-h", "-j", job, "-o", what).strip()


# ---------------------------------------------------------------------- what is refused, withdrawn, lost


def test_what_cannot_be_is_refused_or_comes_later(slurm):
    with busy_nodes(slurm, 4) as others, Growing.__new__(Growing) as job:
        job.slurm = slurm
        job.run = SlurmRun(slurm, [stage("a")], link="commands", of_plan={"capabilities": _grows(slurm)})
        job.spec = JobSpec("ab", 28, 600.0, "sleep 60", token="a1", exclusive=True)
        job.backend = job.run.connect(time.sleep)
        job.job = job.backend.submit(job.spec)
        with pytest.raises(SubmitDeferredError, match="does not run yet"):
            job.asks()
        slurm.run_as_root("scancel", others)
        job.sees(job.job, JobState.RUNNING)
        for cores, why in ((27, "nodes have 28"), (140, "140 cores")):
            with pytest.raises(SubmitRejectedError, match=why):
                job.asks(cores=cores)
        job.backend.cancel(job.job)
        job.sees(job.job, JobState.CANCELLED)
        with pytest.raises(SubmitDeferredError, match="has ended"):
            job.asks()
        assert not resizers(".a1-g")


def test_a_request_that_waits_too_long_withdraws_itself(slurm):
    """Whether or not a client is there; the job goes on waiting, and another request serves it."""
    with Growing(slurm, first="sleep 2") as job, busy_nodes(slurm, 3) as others:
        more = job.asks(walltime_s=10.0)
        assert job.state(more) == "PENDING"
        assert len(resizers("a1-g1-0")) == 1
        until(lambda: job.state(more) == "CANCELLED", what="its withdrawal")
        job.sees(more, JobState.CANCELLED)
        assert not resizers("a1-g1-0")
        again = job.asks(number=1)
        slurm.run_as_root("scancel", others)
        job.sees(job.job, JobState.COMPLETED)
        assert job.is_wide()
        job.sees(again, JobState.COMPLETED)
        assert [one.job_id for one in job.backend.find(["a1-g1-1"])["a1-g1-1"]] == [again]


def test_a_request_is_cancelled(slurm):
    """Before it has its nodes, and with them."""
    with Growing(slurm, first="sleep 600") as job:
        with busy_nodes(slurm, 3):
            pending = job.asks()
            job.backend.cancel(pending)
            job.sees(pending, JobState.CANCELLED)
        early = job.asks(number=1)
        job.sees(early, JobState.RUNNING)
        assert job.state(early) == "RUNNING"
        job.backend.cancel(early)
        job.sees(early, JobState.CANCELLED)
        assert job.backend.status([job.job])[job.job].state is JobState.RUNNING
        assert _nodes(slurm, "idle") == 3
        until(lambda: not resizers(".a1-g"), what="the ends of what waited")


@pytest.mark.parametrize("present", [True, False])
def test_a_request_of_a_job_that_has_ended_is_withdrawn(slurm, present):
    """Slurm itself would start it; the job withdraws it at its end, or the client does if the job is killed."""
    with Growing(slurm, first="sleep 600") as job, busy_nodes(slurm, 3):
        more = job.asks()
        if present:
            _kill_script(job)
            job.sees(more, JobState.CANCELLED)
        else:
            slurm.run("scancel", job.job)
            until(lambda: job.state(more) == "CANCELLED", what="its withdrawal")
    until(lambda: not resizers(".a1-g"), what="the end of what waited")


def test_nodes_of_a_job_that_has_ended_are_given_back(slurm):
    """The request got them before the job was killed, which could not give them back itself."""
    with Growing(slurm, first="sleep 600") as job:
        more = job.asks()
        job.sees(more, JobState.RUNNING)
        _kill_script(job)
        job.sees(more, JobState.CANCELLED)
        until(lambda: _nodes(slurm, "idle") == 4, what="four free nodes")


def _kill_script(job):
    """Kill all processes of a job, so that its script does nothing at its end."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURM_JOB_ID={job.job}".encode() in path.read_bytes().split(b"\0") and _is_of(path, job.slurm):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue
    until(lambda: job.state(job.job) not in {"RUNNING", "COMPLETING"}, what="the end of the job")


def _is_of(path, slurm):
    """Whether a process has the environment of one cluster: others run beside it."""
    return f"SLURM_CONF={slurm.root}/etc/slurm.conf".encode() in path.read_bytes().split(b"\0")


@pytest.mark.parametrize("granted", [True, False])
def test_the_resizer_is_killed(slurm, granted):
    """After it got the nodes, the job takes them over all the same; before that, another request serves it."""
    with Growing(slurm, first="sleep 4") as job, busy_nodes(slurm, 3) as others:
        more = job.asks()
        waiting = resizers("a1-g1-0")
        assert waiting
        if granted:
            slurm.run_as_root("scancel", others)
            until(lambda: job.state(more) == "RUNNING", what="its nodes")
        for process in waiting:
            _kill(process)
        slurm.run_as_root("scancel", others)
        if not granted:
            job.sees(more, JobState.RUNNING)
        until(lambda: job.state(job.job) == "COMPLETED" or job.state(more) == "FAILED", what="what follows")
        if job.state(more) == "FAILED":
            job.sees(more, JobState.FAILED)
            job.asks(number=1)
        job.sees(job.job, JobState.COMPLETED)
        assert job.is_wide()


def _kill(process):
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


# ---------------------------------------------------------------------- what sites do meanwhile


def _two_stages(slurm, first="sleep 3"):
    stages = [stage("a", "", first, cores=28), stage("b", "a", f"{_TELLS.format('wide')}sleep 1", cores=56)]
    return SlurmRun(slurm, stages, strategy="elastic", link="commands", of_plan={"capabilities": _grows(slurm)})


def _requests(run):
    return [job for job in told_jobs(run.slurm) if "-g" in job["JobName"] and run.plan.id in job["JobName"]]


def _waits_for_more(run):
    whole = until(lambda: run.jobs().get("a+b"), what="the job")[0]["JobId"]
    until(lambda: [job for job in _requests(run) if job["JobState"] == "PENDING"], what="a request for a node")
    until(lambda: run.ran["a"], what="the first stage")
    return whole


def _has_grown(run, client):
    result = client.result()
    assert result.outcome == "completed", result.reason
    assert run.ran == {"a": 1, "b": 1}
    hosts = (run.place / "hosts-wide").read_text().split()
    assert (len(hosts), len(set(hosts))) == (56, 2)
    until(lambda: not run.left(), what="the end of all jobs")
    assert not resizers(run.plan.id)


def test_a_job_that_grows_is_not_put_back_into_the_queue(slurm):
    """It would begin on the nodes that it first had, and wait in vain for those that it took over."""
    with Growing(slurm, then="sleep 8") as one:
        more = one.asks()
        until(lambda: one.hosts("wide"), what="the second step")
        slurm.run_as_root("scontrol", "requeue", one.job, check=False)
        one.sees(one.job, JobState.COMPLETED)
        one.sees(more, JobState.COMPLETED)
        assert one.is_wide()


def test_a_job_that_waits_for_nodes_is_not_put_back_into_the_queue(slurm):
    """It would run its first stage again; the request that waits for it would be for a job that does not run."""
    run = _two_stages(slurm)
    with busy_nodes(slurm, 3) as others:
        client = run.client()
        whole = _waits_for_more(run)
        slurm.run_as_root("scontrol", "requeue", whole, check=False)
        slurm.run_as_root("scancel", others)
        _has_grown(run, client)


def test_the_controller_is_away_while_a_job_waits_for_nodes(slurm):
    """Started anew, it has forgotten for whom the nodes of the second job are, so that another one is submitted."""
    run = _two_stages(slurm)
    with busy_nodes(slurm, 3) as others:
        client = run.client()
        _waits_for_more(run)
        slurm.stop_controller()
        client.in_trouble()
        slurm.start_controller()
        slurm.run_as_root("scancel", others)
        _has_grown(run, client)

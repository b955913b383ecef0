"""Local stages beside a batch system: a queue of this machine with real processes, and a Slurm in memory."""

import inspect
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Protocol

import pytest
from asa.backends.local import LocalMachine
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.explanations import advice as slurms_advice
from local_queue import Queue, job
from slurm_fake_link import FakeLink
from slurm_testbed import until

import asa.backend
from asa.backend import (
    Adjustable,
    Advisor,
    AmongOthers,
    Backend,
    CancelsMany,
    Capabilities,
    EstimatesStarts,
    Examinable,
    Facility,
    Foresight,
    Growing,
    JobSpec,
    JobState,
    JobStatus,
    Planning,
    Preflight,
    Previewing,
    Recalls,
    Recurring,
    RemembersRuns,
    Shrinking,
    Site,
    StepTimes,
    SubmitsTogether,
    TakesOver,
    TakesUp,
    Troubleshooting,
    Withdrawing,
)
from asa.errors import BackendError, SubmitRejectedError, UnavailableError
from asa.pool.stages import PoolOfStages
from asa.runner.local_stages import BackendWithLocalStages, WithLocalStages

SITE = Capabilities("x", 112, 28, age_accrues=False)

FORWARDED = (
    Adjustable, Advisor, CancelsMany, EstimatesStarts, Growing, Planning, Preflight, Previewing, Recalls,
    Shrinking, SubmitsTogether, Withdrawing,
)  # fmt: skip
OF_FACILITIES = (  # what a run is not given
    AmongOthers, Examinable, Facility, Recurring, RemembersRuns, Site, Troubleshooting,
)  # fmt: skip
OF_PROGRAMS = (TakesUp, TakesOver)  # who resize the job in which they run, which is none of a run's
OF_SIMULATORS = (Foresight,)  # beside which nothing runs


class Slurm:
    """A Slurm in memory that follows the real clock."""

    notes = ()

    def __init__(self):
        self.link = None

    def connect(self, folder, *, sleep):
        self.link = self.link or FakeLink(time.time, folder)
        return SlurmBackend(self.link, folder, SITE, poll_s=0.5, sleep=sleep)

    def advice(self, reason):
        return slurms_advice(reason)

    def remedy(self, trouble):
        return f"mend {trouble}"


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path)
    yield queue
    queue.close()


@pytest.fixture
def site(queue):
    return WithLocalStages(Slurm(), queue.machine)


@pytest.fixture
def connect(queue, site):
    """Yield a function that opens the run for its first client and for later ones."""
    opened = []

    def connect():
        opened.append(site.connect(queue.root / "run", sleep=time.sleep))
        return opened[-1]

    yield connect
    for backend in opened:
        backend.close()


def local(command="true", **changes):
    return job(command, local=True, **changes)


def heard(backend, job_id, state):
    """Wait as a run does, which reads only reported statuses."""

    def told():
        return any(s.job_id == job_id and s.state is state for s in backend.wait(backend.now() + 2))

    return until(told, what=f"{state} of {job_id}")


@pytest.mark.parametrize("is_resumed", [False, True], ids=["one client", "resumed"])
@pytest.mark.parametrize("when", ["running", "pending"])
def test_a_server_that_was_killed_is_started_anew(queue, connect, when, is_resumed):
    """The client waits for the batch system, and only looks at this machine's queue in between."""
    backend = connect()
    backend.submit(job("sleep 300"))
    if when == "running":
        job_id = backend.submit(local(f"until [ -e {queue.root}/go ]; do sleep 0.05; done", token="t-1"))
        heard(backend, job_id, JobState.RUNNING)
        queue.kill_server()
    else:
        heard(backend, backend.submit(local()), JobState.COMPLETED)
        os.kill(queue.server(), signal.SIGSTOP)
        job_id = backend.submit(local(token="t-1"))
        queue.kill_server()
    if is_resumed:
        backend = connect()
        [found] = backend.find(["t-1"])["t-1"]
        assert (found.job_id, found.state.is_final) == (job_id, False)
    (queue.root / "go").touch()
    heard(backend, job_id, JobState.COMPLETED)


def test_what_troubles_this_machines_queue_is_told(site, connect, monkeypatch):
    backend = connect()
    backend.submit(job("sleep 300"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        job_id = backend.submit(local())

        def told():
            backend.wait(backend.now() + 1)
            return "does not start" in backend.condition.trouble

        until(told, what="the trouble")
        trouble = backend.condition.trouble
        assert trouble.startswith("local stages: the queue's server")
        assert site.remedy(trouble) == "", "not what Slurm's would be"
        site._far.link.down = True
        with pytest.raises(UnavailableError):
            backend.status(["17"])
        assert backend.condition.trouble == f"no controller; {trouble}"
        assert site.remedy(backend.condition.trouble).startswith("mend no controller")
        site._far.link.down = False
    heard(backend, job_id, JobState.COMPLETED)
    until(lambda: backend.wait(backend.now() + 1) or backend.condition.trouble == "", what="the end of troubles")


def test_a_job_of_another_host_is_told_of(queue, site, connect, monkeypatch):
    job_id = connect().submit(local("sleep 300", token="t-1"))
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "login2", "", "", "")))
    again = connect()
    assert again.find(["t-1"])["t-1"][0].job_id == job_id
    assert "resume the run there" in again.condition.trouble


def test_a_change_goes_to_where_the_job_is(queue, site, connect):
    backend = connect()
    assert isinstance(backend, Adjustable)
    far, near = backend.submit(job("sleep 300")), backend.submit(local("sleep 300"))
    backend.change_walltime(far, 600.0)
    assert site._far.link.all[far].walltime_s == 600.0
    with pytest.raises(BackendError, match="cannot be changed"):
        backend.shrink(near, 1)  # this machine is one node
    backend.change_walltime(near, 0.1)
    heard(backend, near, JobState.TIMEOUT)


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [
        (WithLocalStages, (Facility, Advisor, Troubleshooting)),
        (PoolOfStages, (Facility, Advisor, Troubleshooting)),
        (BackendWithLocalStages, (Backend, *FORWARDED)),
    ],
)
def test_what_stands_for_another_has_methods_that_isinstance_sees(kind, protocols):
    """Since Python 3.12, `isinstance` does not see methods that come from `__getattr__`."""
    for name in (name for one in protocols for name in vars(one) if not name.startswith("_")):
        inspect.getattr_static(kind, name)


def test_each_protocol_of_backends_is_forwarded_or_is_none_of_a_run():
    offered = {one for one in vars(asa.backend).values() if getattr(one, "_is_protocol", False) and one is not Protocol}
    assert offered == {Backend, *FORWARDED, *OF_FACILITIES, *OF_PROGRAMS, *OF_SIMULATORS}


def test_who_cannot_change_a_job_says_so():
    backend = BackendWithLocalStages(time.sleep)
    backend.far = backend.near = object()
    with pytest.raises(BackendError, match="cannot be changed"):
        backend.change_walltime("7", 60.0)
    with pytest.raises(SubmitRejectedError, match="more cores"):
        backend.grow("7", JobSpec("more", 1, 60.0))


def test_the_batch_system_is_asked_of_its_jobs_before_the_first(site, connect):
    backend = connect()
    assert isinstance(backend, Preflight)
    site._far.link.objections = {"stage": "Invalid feature specification"}
    asked = job(token="t-1")
    assert backend.test(replace(asked, name="x/stage"), 1.0) == "Invalid feature specification"
    assert backend.test(replace(asked, name="x/other"), 1.0) is None
    alone = BackendWithLocalStages(time.sleep)
    alone.far = object()
    assert alone.test(job("true"), 1.0) is None


def test_how_a_step_ended_here_is_reported_whole(connect):
    backend = connect()
    backend._later_s = 10.0
    step = StepTimes("a", 1.0, 2.0, cores=4, exit_code=3)
    adopted = backend._adopt(JobStatus("7", JobState.FAILED, 1.0, steps=(step,)))
    assert adopted.steps == (replace(step, start_s=11.0, end_s=12.0),)


def test_a_reason_is_explained_by_who_gave_it(site, connect):
    """A reason that both systems use, such as `Priority`, is the batch system's, since local stages do not queue."""
    for advisor in (site, connect()):
        assert isinstance(advisor, Advisor)
        for reason in ("Lost", "OutputUnwritable", "CannotStart: Argument list too long"):
            assert advisor.advice(reason) == LocalMachine().advice(reason)
        for reason in ("Priority", "QOSMaxCpuPerUserLimit", "DependencyNeverSatisfied", "FromAnotherPlanet"):
            assert advisor.advice(reason) == slurms_advice(reason)

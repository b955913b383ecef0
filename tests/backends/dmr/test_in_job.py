"""A manager next to the program of one job, which knows the batch system only by its ports."""

from contextlib import closing

import pytest
from asa.backends.dmr.desk import ManagerDesk
from asa.backends.dmr.in_job import JobManager

from asa.backend import Capabilities, JobSpec, JobState, JobStatus
from asa.dmr import Action, Session
from asa.errors import BackendError, SubmitRejectedError
from asa.waits import QueuedJob, QueueEvent


class Site:
    """A site of four nodes of eight cores that can be returned; it records its calls."""

    def __init__(self, shrink_by=8, **more):
        self.capabilities = Capabilities("site", 32, 8, age_accrues=True, shrink_by=shrink_by, **more)
        self.events, self.nodes, self.refusal = [], [], ""

    def queue_events(self, most, *, ends=False):
        told, self.events = self.events, []
        return told

    def waits(self, key, cores, submit_s=0.0, partition=""):
        self.events.append(
            QueueEvent("submitted", key, submit_s, QueuedJob(submit_s, cores, 60.0, partition=partition))
        )

    def shrink(self, job_id, nodes):
        assert job_id == "17"
        if self.refusal:
            raise BackendError(self.refusal)
        self.nodes.append(nodes)


class GrowingSite(Site):
    """A site of eight such nodes, of which others have some; a request gets its nodes when `give` is called."""

    def __init__(self, **more):
        super().__init__(grow_by=8, **more)
        self.requests, self.joined, self.ended = {}, [], set()

    def take_up(self, job_id):
        return 1000.0

    def now(self):
        return 400.0

    def grow(self, job_id, spec):
        assert job_id == "17"
        if self.refusal:
            raise SubmitRejectedError(self.refusal)
        self.requests[f"r{len(self.requests)}"] = [JobState.PENDING, spec]
        return f"r{len(self.requests) - 1}"

    def give(self, job_id="r0"):
        self.requests[job_id][0] = JobState.RUNNING

    def status(self, job_ids):
        return {job_id: JobStatus(job_id, self.requests[job_id][0], 0.0) for job_id in job_ids}

    def cancel(self, job_id):
        self.requests[job_id][0] = JobState.CANCELLED

    def take_over(self, job_id):
        if self.refusal:
            raise BackendError(self.refusal)
        assert self.requests[job_id][0] is JobState.RUNNING
        self.joined.append(job_id)
        return (f"node-of-{job_id}",)

    def asked(self):
        return [(state, spec.cores) for state, spec in self.requests.values()]


MORE = JobSpec("more", 1, 1.0, partition="long", account="mine")


@pytest.fixture
def asking(tmp_path):
    """Return a manager next to a job of the given site."""
    opened = []

    def asking(site, processes=32, **options):
        opened.append(ManagerDesk(tmp_path / f"{len(opened)}", JobManager(site, "17", processes, **options)))
        return Session(str(opened[-1].path), "17", processes)

    yield asking
    for desk in opened:
        desk.close()


def test_it_shrinks_when_what_it_gives_back_is_enough(asking):
    site = Site()
    program = asking(site)
    assert not program.check_status(8, 32)
    site.waits("wide", 30)
    assert not program.check_status(8, 32)
    site.waits("narrow", 16, submit_s=1.0)
    answer = program.check_status(8, 32)
    assert (answer.action, answer.processes, answer.why) == (Action.SHRINK, 16, "a job of 16 cores could start")
    assert site.nodes == [], "its processes have not ended yet"
    program.acknowledge()
    assert site.nodes == [2]
    site.events.append(QueueEvent("started", "narrow", 2.0))
    assert not program.check_status(8, 32)


def test_it_answers_no_expansion(asking):
    program = asking(Site(), 8)
    assert not program.check_status(8, 32)
    assert not program.check_status(16, 32)


def test_it_grows_a_step_at_a_time_once_the_batch_system_gives_nodes(asking):
    site = GrowingSite()
    program = asking(site, 8, growth=MORE)
    assert program.check_status(8, 32).why == "waits for nodes for 16 processes"
    assert program.check_status(8, 32).why == "waits for nodes for 16 processes"
    [(_, spec)] = site.requests.values()
    assert (spec.cores, spec.walltime_s, spec.partition, spec.account) == (8, 600.0, "long", "mine")
    site.give()
    answer = program.check_status(8, 32)
    assert (answer.action, answer.processes, answer.nodes) == (Action.EXPAND, 16, ("node-of-r0",))
    assert site.joined == ["r0"]
    assert not program.check_status(8, 32)
    assert site.asked() == [(JobState.RUNNING, 8), (JobState.PENDING, 16)]
    tokens = {spec.token for _, spec in site.requests.values()}
    assert len(tokens) == 2


def test_it_asks_for_nothing_while_others_wait_unless_the_program_needs_it(asking):
    site = GrowingSite()
    program = asking(site, 16, growth=MORE)
    site.waits("other", 30)
    assert not program.check_status(8, 32)
    assert site.asked() == []
    assert program.check_status(32, 32).why == "waits for nodes for 32 processes"


def test_a_request_is_withdrawn_when_somebody_comes_to_wait(asking):
    site = GrowingSite()
    program = asking(site, 16, growth=MORE)
    assert not program.check_status(8, 32)
    site.waits("other", 8)
    answer = program.check_status(8, 32)
    assert site.asked() == [(JobState.CANCELLED, 16)]
    assert (answer.action, answer.processes) == (Action.SHRINK, 8)


def test_an_asynchronous_answer_takes_the_nodes_over_only_when_it_is_carried_out(asking):
    site = GrowingSite()
    program = asking(site, 8, growth=MORE)
    while site.asked() == []:
        assert not program.icheck_status(8, 16)
    site.give()
    answers = iter(lambda: program.icheck_status(8, 16), None)
    grown = next(answer for answer in answers if answer)
    assert (grown.processes, grown.nodes, site.joined) == (16, ("node-of-r0",), ["r0"])


def test_nodes_of_an_answer_that_was_lost_are_given_back(asking):
    site = GrowingSite()
    program = asking(site, 8, growth=MORE)
    assert not program.check_status(8, 16)
    site.give()
    Session(program._address, "17", 8).check_status(8, 16)
    assert site.joined == ["r0"]
    assert not program.check_status(8, 8)
    assert site.nodes == [1]


def test_where_no_nodes_are_given_it_goes_on(asking):
    """A request that the site refuses is not repeated; nodes that cannot be taken over are asked for again."""
    site = GrowingSite()
    site.refusal = "nobody may"
    refused = asking(site, 8, growth=MORE)
    assert refused.check_status(8, 16).why == "the batch system gives no more nodes: nobody may"
    site.refusal = ""
    assert not refused.check_status(8, 16)
    assert site.asked() == []
    program = asking(site, 8, growth=MORE)
    assert not program.check_status(8, 16)
    site.give()
    site.refusal = "forgotten whose they are"
    assert program.check_status(8, 16).why == "no more nodes at the moment: forgotten whose they are"
    site.refusal = ""
    assert not program.check_status(8, 16)
    assert site.asked() == [(JobState.CANCELLED, 8), (JobState.PENDING, 8)]
    site.requests["r1"][0] = JobState.FAILED
    assert "has ended" in program.check_status(8, 16).why
    assert "waits" in program.check_status(8, 16).why


def test_a_program_may_only_grow(asking):
    site = GrowingSite()
    program = asking(site, 16, growth=MORE, shrinks=False)
    site.waits("other", 8)
    assert program.check_status(8, 32).why == "nodes are not to be given back"
    assert not program.check_status(32, 32)
    site.give()
    assert program.check_status(32, 32).processes == 32


def test_its_end_withdraws_the_request(tmp_path):
    site = GrowingSite()
    manager = JobManager(site, "17", 8, growth=MORE)
    with closing(ManagerDesk(tmp_path / "socket", manager)), closing(manager):
        Session(str(tmp_path / "socket"), "17", 8).check_status(8, 16)
        assert site.asked() == [(JobState.PENDING, 8)]
    assert site.asked() == [(JobState.CANCELLED, 8)]


def test_processes_may_have_several_cores(asking):
    site = Site()
    program = asking(site, 4, cores_per_process=8)
    site.waits("other", 12)
    assert program.check_status(1, 4).processes == 2
    program.acknowledge()
    assert site.nodes == [2]


def test_only_whole_nodes_are_given_back(asking):
    site = Site()
    program = asking(site, 8)
    site.waits("other", 2)
    assert program.check_status(1, 8).why == "whole nodes are given back here"
    program.acknowledge(5)
    assert site.nodes == []
    assert program.check_status(1, 8).why == "whole nodes are given back here"


def test_who_waits_for_another_partition_does_not_count(asking):
    site = Site()
    program = asking(site, partition="long")
    site.waits("other", 16, partition="short")
    assert not program.check_status(8, 32)
    site.waits("this", 16, partition="long")
    assert program.check_status(8, 32).processes == 16


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_what_is_not_taken_back_is_grown_into_again(asking, is_asynchronous):
    """Nothing is requested again."""
    site = Site()
    program = asking(site)
    site.waits("other", 16)
    site.refusal = "nobody may"
    assert program.check_status(8, 32).processes == 16
    program.acknowledge()
    if is_asynchronous:
        assert not program.icheck_status(8, 32)
        while not (answer := program.icheck_status(8, 32)):
            assert "not answered yet" in answer.why
    else:
        answer = program.check_status(8, 32)
    assert (answer.action, answer.processes) == (Action.EXPAND, 32)
    assert answer.why == "the batch system takes no nodes back: nobody may"
    assert program.check_status(8, 32).why == answer.why
    assert not program.check_status(8, 32)


def test_where_nothing_can_be_taken_back_nothing_is_answered(asking):
    class Rigid:
        capabilities = Site().capabilities

    for site in (Rigid(), Site(shrink_by=0), Site(shrinks_from_outside=False)):
        program = asking(site)
        assert program.check_status(8, 32).why == "this batch system takes no nodes back"
        program.acknowledge(8)


def test_it_answers_one_job_only(asking, tmp_path):
    asking(Site())
    for other in (Session(str(tmp_path / "0"), "18", 32), Session(str(tmp_path / "0"), "17", 33)):
        assert "job 17 has 32 processes, not job" in other.check_status(1, 32).why

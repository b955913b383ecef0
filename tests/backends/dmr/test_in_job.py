"""A manager next to the program of one job, which knows the batch system only by its ports."""

import pytest
from asa.backends.dmr.desk import ManagerDesk
from asa.backends.dmr.in_job import JobManager

from asa.backend import Capabilities
from asa.dmr import Action, Session
from asa.errors import BackendError
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

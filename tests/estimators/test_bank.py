"""The bank: one estimator for each system, which learns of own and of others' jobs, and the store of its records."""

import numpy as np
import pytest

from asa.errors import UnknownNameError
from asa.estimators import OWN_USER, WaitBank, replay
from asa.estimators.store import WaitStore
from asa.history import JobHistory
from asa.waits import QueuedJob, QueueEvent, WaitForecast, at_least, exactly


class Diary:
    """An estimator that records its calls."""

    sees_queue = True

    def __init__(self, surroundings):
        self.surroundings, self.lines, self.jobs = surroundings, [], {}

    def predict(self, job):
        self.lines.append(("predict", job.submit_s))
        return WaitForecast((60.0,) * 9, 60.0)

    def submitted(self, job, forecast=None):
        self.jobs[len(self.jobs)] = job
        self.lines.append(("submitted", job.submit_s))
        return len(self.jobs) - 1

    def observe(self, ticket, observation):
        self.lines.append(("observe", self.jobs[ticket].submit_s, observation))

    def ended(self, ticket, run_s):
        self.lines.append(("ended", self.jobs[ticket].submit_s, run_s))

    def withdrawn(self, ticket):
        self.lines.append(("withdrawn", self.jobs[ticket].submit_s))

    def state(self):
        return {}


def job(submit_s, system="", user=""):
    return QueuedJob(float(submit_s), 16, 3600.0, user, system)


def test_each_system_has_an_estimator_of_its_own():
    bank = WaitBank(Diary, seed=1, machine_cores=64)
    bank.observe(bank.submitted(job(0, "north")), exactly(5.0))
    bank.predict(job(9, "south"))
    assert list(bank) == ["north", "south"]
    assert bank["north"].lines == [("submitted", 0.0), ("observe", 0.0, exactly(5.0))]
    assert bank["south"].lines == [("predict", 9.0)]
    seeds = {bank[system].surroundings.seed for system in bank}
    assert len(seeds) == 2, "and draws of its own"
    assert WaitBank(Diary, seed=1)["north"].surroundings.seed in seeds
    assert bank["north"].surroundings.machine_cores == 64


def test_it_follows_a_queue_by_its_events():
    bank = WaitBank(Diary)
    known = bank.follow(
        [
            QueueEvent("submitted", 1, 0.0, job(0)),
            QueueEvent("submitted", "b", 5.0, job(5)),
            QueueEvent("started", 1, 10.0),
            QueueEvent("started", 99, 11.0),  # never told to be submitted
            QueueEvent("left", "b", 12.0),
            QueueEvent("ended", 1, 30.0),
            QueueEvent("ended", 99, 31.0),
        ]
    )
    assert known == bank.learned == 2
    assert bank.own == 0
    assert bank[""].lines == [
        ("submitted", 0.0),
        ("submitted", 5.0),
        ("observe", 0.0, exactly(10.0)),
        ("observe", 5.0, at_least(7.0)),
        ("ended", 0.0, 20.0),
    ]


def test_losing_sight_of_a_queue_teaches_nothing_and_leaves_nobody_waiting():
    bank = WaitBank(Diary)
    bank.follow([QueueEvent("submitted", k, float(k), job(k)) for k in range(3)] + [QueueEvent("started", 0, 4.0)])
    bank.lose_sight()
    assert bank[""].lines[-3:] == [("withdrawn", 1.0), ("withdrawn", 2.0), ("withdrawn", 0.0)]
    assert bank.follow([QueueEvent("started", 1, 9.0)]) == 0


def test_a_replay_tells_each_wait_when_it_is_over_and_not_before():
    diary = Diary(None)
    jobs = [job(0), job(10), job(20), job(20)]
    replay(diary, jobs, [exactly(10.0), exactly(5.0), exactly(0.0), at_least(3.0)])
    assert [line for line in diary.lines if line[0] != "predict"] == [
        ("submitted", 0.0),
        ("submitted", 10.0),  # the wait of the first ends this second: it was not known before
        ("observe", 0.0, exactly(10.0)),
        ("observe", 10.0, exactly(5.0)),
        ("submitted", 20.0),
        ("submitted", 20.0),
        ("observe", 20.0, exactly(0.0)),
        ("observe", 20.0, at_least(3.0)),
    ]


def test_what_one_process_observes_another_learns(tmp_path):
    with WaitStore(tmp_path / "bank") as one_store, WaitStore(tmp_path / "bank") as other_store:
        one, other = WaitBank(Diary, store=one_store), WaitBank(Diary, store=other_store)
        mine = job(100, "north", OWN_USER)
        one.observe(one.submitted(mine, one.predict(mine)), exactly(42.0))
        assert other.refresh() == 1
        assert other["north"].lines[-1] == ("observe", 100.0, exactly(42.0))
        assert other.refresh() == 0
        assert one.refresh() == 0, "one's own observations are not news"
    with WaitStore(tmp_path / "bank") as store:
        again = WaitBank(Diary, store=store)
        assert again.learned == 1
        [outcome] = again.outcomes("north")
        assert outcome.wait_s == 42.0


def history(jobs=300, system="north"):
    rng = np.random.Generator(np.random.PCG64(1))
    return JobHistory(
        submit_s=np.cumsum(rng.exponential(600.0, jobs)),
        wait_s=np.full(jobs, 500.0),
        cores=np.full(jobs, 16),
        walltime_s=np.full(jobs, 3600.0),
        started=rng.random(jobs) < 0.95,
        user=np.zeros(jobs, dtype=np.int32),
        users=("ann",),
        system=system,
        source="a log",
    )


def test_a_history_is_learned_once_and_kept(tmp_path):
    with WaitStore(tmp_path / "bank") as store:
        bank = WaitBank(seed=1, store=store)
        assert bank.learn(history()) == 300
        assert bank.predict(job(1e6, "north")).wait_s == pytest.approx(500.0, rel=0.15)
    with WaitStore(tmp_path / "bank") as store:
        again = WaitBank(seed=1, store=store)
        assert again.predict(job(1e6, "north")) == bank.predict(job(1e6, "north"))
        records = store.read()
    assert len(records) == 300
    assert {record.source for record in records} == {"a log"}
    assert all(record.job.user.startswith("~") for record in records)


def test_of_a_long_history_the_latest_is_learned():
    bank = WaitBank(Diary)
    assert bank.learn(history(), most=10) == 10
    assert bank.learned == 10


def test_an_unknown_estimator_is_refused():
    with pytest.raises(UnknownNameError, match="no estimator 'eager'"):
        WaitBank("eager")


def test_a_job_that_is_submitted_again_no_longer_waits_as_it_did():
    """It was requeued, or another job has its number."""
    bank = WaitBank(Diary)
    bank.follow([QueueEvent("submitted", 7, 0.0, job(0)), QueueEvent("submitted", 7, 50.0, job(50))])
    bank.follow([QueueEvent("started", 7, 60.0)])
    assert bank[""].lines == [
        ("submitted", 0.0),
        ("withdrawn", 0.0),
        ("submitted", 50.0),
        ("observe", 50.0, exactly(10.0)),
    ]


def test_of_a_replay_that_is_cut_whoever_waited_is_left_waiting():
    diary = Diary(None)
    replay(diary, [job(0), job(10), job(20)], [exactly(5.0), exactly(50.0), exactly(1.0)], until_s=15.0)
    assert [line for line in diary.lines if line[0] != "predict"] == [
        ("submitted", 0.0),
        ("observe", 0.0, exactly(5.0)),
        ("submitted", 10.0),
    ]

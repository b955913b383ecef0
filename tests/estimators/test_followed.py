"""A client goes on following the queue where an earlier one stopped, and no job is learned twice."""

import json
from collections import Counter

import numpy as np
import pytest

from asa.estimators import kept
from asa.estimators.contextual import ContextualAsa
from asa.estimators.followed import FollowedQueue
from asa.estimators.store import WaitStore
from asa.waits import QueuedJob, QueueEvent, exactly

EVENTS_AT = 50.0  # the first client looks at this time


class Recorder:
    """An estimator that records what it is told, by jobs in place of tickets."""

    def __init__(self):
        self.calls, self.jobs = [], []

    def submitted(self, job, forecast=None):
        self.jobs.append(job)
        self.calls.append(("submitted", job))
        return len(self.jobs) - 1

    def observe(self, ticket, observation):
        self.calls.append(("observed", self.jobs[ticket], observation))

    def ended(self, ticket, run_s):
        self.calls.append(("ended", self.jobs[ticket], run_s))

    def withdrawn(self, ticket):
        self.calls.append(("withdrawn", self.jobs[ticket]))


def a_course(seed, count=60):
    """Draw all events of jobs: each waits and runs for some time, or leaves the queue without having started."""
    rng = np.random.default_rng(seed)
    events = []
    for number in range(count):
        submit_s = float(rng.integers(0, 100))
        start_s = submit_s + float(rng.integers(0, 60))
        events.append(QueueEvent("submitted", str(number), submit_s, QueuedJob(submit_s, number + 1, 60.0, "u", "x")))
        if number % 7 == 0:
            events.append(QueueEvent("left", str(number), start_s))
            continue
        events.append(QueueEvent("started", str(number), start_s))
        events.append(QueueEvent("ended", str(number), start_s + float(rng.integers(1, 60))))
    return sorted(events, key=lambda event: event.time_s)


def until(events, time_s):
    return [event for event in events if event.time_s <= time_s]


def kept_queue(queue):
    return FollowedQueue.from_state(json.loads(json.dumps(queue.state())))


@pytest.mark.parametrize("seed", range(8))
def test_two_clients_learn_what_one_does(seed):
    """The second is shown all jobs from their submission on, and tells the estimator only what the first did not."""
    events = a_course(seed)
    one, two = Recorder(), Recorder()
    FollowedQueue().follow(events, lambda _: one, sees_ends=True)
    first = FollowedQueue(shown={})
    first.follow(until(events, EVENTS_AT), lambda _: two, sees_ends=True)
    second = kept_queue(first)
    second.follow(events, lambda _: two, sees_ends=True)
    assert Counter(two.calls) == Counter(one.calls)
    third = kept_queue(second)
    before = len(two.calls)
    third.follow(events, lambda _: two, sees_ends=True)
    assert (len(two.calls), third.news) == (before, 0)


def test_what_the_site_no_longer_shows_is_forgotten():
    events, told = a_course(3), Recorder()
    first = FollowedQueue(shown={})
    first.follow(until(events, EVENTS_AT), lambda _: told, sees_ends=True)
    live = [job for job, *_ in (*first.waiting.values(), *first.running.values())]
    second = kept_queue(first)
    second.follow([], lambda _: told, sees_ends=True)
    assert len(live) > 10
    assert told.calls[-len(live) :] == [("withdrawn", job) for job in live]
    assert [second.waiting, second.running, second.shown] == [{}, {}, {}]


def test_a_number_that_is_another_jobs_now_is_a_new_job():
    told = Recorder()
    first = FollowedQueue(shown={})
    first.follow([QueueEvent("submitted", "7", 0.0, QueuedJob(0.0, 1, 60.0))], lambda _: told, sees_ends=True)
    other = QueuedJob(90.0, 1, 60.0)
    kept_queue(first).follow([QueueEvent("submitted", "7", 90.0, other)], lambda _: told, sees_ends=True)
    assert told.calls[1:] == [("withdrawn", QueuedJob(0.0, 1, 60.0)), ("submitted", other)]


def test_own_jobs_of_an_earlier_run_are_known_once():
    """They are shown to the next run's client as anybody's; one that is not over still takes part in the queue."""
    own = [QueuedJob(float(n % 2), 1, 60.0, "u", "x") for n in range(4)]  # two pairs of equal jobs
    queue = FollowedQueue(shown={})
    queue.own += own[:3]
    told, events = Recorder(), []
    for number, job in enumerate(own):
        events += [QueueEvent("submitted", str(number), job.submit_s, job), QueueEvent("started", str(number), 5.0)]
        events += [QueueEvent("ended", str(number), 9.0)] if number else []
    kept_queue(queue).follow(events, lambda _: told, sees_ends=True)
    assert Counter(job for what, job, *_ in told.calls if what == "submitted") == Counter([own[0], own[3]])


def test_own_jobs_of_an_earlier_run_are_known_once_where_ends_are_not_reported():
    queue = FollowedQueue(shown={})
    queue.own += (own := [QueuedJob(float(n), 4, 600.0, "me", "x") for n in range(3)])
    told, events = Recorder(), []
    for number, job in enumerate(own):
        events += [QueueEvent("submitted", str(number), job.submit_s, job), QueueEvent("started", str(number), 5.0)]
    kept_queue(queue).follow(events, lambda _: told, sees_ends=False)
    assert not told.calls


def opened(folder, now_s=1e6, estimator="asa-queue"):
    return kept.bank_of(estimator, WaitStore(folder, durable=False), "x", machine_cores=64, seed=1, now_s=now_s)


def shown(count, key=str):
    jobs = [QueuedJob(1e6 + n, 1 + n % 8, 600.0, f"u{n % 5}", "x") for n in range(count)]
    return [QueueEvent("submitted", key(n), job.submit_s, job) for n, job in enumerate(jobs)]


@pytest.fixture
def bank_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bank = opened(tmp_path / "bank")
    for n in range(50):
        own = bank.submitted(QueuedJob(100.0 * n, 4, 600.0, "", "x"))
        bank.observe(own, exactly(30.0))
        bank.ended(own, 10.0)
    bank.close()
    return tmp_path / "bank"


def test_the_next_run_simulates_the_queue_no_more(bank_folder):
    """Nor the waits of the run before; with what it then knows it predicts as a client that never stopped."""
    first = opened(bank_folder)
    first.follow(shown(60))
    asked = QueuedJob(1e6 + 100, 4, 600.0, "me", "x")
    stated = first.predict(asked)
    first.close()
    second = opened(bank_folder)
    simulated = second["x"].adviser.submitted
    second["x"].adviser.submitted = lambda *given: pytest.fail("it was simulated before")
    second.lose_sight()  # as each run begins
    second.follow(shown(60))
    assert second.predict(asked) == stated
    second["x"].adviser.submitted = simulated
    second.follow(shown(61)[60:])
    assert second.learned == first.learned


@pytest.mark.parametrize("estimator", ["asa", "asa-queue"])
def test_a_run_learns_no_wait_that_one_before_has_read(bank_folder, monkeypatch, estimator):
    """What it has learned is loaded, which takes plain Python as long as learning some waits."""
    first = opened(bank_folder, estimator=estimator)
    stated = first.predict(asked := QueuedJob(1e6, 4, 600.0, "", "x"))
    first.close()
    learned = []
    monkeypatch.setattr(ContextualAsa, "observe", lambda *given: learned.append(given))
    second = opened(bank_folder, estimator=estimator)
    assert not learned
    assert second.learned == first.learned == 50
    assert second.predict(asked) == stated


def test_jobs_of_a_run_that_wait_when_its_client_leaves_are_not_in_the_kept_queue(bank_folder):
    """As at each look of a client that cron begins: the next one reports them itself."""
    first = opened(bank_folder)
    first.follow(shown(60))
    first.submitted(QueuedJob(1e6 + 70, 4, 600.0, "", "x"))
    first.close()
    second = opened(bank_folder)
    second.follow(shown(60))
    assert second["x"].adviser._waiting.count == 60


def test_simulated_queues_are_not_followed_further(bank_folder):
    """Another world numbers its jobs from the same number on."""
    first = opened(bank_folder)
    first.follow(shown(60, key=int))
    first.close()
    second = opened(bank_folder)
    second.follow(shown(60, key=int))
    assert second._queue.news == 60


def test_a_stored_wait_of_a_job_whose_end_nobody_told_does_not_occupy_the_machine(bank_folder):
    """A strategy without forecasts stores waits, not run times: its jobs would seem to run for hours."""
    with WaitStore(bank_folder, durable=False) as store:
        plain = kept.bank_of("last", store, "x", machine_cores=64, seed=1, now_s=1e6)
        for _ in range(50):
            plain.observe(plain.submitted(QueuedJob(1e6 - 50.0, 4, 6000.0, "", "x")), exactly(1.0))
    assert opened(bank_folder)["x"].adviser._running.count == 0

"""The thread that calls the batch system: the results of submissions, and the waits that it learns."""

import queue
import subprocess
import sys
import time

import pytest
from slurm_testbed import until

from asa.backend import Capabilities, Condition, JobSpec, JobState, JobStatus
from asa.errors import SubmitDeferredError, SubmitInDoubtError, SubmitRejectedError, UnavailableError
from asa.estimators import WaitStore
from asa.outcome import JobOutcome
from asa.pool import desk
from asa.pool.allocation import Allocation
from asa.pool.desk import Desk, PoolNews
from asa.pool.roster import Roster
from asa.pool.values import AllocationShape
from asa.waits import LEVELS, WaitForecast

SOON = WaitForecast((1.0,) * len(LEVELS), 1.0)
SPEC = JobSpec("a1", 4, 3600.0, token="t1")


class Site:
    """A batch system with given answers, and a clock that moves only in `wait`."""

    def __init__(self, answers=()):
        self.answers = list(answers)
        self.clock_s, self.jobs, self.sent, self.cancelled = 1000.0, {}, [], []
        self.capabilities = Capabilities("site", 64, 16, age_accrues=True)
        self.condition = Condition(0.0)

    notes = ()

    def meanwhile(self):
        """What happens while a job is being submitted."""

    def connect(self, _folder, *, sleep):
        self.sleep = sleep
        return self

    def now(self):
        return self.clock_s

    def submit(self, spec):
        self.sent.append(spec.token)
        self.meanwhile()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, SubmitInDoubtError) and "arrived" not in str(answer):
            raise answer
        if answer is not None and not isinstance(answer, SubmitInDoubtError):
            raise answer
        job_id = str(len(self.jobs) + 1)
        self.jobs[job_id] = spec.token, JobStatus(job_id, JobState.PENDING, self.clock_s, eligible_s=self.clock_s)
        if answer is not None:
            raise answer
        return job_id

    def find(self, tokens):
        return {token: [status for own, status in self.jobs.values() if own == token] for token in tokens}

    def cancel(self, job_id):
        self.cancelled.append(job_id)
        self.become(job_id, JobState.CANCELLED, end_s=self.clock_s)

    def become(self, job_id, state, **changes):
        token, was = self.jobs[job_id]
        known = {name: getattr(was, name) for name in ("submit_s", "eligible_s", "start_s")}
        self.jobs[job_id] = token, JobStatus(job_id, state, **{**known, **changes})

    def status(self, job_ids):
        return {job_id: self.jobs[job_id][1] for job_id in job_ids}

    def wait(self, until_s):
        self.clock_s = max(self.clock_s, until_s)
        self.sleep(0.001)
        return [status for _, status in self.jobs.values()]

    def queue_events(self, _most, *, ends):
        assert not ends
        return []


@pytest.fixture
def open_desk(tmp_path, monkeypatch):
    monkeypatch.setattr(desk, "_IDLE_S", 0.01)
    opened = []

    def make(site):
        told = queue.Queue()
        made = Desk(site, tmp_path, told.put, bank=tmp_path / "bank")
        made.start()
        made.connected.result(timeout=30)
        opened.append(made)
        return made, told

    yield make
    for made in opened:
        made.stop().result(timeout=30)
        made.join(timeout=30)


def told_of(news, token="t1"):
    """Wait for the next word of a job."""
    while True:
        one = news.get(timeout=30)
        if token in one.refused:
            return one.refused[token]
        if token in one.statuses:
            return one.statuses[token]


def test_a_wait_is_learned_once(open_desk, tmp_path):
    """What a job waited is in the bank, where every command finds it."""
    site = Site()
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    assert told_of(news).state is JobState.PENDING
    made._order(lambda: site.become("1", JobState.RUNNING, start_s=1500.0)).result()
    while told_of(news).start_s != 1500.0:
        pass
    made._order(lambda: site.become("1", JobState.COMPLETED, start_s=1500.0, end_s=1600.0)).result()
    assert told_of(news).state is JobState.COMPLETED
    [record] = WaitStore(tmp_path / "bank").read(10)
    assert (record.observation.wait_s, record.observation.kind, record.job.cores) == (500.0, "exact", 4)
    assert record.forecast == SOON.quantiles_s


def test_a_job_withdrawn_teaches_that_it_would_have_waited_longer(open_desk, tmp_path):
    """A bound, no wait."""
    site = Site()
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    told_of(news)
    made.cancel("t1")
    while told_of(news).state is not JobState.CANCELLED:
        pass
    assert site.cancelled == ["1"]
    [record] = WaitStore(tmp_path / "bank").read(10)
    assert record.observation.kind == "at_least"


@pytest.mark.parametrize(("age_accrues", "waited_s"), [(True, 500.0), (False, 100.0)])
def test_a_wait_is_learned_as_a_run_learns_it(open_desk, tmp_path, age_accrues, waited_s):
    """Of a job that somebody held meanwhile, at most what passed; where age does not accrue, since it was released."""
    site = Site()
    site.capabilities = Capabilities("site", 64, 16, age_accrues=age_accrues)
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    told_of(news)
    times = {"eligible_s": 1400.0, "start_s": 1500.0}
    made._order(lambda: site.become("1", JobState.RUNNING, held=True, **times)).result()
    while told_of(news).start_s != 1500.0:
        pass
    [record] = WaitStore(tmp_path / "bank").read(10)
    assert (record.observation.wait_s, record.observation.kind) == (waited_s, "at_most")


@pytest.mark.parametrize(
    ("answers", "times"),
    [
        ([UnavailableError("down"), SubmitDeferredError("too many")], 3),
        ([SubmitInDoubtError("it arrived")], 1),
        ([SubmitInDoubtError("it was lost")], 2),
    ],
)
def test_a_job_is_submitted_once_whatever_becomes_of_the_answers(open_desk, answers, times):
    """What was not accepted is sent again; what may have been is looked for first."""
    site = Site(answers)
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    assert told_of(news).state is JobState.PENDING
    made.forecasts([AllocationShape(4, 3600.0)]).result(timeout=30)
    assert (len(site.jobs), len(site.sent)) == (1, times)


def test_a_refusal_is_told(open_desk):
    """And the job is not sent again."""
    site = Site([SubmitRejectedError("no such partition")])
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    assert "no such partition" in told_of(news)
    assert site.sent == ["t1"]


def test_what_may_have_been_accepted_and_is_not_wanted_is_cancelled(open_desk):
    """No job is left behind that nobody knows of."""
    site = Site([SubmitInDoubtError("it arrived")])
    made, news = open_desk(site)
    site.meanwhile = lambda: made.cancel("t1")
    made.submit(SPEC, SOON)
    while told_of(news).state is not JobState.CANCELLED:
        pass
    assert site.cancelled == ["1"]
    assert site.sent == ["t1"]


def test_what_was_not_sent_yet_is_not_sent_any_more(open_desk):
    """It is told to have ended."""
    site = Site([UnavailableError("down")])
    made, news = open_desk(site)
    site.meanwhile = lambda: made.cancel("t1")
    made.submit(SPEC, SOON)
    assert "not wanted" in told_of(news)
    assert (site.sent, site.jobs) == (["t1"], {})


class Unreliable(Site):
    """One of whose calls some fail, by their names: how often."""

    def __init__(self, answers=(), **failures):
        super().__init__(answers)
        self.failures, self.calls = failures, []

    def _may_fail(self, name):
        self.calls.append(name)
        self.failures[name] = self.failures.get(name, 0) - 1
        if self.failures[name] >= 0:
            raise UnavailableError("the connection was reset")

    def cancel(self, job_id):
        self._may_fail("cancel")
        super().cancel(job_id)

    def find(self, tokens):
        self._may_fail("find")
        return super().find(tokens)

    def wait(self, until_s):  # its clock stands, so that nothing is done again before the end
        self.sleep(0.01)
        return [status for _, status in self.jobs.values()]

    def left(self):
        return [job_id for job_id, (_, status) in self.jobs.items() if not status.state.is_final]


def closed(made):
    made.stop().result(timeout=30)
    made.join(timeout=30)
    assert not made.is_alive()


def submitted_cancelled_and_closed(open_desk, site):
    """Have a job that is wanted no more while it is being sent, and end."""
    made, _ = open_desk(site)
    site.meanwhile = lambda: made.cancel("t1")
    made.submit(SPEC, SOON)
    until(lambda: site.jobs, what="the submission")
    closed(made)


@pytest.mark.parametrize(
    ("answers", "failures"),
    [
        ([], {"cancel": 1}),
        ([SubmitInDoubtError("it arrived")], {}),
        ([SubmitInDoubtError("it arrived")], {"find": 1, "cancel": 1}),
    ],
)
def test_no_job_is_left_behind_at_the_end(open_desk, monkeypatch, caplog, answers, failures):
    """What could not be cancelled at first is cancelled before the desk closes; so is what may have been accepted."""
    monkeypatch.setattr(desk, "_HURRY_S", 0.01)
    site = Unreliable(answers, **failures)
    submitted_cancelled_and_closed(open_desk, site)
    assert (site.cancelled, site.left()) == (["1"], [])
    assert not caplog.records


@pytest.mark.parametrize(
    ("answers", "failures", "words"),
    [
        ([], {"cancel": 10**6}, "job 1"),
        ([SubmitInDoubtError("it arrived")], {"find": 10**6}, "the token t1, if it was accepted"),
    ],
)
def test_what_may_be_left_behind_is_named(open_desk, monkeypatch, caplog, answers, failures, words):
    """A batch system that does not answer does not hold the end up for ever."""
    monkeypatch.setattr(desk, "_HURRY_S", 0.01)
    monkeypatch.setattr(desk, "_CLOSING_S", 0.2)
    site = Unreliable(answers, **failures)
    submitted_cancelled_and_closed(open_desk, site)
    assert site.left() == ["1"]
    [record] = caplog.records
    assert all(part in record.getMessage() for part in (words, "the connection was reset", "cancel it"))


def test_what_was_never_looked_for_is_not_taken_for_unsent(open_desk):
    """A look that failed is none."""
    site = Unreliable([SubmitInDoubtError("it arrived")], find=3)
    site.wait = lambda until_s: Site.wait(site, until_s)
    site.meanwhile = lambda: made.cancel("t1")
    made, news = open_desk(site)
    made.submit(SPEC, SOON)
    assert told_of(news).state is JobState.PENDING
    until(lambda: site.cancelled == ["1"], what="its end")


@pytest.mark.parametrize("failing", ["find", "cancel"])
def test_what_an_earlier_pool_left_is_cancelled_when_it_can_be(open_desk, failing):
    """The trouble is told, and it is tried again; what has ended is left alone."""
    site = Unreliable(**{failing: 1})
    site.wait = lambda until_s: Site.wait(site, until_s)
    for token in ("t7", "t8"):
        site.submit(JobSpec("old", 1, 60.0, token=token))
    site.become("2", JobState.COMPLETED, end_s=1000.0)
    made, news = open_desk(site)
    made.clear(["t7", "t8", "t9"])
    until(lambda: any("reset" in one.trouble for one in iter(lambda: news.get(timeout=30), None)), what="the trouble")
    site.clock_s += 60
    until(lambda: site.cancelled == ["1"], what="the end of what was left")


def test_what_an_earlier_pool_left_is_named_at_the_end(open_desk, monkeypatch, caplog):
    """By its token, if nobody could find it."""
    monkeypatch.setattr(desk, "_CLOSING_S", 0.0)
    site = Unreliable(find=10**6)
    made, _ = open_desk(site)
    made.clear(["t7"])
    closed(made)
    [record] = caplog.records
    assert "the token t7" in record.getMessage()


def test_a_trouble_at_the_beginning_is_raised_where_it_is_waited_for(tmp_path):
    """Nobody waits for a thread that has ended."""

    class Nowhere:
        def connect(self, *_, **__):
            raise UnavailableError("no route")

    made = Desk(Nowhere(), tmp_path, lambda _: None)
    made.start()
    with pytest.raises(UnavailableError, match="no route"):
        made.connected.result(timeout=30)


def test_what_was_wrong_is_taken_back_once_there_are_answers_again(open_desk, monkeypatch):
    """Also by a desk without jobs, which has nothing else to tell."""
    monkeypatch.setattr(desk, "AGAIN_S", (0.01,))

    class Away(Site):
        def now(self):
            self.clock_s += 1.0
            return self.clock_s

        def queue_events(self, most, *, ends):
            if self.clock_s < 1010.0:
                raise UnavailableError("is away", where="the queue", hint="Wait.")
            return super().queue_events(most, ends=ends)

    _, news = open_desk(Away())
    while "is away" not in news.get(timeout=30).trouble:
        pass
    while news.get(timeout=30).trouble:
        pass


@pytest.mark.parametrize(
    ("outcome", "is_stuck"), [(JobOutcome.UNABLE, True), (None, False)], ids=["could not start", "was cancelled"]
)
def test_jobs_that_no_node_can_start_are_not_asked_for_for_ever(tmp_path, outcome, is_stuck):
    """They have no start. A job that somebody cancels while it waits tells nothing of the nodes."""
    roster, shape = Roster(tmp_path), AllocationShape(4, 3600.0)
    state = JobState.CANCELLED if outcome is None else JobState.FAILED
    for number in range(3):
        roster.add(Allocation(f"a{number}", f"t{number}", shape, 0.0, SOON))
        ended = JobStatus(str(number), state, 1.0, end_s=2.0, reason="why", outcome=outcome)
        roster.hear(PoolNews(2.0, {f"t{number}": ended}))
    assert roster.is_barren == is_stuck
    assert ("failed: why" in roster.stuck([shape])) == is_stuck


def test_news_that_is_heard_late_does_not_set_the_clock_back(tmp_path):
    roster = Roster(tmp_path)
    roster.hear(PoolNews(5000.0, local_now_s=time.time() - 60.0))
    assert 5060.0 <= roster.now() < 5065.0


def test_no_job_is_asked_for_whose_token_cannot_be_kept(tmp_path):
    """A pool that comes later could not find it."""
    roster, shape = Roster(tmp_path / "gone"), AllocationShape(4, 3600.0)
    with pytest.raises(UnavailableError, match="cannot be written"):
        roster.add(Allocation("a1", "t1", shape, 0.0, SOON))
    assert roster.live() == []
    roster = Roster(tmp_path)
    roster.add(Allocation("a1", "t1", shape, 0.0, SOON))
    assert Roster(tmp_path).left_over() == ["t1"]


def test_without_dask_the_extra_is_named():
    """Planning works without; a cluster says what to install."""
    code = (
        "import sys; sys.modules['distributed'] = None; sys.modules['dask'] = None\n"
        "import asa.pool, asa.pool.planning\n"
        "try:\n    asa.pool.AsaCluster\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("MissingExtraError")
    assert "pip install 'asa-client[pool]'" in out


def test_the_pool_is_loaded_when_it_is_named():
    """Neither asa nor what a pool decides with loads dask."""
    code = "import sys, asa, asa.pool.planning; print([m for m in ('dask', 'distributed', 'rich') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"

"""Runs that another program hosts: it adds stages as it learns of them, and says when each may begin."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from local_queue import Queue
from slurm_testbed import until

from asa.backend import JobState, JobStatus
from asa.errors import InputError, JournalError
from asa.estimators import readiness
from asa.hosted.run import HostedRun, Settings, begin, command_of, wind_up
from asa.runner import RunFolder
from asa.runner.active import Active
from asa.runner.entries import Accepted, Begun, Claimed, Intended, Refused
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.runner.submission import release_claimed
from asa.sites import open_facility
from asa.strategies.base import Keep, PlannedJob
from asa.workflow import Stage, Workflow

PATIENCE_S = 120


@pytest.fixture
def queue(tmp_path):
    queue = Queue(tmp_path, 4)
    yield queue
    queue.close()


class Host:
    """A program that hosts a run of stages, in a queue of this machine."""

    def __init__(self, root, strategy="asa-plan", whole_nodes="no", **settings):
        self.root, self.ended = root, {}
        options = {"cores": "4", "spool": str(root / "spool"), "whole_nodes": whole_nodes}
        self.opened = open_facility("local", None, options)
        self.settings = Settings(strategy, "last", None, history=0, **settings)

    def begin(self, *stages):
        def make(_site, folder):
            return [self.stage(folder, *one) for one in stages]

        folder = begin(
            self.root / "runs", "flow", "Host", self.opened, settings=self.settings, make=make, workdir=self.root
        )
        self.run = HostedRun(folder, self.opened)
        self.run.start()
        return self

    def begin_with(self, **more):
        def make(_site, folder):
            return [self.stage(folder, "only", **more)]

        return begin(self.root / "runs", "flow", "Host", self.opened, settings=self.settings, make=make)

    def stage(self, folder, name, after="", **more):
        more = {"cores": 1, "walltime_s": 300.0, "expected_run_s": 5.0} | more
        return Stage(name, after=tuple(after.split()), command=command_of(folder, name), **more)

    def extend(self, *stages):
        self.run.extend([self.stage(self.run.folder.path, *one) for one in stages])

    def claim(self, name, then="true", **how):
        self.run.claim(name, f"echo {name} >>{self.root}/ran; {then}", **how)

    def hear(self, *names):
        """Wait until the given number of handed-over stages have ended."""

        def all_ended():
            self.ended |= {one.stage: one for one in self.run.endings()}
            return self.ended.keys() >= set(names)

        until(all_ended, within_s=PATIENCE_S, what=lambda: f"the ends of {names}; there are {self.ended}")
        return [self.ended.pop(name) for name in names]

    def end(self):
        assert self.run.end(PATIENCE_S)
        return self.state()

    def state(self):
        return RunFolder(self.run.folder.path).state()[0]

    def jobs(self, name):
        return [job for job in self.state().jobs.values() if name in job.planned.stages]

    def ran(self):
        path = self.root / "ran"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def host(tmp_path, queue):
    made = []

    def make(*stages, **settings):
        made.append(Host(tmp_path, **settings).begin(*stages))
        return made[-1]

    yield make
    for one in made:
        one.run.cancel("the test is over")
        one.run.wait(PATIENCE_S)


@pytest.mark.parametrize("strategy", ["asa-plan", "per-stage", "asa-naive", "chained"])
def test_stages_run_as_they_are_handed_over(host, strategy):
    """Each stage runs once, in the host's order."""
    run = host(("a",), ("b", "a"), ("c", "a"), ("d", "b c"), strategy=strategy)
    for names in (("a",), ("b", "c"), ("d",)):
        for name in names:
            run.claim(name)
        assert all(one.completed for one in run.hear(*names))
    assert run.end().outcome == "completed"
    assert sorted(run.ran()) == ["a", "b", "c", "d"]
    assert (run.ran()[0], run.ran()[-1]) == ("a", "d")


def test_a_run_without_work_stays_open_and_is_extended(host):
    """New stages may also follow stages that ended long ago."""
    run = host(("a",))
    run.claim("a")
    run.hear("a")
    run.extend(("b", "a"), ("c", "b"))
    run.claim("b")
    run.hear("b")
    run.claim("c")
    run.hear("c")
    assert run.end().outcome == "completed"
    assert run.ran() == ["a", "b", "c"]


def test_what_is_dropped_is_given_back_and_never_runs(host):
    """The stage's job is pending, or waits until a stage is handed to it."""
    run = host(("a",), ("b", "a"), ("c", "b"), ("other",))
    until(lambda: run.jobs("other") and run.jobs("a"), what="jobs ahead of what they run")
    run.run.drop(["b", "c", "other"], "nobody wants it")
    run.claim("a")
    run.hear("a")
    state = run.end()
    assert state.outcome == "completed"
    assert {name: view.phase.value for name, view in state.stages.items()} == {
        "a": "done", "b": "dropped", "c": "dropped", "other": "dropped",
    }  # fmt: skip
    assert not state.jobs.unfinished()
    assert run.ran() == ["a"]


@pytest.mark.parametrize("may_come_again", [False, True])
def test_what_is_withdrawn_ends_with_its_job_and_what_shares_that_job_runs(host, may_come_again):
    """Although it was handed over, and runs."""
    run = host(("a",), ("b",), strategy="chained", whole_nodes="yes")
    until(lambda: any(len(i.planned.stages) == 2 for i in run.state().jobs.intents.values()), what="a job of both")
    with run.run.at_once():
        run.claim("a", "exec sleep 600", may_come_again=may_come_again)
        run.claim("b", f"until [ -e {run.root}/go ]; do sleep 0.1; done", may_come_again=may_come_again)
    until(lambda: sorted(run.ran()) == ["a", "b"], what="both")
    first = {job.status.job_id for job in run.jobs("a")}
    run.run.withdraw(["a"], "its host has killed it")
    [a] = run.hear("a")
    assert not a.completed
    assert all(job.status.state is JobState.CANCELLED for job in run.jobs("a") if job.status.job_id in first)
    (run.root / "go").touch()
    assert run.hear("b")[0].completed
    run.end()
    assert run.ran().count("a") == 1
    assert not run.state().jobs.unfinished()


def test_what_is_withdrawn_before_its_job_begins_never_runs(host):
    run = host(("a",), ("b",))
    run.claim(
        "a", f"until [ -e {run.root}/go ]; do sleep 0.1; done", asked=run.stage(run.run.folder.path, "a", cores=4)
    )
    until(run.ran, what="a job that takes the whole computer")
    run.claim("b", asked=run.stage(run.run.folder.path, "b", cores=4))
    until(lambda: run.jobs("b"), what="its job")
    run.run.withdraw(["b"], "its host has killed it")
    assert not run.hear("b")[0].completed
    (run.root / "go").touch()
    run.hear("a")
    run.end()
    assert run.ran() == ["a"]


def test_a_failure_is_told_with_its_reason_and_others_go_on(host):
    """The stages after it do not run."""
    run = host(("bad",), ("after", "bad"), ("good",))
    run.claim("bad", "echo no >&2; exit 3")
    run.claim("good")
    bad, good = run.hear("bad", "good")
    assert good.completed
    assert not bad.completed
    assert not bad.may_come_again
    assert "failed" in bad.reason
    assert "no" in bad.log.read_text()
    state = run.end()
    assert state.outcome == "failed"
    assert state.stages["after"].phase.value == "blocked"
    assert not state.jobs.unfinished()


def test_a_stage_may_be_handed_over_again_with_other_demands(host):
    """Its successors wait for the new attempt."""
    run = host(("a",), ("b", "a"))
    run.claim("a", "exit 3", may_come_again=True)
    [failed] = run.hear("a")
    assert failed.may_come_again
    asked = run.stage(run.run.folder.path, "a", cores=2)
    run.claim("a", asked=asked)
    assert run.hear("a")[0].completed
    run.claim("b")
    assert run.hear("b")[0].completed
    assert run.end().outcome == "completed"
    assert [job.spec.cores for job in run.jobs("a")][-1] == 2
    assert run.ran() == ["a", "a", "b"]


@pytest.mark.parametrize("strategy", ["big-job", "asa-plan"])
def test_stages_that_share_a_job_are_handed_over_again(host, strategy):
    """The whole job is lost each time, whichever of its stages failed."""
    run = host(("a",), ("b", "a"), ("c", "b"), strategy=strategy)
    for name in "abc":
        run.claim(name, "exit 3", may_come_again=True)
        assert run.hear(name)[0].may_come_again
        run.claim(name)
        assert run.hear(name)[0].completed
    assert run.end().outcome == "completed"
    assert run.ran() == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_a_job_that_was_asked_for_too_small_is_given_back(host, cores):
    """A job that is large enough is used."""
    run = host(
        ("a",),
        (
            "b",
            "a",
        ),
    )
    until(lambda: run.jobs("a"), what="a job")
    asked = run.stage(run.run.folder.path, "a", cores=cores)
    run.claim("a", asked=asked)
    assert run.hear("a")[0].completed
    jobs = run.jobs("a")
    assert jobs[-1].spec.cores == cores or cores == 1
    assert run.ran() == ["a"]


def test_an_allocation_that_is_given_back_as_it_is_claimed_fails_nothing(host):
    """The job gives up, or the host claims it, whichever comes first."""
    names = [f"s{number}" for number in range(12)]
    run = host(*((name,) for name in names))
    until(lambda: any(job.status.start_s is not None for name in names for job in run.jobs(name)), what="a start")
    threads = [
        threading.Thread(target=lambda names=names[at::3]: [run.claim(name) or time.sleep(0.02) for name in names])
        for at in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one.completed for one in run.hear(*names))
    assert sorted(run.ran()) == sorted(names)


def test_no_more_are_held_ahead_than_the_host_hands_over(host):
    """Otherwise stages that the host does hand over might find no room."""
    names = [f"s{number}" for number in range(6)]
    run = host(("a",), *((name, "a") for name in names), max_jobs=2)
    run.claim("a", f"until [ -e {run.root}/go ]; do sleep 0.1; done")

    def held():
        state = run.state()
        live = [job for job in state.jobs.values() if not job.status.state.is_final]
        return sum(job.planned.stages[0] in state.host.unclaimed for job in live)

    until(held, what="an allocation ahead")
    (run.root / "go").touch()
    run.hear("a")
    for first, second in zip(names[::2], names[1::2], strict=True):
        run.claim(first)
        run.claim(second)
        run.hear(first, second)
        assert held() <= 2
    assert run.end().outcome == "completed"


def test_of_more_ready_stages_than_the_host_hands_over_none_is_asked_for_ahead(host):
    """It is unknown which stage the host will hand over next; an allocation for another stage would idle."""
    names = [f"s{number}" for number in range(6)]
    run = host(*((name,) for name in names), max_jobs=2)
    for first, second in (("s5", "s3"), ("s0", "s4"), ("s2", "s1")):
        run.claim(first)
        run.claim(second)
        run.hear(first, second)
    state = run.end()
    assert state.outcome == "completed"
    assert len(state.jobs.intents) == 6
    assert all(not one.spec.awaits for one in list(state.jobs.intents.values())[:4])


@pytest.mark.full
@pytest.mark.parametrize("whole_nodes", ["no", "yes"])
def test_of_very_many_ready_stages_those_that_are_handed_over_run(host, whole_nodes):
    """Only some stages are planned at a time, and the workflow's first stages may not be handed over yet."""
    names = [f"s{number}" for number in range(70)]
    run = host(*((name,) for name in names), max_jobs=6, whole_nodes=whole_nodes)
    for at in (-6, -12, -18):
        chosen = names[at : at + 6 or None]
        with run.run.at_once():
            for name in chosen:
                run.claim(name)
        run.hear(*chosen)
    run.end()
    assert sorted(run.ran()) == sorted(names[-18:])


def test_a_job_of_stages_side_by_side_begins_those_that_were_handed_over(host):
    """The job does not wait for its first stage."""
    run = host(("a",), ("b",), ("c",), strategy="chained", whole_nodes="yes")
    until(lambda: any(len(i.planned.stages) == 3 for i in run.state().jobs.intents.values()), what="a job of three")
    run.claim("c")
    run.claim("b")
    assert all(one.completed for one in run.hear("b", "c"))
    run.claim("a")
    assert all(one.completed for one in run.hear("a"))
    assert run.end().outcome == "completed"
    assert len(run.state().jobs.intents) == 1


@pytest.mark.parametrize(
    ("is_cold", "begins", "predicted_by", "why"),
    [
        (True, True, "asa", "asa-queue is being compiled, for later runs"),
        (True, False, "asa", "asa-queue would first have to be compiled, for a minute"),
        (False, True, "asa-queue", ""),
    ],
)
def test_what_is_ready_does_not_wait_for_a_compiler(tmp_path, monkeypatch, is_cold, begins, predicted_by, why):
    """The better estimator is compiled meanwhile, for the next run, if that can be kept."""
    monkeypatch.setattr(readiness, "is_to_compile", lambda _: is_cold)
    monkeypatch.setattr(readiness, "is_to_keep", lambda _: is_cold)
    monkeypatch.setattr(readiness, "compile_later", lambda: begins)
    made = Host(tmp_path)
    made.settings = replace(made.settings, estimator="asa-queue")
    plan = made.begin_with().plan
    assert (plan.estimator, plan.estimator_why) == (predicted_by, why)


def test_what_can_never_start_is_refused_before_the_run_begins(host):
    """Nothing is submitted then."""
    with pytest.raises(InputError, match="99 cores"):
        Host(host(("a",)).root).begin_with(cores=99)


def test_what_can_never_start_is_told_when_it_is_added_and_fails_in_its_turn(host):
    """Its successors fail, too; the run continues without them."""
    run = host(("a",))
    place = run.run.folder.path
    told = run.run.extend([run.stage(place, "big", cores=99), run.stage(place, "after", "big")])
    assert list(told) == ["big"]
    assert "99 cores" in told["big"]
    run.claim("a")
    run.hear("a")
    run.claim("big")
    [big] = run.hear("big")
    assert not big.completed
    assert "99 cores" in big.reason
    state = run.end()
    assert state.stages["after"].phase.value == "blocked"
    assert state.outcome == "failed"
    assert run.ran() == ["a"]


@pytest.mark.parametrize("strategy", ["asa-plan", "big-job"])
@pytest.mark.parametrize("may_come_again", [False, True])
def test_a_stage_that_asks_for_what_is_not_there_fails_alone(host, strategy, may_come_again):
    """Its job was submitted ahead; the host may hand it over again with another request, and then it runs."""
    run = host(("a",), ("b", "a"), ("c",), strategy=strategy)
    until(lambda: run.jobs("a"), what="a job ahead")
    asked = run.stage(run.run.folder.path, "a", cores=99)
    run.claim("a", asked=asked, may_come_again=may_come_again)
    [a] = run.hear("a")
    assert not a.completed
    assert "99 cores" in a.reason
    assert a.may_come_again is may_come_again
    run.claim("c")
    if may_come_again:
        run.claim("a", asked=run.stage(run.run.folder.path, "a"))
        assert run.hear("a")[0].completed
        run.claim("b")
        assert run.hear("b")[0].completed
    assert run.hear("c")[0].completed
    state = run.end()
    assert state.outcome == ("completed" if may_come_again else "failed")
    assert sorted(run.ran()) == (["a", "b", "c"] if may_come_again else ["c"])


@pytest.mark.parametrize("may_come_again", [False, True])
def test_a_stage_whose_job_is_refused_is_handed_back(tmp_path, may_come_again):
    """The stage stays the same when it is retried; a refused job that was submitted ahead is no failure."""
    site = open_facility("local", None, {"cores": "4", "spool": str(tmp_path)}).facility
    workflow = Workflow("x", [Stage("a", cores=1, walltime_s=60.0, expected_run_s=60.0, command="true")])
    state = RunState("x", workflow, site.connect(tmp_path).capabilities, "0")

    def refused(number):
        planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "")
        spec = spec_of(state, planned)
        apply(Intended(spec.token, planned, spec, number), Refused(spec.token, number, "no such account"))

    def apply(*entries):
        for entry in entries:
            list(state.apply(entry))

    apply(Begun(0.0, fail_fast=False, is_open=True))
    refused(1.0)
    assert not state.stages["a"].phase.is_settled
    assert state.host.attempts_failed == {"a": "no such account"}
    apply(Claimed("a", 2.0, None, may_come_again))
    assert not state.host.attempts_failed
    refused(3.0)
    assert state.stages["a"].phase.value == ("waiting" if may_come_again else "failed")
    assert ("a" in state.host.unclaimed) is may_come_again


def test_the_next_host_ends_what_one_has_left(tmp_path, host):
    """The next host refuses to continue if the earlier host's jobs are unknown."""
    run = host(("a",), ("b", "a"))
    run.claim("a", "sleep 600")
    until(run.ran, what="its beginning")
    run.run.cancel("its host is gone")
    assert run.run.wait(PATIENCE_S)
    said = []
    wind_up(tmp_path / "runs", "Host", said.append)
    assert not said  # it ended in good order
    (run.run.folder.path / "host-ended").unlink()
    wind_up(tmp_path / "runs", "Host", said.append)
    assert (run.run.folder.path / "host-ended").exists()
    assert all(job.status.state is JobState.CANCELLED for job in run.jobs("a"))
    (run.run.folder.path / "host-ended").unlink()
    (run.run.folder.path / "journal.jsonl").unlink()
    with pytest.raises(JournalError, match="not there"):
        wind_up(tmp_path / "runs", "Host", said.append)


def test_no_hand_over_looks_at_all_jobs(tmp_path):
    """Requests for more than was submitted ahead do not either: with many thousands of jobs it would take too long."""
    site = open_facility("local", None, {"cores": "4", "spool": str(tmp_path)}).facility
    stages = [Stage(f"s{n}", cores=1, walltime_s=60.0, expected_run_s=60.0, command="true") for n in range(5)]
    state = RunState("x", Workflow("x", stages), site.connect(tmp_path).capabilities, "0")
    list(state.apply(Begun(0.0, fail_fast=False, is_open=True)))
    for stage in stages:
        planned = PlannedJob((stage.name,), 0.0, Keep.NOTHING, "")
        spec = spec_of(state, planned)
        status = JobStatus(f"job-{stage.name}", JobState.PENDING, 1.0)
        for entry in (Intended(spec.token, planned, spec, 1.0), Accepted(spec.token, status)):
            list(state.apply(entry))

    class Jobs(dict):
        def __iter__(self):
            raise AssertionError("a look at all jobs")

        items = values = keys = __iter__

    state.jobs._by_id = Jobs(state.jobs._by_id)
    cancelled = []
    one = SimpleNamespace(
        state=state,
        run=SimpleNamespace(place=str(tmp_path)),
        backend=SimpleNamespace(now=lambda: 2.0, condition=SimpleNamespace(trouble="")),
        job_of=lambda token: Active.job_of(one, token),
        is_to_begin=cancelled.append,
    )
    larger = replace(stages[1], cores=2)
    for entry in (Claimed("s0", 2.0), Claimed("s1", 2.0, larger)):
        list(state.apply(entry))
    release_claimed(one)
    assert len(list((tmp_path / "posts").iterdir())) == 2
    assert cancelled == ["job-s1"]
    assert spec_of(state, PlannedJob(("s2",), 0.0, Keep.NOTHING, ""))


def test_stages_of_one_allocation_follow_each_other_by_their_host(host, tmp_path):
    """Each stage begins when it is handed over, and the host hears of each end at once."""
    run = host(("a",), ("b", "a"), ("c", "b"), strategy="big-job")
    for name in "abc":
        run.claim(name)
        assert run.hear(name)[0].completed
    state = run.end()
    assert state.outcome == "completed"
    assert len(state.jobs) == 1
    assert run.ran() == ["a", "b", "c"]


def test_whoever_cancels_a_run_is_heard_of_however_soon_it_ends(host, monkeypatch):
    """The run may end before the loop's next pass."""
    run = host(("a",))
    run.claim("a", "sleep 600")
    until(run.ran, what="its beginning")
    monkeypatch.setattr(HostedRun, "_hear_ends", _only_at_the_end(run.run, HostedRun._hear_ends))
    run.run.cancel("you asked for it")
    assert "you asked for it" in run.hear("a")[0].reason


def _only_at_the_end(run, hear):
    def hears(self, state):
        if self is not run or (run.folder.path / "host-ended").exists():
            hear(self, state)

    return hears

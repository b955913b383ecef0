"""The batch system's verdicts on a run's jobs before the first is submitted: few requests, early and true errors."""

import pytest
from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.errors import InputError
from asa.runner import RunFolder, RunPlan
from asa.runner.preflight import MAX_QUESTIONS, MAX_S, check_accepted
from asa.strategies import load_strategy
from asa.workflow import Stage

SITE = Capabilities("x", 112, 28, age_accrues=False, partition="normal")


class Asked:
    """A backend that objects to some jobs, and counts the requests for its verdict."""

    def __init__(self, against=(), takes_s=0.0):
        self.against, self.takes_s = dict(against), takes_s
        self.asked, self.time_s = [], 0.0

    def test(self, spec, timeout_s):
        self.asked.append(spec)
        self.time_s += min(self.takes_s, timeout_s)
        return self.against.get(spec.cores)

    def timer(self):
        return self.time_s


def checked(backend, stages, strategy="per-stage"):
    plan = RunPlan("abcd1234", "x", "flow", tuple(stages), strategy, "slurm-cli", SITE, created_s=1.7e9)
    check_accepted(plan, load_strategy(strategy), backend, timer=getattr(backend, "timer", lambda: 0.0))


def stage(name, cores=1, after=(), **more):
    return Stage(name, cores=cores, walltime_s=60, command="true", after=tuple(after), **more)


@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa-plan"])
def test_all_findings_are_told_at_once(strategy):
    backend = Asked({2: "Invalid this", 3: "Invalid that"})
    stages = [stage("a"), stage("b", 2, "a"), stage("c", 3, "b"), stage("d", 2, "c")]
    with pytest.raises(InputError) as caught:
        checked(backend, stages, strategy)
    said = caught.value.message
    assert said.startswith("3 jobs could never run on x:")
    assert all(line in said for line in ("\n  b: Invalid this", "\n  c: Invalid that", "\n  d: Invalid this"))
    assert "--no-preflight" in caught.value.hint


def test_stages_that_ask_for_the_same_are_one_question():
    backend = Asked()
    checked(backend, [stage(f"s{number}", 1 + number % 3) for number in range(60)])
    assert len(backend.asked) == 3


def test_what_differs_in_any_respect_is_asked_for_by_itself():
    backend = Asked()
    checked(backend, [stage("a"), stage("b", options=("--gres=gpu:8",)), stage("c", memory_bytes=1 << 30), stage("d")])
    assert len(backend.asked) == 3
    words = [("--ntasks=4", "--mem-per-cpu=1G"), ("--ntasks=4", "--mem=4G"), ("--nodes=2-4", "--ntasks=4")]
    backend = Asked()
    checked(backend, [Stage(f"w{n}", walltime_s=60, command="true", request=one) for n, one in enumerate(words * 2)])
    assert len(backend.asked) == 3


def test_there_are_few_questions_and_little_time():
    many = [stage(f"s{number}", number + 1) for number in range(40)]
    backend = Asked()
    checked(backend, many)
    assert len(backend.asked) == MAX_QUESTIONS
    slow = Asked(takes_s=60.0)
    checked(slow, many)
    assert slow.time_s <= MAX_S


def test_of_a_backend_that_cannot_be_asked_nothing_is():
    checked(object(), [stage("a")])


def backend_of(tmp_path, objections):
    plan = RunPlan("abcd1234", "x", "flow", (stage("a"),), "per-stage", "slurm-cli", SITE, created_s=1.7e9)
    folder, clock = RunFolder.create(tmp_path, plan), VirtualClock()
    link = FakeLink(clock, folder.path)
    link.objections = objections
    return link, SlurmBackend(link, folder.path, SITE, clock=clock, sleep=clock.sleep)


def test_what_slurm_says_is_told_and_nothing_is_submitted(tmp_path):
    link, backend = backend_of(tmp_path, {"a": "Invalid feature specification"})
    with pytest.raises(InputError, match="a: Invalid feature specification"):
        checked(backend, [stage("a")])
    assert not link.submitted
    assert not list((tmp_path / "x-abcd1234").glob("scripts/*"))


def test_local_stages_are_none_of_its_business():
    backend = Asked({1: "Invalid this"})
    checked(backend, [stage("a", local=True)])
    assert not backend.asked

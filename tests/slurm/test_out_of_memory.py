"""Jobs whose memory the kernel limits: a process that is killed is a failure, whatever the command exits with."""

import os
from pathlib import Path

import pytest
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, missing

from asa.elements import parse_array
from asa.records import Retrying
from asa.workflow import Stage

_CONF = """\
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=100
TaskPlugin=task/cgroup"""
_GROUPS = "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n"
_MIB = 1 << 20


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def strict(request):
    """Give a cluster that enforces the memory that jobs ask for."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("there are no control groups for memory of version 1 here")
    testbed = Testbed(Path(f"/tmp/asa-{os.getpid()}-memory{request.param}"), release=request.param, nodes=2, conf=_CONF)
    (testbed.root / "etc").mkdir(parents=True)
    (testbed.root / "etc" / "cgroup.conf").write_text(_GROUPS)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


EATS = "[ -e {0} ] || {{ touch {0}; tail /dev/zero | cat; }}"
"""A pipe that needs more memory than any job has, and exits with 0; it is spared the second time."""


class ListRun(SlurmRun):
    """A run of one list of tasks that two jobs share; each task leaves a line at its end."""

    def __init__(self, slurm, **options):
        super().__init__(slurm, [stage("a")], strategy="per-stage", **options)
        for name in ("tasks", "tasks/a"):
            (self.folder.path / name).mkdir(exist_ok=True)
            (self.folder.path / name).chmod(0o777)

    def _leaves_a_line(self, one):
        tasks = tuple(f"{what}; echo {n} >>'{self.place}/ran'" for n, what in enumerate(("sleep 1", EATS.format("x"))))
        return Stage(
            "a", cores=2, walltime_s=600, tasks=tasks * 2, jobs=(2, 2), memory_bytes=200 * _MIB, retries=1
        )  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
def test_the_task_that_was_killed_is_run_again_alone(strict, link):
    run = ListRun(strict, link=link)
    result = run.result()
    assert result.outcome == "completed", result.reason
    assert run.ran == {"0": 2, "1": 3}


@pytest.mark.parametrize("link", LINKS)
def test_a_pipe_of_which_a_process_is_killed_has_failed_and_gets_more_memory(strict, link):
    """Whatever waits for it begins afterwards. So have elements of an array, and a stage among others in a job."""
    known = {"memory_bytes": 100 * _MIB, "retries": 1}
    many = stage("a", then=EATS.format("at.$SLURM_ARRAY_TASK_ID"), array=parse_array("1-3"), **known)
    some = stage("a", then="true", **known), stage("b", "a", then=EATS.format("spared"), **known)
    runs = {
        how: SlurmRun(strict, stages, link=link, strategy=strategy)
        for how, strategy, stages in (
            ("alone", "chained", [stage("a", then=EATS.format("spared"), **known), stage("b", "a", then="true")]),
            ("ahead", "asa-naive", [stage("a", then=EATS.format("spared"), **known), stage("b", "a", then="true")]),
            ("array", "chained", [many, stage("b", "a", then="true")]),
            ("together", "big-job", [*some, stage("c", "b", then="true")]),
            ("ignored", "chained", [stage("a", then=EATS.format("spared"), out_of_memory="ignore", **known)]),
        )
    }
    results = {how: client.result() for how, client in [(how, run.client()) for how, run in runs.items()]}
    assert {how: (result.outcome, result.reason) for how, result in results.items()} == dict.fromkeys(
        runs, ("completed", "")
    )
    assert {how: dict(run.ran) for how, run in runs.items()} == {
        "alone": {"a": 2, "b": 1},
        "ahead": {"a": 2, "b": 1},
        "array": {"a": 6, "b": 1},
        "together": {"a": 1, "b": 2, "c": 1},
        "ignored": {"a": 1},
    }
    for how in ("alone", "ahead", "array", "together"):
        told = " ".join(one.reason for one in results[how].records if isinstance(one, Retrying))
        assert "its memory was used up" in told, how
        assert "with 200 MiB of memory in place of 100 MiB" in told, how

"""Jobs whose memory the kernel limits: a process that is killed is a failure, whatever the command exits with."""

import json
import os
from pathlib import Path

import httpx
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
    """Yield a cluster that enforces the memory that jobs ask for."""
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


WRAPPER = """#!/bin/sh
case " $* " in
  *" squeue "*|*" sacct "*) "$@" | sed '/-0\\(m1\\)\\{0,1\\}[^0-9a-z-]/s/COMPLETED/OUT_OF_MEMORY/' ;;
  *) exec "$@" ;;
esac
"""


class Killed(httpx.BaseTransport):
    """A transport to slurmrestd that reports the first jobs of a stage as out of memory."""

    def __init__(self, slurm):
        self._inner = httpx.HTTPTransport(uds=slurm.socket, verify=False)

    def handle_request(self, request):
        answer = self._inner.handle_request(request)
        if request.method != "GET" or "/job" not in request.url.path:
            return answer
        document = json.loads(answer.read())
        answer.close()
        for job in document.get("jobs", ()):
            if job.get("name", "").endswith(("-0", "-0m1")):
                text = json.dumps({key: job[key] for key in ("job_state", "state") if key in job})
                job.update(json.loads(text.replace('"COMPLETED"', '"OUT_OF_MEMORY"')))
        return httpx.Response(answer.status_code, json=document)

    def close(self):
        self._inner.close()


class SeenBySlurmAlone(ListRun):
    """A run of one list of tasks, in two jobs or one; only Slurm reports that memory ran out in the first ones."""

    def __init__(self, slurm, jobs, **options):
        self.jobs_at_once, self.slurm = jobs, slurm
        super().__init__(slurm, **options)
        if self.link == "commands":
            wrapper = self.place / "wrapper"
            wrapper.write_text(WRAPPER)
            wrapper.chmod(0o755)
            self.plan.settings["prefix"] = (str(wrapper), *slurm.prefix)

    def _leaves_a_line(self, one):
        tasks = tuple(f"echo {n} >>'{self.place}/ran'; sleep 2" for n in range(2))
        jobs = (self.jobs_at_once,) * 2
        return Stage("a", cores=2, walltime_s=600, tasks=tasks, jobs=jobs, memory_bytes=200 * _MIB, retries=1)

    def begin(self):
        over = {"connect": self.connect_over(Killed(self.slurm))} if self.link == "rest" else {}
        return self.client(**over)


def test_tasks_of_jobs_of_which_slurm_alone_knows_that_memory_ran_out_are_run_again(slurm):
    """Since it is unknown which task lost a process; whether several jobs share the list, or one has it."""
    runs = [SeenBySlurmAlone(slurm, jobs, link=link) for link in LINKS for jobs in (1, 2)]
    for run, client in [(run, run.begin()) for run in runs]:
        result = client.result()
        assert result.outcome == "completed", result.reason
        assert run.ran == {"0": 2, "1": 2}
        told = [one.reason for one in result.records if isinstance(one, Retrying)]
        assert len(told) == 1
        assert "with 400 MiB of memory in place of 200 MiB" in told[0]


@pytest.mark.parametrize("link", LINKS)
def test_a_pipe_of_which_a_process_is_killed_has_failed_and_gets_more_memory(strict, link):
    """What waits for it begins afterwards. The same holds for elements of an array, and for one of a job's stages."""
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

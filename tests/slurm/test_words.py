"""Unknown or rare states of jobs stop no run."""

import json
from pathlib import Path

import httpx
import pytest
from asa.backends.slurm.explanations import advice
from slurm_runs import LINKS, SlurmRun, busy_nodes, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until
from typer.testing import CliRunner

from asa.cli.app import app
from asa.elements import parse_array

WRAPPER = """#!/bin/sh
words='PENDING|RUNNING|COMPLETING|COMPLETED|FAILED'
case " $* " in
  *" squeue "*|*" sacct "*) "$@" | sed -E "s/(\\||@)($words)(\\||@)/\\1FROBBING\\3/" ;;
  *) exec "$@" ;;
esac
"""


class Strange(httpx.BaseTransport):
    """A transport to slurmrestd that reports one state for all jobs."""

    def __init__(self, slurm):
        self._inner = httpx.HTTPTransport(uds=slurm.socket, verify=False)

    def handle_request(self, request):
        answer = self._inner.handle_request(request)
        if request.method != "GET" or "/job" not in request.url.path:
            return answer
        document = json.loads(answer.read())
        answer.close()
        for job in document.get("jobs", ()):
            for key in ("job_state", "state"):
                said = job.get(key)
                if isinstance(said, dict):
                    said["current"] = "FROBBING" if isinstance(said["current"], str) else ["FROBBING"]
                elif said:
                    job[key] = "FROBBING" if isinstance(said, str) else ["FROBBING"]
        return httpx.Response(answer.status_code, json=document)

    def close(self):
        self._inner.close()


def test_a_run_whose_jobs_are_in_states_that_nobody_knows_completes(slurm):
    """A stage that fails in such a state counts as failed."""
    begun = []
    for link in LINKS:
        for then in ("sleep 2", "sleep 2; exit 3"):
            run = SlurmRun(slurm, [stage("a", then=then), stage("b", "a")], link=link)
            if link == "rest":
                begun.append((run, run.client(connect=run.connect_over(Strange(slurm)))))
                continue
            wrapper = run.place / "wrapper"
            wrapper.write_text(WRAPPER)
            wrapper.chmod(0o755)
            run.plan.settings["prefix"] = (str(wrapper), *slurm.prefix)
            begun.append((run, run.client()))
    for run, client in begun:
        result = client.result()
        if "exit" in run.plan.stages[0].command:
            assert result.reason.startswith("stage 'a' ended as failed"), result.reason
            assert run.ran == {"a": 1}
        else:
            assert result.outcome == "completed", result.reason
            assert run.ran == {"a": 1, "b": 1}


@pytest.fixture(scope="module", params=[OLDEST, NEWEST])
def strict(request, tmp_path_factory):
    """Yield a cluster that puts jobs of exit code 7 back into the queue, and holds them."""
    if reason := missing(request.param):
        pytest.skip(reason)
    root = Path(f"/tmp/asa-{tmp_path_factory.getbasetemp().name}-{request.param}-strict")
    testbed = Testbed(root, release=request.param, nodes=2, conf="RequeueExitHold=7")
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.mark.full
@pytest.mark.slurm
def test_a_job_that_slurm_holds_by_its_exit_code_goes_on_once_it_is_released(strict):
    runs = [SlurmRun(strict, [stage("a", then="[ -e was ] || { touch was; exit 7; }")], link=link) for link in LINKS]
    clients = [run.client() for run in runs]
    for run in runs:
        reason = until(lambda run=run: _reason(run, "SPECIAL"), what="that Slurm holds it")
        assert reason == "SPECIAL_EXIT (JobHeldUser)"
        told = advice(reason)
        assert "exit code" in told.meaning
        assert "scontrol release" in told.remedy
        job_id = run.jobs()["a"][0]["JobId"]
        strict.run("scontrol", "release", job_id)
        strict.run_as_root("scontrol", "update", f"JobId={job_id}", "StartTime=now+3", check=False)
    for run, client in zip(runs, clients, strict=True):
        assert client.result().outcome == "completed"
        assert run.ran == {"a": 2}


@pytest.mark.full
@pytest.mark.slurm
def test_an_element_that_slurm_holds_by_its_exit_code_is_told_and_goes_on_once_it_is_released(strict):
    """The other elements have ended, and it is shown like a held job."""
    then = "[ $SLURM_ARRAY_TASK_ID != 2 ] || [ -e was ] || { touch was; exit 7; }"
    stages = [stage("a", then=then, array=parse_array("1-3"))]
    runs = [SlurmRun(strict, stages, link=link) for link in LINKS]
    clients = [run.client() for run in runs]
    for run in runs:
        held = until(lambda run=run: _held(run, completed=2), what="that Slurm holds it")
        assert (str(held.held), held.held_reason) == ("2", "SPECIAL_EXIT (JobHeldUser)")
        [job_id] = run.folder.state()[0].jobs
        said = _asa("explain", "a", "--runs", run.folder.path.parent)
        assert "2 completed, 1 left, on hold: SPECIAL_EXIT" in said
        assert "Jobs with its exit code are put back into the queue and held." in said
        assert f"What to do: Release it with: scontrol release {job_id}" in said
        assert "nothing of it runs now" in said
        assert "expects it to start" not in said
        assert "1 left, on hold" in _asa("status", "--runs", run.folder.path.parent)
        strict.run("scontrol", "release", job_id, check=False)  # some releases complain of the elements that ended
        strict.run_as_root("scontrol", "update", f"JobId={job_id}_2", "StartTime=now+1", check=False)
    for run, client in zip(runs, clients, strict=True):
        assert client.result().outcome == "completed"
        assert run.ran == {"a": 4}


def _held(run, completed):
    """Return the elements of a job array once some have completed and one is on hold."""
    told = [job.status.elements for job in run.folder.state()[0].jobs.values() if job.status.elements is not None]
    return next((one for one in told if one.held and len(one.completed) == completed), None)


def _asa(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slurm
@pytest.mark.full  # a reservation lasts a minute at least
def test_a_job_whose_reservation_is_over_is_held_and_goes_on_once_it_is_released(strict):
    if strict.release != OLDEST:
        pytest.skip("once is enough")
    with busy_nodes(strict, 2):
        later = ("reservationname=later", "starttime=now", "duration=1", "nodes=ALL", f"users={strict.user}")
        strict.run_as_root("scontrol", "create", "reservation", *later, "flags=ignore_jobs")
        stages = [stage("a", options=("--reservation=later",))]
        runs = [SlurmRun(strict, stages, link=link) for link in LINKS]
        clients = [run.client() for run in runs]
        for run in runs:
            reason = until(lambda run=run: _reason(run, "RESV_DEL"), within_s=150.0, what="that Slurm holds it")
            assert "reservation" in advice(reason).meaning
            assert "scontrol release" in advice(reason).remedy
            job_id = run.jobs()["a"][0]["JobId"]
            strict.run("scontrol", "update", f"JobId={job_id}", "ReservationName=")
            strict.run("scontrol", "release", job_id)
    for run, client in zip(runs, clients, strict=True):
        client.result()
        run.check()


def _reason(run, word):
    jobs = run.folder.state()[0].jobs.values()
    return next((job.status.reason for job in jobs if word in job.status.reason), "")

"""Words for states that a client does not know, or seldom sees: no run stands still because of them."""

import json
from pathlib import Path

import httpx
import pytest
from asa.backends.slurm.explanations import advice
from slurm_runs import LINKS, SlurmRun, busy_nodes, stage
from slurm_testbed import NEWEST, OLDEST, Testbed, missing, until

WRAPPER = """#!/bin/sh
words='PENDING|RUNNING|COMPLETING|COMPLETED|FAILED'
case " $* " in
  *" squeue "*|*" sacct "*) "$@" | sed -E "s/(\\||@)($words)(\\||@)/\\1FROBBING\\3/" ;;
  *) exec "$@" ;;
esac
"""


class Strange(httpx.BaseTransport):
    """A way to slurmrestd that has one word for all states."""

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
    """And a stage that fails there has failed."""
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
    """Give a cluster that puts jobs of exit code 7 back into the queue, and holds them."""
    if reason := missing(request.param):
        pytest.skip(reason)
    root = Path(f"/tmp/asa-{tmp_path_factory.getbasetemp().name}-{request.param}-strict")
    testbed = Testbed(root, release=request.param, nodes=2, conf="RequeueExitHold=7")
    try:
        yield testbed.start()
    finally:
        testbed.stop()


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

"""Stages that ask for the same are submitted with one command, on real daemons; each remains a job by itself."""

import itertools
import time
from collections import Counter
from dataclasses import replace

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from slurm_runs import SlurmRun, process, stage
from slurm_testbed import until

from asa.errors import SubmitInDoubtError
from asa.records import Observed, StageStarted, Submitted

FAN = "bcdefghijk"
PACE = {"poll_s": 1.0, "max_poll_s": 1.0}


def fan(then="sleep 1", **fields):
    """Make a stage, ten that follow it, and one that follows these."""
    return [stage("a", then="true"), *(stage(name, "a", then, **fields) for name in FAN), stage("z", FAN)]


def arrays_of(run):
    """Count the jobs of each of Slurm's arrays of a run."""
    ids = (job["JobId"].split("_") for jobs in run.jobs().values() for job in jobs)
    return Counter(parts[0] for parts in ids if len(parts) > 1)


def test_a_fan_is_one_submission_and_each_stage_a_job_by_itself(slurm):
    run = SlurmRun(slurm, fan("echo it was $ASA_STAGE ${SLURM_ARRAY_TASK_ID-alone}; sleep 1"), link="commands")
    client = run.client()
    assert client.result().outcome == "completed"
    assert list(arrays_of(run).values()) == [10]
    assert client._backend._link.calls["submit"] == 3, "one each for the first, the fan, and the last"
    run.check()
    state, records = run.folder.state()
    ids = {record.stages[0]: record.job_id for record in records if isinstance(record, Submitted)}
    assert len(set(ids.values())) == 12
    assert len([record for record in records if isinstance(record, Observed)]) == 12, "each has a wait of its own"
    for name in FAN:
        path = run.folder.output_of(state.jobs[ids[name]].spec.token, ids[name], "out")
        assert path.read_text() == f"it was {name} alone\n", "a log of its own, and no array to be seen"
    assert not list(run.folder.path.glob("logs/*x10-*")), "none of the array"


class Losing(CommandLink):
    """Loses the answers to some submissions, or never sends them; the first is number 0."""

    def __init__(self, slurm, lost=(), unsent=(), **options):
        super().__init__(prefix=slurm.prefix, **options)
        self._lost, self._unsent, self._count = lost, unsent, itertools.count()

    def submit(self, job):
        number = next(self._count)
        job_id = "" if number in self._unsent else super().submit(job)
        if number in (*self._lost, *self._unsent):
            raise SubmitInDoubtError("the answer was lost")
        return job_id


def over(run, link):
    """Return what opens Slurm over a link."""
    defaults = JobDefaults(folder=run.place)
    site = replace(run.plan.capabilities, max_together=100)
    return lambda sleep: SlurmBackend(link, run.folder.path, site, defaults=defaults, sleep=sleep, **PACE)


def finished(run, **ran):
    """Check a run whose jobs have all ended."""
    until(lambda: not run.left(), what="that no job is left")
    run.check(**ran)


@pytest.mark.parametrize("how", ["lost", "unsent"])
def test_an_array_whose_answer_is_lost_is_found_or_its_stages_asked_for_one_by_one(slurm, how):
    run = SlurmRun(slurm, fan(), link="commands")
    run.client(connect=over(run, Losing(slurm, **{how: [1]}))).result()
    finished(run)
    assert list(arrays_of(run).values()) == ([10] if how == "lost" else [])
    if how == "lost":
        assert sum(map(len, run.jobs().values())) == 12


@pytest.mark.parametrize("at", range(4, 40, 5))
def test_a_client_may_be_killed_at_any_moment(slurm, at):
    run = SlurmRun(slurm, fan("sleep 0.5"), link="commands")
    first = process(run, "journal", at)
    first.join(120.0)
    if first.exitcode != 0:
        run.client().result()
    finished(run)


def test_one_that_fails_is_tried_again_alone(slurm):
    then = "test $ASA_STAGE != d || [ $(grep -c d ran) = 2 ]"
    run = SlurmRun(slurm, fan(then, retries=1), link="commands")
    run.client(connect=over(run, CommandLink(prefix=slurm.prefix))).result()
    finished(run, d=2)
    first, second = run.jobs()["d"]
    assert "_" in first["JobId"]
    assert "_" not in second["JobId"]
    assert first["JobState"] == "FAILED"


def waiting(slurm, then):
    """Begin a run whose stages all wait for another's job; return that, the run, its client, and their ids by stage."""
    asked = ("-N4", "--exclusive", "-t", "20", "-o", "/dev/null", "--wrap", "sleep 600")
    other = slurm.run("sbatch", "--parsable", *asked)
    run = SlurmRun(slurm, [stage(name, "", then) for name in FAN], link="commands")
    client = run.client()
    jobs = until(lambda: found if len(found := run.jobs()) == len(FAN) else None, what="all jobs")
    return other, run, client, {name: of_stage[0]["JobId"] for name, of_stage in jobs.items()}


def test_one_that_somebody_cancels_while_it_waits_is_cancelled_and_no_other(slurm):
    other, run, client, ids = waiting(slurm, "sleep 1")
    slurm.run("scancel", ids["e"])
    time.sleep(3.0)
    slurm.run("scancel", other.strip())
    result = client.result()
    assert result.outcome == "failed"
    assert "'e'" in result.reason
    assert "cancel" in result.reason
    until(lambda: not run.left(), what="that no job is left")
    assert run.ran == dict.fromkeys(set(FAN) - {"e"}, 1)


def test_one_that_is_put_back_into_the_queue_goes_on_in_its_own_log(slurm):
    """And it sees its own name."""
    again = '[ "$ASA_STAGE" != e ] || [ "$SLURM_RESTART_COUNT" ] || sleep 600'
    then = f'echo "$SLURM_JOB_NAME ${{SLURM_RESTART_COUNT-0}}"; {again}'
    run = SlurmRun(slurm, fan(then, options=("--open-mode=append",)), link="commands")
    client = run.client()
    job = run.job("e", "RUNNING")
    client.saw(StageStarted, "e")
    slurm.run("scontrol", "requeue", job["JobId"])
    client.result()
    finished(run, e=2)
    state, _ = run.folder.state()
    own = next(one for one in state.jobs.values() if one.status.job_id == job["JobId"])
    path = run.folder.output_of(own.spec.token, job["JobId"], "out")
    assert path.read_text() == f"{job['JobName']} 0\n{job['JobName']} 1\n"


def test_one_that_is_held_is_held_and_no_other(slurm):
    """Squeue 26.05 tells only when it is asked for each by itself."""
    other, run, client, ids = waiting(slurm, "true")
    slurm.run_as_root("scontrol", "hold", ids["e"])

    def held():
        return {job_id for job_id, job in run.folder.state()[0].jobs.items() if job.status.held}

    assert until(held, what="that one is seen as held") == {ids["e"]}
    slurm.run_as_root("scontrol", "release", ids["e"])
    slurm.run("scancel", other.strip())
    client.result()
    finished(run)


def test_a_site_file_may_keep_them_apart(slurm):
    run = SlurmRun(slurm, fan("true"), link="commands", max_together="1")
    run.client().result()
    finished(run)
    assert not arrays_of(run)

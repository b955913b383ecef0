"""Jobs that give nodes back while they run, on real daemons of both versions."""

import time
from contextlib import closing

import pytest
from slurm_runs import SlurmRun, site, stage

from asa.backend import JobState
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.metrics import measure
from asa.records import Ended, Resized, Submitted
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, PlannedJob
from asa.waits import QueuedJob, exactly
from asa.workflow import Workflow

STAGES = [
    stage("a", "", "sleep 1", cores=112),
    stage("b", "a", "srun -n1 true && sleep 3", cores=30),
    stage("c", "b", "echo $SLURM_JOB_NUM_NODES >>nodes; srun hostname | tee hosts; sleep 3", cores=1),
]


@pytest.mark.parametrize("link", ["rest", "commands"])
def test_stages_in_one_job_give_back_the_nodes_that_the_rest_does_not_need(slurm, link):
    """The job has four nodes, then two, then one, on which the processes of the last stage run."""
    slurm.empty()
    run = SlurmRun(slurm, STAGES, strategy="asa-plan", link=link)
    spec = _together(run, slurm)
    assert [step.cores for step in spec.steps] == [112, 56, 28]
    with closing(run.connect(time.sleep)) as backend:
        job_id = backend.submit(spec)
        widths, has_ended = set(), False
        while not has_ended:
            told = slurm.run("scontrol", "-o", "show", "job", job_id)
            widths.add(int(told.partition(" NumCPUs=")[2].partition(" ")[0]))
            has_ended = any(status.state.is_final for status in backend.wait(backend.now() + 1))
        status = backend.status([job_id])[job_id]
    told = "\n".join(path.read_text() for path in run.folder.path.glob("logs/*.err"))
    assert status.state is JobState.COMPLETED, told
    assert {112, 56, 28} >= widths >= {56, 28}, f"what Slurm says: {told}"
    assert [step.cores for step in status.steps] == [0, 56, 28], "what the job says"
    assert (run.place / "nodes").read_text().split() == ["1"]
    assert len((run.place / "hosts").read_text().split()) >= 1
    assert len(set((run.place / "hosts").read_text().split())) == 1
    outputs = [run.folder.output_of(spec.token, job_id, "out", step).read_text() for step in range(4)]
    assert outputs == ["", "", "", (run.place / "hosts").read_text()], "each step has its own"


def _together(run, slurm):
    flow = Workflow("flow", run.plan.stages)
    state = RunState("flow", flow, site(slurm), run.plan.id)
    return spec_of(state, PlannedJob(("a", "b", "c"), 0.0, Keep.NOTHING, "", shrinks=True))


_TELLS = "echo $SLURM_NTASKS $SLURM_JOB_NUM_NODES $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE >>told; "


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["asa-plan", "big-job"])
def test_stages_in_one_job_start_as_many_tasks_as_in_jobs_of_their_own(slurm, strategy):
    """Whether the job gives nodes back or not."""
    slurm.empty()
    starts = "srun sh -c 'echo $SLURMD_NODENAME' >>'hosts-{}'"
    stages = [
        stage("a", "", _TELLS + starts.format("a"), cores=112),
        stage("b", "a", _TELLS + starts.format("b"), cores=30),
        stage("c", "b", _TELLS + starts.format("c"), cores=24, cpus_per_task=8),
        stage("d", "c", _TELLS + starts.format("d"), cores=8, nodes=2, cpus_per_task=4),
        stage("e", "d", _TELLS + starts.format("e")),
    ]
    run = SlurmRun(slurm, stages, strategy=strategy)
    flow = Workflow("flow", run.plan.stages)
    state = RunState("flow", flow, site(slurm), run.plan.id)
    together = PlannedJob(tuple("abcde"), 0.0, Keep.NOTHING, "", shrinks=strategy == "asa-plan")
    with closing(run.connect(time.sleep)) as backend:
        job_id = backend.submit(spec_of(state, together))
        while not any(status.state.is_final for status in backend.wait(backend.now() + 1)):
            pass
        assert backend.status([job_id])[job_id].state is JobState.COMPLETED, _errors(run)
    told = [line.split() for line in (run.place / "told").read_text().splitlines()]
    hosts = {name: (run.place / f"hosts-{name}").read_text().split() for name in "abcde"}
    assert {name: len(told) for name, told in hosts.items()} == {"a": 112, "b": 30, "c": 3, "d": 14, "e": 1}
    assert {name: len(set(told)) for name, told in hosts.items()} == {"a": 4, "b": 2, "c": 1, "d": 2, "e": 1}
    assert [int(words[0]) for words in told] == [112, 30, 3, 14, 1]
    assert [int(words[1]) for words in told] == [4, 2, 1, 2, 1]
    assert [words[2:] for words in told][2:] == [["3", "24"], ["7(x2)", "28(x2)"], ["1", "1"]]


def _errors(run):
    return "\n".join(path.read_text() for path in run.folder.path.glob("logs/*.err"))


def test_a_planned_run_pays_for_what_its_stages_need(slurm):
    """Waits are known to be long, so all stages are in one job, which gives nodes back."""
    slurm.empty()
    run = SlurmRun(slurm, STAGES, strategy="asa-plan", estimator="median", max_poll="1s")
    records = [
        WaitRecord(QueuedJob(1e9 + i, 112, 600.0, system="testbed", partition="normal"), exactly(900.0), id=f"x{i}")
        for i in range(30)
    ]
    with WaitStore(run.place / "bank") as store:
        store.extend(records)
    result = run.result()
    assert result.outcome == "completed", result.reason
    [submitted] = [record for record in result.records if isinstance(record, Submitted)]
    assert submitted.stages == ("a", "b", "c")
    assert [record.cores for record in result.records if isinstance(record, Resized)] == [56, 28]
    [ended] = [record for record in result.records if isinstance(record, Ended)]
    whole = 112 * (ended.time_s - ended.start_s) / 3600
    assert measure(run.plan.make_workflow(), result.records).core_hours < 0.75 * whole

"""The environment of a stage on real compute nodes: modules, launchers, Open MPI, and stages that share a job."""

import shutil
from pathlib import Path

import pytest
from slurm_runs import LINKS, SlurmRun, stage

from asa.outcome import JobOutcome, meaning
from asa.preparation import Preparation

INIT = next((p for p in (Path("/usr/share/modules/init/sh"), Path("/usr/share/lmod/lmod/init/sh")) if p.exists()), None)
needs_modules = pytest.mark.skipif(INIT is None, reason="neither environment-modules nor lmod is installed")
needs_mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
# what Open MPI asks of a node that is this computer, once more
QUIET = (("OMPI_MCA_btl", "self,vader"), ("OMPI_MCA_plm", "isolated"), ("OMPI_MCA_ras", "^slurm"))


@pytest.fixture
def modules(slurm):
    if slurm.tree:
        pytest.skip("its compute nodes are in a tree of their own, without modules")
    folder = slurm.root / "modules"
    (folder / "tool").mkdir(parents=True, exist_ok=True)
    for version in "12":
        (folder / "tool" / version).write_text(f"#%Module1.0\nsetenv TOOL {version}\n")
    return (("MODULEPATH", str(folder)),)


def wrote(run, name):
    return sorted((run.place / name).read_text().split())


def reason(run):
    return run.folder.state()[0].reason


@needs_modules
@pytest.mark.parametrize("link", LINKS)
def test_modules_are_loaded_on_compute_nodes(slurm, modules, link):
    stages = [
        stage("a", then="echo $TOOL >tool-a", environment=modules, preparation=Preparation(modules=("tool/1",))),
        stage("b", "a", "echo $TOOL >tool-b", environment=modules, preparation=Preparation(modules=("tool/2",))),
        stage("c", "b", "echo ${TOOL-none} >tool-c"),
    ]
    run = SlurmRun(slurm, stages, strategy="big-job", link=link)
    run.client().result()
    assert [wrote(run, f"tool-{name}") for name in "abc"] == [["1"], ["2"], ["none"]], "in one job, each its own"


@needs_modules
def test_a_stage_without_its_module_is_not_tried_again(slurm, modules):
    said = Preparation(modules=("tool/3",))
    run = SlurmRun(slurm, [stage("a", environment=modules, preparation=said, retries=3)])
    run.client().result()
    assert meaning(JobOutcome.SETUP_FAILED.exit_code) in reason(run)
    assert run.folder.state()[0].outcome == "failed"


@pytest.mark.parametrize("strategy", ["chained", "big-job"])
def test_srun_starts_each_task_with_its_cores(slurm, strategy):
    each = "echo $SLURM_PROCID/$SLURM_NTASKS/$SLURM_CPUS_PER_TASK/$OMP_NUM_THREADS/$(nproc) >>ranks"
    said = Preparation(launcher="srun")
    unset = (("OMP_NUM_THREADS", ""),)  # whatever the tests themselves have
    wide = stage("a", then=each, cores=16, cpus_per_task=4, preparation=said, environment=unset)
    after = stage("b", "a", each.replace("ranks", "two"), cores=8, cpus_per_task=4, preparation=said, environment=unset)
    run = SlurmRun(slurm, [wide, after], strategy=strategy)
    run.client().result()
    for name, count in (("ranks", 4), ("two", 2)):
        ranks = [line.split("/") for line in wrote(run, name)]
        assert sorted(rank for rank, *_ in ranks) == [str(number) for number in range(count)]
        assert {tuple(rest[:3]) for _, *rest in ranks} == {(str(count), "4", "4")}


def test_srun_reaches_every_node(slurm):
    cores = 2 * slurm.cores_per_node
    said = Preparation(launcher="srun")
    one = stage("a", then="echo $SLURMD_NODENAME >>names", cores=cores, nodes=2, cpus_per_task=14, preparation=said)
    run = SlurmRun(slurm, [one])
    run.client().result()
    names = wrote(run, "names")
    assert len(names) == 4
    assert len(set(names)) == 2


def test_a_launcher_hands_signals_on_and_its_exit_code_is_the_stages(slurm):
    run = SlurmRun(
        slurm, [stage("a", then="exit $((SLURM_PROCID * 3))", cores=2, preparation=Preparation(launcher="srun"))]
    )
    run.client().result()
    assert [job["ExitCode"] for job in run.jobs()["a"]] == ["3:0"]


@needs_mpi
def test_open_mpi_starts_its_processes_in_a_job(slurm):
    if slurm.tree:
        pytest.skip("its compute nodes are in a tree of their own, without Open MPI")
    said = Preparation(launcher="mpirun --oversubscribe --bind-to none")
    one = stage("a", then="echo $OMPI_COMM_WORLD_RANK.$OMPI_COMM_WORLD_SIZE >>ranks", cores=4, environment=ROOT + QUIET,
                preparation=said)  # fmt: skip
    run = SlurmRun(slurm, [one])
    run.client().result()
    assert wrote(run, "ranks") == ["0.4", "1.4", "2.4", "3.4"]


def test_what_a_container_is_given_on_a_compute_node(slurm):
    """Debian has no Apptainer: a program in its place writes its arguments, and runs the command among them."""
    program = slurm.folder("runtime") / "apptainer"
    called = program.parent / "called"
    program.write_text(
        f"""#!/bin/sh
printf '<%s>' "$@" >>'{called}'
while [ "$1" != 'an image.sif' ]; do shift; done
shift
exec "$@"
"""
    )
    program.chmod(0o755)
    one = stage(
        "a", then="echo $SLURM_PROCID >>ranks", cores=2, environment=(("ASA_CONTAINER", str(program)),),
        preparation=Preparation(container="an image.sif", binds=("/scratch",), launcher="srun"),
    )  # fmt: skip
    run = SlurmRun(slurm, [one])
    (run.place / "an image.sif").touch()
    run.client().result()
    assert run.folder.state()[0].outcome == "completed", reason(run)
    assert wrote(run, "ranks") == ["0", "1"]
    assert f"<--bind></scratch><--pwd><{run.place}><an image.sif><sh>" in called.read_text()

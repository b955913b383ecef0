"""Real Slurm signals only the batch script before its time limit, as `--signal=B:USR1@120` asks."""

import itertools

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink
from slurm_testbed import until

from asa.backend import Capabilities, JobSpec, JobState
from asa.importers import import_scripts
from asa.payload import payload_text
from asa.workflow import Stage

SITE = Capabilities("testbed", 112, 28, age_accrues=False, partition="normal")
SAVES = "#!/bin/bash\ntrap 'echo saved >saved; exit {}' USR1\ntouch up\nwhile :; do sleep 0.2; done\n"
NUMBERS = itertools.count()


@pytest.fixture
def folder(slurm):
    folder = slurm.folder(f"signal{next(NUMBERS)}")
    for part in ("scripts", "logs", "marks", "posts", "jobs"):
        (folder / part).mkdir()
        (folder / part).chmod(0o777)  # the client may be root, the jobs are not
    return folder


@pytest.mark.parametrize("code", [0, 7])
def test_a_script_may_save_its_state_when_it_is_warned(slurm, folder, code):
    """The signal comes by `scancel`, since Slurm sends it up to a minute early."""
    defaults = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False, folder=folder)
    link = CommandLink(prefix=slurm.prefix)
    backend = SlurmBackend(link, folder, SITE, defaults=defaults, poll_s=0.5, max_poll_s=1.0)
    text = payload_text(Stage("s", cores=1, script=SAVES.format(code)), 1)
    job_id = backend.submit(JobSpec("save", 1, 300.0, command=text, token=f"save-{code}"))
    until((folder / "up").exists, what="the script")
    slurm.run("scancel", "--batch", "--signal=USR1", job_id)

    def ended():
        backend.wait(backend.now() + 1)
        status = backend.status([job_id])[job_id]
        return status if status.state.is_final else None

    status = until(ended, what="the end")
    assert (folder / "saved").read_text() == "saved\n"
    assert (status.state, status.exit_code) == (JobState.FAILED if code else JobState.COMPLETED, code)
    backend.close()


@pytest.mark.parametrize("nodes", [1, 2])
def test_each_element_of_an_imported_array_may_save_its_state(slurm, folder, nodes):
    """As under Slurm, the signal reaches each element, not only the job that runs them, on one node or several."""
    (folder / "element.sh").write_text(
        "#!/bin/bash\n#SBATCH --array=1-4\n"
        "trap 'echo saved >saved.$SLURM_ARRAY_TASK_ID; exit' USR1\ntouch up.$SLURM_ARRAY_TASK_ID\n"
        "while :; do sleep 0.2; done\n"
    )
    [stage] = import_scripts([folder / "element.sh"], pack_arrays=True).workflow.stages.values()
    text = payload_text(stage, 4, folder=str(folder / "tasks"))
    defaults = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False, folder=folder)
    backend = SlurmBackend(
        CommandLink(prefix=slurm.prefix), folder, SITE, defaults=defaults, poll_s=0.5, max_poll_s=1.0
    )
    job_id = backend.submit(
        JobSpec("array", 4, 300.0, command=text, token=f"array-{nodes}", options=(f"--ntasks-per-node={4 // nodes}",))
    )
    elements = [str(number) for number in range(1, 5)]
    until(lambda: all((folder / f"up.{number}").exists() for number in elements), what="all elements")
    slurm.run("scancel", "--batch", "--signal=USR1", job_id)
    until(lambda: all((folder / f"saved.{number}").exists() for number in elements), what="what they save")

    def ended():
        backend.wait(backend.now() + 1)
        status = backend.status([job_id])[job_id]
        return status if status.state.is_final else None

    assert until(ended, what="the end").state is JobState.COMPLETED
    backend.close()

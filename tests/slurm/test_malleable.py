"""A program that gives nodes of its job back when asa tells it to, on real daemons of both versions."""

from contextlib import closing

from asa.backends.dmr.desk import ManagerDesk
from asa.backends.dmr.in_job import JobManager
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink
from slurm_runs import site
from slurm_testbed import until

from asa.dmr import Action, Session


def test_a_program_shrinks_for_a_job_that_waits(slurm, tmp_path):
    """It has four nodes, and then two, once its processes have left the others."""
    slurm.empty()

    def submit(cores):
        return slurm.run("sbatch", "--parsable", f"-n{cores}", "-t10", "-o/dev/null", "--wrap", "sleep 300").strip()

    def told(job, what):
        return slurm.run("squeue", "-h", "-j", job, "-o", what).strip()

    job = submit(112)
    until(lambda: told(job, "%T") == "RUNNING", what="the start of the job")
    link = CommandLink(prefix=slurm.prefix)
    with closing(link), closing(ManagerDesk(tmp_path / "s", _beside(slurm, link, tmp_path, job))):
        program = Session(str(tmp_path / "s"), job, 112)
        assert not program.check_status(28, 112)
        other = submit(40)
        answer = until(lambda: program.check_status(28, 112), what="an answer")
        assert (answer.action, answer.processes) == (Action.SHRINK, 56)
        assert told(job, "%C") == "112"
        program.acknowledge()
        assert told(job, "%C") == "56"
        until(lambda: told(other, "%T") == "RUNNING", what="the start of the one that waited")
        assert told(job, "%T") == "RUNNING"
    slurm.empty()


def _beside(slurm, link, folder, job):
    backend = SlurmBackend(link, folder / "run", site(slurm), queue_poll_s=0.2)
    return JobManager(backend, job, 112, partition="normal")

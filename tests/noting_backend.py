"""A batch system that runs nothing: it notes with which options asa's commands would submit each job to Slurm.

It is installed as a package (`install`), is called ``noting``, and appends to the file that ``NOTES`` names a line of
JSON for each job, with the job's stages and the words of its sbatch.
"""

import json
import os
import time
from pathlib import Path

from asa.backends.shell.marks import MarksFolder
from asa.backends.slurm.commands.writing import sbatch_command
from asa.backends.slurm.defaults import JobDefaults
from asa.backends.slurm.dependencies import Passed
from asa.backends.slurm.writing import JobWriter

from asa.backend import Advice, Capabilities, Condition, JobState, JobStatus, PartitionLimits

NODES, CORES = 64, 64


def install(folder):
    """Install it into a folder for Python to look in."""
    package = folder / "noting-0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: noting\nVersion: 0\n")
    (package / "entry_points.txt").write_text("[asa.backends]\nnoting = noting_backend:Noting\n")
    (folder / "noting_backend.py").write_bytes(Path(__file__).read_bytes())
    return folder


class Noting:
    """A cluster of that name, with these partitions: a:b:c, of which the first is the default."""

    notes = ()

    def __init__(self, system="here", partitions="normal"):
        names = partitions.split(":")
        limits = PartitionLimits(30 * 86400.0, NODES, NODES * CORES, CORES, gpus_per_node=8)
        self.capabilities = Capabilities(
            system, NODES * CORES, CORES, age_accrues=True, partition=names[0], partitions=dict.fromkeys(names, limits)
        )

    def connect(self, folder, *, sleep=time.sleep):
        return NotingBackend(self.capabilities, folder, sleep)

    def advice(self, reason):
        return Advice(reason)


class NotingBackend:
    """One client's view of it: all jobs are pending."""

    condition = property(lambda self: Condition(time.time()))
    now = staticmethod(time.time)

    def __init__(self, capabilities, folder, sleep):
        self.capabilities, self._sleep = capabilities, sleep
        self._writer = JobWriter(JobDefaults(), MarksFolder(folder))
        self._jobs, self._tokens = {}, {}

    def _words(self, spec):
        name = f"{spec.name}.{spec.token}"
        script = self._writer.script(spec, name, self.capabilities)
        return sbatch_command(self._writer.job(spec, name, script, Passed("", None, ()), self.capabilities))

    def submit(self, spec):
        words = self._words(spec)
        with Path(os.environ["NOTES"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": spec.name, "words": words[words.index("sbatch") :]}) + "\n")
        job_id = str(len(self._jobs) + 1)
        self._jobs[job_id] = JobStatus(job_id, JobState.PENDING, time.time())
        self._tokens[spec.token] = job_id
        return job_id

    def preview(self, spec):
        return {"sbatch": " ".join(self._words(spec))}

    def find(self, tokens):
        return {token: [self._jobs[self._tokens[token]]] if token in self._tokens else [] for token in tokens}

    def cancel(self, job_id):
        self._jobs[job_id] = JobStatus(job_id, JobState.CANCELLED, time.time(), end_s=time.time())

    def hold(self, job_id):
        pass

    release = hold

    def status(self, job_ids):
        return {job_id: self._jobs[job_id] for job_id in job_ids}

    def wait(self, until_s):
        self._sleep(0.2 if until_s is None else max(0.0, min(0.2, until_s - time.time())))
        return list(self._jobs.values())

    def queue_events(self, most, *, ends=False):
        return []

"""The batch script of a Slurm job: that of all backends, with Slurm's source of the job's number."""

from __future__ import annotations

from asa.backends.shell import script
from asa.backends.shell.script import Payload

from asa.backend import JobSpec, Step

LONGEST_SCRIPT_BYTES = 4 << 20
"""Slurm's maximum size of a script, unless its administrators set `max_script_size`."""


def batch_script(payload: Payload) -> str:
    """Return the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    return script.batch_script(payload, "SLURM_JOB_ID", calls="script-slurm")


def before_step(step: Step, spec: JobSpec, cores_per_node: int) -> list[str]:
    """Return the shell lines before a step: the job gives back surplus cores, and gives the step its share.

    Examples
    --------
    >>> step = Step("b", "srun ./b", cores=56, tasks=30)
    >>> before_step(step, JobSpec("a+b", 112, 60, steps=(Step("a", "srun ./a", 112, tasks=112), step)), 28)
    ['room 30', 'keep 2 56', 'share 30 1 30']
    """
    lines = [f"room {step.tasks * step.cpus_per_task}"] if step.tasks else []
    if 0 < step.cores < spec.cores and cores_per_node:
        lines.append(f"keep {-(-step.cores // cores_per_node)} {step.cores}")
    if _is_shared(spec):
        tasks = step.tasks or spec.cores // step.cpus_per_task
        most = -(-tasks // step.nodes) if step.nodes else tasks
        lines.append(f"share {tasks} {step.cpus_per_task} {most}")
    return lines


def _is_shared(spec: JobSpec) -> bool:
    """Whether some step uses less than the whole job, or in other tasks."""
    whole = (spec.cores // spec.cpus_per_task, spec.cpus_per_task)
    return any(step.tasks and (step.tasks, step.cpus_per_task) != whole for step in spec.steps)

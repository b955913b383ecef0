"""The batch script of a Slurm job: that of all backends, with Slurm's source of the job's number."""

from __future__ import annotations

from asa.backends.shell import script
from asa.backends.shell.script import Payload

from asa.backend import JobSpec

_MORE = "more "
LONGEST_SCRIPT_BYTES = 4 << 20
"""Slurm's maximum size of a script, unless its administrators set `max_script_size`."""


def batch_script(payload: Payload) -> str:
    """Return the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    waits = any(line.startswith(_MORE) for lines in payload.before for line in lines)
    return script.batch_script(payload, "SLURM_JOB_ID", calls="script-slurm script-more" if waits else "script-slurm")


def before_steps(spec: JobSpec, cores_per_node: int, *, rises: bool) -> list[list[str]]:
    """Return the shell lines before each step: the job gives back surplus cores, or waits for more, and shares them.

    `rises`: whether it waits.

    Examples
    --------
    >>> from asa.backend import JobSpec, Step
    >>> steps = Step("a", "srun ./a", 56, tasks=56), Step("b", "srun ./b", 28, tasks=20)
    >>> before_steps(JobSpec("a+b", 56, 60, steps=steps), 28, rises=False)
    [['room 56', 'share 56 1 56'], ['room 20', 'keep 1 28', 'share 20 1 20']]
    >>> before_steps(JobSpec("b+a", 28, 60, steps=steps[::-1]), 28, rises=True)
    [['expects', 'room 20', 'share 20 1 20'], ['expects', 'more 2', 'room 56', 'share 56 1 56']]
    """
    lines, widest, width = [], spec.cores, spec.cores
    for step in spec.steps:
        nodes = -(-step.cores // cores_per_node) if cores_per_node else 0
        own = ["expects"] if rises else []
        own += [f"{_MORE}{nodes}"] if rises and nodes and step.cores > width else []
        own += [f"room {step.tasks * step.cpus_per_task}"] if step.tasks else []
        own += [f"keep {nodes} {step.cores}"] if nodes and step.cores < widest else []
        if _is_shared(spec):
            tasks = step.tasks or spec.cores // step.cpus_per_task
            most = -(-tasks // step.nodes) if step.nodes else tasks
            own.append(f"share {tasks} {step.cpus_per_task} {most}")
        lines.append(own)
        width = step.cores or width
        widest = max(widest, width) if rises else widest
    return lines


def _is_shared(spec: JobSpec) -> bool:
    """Whether some step uses less than the whole job, or in other tasks."""
    whole = (spec.cores // spec.cpus_per_task, spec.cpus_per_task)
    return any(step.tasks and (step.tasks, step.cpus_per_task) != whole for step in spec.steps)

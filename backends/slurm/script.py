"""The batch script of a Slurm job: that of all backends, with Slurm's source of the job's number."""

from __future__ import annotations

from collections.abc import Sequence

from asa.backends.shell import script
from asa.backends.shell.script import Payload

from asa.backend import JobSpec
from asa.job import head

_MEMBER = "asa_element"  # the variable with the id of an element, 12_7
_JOBS = "# Its jobs: "
_MORE = "more "
LONGEST_SCRIPT_BYTES = 4 << 20
"""Slurm's maximum size of a script, unless its administrators set `max_script_size`."""


def batch_script(payload: Payload) -> str:
    """Return the batch script of a payload; see `asa.backends.shell.script.batch_script`."""
    waits = any(line.startswith(_MORE) for lines in payload.before for line in lines)
    return script.batch_script(payload, "SLURM_JOB_ID", calls="script-slurm script-more" if waits else "script-slurm")


def group_script(name: str, payloads: Sequence[Payload], output: str, number: str) -> str:
    """Return the script of a job array whose elements, from 0 on, are jobs by themselves, each with its own payload.

    `name`: of the array. `output`: name of its output files, to which Slurm adds the number of an element.
    `number`: what follows a job's name in the names of its own output files.
    Raises `ValueError`: the payloads differ in more than values.
    """
    parts = [script.batch_parts(payload, _MEMBER, calls="script-slurm", also="script-member") for payload in payloads]
    texts = {text for _, _, text in parts}
    if len(texts) > 1:
        raise ValueError("jobs of one array have different texts")
    cases = (
        f"{index})\n{_lines(facts)}{values}{head({'member': payload.name})};;\n"
        for index, (payload, (facts, values, _)) in enumerate(zip(payloads, parts, strict=True))
    )
    lines = [
        "#!/bin/sh",
        f"# Written by asa for the job array {name}, whose elements are jobs by themselves.",
        f"{_JOBS}{' '.join(payload.name for payload in payloads)}",
        f"{_MEMBER}=${{SLURM_ARRAY_JOB_ID:?}}_${{SLURM_ARRAY_TASK_ID:?}}",
        f"{head({'output': output, 'number': number})}case $SLURM_ARRAY_TASK_ID in",
        f"{''.join(cases)}*) exit 87 ;;\nesac\n",
    ]
    return "\n".join(lines) + texts.pop()


def _lines(facts: str) -> str:
    """Return the lines of a script's facts that are no comments, and give values to variables."""
    return "".join(line for line in facts.splitlines(keepends=True) if not line.startswith("#"))


def jobs_of(group_script: str) -> tuple[str, ...]:
    """Return the full names of the jobs of an array, by element, from its script.

    Raises `ValueError`: the text is no such script.
    """
    for line in group_script.splitlines():
        if line.startswith(_JOBS):
            return tuple(line.removeprefix(_JOBS).split())
    raise ValueError("this is no script of several jobs")


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

"""The state of a stage that is a job array: how far its elements have come."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asa.backend import ElementEnd, JobSpec, JobStatus
from asa.bags import Bag
from asa.cli.kinds.base import Reason, UnitStanding, duration
from asa.cli.kinds.tasks import TaskStanding
from asa.core.late import dataclass
from asa.elements import NONE, Elements, parse_array
from asa.errors import InputError
from asa.records import Submitted
from asa.units import format_cores, format_duration

if TYPE_CHECKING:
    from asa.cli.standing import StageStanding
    from asa.runner import RunFolder
    from asa.runner.jobs import Job
    from asa.runner.state import RunState
    from asa.workflow import Stage

_MAX_NUMBERS = 40  # characters of element numbers in a sentence
_MAX_WAYS = 10  # the most ways to end that are listed


@dataclass(frozen=True, slots=True)
class ElementStanding(UnitStanding):
    """The state of an array's elements; element numbers are written as sbatch does."""

    order: ClassVar[int] = 2
    elements: str  # all of them
    count: int
    completed: str
    completed_count: int
    running: str  # empty if elements take turns: the client does not know which of them run
    running_count: int
    failed: str  # ended, did not complete, and not submitted again since
    failed_count: int
    pending_count: int
    told: str = ""  # how these ended, in words
    at_once: int = 0  # upper bound of elements that run at the same time; 0 for none
    held: str = ""  # on hold: they do not start until somebody releases them
    held_count: int = 0
    held_reason: str = ""  # the batch system's reason
    jobs: TaskStanding | None = None  # the jobs in which elements take turns, if they do

    def documents(self) -> dict[str, Any]:
        """Return the state of the elements as JSON-ready data, under the kind's key."""
        own = asdict(replace(self, jobs=None))
        del own["jobs"]
        return {**(self.jobs.documents() if self.jobs is not None else {}), "elements": own}

    def line(self, stage: StageStanding, now_s: float) -> str:  # noqa: ARG002
        """Describe how far the elements have come, once some were submitted."""
        return element_text(self) if stage.job_id or self.completed_count else ""

    def sentences(self, stage: StageStanding, now_s: float, reason: Reason) -> Iterator[str]:
        """Explain the state of a running stage."""
        if self.held_count and not self.running_count:
            yield f"It began {duration(stage.run_s)} ago, and nothing of it runs now."
        else:
            yield from UnitStanding.sentences(self, stage, now_s, reason)
        yield f"It is a job array: {element_text(self)}."
        if self.held_count:
            yield f"{'Element' if self.held_count == 1 else 'Elements'} {self.held} will not start until released."
            yield from reason(replace(stage, reason=self.held_reason))

    def failures(self, state: RunState, stage: StageStanding, how: str) -> list[str]:
        """List the elements that did not complete, one line for each way to end."""
        from asa.runner.arrays import alike, short

        if not self.failed_count:
            return []
        ways = alike(_known(state, stage.stage)[2])
        lines = [f"Job {stage.job_id}, a job array, {how}: {element_text(replace(self, told=''))}."]
        for elements, how_those in ways[:_MAX_WAYS]:
            lines.append(f"{'Element' if len(elements) == 1 else 'Elements'} {short(elements)} {how_those}.")
        if rest := sum(len(elements) for elements, _ in ways[_MAX_WAYS:]):
            lines.append(f"{rest} more did not complete, in {len(ways) - _MAX_WAYS} other ways.")
        return lines


def element_files(
    folder: RunFolder, state: RunState, job: Job, kind: str, element: int | None
) -> list[tuple[str, Path]]:
    """Find the latest output files of one element, else of those that failed, else of all."""
    files: dict[int, tuple[str, Path]] = {}
    for part in (part for part in state.jobs.values() if part.spec.bag == job.spec.bag):
        if (array := part.spec.array) is None:
            continue
        known = dict(enumerate(array.elements)) if array.is_compact else {}
        named = re.compile(rf"(?<![0-9A-Za-z]){re.escape(part.spec.token)}-[0-9a-f]+-e(\d+)\.{kind}\Z")
        for entry in _entries(folder):
            if match := named.search(entry.name):
                listed = int(match[1])
                number = known.get(listed, listed)
                files[number] = f"{part.status.job_id}_{number}", Path(entry.path)
    failed = {number for end in state.units.elements.failed(job.spec.bag) for number in end.elements}
    wanted = {element} if element is not None else failed & files.keys() or files.keys()
    return [files[number] for number in sorted(wanted) if number in files]


def element_headings(state: RunState, stage: str) -> dict[str, str]:
    """Return by job which elements of an array it ran, to be told above its output; empty for other stages.

    Jobs in which elements take turns are known by their numbers, others by those of their elements, as `element_files`
    has them.
    """
    found: dict[str, str] = {}
    turned = Bag(Path(state.tasks_of(stage))).ran_by() if state.tasks_of(stage) else {}
    for job_id, job in state.jobs.items() if state.workflow.stages[stage].array is not None else ():
        if (array := job.spec.array) is not None:
            found |= {f"{job_id}_{number}": f"element {number}, " for number in array.elements}
        elif numbers := turned.get(job.spec.token):
            found[job_id] = f"{'element' if len(numbers) == 1 else 'elements'} {', '.join(numbers)}, "
    return found


def check_element(state: RunState, stage: str, element: int) -> None:
    """Refuse an element that does not exist, or has no output of its own."""
    array, where = state.workflow.stages[stage].array, f"stage {stage!r}"
    if array is None:
        raise InputError("is no job array", where=where, hint="Leave --element out.")
    if element not in array.all:
        raise InputError(f"has no element {element}", where=where, hint=f"Its elements are {array.all}.")
    if not state.capabilities.arrays:
        hint = "Leave --element out: what jobs wrote is in their turn."
        raise InputError("has elements that take turns, with no output of their own", where=where, hint=hint)


def held_elements(status: JobStatus) -> tuple[str, str]:
    """Name the elements of a job that are on hold, and the reason; empty if none is."""
    if status.elements is None or not (held := status.elements.held):
        return "", ""
    numbers = str(held)
    which = f"elements {numbers}" if len(numbers) <= _MAX_NUMBERS else f"{len(held)} elements"
    which = f"element {numbers}" if len(held) == 1 else which
    return f"{which} of job {status.job_id}", status.elements.held_reason


def asked_for(record: Submitted) -> str:
    """Write what a job was submitted for: cores and walltime, and of an array the elements."""
    count = len(parse_array(record.array).elements) if record.array else 1
    text = record.array if len(record.array) <= _MAX_NUMBERS else f"{record.array[:_MAX_NUMBERS]}..."
    which = f", {'element' if count == 1 else 'elements'} {text}" if text else ""
    return f"{format_cores(record.cores, count)} for {format_duration(record.walltime_s)}{which}"


def n_jobs(spec: JobSpec) -> int:
    """Count the jobs of a request: the elements of an array, or the jobs that share a stage's tasks."""
    return spec.jobs_at_once if spec.array is None else len(spec.array.elements)


def alike(stage: Stage, spec: JobSpec) -> int:
    """Count the equal jobs that a stage consists of as its job was submitted, as `Stage.alike` does before."""
    return stage.alike if stage.array is not None and spec.shares else spec.jobs_at_once


def turns(stage: Stage, spec: JobSpec) -> str:
    """Tell that an array's elements take turns in its jobs; empty for other jobs."""
    if stage.array is None or spec.array is not None or not spec.shares_tasks:
        return ""
    jobs = "one job" if spec.jobs_at_once == 1 else f"{spec.jobs_at_once} jobs"
    return f"its {stage.alike} elements take turns in {jobs}"


def size_document(stage: Stage) -> dict[str, Any]:
    """Return the number of a stage's jobs, and its elements, as JSON-ready data."""
    return {"jobs": stage.job_count, **({"array": str(stage.array)} if stage.array is not None else {})}


def _entries(folder: RunFolder) -> Iterable[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder.path / "logs"))
    except OSError:
        return ()


def element_standing(state: RunState, name: str, jobs: TaskStanding | None = None) -> ElementStanding | None:
    """Return the state of an array's elements; None for other stages. `jobs`: those in which elements take turns."""
    from asa.runner.arrays import how_they_ended

    if (array := state.workflow.stages[name].array) is None:
        return None
    completed, running, ends = _known(state, name)
    failed = NONE
    for end in ends:
        failed |= end.elements
    count = len(array.all)
    pending = max(count - len(completed) - len(running) - len(failed), 0)
    return ElementStanding(
        str(array.all),
        count,
        str(completed),
        len(completed),
        str(running),
        len(running),
        str(failed),
        len(failed),
        pending,
        how_they_ended(ends) if ends else "",
        array.at_once,
        *_held(state, name),
        jobs,
    )


def _held(state: RunState, name: str) -> tuple[str, int, str]:
    """Return the elements on hold, their number, and the reason."""
    lead = state.jobs.get(state.stages[name].job_id or "")
    parts = state.units.elements.parts(lead.round) if lead is not None and lead.spec.array is not None else ()
    known = [
        part.status.elements for part in parts if part.status.elements is not None and not part.status.state.is_final
    ]
    held = Elements.of(number for status in known for number in status.held)
    return str(held), len(held), next((status.held_reason for status in known if status.held), "")


def _known(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Return the elements that completed, those that run, and how the others ended."""
    return (_in_turn if state.workflow.stages[name].takes_turns else _native)(state, name)


def _native(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Read the state of elements from the batch system's reports."""
    bag, running, asked = state.post(name), NONE, NONE
    lead = state.jobs.get(state.stages[name].job_id or "")
    for job in state.units.elements.parts(lead.round) if lead is not None else ():
        if job.spec.array is not None and not job.status.state.is_final:
            asked |= job.spec.array.elements
            if job.status.elements is not None:
                running |= job.status.elements.running
                asked -= job.status.elements.failed
    completed = state.units.elements.completed_of(bag)
    asked |= completed  # an element that was submitted again no longer counts as failed
    failed = state.units.elements.failed(bag)
    ends = [replace(end, elements=left) for end in failed if (left := end.elements - asked)]
    return completed, running - completed, ends


def _in_turn(state: RunState, name: str) -> tuple[Elements, Elements, list[ElementEnd]]:
    """Read the state of elements from the records of the stage's jobs."""
    from asa.runner.arrays import in_turn

    known = in_turn(Bag(Path(state.tasks_of(name))).ends() if state.tasks_of(name) else {})
    return known.completed, NONE, list(known.ended)


def _of_which_held(elements: ElementStanding) -> str:
    if not elements.held_count:
        return ""
    which = "" if elements.held_count == elements.pending_count == 1 else f"{elements.held_count} of them "
    return f", {which}on hold: {elements.held_reason}"


def element_text(elements: ElementStanding) -> str:
    """Describe the state of an array's elements.

    Examples
    --------
    >>> element_text(ElementStanding("1-9", 9, "1-4", 4, "5", 1, "6", 1, 3, "6 failed (exit code 1)"))
    'of 9 elements 4 completed, 1 runs, 1 did not complete, 3 left; element 6 failed (exit code 1)'
    """
    counts = [f"{elements.completed_count} completed"]
    if elements.running_count:
        counts.append(f"{elements.running_count} {'runs' if elements.running_count == 1 else 'run'}")
    if elements.failed_count:
        counts.append(f"{elements.failed_count} did not complete")
    if elements.pending_count:
        counts.append(f"{elements.pending_count} left{_of_which_held(elements)}")
    throttle = f" ({elements.at_once} at once at most)" if elements.at_once and elements.pending_count else ""
    ends = f"; {'element' if elements.failed_count == 1 else 'elements'} {elements.told}" if elements.told else ""
    return f"of {elements.count} elements {', '.join(counts)}{throttle}{ends}"

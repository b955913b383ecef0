"""Workflows: stages and the graph in which they follow each other."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from asa.continuation import Continuation, continuation_of
from asa.core.late import dataclass
from asa.elements import NONE, NOTATION, Array, hardly_one
from asa.errors import InputError, WorkflowError
from asa.keys import MAX_COUNT, GivenKeys, StageKeys, described, divided, keys_of, multiplied, trouble, with_keys
from asa.preparation import Preparation, preparation_of
from asa.requests import SIZES, Needs, come_to, name_of, without_size
from asa.shapes import Moldable, RunAt, Shape, run_time_at, shapes_of
from asa.units import core_hours, format_duration

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "LONGEST_NAME",
    "LONGEST_WALLTIME_S",
    "MAX_CORES",
    "MAX_JOBS",
    "MAX_RETRIES",
    "MAX_RETRY_FACTOR",
    "NAME_PATTERN",
    "VARIABLE_PATTERN",
    "WHENS",
    "Slot",
    "Stage",
    "Workflow",
]

LONGEST_NAME = 64
"""Maximum length of a stage's name."""

NAME_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}"
"""Regular expression for a stage's name."""

VARIABLE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
"""Regular expression for the name of an environment variable."""

MAX_CORES = MAX_COUNT
"""Upper bound of a stage's cores, nodes or GPUs: no machine has more."""

LONGEST_WALLTIME_S = 366 * 86400.0
"""Upper bound of a walltime."""

MAX_RETRIES = 100
"""Upper bound of a stage's retries."""

MAX_JOBS = 1000
"""Upper bound of the jobs that share a stage's tasks."""

_MAX_SPREAD = 3.0

BETWEEN_TURNS_S = 30.0
"""Additional walltime of a job whose elements take turns, so that the elements end before the job does."""

MAX_RETRY_FACTOR = 10
"""Upper bound of the factor on a walltime, or on memory, for each retry."""

WHENS: Final = ("success", "any", "failed", "always")
"""The values of `Stage.when`; see there."""

OF_AFTER: Final = ("after_any", "after_start", "after_matching")
"""Keys that name stages of `Stage.after` which need not have completed."""

_NOT_SAID: Final[Mapping[str, int | None]] = {"cores": None, "cpus_per_task": 1, "memory_bytes": 0, "gpus": 0}
INPUT_PATIENCE_S = 60.0
"""Default time to look for inputs and outputs: with NFS, a node may see another node's files late."""

MAX_INPUT_PATIENCE_S = 3600.0

KEYS_OF_PARTS = (*keys_of(Continuation), *keys_of(Preparation))
"""The keys for legs and for the environment of a stage."""


def parts_of(given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return the fields of a stage for `KEYS_OF_PARTS`, from the values of its keys; `where`: the stage, for errors."""
    return {
        "continues": continuation_of(given, where=where, expects="expected" in given),
        "preparation": preparation_of(given, where=where),
    }


_NAME = re.compile(NAME_PATTERN)
_VARIABLE = re.compile(VARIABLE_PATTERN)


class GivenStageKeys(GivenKeys, total=False):
    """Python's arguments for all plain keys of a stage, including those that a job does not have."""

    cpus_per_task: int
    array: int | str | Sequence[int]
    jobs: int | str
    request: str | Iterable[str]


@dataclass(frozen=True, slots=True, repr=False)
class Stage(StageKeys):
    """One stage of a workflow: its payload, resources, duration and predecessors.

    Its further fields are keys of a workflow file, too: here amounts are in bytes, times in seconds, lists tuples.

    Parameters
    ----------
    name
        Letters, digits, ``_``, ``.``, ``-``; unique in the workflow.
    cores, nodes
        At least one of them. Nodes alone mean whole nodes of the site.
    walltime_s
        Seconds to ask the batch system for; then the stage is killed.
    expected_run_s
        Seconds that it usually runs; the walltime if not given.
    run_spread
        Spread of its run times: the standard deviation of their logarithm; 0 if not known.
    after
        Names of the stages that must have completed before, unless `when` says otherwise.
    when
        ``success``: it runs once all stages that it follows have completed. ``any``: it runs once one of them has
        completed. ``failed``: it runs once they have all ended, if one of them failed or could not run because another
        failed. ``always``: it runs once they have all ended.
    command
        What to run: text for `sh`.
    partition
        Where its job is sent; the site's default if not given.
    script
        The text of a script, run by the interpreter that its first line names; in place of `command`.
    tasks
        Shell commands, one a task, run side by side on all cores; in place of `command`.
    tasks_file
        A file of tasks, one a line, read when the stage begins: an earlier stage may write it. In place of `command`.
    request
        `cores`, `cpus_per_task`, `memory_bytes` and `gpus` say what it amounts to, as far as that can be computed.
        None if these fields were set themselves.
    retries
        How often it is submitted again after it has failed.
    retry_walltime_factor
        Factor on its walltime each time that it reached it.
    retry_memory_factor, retry_max_memory_bytes
        Factor on its memory each time that it used more than it had asked for, and the upper bound; 0 for what a node
        of its partition has.
    learns_run
        Its expected run time is learned from earlier runs; until there are any, `expected_run_s` holds.
    assumes_walltime
        Nothing is known of its run time, so that `walltime_s` is a default: no job asks for the sum of such walltimes.
    moldable
        Other shapes that it may have: widths and partitions. None if it has only its own.
    continues
        It is one long computation, in legs: jobs of `walltime_s`, each of which goes on where the last one stopped,
        until the payload says that it is done. `expected_run_s` is then the time of all legs. None for a computation in
        one job.
    preparation
        The environment in which it runs: modules, conda, a container, set-up, a launcher. None for the job's own.

    Examples
    --------
    >>> Stage("merge", cores=1, walltime_s=600, expected_run_s=40, after=("search",)).expected_s
    40
    """

    name: str
    cores: int | None = None
    nodes: int | None = None
    walltime_s: float = 3600.0
    expected_run_s: float | None = None
    after: tuple[str, ...] = ()
    command: str = ""
    partition: str = ""
    script: str = ""
    tasks: tuple[str, ...] = ()
    tasks_file: str = ""
    cpus_per_task: int = described(
        "count",
        "Cores per task; the number of cores is a multiple of it.",
        [4],
        label="cores a task",
        min_value=1,
        default=1,
    )
    retries: int = 0
    retry_walltime_factor: float = 2.0
    retry_memory_factor: float = 2.0
    retry_max_memory_bytes: int = 0
    learns_run: bool = False
    run_spread: float = 0.0
    assumes_walltime: bool = False
    when: Literal["success", "any", "failed", "always"] = "success"
    moldable: Moldable | None = None
    jobs: tuple[int, int] = described(
        "jobs",
        "How many jobs share its tasks, or a range, of which strategies take the most that share its cores "
        "evenly: each has its part of the cores, and of all else that the stage needs. Each begins when it starts, who "
        "comes late takes what is left, and who is killed gives back what it has not done.",
        [8, "1..32"],
        default=(1, 1),
    )
    continues: Continuation | None = None
    preparation: Preparation | None = None
    array: Array | None = described(
        "own",
        "It is a job array: these are the numbers of its elements, as sbatch takes them, with %N for how "
        "many of them may run at once. The command or script is run once for each, with SLURM_ARRAY_TASK_ID, on what "
        "the stage asks for; inputs and outputs may say %a for the number.",
        ["1-200%20", "0-99:10"],
        notation=NOTATION,
        unlikely=hardly_one,
        option="array",
        default=None,
    )
    request: tuple[str, ...] | None = described(
        "options",
        "How large its job is, as options of sbatch, in place of cores, ntasks, cpus_per_task, memory and "
        "gpus. Slurm gets them as they are. An empty list asks for what sbatch gives by default.",
        [["--nodes=2", "--ntasks-per-node=4", "--mem-per-cpu=2G"]],
        default=None,
    )

    def __post_init__(self) -> None:
        if self.request is not None:
            self._count(self.request)
        if not _NAME.fullmatch(self.name):
            raise self._error(
                "a stage's name must be letters, digits, '_', '.', '-'", "Rename it; up to 64 characters."
            )
        if self.cores is None and self.nodes is None:
            raise self._error("asks for neither cores nor nodes", "Give one of them.")
        for what, amount, least, most in (
            ("cores", self.cores, 1, MAX_CORES),
            ("nodes", self.nodes, 1, MAX_CORES),
            ("retries", self.retries, 0, MAX_RETRIES),
        ):
            if amount is not None and amount < least:
                raise self._error(f"asks for {amount} {what}", f"Ask for {least} or more.")
            if amount is not None and amount > most:
                raise self._error(f"asks for {amount} {what}", f"Ask for {most} or fewer.")
        if not 0 < self.walltime_s <= LONGEST_WALLTIME_S:
            raise self._error(f"asks for a walltime of {self.walltime_s} s", "Ask for more than 0 and at most a year.")
        longest_s = self.walltime_s if self.is_one_job else math.inf  # several jobs may follow each other
        if self.expected_run_s is not None and not 0 < self.expected_run_s <= longest_s:
            raise self._error(
                "is expected to run {} within a walltime of {}".format(*_apart(self.expected_run_s, self.walltime_s)),
                "It would be killed: ask for more walltime, or expect less.",
            )
        if not 0 <= self.run_spread <= _MAX_SPREAD:
            raise self._error(f"has run times with a spread of {self.run_spread:g}", "Give 0 to 3, as of a logarithm.")
        self._check_keys()
        self._check_payload()
        self._check_printed()
        self._check_patience()
        self._check_several()

    def _count(self, request: tuple[str, ...]) -> None:
        """Fill in what a request amounts to, and the options that a job of another shape needs for it."""
        if self.nodes is not None:
            raise self._error("request: `nodes` is given, too", "Write --nodes into the request.")
        try:
            needs = self._needs(request)
        except InputError as error:
            raise self._error(f"request: {error.message}", error.hint or "") from error
        if other := next(
            (option for option in self.options if name_of(option) in SIZES and option not in needs.options), ""
        ):
            raise self._error(f"request: {other} is among its options", "Write it into the request.")
        counted = needs.fields()
        if any(getattr(self, field) not in (_NOT_SAID[field], amount) for field, amount in counted.items()):
            amounts = ", ".join(f"{field} = {amount}" for field, amount in counted.items())
            hint = f"Leave out cores, ntasks, cpus_per_task, memory and gpus: the request comes to {amounts}."
            raise self._error("request: another size is given, too", hint)
        for field, amount in counted.items():
            object.__setattr__(self, field, amount)
        object.__setattr__(self, "options", (*needs.options, *without_size(self.options)))

    def _needs(self, request: tuple[str, ...]) -> Needs:
        return come_to(request, (*without_size(self.options), *(["--array"] if self.array is not None else [])))

    def _request_on(self, width: int) -> tuple[str, ...] | None:
        return self.request if width == self.width else None  # the request gives its own width

    def _check_several(self) -> None:
        if self.moldable is not None:
            self._check_offered(self.moldable)
            self._check_shapes(self.moldable)
        if self.jobs != (1, 1):
            self._check_jobs()
        if self.continues is not None:
            self._check_legs(self.continues)
        if self.preparation is not None:
            self._check_preparation(self.preparation)
        if self.array is not None:
            self._check_array(self.array)

    def _check_keys(self) -> None:
        if (wrong := trouble(self)) is not None:
            raise self._error(*wrong)
        if self.when not in WHENS:
            raise self._error(f"is to run when {self.when!r}", f"Give one of {', '.join(WHENS)}.")
        if self.when != "success" and not self.after:
            raise self._error(f"is to run when {self.when!r}, but depends on no stage", "Name stages with `after`.")
        self._check_after()

    def _check_after(self) -> None:
        seen: dict[str, str] = {}
        for key in OF_AFTER:
            for name in getattr(self, key):
                if name not in self.after:
                    raise self._error(f"{key}: {name!r} is not in its `after`", "Name it in `after`, too.")
                if seen.setdefault(name, key) != key:
                    raise self._error(f"{name!r} is in its {seen[name]} and its {key}", "Leave it out of one of them.")
        if self.start_delay_s and not self.after_start:
            raise self._error("has a start_delay, but no after_start", "Name stages in `after_start`.")
        if self.after_matching and self.array is None:
            raise self._error("has an after_matching, but is no job array", "Give it an `array`, or leave that out.")
        if self.after_matching and self.when != "success":
            raise self._error(
                f"has an after_matching, and is to run when {self.when!r}",
                "Leave one of them out: elements run one by one only after those that completed.",
            )

    def _check_payload(self) -> None:
        ways = [
            name
            for name, way in (
                ("command", self.command.strip()),
                ("script", self.script),
                ("tasks", self.tasks),
                ("tasks_file", self.tasks_file),
            )
            if way
        ]
        if len(ways) > 1 and not self.takes_turns:
            raise self._error(f"has {' and '.join(ways)}", "Give one of them.")
        if self.cores is not None and self.cores % self.cpus_per_task:
            raise self._error(
                f"asks for {self.cores} cores in tasks of {self.cpus_per_task}", "Give a multiple of those."
            )
        texts = (self.command, self.script, self.tasks_file, *self.tasks, *self.inputs, *self.outputs, *self.options)
        if any("\0" in text for text in (*texts, *(text for pair in self.environment for text in pair))):
            raise self._error("holds a null character", "Shells cannot handle it: leave it out.")
        if any("\n" in task or not task.strip() for task in self.tasks):
            raise self._error("has a task that is not one line", "Write each task as one line; ';' joins commands.")
        names = (*(name for name, _ in self.environment), *self.secrets)
        if bad := next((name for name in names if not _VARIABLE.fullmatch(name)), None):
            raise self._error(f"names {bad!r}, which is not a variable name", "Letters, digits and '_'.")
        for what, factor in (("walltime", self.retry_walltime_factor), ("memory", self.retry_memory_factor)):
            if not 1 <= factor <= MAX_RETRY_FACTOR:
                raise self._error(
                    f"is to be retried with {factor:g} times the {what}",
                    f"Give a factor between 1 and {MAX_RETRY_FACTOR}.",
                )
        if self.retry_max_memory_bytes < 0:
            raise self._error(f"is to be retried with at most {self.retry_max_memory_bytes} bytes", "Give 0 or more.")
        if self.input_size is not None and not 0 < self.input_size < math.inf:
            raise self._error(f"has an input of the size {self.input_size:g}", "Give a number above 0, in any unit.")

    def _check_printed(self) -> None:
        for key, path in (("stdout", self.stdout), ("stderr", self.stderr)):
            if path.endswith("/") or "\n" in path or "\0" in path:
                raise self._error(f"has {key} = {path!r}, which names no file", "Give a path, such as logs/%x-%j.out.")

    def _check_patience(self) -> None:
        if self.input_patience_s is not None and not 0 <= self.input_patience_s <= MAX_INPUT_PATIENCE_S:
            raise self._error(
                f"is to look for inputs for {self.input_patience_s:g} s", "Give up to an hour; 0 for one look."
            )

    def _check_offered(self, moldable: Moldable) -> None:
        for own, offered in ((self.width, moldable.widths), (self.partition, moldable.partitions)):
            if offered and own not in offered:
                others = ", ".join(map(str, offered))
                raise self._error(f"asks for {own!r}, which is not one of its {others}", "Name it among them.")
            if len(set(offered)) < len(offered):
                raise self._error(f"names {', '.join(map(str, offered))}: one of them twice", "Name each once.")

    def _check_shapes(self, moldable: Moldable) -> None:
        what = "cores" if self.nodes is None else "nodes"
        if self.cores is not None and self.nodes is not None:
            raise self._error("asks for cores and nodes, and for several shapes", "Give one of the two.")
        if self.local:
            raise self._error("runs on the client's computer, but asks for several shapes", "Give it one.")
        for width in moldable.widths:
            if not 1 <= width <= MAX_CORES:
                raise self._error(f"asks for {width} {what}", f"Ask for 1 to {MAX_CORES}.")
            if self.nodes is None and width % self.cpus_per_task:
                tasks = f"in tasks of {self.cpus_per_task}"
                raise self._error(f"asks for {width} cores {tasks}", "Give a multiple of those.")
        for shape in self.shapes:
            if self.is_one_job and shape.run_s > shape.walltime_s:
                runs, walltime = _apart(shape.run_s, shape.walltime_s)
                raise self._error(
                    f"is expected to run {runs} on {shape.width} {what} within a walltime of {walltime}",
                    "It would be killed: ask for more walltime at this width.",
                )

    def _check_jobs(self) -> None:
        least, most = self.jobs
        if self.request is not None:
            hint = "Write cores, memory and gpus in its place: each job has its part of them."
            raise self._error("request: it is of one job, but several are to run the stage", hint)
        if not 1 <= least <= most <= MAX_JOBS:
            few = f"{least} jobs" if least == most else f"{least} to {most} jobs"
            raise self._error(f"is to be run by {few}", f"Give 1 to {MAX_JOBS}, the least first.")
        if most > 1 and not (self.tasks or self.tasks_file):
            raise self._error("is to be run by several jobs, but has no list of tasks", "Write it as `tasks`.")
        if most > 1 and self.local:
            raise self._error(
                "runs on the client's computer, but is to be run by several jobs", "Leave one of them out."
            )
        for width in self.moldable.widths if self.moldable is not None and self.moldable.widths else (self.width,):
            if not self.can_be_shared_on(width):
                what = f"{width} {'nodes' if self.cores is None else 'cores'}"
                parts = f" in tasks of {self.cpus_per_task}" if self.cpus_per_task > 1 else ""
                many = f"{least}" if least == most else f"{least} to {most}"
                raise self._error(
                    f"asks for {what}{parts}, which {many} jobs cannot share evenly",
                    "Ask for a multiple of the jobs, or for another number of these.",
                )

    def _check_legs(self, continues: Continuation) -> None:
        if self.tasks or self.tasks_file:
            raise self._error(
                "continues in legs, but is a list of tasks",
                "Leave `continues` out: give it `jobs`, which follow each other until all tasks have ended.",
            )
        if self.local:
            raise self._error("continues in legs, but runs on the client's computer", "Leave one of them out.")
        if self.is_idle:
            raise self._error("continues in legs, but has no command", "Give it a `command`, or a `script`.")
        shortest_s = min(shape.walltime_s for shape in self.shapes)
        if (trouble := continues.trouble(shortest_s)) is not None:
            raise self._error(*trouble)

    def _check_array(self, array: Array) -> None:
        if not array.elements:
            raise self._error("is a job array without elements", "Give it some, as in 1-200%20.")
        if self.takes_turns:
            return  # `in_turn` made it from a stage that was checked
        others = {
            "is a list of tasks": bool(self.tasks or self.tasks_file),
            "is run by several jobs": self.jobs != (1, 1),
            "continues in legs": self.continues is not None,
            "asks for several shapes": self.moldable is not None,
            "runs where the client is": self.local,
        }
        if other := next((words for words, is_so in others.items() if is_so), ""):
            raise self._error(f"is a job array, and {other}", "Leave one of them out.")
        if shared := next((path for path in self.outputs if "%a" not in path), ""):
            raise self._error(
                f"is a job array, each of whose elements would have to make {shared!r}",
                "Write %a where the number of the element is in the path; who follows may ask for others as inputs.",
            )

    def _check_preparation(self, preparation: Preparation) -> None:
        if (trouble := preparation.trouble()) is not None:
            raise self._error(*trouble)
        if not preparation.launcher:
            return
        if (self.tasks or self.tasks_file) and not self.takes_turns:
            raise self._error(
                "has a launcher, but is a list of tasks",
                "Write the launcher into those tasks that have several processes.",
            )
        if self.local and preparation.launcher.startswith("srun"):
            raise self._error("runs on the client's computer, but by srun", "Leave one of them out.")

    @property
    def strictly_after(self) -> tuple[str, ...]:
        """The predecessors to which `when` applies: not those that only need to have begun or ended."""
        return tuple(name for name in self.after if name not in self.after_any and name not in self.after_start)

    @property
    def is_conditional(self) -> bool:
        """Whether the stage may run on other conditions than the completion of all stages that it follows."""
        return self.when != "success" or bool(self.after_any) or self.may_be_early

    @property
    def may_be_early(self) -> bool:
        """Whether the stage may run before all stages that it follows have ended."""
        return self.when == "any" or bool(self.after_start or self.after_matching)

    def following(self, befores: Iterable[str]) -> Stage:
        """Return the same stage with only some of its predecessors."""
        after = tuple(befores)
        after_any, after_start, after_matching = (
            tuple(name for name in names if name in after)
            for names in (self.after_any, self.after_start, self.after_matching)
        )
        return replace(
            self,
            after=after,
            when=self.when if after else "success",
            after_any=after_any,
            after_start=after_start,
            start_delay_s=self.start_delay_s if after_start else 0.0,
            after_matching=after_matching,
        )

    @property
    def is_one_job(self) -> bool:
        """Whether one job runs the whole stage within its walltime: neither legs, nor several jobs that share it."""
        return self.jobs[1] == 1 and self.continues is None and self.array is None

    @property
    def own_jobs(self) -> str:
        """Return why its jobs cannot be shared with other stages; empty if they can."""
        if self.continues is not None:
            return "continues in legs, each a job of its own"
        return "is a job array, whose elements are jobs" if self.array is not None else ""

    @property
    def queues_in_parts(self) -> bool:
        """Whether the batch system runs it in parts, so that its duration also depends on the queue."""
        return self.array is not None

    @property
    def own_variables(self) -> frozenset[str]:
        """Names of the Slurm variables that its jobs have on any batch system."""
        return self.array.names if self.array is not None else frozenset()

    def path_of_any(self, path: str) -> str:
        """Write a path of the stage as a pattern that matches this path of all its jobs."""
        return path.replace("%a", "*") if self.array is not None else path

    @property
    def has_unknown_last_job(self) -> bool:
        """Whether its last job is known only when that ends; stages after it are not submitted before."""
        return self.continues is not None

    @property
    def in_one_job_s(self) -> float:
        """Seconds to ask for if one job does all of it: for an array, the elements one after the other."""
        if self.array is not None and not self.takes_turns:
            return self.walltime_s * len(self.array.elements)
        return self.walltime_s if self.is_one_job else max(self.walltime_s, self.expected_s)

    @property
    def takes_turns(self) -> bool:
        """Whether the stage is an array in the form for batch systems without arrays; see `in_turn`."""
        return self.array is not None and bool(self.tasks)

    def in_turn(self, max_cores: int, cores_per_node: int) -> Stage:
        """Return the stage as it runs where the batch system has no arrays: by jobs that take elements in turn.

        There are as many jobs as elements may run at the same time and fit onto the machine. Each has an element's
        request, and walltime for its share of the elements.

        Parameters
        ----------
        max_cores, cores_per_node
            Of the machine, and of one of its nodes.
        """
        if self.array is None or self.takes_turns:
            return self
        each = max(self.cores_on(cores_per_node), 1)
        count = len(self.array.elements)
        jobs = max(min(self.array.most_at_once, max(max_cores // each, 1), MAX_JOBS), 1)
        turns = -(-count // jobs)
        return replace(
            self,
            cores=None if self.cores is None else self.cores * jobs,
            nodes=None if self.nodes is None else self.nodes * jobs,
            **multiplied(self, jobs),
            walltime_s=min(self.walltime_s * turns + BETWEEN_TURNS_S, LONGEST_WALLTIME_S),
            expected_run_s=None if self.expected_run_s is None else self.expected_run_s * turns,
            tasks=tuple(map(str, self.array.elements)),
            jobs=(jobs, jobs),
            request=None,
        )

    def can_be_shared_on(self, width: int) -> bool:
        """Whether its jobs can divide a width evenly; true if one job runs it.

        Parameters
        ----------
        width
            Cores; nodes if it asks for nodes alone.
        """
        return self.jobs[1] == 1 or _even(*self.jobs, *self._parts(width)) > 0

    def _parts(self, width: int) -> tuple[int, ...]:
        """Count the parts that can be divided among jobs: nodes, and tasks at a time."""
        if self.cores is None:
            return (width,)
        return (width // self.cpus_per_task, *([self.nodes] if self.nodes else []))

    @property
    def job_count(self) -> int:
        """Number of jobs if it is submitted by itself: the largest allowed number that divides its width evenly."""
        return _even(*self.jobs, *self._parts(self.width)) if self.jobs[1] > 1 else 1

    @property
    def alike(self) -> int:
        """Number of equal jobs that it consists of: of an array its elements, however many of these run at a time."""
        return self.job_count if self.array is None else len(self.array.all)

    def of_each_job(self) -> Stage:
        """Return the stage with the request of each of its jobs."""
        count = self.job_count
        if count == 1:
            return self
        return replace(
            self,
            cores=None if self.cores is None else self.cores // count,
            nodes=None if self.nodes is None else self.nodes // count,
            **divided(self, count),
            expected_run_s=None if self.expected_run_s is None else min(self.expected_run_s, self.walltime_s),
            moldable=None,
            jobs=(1, 1),
        )

    @property
    def prints_apart(self) -> tuple[str, str]:
        """Kind of its parts with separate output files, and the patterns that distinguish these; empty for one job."""
        if self.array is not None:
            return "elements", "ajJ"
        if self.continues is not None:
            return "legs", "jJA"
        return ("jobs", "jJA") if self.job_count > 1 else ("", "")

    @property
    def width(self) -> int:
        """Cores that the stage asks for; nodes if it asks only for nodes."""
        return self.cores if self.cores is not None else self.nodes or 0

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that it may have, its own unchanged among them.

        Widths whose run time is not known are left out: see `asa.shapes.run_time_at`.
        """
        own = Shape(self.width, self.expected_s, self.walltime_s, self.run_spread, self.partition)
        if self.moldable is None:
            return (own,)
        shapes = shapes_of(own, self.moldable)
        if self.continues is None:
            return shapes
        given = [RunAt(*point) for point in self.moldable.walltime_at]  # all legs have the same walltime, at any width
        walltimes = {shape.width: run_time_at(shape.width, given) for shape in shapes}
        return tuple(
            replace(shape, walltime_s=own.walltime_s if (said := walltimes[shape.width]) is None else said.run_s)
            for shape in shapes
        )

    def shaped(self, shape: Shape) -> Stage:
        """Return the stage in one of its shapes; it keeps the others as alternatives.

        Parameters
        ----------
        shape
            One of `shapes`.
        """
        moldable = self.moldable
        if moldable is not None and not moldable.run_at:
            moldable = replace(moldable, run_at=(RunAt(self.width, self.expected_s, self.run_spread),))
        return replace(
            self,
            cores=None if self.cores is None else shape.width,
            nodes=None if self.nodes is None else shape.width,
            request=self._request_on(shape.width),
            partition=shape.partition,
            walltime_s=shape.walltime_s,
            expected_run_s=shape.run_s,
            run_spread=shape.spread,
            moldable=moldable,
        )

    def fixed(self, width: int | None = None) -> Stage:
        """Return the stage in one shape only.

        Parameters
        ----------
        width
            Taken if it is one of the stage's widths; else the widest below it, of those with a known run time if there
            are any; else the narrowest. The stage's own if not given. If the run time is not known it keeps its
            walltime.
        """
        if self.moldable is None:
            return self
        if width is None:
            return replace(self, moldable=None)
        widths = self.moldable.widths or (self.width,)
        known = {shape.width: shape for shape in self.shapes if shape.partition == self.partition}
        fitting = [offered for offered in widths if offered <= width]
        best = [offered for offered in fitting if offered == width or (offered in known and width not in widths)]
        taken = max(best or fitting, default=min(widths))
        if taken in known:
            return replace(self.shaped(known[taken]), moldable=None)
        asked = run_time_at(taken, [RunAt(*point) for point in self.moldable.walltime_at])
        return replace(
            self,
            cores=None if self.cores is None else taken,
            nodes=None if self.nodes is None else taken,
            request=self._request_on(taken),
            walltime_s=self.walltime_s if asked is None else asked.run_s,
            expected_run_s=None,
            run_spread=0.0,
            moldable=None,
        )

    @property
    def is_idle(self) -> bool:
        """Whether the stage has nothing to run."""
        return not (self.command.strip() or self.script or self.tasks_file or (self.tasks and self.array is None))

    @property
    def expected_s(self) -> float:
        """Seconds that it is expected to run; for an array, times the number of rounds by its throttle."""
        one_s = self.walltime_s if self.expected_run_s is None else self.expected_run_s
        if self.array is None or self.takes_turns:
            return one_s
        return one_s * -(-len(self.array.elements) // self.array.most_at_once)

    @property
    def work_s(self) -> float:
        """Seconds for which it is expected to hold its cores: of an array, all elements' together."""
        if self.array is None or self.takes_turns:
            return self.expected_s
        one_s = self.walltime_s if self.expected_run_s is None else self.expected_run_s
        return one_s * len(self.array.elements)

    def cores_on(self, cores_per_node: int) -> int:
        """Return the cores that the stage gets on a site with nodes of this size."""
        return self.allocated(self.cores or 0, self.nodes or 0, cores_per_node)

    def nodes_on(self, cores_per_node: int) -> int:
        """Return the least number of the stage's nodes, on a site with nodes of this size."""
        asked = self._needs(self.request).nodes if self.request is not None else self.nodes or 0
        return max(asked, -(-self.cores_on(cores_per_node) // max(cores_per_node, 1)))

    def payload_cores_on(self, cores_per_node: int) -> int:
        """Return the number of these cores that its payload should use: those that it asks for, or all."""
        return max(self.cores or 0, (self.nodes or 0) * cores_per_node)

    def _error(self, message: str, hint: str) -> WorkflowError:
        return WorkflowError(message, where=f"stage {self.name!r}", hint=hint)


Stage.__doc__ = with_keys(Stage.__doc__, {key.field: key for key in keys_of(Stage)})


def _even(least: int, most: int, *parts: int) -> int:
    """Return the largest number in a range that divides the given numbers; 0 if there is none."""
    common = math.gcd(*parts)
    return next((count for count in range(min(most, common), least - 1, -1) if common % count == 0), 0)


@dataclass(frozen=True, slots=True)
class Slot:
    """The time of a stage inside an allocation.

    Parameters
    ----------
    stage
        Name of the stage.
    start_s, end_s
        Start and end, in seconds from the allocation's beginning.
    """

    stage: str
    start_s: float
    end_s: float


class Workflow:
    """A checked graph of stages.

    Parameters
    ----------
    name
        Name of the workflow.
    stages
        In any order; `Stage.after` gives the edges.
    walltime_s
        Walltime in seconds if all stages share one allocation; the sum of the stages' walltimes if not given.

    Raises
    ------
    WorkflowError
        No stages, two of one name, an unknown predecessor, or a cycle; the message names the stage.

    Examples
    --------
    >>> flow = Workflow("blast", [Stage("search", cores=112), Stage("merge", cores=1, after=("search",))])
    >>> flow.order, flow.peak_cores(28)
    (('search', 'merge'), 112)
    """

    def __init__(self, name: str, stages: Iterable[Stage], *, walltime_s: float | None = None) -> None:
        self.name = name
        self.stages: Mapping[str, Stage] = _by_name(name, stages)
        self._walltime_s = walltime_s
        self._core_hours: dict[int, float] = {}
        _check_predecessors(self.stages)
        if len(self.order) < len(self.stages):
            raise _cycle(self.graph)
        self._check_walltime()

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.stages)} stages)"

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """The graph of the stages' names, with an edge from each stage to those that follow it."""
        import networkx as nx  # noqa: PLC0415 - takes a tenth of a second, and most commands do without

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.stages)
        graph.add_edges_from((before, stage.name) for stage in self.stages.values() for before in stage.after)
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All stages, each after its predecessors; otherwise as they were given."""
        names = list(self.stages)
        position = {name: i for i, name in enumerate(names)}
        left = [len(set(stage.after)) for stage in self.stages.values()]
        ready, order = [i for i, count in enumerate(left) if not count], list[str]()
        while ready:  # the initial list is in ascending order, so it is a heap
            order.append(names[heapq.heappop(ready)])
            for after in self._followers[order[-1]]:
                left[position[after]] -= 1
                if not left[position[after]]:
                    heapq.heappush(ready, position[after])
        return tuple(order)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Stages that several jobs run."""
        return tuple(name for name, stage in self.stages.items() if stage.jobs[1] > 1 or stage.array is not None)

    @cached_property
    def by_element(self) -> tuple[str, ...]:
        """Arrays in which each element needs only the element with the same number in another array."""
        return tuple(name for name, stage in self.stages.items() if stage.after_matching)

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """Stages that are job arrays."""
        return tuple(name for name, stage in self.stages.items() if stage.array is not None)

    def in_turn(self, max_cores: int, cores_per_node: int) -> Workflow:
        """Return the workflow as it runs where the batch system has no arrays; see `Stage.in_turn`.

        Parameters
        ----------
        max_cores, cores_per_node
            Of the machine, and of one of its nodes.
        """
        if not self.arrays:
            return self
        stages = [stage.in_turn(max_cores, cores_per_node) for stage in self.stages.values()]
        # without the workflow's own walltime, which is for one job: arrays do not share a job
        return Workflow(self.name, stages)

    @cached_property
    def continuing(self) -> tuple[str, ...]:
        """Stages that run in legs."""
        return tuple(name for name, stage in self.stages.items() if stage.continues is not None)

    @cached_property
    def _followers(self) -> dict[str, list[str]]:
        """The stages that follow a stage, by that stage."""
        followers: dict[str, list[str]] = {name: [] for name in self.stages}
        for name, stage in self.stages.items():
            for before in set(stage.after):
                followers[before].append(name)
        return followers

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.order)}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Sort the given stages by the order of all; O(n log n) for n of them."""
        return sorted(set(names), key=self._position.__getitem__)

    @cached_property
    def fronts(self) -> dict[str, tuple[str, ...]]:
        """The stages that each stage follows; one tuple is shared by all stages that follow the same ones."""
        known: dict[tuple[str, ...], tuple[str, ...]] = {}
        return {name: known.setdefault(stage.after, stage.after) for name, stage in self.stages.items()}

    @cached_property
    def critical_path(self) -> tuple[str, ...]:
        """The stages on the path through the graph that is expected to take longest."""
        ends_s: dict[str, float] = {}
        latest: dict[str, str | None] = {}
        for name in self.order:
            stage = self.stages[name]
            latest[name] = before = max(stage.after, key=ends_s.__getitem__, default=None)
            ends_s[name] = stage.expected_s + (0.0 if before is None else ends_s[before])
        path = [max(ends_s, key=ends_s.__getitem__)]
        while (before := latest[path[-1]]) is not None:
            path.append(before)
        return tuple(reversed(path))

    @property
    def critical_path_s(self) -> float:
        """Seconds that the longest path is expected to take: a lower bound with any number of cores."""
        return sum(self.stages[name].expected_s for name in self.critical_path)

    def with_followers(self, names: Iterable[str]) -> frozenset[str]:
        """Return the given stages and all that come after them."""
        wanted = set(names)
        to_see = list(wanted)
        while to_see:
            news = [name for name in self._followers[to_see.pop()] if name not in wanted]
            wanted.update(news)
            to_see += news
        return frozenset(wanted)

    @cached_property
    def walltime_s(self) -> float:
        """Seconds to ask for when all stages share one allocation."""
        return self._walltime_s if self._walltime_s is not None else sum(s.in_one_job_s for s in self.stages.values())

    @property
    def says_walltime(self) -> bool:
        """Whether a walltime for the whole workflow is given."""
        return self._walltime_s is not None

    def walltime_of(self, names: Iterable[str], asked_s: float) -> float:
        """Return the walltime for stages in one allocation, from the sum of their shapes' walltimes.

        If the workflow has a walltime of its own, the sum is scaled by that over the sum for all its stages.
        """
        if len(set(names)) < len(self.stages) or self._walltime_s is None:
            return asked_s
        return asked_s * self._walltime_s / sum(stage.in_one_job_s for stage in self.stages.values())

    def with_more(self, stages: Iterable[Stage]) -> Workflow:
        """Return the workflow with further stages after the others, each after those that it follows."""
        return Workflow(self.name, [*self.stages.values(), *stages], walltime_s=self._walltime_s)

    def _check_walltime(self) -> None:
        if self._walltime_s is None:
            return
        where = f"workflow {self.name!r}"
        if not 0 < self._walltime_s <= LONGEST_WALLTIME_S:
            raise WorkflowError(
                f"asks for a walltime of {self._walltime_s} s", where=where, hint="More than 0, at most a year."
            )
        longest = self.critical_path_s
        if longest > self._walltime_s:
            takes, walltime = _apart(longest, self._walltime_s)
            raise WorkflowError(
                f"its stages are expected to take {takes}, longer than its walltime of {walltime}",
                where=where,
                hint="All in one job they would be killed: ask for more walltime, or leave it out for the stages' sum.",
            )

    def fixed(self, width: int | None = None) -> Workflow:
        """Return the workflow with each stage in one shape; see `Stage.fixed`.

        Parameters
        ----------
        width
            Upper bound for stages of several shapes; their own if not given.
        """
        if all(stage.moldable is None for stage in self.stages.values()):
            return self
        stages = [stage.fixed(width) for stage in self.stages.values()]
        asked_s = self.walltime_of(self.stages, sum(stage.walltime_s for stage in stages))
        return Workflow(self.name, stages, walltime_s=None if self._walltime_s is None else asked_s)

    def in_one_job(self, cores_per_node: int, max_cores: int = MAX_CORES) -> Workflow:
        """Return the workflow as one job runs it: as many elements of an array at a time as fit onto the machine.

        Parameters
        ----------
        cores_per_node, max_cores
            Of a node, and of the machine.
        """
        return self.in_turn(max_cores, cores_per_node) if len(self.stages) > 1 else self

    def peak_cores(self, cores_per_node: int, max_cores: int = MAX_CORES) -> int:
        """Cores of the widest stage, which a Big Job holds all the time; see `in_one_job`.

        Parameters
        ----------
        cores_per_node, max_cores
            Of a node, and of the machine.
        """
        whole = self.in_one_job(cores_per_node, max_cores)
        return max(stage.cores_on(cores_per_node) for stage in whole.stages.values())

    def layout(self, names: Iterable[str], run_s: Mapping[str, float] | None = None) -> tuple[Slot, ...]:
        """Place stages inside one allocation, one after the other, including branches, as a batch script runs them.

        An allocation of all stages lasts the sum of their run times (equation 1 of the ASA paper). O(s log s).

        Parameters
        ----------
        names
            Those in the allocation.
        run_s
            Run time of each stage; the expected ones if not given.

        Returns
        -------
        tuple of Slot
            In order of start.
        """
        end_s = 0.0
        slots = []
        for name in self.in_order(names):
            start_s = end_s
            end_s += self.stages[name].expected_s if run_s is None else run_s[name]
            slots.append(Slot(name, start_s, end_s))
        return tuple(slots)

    @property
    def execution_s(self) -> float:
        """The expected run time of the whole inside one allocation."""
        return sum(stage.expected_s for stage in self.stages.values())

    def stage_core_hours(self, cores_per_node: int) -> float:
        """Core-hours if each stage holds only what it needs (equation 2 of the ASA paper)."""
        if cores_per_node not in self._core_hours:
            hours = (core_hours(s.cores_on(cores_per_node), s.work_s) for s in self.stages.values())
            self._core_hours[cores_per_node] = sum(hours)
        return self._core_hours[cores_per_node]


def _by_name(workflow: str, stages: Iterable[Stage]) -> dict[str, Stage]:
    named: dict[str, Stage] = {}
    for stage in stages:
        if stage.name in named:
            raise WorkflowError("there are two stages of this name", where=f"stage {stage.name!r}", hint="Rename one.")
        named[stage.name] = stage
    if not named:
        raise WorkflowError("has no stages", where=f"workflow {workflow!r}", hint="Give it at least one.")
    return named


def _check_predecessors(stages: Mapping[str, Stage]) -> None:
    for stage in stages.values():
        for before in stage.after:
            if before not in stages:
                raise WorkflowError(
                    f"depends on {before!r}, which is not a stage",
                    where=f"stage {stage.name!r}",
                    hint=f"Stages are: {', '.join(stages)}.",
                )
        for before in stage.after_matching:
            theirs, own = stages[before].array, stage.array
            missing = NONE if theirs is None or own is None else own.all - theirs.all
            if theirs is None or missing:
                has = "is no job array" if theirs is None else f"has no elements {missing}"
                raise WorkflowError(
                    f"after_matching: stage {before!r} {has}",
                    where=f"stage {stage.name!r}",
                    hint="Name it in `after` only: then it begins once all of that has completed.",
                )


def _cycle(graph: nx.DiGraph[str]) -> WorkflowError:
    """Report the stages that wait for each other."""
    import networkx as nx  # noqa: PLC0415 - as above

    circle = next(  # `find_cycle` by itself starts again from each stage
        part for part in nx.strongly_connected_components(graph) if len(part) > 1 or graph.has_edge(*part, *part)
    )
    cycle = nx.find_cycle(graph.subgraph(circle), next(name for name in graph if name in circle))
    path = " -> ".join([edge[0] for edge in cycle] + [cycle[0][0]])
    return WorkflowError(
        f"depends on itself: {path}", where=f"stage {cycle[0][0]!r}", hint="Remove one of these dependencies."
    )


def _apart(one_s: float, other_s: float) -> tuple[str, str]:
    """Write two durations so that they differ: in seconds if their two largest units are the same."""
    if not math.isfinite(one_s):
        return f"{one_s:g} s", format_duration(other_s)
    one, other = format_duration(one_s), format_duration(other_s)
    return (one, other) if one != other else (f"{one_s:g} s", f"{other_s:g} s")

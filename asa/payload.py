"""The text that a stage's job runs: the user's command, between checks of its inputs and of its outputs.

It is written for any POSIX shell, and is the same under every backend, alone in a job or as one of several steps.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable
from dataclasses import field, replace
from itertools import islice
from pathlib import Path

from asa.continuation import Continuation
from asa.core.late import dataclass
from asa.core.python import CALL
from asa.core.safe import is_trusted
from asa.job import exported, head, text
from asa.legs.running import Turn, turn_values
from asa.preparation import preparing, within
from asa.units import format_duration
from asa.workflow import BETWEEN_TURNS_S, INPUT_PATIENCE_S, Stage

ARRAY = "ASA_ARRAY"
"""A variable of stages that hold the elements of one job array: its name. They share one ``SLURM_ARRAY_JOB_ID``."""

VALUES = "ASA_VALUES"
"""Variable by which a job that calls a function of Python finds the folder for what that returns."""

_IN_ARRAY = "SLURM_ARRAY_TASK_ID"

PRIVATE = "# Not for the list of processes: it has values of variables.\n"
"""First line of a payload that others must not read, as they could in a command line."""

SHOWN = "#     "
"""Prefix of lines at a payload's beginning that only show the user's command."""

_MAX_SHOWN, _MAX_SHOWN_LETTERS = 20, 400
_GLOB = re.compile(r"([*?]|\[!?[A-Za-z0-9_.,-]+\])")
_LONGEST_ARGUMENT_BYTES = 120_000  # Linux takes no argument longer than 128 KiB
_CHUNKS_A_WORKER = 2  # a worker takes the remaining tasks divided by the workers and by this number
_MAX_DIVISOR = 2048  # at most: a bag of a million tasks then becomes some 15,000 chunks


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a job in running a stage's tasks, alone or with other jobs.

    `round`: how often the stage was submitted before.
    `taker`: identifies this job among all jobs ever: letters, digits and ``-``.
    `jobs`: how many jobs run at a time; 0 for a single job that runs all remaining tasks.
    `in_doubt`: earlier takers in whose jobs tasks that exited with 0 may have failed.
    """

    round: int = 0
    taker: str = "alone"
    jobs: int = 0
    in_doubt: tuple[str, ...] = ()


def payload_text(
    stage: Stage,
    cores: int,
    *,
    folder: str = "",
    share: Share | None = None,
    turn: Turn | None = None,
) -> str:
    """Write the text that a stage's job runs.

    The text sets ``ASA_STAGE``, ``ASA_CORES`` and the stage's own variables, checks the inputs, prepares the
    environment, runs, and checks the outputs.

    `folder`: a folder for records that the next attempt needs, such as the bag of tasks; made if missing.
    `share`: the job's part in that bag; by default it runs all tasks, for the first time.
    `turn`: the leg of a stage that continues; None without a folder to record it.

    Examples
    --------
    >>> print(payload_text(Stage("add", cores=1, command="mAdd corr.tbl"), 1))
    export ASA_STAGE=add ASA_CORES=1
    mAdd corr.tbl
    """
    if stage.is_idle:
        return ""
    if stage.takes_turns:
        return _beginning(stage) + _in_turn(stage, cores, folder, share or Share())
    return _of_stage(stage, cores, folder=folder, share=share or Share(), turn=turn)


def shown(lines: Iterable[str], most: int = _MAX_SHOWN) -> list[str]:
    """Write a user's lines as comments; if there are many, only the first.

    Examples
    --------
    >>> shown(["sort a", "uniq"])
    ['#     sort a', '#     uniq']
    """
    first, rest = list(islice(each := iter(lines), most + 1)), sum(1 for _ in each)
    if rest:  # one more line takes as much space as a line that announces it
        first, rest = first[:most], rest + 1
    # part of a line, which must not end the comment early
    first = [part[:_MAX_SHOWN_LETTERS] for line in first for part in line.splitlines() or [""]]
    return [SHOWN + line for line in [*first[: most + (not rest)], *([f"... and {rest} more lines"] if rest else [])]]


def _beginning(stage: Stage, turn: Turn | None = None) -> str:
    """Write whether others may read the payload's files, and show the user's command; of a leg, also which it is."""
    if turn is not None:
        total = f", about {format_duration(stage.expected_s)} in all" if stage.expected_run_s is not None else ""
        lines = [f"leg {turn.earlier + turn.number} of one long computation{total}:", *_lines(stage)]
    elif stage.tasks_file:
        lines = [f"each line of {stage.tasks_file}"]
    elif stage.takes_turns:
        lines = [
            f"elements {stage.array} of an array, one after the other:",
            *_lines(stage),
        ]
    elif stage.tasks:
        lines = [f"{len(stage.tasks)} tasks, of which each is a line:", *stage.tasks]
    else:
        lines = _lines(stage)
    return PRIVATE * bool(stage.environment) + "".join(f"{line}\n" for line in shown(lines))


def _lines(stage: Stage) -> list[str]:
    """Return the lines of the user's command or script."""
    return (stage.script or stage.command).removesuffix("\n").split("\n")


def _of_stage(
    stage: Stage, cores: int, *, folder: str, share: Share, turn: Turn | None = None, is_alone: bool = True
) -> str:
    """Write what a job runs for a stage, except for an array whose elements take turns.

    `is_alone`: whether nothing else prints into the same files.
    """
    made = _ShellText({"ASA_STAGE": stage.name, "ASA_CORES": cores})
    if folder and f" {CALL} " in stage.command:
        made.exported[VALUES] = folder.rpartition("/")[0]
    if stage.array is not None:
        made.exported |= dict(stage.array.variables)
        made.files.append("numbers")
    legs = stage.continues if turn is not None else None
    if stage.command and not (
        stage.environment or stage.inputs or stage.outputs or stage.stdout or stage.stderr or legs or stage.preparation
    ):
        # before the text that finds the element's number
        shown_first = _beginning(stage) if stage.array is not None else ""
        return f"{shown_first}{exported(made.exported)}{text(*made.files)}{stage.command}"
    made.exported |= dict(stage.environment)
    made.files.insert(0, "ending")
    if array := dict(stage.environment).get(ARRAY):
        made.add("here", "array", asa_array=_number_of_array(array, folder))
    if stage.stdout or stage.stderr:
        _add_where_it_prints(made, stage, is_alone=is_alone)
    if legs is not None and turn is not None:
        made.add("here", "leg-turn", "leg-progress", **turn_values(legs, turn, " ".join(map(_pattern, legs.progress))))
    _add_what_it_needs(made, stage, folder, share)
    if _has_tasks(stage):
        _add_tasks(made, stage, cores, folder, share)
    else:
        _add_command(made, stage, cores, folder, legs)
    made.files += ["leg-end"] * (legs is not None)
    if stage.outputs:
        made.add("outputs", asa_outputs=_patterns(stage.outputs, stage))
    made.files += ["leg-done"] * (legs is not None)
    return _beginning(stage, turn if legs is not None else None) + made.whole()


@dataclass(slots=True)
class _ShellText:
    """A text for a shell while it is put together."""

    exported: dict[str, object] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # names of files in `asa.job`

    def add(self, *files: str, **values: object) -> None:
        """Add files, with the values that they use."""
        self.files += files
        self.values |= values

    def whole(self) -> str:
        """Return the whole text."""
        return f"{text('outcome')}{exported(self.exported)}{head(self.values)}{text(*self.files)}"


def _add_what_it_needs(made: _ShellText, stage: Stage, folder: str, share: Share) -> None:
    """Add checks of the inputs, and the set-up of the environment."""
    needed = [*stage.inputs, *([stage.tasks_file] if stage.tasks_file else [])]
    if needed or stage.outputs:
        made.add("need", asa_look_s=math.floor(min(_patience_s(stage), stage.walltime_s / 2)))
    if needed:
        begun = f"{folder}/{share.round}/list" if folder and _has_tasks(stage) else ""
        made.add("inputs", asa_inputs=_patterns(needed, stage), asa_begun=begun)
    if stage.preparation is not None:
        values, files = preparing(stage.preparation)
        has_threads = stage.preparation.launcher and stage.cpus_per_task > 1
        made.add(*files, **values, asa_threads=stage.cpus_per_task if has_threads else "")


def _add_where_it_prints(made: _ShellText, stage: Stage, *, is_alone: bool) -> None:
    """Add the text that links the user's output files to the job's."""
    made.add(
        "printed",
        asa_is_alone=is_alone,
        asa_is_element=stage.array is not None or not is_alone or _IN_ARRAY in dict(stage.environment),
        asa_stdout=_for_slurm(stage.stdout),
        asa_stderr=_for_slurm(stage.stderr),
    )


def _for_slurm(pattern: str) -> str:
    """Remove backslashes: in a name that contains one, Slurm replaces no pattern."""
    return pattern.replace("\\", "").replace("%", "%%") if "\\" in pattern else pattern


def _patience_s(stage: Stage) -> float:
    """Return how long to look for the stage's files."""
    return INPUT_PATIENCE_S if stage.input_patience_s is None else stage.input_patience_s


def _add_command(made: _ShellText, stage: Stage, cores: int, folder: str, legs: Continuation | None) -> None:
    """Add the text that runs a command or a script."""
    made.add("signal", "shell", "run")
    if legs is not None:
        made.add(*(["leg-heed"] if legs.warn else []), "leg-watch")
    shown = _where_all_nodes_look(stage, folder)
    cpus_per_task = stage.cpus_per_task
    inside = within(stage.preparation, cores=cores, cpus_per_task=cpus_per_task, gpus=stage.gpus, shown=shown)
    if stage.array is not None:  # a launcher may not pass variables on
        inside += "env $asa_numbers "
    made.values["asa_inside"] = inside.rstrip()
    if not (stage.script or _is_long(stage)):
        made.add("command", asa_in_sh=_shell(stage), asa_command=stage.command)
        return
    script = stage.script or stage.command
    first, _, _ = script.partition("\n")
    interpreter = first[2:].split() if first.startswith("#!") else ["sh"]
    made.add("fixed", "temporary", "script", asa_shown=shown, asa_interpreter=shlex.join(interpreter))
    made.values["asa_command"] = script.removesuffix("\n")


def _shell(stage: Stage) -> str:
    """Name the shell for a command, if it is not that of the job's text: a container may have only sh."""
    return "sh" if stage.preparation is not None and stage.preparation.container else ""


def _number_of_array(array: str, folder: str) -> str:
    """Name the file with the id of the array's first job; empty if there is none."""
    return f"{folder.rpartition('/')[0]}/.array-{array}" if folder else ""


def _in_turn(stage: Stage, cores: int, folder: str, share: Share) -> str:
    """Write the text of a job that takes elements of an array in turn: each runs as a task, as in an element's own job.

    Each element has a time limit of its own, as in an array.
    """
    # elements that run at the same time in this job; several if the job has other stages, as it then runs all elements
    at_once = stage.job_count
    each, of_one = stage.of_each_job(), max(cores // at_once, 1)
    jobs = at_once * max(share.jobs, 1)
    limit_s = max(math.floor((stage.walltime_s - BETWEEN_TURNS_S) / math.ceil(len(stage.tasks) / jobs)), 1)
    patience_s = min(_patience_s(stage), limit_s / 2)
    alone = replace(each, tasks=(), jobs=(1, 1), input_patience_s=patience_s)
    element = _of_stage(alone, of_one, folder=folder, share=Share(), is_alone=False)
    made = _ShellText({"ASA_STAGE": stage.name})
    made.add("ending", "here", "array", asa_array=_number_of_array(stage.name, folder))
    single = replace(each, request=None, cores=of_one, cpus_per_task=of_one, inputs=(), outputs=(), preparation=None)
    _add_tasks(
        made, single, cores, folder, share, turns=_Turns(element, limit_s, of_one // stage.cpus_per_task, of_one)
    )
    return made.whole()


@dataclass(frozen=True, slots=True)
class _Turns:
    """The text to run in place of each task, if tasks are elements of an array."""

    element: str
    limit_s: int
    tasks: int  # of each
    cores: int


def _has_tasks(stage: Stage) -> bool:
    return bool(stage.tasks or stage.tasks_file)


def _patterns(paths: Iterable[str], stage: Stage) -> str:
    """Write each path as one word that the shell does not expand too early.

    In paths of an array, ``%a`` stands for the element's number.
    """
    if stage.array is None:
        return " ".join(shlex.quote(_pattern(path)) for path in paths)
    numbered = (map(_pattern, path.split("%a")) for path in paths)
    return " ".join(shlex.quote('"$SLURM_ARRAY_TASK_ID"'.join(parts)) for parts in numbered)


def _pattern(path: str) -> str:
    """Write a path for `eval`: all but its patterns is quoted."""
    parts = _GLOB.split(path)
    text = "".join(part if i % 2 else (shlex.quote(part) if part else "") for i, part in enumerate(parts))
    return f"./{text}" if path.startswith("-") else text


def _where_all_nodes_look(stage: Stage, folder: str) -> str:
    """Name the folder for a script that a launcher also starts on other nodes; empty if only this node needs it.

    It is the run's folder, which only its user can read; without a run, the folder in which commands run.
    """
    is_launched = stage.preparation is not None and bool(stage.preparation.launcher)
    return (folder or ".") if is_launched and (stage.script or _is_long(stage)) else ""


def _is_long(stage: Stage) -> bool:
    return len(stage.command.encode()) > _LONGEST_ARGUMENT_BYTES


def _add_tasks(
    made: _ShellText, stage: Stage, cores: int, folder: str, share: Share, *, turns: _Turns | None = None
) -> None:
    """Add the shell text with which a job takes tasks from a bag that other jobs use as well; see `asa.bags`."""
    workers, jobs = max(1, cores // stage.cpus_per_task), max(share.jobs, 1)
    trusted = bool(folder) and is_trusted(Path(folder))
    made.files += ["fixed", "temporary", "bag-passing"] * (not folder)
    made.add(
        "tasks-list", "owned", "hold", "holding", "signal", "shell", "run", "tasks-nodes", "bag-reading", "bag-open",
        "bag-run",
        asa_tasks_file=stage.tasks_file,
        asa_task_lines="\n".join(stage.tasks),
        asa_element=turns.element if turns else "",
        asa_in_doubt=" ".join(share.in_doubt),
        asa_cpus_per_task=stage.cpus_per_task,
        asa_workers=workers,
        asa_trusted=trusted,
        **({"asa_bag": folder} if folder else {}),
        asa_round=share.round,
        asa_taker=share.taker,
        asa_has_others=share.jobs > 0,
        # elements are taken one at a time, tasks several at a time
        asa_divisor=len(stage.tasks) if turns else min(_CHUNKS_A_WORKER * workers * jobs, _MAX_DIVISOR),
    )  # fmt: skip
    made.values["asa_inner"] = _on_node(stage, turns, is_trusted_there=trusted)


def _on_node(stage: Stage, turns: _Turns | None, *, is_trusted_there: bool) -> str:
    """Return the text, for another shell, that takes tasks on each node of a job."""
    made = _ShellText()
    made.add(
        "ending", "shell", "interrupted", "owned", "hold", "holding", "bag-reading", "bag-arguments", "fixed",
        "temporary", "tasks-workers", "bag-words", "bag-take",
        asa_trusted=is_trusted_there,
        asa_worker=_of_worker(stage, turns),
    )  # fmt: skip
    return made.whole()


def _of_worker(stage: Stage, turns: _Turns | None) -> str:
    """Return the text, for a shell again, that runs tasks one after the other."""
    made = _ShellText()
    made.add("memory" if stage.out_of_memory == "fail" else "memory-ignored", "interrupted", "bag-words")
    if turns:
        made.add(
            "element-start",
            asa_limit_s=turns.limit_s,
            asa_element_tasks=max(turns.tasks, 1),
            asa_element_cores=turns.cores,
        )
    else:
        inside = within(stage.preparation, cores=1, cpus_per_task=1, gpus=stage.gpus)
        made.add("tasks-start", asa_inside=inside.rstrip(), asa_in_sh=_shell(stage))
    made.add("bag-work")
    return f"{head(made.values)}{text(*made.files)}"

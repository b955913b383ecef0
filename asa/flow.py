"""Workflows in Python: stages of commands and functions, put together and run on any batch system.

Three lines turn an existing command into a workflow::

    flow = Flow("mosaic")
    flow.stage("project", "mProject raw.fits projected.fits region.hdr", cores=4, walltime="20min")
    flow.run()
"""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import update_wrapper
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from asa.attended import attend, checked, closing_it
from asa.core import python, temporary
from asa.core.documents import read_text
from asa.errors import InputError, StateError, UnavailableError, WorkflowError, near
from asa.estimators import readiness
from asa.estimators.choice import AUTO
from asa.estimators.store import default_folder
from asa.keys import Duration, Key, with_keys
from asa.records import Record
from asa.runner import RunFolder, RunResult, default_runs_folder
from asa.runner.begin import choose_estimator, notes_before, plan_run
from asa.runner.outlook import check_strategy
from asa.runner.preflight import check_accepted
from asa.runtimes import RunTimes, expect
from asa.sites import OpenedSite, open_facility
from asa.spec.keys import ASKED, WAYS
from asa.spec.moldable import (
    Expectation,
    at_widths,
    distinct,
    is_by_width,
    job_range,
    partitions_of,
    read_scaling,
    several,
)
from asa.spec.problems import meant
from asa.spec.stages import fields_of, in_order
from asa.strategies.planned import at_price
from asa.units import parse_duration
from asa.values import as_json, as_text, referred
from asa.workflow import GivenStageKeys, Stage, Workflow

__all__ = ["Call", "Flow", "Resources", "StageFunction", "stage"]

P = ParamSpec("P")
R = TypeVar("R")

_inside_a_stage = False
_MAX_NAMED = 8  # maximum number of stages in a flow's short form
_MAX_SENT_BYTES = 90_000  # maximum length of a function sent with its job: one word of a command takes at most 128 KiB

T = TypeVar("T")
_TIMES = ((Real, str, timedelta, Mapping), 'seconds, or text such as "40min"; or these by width')
_WIDTHS = ((Integral, str, list, tuple, range), 'a whole number, several, or a range such as "7..112"')
_BY_KIND: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("count", "number"), (Integral, "a whole number")),
    **dict.fromkeys(("memory", "storage"), ((Integral, str), 'bytes, or text such as "4G"')),
    "flag": (bool, "True or False"),
    **dict.fromkeys(("text", "output"), (str, "text")),
    **dict.fromkeys(("names", "paths", "files", "options", "partitions"), (tuple, "text, or a list of texts")),
    "pairs": (Mapping, 'names and values, as in {"OMP_NUM_THREADS": "4"}'),
    "patience": ((Real, str, timedelta), 'seconds, or text such as "1min"'),
    **dict.fromkeys(("amount", "factor"), (Real, "a number")),
    "jobs": ((Integral, str), 'a whole number, or a range such as "1..32"'),
    "widths": _WIDTHS,
    **dict.fromkeys(("times", "expectation"), _TIMES),
    "scaling": ((str, Mapping), 'the name of a law, or that with its parameters, as in {"amdahl": 0.95}'),
}
_USUAL_WALLTIME_S = 3600.0
_KNOWN = (*WAYS, "after", *ASKED)


def _taken(key: Key) -> tuple[type | tuple[type, ...], str]:
    """Return the types that a key accepts, and a description of them."""
    if key.notation is not None:
        return key.notation.given, key.notation.words
    if key.choices:
        return str, f"{', '.join(key.choices[:-1])} or {key.choices[-1]}"
    return _BY_KIND[key.kind]


class Resources(GivenStageKeys, total=False):
    """The requests and checks of a stage: keys of a workflow file, with the same meaning.

    A stage has one core if neither cores nor nodes are given, and an hour if no walltime is. In place of text, amounts
    may be in bytes and times in seconds or a `timedelta`; one text may take the place of a list of texts.
    """

    cores: int | Sequence[int] | str
    nodes: int | Sequence[int] | str
    walltime: Duration | Mapping[int, Duration]
    expected: Duration | Mapping[int, Duration] | Mapping[str, object]
    scaling: str | Mapping[str, object]
    continues: bool
    total: Duration | Mapping[int, Duration] | Mapping[str, object]
    max_legs: int
    warn: str
    unfinished: int
    progress: str | Iterable[str]
    partition: str | Sequence[str]
    modules: str | Iterable[str]
    conda: str
    container: str
    binds: str | Iterable[str]
    setup: str
    launcher: str
    retries: int
    retry_walltime_factor: float
    retry_memory_factor: float
    retry_max_memory: int | str
    when: Literal["success", "any", "failed", "always"]


Resources.__doc__ = with_keys(Resources.__doc__, {name: ASKED[name] for name in in_order(ASKED)})


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """A call of a function in a stage, with its arguments, as `StageFunction.bind` returns it.

    Parameters
    ----------
    name
        The function's name, which becomes the stage's name.
    command
        The command that the job runs.
    resources
        The requests given to `stage`.
    after
        The stages whose values are among its arguments.
    """

    name: str
    command: str
    resources: Resources
    after: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Call({', '.join([self.name, *_short(self.resources)])})"


def _short(resources: Resources) -> list[str]:
    return [f"{name}={value!r}" for name, value in resources.items()]


class StageFunction(Generic[P, R]):
    """A function that a stage can run; a direct call runs it here.

    A job finds it by its module's name, or its file, and its own name, so it must be at the top level of a file that
    compute nodes see. A function that was typed in, as in a notebook, is sent with the job by cloudpickle, together
    with the values of the notebook that it uses at that moment.

    What it returns is the value of its stage: an argument of others, and `RunResult.result`.

    Parameters
    ----------
    function
        The function that stages run.
    resources
        The requests of a stage that calls it.
    """

    def __init__(self, function: Callable[P, R], resources: Resources) -> None:
        self._function, self._resources = function, resources
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"StageFunction({', '.join([self._function.__name__, *_short(self._resources)])})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process."""
        return self._function(*args, **kwargs)

    @overload
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call: ...

    @overload  # with stages in place of what they return, at any depth
    def bind(self, *args: Any, **kwargs: Any) -> Call: ...

    def bind(self, *args: Any, **kwargs: Any) -> Call:
        """Return the call for a stage, with arguments as they are now.

        Arguments are written as JSON, and pickled where JSON has no such value. A stage as an argument, or in a list or
        table that is one, becomes what its function returned.

        Raises
        ------
        InputError
            The function cannot be found by its name, or sent along, or its arguments cannot be, or are too large.
        """
        name = self._function.__name__
        where = f"function {name!r}"
        path = self._path(where)
        try:
            inspect.signature(self._function).bind(*args, **kwargs)
            given = json.dumps([args, kwargs], default=as_json)
        except (TypeError, ValueError) as error:
            hint = "Give numbers, text, lists and tables, what pickle can hold, or stages that return it."
            raise InputError(f"cannot be called so: {error}", where=where, hint=hint) from None
        _check_size(given, "is given", where)
        sent = [] if path is not None else [_sent_along(self._function, where)]
        words = python.command("-m", python.CALL, self._function.__module__, path or "", name, given, *sent)
        return Call(name, shlex.join(words), self._resources, tuple(referred([args, kwargs])))

    def _path(self, where: str) -> str | None:
        """Return the file in which a stage finds the function; empty if only its module is found, None if neither."""
        function = self._function
        file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
        is_file = file is not None and Path(file).is_file()
        if not is_file and function.__module__ == "__main__":
            return None
        if "." in function.__qualname__:
            hint = "Move it to the top level of its file."
            raise InputError("stands inside another function or class", where=where, hint=hint)
        if not callable(getattr(sys.modules.get(function.__module__), function.__name__, None)):
            hint = f"Let it be `{function.__name__}` at the top level of its file, where a stage looks for it."
            raise InputError(f"is not to be found in {function.__module__} by this name", where=where, hint=hint)
        return str(Path(file).absolute()) if file is not None and is_file else ""


def _sent_along(function: Callable[..., object], where: str) -> str:
    """Write a function that is in no file as one word of a command."""
    try:
        code = as_text(function)
    except Exception as error:
        hint = "Let it make what it uses, or get it as an argument."
        raise InputError(f"uses what cannot be sent along: {error}", where=where, hint=hint) from error
    _check_size(code, "uses of the notebook", where)
    return code


def _check_size(sent: str, what: str, where: str) -> None:
    if len(sent) > _MAX_SENT_BYTES:
        hint = "Let a stage return large data, and take that as an argument; or read a file."
        much = f"{len(sent) // 1000} kB, where {_MAX_SENT_BYTES // 1000} can be sent along"
        raise InputError(f"{what} {much}", where=where, hint=hint)


def stage(**resources: Unpack[Resources]) -> Callable[[Callable[P, R]], StageFunction[P, R]]:
    """Turn a function into one that stages can run.

    Examples
    --------
    >>> @stage(cores=4, walltime="10min")
    ... def total(*numbers: float) -> None:
    ...     print(sum(numbers))
    >>> total(1, 2, 3)
    6

    At the top level of a file, ``flow.call(total.bind(1, 2, 3))`` makes a stage of it.

    Raises
    ------
    InputError
        There is no such resource, or its value has the wrong type.
    """

    def made(function: Callable[P, R]) -> StageFunction[P, R]:
        where = f"function {getattr(function, '__name__', function)!r}"
        asked = _checked(resources, ASKED, where)
        _fields(asked, where)  # refuses text here, too
        return StageFunction(function, asked)

    return made


class Flow:
    """A workflow that is built stage by stage.

    Parameters
    ----------
    name
        Name of the workflow.

    Examples
    --------
    >>> flow = Flow("count")
    >>> split = flow.stage("split", "split -n l/8 words part.", walltime="5min")
    >>> count = flow.stage("count", tasks=[f"wc -l part.a{x} >{x}.n" for x in "abcdefgh"], cores=8, after=split)
    >>> add = flow.stage("add", "cat ?.n | paste -sd+ | bc >total", after=[count], outputs=["total"])
    >>> flow.workflow.order
    ('split', 'count', 'add')
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stages: dict[str, Stage] = {}

    def __repr__(self) -> str:
        stages = ", ".join(islice(self._stages, _MAX_NAMED)) + (", ..." if len(self._stages) > _MAX_NAMED else "")
        count = "1 stage" if len(self._stages) == 1 else f"{len(self._stages)} stages"
        return f"Flow({self.name!r}, {count}{': ' * bool(stages)}{stages})"

    @property
    def workflow(self) -> Workflow:
        """The workflow of the present stages, checked."""
        return Workflow(self.name, self._stages.values())

    def stage(
        self,
        name: str,
        command: str = "",
        *,
        script: str | Path = "",
        tasks: str | Iterable[str] = (),
        tasks_file: str = "",
        after: str | Stage | Iterable[str | Stage] = (),
        **resources: Unpack[Resources],
    ) -> Stage:
        """Add a stage, and return it, so that others can follow it.

        Parameters
        ----------
        name
            Unique in the workflow.
        command, script, tasks, tasks_file
            One of these, to be run: text for a shell, the path of a script, shell commands to run side by side on its
            cores, or the path of a file of such commands.
        after
            The stages that it follows, or their names.
        **resources
            Its requests.

        Raises
        ------
        WorkflowError
            The stage is contradictory, or its name is taken.
        InputError
            The script cannot be read, there is no such resource, or its value has the wrong type.
        """
        where = f"stage {name!r}"
        if name in self._stages:
            hint = "Name each differently; to run a cell of a notebook again, let it make the flow, too."
            raise WorkflowError("there is one of this name", where=where, hint=hint)
        befores = [after] if isinstance(after, str | Stage) else after
        own = {
            "name": name,
            "command": command,
            "script": _read(Path(script)) if script else "",
            "tasks": _several(tasks),
            "tasks_file": tasks_file,
            "after": tuple(before.name if isinstance(before, Stage) else before for before in befores),
        }
        self._stages[name] = Stage(**_fields({**_checked(resources, _KNOWN, where), **own}, where))
        return self._stages[name]

    def call(
        self,
        call: Call,
        *,
        name: str = "",
        after: str | Stage | Iterable[str | Stage] = (),
        **resources: Unpack[Resources],
    ) -> Stage:
        """Add a stage that calls a function, as in ``flow.call(count.bind("words"), after=split)``.

        The returned stage may be an argument of other calls, which then get what the function returned.

        Parameters
        ----------
        call
            As `StageFunction.bind` returned it.
        name
            Name of the stage; the function's name if not given.
        after
            The stages that it follows, or their names, in addition to those whose values it takes.
        **resources
            Requests that differ from those in the function's decorator.

        Raises
        ------
        InputError
            A stage among the function's arguments is a command; and as `Flow.stage` does.
        """
        for before in call.after:
            if before in self._stages and not python.called(self._stages[before].command):
                hint = "Only what `Flow.call` returned has one."
                raise InputError("is a command, and has no value", where=f"stage {before!r}", hint=hint)
        asked: Resources = {**call.resources, **resources}
        befores = [after] if isinstance(after, str | Stage) else after
        return self.stage(name or call.name, call.command, after=_each_once(befores, call.after), **asked)

    def run(
        self,
        *,
        backend: str | None = None,
        site: str | None = None,
        settings: Mapping[str, Any] | None = None,
        strategy: str = "",
        estimator: str = AUTO,
        name: str = "",
        folder: str | Path = ".",
        runs: str | Path | None = None,
        bank: str | Path | None = "",
        history: int = 2000,
        seed: int = 0,
        fail_fast: bool = False,
        preflight: bool = True,
        check: bool = True,
        on_record: Callable[[Record], None] = lambda _: None,
        progress: bool | None = None,
    ) -> RunResult:
        """Run the workflow, and wait until it has ended; if this process dies, `asa resume` continues the run.

        Parameters
        ----------
        backend, site, settings
            Where to run, as for ``asa run``. This computer, if nothing is given and no batch system is found.
        strategy, estimator
            Their names. If not given: the site's strategy, else `asa-plan`; and ``auto``, the best estimator for what
            the site shows.
        name
            Name of the run; the flow's name if not given.
        folder
            Where commands run. Other paths are relative to the current folder, not to this one.
        runs
            The folder in which the run's folder is made; ``$ASA_RUNS``, else `asa-runs`, if not given.
        bank
            Folder of learned waits; the usual one if not given, none with None.
        history
            How many past jobs of all users to learn from at the beginning, if the site shows them.
        seed
            Seed of all random numbers.
        fail_fast
            End the run as soon as a stage has failed; by default stages that do not depend on it go on.
        preflight
            First ask the batch system whether it would accept each job, and submit none if it refuses one.
        check
            Raise an error if the run does not complete.
        on_record
            Called with each record.
        progress
            Show how far it is while it runs: a bar and a table in a notebook or on the terminal of standard error; in a
            file of that, a line for each stage that ends. If not given: unless it is a file.

        Returns
        -------
        RunResult
            Its `outcome` is ``completed``; or ``failed`` or ``cancelled``, without `check`.

        Raises
        ------
        RunError
            The run failed, or somebody cancelled it.
        AsaError
            As ``asa run`` would report.
        InputError
            A stage only imports this file to find its function.
        """
        if _inside_a_stage:
            hint = 'Write it below `if __name__ == "__main__":`.'
            raise InputError("is called where a stage only looks for its function", where="Flow.run", hint=hint)
        if estimator != AUTO:
            readiness.prefer(estimator)
        opened = open_facility(backend, site, settings)
        chosen = at_price(strategy or opened.strategy or "asa-plan", opened.price)
        how = check_strategy(chosen)
        kept_in = None if bank is None else Path(bank or default_folder()).absolute()
        runs_folder = Path(runs or default_runs_folder(begins=True)).absolute()
        with chdir(folder), temporary.folder("asa-") as place:
            with _or_here(opened), closing_it(opened.facility.connect(Path(place))) as world:
                capabilities = world.capabilities
                who = choose_estimator(estimator, chosen, world, history)
                flow = self.workflow
                if kept_in is not None:
                    with suppress(StateError):  # storing learned waits is useful, but not necessary
                        flow = expect(flow, RunTimes(kept_in), capabilities).workflow
                plan = plan_run(
                    flow,
                    opened,
                    capabilities,
                    strategy=chosen,
                    estimator=who,
                    name=name,
                    bank=kept_in,
                    history=history,
                    seed=seed,
                    fail_fast=fail_fast,
                )
                for line in notes_before(plan.stages, plan.folder):
                    sys.stderr.write(f"{line}\n")
                if preflight:
                    check_accepted(plan, how, world)
            run = RunFolder.create(runs_folder, plan, is_usual=not runs)
            if words := run.not_shared():
                sys.stderr.write(f"Warning: {words}\n")
            result = attend(run, opened.facility, on_record=on_record, progress=progress)
        return checked(result, check=check)


@contextmanager
def _or_here(opened: OpenedSite) -> Iterator[None]:
    """If a batch system that nobody named cannot be reached, add to the error that this computer can be named."""
    try:
        yield
    except UnavailableError as error:
        if not opened.is_found:
            raise
        hint = f'{error.hint or "Try again later."} Or run it on this computer: backend="local".'
        raise type(error)(error.message, where=error.where, hint=hint) from error


def _each_once(*befores: Iterable[str | Stage]) -> list[str]:
    """Name stages, each once."""
    names = (stage.name if isinstance(stage, Stage) else stage for some in befores for stage in some)
    return list(dict.fromkeys(names))


def _read(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path), hint="Check the path.") from error


def _several(given: str | Iterable[str]) -> tuple[str, ...]:
    """Treat a single text as one item, not as a sequence of letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _checked(asked: Resources, known: Iterable[str], where: str) -> Resources:
    """Refuse invalid requests; None means not given."""
    checked: dict[str, object] = {}
    for key, value in asked.items():
        if key not in ASKED:
            hint = f"{meant(key, known)}Known: {', '.join(in_order(known))}."
            raise InputError(f"there is no {key!r} to ask for", where=where, hint=hint)
        if value is None:
            continue
        kind, words = _taken(ASKED[key])
        given: Any = _several(value) if kind is tuple and isinstance(value, Iterable) else value
        is_right = isinstance(given, kind) and isinstance(given, bool) == (kind is bool)
        if not is_right or (kind is tuple and not all(isinstance(item, str) for item in given)):
            raise InputError(f"{key} cannot be {value!r}", where=where, hint=f"Give {words}.")
        checked[key] = given
    return cast("Resources", checked)


def _parsed(parse: Callable[[str], T], key: str, text: str, where: str) -> T:
    try:
        return parse(text)
    except InputError as error:
        guess = near(text, ["learn"]) if ASKED[key].kind == "expectation" else ""
        raise InputError(f"{key}: {error.message}", where=where, hint=f"{guess}{error.hint}") from error


def _bytes(key: str, given: Any, where: str) -> int:
    return _parsed(ASKED[key].parse, key, given, where) if isinstance(given, str) else int(given)


def _seconds(key: str, given: Any, where: str) -> float:
    if not isinstance(given, _TIMES[0]) or isinstance(given, bool | Mapping):  # one time for one width
        raise InputError(f"{key} cannot be {given!r}", where=where, hint=f"Give {_TIMES[1]}.")
    if isinstance(given, timedelta):
        return given.total_seconds()
    return _parsed(parse_duration, key, given, where) if isinstance(given, str) else float(given)


def _named(key: str, where: str, read: Callable[[], T]) -> T:
    """Add the key's name to an error about its value."""
    try:
        return read()
    except InputError as error:
        if error.where == where:
            raise
        raise InputError(f"{key}: {error.message}", where=where, hint=error.hint) from error


def _widths(key: str, given: Any, where: str) -> list[int]:
    widths = _named(key, where, lambda: distinct(several(given)))
    if not widths or not all(type(width) is not bool and isinstance(width, Integral) for width in widths):
        raise InputError(f"{key} cannot be {given!r}", where=where, hint=f"Give {_WIDTHS[1]}.")
    return [int(width) for width in widths]


def _times(key: str, given: Any, where: str) -> float | dict[int, float]:
    if not isinstance(given, Mapping):
        return _seconds(key, given, where)
    if not given:
        raise InputError(f"{key} cannot be {given!r}", where=where, hint=f"Give {_TIMES[1]}.")
    return _named(key, where, lambda: at_widths(given, lambda value: _seconds(key, value, where)))


def _expectation(key: str, given: Any, where: str) -> Expectation:
    if given == "learn":
        return Expectation(learn=True)
    if not isinstance(given, Mapping) or not given or _named(key, where, lambda: is_by_width(given)):
        return Expectation(until=_times(key, given, where))
    if unknown := next((name for name in given if name not in {"learn", "until"}), None):
        hint = 'Write it as in {7: "6h", 28: "95min"}, or {"learn": True, "until": "22min"}.'
        raise InputError(f"{key}: {unknown!r} is not a width", where=where, hint=hint)
    learns, until = given.get("learn", True), given.get("until")
    if not isinstance(learns, bool):
        raise InputError(f"{key}: learn cannot be {learns!r}", where=where, hint="Give True or False.")
    return Expectation(learns, None if until is None else _times(key, until, where))


def _fields(asked: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Translate a user's requests into the fields of a `Stage`."""
    values = {name: _value(name, given, where) for name, given in asked.items()}
    if not values.keys() & {"cores", "nodes", "request"}:
        values["cores"] = [values.get("cpus_per_task", 1)]
    return fields_of({"walltime": _USUAL_WALLTIME_S} | values, where=where)


_READ: Mapping[str, Callable[[str, Any, str], Any]] = {
    "widths": _widths,
    "times": _times,
    "expectation": _expectation,
    "patience": _seconds,
    **dict.fromkeys(("memory", "storage"), _bytes),
}
_READ_ALIKE: Mapping[str, Callable[[Any], Any]] = {  # as in files
    "scaling": read_scaling,
    "partitions": lambda given: distinct(partitions_of(given)),
    "jobs": job_range,
}


def _value(name: str, given: Any, where: str) -> Any:
    """Translate a key's value."""
    key = ASKED.get(name)
    if key is None:
        return given
    if key.kind in _READ:
        return _READ[key.kind](name, given, where)
    read = key.notation.read if key.notation else _READ_ALIKE.get(key.kind)
    return given if read is None else _named(name, where, lambda: read(given))

"""The common options of `asa run` and `asa plan`: what to run, and on which batch system."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.completing import complete_estimators
from asa.cli.given import Given, is_file, parameters_meant, unknown_workflow
from asa.cli.terminal import write_notice
from asa.core.late import dataclass
from asa.errors import InputError, UnavailableError
from asa.units import MAX_CORES, MAX_JOBS, MAX_PROCESSES, MAX_SEED

if TYPE_CHECKING:
    from asa.backend import Backend
    from asa.runner import RunPlan
    from asa.runner.begin import Chosen
    from asa.sites import OpenedSite
    from asa.workflow import Stage, Workflow

_LATER = re.compile(r"\blater\b")
_SAID = "Nothing was submitted"
_HERE = "local"
_ANY_CORES = 64
_OR_HERE = f", or run it on this computer: --backend {_HERE}"
EstimatorOption = Annotated[
    str, typer.Option(help="What predicts waits; `asa list` shows all.", autocompletion=complete_estimators)
]
AutoEstimatorOption = Annotated[
    str,
    typer.Option(
        help="What predicts waits; `asa list` shows all. `auto` takes `asa-queue` where the site shows the jobs of "
        "others, else `asa`.",
        autocompletion=complete_estimators,
    ),
]
BankOption = Annotated[
    str | None,
    typer.Option(
        help="Folder of the bank, which keeps observed waits, or `none`. [default: $ASA_BANK, else "
        "~/.local/share/asa/bank; when a run is resumed, its own]",
        show_default=False,
        metavar="DIR|none",
    ),
]
HistoryOption = Annotated[
    int,
    typer.Option(
        help="Learn the waits of so many past jobs of all users first, where the site shows them.", min=0, max=MAX_JOBS
    ),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the random numbers.", min=0, max=MAX_SEED)]
ExecutorOption = Annotated[
    str,
    typer.Option(
        help="Where to simulate: `local`, in processes on this computer; `dask:ADDRESS`, on the workers of a Dask "
        "scheduler; `pool`, in jobs on the default site.",
        metavar="local|dask:ADDRESS|pool",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", help="Number of processes. [default: the number of cores here]", min=1, max=MAX_PROCESSES
    ),
]
CoresOption = Annotated[
    int | None,
    typer.Option(
        help="Cores of the widest stage, for an installed workflow.", min=1, max=MAX_CORES, show_default=False
    ),
]

WidthOption = Annotated[
    int | None,
    typer.Option(
        help="For stages with several widths: take the widest with at most so many cores (or nodes). [default: "
        "asa-plan chooses; other strategies take the first]",
        min=1,
        max=MAX_CORES,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Forecasting:
    """The options that choose how waits are predicted, by their names."""

    estimator: str = "auto"
    bank: str | None = None  # the bank's folder; `none` for no bank, None for the usual one
    history: int = 2000  # how many past jobs of all users to learn at the beginning
    seed: int = 0

    def words(self) -> list[str]:
        """Write what differs from the usual as on a command line."""
        values = {"estimator": self.estimator, "bank": self.bank, "history": self.history, "seed": self.seed}
        usual = Forecasting()
        given = {name: value for name, value in values.items() if value != getattr(usual, name)}
        return [word for name, value in given.items() for word in (f"--{name}", str(value))]


@dataclass(frozen=True, slots=True)
class AskedRun:
    """The workflow to run, the system to run it on, and how its waits are predicted."""

    workflow: Workflow  # as it would run on this system
    source: str  # path of the workflow's file; empty for an installed workflow
    parameters: dict[str, str]  # given by the user for parameters of the file
    opened: OpenedSite  # the batch system on which the workflow is to run
    bank: Path | None  # the bank's folder; None for no bank
    forecasting: Forecasting  # how its waits are predicted
    width: int | None  # of stages with several shapes; None to let the strategy choose
    only_look: bool  # whether nothing is to be submitted
    quiet: bool  # whether to print no notes

    @contextmanager
    def connected(self, folder: Path) -> Iterator[Backend]:
        """Open the batch system; if it lacks a necessary ability, report that nothing was submitted."""
        from asa.cli.driving import opened

        with (
            _nothing_submitted(_OR_HERE if self.opened.is_found else ""),
            opened(lambda: self.opened.facility.connect(folder)) as world,
        ):
            yield world

    def chosen(self, world: Backend, strategy: str) -> Chosen:
        """Choose the estimator of waits, and report the choice if the user did not name one."""
        from asa.cli.compiling import compile_if_lacking
        from asa.estimators import readiness
        from asa.runner.begin import choose_estimator

        chosen = choose_estimator(self.forecasting.estimator, strategy, world, self.forecasting.history)
        readiness.prefer(chosen.estimator)
        why = compile_if_lacking(chosen.why, self.bank, quiet=self.quiet)
        if why and not self.quiet:
            write_notice(f"Waits are predicted by `{chosen.estimator}`: {why}.")
        if chosen.events and not self.quiet:
            self._tell_of_partition(world)
        return chosen

    def _tell_of_partition(self, world: Backend) -> None:
        """Warn if asa cannot know which visible jobs compete with the workflow's."""
        site, stages = world.capabilities, self.workflow.stages.values()
        if site.partition or len(site.partitions) < 2 or all(stage.partition or stage.local for stage in stages):
            return
        names = " or ".join(f"partition={name}" for name in list(site.partitions)[:3])
        write_notice(
            "Note: the site does not tell which partition is the default, so predictions cannot tell which visible "
            f"jobs compete with yours. Name it: --option {names}."
        )

    def planned(self, world: Backend, strategy: str, estimator: Chosen, *, name: str = "") -> RunPlan:
        """Return the plan of the run, to be stored in its folder."""
        from asa.cli.advise import learned
        from asa.cli.pooled import workflow_for
        from asa.runner.begin import plan_run

        flow = learned(self.workflow, self.bank, world.capabilities, quiet=self.quiet)
        if self.width is not None:
            flow = in_one_width(flow, self.width, quiet=self.quiet)
        return plan_run(
            workflow_for(strategy, flow),
            self.opened,
            world.capabilities,
            strategy=strategy,
            estimator=estimator,
            name=name,
            bank=self.bank,
            history=self.forecasting.history,
            seed=self.forecasting.seed,
            source=self.source,
            parameters=self.parameters,
            width=self.width,
            only_look=self.only_look,
        )


def read_asked(
    workflow: str,
    backend: str | None,
    site: str | None,
    given: Given,
    cores: int | None,
    forecasting: Forecasting,
    *,
    width: int | None = None,
    only_look: bool,
    quiet: bool = False,
) -> AskedRun:
    """Read and check the workflow, and find the batch system; unless quiet, print warnings and the choice made."""
    from asa.cli.revising import bank_folder
    from asa.core import plugins
    from asa.estimators import readiness
    from asa.estimators.choice import AUTO
    from asa.runner.begin import bank_refusal, check_bank, check_text
    from asa.sites import open_facility

    parameters, options = given.split(workflow, lambda tried: open_facility(backend, site, tried))
    flow = _workflow_of(workflow, cores, parameters, only_look=only_look)
    if forecasting.estimator != AUTO:
        readiness.prefer(forecasting.estimator)
        plugins.load("asa.estimators", forecasting.estimator)
    if is_file(workflow):
        _check_file(workflow, parameters, only_look=only_look, quiet=quiet)
    with parameters_meant(workflow):
        opened = open_facility(backend, site, options)
    check_text(str(Path.cwd()), workflow, *map(str, opened.settings.values()))
    if opened.why and not quiet:
        write_notice(f"Using {opened.file.stem if opened.file else opened.backend}: {opened.why}.")
    bank = bank_folder(forecasting.bank)
    if forecasting.bank is None and (refusal := bank_refusal(bank)):  # as for a resumed run
        write_notice(f"Note: the bank {bank} {refusal}")
        bank = None
    if not only_look:
        check_bank(bank)
    source = str(Path(workflow).absolute()) if is_file(workflow) else ""
    return AskedRun(flow, source, parameters, opened, bank, forecasting, width, only_look, quiet)


def in_one_width(flow: Workflow, width: int, *, quiet: bool = False) -> Workflow:
    """Give all stages with several shapes one width: the widest up to `width`.

    Print a note on stages without such a width, and on guessed run times.

    Raises `InputError`: no stage has several widths.
    """
    from asa.units import format_duration

    moldable = [stage for stage in flow.stages.values() if stage.moldable is not None and stage.moldable.widths]
    if not moldable:
        hint = "Leave --width out, or write several widths in the file, as in cores = [28, 7, 14]."
        raise InputError(f"no stage of {flow.name} has several widths", where="--width", hint=hint)
    fixed = flow.fixed(width)
    for stage in moldable if not quiet else ():
        taken, unit = fixed.stages[stage.name], "node" if stage.cores is None else "core"
        size = f"{taken.width} {unit}{'s' * (taken.width > 1)}"
        if taken.width > width:
            write_notice(f"Note: {stage.name} asks for {size}, the fewest that it allows.")
        if all(shape.width != taken.width for shape in stage.shapes):
            walltime = format_duration(taken.walltime_s)
            write_notice(f"Note: the run time of {stage.name} on {size} is not known; it asks for {walltime}.")
    return fixed


@contextmanager
def _nothing_submitted(else_do: str = "") -> Iterator[None]:
    """If the batch system cannot be reached, add to the error that nothing was submitted, and what to do."""
    try:
        yield
    except UnavailableError as error:
        if error.hint is not None and _SAID in error.hint:
            raise
        prefix = "" if error.hint is None or _LATER.search(error.hint) else f"{error.hint} "
        hint = f"{prefix}{_SAID}: try again later{else_do}."
        raise type(error)(error.message, where=error.where, hint=hint) from error


def _check_file(workflow: str, parameters: dict[str, str], *, only_look: bool, quiet: bool) -> None:
    """Refuse a workflow that cannot run, and warn of what may keep it from running, such as a missing program."""
    from asa.spec.checks import check_here

    problems = check_here(workflow, dict(parameters), looks_for_secrets=False)  # secrets: once, for all stages
    wrong = next((problem for problem in problems if problem.severity == "error"), None)
    if wrong is not None and not only_look:
        raise InputError(wrong.message, where=wrong.where, hint=f"{wrong.hint} Nothing was submitted.")
    shown = [problem for problem in problems if problem.severity != "note"] if not quiet else []
    for problem in shown:
        write_notice(f"{problem.severity.capitalize()}: {problem.where}: {problem.message}")
    if shown:
        words = ["asa", "check", workflow, *(f"--param={key}={value}" for key, value in parameters.items())]
        sys.stderr.write(f"What to do about {'it' if len(shown) == 1 else 'them'}: {shlex.join(words)}\n")


def _workflow_of(given: str, cores: int | None, parameters: dict[str, str], *, only_look: bool) -> Workflow:
    """Read a workflow's file, or make an installed workflow, which can be shown but not run."""
    from asa.core import plugins
    from asa.runner.begin import check_commands
    from asa.spec import load_workflow

    if is_file(given):
        if cores is not None:
            hint = "Leave --cores out."
            raise InputError("the cores of each stage are in the workflow file", where="--cores", hint=hint)
        flow = load_workflow(given, parameters)
    elif given in plugins.names("asa.workflows"):
        make = plugins.load("asa.workflows", given)
        if cores is None:
            if not only_look:  # refuse before asking for a width
                check_commands(given, _stages_of(make), is_model=True)
            raise InputError(
                "is missing", where="--cores", hint="Give the cores of its widest stage, as in --cores 112."
            )
        flow = make(cores)
    else:
        raise unknown_workflow(given)
    if not only_look:
        check_commands(given, flow.stages.values(), is_model=not is_file(given))
    checked: Workflow = flow
    return checked


def _stages_of(make: Callable[[int], Workflow]) -> Iterable[Stage]:
    """Return the stages of an installed workflow, in any width; none if it cannot be made."""
    with suppress(InputError):
        return make(_ANY_CORES).stages.values()
    return ()


def names_in(text: str, option: str) -> tuple[str, ...]:
    """Read comma-separated names."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InputError("names nothing", where=option, hint="Give names, separated by commas.")
    return names


def counts_in(text: str | None, option: str = "--cores") -> tuple[int, ...]:
    """Read comma-separated numbers of cores; empty if none are given."""
    try:
        counts = tuple(dict.fromkeys(int(part) for part in text.split(","))) if text is not None else ()
    except ValueError:
        counts = (0,)
    if counts and min(counts) < 1:
        raise InputError(
            f"{text!r} are not numbers of cores", where=option, hint="Give whole numbers such as 28,56,112."
        )
    return counts

"""``asa walltimes``: recommends walltimes from measured run times. ``asa run`` uses the same run times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.advise_shape import Where, tell_shapes
from asa.cli.bank import BankOption
from asa.cli.doctor import BackendOption, SiteOption
from asa.cli.given import FormerSetOption, Given, OptionsOption, ParamsOption, price_given
from asa.cli.known_run_times import BEGIN, FOR_P90, FOR_P99, forecast_dict, quantile_cells, tell_all
from asa.cli.one_command import (
    Command,
    CommandCoresOption,
    CommandWalltimeOption,
    ExpectedOption,
    NowOption,
    PlaceOption,
    ScalingOption,
)
from asa.cli.runs import print_document
from asa.cli.terminal import counted, write_notice
from asa.core.late import dataclass
from asa.core.options import Output, OutputOption
from asa.errors import InputError, StateError

if TYPE_CHECKING:
    from asa.backend import Capabilities
    from asa.estimators import WaitBank
    from asa.runner import RunFolder
    from asa.runtimes import RunTime, RunTimes, WalltimeAdvice
    from asa.workflow import Workflow

_ENOUGH_WAITS = 20
_WORTH_S = 60.0


def advise(
    workflow: Annotated[
        Path | None,
        typer.Argument(help="A workflow file (.toml). [default: show all run times known]", metavar="FILE"),
    ] = None,
    parameters: ParamsOption = None,
    options: OptionsOption = None,
    either: FormerSetOption = None,
    shape: Annotated[
        bool,
        typer.Option(
            "--shape", help="Recommend a number of cores for each stage, and another one that is worth a try."
        ),
    ] = False,
    cores: CommandCoresOption = None,
    expected: ExpectedOption = None,
    scaling: ScalingOption = None,
    walltime: CommandWalltimeOption = None,
    now: NowOption = None,
    partition: PlaceOption = None,
    system: Annotated[
        str | None, typer.Option(help="The system on which it runs. [default: where it ran last]", show_default=False)
    ] = None,
    bank: BankOption = None,
    bank_only: Annotated[
        bool, typer.Option("--bank-only", help="With --shape: do not ask a batch system, as in `asa predict`.")
    ] = False,
    backend: BackendOption = None,
    site: SiteOption = None,
    price: Annotated[
        str | None,
        typer.Option(
            help='With --shape: what an hour sooner is worth to you, as "1 h = 200 core-hours". [default: the site '
            "file's; else one percent more core-hours is worth it if the job ends 0.1 percent sooner]",
            show_default=False,
            metavar="PRICE",
        ),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(help="Delete the run times of a workflow, or of one stage.", metavar="WORKFLOW[/STAGE]"),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Recommend walltimes, or with --shape numbers of cores, from the measured run times of the stages.

    A job with a shorter walltime can be backfilled, and often starts sooner; one with too short a walltime is killed.
    If the bank knows enough waits, it also tells how much the wait would change.

    Only names of workflows and stages, and numbers, are kept.

    Example: `asa walltimes flow.toml`

    How many cores to ask for: `asa walltimes flow.toml --shape`, or for a single command `asa walltimes --shape --cores
    7,14,28 --expected 7=6h,28=95min`

    Exit codes: 0 done, also if nothing is known yet; 2 the input cannot be used, or with --shape no run time is known.
    """
    from asa.estimators.store import default_folder
    from asa.runtimes import RunTimes

    folder = bank or default_folder()
    runs = RunTimes(folder)
    given = Given(parameters, options, either)
    command = Command(cores, expected, scaling, walltime, now, partition)
    looks = {"--backend": backend, "--site": site, "--option": options, "--bank-only": bank_only, "--price": price}
    looks["--partition"] = partition
    _check_options(command, workflow, forget, {name: bool(is_asked) for name, is_asked in looks.items()}, shape=shape)
    if forget is not None:
        if workflow is not None:
            raise InputError("does not go with a file", where="--forget", hint="Leave the file out.")
        _forget(runs, forget)
        return
    if shape:
        price_given(price, "", None)  # refuses a wrong price before a batch system is asked
        where = Where(system, bank, backend, site, bank_only, price)
        tell_shapes(workflow, command, where, given, runs, as_json=output is Output.JSON)
    elif workflow is None:
        tell_all(runs, as_json=output is Output.JSON)
    else:
        _tell_one(
            _report(workflow, given.split(str(workflow), _no_backend)[0], runs, system, folder),
            as_json=output is Output.JSON,
        )
    if runs.damaged:
        write_notice(f"Note: {runs.damaged} lines in {runs.folder} are damaged and were skipped.")


def _no_backend(options: Mapping[str, str]) -> None:
    raise InputError(f"there is no setting {next(iter(options))!r}", hint="Add --shape, or leave --option out.")


def _check_options(
    command: Command, workflow: Path | None, forget: str | None, only_shape: Mapping[str, bool], *, shape: bool
) -> None:
    """Refuse options that contradict each other, or have no effect here.

    `only_shape`: options that need --shape, and whether they were given.
    """
    first = command.first or next((name for name, is_given in only_shape.items() if is_given), None)
    if not shape and first is not None:
        raise InputError("needs --shape", where=first, hint="Add --shape, or leave it out.")
    if shape and forget is not None:
        raise InputError("does not go with --shape", where="--forget", hint="Leave one of the two out.")
    if workflow is not None and command.first is not None:
        raise InputError(
            "is for a command; in a workflow file each stage has its own",
            where=command.first,
            hint="Leave it or the file out.",
        )


def _forget(runs: RunTimes, what: str) -> None:
    flow, _, stage = what.partition("/")
    if not flow:
        raise InputError(f"{what!r} names no workflow", where="--forget", hint="Write WORKFLOW or WORKFLOW/STAGE.")
    count = runs.forget(flow, stage)
    write_notice(f"{counted(count, 'run time')} of {what} deleted.")


# ---------------------------------------------------------------------- one workflow


@dataclass(frozen=True, slots=True)
class _Advised:
    """The advice on a stage, and the bank's predicted waits with both walltimes (None if it knows too few waits)."""

    cores: int | None
    advice: WalltimeAdvice
    waits_s: tuple[float, float] | None = None

    @property
    def saved_s(self) -> float | None:
        return None if self.waits_s is None else self.waits_s[0] - self.waits_s[1]

    def as_dict(self) -> dict[str, Any]:
        forecast = self.advice.forecast
        return {
            "stage": self.advice.stage,
            "cores": self.cores,
            "walltime_s": self.advice.asked_s,
            "verdict": self.advice.verdict,
            "suggested_s": self.advice.suggested_s,
            "hit_limit": self.advice.hit_limit,
            "run": None if forecast is None else forecast_dict(forecast),
            "wait_s": None if self.waits_s is None else self.waits_s[0],
            "suggested_wait_s": None if self.waits_s is None else self.waits_s[1],
        }


@dataclass(frozen=True, slots=True)
class _Report:
    workflow: str
    system: str
    others: Sequence[str]
    stages: Sequence[_Advised]


def _report(file: Path, parameters: dict[str, str], runs: RunTimes, wanted: str | None, bank: Path) -> _Report:
    from asa.runtimes import advise as advice_on
    from asa.runtimes import forecast_run
    from asa.spec import load_workflow

    flow = load_workflow(file, parameters)
    times = runs.of(flow.name)
    systems = list(dict.fromkeys(run.system for run in reversed(times)))
    system = wanted if wanted is not None else next(iter(systems), "")
    rows = []
    for name in flow.order:
        stage = flow.stages[name]
        if stage.local:  # a local stage waits in no queue
            continue
        own = [run for run in times if run.stage == name]
        cores = _cores(stage.cores if stage.nodes is None else None, own, system)
        known = None if cores is None else forecast_run(own, cores, input_size=stage.input_size, system=system)
        rows.append(_Advised(cores, advice_on(name, stage.walltime_s, known)))
    rows = _with_waits(rows, {name: stage.partition for name, stage in flow.stages.items()}, system, bank)
    return _Report(flow.name, system, [name for name in systems if name != system], rows)


def _cores(asked: int | None, times: Sequence[RunTime], system: str) -> int | None:
    """Return a stage's cores; for a stage that asks for nodes, the cores that it had in its last run."""
    if asked is not None:
        return asked
    there = [run.cores for run in times if run.system == system] or [run.cores for run in times]
    return there[-1] if there else None


def _with_waits(rows: list[_Advised], partitions: Mapping[str, str], system: str, bank: Path) -> list[_Advised]:
    """Add the waits that the bank predicts, if there is a bank."""
    changing = [row for row in rows if row.advice.verdict in {"less", "more"}]
    if not changing or not bank.is_dir():
        return rows
    waits = _BankWaits(bank, system)
    return [
        _Advised(
            row.cores,
            row.advice,
            waits.of(row.cores, (row.advice.asked_s, row.advice.suggested_s), partitions[row.advice.stage]),
        )
        if row in changing and row.cores is not None
        else row
        for row in rows
    ]


class _BankWaits:
    """The waits on a system that a bank knows, at the time of the bank's last submission."""

    def __init__(self, folder: Path, system: str) -> None:
        from asa.estimators import WaitBank, WaitStore, readiness
        from asa.estimators.bank import max_records

        self._system = system
        readiness.prefer("asa-blind")
        latest = WaitStore(folder, create=False).read()
        self._records = [record for record in latest if record.job.system == system][-max_records() :]
        self._bank: WaitBank | None = None
        if self._records:
            self._bank = WaitBank("asa-blind")  # a bank does not know which jobs are pending now
            self._bank.take(self._records)

    def of(self, cores: int, walltimes_s: tuple[float, float], partition: str) -> tuple[float, float] | None:
        """Predict the waits with two walltimes; None if the bank has seen too few such jobs."""
        from asa.waits import QueuedJob

        if self._bank is None:
            return None
        now_s = max(record.job.submit_s for record in self._records)
        own = {record.job.partition for record in self._records}
        where = partition or (next(iter(own)) if len(own) == 1 else "")
        predicted = []
        for walltime_s in walltimes_s:
            job = QueuedJob(now_s, cores, walltime_s, system=self._system, partition=where)
            if sum(record.job.geometry == job.geometry for record in self._records) < _ENOUGH_WAITS:
                return None
            predicted.append(self._bank.predict(job).at(0.5))
        return predicted[0], predicted[1]


def _tell_one(report: _Report, *, as_json: bool) -> None:
    if as_json:
        print_document(
            {
                "workflow": report.workflow,
                "system": report.system,
                "stages": [row.as_dict() for row in report.stages],
            }
        )
        return
    from asa.core.console import Console

    console = Console(highlight=False)
    if all(row.advice.forecast is None for row in report.stages):
        words = f"No run times of {report.workflow} are known yet. {BEGIN}"
        console.print(words, markup=False, soft_wrap=not console.is_terminal)
        return
    where = f" on {report.system}" if report.system else ""
    console.print(f"{report.workflow}{where}\n", style="bold", markup=False)
    console.print(_table(report.stages))
    for row in report.stages:
        if words := _words(row):
            console.print(f"\n{words}", markup=False)
    if all(row.advice.verdict == "fits" for row in report.stages):
        console.print("\nThe walltimes fit.")
    if report.others:
        others = ", ".join(name or "an unnamed system" for name in report.others)
        console.print(f"\nIt also ran on: {others}. See --system.", style="dim", markup=False)


def _table(rows: Iterable[_Advised]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from asa.units import format_duration

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("Stage", overflow="fold")
    for heading in ("Cores", "Runs", "p50", "p90", "p99", "Longest", "Asked", "Better"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        advice, known = row.advice, row.advice.forecast
        times = ["", "", "", ""]
        if known is not None:
            times = list(quantile_cells(known))
        style = {"less": "green", "more": "yellow"}.get(advice.verdict)
        better = format_duration(advice.suggested_s) if style else {"fits": "fits"}.get(advice.verdict, "?")
        table.add_row(
            advice.stage,
            "" if row.cores is None else str(row.cores),
            "0" if known is None else str(known.count),
            *times,
            format_duration(advice.asked_s),
            Text(better, style or ""),
        )
    return table


def _words(row: _Advised) -> str:
    """Recommend a walltime for a stage in a sentence or two; empty if its walltime is fine."""
    advice = row.advice
    if advice.forecast is None:
        return f"{advice.stage}: has not run yet."
    if advice.verdict == "unknown":
        why = "too far off to advise on" if advice.forecast.is_guess else "too few to advise on"
        return f"{advice.stage}: {advice.forecast.how}: {why}."
    if advice.verdict == "less":
        return _less(row)
    return f"{_one_line(advice)}." if advice.verdict == "more" else ""


def _less(row: _Advised) -> str:
    """Recommend a shorter walltime, and say how much less the stage would wait, if the bank knows."""
    from asa.units import format_duration

    line = _one_line(row.advice)
    if row.saved_s is None:
        return f"{line}. The bank knows too few waits to tell how much less it would wait."
    if row.saved_s < _WORTH_S:
        return f"{line}. By the waits in the bank it would wait as long."
    return f"{line}, and would wait {format_duration(row.saved_s)} less, by the waits in the bank."


def _one_line(advice: WalltimeAdvice) -> str:
    """Report the stage's present walltime, the advised one, and the reason."""
    from asa.units import format_duration

    known = advice.forecast
    assert known is not None
    asked, better = format_duration(advice.asked_s), format_duration(advice.suggested_s)
    source = known.how.removeprefix("from ")
    longest = f"the longest of {source} took {format_duration(known.longest_s)}"
    if advice.verdict == "less":
        seen = f"of {source}, p99 is {format_duration(known.p99_s)}" if known.count >= FOR_P99 else longest
        return f"{advice.stage} asks for {asked}; {seen}: {better} would do"
    if advice.hit_limit:
        return f"{advice.stage} was killed at its walltime of {asked} ({source}): ask for {better}"
    seen = f"of {source}, p90 is {format_duration(known.p90_s)}" if known.count >= FOR_P90 else longest
    return f"{advice.stage} is close to its walltime of {asked}; {seen}: ask for {better}"


# ---------------------------------------------------------------------- for `asa run`


def learned(flow: Workflow, bank: Path | None, capabilities: Capabilities, *, quiet: bool = False) -> Workflow:
    """Set the expected run time of stages whose file says `learn`, and name its source on stderr."""
    from asa.runtimes import Expected, RunTimes, expect
    from asa.units import format_duration

    learning = [name for name, stage in flow.stages.items() if stage.learns_run]
    if not learning:
        return flow
    expected = Expected(flow, {})
    try:
        if bank is not None:
            expected = expect(flow, RunTimes(bank), capabilities)
    except StateError as error:
        expected = Expected(flow, {}, f"cannot be read: {error}")
    if not quiet:
        lines = [f"Note: learned run times are not used: {expected.trouble}"] if expected.trouble else []
        for name in learning:
            known = None if expected.trouble else expected.forecasts.get(name)
            how = "its run time is not known yet" if known is None else known.how
            lines.append(f"{name}: expected {format_duration(expected.workflow.stages[name].expected_s)}, {how}")
        for line in lines:
            write_notice(line)
    return expected.workflow


def tell_advice(folder: RunFolder) -> None:
    """After a run, recommend a better walltime in a line on stderr, if there is one."""
    from asa.runtimes import RunTimes, forecast_run
    from asa.runtimes import advise as advice_on

    plan = folder.plan
    if not plan.bank:
        return
    with suppress(StateError, OSError):
        times = RunTimes(plan.bank).by_stage(plan.workflow)
        to_change = []
        for stage in (stage for stage in plan.stages if not stage.local):
            limits = plan.capabilities.partitions.get(stage.partition or plan.capabilities.partition)
            max_s = limits.max_walltime_s if limits is not None else None
            cores = stage.cores_on(plan.capabilities.cores_per_node)
            ran, system = times.get(stage.name, ()), plan.capabilities.system
            known = forecast_run(ran, cores, input_size=stage.input_size, system=system)
            advice = advice_on(stage.name, stage.walltime_s, known, max_s=max_s or float("inf"))
            if advice.verdict in {"less", "more"}:
                to_change.append(advice)
        if to_change:
            # a job that is killed costs more than one that waits
            first = max(to_change, key=lambda advice: (advice.verdict == "more", advice.asked_s - advice.suggested_s))
            more = f", and of {counted(len(to_change) - 1, 'other stage')}" if len(to_change) > 1 else ""
            sooner = ", and may start sooner" if first.verdict == "less" else ""
            about = f" More on this{more}: asa walltimes {Path(plan.source).name if plan.source else ''}".rstrip()
            write_notice(f"{_one_line(first)}{sooner}.{about}")

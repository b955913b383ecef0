"""``asa bbsched``: compares methods on workloads, and with the paper's figures; measures solvers on real windows."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.core.drawing import make_figure_folder
from asa.core.options import Output, OutputOption, known_names, sizes_in
from asa.errors import InputError
from asa.units import MAX_JOBS, MAX_PROCESSES

if TYPE_CHECKING:
    from asa.studies.bbsched.workloads import Workload

_MAX_WINDOW = 1000
_MAX_JOBS = 1_000_000
_MAX_SEEDS = 1000
_THETA_NODES = (4360, 4392)  # in the log of 2022, and in the paper

app = typer.Typer(
    help="""Schedule by BBSched: choose jobs from the front of the queue that use several resources well together.

    After Fan et al., "Scheduling Beyond CPUs for HPC" (BBSched).
    """,
    no_args_is_help=True,
)

_ThetaOption = Annotated[
    Path | None,
    typer.Option(help="Theta's log (SWF, plain or .gz). Without it there is only Cori, of a model.", metavar="LOG"),
]
_BufferOption = Annotated[
    int | None,
    typer.Option(
        "--theta-buffer-tb",
        help="Theta's burst buffer. Of the paper's 1260 TB the jobs of S4 want 0.37 at the log's rate, 0.895 at the "
        "paper's; of 500 TB they want 0.92 at the log's. [default: 1260]",
        min=1,
        max=_MAX_JOBS,
    ),
]
_PaperRateOption = Annotated[
    bool,
    typer.Option(
        "--paper-rate",
        help="As many jobs a day as in the paper, 21,370 on Cori and 467 on Theta, so that S4 wants as much burst "
        "buffer as jobs use there. By default Theta's log has 66, and Cori's model 390.",
    ),
]
_WorkloadOption = Annotated[
    str | None, typer.Option(help="Whose windows. [default: theta-s4 with a log, else cori-s4]", show_default=False)
]
_JobsOption = Annotated[int, typer.Option(help="So many of its first jobs are scheduled.", min=1, max=_MAX_JOBS)]


@app.command()
def compare(
    theta: _ThetaOption = None,
    *,
    workloads: Annotated[
        str | None,
        typer.Option(
            help="Some of cori-original, cori-s1 to cori-s7, theta-original, ... [default: all]", metavar="W,W"
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Some, as baseline,bbsched. [default: those that the paper has]", metavar="M,M")
    ] = None,
    windows: Annotated[
        str,
        typer.Option(
            help="Jobs that are looked at together. The exact search is given up after 10^8 steps (0.1 s or so), or "
            "where more than 62 jobs would fit alone. Then what was found is joined with what the genetic algorithm "
            "finds, and counted below the tables.",
            metavar="N,N",
        ),
    ] = "20",
    solver: Annotated[
        str, typer.Option(help="exact, genetic (the paper's, G=500 and P=20), or both with a comma.", metavar="S,S")
    ] = "exact",
    order: Annotated[
        str | None,
        typer.Option(
            help="The base scheduler whose order of the queue is kept: wfp, sjf, f1:number=3, multifactor, any other "
            "in `asa list` that sorts its queue. [default: the paper's, fcfs on Cori and wfp on Theta]",
            metavar="NAME",
        ),
    ] = None,
    starvation_bound: Annotated[
        int, typer.Option(help="A job that so many selections passed over must be selected.", min=1, max=MAX_JOBS)
    ] = 50,
    seeds: Annotated[int, typer.Option(help="Draws of each workload.", min=1, max=_MAX_SEEDS)] = 3,
    paper_rate: _PaperRateOption = False,
    days: Annotated[
        int | None,
        typer.Option(help="How long workloads are. [default: 60 on Cori, all of the log]", min=3, max=3650),
    ] = None,
    warm_up: Annotated[
        int, typer.Option(help="Days at either end that are not measured; half a month in the paper.", min=1, max=365)
    ] = 15,
    theta_buffer_tb: _BufferOption = None,
    cori_buffer_tb: Annotated[
        int | None,
        typer.Option(
            help="Cori's burst buffer. Without the third that is reserved persistently it is 1200 TB. [default: 1800]",
            min=1,
            max=_MAX_JOBS,
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="At once. [default: the cores there are]", min=1, max=MAX_PROCESSES)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw Figures 6 to 14 into this folder.", metavar="DIR")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedule the paper's workloads with its methods, and print how well each uses the machine.

    Ten workloads with eight methods (Section 4), and six that ask for SSD, too, with seven (Section 5). A method is run
    only on the workloads on which the paper compares it. With several windows or solvers everything is run with each;
    tables are of a window of 20, or else the first.

    A case takes about 5 s of a core: all of Cori 15 minutes, all of both machines half an hour, less on several cores.
    With --paper-rate it takes minutes: fewer --days help.

    Example: `asa bbsched compare --workloads cori-s4 --methods baseline,bbsched --windows 10,20,50`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from rich.progress import Progress

    from asa.backends.bbsched.methods import METHODS, SOLVERS
    from asa.backends.simulated.policies import order_of
    from asa.core.console import Console
    from asa.core.parallel import available_cores
    from asa.studies.present import print_json

    from .comparison import Case
    from .comparison import compare as run

    wanted = list(METHODS) if methods is None else known_names(methods, METHODS, "--methods")
    sizes = sizes_in(windows, _MAX_WINDOW, "--windows", "size of a window, which is a number", "10,20,50")
    solvers = known_names(solver, SOLVERS, "--solver")
    _refuse_buffer_of_none(theta_buffer_tb, theta)
    if order is not None:
        order_of(order)  # to refuse an unknown one now
    if plot is not None:
        make_figure_folder(plot)
    names = _workload_names(workloads, theta)
    buffers = {"theta": theta_buffer_tb, "cori": cori_buffer_tb}
    how = _Making(theta, days, warm_up, order, buffers, at_paper_rate=paper_rate)
    made = {(name, seed): workload for seed in range(seeds) for name, workload in how.load(names, seed).items()}
    _say_whose(made.values())
    cases = [
        Case(name, method, window, by, starvation_bound, seed)
        for (name, seed), workload in made.items()
        for method in _methods_for(workload, wanted)
        for window in sizes
        for by in solvers
    ]
    if not cases:
        raise InputError(
            f"{', '.join(wanted)} and {', '.join(names)} are not compared by the paper",
            where="--methods",
            hint="constrained-ssd is for s5 to s7, weighted-cpu and weighted-bb are for the others.",
        )
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=len(cases))
        outcomes = run(
            made, cases, processes=processes or available_cores(), on_done=lambda _outcome: progress.advance(task)
        )
    if output is Output.JSON:
        print_json([outcome.as_dict() for outcome in outcomes])
    else:
        from .printing import print_comparison

        print_comparison(outcomes)
    if plot is not None:
        from .pictures import draw_all

        sys.stderr.write(f"Figures written to {plot}: {', '.join(draw_all(outcomes, plot))}\n")


@app.command()
def gd(
    theta: _ThetaOption = None,
    *,
    workload: _WorkloadOption = None,
    window: Annotated[int, typer.Option(help="Jobs that are looked at together.", min=1, max=_MAX_WINDOW)] = 20,
    jobs: _JobsOption = 1000,
    theta_buffer_tb: _BufferOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 4 into this file.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measure how far the genetic algorithm's solutions are from the exact front, by generations and population.

    Jobs are scheduled by BBSched, and the windows that it meets are kept. Most windows are easy, so only a quarter of
    them is measured: those in which most jobs fit.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.backends.bbsched.genetic import Genetic
    from asa.studies.present import print_json

    from .distance import gd_curve
    from .windows import fullest, harvest

    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    of = _one_workload(workload, theta, theta_buffer_tb)
    met = harvest(of, window, jobs)
    if not met:
        raise _no_windows()
    problems = fullest(met)
    Genetic(0).solve(problems[0])  # compiles the code first
    curve = gd_curve(problems)
    facts = {"workload": of.name, "window": window, "windows": len(met), "measured": len(problems)}
    if output is Output.JSON:
        print_json({**facts, "curve": [point._asdict() for point in curve]})
    else:
        from .printing import print_curve

        print_curve(curve, facts)
    if plot is not None:
        from .pictures import draw_curve

        draw_curve(curve, plot)
        sys.stderr.write(f"Figure written to {plot}\n")


@app.command()
def bench(
    theta: _ThetaOption = None,
    *,
    workload: _WorkloadOption = None,
    jobs: _JobsOption = 1000,
    theta_buffer_tb: _BufferOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time decisions of BBSched, exact and genetic, on windows of 20 and of 50 that it meets.

    One process, one core; the paper's figures are of a PC of 3.4 GHz.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import print_json

    from .windows import DECIDERS, fullest, harvest, time_decisions

    of = _one_workload(workload, theta, theta_buffer_tb)
    met = {window: harvest(of, window, jobs) for window in {decider.window for decider in DECIDERS}}
    if not all(met.values()):
        raise _no_windows()
    timings = [
        timing
        for decider in DECIDERS
        for timing in (
            time_decisions(decider, met[decider.window]),
            time_decisions(decider, fullest(met[decider.window]), "fullest"),
        )
    ]
    if output is Output.JSON:
        print_json([asdict(timing) for timing in timings])
    else:
        from .printing import print_timings

        print_timings(timings, of.name)


@app.command()
def scaling(
    theta: _ThetaOption = None,
    *,
    workload: _WorkloadOption = None,
    windows: Annotated[str, typer.Option(help="Sizes of the window.", metavar="N,N")] = "5,10,15,20,25,30,35,40,50",
    exhaustive_to: Annotated[
        int,
        typer.Option(help="The largest window of which every selection is tried. 30 takes seconds.", min=1, max=36),
    ] = 25,
    jobs: _JobsOption = 1000,
    paper_rate: _PaperRateOption = False,
    theta_buffer_tb: _BufferOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 2 into this file.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Time solutions by the size of the window: by trying every selection, by the exact search, and genetically.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import print_json

    from .scaling import time_by_size

    sizes = sizes_in(windows, _MAX_WINDOW, "--windows", "size of a window, which is a number", "10,20,50")
    if plot is not None:
        from asa.core.drawing import check_figure_path

        check_figure_path(plot)
    of = _one_workload(workload, theta, theta_buffer_tb, at_paper_rate=paper_rate)
    times = time_by_size(of, sizes, jobs, exhaustive_to)
    if not times:
        raise InputError("so few jobs fill no window", where="--jobs", hint="Give more of them.")
    if output is Output.JSON:
        print_json([asdict(point) for point in times])
    else:
        from .printing import print_times

        print_times(times, of.name)
    if plot is not None:
        from .pictures import draw_times

        draw_times(times, plot)
        sys.stderr.write(f"Figure written to {plot}\n")


@app.command()
def requests(
    theta: _ThetaOption = None,
    *,
    workloads: Annotated[
        str | None, typer.Option(help="Some of cori-original, cori-s1 to cori-s4, ... [default: all]", metavar="W,W")
    ] = None,
    paper_rate: _PaperRateOption = False,
    days: Annotated[
        int | None,
        typer.Option(help="How long workloads are. [default: 60 on Cori, all of the log]", min=31, max=3650),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 5 into this folder.", metavar="DIR")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Count the workloads' requests for burst buffer, by their size.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import print_json

    from .asked import asked_buffer

    names = [name for name in _workload_names(workloads, theta) if workloads or name[-2:] not in ("s5", "s6", "s7")]
    if plot is not None:
        make_figure_folder(plot)
    made = _Making(theta, days, at_paper_rate=paper_rate).load(names)
    _say_whose(made.values())
    found = [asked_buffer(workload) for workload in made.values()]
    if output is Output.JSON:
        print_json([asdict(of) for of in found])
    else:
        from .printing import print_asked

        print_asked(found)
    if plot is not None:
        from .pictures import draw_asked

        sys.stderr.write(f"Figures written to {plot}: {', '.join(draw_asked(found, plot))}\n")


# ---------------------------------------------------------------------- parameters


def _workload_names(text: str | None, theta: Path | None, option: str = "--workloads") -> list[str]:
    """Parse names of workloads; those of Theta need a log."""
    from asa.studies.bbsched.workloads import NAMES

    names = list(NAMES) if text is None else known_names(text, NAMES, option)
    if theta is not None:
        return names
    if text is None:
        sys.stderr.write("Only Cori's workloads: Theta's are made of its log, which --theta names.\n")
        return [name for name in names if not name.startswith("theta")]
    if any(name.startswith("theta") for name in names):
        raise InputError(
            "Theta's workloads are made of its log, and none was given",
            where=f"{option} {text}",
            hint="Name it with --theta LOG, or ask for Cori's workloads only.",
        )
    return names


@dataclass(frozen=True)
class _Making:
    """How workloads are made."""

    theta: Path | None
    days: int | None = None
    warm_up_days: int = 15
    order: str | None = None  # by default the machine's own
    buffers_tb: Mapping[str, int | None] = field(default_factory=dict)  # by machine; by default the paper's
    at_paper_rate: bool = False

    def load(self, names: Sequence[str], seed: int = 0) -> dict[str, Workload]:
        """Make workloads by name."""
        from asa.studies.bbsched.workloads import load_workloads

        made = load_workloads(
            names,
            theta_log=self.theta,
            days=self.days,
            warm_up_days=self.warm_up_days,
            at_paper_rate=self.at_paper_rate,
            seed=seed,
        )
        return {name: self._with_rules(workload) for name, workload in made.items()}

    def _with_rules(self, workload: Workload) -> Workload:
        """Return a workload with the burst buffer and the order that were given."""
        from asa.backends.bbsched.system import System
        from asa.studies.bbsched.workloads import BUFFER

        system, (machine, _) = workload.system, workload.name.split("-")
        if (buffer_tb := self.buffers_tb.get(machine)) is not None:
            most = int(workload.demands[BUFFER].max())
            if most > 1000 * buffer_tb:
                raise InputError(
                    f"a job of {workload.name} asks for {most / 1000:,.1f} TB of burst buffer, and could never start",
                    where=f"--{machine}-buffer-tb {buffer_tb}",
                    hint=f"Give {-(-most // 1000)} or more.",
                )
            system = System(system.nodes, {BUFFER: 1000 * buffer_tb})
        return replace(workload, system=system, order=self.order or workload.order)


def _say_whose(workloads: Iterable[Workload]) -> None:
    """Print a note if the log is not Theta's."""
    from asa.backends.bbsched.system import NODES

    theirs = {workload.system.pools[NODES] for workload in workloads if workload.name.startswith("theta")}
    for nodes in theirs.difference(_THETA_NODES):
        sys.stderr.write(
            f"asa: the log's machine has {nodes:,} nodes, and Theta {_THETA_NODES[-1]:,}: what is called Theta here is "
            "that machine, with the requests of Theta's jobs.\n"
        )


def _no_windows() -> InputError:
    """Return the error for a scheduler with so few jobs that no window leaves a choice."""
    return InputError("nothing is to be decided among so few jobs", where="--jobs", hint="Give more of them.")


def _one_workload(
    name: str | None, theta: Path | None, buffer_tb: int | None, *, at_paper_rate: bool = False
) -> Workload:
    _refuse_buffer_of_none(buffer_tb, theta)
    text = ("cori-s4" if theta is None else "theta-s4") if name is None else name
    first, *others = _workload_names(text, theta, "--workload")
    if others:
        raise InputError("there can be one workload only", where=f"--workload {text}", hint=f"Name {first}, say.")
    how = _Making(theta, buffers_tb={"theta": buffer_tb}, at_paper_rate=at_paper_rate)
    made = how.load([first])[first]
    _say_whose([made])
    return made


def _refuse_buffer_of_none(buffer_tb: int | None, theta: Path | None) -> None:
    if buffer_tb is not None and theta is None:
        raise InputError(
            "there are no workloads of Theta without its log",
            where=f"--theta-buffer-tb {buffer_tb}",
            hint="Name the log with --theta LOG, or leave it out.",
        )


def _methods_for(workload: Workload, wanted: Collection[str]) -> list[str]:
    from .comparison import methods_for

    return [name for name in methods_for(workload) if name in wanted]

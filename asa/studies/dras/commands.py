"""``asa dras``: trains agents, and compares them with others on jobs that none of them has seen."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from asa.core.drawing import make_figure_folder
from asa.core.options import Output, OutputOption, check_known
from asa.errors import InputError
from asa.units import MAX_JOBS, MAX_RUNS, MAX_SEED, format_duration

from .arguments import CoresOption, SourceArgument, TrainDaysOption, ValidateDaysOption, figure_file
from .setup_commands import jobs, network, rewards

if TYPE_CHECKING:
    from asa.backends.dras.weights import Agent, Ranked
    from asa.core.intervals import Interval
    from asa.pool.executors import Elsewhere
    from asa.studies.dras.training import Episode, Phase, Training
    from asa.studies.present import Measure, Table

    from .asked import Order
    from .evaluation import MethodOutcome, Split

_SCHEMA = 1
_ORDERS: Final[tuple[tuple[Phase, ...], ...]] = (
    ("sampled", "real", "synthetic"),
    ("real", "sampled", "synthetic"),
    ("synthetic", "sampled", "real"),
    ("real",),
)

app = typer.Typer(
    help="""Schedule by an agent that learned, by reinforcement, which jobs to start, reserve for, and backfill.

    After Fan et al., "Deep Reinforcement Agent for Scheduling in HPC" (DRAS). Learning needs PyTorch.
    """,
    no_args_is_help=True,
)
app.command("jobs")(jobs)
app.command("network")(network)
app.command("rewards")(rewards)

_ConfigOption = Annotated[
    str,
    typer.Option(
        help="small, which takes some minutes of a core, or paper: for pg, dql and decima the network and sets that "
        "the paper has for Theta or, if nearer in size, for Cori. `asa dras network` prints both, and with --decisions "
        "how long they take here: reckoned from that, some hours on Theta, and one to two weeks on Cori. They learn on "
        "a GPU where PyTorch finds one; on one nothing was measured. For ppo one or two hours of a core, never a GPU."
    ),
]
_ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        help="What is learned, and what the best is chosen by. capability:WAIT,SIZE,USED is Equation 1, for large "
        "machines, with its weights (a third each, if not given); capacity is Equation 2, for many jobs, which counts "
        "the time asked for, and capacity:wait the time waited. pg, dql and decima are rewarded by it for each job "
        "selected; ppo pays for each hour that a job waits what it would add if it started. "
        "waiting:HOURS,REQUESTS, of ppo only, costs hours of waiting, and waiting as a multiple of the request, as in "
        "the slowdown (1 each). [default: waiting for ppo, else capability]",
        metavar="NAME[:WEIGHTS]",
        show_default=False,
    ),
]
_RewardOption = Annotated[
    str, typer.Option(help="Of Optimization: capability:WAIT,SIZE,USED or capacity.", metavar="NAME[:WEIGHTS]")
]
_SetsOption = Annotated[
    int | None, typer.Option(help="Synthetic sets, if not as many as --config has.", min=0, max=MAX_RUNS)
]
_JobsOption = Annotated[
    int | None, typer.Option(help="About so many jobs a set, if not as --config has.", min=10, max=MAX_JOBS)
]


@app.command()
def train(
    source: SourceArgument,
    *,
    out: Annotated[Path, typer.Option(help="Write the best agent here.", metavar="FILE.npz")] = Path("weights.npz"),
    agent: Annotated[
        str, typer.Option(help="ppo, which ranks jobs and is for any machine; or the paper's: pg, dql, decima.")
    ] = "ppo",
    config: _ConfigOption = "small",
    sets: _SetsOption = None,
    jobs: _JobsOption = None,
    objective: _ObjectiveOption = None,
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same agent.", min=0, max=MAX_SEED)] = 0,
    seeds: Annotated[
        int,
        typer.Option(
            help="So many trainings, with seeds from --seed on, each into FILE-SEED.npz.", min=1, max=MAX_RUNS
        ),
    ] = 1,
    executor: Annotated[
        str,
        typer.Option(
            help="Where trainings are done: local, in processes of this computer; dask:ADDRESS, on that scheduler's "
            "workers; pool, on allocations of the usual site.",
            metavar="local|dask:ADDRESS|pool",
        ),
    ] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was interrupted.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the learning curve into this file, or folder.", metavar="FILE")
    ] = None,
) -> None:
    """Train an agent in three phases: sampled jobs, real ones, and those of a model that is fitted to them.

    Each episode is printed as it ends. A folder FILE.npz.training beside FILE.npz holds a snapshot of each, from which
    --resume goes on. Only the log's first days are looked at; the others are for `asa dras evaluate`. The best
    is that of most worth: the objective on the --validate-days and on three sets of the model, each as a multiple of
    FCFS/EASY's there. Costs are below 0: with -0.4, waiting costs 40 % of what it does with FCFS/EASY.

    With --seeds several are trained side by side, one a core; what comes out does not depend on where.

    Example: `asa dras train theta.swf.gz --out theta.npz --plot curve.png`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.pool.executors import LOCAL, executor_of

    from .asked import Order, best_of, check, days_of, fill

    check(agent, config, objective)
    days = days_of(source, train_days, validate_days)
    orders = [
        Order(source, cores, days, agent, config, objective, sets, jobs, number, file)
        for number, file in _files(out, seed, seeds)
    ]
    for order in orders:
        _check_out(order, resume=resume)
    plot = figure_file(plot, "learning.png")
    if seeds == 1 and executor == LOCAL:
        [order] = orders
        done = {agent: fill(order, _Progress(agent, plot))}
    else:
        with executor_of(executor) as elsewhere:
            done = _fill_all(orders, elsewhere)
        if plot is not None:
            _draw_curves(done, plot)
    for order, episodes in zip(orders, done.values(), strict=True):
        _say(f"The best agent, of episode {best_of(episodes).number}, is written to {order.out}.")


@app.command()
def orders(
    source: SourceArgument,
    *,
    agent: Annotated[str, typer.Option(help="pg, dql, decima or ppo.")] = "pg",
    config: _ConfigOption = "small",
    sets: _SetsOption = None,
    jobs: _JobsOption = None,
    objective: _ObjectiveOption = None,
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    seed: Annotated[int, typer.Option(help="Of all trainings.", min=0, max=MAX_SEED)] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 4 into this file, or folder.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Train with the phases in several orders, and compare how well and how fast they converge (Fig. 4).

    Takes three to four times as long as one training.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.dras.training import Training
    from asa.studies.present import Table, console, print_json

    from .asked import best_of, check, config_of, days_of, kind_of, material_of, on_few_cores

    check(agent, config, objective)
    plot = figure_file(plot, "figure-4.png")
    material = material_of(source, cores, days_of(source, train_days, validate_days))
    size = config_of(config, agent, material, sets, jobs)
    on_few_cores(agent, config)
    done: dict[str, Training] = {}
    for order in _ORDERS:
        name = ", ".join(order)
        training = Training(material, size, **kind_of(agent, objective), order=order, seed=seed)
        _say(f"{name}\n{_heading()}")
        for episode in training:
            _say(_line(episode))
        done[name] = training
    if plot is not None:
        _draw_curves({name: training.episodes for name, training in done.items()}, plot)
    if output is Output.JSON:
        curves = {name: [asdict(episode) for episode in order.episodes] for name, order in done.items()}
        print_json({"schema": _SCHEMA, "agent": agent, "orders": curves})
        return
    headings = ["", "best episode", "worth", "reward", "mean wait (h)", "slowdown"]
    rows = []
    for name, training in done.items():
        best = best_of(training.episodes)
        curve = best.validation
        numbers = f"{best.worth:.3f}", f"{curve.reward:.3f}", f"{curve.mean_wait_s / 3600:.2f}", f"{curve.slowdown:.1f}"
        rows.append((name, str(best.number), *numbers))
    console().print(Table(headings, rows, "Order of the phases", is_wide=True))


@app.command()
def evaluate(
    source: SourceArgument,
    *,
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            help="An agent; may be given several times. Those of one kind are runs of one method. "
            "[default: the one of the package]",
            metavar="FILE.npz",
        ),
    ] = None,
    rivals: Annotated[
        str | None, typer.Option(help="Some, as fcfs-easy,sjf. [default: all]", metavar="R,R", show_default=False)
    ] = None,
    objective: _RewardOption = "capability",
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    seeds: Annotated[int, typer.Option(help="Runs of Random.", min=1, max=MAX_RUNS)] = 5,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Run agents also as ones that go on to learn (Fig. 9): pg, dql and decima after every ten passes, "
            "as in training, ppo each week.",
        ),
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw Figures 6 to 9 into this folder.", metavar="DIR")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare trained agents with others on the days of a log that are neither learned from nor chosen by.

    An agent that has seen any of these days is refused.

    Example: `asa dras evaluate theta.swf.gz --weights seed-0.npz --weights seed-1.npz`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import print_json

    from .asked import on_few_cores, reward_of, tested_days
    from .evaluation import RIVALS, check_adapts

    wanted = list(RIVALS) if rivals is None else [name.strip() for name in rivals.split(",")]
    for name in wanted:
        check_known(name, RIVALS, "--rivals")
    reward_of(objective)
    if plot is not None:
        make_figure_folder(plot)
    tested = tested_days(source, cores, train_days, validate_days)
    agents = _agents(tested, weights or [])
    if adapt:
        on_few_cores("ppo", "small")
        for _, agent in agents:
            check_adapts(agent)
    outcomes = list(_of_rivals(tested, wanted, objective, seeds))
    ours = list(_of_agents(tested, agents, adapt=adapt))
    outcomes += ours
    if output is Output.JSON:
        print_json(_as_dict(tested, outcomes))
    else:
        _print(tested, outcomes, list(dict.fromkeys(outcome.method for outcome in ours)))
    if plot is not None:
        from .pictures import draw_kiviat, draw_modes, draw_sizes, draw_weeks

        for number, draw in ((6, draw_kiviat), (7, draw_sizes), (8, draw_modes), (9, draw_weeks)):
            draw(outcomes, plot / f"figure-{number}.png")
        _say(f"Figures written to {plot}: figure-6.png to figure-9.png")


@app.command()
def ablation(
    source: SourceArgument,
    *,
    seeds: Annotated[
        int, typer.Option(help="Trainings of each variant, with seeds from 0 on.", min=1, max=MAX_RUNS)
    ] = 2,
    only: Annotated[
        str | None,
        typer.Option(
            help="Some variants, as no-bound,sjf; the whole agent is always there. [default: all]",
            metavar="V,V",
            show_default=False,
        ),
    ] = None,
    sets: Annotated[
        int | None,
        typer.Option(help="Synthetic sets of a training. [default: 4]", min=0, max=MAX_RUNS, show_default=False),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="About so many jobs a set. [default: 500]", min=10, max=MAX_JOBS, show_default=False),
    ] = None,
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Leave out the parts of ppo one by one, train the rest, and compare it on days that no agent has seen.

    There are sixteen trainings for each seed (--seeds), shorter than those of `asa dras train`: on a log as busy as
    Theta's about five minutes of a core together. --only takes the names that lines of the table begin with.

    Example: `asa dras ablation theta.swf.gz --only no-bound,no-level-2,by-request --seeds 3`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import print_json

    from .ablation import ABLATION, BRIEF, UNTRAINED
    from .ablation import ablation as run
    from .asked import on_few_cores, sized, tested_days

    wanted = None if only is None else [name.strip() for name in only.split(",")]
    for name in wanted or ():
        check_known(name, [*ABLATION, *UNTRAINED], "--only")
    tested = tested_days(source, cores, train_days, validate_days)
    size = sized(BRIEF if sets is None else replace(BRIEF, synthetic=sets), tested.material, jobs)
    on_few_cores("ppo", "small")
    outcomes = []
    began = time.perf_counter()
    for outcome in run(tested, size, seeds=seeds, names=wanted):
        _say(
            f"{outcome.method} {outcome.run}: mean wait {outcome.mean_wait_s / 3600:.2f} h, "
            f"slowdown {outcome.slowdown:.1f}, after {time.perf_counter() - began:.0f} s"
        )
        outcomes.append(outcome)
    words = {name: variant.words for name, variant in ABLATION.items()} | dict(UNTRAINED)
    if output is Output.JSON:
        document = _as_dict(tested, outcomes)
        document["variants"] = {name: words[name] for name in document["methods"]}
        print_json(document)
    else:
        _print_ablation(tested, outcomes, words)


# ---------------------------------------------------------------------- parameters


def _files(out: Path, seed: int, seeds: int) -> list[tuple[int, Path]]:
    """Return the file of each seed: with a single seed, the given one."""
    numbers = range(seed, seed + seeds)
    if seeds == 1 or out.is_dir():
        return [(number, out) for number in numbers]
    return [(number, out.with_stem(f"{out.stem}-{number}")) for number in numbers]


def _check_out(order: Order, *, resume: bool) -> None:
    out = order.out
    if out.is_dir():
        raise InputError("is a folder", where=f"--out {out}", hint="Name a file in it, as FILE.npz.")
    folder = order.folder
    if (folder / "training.npz").exists() and not resume:
        raise InputError(
            "holds a training already", where=str(folder), hint="Go on with it (--resume), or name another --out."
        )
    if not out.absolute().parent.is_dir():
        raise InputError("its folder does not exist", where=f"--out {out}", hint="Make the folder first.")


def _fill_all(orders: Sequence[Order], elsewhere: Elsewhere | None) -> dict[str, list[Episode]]:
    """Run several trainings in parallel, and report each as it ends; return their episodes in order."""
    from asa.studies.harness import run_cells

    from .asked import best_of, fill

    def tell(order: Order, episodes: Sequence[Episode]) -> None:
        best = _line(best_of(episodes)).removesuffix("  best").strip()
        _say(f"seed {order.seed}, {len(episodes)} episodes, the best: {best}")

    done = run_cells(fill, orders, elsewhere=elsewhere, on_end=tell)
    return {f"{order.agent}, seed {order.seed}": episodes for order, episodes in zip(orders, done, strict=True)}


def _of_rivals(tested: Split, wanted: Sequence[str], objective: str, seeds: int) -> Any:
    from .asked import reward_of
    from .evaluation import evaluate as run
    from .evaluation import rivals

    for name in wanted:
        for number in range(seeds if name == "random" else 1):
            make = rivals(reward_of(objective), number, usual_s=tested.material.usual_s)[name]
            yield run(tested.test, tested.material.nodes, make(), name, number)


def _agents(tested: Split, files: Sequence[Path]) -> list[tuple[str, Agent | Ranked]]:
    """Load agents, refusing those that have seen the test jobs; return them with names."""
    from asa.backends.dras.weights import load_agent, shipped

    from .evaluation import check_unseen

    if not files:
        agent = shipped()
        return [(f"{agent.name} (shipped)", agent)]
    agents = {str(file): load_agent(file, nodes=tested.material.nodes) for file in files}
    for file, each in agents.items():
        check_unseen(each, tested, file)
    return [(each.name, each) for each in agents.values()]


def _of_agents(tested: Split, agents: Sequence[tuple[str, Agent | Ranked]], *, adapt: bool) -> Any:
    from .evaluation import adapting
    from .evaluation import evaluate as run

    nodes = tested.material.nodes
    counts: dict[str, int] = {}
    for name, agent in agents:
        number = counts[name] = counts.get(name, -1) + 1
        yield run(tested.test, nodes, agent.scheduler(), name, number)
        if adapt:
            learning = adapting(agent, tested.test, nodes, seed=number)
            yield run(tested.test, nodes, learning, f"{name}, adapting", number)


# ---------------------------------------------------------------------- printing


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _heading() -> str:
    return "episode  set         jobs  updates   worth   on validation: reward  mean wait    longest  slowdown     took"


def _line(episode: Episode) -> str:
    curve = episode.validation
    return (
        f"{episode.number:7}  {episode.phase:9} {episode.jobs:6} {episode.updates:8} {episode.worth:7.3f} "
        f"{curve.reward:23.3f} "
        f"{format_duration(curve.mean_wait_s):>10} {format_duration(curve.max_wait_s):>10} {curve.slowdown:9.1f} "
        f"{format_duration(episode.seconds):>8}{'  best' if episode.best else ''}"
    )


@dataclass(slots=True)
class _Progress:
    """Prints a heading when the training begins, then each episode as it ends, and draws the curve."""

    agent: str
    plot: Path | None
    printed: int | None = None

    def __call__(self, episodes: Sequence[Episode]) -> None:
        if self.printed is None:
            _say(_heading())
            self.printed = 0
        for episode in episodes[self.printed :]:
            _say(_line(episode))
        self.printed = len(episodes)
        if episodes and self.plot is not None:
            _draw_curves({self.agent: episodes}, self.plot)


def _draw_curves(curves: Mapping[str, Sequence[Episode]], path: Path) -> None:
    from .pictures import draw_curves

    draw_curves(curves, path)


def _as_dict(tested: Split, outcomes: Sequence[MethodOutcome]) -> dict[str, Any]:
    from .tables import MEASURES, grouped, of

    def summary(some: Sequence[MethodOutcome], measure: str) -> dict[str, float | None]:
        interval = of(some, measure)
        return {"mean": interval.mean, "half_95": None if math.isnan(interval.half) else interval.half}

    return {
        "schema": _SCHEMA,
        "log": tested.name,
        "nodes": tested.material.nodes,
        "learned_from": tested.material.source,
        "test": {"from_day": tested.from_day, "jobs": len(tested.test)},
        "methods": {
            name: {measure.name: summary(some, measure.name) for measure in MEASURES}
            for name, some in grouped(outcomes).items()
        },
        "runs": [outcome.as_dict() for outcome in outcomes],
    }


def _print(tested: Split, outcomes: Sequence[MethodOutcome], ours: Sequence[str]) -> None:
    from asa.studies.present import Table, console, number

    from .tables import MEASURES, grouped, of, sizes, target

    out, methods = console(), grouped(outcomes)
    rows = [
        (_narrow(name), str(len(some)), *(_cell(of(some, measure.name), measure) for measure in MEASURES))
        for name, some in methods.items()
    ]
    headings = ["", "runs", *(measure.words for measure in MEASURES)]
    out.print(Table(headings, rows, _tested(tested), wraps=range(1, len(headings))))
    out.print(_modes(methods))
    headings = ["", *(f"{100 * part.to:g}" for part in sizes(outcomes))]
    rows = [(name, *(number(part.mean_wait_s, None) for part in sizes(some))) for name, some in methods.items()]
    out.print(Table(headings, rows, "Mean wait by width, up to % of the machine", is_wide=True))
    for name in ours:
        verdicts = target(methods, name)
        is_bounded = verdicts.pop("longest wait", None)
        words = {True: "yes", False: "no", None: "unknown, as one training gives no interval"}
        if verdicts:
            verdict = "; ".join(f"{rival}: {words[is_met]}" for rival, is_met in verdicts.items())
            out.print(f"{name}: are its mean wait and its slowdown significantly less? Than {verdict}.", style="dim")
        if is_bounded is not None:
            out.print(f"{name}: is its longest wait at most 1.5 times fcfs-easy's? {words[is_bounded]}.", style="dim")


def _cell(interval: Interval, measure: Measure) -> str:
    from asa.studies.present import plus_minus

    return plus_minus(measure.scaled(interval), measure.digits).replace(",", "")


def _narrow(name: str) -> str:
    """Break a name before what is added to it in brackets, so that a narrow terminal cuts off nothing."""
    return name.replace(" (", "\n(")


def _tested(tested: Split) -> str:
    return f"{tested.name}: {len(tested.test)} jobs from day {tested.from_day + 1} on, {tested.material.nodes} nodes"


def _print_ablation(tested: Split, outcomes: Sequence[MethodOutcome], words: Mapping[str, str]) -> None:
    from asa.studies.present import Table, console

    from .ablation import FULL
    from .tables import MEASURES, change, grouped, of

    wait, longest, slowdown = MEASURES[:3]
    methods = grouped(outcomes)
    rows = []
    for name, some in methods.items():
        cells = []
        for measure in (wait, slowdown):
            cells.append(_cell(of(some, measure.name), measure))
            cells.append("" if name == FULL else _cell(change(some, methods[FULL], measure.name), measure))
        rows.append((name, *cells, _cell(of(some, longest.name), longest)))
    headings = ["", wait.words, f"beyond {FULL}", slowdown.words, f"beyond {FULL}", longest.words]
    title = f"{_tested(tested)}; {len(methods[FULL])} trainings each"
    out = console()
    out.print(Table(headings, rows, title, wraps=range(1, len(headings)), is_wide=True))
    for name in methods:
        out.print(f"{name}: {words[name]}", style="dim")


def _modes(methods: Mapping[str, Sequence[MethodOutcome]]) -> Table:
    from asa.studies.present import Row, Table, number

    from .paper import TABLE_IV
    from .tables import modes

    rows: list[Row] = []
    for name, some in methods.items():
        theirs = TABLE_IV.get(name, {})
        for index, (mode, of_mode) in enumerate(modes(some).items()):
            ours = (
                number(100 * of_mode.jobs, 2),
                number(100 * of_mode.core_hours, 2),
                number(of_mode.mean_wait_s, None),
            )
            papers = (number(value, 2) for value in theirs.get(mode, (math.nan, math.nan)))
            cells = ("" if index else _narrow(name), mode, *ours, *papers)
            rows.append(Row(cells, begins_section=not index and bool(rows)))
    headings = ["", "mode", "jobs (%)", "core-\nhours (%)", "mean wait", "paper's jobs", "core-\nhours"]
    title = "Table IV: jobs and core-hours by how jobs started, and their mean waits (Fig. 8)"
    return Table(headings, rows, title, left=(0, 1), wraps=range(2, len(headings)))

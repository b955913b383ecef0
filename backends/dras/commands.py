"""``asa dras``: agents trained, and compared with others on jobs that none of them has seen."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from asa.errors import InputError, UnknownNameError, near

if TYPE_CHECKING:
    from asa.backends.simulated.swf import Trace
    from rich.console import Console
    from rich.table import Table

    from .evaluation import Outcome, Split
    from .training import Config, Episode, Material, Phase, Training

__all__ = ["app"]

_SCHEMA = 1
_AGENTS: Final = ("ppo", "pg", "dql", "decima")
_CONFIGS: Final = ("small", "paper")
_SYSTEMS: Final = ("hpc2n", "uppmax")
_CORI: Final = "cori"
_CORI_DAYS = 63
_ORDERS: Final[tuple[tuple[Phase, ...], ...]] = (
    ("sampled", "real", "synthetic"),
    ("real", "sampled", "synthetic"),
    ("synthetic", "sampled", "real"),
    ("real",),
)

app = typer.Typer(
    help="""An agent that learns by reinforcement which job to start, to reserve for, and to backfill.

    After Fan et al., "Deep Reinforcement Agent for Scheduling in HPC" (DRAS). Learning needs PyTorch.
    """,
    no_args_is_help=True,
)

_Source = Annotated[
    str,
    typer.Argument(
        help="A workload log (SWF, plain or .gz); cori, drawn from a model; or hpc2n or uppmax, the built-in model.",
        metavar="TRACE",
    ),
]
_CoresOption = Annotated[
    int | None, typer.Option(help="Processors of a log's machine, if its header does not say, or of a smaller hpc2n.")
]
_TrainDays = Annotated[int, typer.Option(help="Agents learn from so many of the log's first days.", min=1)]
_ValidateDays = Annotated[int, typer.Option(help="The best is chosen by so many days after these.", min=1)]
_ConfigOption = Annotated[
    str,
    typer.Option(
        help="small, which takes some minutes of a core, or paper: for pg, dql and decima the full network and "
        "320,000 jobs, on Theta 2 (pg) to 8 (dql) hours of a core; for ppo an hour."
    ),
]
_ObjectiveOption = Annotated[
    str, typer.Option(help="Of pg, dql and decima, and Optimization: capability (Equation 1) or capacity (Equation 2).")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, and no tables.")]
_SetsOption = Annotated[int | None, typer.Option(help="Synthetic sets, if not as many as --config has.", min=0)]
_JobsOption = Annotated[int | None, typer.Option(help="About so many jobs a set, if not as --config has.", min=10)]


@app.command()
def train(
    source: _Source,
    *,
    out: Annotated[Path, typer.Option(help="Write the best agent here.", metavar="FILE.npz")] = Path("weights.npz"),
    agent: Annotated[
        str, typer.Option(help="ppo, which ranks jobs and is for any machine; or the paper's: pg, dql, decima.")
    ] = "ppo",
    config: _ConfigOption = "small",
    sets: _SetsOption = None,
    jobs: _JobsOption = None,
    objective: _ObjectiveOption = "capability",
    cores: _CoresOption = None,
    train_days: _TrainDays = 90,
    validate_days: _ValidateDays = 30,
    seed: Annotated[int, typer.Option(help="The same seed gives the same agent.", min=0)] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was interrupted.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the learning curve into this file, or folder.", metavar="FILE")
    ] = None,
) -> None:
    """Train an agent in three phases: sampled jobs, real ones, and those of a model that is fitted to them.

    Each episode is printed as it ends. Beside FILE.npz there is a folder FILE.training with a snapshot of each, from
    which --resume goes on. Only the log's first days are looked at; the others are for `asa dras evaluate`.

    Example: `asa dras train theta.swf.gz --out theta.npz --plot curve.png`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .training import Training
    from .weights import save_agent

    _check(agent, config, objective)
    folder = out.with_suffix(".training")
    if (folder / "training.npz").exists() and not resume:
        raise InputError(
            "holds a training already", where=str(folder), hint="Go on with it (--resume), or name another --out."
        )
    if not out.absolute().parent.is_dir():
        raise InputError("its folder does not exist", where=f"--out {out}", hint="Make the folder first.")
    plot = _figure(plot, "learning.png")
    material = _material(source, cores, train_days, validate_days)
    size = _config(config, agent, material, sets, jobs)
    words = f"asa dras train {source} --agent {agent} --config {config} --seed {seed}"
    words += f" --train-days {train_days} --validate-days {validate_days}"
    given = {"sets": sets, "jobs": jobs, "cores": cores}
    words += "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    if agent != "ppo":
        words += f" --objective {objective}"
    _on_few_cores(agent, config)
    training = Training(
        material, size, **_kind(agent), reward=_objective(objective), seed=seed, folder=folder, command=words
    )
    _say(_heading())
    for episode in training.episodes:
        _say(_line(episode))
    if plot is not None and training.is_over:
        _draw_curves({agent: training.episodes}, plot)
    for episode in training:
        _say(_line(episode))
        if plot is not None:
            _draw_curves({agent: training.episodes}, plot)
    assert training.best is not None
    save_agent(training.best, out)
    _say(f"The best agent, of episode {_best(training).number}, is written to {out}.")


@app.command()
def orders(
    source: _Source,
    *,
    agent: Annotated[str, typer.Option(help="pg, dql, decima or ppo.")] = "pg",
    config: _ConfigOption = "small",
    sets: _SetsOption = None,
    jobs: _JobsOption = None,
    objective: _ObjectiveOption = "capability",
    cores: _CoresOption = None,
    train_days: _TrainDays = 90,
    validate_days: _ValidateDays = 30,
    seed: Annotated[int, typer.Option(help="Of all trainings.", min=0)] = 0,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 4 into this file, or folder.", metavar="FILE")] = None,
    as_json: _JsonOption = False,
) -> None:
    """Train with the phases in several orders, and compare how well and how fast they converge (Fig. 4).

    Takes three to four times as long as one training.

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .training import Training

    _check(agent, config, objective)
    plot = _figure(plot, "figure-4.png")
    material = _material(source, cores, train_days, validate_days)
    size = _config(config, agent, material, sets, jobs)
    _on_few_cores(agent, config)
    done: dict[str, Training] = {}
    for order in _ORDERS:
        name = ", ".join(order)
        _say(f"{name}\n{_heading()}")
        training = Training(material, size, **_kind(agent), reward=_objective(objective), order=order, seed=seed)
        for episode in training:
            _say(_line(episode))
        done[name] = training
    if plot is not None:
        _draw_curves({name: training.episodes for name, training in done.items()}, plot)
    if as_json:
        curves = {name: [asdict(episode) for episode in one.episodes] for name, one in done.items()}
        sys.stdout.write(json.dumps({"schema": _SCHEMA, "agent": agent, "orders": curves}, indent=1) + "\n")
        return
    table = _table("Order of the phases", ("best episode", "reward", "mean wait (h)", "slowdown"))
    for name, training in done.items():
        best = _best(training)
        found = best.validation
        table.add_row(
            name,
            str(best.number),
            f"{found.reward:.3f}",
            f"{found.mean_wait_s / 3600:.2f}",
            f"{found.slowdown:.1f}",
        )
    _console().print(table)


@app.command()
def evaluate(
    source: _Source,
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
    objective: _ObjectiveOption = "capability",
    cores: _CoresOption = None,
    train_days: _TrainDays = 90,
    validate_days: _ValidateDays = 30,
    seeds: Annotated[int, typer.Option(help="Runs of Random.", min=1)] = 5,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Run ppo agents also as ones that go on to learn each week (Fig. 9).")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw Figures 6 to 9 into this folder.", metavar="DIR")] = None,
    as_json: _JsonOption = False,
) -> None:
    """Compare trained agents with others on the days of a log that are neither learned from nor chosen by.

    An agent that has seen any of these days is refused.

    Example: `asa dras evaluate theta.swf.gz --weights seed-0.npz --weights seed-1.npz`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from .evaluation import RIVALS

    wanted = list(RIVALS) if rivals is None else [name.strip() for name in rivals.split(",")]
    for name in wanted:
        _known(name, RIVALS, "--rivals")
    _objective(objective)
    if plot is not None:
        _folder(plot)
    tested = _split(source, cores, train_days, validate_days)
    if tested is None:
        raise InputError("is a model, which has no days to test on", where=source, hint="Give a log (SWF), or cori.")
    outcomes = list(_of_rivals(tested, wanted, objective, seeds))
    agents = list(_of_agents(tested, weights or [], adapt=adapt))
    outcomes += agents
    if as_json:
        sys.stdout.write(json.dumps(_as_dict(tested, outcomes), indent=1, allow_nan=False) + "\n")
    else:
        _print(tested, outcomes, list(dict.fromkeys(one.method for one in agents)))
    if plot is not None:
        from .pictures import draw_kiviat, draw_modes, draw_sizes, draw_weeks

        for number, draw in ((6, draw_kiviat), (7, draw_sizes), (8, draw_modes), (9, draw_weeks)):
            draw(outcomes, plot / f"figure-{number}.png")
        _say(f"Figures written to {plot}: figure-6.png to figure-9.png")


# ---------------------------------------------------------------------- what is asked for


def _known(name: str, known: Sequence[str], option: str) -> None:
    if name not in known:
        raise UnknownNameError(
            f"{name!r} is unknown", where=option, hint=f"{near(name, known)}Known: {', '.join(known)}."
        )


def _figure(plot: Path | None, name: str) -> Path | None:
    """Say where a figure goes: a file, or one of that name in a folder, which is made."""
    if plot is None:
        return None
    from asa.drawing import check_figure_path

    if plot.is_dir() or not plot.suffix:
        _folder(plot)
        plot /= name
    check_figure_path(plot)
    return plot


def _folder(plot: Path) -> None:
    from asa.drawing import check_figure_path

    try:
        plot.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot be made a folder: {error.strerror}", where=f"--plot {plot}", hint="Name another."
        ) from error
    check_figure_path(plot / "figure.png")


def _check(agent: str, config: str, objective: str) -> None:
    _known(agent, _AGENTS, "--agent")
    _known(config, _CONFIGS, "--config")
    _objective(objective)


def _on_few_cores(agent: str, config: str) -> None:
    """Keep small networks on one core, where more would mostly wait for each other."""
    if agent == "ppo" or config == "small":
        from .network import pytorch

        pytorch().set_num_threads(1)


def _kind(agent: str) -> dict[str, Any]:
    return {"kind": "pg", "levels": 1} if agent == "decima" else {"kind": agent}


def _objective(name: str) -> Any:
    from .rivals import REWARDS

    _known(name, list(REWARDS), "--objective")
    return REWARDS[name]()


def _config(name: str, agent: str, material: Material, sets: int | None, jobs: int | None) -> Config:
    from .training import PAPER, PROXIMAL_PAPER, PROXIMAL_SMALL, SMALL

    known = {"ppo": (PROXIMAL_SMALL, PROXIMAL_PAPER)}.get(agent, (SMALL, PAPER))
    config = known[_CONFIGS.index(name)]
    if jobs is not None:
        config = replace(config, jobs=jobs)
    if jobs is not None or agent == "ppo":
        table = material.training
        days = max(int(table.submit[-1] - table.submit[0]), 1) / 86400
        config = replace(config, days=min(max(round(config.jobs * days / len(table)), 1), config.days))
    return config if sets is None else replace(config, synthetic=sets)


def _material(source: str, cores: int | None, train_days: int, validate_days: int) -> Material:
    tested = _split(source, cores, train_days, validate_days)
    if tested is not None:
        return tested.material
    from asa.backends.simulated.machine import Machine
    from asa.backends.simulated.presets import preset

    from .training import Material, Varied

    model = preset(source)
    if cores is not None:
        if cores < 64:
            raise InputError(f"{cores} cores are too few", where=f"--cores {cores}", hint="Give 64 or more.")
        widest = min(model.log2_widest, math.log2(cores))
        model = replace(model, machine=Machine(source, cores, 1), log2_widest=widest)
    day = 86400
    training, validation = (
        model.generate(days * day, number) for number, days in enumerate((train_days, validate_days))
    )
    words = f"the built-in workload model of {source}, {model.machine.cores} cores"
    return Material(model.machine.cores, training, validation, Varied(model), words)


def _split(source: str, cores: int | None, train_days: int, validate_days: int) -> Split | None:
    """Cut a log up; none for a model without end."""
    if source in _SYSTEMS:
        return None
    from .evaluation import split

    return split(_trace(source, cores), train_days=train_days, validate_days=validate_days)


def _trace(source: str, cores: int | None) -> Trace:
    if source != _CORI:
        from asa.backends.simulated.swf import read_swf

        return read_swf(source, cores=cores, exceed="kill")
    from asa.backends.bbsched.workloads import cori

    from .evaluation import trace_of

    workload = cori(days=_CORI_DAYS)["cori-original"]
    return trace_of(workload.table, workload.system.totals[0], _CORI)


def _of_rivals(tested: Split, wanted: Sequence[str], objective: str, seeds: int) -> Any:
    from .evaluation import evaluate as run
    from .evaluation import rivals

    for name in wanted:
        for number in range(seeds if name == "random" else 1):
            make = rivals(_objective(objective), number, usual_s=tested.material.usual_s)[name]
            yield run(tested.test, tested.material.nodes, make(), name, number)


def _of_agents(tested: Split, files: Sequence[Path], *, adapt: bool) -> Any:
    from .evaluation import adapting, check_unseen
    from .evaluation import evaluate as run
    from .weights import Ranked, load_agent, shipped

    nodes = tested.material.nodes
    agents = {str(file): load_agent(file, nodes=nodes) for file in files} or {"shipped": shipped()}
    counts: dict[str, int] = {}
    for file, agent in agents.items():
        check_unseen(agent, tested, file)
        name = agent.name if files else f"{agent.name} (shipped)"
        number = counts[name] = counts.get(name, -1) + 1
        yield run(tested.test, nodes, agent.scheduler(), name, number)
        if adapt and isinstance(agent, Ranked):
            learning = adapting(agent, tested.test, nodes, seed=number)
            yield run(tested.test, nodes, learning, f"{name}, adapting", number)


# ---------------------------------------------------------------------- printing


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _heading() -> str:
    return "episode  set         jobs  updates   on validation: reward  mean wait    longest  slowdown     took"


def _line(episode: Episode) -> str:
    found = episode.validation
    return (
        f"{episode.number:7}  {episode.phase:9} {episode.jobs:6} {episode.updates:8} {found.reward:23.3f} "
        f"{found.mean_wait_s / 3600:8.2f} h {found.max_wait_s / 3600:8.1f} h {found.slowdown:9.1f} "
        f"{episode.seconds:6.1f} s{'  best' if episode.best else ''}"
    )


def _best(training: Training) -> Episode:
    return next(episode for episode in reversed(training.episodes) if episode.best)


def _draw_curves(curves: Mapping[str, Sequence[Episode]], path: Path) -> None:
    from .pictures import draw_curves

    draw_curves(curves, path)


def _as_dict(tested: Split, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    from .tables import MEASURES, grouped, of

    def told(some: Sequence[Outcome], measure: str) -> dict[str, float | None]:
        found = of(some, measure)
        return {"mean": found.value, "half_95": None if math.isnan(found.half) else found.half}

    return {
        "schema": _SCHEMA,
        "log": tested.name,
        "nodes": tested.material.nodes,
        "learned_from": tested.material.source,
        "test": {"from_day": tested.from_day, "jobs": len(tested.test)},
        "methods": {
            name: {one.name: told(some, one.name) for one in MEASURES} for name, some in grouped(outcomes).items()
        },
        "runs": [one.as_dict() for one in outcomes],
    }


def _print(tested: Split, outcomes: Sequence[Outcome], ours: Sequence[str]) -> None:
    from .tables import MEASURES, grouped, of, sizes, target

    console, methods = _console(), grouped(outcomes)
    table = _table(
        f"{tested.name}: {len(tested.test)} jobs from day {tested.from_day + 1} on, {tested.material.nodes} nodes",
        ("runs", *(one.words for one in MEASURES)),
    )
    for name, some in methods.items():
        cells = []
        for one in MEASURES:
            found = of(some, one.name)
            half = "" if math.isnan(found.half) else f" +-{one.scale * found.half:.{one.digits}f}"
            cells.append(f"{one.scale * found.value:.{one.digits}f}{half}")
        table.add_row(name, str(len(some)), *cells)
    console.print(table)
    _print_modes(console, methods)
    table = _table("Mean wait (h) by width, up to % of the machine", [f"{100 * p.to:g}" for p in sizes(outcomes)])
    for name, some in methods.items():
        table.add_row(name, *(f"{part.mean_wait_s / 3600:.2f}" for part in sizes(some)))
    console.print(table)
    for name in ours:
        verdicts = (f"{rival}: {'yes' if is_met else 'no'}" for rival, is_met in target(methods, name).items())
        console.print(
            f"{name} beats, on mean wait and slowdown, beyond the interval, who reserves; and its longest wait is "
            f"within 1.5 of fcfs-easy's: {', '.join(verdicts)}",
            style="dim",
        )


def _print_modes(console: Console, methods: Mapping[str, Sequence[Outcome]]) -> None:
    from .paper import TABLE_IV
    from .tables import modes

    kinds = ("backfilled", "ready", "reserved")
    headings = [f"{kind}\n{what}" for kind in kinds for what in ("jobs", "core-hours", "wait (h)")]
    table = _table("Table IV, in percent, and mean waits by mode (Fig. 8); the paper's below ours", headings)
    for name, some in methods.items():
        told = modes(some)
        if not told:
            continue
        cells = [
            cell
            for kind in kinds
            for cell in (
                f"{100 * told[kind].jobs:.2f}",
                f"{100 * told[kind].core_hours:.2f}",
                f"{told[kind].mean_wait_s / 3600:.2f}",
            )
        ]
        table.add_row(name, *cells)
        if name in TABLE_IV:
            theirs = (TABLE_IV[name][kind] for kind in kinds)
            table.add_row("  paper", *(c for jobs, hours in theirs for c in (f"{jobs:.2f}", f"{hours:.2f}", "")))
    console.print(table)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _table(title: str, columns: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table

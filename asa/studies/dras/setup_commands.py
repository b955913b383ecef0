"""``asa dras jobs``, ``network`` and ``rewards``: the paper's set-up and its trainings (Section IV), of our logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.core.drawing import make_figure_folder
from asa.core.options import Output, OutputOption, check_known, known_names
from asa.units import MAX_JOBS, MAX_RUNS

from .arguments import CoresOption, SourceArgument, TrainDaysOption, ValidateDaysOption, figure_file

if TYPE_CHECKING:
    from asa.studies.present import Table

    from .networks import DescribedNetwork
    from .patterns import LogPatterns

_SCHEMA = 1


def jobs(
    sources: Annotated[
        list[str],
        typer.Argument(help="Workload logs (SWF, plain or .gz), or cori, drawn from a model.", metavar="TRACE..."),
    ],
    *,
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw Figures 2 and 3 into this folder.", metavar="DIR")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe the jobs of logs: all by size, and those that agents learn from by arrival, size and request.

    Beside the jobs of the log are those that the third phase of training learns from, which are drawn from a model.
    Times of day and days of the week are the log's, or UTC if its header does not say.

    Example: `asa dras jobs theta.swf.gz cori --plot figures`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import console, print_json

    from .asked import tested_days
    from .patterns import describe_log

    if plot is not None:
        make_figure_folder(plot)
    found = [describe_log(tested_days(source, cores, train_days, validate_days)) for source in sources]
    if output is Output.JSON:
        print_json({"schema": _SCHEMA, "logs": [one.as_dict() for one in found]})
    else:
        for one in found:
            for table in _of_jobs(one):
                console().print(table)
    if plot is not None:
        from .pictures import draw_job_sizes, draw_patterns

        draw_job_sizes(found, plot / "figure-2.png")
        draw_patterns(found, plot / "figure-3.png")


def network(
    source: SourceArgument,
    *,
    config: Annotated[str, typer.Option(help="paper, or small.")] = "paper",
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    decisions: Annotated[
        int,
        typer.Option(
            help="Also measure how long decisions and updates take here, while pg and dql learn from so many decisions "
            "on sampled jobs. At Cori's size that takes 5 GB. Needs PyTorch.",
            min=0,
            max=MAX_JOBS,
        ),
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the networks of pg and dql for a machine, as Table III does, what they learn from, and how long they take.

    --config paper has the layers and the sampled sets of Theta or of Cori: of whichever is nearer in size to the
    machine. Other sets are weeks of the log and of its model.

    Example: `asa dras network cori --decisions 200`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import console, print_json

    from .asked import CONFIGS, config_of, days_of, material_of
    from .networks import NETWORKS, describe_network, jobs_of, measure

    check_known(config, CONFIGS, "--config")
    material = material_of(source, cores, days_of(source, train_days, validate_days))
    found = []
    for kind in NETWORKS:
        size = config_of(config, kind, material, None, None)
        one = describe_network(kind, material.nodes, size)
        found.append(measure(one, kind, material, size, decisions) if decisions else one)
    sets = jobs_of(material, size)
    if output is Output.JSON:
        networks = [one.as_dict() for one in found]
        print_json({"schema": _SCHEMA, "nodes": material.nodes, "networks": networks, "jobs": sets})
        return
    console().print(_of_networks(found, f"Table III: {Path(source).name}, {material.nodes} nodes, --config {config}"))
    phases = (f"{len(some)} {phase} sets of {sum(some):,} jobs" for phase, some in sets.items())
    console().print(f"Learned from: {', '.join(phases)}.", style="dim")


def rewards(
    source: SourceArgument,
    *,
    weights: Annotated[
        list[Path],
        typer.Option(
            help="An agent of `asa dras train`, beside which the folder of its training is; may be given several "
            "times. Those of one kind are runs of one method.",
            metavar="FILE.npz",
        ),
    ],
    rivals: Annotated[
        str | None,
        typer.Option(
            help="Some of fcfs-easy, bin-packing, random, optimization. [default: all]",
            metavar="R,R",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What agents were rewarded by: capability:WAIT,SIZE,USED or capacity.")
    ] = "capability",
    cores: CoresOption = None,
    train_days: TrainDaysOption = None,
    validate_days: ValidateDaysOption = None,
    seeds: Annotated[int, typer.Option(help="Runs of Random.", min=1, max=MAX_RUNS)] = 5,
    plot: Annotated[Path | None, typer.Option(help="Draw Figure 5 into this file, or folder.", metavar="FILE")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the total reward on the validation set, episode by episode, with that of other methods (Fig. 5).

    All methods select the same jobs, each once, so that their totals can be compared. Agents are scored after each
    episode, without learning: pg and decima then take the likeliest job. ppo learns by costs, and is not compared.

    Example: `asa dras rewards theta.swf.gz --weights pg.npz --weights dql.npz --plot figure-5.png`

    Exit codes: 0 done, 2 the input cannot be used.
    """
    from asa.studies.present import console, print_json

    from .asked import reward_of, tested_days
    from .totals import REWARDED, of_agents, of_rivals

    wanted = list(REWARDED) if rivals is None else known_names(rivals, REWARDED, "--rivals")
    reward = reward_of(objective)
    plot = figure_file(plot, "figure-5.png")
    tested = tested_days(source, cores, train_days, validate_days)
    agents = of_agents(weights, tested, reward)
    others = of_rivals(wanted, tested, reward, seeds)
    if output is Output.JSON:
        document = {"schema": _SCHEMA, "log": tested.name, "objective": objective, "agents": agents, "rivals": others}
        print_json(document | {"validation": {"jobs": len(tested.material.validation)}})
    else:
        title = f"Total reward on the {len(tested.material.validation)} jobs of {tested.name} that agents are chosen by"
        console().print(_of_rewards(agents, others, title))
    if plot is not None:
        from .pictures import draw_rewards

        draw_rewards(agents, others, plot)


# ---------------------------------------------------------------------- printing


def _of_jobs(log: LogPatterns) -> list[Table]:
    from asa.studies.present import Table, number

    from .patterns import DAYS, PARTS

    two = (log.learned, log.drawn)
    sizes = [
        (one.name, *(number(100 * share, 1) for share in (one.jobs, one.core_hours, *(part.jobs for part in others))))
        for one, *others in zip(log.all.sizes, *(patterns.sizes for patterns in two), strict=True)
    ]
    hours = [f"{3 * at:02}-{3 * at + 3:02}" for at in range(8)]
    blocks = [[sum(patterns.hours[3 * at : 3 * at + 3]) / 3 for at in range(8)] for patterns in two]
    parts = [f"{100 * part // PARTS}" for part in range(1, PARTS + 1)]
    headings = ["nodes", "jobs (%)", "core-hours (%)", "learned from (%)", "drawn (%)"]
    names = (f"learned from: {log.learned.jobs}", f"drawn: {log.drawn.jobs}")
    return [
        Table(headings, sizes, f"{log.log}: {log.all.jobs} jobs by size, on {log.nodes} nodes (Figs. 2, 3c)"),
        _rows("Jobs a day, by day of the week (Fig. 3a)", DAYS, names, [one.weekdays for one in two]),
        _rows("Jobs an hour, by hour of the day (Fig. 3b)", hours, names, blocks),
        _rows(
            "Jobs (%) by run time, up to % of what was requested (Fig. 3d)",
            parts,
            names,
            [[100 * share for share in one.accuracy] for one in two],
        ),
    ]


def _rows(title: str, headings: Sequence[str], names: Sequence[str], values: Sequence[Sequence[float]]) -> Table:
    from asa.studies.present import Table, number

    rows = [(name, *(number(value, 1) for value in some)) for name, some in zip(names, values, strict=True)]
    return Table(["jobs", *headings], rows, title)


def _of_networks(found: Sequence[DescribedNetwork], title: str) -> Table:
    from asa.studies.present import Table, number

    def milliseconds(seconds: float | None, digits: int) -> str:
        return "-" if seconds is None else number(1000 * seconds, digits)

    rows = {
        "input": [f"{one.rows} x 2" for one in found],
        "fully connected layer 1": [str(one.hidden[0]) for one in found],
        "fully connected layer 2": [str(one.hidden[1]) for one in found],
        "output": [str(one.outputs) for one in found],
        "parameters": [f"{one.parameters:,}" for one in found],
        "parameters in the paper": [f"{one.papers:,}" if one.papers else "-" for one in found],
    }
    if any(one.decision_s is not None for one in found):
        rows |= {
            "decision, median (ms)": [milliseconds(one.decision_s, 1) for one in found],
            "update, median (ms)": [milliseconds(one.update_s, 0) for one in found],
            "updates": [str(one.updates) for one in found],
        }
    return Table(["", *(one.agent for one in found)], [(words, *cells) for words, cells in rows.items()], title)


def _of_rewards(
    agents: Mapping[str, Sequence[Sequence[float]]], others: Mapping[str, Sequence[float]], title: str
) -> Table:
    from asa.core.intervals import mean_interval
    from asa.studies.present import Table, plus_minus

    def mean(values: Sequence[float]) -> str:
        return plus_minus(mean_interval(list(values)), 1)

    rows = [(name, str(len(totals)), "", "", mean(totals)) for name, totals in others.items()]
    for name, runs in agents.items():
        best = [max(totals) for totals in runs]
        after = ", ".join(str(totals.index(most) + 1) for totals, most in zip(runs, best, strict=True))
        rows.append((name, str(len(runs)), mean(best), after, mean([totals[-1] for totals in runs])))
    return Table(["", "runs", "best", "of episode", "last, or only"], rows, title)

"""``asa show``: draws a workflow's graph on the terminal, with the resources of each stage and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.asked import CoresOption
from asa.cli.completing import complete_workflows
from asa.cli.given import ParamsOption, given_parameters, unknown_workflow
from asa.cli.kinds import size_document
from asa.cli.runs import print_document
from asa.cli.terminal import counted
from asa.core.options import Output, OutputOption
from asa.errors import InputError
from asa.units import MAX_CORES, format_duration, per_job

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.table import Table

    from asa.workflow import Stage, Workflow

_WORDS = 60


def show(
    workflow: Annotated[
        str,
        typer.Argument(
            help="A workflow file (.toml), or with --cores an installed workflow such as montage.",
            autocompletion=complete_workflows,
        ),
    ],
    parameters: ParamsOption = None,
    cores: CoresOption = None,
    cores_per_node: Annotated[
        int | None,
        typer.Option(
            help="Cores of a node, to count the cores of stages that ask for nodes.",
            min=1,
            max=MAX_CORES,
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Draw a workflow: its stages, their dependencies, and their resources.

    The width of a box shows the number of cores, where there is space. Below the drawing: the widest stage, the
    critical path, and the core-hours.
    """
    flow = _workflow(workflow, cores, dict(given_parameters(parameters)))
    facts = _facts(flow, cores_per_node)
    if output is Output.JSON:
        _print_json(flow, facts)
    else:
        _print(flow, facts)


def _workflow(given: str, cores: int | None, parameters: dict[str, str]) -> Workflow:
    from asa.core import plugins
    from asa.spec import load_workflow

    if given.endswith(".toml") or "/" in given:
        if cores is not None:
            hint = "Leave --cores out; --param gives values to the file's parameters."
            raise InputError("the cores of each stage are in the workflow file", where="--cores", hint=hint)
        return load_workflow(given, parameters)
    if given not in plugins.names("asa.workflows"):
        raise unknown_workflow(given)
    if parameters:
        raise InputError("only a workflow file has parameters", where="--param", hint="Leave --param out.")
    if cores is None:
        raise InputError("is missing", where="--cores", hint="Give the cores of its widest stage, as in --cores 112.")
    flow: Workflow = plugins.load("asa.workflows", given)(cores)
    return flow


def _facts(flow: Workflow, cores_per_node: int | None) -> dict[str, Any]:
    """Sum up a workflow; None for figures that need the cores of a node, if these are not known."""
    facts: dict[str, Any] = {
        "critical_path": list(flow.critical_path),
        "critical_path_s": flow.critical_path_s,
        "peak_cores": None,
        "core_hours": None,
        "one_job_core_hours": None,
    }
    if cores_per_node is not None or all(stage.nodes is None for stage in flow.stages.values()):
        per_node = cores_per_node or 1
        peak = flow.peak_cores(per_node)
        facts["peak_cores"] = peak
        facts["core_hours"] = flow.stage_core_hours(per_node)
        facts["one_job_core_hours"] = peak * flow.in_one_job(per_node).execution_s / 3600.0
    return facts


# ---------------------------------------------------------------------- for people


def _print(flow: Workflow, facts: dict[str, Any]) -> None:
    import networkx as nx
    from rich.text import Text

    from asa.core.console import Console
    from asa.spec.drawing import draw_graph

    console = Console(highlight=False)
    count = len(flow.stages)
    console.print(Text.assemble((flow.name, "bold"), f"  {count} stage{'' if count == 1 else 's'}\n"))
    drawing = draw_graph(flow, console.width)
    if drawing is None:
        console.print(Text("The graph is too large to be drawn here; the table says what comes after what.\n"))
    else:
        console.print(Text(drawing, no_wrap=True, overflow="ignore"), soft_wrap=True)
        if nx.transitive_reduction(flow.graph).number_of_edges() < flow.graph.number_of_edges():
            console.print(Text("Lines that a longer way makes needless are not drawn.", style="dim"))
        console.print()
    console.print(stages_table(flow, with_edges=drawing is None))
    if drawing is not None:  # the drawing has the edges, but not their conditions
        for stage in flow.stages.values():
            if how := [f"{name}{said}" for name in stage.after if (said := _how(stage, name))]:
                console.print(Text(f"{stage.name}: after {', '.join(how)}"))
    console.print(Text("\n" + "\n".join(_summary_lines(facts))))


def stages_table(flow: Workflow, *, with_edges: bool = True) -> Table:
    """Make the table of stages."""
    from rich.table import Table
    from rich.text import Text

    stages = [flow.stages[name] for name in flow.order]
    columns = {
        "Stage": [stage.name for stage in stages],
        "Cores": [_size(stage) for stage in stages],
        "Walltime": [format_duration(stage.walltime_s) for stage in stages],
        "Expected": [_expected(stage) for stage in stages],
    }
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, cells in columns.items():  # if space is short, what a stage runs is cut first
        side: JustifyMethod = "left" if heading == "Stage" else "right"
        table.add_column(heading, justify=side, no_wrap=True, min_width=max(map(len, [heading, *cells])))
    if any(stage.when != "success" for stage in stages):
        columns["When"] = ["" if stage.when == "success" else stage.when for stage in stages]
        table.add_column("When", no_wrap=True, min_width=max(map(len, ["When", *columns["When"]])))
    if with_edges:
        columns["After"] = [", ".join(f"{name}{_how(stage, name)}" for name in stage.after) for stage in stages]
        table.add_column("After", overflow="fold")
    table.add_column("Runs", no_wrap=True, overflow="ellipsis")
    for stage, *cells in zip(stages, *columns.values(), strict=True):
        table.add_row(*map(Text, cells), Text(_runs(stage), style="" if not stage.is_idle else "dim"))
    return table


def _how(stage: Stage, before: str) -> str:
    """Return in brackets the event of another stage that a stage waits for, unless that is its completion."""
    if before in stage.after_start:
        return f" (begun {format_duration(stage.start_delay_s)} ago)" if stage.start_delay_s else " (once it has begun)"
    if before in stage.after_matching:
        return " (element by element)"
    return " (however it ended)" if before in stage.after_any else ""


def _size(stage: Stage) -> str:
    if stage.local:
        return "here"
    each = stage.of_each_job()
    nodes = "" if each.nodes is None else counted(each.nodes, "node")
    size = f"{each.cores}, {nodes}" if each.cores and nodes else nodes or str(each.cores)
    return per_job(stage.alike, size)


def _expected(stage: Stage) -> str:
    known = "" if stage.expected_run_s is None else format_duration(stage.expected_run_s)
    return f"{known} or learned".removeprefix(" or ") if stage.learns_run else known


def _runs(stage: Stage) -> str:
    """Return the first words of what a stage runs."""
    if stage.tasks:
        text = f"{len(stage.tasks)} tasks: {stage.tasks[0]}"
    elif stage.tasks_file:
        text = f"tasks in {stage.tasks_file}"
    elif stage.script:
        lines = [line.strip() for line in stage.script.splitlines()]
        text = f"script: {next((line for line in lines if line and not line.startswith('#')), lines[0])}"
    else:
        text = next((line.strip() for line in stage.command.splitlines() if line.strip()), "nothing")
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"


def _summary_lines(facts: dict[str, Any]) -> list[str]:
    path = " → ".join(facts["critical_path"])
    lines = [f"Longest way: {format_duration(facts['critical_path_s'])}, {path}"]
    if facts["peak_cores"] is None:
        return [*lines, "Cores of whole nodes are not known: give --cores-per-node for the peak and core-hours."]
    peak = facts["peak_cores"]
    lines.insert(0, f"Widest stage: {peak} core{'' if peak == 1 else 's'}")
    lines.append(
        f"Core-hours: {facts['core_hours']:,.1f} if each stage holds what it needs, "
        f"{facts['one_job_core_hours']:,.1f} in one job of {peak} core{'' if peak == 1 else 's'}"
    )
    return lines


# ---------------------------------------------------------------------- for programs


def _print_json(flow: Workflow, facts: dict[str, Any]) -> None:
    from asa.workflow import OF_AFTER

    stages = [
        {
            "name": stage.name,
            "after": list(stage.after),
            "when": stage.when,
            **{key: list(names) for key in OF_AFTER if (names := getattr(stage, key))},
            **({"start_delay_s": stage.start_delay_s} if stage.start_delay_s else {}),
            "cores": stage.cores,
            "nodes": stage.nodes,
            **size_document(stage),
            "walltime_s": stage.walltime_s,
            "expected_s": stage.expected_s,
            "runs": "" if stage.is_idle else _runs(stage),
        }
        for stage in (flow.stages[name] for name in flow.order)
    ]
    print_document({"workflow": flow.name, "walltime_s": flow.walltime_s, "stages": stages, **facts})

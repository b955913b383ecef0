"""``asa check``: what is wrong with a workflow file, and what may keep the workflow from running here."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.completing import complete_workflows
from asa.cli.given import ParamsOption, given_parameters
from asa.cli.runs import print_document
from asa.core.options import Output, OutputOption

if TYPE_CHECKING:
    from asa.spec import Problem


def check(
    workflow: Annotated[
        str, typer.Argument(help="A workflow file (.toml).", autocompletion=complete_workflows, metavar="FILE")
    ],
    parameters: ParamsOption = None,
    site: Annotated[
        bool,
        typer.Option(
            "--site", help="Try here what stages ask of the site: load modules, activate conda, look for images."
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a workflow file: its syntax, its stages and their graph, and what they are to run.

    Programs are looked for in PATH, and files in the folder in which this is called, as `asa run` runs them there.
    Nothing of the workflow is run.

    Each problem is printed as `file:line: error|warning|note: what`, and below it what to do.

    Exit codes: 0 no error, 2 an error, with which the workflow cannot be run.
    """
    from asa.spec.checks import check_here

    problems = check_here(workflow, dict(given_parameters(parameters)), tries_environments=site)
    if output is Output.JSON:
        _print_json(workflow, problems)
    else:
        _print_lines(workflow, problems)
    if any(problem.severity == "error" for problem in problems):
        raise typer.Exit(2)


def _print_lines(workflow: str, problems: Sequence[Problem]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    styles = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    for problem in problems:
        line = Text(f"{problem.where}: ")
        line.append(problem.severity, style=styles[problem.severity])
        console.print(line.append(f": {problem.message}"))
        console.print(Text(f"    {problem.hint}", style="dim"))
    sys.stdout.flush()
    sys.stderr.write(f"{workflow}: {_summary(problems)}\n")


def _summary(problems: Sequence[Problem]) -> str:
    """Count problems in words."""
    counts = Counter(problem.severity for problem in problems)
    parts = [
        f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's'}" for kind in ("error", "warning") if counts[kind]
    ]
    return ", ".join(parts) if parts else "no errors, no warnings"


def _print_json(workflow: str, problems: Sequence[Problem]) -> None:
    from dataclasses import asdict

    print_document({"file": workflow, "problems": [asdict(problem) for problem in problems]})

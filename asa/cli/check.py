"""``asa check``: finds errors in a workflow file, and what may keep the workflow from running here."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asa.cli.completing import complete_workflows
from asa.cli.given import ParamsOption, given_parameters
from asa.cli.runs import print_document
from asa.cli.terminal import write_notice
from asa.core.options import Output, OutputOption

if TYPE_CHECKING:
    from asa.spec import Problem

_INDENT = 4


def check(
    workflow: Annotated[
        str, typer.Argument(help="A workflow file (.toml).", autocompletion=complete_workflows, metavar="FILE")
    ],
    parameters: ParamsOption = None,
    site: Annotated[
        bool,
        typer.Option(
            "--site",
            help="Also try the environment of each stage here: load its modules, activate its conda "
            "environment, look for its image. No `setup` is run, and no variable of `environment` is set.",
        ),
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check a workflow file: its syntax, its stages, their dependencies, and the commands they run.

    Programs are looked up in PATH, and files in the current folder, which is where `asa run` runs the stages. No stage
    is run.

    Each problem is printed as `file:line: error|warning|note: what is wrong`, and below it how to fix it.

    Exit codes: 0 no errors, 2 errors: the workflow cannot be run.
    """
    from asa.spec.checks import check_here

    problems = [*check_here(workflow, dict(given_parameters(parameters)), tries_environments=site), *_changed(workflow)]
    if output is Output.JSON:
        _print_json(workflow, problems)
    else:
        if problems:
            _print_lines(problems)
        write_notice(f"{workflow}: {_summary(problems)}")
    if any(problem.severity == "error" for problem in problems):
        raise typer.Exit(2)


def _changed(workflow: str) -> list[Problem]:
    """Report files that the recorded driver read and that have changed since."""
    from asa.spec import Problem
    from asa.spec.recorded import changed_since

    changed, command = changed_since(Path(workflow))
    if not changed:
        return []
    several = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    message = f"since it was recorded, this has changed: {', '.join(changed[:3])}{several}"
    return [Problem(workflow, None, "note", message, f"To record it again: {command}")]


def _print_lines(problems: Sequence[Problem]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from asa.core.console import Console

    console = Console(highlight=False)
    styles = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    for problem in problems:
        line = Text.assemble(f"{problem.where}: ", (problem.severity, styles[problem.severity]), f": {problem.message}")
        if console.is_terminal:  # in lines of whole words
            console.print(line, Padding(Text(problem.hint, style="dim"), (0, 0, 0, _INDENT), expand=False), sep="\n")
        else:
            console.print(line, Text(f"{'':{_INDENT}}{problem.hint}"), sep="\n", soft_wrap=True)
    sys.stdout.flush()


def _summary(problems: Sequence[Problem]) -> str:
    """Count the problems in words."""
    counts = Counter(problem.severity for problem in problems)
    parts = [
        f"{counts[kind]} {kind}{'' if counts[kind] == 1 else 's'}" for kind in ("error", "warning") if counts[kind]
    ]
    return ", ".join(parts) if parts else "no errors, no warnings"


def _print_json(workflow: str, problems: Sequence[Problem]) -> None:
    from dataclasses import asdict

    print_document({"file": workflow, "problems": [asdict(problem) for problem in problems]})

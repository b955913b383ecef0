"""``asa list``: lists installed workflows, strategies, estimators, backends and schedulers."""

from __future__ import annotations

_PAPER = (
    "The paper, with its sections, equations and algorithms: ASA - The Adaptive Scheduling Algorithm, "
    "https://doi.org/10.48550/arXiv.2401.09733"
)
_GROUPS = ("workflows", "strategies", "estimators", "backends", "schedulers")


def lists() -> None:
    """Show the workflows, strategies, estimators, backends and schedulers that are installed."""
    from rich.table import Table

    from asa.core import plugins
    from asa.core.console import Console
    from asa.errors import InputError

    console = Console()
    for group in _GROUPS:
        table = Table(
            title=group,
            title_justify="left",
            title_style="bold",
            show_header=False,
            box=None,
            padding=(0, 2),
        )
        for name in plugins.names(f"asa.{group}"):
            try:
                words, parameters = plugins.describe(f"asa.{group}", name)
            except InputError as error:
                table.add_row(name, error.message)
                continue
            if group == "schedulers" and parameters:
                words += f" Settings: {', '.join(parameters)}."
            if (missing := plugins.lacking(f"asa.{group}", name)) is not None:
                words += f" Needs {missing[0]}, which is not installed: {missing[1]}"
            table.add_row(name, words)
        console.print(table)
        console.print()
    console.print(_PAPER, style="dim")

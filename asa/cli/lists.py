"""``asa list``: what names stand for."""

from __future__ import annotations

__all__ = ["lists"]

_GROUPS = ("workflows", "strategies", "backends", "schedulers")


def lists() -> None:
    """Show the workflows, strategies, backends and schedulers that are installed."""
    import inspect

    from rich.console import Console
    from rich.table import Table

    from asa import plugins

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
            doc = inspect.getdoc(plugins.load(f"asa.{group}", name)) or ""
            table.add_row(name, doc.split("\n\n")[0].replace("\n", " "))
        console.print(table)
        console.print()

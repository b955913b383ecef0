"""The entry point: gathers the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import logging
import sys

import typer

from asa import plugins
from asa.errors import AsaError, InputError

__all__ = ["app", "main"]

app = typer.Typer(
    name="asa",
    help="""Submit the stages of a workflow ahead of time.

    On a supercomputer a workflow of several stages either asks for its largest stage's cores for the whole run, which
    wastes, or waits in the queue again for each stage, which takes long. asa learns how long the queue makes each kind
    of job wait and asks for each stage's resources that long before they are needed.

    A first look, on a simulated machine:  asa compare montage --system hpc2n --cores 112
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="Exit codes: 0 done, 1 failed, 2 the input cannot be used, 130 interrupted.",
)


@app.callback()
def _common() -> None:
    # a callback keeps `asa VERB` a verb even while there is only one
    pass


def _gather() -> None:
    from asa.cli import compare  # noqa: F401 - registers its command
    from asa.cli.lists import lists

    lists(app)
    for name in plugins.names("asa.commands"):
        app.add_typer(plugins.load("asa.commands", name), name=name)


def main() -> None:
    """Run the command line and exit."""
    logging.captureWarnings(capture=True)
    _gather()
    try:
        app(standalone_mode=True)
    except AsaError as error:
        kind = "cannot use the input" if isinstance(error, InputError) else "failed"
        sys.stderr.write(f"asa: {kind}: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("asa: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:  # `asa ... | head`
        sys.stderr.close()
        sys.exit(1)

"""The entry point: finds the command that is called, and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import sys
import threading
import traceback
from collections import UserDict
from collections.abc import Callable
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from asa.cli.terminal import make_usable, silence_output
from asa.core import plugins
from asa.errors import AsaError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTERRUPTED = 130
_NOBODY_READS = 141
_TAKES_ANY = {"ignore_unknown_options": True, "allow_extra_args": True}
_TRACEBACK = "ASA_TRACEBACK"

_OURS: Final[Mapping[str, str]] = {
    "check": "asa.cli.check:check",
    "show": "asa.cli.show:show",
    "run": "asa.cli.run:run",
    "resume": "asa.cli.run:resume",
    "tick": "asa.cli.tick:tick",
    "status": "asa.cli.status:status",
    "runs": "asa.cli.status:runs",
    "explain": "asa.cli.explain:explain",
    "logs": "asa.cli.logs:logs",
    "report": "asa.cli.report:report",
    "cancel": "asa.cli.cancel:cancel",
    "worth": "asa.cli.worth:worth",
    "twin": "asa.cli.twin:twin",
    "compare": "asa.cli.compare:compare",
    "doctor": "asa.cli.doctor:doctor",
    "learn": "asa.cli.learn:learn",
    "predict": "asa.cli.predict:predict",
    "advise": "asa.cli.advise:advise",
    "evaluate": "asa.cli.evaluate:evaluate",
    "list": "asa.cli.lists:lists",
    "schema": "asa.cli.schema:schema",
    "bank": "asa.cli.bank:app",
    "campaign": "asa.cli.campaign:app",
    "experiment": "asa.cli.experiment:app",
    "import": "asa.cli.imports:app",
    "export": "asa.cli.exports:app",
}
"""Where the commands are that everybody has, in the order of the help; plug-ins add others."""


class _Commands(UserDict[str, Any]):
    """Commands by name, each imported and built when it is looked up: to build all takes longer than many a command."""

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            alone = _new_app()
            _add(alone, name)
            self[name] = get_group(alone).commands[name]
        return super().__getitem__(name)


class _Group(TyperGroup):
    """All commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands(dict.fromkeys([*_OURS, *plugins.names("asa.commands")]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the commands by their names and first words, for which they are imported, but not built."""
        whole, heads = _new_app(), _new_app()
        for name in self.commands:
            _add(whole, name)
        for group in whole.registered_groups:
            bare: Any = copy(group.typer_instance)
            bare.registered_commands, bare.registered_groups = [], []
            group.typer_instance = bare
        heads.registered_groups = whole.registered_groups
        alone = {
            str(command.name): TyperCommand(name=command.name, help=command.help or inspect.getdoc(command.callback))
            for command in whole.registered_commands
        }
        self.commands = {**alone, **get_group(heads).commands}
        super().format_help(ctx, formatter)


def _new_app(**given: Any) -> typer.Typer:
    return typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False, **given)


def _add(to: typer.Typer, name: str) -> None:
    """Import a command, and add it."""
    try:
        command = plugins.load("asa.commands", name) if name in plugins.names("asa.commands") else _our_own(name)
    except InputError as error:  # which is no reason to be without the others
        to.command(name, help=f"It {error.message}.", context_settings=_TAKES_ANY)(_refusing(error))
        return
    if isinstance(command, typer.Typer):
        to.add_typer(command, name=name)
    else:
        to.command(name)(command)


def _our_own(name: str) -> Any:
    module, _, attribute = _OURS[name].partition(":")
    return getattr(import_module(module), attribute)


app = _new_app(
    name="asa",
    cls=_Group,
    help="""Submit the stages of a workflow ahead of time.

    On a supercomputer a workflow of several stages either asks for its largest stage's cores for the whole run, which
    wastes, or waits in the queue again for each stage, which takes long. asa learns how long the queue makes each kind
    of job wait and asks for each stage's resources that long before they are needed.

    A first look, on a simulated machine:  asa compare montage --system hpc2n --cores 112
    """,
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 failed, 2 the input cannot be used, 130 interrupted, 141 nobody reads the output any "
    "more.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from asa import __version__

        typer.echo(f"asa {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def _refusing(error: InputError) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def run_command() -> None:
    """Run the command line and exit."""
    make_usable()
    logging.captureWarnings(capture=True)
    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()  # here, where it can still be reported that nobody reads it
    except AsaError as error:
        kind = "cannot use the input" if isinstance(error, InputError) else "failed"
        sys.stderr.write(f"asa: {kind}: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _leave_interrupted()
    except SystemExit as end:
        if _is_of_a_closed_pipe(end):
            _leave_unread()
        if end.code == _INTERRUPTED and type(end) is SystemExit:  # typer has seen the interrupt first
            _leave_interrupted()
        raise
    except BrokenPipeError:  # `asa ... | head`
        _leave_unread()
    except OSError as error:
        _give_up(error)
    except MemoryError:
        sys.stderr.write("asa: failed: there is not enough memory for this\nAsk for less, or give it more.\n")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - reported to the user in words, whatever it is
        _own_up(error)


def _leave_interrupted() -> NoReturn:
    """Leave at once, or in a few seconds if a pool of processes cannot be wound up, as may be after an interrupt."""
    sys.stderr.write("asa: interrupted\n")
    sys.stderr.flush()
    silence_output(2)  # a pool that was torn down complains when the interpreter ends, to nobody's use
    watchdog = threading.Timer(3.0, os._exit, args=(_INTERRUPTED,))
    watchdog.daemon = True
    watchdog.start()
    sys.exit(_INTERRUPTED)


def _is_of_a_closed_pipe(end: SystemExit) -> bool:
    """Whether the libraries beneath ended us since nobody reads what is printed."""
    return isinstance(end.__context__, BrokenPipeError) and end.code == 1


def _leave_unread() -> NoReturn:
    """End quietly, with the code that a shell gives what such a pipe has killed."""
    silence_output()
    sys.exit(_NOBODY_READS)


def _give_up(error: OSError) -> NoReturn:
    """End when a file cannot be used, or what was found cannot be written, as on a full disk."""
    where = f"{error.filename}: " if error.filename else ""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or not where
    hint = "Free disk space, or write elsewhere." if is_full else "Check the path, whose it is, and its rights."
    sys.stderr.write(f"asa: failed: {where}{error.strerror or error}\n{hint}\n")
    silence_output()  # or the interpreter tries again, and complains again
    sys.exit(1)


def _own_up(error: Exception) -> NoReturn:
    """End upon what should never happen, with what those who can mend it must know."""
    if os.environ.get(_TRACEBACK):
        traceback.print_exception(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    sys.stderr.write(
        f"asa: failed: a mistake in asa itself, or in what was installed beside it: {what} "
        f"({last.filename}:{last.lineno})\n"
        f"Please report it, with the command and what it prints with {_TRACEBACK}=1 in the environment.\n"
    )
    silence_output()
    sys.exit(1)

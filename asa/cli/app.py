"""The entry point: gathers the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from asa.cli.advise import advise
from asa.cli.bank import app as bank_app
from asa.cli.campaign import app as campaign_app
from asa.cli.cancel import cancel
from asa.cli.check import check
from asa.cli.compare import compare
from asa.cli.doctor import doctor
from asa.cli.evaluate import evaluate
from asa.cli.experiment import app as experiment_app
from asa.cli.explain import explain
from asa.cli.exports import app as export_app
from asa.cli.imports import app as import_app
from asa.cli.learn import learn
from asa.cli.lists import lists
from asa.cli.logs import logs
from asa.cli.predict import predict
from asa.cli.report import report
from asa.cli.run import resume, run
from asa.cli.schema import schema
from asa.cli.show import show
from asa.cli.status import runs, status
from asa.cli.terminal import make_usable
from asa.core import plugins
from asa.errors import AsaError, InputError

__all__ = ["app", "run_command"]

_INTERRUPTED = 130
_NOBODY_READS = 141
_TAKES_ANY = {"ignore_unknown_options": True, "allow_extra_args": True}
_TRACEBACK = "ASA_TRACEBACK"

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


def _gather() -> None:
    app.command("check")(check)
    app.command("show")(show)
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("status")(status)
    app.command("runs")(runs)
    app.command("explain")(explain)
    app.command("logs")(logs)
    app.command("report")(report)
    app.command("cancel")(cancel)
    app.command("compare")(compare)
    app.command("doctor")(doctor)
    app.command("learn")(learn)
    app.command("predict")(predict)
    app.command("advise")(advise)
    app.command("evaluate")(evaluate)
    app.command("list")(lists)
    app.command("schema")(schema)
    app.add_typer(bank_app, name="bank")
    app.add_typer(campaign_app, name="campaign")
    app.add_typer(experiment_app, name="experiment")
    app.add_typer(import_app, name="import")
    app.add_typer(export_app, name="export")
    for name in plugins.names("asa.commands"):
        try:
            command = plugins.load("asa.commands", name)
        except InputError as error:  # which is no reason to be without the others
            app.command(name, help=f"It {error.message}.", context_settings=_TAKES_ANY)(_refusing(error))
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


def _refusing(error: InputError) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def run_command() -> None:
    """Run the command line and exit."""
    make_usable()
    logging.captureWarnings(capture=True)
    try:
        _gather()
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()  # here, where it can be told that nobody reads it
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
    except Exception as error:  # noqa: BLE001 - a user is told in words, whatever it is
        _own_up(error)


def _leave_interrupted() -> NoReturn:
    """Leave at once, or in a few seconds if a pool of processes cannot be wound up, as may be after an interrupt."""
    sys.stderr.write("asa: interrupted\n")
    sys.stderr.flush()
    _silence(2)  # a pool that was torn down complains when the interpreter ends, to nobody's use
    watchdog = threading.Timer(3.0, os._exit, args=(_INTERRUPTED,))
    watchdog.daemon = True
    watchdog.start()
    sys.exit(_INTERRUPTED)


def _is_of_a_closed_pipe(end: SystemExit) -> bool:
    """Whether the libraries beneath ended us since nobody reads what is printed."""
    return isinstance(end.__context__, BrokenPipeError) and end.code == 1


def _leave_unread() -> NoReturn:
    """End quietly, with the code that a shell gives what such a pipe has killed."""
    _silence(1)
    sys.exit(_NOBODY_READS)


def _give_up(error: OSError) -> NoReturn:
    """End when a file cannot be used, or what was found cannot be written, as on a full disk."""
    where = f"{error.filename}: " if error.filename else ""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or not where
    hint = "Make room, or write elsewhere." if is_full else "Check the path, whose it is, and its rights."
    sys.stderr.write(f"asa: failed: {where}{error.strerror or error}\n{hint}\n")
    _silence(1)  # or the interpreter tries again, and complains again
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
    _silence(1)
    sys.exit(1)


def _silence(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)

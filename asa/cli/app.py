"""The entry point: finds the command that is called, and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import threading
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from asa.cli.compiling import say_what_takes_long
from asa.cli.terminal import make_usable, silence_output, write_notice
from asa.core import owned, plainly, plugins
from asa.errors import AsaError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTERRUPTED = 130
_NOBODY_READS = 141
_TAKES_ANY = {"ignore_unknown_options": True, "allow_extra_args": True}
_TRACEBACK = "ASA_TRACEBACK"

_BY_ENTRY_POINT: Final = ""
_HEADINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "Workflow: write one, check it": {
        "init": "asa.cli.init:init",
        "check": "asa.cli.check:check",
        "show": "asa.cli.show:show",
        "import": "asa.cli.imports:app",
        "record": "asa.cli.recorded:session",
        "export": "asa.cli.exports:app",
        "list": "asa.cli.lists:lists",
        "schema": "asa.cli.schema:schema",
    },
    "Run: submit it, watch it, go on with it": {
        "run": "asa.cli.run:run",
        "status": "asa.cli.status:status",
        "explain": "asa.cli.explain:explain",
        "logs": "asa.cli.logs:logs",
        "report": "asa.cli.report:report",
        "resume": "asa.cli.run:resume",
        "cancel": "asa.cli.cancel:cancel",
        "runs": "asa.cli.status:runs",
        "tick": "asa.cli.tick:tick",
        "pool": "asa.cli.pool:pool",
    },
    "Queue: how long jobs wait, what to ask for": {
        "doctor": "asa.cli.doctor:doctor",
        "learn": "asa.cli.learn:learn",
        "predict": "asa.cli.predict:predict",
        "plan": "asa.cli.plan:plan",
        "walltimes": "asa.cli.advise:advise",
        "bank": "asa.cli.bank:app",
    },
    "Simulate: try strategies without a cluster": {
        "worth": "asa.cli.worth:worth",
        "twin": "asa.cli.twin:twin",
        "compare": "asa.cli.compare:compare",
        "simulate": _BY_ENTRY_POINT,
        "workload": _BY_ENTRY_POINT,
    },
    "Research: repeat and extend the published studies": {
        "evaluate": "asa.cli.evaluate:evaluate",
        "experiment": "asa.cli.experiment:app",
        "campaign": "asa.cli.campaign:app",
        "ccs": _BY_ENTRY_POINT,
        "bbsched": _BY_ENTRY_POINT,
        "dmr": _BY_ENTRY_POINT,
        "dras": _BY_ENTRY_POINT,
    },
}
"""The commands by heading, in the order in which a newcomer needs them; those of plug-ins are added below."""
_OTHERS = "From other packages"
_FORMER_NAMES: Final[Mapping[str, str]] = {"advise": "walltimes"}
"""Former names that still work, and that no help lists."""
_OURS: Final[Mapping[str, str]] = {name: where for below in _HEADINGS.values() for name, where in below.items()}
_FORMER_OPTIONS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "--json": (("--output", "json"),),
    "--csv": (("--output", "csv"),),
    "--set": (("--param",), ("--option",)),
}
"""Old spellings of options, each with the new ones; if there are several, the command decides."""


def _choices(parameter: Any) -> tuple[str, ...]:
    """Return the values that an option chooses from: of its type, or with typer 0.29 and later of its annotation."""
    if hasattr(parameter, "type"):
        return tuple(getattr(parameter.type, "choices", ()))
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(choice.value for choice in annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def former_options(command: Any) -> dict[str, tuple[str, ...]]:
    """Return the new spelling of each old option that a command still accepts."""
    choices = {name: _choices(param) for param in command.params for name in param.opts}

    def fits(words: tuple[str, ...]) -> bool:
        return words[0] in choices and all(value in choices[words[0]] for value in words[1:])

    spellings = {
        old: [words for words in new if fits(words)] for old, new in _FORMER_OPTIONS.items() if old not in choices
    }
    return {old: now[0] for old, now in spellings.items() if len(now) == 1}


class _Command(TyperCommand):
    """A command that also accepts old spellings of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        former, own = former_options(self), args.index("--") if "--" in args else len(args)
        words: list[str] = []
        formats = {word for word in args[:own] if former.get(word, (word,))[0] == "--output"}
        if len(formats) > 1:
            raise InputError(
                "there is one format of the output", where=" ".join(sorted(formats)), hint="Give one of them."
            )
        for word in args[:own]:
            name, sign, value = word.partition("=")
            words += [*former[name], *([value] if sign else [])] if name in former else [word]
        driver = args[own + 1 :]
        is_driver = bool(driver) and not driver[0].endswith(".toml") and (len(driver) > 1 or "/" in driver[0])
        if not is_driver or not any(param.name == "workflow" for param in self.params):
            left = super().parse_args(ctx, [*words, *args[own:]])
            _find_file(ctx.params)
            return left
        from asa.cli.recorded import as_workflow

        left = super().parse_args(ctx, [*words, "--", driver[0]])  # reports errors in the options first
        ctx.params["workflow"] = as_workflow(self.name or "", driver)
        return left


def _find_file(params: dict[str, Any]) -> None:
    """Take a workflow file that is named without its suffix, unless a workflow of that name is installed."""
    given = params.get("workflow")
    if not isinstance(given, str) or Path(given).suffix or not Path(f"{given}.toml").is_file():
        return
    if given not in plugins.names("asa.workflows"):
        params["workflow"] = f"{given}.toml"


class _Commands(UserDict[str, Any]):
    """Commands by name, each imported and built only when it is looked up: building all would take long.

    Other packages are asked for theirs only if a name is not ours, or when all commands are listed.
    """

    def __init__(self) -> None:
        super().__init__(dict.fromkeys([*_OURS, *_FORMER_NAMES]))

    def __getitem__(self, name: str) -> Any:
        if self.data.get(name) is None and name in self:
            alone = _new_app()
            _add(alone, name)
            self[name] = get_group(alone).commands[name]
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Any]:
        return self.data | dict.fromkeys(name for name in _of_others() if name not in self.data)


class _Group(TyperGroup):
    """All commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's
        """Leave out commands that have a new name, without building any."""
        return [name for name in self.commands if name not in _FORMER_NAMES]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write plain text: what draws typer's boxes takes longer to load than all of the rest."""
        super(TyperGroup, self).format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List each command with the first paragraph of its help, under its heading; this builds none."""
        others = {_OTHERS: [name for name in self.list_commands(ctx) if name not in _OURS]}
        for heading, names in [*_HEADINGS.items(), *others.items()]:
            if names:
                formatter.write(f"\n{heading}\n")
                with formatter.indentation():
                    formatter.write_dl([(name, _summary(name)) for name in names])


def _summary(name: str) -> str:
    """Return the first paragraph of a command's help; of our own commands it is read, not imported."""
    module, _, attribute = (_OURS.get(name) or plugins.place("asa.commands", name)).partition(":")
    if name in _OURS and (text := plugins.first_paragraph(module, attribute)):
        return text
    try:
        command = _command(name)
    except InputError as error:  # a broken command must not disable the others
        return f"It {error.message}."
    text = (command.info.help if isinstance(command, typer.Typer) else None) or inspect.getdoc(command) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def _of_others() -> list[str]:
    return [name for name in plugins.names("asa.commands") if name not in _OURS]


def _new_app(**given: Any) -> typer.Typer:
    usual = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False, "add_completion": False}
    return typer.Typer(**{**usual, **given})


def _add(to: typer.Typer, name: str) -> None:
    """Import a command, and add it to an app."""
    try:
        command = _command(_FORMER_NAMES.get(name, name))
    except InputError as error:  # a broken command must not disable the others
        to.command(name, help=f"It {error.message}.", context_settings=_TAKES_ANY)(_refusing(error))
        return
    if isinstance(command, typer.Typer):
        _takes_former_options(command)
        to.add_typer(command, name=name)
    else:
        to.command(name, cls=_Command)(command)


def _takes_former_options(group: typer.Typer) -> None:
    for command in group.registered_commands:
        command.cls = _Command if command.cls in {None, TyperCommand} else command.cls
    for below in group.registered_groups:
        if below.typer_instance is not None:
            _takes_former_options(below.typer_instance)


def _command(name: str) -> Any:
    """Import a command by its name."""
    if not _OURS.get(name):
        return plugins.load("asa.commands", name)
    module, _, attribute = _OURS[name].partition(":")
    return getattr(import_module(module), attribute)


app = _new_app(
    name="asa",
    add_completion=True,
    cls=_Group,
    help="""Submit the stages of a workflow ahead of time.

    On a supercomputer a workflow of several stages either runs in one job as large as its largest stage, which leaves
    cores idle, or waits in the queue once per stage, which takes long. asa learns how long jobs wait in the queue, and
    submits each stage that long before it can start.

    To begin: `asa init`, then `asa run flow.toml --backend local`. Shell completion: `asa --install-completion`
    """,
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 failed, 2 the input cannot be used, 130 interrupted, 141 nobody reads the output.",
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
    plainly.on_compiling = say_what_takes_long
    warnings.showwarning = _pass_over
    try:
        try:
            app(standalone_mode=True)
        finally:
            _flush()  # now, while a closed pipe can still be reported
            _say_whose()
    except AsaError as error:
        kind = "cannot use the input" if isinstance(error, InputError) else "failed"
        write_notice(f"asa: {kind}: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _leave_interrupted()
    except SystemExit as end:
        if _is_of_a_closed_pipe(end):
            _leave_unread()
        if end.code == _INTERRUPTED and type(end) is SystemExit:  # typer turned the interrupt into an exit
            _leave_interrupted()
        raise
    except BrokenPipeError:  # `asa ... | head`
        _leave_unread()
    except OSError as error:
        _give_up(error)
    except MemoryError:
        sys.stderr.write("asa: failed: out of memory\nUse a smaller problem, or more memory.\n")
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - reported to the user in words, whatever it is
        _own_up(error)


def _pass_over(*_warning: object, **_named: object) -> None:
    """Print no warning of a library, which users could do nothing about."""


def _flush() -> None:
    """Flush all output; a client that leaves because its terminal is gone has reported that already."""
    leaving = sys.exc_info()[1]
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO or not isinstance(leaving, SystemExit) or leaving.code != _INTERRUPTED:
            raise
        silence_output()


def _say_whose() -> None:
    """Name the owners of files that were read, if they are other users."""
    with suppress(OSError):
        for path, owner in owned.others.items():
            write_notice(f"Note: {path} belongs to {owner}.")
    owned.others.clear()


def _leave_interrupted() -> NoReturn:
    """Exit at once after an interrupt, or after a few seconds if a pool of processes cannot be wound up."""
    write_notice("asa: interrupted")
    sys.stderr.flush()
    silence_output(2)  # a pool that was torn down prints useless errors when the interpreter ends
    watchdog = threading.Timer(3.0, os._exit, args=(_INTERRUPTED,))
    watchdog.daemon = True
    watchdog.start()
    sys.exit(_INTERRUPTED)


def _is_of_a_closed_pipe(end: SystemExit) -> bool:
    """Whether a library ended the process because the reader of the output is gone."""
    return isinstance(end.__context__, BrokenPipeError) and end.code == 1


def _leave_unread() -> NoReturn:
    """Exit quietly, with the code that a shell reports for a process killed by a closed pipe."""
    silence_output()
    sys.exit(_NOBODY_READS)


def _give_up(error: OSError) -> NoReturn:
    """Exit because a file cannot be used or written, as on a full disk."""
    where = f"{error.filename}: " if error.filename else ""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} or not where
    hint = "Free disk space, or write elsewhere." if is_full else "Check the path, its owner, and its permissions."
    write_notice(f"asa: failed: {where}{error.strerror or error}\n{hint}")
    silence_output()  # otherwise the interpreter flushes again, and fails again
    sys.exit(1)


def _own_up(error: Exception) -> NoReturn:
    """Exit after an unexpected error; print the data that are needed to fix it."""
    import traceback

    if os.environ.get(_TRACEBACK):
        traceback.print_exception(error)
    *_, last = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    sys.stderr.write(
        f"asa: failed: a bug in asa, or in a package that extends it: {what} "
        f"({last.filename}:{last.lineno})\n"
        f"Please report it, with the command and what it prints with {_TRACEBACK}=1 in the environment.\n"
    )
    silence_output()
    sys.exit(1)

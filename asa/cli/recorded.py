"""Recording of drivers, for ``asa import scripts --record``, ``asa record`` and ``asa run -- ./submit.sh``."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.terminal import write_notice
from asa.errors import InputError
from asa.printable import printable

if TYPE_CHECKING:
    from asa.importers.recording import Recording

LIMIT = "2min"
"""The default time that a driver may run."""
_LONGEST_S = 24 * 3600.0  # longest session


@dataclass(frozen=True, slots=True)
class RecordingWay:
    """The way in which a driver is recorded."""

    limit: str = LIMIT
    is_private: bool = True
    has_network: bool = False
    adds: bool = False  # whether the commands recorded before run first
    parameters: Sequence[str] = ()
    choices: dict[str, Any] = field(default_factory=dict)  # what job arrays become
    name: str = ""
    is_session: bool = False


def record_into(out: Path, command: Sequence[str], how: RecordingWay, *, force: bool) -> None:
    """Record the jobs that a command submits, and write the workflow file and the folder that belongs to it."""
    from asa.spec.recorded import commands_of
    from asa.units import parse_duration

    if out == Path("-"):
        hint = "Name one with --out: what the command made is kept in a folder next to it."
        raise InputError("a recording needs a file", where="--out", hint=hint)
    before = commands_of(out) if how.adds else []
    if how.adds and not before:
        raise InputError("was not recorded", where=str(out), hint="Record the first command without --add.")
    check_free(out, force=force or how.adds)
    limit_s = _LONGEST_S if not how.limit else parse_duration(how.limit)
    _write(out, [*before, list(command)], how, limit_s)


def check_free(out: Path, *, force: bool) -> None:
    """Refuse to overwrite a file that was written by hand, or changed since it was recorded."""
    from asa.spec.recorded import is_as_recorded

    if out.exists() and not force and not is_as_recorded(out):
        raise InputError("exists already", where=str(out), hint="Give another name with --out, or --force.")


def _write(out: Path, commands: Sequence[Sequence[str]], how: RecordingWay, limit_s: float) -> None:
    from asa.cli.imported import tell, write_text
    from asa.importers import as_toml
    from asa.importers.recording import keep, translate, with_parameters
    from asa.importers.recording.parameters import given
    from asa.importers.scripts import ImportChoices
    from asa.spec import write_workflow
    from asa.spec.recorded import note_file, recorded_folder

    recording = _recorded(commands, how, limit_s)
    kept = recorded_folder(out)
    made = translate(recording, kept, ImportChoices(**how.choices), name=how.name)
    text = as_toml(made.imported, out.parent, write_workflow)
    if how.parameters:
        text = with_parameters(text, given(how.parameters), made.files)
    keep(recording, made, kept)
    _tell_of(recording, kept)
    write_text(out, text, force=True)
    note_file(out)
    tell(made.imported, out)


def _recorded(commands: Sequence[Sequence[str]], how: RecordingWay, limit_s: float) -> Recording:
    """Record in a private view; where the system allows none, ask on the terminal whether to record without one."""
    from asa.importers.recording import NoPrivateViewError, record

    same: dict[str, Any] = {"limit_s": limit_s, "is_session": how.is_session}
    try:
        return record(*commands, is_private=how.is_private, has_network=how.has_network, **same)
    except NoPrivateViewError as error:
        if not sys.stdin.isatty():
            raise
        words = printable("; ".join(map(shlex.join, commands)))
        sys.stderr.write(
            f"{printable(error.message[:1].upper() + error.message[1:])}.\n"
            f"Without one, `{words}` runs as it is, in {printable(str(Path.cwd()))}. sbatch submits nothing, "
            "but all else is really done: files that it writes, changes or removes stay so, it reaches other machines, "
            "and what calls Slurm's programs by their full paths really submits.\n"
        )
        if not typer.confirm("Run it as it is?", err=True):
            write_notice("Nothing was run.")
            raise typer.Exit(1) from None
    return record(*commands, is_private=False, **same)


def _tell_of(recording: Recording, kept: Path) -> None:
    count = len(recording.jobs)
    jobs = f"{count} job{'s' if count != 1 else ''}"
    write_notice(f"Recorded {jobs} of {recording.words}; nothing was submitted. Kept in {kept}.")


def session(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="What to run. [default: your shell]", metavar="[COMMAND]...", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The workflow file to write.", metavar="FILE")] = Path(
        "flow.toml"
    ),
    has_network: Annotated[bool, typer.Option("--network", help="Let what you run reach other machines.")] = False,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Have no private view of the files: what is done in the session stays done."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Record what you submit in a session: in a shell in which sbatch submits nothing.

    Leave the shell with `exit` or Ctrl-D: the jobs that you submitted in it become a workflow file. Files that you
    wrote are kept next to that file if jobs may need them, and else thrown away.
    """
    words = command or [os.environ.get("SHELL", "/bin/sh")]
    if command is None:
        files = "what is done to files stays done" if in_place else "files are as before afterwards"
        write_notice(f"Recording: sbatch submits nothing here, and {files}. Leave with exit.")
    how = RecordingWay(limit="", is_private=not in_place, has_network=has_network, is_session=True)
    record_into(out, words, how, force=force)


def _file_for(words: list[str]) -> Path:
    """Name a command's workflow file.

    Other arguments give another file, since a run of the former file may be under way.
    """
    from asa.spec.recorded import commands_of, recorded_folder

    script = next((Path(word) for word in words[:3] if Path(word).is_file()), None)
    stem = (script or Path(words[0])).stem or "recorded"
    number, out = 1, Path(f"{stem}.toml")
    while recorded_folder(out).exists() and commands_of(out) not in ([], [words]):
        number += 1
        out = Path(f"{stem}-{number}.toml")
    return out


def as_workflow(command: str, words: list[str]) -> str:
    """Record a driver anew, for a command that takes a workflow; return the workflow's file."""
    out = _file_for(words)
    try:
        check_free(out, force=False)
    except InputError as error:
        hint = (
            f"To take it as it is: asa {command} {shlex.quote(str(out))}. To record anew: asa import scripts --record "
        )
        hint += f"--force --out {shlex.quote(str(out))} -- {shlex.join(words)}"
        raise InputError("was changed since it was recorded, or written by hand", where=str(out), hint=hint) from error
    from asa.importers.recording import NoPrivateViewError

    try:
        record_into(out, words, RecordingWay(), force=False)
    except NoPrivateViewError as error:
        hint = (
            "To have it run as it is, which submits nothing but really does what it does besides: asa import scripts "
            f"--record --in-place --out {shlex.quote(str(out))} -- {shlex.join(words)}, and then asa {command} "
            f"{shlex.quote(str(out))}. Or record where namespaces of users are allowed, such as on another login node."
        )
        raise InputError(error.message, where="--record", hint=hint) from error
    _show(out)
    return str(out)


def _show(out: Path) -> None:
    """Print the recorded stages on stderr."""
    from asa.cli.show import stages_table
    from asa.core.console import Console
    from asa.spec import load_workflow

    Console(stderr=True, highlight=False).print(stages_table(load_workflow(out)))

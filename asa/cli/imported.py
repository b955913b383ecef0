"""Writes an imported workflow, and prints notes on it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from asa.cli.stand_ins import SWITCH, needed_by
from asa.cli.terminal import write_document, write_notice
from asa.core.safe import writing_text
from asa.errors import InputError

if TYPE_CHECKING:
    from asa.importers import Imported


def write_out(made: Imported, out: Path | None, *, force: bool) -> None:
    """Print a workflow file, or write it; print notes and what to do next."""
    from asa.importers import as_toml
    from asa.spec import write_workflow

    out = None if out == Path("-") else out
    text = as_toml(made, Path.cwd() if out is None else out.parent, write_workflow)
    if out is None:
        write_document(text)
    else:
        write_text(out, text, force=force)
    tell(made, out)


def tell(made: Imported, out: Path | None) -> None:
    """Print notes on an imported workflow, and what to do next."""
    for note in made.notes:
        write_notice(f"note: {note}")
    file = shlex.quote(str(out or "flow.toml"))
    saved = "" if out is not None else " (saved as flow.toml, or with --out)"
    runs = not any(stage.is_idle for stage in made.workflow.stages.values())
    then = f"asa run {file}" if runs else f"asa compare {file}"
    sys.stderr.write(f"Next{saved}:  asa check {file}  and then  {then}\n")
    if runs and (names := needed_by(made.workflow.stages.values())):
        write_notice(f"On this computer, with stand-ins for {', '.join(names)}:")
        sys.stderr.write(f"  asa run {file} --backend local {SWITCH}\n")


def write_text(out: Path, text: str, *, force: bool) -> None:
    """Write a file; with `force`, over an existing one."""
    try:
        with writing_text(out, is_new=not force) as file:
            file.write(text)
    except FileExistsError as error:
        raise InputError("exists already", where=str(out), hint="Give another name, or --force.") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError("its folder does not exist", where=str(out), hint="Make it first.") from error
    write_notice(f"Written to {out}.")

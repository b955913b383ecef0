"""``asa schema``: the JSON Schema of workflow files, for editors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["schema"]


def schema(
    out: Annotated[Path | None, typer.Option(help="Write it to this file.", metavar="FILE", show_default=False)] = None,
) -> None:
    """Print the JSON Schema of workflow files, by which editors complete and check them.

    Editors that know TOML's schemas (taplo, Even Better TOML) find it by a file's first line:

    `asa schema --out workflow.schema.json`, and in the workflow file `#:schema ./workflow.schema.json`
    """
    from asa.spec import schema_text

    text = schema_text()
    if out is None:
        sys.stdout.write(text)
        return
    out.write_text(text, encoding="utf-8")
    sys.stderr.write(f"Written to {out}. First line of a workflow file beside it:  #:schema ./{out.name}\n")

"""``asa schema``: prints the JSON Schema of workflow files, for editors."""

from __future__ import annotations

import sys

from asa.cli.imported import write_text
from asa.cli.imports import ForceOption, OutOption
from asa.cli.terminal import write_document


def schema(
    out: OutOption = None,
    force: ForceOption = False,
) -> None:
    """Print the JSON Schema of workflow files, with which editors complete and check them.

    Editors that support schemas for TOML (taplo, Even Better TOML) find it by the first line of the workflow file:

    `asa schema --out workflow.schema.json`, and in the workflow file `#:schema ./workflow.schema.json`
    """
    from asa.spec import schema_text

    text = schema_text()
    if out is None:
        write_document(text)
        return
    write_text(out, text, force=force)
    sys.stderr.write(f"First line of a workflow file in the same folder:  #:schema ./{out.name}\n")

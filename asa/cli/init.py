"""``asa init``: writes an example workflow file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from asa.cli.imported import write_text
from asa.cli.imports import ForceOption

_TEXT = """\
# A workflow of three stages. Change names, cores, times and commands to those of your own:
#   asa check {file}            is anything wrong with it?
#   asa run {file} --dry-run    what would be submitted, and when? Nothing is.
#   asa run {file}              run it

name = {name}

# A value that may change from run to run:  asa run {file} --param parts=8
[parameters]
parts = 4

# A stage is one job's worth of work. It runs as soon as the stages in `after` have completed.
[[stage]]
name = "prepare"
cores = 1            # or: nodes = 1, or: ntasks = 4 and cpus_per_task = 2
walltime = "5min"    # when it has run for so long, it is killed
expected = "2s"      # how long it usually takes; asa learns it from each run
command = "sleep 2; seq {{{{parts}}}} > parts.txt; echo there are {{{{parts}}}} parts"

[[stage]]
name = "compute"
cores = 2
walltime = "10min"
expected = "3s"
after = ["prepare"]
command = \"\"\"
for part in $(cat parts.txt); do
    echo "part $part: $((part * part))"
done > results.txt
sleep 3
\"\"\"
# On a cluster, to choose from; `asa schema` has all keys:
#   script = "compute.sh"        # a batch script in place of the command
#   memory = "4G"
#   gpus = 1
#   modules = ["gcc", "openmpi"]
#   partition = "short"
#   retries = 2

[[stage]]
name = "collect"
cores = 1
walltime = "5min"
expected = "1s"
after = ["compute"]
command = "wc -l < results.txt"
"""


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.", metavar="[FILE]")] = Path("flow.toml"),
    force: ForceOption = False,
) -> None:
    """Write an example workflow file: three stages, with comments. It runs on this computer as it is.

    Batch scripts and workflows of Snakemake or Nextflow are converted by `asa import`.

    Exit codes: 0 it is written, 2 it is there already, or cannot be written.
    """
    name = shlex.quote(str(file))
    write_text(file, starter(file), force=force)
    sys.stderr.write(f"Next:  asa check {name}  and then  asa run {name} --backend local\n")


def starter(file: Path) -> str:
    """Return the text of the example, for a file at this path."""
    import json

    name = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_") else "-" for letter in file.stem)
    return _TEXT.format(file=shlex.quote(str(file)), name=json.dumps(name.strip("-") or "flow"))

"""Real programs under asa, on artificial data: a mosaic by Montage, a search by BLAST+, statistics of a long table.

Each example is a workflow file, with scripts that make its data and check its result. In a new folder, the data are
made, `asa run` runs the stages on this computer, and the result is compared with what is known of the data. Examples
whose programs are not installed are skipped (Debian: montage montage-gridtools ncbi-blast+).

    python examples/pipelines.py [montage | blast | statistics] ...
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).absolute().parent
ASA = Path(sys.executable).with_name("asa")
OUT = Path("out")


class Pipeline(NamedTuple):
    """Where an example is, the arguments of its scripts, and a program that it needs."""

    maker: str
    flow: str
    checker: str
    program: str
    beside: tuple[str, ...] = ()  # files that its stages run


PIPELINES = {
    "montage": Pipeline(
        maker="make_sky.py . --tiles=6 --size=100",
        flow="mosaic.toml --param tiles=6 --param project=mProjectPP",
        checker="check_mosaic.py sky.json mosaic.fits",
        program="mProjectPP",
    ),
    "blast": Pipeline(
        maker="make_sequences.py . --megabases=1 --queries=200",
        flow="search.toml --param parts=4",
        checker="check_hits.py planted.tsv best.tsv",
        program="blastn",
    ),
    "statistics": Pipeline(
        maker="make_power.py . --rows=20000",
        flow="power.toml --param parts=4",
        checker="check_summary.py truth.json summary.json",
        program="python3",
        beside=("power.py",),
    ),
}


def run(name: str, pipeline: Pipeline, data: Path) -> None:
    """Make the data, run the workflow, check the result."""

    def call(program: Path | str, words: str, *more: str) -> None:
        file, *arguments = words.split()
        command = [str(program), *more, str(HERE / name / file), *arguments]
        if subprocess.run(command, check=False, cwd=data).returncode:  # noqa: S603 - ours
            sys.exit(f"{name}: {file} failed, in {data}")

    data.mkdir(parents=True)
    call(sys.executable, pipeline.maker)
    for file in pipeline.beside:
        shutil.copy(HERE / name / file, data)
    call(ASA, f"{pipeline.flow} --backend local --bank bank --param width=2 --option cores=2", "run")
    call(sys.executable, pipeline.checker)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Real programs under asa, on made-up data.")
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(PIPELINES)}; all if none")
    names = parser.parse_args().pipelines or list(PIPELINES)
    if unknown := [name for name in names if name not in PIPELINES]:
        parser.error(f"there is no pipeline {unknown[0]!r}: {', '.join(PIPELINES)}")
    for asked in names:
        if shutil.which(PIPELINES[asked].program) is None:
            print(f"{asked} is not run: {PIPELINES[asked].program} is not installed")
            continue
        print(f"== {asked}", flush=True)
        run(asked, PIPELINES[asked], OUT.absolute() / f"{asked}-{time.strftime('%Y%m%d-%H%M%S')}")

"""Workflows for Toil around real programs, with the data that they read."""

import random
import shutil
from pathlib import Path

import pytest
import whole_pipelines

FLOWS = Path(__file__).parent / "toil" / "flows"


def put(project, name, **inputs):
    """Write a workflow and its data into a project; return the workflow's file and that of its inputs."""
    flow = project.write(f"{name}.cwl", (FLOWS / f"{name}.cwl").read_text())
    return flow, project.write("inputs.json", _DATA[name](project) | inputs)


def _file(project, name, text=None):
    if text is not None:
        project.write(name, text)
    return {"class": "File", "path": str(project.folder / name)}


def _words(project):
    drawn = random.Random(1)
    words = ["".join(drawn.choices("abcdefgh", k=drawn.randint(2, 9))) for _ in range(300)]
    return {"text": _file(project, "text.txt", " ".join(drawn.choices(words, k=4000)))}


def _blast(project):
    for program in ("makeblastdb", "blastn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    drawn = random.Random(2)
    genome = "".join(drawn.choices("ACGT", k=60_000))
    begins = [[drawn.randrange(59_000) for _ in range(20)] for _ in range(4)]
    parts = [
        _file(project, f"part{n}.fa", "".join(f">{n}.{k}\n{genome[at : at + 200]}\n" for k, at in enumerate(part)))
        for n, part in enumerate(begins)
    ]
    return {"genome": _file(project, "genome.fa", f">a\n{genome[:30000]}\n>b\n{genome[30000:]}\n"), "parts": parts}


def _montage(project):
    pipeline = whole_pipelines.PIPELINES["montage"]
    if why := pipeline.missing():
        pytest.skip(why)
    data = project.folder / "data"
    pipeline.make_data(data, "small")
    images = sorted(path for path in data.rglob("*.fits") if path.parent.name == "raw")
    return {"images": [{"class": "File", "path": str(path)} for path in images]}


_DATA = {"words": _words, "blast": _blast, "montage": _montage}

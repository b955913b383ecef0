"""Whole pipelines for tests: their data, their workflows, and ways to spoil them."""

import os
import shutil
from dataclasses import replace

import pytest
import whole_pipelines
from whole_pipelines import read_image, run_by_asa, run_in_a_loop, write_image

from asa.records import StageEnded
from asa.runner import list_runs
from asa.workflow import Workflow

__all__ = [
    "SMALL",
    "Made",
    "completed",
    "pipeline_of",
    "read_image",
    "run_by_asa",
    "run_in_a_loop",
    "with_program",
    "write_image",
    "written",
]

SMALL = "small"


def pipeline_of(name):
    """Return a pipeline; the test is skipped where its programs are not installed."""
    pipeline = whole_pipelines.PIPELINES[name]
    if why := pipeline.missing():
        pytest.skip(why)
    return pipeline


class Made:
    """A pipeline's data, made once, and the results of the plain loop."""

    def __init__(self, name, root, width=2):
        self.pipeline = pipeline_of(name)
        self.data, self.reference = root / "data", root / "loop"
        self.pipeline.make_data(self.data, SMALL)
        self.flow = self.pipeline.load(SMALL, width)
        whole_pipelines.new_work(self.data, self.reference)
        run_in_a_loop(self.flow, self.reference)
        self._root, self._count = root, 0

    def work(self):
        """Make a new folder to work in, whose data may be spoilt."""
        self._count += 1
        work = whole_pipelines.new_work(self.data, self._root / f"work{self._count}")
        for link in work.iterdir():
            target = link.resolve()
            link.unlink()
            (shutil.copytree if target.is_dir() else shutil.copy)(target, link)
        return work

    def verdict(self, work):
        return self.pipeline.check(self.data, work)

    def likeness(self, work):
        return whole_pipelines.likeness(self.pipeline, self.reference, work)


def with_program(flow, folder, name, text):
    """Let a shell script stand in for one of a workflow's programs; ``real`` is that program for it."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nreal={shutil.which(name)}\n{text}\n")
    program.chmod(0o755)
    path = ("PATH", f"{folder}:{os.environ['PATH']}")
    stages = [replace(stage, environment=(*stage.environment, path)) for stage in flow.stages.values()]
    return Workflow(flow.name, stages)


def written(work, stage):
    """Read the outputs of all of a stage's jobs."""
    [run] = list_runs(work / "runs")
    return "".join(path.read_text() for path in sorted((run.path / "logs").glob(f"*{stage}*")))


def completed(work):
    """Return which stages completed."""
    [run] = list_runs(work / "runs")
    return [record.stages[0] for record in run.state()[1] if isinstance(record, StageEnded)]

"""The results of `asa compare` as a file, from which a page, a trace and a spreadsheet can be made later."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from asa.core.documents import read_text
from asa.core.files import in_words
from asa.core.safe import look_at
from asa.errors import InputError
from asa.report.page import Page
from asa.studies.compare.page import comparison_page
from asa.studies.compare.study import CompareRun, group
from asa.studies.harness import sealed, unsealed

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class KeptComparison:
    """A comparison of one workflow on one system."""

    asa_comparison: Literal[1]  # version of the format
    of: str  # the command; its page replaces an earlier one of the same command
    made: dict[str, str]  # how it was made, for the foot of a page
    notes: tuple[str, ...]  # facts about the system
    runs: tuple[CompareRun, ...]  # all runs; the first of each strategy and core count has its timeline

    @classmethod
    def read(cls, file: Path) -> KeptComparison:
        """Read a file.

        Raises `InputError`: the file cannot be read, was damaged or changed, or has another content; or its runs cannot
        be compared.
        """
        where = str(file)
        look_at(file)
        with in_words("cannot be read", where, "Name another file."):
            text = unsealed(read_text(file, errors="replace").strip())
        if text is None:
            hint = "Name a run, or compare anew: asa compare --results FILE.json."
            raise InputError("is damaged, or no comparison that this version kept", where=where, hint=hint)
        try:
            comparison = _adapter().validate_json(text)
        except ValueError as error:
            hint = "Name a run, or a file that `asa compare --results` of this version wrote."
            raise InputError("is no comparison that this version kept", where=where, hint=hint) from error
        if wrong := comparison.flaw():
            raise InputError(wrong, where=where, hint="Compare anew: asa compare --results FILE.json.")
        return comparison

    def text(self) -> str:
        """Return the comparison as JSON, with a checksum at the end."""
        return sealed(_adapter().dump_json(self, indent=1).decode()) + "\n"

    def flaw(self) -> str:
        """Why the runs cannot be compared, to follow the file's name; empty if they can."""
        if not self.runs:
            return "has no runs"
        if len({(run.workflow, run.system, run.age_accrues) for run in self.runs}) > 1:
            return "has runs of several workflows, systems or rules of age"
        seeds_by_cell = {cell: [run.seed for run in members] for cell, members in group(self.runs).items()}
        first = next(iter(seeds_by_cell.values()))
        for cores in dict.fromkeys(cores for cores, _ in seeds_by_cell):
            for strategy in dict.fromkeys(strategy for _, strategy in seeds_by_cell):
                seeds = seeds_by_cell.get((cores, strategy), [])
                if len(set(seeds)) < len(seeds):
                    return f"has several runs of {strategy} on {cores} cores in the same replication"
                if seeds != first:
                    return f"has runs that are not paired: {strategy} on {cores} cores has other replications"
        for run in self.runs:
            if not _is_finite(asdict(run)):
                return f"has a figure that is no number: {run.strategy} on {run.cores} cores, seed {run.seed}"
        return ""

    @property
    def name(self) -> str:
        """Name of its page."""
        first = self.runs[0]
        return f"compare-{first.workflow}-{first.system}"

    def page(self) -> Page:
        """Build its page."""
        return comparison_page(self.runs, notes=self.notes, made=self.made)

    def trace_events(self) -> dict[str, Any]:
        """Return trace events: a process for each strategy and core count, a track for each job."""
        events: list[dict[str, Any]] = []
        for process, (run, trace) in enumerate(self._of_timelines("trace_events"), start=1):
            mine = [{**event, "pid": process} for event in trace["traceEvents"]]
            for event in mine:
                if event["name"] == "process_name":
                    event["args"] = {"name": f"{run.strategy}, {run.cores} cores, seed {run.seed}"}
            events += mine
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat row for each span of a job, for a spreadsheet."""
        return [
            {"workflow": run.workflow, "peak_cores": run.cores, "strategy": run.strategy, "seed": run.seed, **row}
            for run, own_rows in self._of_timelines("rows")
            for row in own_rows
        ]

    def _of_timelines(self, how: str) -> Iterator[tuple[CompareRun, Any]]:
        return ((run, getattr(run.timeline, how)()) for run in self.runs if run.timeline is not None)


def _is_finite(value: Any) -> bool:
    """Whether all numbers in a value are finite."""
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


@cache
def _adapter() -> TypeAdapter[KeptComparison]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - takes long

    return TypeAdapter(KeptComparison)

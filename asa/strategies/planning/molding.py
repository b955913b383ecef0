"""The shapes that the stages of a job take together: each the quickest within the job's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from operator import attrgetter

from asa.backend import Capabilities, JobSpec
from asa.core.late import dataclass
from asa.keys import asked
from asa.shapes import Shape
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class Form:
    """A shape of a stage, and the cores that a site allocates for it."""

    cores: int
    shape: Shape


def forms_of(stage: Stage, site: Capabilities) -> tuple[Form, ...]:
    """Return the shapes that a stage may ask for at a site, or only its own if no shape is known to fit.

    A wider shape that does not run shorter is left out.
    """
    found = [_form(stage, shape, site.cores_per_node) for shape in stage.shapes if not impossible(stage, shape, site)]
    kept: list[Form] = []
    for form in sorted(found, key=attrgetter("cores")):
        here = [other for other in kept if other.shape.partition == form.shape.partition]
        if all(form.shape.run_s < other.shape.run_s for other in here):
            kept.append(form)
    return tuple(kept) or (own_form(stage, site),)


def own_form(stage: Stage, site: Capabilities) -> Form:
    """Return the shape in which a stage is asked for now."""
    own = Shape(stage.width, stage.expected_s, stage.walltime_s, stage.run_spread, stage.partition)
    return _form(stage, own, site.cores_per_node)


def impossible(stage: Stage, shape: Shape, site: Capabilities) -> str | None:
    """Return why a job of one stage in a given shape could never start at a site; None if it could."""
    spec = JobSpec(
        stage.name,
        walltime_s=shape.walltime_s,
        cores=_form(stage, shape, site.cores_per_node).cores,
        nodes=(stage.nodes or 0) if stage.cores is not None else shape.width,
        partition=shape.partition,
        local=stage.local,
        request=stage.request,
        **asked(stage),
    )
    return site.impossible(spec)


def _form(stage: Stage, shape: Shape, cores_per_node: int) -> Form:
    cores, nodes = (shape.width, stage.nodes or 0) if stage.cores is not None else (0, shape.width)
    return Form(stage.allocated(cores, nodes, cores_per_node), shape)


@dataclass(slots=True)
class Line:
    """A width and a partition of possible jobs, with the shape that each stage takes in such a job."""

    width: int
    partition: str
    forms: Mapping[str, Form]


def lines_of(forms: Mapping[str, Sequence[Form]]) -> list[Line]:
    """Return the widths and partitions of possible jobs; in each, a stage runs as wide as fits."""
    by_partition: dict[str, dict[str, list[Form]]] = {}
    for name, of in forms.items():
        for form in of:  # ascending cores
            by_partition.setdefault(form.shape.partition, {}).setdefault(name, []).append(form)
    lines = []
    for partition, here in by_partition.items():
        for width in sorted({form.cores for of in here.values() for form in of}):
            fitting = {name: [form for form in of if form.cores <= width] for name, of in here.items()}
            lines.append(Line(width, partition, {name: of[-1] for name, of in fitting.items() if of}))
    return lines


@dataclass(slots=True)
class WideningJob:
    """A job on a line, to which stage after stage is added."""

    line: Line
    cores: int = 0
    run_s: float = 0.0
    walltime_s: float = 0.0
    strays: float = 0.0  # variance of its run time, in square seconds
    needs: list[int] = field(default_factory=list)
    lasts_s: list[float] = field(default_factory=list)
    shapes: tuple[Shape, ...] = ()

    def add(self, name: str) -> bool:
        """Add a stage; return whether it has a shape on this line."""
        form = self.line.forms.get(name)
        if form is None:
            return False
        shape = form.shape
        self.cores = max(self.cores, form.cores)
        self.run_s += shape.run_s
        self.walltime_s += shape.walltime_s
        self.strays += (shape.spread * shape.run_s) ** 2
        self.needs.append(form.cores)
        self.lasts_s.append(shape.run_s)
        self.shapes += (shape,)
        return True

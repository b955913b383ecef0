"""The shapes that the stages of a job take together: each the one in which it is quickest within the job's width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from asa.backend import Capabilities
from asa.shapes import Shape
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class Form:
    """A shape of a stage at a site: what it holds there."""

    cores: int
    shape: Shape


def forms_of(stage: Stage, site: Capabilities) -> tuple[Form, ...]:
    """Give the shapes in which a stage may be asked for at a site; its own alone where none fits, or is known better.

    A wider one that runs no shorter is left out.
    """
    found = [_form(stage, shape, site.cores_per_node) for shape in stage.shapes]
    fitting = [form for form in found if _fits(form, site)]
    kept: list[Form] = []
    for form in sorted(fitting, key=attrgetter("cores")):
        here = [one for one in kept if one.shape.partition == form.shape.partition]
        if all(form.shape.run_s < one.shape.run_s for one in here):
            kept.append(form)
    return tuple(kept) or (own_form(stage, site),)


def own_form(stage: Stage, site: Capabilities) -> Form:
    """Give the shape in which a stage is asked for now."""
    own = Shape(stage.width, stage.expected_s, stage.walltime_s, stage.run_spread, stage.partition)
    return _form(stage, own, site.cores_per_node)


def _form(stage: Stage, shape: Shape, cores_per_node: int) -> Form:
    cores, nodes = (shape.width, stage.nodes or 0) if stage.cores is not None else (0, shape.width)
    return Form(stage.allocated(cores, nodes, cores_per_node), shape)


def _fits(form: Form, site: Capabilities) -> bool:
    limits = site.partitions.get(form.shape.partition or site.partition)
    most = min(site.max_cores, math.inf if limits is None or limits.max_cores is None else limits.max_cores)
    if limits is not None and limits.max_nodes is not None and site.cores_per_node:
        most = min(most, limits.max_nodes * (limits.cores_per_node or site.cores_per_node))
    longest_s = math.inf if limits is None or limits.max_walltime_s is None else limits.max_walltime_s
    return form.cores <= most and form.shape.walltime_s <= longest_s


class Molds:
    """The forms of a workflow's stages."""

    def __init__(self, forms: Mapping[str, Sequence[Form]]) -> None:
        self._forms = {
            name: {
                partition: tuple(one for one in of if one.shape.partition == partition)  # ascending in cores
                for partition in dict.fromkeys(one.shape.partition for one in of)
            }
            for name, of in forms.items()
        }

    def together(self, names: Sequence[str]) -> Iterator[tuple[Form, ...]]:
        """Give the forms of stages that share a job, for each partition and width that it may have."""
        first, *others = (self._forms[name] for name in names)
        for partition in first:
            if not all(partition in other for other in others):
                continue
            of = [first[partition], *(other[partition] for other in others)]
            least = max(forms[0].cores for forms in of)
            for width in sorted({form.cores for forms in of for form in forms if form.cores >= least}):
                # the widest that fits is the quickest
                yield tuple(next(form for form in reversed(forms) if form.cores <= width) for forms in of)

"""Lets parallel stages of a single width have several, by an assumed law of run times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from asa.errors import WorkflowError
from asa.shapes import Moldable, Scaling
from asa.workflow import Stage, Workflow

_WIDTHS = 5  # the stage's own width, and narrower ones, each half of the one before


@dataclass(frozen=True, slots=True)
class AssumedWidths:
    """A workflow in which stages of a single width may have several.

    `workflow`: the workflow.
    `stages`: names of these stages.
    `widths`: all widths of the widest of them, its own first.
    `unit`: of the widths: cores or nodes.
    `law`: gives run times at other widths from the expected one.
    """

    workflow: Workflow
    stages: tuple[str, ...]
    widths: tuple[int, ...]
    unit: str
    law: Scaling


def assumed_widths(
    workflow: Workflow,
    law: Scaling,
    widths: Sequence[int] = (),
    is_possible: Callable[[Stage], bool] = lambda _: True,
) -> AssumedWidths | None:
    """Let each parallel stage of one width have others; None if no stage can.

    `widths`: the other widths; by default narrower ones, each half of the one before, down to a sixteenth.
    `is_possible`: whether the site can run a stage in a shape; shapes that it cannot run are left out.
    """
    found = {name: _in_widths(stage, law, widths, is_possible) for name, stage in workflow.stages.items()}
    changed = {name: stage for name, stage in found.items() if stage is not None}
    if not changed:
        return None
    stages = [changed.get(name, stage) for name, stage in workflow.stages.items()]
    own_s = workflow.walltime_s if workflow.says_walltime else None
    widest = max(changed.values(), key=lambda stage: stage.width)
    assert widest.moldable is not None
    others = tuple(width for width in widest.moldable.widths if width != widest.width)
    return AssumedWidths(
        Workflow(workflow.name, stages, walltime_s=own_s), tuple(changed), (widest.width, *others),
        "cores" if widest.nodes is None else "nodes", law,
    )  # fmt: skip


def _in_widths(stage: Stage, law: Scaling, widths: Sequence[int], is_possible: Callable[[Stage], bool]) -> Stage | None:
    """Return a stage with several widths; None if it has several already, or cannot have them."""
    if stage.moldable is not None or stage.width < 2 or stage.tasks or stage.tasks_file:
        return None
    each = stage.cpus_per_task if stage.nodes is None else 1
    others = widths or [stage.width >> halved for halved in range(1, _WIDTHS)]
    offered = {stage.width, *(width // each * each for width in others)} - {0}
    with suppress(WorkflowError):  # raised by stages that cannot, such as job arrays
        every = replace(stage, moldable=Moldable(tuple(sorted(offered)), scaling=law))
        fit = [shape.width for shape in every.shapes if shape.width == stage.width or is_possible(every.shaped(shape))]
        return replace(stage, moldable=Moldable(tuple(sorted(fit)), scaling=law)) if len(fit) > 1 else None
    return None


def usual_laws(workflow: Workflow) -> tuple[Scaling, ...]:
    """Return the laws that are assumed if no law is known, the most cautious law first.

    For narrower jobs the cautious law says that run time grows by the factor by which they are narrower. By the other
    law, the widest stage runs half as fast as with perfect scaling.
    """
    widest = max((stage.width for stage in workflow.stages.values()), default=1)
    return Scaling("amdahl", parallel=1.0), Scaling("amdahl", parallel=round(1 - 1 / max(widest, 2), 3))

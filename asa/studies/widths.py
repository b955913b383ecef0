"""Workflows whose parallel stages, of one width each, might run in several: by an assumed law of run times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from asa.errors import WorkflowError
from asa.shapes import Moldable, Scaling
from asa.workflow import Stage, Workflow

_WIDTHS = 5  # the own one and so many less one that are narrower, each half of the one before


@dataclass(frozen=True, slots=True)
class AssumedWidths:
    """A workflow in which stages of one width may have several.

    `workflow`: that.
    `stages`: which stages.
    `widths`: all widths of the widest of them, the own one first.
    `unit`: of these: cores or nodes.
    `law`: by which their run times at other widths follow from the expected one.
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

    `widths`: the others; by default narrower ones, each half as wide as the one before, down to a sixteenth.
    `is_possible`: whether the site can run a stage in a shape; shapes that it cannot are left out.
    """
    found = {name: _in_widths(stage, law, widths, is_possible) for name, stage in workflow.stages.items()}
    changed = {name: stage for name, stage in found.items() if stage is not None}
    if not changed:
        return None
    stages = [changed.get(name, stage) for name, stage in workflow.stages.items()]
    own_s = workflow.walltime_s if workflow.says_walltime else None
    widest = max(changed.values(), key=lambda stage: stage.width)
    assert widest.moldable is not None
    others = tuple(one for one in widest.moldable.widths if one != widest.width)
    return AssumedWidths(
        Workflow(workflow.name, stages, walltime_s=own_s), tuple(changed), (widest.width, *others),
        "cores" if widest.nodes is None else "nodes", law,
    )  # fmt: skip


def _in_widths(stage: Stage, law: Scaling, widths: Sequence[int], is_possible: Callable[[Stage], bool]) -> Stage | None:
    """Let a stage have several widths; None if it has them already, or cannot."""
    if stage.moldable is not None or stage.width < 2 or stage.tasks or stage.tasks_file:
        return None
    each = stage.cpus_per_task if stage.nodes is None else 1
    others = widths or [stage.width >> halved for halved in range(1, _WIDTHS)]
    offered = {stage.width, *(one // each * each for one in others)} - {0}
    with suppress(WorkflowError):  # of one that cannot, as a job array
        every = replace(stage, moldable=Moldable(tuple(sorted(offered)), scaling=law))
        fit = [one.width for one in every.shapes if one.width == stage.width or is_possible(every.shaped(one))]
        return replace(stage, moldable=Moldable(tuple(sorted(fit)), scaling=law)) if len(fit) > 1 else None
    return None


def usual_laws(workflow: Workflow) -> tuple[Scaling, ...]:
    """Give the laws that are assumed if none is known, the careful one first.

    Of narrower jobs the careful one is that they take as many times longer as they are narrower. By the other, the
    widest stage runs half as fast as it would if it scaled perfectly.
    """
    widest = max((stage.width for stage in workflow.stages.values()), default=1)
    return Scaling("amdahl", parallel=1.0), Scaling("amdahl", parallel=round(1 - 1 / max(widest, 2), 3))

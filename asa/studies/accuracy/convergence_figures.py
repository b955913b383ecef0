"""Fig. 5 of the paper on a page: how each policy of Algorithm 1 follows a changing wait."""

from __future__ import annotations

import math
from collections.abc import Sequence

from asa.report.page import PageFigure
from asa.report.page.drawing import curves
from asa.studies.accuracy.convergence import Convergence


def convergence_figures(convergences: Sequence[Convergence]) -> list[PageFigure]:
    """Draw each policy's predictions, and the true waits, for the first sequence of waits.

    `convergences`: one for each policy; each gets its own figure.
    """
    figures = []
    for convergence in convergences:
        lines = {convergence.policy: _thin(convergence.predicted_s), "what came true": _thin(convergence.true_s)}
        drawn = curves(
            lines,
            title=f"Policy {convergence.policy}",
            x_words="iterations",
            y_words="wait, s",
            steps=True,
            powers=True,
        )
        figures.append(PageFigure(drawn, f"Policy {followed(convergence)}"))
    return figures


def followed(convergence: Convergence) -> str:
    """Return a sentence that says how often a policy was right, and how soon after a change."""
    hits = sum(convergence.hits_percent) / max(len(convergence.hits_percent), 1)
    found = (
        "never" if math.isnan(convergence.found_after) else f"mostly after {convergence.found_after:.0f} submissions"
    )
    lost = convergence.lost_after_drops_percent
    missed = sum(lost) / len(lost) if lost else 0.0
    drops = f"; {missed:.0f} % of the drops it does not find before the next change" if missed >= 1 else ""
    return (
        f"`{convergence.policy}`: {hits:.0f} % of its predictions are the closest; it finds a new wait {found}{drops}."
    )


def _thin(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the points of a stepped line at which it changes."""
    points = [(float(x), y) for x, y in enumerate(values) if not x or y != values[x - 1]]
    return [*points, (float(len(values) - 1), values[-1])]

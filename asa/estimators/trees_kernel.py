"""The arithmetic of `asa.estimators.trees`: what an ensemble of trees says of a job."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel


@kernel
def predict(x: Any, roots: Any, feature: Any, threshold: Any, children: Any, leaves: Any) -> float:
    """Add up the leaves that `x` falls into, one a tree. A child below 0 is the leaf ``-1 - child``."""
    total = 0.0
    for tree in range(roots.shape[0]):
        node = roots[tree]
        while node >= 0:
            node = children[0, node] if x[feature[node]] <= threshold[node] else children[1, node]
        total += leaves[-1 - node]
    return total

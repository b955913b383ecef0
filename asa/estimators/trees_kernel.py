"""The arithmetic of `asa.estimators.trees`: the prediction of an ensemble."""

from __future__ import annotations

from typing import Any

from asa.core.compiled import kernel


@kernel
def predict(x: Any, roots: Any, feature: Any, threshold: Any, children: Any, leaves: Any) -> float:
    """Sum the leaves into which `x` falls, one for each tree. A negative child is the leaf ``-1 - child``."""
    total = 0.0
    for tree in range(roots.shape[0]):
        node = roots[tree]
        while node >= 0:
            node = children[0, node] if x[feature[node]] <= threshold[node] else children[1, node]
        total += leaves[-1 - node]
    return total

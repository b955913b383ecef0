"""An actor with a trained network that does not learn; learning actors are in `asa.studies.dras.learners`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from asa.backends.simulated.policies import QueueView

from .network import Evaluator, Floats, NetworkSize
from .state import SCALE_S, Encoder, Integers


class Actor:
    """Chooses by a network, which it never changes. It needs no PyTorch.

    `sample`: for DRAS-PG, whether to draw by the likelihoods, as in training; else the likeliest job is chosen, and of
    equal ones the older. DRAS-DQL always takes the job with the highest value.
    """

    def __init__(
        self,
        shape: NetworkSize,
        parameters: Mapping[str, Floats],
        *,
        scale_s: int = SCALE_S,
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        own = {name: array.copy() for name, array in parameters.items()}
        for array in own.values():
            array.flags.writeable = False
        self._evaluate = Evaluator(shape, own)
        self._encode = Encoder(shape.nodes, scale_s)
        self._rng = np.random.Generator(np.random.PCG64(seed)) if sample and shape.kind == "pg" else None

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Return the index of the chosen job among `jobs`."""
        values = self._evaluate(self._encode(view, jobs))
        return int(values.argmax()) if self._rng is None else draw(self._rng, values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Actor:
        """Share the network, which does not change."""
        copied = copy.copy(self)
        copied._encode, copied._rng = copy.deepcopy((self._encode, self._rng), memo)  # noqa: SLF001 - our own
        return copied


def draw(rng: np.random.Generator, values: Floats) -> int:
    """Draw an index by the logarithms of likelihoods."""
    likely = np.cumsum(np.exp(values - values.max(), dtype=np.float64))
    return min(int(np.searchsorted(likely, rng.random() * likely[-1], side="right")), len(values) - 1)

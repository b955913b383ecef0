"""The network of Section III-B: its layers, its evaluation, and its training with PyTorch.

A row of the input has two numbers: a job has two rows, a node one. A filter of 1 x 2 makes one number of each row, then
come two fully connected layers with a leaky rectifier, and the output. The filter and the output have biases, the fully
connected layers have none: so the parameters are as many as Table III says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from asa.errors import InputError, MissingExtraError

from .state import State

Floats = NDArray[np.float32]
Kind = Literal["pg", "dql"]

JOB_ROWS: Final = 2
SLOPE: Final = 0.01
"""Slope of the leaky rectifier below 0, from the paper's reference (Goodfellow et al.), as the paper gives none."""
_MAX_PARAMETERS: Final = 1 << 31
"""Upper bound of accepted parameters."""
_FEW: Final = 5
"""Copying a row out costs as much as multiplying this number of adjacent rows."""


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """The size of a network.

    Examples
    --------
    >>> NetworkSize("pg", 4360).parameters, NetworkSize("dql", 4360).parameters
    (21890053, 21449004)
    """

    # `pg` sees a whole window of jobs, and returns the likelihood of choosing each. `dql` sees one job, and returns its
    # value.
    kind: Kind
    nodes: int
    window: int = 50  # number of jobs in a choice
    hidden: tuple[int, int] = (4000, 1000)  # neurons of the two fully connected layers

    def __post_init__(self) -> None:
        if (
            self.kind not in ("pg", "dql")
            or min(self.nodes, self.window, *self.hidden) < 1
            or self.parameters > _MAX_PARAMETERS
        ):
            raise InputError(f"{self} cannot be", where="network", hint="Give pg or dql, and sizes from 1 on.")

    @property
    def jobs(self) -> int:
        """Number of jobs in the input."""
        return self.window if self.kind == "pg" else 1

    @property
    def rows(self) -> int:
        """Rows of the input."""
        return JOB_ROWS * self.jobs + self.nodes

    @property
    def outputs(self) -> int:
        """Neurons of the last layer."""
        return self.jobs

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter array, by name."""
        one, two = self.hidden
        return {
            "filter": (2,),
            "filter_bias": (1,),
            "first": (self.rows, one),
            "second": (one, two),
            "last": (two, self.outputs),
            "last_bias": (self.outputs,),
        }

    @property
    def parameters(self) -> int:
        """Number of learned parameters."""
        return sum(math.prod(shape) for shape in self.arrays.values())


def initial(shape: NetworkSize, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw the initial parameters of training.

    Weights are uniform, with a spread that keeps the variance through a leaky rectifier (He et al., 2015); biases are
    0. The output begins near 0, so that at first all jobs are about equally likely.
    """
    parameters: dict[str, Floats] = {}
    for name, size in shape.arrays.items():
        if name.endswith("bias"):
            parameters[name] = np.zeros(size, dtype=np.float32)
            continue
        most = math.sqrt(6.0 / ((1.0 + SLOPE**2) * size[0])) * (0.01 if name == "last" else 1.0)
        parameters[name] = (2.0 * most) * rng.random(size, dtype=np.float32) - np.float32(most)
    return parameters


class Evaluator:
    """Evaluates a network for states, on one core, in numpy.

    Equal nodes, such as all nodes of a running job, are next to each other in a state, and give the same number after
    the filter. So the first layer needs only sums over ranges of rows, which are differences of cumulative sums: the
    cost depends on the number of running jobs, not of nodes. If too many rows differ for that to pay, all rows are
    multiplied.
    """

    def __init__(self, shape: NetworkSize, parameters: Mapping[str, Floats]) -> None:
        self.shape = shape
        self.parameters = parameters
        self._sums = np.zeros((shape.rows + 1, shape.hidden[0]), dtype=np.float32)
        self.refresh()

    def refresh(self) -> None:
        """Update for changed parameters."""
        sums = self._sums
        for row, weights in enumerate(self.parameters["first"]):
            np.add(sums[row], weights, out=sums[row + 1])  # ten times as fast as numpy's cumulative sum

    def __call__(self, state: State) -> Floats:
        """Evaluate each of a state's jobs: logarithms of likelihoods, up to a constant, or expected rewards."""
        shape, parameters = self.shape, self.parameters
        weights, bias = parameters["filter"], parameters["filter_bias"]
        jobs: Floats = (state.jobs.reshape(-1, 2) @ weights + bias).reshape(len(state.jobs), JOB_ROWS)
        values: Floats = state.groups @ weights + bias
        edges = state.edges + JOB_ROWS * shape.jobs
        if shape.kind == "pg":  # the window's empty rows are a further group
            values = np.concatenate([bias, values])
            edges = np.concatenate([[jobs.size], edges])
        of_nodes: Floats
        if _FEW * len(edges) < shape.rows:
            of_nodes = np.concatenate([-values[:1], values[:-1] - values[1:], values[-1:]]) @ self._sums[edges]
        else:
            of_nodes = np.repeat(values, np.diff(edges)) @ parameters["first"][edges[0] :]
        if shape.kind == "pg":
            hidden = _leaky(of_nodes + jobs.reshape(-1) @ parameters["first"][: jobs.size]) @ parameters["second"]
        else:
            hidden = self._of_each(of_nodes, jobs)
        answer: Floats = _leaky(hidden) @ parameters["last"] + parameters["last_bias"]
        return answer[: len(jobs)] if shape.kind == "pg" else answer[:, 0]

    def _of_each(self, of_nodes: Floats, jobs: Floats) -> Floats:
        """Evaluate the fully connected layers for each job separately.

        Most neurons of the first layer are on the same side of 0 for all jobs, as all see the same nodes. There the
        rectifier is only a factor, so their contribution to the second layer is linear in a job's two numbers.
        """
        first, second = self.parameters["first"][:JOB_ROWS], self.parameters["second"]
        hidden = of_nodes + jobs @ first
        above = hidden > 0
        differs = np.flatnonzero(above.any(axis=0) != above.all(axis=0))
        answer: Floats
        if _FEW * len(differs) > len(of_nodes):
            answer = _leaky(hidden) @ second
        else:
            factor = np.where(above[0], np.float32(1.0), np.float32(SLOPE))
            factor[differs] = 0.0
            linear = (np.vstack([of_nodes, first]) * factor) @ second
            answer = linear[0] + jobs @ linear[1:] + _leaky(hidden[:, differs]) @ second[differs]
        return answer


def _leaky(values: Floats) -> Floats:
    leaky: Floats = np.maximum(values, np.float32(SLOPE) * values)
    return leaky


def forward(parameters: Mapping[str, Any], rows: Any) -> Any:
    """Evaluate a batch of inputs with a network of PyTorch tensors.

    `rows`: a tensor of inputs, each with rows of 2 columns.
    """
    leaky_relu = pytorch().nn.functional.leaky_relu
    hidden = (rows @ parameters["filter"] + parameters["filter_bias"]) @ parameters["first"]
    hidden = leaky_relu(leaky_relu(hidden, SLOPE) @ parameters["second"], SLOPE)
    return hidden @ parameters["last"] + parameters["last_bias"]


def pytorch() -> Any:
    """Import PyTorch, which only learning needs."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "learning needs PyTorch, which is not installed", hint="pip install 'asa-client[dras]'"
        ) from error

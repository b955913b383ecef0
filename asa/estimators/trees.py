"""Boosted regression trees: fitted by LightGBM, stored and evaluated without it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asa.core.compiled import seen
from asa.errors import MissingExtraError, StateError
from asa.estimators.packing import packed, unpacked
from asa.estimators.trees_kernel import predict

_ROUNDS: Final = 120
_WAITS_PER_ROUND: Final = 10  # few waits make fewer trees
_MIN_ROUNDS: Final = 20
_SETTINGS: Final[Mapping[str, object]] = {
    "objective": "regression_l1",  # the median
    "learning_rate": 0.06,
    "num_leaves": 31,
    "min_data_in_leaf": 60,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "max_bin": 63,
    "use_missing": False,  # there are no missing values
    "num_threads": 1,  # the other cores are left to the user
    "deterministic": True,
    "force_row_wise": True,  # else LightGBM chooses by timing, which is not reproducible
    "verbosity": -1,
}
_TYPES: Final = {
    "roots": np.int64,
    "feature": np.int64,
    "threshold": np.float64,
    "children": np.int64,
    "leaves": np.float64,
}


def library() -> Any:
    """Import LightGBM; raise `MissingExtraError` if it is not installed."""
    try:
        import lightgbm  # noqa: PLC0415 - optional, and takes half a second
    except ImportError as error:
        raise MissingExtraError(
            "boosted trees need LightGBM, which is not installed", hint="pip install 'asa-client[boost]'"
        ) from error
    return lightgbm


class Trees:
    """A fitted ensemble. Its prediction is the sum over its trees."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._arrays = {name: np.ascontiguousarray(arrays[name], dtype=kind) for name, kind in _TYPES.items()}
        self._shown = tuple(map(seen, self._arrays.values()))

    def predict(self, x: NDArray[np.float32]) -> float:
        """Predict the median, given a job's features."""
        return float(predict(seen(x), *self._shown) if len(self._arrays["roots"]) else 0.0)

    def state(self) -> dict[str, Any]:
        """Return the ensemble as JSON-ready data."""
        return {name: packed(array) for name, array in self._arrays.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], numbers: int) -> Trees:
        """Return an ensemble from its `state`. `numbers`: number of a job's features.

        Raises `StateError`: a value is missing, or refers to a missing node.
        """
        try:
            arrays = {name: unpacked(state[name]) for name in _TYPES}
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise StateError(f"no state of trees: {error!r}", hint="Forget it and learn anew.") from error
        if not _is_sound(arrays, numbers):
            raise StateError("trees that lead nowhere", hint="The file was changed.")
        return cls(arrays)


def _is_sound(arrays: Mapping[str, NDArray[Any]], numbers: int) -> bool:
    """Whether each node refers to later nodes or to leaves that exist."""
    if any(arrays[name].dtype != kind for name, kind in _TYPES.items()):
        return False
    roots, feature, threshold, children, leaves = (arrays[name] for name in _TYPES)
    nodes = len(feature)
    if any(array.ndim != 1 for array in (roots, feature, threshold, leaves)) or children.shape != (2, nodes):
        return False
    places = np.concatenate([roots, children.ravel()])
    onwards = (children < 0) | (children > np.arange(nodes))
    return bool(
        len(threshold) == nodes
        and onwards.all()
        and ((places >= -len(leaves)) & (places < nodes)).all()
        and ((feature >= 0) & (feature < numbers)).all()
        and np.isfinite(threshold).all()
        and np.isfinite(leaves).all()
    )


def fit(x: NDArray[np.float32], y: NDArray[np.float64], seed: int) -> Trees:
    """Fit trees to rows of features and their targets.

    The result is the same on any machine with the same build of the library.
    """
    lightgbm = library()
    rounds = min(_ROUNDS, max(_MIN_ROUNDS, len(y) // _WAITS_PER_ROUND))
    model = lightgbm.train({**_SETTINGS, "seed": seed}, lightgbm.Dataset(x, y), rounds)
    return Trees(_read(model.model_to_string()))


def _read(model: str) -> dict[str, NDArray[Any]]:
    """Read the text of a LightGBM model, all of whose decisions are on numbers without missing values."""
    roots: list[int] = []
    parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _COLUMNS}
    nodes = leaves = 0
    for block in model.split("\nTree=")[1:]:
        lines = dict(line.split("=", 1) for line in block.split("\n\n", 1)[0].splitlines() if "=" in line)
        columns = {name: np.array(lines.get(name, "").split(), dtype=np.float64) for name in _COLUMNS}
        for side in ("left_child", "right_child"):
            columns[side] += np.where(columns[side] >= 0, nodes, -leaves)
        roots.append(nodes if len(columns["threshold"]) else -1 - leaves)
        nodes, leaves = nodes + len(columns["threshold"]), leaves + len(columns["leaf_value"])
        for name, column in columns.items():
            parts[name].append(column)
    feature, threshold, left, right, values = (np.concatenate([*parts[name], np.empty(0)]) for name in _COLUMNS)
    children = np.stack([left, right])
    return {
        "roots": np.array(roots),
        "feature": feature,
        "threshold": threshold,
        "children": children,
        "leaves": values,
    }


_COLUMNS: Final = ("split_feature", "threshold", "left_child", "right_child", "leaf_value")


def _same(trees: Trees) -> Trees:
    return trees


class Fitting:
    """A fit in its own thread; LightGBM lets other threads run meanwhile."""

    def __init__(self, x: NDArray[np.float32], y: NDArray[np.float64], seed: int) -> None:
        self._made: Trees | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._fit, args=(x, y, seed), name="asa-trees", daemon=True)
        self._thread.start()

    def _fit(self, x: NDArray[np.float32], y: NDArray[np.float64], seed: int) -> None:
        try:
            self._made = fit(x, y, seed)
        except BaseException as error:  # noqa: BLE001 - raised in `result`
            self._error = error

    def __reduce__(self) -> tuple[object, ...]:
        """Copy or pickle the finished trees in place of the thread."""
        return _same, (self.result(),)

    def result(self) -> Trees:
        """Wait for the trees, and return them."""
        self._thread.join()
        if self._made is None:
            raise self._error or RuntimeError("a fit without an end")
        return self._made

"""asa's estimator: exponential weights over alternatives, given a job's features and the queue's state.

Algorithm 1 keeps one weight for each alternative and geometry, learns only the loss of the alternative that it tried,
and counts all alternatives but the closest as equally wrong. In this estimator, too, an alternative's probability is
the exponential of a log-weight, which changes by its loss. The rest is improved: see `ContextualAsa`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from asa.core import plainly
from asa.errors import InputError, StateError
from asa.estimators import contextual_kernel as k
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S
from asa.estimators.differences import Differences
from asa.estimators.joint import SAMPLES, JointForecast
from asa.estimators.packing import packed, unpacked
from asa.geometry import JobGeometry
from asa.waits import QueuedJob, Surroundings, WaitForecast, WaitObservation, at_least

_VERSION = 3
_SETTINGS = ("seed", "opinions", "facts", "closeness", "without", "learning_rate")
_LEARNED = ("net", "top", "profiles", "scalars", "track")
_PAST = ("past_x", "past_e", "past")
PARTS: Final = ("own", "experts", "waiting", "users", "network", "ages")
"""Parts that an ablation can leave out."""

_RATE, _PROFILE_RATE, _KEEP, _OWN_RATE, _FORGET, _SHARE = 0.0005, 0.0025, 0.9995, 0.1, 0.01, 0.001
_LOSS_PER_PLACE = 0.25
"""Loss of an alternative's log-weight in `alone` for each alternative between it and the true one."""
_ALONE_SHARE = 0.01
_MAX_KINDS = 100_000


_TYPES: dict[str, type[np.generic]] = dict.fromkeys(("active", "links", "named", "past"), np.int64) | {
    "past_x": np.float32,
    "past_e": np.int8,
}


def _check(arrays: Mapping[str, NDArray[Any]], rows: int, waiting: int) -> None:
    """Refuse invalid arrays, since the kernels do not check indices.

    Raises `StateError`: a wrong type, a nan, or an index out of range.
    """
    stats, active, links, named, scalars = (arrays[n] for n in ("stats", "active", "links", "named", "scalars"))
    sound = all(array.dtype == _TYPES.get(name, np.float64) for name, array in arrays.items())
    sound = sound and all(np.isfinite(array).all() for name, array in arrays.items() if name != "stats")
    sound = sound and stats.shape == (rows, k.STATS) and active.shape == (2, rows)
    if sound and rows:
        places = stats[:, [k.OLDEST, k.YOUNGEST]]
        rest = np.delete(stats, k.SUBMITTED, axis=1)
        many = scalars[k.NOW_ACTIVE]
        counts = stats[:, [k.QUEUED, k.GAP, k.LONG_GAP]]
        sound = (
            bool(np.isfinite(rest).all() and not np.isnan(stats[:, k.SUBMITTED]).any())
            and bool((counts >= 0).all())
            and links.shape == (waiting, 2, k.GROUPS)
            and bool(((places >= -1) & (places < max(waiting, 1)) & (places % 1 == 0)).all())
            and bool(((links >= -1) & (links < max(waiting, 1))).all())
            and bool(((active >= 0) & (active < rows)).all())
            and 0 <= many <= rows
            and bool((stats[active[0, : int(many)], k.OLDEST] >= 0).all())
            and bool(((named >= k.ABSENT) & (named < k.K)).all())
        )
    if not (sound and _is_past(arrays)):
        raise StateError("numbers that cannot be", hint="The file was changed.")


def _is_past(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether the waits that are kept for learning again are valid."""
    past, past_e, scalars, own = (arrays[name] for name in ("past", "past_e", "scalars", "own"))
    held = min(int(scalars[k.LEARNED]), k.PAST)
    if past.shape != (held, k.AT_ONCE + 1) or not len(past_e) == len(arrays["past_x"]) == held:
        return False
    if not 1 <= scalars[k.DRAW] < k.DRAWS or scalars[k.DRAW] % 1:
        return False
    low, high, geometry, user, at_once = past.T
    return bool(
        ((low >= 0) & (low <= high) & (high < k.K)).all()
        and ((geometry >= 0) & (geometry < len(own)) & (user >= -1) & (user < len(own))).all()
        and (at_once >= 0).all()
        and ((past_e >= k.ABSENT) & (past_e < k.K)).all()
    )


class _Kind:
    """All jobs of one user with the same request: the rows of their groups, and of their own weights, in the tables."""

    __slots__ = ("length", "rows", "width")

    def __init__(self, rows: NDArray[np.int64], width: float, length: float) -> None:
        self.rows, self.width, self.length = rows, width, length


_CODES: Final = {"exact": k.EXACT, "at_least": k.AT_LEAST, "at_most": k.AT_MOST}


def _folded(columns: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a view of the columns with each row cut into two rows of the given length."""
    step, size = columns.strides
    return np.lib.stride_tricks.as_strided(columns, (len(columns), 2, length), (step, length * size, size))


class ContextualAsa:
    """Exponential weights over alternative waits, for all geometries of a site together.

    An alternative's log-weight, for a job about to be submitted, is the sum of

    - the geometry's and the user's *own* log-weights, as in Algorithm 1;
    - for each *expert* that names a wait (the last wait of the geometry, of the user, of the user's jobs of this width
      and so on; medians; moving averages; the age of pending jobs; how long all pending jobs would take at the rate at
      which jobs start), the expert's *profile*: how much more or less likely the alternatives around the named one are.
      All geometries use the same profiles;
    - a small *network* whose inputs are the same waits, ages, counts and rates, the job's request and the time of day.

    Once a wait is known, all of these take a step down the gradient of the log loss, with full information. Neighbours
    of the true alternative count as nearly right, so the loss depends on distance. Jobs of a burst, all submitted
    before any of their waits was learned, have less weight each than single jobs. One step does not exhaust a wait:
    with each new one, two of the last 4,096, drawn at random, train the profiles and the network again. All this is
    mixed, by Bayes' rule with a fixed share, with a second learner: exponential weights of the geometry *alone*, under
    a loss that grows with the distance in the logarithm. If each wait is known before the next job is submitted, the
    log loss of the mixture never exceeds that of the better one by more than ``ln 2`` and the cost of the share. As
    waits become known with delay, regret grows with the number of jobs that wait at the same time, as for every such
    learner; `asa evaluate` prints the actual regret.

    Censored observations are used as well: the alternatives that are still possible share the credit in proportion to
    their probabilities. Quantiles are those of the mixture at levels that adapt until each has its coverage (adaptive
    conformal inference), separately for each class of widths once a hundred of its waits are known.

    `opinions`, `facts`: how many waits in seconds, and how many other numbers (about -2 to 2), the caller gives with
    each job, such as from a simulation of the visible queue; see `predict`.
    `closeness`: the reward, in decades of error, if the same one of the paper's 53 alternatives is closest to the point
    prediction and to the true wait. With 0 the point prediction is the median.
    `without`: parts of `PARTS` to leave out, for ablations. Without all of them, only the learner of the geometry alone
    remains.

    Notes
    -----
    About 22 microseconds a job with numba, for predicting and learning together, and some nanoseconds more for each
    geometry with pending jobs. Under a millisecond without numba. A geometry or user takes about 2 KB, a pending job 3
    KB, the past 2 MB.

    Examples
    --------
    >>> from asa.waits import QueuedJob, exactly
    >>> estimator = ContextualAsa(seed=1)
    >>> for hour in range(60):
    ...     job = QueuedJob(submit_s=3600.0 * hour, cores=112, walltime_s=7200.0, user="ann")
    ...     forecast = estimator.predict(job)
    ...     estimator.observe(estimator.submitted(job, forecast), exactly(450.0))
    >>> 400 < estimator.predict(job).wait_s < 500
    True
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        opinions: int = 0,
        facts: int = 0,
        closeness: float = 0.5,
        without: Sequence[str] = (),
        learning_rate: float = 1.0,
    ) -> None:
        unknown = {without} if isinstance(without, str) else set(without) - set(PARTS)
        if unknown:
            raise InputError(
                f"there are no parts {', '.join(sorted(unknown))}", hint=f"Give a list of: {', '.join(PARTS)}."
            )
        for name, number in (("seed", seed), ("opinions", opinions), ("facts", facts)):
            if number < 0 or number % 1:
                raise InputError(f"{name} of {number} cannot be", hint="Give a whole number, 0 or more.")
        for name, size in (("closeness", closeness), ("learning_rate", learning_rate)):
            if not 0 <= size < math.inf:
                raise InputError(f"{name} of {size} cannot be", hint="Give 0 or more.")
        self.seed, self.opinions, self.facts = seed, opinions, facts
        self._promised = opinions + facts
        self.closeness, self.without, self.learning_rate = closeness, tuple(sorted(set(without))), learning_rate
        self._closeness = float(closeness)
        rng = np.random.Generator(np.random.PCG64(seed))
        numbers, experts = k.SEEN + opinions + facts, k.REPORTS + opinions
        self._model = np.zeros(k.model_size(numbers, experts))
        self._sizes = numbers, experts
        parts = self._parts_of_model
        parts.net[0] = rng.standard_normal((numbers, k.HIDDEN)) / math.sqrt(numbers)
        parts.net[0, k.CONSTANT] = 0.0
        parts.top[0, :-1] = 0.01 * rng.standard_normal((k.HIDDEN, k.K))
        parts.top[0, -1] = -0.05 * np.abs(np.arange(k.K) - k.FIRST_GUESS)
        parts.profiles[0] = -0.02 * np.abs(np.arange(2 * k.K + 1) - k.K)
        parts.profiles[1] = 0.01
        parts.scalars[k.TRUST : k.TRUST + 2] = (0.0, 1.0) if set(self.without) == set(PARTS) else 0.5
        parts.scalars[k.DRAW] = 1 + seed % (int(k.DRAWS) - 1)
        parts.track[:, :9] = np.arange(1, 10) / 10
        self._rows: dict[tuple[Any, ...], int] = {}
        self._own_rows: dict[tuple[Any, ...], int] = {}
        self._stats = np.empty((0, k.STATS))
        self._active = np.empty((2, 0), dtype=np.int64)
        self._own = np.empty((0, 3, k.K))
        long, short = k.slot_sizes(numbers, experts)
        self._slots = np.zeros((0, long))
        self._tags = np.zeros((0, short), dtype=np.int64)
        self._past_x = np.zeros((k.PAST, numbers), dtype=np.float32)
        self._past_e = np.zeros((k.PAST, experts), dtype=np.int8)
        self._past = np.zeros((k.PAST, k.AT_ONCE + 1), dtype=np.int64)
        self._kinds: dict[tuple[str, int, float, str, str], _Kind] = {}
        self._waiting: dict[int, tuple[int, QueuedJob, _Kind]] = {}
        self._free: list[int] = []
        self._tickets = 0
        self._differences = Differences()
        self._prepare()
        self._row(("site",), 0.0, 0.0, 0)

    def _prepare(self) -> None:
        """Make the values that are neither learned nor stored."""
        parts = self._parts_of_model
        parts.rates[:] = _RATE, _PROFILE_RATE, _KEEP, _OWN_RATE, _FORGET, _SHARE, _ALONE_SHARE
        parts.rates[[0, 1, 3]] *= self.learning_rate
        parts.table[:] = np.exp(-_LOSS_PER_PLACE * np.arange(k.K))
        parts.alternatives[:] = PAPER_ALTERNATIVES_S
        logs = np.log10(parts.alternatives)
        middles = np.log10((parts.alternatives[1:] + parts.alternatives[:-1]) / 2)
        parts.cells[0] = (logs - k.FLOOR) / k.STEP
        parts.cells[1, :-1] = (middles - k.FLOOR) / k.STEP
        parts.kept_x[:], parts.kept_e[:] = self._kept(parts.rates)
        self._looked: tuple[QueuedJob, Sequence[float], WaitForecast] | None = None

    @property
    def _parts_of_model(self) -> k.Model:
        """Views of the model's parts. They are made at each use, so that a copy of this object has its own."""
        return k.model_of(self._model, *self._sizes)

    def _kept(self, rates: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return which inputs and experts are used: all, except in an ablation."""
        numbers, experts = np.ones(self._sizes[0]), np.ones(self._sizes[1], dtype=np.bool_)
        by_group = numbers[: k.ALIKE].reshape(k.GROUPS, k.PER_GROUP)
        if "users" in self.without:
            by_group[[k.USER, k.USER_WIDTH, k.USER_GEOMETRY]] = 0.0
            experts[list(k.REPORTS_OF_USERS)] = False
        if "ages" in self.without:
            by_group[:, k.OF_STARTS : k.OF_WAITING] = 0.0
        if "waiting" in self.without:
            by_group[:, k.OF_WAITING :] = 0.0  # the time since the last submission depends on pending jobs, too
            numbers[k.ALIKE : k.REQUEST] = 0.0
            experts[list(k.REPORTS_OF_WAITING)] = False
        if "network" in self.without:
            numbers[:] = 0.0
        if "experts" in self.without:
            experts[:] = False
        if "own" in self.without:
            rates[3] = 0.0
        if set(self.without) == set(PARTS):
            rates[5] = 0.0  # the only learner left shares no weight
        return numbers, experts

    def __repr__(self) -> str:
        return f"ContextualAsa(observations={self.observations}, waiting={len(self._waiting)})"

    @property
    def observations(self) -> int:
        """Number of exact waits that were learned."""
        return int(self._model[k.OBSERVED])

    @property
    def seen(self) -> NDArray[np.float64]:
        """The inputs of the last predicted job; valid until the next call."""
        seen: NDArray[np.float64] = self._slots[self._free[-1], : self._sizes[0]]
        return seen

    @property
    def seen_numbers(self) -> int:
        """Number of a job's inputs."""
        return self._sizes[0]

    # ------------------------------------------------------------------ the port

    def predict(self, job: QueuedJob, outside: Sequence[float] = ()) -> WaitForecast:
        """Predict the wait of a job submitted at its `submit_s`, which is the present time.

        `outside`: the opinions in seconds, then the facts; as many as given to the constructor.
        Raises `InputError`: `outside` has another length, or a number that is not finite.
        """
        if not self._free:
            self._grow_slots()
        kind = self._kind(job)
        if promised := self._promised:
            if len(outside) != promised or not all(map(math.isfinite, outside)):
                raise InputError(
                    f"{len(outside)} opinions and facts, {promised} were promised; all must be finite",
                    hint="Give what was promised at construction.",
                )
            self._model[k.OUTSIDE : k.OUTSIDE + promised] = outside
        plainly.count(0.4)
        k.predict(
            float(job.submit_s), kind.width, kind.length, self._closeness, self._free[-1], kind.rows, self._stats,
            self._own, self._active, self._model, self._slots, self._tags,
        )  # fmt: skip
        stated = self._model[k.OUT : k.OUTSIDE].tolist()
        forecast = WaitForecast(tuple(stated[:9]), stated[9])
        self._looked = job, outside, forecast
        return forecast

    def predict_together(self, jobs: Sequence[QueuedJob], samples: int = SAMPLES) -> JointForecast:
        """Predict the waits of requests, one of which will be submitted; see `JointEstimator`.

        Forecasts of single requests are made coherent by differences between waits in the same queue, and by the
        long-run waits of each kind of job; see `asa.estimators.differences`.
        """
        outside = (0.0,) * self._promised
        places = [int(self._kind(job).rows[k.PARTITION]) for job in jobs]
        return self._differences.judge(jobs, [self.predict(job, outside) for job in jobs], places, samples)

    def usual_later(self, jobs: Sequence[QueuedJob], samples: int) -> tuple[float, NDArray[np.float64]] | None:
        """Return when the present queue has no more influence, and the usual waits after that; see `Later`."""
        return self._differences.later(jobs, [int(self._kind(job).rows[k.PARTITION]) for job in jobs], samples)

    def submitted(self, job: QueuedJob, forecast: WaitForecast | None = None, outside: Sequence[float] = ()) -> int:
        """Learn that a job is pending from now on. All inputs of its forecast are kept with it."""
        looked = self._looked
        if looked is None or looked[0] is not job or (forecast is not None and looked[2] is not forecast):
            self.predict(job, outside)
            if forecast is not None:
                # coverage is judged by the quantiles that were used
                self._model[k.OUT : k.OUT + 9] = forecast.quantiles_s
        self._looked = None
        kind = self._kind(job)
        slot = self._free.pop()
        k.enqueue(slot, float(job.submit_s), kind.rows, self._stats, self._active, self._model, self._slots, self._tags)
        self._tickets += 1
        self._waiting[self._tickets] = slot, job, kind
        return self._tickets

    def observe(self, ticket: int, observation: WaitObservation) -> None:
        """Learn the observation of a wait."""
        try:
            slot, job, kind = self._waiting.pop(ticket)
        except KeyError:
            raise InputError(f"no job waits under ticket {ticket}", hint="Hand back what `submitted` gave.") from None
        self._looked = None
        code = _CODES[observation.kind]
        noted, since_s = self._differences.next_row(job.submit_s) if code == k.EXACT else (0, 0.0)
        plainly.count(0.6)
        k.learn(
            slot, code, float(observation.wait_s), kind.width, float(job.cores), float(job.walltime_s), float(since_s),
            noted, kind.rows, self._stats, self._own, self._active, self._model, self._slots, self._tags, self._past_x,
            self._past_e, self._past, self._differences.rows,
        )  # fmt: skip
        self._free.append(slot)

    def ended(self, ticket: int, run_s: float) -> None:
        """Do nothing: run times are not used."""

    def withdrawn(self, ticket: int) -> None:
        """Forget a pending job, and learn nothing from it."""
        if ticket in self._waiting:
            self.observe(ticket, at_least(0.0))  # a bound that excludes nothing

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return the whole state, including pending jobs, as data for JSON.

        Arrays are compressed. Uncompressed they take 2 KB for a geometry or user, 3 KB for a pending job, 0.5 KB for
        each of the last 4,096 waits, and 90 KB for the rest.
        """
        used, past = len(self._slots) - len(self._free), min(int(self._model[k.LEARNED]), k.PAST)
        slots = {slot: new for new, (slot, _, _) in enumerate(self._waiting.values())}
        order = np.array(list(slots), dtype=np.int64)
        places = np.full(len(self._slots) + 1, -1, dtype=np.int64)  # the last entry is for no job
        places[order] = np.arange(used)
        stats = self._stats[: len(self._rows)].copy()
        for column in (k.OLDEST, k.YOUNGEST):
            stats[:, column] = places[stats[:, column].astype(np.int64)]
        model, waiting = self._parts_of_model, self._waiting_as_kept(self._slots[order], self._tags[order])
        arrays = {name: getattr(model, name) for name in _LEARNED} | {
            "stats": stats,
            "own": self._own[: len(self._own_rows)],
            "active": self._active[:, : len(self._rows)],
            "links": places[waiting.pop("links")],
        }
        arrays |= {name: getattr(self, f"_{name}")[:past] for name in _PAST}
        arrays |= waiting
        arrays["differences"] = self._differences.known
        return {
            "version": _VERSION,
            "differences": [self._differences.origin_s if self._differences.count else 0.0, self._differences.count],
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "rows": [list(key) for key in self._rows],
            "own_rows": [list(key) for key in self._own_rows],
            "tickets": self._tickets,
            "waiting": [
                [ticket, job.submit_s, job.cores, job.walltime_s, job.user, job.system, job.partition]
                for ticket, (_, job, _) in self._waiting.items()
            ],
            "arrays": {name: packed(array) for name, array in arrays.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ContextualAsa:
        """Make an estimator that continues, bit for bit, from the `state` of another.

        Raises `StateError`: the state is incomplete, inconsistent, or of another version.
        """
        try:
            if state["version"] != _VERSION:
                raise StateError(
                    f"an estimator of version {state['version']}, this asa reads {_VERSION}",
                    hint="Learn anew, or take the asa-client that wrote it.",
                )
            made = cls(**state["settings"])
            made._take(state)
        except InputError as error:
            raise StateError(error.message, hint=error.hint or "The file was changed or cut off.") from error
        except (KeyError, TypeError, ValueError, IndexError, zlib.error) as error:
            raise StateError(f"no state of an estimator: {error}", hint="Forget it and learn anew.") from error
        return made

    def _take(self, state: Mapping[str, Any]) -> None:
        arrays = {name: unpacked(packed) for name, packed in state["arrays"].items()}
        origin_s, count = state["differences"]
        self._differences.restore(arrays.pop("differences"), float(origin_s), int(count))
        _check(arrays, len(state["rows"]), len(state["waiting"]))
        model = self._parts_of_model
        for name in _LEARNED:
            kept = getattr(model, name)
            if arrays[name].shape != kept.shape:
                raise StateError(f"{name} of another shape", hint="The file was changed.")
            kept[:] = arrays[name]
        waiting = [(entry[0], QueuedJob(*entry[1:])) for entry in state["waiting"]]
        self._rows = {tuple(key): row for row, key in enumerate(state["rows"])}
        self._own_rows = {tuple(key): row for row, key in enumerate(state["own_rows"])}
        self._slots = np.zeros((len(waiting), self._slots.shape[1]))
        self._tags = np.zeros((len(waiting), self._tags.shape[1]), dtype=np.int64)
        tables = {"stats": (len(self._rows), self._stats), "own": (len(self._own_rows), self._own)}
        parts = self._waiting_as_kept(self._slots, self._tags)
        tables |= {name: (len(waiting), part) for name, part in parts.items()}
        for name, (rows, table) in tables.items():
            if arrays[name].shape != (rows, *table.shape[1:]):
                raise StateError(f"{name} of another length", hint="The file was changed.")
        for name in ("stats", "own", "active"):
            setattr(self, f"_{name}", arrays[name])
        for name, part in parts.items():
            part[:] = arrays[name]
        for name in _PAST:
            kept = getattr(self, f"_{name}")
            if arrays[name].shape[1:] != kept.shape[1:]:
                raise StateError(f"{name} of another shape", hint="The file was changed.")
            kept[: len(arrays[name])] = arrays[name]
        self._tickets, self._free = int(state["tickets"]), []
        self._waiting = {ticket: (slot, job, self._kind(job)) for slot, (ticket, job) in enumerate(waiting)}

    def _waiting_as_kept(self, slots: NDArray[np.float64], tags: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the parts of the tables of pending jobs, under their names in a state."""
        numbers, experts = self._sizes
        stated = numbers + 2 * k.K
        return {
            "seen": slots[:, :numbers],
            "named": tags[:, :experts],
            "parts": _folded(slots[:, numbers:stated], k.K),
            "stated": slots[:, stated:-1],
            "submit": slots[:, -1],
            "links": _folded(tags[:, experts:], k.GROUPS),
        }

    # ------------------------------------------------------------------ tables that grow

    def _kind(self, job: QueuedJob) -> _Kind:
        key = (job.user, job.cores, job.walltime_s, job.partition, job.system)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()  # it caches row numbers of these tables
            kind = self._kinds[key] = self._new_kind(job)
        return kind

    def _new_kind(self, job: QueuedJob) -> _Kind:
        geometry: JobGeometry = job.geometry
        width, length = geometry.size_class, geometry.walltime_class
        place = (job.system, job.partition)
        partition = self._row(("partition", *place), width, length, 0)
        keys: list[tuple[Any, ...]] = [
            ("site",),
            ("partition", *place),
            ("width", *place, width),
            ("geometry", *place, width, length),
            ("user", job.user),
            ("user", job.user, width),
            ("user", job.user, *place, width, length),
            ("length", *place, length),
        ]
        rows = [self._row(key, width, length, partition) for key in keys]
        own = [
            self._own_row(keys[k.GEOMETRY]),
            self._own_row(keys[k.USER]) if job.user and "users" not in self.without else -1,
        ]
        return _Kind(np.array([*rows, *own]), float(width), float(length))

    def _row(self, key: tuple[Any, ...], width: float, length: float, partition: int) -> int:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._rows)
            if row >= len(self._stats):
                more = max(64, len(self._stats))
                self._stats = np.concatenate([self._stats, np.zeros((more, k.STATS))])
                self._active = np.concatenate([self._active, np.zeros((2, more), dtype=np.int64)], axis=1)
            self._stats[row] = 0.0
            self._stats[row, [k.OLDEST, k.YOUNGEST]] = -1.0
            self._stats[row, k.SUBMITTED] = -math.inf
            self._stats[row, [k.WIDTH_CLASS, k.LENGTH_CLASS, k.IN_PARTITION]] = width, length, partition
        return row

    def _own_row(self, key: tuple[Any, ...]) -> int:
        row = self._own_rows.get(key)
        if row is None:
            row = self._own_rows[key] = len(self._own_rows)
            if row >= len(self._own):
                self._own = np.concatenate([self._own, np.zeros((max(32, len(self._own)), 3, k.K))])
            self._own[row] = 0.0
            self._own[row, k.ALONE] = 1.0 / k.K
        return row

    def _grow_slots(self) -> None:
        held = len(self._slots)
        more = max(16, held)
        for name in ("_slots", "_tags"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)]))
        self._free.extend(range(held + more - 1, held - 1, -1))


def contextual_asa(surroundings: Surroundings) -> ContextualAsa:
    """Learn by exponential weights from past waits and from the ages of waiting jobs: the default.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return ContextualAsa(seed=surroundings.seed)


def blind_asa(surroundings: Surroundings) -> ContextualAsa:
    """Learn as `asa` does, but only from waits that are over, and not from pending jobs.

    Parameters
    ----------
    surroundings
        Only the seed is used.
    """
    return ContextualAsa(seed=surroundings.seed, without=("waiting",))

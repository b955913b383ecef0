"""The judge of `ranking`, learned by proximal policy optimisation (Schulman et al., 2017).

A set of jobs is scheduled several times, with different draws. The worth of a choice is the reward after it, less the
reward that the network expected, less the excess over expectation at the same time in the other schedules of the same
jobs (the input-dependent baseline of Mao et al., 2018). In a queue, rewards depend on arrivals far more than on any
choice, and arrivals are the same in all schedules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backends.dras.network import Floats, pytorch
from asa.backends.dras.patient import PATIENCE, WINDOW, Patient
from asa.backends.dras.ranking import COLUMNS, Judge, first_ranks, rank
from asa.backends.dras.rewards import Cost, Waiting
from asa.backends.dras.scoring import ScheduleScore, score
from asa.backends.simulated.table import JobTable
from asa.errors import InputError

from .learners import optimiser_arrays, restore_arrays

_MAX_WORTH = 5.0  # in standard deviations: bound of a choice's worth, since rare large ones would dominate
_NEVER = -1e9
_AT_ONCE = 2048
_FRESH = 0.3  # weight of the last set of jobs in the running mean of parameters


@dataclass(frozen=True, slots=True)
class ProximalLearning:
    """Parameters of learning."""

    rate: float = 1e-3
    schedules: int = 4  # number of schedules of each set of jobs, at least 2
    horizon_s: int = 86400  # a cost counts 1/e after this time
    epochs: int = 3  # number of passes over the choices, and how many choices are learned together
    batch: int = 512
    clip: float = 0.2  # bound of the relative change of a choice's probability
    entropy: float = 0.003
    # of the scheduler; see `Patient`. Agents in files always have level 2, and defer reservations
    patience: float = PATIENCE
    window: int = WINDOW
    usual_s: int = 0
    fills: bool = True
    keeps: bool = False
    unseen: tuple[str, ...] = ()  # names in `COLUMNS` that are left out, to measure their value

    def __post_init__(self) -> None:
        counts = (self.schedules - 1, self.horizon_s, self.epochs, self.batch, self.window)
        if not set(self.unseen) <= set(COLUMNS):
            raise InputError(f"{self.unseen} are not all columns", where="learning", hint=f"Known: {COLUMNS}.")
        if min(counts) < 1 or not 0 < self.clip < 1 or min(self.rate, self.entropy, self.patience, self.usual_s) < 0:
            raise InputError(
                f"{self} cannot be", where="learning", hint="Give 2 schedules or more, and no number below 0."
            )

    @property
    def seen(self) -> Floats:
        """By column: 1 if it is used, 0 if it is left out."""
        return np.array([name not in self.unseen for name in COLUMNS], dtype=np.float32)

    def scheduler(self, judge: Judge, cost: Cost | None = None) -> Patient:
        """Return a scheduler with a judge that learns or has learned."""
        return Patient(
            judge,
            patience=self.patience,
            window=self.window,
            usual_s=self.usual_s,
            cost=cost,
            fills=self.fills,
            keeps=self.keeps,
        )


@dataclass(slots=True)
class _Met:
    """The record of a schedule, with a value for each choice."""

    situations: list[Floats] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    likelihood: list[float] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    lasted: list[int] = field(default_factory=list)


class _Trying:
    """Draws by the ranks, and records the rewards; a `Pupil`."""

    def __init__(self, parameters: Mapping[str, Floats], rng: np.random.Generator, how: ProximalLearning) -> None:
        self._parameters, self._rng, self._horizon_s = parameters, rng, how.horizon_s
        self._seen = how.seen if how.unseen else None
        self._now = 0
        self.met = _Met()

    def choose(self, situation: Floats) -> int:
        met = self.met
        if self._seen is not None:
            situation = situation * self._seen
        ranks = rank(self._parameters, situation).astype(np.float64)
        ranks -= ranks.max()
        sums = np.cumsum(np.exp(ranks))
        place = min(int(np.searchsorted(sums, self._rng.random() * sums[-1], side="right")), len(ranks) - 1)
        met.situations.append(situation)
        met.chosen.append(place)
        met.likelihood.append(float(ranks[place] - math.log(sums[-1])))
        met.time.append(self._now)
        met.reward.append(0.0)
        met.lasted.append(0)
        return place

    def elapse(self, cost: float, seconds: int, now: int) -> None:
        met, self._now = self.met, now
        if met.reward:
            if seconds:  # later costs count less, also within a time without choices
                part = seconds / self._horizon_s
                met.reward[-1] -= cost * math.exp(-met.lasted[-1] / self._horizon_s) * -math.expm1(-part) / part
            met.lasted[-1] += seconds


class Proximal:
    """A judge that learns."""

    def __init__(
        self,
        how: ProximalLearning | None = None,
        cost: Cost | None = None,
        *,
        seed: int = 0,
        parameters: Mapping[str, Floats] | None = None,
    ) -> None:
        torch = pytorch()
        self.how, self.cost = how or ProximalLearning(), cost or Waiting()
        self.updates = 0
        self._rng = np.random.Generator(np.random.PCG64(seed))
        ours = first_ranks(self._rng) if parameters is None else {n: a.copy() for n, a in parameters.items()}
        # omitted columns are 0, so their weights have no effect and stay 0; the final agent may receive full columns
        for name in (
            "job",
            "straight",
        ):
            ours[name] *= self.how.seen[:, None]
        # tensors and arrays share memory
        self._tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in ours.items()}
        self._ours = ours
        self._mean = {name: array.copy() for name, array in ours.items()}
        self._optimiser = torch.optim.Adam(self._tensors.values(), lr=self.how.rate)
        self._scale = 0.0  # scale of the rewards after a choice; values are learned relative to it

    @property
    def parameters(self) -> dict[str, Floats]:
        """Copy of the network's parameters: a running mean over sets of jobs, since each set pulls them differently."""
        return {name: array.copy() for name, array in self._mean.items()}

    def practise(self, table: JobTable, nodes: int) -> ScheduleScore:
        """Schedule a set of jobs several times, and learn from it."""
        how, met, scores = self.how, [], []
        for _ in range(how.schedules):
            trying = _Trying(self._ours, self._rng, how)
            scores.append(score(table, nodes, how.scheduler(trying, self.cost)))
            met.append(trying.met)
        if all(episode.chosen for episode in met):
            self._learn(met)
            for name, ours in self._ours.items():
                self._mean[name] += np.float32(_FRESH) * (ours - self._mean[name])
        return scores[0]

    # ------------------------------------------------------------------ learning

    def _learn(self, met: list[_Met]) -> None:
        torch = pytorch()
        rows, there = _padded([situation for episode in met for situation in episode.situations])
        with torch.no_grad():
            begins = range(0, len(rows), _AT_ONCE)
            expected = np.concatenate([self._ask(rows[b : b + _AT_ONCE], there[b : b + _AT_ONCE])[1] for b in begins])
        worth, came = self._worth(met, expected * (self._scale or 1.0))
        size = max(float(np.abs(came).mean()), 1e-6)
        self._scale = 0.9 * self._scale + 0.1 * size if self._scale else size
        chosen = torch.tensor([place for episode in met for place in episode.chosen])
        before = torch.tensor([likelihood for episode in met for likelihood in episode.likelihood])
        worths, values = (torch.from_numpy(array.astype(np.float32)) for array in (worth, came / self._scale))
        for _ in range(self.how.epochs):
            order = torch.from_numpy(self._rng.permutation(len(rows)))
            for some in order.split(self.how.batch):
                widest = int(there[some].sum(dim=1).max())
                ranks, valued = self._ask(rows[some, :widest], there[some, :widest])
                likely = torch.log_softmax(ranks, dim=1)
                ratio = (likely.gather(1, chosen[some, None])[:, 0] - before[some]).exp()
                clipped = ratio.clamp(1.0 - self.how.clip, 1.0 + self.how.clip)
                gain = torch.minimum(ratio * worths[some], clipped * worths[some]).mean()
                entropy = -(likely.exp() * likely.clamp(min=-30.0)).sum(dim=1).mean()
                loss = 0.25 * ((valued - values[some]) ** 2).mean() - gain - self.how.entropy * entropy
                self._optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self._tensors.values(), 0.5)
                self._optimiser.step()
                self.updates += 1

    def _worth(self, met: list[_Met], expected: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the worth of each choice relative to others, and the reward after it."""
        beyond, came, begin = [], [], 0
        for episode in met:
            values = expected[begin : begin + len(episode.chosen)]
            begin += len(episode.chosen)
            keeps = np.exp(-np.array(episode.lasted) / self.how.horizon_s)
            after = np.array(episode.reward)
            for index in range(len(after) - 2, -1, -1):
                after[index] += keeps[index] * after[index + 1]
            came.append(after)
            beyond.append(after - values)
        worth = []
        for episode, mine in zip(met, beyond, strict=True):
            same = np.zeros(len(mine))
            for other, theirs in zip(met, beyond, strict=True):
                if other is not episode:
                    at = np.searchsorted(other.time, episode.time)
                    same += theirs[np.minimum(at, len(theirs) - 1)]
            worth.append(mine - same / (len(met) - 1))
        all_worth = np.concatenate(worth)
        all_worth /= all_worth.std() + 1e-8
        return np.clip(all_worth, -_MAX_WORTH, _MAX_WORTH), np.concatenate(came)

    def _ask(self, rows: Any, there: Any) -> tuple[Any, Any]:
        """Return the ranks of the jobs in several situations, and the value of each situation."""
        torch, own = pytorch(), self._tensors
        seen = torch.tanh(rows @ own["job"] + own["job_bias"])
        mean = (seen * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True)
        around = (mean @ own["others"] + own["mixed_bias"])[:, None]
        ranks = (torch.tanh(seen @ own["own"] + around) @ own["rank"] + rows @ own["straight"])[:, :, 0]
        most = seen.masked_fill(there[:, :, None] == 0, -1.0).amax(dim=1)
        hidden = torch.tanh(mean @ own["mean"] + most @ own["most"] + own["value_bias"])
        return ranks.masked_fill(there == 0, _NEVER), (hidden @ own["value"] + own["last_bias"])[:, 0]

    # ------------------------------------------------------------------ state

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all that is needed to continue: arrays, and JSON-ready data."""
        arrays: dict[str, NDArray[Any]] = {name: array.copy() for name, array in self._ours.items()}
        arrays |= {f"mean.{name}": array.copy() for name, array in self._mean.items()}
        arrays |= optimiser_arrays(self._optimiser, self._tensors)
        return arrays, {"updates": self.updates, "scale": self._scale, "generator": self._rng.bit_generator.state}

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.updates, self._scale = facts["updates"], facts["scale"]
        self._rng.bit_generator.state = facts["generator"]
        self._mean = {name: arrays[f"mean.{name}"].copy() for name in self._mean}
        restore_arrays(self._optimiser, self._tensors, arrays, updates=self.updates)


def _padded(situations: list[Floats]) -> tuple[Any, Any]:
    """Pad situations with different numbers of jobs into one tensor; return which rows are jobs."""
    widest = max(len(rows) for rows in situations)
    rows = np.zeros((len(situations), widest, situations[0].shape[1]), dtype=np.float32)
    there = np.zeros((len(situations), widest), dtype=np.float32)
    for index, some in enumerate(situations):
        rows[index, : len(some)] = some
        there[index, : len(some)] = 1.0
    torch = pytorch()
    return torch.from_numpy(rows), torch.from_numpy(there)

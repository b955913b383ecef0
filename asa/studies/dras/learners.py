"""The paper's learners, which learn while they choose (Section III-B): one by probabilities, one by values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asa.backends.dras.agents import draw
from asa.backends.dras.network import Evaluator, Floats, NetworkSize, forward, initial, pytorch
from asa.backends.dras.state import SCALE_S, Encoder, Integers, State
from asa.backends.simulated.policies import QueueView
from asa.errors import InputError


@dataclass(frozen=True, slots=True)
class Learning:
    """Parameters of learning; by default the paper's."""

    rate: float = 0.001
    instances: int = 10  # number of passes with a choice between updates of parameters
    # initial probability of a random choice of DRAS-DQL, and its factor at each update
    epsilon: float = 1.0
    epsilon_decay: float = 0.995
    discount: float = 1.0  # weight of a reward one choice later; 1 in the paper
    device: str = "cpu"  # device for PyTorch: `cpu`, `cuda`, or `auto` for `cuda` if there is one

    def __post_init__(self) -> None:
        shares = (self.epsilon, self.epsilon_decay, self.discount)
        if self.rate <= 0.0 or self.instances < 1 or not all(0.0 <= share <= 1.0 for share in shares):
            raise InputError(
                f"{self} cannot be",
                where="learning",
                hint="Give a rate above 0, 1 or more instances, and the others from 0 to 1.",
            )


class Learner(ABC):
    """Common parts of both learners; see `PolicyGradient` and `QLearning`."""

    def __init__(
        self,
        shape: NetworkSize,
        how: Learning | None = None,
        *,
        scale_s: int = SCALE_S,
        seed: int = 0,
        parameters: Mapping[str, Floats] | None = None,
    ) -> None:
        torch = pytorch()
        self.shape, self.how, self.scale_s = shape, how or Learning(), scale_s
        self.updates = 0
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._encode = Encoder(shape.nodes, scale_s)
        ours = initial(shape, self._rng) if parameters is None else {n: a.copy() for n, a in parameters.items()}
        device = self.how.device
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        # on the CPU, tensors and arrays share memory
        self._tensors = {name: torch.from_numpy(a).to(self._device).requires_grad_() for name, a in ours.items()}
        self._optimiser = torch.optim.Adam(self._tensors.values(), lr=self.how.rate, fused=True)
        self._evaluate = Evaluator(shape, ours) if str(self._device) == "cpu" else None
        self._rows: list[Floats] = []
        self._rewards: list[float] = []
        self._instances = 0

    # ------------------------------------------------------------------ choosing

    def choose(self, view: QueueView, jobs: Integers) -> int:
        """Choose one of the given jobs, exploring; return its index among them."""
        state = self._encode(view, jobs)
        place = self._explore(state, self._values(state))
        self._rows.append(state.rows(self.shape.jobs, only=None if self.shape.kind == "pg" else place))
        return place

    def _values(self, state: State) -> Floats:
        if self._evaluate is not None:
            return self._evaluate(state)
        torch, shape = pytorch(), self.shape
        places = [None] if shape.kind == "pg" else range(len(state.jobs))
        rows = np.stack([state.rows(shape.jobs, only=place) for place in places])
        with torch.no_grad():
            values: Floats = forward(self._tensors, torch.from_numpy(rows).to(self._device)).cpu().numpy()
        return values[0, : len(state.jobs)] if shape.kind == "pg" else values[:, 0]

    @abstractmethod
    def _explore(self, state: State, values: Floats) -> int:
        """Choose, and remember the alternatives."""

    # ------------------------------------------------------------------ learning

    def credit(self, reward: float) -> None:
        """Receive the reward of the last choice."""
        self._rewards.append(reward)

    def end_instance(self) -> None:
        """Learn, after enough passes with a choice."""
        self._instances += 1
        if self._instances >= self.how.instances:
            self._update()

    def end_episode(self) -> None:
        """Learn from the remaining choices, the last of which has no successor."""
        if self._rewards:
            self._update(is_end=True)

    def _update(self, *, is_end: bool = False) -> None:
        loss = self._loss(is_end=is_end)
        self._instances = 0
        if loss is None:
            return
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self.updates += 1
        if self._evaluate is not None:
            self._evaluate.refresh()

    @abstractmethod
    def _loss(self, *, is_end: bool) -> Any:
        """Return the loss of the recorded choices, if there are enough, and forget them."""

    def _batch(self, rows: list[Floats]) -> Any:
        return pytorch().from_numpy(np.stack(rows)).to(self._device)

    # ------------------------------------------------------------------ state

    @property
    def parameters(self) -> dict[str, Floats]:
        """Copy of the network's parameters."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._tensors.items()}

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all that is needed to continue after an episode: arrays, and JSON-ready data.

        Returns: parameters and the optimiser's moments by name; the number of updates and the state of the random
        generator.
        """
        if self._rows:
            raise InputError("is in the middle of an episode", where="learner", hint="Save it when one has ended.")
        arrays: dict[str, NDArray[Any]] = {**self.parameters, **optimiser_arrays(self._optimiser, self._tensors)}
        return arrays, {"updates": self.updates, "generator": self._rng.bit_generator.state}

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.updates = facts["updates"]
        self._rng.bit_generator.state = facts["generator"]
        restore_arrays(self._optimiser, self._tensors, arrays, updates=self.updates)
        if self._evaluate is not None:
            self._evaluate.refresh()


class PolicyGradient(Learner):
    """DRAS-PG: draws by probabilities, and makes choices with more reward than usual more probable (Equation 3).

    The baseline of the k-th choice since the last update is the mean, over earlier updates, of the rewards from the
    k-th choice on. If no earlier update had as many choices, the k-th has no baseline, and nothing is learned from it.
    """

    def __init__(self, shape: NetworkSize, how: Learning | None = None, **others: Any) -> None:
        super().__init__(shape, how, **others)
        self._chosen: list[int] = []
        self._among: list[int] = []
        # for each choice: sum of the rewards from it on, and the number of updates with it
        self._usual = np.zeros((2, 0))

    def _explore(self, state: State, values: Floats) -> int:
        place = draw(self._rng, values)
        self._chosen.append(place)
        self._among.append(len(state.jobs))
        return place

    def _loss(self, *, is_end: bool) -> Any:
        del is_end
        torch = pytorch()
        returns = np.array(self._rewards)
        for k in range(len(returns) - 2, -1, -1):
            returns[k] += self.how.discount * returns[k + 1]
        advantages = torch.from_numpy(self._beyond_usual(returns).astype(np.float32)).to(self._device)
        logits = forward(self._tensors, self._batch(self._rows))
        among, chosen = (torch.tensor(places, device=self._device) for places in (self._among, self._chosen))
        is_empty = torch.arange(self.shape.window, device=self._device) >= among[:, None]
        likelihoods = torch.log_softmax(logits.masked_fill(is_empty, -torch.inf), dim=1)
        for remembered in (self._rows, self._rewards, self._chosen, self._among):
            remembered.clear()
        return -(likelihoods.gather(1, chosen[:, None])[:, 0] * advantages).sum()

    def _beyond_usual(self, returns: NDArray[np.float64]) -> NDArray[np.float64]:
        choices = len(returns)
        if choices > self._usual.shape[1]:
            self._usual = np.pad(self._usual, ((0, 0), (0, choices - self._usual.shape[1])))
        total, count = self._usual[:, :choices]
        beyond: NDArray[np.float64] = np.where(count > 0, returns - total / np.maximum(count, 1), 0.0)
        total += returns
        count += 1
        return beyond

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all that is needed to continue after an episode: arrays, and JSON-ready data."""
        arrays, facts = super().state()
        return arrays | {"usual": self._usual.copy()}, facts

    def restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        super().restore(arrays, facts)
        self._usual = arrays["usual"].copy()


class QLearning(Learner):
    """DRAS-DQL: values each job by itself, and chooses the best, sometimes a random one (Equation 4).

    Values move towards the reward plus the best value at the next choice, as estimated when that was made. (The printed
    sign of Equation 4 would move them away.) The last choice before an update is learned only with the next update,
    when its successor is known.
    """

    def __init__(self, shape: NetworkSize, how: Learning | None = None, **others: Any) -> None:
        super().__init__(shape, how, **others)
        self._best: list[float] = []

    @property
    def epsilon(self) -> float:
        """The present probability of a random choice."""
        return self.how.epsilon * self.how.epsilon_decay**self.updates

    def _explore(self, state: State, values: Floats) -> int:
        self._best.append(float(values.max()))
        if self._rng.random() < self.epsilon:
            return int(self._rng.integers(len(state.jobs)))
        return int(values.argmax())

    def _loss(self, *, is_end: bool) -> Any:
        torch = pytorch()
        known = len(self._rows) if is_end else len(self._rows) - 1
        if not known:
            return None
        after = np.array([*self._best[1:], 0.0])
        targets = np.array(self._rewards) + self.how.discount * after
        wanted = torch.from_numpy(targets[:known].astype(np.float32)).to(self._device)
        values = forward(self._tensors, self._batch(self._rows[:known]))[:, 0]
        for remembered in (self._rows, self._rewards, self._best):
            del remembered[:known]
        return 0.5 * ((values - wanted) ** 2).sum()


def learner(shape: NetworkSize, how: Learning | None = None, **others: Any) -> PolicyGradient | QLearning:
    """Return the learner for a network; see `Learner` for further arguments."""
    return (PolicyGradient if shape.kind == "pg" else QLearning)(shape, how, **others)


# ---------------------------------------------------------------------- the optimiser's state

_MOMENTS = ("exp_avg", "exp_avg_sq")


def optimiser_arrays(optimiser: Any, tensors: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the optimiser's moments, by the names of moment and tensor; zeros before it has learned."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        moments = optimiser.state.get(tensor, {})
        for moment in _MOMENTS:
            kept = moments[moment].cpu().numpy().copy() if moments else np.zeros(tensor.shape, dtype=np.float32)
            arrays[f"{moment}.{name}"] = kept
    return arrays


def restore_arrays(
    optimiser: Any, tensors: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, updates: int
) -> None:
    """Copy arrays into tensors, and the moments and number of updates into their optimiser."""
    torch = pytorch()
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(torch.from_numpy(arrays[name].copy()))
            if updates:
                kept = {
                    moment: torch.from_numpy(arrays[f"{moment}.{name}"].copy()).to(tensor.device) for moment in _MOMENTS
                }
                step = torch.tensor(float(updates), device=tensor.device)
                optimiser.state[tensor] = {"step": step, **kept}

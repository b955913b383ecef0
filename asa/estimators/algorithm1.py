"""Algorithm 1 of the ASA paper, with the paper's three sampling policies.

Souza, Pelckmans, Ghoshal, Ramakrishnan, Tordsson: *ASA - The Adaptive Scheduling Algorithm*, Section 3.2, 4.4 and
Appendix A. There are better estimators in this package; this one stays as published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from asa.core.late import dataclass
from asa.errors import InputError, StateError
from asa.estimators.alternatives import PAPER_ALTERNATIVES_S, closest_losses, validated
from asa.estimators.base import Distribution, Prediction, WaitObservation

Policy = Literal["default", "greedy", "tuned"]

_ROUND_BOUND = 1.0
"""A round ends once an alternative has gathered more loss than this (line 3 of Algorithm 1)."""


def checked_policy(name: str) -> Policy:
    """Return a sampling policy's name, if it is one."""
    if name not in get_args(Policy):
        raise InputError(f"there is no policy {name!r}", hint=f"Known: {', '.join(get_args(Policy))}.")
    return cast("Policy", name)


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The sequence gamma_t of line 7: ``initial / t ** decay``, positive and never increasing.

    The proof of Theorem 1 uses ``exp(-loss)``, that is gamma = 1 throughout, which is the default.

    Parameters
    ----------
    initial
        The value of round 1, above 0.
    decay
        The exponent of the round, at least 0; 0 for a constant gamma.

    Examples
    --------
    >>> [LearningRate(2.0, decay=0.5).at(t) for t in (1, 4)]
    [2.0, 1.0]
    """

    initial: float = 1.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not self.initial > 0 or self.decay < 0:
            raise InputError("gamma must be positive and must not increase", hint="Give initial > 0 and decay >= 0.")

    def at(self, round_number: int) -> float:
        """Return gamma of a round, counted from 1."""
        return float(self.initial / round_number**self.decay)


class Asa:
    """Algorithm 1: exponential weights over fixed waits, updated in rounds of bounded loss.

    Weights are kept as logarithms, so that no alternative's probability reaches exactly 0 and each can recover.

    Parameters
    ----------
    policy
        ``default``: Algorithm 1 as it is: an alternative is drawn from p and only its own loss is used. ``greedy``:
        always the alternative with the least total loss, the shortest wait among equals. ``tuned``: like default, but
        after each observation `repetitions` further alternatives are drawn from p and updated with their losses
        (Section 4.4).
    alternatives_s
        Waits in seconds, ascending; the paper's 53 by default.
    repetitions
        Draws per observation under the tuned policy; the paper uses 50.
    learning_rate
        The sequence gamma_t.
    seed
        Seed of the random generator; the same seed and observations give the same predictions on any machine.

    Attributes
    ----------
    alternatives_s : ndarray of shape (m,)
        The waits.
    rounds : int
        Finished rounds, eta(t) of Theorem 1.
    observations : int
        Waits learned so far.

    Notes
    -----
    The regret bound of Theorem 1 holds for the tuned policy on every sequence of waits that we tried. For the default
    policy it does not: the proof goes from the sampled alternative's loss (equation 12) to the expected loss of all
    (equation 14), which requires all losses to be known; with a constant wait the regret exceeds the bound. The tests
    show both.

    Examples
    --------
    >>> learner = Asa(policy="tuned", seed=7)
    >>> for _ in range(20):
    ...     learner.observe(3600.0, learner.predict())
    >>> learner.predict().wait_s
    4000.0
    """

    def __init__(
        self,
        policy: Policy = "default",
        *,
        alternatives_s: tuple[float, ...] = PAPER_ALTERNATIVES_S,
        repetitions: int = 50,
        learning_rate: LearningRate | None = None,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        if repetitions < 0:
            raise InputError(f"{repetitions} repetitions cannot be", hint="Give 0 or more; the paper uses 50.")
        if isinstance(seed, int) and seed < 0:
            raise InputError(f"a seed of {seed} cannot be", hint="Give 0 or more.")
        self.policy: Policy = checked_policy(policy)
        self.repetitions = repetitions
        self.learning_rate = learning_rate or LearningRate()
        self.alternatives_s = validated(alternatives_s)
        m = len(self.alternatives_s)
        self.rounds = 0
        self.observations = 0
        self._log_weights = np.full(m, -np.log(m))
        # l_t of the open round, which may stay open for long; 0 for alternatives that are not in it
        self._round_losses: dict[int, float] = {}
        self._total_losses = [0.0] * m  # over all rounds; the greedy policy chooses by these
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._cumulative = self._cumulate()

    def __repr__(self) -> str:
        return f"Asa(policy={self.policy!r}, observations={self.observations}, rounds={self.rounds})"

    def predict(self) -> Prediction:
        """Choose an alternative for a job that is submitted now (line 4). O(log m), greedy O(m)."""
        if self.policy == "greedy":
            chosen = self._best()
        else:
            chosen = int(self._cumulative.searchsorted(self._rng.random(), side="right"))
        return Prediction(float(self.alternatives_s[chosen]), chosen)

    def observe(self, observation: WaitObservation | float, prediction: Prediction | None = None) -> None:
        """Score a prediction with the observed wait (line 5); update the weights if the round is full (line 7).

        O(m) for default and greedy; O(repetitions log m) for tuned, and O(m) for each round that it ends.

        Parameters
        ----------
        observation
            The wait, exact or censored; a number is an exact wait in seconds.
        prediction
            The prediction that was used. Without one, an alternative is chosen now as by `predict`.

        Raises
        ------
        InputError
            The prediction is another estimator's.
        """
        if not isinstance(observation, WaitObservation):
            observation = WaitObservation(float(observation))
        losses: list[float] = closest_losses(self.alternatives_s, observation).tolist()
        chosen = (prediction or self.predict()).alternative
        if not 0 <= chosen < len(losses):
            raise InputError("the prediction is not one of this estimator's", hint="Hand back what `predict` returned.")
        self.observations += 1
        self._suffer((chosen,), losses)
        if self.policy == "tuned":
            self._replay(losses)

    def distribution(self) -> Distribution:
        """Return the distribution of `predict`: p over the alternatives, or the single choice of the greedy policy."""
        if self.policy == "greedy":
            certain = np.zeros(len(self.alternatives_s))
            certain[self._best()] = 1.0
            return Distribution(self.alternatives_s, certain)
        return Distribution(self.alternatives_s, np.exp(self._log_weights))

    def quantiles_s(self, levels: Sequence[float]) -> tuple[float, ...]:
        """Return the smallest alternatives not exceeded with these probabilities, in seconds. O(log m) each."""
        if self.policy == "greedy":
            return (float(self.alternatives_s[self._best()]),) * len(levels)
        return tuple(self.alternatives_s[self._cumulative.searchsorted(levels)].tolist())

    def state(self) -> dict[str, Any]:
        """Return the whole state as JSON-ready data: parameters, weights, the open round and the generator."""
        generator = self._rng.bit_generator.state["state"]
        return {
            "policy": self.policy,
            "repetitions": self.repetitions,
            "learning_rate": asdict(self.learning_rate),
            "alternatives_s": self.alternatives_s.tolist(),
            "rounds": self.rounds,
            "observations": self.observations,
            "log_weights": self._log_weights.tolist(),
            "round_losses": [self._round_losses.get(index, 0.0) for index in range(len(self.alternatives_s))],
            "total_losses": list(self._total_losses),
            # 128-bit integers as text, because other readers of JSON round them
            "generator": {"state": str(generator["state"]), "inc": str(generator["inc"])},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Asa:
        """Make an estimator that continues, bit for bit, from the `state` of another.

        Raises
        ------
        StateError
            The state is incomplete or inconsistent.
        """
        try:
            made = cls(
                state["policy"],
                alternatives_s=tuple(state["alternatives_s"]),
                repetitions=state["repetitions"],
                learning_rate=LearningRate(**state["learning_rate"]),
            )
            shape = made.alternatives_s.shape
            made.rounds, made.observations = int(state["rounds"]), int(state["observations"])
            kept = {}
            for name in ("log_weights", "round_losses", "total_losses"):
                kept[name] = np.array(state[name], dtype=np.float64)
                if kept[name].shape != shape or not np.all(np.isfinite(kept[name])):
                    raise StateError(f"{name} do not fit the alternatives", hint="The file was changed or cut off.")
            made._log_weights = kept["log_weights"]
            made._round_losses = {index: loss for index, loss in enumerate(kept["round_losses"].tolist()) if loss}
            made._total_losses = kept["total_losses"].tolist()
            generator = dict(made._rng.bit_generator.state)
            generator["state"] = {name: int(state["generator"][name]) for name in ("state", "inc")}
            made._rng.bit_generator.state = generator
            if abs(np.logaddexp.reduce(made._log_weights)) > 1e-6:
                raise StateError("the weights do not add up to 1", hint="The file was changed.")
        except InputError as error:
            raise StateError(error.message, hint="The file was changed or cut off.") from error
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(f"no state of an estimator: {error}", hint="Forget it and learn anew.") from error
        made._cumulative = made._cumulate()
        return made

    def _best(self) -> int:
        """Return the alternative with the smallest loss; of several, the first."""
        return self._total_losses.index(min(self._total_losses))

    def _cumulate(self) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.add.accumulate(np.exp(self._log_weights))
        total /= total[-1]  # so that the last is exactly 1, and no drawn number exceeds it
        return total

    def _suffer(self, chosen: Sequence[int], losses: Sequence[float]) -> int:
        """Add losses to alternatives in turn, until this ends the round; return how many were added."""
        open_round, total = self._round_losses, self._total_losses
        for index, alternative in enumerate(chosen):
            loss = losses[alternative]
            if loss > 0.0:
                total[alternative] += loss
                before = open_round.get(alternative, 0.0)
                open_round[alternative] = before + loss
                if before + loss > _ROUND_BOUND:
                    self._end_round()
                    return index + 1
        return len(chosen)

    def _end_round(self) -> None:
        self.rounds += 1
        gamma = self.learning_rate.at(self.rounds)
        weights = self._log_weights
        for alternative, loss in self._round_losses.items():
            weights[alternative] -= gamma * loss
        weights -= np.logaddexp.reduce(weights)
        self._round_losses.clear()
        self._cumulative = self._cumulate()

    def _replay(self, losses: Sequence[float]) -> None:
        """Draw `repetitions` alternatives from p, and update each. p changes whenever a round ends meanwhile."""
        uniforms = self._rng.random(self.repetitions)
        done = 0
        while done < len(uniforms):
            done += self._suffer(self._cumulative.searchsorted(uniforms[done:], side="right").tolist(), losses)

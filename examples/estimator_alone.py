"""The estimator alone, on Fig. 5 of the ASA paper: how each sampling policy follows a wait that changes.

Makes 1000 predictions of a wait that is drawn anew at 0, 200, 400, 600 and 800. Prints how often each policy chose the
alternative closest to the true wait and how soon it found it, and draws the three lines.

    python examples/estimator_alone.py [FIGURE.png]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from asa.core.drawing import new_figure, save_figure
from asa.estimators import PAPER_ALTERNATIVES_S, Asa

ITERATIONS, PERIOD = 1000, 200
POLICIES = ("default", "greedy", "tuned")
COLOURS = {"default": "#b0b0b0", "greedy": "#d55e00", "tuned": "#cc79a7"}


def true_waits(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Draw the wait of each period from the alternatives; with one seed, the third is lower, as in the figure."""
    levels = np.random.default_rng(seed).choice(PAPER_ALTERNATIVES_S, size=ITERATIONS // PERIOD, replace=False)
    return np.repeat(levels, PERIOD)


def follow(policy: str, waits: np.ndarray[tuple[int], np.dtype[np.float64]], seed: int) -> list[float]:
    """Predict, observe the true wait, learn: using the estimator takes these five lines."""
    learner = Asa(policy, seed=seed)  # type: ignore[arg-type]  # one of POLICIES
    predicted = []
    for wait in waits.tolist():
        prediction = learner.predict()
        predicted.append(prediction.wait_s)
        learner.observe(wait, prediction)
    return predicted


def first_run_of_hits(hits: np.ndarray[tuple[int], np.dtype[np.bool_]], length: int = 5) -> float:
    """Count the iterations of a period before the first `length` hits in a row; nan if there are none."""
    streak = np.convolve(hits, np.ones(length, dtype=int), mode="valid") == length
    return float(np.argmax(streak)) if streak.any() else float("nan")


def main() -> None:
    """Run many seeds for the table, and draw one of them."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/fig5.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(30)
    table = Table(
        title=f"Hits (closest of {len(PAPER_ALTERNATIVES_S)}) in {ITERATIONS} iterations, mean of {len(seeds)} seeds"
    )
    table.add_column("Policy")
    for period in range(ITERATIONS // PERIOD):
        table.add_column(f"{period * PERIOD}-{(period + 1) * PERIOD - 1}", justify="right")
    table.add_column("All", justify="right")
    table.add_column("Until 5 in a row", justify="right")
    for policy in POLICIES:
        hits = np.array([np.equal(follow(policy, true_waits(seed), seed), true_waits(seed)) for seed in seeds])
        periods = hits.reshape(len(seeds), -1, PERIOD)
        delays = [first_run_of_hits(period) for run in periods for period in run]
        found = np.isfinite(delays)
        delay = f"{np.median(np.array(delays)[found]):.0f}" if found.any() else "never"
        missing = f" ({100 * (1 - found.mean()):.0f} % never)" if not found.all() and found.any() else ""
        row = [f"{100 * share:.0f} %" for share in periods.mean(axis=(0, 2))]
        table.add_row(policy, *row, f"{100 * hits.mean():.1f} %", delay + missing)
    Console().print(table)

    waits = true_waits(3)
    figure = new_figure(9, 4)
    panel = figure.subplots()
    for policy in POLICIES:
        panel.plot(follow(policy, waits, 3), color=COLOURS[policy], linewidth=0.7, label=f"ASA {policy}")
    panel.plot(waits, color="#0072b2", linestyle="--", linewidth=2, label="true wait")
    panel.set(yscale="log", xlabel="iteration", ylabel="queue wait (s)", title="Fig. 5: following a wait that changes")
    panel.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    save_figure(figure, target)
    Console().print(f"Figure written to {target}")


if __name__ == "__main__":
    main()

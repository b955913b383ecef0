"""Measures how often 95 % intervals contain the true mean, by several rules: a table of docs/research/evaluations.md.

As in: python tools/interval_rules.py
"""

import math
import sys
from statistics import NormalDist

import numpy as np

from asa.core.intervals import student_quantile

DRAWS, RESAMPLES = 4000, 999
RULES = ("Student's", "percentile", "BCa", "bootstrap-t")


def values_of(kind, rng, shape):
    """Draw values; return them with the true mean."""
    match kind:
        case "normal":
            return rng.normal(1, 1, shape), 1.0
        case "log-normal":
            return rng.lognormal(0, 1, shape), math.exp(0.5)
        case "bimodal":
            is_high = rng.random(shape) < 0.25
            return np.where(is_high, rng.normal(20, 2, shape), rng.normal(2, 0.5, shape)), 6.5
        case _:
            return rng.lognormal(0, 1, shape) - rng.lognormal(0, 1, shape), 0.0


def intervals(values, rng):
    """Return each rule's interval of one mean."""
    count, mean, deviation = len(values), values.mean(), values.std(ddof=1)
    half = student_quantile(0.975, count - 1) * deviation / math.sqrt(count)
    drawn = values[rng.integers(count, size=(RESAMPLES, count))]
    means, deviations = drawn.mean(axis=1), drawn.std(axis=1, ddof=1)
    some = deviations > 1e-12 * deviation
    low_t, high_t = np.quantile((means[some] - mean) / deviations[some], [0.025, 0.975]) * deviation
    return (
        (mean - half, mean + half),
        tuple(np.quantile(means, [0.025, 0.975])),
        tuple(np.quantile(means, bca_levels(values, means))),
        (mean - high_t, mean - low_t),
    )


def bca_levels(values, means):
    """Return the levels at which Efron's rule takes the bootstrap's quantiles."""
    normal = NormalDist()
    below = (means < values.mean()).mean() + (means == values.mean()).mean() / 2
    bias = normal.inv_cdf(min(max(below, 1 / len(means)), 1 - 1 / len(means)))
    left_out = (values.sum() - values) / (len(values) - 1)
    away = left_out.mean() - left_out
    skew = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    shifted = (bias + normal.inv_cdf(level) for level in (0.025, 0.975))
    return [normal.cdf(bias + z / (1 - skew * z)) for z in shifted]


def main():
    """Print how often each rule's interval holds, and how wide it is compared with Student's."""
    rng = np.random.default_rng(0)
    sys.stdout.write(f"{'':14}{'values':>7}{''.join(f'{rule:>18}' for rule in RULES)}\n")
    for kind in ("normal", "log-normal", "bimodal", "difference"):
        for count in (3, 5, 10, 20, 40):
            values, truth = values_of(kind, rng, (DRAWS, count))
            found = np.array([intervals(one, rng) for one in values])
            held = 100 * ((found[..., 0] <= truth) & (truth <= found[..., 1])).mean(axis=0)
            wide = np.median(found[..., 1] - found[..., 0], axis=0)
            cells = "".join(f"{share:9.1f} % x{width:6.2f}" for share, width in zip(held, wide / wide[0], strict=True))
            sys.stdout.write(f"{kind:14}{count:7}{cells}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

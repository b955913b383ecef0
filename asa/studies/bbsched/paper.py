"""The figures in the paper's text and Table 3; not those that are only in its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .tables import By

WINDOW = 20
"""Size of the window, unless the paper says otherwise."""

JOBS_A_DAY: Final = {"cori": 2_607_054 / 122, "theta": 70_507 / 151}
"""Jobs of Table 2 a day: from April to July, and from January to May 2018."""

BUFFERS_TB: Final = {"cori": 1800, "theta": 1260}
"""Shared burst buffer by machine, in Table 2."""

WHY_BUFFERS: Final = {
    "cori": "the paper's, with the third that is reserved persistently, without which jobs could not use the 94.7 % of "
    "Table 3",
    "theta": "the paper's, in Table 2; the 2.16 PB of its text do not fit the proportion to Cori that it gives",
}
"""Why these are the defaults."""

FIGURES = {
    # by workload, method and measure: the value for each window size; those of BBSched are from Table 3
    ("cori-s4", "baseline", "average_wait_s"): {WINDOW: 19 * 3600.0},
    ("cori-s4", "bbsched", "node_usage"): {10: 0.6018, 20: 0.6490, 50: 0.6506},
    ("cori-s4", "bbsched", "burst_buffer_usage"): {10: 0.9253, 20: 0.9474, 50: 0.9465},
    ("cori-s4", "bbsched", "average_wait_s"): {10: 55_732.0, 20: 51_028.0, 50: 50_871.0},
    ("cori-s4", "bbsched", "average_slowdown"): {10: 162.37, 20: 154.43, 50: 153.20},
    ("theta-s4", "bbsched", "node_usage"): {10: 0.6712, 20: 0.7329, 50: 0.7434},
    ("theta-s4", "bbsched", "burst_buffer_usage"): {10: 0.8423, 20: 0.8954, 50: 0.8963},
    ("theta-s4", "bbsched", "average_wait_s"): {10: 10_402.0, 20: 8847.0, 50: 8792.0},
    ("theta-s4", "bbsched", "average_slowdown"): {10: 8.93, 20: 8.16, 50: 8.08},
}

CHANGES = {
    # by workload, method and measure: change from the baseline in percent; for usages the paper does not say whether it
    # means percent or points
    ("cori-s1", "constrained-cpu", "node_usage"): 0.18,
    ("cori-s1", "constrained-cpu", "burst_buffer_usage"): -1.33,
    ("cori-s4", "bbsched", "node_usage"): 16.28,
    ("theta-original", "bbsched", "average_wait_s"): -21.30,
    ("theta-s1", "weighted-bb", "node_usage"): -6.11,
    ("theta-s1", "weighted-bb", "burst_buffer_usage"): 10.54,
    ("theta-s1", "constrained-bb", "node_usage"): -4.84,
    ("theta-s1", "constrained-bb", "burst_buffer_usage"): 12.09,
    ("theta-s3", "bbsched", "node_usage"): 12.69,
    ("theta-s4", "bbsched", "node_usage"): 20.03,
    ("theta-s4", "bbsched", "average_wait_s"): -41.0,
}

PART_CHANGES: Final[Mapping[tuple[str, By, int, str], float]] = {
    # method, breakdown, lower bound, text: change of the wait of such jobs from the baseline in percent, on Theta-S4
    ("bbsched", "by_nodes", 1, "1-8 nodes"): -48.29,
    ("bbsched", "by_nodes", 1024, "1024- nodes"): -31.59,
    ("constrained-cpu", "by_burst_buffer", 0, "no burst buffer"): -32.43,
    ("constrained-cpu", "by_burst_buffer", 100_000, "100-200 TB"): 17.21,
}

BEST = {"node_usage": 7, "burst_buffer_usage": 10, "average_wait_s": 10}
"""The number of the ten workloads on which BBSched is best, by measure."""

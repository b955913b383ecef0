"""Run times of real programs at several widths."""

from __future__ import annotations

from collections.abc import Mapping

BENCHMARKS: Mapping[str, Mapping[int, float]] = {
    # seconds, by number of processes: NAS parallel benchmarks on two machines, medians of the ELiSE project's
    # measurements
    "bt.D": {64: 486.25, 256: 123.99},
    "cg.D": {64: 183.43, 128: 93.29},
    "cg.D, Grid'5000": {32: 347.0, 64: 193.0},
    "ft.D": {64: 185.72, 256: 55.98},
    "ft.D, Grid'5000": {32: 263.0, 64: 150.0},
    "lu.D": {64: 263.41, 128: 138.56, 256: 73.55},
}

"""The paper's networks, and its results of the test on Theta."""

from __future__ import annotations

from typing import Final

TABLE_III: Final = {
    # parameters by agent, nodes, and layers
    ("pg", 4360, (4000, 1000)): 21_890_053,
    ("dql", 4360, (4000, 1000)): 21_449_004,
    ("pg", 12076, (10000, 4000)): 161_960_053,
    ("dql", 12076, (10000, 4000)): 161_764_004,  # which 12,176 rows have, as PG; the 12,078 that it prints do not
}

TABLE_IV: Final = {
    # by method and mode: percent of the jobs and of the core-hours; the jobs of the last row sum to 106.84 % as printed
    "fcfs-easy": {"backfilled": (79.25, 30.45), "ready": (9.88, 16.99), "reserved": (10.87, 52.56)},
    "dras-pg": {"backfilled": (83.76, 33.67), "ready": (8.63, 11.29), "reserved": (7.61, 55.04)},
    "dras-dql": {"backfilled": (84.83, 34.17), "ready": (6.84, 10.91), "reserved": (15.17, 54.92)},
}

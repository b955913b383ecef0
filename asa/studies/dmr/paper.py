"""The paper's results: Tables 2, 3 and 4."""

from __future__ import annotations

TABLE_2 = {
    # by version: actions per job and their mean seconds, in a workload of 400 jobs
    "synchronous": {"none_s": 0.0094, "expands": 0.125, "expand_s": 0.423, "shrinks": 0.485, "shrink_s": 0.425},
    "asynchronous": {"none_s": 0.0137, "expands": 0.267, "expand_s": 8.820, "shrinks": 0.757, "shrink_s": 0.422},
}

TABLE_3 = {
    # by measure and version: mean and standard deviation over workloads of several sizes
    "utilisation": {"fixed": (83.607, 5.353), "synchronous": (93.909, 1.012), "asynchronous": (86.687, 8.735)},
    "waiting gain": {"synchronous": (27.980, 12.124), "asynchronous": (30.575, 17.282)},
    "execution gain": {"synchronous": (-58.482, 26.731), "asynchronous": (-97.294, 34.378)},
    "completion gain": {"synchronous": (12.786, 4.083), "asynchronous": (7.799, 5.548)},
}

TABLE_4_MEASURES = ("utilisation", "waiting", "execution", "completion")
TABLE_4 = {
    # by number of jobs and version: utilisation in percent; seconds that a job waits, executes, and takes in total
    50: {"fixed": (98.71, 4115.02, 620.26, 4735.28), "flexible": (68.67, 1359.92, 900.3, 2260.22)},
    100: {"fixed": (97.39, 9750.34, 586.64, 10336.98), "flexible": (71.91, 2990.6, 858.16, 3848.76)},
    200: {"fixed": (98.38, 17466.2, 520.58, 17986.78), "flexible": (73.54, 6856.8, 825.88, 7676.67)},
    400: {"fixed": (98.38, 31788.39, 532.14, 32320.53), "flexible": (73.54, 13861.03, 843.19, 14704.22)},
}

"""An ensemble forecast of the Lorenz-96 model, a ring of 40 weather sites: what the batch scripts beside this file run.

python weather.py initial|member|merge|verify|chart
"""

import json
import os
import random
import sys
from pathlib import Path

SITES, FORCING, DAYS = 40, 8.0, 10
STEPS_A_DAY = 500  # far more than it takes: the jobs are to last some seconds
STEP = 0.2 / STEPS_A_DAY
MEMBERS = 8


def slope(x: list[float]) -> list[float]:
    """Say how fast each site changes: by what its neighbours bring, by damping, and by what drives it."""
    return [(x[i + 1 - SITES] - x[i - 2]) * x[i - 1] - x[i] + FORCING for i in range(SITES)]


def day_after(x: list[float]) -> list[float]:
    """Integrate a day, by the Runge-Kutta method of fourth order."""
    for _ in range(STEPS_A_DAY):
        a = slope(x)
        b = slope([v + STEP / 2 * k for v, k in zip(x, a, strict=True)])
        c = slope([v + STEP / 2 * k for v, k in zip(x, b, strict=True)])
        d = slope([v + STEP * k for v, k in zip(x, c, strict=True)])
        x = [v + STEP / 6 * (k + 2 * m + 2 * n + o) for v, k, m, n, o in zip(x, a, b, c, d, strict=True)]
    return x


def days_from(x: list[float]) -> list[list[float]]:
    """Give the states of all days of the forecast."""
    days = [x]
    for _ in range(DAYS):
        days.append(day_after(days[-1]))
    return days


def initial() -> None:
    """Let the weather develop for two months; then write it, and one slightly wrong analysis of it for each member."""
    draw = random.Random(1)
    truth = [FORCING + draw.gauss(0, 1) for _ in range(SITES)]
    for _ in range(60):
        truth = day_after(truth)
    Path("truth.json").write_text(json.dumps(days_from(truth)))
    for member in range(1, MEMBERS + 1):
        Path(f"initial.{member}.json").write_text(json.dumps([v + draw.gauss(0, 0.2) for v in truth]))


def member() -> None:
    """Forecast from the analysis of this element of the job array."""
    number = os.environ["SLURM_ARRAY_TASK_ID"]
    start = json.loads(Path(f"initial.{number}.json").read_text())
    Path(f"member.{number}.json").write_text(json.dumps(days_from(start)))


def merge() -> None:
    """Average the members."""
    members = [json.loads(Path(f"member.{number}.json").read_text()) for number in range(1, MEMBERS + 1)]
    mean = [[sum(m[day][i] for m in members) / MEMBERS for i in range(SITES)] for day in range(DAYS + 1)]
    Path("mean.json").write_text(json.dumps(mean))


def verify() -> None:
    """Write the error of every n-th day, where n is the number of tasks that srun began."""
    rank, ranks = int(os.environ.get("SLURM_PROCID", "0")), int(os.environ.get("SLURM_NTASKS", "1"))
    mean, truth = (json.loads(Path(name).read_text()) for name in ("mean.json", "truth.json"))
    for day in range(rank, DAYS + 1, ranks):
        error = (sum((a - b) ** 2 for a, b in zip(mean[day], truth[day], strict=True)) / SITES) ** 0.5
        Path(f"error.{day:02d}").write_text(f"{day}\t{error:.2f}\n")


def chart() -> None:
    """Draw the errors of all days, by bars of text."""
    lines = [Path(f"error.{day:02d}").read_text().split() for day in range(DAYS + 1)]
    bars = [f"day {day:>2} {error} {'#' * round(8 * float(error))}\n" for day, error in lines]
    Path("errors.txt").write_text("".join(bars))


if __name__ == "__main__":
    {"initial": initial, "member": member, "merge": merge, "verify": verify, "chart": chart}[sys.argv[1]]()

"""Makes an artificial table like UCI's "Individual household electric power consumption", one row per minute.

python examples/statistics/make_power.py FOLDER [--rows 2075259] [--seed 1]

FOLDER/power.txt is the table, with `?` for missing values. FOLDER/truth.json has the statistics of its values.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]

NAMES = (
    "Global_active_power",
    "Global_reactive_power",
    "Voltage",
    "Global_intensity",
    "Sub_metering_1",
    "Sub_metering_2",
    "Sub_metering_3",
)
ROWS = 2_075_259
BEGIN = datetime(2006, 12, 16, 17, 24)  # noqa: DTZ001 - the household's own clock
GAPS, LONGEST_GAP = 70, 7200  # number of gaps in a table of ROWS, and longest gap in minutes
_DAY = 1440
_AT_ONCE = 100_000


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(given.seed)
    hours = (BEGIN.hour + (BEGIN.minute + np.arange(given.rows)) / 60) % 24
    table = household(rng, hours).round(3)
    is_there = ~gaps(rng, given.rows)
    with (folder / "power.txt").open("w") as file:
        file.write(";".join(["Date", "Time", *NAMES]) + "\n")
        for at in range(0, given.rows, _AT_ONCE):
            rows = slice(at, min(at + _AT_ONCE, given.rows))
            file.writelines(lines(at, table[:, rows], is_there[rows]))
    (folder / "truth.json").write_text(json.dumps(truth(table[:, is_there], hours[is_there]), indent=1))
    print(f"{given.rows} rows, {given.rows - int(is_there.sum())} of them without values, in {folder / 'power.txt'}")


def household(rng: np.random.Generator, hours: Column) -> Column:
    """Simulate a household: seven columns, as `NAMES` lists them."""
    rows = hours.size
    day = np.arange(rows) / _DAY
    cold = 0.5 + 0.5 * np.cos(2 * np.pi * (day - 30) / 365.25)
    awake = np.exp(-(((hours - 20) / 2.5) ** 2)) + 0.6 * np.exp(-(((hours - 7.5) / 1.5) ** 2))
    kitchen = appliance(rng, 1.2 * 2 * awake, minutes=40, level=36)
    laundry = appliance(rng, np.where(hours > 8, 1.5, 0.0), minutes=60, level=28) + (rng.random(rows) < 0.3)
    heater = np.minimum(appliance(rng, 9 * (0.4 + cold), minutes=35, level=17), 31)
    rest = 0.15 + 0.5 * awake * (0.6 + 0.8 * cold) + 0.25 * rng.gamma(2, 0.5, rows)
    active = 0.06 * (kitchen + laundry + heater) + rest
    reactive = np.minimum(0.05 + 0.1 * rng.gamma(1.2, 0.6, rows), 1.39)
    grid = np.repeat(rng.normal(0, 2.2, rows // 60 + 1), 60)[:rows]
    voltage = 241.5 - 0.9 * active + grid + rng.normal(0, 0.8, rows)
    current = np.round(1000 * np.hypot(active, reactive) / voltage / 0.2) * 0.2
    return np.stack([active, reactive, voltage, current, kitchen, laundry, heater])


def appliance(rng: np.random.Generator, per_day: Column, *, minutes: float, level: float) -> Column:
    """Switch an appliance on now and then; returns whole watt-hours per minute."""
    on = np.flatnonzero(rng.random(per_day.size) < per_day / _DAY)
    off = np.minimum(on + 1 + rng.poisson(minutes, on.size), per_day.size)
    power = np.round(rng.normal(level, level / 10, on.size))
    steps = np.zeros(per_day.size + 1)
    np.add.at(steps, on, power)
    np.subtract.at(steps, off, power)
    return np.cumsum(steps)[:-1]


def gaps(rng: np.random.Generator, rows: int) -> npt.NDArray[np.bool_]:
    """Return which rows have no values."""
    missing = np.zeros(rows, dtype=np.bool_)
    count = -(-GAPS * rows // ROWS)
    lengths = np.minimum(rng.lognormal(4, 2, count).astype(int) + 1, min(LONGEST_GAP, rows // 10))
    for at, length in zip(rng.integers(0, rows, count), lengths, strict=True):
        missing[at : at + length] = True
    return missing


def lines(first: int, table: Column, is_there: npt.NDArray[np.bool_]) -> Iterator[str]:
    """Write rows of the table; `first`: number of the first one."""
    for number, (values, has_values) in enumerate(zip(table.T.tolist(), is_there.tolist(), strict=True), start=first):
        moment = BEGIN + timedelta(minutes=number)
        told = ";".join(f"{value:.3f}" for value in values) if has_values else "?;?;?;?;?;?;?"
        yield f"{moment.day}/{moment.month}/{moment.year};{moment:%H:%M:%S};{told}\n"


def truth(table: Column, hours: Column) -> dict[str, object]:
    """Compute the statistics that the workflow must find."""
    return {
        "rows": int(table.shape[1]),
        "columns": [
            {
                "name": name,
                "mean": float(values.mean()),
                "deviation": float(values.std()),
                "least": float(values.min()),
                "most": float(values.max()),
                "median": float(np.median(values)),
                "p95": float(np.quantile(values, 0.95)),
            }
            for name, values in zip(NAMES, table, strict=True)
        ],
        "correlation": np.corrcoef(table).tolist(),
        "active_power_by_hour": [
            float(table[0][hours.astype(int) == hour].mean()) if (hours.astype(int) == hour).any() else 0.0
            for hour in range(24)
        ],
    }


if __name__ == "__main__":
    main()

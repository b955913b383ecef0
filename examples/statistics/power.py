"""Statistics of a table that is too long for one pass on one core, with the standard library only.

    power.py moments TABLE K/N OUT          sums over the lines that begin in the K-th of N parts of the file
    power.py means OUT IN...                means, from the sums of all parts
    power.py spread TABLE K/N MEANS OUT     deviations from these means, and counts of values
    power.py summary OUT MEANS IN...        the summary, from the deviations and counts of all parts

Each command writes its file in one step: a killed one leaves no file.
"""

import json
import math
import sys
from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

COLUMNS = 7
BINS = 2000
PAIRS = list(combinations_with_replacement(range(COLUMNS), 2))


def rows(table: str, part: str) -> Iterator[tuple[int, list[float]]]:
    """Yield the hour and the values of each complete row; a line belongs to the part in which it begins."""
    number, count = map(int, part.split("/"))
    size = Path(table).stat().st_size
    at, end = (number - 1) * size // count, number * size // count
    with Path(table).open("rb") as file:
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        for line in file:
            if at >= end:
                return
            at += len(line)
            _, clock, *values = line.split(b";")
            if b"?" not in line and clock[:2].isdigit():  # neither an incomplete row nor the heading
                yield int(clock[:2]), [float(value) for value in values]


def moments(table: str, part: str, out: str) -> None:
    """Add up a part's values; those of the first column also by the hour."""
    count, sums = 0, [0.0] * COLUMNS
    least, most = [math.inf] * COLUMNS, [-math.inf] * COLUMNS
    hours = [[0, 0.0] for _ in range(24)]
    for hour, values in rows(table, part):
        count += 1
        for column, value in enumerate(values):
            sums[column] += value
            if value < least[column]:  # noqa: PLR1730 - quicker than a call, millions of times
                least[column] = value
            if value > most[column]:  # noqa: PLR1730 - as above
                most[column] = value
        hours[hour][0] += 1
        hours[hour][1] += values[0]
    write(out, {"rows": count, "sums": sums, "least": least, "most": most, "hours": hours})


def means(out: str, *parts: str) -> None:
    """Divide the sums of all parts by the number of rows."""
    told = [read(part) for part in parts]
    count = sum(part["rows"] for part in told)
    by_hour = []
    for hour in range(24):
        rows_then = sum(part["hours"][hour][0] for part in told)
        by_hour.append(math.fsum(part["hours"][hour][1] for part in told) / max(rows_then, 1))
    means_of_all = {
        "rows": count,
        "mean": [math.fsum(part["sums"][column] for part in told) / count for column in range(COLUMNS)],
        "least": [min(part["least"][column] for part in told) for column in range(COLUMNS)],
        "most": [max(part["most"][column] for part in told) for column in range(COLUMNS)],
        "by_hour": by_hour,
    }
    write(out, means_of_all)


def spread(table: str, part: str, means_of_all: str, out: str) -> None:
    """Add up products of deviations, and count values in bins between the minimum and the maximum."""
    told = read(means_of_all)
    mean, least = told["mean"], told["least"]
    bins_a_unit = [BINS / (high - low) if high > low else 0.0 for low, high in zip(least, told["most"], strict=True)]
    products = [0.0] * len(PAIRS)
    counts = [[0] * (BINS + 1) for _ in range(COLUMNS)]
    for _, values in rows(table, part):
        off = [value - middle for value, middle in zip(values, mean, strict=True)]
        for place, (one, other) in enumerate(PAIRS):
            products[place] += off[one] * off[other]
        for column, value in enumerate(values):
            counts[column][int((value - least[column]) * bins_a_unit[column])] += 1
    write(out, {"products": products, "counts": counts})


def summary(out: str, means_of_all: str, *parts: str) -> None:
    """Write the statistics of the whole table."""
    told, read_parts = read(means_of_all), [read(part) for part in parts]
    products = {
        pair: math.fsum(part["products"][place] for part in read_parts) / told["rows"]
        for place, pair in enumerate(PAIRS)
    }
    deviation = [math.sqrt(products[column, column]) for column in range(COLUMNS)]
    columns = []
    for column in range(COLUMNS):
        counts = [sum(part["counts"][column][place] for part in read_parts) for place in range(BINS + 1)]
        least, most = told["least"][column], told["most"][column]
        width = (most - least) / BINS
        described = {"mean": told["mean"][column], "deviation": deviation[column], "least": least, "most": most}
        described |= {name: least + width * quantile(counts, q) for name, q in (("median", 0.5), ("p95", 0.95))}
        columns.append({**described, "bin": width})
    correlation = [
        [products[min(i, j), max(i, j)] / (deviation[i] * deviation[j] or 1.0) for j in range(COLUMNS)]
        for i in range(COLUMNS)
    ]
    whole = {"rows": told["rows"], "columns": columns, "correlation": correlation}
    write(out, {**whole, "active_power_by_hour": told["by_hour"]})


def quantile(counts: list[int], share: float) -> float:
    """Return the middle of the bin in which a share of the values ends."""
    left = share * sum(counts)
    for place, count in enumerate(counts):
        left -= count
        if left <= 0:
            return place + 0.5
    return float(len(counts))


def read(path: str) -> Any:
    """Read the file of another task."""
    return json.loads(Path(path).read_text())


def write(path: str, what: object) -> None:
    """Write a file completely or not at all."""
    draft = Path(f"{path}.draft")
    draft.write_text(json.dumps(what))
    draft.replace(path)


if __name__ == "__main__":
    steps = {step.__name__: step for step in (moments, means, spread, summary)}
    steps[sys.argv[1]](*sys.argv[2:])

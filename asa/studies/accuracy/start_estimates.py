"""Reads a scheduler's own estimates of starts from a file, and scores them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asa.core.reading import DOCUMENT_BYTES, read_pieces
from asa.errors import InputError, TraceError
from asa.history import opened
from asa.studies.accuracy.scores import Score

_HEADER_BYTES = 1 << 16
_TRUE, _ESTIMATE, _DIFFERENCE = "true_start_time", "estimate_start_time", "diff_in_s"


@dataclass(frozen=True, slots=True)
class StartEstimates:
    """Starts that a scheduler estimated, compared with the real ones."""

    # estimated less real start, by job, in seconds; negative if the job started later than estimated
    error_s: NDArray[np.float64]
    source: str = ""  # origin, for people
    oddities: dict[str, int] = field(default_factory=dict)  # number of rows that each rule affected, by its text

    def first(self, jobs: int) -> StartEstimates:
        """Return the estimates of the first jobs."""
        return StartEstimates(self.error_s[:jobs], self.source, self.oddities)


def read_start_estimates(path: str | Path) -> StartEstimates | None:
    """Read a CSV file with the columns ``true_start_time`` and ``estimate_start_time``.

    Irregular rows are treated by these rules, and counted:

    - if a time is missing or cannot be read, the row is left out;
    - if a column ``diff_in_s`` is neither the difference of the times nor its absolute value, to the second, the times
      are used.

    Raises `TraceError`: one of the two columns is missing, or no row can be used.

    Notes
    -----
    Times without an offset are taken as times of one clock: across a change to summer time they are an hour off.
    """
    file = Path(path)
    with opened(file) as stream:
        begin = stream.read(_HEADER_BYTES)
        titles = _titles(_text(begin.split(b"\n")[0]))
        if not {_TRUE, _ESTIMATE}.intersection(titles):
            return None
        content = _text(begin + b"".join(read_pieces(stream, file, DOCUMENT_BYTES)))
    if missing := {_TRUE, _ESTIMATE}.difference(titles):
        raise TraceError(
            f"lacks the column {missing.pop()}", where=str(file), hint=f"It needs {_TRUE} and {_ESTIMATE}."
        )
    try:
        rows = csv.DictReader(io.StringIO(content, newline=""), titles, skipinitialspace=True)
        next(rows, None)  # skip the header
        errors_s, oddities = _start_errors(rows)
    except csv.Error as error:
        raise TraceError(f"is no CSV: {error}", where=str(file), hint="Write it anew.") from error
    if not errors_s:
        raise TraceError("has no row with both times", where=str(file), hint="Write times as in 2024-03-01 12:00:00.")
    found = {words: count for words, count in oddities.items() if count}
    return StartEstimates(np.asarray(errors_s), str(file), found)


def _text(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="replace")


def _titles(line: str) -> list[str]:
    try:
        return [title.strip() for title in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return []


def _start_errors(rows: Iterable[dict[str, str | None]]) -> tuple[list[float], dict[str, int]]:
    left_out = "left out: a time is missing or cannot be read"
    differs = f"with a {_DIFFERENCE} that is not the difference of the times: the times are believed"
    oddities = {left_out: 0, differs: 0}
    errors_s = []
    for row in rows:
        try:
            real, estimate = (datetime.fromisoformat((row[name] or "").strip()) for name in (_TRUE, _ESTIMATE))
            error_s = (estimate - real).total_seconds()
        except (ValueError, TypeError):  # a TypeError arises if only one of the times has an offset
            oddities[left_out] += 1
            continue
        errors_s.append(error_s)
        if _DIFFERENCE in row:
            try:
                stated_s = float(row[_DIFFERENCE] or "")
            except ValueError:
                stated_s = math.nan
            oddities[differs] += not min(abs(stated_s - error_s), abs(stated_s - abs(error_s))) < 1.0
    return errors_s, oddities


def score_start_estimates(estimates: StartEstimates, *, trace: str = "") -> Score:
    """Score a scheduler's estimates. Without times of submission only measures in seconds are possible.

    `trace`: their name in the score; by default their origin.

    Examples
    --------
    >>> score = score_start_estimates(StartEstimates(np.array([-10.0, 0.0, 40.0])))
    >>> score.abs_error_p50_s, round(score.late_share, 2), score.bias_s
    (10.0, 0.33, 10.0)
    """
    error_s = estimates.error_s
    if not len(error_s):
        raise InputError("holds no estimates", where=trace or estimates.source or None, hint="Give some.")
    distance_s = np.abs(error_s)
    median_s, p90_s = np.quantile(distance_s, [0.5, 0.9]).tolist()
    return Score(
        trace or estimates.source,
        "scheduler",
        jobs=len(error_s),
        late_s=float(np.maximum(0.0, -error_s).mean()),
        late_share=float((error_s < 0).mean()),
        abs_error_s=float(distance_s.mean()),
        abs_error_p50_s=median_s,
        abs_error_p90_s=p90_s,
        bias_s=float(error_s.mean()),
    )

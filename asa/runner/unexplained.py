"""Unknown answers to submissions, which count as passing faults until they have lasted long.

An unknown answer may be a refusal in the words of a new release, or a passing fault, which must not end the job. So the
job is submitted again, with growing pauses, and counts as refused only once the same answer has come for a quarter of
an hour. If other jobs are accepted meanwhile, the answer is more likely a refusal. The journal has the time of a job's
first such answer, from which every client of the run counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace
from datetime import datetime

from asa.core.late import dataclass
from asa.runner.entries import Unexplained, Unsent

UNEXPLAINED_S = 900.0
"""Seconds for which the same unknown answer counts as a passing fault."""

_NUMBERS = re.compile(r"\d+")  # times, ids, attempts: they differ between equal answers


@dataclass(frozen=True, slots=True)
class _Answer:
    """An unknown answer to a job's submissions, and since when it has been the same."""

    said: str  # without numbers, to compare
    text: str  # the latest, in full
    since_s: float
    last_s: float
    is_new: bool = True  # whether the submission that it answered is still under way


@dataclass(slots=True)
class UnknownAnswers:
    """The latest unknown answers, by token."""

    _answers: dict[str, _Answer] = field(default_factory=dict)

    def heard(self, entry: Unexplained) -> None:
        """Record an answer."""
        text, was = _NUMBERS.sub("#", entry.words), self._answers.get(entry.token)
        since_s = was.since_s if was is not None and was.said == text else entry.at_s
        self._answers[entry.token] = _Answer(text, entry.words, since_s, entry.at_s)

    def is_new(self, token: str) -> bool:
        """Whether the submission under way got an unknown answer."""
        return token in self._answers and self._answers[token].is_new

    def unsent(self, entry: Unsent) -> None:
        """Record that a job was not submitted.

        Unless that was because of an unknown answer, the token's unknown answers are forgotten. If the answer was lost,
        they are kept: the submission is in doubt, and the next answer decides.
        """
        if self.is_new(entry.token):
            self._answers[entry.token] = replace(self._answers[entry.token], is_new=False)
        elif not entry.doubtful:
            self.forget(entry.token)

    def forget(self, token: str) -> None:
        """Forget the answers to a job that was accepted or refused."""
        self._answers.pop(token, None)

    def clear(self) -> None:
        """Forget all answers, since the run is tried anew."""
        self._answers.clear()

    def refusal_of(self, token: str, others: Iterable[str] = ()) -> str:
        """Return a job's answer if it has lasted long enough to count as a refusal; else empty.

        `others`: tokens of further jobs to the same target, none of which was accepted since; the time counts from the
        first of these equal answers.
        """
        if (own := self._answers.get(token)) is None:
            return ""
        answers = (self._answers.get(other) for other in others)
        alike = (answer for answer in answers if answer is not None and answer.said == own.said)
        since_s = min([own.since_s, *(answer.since_s for answer in alike)])
        if own.last_s - since_s < UNEXPLAINED_S:
            return ""
        since = datetime.fromtimestamp(since_s).astimezone()
        return f"{own.text}. The batch system has said so since {since:%Y-%m-%d %H:%M}"

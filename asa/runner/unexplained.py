"""Unknown answers to submissions: treated as a passing fault until they have lasted long.

A batch system refuses in its own words, and a new release has new ones. An unknown answer may be a refusal, or a
passing fault, which must not end the job. So the job is sent again, with growing pauses, and counts as refused only
once the same answer has come for a quarter of an hour. That other jobs are accepted meanwhile is a sign of a refusal,
not against it. The journal has the time of a job's first such answer, so that other clients of the run count from
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from asa.runner.entries import Unexplained, Unsent

UNEXPLAINED_S = 900.0
"""For so long the same unknown answer is taken for a fault that passes."""

_NUMBERS = re.compile(r"\d+")  # times, jobs, attempts: these differ where the answer is the same


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a job is answered, in the same words since the first of them."""

    said: str  # without its numbers
    text: str  # in full, the last time
    since_s: float
    last_s: float
    is_new: bool = True  # whether the submission that it answered is not over yet


@dataclass(slots=True)
class UnknownAnswers:
    """The unknown answers that jobs get now, by their tokens."""

    _answers: dict[str, _Answer] = field(default_factory=dict)

    def heard(self, entry: Unexplained) -> None:
        """Take in an answer."""
        said, was = _NUMBERS.sub("#", entry.words), self._answers.get(entry.token)
        since_s = was.since_s if was is not None and was.said == said else entry.at_s
        self._answers[entry.token] = _Answer(said, entry.words, since_s, entry.at_s)

    def is_new(self, token: str) -> bool:
        """Whether it is an unknown answer for which a job that was just sent is not submitted."""
        return token in self._answers and self._answers[token].is_new

    def unsent(self, entry: Unsent) -> None:
        """Note that a job was not submitted.

        Unless the reason is an unknown answer, earlier unknown answers to this job are forgotten. They are kept if the
        answer was lost, which leaves the submission in doubt: then the next answer decides.
        """
        if self.is_new(entry.token):
            self._answers[entry.token] = replace(self._answers[entry.token], is_new=False)
        elif not entry.doubtful:
            self.forget(entry.token)

    def forget(self, token: str) -> None:
        """Forget what a job was answered: it was accepted, or refused."""
        self._answers.pop(token, None)

    def clear(self) -> None:
        """Forget all: the run begins anew."""
        self._answers.clear()

    def refusal_of(self, token: str, others: Iterable[str] = ()) -> str:
        """Return a job's answer if it has been the same for so long that it is a refusal; else empty.

        `others`: further jobs to the same target, none of which was accepted since. Time counts from the first of all
        these answers that is the same.
        """
        if (own := self._answers.get(token)) is None:
            return ""
        alike = (one for other in others if (one := self._answers.get(other)) is not None and one.said == own.said)
        since_s = min([own.since_s, *(one.since_s for one in alike)])
        if own.last_s - since_s < UNEXPLAINED_S:
            return ""
        since = datetime.fromtimestamp(since_s).astimezone()
        return f"{own.text}. The batch system has said so since {since:%Y-%m-%d %H:%M}"

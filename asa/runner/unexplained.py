"""Answers to submissions that nobody here knows: taken for a fault that passes, until they have lasted for long.

A batch system refuses in its own words, and a new release has new ones. What is not known may be a refusal, or a fault
on the way, which a refusal would make final. So the job is sent again, with growing pauses, and refused only once the
same answer has come for a quarter of an hour and no job was accepted meanwhile. When it came first is in the journal:
clients that look once, and those that go on with a run, count on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from asa.runner.entries import Unexplained, Unsent

UNEXPLAINED_S = 900.0
"""For so long the same unknown answer is taken for a fault that passes."""

_NUMBERS = re.compile(r"\d+")  # times, jobs, attempts: these differ where the answer is the same


@dataclass(slots=True)
class UnknownAnswers:
    """The unknown answer that comes now, if one does."""

    _said: str = ""  # without its numbers
    _words: str = ""  # in full, the last time
    _since_s: float = 0.0
    _last_s: float = 0.0
    _tokens: set[str] = field(default_factory=set)  # of jobs that got it
    _is_new: bool = False  # whether the submission that it answered is not over yet

    def heard(self, entry: Unexplained) -> None:
        """Take in an answer."""
        said = _NUMBERS.sub("#", entry.words)
        if said != self._said:
            self.clear()
            self._said, self._since_s = said, entry.at_s
        self._words, self._last_s, self._is_new = entry.words, entry.at_s, True
        self._tokens.add(entry.token)

    def unsent(self, entry: Unsent) -> None:
        """Take in that a job was not submitted: of another cause, if there was no unknown answer.

        Where it was in doubt, the answer was lost, and the next one tells.
        """
        if not (self._is_new or entry.doubtful):
            self.clear()
        self._is_new = False

    def clear(self) -> None:
        """Forget it: a job was accepted, or the run begins anew."""
        self._said, self._tokens, self._is_new = "", set(), False

    def refusal_of(self, token: str) -> str:
        """Give a job's answer, if it has been the same for so long that it is a refusal; empty if not."""
        if token not in self._tokens or self._last_s - self._since_s < UNEXPLAINED_S:
            return ""
        since = datetime.fromtimestamp(self._since_s).astimezone()
        return f"{self._words}. The batch system has said so since {since:%Y-%m-%d %H:%M}"

"""How a payload ended: its outcome, one word that a job's script writes together with the exit code.

A program may exit with any number. So only the word shows what asa's own script text did; with ``failed``, the exit
code is the program's. The number is interpreted only if there is no word, as in journals and marks of earlier versions.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import Protocol


class JobOutcome(StrEnum):
    """The outcome of a payload."""

    COMPLETED = "completed"
    FAILED = "failed"  # with the program's own exit code
    TASKS_FAILED = "tasks-failed"  # some tasks of a list failed
    OUTPUT_MISSING = "output-missing"  # an output is missing, though the command exited with 0
    OVERTIME = "overtime"  # an element that takes turns reached its time limit
    PART_DONE = "part-done"  # no task is left while other jobs run the rest; or, in legs, the leg's turn is over
    UNRECORDED = "unrecorded"  # the payload ended, but that could not be recorded
    OUT_OF_MEMORY = "out-of-memory"  # one of its processes was killed for lack of memory, whatever its exit code
    STALLED = "stalled"  # two legs in a row made no progress
    # with these, what the user wants run has not begun
    INPUT_MISSING = "input-missing"
    SETUP_FAILED = "setup-failed"  # of the environment: modules, conda, container or set-up lines
    FOLDER_MISSING = "folder-missing"  # the work folder is missing
    UNABLE = "unable"  # the node lacks a resource that asa needs, such as space for temporary files
    TOO_FEW_CORES = "too-few-cores"  # fewer than the next stage needs, as after a requeue
    GAVE_BACK = "gave-back"  # the allocation began early, and idled for as long as it may
    UNYIELDING = "unyielding"  # the same in a leg, since the leg before did not end when it was signalled
    DUPLICATE = "twin"  # another job of the same token runs the payload, or did
    OUTRUN = "outrun"  # another job of the same race began before, and runs the stages

    @property
    def exit_code(self) -> int:
        """The exit code of a job with this outcome, for readers of exit codes; 1 for ``failed``, whose code varies."""
        return _EXIT_CODES.get(self, 1)

    @property
    def has_begun(self) -> bool:
        """Whether the user's command, and not only asa's own script text, has begun."""
        return self not in _UNBEGUN

    @property
    def is_hopeless(self) -> bool:
        """Whether every further attempt would end in the same way."""
        return self in {JobOutcome.SETUP_FAILED, JobOutcome.STALLED}

    @property
    def ending(self) -> str:
        """The outcome and the exit code, as words for a shell."""
        return f"{self} {self.exit_code}"


_EXIT_CODES = {
    JobOutcome.COMPLETED: 0,
    JobOutcome.SETUP_FAILED: 82,
    JobOutcome.TASKS_FAILED: 83,
    JobOutcome.INPUT_MISSING: 84,
    JobOutcome.OUTPUT_MISSING: 85,
    JobOutcome.DUPLICATE: 86,
    JobOutcome.UNRECORDED: 87,
    JobOutcome.FOLDER_MISSING: 87,
    JobOutcome.UNABLE: 87,
    JobOutcome.TOO_FEW_CORES: 88,
    JobOutcome.GAVE_BACK: 89,
    JobOutcome.PART_DONE: 90,
    JobOutcome.STALLED: 91,
    JobOutcome.UNYIELDING: 92,
    JobOutcome.OUTRUN: 93,
    JobOutcome.OVERTIME: 124,
    JobOutcome.OUT_OF_MEMORY: 137,
}
_UNBEGUN = frozenset(
    {
        JobOutcome.INPUT_MISSING,
        JobOutcome.SETUP_FAILED,
        JobOutcome.FOLDER_MISSING,
        JobOutcome.UNABLE,
        JobOutcome.TOO_FEW_CORES,
        JobOutcome.GAVE_BACK,
        JobOutcome.UNYIELDING,
        JobOutcome.DUPLICATE,
        JobOutcome.OUTRUN,
    }
)
_BY_EXIT_CODE = {code: outcome for outcome, code in _EXIT_CODES.items() if outcome is not JobOutcome.OUT_OF_MEMORY}
_OF_SCRIPTS = frozenset({JobOutcome.DUPLICATE.exit_code, JobOutcome.UNABLE.exit_code})

NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""Exit codes of shells whose command cannot be executed, or is not there: a program's own, as far as anybody knows."""

_MEANINGS = {
    JobOutcome.SETUP_FAILED: "its environment could not be set up",
    JobOutcome.TASKS_FAILED: "some of its tasks failed",
    JobOutcome.INPUT_MISSING: "an input is missing or empty",
    JobOutcome.OUTPUT_MISSING: "its command exited with 0, but an output is missing or empty",
    JobOutcome.OVERTIME: "it ran out of time",
    JobOutcome.FOLDER_MISSING: "the folder that it is to run in is missing on its node",
    JobOutcome.UNRECORDED: "its job could not write down how it ended",
    JobOutcome.UNABLE: "its job could not begin, or not write down how it ended",
    JobOutcome.TOO_FEW_CORES: "its job has fewer cores than it needs",
    JobOutcome.GAVE_BACK: "the stages that it depends on did not end while it held its cores",
    JobOutcome.PART_DONE: "other jobs go on with the rest of its stage",
    JobOutcome.OUT_OF_MEMORY: "its memory was used up, and a process of it was killed",
    JobOutcome.STALLED: "two legs in a row made no progress",
    JobOutcome.UNYIELDING: "the leg before did not end when signalled",
    JobOutcome.OUTRUN: "another job that was to run the same began before it",
}
_OF_SHELLS = {NOT_EXECUTABLE: "its command cannot be executed", NOT_FOUND: "its command was not found"}
_KILLED = 128  # shells report the signal's number plus this
_OF_SIGNALS = {
    signal.SIGKILL: ", most often because memory ran out",
    signal.SIGSEGV: ", most often by a bug in the program",
    signal.SIGTERM: ", which asked it to end",
}


class HowEnded(Protocol):
    """The end of a job, a step, or elements."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the payload."""

    @property
    def outcome(self) -> JobOutcome | None:
        """The outcome; None if not known."""


def outcome_of(end: HowEnded) -> JobOutcome | None:
    """Return the outcome: the recorded word, else by the exit code; None if there is neither."""
    if end.outcome is not None or end.exit_code is None:
        return end.outcome
    return by_exit_code(end.exit_code)


def by_exit_code(exit_code: int) -> JobOutcome:
    """Interpret an exit code that was recorded without a word.

    Examples
    --------
    >>> by_exit_code(84), by_exit_code(1)
    (<JobOutcome.INPUT_MISSING: 'input-missing'>, <JobOutcome.FAILED: 'failed'>)
    """
    return _BY_EXIT_CODE.get(exit_code, JobOutcome.FAILED)


def without_mark(exit_code: int) -> JobOutcome:
    """Interpret the batch system's exit code of a job whose script wrote no end mark.

    A script that reaches its end writes no mark only if it ran nothing, since another job runs the payload, or if it
    cannot write. Any other code is a program's.
    """
    return by_exit_code(exit_code) if exit_code == 0 or exit_code in _OF_SCRIPTS else JobOutcome.FAILED


def outcome_from(word: str) -> JobOutcome | None:
    """Return the outcome that a job's script has written; None for an unknown word.

    Examples
    --------
    >>> outcome_from("setup-failed"), outcome_from("later")
    (<JobOutcome.SETUP_FAILED: 'setup-failed'>, None)
    """
    try:
        return JobOutcome(word)
    except ValueError:
        return None


def would_end_so_again(end: HowEnded) -> bool:
    """Whether a failure would recur at every attempt."""
    outcome = outcome_of(end)
    if outcome is JobOutcome.FAILED:
        return end.exit_code in _OF_SHELLS
    return outcome is not None and outcome.is_hopeless


def meaning(exit_code: int | None, outcome: JobOutcome | None = None) -> str:
    """Describe how a stage ended; empty if only its command's own exit code is known.

    Examples
    --------
    >>> meaning(127)
    'its command was not found'
    >>> meaning(137)
    'killed by SIGKILL, most often because memory ran out'
    >>> meaning(84, JobOutcome.INPUT_MISSING), meaning(84, JobOutcome.FAILED)
    ('an input is missing or empty', '')
    """
    if outcome is None and exit_code is not None:
        outcome = by_exit_code(exit_code)
    if outcome in _MEANINGS:
        return _MEANINGS[outcome]
    if exit_code is None or exit_code in _OF_SHELLS:
        return _OF_SHELLS.get(exit_code or 0, "")
    try:
        killer = signal.Signals(exit_code - _KILLED)
    except ValueError:
        return ""
    return f"killed by {killer.name}{_OF_SIGNALS.get(killer, '')}"

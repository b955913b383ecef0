"""How a payload ended: a word, which a job's script writes together with the exit code.

A program may exit with any number. So only the word says what asa's own script text did, and with ``failed`` the exit
code is the program's. The number is interpreted only if there is no word, as in journals and marks of earlier versions.
"""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import Protocol


class JobOutcome(StrEnum):
    """How what a job ran has ended."""

    COMPLETED = "completed"
    FAILED = "failed"  # with an exit code of its own
    TASKS_FAILED = "tasks-failed"  # some of a list
    OUTPUT_MISSING = "output-missing"  # though its command exited with 0
    OVERTIME = "overtime"  # an element of an array that reached its time limit, taken in turn
    PART_DONE = "part-done"  # nothing is left to take while other jobs run the rest; of legs, its turn is over
    UNRECORDED = "unrecorded"  # and that could not be written down
    OUT_OF_MEMORY = "out-of-memory"  # one of its processes was killed for lack of memory, whatever its exit code
    STALLED = "stalled"  # two legs in a row made no progress
    # these say that what its user wants run did not begin
    INPUT_MISSING = "input-missing"
    SETUP_FAILED = "setup-failed"  # its environment: a module, conda, a container, set-up
    FOLDER_MISSING = "folder-missing"  # that it is to run in
    UNABLE = "unable"  # what asa needs of the node, as space for temporary files, was not to be had
    TOO_FEW_CORES = "too-few-cores"  # for its next stage, as after a requeue
    GAVE_BACK = "gave-back"  # the job began early, and idled for as long as it may
    UNYIELDING = "unyielding"  # so it did, and the leg before did not end when it was signalled to
    DUPLICATE = "twin"  # another job of the same token runs it, or did
    OUTRUN = "outrun"  # another job of the same race began before it, and runs what it was for

    @property
    def exit_code(self) -> int:
        """Exit code of a job that ends so, for those that see nothing else; of ``failed``, 1 in place of any."""
        return _EXIT_CODES.get(self, 1)

    @property
    def has_begun(self) -> bool:
        """Whether what the job's user wants run has begun."""
        return self not in _UNBEGUN

    @property
    def is_hopeless(self) -> bool:
        """Whether it would end so again, however often it is tried."""
        return self in {JobOutcome.SETUP_FAILED, JobOutcome.STALLED}

    @property
    def ending(self) -> str:
        """Words for a shell: the outcome, and the exit code."""
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
    JobOutcome.UNYIELDING: "the leg before did not end when told to",
    JobOutcome.OUTRUN: "another job that was to run the same began before it",
}
_OF_SHELLS = {NOT_EXECUTABLE: "its command cannot be executed", NOT_FOUND: "its command was not found"}
_KILLED = 128  # with the signal's number added, as shells report it
_OF_SIGNALS = {
    signal.SIGKILL: ", most often because memory ran out",
    signal.SIGSEGV: ", most often by a bug in the program",
    signal.SIGTERM: ", which asked it to end",
}


class HowEnded(Protocol):
    """The end of a job, a step or elements."""

    @property
    def exit_code(self) -> int | None:
        """Of the payload."""

    @property
    def outcome(self) -> JobOutcome | None:
        """How it ended; None if not known."""


def outcome_of(end: HowEnded) -> JobOutcome | None:
    """Say how something ended: by its word, else by its exit code; None if there is neither."""
    if end.outcome is not None or end.exit_code is None:
        return end.outcome
    return by_exit_code(end.exit_code)


def by_exit_code(exit_code: int) -> JobOutcome:
    """Interpret an exit code without a word.

    Examples
    --------
    >>> by_exit_code(84), by_exit_code(1)
    (<JobOutcome.INPUT_MISSING: 'input-missing'>, <JobOutcome.FAILED: 'failed'>)
    """
    return _BY_EXIT_CODE.get(exit_code, JobOutcome.FAILED)


def without_mark(exit_code: int) -> JobOutcome:
    """Say how a job ended whose script wrote no end mark, by the batch system's exit code.

    A script that reaches its end writes none only if it ran nothing, since another job runs the payload, or if it
    cannot write. Any other number is a program's.
    """
    return by_exit_code(exit_code) if exit_code == 0 or exit_code in _OF_SCRIPTS else JobOutcome.FAILED


def outcome_from(word: str) -> JobOutcome | None:
    """Read a script's word; None if it is unknown.

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
    """Whether what failed would fail again, however often it is tried."""
    outcome = outcome_of(end)
    if outcome is JobOutcome.FAILED:
        return end.exit_code in _OF_SHELLS
    return outcome is not None and outcome.is_hopeless


def meaning(exit_code: int | None, outcome: JobOutcome | None = None) -> str:
    """Say in words how a stage ended; empty if only its command's exit code says that.

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

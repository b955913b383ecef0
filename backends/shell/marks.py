"""The folder of a run: scripts, outputs, and the marker files of jobs, for when the batch system has forgotten a job.

It may be on NFS, where a new file may seem to be missing for a minute; listing the file's folder refreshes that.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from asa.core import safe
from asa.core.documents import read_json
from asa.core.files import put, read_file
from asa.errors import InputError, UnavailableError
from asa.outcome import JobOutcome, by_exit_code, outcome_from

from .script import WITHDRAWN, facts_of, is_utf8

_SCRIPT = ".sh"
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker of a job's script."""

    job_id: str
    time_s: float  # seconds since 1970, by the clock of its node
    exit_code: int | None = None  # of the job; only in the marker of its end
    signals: int = 0  # number of signals to end that it got
    cores: int = 0  # cores that it has kept after giving others back; else 0
    # in the marker of an end; for scripts of earlier versions it follows from the exit code
    outcome: JobOutcome | None = None
    nodes: str = ""  # its nodes, as Slurm lists them; empty if not known


@dataclass(frozen=True, slots=True)
class StepMarks:
    """Markers of a step that began: how it ended, or that it failed while other steps continued."""

    index: int  # among the job's steps, from 0
    began: Mark
    ended: Mark | None
    failed: Mark | None


@dataclass(frozen=True, slots=True)
class KeptSubmission:
    """The record of a submission, for later clients."""

    name: str
    token: str  # empty if the job has none
    awaits: bool  # whether its payload may begin later than the job, or never; a marker then says when
    steps: tuple[str, ...]
    kept_back: bool  # whether a dependency, a begin time or a hold kept it from starting at once
    walltime_s: float  # infinite if not known, or unlimited
    submit_s: float  # approximate time of submission
    array: str = ""  # elements of a job array
    is_renumbered: bool = False  # whether the batch system numbers the elements differently; see `Payload`
    spent_s: float = 0.0  # run time of its elements before they were requeued
    starts: tuple[tuple[int, float], ...] = ()  # elements that ran at the last look, with their starts
    # missing in the last look: elements (empty for the job itself), in how many consecutive looks, and since when
    absent: tuple[tuple[str, int, float], ...] = ()
    posts: tuple[str, ...] = ()  # file names of its completion markers
    out_of_memory: str = "fail"  # see `JobSpec.out_of_memory`
    cancelled_s: float | None = None  # when the batch system last accepted its cancellation
    # approximate time when it was last seen suspended: it may run for its whole walltime after that
    suspended_s: float | None = None
    # the running job that its nodes are for, and how many cores these are; it runs nothing itself
    into: str = ""
    cores: int = 0


_KEPT = tuple(field.name for field in fields(KeptSubmission))


class MarksFolder:
    """The folder of a run.

    `root`: on a file system that compute nodes see under the same path; it is made if missing.
    `own`: where scripts and records of jobs are, if not there.
    Raises `InputError`: its path is not UTF-8, the encoding of scripts.
    """

    def __init__(self, root: Path, own: Path | None = None) -> None:
        self.root = root.absolute()
        self.own = self.root if own is None else own.absolute()
        if not is_utf8(str(self.root)):
            raise InputError(
                "the path of this folder is not UTF-8",
                where=ascii(str(self.root)),
                hint="Name another folder, or rename this one.",
            )
        self.logs, self.marks, self.posts = (self.root / part for part in ("logs", "marks", "posts"))
        self.scripts, self._jobs = (self.own / part for part in ("scripts", "jobs"))
        try:
            safe.provide_folder(self.root)
            safe.provide_folder(self.own)
            is_shared = bool(self.root.stat().st_mode & stat.S_IRGRP)
            safe.provide_folder(self.logs, is_shared=is_shared)
            for folder in (self.marks, self.posts, self.scripts, self._jobs):
                safe.provide_folder(folder)
        except OSError as error:
            raise _unwritable(self.root, error) from error

    def keep_script(self, name: str, text: str) -> None:
        """Write a job's script to where its user can read it."""
        path = self.scripts / f"{name}{_SCRIPT}"
        try:
            put(path, text.encode(), is_private=True)
        except OSError as error:
            raise _unwritable(path, error) from error

    def output(self, name: str, kind: str) -> str:
        """Return the path of a job's output."""
        return f"{self.logs}/{name}.{kind}"

    def names(self, tokens: Iterable[str]) -> dict[str, str]:
        """Return the full names of jobs by token, for jobs whose script was written here."""
        known = {path.stem.rpartition(".")[2]: path.stem for path in self.scripts.glob(f"*.*{_SCRIPT}")}
        return {token: known[token] for token in tokens if token in known}

    def facts(self, name: str) -> dict[str, Any]:
        """Return the facts about a job from its script: fields of `KeptSubmission`."""
        try:
            return facts_of(read_file(self.scripts / f"{name}{_SCRIPT}").decode())
        except (OSError, ValueError):
            return {"awaits": False, "steps": (), "walltime_s": math.inf}

    def job_ids(self) -> set[str]:
        """Return the ids of the jobs that were submitted from here."""
        try:
            return {path.name for path in self._jobs.iterdir() if not path.name.startswith(".")}
        except OSError:
            return set()

    def keep_job(self, job_id: str, kept: KeptSubmission) -> None:
        """Record a job that has been submitted; a full disk raises no error."""
        with suppress(UnavailableError):
            self.announce_job(job_id, kept)

    def announce_job(self, job_id: str, kept: KeptSubmission) -> None:
        """Record a job before it is submitted."""
        path = self._jobs / job_id
        try:
            put(path, json.dumps({name: getattr(kept, name) for name in _KEPT}).encode(), is_private=True)
        except OSError as error:
            raise _unwritable(path, error) from error

    def kept_job(self, job_id: str) -> KeptSubmission | None:
        """Return the record of a job that was submitted from here, the latest with this number."""
        try:
            fields = read_json(read_file(self._jobs / job_id))
            steps, posts = tuple(fields["steps"]), tuple(fields.get("posts", ()))
            starts = tuple((int(number), float(start_s)) for number, start_s in fields.get("starts", ()))
            absent = tuple((str(which), int(looks), float(s)) for which, looks, s in fields.get("absent", ()))
            return KeptSubmission(**{**fields, "steps": steps, "posts": posts, "starts": starts, "absent": absent})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def holder(self, token: str) -> str | None:
        """Return the job that holds a token's claim: it runs the payload, or has run it.

        Raises `UnavailableError`: the claim cannot be read, so nothing is known. All methods that read markers raise it
        likewise.
        """
        return self._seen(self.marks / token / "claim", lambda claim: str(claim.readlink()))

    def take_back(self, posts: Iterable[str]) -> None:
        """Remove completion markers, given their file names, so that their steps no longer count as completed.

        Raises `UnavailableError`: they cannot be removed now.
        """
        for post in posts:
            path = self.posts / post
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise _unwritable(path, error, "What it represents has not completed") from error

    def supersede(self, tokens: Iterable[str]) -> None:
        """Ensure that jobs of the given tokens run nothing more, even if the batch system starts them again."""
        for token in tokens:
            path = self.marks / token / "superseded"
            try:
                safe.provide_folder(path.parent)
                path.touch()
            except OSError as error:
                raise _unwritable(path, error) from error

    def withdraw(self, token: str) -> bool:
        """Ensure that no job of a token begins its payload any more; False if one has begun it."""
        path = self.marks / token / "start"
        try:
            safe.provide_folder(path.parent)
            with suppress(FileExistsError):  # this very call may have made the file, if a file server answered late
                path.symlink_to(WITHDRAWN)
            return str(path.readlink()) == WITHDRAWN
        except OSError as error:
            raise _unwritable(path, error, "Nothing was cancelled") from error

    def began(self, job_id: str, token: str) -> Mark | None:
        """Return the marker of the beginning of a job's payload; None if it has not begun."""
        return self._mark(job_id, token, "began")

    def ended(self, job_id: str, token: str) -> Mark | None:
        """Return the marker of the end of a job's payload; None if it has not ended."""
        return self._mark(job_id, token, "ended")

    def steps(self, job_id: str, token: str, count: int) -> list[StepMarks]:
        """Return the beginnings and ends of a job's steps, for those that began."""
        folder = self.marks / (token or f"job.{job_id}")
        there = self._seen(folder / "step-", lambda path: frozenset(entry.name for entry in path.parent.iterdir()))
        names = there or frozenset[str]()

        def mark(number: int, kind: str) -> Mark | None:
            name = f"step-{number}-{kind}"
            return self._mark(job_id, token, name) if name in names else None

        return [
            StepMarks(number - 1, began, mark(number, "ended"), mark(number, "failed"))
            for number in range(1, count + 1)
            if (began := mark(number, "began")) is not None
        ]

    def _mark(self, job_id: str, token: str, kind: str) -> Mark | None:
        path = self.marks / (token or f"job.{job_id}") / kind
        if (written := self._seen(path, read_file)) is None:
            return None
        lines = written.decode("utf-8", "replace").splitlines()
        mark = _parsed(dict(line.partition("=")[::2] for line in lines))
        return mark if mark is not None and mark.job_id == job_id else None

    def _seen(self, path: Path, read: Callable[[Path], _Read]) -> _Read | None:
        """Read a marker; None if it certainly does not exist."""
        try:
            _look_anew(path.parent)
            return read(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            if self.marks.is_dir():
                return None
            raise _unreadable(self.marks, error) from error  # a file system that is not mounted shows no files
        except OSError as error:
            raise _unreadable(path, error) from error


def _look_anew(folder: Path) -> None:
    """List a folder, so that NFS asks its server for the content."""
    any(folder.iterdir())


def _parsed(facts: Mapping[str, str]) -> Mark | None:
    try:
        code = int(facts["code"]) if "code" in facts else None
        signals, cores = (int(facts.get(name, "0")) for name in ("signals", "cores"))
        outcome = None if code is None else outcome_from(facts.get("outcome", "")) or by_exit_code(code)
        return Mark(facts["job"], float(facts["time"]), code, signals, cores, outcome, facts.get("nodes", ""))
    except (KeyError, ValueError):
        return None


def _unreadable(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"cannot be read: {error.strerror or error}",
        where=str(path),
        hint="What became of the job is not known until it can.",
    )


def _unwritable(path: Path, error: OSError, so_far: str = "Nothing was submitted") -> UnavailableError:
    return UnavailableError(
        f"cannot be written: {error.strerror or error}",
        where=str(path),
        hint=f"{so_far}. Free disk space or fix the permissions; it is tried again.",
    )

"""Ensures that only this client's jobs are changed: the only module that makes a link's arguments for changes.

A number does not identify a job. A controller that lost its state reuses numbers, and on another cluster the same
number is another user's job. So before jobs are changed, the controller is asked once for the jobs that now have their
numbers. A job is changed only if its name or comment has the right token, and it belongs to this user.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from asa.backends.shell.marks import KeptSubmission

from asa.errors import BackendError, JobNotFoundError, UnavailableError
from asa.printable import on_one_line

from .link import IdentifiedJob, SlurmLink, SlurmRecord

_COMMENT: Final = "asa:"  # prefix of the comment of a job with a token; the token follows, then text for people
_LONGEST_COMMENT: Final = 250  # Slurm takes 1,024 bytes; every listing of jobs carries it


def comment_of(token: str, text: str = "") -> str:
    """Return the comment of a job: its token, and perhaps what people see. Empty for a job without a token.

    The text is ASCII, since a database of Slurm's accounting may refuse other characters, and the job with them.

    Examples
    --------
    >>> comment_of("4f1c-7", "align sample=B"), comment_of("4f1c-7"), comment_of("")
    ('asa:4f1c-7 align sample=B', 'asa:4f1c-7', '')
    """
    if not token:
        return ""
    plain = " ".join(on_one_line(text).encode("ascii", "replace").decode().split())
    return f"{_COMMENT}{token} {plain}"[:_LONGEST_COMMENT].rstrip()


def has_token(comment: str, token: str) -> bool:
    """Whether a comment is that of the job with a token.

    Examples
    --------
    >>> has_token("asa:4f1c-7 align sample=B", "4f1c-7"), has_token("asa:4f1c-71", "4f1c-7")
    (True, False)
    """
    return bool(token) and comment.split(" ", 1)[0] == f"{_COMMENT}{token}"


class AnothersJobError(JobNotFoundError):
    """Another job has the number now."""


def token_of(name: str) -> str:
    """Return the token at the end of a job's full name; empty if there is none."""
    return name.rpartition(".")[2] if "." in name else ""


def number_of(job_id: str) -> str:
    """Return the number of the array that a job belongs to; its own number if it belongs to none.

    Examples
    --------
    >>> number_of("12_7"), number_of("12")
    ('12', '12')
    """
    return job_id.partition("_")[0]


def is_member(job_id: str) -> bool:
    """Whether a job is an element of an array."""
    return "_" in job_id


def is_same(record: SlurmRecord, kept: KeptSubmission) -> bool:
    """Whether a record with a job's number is about that job."""
    return record.name == kept.name or has_token(record.comment, kept.token)


class OwnJobs:
    """Changes one client's jobs, and no others.

    `expected`: returns the record of the job with a number, if it is this client's; else None.
    `user`: returns this client's user; empty while not known.
    `is_settling`: returns whether a job was accepted so recently that Slurm need not show it yet.
    """

    def __init__(
        self,
        link: SlurmLink,
        expected: Callable[[str], KeptSubmission | None],
        *,
        user: Callable[[], str] = str,
        is_settling: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._link, self._expected, self._user, self._is_settling = link, expected, user, is_settling

    def cancel(
        self, job_ids: Collection[str], others: Mapping[str, KeptSubmission] | None = None
    ) -> dict[str, BackendError]:
        """Cancel the given jobs; return those that were not cancelled, each with the reason.

        `others`: jobs that `expected` does not know by their numbers, such as elements of arrays.
        Raises `UnavailableError`: Slurm cannot be asked; nothing was cancelled.
        """
        own, failed = self._own_and_others(job_ids, others or {}, by_name=self._link.cancels_by_name)
        return failed | (self._link.cancel(own) if own else {})

    def update(
        self,
        job_id: str,
        *,
        held: bool | None = None,
        walltime_s: float | None = None,
        nodes: int | Sequence[str] | None = None,
    ) -> None:
        """Change a job; see `SlurmLink.update`.

        Raises `JobNotFoundError`: Slurm does not know the job, or another job has its number.
        """
        own, failed = self._own_and_others([job_id], {}, by_name=self._link.cancels_by_name)
        for error in failed.values():
            raise error
        for job in own:
            self._link.update(job, held=held, walltime_s=walltime_s, nodes=nodes)

    def _own_and_others(
        self, job_ids: Collection[str], others: Mapping[str, KeptSubmission], *, by_name: bool
    ) -> tuple[list[IdentifiedJob], dict[str, BackendError]]:
        """Return the numbers of this client's jobs; and the other numbers, each with why it is none of them.

        `by_name`: whether the link also passes the name; then a job that was just accepted counts as ours before it is
        shown.
        """
        wanted = list(dict.fromkeys(job_ids))
        now: dict[str, list[SlurmRecord]] = {}
        for record in self._link.holders(wanted):
            for number in record.numbers:
                now.setdefault(number, []).append(record)
        own, failed = list[IdentifiedJob](), dict[str, BackendError]()
        for job_id in wanted:
            records = now.get(job_id, [])
            # one element has the number of its array, so all jobs with this number are checked
            if not records and self._is_settling(job_id) and (kept := self._expected(job_id)) is not None:
                if by_name:
                    own.append(IdentifiedJob(job_id, kept.name))
                else:
                    failed[job_id] = UnavailableError("Slurm does not show the job yet", where=f"job {job_id}")
            elif not records:
                failed[job_id] = JobNotFoundError("Slurm does not know the job", where=f"job {job_id!r}")
            elif all(self._is_own(job_id, record, others) for record in records):
                own.append(IdentifiedJob(job_id, records[0].name))
            else:
                failed[job_id] = AnothersJobError(
                    f"is not changed: the number is that of another job now, {records[0].name!r}",
                    where=f"job {job_id}",
                    hint="Is this the cluster on which it was submitted? Slurm may have lost its state, too.",
                )
        return own, failed

    def _is_own(self, job_id: str, record: SlurmRecord, others: Mapping[str, KeptSubmission]) -> bool:
        kept = others.get(job_id) or self._expected(job_id)
        if kept is None or not is_same(record, kept):
            return False
        return record.user in {"", self._user()} or not self._user()

"""Jobs with equal requests that are submitted as one job array: a call for all of them.

Slurm knows them as elements of an array, ``12_7``; everybody else here knows them as jobs with that id, each with the
name and token of its own. `Groups` translates, between a link and those who use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from asa.backends.shell.marks import MarksFolder

from asa.backend import JobState
from asa.core import safe
from asa.core.files import put, read_file
from asa.core.patterns import pattern
from asa.elements import NONE
from asa.errors import BackendError, SubmitRejectedError, UnavailableError
from asa.requests import name_of

from .identity import comment_of, has_token, is_member, number_of, token_of
from .link import IdentifiedJob, SlurmLink, SlurmRecord
from .reasons import kind
from .script import jobs_of
from .tracking import VANISHED, TrackedJob

# The element of an array that starts last has the array's number as its SLURM_JOB_ID: what these programs do or say by
# that number is of all elements.
_BY_NUMBER = pattern(r"\b(?:scontrol|scancel|squeue|sbatch|sacct|seff|sstat|sattach|strigger)\b")
_MAILS = "mail-type"  # Slurm sends one mail for a whole array
_NO_ARRAYS = "Invalid job array specification"  # the answer to any array where MaxArraySize is 0


def goes_alone(options: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether an element of an array would be something else, to what it runs or to its user, than a job by itself."""
    return _MAILS in map(name_of, options) or any(_BY_NUMBER.search(text) for text in texts)


def refuses_all(error: SubmitRejectedError) -> bool:
    """Whether the refusal of an array says that none is accepted here, rather than not this one."""
    return _NO_ARRAYS in error.message


class Groups:
    """Shows the elements of a run's arrays as jobs; offers all that its link offers (`as_link`).

    `folder`: the run's, with a file for each array.
    """

    def __init__(self, link: SlurmLink, folder: MarksFolder) -> None:
        self._link = link
        self._folder = folder.own / "groups"
        self._members: dict[str, tuple[str, ...]] = {}  # names of jobs, by the name of their array
        self._arrays: dict[str, str] = {}  # names of arrays, by the names of their jobs
        self._shown: set[str] = set()  # arrays of which the controller has shown elements at the last look
        for path in sorted(self._folder.glob("*.sh")) if self._folder.is_dir() else ():
            with suppress(OSError, ValueError):
                self._note(path.stem, jobs_of(read_file(path).decode()))

    def __getattr__(self, name: str) -> Any:
        """Return what is the same for jobs and elements."""
        return getattr(self._link, name)

    @property
    def as_link(self) -> SlurmLink:
        """Return this object as a link, whose other methods it passes on."""
        return cast("SlurmLink", self)

    def keep(self, name: str, script: str) -> None:
        """Record the script of an array that is about to be submitted.

        Raises `UnavailableError`: it cannot be written.
        """
        path = self._folder / f"{name}.sh"
        try:
            safe.provide_folder(self._folder)
            put(path, script.encode(), is_private=True)
        except OSError as error:
            raise UnavailableError(
                f"cannot be written: {error.strerror or error}",
                where=str(path),
                hint="Nothing was submitted. Free disk space or fix the permissions; it is tried again.",
            ) from error
        self._note(name, jobs_of(script))

    def forget(self, name: str) -> None:
        """Forget an array that was certainly not submitted: no job will ever have its name."""
        for member in self._members.pop(name, ()):
            self._arrays.pop(member, None)
        with suppress(OSError):  # its file then says what no job bears out
            (self._folder / f"{name}.sh").unlink(missing_ok=True)

    def _note(self, name: str, members: Sequence[str]) -> None:
        self._members[name] = tuple(members)
        self._arrays |= dict.fromkeys(members, name)

    def shows(self, job_id: str) -> bool:
        """Whether the controller has shown other elements of a job's array at the last look."""
        return number_of(job_id) in self._shown

    # ------------------------------------------------------------------ what the link says

    def jobs(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """See `SlurmLink.jobs`."""
        if not any(map(is_member, job_ids)):
            return self._link.jobs(job_ids)
        return {record.job_id: record for record in self.holders(job_ids) if record.job_id in job_ids}

    def holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """See `SlurmLink.holders`."""
        wanted = set(job_ids)
        arrays = {number_of(job_id) for job_id in wanted if is_member(job_id)}
        records = list(self._jobs_in(self._link.holders(list(dict.fromkeys(map(number_of, job_ids))))))
        self._shown -= arrays
        self._shown |= {number_of(record.job_id) for record in records if is_member(record.job_id)}
        return [record for record in records if record.numbers & wanted]

    def of_anybody(self, job_id: str) -> list[SlurmRecord]:
        """See `SlurmLink.of_anybody`."""
        records = list(self._jobs_in(self._link.of_anybody(number_of(job_id))))
        if not is_member(job_id):
            return records
        others = [record for record in records if not is_member(record.job_id)]
        return [record for record in records if record.job_id == job_id] or others

    def past(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """See `SlurmLink.past`."""
        alone = [job_id for job_id in job_ids if not is_member(job_id)]
        found = self._link.past(alone) if alone or not job_ids else {}
        if len(alone) < len(job_ids):
            found |= {record.job_id: record for record in self.past_holders(job_ids) if is_member(record.job_id)}
        return found

    def past_holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """See `SlurmLink.past_holders`."""
        numbers = list(dict.fromkeys(map(number_of, job_ids)))
        return [record for record in self._jobs_in(self._link.past_holders(numbers)) if record.numbers & {*job_ids}]

    def denies(self, job_id: str) -> bool:
        """See `SlurmLink.denies`: a controller that shows other elements of the array says that this one is gone."""
        return (is_member(job_id) and self.shows(job_id)) or self._link.denies(number_of(job_id))

    def queue(self) -> list[SlurmRecord]:
        """See `SlurmLink.queue`."""
        return list(self._jobs_in(self._link.queue()))

    def named(self, names: Collection[str]) -> list[SlurmRecord]:
        """See `SlurmLink.named`."""
        return self._of_names(names, self._link.named(self._also_arrays(names)))

    def recorded(self, names: Collection[str], since_s: float) -> list[SlurmRecord]:
        """See `SlurmLink.recorded`."""
        return self._of_names(names, self._link.recorded(self._also_arrays(names), since_s))

    def _also_arrays(self, names: Collection[str]) -> set[str]:
        """Return the names of jobs, and of their arrays: a job whose array was refused was submitted by itself."""
        return {*names, *(self._arrays[name] for name in names if name in self._arrays)}

    def _of_names(self, names: Collection[str], records: Iterable[SlurmRecord]) -> list[SlurmRecord]:
        return [record for record in self._jobs_in(records) if record.name in names]

    def _jobs_in(self, records: Iterable[SlurmRecord]) -> Iterator[SlurmRecord]:
        """Yield a record of each job, in place of those of the run's arrays and their elements.

        Those that are not reported one by one, as in a list that is cut off, have the record of the whole array.
        """
        reported: dict[str, set[int]] = {}
        whole: dict[str, SlurmRecord] = {}
        for record in records:
            if (members := self._members.get(record.name)) is None:
                yield record
                continue
            array_id = record.array_id or record.job_id
            if record.elements is None:
                whole[array_id] = record
            for number in record.elements or ():
                if number < len(members):
                    reported.setdefault(array_id, set()).add(number)
                    yield _job_in(record, array_id, number, members[number])
        for array_id, record in whole.items():
            for number, name in enumerate(self._members[record.name]):
                if number not in reported.get(array_id, ()):
                    yield _job_in(record, array_id, number, name)

    # ------------------------------------------------------------------ changes

    def cancel(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """See `SlurmLink.cancel`. Elements are cancelled by number alone.

        With a name, scancel 22.05 cancels all pending elements of an array in place of the one that is named.
        """
        return self._link.cancel([replace(job, name="") if is_member(job.job_id) else job for job in jobs])


def unclear(records: Iterable[SlurmRecord]) -> list[str]:
    """Return the numbers of arrays of which one record is for elements that are held and others that are not.

    Squeue 26.05 then lists all their reasons, and does not tell which is whose.
    """
    return sorted({record.array_id for record in records if record.is_array and _is_of_some(record.reason)})


def _is_of_some(reason: str) -> bool:
    kinds = {kind(one) for one in reason.split(",")}
    return "held" in kinds and len(kinds) > 1


def cleared_up(records: Iterable[SlurmRecord], told: Iterable[SlurmRecord]) -> list[SlurmRecord]:
    """Return records, but those of some arrays as squeue tells of their elements one by one.

    Those that have one number are one record to Slurm, and here.

    Examples
    --------
    >>> from asa.elements import Elements
    >>> told = [SlurmRecord(i, "a", "me", ("PENDING",), 1.0, array_id="2", elements=Elements.of([n])) for i, n in
    ...     (("2", 0), ("5", 1), ("2", 2))]
    >>> [(record.job_id, str(record.elements), record.is_array) for record in cleared_up([], told)]
    [('2', '0,2', True), ('5', '1', False)]
    """
    joined: dict[str, SlurmRecord] = {}
    for record in told:
        known = joined.setdefault(record.job_id, record)
        if known is not record:
            both = (known.elements or NONE) | (record.elements or NONE)
            joined[record.job_id] = replace(known, elements=both, is_array=known.end_s is None)
    arrays = {record.array_id for record in joined.values()}
    return [*(record for record in records if record.array_id not in arrays), *joined.values()]


def _job_in(record: SlurmRecord, array_id: str, number: int, name: str) -> SlurmRecord:
    is_ours = has_token(record.comment, token_of(record.name))
    return replace(
        record,
        job_id=f"{array_id}_{number}",
        name=name,
        comment=comment_of(token_of(name)) if is_ours else "",
        reason=_reason_of_each(record.reason),
        # one time for all that wait: that of the last for which the scheduler has planned
        expected_start_s=None if record.is_array else record.expected_start_s,
        is_array=False,
        array_id="",
        elements=None,
    )


def _reason_of_each(reason: str) -> str:
    """Return why each of several elements waits: squeue 26.05 lists their reasons if only some of them are held."""
    reasons = reason.split(",")
    return ",".join([one for one in reasons if kind(one) != "held"] or reasons)


@dataclass(slots=True)
class TrackedMember(TrackedJob):
    """A job that was submitted together with others."""

    groups: Groups | None = None

    def miss(self, *arguments: Any, **how: Any) -> bool:
        """Process that the controller does not show the job; see `TrackedJob.miss`.

        A pending element that is cancelled is forgotten at once, while the controller still shows the others.
        """
        changed = TrackedJob.miss(self, *arguments, **how)
        was = self.status
        if was.reason == VANISHED and was.start_s is None and self.groups is not None and self.groups.shows(was.job_id):
            self.status = replace(was, state=JobState.CANCELLED, reason="", outcome=None)
        return changed

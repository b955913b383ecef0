"""The link to Slurm through slurmrestd."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from getpass import getuser
from typing import Any, TypeVar

import httpx

from asa.errors import (
    AccessError,
    BackendError,
    JobNotFoundError,
    SubmitInDoubtError,
    UnavailableError,
)

from ..link import (
    IdentifiedJob,
    SlurmAbout,
    SlurmCluster,
    SlurmJob,
    SlurmLimits,
    SlurmNode,
    SlurmPartition,
    SlurmRecord,
)
from . import limits, reading
from .exchange import Exchange, LostAnswerError, RestAnswer
from .history import sacct_line, sacct_text
from .memory import RecordMemory
from .refusals import (
    ACCESS_DENIED,
    ALREADY_DONE,
    NOTHING_FOUND,
    OTHER_NAME,
    TOO_WIDE,
    UNKNOWN_JOB,
    Complaint,
    complaints,
    in_plain_text,
    refusal,
    submit_refusal,
    summary,
    unreadable,
)
from .scan import ITEM_BYTES, Listing, decoded, find
from .tokens import TokenSource
from .versions import Versions

_DAY_S = 86400.0
_LOOK_BACK_S = (14 * _DAY_S, _DAY_S, 3600.0)
_MAX_SINGLE = 32
_MAX_SOUGHT = 1000  # a listing of more jobs is decoded as a whole
_FEW = 3
_LISTED_PER_REQUEST_BYTES = 1 << 18  # this number of bytes of a listing costs a site about as much as a request
_ADDRESSES = {"nodes": "/nodes", "associations": "/associations/"}  # addresses of lists
_RESOURCES = "slurmdb_tres_get"
_NO_STORAGE = frozenset({"", "accounting_storage/none"})
_MAX_IN_ADDRESS = 200
_MAX_NAMES = 50
_MAX_IDS = 1000  # upper bound for one request

_Piece = TypeVar("_Piece")
_Kept = TypeVar("_Kept")


class _TooWideError(BackendError):
    """The database does not return a time span of this length at once."""


class RestLink:
    """Slurm by slurmrestd: a `SlurmLink` for REST API v0.0.38 and v0.0.40 to v0.0.45.

    The version is the newest that both sides know, found at the first call. Each method sends one request, with these
    exceptions:

    - the first call also finds the version;
    - a refused token is read again, and the request is repeated;
    - `jobs` for several jobs lists only states, and then reads in full the jobs that changed or were read long ago (see
      `memory`): one by one if they are few, or if the full listing would be a greater load. If many were read long ago,
      it reads only the full listing, and decodes only the wanted jobs. It also does so if there is no listing of states
      (v0.0.38), unless the full one is too large;
    - `holders` asks for a few numbers one by one, and reads the full listing for many; `cancel` sends a request for
      each job with v0.0.38, and a request for a thousand jobs later;
    - `named` asks the controller, and the database for 50 names at a time, submitted in the last 14 days (less if the
      site allows less);
    - `accounting` asks for a day at a time; `about` asks both sides.

    `verify`: whether https certificates are checked, or a file of authorities for that.
    `served_by`: uids that may answer on this computer, besides this user's and root's.
    `timeout_s`: upper bound for a request and its whole answer. If the controller is down, slurmrestd answers only
    after Slurm's ``MessageTimeout`` (10 s, at some sites 60 s and more).
    """

    def __init__(
        self,
        url: str,
        *,
        token: TokenSource | None = None,
        user: str = "",
        api: str = "",
        verify: bool | str = True,
        timeout_s: float = 30.0,
        allow_insecure: bool = False,
        served_by: Collection[int] = (),
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._exchange = Exchange(
            url,
            token=token,
            user=user,
            verify=verify,
            timeout_s=timeout_s,
            transport=transport,
            allow_insecure=allow_insecure,
            served_by=served_by,
        )
        self.calls: Counter[str] = self._exchange.calls
        """Number of requests sent, by the method that needed them; ``negotiation`` for finding the version."""
        self._versions = Versions(self._exchange, api)
        self._clock = clock
        self._memory = RecordMemory()
        self._has_states = True
        self._listing_bytes = 0.0
        self._cluster = ""

    cancels_by_name = False

    @property
    def changeable(self) -> frozenset[str]:
        """Properties of a job that `update` can change, as names of its arguments; asks for the version if need be."""
        return self._versions.get().changeable

    def about(self) -> SlurmAbout:
        """Return which cluster answers."""
        api = self._versions.get()
        document = self._ask("about", "GET", "/slurm", "/ping").document()
        meta = document.get("meta")
        slurm = reading.nested(meta, "slurm") or reading.nested(meta, "Slurm")
        is_up = any(_is_up(ping) for ping in reading.listed(document.get("pings")))
        if not is_up and self._exchange.token is not None:
            self._check_token()  # a refused token looks like a controller that is down
        clusters = self._clusters()
        self._cluster = reading.text(reading.nested(slurm, "cluster")) or self._cluster
        if not self._cluster and clusters is not None and len(clusters) == 1:
            self._cluster = clusters[0]
        token = self._exchange.token
        return SlurmAbout(
            means=f"REST API {api.name} at {self._exchange.url}",
            version=reading.text(reading.nested(slurm, "release")),
            cluster=self._cluster,
            controller_up=is_up,
            accounting=clusters is not None,
            token_ends_s=token.ends_s if token else None,
        )

    def cluster(self) -> SlurmCluster:
        """Return the cluster; no version reports the number of the next job."""
        meta = self._ask("cluster", "GET", "/slurm", "/ping").document().get("meta")
        self._cluster = reading.text(reading.nested(meta, "slurm", "cluster")) or self._cluster
        return SlurmCluster(self._cluster, None, self._exchange.url)

    def settings(self) -> Mapping[str, str]:
        """Return nothing: slurmrestd hides the cluster's configuration."""
        return {}

    def limits(self, cluster: str) -> Sequence[SlurmLimits]:
        """Return the limits of this user on a cluster, and of their accounts and qualities of service."""
        what = "limits cannot be read"
        user = self._user() or getuser()
        found = self._listed("limits", "/slurmdb", "associations", lambda entry: limits.may_count(entry, user), what)
        of_user = limits.of_associations(found, user, cluster)
        document = self._checked(self._ask("limits", "GET", "/slurmdb", "/qos/"), what)
        qualities = _objects(document, "qos") or _objects(document, "QOS")  # the key depends on the version
        return [*of_user, *limits.of_qualities(qualities, (name for row in of_user for name in row.qualities))]

    def partitions(self) -> Sequence[SlurmPartition]:
        """Return the partitions. Only v0.0.38 and v0.0.45 report which of them is the default."""
        answer = self._ask("partitions", "GET", "/slurm", "/partitions")
        document = answer.document()
        if not _lacks_resources_only(document):
            document = self._checked(answer, "the partitions cannot be read")
        return [reading.partition(entry) for entry in _objects(document, "partitions")]

    def nodes(self) -> Sequence[SlurmNode]:
        """Return the nodes."""
        return self._listed("nodes", "/slurm", "nodes", reading.node, "the nodes cannot be read")

    def submit(self, job: SlurmJob) -> str:
        """Submit a job; it is accepted if and only if the answer names a job."""
        body = self._versions.get().submission(job)
        try:
            answer = self._ask("submit", "POST", "/slurm", "/job/submit", body=body, once=True)
        except LostAnswerError as error:
            raise SubmitInDoubtError(
                f"it is not known whether Slurm accepted the job: {error.message}", where=error.where
            ) from error
        document = answer.document()
        job_id = reading.whole(document.get("job_id")) or reading.whole(reading.nested(document, "result", "job_id"))
        if answer.status == 200 and job_id is not None and job_id > 0:
            return str(job_id)
        user_message = reading.text(document.get("job_submit_user_msg"))
        raise submit_refusal(answer.status, complaints(document) or in_plain_text(answer), user_message)

    def allocate(self, job: SlurmJob, patience_s: float) -> str:  # noqa: ARG002 - the port's signature
        """Refuse: slurmrestd would keep a thread for the request, and not answer, until the job starts (26.05)."""
        raise BackendError(
            "gets no nodes by the REST API: a thread of slurmrestd would wait for them",
            where=f"job {job.name!r}",
            hint="The backend slurm-cli can ask for them.",
        )

    def estimated_start_s(self, job: SlurmJob) -> float | None:  # noqa: ARG002 - the port's signature
        """Return None: no version of the REST API, 0.0.38 to 0.0.45, has an equivalent of ``sbatch --test-only``."""
        return None

    def test(self, job: SlurmJob, timeout_s: float) -> str | None:  # noqa: ARG002 - the port's signature
        """Return None, like `estimated_start_s`."""
        return None

    def preview(self, job: SlurmJob) -> Mapping[str, str]:
        """Return the request that `submit` would send."""
        dialect = self._versions.get()
        title = f"POST /slurm/{dialect.name}/job/submit"
        body = dialect.submission(replace(job, script="(the script above)"))
        body["job"]["environment"] = f"({len(body['job']['environment'])} variables)"
        return {title: json.dumps(body, indent=2)}

    def jobs(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask the controller for the given jobs; those that it does not know are missing."""
        wanted = list(dict.fromkeys(job_ids))
        if not wanted:
            return {}
        if len(wanted) == 1:
            return self._one_by_one(wanted)
        if self._is_listed_best(len(self._memory.old(wanted, self._clock()))):
            return self._picked(wanted)
        if (states := self._states(wanted)) is None:
            return self._picked(wanted)
        for job_id in set(wanted) - states.keys():
            self._memory.forget(job_id)
        stale = self._memory.stale(states, self._clock())
        fresh = self._picked(stale) if self._is_listed_best(len(stale)) else self._one_by_one(stale)
        return {
            job_id: record
            for job_id in wanted
            if job_id in states
            and (record := fresh.get(job_id) if job_id in stale else self._memory.get(job_id)) is not None
        }

    def holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask the controller which jobs have the given numbers now, of any user."""
        wanted = dict.fromkeys(job_id for job_id in job_ids if job_id.isascii() and job_id.isdecimal())
        if len(wanted) <= _MAX_SINGLE and not self._is_listed_best(len(wanted)):
            return [record for job_id in wanted for record in self._answered("holders", job_id)]
        return self._listing("holders", lambda record: bool(record.numbers & wanted.keys()))

    def denies(self, job_id: str) -> bool:
        """Ask the controller for one job; return whether it says that it does not know it."""
        answer = self._ask("denies", "GET", "/slurm", f"/job/{_number(job_id)}")
        if any(complaint.number == UNKNOWN_JOB for complaint in complaints(answer.document())):
            return True
        self._checked(answer, f"job {job_id} cannot be read")
        return False

    def of_anybody(self, job_id: str) -> list[SlurmRecord]:
        """Ask the controller which jobs have one number now."""
        return self._answered("of_anybody", job_id)

    def past_holders(self, job_ids: Collection[str]) -> list[SlurmRecord]:
        """Ask accounting which jobs had the given numbers, for the latest of each."""
        found = list[SlurmRecord]()
        for some in _pieces(list(dict.fromkeys(job_ids)), _MAX_NAMES):
            records = self._accounted("past_holders", self._versions.get().past(some), reading.accounted) or ()
            found += [record for record in records if not record.numbers.isdisjoint(some)]
        latest = {record.job_id: record for record in sorted(found, key=lambda record: record.submit_s)}
        return list(latest.values())

    def queue(self) -> list[SlurmRecord]:
        """Ask the controller for all jobs that it knows, of all users."""
        return self._listing("queue")

    def named(self, names: Collection[str]) -> list[SlurmRecord]:
        """Ask for this user's jobs with the given names; if controller and database differ, the controller counts."""
        wanted = set(names)
        if not wanted:
            return []
        current = self._listing("named", lambda record: record.name in wanted, "name", wanted)
        records = {
            (record.job_id, record.submit_s): record
            for record in (*self._in_past(wanted, _LOOK_BACK_S), *current)
            if record.name in wanted and self._is_ours(record)
        }
        return sorted(records.values(), key=lambda record: (record.submit_s, int(record.job_id)))

    def recorded(self, names: Collection[str], since_s: float) -> list[SlurmRecord]:
        """Ask accounting for this user's jobs with the given names, since a time or as far back as the site allows."""
        back_s = self._clock() - since_s
        records = self._in_past(names, (back_s, *(less_s for less_s in _LOOK_BACK_S if less_s < back_s)))
        return [record for record in records if record.name in names and self._is_ours(record)]

    def past(self, job_ids: Collection[str]) -> dict[str, SlurmRecord]:
        """Ask accounting for the given jobs, the latest of each number."""
        wanted = list(dict.fromkeys(job_ids))
        latest: dict[str, SlurmRecord] = {}
        for some in _pieces(wanted, _MAX_NAMES):
            for record in self._accounted("past", self._versions.get().past(some), reading.accounted) or ():
                if record.job_id not in some:
                    continue
                known = latest.get(record.job_id)
                if known is None or record.submit_s >= known.submit_s:
                    latest[record.job_id] = record
        return latest

    def accounting(self, since_s: float, until_s: float) -> str:
        """Ask accounting for the jobs of all users in a time span; of the user, if a site hides the others.

        v0.0.38 reports only the last run of a requeued job.
        """
        lines = []
        begin_s = since_s
        while begin_s < until_s:
            end_s = min(begin_s + _DAY_S, until_s)
            some = self._accounted("accounting", self._versions.get().history(begin_s, end_s), sacct_line)
            if some is None:
                raise BackendError("accounting cannot be read here", where=self._exchange.url)
            lines += some
            begin_s = end_s
        return sacct_text(lines)

    def cancel(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """Cancel jobs: a thousand in one request, or each in its own if the version requires that."""
        left: dict[str, BackendError] = {}
        for some in _pieces(jobs, _MAX_IDS):
            for job in some:
                self._memory.forget(job.job_id)
            try:
                has_many = self._versions.get().cancels_many
                left |= self._cancel_many(some) if has_many else self._cancel_each(some)
            except BackendError as error:
                left |= {job.job_id: error for job in some}
        return left

    def _cancel_many(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        """Cancel jobs by one request; with a single job, Slurm also compares its name."""
        body: dict[str, Any] = {"jobs": [job.job_id for job in jobs]}
        if len(jobs) == 1 and jobs[0].name:
            body["job_name"] = jobs[0].name
        what = "jobs cannot be cancelled" if len(jobs) > 1 else f"job {jobs[0].job_id} cannot be cancelled"
        document = self._checked_change(self._ask("cancel", "DELETE", "/slurm", "/jobs/", body=body), what)
        return {job_id: refusal(200, [why], what) for job_id, why in _deletions(document) if _is_failure(why)}

    def _cancel_each(self, jobs: Sequence[IdentifiedJob]) -> dict[str, BackendError]:
        left: dict[str, BackendError] = {}
        for job in jobs:
            what = f"job {job.job_id} cannot be cancelled"
            answer = self._ask("cancel", "DELETE", "/slurm", f"/job/{_number(job.job_id)}")
            try:
                if not any(complaint.number in ALREADY_DONE for complaint in complaints(answer.document())):
                    self._checked_change(answer, what)
            except UnavailableError:
                raise
            except BackendError as error:
                left[job.job_id] = error
        return left

    def _checked_change(self, answer: RestAnswer, what: str) -> dict[str, Any]:
        """Decode the answer to a change, which must be a success."""
        document = answer.document()
        known = complaints(document)
        if answer.status != 200 or known:
            raise refusal(answer.status, known, what)
        if not document:
            raise UnavailableError(f"{what}: the answer is no JSON", where=self._exchange.url)
        return document

    def update(
        self,
        job: IdentifiedJob,
        *,
        held: bool | None = None,
        walltime_s: float | None = None,
        nodes: int | Sequence[str] | None = None,
    ) -> None:
        """Change a job. An answer with an error, or with an ignored field, counts as a failure."""
        if nodes is not None and not isinstance(nodes, int):
            raise BackendError("jobs keep no named nodes by these means", where=f"job {job.job_id}")
        self._memory.forget(job.job_id)
        what = f"job {job.job_id} cannot be changed"
        body = self._versions.get().change(held=held, walltime_s=walltime_s, nodes=nodes)
        answer = self._ask("update", "POST", "/slurm", f"/job/{_number(job.job_id)}", body=body)
        document = self._checked_change(answer, what)
        ignored = [warning for warning in complaints(document, "warnings") if "gnoring" in warning.text]
        if ignored:
            raise BackendError(f"{what}: {summary(ignored)}")

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._exchange.close()

    def _ask(
        self,
        caller: str,
        method: str,
        side: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
        once: bool = False,
        listing: Listing[Any] | None = None,
    ) -> RestAnswer:
        """Send a request to one side of the API, the controller's or the database's."""
        api = self._versions.get()
        answer = self._exchange.ask(
            caller, method, f"{side}/{api.name}{path}", query=query, body=body, once=once, listing=listing
        )
        if side == "/slurm" and answer.status == 404 and not answer.document() and path != "/jobs/state":
            self._versions.forget()
            self._has_states = True
            raise UnavailableError(
                f"does not serve REST API {api.name}" + (": a web page answers" if answer.is_page else ""),
                where=self._exchange.url,
                hint="Was Slurm updated? The next call looks for another version, unless one is forced.",
            )
        return answer

    def _listed(
        self, caller: str, side: str, key: str, read: Callable[[Mapping[str, Any]], _Kept | None], what: str
    ) -> list[_Kept]:
        """Read a list while the answer arrives; it must be a success."""
        listing = Listing(
            key, lambda entries: [kept for entry in decoded(entries) if (kept := read(entry)) is not None]
        )
        self._checked(self._ask(caller, "GET", side, _ADDRESSES[key], listing=listing), what)
        return listing.found

    def _checked(self, answer: RestAnswer, what: str) -> dict[str, Any]:
        """Decode an answer that must be a success."""
        document = answer.document()
        known = complaints(document)
        if answer.status != 200 or known:
            raise unreadable(answer.status, known, what)
        if not document:
            raise UnavailableError(f"{what}: the answer is no JSON", where=self._exchange.url)
        return document

    def _listing(
        self,
        caller: str,
        is_wanted: Callable[[SlurmRecord], bool] = lambda _: True,
        key: str = "",
        values: Collection[int | str] = (),
    ) -> list[SlurmRecord]:
        """Read the wanted jobs from the full listing.

        `key`, `values`: if given, only jobs with one of these values of the key are decoded.
        """

        def read(entries: bytes) -> list[SlurmRecord]:
            jobs = find(entries, key, values) if key else None
            return list(filter(is_wanted, self._records(entries, jobs)))

        listing = Listing("jobs", read, _size)
        what = "the queue cannot be read"
        try:
            answer = self._ask(caller, "GET", "/slurm", "/jobs", listing=listing)
        except LostAnswerError:
            self._listing_bytes = math.inf
            raise
        if "jobs" not in self._checked(answer, what):
            raise UnavailableError(f"{what}: the answer names no jobs", where=self._exchange.url)
        self._listing_bytes = listing.size
        return listing.found

    def _records(self, entries: bytes, jobs: Iterable[Mapping[str, Any]] | None = None) -> list[SlurmRecord]:
        """Return the records of a listing's entries; of the given jobs only, if any are given."""
        records = []
        for job in decoded(entries) if jobs is None else jobs:
            if (record := reading.record(job)) is not None:
                records.append(record)
                self._cluster = self._cluster or reading.text(job.get("cluster"))
        return records

    def _is_listed_best(self, count: int) -> bool:
        """Whether reading the full listing, judged by its last size, is faster than reading the jobs one by one."""
        if not math.isfinite(self._listing_bytes):
            return count > _MAX_SINGLE
        return count > _FEW and (count > _MAX_SINGLE or self._listing_bytes <= count * _LISTED_PER_REQUEST_BYTES)

    def _picked(self, wanted: Sequence[str]) -> dict[str, SlurmRecord]:
        """Read the given jobs in full from the listing; one by one if the listing cannot be received."""
        if len(wanted) <= _MAX_SINGLE and not math.isfinite(self._listing_bytes):
            return self._one_by_one(wanted)
        sought = set(wanted)
        key, numbers = ("job_id", [_number(job_id) for job_id in wanted]) if len(wanted) <= _MAX_SOUGHT else ("", [])
        records = self._listing("jobs", lambda record: record.job_id in sought, key, numbers)
        return self._kept({record.job_id: record for record in records})

    def _one_by_one(self, wanted: Sequence[str]) -> dict[str, SlurmRecord]:
        answers = {job_id: self._single("jobs", job_id) for job_id in wanted}
        return self._kept({job_id: record for job_id, record in answers.items() if record is not None})

    def _kept(self, records: dict[str, SlurmRecord]) -> dict[str, SlurmRecord]:
        for record in records.values():
            self._memory.keep(record, self._clock())
        return records

    def _single(self, caller: str, job_id: str) -> SlurmRecord | None:
        """Read one job; None if the controller does not know it."""
        return next((record for record in self._answered(caller, job_id) if record.job_id == job_id), None)

    def _answered(self, caller: str, job_id: str) -> list[SlurmRecord]:
        """Read the controller's jobs with a number; none if it does not know it."""
        listing = Listing("jobs", self._records, _size)
        answer = self._ask(caller, "GET", "/slurm", f"/job/{_number(job_id)}", listing=listing)
        if any(complaint.number == UNKNOWN_JOB for complaint in complaints(answer.document())):
            return []
        self._checked(answer, f"job {job_id} cannot be read")
        return listing.found

    def _states(self, wanted: Sequence[str]) -> dict[str, tuple[str, ...]] | None:
        """Read the states of the given jobs; None if the version has no such listing."""
        if not (self._has_states and self._versions.get().has_states):
            return None
        query = [("job_id", str(_number(job_id))) for job_id in wanted] if len(wanted) <= _MAX_IN_ADDRESS else []
        sought = set(wanted)

        def read(entries: bytes) -> list[tuple[str, tuple[str, ...]]]:
            reported = ((reading.text(job.get("job_id")), job.get("state")) for job in decoded(entries))
            return [(job_id, reading.states_of(state)) for job_id, state in reported if job_id in sought]

        listing = Listing("jobs", read)
        answer = self._ask("jobs", "GET", "/slurm", "/jobs/state", query=query, listing=listing)
        if answer.status in {404, 405} and not complaints(answer.document()):
            self._has_states = False
            return None
        self._checked(answer, "the states of jobs cannot be read")
        states = dict(listing.found)
        return {job_id: states[job_id] for job_id in wanted if job_id in states}

    def _accounted(
        self, caller: str, query: Sequence[tuple[str, str]], read: Callable[[Mapping[str, Any]], _Kept | None]
    ) -> list[_Kept] | None:
        """Query the database for jobs, and read these; None if there is no readable database."""
        if self._cluster:
            query = [*query, ("cluster", self._cluster)]  # the database may have jobs of other clusters
        listing = Listing("jobs", lambda entries: [one for job in decoded(entries) if (one := read(job)) is not None])
        answer = self._ask(caller, "GET", "/slurmdb", "/jobs", query=query, listing=listing)
        document = answer.document()
        known = complaints(document)
        numbers = {complaint.number for complaint in known}
        if NOTHING_FOUND in numbers:
            return []
        if TOO_WIDE in numbers:
            raise _TooWideError(f"accounting cannot be read: {summary(known)}", where=self._exchange.url)
        storage = reading.nested(document, "meta", "plugin", "accounting_storage")
        if (answer.status == 404 and not known) or ACCESS_DENIED in numbers or (known and storage in _NO_STORAGE):
            return None
        self._checked(answer, "accounting cannot be read")
        return listing.found

    def _in_past(self, names: Collection[str], backs_s: Sequence[float]) -> list[SlurmRecord]:
        return [record for some in _pieces(sorted(names), _MAX_NAMES) for record in self._named_since(some, backs_s)]

    def _named_since(self, names: Sequence[str], backs_s: Sequence[float]) -> list[SlurmRecord]:
        """Query the database for the first of some time spans that the site allows."""
        for back_s in backs_s:
            query = self._versions.get().named(names, self._clock() - back_s)
            try:
                return self._accounted("named", query, reading.accounted) or []
            except _TooWideError:
                continue
        return []

    def _is_ours(self, record: SlurmRecord) -> bool:
        user = self._user()
        return not user or record.user == user

    def _user(self) -> str:
        """Name of the requesting user; empty if only the other end of the socket knows it."""
        token = self._exchange.token
        return self._exchange.user or (token.user if token else "")

    def clusters(self) -> Sequence[str]:
        """Return the clusters that the database knows."""
        return self._clusters() or []

    def _clusters(self) -> list[str] | None:
        """Return the clusters that the database knows; None if there is no readable database."""
        try:
            answer = self._ask("about", "GET", "/slurmdb", "/clusters")
        except UnavailableError:
            return None
        document = answer.document()
        if answer.status != 200 or complaints(document):
            return None
        return [reading.text(cluster.get("name")) for cluster in _objects(document, "clusters")]

    def _check_token(self) -> None:
        """Send a request that requires authentication; raise `AccessError` if that fails."""
        try:
            self._ask("about", "GET", "/slurm", "/diag")
        except AccessError:
            raise
        except UnavailableError:  # the controller really is down
            return


def _objects(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [entry for entry in reading.listed(document.get(key)) if isinstance(entry, Mapping)]


def _size(record: SlurmRecord) -> int:
    """Return about how many bytes of memory a record takes."""
    written = record.name, record.comment, record.dependency, record.node_list
    return ITEM_BYTES + sum(map(len, written))


def _deletions(document: Mapping[str, Any]) -> Iterable[tuple[str, Complaint]]:
    """Yield the jobs that Slurm did not cancel, by number, with its answers."""
    for entry in reading.listed(document.get("status")):
        job_id, error = reading.text(reading.nested(entry, "step_id")), reading.nested(entry, "error")
        if number := reading.whole(reading.nested(error, "code")):
            words = reading.text(reading.nested(error, "message")) or reading.text(reading.nested(error, "string"))
            yield job_id.partition("_")[0].partition(".")[0], Complaint(number, words)


def _is_failure(why: Complaint) -> bool:
    """Whether a cancellation failed; it did not if the job has ended, or its number is another job's now."""
    return why.number not in ALREADY_DONE | {OTHER_NAME}


def _lacks_resources_only(document: Mapping[str, Any]) -> bool:
    """Whether partitions lack only names of resources, which newer versions get from accounting.

    While accounting is unavailable, the answer has HTTP status 500 but is otherwise complete.
    """
    sources = {reading.text(reading.nested(error, "source")) for error in reading.listed(document.get("errors"))}
    return sources == {_RESOURCES} and bool(reading.listed(document.get("partitions")))


def _is_up(ping: Any) -> bool:
    state = reading.text(reading.nested(ping, "pinged")) or reading.text(reading.nested(ping, "ping"))
    return state.upper() == "UP" or reading.nested(ping, "responding") is True


def _number(job_id: str) -> int:
    if not (job_id.isascii() and job_id.isdecimal()):
        raise JobNotFoundError(f"{job_id!r} is no job id of Slurm's")
    return int(job_id)


def _pieces(words: Sequence[_Piece], most: int) -> Iterable[Sequence[_Piece]]:
    return (words[at : at + most] for at in range(0, len(words), most))

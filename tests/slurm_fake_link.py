"""A Slurm in memory with a virtual clock, behind the port `SlurmLink`: seconds pass when somebody sleeps."""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from asa.backends.shell.script import WITHDRAWN, facts_of
from asa.backends.slurm.link import MEMBERS, IdentifiedJob, SlurmAbout, SlurmCluster, SlurmJob, SlurmRecord
from asa.backends.slurm.script import jobs_of

from asa.elements import Elements, parse_array, parse_elements
from asa.errors import JobNotFoundError, SubmitDeferredError, SubmitInDoubtError, SubmitRejectedError, UnavailableError
from asa.outcome import JobOutcome

BEGIN_S = 1_700_000_000.0
FINAL = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}


def own(job_id):
    """Take a number for a job's, without asking."""
    return IdentifiedJob(job_id, "")


def cancel(link, job_id):
    """Cancel one job by a link; raises why it was not."""
    for error in link.cancel([own(job_id)]).values():
        raise error


class VirtualClock:
    """Seconds since 1970 that pass only in `sleep`."""

    def __init__(self, now_s=BEGIN_S):
        self.now_s = now_s
        self.nudges = set()

    def __call__(self):
        return self.now_s

    def sleep(self, seconds):
        assert seconds > 0
        self.now_s += seconds
        due = {at_s for at_s in self.nudges if at_s <= self.now_s}
        self.nudges -= due
        return bool(due)


@dataclass
class FakeJob:
    """A job in the fake's queue."""

    job_id: str
    job: SlurmJob
    submit_s: float
    dependencies: list
    state: str = "PENDING"
    held: str = ""
    start_s: float | None = None
    eligible_s: float | None = None
    payload_s: float | None = None
    end_s: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    doomed: bool = False
    walltime_s: float = 0.0
    run_s: float = 0.0
    code: int = 0
    ends_as: str = ""  # Slurm's word for its end, in place of what its exit code says
    bad_node: str = ""  # whose fault ends it as soon as its payload has begun
    awaits: list = field(default_factory=list)
    posted: list = field(default_factory=list)
    array_id: str = ""  # of an element: its array, its number to Slurm and to the client, and how many run at once
    place: int = 0
    number: int = 0
    at_once: int = 0
    token: str = ""
    is_member: bool = False  # of an array whose elements are jobs by themselves

    @property
    def seen_as(self):
        return f"{self.array_id}_{self.number}" if self.array_id else self.job_id

    @property
    def claims_as(self):
        return self.seen_as if self.is_member else self.array_id or self.job_id


def run_of(payload):
    """Return how long a payload runs and how it ends, and the markers that it awaits and posts, by its script."""
    run_s = sum(map(float, re.findall(r"sleep ([\d.]+)", payload))) or 1.0
    code = int(found[1]) if (found := re.search(r"exit (\d+)", payload)) else 0
    if code and len(re.findall(r"^text_", payload, re.MULTILINE)) > 1:
        run_s = 1.0
    awaits, posted = (
        found[1].split() if (found := re.search(rf"\n{name}='?([^'\n]+)'?\n", f"\n{payload}")) else []
        for name in ("awaits", "posted")
    )
    return {"run_s": run_s, "code": code, "awaits": awaits, "posted": posted}


class FakeLink:
    """Slurm in memory.

    A job runs for as long as its payload says it sleeps, and exits as that says it does. `drops_unknown` is 22.05's way
    with a dependency on a job that it does not know; else it is refused, as by 24.11. `writes_marks` is what a job's
    script does in `folder`.
    """

    changeable = frozenset({"held", "walltime_s", "nodes", MEMBERS})
    cancels_by_name = True

    def __init__(
        self,
        clock,
        folder,
        *,
        drops_unknown=False,
        accounting=False,
        min_job_age_s=300.0,
        listing_delay_s=0.0,
        latency_s=1.0,
        skew_s=0.0,
        writes_marks=True,
    ):
        self.clock, self.folder = clock, folder
        self.drops_unknown, self.has_accounting = drops_unknown, accounting
        self.min_job_age_s, self.listing_delay_s = min_job_age_s, listing_delay_s
        self.latency_s, self.skew_s, self.writes_marks = latency_s, skew_s, writes_marks
        self.calls = Counter()
        self.looks_s = []
        self.down = False
        self.in_doubt = False
        self.foreign = []
        self.estimated, self.says_s = [], None
        self.objections = {}
        self.all = {}
        self.submitted = []
        self.past_down = False
        self.ignores_dependencies = False
        self.arrays_of = {}
        self.max_array_size = 1001
        self.max_submitted = None
        self._next_id = 1
        self._now_s = int(self.now_s)

    @property
    def now_s(self):
        return self.clock() + self.skew_s

    # ------------------------------------------------------------------ the port

    def clusters(self):
        return [self.about().cluster]

    def about(self):
        return SlurmAbout("in memory")

    def cluster(self):
        return SlurmCluster()

    def settings(self):
        return {}

    def limits(self, cluster):
        return []

    def partitions(self):
        return []

    def nodes(self):
        return []

    def close(self):
        self.calls["close"] += 1

    def estimated_start_s(self, job):
        """Return what it was told to say, as `sbatch --test-only` would."""
        self.estimated.append(job)
        return None if self.says_s is None else self.clock() + self.says_s

    def test(self, job, timeout_s):
        """Return what it was told to say against a job, as `sbatch --test-only` would."""
        return self.objections.get(job.name.rpartition(".")[0].rpartition("_")[2])

    def submit(self, job):
        self._call("submit")
        needs = []
        for clause in filter(None, job.dependency.split(",")):
            words, _, either = clause.partition("?")
            kind, _, other = words.partition(":")
            other, _, minutes = other.partition("+")
            other = self._raw(other)
            if any(one in self.controller for one in (other, *self.arrays_of.get(other, ()))):
                assert either in ("", f"afterany:{other}"), "one of these alone is understood here"
                needs.append((kind, other, 60 * int(minutes or 0), bool(either)))
            elif not self.drops_unknown:
                raise SubmitRejectedError("Job dependency problem")
        if self.ignores_dependencies:
            needs = []
        job_id = str(self._next_id)
        self._next_id += 1
        payload = job.script.partition("\nasa_owned() {\n")[0]
        facts = "".join(line for line in payload.splitlines(keepends=True) if not line.startswith("#"))
        walltime_s = 60 * -(-job.walltime_s // 60)
        fake = FakeJob(job_id, job, float(int(self.now_s)), needs, walltime_s=walltime_s, **run_of(facts))
        fake.token = job.comment.removeprefix("asa:").split(" ")[0]
        fake.held = "JobHeldUser" if job.held else ""
        for one in self._elements(fake) if job.array else [fake]:
            self.all[one.job_id] = one
        self.submitted.append(job)
        if self.in_doubt:
            raise SubmitInDoubtError("the answer was lost")
        return job_id

    def _raw(self, job_id):
        """Return a job's number; of an element, its own."""
        array_id, is_element, number = job_id.partition("_")
        if not is_element:
            return job_id
        return next(
            (
                one
                for one in self.arrays_of.get(array_id, ())
                if one in self.all and self.all[one].number == int(number)
            ),
            job_id,
        )

    def jobs(self, job_ids):
        self._call("jobs")
        self.looks_s.append(self.clock())
        known = self.controller
        return {i: self.record(known[i]) for i in job_ids if i in known and self._is_listed(known[i])}

    def denies(self, job_id):
        self._call("denies")
        known = {*self.controller, *(job.array_id for job in self.controller.values())}
        return job_id not in known | {record.job_id for record in self.foreign}

    def past_holders(self, job_ids):
        self._call("past_holders")
        if not self.has_accounting:
            return []
        of = [[self.all[e] for e in self.arrays_of[i]] for i in job_ids if i in self.arrays_of]
        return [record for elements in of for record in self._together(elements)]

    def _together(self, jobs):
        """Report elements as Slurm does: those that have begun one by one, the others together."""
        waiting = [job for job in jobs if job.state == "PENDING" and not job.restarts]
        told = [self._element(job) for job in jobs if job not in waiting]
        if waiting:
            first = self.record(waiting[0])
            places = Elements.of(job.place for job in waiting)
            told.append(replace(first, is_array=True, array_id=waiting[0].array_id, elements=places))
        return told

    def _element(self, job):
        return replace(self.record(job), array_id=job.array_id, elements=Elements.of([job.place]))

    def _elements(self, fake):
        """Make the elements of an array; Slurm gives each a number of its own, the array's to one of them."""
        array = parse_array(fake.job.array)
        places = list(array.elements)
        members = re.search(r"(?m)^# Its jobs: ", fake.job.script)
        facts = {"is_renumbered": False} if members else facts_of(fake.job.script)
        numbers = list(parse_elements(facts["array"])) if facts["is_renumbered"] else places
        if places[-1] >= self.max_array_size:
            raise SubmitRejectedError("Slurm refuses the job: Invalid job array specification")
        live = sum(job.state not in FINAL for job in self.all.values())
        if self.max_submitted is not None and live + len(places) > self.max_submitted:
            raise SubmitDeferredError("Job violates accounting/QOS policy (AssocMaxSubmitJobLimit)")
        whole = fake.posted[0] if fake.posted else ""
        for place, number in zip(places, numbers, strict=True):
            job_id = fake.job_id if place == places[-1] else str(self._next_id)
            self._next_id += place != places[-1]
            one = replace(fake, job_id=job_id, array_id=fake.job_id, place=place, number=number, at_once=array.at_once)
            if members:
                _, _, rest = fake.job.script.partition(f"\n{number})\n")
                token = jobs_of(fake.job.script)[number].rpartition(".")[2]
                one = replace(one, is_member=True, token=token, **run_of(rest.partition("\n;;\n")[0]))
            else:
                one.posted = [f"{whole}+/{number}"] if whole else []
                one.run_s, one.code = self.of_element(number, fake.run_s, fake.code)
            self.arrays_of.setdefault(fake.job_id, []).append(job_id)
            yield one

    def of_element(self, number, run_s, code):
        """Return how long an element runs and how it ends; a test may say it otherwise."""
        return run_s, code

    def queue(self):
        self._call("queue")
        return [self.record(job) for job in self.controller.values() if self._is_listed(job)] + self.foreign

    def named(self, names):
        self._call("named")
        jobs = self.all if self.has_accounting else self.controller
        ours = [job for job in jobs.values() if job.job.name in names and self._is_listed(job)]
        return [self._element(job) if job.array_id else self.record(job) for job in ours]

    def past(self, job_ids):
        self._call("past")
        if self.past_down:
            raise UnavailableError("slurmdbd is down")
        return {i: self.record(self.all[i]) for i in job_ids if i in self.all} if self.has_accounting else {}

    def accounting(self, since_s, until_s):
        raise NotImplementedError

    def holders(self, job_ids):
        self._call("holders")
        return self._of_numbers(job_ids)

    def of_anybody(self, job_id):
        self._call("of_anybody")
        return self._of_numbers([job_id])

    def _of_numbers(self, job_ids):
        known = {i: job for i, job in self.controller.items() if self._is_listed(job)}
        ours = [job for i, job in known.items() if i in job_ids and job.array_id not in job_ids]
        told = [self._element(job) if job.array_id else self.record(job) for job in ours]
        for array_id in dict.fromkeys(i for i in job_ids if i in self.arrays_of):
            told += self._together([known[i] for i in self.arrays_of[array_id] if i in known])
        return told + [record for record in self.foreign if record.job_id in job_ids]

    def cancel(self, jobs):
        """Cancel jobs, by one call, as any link does."""
        self._call("cancel")
        left = {}
        for job in jobs:
            if job.job_id in self.arrays_of:
                for one in self.arrays_of[job.job_id]:
                    self._cancel(self.all[one])
            elif self._raw(job.job_id) in self.controller:
                self._cancel(self.all[self._raw(job.job_id)])
            else:
                left[job.job_id] = JobNotFoundError("unknown job")
        return left

    def cancel_element(self, array_id, number):
        """Do what ``scancel 12_4`` does."""
        self._advance()
        self._cancel(next(job for job in self.all.values() if (job.array_id, job.number) == (array_id, number)))

    def _cancel(self, job):
        if job.state not in FINAL:
            started = job.start_s is not None
            self._end(job, "CANCELLED", None if started else job.exit_code)
            job.start_s = job.start_s or job.end_s  # as Slurm has it

    def update(self, job, *, held=None, walltime_s=None, nodes=None):
        self._call("update")
        job = self._known(job.job_id)
        if held is not None:
            job.held = "JobHeldUser" if held else ""
            job.eligible_s = None
        if walltime_s is not None:
            job.walltime_s = walltime_s

    # ------------------------------------------------------------------ what others do

    def requeue(self, job_id):
        """Put a running job back, as when its node failed."""
        self._advance()
        job = self.all[job_id]
        job.state, job.start_s, job.eligible_s, job.payload_s = "PENDING", None, None, None
        job.submit_s, job.restarts = self._now_s, job.restarts + 1

    def hold_by_admin(self, job_id):
        self.all[job_id].held, self.all[job_id].eligible_s = "JobHeldAdmin", None

    def forget(self, job_id):
        """Lose a job, even from accounting."""
        self._advance()
        return self.all.pop(job_id)

    # ------------------------------------------------------------------ its inside

    @property
    def controller(self):
        self._advance()
        limit_s = self._now_s - self.min_job_age_s
        return {i: job for i, job in self.all.items() if job.end_s is None or job.end_s >= limit_s}

    def record(self, job):
        reason = job.held
        if job.state == "PENDING" and not reason:
            reason = "DependencyNeverSatisfied" if job.doomed else "Dependency" if self._unmet(job) else ""
            reason = reason or ("BeginTime" if (job.job.begin_s or 0) > self._now_s else "Priority")
        failed = {"FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit"}
        return SlurmRecord(
            job_id=job.job_id,
            name=job.job.name,
            user="me",
            states=(job.state,),
            submit_s=job.submit_s,
            reason=reason if job.state == "PENDING" else failed.get(job.state, ""),
            eligible_s=job.eligible_s or (float(job.job.begin_s) if job.job.begin_s else None),
            start_s=job.start_s,
            end_s=job.end_s,
            limit_s=job.walltime_s,
            cores=job.job.cores,
            partition="normal",
            exit_code=job.exit_code,
            restarts=job.restarts,
            comment=job.job.comment,
            node_list=job.bad_node if job.start_s is not None else "",
        )

    def _call(self, name):
        self.calls[name] += 1
        self._advance()
        if self.down:
            raise UnavailableError("no controller")

    def _known(self, job_id):
        if job_id not in self.controller:
            raise JobNotFoundError("unknown job")
        return self.all[job_id]

    def _is_listed(self, job):
        return self.now_s >= job.submit_s + self.listing_delay_s

    def _advance(self):
        while self._now_s < int(self.now_s):
            self._now_s += 1
            for job in list(self.all.values()):
                if job.state not in FINAL:
                    self._tick(job)

    def _tick(self, job):
        now_s = self._now_s
        if job.state == "PENDING":
            self._queue_up(job, now_s)
            return
        if job.payload_s is None and all((self.folder / "posts" / token).exists() for token in job.awaits):
            self._begin(job, now_s)
        if job.state in FINAL:
            return
        if job.bad_node and job.payload_s is not None:
            self._end(job, "NODE_FAIL", None)
        elif now_s >= job.start_s + job.walltime_s:
            self._end(job, "TIMEOUT", None)
        elif job.payload_s is not None and now_s >= job.payload_s + job.run_s:
            said = re.search("# ends as ([a-z-]+)", job.job.script)
            self._mark(job, "ended", job.code, said and said[1])
            if job.code == 0 and self.writes_marks:
                for token in job.posted:
                    (self.folder / "posts" / token).parent.mkdir(exist_ok=True)
                    (self.folder / "posts" / token).write_text("")
                self._post_whole(job)
            self._end(job, job.ends_as or ("FAILED" if job.code else "COMPLETED"), job.code)

    def _queue_up(self, job, now_s):
        mates = [self.all[one] for one in self.arrays_of.get(job.array_id, ())]
        if job.at_once and sum(one.state == "RUNNING" for one in mates) >= job.at_once:
            return
        if job.held or (job.job.begin_s or 0) > now_s or self._unmet(job):
            return
        if job.eligible_s is None:
            free = not job.dependencies and not job.job.begin_s and not job.job.held
            job.eligible_s = job.submit_s if free else now_s
        if now_s >= job.eligible_s + self.latency_s:
            job.state, job.start_s = "RUNNING", now_s
            if not job.awaits:
                self._begin(job, now_s)

    def _begin(self, job, now_s):
        if self._is_withdrawn(job):
            self._mark(job, "ended", JobOutcome.GAVE_BACK.exit_code, JobOutcome.GAVE_BACK)
            self._end(job, "FAILED", JobOutcome.GAVE_BACK.exit_code)
            return
        job.payload_s = now_s
        self._mark(job, "began")
        if self._holder(job) not in {"", job.claims_as}:
            job.run_s, job.code, job.posted = 0.0, JobOutcome.DUPLICATE.exit_code, []

    def _holder(self, job):
        claim = self.folder / "marks" / job.token / "claim"
        return str(claim.readlink()) if claim.is_symlink() else ""

    def _is_withdrawn(self, job):
        """Whether the client came first; if not, the job notes that it begins."""
        token = job.token
        if not (token and self.writes_marks):
            return False
        start = self.folder / "marks" / token / "start"
        start.parent.mkdir(exist_ok=True)
        if not start.is_symlink():
            start.symlink_to(job.claims_as)
        return str(start.readlink()) == WITHDRAWN

    def _unmet(self, job):
        for kind, other_id, delay_s, or_end in job.dependencies:
            if other_id in self.arrays_of:
                if any(self.all[one].state not in FINAL for one in self.arrays_of[other_id]):
                    return True
                continue
            other = self.all[other_id]
            if or_end and other.state in FINAL:
                continue
            if kind == "after":
                if other.start_s is None or other.start_s + delay_s > self._now_s:
                    return True
            elif other.state not in FINAL:
                return True
            elif kind == "afterok" and other.state != "COMPLETED":
                job.doomed = True
                return True
        return False

    def _post_whole(self, job):
        if not job.array_id or not job.posted or job.is_member:
            return
        whole = job.posted[0].partition("+/")[0]
        count = int(re.search(r"\ncount=(\d+)", job.job.script)[1])
        if len(list((self.folder / "posts" / f"{whole}+").iterdir())) >= count:
            (self.folder / "posts" / whole).write_text("")

    def _end(self, job, state, code):
        job.state, job.end_s, job.exit_code = state, self._now_s, code

    def _mark(self, job, kind, code=None, outcome=None):
        if not self.writes_marks:
            return
        token = job.token
        marks = self.folder / "marks" / (token or f"job.{job.job_id}")
        marks.mkdir(exist_ok=True)
        if token and not (marks / "claim").is_symlink():
            (marks / "claim").symlink_to(job.claims_as)
        if token and self._holder(job) != job.claims_as:
            return
        if job.array_id and not job.is_member:
            marks /= f"e{job.number}"
            marks.mkdir(exist_ok=True)
        text = f"job={job.seen_as}\nhost=n1\ntime={self._now_s}\n"
        if code is not None:
            text += f"code={code}\nsignals=0\noutcome={outcome or ('failed' if code else 'completed')}\n"
        (marks / kind).write_text(text)


def foreign_record(job_id, **changes):
    """Somebody else's job, as Slurm tells of it."""
    known = SlurmRecord(str(job_id), "theirs", "them", ("PENDING",), BEGIN_S, eligible_s=BEGIN_S, limit_s=3600.0)
    return replace(known, **({"partition": "normal"} | changes))

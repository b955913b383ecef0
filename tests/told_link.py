"""A link to Slurm with answers that a test gives."""

from collections import Counter
from dataclasses import dataclass, field

from asa.backends.slurm.commands import Done
from asa.backends.slurm.link import SlurmAbout, SlurmCluster, SlurmLimits, SlurmNode, SlurmPartition, SlurmRecord

MULTIFACTOR = {"PriorityType": "priority/multifactor", "MinJobAge": "300 sec", "MessageTimeout": "10 sec"}


def nodes(count, cores, *partitions, first=1):
    return [SlurmNode(f"n{first + i}", cores, 2**30, ("IDLE",), partitions) for i in range(count)]


def small_site():
    """Four nodes of 28 cores, in `normal` (the default) and `debug`."""
    return {
        "partitions": [
            SlurmPartition("normal", is_default=True, max_walltime_s=604800.0, nodes=4, cores=112),
            SlurmPartition("debug", max_walltime_s=1800.0, max_nodes=2, nodes=4, cores=112),
        ],
        "nodes": nodes(4, 28, "normal", "debug"),
    }


@dataclass
class ToldLink:
    """Plays Slurm: its clock is `clock_s` plus what is slept.

    `accrues` says how the age of a job on hold is told: True from its submission, False from its begin, None never.
    An exception under a method's name in `fails` is raised by it.
    """

    told_about: SlurmAbout = field(default_factory=lambda: SlurmAbout("a test", "22.05.8", "small", accounting=True))
    told_clusters: list = field(default_factory=list)
    told_settings: dict = field(default_factory=lambda: dict(MULTIFACTOR))
    site: dict = field(default_factory=small_site)
    told_queue: list = field(default_factory=list)
    told_accounting: str = ""
    told_records: list = field(default_factory=list)
    told_limits: list = field(default_factory=lambda: [SlurmLimits({}, user="me", account="mine")])
    accrues: bool | None = None
    accrues_after_s: float = 0.0
    ahead_s: float = 0.0
    look_takes_s: float = 0.004
    fails: dict = field(default_factory=dict)
    changeable: frozenset = frozenset({"held", "walltime_s", "nodes"})
    cancels_by_name: bool = True
    clock_s: float = 1.8e9

    def __post_init__(self):
        self.calls = Counter()
        self.submitted = {}
        self.cancelled = []
        self.closed = False
        self.asked_accounting = []

    def clock(self):
        return self.clock_s

    def sleep(self, seconds):
        self.clock_s += seconds

    def _ask(self, name):
        self.calls[name] += 1
        self.clock_s += self.look_takes_s
        if name in self.fails:
            raise self.fails[name]

    def scrontab(self, *_options, table=""):
        return Done(127, "", "env: scrontab: No such file or directory")

    def clusters(self):
        return self.told_clusters or [self.told_about.cluster]

    def about(self):
        self._ask("about")
        return self.told_about

    def cluster(self):
        return SlurmCluster()

    def settings(self):
        self._ask("settings")
        return self.told_settings

    def limits(self, cluster):
        self._ask("limits")
        return self.told_limits

    def partitions(self):
        self._ask("partitions")
        return self.site["partitions"]

    def nodes(self):
        self._ask("nodes")
        return self.site["nodes"]

    def queue(self):
        self._ask("queue")
        return self.told_queue

    def submit(self, job):
        self.submitted[str(len(self.submitted) + 1)] = job, int(self.clock_s + self.ahead_s)
        self._ask("submit")
        return str(len(self.submitted))

    def jobs(self, job_ids):
        self._ask("jobs")
        return {job_id: self._record(job_id) for job_id in job_ids if job_id in self.submitted}

    def named(self, names):
        self._ask("named")
        return [self._record(job_id) for job_id, (job, _) in self.submitted.items() if job.name in names]

    def recorded(self, names, since_s):
        self._ask("recorded")
        return [one for one in self.told_records if one.name in names and one.submit_s >= since_s]

    def accounting(self, since_s, until_s):
        self._ask("accounting")
        self.asked_accounting.append((since_s, until_s))
        return self.told_accounting

    def holders(self, job_ids):
        self._ask("holders")
        return [self._record(job_id) for job_id in job_ids if job_id in self.submitted]

    def cancel(self, jobs):
        self._ask("cancel")
        assert all(self.submitted[job.job_id][0].name == job.name for job in jobs)
        self.cancelled += [job.job_id for job in jobs]
        return {}

    def close(self):
        self.closed = True

    def _record(self, job_id):
        job, submit_s = self.submitted[job_id]
        known = self.accrues is not None and self.clock_s >= submit_s - self.ahead_s + self.accrues_after_s
        accrue_s = (submit_s if self.accrues else job.begin_s) if known else None
        return SlurmRecord(job_id, job.name, "me", ("PENDING",), submit_s, "JobHeldUser", accrue_s=accrue_s)

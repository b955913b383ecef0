"""A run on a Slurm in memory; the test decides when elements begin, fail and vanish."""

from asa.backends.slurm.backend import SlurmBackend
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import Capabilities
from asa.elements import parse_array
from asa.metrics import measure
from asa.runner import RunFolder, RunPlan, drive
from asa.runner.journal import read_journal

SITE = Capabilities("x", 1120, 28, age_accrues=False, arrays=True, max_array_size=1001)


class World:
    """A run on a Slurm in memory; `codes` says for elements how they end, one after the other."""

    def __init__(self, path, stages, *, strategy="chained", site=SITE, codes=None, works_in="", **link):
        called = ("abcd12345678", "flow", "flow")
        plan = RunPlan(*called, stages, strategy, "slurm-cli", site, folder=works_in, created_s=1.7e9, history=0)
        self.folder, self.clock, self.site = RunFolder.create(path, plan), VirtualClock(), site
        self.link = FakeLink(self.clock, self.folder.path, **link)
        for part in ("marks", "posts"):
            (self.folder.path / part).mkdir(exist_ok=True)
        self.codes = {number: list(ends) for number, ends in (codes or {}).items()}
        self.link.of_element = self._of_element

    def _of_element(self, number, run_s, _):
        ends = self.codes.get(number, [])
        return run_s, ends.pop(0) if ends else 0

    def connect(self, run):
        return SlurmBackend(self.link, run.path, self.site, clock=self.clock, sleep=self.clock.sleep)

    def drive(self, **options):
        return drive(self.folder, self.connect, **options)

    @property
    def entries(self):
        return read_journal(self.folder.path / "journal.jsonl")[0]

    @property
    def asked(self):
        """The elements that were asked for together, in order."""
        jobs = [one for one in self.link.submitted if one.array]
        return [one.array for one in jobs]

    def completed(self, result, elements="1-9"):
        assert result.outcome == "completed", result.reason
        assert self.folder.state()[0].units.elements.completed_of("abcd12345678/b") == parse_array(elements).elements
        measure(self.folder.plan.make_workflow(), result.records)

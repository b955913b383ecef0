"""A run knows its cluster, and stops where another is reached, or where numbers began anew."""

import json
from dataclasses import replace

import pytest
from asa.backends.shell.marks import KeptSubmission
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.cluster import HomeCluster
from asa.backends.slurm.commands import CommandLink, Done
from asa.backends.slurm.link import SlurmCluster
from slurm_fake_link import BEGIN_S, FakeLink, VirtualClock, foreign_record

from asa.backend import CLUSTER_FILE, Capabilities, JobSpec, JobState
from asa.errors import OtherClusterError, SubmitRejectedError, UnavailableError

HERE = SlurmCluster("home", 8, "host port 1")
FIRST = KeptSubmission("fit.0123", "0123", awaits=False, steps=(), kept_back=False, walltime_s=60.0, submit_s=BEGIN_S)
SITE = Capabilities("testbed", 112, 28, age_accrues=False)
DEFAULTS = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False)


class Here(FakeLink):
    """A Slurm that reports a given identity and given jobs."""

    here, shown, away, takes_s = HERE, (), False, 0.0

    def cluster(self):
        self.calls["cluster"] += 1
        if self.away:
            raise UnavailableError("no controller")
        self.clock.now_s += self.takes_s
        return self.here

    def becomes_another(self, name="other"):
        """Replace the commands by those of an empty cluster; return a function that undoes this."""
        was = self.all, self.here, self._next_id
        self.all, self.here, self._next_id = {}, SlurmCluster(name, 500, "there port 1"), 500
        return lambda: vars(self).update(zip(("all", "here", "_next_id"), was, strict=True))

    def _of_numbers(self, job_ids):
        return [record for record in self.shown if record.job_id in job_ids] or super()._of_numbers(job_ids)

    def queue(self):
        return [*super().queue(), *self.shown]


@pytest.fixture
def link(tmp_path):
    return Here(VirtualClock(), tmp_path)


@pytest.fixture
def home(link, tmp_path):
    """Return a function that makes a later client of a run whose first job was number 7."""
    HomeCluster(link, tmp_path, link.clock).submitted("7", FIRST)
    return lambda: HomeCluster(link, tmp_path, link.clock)


def job(number, name="theirs", **changes):
    return foreign_record(number, name=name, **changes)


def test_the_cluster_is_noted_with_the_first_job(home, tmp_path):
    home().submitted("9", replace(FIRST, name="later.4567"))
    assert json.loads((tmp_path / CLUSTER_FILE).read_text()) == {
        "name": "home",
        "address": "host port 1",
        "first_number": 7,
        "first_name": "fit.0123",
        "first_s": BEGIN_S,
    }
    home().check()


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (SlurmCluster("other", 8000, "there port 1"), "this is 'other', and the run is on 'home'"),
        (SlurmCluster("home", 7, "host port 1"), "numbers of jobs began anew: the run's first job was 7"),
        (SlurmCluster("home", 1, "host port 1"), "the next job here gets number 1"),
    ],
)
def test_another_name_and_numbers_that_began_anew_stop_a_run(home, link, here, why):
    link.here = here
    with pytest.raises(OtherClusterError, match=why) as caught:
        home().check()
    assert caught.value.exit_code == 3
    assert "--accept-cluster" in caught.value.hint


@pytest.mark.parametrize("here", [SlurmCluster("home", 9, "elsewhere port 2"), SlurmCluster("", 9, ""), HERE])
def test_what_contradicts_nothing_stops_no_run(home, link, here):
    """For example a controller on another host, or one that lost its latest state and reuses a few numbers."""
    link.here = here
    home().check()


@pytest.mark.parametrize("next_number", [None, 8])
def test_the_number_of_the_first_job_tells(home, link, next_number):
    """By REST the number of the next job is not reported."""
    link.here = replace(HERE, next_number=next_number)
    home().check()
    link.shown = [job(7, "fit.0123")]
    home().check()
    link.shown = [job(7, "renamed", comment="asa:0123")]
    home().check()
    link.shown = [job(7)]
    with pytest.raises(OtherClusterError, match="that number is now the job 'theirs'"):
        home().check()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (job(400, submit_s=BEGIN_S - 3600.0), "job 400 here was submitted before the run's first job"),
        (job(3, submit_s=BEGIN_S + 3600.0), "job 3 was submitted after it"),
        (job(400, submit_s=BEGIN_S - 3600.0, array_id="2"), ""),  # an element, which got its number as it started
        (job(3, submit_s=BEGIN_S + 3600.0, restarts=1), ""),  # requeued
        (job(3, submit_s=BEGIN_S - 3600.0), ""),
        (job(400, submit_s=BEGIN_S + 3600.0), ""),
        (job(3, submit_s=BEGIN_S + 20.0), ""),  # clocks differ
    ],
)
def test_the_order_of_numbers_and_times_tells_another_cluster_of_the_same_name(home, link, record, why):
    """It is checked if none of the run's jobs is known, or the controller is on another host."""
    link.shown = [record]
    link.here = replace(HERE, address="there port 1")
    for compare in (lambda one: one.doubt(lambda: True), HomeCluster.check):
        if why:
            with pytest.raises(OtherClusterError, match=why):
                compare(home())
        else:
            compare(home())


OLD = (job(999_000, submit_s=BEGIN_S - 4000.0), job(999_900, submit_s=BEGIN_S - 900.0))


@pytest.mark.parametrize("next_number", [None, 30])
def test_numbers_that_have_passed_the_highest_stop_no_run(link, tmp_path, next_number):
    """They do so each month where MaxJobId is a million."""
    late = replace(FIRST, submit_s=BEGIN_S - 600.0)
    HomeCluster(link, tmp_path, link.clock).submitted("999950", late)
    link.shown = [*OLD, job(20, submit_s=BEGIN_S)]
    link.here = replace(HERE, next_number=next_number)
    one = HomeCluster(link, tmp_path, link.clock)
    one.check()
    one.submitted("29", replace(FIRST, name="later.4567", submit_s=BEGIN_S + 100.0))
    one.doubt(lambda: True)
    link.clock.sleep(601.0)  # everybody's jobs are not asked for more often
    link.shown = [job(20, submit_s=BEGIN_S)]  # no such job is known: the controller has lost its state
    with pytest.raises(OtherClusterError, match="began anew"):
        one.submitted("29", replace(FIRST, name="later.4567", submit_s=BEGIN_S + 100.0))
    if next_number:
        with pytest.raises(OtherClusterError, match="the next job here gets number 30"):
            HomeCluster(link, tmp_path, link.clock).check()


def test_a_run_that_began_as_numbers_passed_the_highest_is_on_its_cluster(home, link):
    link.shown = [*OLD, job(20, submit_s=BEGIN_S + 10.0)]
    link.here = replace(HERE, address="moved port 1")
    home().check()
    home().doubt(lambda: True)


def test_at_another_address_that_knows_none_of_its_jobs_a_run_stops(home, link):
    link.here = replace(HERE, address="there port 1")
    with pytest.raises(OtherClusterError, match="none of its jobs is known at there port 1; it was on host port 1"):
        home().doubt(lambda: False)
    home().doubt(lambda: True)  # accounting, or a mark, tells of them
    home().doubt(lambda: False)  # from then on this is its address


def test_who_is_in_doubt_asks_for_everybodys_jobs_once_in_ten_minutes(home, link):
    one = home()
    for _ in range(5):
        one.doubt(lambda: False)
        link.clock.sleep(60.0)
    assert link.calls["queue"] == 1


def test_where_nobody_answers_nothing_is_concluded(home, link):
    link.away = True
    home().doubt(lambda: False)
    with pytest.raises(UnavailableError):
        home().check()


def test_a_run_that_noted_no_cluster_goes_on_anywhere(link, tmp_path):
    (tmp_path / CLUSTER_FILE).write_text("{}")
    one = HomeCluster(link, tmp_path, link.clock)
    one.check()
    one.doubt(lambda: False)
    one.confirm(lambda: False)
    assert not link.calls
    one.submitted("3", FIRST)
    assert json.loads((tmp_path / CLUSTER_FILE).read_text())["first_number"] == 3


class AtWork:
    """A client with a pending job, on a cluster that may be exchanged."""

    def __init__(self, link, folder):
        self.link = link
        self.client = SlurmBackend(link, folder, SITE, clock=link.clock, sleep=link.clock.sleep, defaults=DEFAULTS)
        self.waiting = self.submit()
        link.hold_by_admin(self.waiting)
        self.looks(minutes=1)

    def submit(self):
        number = len(self.link.submitted)
        token = f"0123456789ab-{number}-1"
        return self.client.submit(JobSpec("fit", cores=1, walltime_s=3600.0, command="sleep 3000", token=token))

    def looks(self, minutes):
        """Look several times; return what was reported."""
        heard = []
        end_s = self.client.now() + 60 * minutes
        while self.client.now() < end_s:
            heard += self.client.wait(end_s)
        return heard


@pytest.fixture
def at_work(link, tmp_path):
    return AtWork(link, tmp_path)


@pytest.mark.parametrize("name", ["other", "home", ""])
def test_nothing_is_submitted_where_the_cluster_has_become_another(at_work, link, name):
    back = link.becomes_another(name)
    sent = link.calls["submit"]
    with pytest.raises(OtherClusterError) as caught:
        at_work.submit()
    assert "Nothing was touched" in caught.value.hint
    assert link.calls["submit"] == sent
    back()
    at_work.submit()


def test_nothing_is_submitted_while_nobody_says_which_cluster_this_is(at_work, link):
    link.away, sent = True, link.calls["submit"]
    with pytest.raises(UnavailableError):
        at_work.submit()
    assert link.calls["submit"] == sent
    link.away = False
    at_work.submit()


def test_a_job_that_was_submitted_in_that_moment_is_no_evidence_of_home_and_is_named(at_work, link):
    """All that the controller shows of the run is that job."""
    at_work.submit()
    link.becomes_another()
    assert at_work.submit() == "500"
    with pytest.raises(OtherClusterError, match="this is 'other'") as caught:
        at_work.looks(minutes=1)
    assert "Submitted a moment before, perhaps there: 2, 500." in caught.value.hint


def test_a_refusal_of_another_cluster_is_none(at_work, link, monkeypatch):
    """For example of a dependency on a job that it does not know."""
    at_work.submit()

    def refuse(_job):
        link.becomes_another()
        raise SubmitRejectedError("Slurm refuses the job: Job dependency problem")

    monkeypatch.setattr(link, "submit", refuse)
    with pytest.raises(OtherClusterError, match="this is 'other'"):
        at_work.submit()


def test_a_refusal_at_home_is_one(at_work, link, monkeypatch):
    def refuse(_job):
        raise SubmitRejectedError("Slurm refuses the job: Invalid account")

    monkeypatch.setattr(link, "submit", refuse)
    with pytest.raises(SubmitRejectedError, match="Invalid account"):
        at_work.submit()


def test_a_doubt_that_came_to_nothing_puts_none_off(at_work, link):
    known, link.all = link.all, {}
    at_work.looks(minutes=0.4)
    assert link.calls["queue"] == 1
    link.all = known
    at_work.looks(minutes=1)
    link.becomes_another()
    with pytest.raises(OtherClusterError, match="this is 'other'"):
        at_work.looks(minutes=5)


def test_no_job_is_taken_for_gone_by_what_another_cluster_says(at_work, link):
    """Even where that shows another job which seems to be of the run."""
    shown = at_work.submit()
    at_work.looks(minutes=1)
    ours = link.all[shown]
    link.becomes_another()
    link.all[shown] = ours
    with pytest.raises(OtherClusterError, match="this is 'other'"):
        at_work.looks(minutes=15)


def test_a_job_is_taken_for_gone_at_home(at_work, link):
    at_work.submit()
    link.forget(at_work.waiting)
    assert at_work.waiting in {one.job_id for one in at_work.looks(minutes=3) if one.state is JobState.FAILED}


def test_no_job_is_taken_for_cancelled_by_what_another_cluster_says(at_work, link):
    link.becomes_another()
    with pytest.raises(OtherClusterError):
        at_work.client.cancel(at_work.waiting)


@pytest.mark.parametrize(("takes_s", "most"), [(0.0, 33), (1.0, 4), (30.0, 2)])
def test_asking_which_cluster_this_is_takes_little_of_the_time_of_submitting(link, home, takes_s, most):
    """Also through ssh."""
    one, link.takes_s, began_s = home(), takes_s, link.clock()
    while link.clock() - began_s < 62.0:
        one.confirm(lambda: True, before=True)
        link.clock.sleep(0.1)
    assert 1 <= link.calls["cluster"] <= most


def test_a_client_at_work_stops_where_its_job_is_anothers_now(link, tmp_path):
    client = SlurmBackend(link, tmp_path, SITE, clock=link.clock, sleep=link.clock.sleep, defaults=DEFAULTS)
    job_id = client.submit(JobSpec("fit", cores=1, walltime_s=3600.0, command="sleep 3000", token="0123456789ab-0-1"))
    client.wait(client.now() + 60)
    mine = link.forget(job_id)
    link.shown = [job(job_id)]
    with pytest.raises(OtherClusterError, match="that number is now the job 'theirs'"):
        client.wait(client.now() + 600)
    assert link.calls["cancel"] == 0
    link.shown, link.all[job_id] = (), mine


TOLD = """\
BOOT_TIME               = 2026-11-28T05:23:46
ClusterName             = testbed
NEXT_JOB_ID             = 42
SlurmctldHost[0]        = vm(127.0.0.1)
SlurmctldPort           = 24280
Slurmctld(primary) at vm is UP
"""


def test_the_commands_tell_which_cluster_it_is():
    link = CommandLink(run=lambda *_: Done(0, f"Welcome!\n{TOLD}"))
    assert link.cluster() == SlurmCluster("testbed", 42, "vm(127.0.0.1) port 24280")


@pytest.mark.parametrize("end", ["BOOT", "tbed", "2\nSlurmctldHost", "280\nSlurmctld(p"])
def test_what_is_cut_off_names_no_other_cluster(end):
    """Otherwise a name such as 'tes', or a next number 4, would end a run."""
    link = CommandLink(run=lambda *_: Done(0, TOLD[: TOLD.index(end)]))
    with pytest.raises(UnavailableError, match="empty or cut off"):
        link.cluster()

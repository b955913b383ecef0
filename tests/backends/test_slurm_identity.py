"""A job is changed only if its number is found to be that of the right job at that moment."""

import itertools
from dataclasses import replace

import pytest
from asa.backends.slurm.backend import JobDefaults, SlurmBackend
from asa.backends.slurm.commands import CommandLink, Done
from asa.backends.slurm.commands.cancelling import not_cancelled
from asa.backends.slurm.link import IdentifiedJob
from slurm_fake_link import FakeLink, VirtualClock

from asa.backend import CLUSTER_FILE, Capabilities, JobSpec
from asa.elements import parse_array
from asa.errors import BackendError, JobNotFoundError, OtherClusterError, UnavailableError

TOKEN = "0123456789ab-0-1"
SITE = Capabilities("testbed", 112, 28, age_accrues=False, arrays=True, max_array_size=1001)
DEFAULTS = JobDefaults(environment={"PATH": "/usr/bin:/bin"}, inherit=False)
CHANGES = {
    "cancel": lambda backend, job_id: backend.cancel(job_id),
    "hold": lambda backend, job_id: backend.hold(job_id),
    "release": lambda backend, job_id: backend.release(job_id),
    "change_walltime": lambda backend, job_id: backend.change_walltime(job_id, 60.0),
    "shrink": lambda backend, job_id: backend.shrink(job_id, 1),
}


def spec(**changes):
    return JobSpec(**{"name": "fit", "cores": 1, "walltime_s": 3600.0, "command": "sleep 100", **changes})


class Place:
    """A Slurm in memory, and clients of one run, in one folder."""

    def __init__(self, folder):
        self.clock, self.folder = VirtualClock(), folder
        self.link = FakeLink(self.clock, folder)

    def client(self):
        return SlurmBackend(self.link, self.folder, SITE, clock=self.clock, sleep=self.clock.sleep, defaults=DEFAULTS)

    def begin_anew(self, *names):
        """Make Slurm lose all jobs, and give others' jobs numbers from 1 on."""
        self.link.all, self.link._next_id = {}, 1
        return [self.link.submit(replace(self.link.submitted[-1], name=name, comment="")) for name in names]

    def changes(self):
        return [self.link.calls[name] for name in ("cancel", "update")]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_same_client", [True, False], ids=["same client", "later client"])
def test_a_number_that_is_anothers_by_now_is_not_changed(place, name, is_same_client):
    """Even if the other job is the same user's, and whichever operation it is."""
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    [theirs] = place.begin_anew("strangers")
    assert theirs == job_id
    client = client if is_same_client else place.client()
    change = CHANGES[name]
    if name == "cancel":
        with pytest.raises(OtherClusterError, match="that number is now the job 'strangers'"):
            change(client, job_id)  # nothing that is heard there is believed
    else:
        with pytest.raises(JobNotFoundError, match="another job now, 'strangers'"):
            change(client, job_id)
    assert place.changes() == [0, 0]
    assert place.link.all[theirs].state in {"PENDING", "RUNNING"}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_ours_is_changed_by_whoever_comes_later(place, name):
    job_id = place.client().submit(spec(token=TOKEN))
    CHANGES[name](place.client(), job_id)
    assert sum(place.changes()) == 1


def test_a_job_that_was_renamed_is_known_by_its_comment(place):
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    job = place.link.all[job_id]
    job.job = replace(job.job, name="renamed")
    client.cancel(job_id)
    assert job.state == "CANCELLED"


def test_a_job_of_another_user_is_not_ours_whatever_its_name(place):
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    client.status([job_id])
    place.clock.sleep(5.0)
    client.wait(client.now() + 5)
    ours = place.link.record(place.link.all.pop(job_id))
    place.link.foreign = [replace(ours, user="them")]
    client.cancel(job_id)
    assert place.changes() == [0, 0]


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "hidden"])
def test_a_number_that_is_another_users_by_now_is_cancelled_no_more(place, is_shown):
    """Commands select only this user's jobs, and Slurm does not report that the number is another user's."""
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    client.status([job_id])
    (place.folder / CLUSTER_FILE).unlink()
    client = place.client()
    client.status([job_id])
    theirs = replace(place.link.record(place.link.all.pop(job_id)), name="strangers", comment="", user="them")
    place.link.foreign = [theirs]
    place.link.holders = lambda job_ids: [theirs] if is_shown else []
    assert client.cancel_all([job_id]) == {}
    assert place.changes() == [0, 0]


def test_a_job_of_another_run_of_the_same_user_is_not_ours(place, tmp_path):
    theirs = place.client().submit(spec(token=TOKEN))
    (tmp_path / "other").mkdir()
    other = SlurmBackend(place.link, tmp_path / "other", SITE, clock=place.clock, defaults=DEFAULTS)
    with pytest.raises(JobNotFoundError, match="another job now"):
        other.cancel(theirs)
    assert place.changes() == [0, 0]


def test_an_array_is_cancelled_only_if_its_elements_are_ours(place):
    client = place.client()
    job_id = client.submit(spec(token=TOKEN, array=parse_array("1-3")))
    client.cancel(job_id)
    assert {job.state for job in place.link.all.values()} == {"CANCELLED"}
    before = place.link.calls["cancel"]
    place.begin_anew("strangers", "strangers", "strangers")
    with pytest.raises(OtherClusterError):
        place.client().cancel_all([job_id])
    (place.folder / CLUSTER_FILE).unlink()
    place.client().cancel_all([job_id])
    assert place.link.calls["cancel"] == before


def test_a_job_that_was_accepted_a_moment_ago_is_cancelled_before_slurm_shows_it(place):
    place.link.listing_delay_s = 5.0
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    client.cancel(job_id)
    assert place.link.all[job_id].state == "CANCELLED"


def test_where_a_cancellation_has_no_name_slurm_has_to_show_the_job_first(place):
    """Its number may be another's by now: a controller that lost its state may answer with nothing, too."""
    place.link.listing_delay_s, place.link.cancels_by_name = 5.0, False
    client = place.client()
    job_id = client.submit(spec(token=TOKEN))
    for change in (client.cancel, client.release):
        with pytest.raises(UnavailableError, match="does not show the job yet"):
            change(job_id)
    assert place.changes() == [0, 0]
    place.clock.sleep(6.0)
    client.cancel(job_id)
    assert place.link.all[job_id].state == "CANCELLED"


def test_many_are_cancelled_by_two_calls(place):
    client = place.client()
    job_ids = [client.submit(spec(token=f"0123456789ab-{n}-1")) for n in range(40)]
    place.link.forget(job_ids[7])
    before = place.link.calls.total()
    assert client.cancel_all(job_ids) == {}
    assert place.link.calls["holders"] == place.link.calls["cancel"] == 1
    assert place.link.calls.total() <= before + 4  # whose cluster this is, and of the one that it does not show
    assert {job.state for job in place.link.all.values()} == {"CANCELLED"}


# ---------------------------------------------------------------------- what scancel is asked, and what it says


def test_as_many_numbers_as_there_are_go_into_command_lines():
    """A system takes 128 kB for an argument."""
    asked = []

    def run(command, *_):
        asked.append(list(command))
        return Done(0)

    link = CommandLink(run=run)
    numbers = [str(number) for number in range(100_000, 116_000)]
    assert link.cancel([IdentifiedJob(number, f"x.{number}") for number in numbers]) == {}
    assert link.jobs(numbers) == link.past(numbers) == {}
    assert link.holders(numbers) == []
    link.named([f"a_long_name_of_a_stage.{number}" for number in numbers])
    assert max(len(word) for command in asked for word in command) < 100_000
    assert max(sum(len(word) + 9 for word in command) for command in asked) < 1_000_000
    cancelled = [command[command.index("-v") + 1 :] for command in asked if "scancel" in command]
    assert list(itertools.chain.from_iterable(cancelled)) == numbers


def test_one_job_is_cancelled_under_its_name():
    asked = []
    link = CommandLink(run=lambda command, *_: asked.append(list(command)) or Done(0))
    link.cancel([IdentifiedJob("7", "fit.0123")])
    assert asked[0][-3:] == ["-v", "--name=fit.0123", "7"]


def test_what_scancel_says_of_each_job():
    said = (
        "scancel: Terminating job 1\n"
        "scancel: error: Kill job error on job id 2: Job/step already completing or completed\n"
        "scancel: error: Kill job error on job id 3: Invalid job id specified\n"
        "scancel: error: Kill job error on job id 4_[1-3]: Access/permission denied\n"
        "scancel: error: Kill job error on job id 5: Socket timed out on send/recv operation\n"
    )
    left = not_cancelled([IdentifiedJob(number, "x") for number in "12345"], Done(0, stderr=said))
    assert {number: type(error) for number, error in left.items()} == {
        "3": JobNotFoundError,
        "4": BackendError,
        "5": UnavailableError,
    }


@pytest.mark.parametrize("returncode", [0, 1])
def test_a_job_that_has_another_name_by_now_is_left_alone_by_scancel_itself(returncode):
    """Slurm 22.05 writes both lines, and later versions one, or ends with 0."""
    said = (
        "scancel: error: Kill job error on job id 7: Invalid job id specified\n"
        "scancel: error: No active jobs match ALL job filters, including: job_name=fit.0123 \n"
    )
    assert not_cancelled([IdentifiedJob("7", "fit.0123")], Done(returncode, stderr=said)) == {}


def test_where_scancel_could_not_ask_no_job_was_cancelled():
    said = "scancel: error: slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    left = not_cancelled([IdentifiedJob("7", "x"), IdentifiedJob("8", "x")], Done(1, stderr=said))
    assert {number: type(error) for number, error in left.items()} == dict.fromkeys("78", UnavailableError)


def test_a_job_that_its_user_names_is_changed_as_ones_own(place):
    """For example that of a resizable program; once another job has the number, it is not changed."""
    client = place.client()
    client.submit(spec(token=TOKEN))
    job_id = place.link.submit(replace(place.link.submitted[-1], name="solver", comment=""))
    with pytest.raises(JobNotFoundError):
        client.change_walltime(job_id, 60.0)
    client.take_up(job_id)
    client.change_walltime(job_id, 60.0)
    assert place.link.calls["update"] == 1
    place.link.all[job_id].job = replace(place.link.all[job_id].job, name="theirs")
    with pytest.raises(JobNotFoundError):
        client.change_walltime(job_id, 120.0)
    with pytest.raises(JobNotFoundError, match="no job of yours"):
        client.take_up("4711")

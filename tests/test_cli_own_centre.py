"""The simulated centre of `asa compare` that has the size of the saved site, and waits like those in the bank."""

import re

import numpy as np
import pytest
from asa.backends.simulated.alike import MAX_CORES, MIN_WAITS, centre_like
from asa.backends.simulated.machine import Machine

from asa.cli.own_centre import own_centre
from asa.estimators.store import WaitStore
from asa.estimators.stored import WaitRecord
from asa.waits import QueuedJob, exactly

SITE = """\
backend = "slurm-cli"
[observed]
cluster = "lab"
partition = "batch"
cores = 1280
cores_per_node = 64
whole_nodes = true
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home with a saved site, and without a bank."""
    monkeypatch.setenv("ASA_SITES", str(tmp_path / "sites"))
    monkeypatch.setenv("ASA_BANK", str(tmp_path / "bank"))
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "lab.toml").write_text(SITE)
    return tmp_path


def learned(home, count, wait_s, *, system="lab", partition="batch"):
    with WaitStore(home / "bank") as store:
        store.extend(
            WaitRecord(QueuedJob(1e9 + i, (4, 64)[i % 2], 7200.0, "me", system, partition), exactly(wait_s), id=f"{i}")
            for i in range(count)
        )


def test_it_has_the_size_of_the_saved_site(home):
    centre = own_centre()
    assert centre.model.machine == Machine("lab", 20, 64, whole_nodes=True)
    assert centre.text == (
        "a model of the saved site lab with 1,280 cores of partition batch, at the load of a usual centre (91 %), "
        "since the bank has none of its waits (asa learn)"
    )


def test_what_the_user_says_of_the_site_comes_first(home):
    (home / "sites" / "lab.toml").write_text(f'system = "ours"\npartition = "long"\ncores_per_node = 32\n{SITE}')
    centre = own_centre()
    assert centre.model.machine == Machine("ours", 40, 32, whole_nodes=True)
    assert "of partition long, " in centre.text


def test_without_a_site_or_its_size_there_is_none(home, capsys):
    path = home / "sites" / "lab.toml"
    path.write_text(SITE.replace("cores = 1280\n", ""))
    assert own_centre() is None, "as saved by earlier versions"
    path.write_text(SITE.replace("1280", '"many"'))
    assert own_centre() is None
    path.write_text("backend = \n")
    assert own_centre() is None
    assert "Note: the saved site is not simulated" in capsys.readouterr().err
    path.unlink()
    assert own_centre() is None
    assert capsys.readouterr().err == ""


def test_jobs_wait_there_as_in_the_bank(home):
    learned(home, MIN_WAITS + 10, 1800.0)
    text = own_centre().text
    found = re.search(r"at a load of (\d+) %: jobs wait (\S+) on average, and 30m00s in 40 waits in the bank", text)
    assert found, text
    assert 30 <= int(found[1]) < 96


def test_waits_that_no_load_gives_are_told(home):
    learned(home, MIN_WAITS, 30 * 86400.0)
    assert own_centre().text.endswith(", which is far off: asa worth simulates a copy of the site")


@pytest.mark.parametrize("of", [{"system": "other"}, {"partition": "debug"}])
def test_waits_elsewhere_do_not_count(home, of):
    learned(home, MIN_WAITS + 10, 1800.0, **of)
    assert "the bank has none of its waits" in own_centre().text


@pytest.mark.full
def test_longer_waits_are_of_a_higher_load():
    geometry = np.array([[4.0, 3600.0], [32.0, 7200.0]] * MIN_WAITS)

    def load(wait_s):
        return centre_like(Machine("m", 20, 64), np.column_stack([geometry, np.full(len(geometry), wait_s)]))

    quiet, usual, busy = (load(wait_s) for wait_s in (0.0, 1200.0, 1e6))
    assert quiet.model.load < usual.model.load <= busy.model.load
    assert 0.25 < usual.modelled_s / usual.known_s < 4
    assert usual.model == load(1200.0).model, "the same on each call"


def test_of_a_large_machine_a_part_is_simulated():
    made = centre_like(Machine("m", 2000, 128), np.empty((0, 3)))
    assert made.model.machine.cores == MAX_CORES
    assert made.waits == 0
    assert centre_like(Machine("tiny", 1, 2), np.empty((0, 3))).model.log2_widest == 1.0

"""Several runs of one user on one pool, which a command keeps: on this machine, with real workers."""

import json
import signal

import pytest

pytest.importorskip("distributed", reason="dask.distributed is not installed")

from slurm_testbed import until
from this_machine import Place

from asa.core import owned
from asa.errors import InputError, OwnerError, UnavailableError
from asa.pool import joining
from asa.pool.joining import JOINED, Contact, contact_of, join

POOL = ("--strategy", "pool")
FLOW = (("a", "", "echo $RUN-a >>did"), ("b", "a", "sleep 0.3; echo $RUN-b >>did"))


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, cores=2)
    yield made
    made.close()


def keep(place, *more):
    """Keep a pool as a user does, and have the runs that follow join it."""
    folder = place.root / "kept"
    pool = place.begin("pool", folder, "--maximum", "2", *place.on, *more)
    until(lambda: (folder / "contact.json").exists() or pool.poll() is not None, what="the pool")
    place.environment[JOINED] = str(folder)
    return folder, pool


@pytest.mark.full
def test_runs_of_one_workflow_share_a_pool_and_each_does_its_own_work(place):
    """Their tasks have the same names, and neither takes the other's results; all of them have one job."""
    folder, pool = keep(place)
    flow = place.flow(*FLOW)
    for run in ("one", "two"):
        place.environment["RUN"] = run
        place.asa("run", flow, "--name", run, *place.on, *POOL)
    assert len(place.lines()) == 4
    assert {stage["state"] for run in ("one", "two") for stage in place.status(run)["stages"]} == {"done"}
    assert len(place.jobs()) == 1
    pool.send_signal(signal.SIGINT)
    assert pool.wait() == 0
    assert not (folder / "contact.json").exists()
    assert "unset ASA_POOL" in place.asa("run", flow, *place.on, *POOL, code=2).stderr


def test_a_pool_of_fewer_cores_than_one_of_its_jobs_is_refused(place):
    refused = place.asa("pool", place.root / "kept", "--maximum", "1", "--cores", "2", *place.on, code=2)
    assert "--maximum 1" in refused.stderr


@pytest.mark.full
def test_a_pool_ends_when_no_run_has_been_there(place):
    _, pool = keep(place, "--idle", "3s")
    assert pool.wait() == 0


@pytest.mark.full
def test_a_run_whose_pool_ends_says_so_and_goes_on_on_one_of_its_own(place):
    """What had completed does not run again."""
    _, pool = keep(place)
    flow = place.flow(("a", "", "echo a >>did"), ("b", "a", "[ -e go ] || sleep 120; echo b >>did"))
    run = place.begin("run", flow, "--name", "orphan", *place.on, *POOL)
    until(lambda: place.lines() == ["a"], what="the first stage")
    pool.send_signal(signal.SIGINT)
    assert pool.wait() == 0
    _, errors = run.communicate()
    assert run.returncode == 1
    assert "the pool has ended" in " ".join(errors.split())
    assert "Traceback" not in errors
    (place.root / "go").touch()
    del place.environment[JOINED]
    assert "completed in" in place.asa("resume", "orphan").stdout
    assert place.lines() == ["a", "b"]


def made(folder, **changed):
    contact = {"address": "tls://127.0.0.1:1", "system": "here", "cores": 2, "resources": {"cores": 2.0}} | changed
    folder.mkdir(mode=0o700)
    (folder / "contact.json").write_text(json.dumps(contact))
    return folder


def test_a_pool_that_is_gone_is_named(tmp_path, monkeypatch):
    """Neither its folder, nor its file, nor its scheduler; nor is the file damaged."""
    with pytest.raises(InputError, match="keeps no pool"):
        contact_of(tmp_path / "none")
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(InputError, match="keeps no pool"):
        contact_of(tmp_path / "empty")
    with pytest.raises(InputError, match="keeps no pool"):
        contact_of(made(tmp_path / "old", later=1))
    folder = made(tmp_path / "gone")
    assert contact_of(folder) == Contact("tls://127.0.0.1:1", "here", 2, {"cores": 2.0})
    monkeypatch.setattr(joining, "_TIMEOUT_S", 1)
    with pytest.raises(UnavailableError, match="does not answer"):
        join(folder)


def test_nobody_joins_a_pool_of_another_user(tmp_path, monkeypatch):
    """Its scheduler could hand back Python objects of that user's making."""
    folder = made(tmp_path / "theirs")
    monkeypatch.setenv("ASA_TRUSTED", str(tmp_path / "nothing"))
    monkeypatch.setattr(owned, "whose", lambda _: "bob")
    monkeypatch.setattr(owned, "_mine_there", lambda _: -1)
    with pytest.raises(OwnerError, match="bob"):
        contact_of(folder)

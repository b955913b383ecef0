"""Notifications of a run: by a command, by mail; once each, and never harmful to the run."""

import os
import time

import pytest
from slurm_testbed import until
from this_machine import Place

from asa.runner import RunFolder
from asa.runner import notify as module
from asa.runner.notify import Notifier

COMMAND = '{ echo "$ASA_EVENT"; cat; } >>told'


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def told(place):
    path = place.root / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_the_end_is_told(place):
    place.asa("run", place.flow(("a", "", "true")), *place.on, "--notify", COMMAND)
    (run,) = place.runs()
    assert told(place) == ["completed", f"{run.name} has completed"]
    place.asa("resume", run)
    place.asa("tick", run)
    assert len(told(place)) == 2, "once"


def test_a_failure_is_told_while_the_run_goes_on(place):
    flow = place.flow(("a", "", "exit 3"), ("b", "a", "true"), ("c", "", "until [ -e go ]; do sleep 0.1; done"))
    client = place.begin("run", flow, *place.on, "--notify", COMMAND, "--strategy", "per-stage")
    until(lambda: len(told(place)) == 2)
    assert told(place)[0] == "stage-failed"
    assert "stage 'a' ended as failed" in told(place)[1]
    (place.root / "go").touch()
    assert client.wait() == 1
    assert told(place)[2] == "failed"
    assert len(told(place)) == 4


def test_an_address_gets_a_mail(place):
    (place.root / "bin").mkdir()
    mail = place.root / "bin" / "mail"
    mail.write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} >{place.root}/mailed\n')
    mail.chmod(0o755)
    place.environment["PATH"] = f"{place.root / 'bin'}:{os.environ['PATH']}"
    (place.root / "sites").mkdir()
    spool = place.root / "spool"
    text = f'backend = "local"\ncores = 4\nspool = "{spool}"\nnotify = "ann@example.org"\n'
    (place.root / "sites" / "here.toml").write_text(text)
    place.asa("run", place.flow(("a", "", "true")), "--site", "here")
    name = place.runs()[0].name
    first, second = (place.root / "mailed").read_text().splitlines()
    assert first == f"-s {name} has completed ann@example.org"
    assert second == f"{name} has completed"


def test_who_cannot_be_told_harms_no_run(place):
    place.asa("run", place.flow(("a", "", "true")), *place.on, "--notify", "echo no >&2; exit 4")
    assert (
        "could not tell 'echo no >&2; exit 4' of completed: exit code 4 no"
        in (place.runs()[0] / "client.log").read_text()
    )


def test_that_nothing_moves_is_told_once(place, monkeypatch):
    client = place.begin("run", place.flow(("a", "", "sleep 60")), *place.on, "--notify", COMMAND)
    until(lambda: place.runs() and RunFolder(place.runs()[0]).state()[0].jobs)
    client.kill()
    client.wait()
    folder = RunFolder(place.runs()[0])
    notifier = Notifier(folder)
    notifier.look(folder.state()[0])
    assert told(place) == []
    monkeypatch.setattr(module, "STUCK_S", 100.0)
    ago_s = time.time() - 101.0
    os.utime(folder.path / "journal.jsonl", (ago_s, ago_s))
    for _ in range(3):
        Notifier(folder).look(folder.state()[0])
    assert told(place)[0] == "stuck"
    assert "no news of its jobs since" in told(place)[1]
    assert len(told(place)) == 2

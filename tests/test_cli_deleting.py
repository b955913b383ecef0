"""`asa runs --delete`: what ended long ago goes; what may still be at work stays."""

import json
import os
import time
from types import SimpleNamespace

import pytest
from slurm_testbed import until
from this_machine import Place

from asa.cli import deleting

DAY_S = 86400.0


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


def completed(place, name, days):
    place.asa("run", place.flow(("a", "", "true"), name=name), *place.on, "--quiet")
    return aged(named(place, name), days)


def named(place, name):
    return next(run for run in place.runs() if run.name.startswith(f"{name}-"))


def aged(run, days):
    for path in (run / "journal.jsonl", run):
        os.utime(path, (time.time() - days * DAY_S,) * 2)
    return run


def test_only_what_is_old_and_has_ended_is_deleted(place):
    """After the user has agreed; a damaged run stays, as it cannot be seen whether it has ended."""
    old, young, damaged = completed(place, "old", 40), completed(place, "young", 20), completed(place, "damaged", 50)
    (damaged / "run.json").write_text("{}")
    aged(damaged, 50)
    refused = place.asa("runs", "--delete", "--older", "30d", code=2)
    assert f"{old.name}  ended 40d" in refused.stdout
    assert "would delete 1 run" in refused.stderr
    assert len(place.runs()) == 3
    told = json.loads(place.asa("runs", "--delete", "--older", "30d", "--yes", "--output", "json").stdout)
    assert told["deleted"] == [old.name]
    assert [kept["run"] for kept in told["kept"]] == [damaged.name]
    assert sorted(path.name for path in old.parent.iterdir()) == sorted([young.name, damaged.name])
    assert "Nothing was deleted" in place.asa("runs", "--delete", "--older", "30d", "--yes").stderr


def test_a_run_that_goes_on_is_kept_with_and_without_its_client(place):
    client = place.begin("run", place.flow(("a", "", "echo a >>did; sleep 100"), name="live"), *place.on)
    until(place.lines, what="the job")
    live = named(place, "live")

    def told():  # again if the client has just written to the journal, which then is no longer old
        return f"{aged(live, 40).name}  kept: it is driven by" in place.asa("runs", "--delete", "--older", "30d").stdout

    until(told, what="a run that is kept")
    client.kill()
    client.communicate()
    assert f"{aged(live, 40).name}  kept: it has not ended" in place.asa("runs", "--delete", "--older", "30d").stdout
    assert (live / "run.json").exists()


@pytest.mark.parametrize(
    ("unfinished", "intents", "doubtful_s", "kept"),
    [
        ((), {}, {}, ""),
        (["7"], {}, {}, "1 job of it may still be in the queue"),
        ((), {"t": 0}, {}, "not known whether"),
        ((), {}, {"t": 60.0}, "not known whether"),
        ((), {}, {"t": 2 * DAY_S}, ""),
    ],
)
def test_a_run_whose_jobs_may_be_there_is_kept(tmp_path, monkeypatch, unfinished, intents, doubtful_s, kept):
    """Though it has ended, as one that was cancelled while the batch system did not answer."""
    doubtful = {token: time.time() - ago_s for token, ago_s in doubtful_s.items()}
    jobs = SimpleNamespace(
        unfinished=lambda: unfinished, open_intents=intents, doubtful=doubtful, has_sent=lambda token: False
    )
    state = SimpleNamespace(outcome="cancelled", jobs=jobs)
    folder = SimpleNamespace(path=tmp_path, check_own=lambda: None, driver=lambda: None, state=lambda: (state, []))
    found = deleting._needed(folder)
    assert kept in found if kept else not found


def test_what_an_interrupted_command_left_goes_with_the_next(place):
    run = completed(place, "old", 40)
    left = run.with_name(".deleted-other")
    (left / "logs").mkdir(parents=True)
    place.asa("runs", "--delete", "--older", "90d", "--yes")
    assert not left.exists()
    assert run.exists()


@pytest.mark.parametrize("options", [["--delete"], ["--delete", "--older", "soon"], ["--older", "30d"]])
def test_what_cannot_be_meant_is_refused(place, options):
    run = completed(place, "old", 40)
    assert "Give --delete" in (told := place.asa("runs", *options, "--yes", code=2).stderr) or "--older 30d" in told
    assert run.exists()

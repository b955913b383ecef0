"""Stages that run in legs, on this machine's queue: the result of one long run, whoever is killed."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from slurm_testbed import until
from this_machine import Place

from asa.runner.journal import read_journal

PROGRAM = """\
n=`cat step 2>/dev/null` || n=0
stop=
trap stop=1 USR1
echo "leg $ASA_LEG from $n"
while [ $n -lt {upto} ]; do
  echo $n >>did; sleep 0.2; n=$((n+1))
  [ -z "$stop" ] || {{ echo $n >.step; mv .step step; exit 85; }}
done
echo $n >step
"""


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, cores=2)
    made.environment["ASA_LEG_LOOK_S"] = "0.2"
    yield made
    made.close()


def flow(place, *, upto=60, walltime="12s", more='warn = "USR1@3s"'):
    (place.root / "train.sh").write_text(PROGRAM.format(upto=upto))
    (place.root / "flow.toml").write_text(
        f'name = "flow"\n[[stage]]\nname = "train"\ncores = 1\nwalltime = "{walltime}"\ncommand = "sh train.sh"\n'
        f'continues = true\nprogress = "step"\n{more}\n'
        '[[stage]]\nname = "test"\ncores = 1\nwalltime = "1min"\nafter = ["train"]\ncommand = "cat step >after"\n'
    )
    return "flow.toml"


def check(place, upto=60):
    """Check that every step was done, in order, and that each leg continued from the previous one's state."""
    steps = [int(word) for word in place.lines()]
    assert set(steps) == set(range(upto))
    assert place.lines("after") == [str(upto)]
    return [before - after + 1 for before, after in pairwise(steps) if after != before + 1]


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["per-stage", "chained", "asa-plan"])
def test_it_goes_on_from_leg_to_leg(place, strategy):
    place.asa("run", flow(place), *place.on, "--strategy", strategy)
    assert check(place) == [], "what was saved is not done again"
    said = place.asa("logs", "train").stdout
    assert "leg 1 from 0" in said
    assert "leg 2 from" in said, "each leg's output is kept"


@pytest.mark.full
def test_the_status_tells_of_its_legs(place):
    client = place.begin("run", flow(place, upto=120), *place.on, "--strategy", "chained")

    def legs():
        return place.status()["stages"][0].get("legs") if place.runs() else None

    until(lambda: (legs() or {}).get("leg") == 2)
    found = legs()
    assert found["worked_s"] > 5
    assert found["shown"].isdecimal()
    assert "leg 2" in place.asa("status").stdout
    assert "It runs in legs: leg 2" in " ".join(place.asa("explain", "train").stdout.split())
    client.wait(60)
    assert check(place, 120) == []


def test_a_client_that_is_killed_is_followed_by_another(place):
    client = place.begin("run", flow(place, upto=90), *place.on, "--strategy", "asa-plan")
    until(lambda: len(place.lines()) > 5)
    client.kill()
    client.communicate()
    time.sleep(15.0)  # meanwhile the leg has ended
    place.asa("resume")
    assert check(place, 90) == []


@pytest.mark.full
def test_a_leg_that_is_killed_is_a_failure_and_a_retry_goes_on_from_what_was_saved(place):
    client = place.begin("run", flow(place, upto=90), *place.on, "--strategy", "per-stage")
    until(lambda: place.lines("step"))
    time.sleep(2.0)
    kill(place)
    client.wait(60)
    assert place.states()["train"] == "failed"
    place.asa("resume", "--retry")
    assert len(check(place, 90)) == 1


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["asa-plan", "per-stage"])
def test_without_a_warning_its_walltime_ends_a_leg(place, strategy):
    program = "n=`cat step 2>/dev/null` || n=0\nwhile [ $n -lt 60 ]; do n=$((n+1)); echo $n >step; sleep 0.2; done\n"
    name = flow(place, walltime="8s", more="")
    (place.root / "train.sh").write_text(program)
    place.asa("run", name, *place.on, "--strategy", strategy)
    assert place.lines("after") == ["60"]
    assert len(list((place.runs()[0] / "tasks" / "train" / "0").glob("at.*"))) <= 4


@pytest.mark.full
def test_a_next_leg_that_is_killed_before_its_turn_is_asked_for_in_its_turn(place):
    """The running leg ignores requests to end; its walltime ends it, and it has saved its state regularly."""
    name = flow(place, walltime="14s", more='warn = "USR1@4s"')
    program = "trap : USR1\nn=`cat step 2>/dev/null` || n=0\n"
    program += "while [ $n -lt 100 ]; do n=$((n+1)); echo $n >step; sleep 0.2; done\n"
    (place.root / "train.sh").write_text(program)
    client = place.begin("run", name, *place.on, "--strategy", "asa-plan")
    until(lambda: place.runs() and len(list(place.runs()[0].glob("marks/*l2/began"))) == 1)
    mark = next(place.runs()[0].glob("marks/*l2"))
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes() if path.exists() else b""
        if mark.name.encode() in words and b"asa_leg=2" not in words:
            os.kill(int(path.parent.name), signal.SIGKILL)
    client.wait(120)
    assert place.status()["state"] == "completed"
    assert place.lines("after") == ["100"]


def test_who_comes_back_when_all_is_done_hears_of_each_leg(place):
    client = place.begin("run", flow(place, upto=70), *place.on, "--strategy", "chained")
    until(lambda: place.runs() and list(place.runs()[0].glob("marks/*l2")))
    client.kill()
    client.communicate()
    until(lambda: place.lines("step") == ["70"])
    place.asa("resume")
    legs = place.status()["stages"][0]["legs"]
    assert legs["leg"] == 2
    assert legs["worked_s"] > 14
    assert check(place, 70) == []


def test_an_exit_code_that_means_something_else_of_a_job_is_a_failure(place):
    name = flow(place)
    (place.root / "train.sh").write_text("echo b >>did; exit 90\n")
    place.asa("run", name, *place.on, "--strategy", "per-stage", code=1)
    assert place.lines() == ["b"]


def test_a_stage_that_is_not_done_after_its_legs_has_failed(place):
    place.asa("run", flow(place, more='warn = "USR1@3s"\nmax_legs = 1'), *place.on, "--strategy", "per-stage", code=1)
    assert place.states()["train"] == "failed"
    assert "has not completed after its 1 legs" in place.asa("status").stdout.replace("\n", " ")


def test_one_job_for_all_stages_is_refused_in_words(place):
    refused = place.asa("run", flow(place), *place.on, "--strategy", "big-job", code=2)
    assert "train continues in legs" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('warn = "KILL@3s"', "'KILL' is no signal"),
        ('warn = "USR1"', "says no time"),
        ('warn = "USR1@20s"', "before the end of a leg"),
        ('expected = "1h"', "Say `total`"),
        ('tasks = ["a"]', "has command and tasks"),
        ("max_legs = 0", "must be 1 or more"),
        ("unfinished = 300", "must be 125 or less"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(place, said, words):
    refused = place.asa("check", flow(place, more=said), code=2)
    assert words in " ".join((refused.stdout + refused.stderr).split())


def test_what_only_legs_say_needs_them(place):
    text = (place.root / flow(place)).read_text().replace("continues = true\n", "")
    (place.root / "flow.toml").write_text(text)
    refused = place.asa("check", "flow.toml", code=2)
    assert "does not continue in legs" in " ".join((refused.stdout + refused.stderr).split())


def kill(place):
    """Kill all processes of the running job."""
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            is_its = path.readlink() == place.root and b"train.sh" in (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if is_its:
            os.kill(int(path.parent.name), signal.SIGKILL)


def test_the_journal_of_a_run_reads_back(place):
    place.asa("run", flow(place, upto=20), *place.on, "--strategy", "per-stage")
    [run] = place.runs()
    assert read_journal(run / "journal.jsonl")[0][0].kind == "begun"
    assert place.status()["state"] == "completed"

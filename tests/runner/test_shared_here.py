"""Stages whose tasks several jobs share, on this machine's queue: each task once to its end, whoever is killed."""

import json
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from slurm_testbed import until
from this_machine import Place

from asa.bags import Bag


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path, cores=3)
    yield made
    made.close()


def flow(place, *, count=30, seconds=0.2, end="exit 0", jobs=3, cores=3, more="", walltime="5min"):
    task = f"echo b$ASA_TASK >>did; sleep {seconds}; echo e$ASA_TASK >>did; {end}"
    (place.root / "list").write_text(f"{task}\n" * count)
    (place.root / "flow.toml").write_text(
        f'name = "flow"\n[[stage]]\nname = "a"\ncores = {cores}\njobs = {jobs}\nwalltime = "{walltime}"\n'
        f'expected = "3s"\ntasks_file = "list"\n{more}\n'
        '[[stage]]\nname = "b"\ncores = 1\nwalltime = "1min"\nafter = ["a"]\ncommand = "echo after >>did"\n'
    )
    return "flow.toml"


def did(place, kind):
    return Counter(word[1:] for word in place.lines() if word[0] == kind and word != "after")


def once(count):
    return {str(number): 1 for number in range(1, count + 1)}


def taker_in(folder):
    """Find a process that takes tasks of a stage whose commands run in the given folder."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"\0asa-tasks\0" in (path / "cmdline").read_bytes() and (path / "cwd").readlink() == folder:
                return int(path.name)
    return None


@pytest.mark.parametrize("strategy", ["chained", "per-stage", "asa-plan"])
def test_several_jobs_run_a_stage(place, strategy):
    place.asa("run", flow(place), *place.on, "--strategy", strategy)
    assert did(place, "b") == did(place, "e") == once(30)
    assert place.lines()[-1] == "after"
    [run] = place.runs()
    logs = [log for log in (run / "tasks" / "a" / "0" / "logs").iterdir() if log.suffix != ".spare"]
    assert len(logs) == 3
    assert all(log.stat().st_size for log in logs)


def test_a_client_that_is_killed_is_followed_by_another(place):
    client = place.begin("run", flow(place, count=60), *place.on, "--strategy", "per-stage")
    until(lambda: len(did(place, "e")) > 5)
    client.kill()
    client.communicate()
    place.asa("resume")
    assert did(place, "b") == did(place, "e") == once(60)


def test_jobs_follow_each_other_where_a_walltime_is_not_enough(place):
    """Each job that runs out of walltime is replaced at once, in the same round; its unfinished tasks run again."""
    place.flow(("x", "", "echo >held; sleep 2"), name="other")  # so that they do not all end in the same moment
    other = place.begin("run", "other.toml", *place.on, "--strategy", "per-stage")
    until((place.root / "held").exists)
    place.asa("run", flow(place, count=36, seconds=0.5, walltime="4s"), *place.on, "--strategy", "per-stage")
    other.wait(60)
    assert did(place, "e") == once(36)
    [run] = [run for run in place.runs() if (run / "tasks" / "a").is_dir()]
    assert [path.name for path in (run / "tasks" / "a").iterdir()] == ["0"]
    assert len(list((run / "tasks" / "a" / "0" / "takers").iterdir())) > 3


def test_what_one_job_began_several_may_go_on_with_and_the_reverse(place):
    """Completed tasks are not run again."""
    one, several = place.root / "one.toml", place.root / "several.toml"
    (place.root / flow(place, count=4, end="test -e ok || test $ASA_TASK != 3")).rename(several)
    one.write_text(several.read_text().replace("jobs = 3\n", ""))
    for first, second in ((one, several), (several, one)):
        place.asa("run", first.name, *place.on, "--strategy", "per-stage", code=1)
        (place.root / "ok").touch()
        place.asa("resume", "--retry", "--workflow", second.name)
        assert did(place, "e") == once(4) | {"3": 2}
        place.asa("resume", "--from", "a", "--workflow", first.name)
        assert did(place, "e") == {"1": 2, "2": 2, "3": 3, "4": 2}
        for name in ("did", "ok"):
            (place.root / name).unlink()


def test_what_all_jobs_wrote_is_shown(place):
    """Each output has its job's number; the report shows which job ran which tasks."""
    place.asa("run", flow(place, end="echo told $ASA_TASK"), *place.on, "--strategy", "per-stage")
    for words in ((), ("--follow",), ("--lines", 40)):
        lines = place.asa("logs", "a", *words).stdout.splitlines()
        assert Counter(lines[i].split()[1] for i in range(len(lines)) if lines[i].startswith("told ")) == once(30)
        assert len({line for line in lines if line.startswith("==> job ")}) == 3
    told = json.loads(place.asa("logs", "a", "--output", "json").stdout)
    assert [sorted(one) for one in told["jobs"]] == [["file", "job", "text"]] * 3
    assert told["text"].count("told ") == 30
    place.asa("report", "--out", "page.html")
    page = (place.root / "page.html").read_text()
    assert "Tasks of a, by job" in page
    assert all(f"job {one['job']}: " in page for one in told["jobs"])


def test_the_status_tells_how_far_it_has_come(place):
    client = place.begin("run", flow(place, count=40, seconds=0.5, jobs='"1..3"', cores=3), *place.on)
    until(lambda: len(did(place, "e")) > 8)
    stage = place.status()["stages"][0]
    bag = stage["bag"]
    assert bag["jobs"] == 3
    assert bag["tasks"] == 40
    assert 8 <= bag["completed"] <= 40 - bag["left"]
    assert bag["completed"] + bag["running"] + bag["left"] + bag["failed"] == 40
    assert "Its tasks are shared: 3 jobs run, 0 pending; of 40 tasks " in " ".join(
        place.asa("explain", "a").stdout.split()
    )
    assert 1 <= bag["rate"] <= 6
    assert "of 40 tasks" in place.asa("status").stdout
    client.wait()
    assert did(place, "e") == once(40)


def test_failed_tasks_fail_the_stage_and_a_retry_repeats_these_alone(place):
    end = "[ $((ASA_TASK % 7)) -ne 0 ] || [ -e mended ]"
    said = place.asa("run", flow(place, seconds=0.05, end=end), *place.on, "--strategy", "per-stage", code=1)
    assert "some of its tasks failed" in said.stdout + said.stderr
    assert did(place, "e") == once(30)
    (place.root / "mended").touch()
    place.asa("resume", "--retry")
    assert did(place, "e") == once(30) | {str(number): 2 for number in (7, 14, 21, 28)}
    assert place.lines()[-1] == "after"


def test_a_job_that_is_killed_leaves_its_tasks_to_others(place):
    client = place.begin("run", flow(place, count=60, seconds=0.4), *place.on, "--strategy", "per-stage")
    until(lambda: len(did(place, "e")) > 6)
    [run] = place.runs()
    victim = until(lambda: taker_in(place.root))
    os.killpg(os.getpgid(victim), signal.SIGKILL)
    client.wait()
    assert did(place, "e") == once(60)
    assert sum(did(place, "b").values()) <= 61, "what was interrupted ran again"
    assert list((run / "tasks" / "a" / "0" / "returned").iterdir())
    assert place.states() == {"a": "done", "b": "done"}


def test_jobs_that_run_out_of_walltime_are_followed_by_others(place):
    """Three jobs have 4 s each for 24 s of tasks."""
    began_s = time.monotonic()
    place.asa("run", flow(place, count=24, seconds=1, walltime="4s"), *place.on, "--strategy", "per-stage")
    assert did(place, "e") == once(24)
    assert time.monotonic() - began_s < 100
    [run] = place.runs()
    assert Bag(run / "tasks" / "a").progress().completed == 24

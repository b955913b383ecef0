"""Files of earlier versions are read, and their unfinished runs continue; see `tools/kept_runs.py`."""

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import kept_runs as kept
import pytest
from typer.testing import CliRunner

from asa.cli.app import app
from asa.records import StageEnded
from asa.runner import RunFolder
from asa.strategies import Phase

sys.path.insert(0, str(Path(__file__).parent / "golden"))
from cases import differences

FILES = sorted(kept.KEPT.glob("*.tar.xz"))
CASES = {case.name: case for case in kept.cases()}
_LEAST_CASES = 100
KINDS = dict.fromkeys(case.kind for case in CASES.values())


@pytest.fixture(autouse=True)
def disk(monkeypatch):
    """Nothing here has to outlive a crash of the machine."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module", params=FILES, ids=lambda file: file.name.removesuffix(".tar.xz"))
def written(request, tmp_path_factory):
    """A folder with what was kept, and what was seen of it then."""
    root = tmp_path_factory.mktemp("kept")
    return root, kept.unpack(request.param, root)


# what earlier versions and this one say in other words: of both, what is left where that is so
_REWORDED = (
    (r"(?:\d+x)?(\d+) cores? for (\w+)(?: for each of |, elements? )", r"\1 cores for \2, "),
    ("was counted on", "predicted"),
    ("has done its part", "has completed its part"),
    ("not accepted now, to be asked for again", "refused, to be submitted again"),
    ("asked for again: ", "submitted again: "),
    (r" \((?:exit code [13]|NonZeroExitCode)\)", ""),
    ("runs if a stage fails that it follows", "runs if a stage that it depends on fails"),
    (
        "runs once the stages that it follows have ended, however they do",
        "runs once the stages that it depends on have ended, also if they fail",
    ),
    ("no stage failed that it follows", "no stage that it depends on failed"),
)


# of a further job of a bag that awaits its stage, it is only known at its end since when that runs
_SHOWN_AT_ITS_END = re.compile(r"\.jobs\[\d+\]\.(?:kind: 'running' became 'held'|stage: '\w+' became '')")


def in_the_same_words(seen):
    """Reword what was seen; of several jobs that have one stage, only the first tells that it runs."""
    text = json.dumps(seen)
    for pattern, by in _REWORDED:
        text = re.sub(pattern, by, text)
    seen, begun = json.loads(text), set()
    if "events" in seen:
        events = [(one, one.partition("  ")[2]) for one in seen["events"]]
        seen["events"] = [
            one for one, event in events if not (event.endswith(": runs") and (event in begun or begun.add(event)))
        ]
    return seen


def lost(was, now):
    """What of it is no longer so; what later versions add is none of that."""
    changed = differences(in_the_same_words(was), in_the_same_words(now))
    return [one for one in changed if not (one.endswith(": is new") or _SHOWN_AT_ITS_END.fullmatch(one))]


def test_something_is_kept():
    assert FILES


@pytest.mark.full
def test_runs_that_have_ended_are_seen_as_they_were(written):
    """From their journals, entry by entry: the state of stages, jobs, times, attempts, and what it cost."""
    root, expected = written
    # a strategy, or a kind of stage, that is newer than this version has no run in it
    assert len(CASES.keys() & expected["runs"].keys()) >= _LEAST_CASES
    assert {f"{kept.HERE}-ended", f"{kept.HERE}-left"} <= {*expected["runs"]}
    for name, was in expected["runs"].items():
        assert not lost(was, kept.seen(root / "runs" / name)), name


def left(root, expected, name, tmp_path):
    """A run as its client left it, when that was killed."""
    path = tmp_path / "runs" / name
    path.mkdir(parents=True)
    for part in (root / "runs" / name).iterdir():
        if part.is_file():
            (path / part.name).write_bytes(part.read_bytes().replace(bytes(root), bytes(tmp_path)))
    (path / "wishes").mkdir()
    kept.cut(path, expected["left"][name]["lines"])
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_left_is_seen_as_it_was_and_completes(written, kind, tmp_path):
    """Each stage runs once, on the machine as it was then."""
    root, expected = written
    for name, case in ((name, case) for name, case in CASES.items() if case.kind == kind and name in expected["runs"]):
        path = left(root, expected, name, tmp_path)
        assert not lost(expected["left"][name]["seen"], kept.seen(path)), name
        folder = RunFolder(path)
        world = case.world(path)
        world.as_of(kept.entries_of(path))
        assert case.run(folder, world) == expected["runs"][name]["state"], name
        ended = Counter(r.stages[0] for r in folder.state()[1] if isinstance(r, StageEnded))
        done = [one["stage"] for one in expected["runs"][name]["stages"] if one["state"] == "done"]
        assert ended == Counter(done), name


def test_a_run_of_another_computer_that_was_left_is_gone_on_with(written, tmp_path):
    """By the marks of its jobs, which ended while nobody looked; what they did is not done again."""
    root, expected = written
    folder = RunFolder(root / "runs" / f"{kept.HERE}-left")
    queue = kept.queue_here(tmp_path)
    try:
        assert kept.go_on_here(folder, queue) == "failed"
    finally:
        queue.close()
    assert sorted((root / "runs" / "ran").read_text().split()) == expected.get("ran", kept.RAN)
    state = folder.state()[0]
    assert {name for name, view in state.stages.items() if view.phase is not Phase.DONE} == {"broken", "out"}


@pytest.mark.parametrize("kind", KINDS)
def test_commands_show_what_was_kept(written, kind, tmp_path):
    """One run of each kind, each of another strategy."""
    root, _ = written
    ours = [case for case in CASES.values() if case.kind == kind and (root / "runs" / case.name).is_dir()]
    if not ours:
        pytest.skip("that version had no such stages")
    case = ours[list(KINDS).index(kind) % len(ours)]
    run = str(root / "runs" / case.name)
    for words in (
        ["status", run],
        ["explain", "--run", run],
        ["explain", "tried", "--run", run],
        ["report", run, "--out", str(tmp_path / "page.html"), "--csv", str(tmp_path / "jobs.csv")],
    ):
        done = CliRunner().invoke(app, words, env={"COLUMNS": "120"}, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert "tried" in (tmp_path / "page.html").read_text()
    assert "tried" in (tmp_path / "jobs.csv").read_text()


def test_banks_and_run_times_have_what_they_had(written):
    root, expected = written
    assert not lost(expected["banks"], kept.seen_of_banks(root / "banks"))

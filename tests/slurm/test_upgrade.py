"""Runs that an earlier release began on real daemons are gone on with: its client was killed, jobs wait and run."""

import json
import os
import re
import time
from collections import Counter

import earlier
import pytest
from slurm_desk import Desk
from slurm_testbed import until

RELEASE = "0.2.0"


def _stage(name, after="", then="sleep 4", cores=1, **keys):
    keys = {"cores": cores, "walltime": "5m", "after": list(after)} | keys
    if "tasks" not in keys:
        keys["command"] = f"echo {name} >>did; {then}"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    return f'[[stage]]\nname = "{name}"\n{lines}'


LEGS = {"total": "12m", "unfinished": 85, "continues": True}
TASKS = [f"t{number}" for number in range(8)]
FLOWS = {
    "chain": ([_stage("a", then="sleep 8"), _stage("b", "a"), _stage("c", "b")], "abc"),
    "diamond": (
        [_stage("a"), _stage("b", "a", cores=28), _stage("c", "a", cores=28), _stage("d", "bc", "sleep 1")],
        "abcd",
    ),
    "tasks": (
        [_stage("a"), _stage("t", "a", cores=2, tasks=[f"echo {one} >>did; sleep 3" for one in TASKS])],
        ["a", *TASKS],
    ),
    "legs": (
        [
            _stage("l", then="sleep 4; [ $(grep -c l did) -ge 3 ] || exit 85", **LEGS),
            _stage("z", "l", "sleep 1"),
        ],
        "lllz",
    ),
    "retries": ([_stage("a", then="sleep 4; [ $(grep -c a did) -ge 2 ]", retries=2), _stage("b", "a")], "aab"),
}  # fmt: skip
"""Stages, and what they leave if nothing is lost and nothing runs twice."""
STRATEGIES = ("asa-plan", "chained", "per-stage", "asa", "per-stage")


@pytest.fixture(scope="session")
def before(tmp_path_factory):
    """Yield what runs the earlier release in place of this one."""
    if reason := earlier.missing(RELEASE):
        pytest.skip(reason)
    return earlier.environment(earlier.make(RELEASE, tmp_path_factory.mktemp("earlier")))


@pytest.mark.parametrize("how", ["resume", "tick"])
def test_what_an_earlier_release_began_is_gone_on_with(slurm, before, how):
    """All begin side by side; each is looked at, then gone on with. No job is lost, and none is submitted twice."""
    mask = os.umask(0)
    try:
        desks = {}
        for (kind, (stages, _)), strategy in zip(FLOWS.items(), STRATEGIES, strict=True):
            desk = desks[kind] = Desk(slurm, f"{how}-{kind}")
            desk.write("flow.toml", 'name = "flow"\n' + "".join(stages))
            _begin_and_kill(desk, before, strategy)
        for desk in desks.values():
            _look(desk)
        for desk in desks.values():
            _RESUMING[how](desk)
    finally:
        os.umask(mask)
    names = re.findall(r"JobName=(\S+)", slurm.run_as_root("scontrol", "-o", "show", "job"))
    for kind, desk in desks.items():
        assert Counter((desk.folder / "did").read_text().split()) == Counter(FLOWS[kind][1]), desk.folder
        mark = json.loads((desk.run / "run.json").read_text())["id"][:12]
        ours = Counter(name for name in names if mark in name)
        assert ours
        assert set(ours.values()) == {1}, ours


def _begin_and_kill(desk, before, strategy):
    """Begin a run with the earlier release, and kill that once the first stage runs."""
    words = ("run", "flow.toml", "--backend", "slurm-cli", "--estimator", "last", "--strategy", strategy)
    with desk.begin(*words, **before) as client:
        try:
            until(lambda: (desk.folder / "did").exists() or client.poll() is not None, what="the first stage")
            assert client.poll() is None, "it ended"
            journal = desk.run / "journal.jsonl"
            until(lambda: '"accepted"' in journal.read_text(), what="what its job is called")
        finally:
            client.kill()
    assert json.loads((desk.run / "run.json").read_text())["schema"] == 1


def _look(desk):
    """Ask each command that only looks."""
    assert "no client" in desk.asa("status", code=None)
    desk.asa("explain", code=None)
    desk.asa("runs")
    desk.asa("check", "flow.toml")


def _resume(desk):
    assert "completed" in desk.asa("resume")


def _tick(desk):
    until_s = time.monotonic() + 200.0
    while "completed" not in desk.asa("status", code=None):
        assert time.monotonic() < until_s, desk.asa("status", code=None)
        desk.asa("tick", code=None)
        time.sleep(0.5)


_RESUMING = {"resume": _resume, "tick": _tick}

"""Small jobs of a Snakemake workflow that are ready share a node, where nodes are given whole."""

import json
import re

import pytest
from forked import asa
from snakemake_runs import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

FAN = """
rule all:
    input: "all.txt"
rule split:
    output: expand("{n}.in", n=range(4))
    shell: "for n in 0 1 2 3; do echo $n > $n.in; done"
rule part:
    input: "{n}.in"
    output: "{n}.out"
    threads: 1
    resources: mem_mb=lambda wc, input: 100 + int(wc.n)
    shell: "touch {wildcards.n}.here; "
        "for i in $(seq 600); do [ $(ls *.here | wc -l) -ge 4 ] && break; sleep 0.1; done; "
        "[ $(ls *.here | wc -l) -ge 4 ]; THEN; cp {input} {output}"
rule join:
    input: expand("{n}.out", n=range(4))
    output: "all.txt"
    shell: "cat {input} > {output}"
"""
"""Its parts see each other only where they run at the same time."""


def fan(then="true"):
    return FAN.replace("THEN", then)


def shared(state, *names):
    return [i for i in state.jobs.intents.values() if set(names) <= set(i.planned.stages)]


@pytest.mark.parametrize("strategy", ["per-stage", "asa-plan"])
def test_jobs_that_are_ready_share_a_job_and_run_at_the_same_time(project, strategy):
    ours = project(fan(), "whole_nodes=yes", "--asa-strategy", strategy)
    ours.run()
    assert (ours.folder / "all.txt").read_text().split() == ["0", "1", "2", "3"]
    parts = [name for name in ours.phases() if name.startswith("part.")]
    assert shared(ours.state, *parts)
    assert ours.state.outcome == "completed"


def test_each_prints_into_logs_of_its_own(project):
    """Which `asa logs` shows, and no line of the others in the job; so do commands about the run name each."""
    ours = project(fan("echo part {wildcards.n} is here; sleep 1"), "whole_nodes=yes", "--asa-strategy", "per-stage")
    ours.run()
    parts = {name.split(".")[1]: name for name in ours.phases() if name.startswith("part.")}
    assert shared(ours.state, *parts.values())
    run = ours.runs[-1].path
    for number, name in parts.items():
        assert asa("logs", name, "--run", run).stdout.split("\n")[:-1] == [f"part {number} is here"]
        assert set(re.findall(r"wildcards: n=(\d)", asa("logs", name, "--run", run, "--err").stdout)) == {number}
        assert f"{name} (part n={number}): done" in asa("explain", name, "--run", run).stdout
    stages = json.loads(asa("status", run, "--output", "json").stdout)["stages"]
    assert {stage["stage"]: stage["comment"] for stage in stages if stage["stage"] in parts.values()} == {
        name: f"part n={number}" for number, name in parts.items()
    }


def test_one_that_fails_leaves_the_others_be_and_alone_is_tried_again(project):
    then = "[ {wildcards.n} != 2 ] || [ -e mended ] || {{ touch mended; exit 3; }}"
    ours = project(fan(then), "whole_nodes=yes", "--asa-strategy", "per-stage", "--retries", "1")
    said = ours.run(code=None)
    assert "Trying to restart job" in said
    assert (ours.folder / "all.txt").read_text().split() == ["0", "1", "2", "3"], said
    again = [i.planned.stages for i in ours.state.jobs.intents.values() if len(i.planned.stages) == 1]
    assert sum(name.startswith("part.") for [name] in again) == 1, again


def test_one_that_fails_for_good_fails_alone(project):
    then = "echo part {wildcards.n} speaks >&2; [ {wildcards.n} != 2 ]"
    ours = project(fan(then), "whole_nodes=yes", "--asa-strategy", "per-stage", "--keep-going")
    said = ours.run(code=1)
    assert ".err:\npart 2 speaks\nFor further" in said.replace("\n\n", "\n"), "its own last lines, and no more"
    assert not re.search("part [013] speaks", said)
    assert {path.name for path in ours.folder.glob("?.out")} == {"0.out", "1.out", "3.out"}, said
    phases = ours.phases()
    parts = {name: phase for name, phase in phases.items() if name.startswith("part.")}
    assert sorted(parts.values()) == ["done", "done", "done", "failed"]
    assert not ours.state.jobs.unfinished()

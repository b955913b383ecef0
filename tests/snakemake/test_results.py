"""Snakemake's workflows through asa, on this machine: as its own executors run them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake_runs import CHAIN, missing, version

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

WHOLE = """
localrules: all, listing
rule all:
    input: "final.txt", "kept.txt", "grouped.txt", "tried.txt"
rule seed:
    output: temp("seed.txt")
    benchmark: "bench/seed.tsv"
    shell: "printf 'one\\ntwo\\nthree\\n' > {output}"
checkpoint split:
    input: "seed.txt"
    output: directory("parts")
    resources: runtime=5
    shell: "mkdir -p {output}; n=0; while read w; do n=$((n+1)); echo $w > {output}/$n.txt; done < {input}"
rule part:
    input: "parts/{n}.txt"
    output: temp("done/{n}.txt")
    threads: 2
    resources: mem_mb=200
    shell: "sed s/^/{threads}-/ {input} > {output}"
def parts(wildcards):
    where = checkpoints.split.get().output[0]
    return expand("done/{n}.txt", n=sorted(glob_wildcards(where + "/{n}.txt").n))
rule listing:
    input: parts
    output: "listing.txt"
    shell: "ls {input} | sort > {output}"
rule final:
    input: "listing.txt", parts
    output: protected("final.txt")
    resources: runtime=5
    shell: "cat {input} > {output}"
rule kept:
    input: "listing.txt"
    output: "kept.txt"
    shell: "wc -l < {input} > {output}"
rule tried:
    output: "tried.txt"
    retries: 2
    resources: runtime=lambda wc, attempt: 2 * attempt, mem_mb=lambda wc, attempt: 100 * attempt
    shell: "echo x >> tries.log; test $(wc -l < tries.log) -ge 2; echo {resources.mem_mb} > {output}"
rule g1:
    output: temp("g1-{n}.txt")
    group: "g"
    resources: runtime=3
    shell: "echo {wildcards.n} > {output}"
rule g2:
    input: expand("g1-{n}.txt", n=range(3))
    output: "grouped.txt"
    group: "g"
    resources: runtime=3
    shell: "cat {input} > {output}"
"""


def by_its_own(project):
    """Run by Snakemake's local executor, which at times finds no job to go on with after one failed: then anew."""
    for number in range(6):
        theirs = project(WHOLE, name=f"theirs{number}")
        said = theirs.run(executor="local", code=None)
        if "Out of jobs ready to be started" not in said:
            break
    assert theirs.begun[-1].process.returncode == 0, said
    return theirs


def test_results_are_those_of_the_local_executor(project):
    """Temporary and protected files, a checkpoint, local rules, threads, attempts and groups: byte for byte."""
    ours = project(WHOLE)
    said = ours.run()
    theirs = by_its_own(project)
    # Snakemake 9.0, but for its local executor, leaves temporary files that are made while a checkpoint is pending
    left = {"seed.txt", *(f"g1-{number}.txt" for number in range(3))} if version() < (9, 27) else set()

    def told(files):
        return {name: data for name, data in files.items() if not name.startswith("bench/") and name not in left}

    assert told(ours.results()) == told(theirs.results())
    assert "bench/seed.tsv" in ours.results()
    assert not (ours.folder / "final.txt").stat().st_mode & 0o222
    assert "asa: " in said
    assert "strategy asa-plan" in said.lower()
    state = ours.state
    assert state.outcome == "completed"
    assert not state.jobs.unfinished()
    # what followed the checkpoint was asked for ahead, and otherwise once the graph had changed
    assert "dropped" in ours.phases().values()


def test_allocations_are_asked_for_ahead_and_jobs_share_them(project):
    """But with the strategy that does as other executors do."""
    ours = project(CHAIN.format(then="sleep 1"))
    ours.run()
    state = ours.state
    ahead = [entry for entry in state.jobs.intents.values() if entry.planned.keep.value != "nothing"]
    shared = [entry for entry in state.jobs.intents.values() if len(entry.planned.stages) > 1]
    assert ahead or shared
    as_others = project(CHAIN.format(then="sleep 1"), "--asa-strategy", "per-stage", name="others")
    as_others.run()
    assert [(i.planned.keep.value, len(i.planned.stages)) for i in as_others.state.jobs.intents.values()] == [
        ("nothing", 1)
    ] * 3
    assert all(not i.spec.awaits for i in as_others.state.jobs.intents.values())


MODULES = next(
    (p for p in map(Path, ("/usr/share/modules/init/bash", "/usr/share/lmod/lmod/init/bash")) if p.exists()), None
)


@pytest.mark.skipif(MODULES is None, reason="neither environment-modules nor lmod is installed")
def test_software_is_deployed_by_snakemake_in_the_job(project, tmp_path):
    """Modules are loaded; what was said of containers is said to the job's own Snakemake, too."""
    text = """
rule tool:
    output: "tool.txt"
    envmodules: "tool/2"
    resources: runtime=5
    shell: "echo $TOOL >{output}"
"""
    folder = tmp_path / "modules" / "tool"
    folder.mkdir(parents=True)
    for number in ("1", "2"):
        (folder / number).write_text(f"#%Module1.0\nsetenv TOOL {number}\n")
    ours = project(text, "--sdm", "env-modules", "apptainer", "--apptainer-prefix", tmp_path / "images")
    ours.env |= {"BASH_ENV": str(MODULES), "MODULEPATH": str(folder.parent)}
    ours.run("tool.txt")
    assert (ours.folder / "tool.txt").read_text() == "2\n"
    [command] = [path.read_text() for path in (ours.runs[-1].path / "handed").iterdir()]
    words = shlex.split(command.splitlines()[-1])
    assert words[words.index("--apptainer-prefix") + 1] == str(tmp_path / "images")
    method = words.index("--deployment-method")
    assert set(words[method + 1 : method + 3]) == {"apptainer", "env-modules"}


def test_snakemakes_own_suite_for_executors_passes(project, tmp_path):
    """All of it that needs no storage elsewhere."""
    ours = project(None)
    suite = Path(__file__).with_name("interface_suite.py")
    env = ours.env | {"ASA_TEST_SPOOL": str(tmp_path / "spool"), "PYTHONWARNINGS": "ignore"}
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(ours.folder),
        str(suite),
    ]
    done = subprocess.run(
        [sys.executable, *words], cwd=ours.folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout

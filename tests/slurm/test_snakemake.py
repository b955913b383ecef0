"""Snakemake's workflows through asa on real Slurm, by commands and by REST, end as with its local executor."""

import os
import re
import shutil
from pathlib import Path

import pytest
from slurm_testbed import NEWEST, OLDEST, Testbed, tree_of, until
from slurm_testbed import missing as no_slurm
from snakemake_noted import NEWEST as PLUGIN
from snakemake_noted import workflow
from snakemake_runs import Project, asa_folder, missing

from asa.records import Retrying

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

GENOMES = """
localrules: all
SAMPLES = ["s1", "s2", "s3"]
rule all:
    input: "report.txt", "checked.txt"
rule reads:
    output: temp("reads/{s}.txt")
    resources: runtime=5
    shell: "for i in 1 2 3 4 5 6; do echo {wildcards.s} $i; done > {output}"
rule align:
    input: "reads/{s}.txt"
    output: "aligned/{s}.txt"
    threads: 2
    resources: mem_mb=200, runtime=10
    shell: "sed 's/$/ {threads}/' {input} > {output}"
checkpoint regions:
    input: expand("aligned/{s}.txt", s=SAMPLES)
    output: directory("regions")
    resources: runtime=5
    shell: "mkdir -p {output}; for i in 1 2 3 4; do grep -h \\" $i \\" {input} > {output}/$i.txt; done"
rule call:
    input: "regions/{r}.txt"
    output: temp("called/{r}.txt")
    resources: runtime=5
    shell: "sort -r {input} > {output}"
def called(wildcards):
    where = checkpoints.regions.get().output[0]
    return expand("called/{r}.txt", r=sorted(glob_wildcards(where + "/{r}.txt").r))
rule report:
    input: called
    output: protected("report.txt")
    resources: runtime=5, slurm_partition="normal"
    shell: "cat {input} > {output}"
rule checked:
    input: "report.txt"
    output: "checked.txt"
    group: "last"
    shell: "wc -l < {input} > {output}"
"""
STEPS = """
rule all:
    input: "2.txt"
rule one:
    output: "1.txt"
    resources: runtime=5
    shell: "echo one >> ran.txt; touch began; while [ ! -e go ]; do sleep 0.2; done; echo 1 > {output}"
rule two:
    input: "1.txt"
    output: "2.txt"
    resources: runtime=5
    shell: "echo two >> ran.txt; cat {input} > {output}"
"""


@pytest.fixture
def project(slurm, tmp_path):
    yield from projects(slurm, tmp_path)


@pytest.fixture
def project_on_gpus(gpus, tmp_path):
    yield from projects(gpus, tmp_path)


def projects(slurm, tmp_path):
    made, asa = [], None
    if slurm.tree:  # its nodes are another Debian, with a Python of its own
        if why := missing(slurm.release):
            pytest.skip(why)
        asa = slurm.root / "jobs" / "asa"
        shutil.copytree(asa_folder(), asa, dirs_exist_ok=True)

    def make(snakefile, link, *options):
        folder = slurm.folder(f"snakemake{len(made)}-{tmp_path.name}")
        if link == "rest":
            on = (
                "--asa-backend",
                "slurm-rest",
                "--asa-option",
                f"url=unix://{slurm.socket}",
                "poll=0.5s",
                "max_poll=1s",
            )
        else:
            on = ("--asa-backend", "slurm-cli", "--asa-option", "poll=1s", "max_poll=1s")
        env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
        how = ("--jobs", "20", "--latency-wait", "20", *on, "--asa-history", "200", *options)
        as_user = {"prefix": slurm.prefix, "python": "/usr/bin/python3", "env": env, "asa": asa}
        made.append(Project(folder, snakefile, options=how, **as_user))
        return made[-1]

    yield make
    for one in made:
        one.close()
    slurm.empty()


@pytest.fixture(params=[OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def keeps_comments(request):
    """Yield a cluster whose accounting keeps the comments of jobs."""
    if reason := no_slurm(request.param):
        pytest.skip(reason)
    root, kept = Path(f"/tmp/asa-{os.getpid()}-comments{request.param}"), "AccountingStoreFlags=job_comment"
    testbed = Testbed(root, release=request.param, accounting=True, nodes=1, conf=kept)
    try:
        yield testbed.start()
    finally:
        testbed.stop()


@pytest.mark.slurm
def test_the_accounting_has_rule_and_wildcards_of_each_job(keeps_comments, tmp_path):
    """Of jobs that went with one command the first ones; of a group what its jobs share."""
    text = """
rule all:
    input: expand("done/{s}.txt", s=["x", "y"])
rule made:
    output: "made/{s}.txt"
    resources: runtime=5
    shell: "touch {output}"
rule sort:
    input: "made/{s}.txt"
    output: "sort/{s}.txt"
    group: "last"
    shell: "cp {input} {output}"
rule done:
    input: "sort/{s}.txt"
    output: "done/{s}.txt"
    group: "last"
    shell: "cp {input} {output}"
"""
    asked = ("sacct", "-X", "-a", "-n", "-P", "-S", "now-1hours", "-o", "Comment")
    for project in projects(keeps_comments, tmp_path):
        project(text, "commands").run()
        kept = "\n".join(line.partition(" ")[2] for line in keeps_comments.run_as_root(*asked).splitlines())
        for label in ("made s=x", "made s=y", "done-sort s=x", "done-sort s=y"):
            assert label in kept


@pytest.mark.slurm
@pytest.mark.parametrize("link", ["commands", pytest.param("rest", marks=pytest.mark.full)])
def test_jobs_get_the_gpus_that_they_ask_for(project_on_gpus, link):
    """They ask by `gpu`, by `gpu` with a model, or by `gres`; other jobs get none."""
    told = """resources: {}
    shell: "(scontrol show job -d -o $SLURM_JOB_ID; echo CUDA=${{{{CUDA_VISIBLE_DEVICES-none}}}}) >{{output}}"
"""
    asked = {
        "plain": "runtime=5, mem_mb=100",
        "gpu": "gpu=1, runtime=5, mem_mb=100",
        "model": "gpu=2, gpu_model='v100', runtime=5, mem_mb=100",
        "gres": "gres='gpu:a100:1', runtime=5, mem_mb=100",
        "any": "gres='gpu:1', runtime=5, mem_mb=100",
    }
    rules = [f"rule {name}:\n    output: '{name}.txt'\n    {told.format(how)}" for name, how in asked.items()]
    ours = project_on_gpus("\n".join(rules), link)
    ours.run(*(f"{name}.txt" for name in asked))
    found = {name: (ours.folder / f"{name}.txt").read_text() for name in asked}
    given = {
        name: {kind: int(n) for kind, n in re.findall(r"gpu:(\w+):(\d+)", re.search(r" Mem=\d+ GRES=(\S*)", text)[1])}
        for name, text in found.items()
    }
    counts = {name: sum(gpus.values()) for name, gpus in given.items()}
    assert counts == {"plain": 0, "gpu": 1, "model": 2, "gres": 1, "any": 1}
    assert given["model"]["v100"] == 2
    assert given["gres"]["a100"] == 1
    devices = {name: re.search(r"^CUDA=(.*)$", text, re.MULTILINE)[1] for name, text in found.items()}
    assert {name: len(one.split(",")) for name, one in devices.items() if one != "none"} == {
        "gpu": 1, "model": 2, "gres": 1, "any": 1,
    }  # fmt: skip


SIZES = {
    "plain": (2, {"mem_mb": 300}),
    "nodes": (1, {"nodes": 2, "tasks": 4, "mem_mb": 200}),
    "percpu": (2, {"tasks": 2, "mem_mb_per_cpu": 50}),
    "mpi": (1, {"mpi": "srun", "nodes": 2, "tasks_per_node": 2, "mem_mb": 100}),
    "gpu": (1, {"gpu": 2, "gpu_model": "v100", "mem_mb": 100}),
    "gpus": (2, {"gpu": 2, "tasks_per_gpu": 1, "mem_mb": 100}),
    "gres": (1, {"gres": "gpu:a100:1", "mem_mb": 100}),
}
OF_SIZE = re.compile(
    r"(?:^| )((?:Num\w+|CPUs/Task|NtasksPerN:B:S:C|ReqTRES|TRES|MinMemoryCPU|MinMemoryNode|Tres\w+)=\S+)"
)


@pytest.mark.full
def test_slurm_is_asked_for_the_same_jobs_as_by_snakemakes_own_executor(gpus, project_on_gpus):
    """Field by field of what the controller says of them while they are pending."""
    plugin = tree_of(gpus.release) / PLUGIN.relative_to("/") if gpus.tree else PLUGIN
    if not (plugin / ".installed").exists():
        pytest.skip(f"no plug-in in {plugin}: install it with tests/snakemake/install.sh")
    sent = ("--default-resources", "slurm_account=test", "slurm_partition=normal", "runtime=5")
    found = {}
    for executor in ("asa", "slurm"):
        gpus.run_as_root(
            "sbatch", "-N", str(gpus.nodes), "--exclusive", "-D", "/tmp", "-o", "/dev/null", "--wrap", "sleep 300"
        )
        ours = project_on_gpus(workflow(SIZES), "commands")
        if executor == "slurm":
            ours.options = ["--jobs", "20"]
            ours.env["PYTHONPATH"] += f":{PLUGIN}"
        else:
            ours.options += ["--asa-strategy", "per-stage"]
        begun = ours.begin(*sent, executor=executor)

        def pending():
            listed = gpus.run_as_root("squeue", "-h", "-t", "pending", "-o", "%A").split()
            return listed if len(listed) == len(SIZES) else None

        numbers = until(pending, within_s=240, what=lambda begun=begun: f"{len(SIZES)} jobs:\n{begun.said}")
        jobs = [gpus.run_as_root("scontrol", "show", "job", "-o", number) for number in numbers]
        found[executor] = sorted(sorted(OF_SIZE.findall(job)) for job in jobs)
        begun.kill()
        gpus.empty()
    assert found["asa"] == found["slurm"]


@pytest.mark.parametrize(("link", "strategy"), [("commands", "asa-plan"), ("rest", "chained")])
def test_results_are_those_of_the_local_executor(slurm, project, link, strategy):
    """The results of a fan-out with a checkpoint are equal byte for byte, and no job is left in the queue."""
    ours, theirs = project(GENOMES, link, "--asa-strategy", strategy), project(GENOMES, link)
    ours.run()
    theirs.run(executor="local")
    assert ours.results() == theirs.results()
    assert ours.results()["checked.txt"].split() == [b"12"]
    until(lambda: not slurm.run_as_root("squeue", "-h", "-a").strip(), what="an empty queue")
    assert ours.state.outcome == "completed"
    ahead = [one.spec.token for one in ours.state.jobs.intents.values() if one.spec.awaits]
    assert ahead or strategy == "asa-plan", "which asks for nothing ahead while the queue is empty"


def test_killed_and_run_again_no_job_runs_twice_and_none_is_left(slurm, project):
    """Jobs that the killed Snakemake has left are cancelled, and their end is waited for."""
    ours = project(STEPS, "commands")
    first = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{first.said}", within_s=240)
    assert re.fullmatch(r"asa:\S+ one(; two)?", slurm.run_as_root("squeue", "-h", "-t", "running", "-o", "%k").strip())
    first.kill()
    (ours.folder / "began").unlink()
    ours.run("--unlock")
    second = ours.begin("--rerun-incomplete")
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{second.said}", within_s=240)
    assert "that an earlier run has left" in second.said
    (ours.folder / "go").touch()
    second.ends()
    assert (ours.folder / "ran.txt").read_text().split() == ["one", "one", "two"]
    until(lambda: not slurm.run_as_root("squeue", "-h", "-a").strip(), what="an empty queue")


@pytest.mark.full
def test_a_job_whose_node_fails_is_tried_again_by_snakemake(slurm, project):
    """With --retries; jobs that follow wait for the second attempt."""
    if slurm.release != NEWEST:
        pytest.skip("takes two minutes of waiting: on one of both versions")
    ours = project(STEPS, "commands", "--retries", "1")
    begun = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}", within_s=240)
    job = next(iter(ours.state.jobs.values()))
    (ours.folder / "go").touch()
    node = slurm.run_as_root("squeue", "-h", "-j", job.status.job_id, "-o", "%N").strip()
    slurm.run_as_root("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    begun.ends()
    assert (ours.folder / "2.txt").read_text() == "1\n"


def test_a_node_that_does_not_see_the_projects_folder_costs_no_retry(slurm, project):
    """Snakemake does not notice: each job runs once, on another node."""
    ours = project(
        f"""
rule all:
    input: expand("{{n}}.txt", n=range(6))
rule one:
    output: "{{n}}.txt"
    threads: {slurm.cores_per_node}
    resources: runtime=5
    shell: "echo {{wildcards.n}} >> ran.txt; sleep 1; echo {{wildcards.n}} > {{output}}"
""",
        "commands",
    )
    slurm.blind("n001", ours.folder)
    try:
        ours.run()
    finally:
        slurm.blind("n001")
    assert sorted((ours.folder / "ran.txt").read_text().split()) == list("012345")
    reasons = [one.reason for one in ours.runs[-1].state()[1] if isinstance(one, Retrying)]
    assert reasons
    assert all("counts as no retry; now on another node than n001" in reason for reason in reasons)


FAN = """
rule all:
    input: "sum.txt"
rule one:
    output: "one/{s}.txt"
    threads: 14
    resources: runtime=5
    shell: "echo {wildcards.s} >>ran.txt; while [ ! -e go ]; do sleep 0.2; done; (%s) >{output}"
rule sum:
    input: expand("one/{s}.txt", s=["s%%02d" %% n for n in range(30)])
    output: "sum.txt"
    resources: runtime=5
    shell: "cat {input} >{output}"
"""
AS_JOBS = (
    "echo $SLURM_JOB_NAME ${{SLURM_ARRAY_TASK_ID-alone}}; [ {wildcards.s} != s03 ] || [ $(grep -c s03 ran.txt) = 2 ]"
)


def counting(project, place):
    """Put an sbatch first in Snakemake's path that leaves a line each time it is called; return the lines' file."""
    folder, calls = place / "bin", place / "sbatch.said"
    folder.mkdir()
    (folder / "sbatch").write_text(f'#!/bin/sh\necho "$*" >>\'{calls}\'\nexec /usr/bin/sbatch "$@"\n')
    (folder / "sbatch").chmod(0o755)
    project.env["PATH"] = f"{folder}:{project.env['PATH']}"
    return calls


def test_equal_jobs_that_are_ready_at_once_are_one_submission_and_each_is_a_job_by_itself(slurm, project):
    """One is cancelled while it waits, one fails at first: each is tried again alone, and no other ends."""
    ours = project(FAN % AS_JOBS, "commands", "--asa-strategy", "per-stage", "--jobs", "40", "--retries", "1")
    calls = counting(ours, ours.folder)
    begun = ours.begin()

    def ids():
        if not ours.runs:
            return None
        jobs = [job for job in ours.state.jobs.values() if job.planned.stages[0].startswith("one.")]
        return {job.planned.stages[0].split(".")[1]: job.status.job_id for job in jobs} if len(jobs) == 30 else None

    own = until(ids, within_s=240, what=lambda: f"30 jobs:\n{begun.said}")
    assert len({job_id.partition("_")[0] for job_id in own.values()}) == 1
    assert len(calls.read_text().splitlines()) == 1
    slurm.run("scancel", own["s29"])
    (ours.folder / "go").touch()
    begun.ends()
    assert len(calls.read_text().splitlines()) == 4, "those of s29, of s03 and of the sum"
    told = dict(zip(own, (ours.folder / "sum.txt").read_text().splitlines(), strict=True))
    assert {one.split("_one.")[1].split(".")[0] for one in told.values()} == set(own), "each sees its own name"
    assert {one.split()[1] for one in told.values()} == {"alone"}, "and no array"
    assert sorted((ours.folder / "ran.txt").read_text().split()) == sorted([*own, "s03"])
    state, kept = ours.state, ours.runs[-1]
    assert state.outcome == "completed"
    for name, job_id in own.items():
        log = kept.output_of(state.jobs[job_id].spec.token, job_id, "err")
        assert name == "s29" or f"s={name}" in log.read_text(), "a log of its own"


def test_jobs_whose_rule_asks_slurm_about_its_own_job_go_by_themselves(slurm, project):
    """Which is said in the Snakefile alone, and in a script that it runs."""
    ours = project(FAN % "sh ask.sh", "commands", "--asa-strategy", "chained", "--jobs", "40")
    (ours.folder / "ask.sh").write_text("scontrol show job $SLURM_JOB_ID -o\n")
    (ours.folder / "go").touch()
    ours.run("one/s00.txt", "one/s01.txt")
    assert not [job_id for job_id in ours.state.jobs if "_" in job_id]


def test_a_squeue_that_refuses_an_option_is_said_once_in_snakemakes_log_and_in_the_status(slurm, project):
    ours = project(STEPS, "commands")
    refusing = "case \"$*\" in *' -O '*) echo \"squeue: unrecognized option '-O'\" >&2; exit 1 ;; esac"
    folder = ours.folder / "bin"
    folder.mkdir()
    (folder / "squeue").write_text(
        f"#!/bin/sh\n[ ! -e '{ours.folder}/began' ] || {{ {refusing}; }}\nexec /usr/bin/squeue \"$@\"\n"
    )
    (folder / "squeue").chmod(0o755)
    ours.env["PATH"] = f"{folder}:{ours.env['PATH']}"
    begun = ours.begin()
    until((ours.folder / "began").exists, what=lambda: f"a job:\n{begun.said}", within_s=240)
    refusal = "squeue: does not take the option -O: squeue: unrecognized option '-O'"
    begun.says(refusal)
    until(lambda: refusal in ours.runs[-1].last_pulse().condition.trouble, what="that `asa status` says it, too")
    (folder / "squeue").unlink()
    (ours.folder / "go").touch()
    said = begun.ends()
    assert said.count(refusal) == 1
    assert "type -a squeue" in said
    assert "answers again" in said

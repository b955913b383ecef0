"""The files of a stage's output, on real daemons, have the names that Slurm itself would give."""

import time

import pytest
from slurm_runs import LINKS, SlurmRun, stage
from slurm_testbed import OLDEST, until

from asa.elements import parse_array
from asa.payload import payload_text
from asa.workflow import Stage

PATTERNS = (
    "a-%j-%A-%a-%x-%J-%u", "b-%4j-%08j-%3t-%2n", "c-%12j-%010j-%0j-%40a", "d-%6A-%2a-%9x-%9u-%4s", "e-%%j-%q-%z-%H",
    "f-lit\\%j", "%j", "g-%c-%i-%p-%o-%v", "h-%s-%t-%n",
)  # fmt: skip


def test_names_are_those_that_slurm_makes(slurm):
    """A job's output file has the same name under sbatch and, in another folder, under asa."""
    slurm.empty()
    folder = slurm.folder(f"names-{time.time_ns()}")
    places = {who: folder / who for who in ("slurm", "asa")}
    for place in places.values():
        place.mkdir(mode=0o777)
        place.chmod(0o777)
    # of what only newer ones know, and of nodes, which here are all one computer
    patterns = PATTERNS if slurm.release == OLDEST else (*PATTERNS, "i-%b-%3b", "k-%N-%9N")
    for number, pattern in enumerate(patterns):
        made = Stage("fit", cores=1, command="true", stdout=f"{places['asa']}/{pattern}")
        script = folder / f"{number}.sh"
        script.write_text(f"#!/bin/sh\n{payload_text(made, 1)}\n")
        slurm.run("sbatch", "-J", "fit", "-D", str(folder), "-o", f"{places['slurm']}/{pattern}", str(script))
    of_array = Stage("fit", cores=1, command="true", array=parse_array("3,17"), stdout=f"{places['asa']}/z-%j-%A-%4a")
    (folder / "array.sh").write_text(f"#!/bin/sh\n{payload_text(of_array, 1)}\n")
    output = f"{places['slurm']}/z-%j-%A-%4a"
    slurm.run("sbatch", "-J", "fit", "-a", "3,17", "-D", str(folder), "-o", output, str(folder / "array.sh"))
    until(lambda: not slurm.run_as_root("squeue", "-h", "-a").strip(), what="an empty queue")
    names = {who: sorted(path.name for path in place.iterdir()) for who, place in places.items()}
    assert names["asa"] == names["slurm"]
    assert len(names["slurm"]) == len(patterns) + 2


@pytest.mark.parametrize("link", LINKS)
def test_what_stages_print_is_where_they_say(slurm, link):
    """Single stages, elements, and a retried stage; also in a missing folder, for which older versions fail a job."""
    twice = "echo err $SLURM_JOB_ID >&2; [ -e again ] || { touch again; exit 3; }"
    stages = [
        stage("a", then="echo out; echo err >&2", stdout="new/%x-%j.out"),
        stage("b", "a", then="echo $SLURM_ARRAY_TASK_ID", array=parse_array("1-2"), stdout="new/%x-%A_%3a"),
        stage("c", "b", then=twice, stderr="new/last", retries=1),
    ]
    run = SlurmRun(slurm, stages, link=link, strategy="per-stage")
    result = run.result()
    assert result.outcome == "completed", result.reason
    found = {path.name: path for path in (run.place / "new").iterdir()}
    jobs = run.jobs()
    (job,) = jobs["a"]
    assert found.pop(f"a-{job['JobId']}.out").read_text() == "out\nerr\n"
    elements = {job["ArrayTaskId"]: job["ArrayJobId"] for job in jobs["b"]}
    for element, array in elements.items():
        assert found.pop(f"b-{array}_{int(element):03}").read_text() == f"{element}\n"
    last = max(int(job["JobId"]) for job in jobs["c"])
    assert found.pop("last").read_text() == f"err {last}\n"
    assert not found
    kept = [path.read_text() for path in (run.folder.path / "logs").glob("*_c.*.err")]
    assert len(kept) == 2, "what the first try printed is kept"


def test_what_slurm_says_of_a_job_is_in_its_file(slurm):
    """If output and errors are in one file."""
    run = SlurmRun(slurm, [stage("a", then="echo begun; sleep 100", stdout="o")], strategy="per-stage")
    client = run.client()
    job = run.job("a", "RUNNING")["JobId"]
    until(lambda: (run.place / "o").exists() and (run.place / "o").read_text() == "begun\n", what="its output")
    slurm.run("scancel", job)
    assert client.result().outcome == "failed"
    assert f"JOB {job}" in (run.place / "o").read_text()
    assert "CANCELLED" in (run.place / "o").read_text()


@pytest.mark.parametrize("link", LINKS)
def test_a_job_that_is_put_back_into_the_queue_prints_into_its_file_again(slurm, link):
    """It overwrites the file, or with --open-mode=append adds to it."""
    modes = {"a": ("--open-mode=append",), "b": ()}
    waits = "echo begun; [ -e again.{0} ] || {{ touch again.{0}; sleep 100; }}"
    stages = [
        stage(name, then=waits.format(name), stdout="o-%x-%j", options=mode, cores=1) for name, mode in modes.items()
    ]
    run = SlurmRun(slurm, stages, link=link, strategy="per-stage")
    client = run.client()
    jobs = {name: run.job(name, "RUNNING")["JobId"] for name in modes}
    files = {name: run.place / f"o-{name}-{job}" for name, job in jobs.items()}
    until(lambda: all((run.place / f"again.{name}").exists() for name in modes), what="both jobs")
    for job in jobs.values():
        slurm.run("scontrol", "requeue", job)

    def has_begun_again():
        for job in jobs.values():
            slurm.hasten(job)
        return all(file.read_text().endswith("begun\n") for file in files.values()) and not run.left()

    until(has_begun_again, what="the end of both")
    assert client.result().outcome == "completed"
    assert files["b"].read_text() == "begun\n"
    assert files["a"].read_text().count("begun\n") == 2

"""Messages to Snakemake's users: why jobs fail, which can never start, and the known run times."""

import re

import pytest
from forked import asa
from slurm_testbed import until
from snakemake_runs import CHAIN, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("strategy", ["asa-plan", "per-stage"])
@pytest.mark.full
def test_a_job_that_fails_fails_the_workflow_and_says_why(project, strategy):
    """Others go on with --keep-going, and nothing is left in the queue."""
    text = CHAIN.format(then="true") + (
        'rule bad:\n    input: "1.txt"\n    output: "bad.txt"\n    shell: "echo 100%s of this is bad >&2; exit 3"\n'
        'rule after_bad:\n    input: "bad.txt"\n    output: "after.txt"\n    shell: "touch {output}"\n'
    )
    ours = project(text, "--keep-going", "--asa-strategy", strategy)
    said = ours.run("3.txt", "after.txt", code=1)
    assert (ours.folder / "3.txt").exists()
    # what its command said, and no more
    assert ".err:\n100%s of this is bad\nFor further" in said.replace("\n\n", "\n")
    assert re.search(r"^asa: first: job (\S+); its output: asa logs first.\d+ --run /", said, re.MULTILINE)
    assert re.search(r"asa: bad: job \S+: failed[.] Its command ended with exit status 3[.]", said)
    assert not ours.state.jobs.unfinished()
    again = ours.run("3.txt")
    assert "Nothing to be done" in again


OF_EACH_KIND = """
rule all:
    input: "shell.1.txt", "code.1.txt", "last.1.txt"
rule shell:
    output: "shell.{n}.txt"
    shell: "exit 7"
rule code:
    output: "code.{n}.txt"
    run:
        raise ValueError("no column " + wildcards.n)
rule first:
    output: "first.{n}.txt"
    group: "two"
    shell: "touch {output}"
rule last:
    input: "first.{n}.txt"
    output: "last.{n}.txt"
    group: "two"
    shell: "echo no luck >&2; exit 5"
"""


@pytest.mark.full
def test_each_kind_of_job_says_why_it_failed(project):
    """By what it printed, and by its own exit status; of a group, too, of which Snakemake says less."""
    ours = project(OF_EACH_KIND, "--keep-going")
    said = ours.run(code=1).replace("\n\n", "\n")
    how = r"asa: {}: job \S+: failed\."
    silent = r" Its command ended with exit status 7\.\nIts command printed no errors"
    assert re.search(how.format("shell n=1") + silent, said)
    of_code = how.format("code n=1").replace("failed", r"failed \(exit code 1\)")
    assert re.search(of_code + r"\nThe last of .*\nValueError in .*\nno column 1\n", said)
    of_group = r" Its command ended with exit status 5\.\nThe last of .*\nno luck\n"
    assert re.search(how.format("first-last n=1") + of_group, said)
    told = asa("explain", "--run", ours.runs[-1].path).stdout
    assert "no luck" in told
    assert "Its command printed nothing. All of its output:\n    asa logs shell.1." in told
    assert "Shutting down" not in told
    assert "asa resume" not in told
    assert "run Snakemake again: it goes on from the files that are there" in " ".join(told.split())


@pytest.mark.full
def test_retries_are_snakemakes(project):
    """A job that is killed is tried again with what it asks for then."""
    killed = "echo x >> tries; if [ $(wc -l < tries) = 1 ]; then kill -9 $(ps -o ppid= -p $PPID); sleep 60; fi"
    text = f"""
rule all:
    input: "b.txt"
rule a:
    output: "a.txt"
    resources: runtime=lambda wc, attempt: 30 * attempt
    shell: "{killed}; echo ok > {{output}}"
rule b:
    input: "a.txt"
    output: "b.txt"
    shell: "cat {{input}} > {{output}}"
"""
    ours = project(text, "--retries", "2")
    said = ours.run(code=None)
    assert "Trying to restart job" in said
    assert (ours.folder / "b.txt").read_text() == "ok\n"
    asked_s = [i.spec.walltime_s for i in ours.state.jobs.intents.values() if "a.1" in i.planned.stages]
    assert min(asked_s) == pytest.approx(1800, abs=300)
    assert max(asked_s) == pytest.approx(3600, abs=300)


@pytest.mark.full
def test_what_this_computer_does_not_heed_is_said_once(project):
    """And nothing where nothing such is asked for."""
    text = CHAIN.format(then="true").replace(
        'output: "2.txt"',
        'output: "2.txt"\n    resources: mem_mb=100, slurm_partition="long", gres="gpu:1", slurm_account="ours"',
    )
    ours = project(text)
    said = ours.run()
    assert said.count("not what rules say of: gres, mem_mb, slurm_account, slurm_partition.") == 1
    assert "not what rules say of" not in ours.run("--forcerun", "third", "--rerun-triggers", "mtime")


@pytest.mark.full
def test_run_times_are_learned_where_none_is_said(project):
    """From earlier runs, and from Snakemake's own benchmarks."""
    text = CHAIN.format(then="sleep 1").replace('output: "2.txt"', 'output: "2.txt"\n    benchmark: "bench.tsv"')
    ours = project(text)
    said = ours.run()
    assert "none learned yet: first, second, third" in said
    again = ours.run("--forceall")
    assert "learned from earlier runs: first, second, third" in again
    ours.env["ASA_BANK"] = str(ours.folder / "other-bank")
    once_more = ours.run("--forceall")
    assert "learned from earlier runs: second" in once_more
    assert "none learned yet: first, third" in once_more


@pytest.mark.full
def test_what_is_not_known_of_rules_behind_a_checkpoint_is_said_once_they_are_known(project):
    """And no more of those that were named before."""
    text = """
rule all:
    input: "all.txt"
checkpoint split:
    output: directory("parts")
    shell: "mkdir {output}; touch {output}/1.txt {output}/2.txt"
rule part:
    input: "parts/{n}.txt"
    output: "done/{n}.txt"
    shell: "touch {output}"
def parts(wildcards):
    where = checkpoints.split.get().output[0]
    return expand("done/{n}.txt", n=sorted(glob_wildcards(where + "/{n}.txt").n))
rule gathered:
    input: parts
    output: "all.txt"
    shell: "touch {output}"
"""
    said = project(text).run()
    assert re.findall("none learned yet: (.*?)[.]", said) == ["gathered, split", "part"]


GROWN = """
rule all:
    input: "big.txt", "after.txt", "other.txt"
rule big:
    output: "big.txt"
    threads: lambda wc, attempt: 1 if attempt == 1 else 99
    shell: "echo $$ >> tries; exit 3"
rule after_big:
    input: "big.txt"
    output: "after.txt"
    shell: "touch {output}"
rule slow:
    output: "slow.txt"
    shell: "until [ -e tried ]; do sleep 0.1; done; touch {output}"
rule other:
    input: "slow.txt"
    output: "other.txt"
    shell: "touch {output}"
"""


@pytest.mark.full
def test_a_retry_that_outgrows_the_site_fails_alone(project_on_own_queue):
    """It is an error of that job, with the reason; others go on, and it stays the stage that it was."""
    ours = project_on_own_queue(GROWN, "--retries", "2", "--keep-going")
    begun = ours.begin()
    begun.says("Trying to restart job")
    until(lambda: begun.said.count("Error in rule big") >= 3, what=lambda: f"three failures:\n{begun.said}")
    (ours.folder / "tried").touch()
    said = begun.ends(code=1)
    assert (ours.folder / "other.txt").exists()
    assert len((ours.folder / "tries").read_text().split()) == 1
    assert "99 cores" in said
    assert "Nothing of it was submitted" not in said
    state = ours.state
    assert [name for name in state.stages if name.startswith("big.")] == ["big.1"]
    assert state.outcome == "failed"
    assert not state.jobs.unfinished()
    assert state.stages[next(name for name in state.stages if name.startswith("after_big."))].phase.value == "blocked"
    runs = ours.folder / ".snakemake" / "asa"
    assert "big.1" in asa("status", "--runs", runs).stdout
    told = " ".join(asa("explain", "big.1", "--run", ours.runs[-1].path).stdout.split())
    assert told == " ".join(asa("explain", "big.1", "--runs", runs).stdout.split())
    assert "99 cores" in told
    assert "run Snakemake again" in told


@pytest.mark.full
def test_a_job_behind_a_checkpoint_that_can_never_start_fails_alone(project_on_own_queue):
    """Once it is its turn; the others go on."""
    text = """
rule all:
    input: "all.txt"
checkpoint split:
    output: directory("parts")
    shell: "mkdir {output}; touch {output}/1.txt {output}/99.txt"
rule part:
    input: "parts/{n}.txt"
    output: "done/{n}.txt"
    threads: lambda wc: int(wc.n)
    shell: "touch {output}"
def parts(wildcards):
    where = checkpoints.split.get().output[0]
    return expand("done/{n}.txt", n=sorted(glob_wildcards(where + "/{n}.txt").n))
rule gathered:
    input: parts
    output: "all.txt"
    shell: "touch {output}"
"""
    ours = project_on_own_queue(text, "--keep-going")
    said = ours.run(code=1)
    assert (ours.folder / "done/1.txt").exists()
    assert "99 cores" in said
    assert "Error in rule part" in said
    assert not ours.state.jobs.unfinished()


@pytest.mark.full
def test_what_only_lets_options_be_written_runs_no_jobs(project):
    said = project(CHAIN.format(then="true")).run("3.txt", code=1, executor="asa-slurm-options")
    assert "asa-slurm-options runs no jobs. Take --executor asa." in said
    assert "AttributeError" not in said

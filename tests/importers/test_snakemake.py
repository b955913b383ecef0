"""Graphs of Snakemake, as Snakemake 9.27 prints them, as workflows."""

import pytest

from asa.errors import InputError
from asa.importers import import_snakemake

RULES = r"""digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
    node[shape=box, style=rounded, fontname=sans,                 fontsize=10, penwidth=2];
    edge[penwidth=2, color=grey];
	0[label = "all", color = "0.13 0.6 0.85", style="rounded"];
	1[label = "report", color = "0.40 0.6 0.85", style="rounded"];
	2[label = "align", color = "0.00 0.6 0.85", style="rounded"];
	3[label = "prepare", color = "0.27 0.6 0.85", style="rounded"];
	4[label = "side", color = "0.53 0.6 0.85", style="rounded"];
	1 -> 0
	4 -> 0
	2 -> 1
	3 -> 1
	3 -> 2
	3 -> 4
}
"""
DAG = r"""digraph snakemake_dag {
	0[label = "all", color = "0.17 0.6 0.85", style="rounded"];
	1[label = "report", color = "0.50 0.6 0.85", style="rounded"];
	2[label = "align", color = "0.00 0.6 0.85", style="rounded"];
	3[label = "prepare\ns: a", color = "0.33 0.6 0.85", style="rounded,dashed"];
	4[label = "align", color = "0.00 0.6 0.85", style="rounded"];
	5[label = "prepare\ns: b", color = "0.33 0.6 0.85", style="rounded"];
	1 -> 0
	2 -> 1
	4 -> 1
	3 -> 2
	5 -> 4
}
"""
JOBS = """Assuming unrestricted shared filesystem usage.

Building DAG of jobs...
Job stats:
job        count
-------  -------
prepare        3
align          3
side           1
report         1
all            1
total          9


[Sat Nov 21 20:08:13 2026]
rule prepare:
    output: raw/c.txt
    jobid: 7
    resources: tmpdir=/tmp
[Sat Nov 21 20:08:13 2026]
rule align:
    input: raw/a.txt
    threads: 8
    resources: tmpdir=/tmp, runtime=30, mem_mb=2000, mem=2 GB, mem_mib=1908
localrule report:
    resources: tmpdir=/tmp
rule side:
    resources: tmpdir=/tmp
"""


@pytest.fixture
def made(tmp_path):
    def read(graph, jobs=None, **options):
        (tmp_path / "rules.dot").write_text(graph)
        if jobs is not None:
            (tmp_path / "jobs.txt").write_text(jobs)
            options["jobs"] = tmp_path / "jobs.txt"
        return import_snakemake(tmp_path / "rules.dot", **options)

    return read


def edges(made):
    return {name: set(stage.after) for name, stage in made.workflow.stages.items()}


def test_each_rule_is_a_stage_that_snakemake_runs_and_the_target_is_none(made):
    read = made(RULES, command="snakemake -s x/Snakefile")
    assert edges(read) == {"prepare": set(), "align": {"prepare"}, "side": {"prepare"}, "report": {"align"}}
    command = read.workflow.stages["align"].command
    assert command.startswith('snakemake -s x/Snakefile --cores "${ASA_CORES:-4}" --nolock ')
    assert command.endswith(" --until align")
    assert any("'all'" in note for note in read.notes)


def test_what_is_not_known_is_a_placeholder_that_can_be_seen(made):
    read = made(RULES, cores=6)
    assert {stage.cores for stage in read.workflow.stages.values()} == {6}
    assert all("placeholder" in " ".join(read.comments[name]) for name in read.workflow.stages)
    assert any("placeholders" in note for note in read.notes)


def test_a_graph_of_jobs_counts_them(made):
    read = made(DAG)
    assert edges(read) == {"prepare": set(), "align": {"prepare"}, "report": {"align"}}
    assert [stage.cores for stage in read.workflow.stages.values()] == [2, 2, 4]


def test_a_dry_run_tells_cores_walltimes_and_memory(made):
    stages = made(RULES, JOBS).workflow.stages
    assert [stages[name].cores for name in ("prepare", "align", "side", "report")] == [3, 24, 1, 1]
    assert (stages["align"].walltime_s, stages["align"].memory_bytes >> 20) == (1800, 3 * 1908)
    assert stages["report"].local
    assert made(RULES, JOBS, cores=17).workflow.stages["align"].cores == 16
    assert made(RULES, JOBS, cores=17).workflow.stages["align"].walltime_s == 3600


def test_memory_for_each_core_and_gpus_are_those_of_all_jobs_and_what_is_left_out_is_told(made):
    told = "resources: tmpdir=/tmp, mem_mb_per_cpu=1000, gpu=2, slurm_extra=--qos=high"
    read = made(RULES, JOBS.replace("resources: tmpdir=/tmp, runtime=30, mem_mb=2000, mem=2 GB, mem_mib=1908", told))
    stage = read.workflow.stages["align"]
    assert (stage.memory_bytes >> 20, stage.gpus) == (3 * 8 * 954, 6)
    assert any("`slurm_extra` is left out" in note for note in read.notes)
    assert not any("`tmpdir`" in note for note in read.notes)


def test_rules_that_take_turns_are_one_stage(made):
    read = made(RULES.replace("\t3 -> 4\n", "\t3 -> 4\n\t2 -> 3\n"))
    assert edges(read) == {"align-prepare": set(), "side": {"align-prepare"}, "report": {"align-prepare"}}
    assert read.workflow.stages["align-prepare"].command.endswith("--until align prepare")


def test_a_rule_that_is_called_all_and_is_not_the_last_stays(made):
    assert "all" in made(RULES.replace("\t3 -> 4\n", "\t0 -> 4\n").replace("\t4 -> 0\n", "")).workflow.stages


@pytest.mark.parametrize("graph", ["", "Building DAG of jobs...\n", "digraph x {\n}\n", "digraph x {\n 1 -> 2\n}\n"])
def test_what_is_no_graph_is_refused_with_the_command_that_makes_one(made, graph):
    with pytest.raises(InputError) as caught:
        made(graph)
    assert "snakemake --rulegraph" in caught.value.hint


def test_a_dry_run_of_nothing_is_refused(made):
    with pytest.raises(InputError) as caught:
        made(RULES, "Nothing to be done.\n")
    assert "--forceall" in caught.value.hint


PIPED = r"""digraph snakemake_dag {
	0[label = "all", color = "0.0 0.6 0.85", style="rounded"];
	1[label = "sort", color = "0.1 0.6 0.85", style="rounded"];
	2[label = "filter", color = "0.2 0.6 0.85", style="rounded"];
	3[label = "read", color = "0.3 0.6 0.85", style="rounded"];
	4[label = "prepare", color = "0.4 0.6 0.85", style="rounded"];
	1 -> 0
	2 -> 1
	3 -> 2
	4 -> 3
}
"""
PIPED_JOBS = """Job stats:
job        count
-------  -------
prepare        2
read           2
filter         2
sort           2
all            1
total          9

[Sat Nov 28 20:21:04 2026]
rule prepare:
    output: in/a.txt
    resources: tmpdir=/tmp
[Sat Nov 28 20:21:04 2026] Group job bfed3d41-a321-432c-8251-eb3a1543c4db (jobs in lexicogr. order):

    [Sat Nov 28 20:21:04 2026]
    rule filter:
        input: work/a.pipe, in/list.txt
        output: work/a.pipe2 (pipe), log/a.txt
        resources: tmpdir=/tmp, mem_mib=100, mem_mb=105, runtime=20
    [Sat Nov 28 20:21:04 2026]
    rule read:
        input: in/a.txt
        output: work/a.pipe (pipe)
        threads: 2
        resources: tmpdir=/tmp, mem_mb=105, runtime=<TBD>
    [Sat Nov 28 20:21:04 2026]
    rule sort:
        input: work/a.pipe2
        output: out/a.txt
        threads: 4
        resources: tmpdir=/tmp, mem_mb=1049, runtime=30
"""


def test_rules_that_pipes_join_are_one_stage_in_which_they_run_at_the_same_time(made):
    """As Snakemake 9.27 writes them; apart, each would wait for another that never begins."""
    read = made(PIPED, PIPED_JOBS)
    assert edges(read) == {"prepare": set(), "sort-filter-read": {"prepare"}}
    stage = read.workflow.stages["sort-filter-read"]
    assert stage.cores == 2 * (1 + 2 + 4)
    assert (stage.walltime_s, stage.memory_bytes >> 20) == (1800, 2 * (101 + 101 + 1001))
    assert stage.command.endswith("--until sort filter read")
    assert any("joined by pipes" in note for note in read.notes)
    assert any("`runtime` is known only when a job begins" in note for note in read.notes)
    assert any("pipe()" in note for note in made(PIPED).notes)  # a graph alone does not tell


def test_what_serves_others_is_one_stage_with_them(made):
    assert (
        "filter-read"
        in made(PIPED, PIPED_JOBS.replace("a.pipe (pipe)", "a.pipe (service)").replace("(pipe)", "")).workflow.stages
    )


def test_a_graph_of_another_tool_is_no_graph_of_rules(made):
    """Each of its nodes became a rule that Snakemake does not know."""
    with pytest.raises(InputError, match="no graph of rules"):
        made(RULES.replace("snakemake_dag", '"my cluster"'))


def test_threads_are_no_more_than_the_cores_of_a_stage_and_all_cores_are_told(made):
    """As `threads: workflow.cores` has it; Snakemake lowers threads to the cores that it is given."""
    head = "  Command: snakemake --dry-run --forceall --cores 1000\n"
    jobs = head + JOBS.replace("threads: 8", "threads: 1000")
    read = made(RULES, jobs, cores=16)
    assert (read.workflow.stages["align"].cores, read.workflow.stages["align"].walltime_s) == (16, 3 * 1800)
    assert any(note.startswith("align: has as many threads as the dry run had cores, 1000") for note in read.notes)
    assert not any("as many threads" in note for note in made(RULES, head + JOBS).notes)


def test_rules_of_which_the_dry_run_has_no_job_are_named(made):
    """As of one without --forceall, where outputs are there; and rules that only the dry run has."""
    read = made(RULES, JOBS.replace("align          3\n", "").replace("side           1", "other          2"))
    told = "\n".join(read.notes)
    assert "rule align, rule side: has no job in the dry run" in told
    assert "rule other: is in the dry run and not in the graph" in told
    assert not any("dry run" in note for note in made(RULES, JOBS).notes)

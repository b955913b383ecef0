"""Traces of Nextflow as models."""

import pytest

from asa.errors import InputError
from asa.importers import import_nextflow
from asa.preparation import Preparation

COLUMNS = "task_id\tprocess\tname\tstatus\tsubmit\tstart\tcomplete\tduration\trealtime\t%cpu\tcpus\tmemory\tpeak_rss"
DOT = """digraph "dag" {
rankdir=TB;
p0 [shape=point,label="",fixedsize=true,width=0.1,xlabel="Channel.fromFilePairs"];
p1 [label="RNA:TRIM"];
p0 -> p1 [label="reads"];

p1 [label="RNA:TRIM"];
p2 [shape=circle,label="",fixedsize=true,width=0.1,xlabel="map"];
p1 -> p2;

p2 [shape=circle,label="",fixedsize=true,width=0.1,xlabel="map"];
p3 [label="RNA:ALIGN"];
p2 -> p3;

p0 [shape=point,label="",fixedsize=true,width=0.1,xlabel="Channel.fromFilePairs"];
p4 [label="RNA:QC"];
p0 -> p4;

p3 -> p5;
p5 [shape=point];
}
"""
MERMAID = """flowchart TB
    subgraph " "
    v0["Channel.fromFilePairs"]
    end
    subgraph RNA
    v1([TRIM])
    v3(["ALIGN"])
    v4([QC])
    v2(( ))
    end
    v0 --> v1
    v0 --> v4
    v1 -->|reads| v2
    v2 --> v3
"""


def row(process, submit_min, minutes, cpus="2", memory="4 GB", status="COMPLETED", cpu="150.0%"):
    """Write a line: submitted, begun a minute later."""
    moment = [
        f"2026-01-01 {10 + m // 60:02d}:{m % 60:02d}:00.000"
        for m in (submit_min, submit_min + 1, submit_min + 1 + minutes)
    ]
    cells = [
        "1",
        process,
        f"{process} (x)",
        status,
        *moment,
        f"{minutes + 1}m",
        f"{minutes}m",
        cpu,
        cpus,
        memory,
        "1.5 GB",
    ]
    return "\t".join(cells)


RNA = [
    COLUMNS,
    row("RNA:TRIM", 0, 4),
    row("RNA:TRIM", 0, 8),
    row("RNA:QC", 0, 2),
    row("RNA:ALIGN", 6, 30),
    row("RNA:ALIGN", 10, 40),
    row("RNA:ALIGN", 10, 1, status="FAILED"),
]


@pytest.fixture
def made(tmp_path):
    def read(lines, dag=None, suffix=".dot", **options):
        (tmp_path / "trace.txt").write_text("\n".join(lines) + "\n")
        if dag is not None:
            options["dag"] = tmp_path / f"dag{suffix}"
            options["dag"].write_text(dag)
        return import_nextflow(tmp_path / "trace.txt", **options)

    return read


def edges(made):
    return {name: set(stage.after) for name, stage in made.workflow.stages.items()}


def test_processes_become_stages_with_what_their_tasks_took(made):
    read = made(RNA)
    align = read.workflow.stages["ALIGN"]
    assert (align.cores, align.cpus_per_task, align.expected_run_s, align.walltime_s) == (4, 2, 2400, 3600)
    assert align.memory_bytes == 8 << 30
    assert align.is_idle
    assert "2 tasks of 2 CPUs; run times p50 30m00s, p90 40m00s" in read.comments["ALIGN"][0]
    assert "p50 1.5" in read.comments["ALIGN"][1]
    assert any("trace.txt:7: tasks that did not complete" in note for note in read.notes)


def test_cores_may_be_fewer_than_the_tasks_need(made):
    align = made(RNA, cores=3).workflow.stages["ALIGN"]
    assert (align.cores, align.expected_run_s) == (2, 4200)


def test_without_a_drawing_the_order_is_from_the_times_and_has_every_real_edge(made):
    read = made(RNA)
    assert edges(read) == {"TRIM": set(), "QC": set(), "ALIGN": {"TRIM", "QC"}}
    assert any("guess" in note for note in read.notes)


@pytest.mark.parametrize(("dag", "suffix"), [(DOT, ".dot"), (MERMAID, ".mmd")])
def test_a_drawing_gives_the_order_through_its_operators(made, dag, suffix):
    read = made(RNA, dag, suffix)
    assert edges(read) == {"TRIM": set(), "QC": set(), "ALIGN": {"TRIM"}}
    assert not any("guess" in note for note in read.notes)


def test_a_process_that_is_not_drawn_is_told(made):
    assert any("OTHER is not in the drawing" in note for note in made([*RNA, row("OTHER", 0, 1)], DOT).notes)


def test_names_that_end_alike_stay_whole(made):
    assert set(made([COLUMNS, row("A:RUN", 0, 1), row("B:RUN", 0, 1)]).workflow.stages) == {"A-RUN", "B-RUN"}


def test_the_trace_that_nextflow_writes_by_default_is_enough(made):
    columns = "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\tpeak_vmem"
    lines = [
        columns,
        "1\te6/335796\t30031\tsayHello (1)\tCOMPLETED\t0\t2018-11-02 16:09:13.353\t5.8s\t866ms\t3.8%\t4.1 MB\t7.5 MB",
        "2\te6/335797\t30032\tlast\tCACHED\t0\t2018-11-02 16:09:20.000\t1h 2m 3s\t1h 2m 2s\t-\t-\t-",
    ]
    read = made(lines)
    assert edges(read) == {"sayHello": set(), "last": {"sayHello"}}
    assert [stage.expected_run_s for stage in read.workflow.stages.values()] == [1, 3722]
    assert read.workflow.stages["sayHello"].memory_bytes == 5 << 20
    assert any("cpus" in note for note in read.notes)
    assert any("earlier run" in note for note in read.notes)


def test_raw_numbers_are_milliseconds_and_bytes(made):
    lines = ["name\tsubmit\tcomplete\trealtime\tcpus\tmemory", "a\t1000\t62000\t61000\t4\t1048576"]
    stage = made(lines).workflow.stages["a"]
    assert (stage.expected_run_s, stage.cores, stage.memory_bytes) == (61, 4, 1 << 20)


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        (["a b c"], 1, "no trace"),
        (["name\tcpus", "a\t1"], 1, "no run times"),
        ([COLUMNS, "1\ta"], 2, "2 columns of 13"),
        ([COLUMNS, row("a", 0, 1, cpus="few")], 2, "CPUs"),
        ([COLUMNS, row("a", 0, 1, memory="much")], 2, "memory"),
        ([COLUMNS, row("a", 0, 1, cpu="all")], 2, "share"),
        ([COLUMNS, row("a", 0, 1).replace("\t1m\t", "\tsoon\t")], 2, "duration"),
        ([COLUMNS, row("a", 0, 1).replace("2026", "now")], 2, "no time"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(made, lines, line, says):
    with pytest.raises(InputError, match=says) as caught:
        made(lines)
    assert caught.value.where.endswith(f"trace.txt:{line}")
    assert caught.value.hint


def test_a_run_without_a_good_task_is_refused(made):
    with pytest.raises(InputError, match="no task that completed"):
        made([COLUMNS, row("a", 0, 1, status="FAILED")])


def test_a_drawing_without_processes_is_refused(made):
    with pytest.raises(InputError, match="draws no process"):
        made(RNA, "digraph x {\n}\n")


def test_containers_and_modules_are_those_of_the_tasks(tmp_path):
    lines = [f"{COLUMNS}\tcontainer\tmodule"]
    lines += [f"{row('A', 0, 5)}\tquay.io/trim:1\t-", f"{row('A', 0, 6)}\tquay.io/trim:1\t-"]
    lines += [f"{row('B', 9, 5)}\t-\tbwa/0.7:samtools/1.9", f"{row('C', 19, 5)}\ta\t-", f"{row('C', 19, 5)}\tb\t-"]
    (tmp_path / "trace.txt").write_text("\n".join(line.rstrip("\n") for line in lines) + "\n")
    a, b, c = import_nextflow(tmp_path / "trace.txt").workflow.stages.values()
    assert a.preparation == Preparation(container="quay.io/trim:1")
    assert b.preparation == Preparation(modules=("bwa/0.7", "samtools/1.9"))
    assert c.preparation is None


# ---------------------------------------------------------------------- CPUs that the trace does not have

PLAIN = "task_id\tname\tstatus\tsubmit\tduration\trealtime\t%cpu\tpeak_rss"  # what Nextflow traces by default
CONFIG = """
includeConfig 'conf/base.config'   // once more
params { threads = 5 }
process {
    executor = 'slurm'
    cpus = { check_max( 2 * task.attempt, 'cpus' ) }
    /* withName: 'ALIGN' { cpus = 99 } */
    withName: 'ALIGN|SORT' {
        ext.args = { "a } ' brace" }
        cpus   = { 4 * task.attempt }
    }
    withName:'RNA:TRIM' { cpus = params.threads }
    withLabel: process_high { cpus = 12 }
}
profiles { test { process { cpus = 77 } } }
"""
LOG = """[main] DEBUG - Config settings `withLabel:process_high` matches labels `x,y` for process with name RNA:CALL
[main] DEBUG - Config settings `withName:ALIGN|SORT` matches process RNA:ALIGN
"""


def plain(*tasks):
    """Write a trace as Nextflow does unless it is told otherwise."""
    cells = "{0}\t{1} (x)\tCOMPLETED\t2026-01-01 1{0}:00:00.000\t9m\t5m\t{2}\t1 GB"
    return "\n".join([PLAIN, *(cells.format(i, name, cpu) for i, (name, cpu) in enumerate(tasks)), ""])


def cores(made):
    return {name: stage.cores for name, stage in made.workflow.stages.items()}


def test_cpus_that_the_trace_lacks_are_what_tasks_used(tmp_path):
    file = tmp_path / "trace.txt"
    file.write_text(plain(("A", "380.4%"), ("B", "104.0%"), ("C", "150%"), ("D", "0.0%"), ("E", "-")))
    made = import_nextflow(file)
    assert cores(made) == {"A": 4, "B": 1, "C": 2, "D": 1, "E": 1}
    assert any(note.startswith("A, B, C: no CPUs in the trace") and "%cpu" in note for note in made.notes)
    assert any(note.startswith("D, E: no CPUs in the trace") and "have one" in note for note in made.notes)


def test_cpus_that_the_trace_lacks_are_what_the_configuration_beside_it_says(tmp_path):
    file = tmp_path / "trace.txt"
    tasks = {"RNA:TRIM": "90%", "RNA:ALIGN": "20%", "RNA:CALL": "700%", "QC": "50%", "BIG": "790%"}
    file.write_text(plain(*tasks.items()))
    (tmp_path / "nextflow.config").write_text(CONFIG)
    without_labels = {"TRIM": 5, "ALIGN": 4, "CALL": 7, "QC": 1, "BIG": 8}
    assert cores(import_nextflow(file)) == without_labels
    (tmp_path / ".nextflow.log").write_text(LOG)
    made = import_nextflow(file)
    assert cores(made) == without_labels | {"CALL": 12, "QC": 2}
    assert any("nextflow.config says" in note and "RNA:CALL" in note for note in made.notes)


def test_a_configuration_elsewhere_and_what_it_includes_are_read(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.config").write_text("process.cpus = 3\nprocess { $OLD { cpus = 6 } }\n")
    (tmp_path / "run.config").write_text("includeConfig 'conf/base.config'\nincludeConfig \"${params.x}/y\"\n")
    file = tmp_path / "trace.txt"
    file.write_text(plain(("NEW", "10%"), ("OLD", "10%")))
    assert cores(import_nextflow(file)) == {"NEW": 1, "OLD": 1}
    assert cores(import_nextflow(file, config=tmp_path / "run.config")) == {"NEW": 3, "OLD": 6}


def test_cpus_of_the_trace_count_more_than_any_configuration(tmp_path):
    (tmp_path / "nextflow.config").write_text("process { cpus = 64 }")
    file = tmp_path / "trace.txt"
    file.write_text("\n".join([COLUMNS, row("A", 0, 5, cpus="2", cpu="640%"), ""]))
    assert cores(import_nextflow(file)) == {"A": 2}


@pytest.mark.parametrize(
    "text",
    ["process { cpus = {", "}}}}", "process { withName: '[' { cpus = 2 } }", "'''", "/*", '"a', "process.cpus=x"],
)
def test_a_configuration_that_is_not_whole_is_no_fault(tmp_path, text):
    (tmp_path / "nextflow.config").write_text(text)
    file = tmp_path / "trace.txt"
    file.write_text(plain(("A", "100%")))
    assert cores(import_nextflow(file)) == {"A": 1}


def test_the_profiles_that_were_applied_count(tmp_path):
    """Nextflow applies `standard` where none is named."""
    profiles = "standard { process.cpus = 3 }\n hpc { process { cpus = 5 } }\n x { process { cpus = 9 } }"
    config = f"process.cpus = 1\nprofiles {{ {profiles} }}"
    (tmp_path / "nextflow.config").write_text(config)
    file = tmp_path / "trace.txt"
    file.write_text(plain(("A", "10%")))
    assert cores(import_nextflow(file)) == {"A": 3}
    (tmp_path / ".nextflow.log").write_text("[main] DEBUG n.ConfigBuilder - Applying config profile: `test,hpc`\n")
    assert cores(import_nextflow(file)) == {"A": 5}


def test_a_task_without_a_run_time_is_told(tmp_path):
    """As one of an earlier run of which nothing was kept."""
    file = tmp_path / "trace.txt"
    file.write_text(plain(("A", "10%")) + "2\tB (x)\tCACHED\t2026-01-01 15:00:00.000\t-\t-\t-\t-\n")
    made = import_nextflow(file)
    assert any(note.startswith("B: some tasks have no run time") for note in made.notes)
    assert not any("with its times" in note for note in made.notes)

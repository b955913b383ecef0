"""WfFormat instances as workflows, and back."""

import copy
import json
import math
import re
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.errors import InputError
from asa.importers import export_wfformat, import_wfformat
from asa.importers.base import ImportNotes, lpt_makespan_s
from asa.importers.wfformat import Measured
from asa.workflow import Stage, Workflow

INSTANCES = (
    "1000genome-chameleon-2ch-100k-001",
    "blast-chameleon-medium-001",
    "blast-chameleon-small-001",
    "montage-chameleon-2mass-005d-001",
    "montage-chameleon-2mass-015d-001",
    "montage-chameleon-2mass-03d-001",
    "montage-chameleon-dss-05d-001",
)
MONTAGE = ["mProject", "mDiffFit", "mConcatFit", "mBgModel", "mBackground", "mImgtbl", "mAdd", "mViewer"]


@pytest.fixture(params=INSTANCES)
def instance(request, data):
    """Return a published instance."""
    if not (data / "wf").is_dir():
        pytest.skip("no WfFormat instances here")
    return data / "wf" / f"{request.param}.json"


def task(name, *parents, run_s=10.0, command=None, **more):
    entry = {"runtimeInSeconds": run_s, **more}
    if command:
        entry["command"] = {"program": command[0], "arguments": list(command[1:])}
    return name, parents, entry


def document(*tasks, **more):
    children = {name: [child for child, parents, _ in tasks if name in parents] for name, _, _ in tasks}
    return {
        "name": "flow",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": name, "id": name, "parents": list(parents), "children": children[name]}
                    for name, parents, _ in tasks
                ]
            },
            "execution": {
                "makespanInSeconds": 1,
                "executedAt": "2026-01-01T00:00:00+00:00",
                "tasks": [{"id": name, **entry} for name, _, entry in tasks],
            },
        },
        **more,
    }


@pytest.fixture
def made(tmp_path):
    """Import a document."""

    def read(content, **options):
        file = tmp_path / "x.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return import_wfformat(file, **options)

    return read


def shape(workflow):
    return {name: (stage.cores, stage.expected_run_s, stage.after) for name, stage in workflow.stages.items()}


# ---------------------------------------------------------------------- published instances


@pytest.mark.parametrize("by", ["category", "level", "chains"])
@pytest.mark.parametrize("cores", [None, 28])
def test_published_instances_are_read_whole(instance, by, cores):
    told = json.loads(instance.read_text())["workflow"]
    made = import_wfformat(instance, by=by, cores=cores)
    flow = made.workflow
    assert sum(len(stage.tasks) or 1 for stage in flow.stages.values()) <= len(told["specification"]["tasks"])
    if by != "chains":
        assert sum(len(stage.tasks) or 1 for stage in flow.stages.values()) == len(told["specification"]["tasks"])
    if cores:
        assert all(stage.cores <= cores for stage in flow.stages.values())
    # no stage is quicker than its work allows, and none slower than one task after the other
    work_s = sum(entry["runtimeInSeconds"] for entry in told["execution"]["tasks"])
    assert sum(stage.cores * stage.expected_s for stage in flow.stages.values()) >= work_s * 0.999
    assert flow.execution_s <= work_s + len(flow.stages)
    assert not any(stage.is_idle for stage in flow.stages.values())


def test_montage_has_the_stages_of_the_paper_in_a_chain(data):
    flow = import_wfformat(data / "wf" / f"{INSTANCES[3]}.json").workflow
    assert list(flow.stages) == MONTAGE
    assert [stage.after for stage in flow.stages.values()] == [(), *((before,) for before, _ in pairwise(MONTAGE))]
    assert [stage.cores for stage in flow.stages.values()] == [12, 18, 3, 3, 12, 3, 3, 4]


def test_recorded_commands_lose_what_the_recorder_added(data):
    stages = import_wfformat(data / "wf" / "blast-chameleon-small-001.json").workflow.stages
    assert stages["split_fasta"].command == "./split_fasta 5 small.fasta"
    assert stages["cat"].command.startswith("cat small.fasta.0.err ")
    assert stages["cat"].command.endswith(" > None.err")
    assert len(stages["blastall"].tasks) == 40


def test_published_instances_that_are_written_again_are_valid_and_equal(instance, data, tmp_path):
    flow = import_wfformat(instance, cores=28).workflow
    written = export_wfformat(flow, made_s=1.7e9)
    assert violations(json.loads((data / "wf" / "wfcommons-schema-main.json").read_text()), written) == []
    (tmp_path / "again.json").write_text(json.dumps(written))
    again = import_wfformat(tmp_path / "again.json", cores=28).workflow
    assert {name: stage.tasks for name, stage in again.stages.items()} == {
        name: stage.tasks for name, stage in flow.stages.items()
    }
    assert {name: set(stage.after) for name, stage in again.stages.items()} == {
        name: set(stage.after) for name, stage in flow.stages.items()
    }
    assert [stage.cores for stage in again.stages.values()] == [stage.cores for stage in flow.stages.values()]


# ---------------------------------------------------------------------- how tasks are gathered


def test_a_category_on_two_levels_is_two_stages(made):
    flow = made(document(task("sort_1"), task("sort_2"), task("join", "sort_1", "sort_2"), task("sort_3", "join")))
    assert shape(flow.workflow) == {"sort": (2, 10, ()), "join": (1, 10, ("sort",)), "sort-2": (1, 10, ("join",))}


def test_levels_gather_whatever_stands_side_by_side(made):
    flow = made(document(task("a"), task("b"), task("c", "a")), by="level").workflow
    assert shape(flow) == {"level-1": (2, 10, ()), "c": (1, 10, ("level-1",))}


def test_chains_of_tasks_become_one_task_each(made):
    chains = [
        part
        for i in range(3)
        for part in (task(f"cut_{i}", command=("cut", "a b")), task(f"sort_{i}", f"cut_{i}", command=("sort", str(i))))
    ]
    flow = made(document(*chains, task("join", *(f"sort_{i}" for i in range(3)), command=("join",))), by="chains")
    assert shape(flow.workflow) == {"cut-sort": (3, 20, ()), "join": (1, 10, ("cut-sort",))}
    assert flow.workflow.stages["cut-sort"].tasks[0] == "cut 'a b' && sort 0"


def test_tasks_that_do_not_fit_beside_each_other_take_turns(made):
    tasks = [task(f"t_{i}", run_s=run_s, coreCount=2) for i, run_s in enumerate((30, 30, 20, 20, 20))]
    stage = made(document(*tasks), cores=5).workflow.stages["t"]
    assert (stage.cores, stage.cpus_per_task, stage.expected_run_s) == (4, 2, 70)
    with pytest.raises(InputError, match="more than the 1 cores") as caught:
        made(document(*tasks), cores=1)
    assert "workflow.execution.tasks[0].coreCount" in caught.value.where


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=40), st.integers(1, 50))
def test_the_expected_run_is_within_what_any_schedule_allows(runs_s, workers):
    took = lpt_makespan_s(runs_s, workers)
    least = max([*runs_s, sum(runs_s) / workers])
    assert least - 1e-6 <= took <= sum(runs_s) / workers + max(runs_s) + 1e-6


def test_without_all_commands_it_is_a_model(made):
    read = made(document(task("a", command=("true",)), task("b", "a")))
    assert all(stage.is_idle for stage in read.workflow.stages.values())
    assert any("model" in note for note in read.notes)
    read = made(document(task("a", command=("true",))), commands=False)
    assert read.workflow.stages["a"].is_idle


def test_a_missing_core_count_is_one_and_told(made):
    assert any("coreCount" in note for note in made(document(task("a"))).notes)
    assert not any("coreCount" in note for note in made(document(task("a", coreCount=2))).notes)


def test_without_an_execution_run_times_are_a_guess_that_is_told(made):
    content = document(task("a"))
    del content["workflow"]["execution"]
    read = made(content)
    assert read.workflow.stages["a"].expected_run_s == 1
    assert any("run time" in note for note in read.notes)


# ---------------------------------------------------------------------- names that say more than a kind of task


def test_tasks_whose_names_differ_in_the_middle_are_gathered_by_their_program(made):
    lanes = [f"{run}_s_{lane}" for run in ("080603_ILMN", "HEP2_MSP1") for lane in (1, 2)]
    maps = [
        task(f"map_map_{lane}_ID{i:03}", "split_split_x_ID900", command=("/opt/map",)) for i, lane in enumerate(lanes)
    ]
    join = task("merge_merge_all_ID950", *(name for name, *_ in maps), command=("merge.py",))
    flow = made(document(task("split_split_x_ID900", command=("split",)), *maps, join)).workflow
    assert {name: len(stage.tasks) or 1 for name, stage in flow.stages.items()} == {"split": 1, "map": 4, "merge": 1}


def test_names_that_gather_tasks_count_more_than_their_program(made):
    parts = [task(f"bwa_{what}_{i}", command=("bwa",)) for what in ("index", "mem") for i in range(3)]
    assert list(made(document(*parts)).workflow.stages) == ["bwa_index", "bwa_mem"]
    others = [task(f"{what}_x", command=("python3",)) for what in ("split", "join")]
    assert list(made(document(*others)).workflow.stages) == ["split_x", "join_x"]


# ---------------------------------------------------------------------- WfFormat 1.4


def older(*tasks, **more):
    return {
        "name": "flow",
        "schemaVersion": "1.4",
        "workflow": {"makespanInSeconds": 1, "executedAt": "2020", "tasks": [{"type": "compute"} | t for t in tasks]},
        **more,
    }


def test_an_instance_of_1_4_is_read_as_one_of_1_5(made):
    """Its parents are names, and it counts `cores`."""
    content = older(
        {
            "name": "cut_ID01", "id": "ID01", "runtimeInSeconds": 7, "cores": 2, "memoryInBytes": 1 << 20,
            "command": {"program": "cut", "arguments": ["cut", "x"]},
        },
        {"name": "cut_ID02", "id": "ID02", "runtimeInSeconds": 9, "cores": 2, "children": ["join_ID03"]},
        {"name": "join_ID03", "id": "ID03", "parents": ["cut_ID01"], "runtimeInSeconds": 3, "cores": 1.5},
    )  # fmt: skip
    read = made(content)
    assert shape(read.workflow) == {"cut": (4, 9, ()), "join": (2, 3, ("cut",))}
    assert read.workflow.stages["cut"].memory_bytes == 1 << 20
    assert not any("cores:" in note or "run time" in note.split("walltimes")[0] for note in read.notes)


def test_parents_of_1_4_may_be_ids(made):
    content = older({"name": "a", "id": "1"}, {"name": "b", "id": "2", "parents": ["1"]})
    assert shape(made(content).workflow) == {"a": (1, 1, ()), "b": (1, 1, ("a",))}


def test_where_no_task_has_a_parent_the_files_say_the_order(made):
    """As in all instances of Nextflow, whose tasks of one process have one name."""
    read = made(
        older(
            {"name": "CUT", "id": "1", "files": [{"link": "output", "path": "/w/1/", "name": "x", "sizeInBytes": 1}]},
            {"name": "CUT", "id": "2", "files": [{"link": "output", "path": "/w/2/", "name": "x", "sizeInBytes": 1}]},
            {"name": "SORT", "id": "3", "files": [{"link": "input", "path": "/w/2/", "name": "x", "sizeInBytes": 1}]},
        )
    )
    assert shape(read.workflow) == {"CUT": (2, 1, ()), "SORT": (1, 1, ("CUT",))}
    assert any("files which it reads" in note for note in read.notes)
    content = document(task("a"), task("b"))
    first, second = content["workflow"]["specification"]["tasks"]
    first["outputFiles"], second["inputFiles"] = ["x"], ["x"]
    assert made(content).workflow.stages["b"].after == ("a",)


def test_that_tasks_have_no_order_is_told(made):
    assert any("begin at once" in note for note in made(document(task("a"), task("b"))).notes)
    assert not any("begin at once" in note for note in made(document(task("a"))).notes)


def test_what_nextflow_records_as_a_program_is_no_command(made):
    """A text with what Nextflow would fill in: as the name of a program it would be found nowhere."""
    read = made(older({"name": "a", "command": {"program": "def x = 1\ntemplate 'x.py'", "arguments": []}}))
    assert read.workflow.stages["a"].is_idle
    assert any("texts of several lines" in note for note in read.notes)


@pytest.mark.parametrize(
    ("tasks", "why", "place"),
    [
        ([], "no tasks", "workflow.tasks"),
        ([{"name": "a", "parents": ["z"]}], "id of no task", "workflow.tasks[0].parents[0]"),
        ([{"name": "a", "id": "1"}, {"name": "a", "id": "1"}], "another task", "workflow.tasks[1].id"),
        ([{"name": "a", "id": "1"}, {"name": "a", "id": "2", "children": ["a"]}], "any of 2", "tasks[1].children[0]"),
        ([{"name": "a", "cores": 0}], "is 0", "workflow.tasks[0].cores"),
        ([{"id": "1"}], "is missing", "workflow.tasks[0].name"),
    ],
)
def test_what_is_wrong_in_1_4_is_told_with_its_place(made, tasks, why, place):
    with pytest.raises(InputError, match=why) as caught:
        made(older(*tasks))
    assert caught.value.where.endswith(place)


# ---------------------------------------------------------------------- what is wrong


def spoilt(change):
    content = document(task("a"), task("b", "a"))
    change(content["workflow"]["specification"]["tasks"], content["workflow"]["execution"]["tasks"], content)
    return content


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda s, e, d: s[1].pop("id"), "workflow.specification.tasks[1].id"),
        (lambda s, e, d: s[1].pop("children"), "workflow.specification.tasks[1].children"),
        (lambda s, e, d: s[1].update(id="a"), "workflow.specification.tasks[1].id"),
        (lambda s, e, d: s[1].update(parents=["z"]), "workflow.specification.tasks[1].parents[0]"),
        (lambda s, e, d: s[1].update(parents=[3]), "workflow.specification.tasks[1].parents[0]"),
        (lambda s, e, d: s[0].update(parents=["b"]), "workflow.specification.tasks"),
        (lambda s, e, d: s.clear(), "workflow.specification.tasks"),
        (lambda s, e, d: s.append("c"), "workflow.specification.tasks[2]"),
        (lambda s, e, d: e[0].update(runtimeInSeconds=-1), "workflow.execution.tasks[0].runtimeInSeconds"),
        (lambda s, e, d: e[0].update(runtimeInSeconds="1"), "workflow.execution.tasks[0].runtimeInSeconds"),
        (lambda s, e, d: e[0].update(runtimeInSeconds=math.nan), "workflow.execution.tasks[0].runtimeInSeconds"),
        (lambda s, e, d: e[0].update(runtimeInSeconds=True), "workflow.execution.tasks[0].runtimeInSeconds"),
        (lambda s, e, d: e[1].update(coreCount=0), "workflow.execution.tasks[1].coreCount"),
        (lambda s, e, d: e[1].update(id="z"), "workflow.execution.tasks[1].id"),
        (lambda s, e, d: e[1].update(command={"program": "x", "arguments": [1]}), "tasks[1].command.arguments[0]"),
        (lambda s, e, d: d.pop("workflow"), "workflow"),
        (lambda s, e, d: d["workflow"].pop("specification"), "workflow.specification"),
        (lambda s, e, d: d["workflow"].update(execution=[]), "workflow.execution"),
        (lambda s, e, d: d.pop("name"), "name"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(made, change, place):
    with pytest.raises(InputError) as caught:
        made(spoilt(change))
    assert caught.value.where.endswith(place)
    assert caught.value.hint


@pytest.mark.parametrize("content", ["[]", "{}", '{"schemaVersion": "1.3"}', "nothing", "{\n]"])
def test_other_documents_are_refused(made, content):
    with pytest.raises(InputError):
        made(content)


def test_a_task_of_several_lines_cannot_stand_in_a_list(made):
    tasks = [task(f"t_{i}", command=("sh", "-c", "a\nb")) for i in range(2)]
    with pytest.raises(InputError, match="several lines"):
        made(document(*tasks))
    assert made(document(tasks[0])).workflow.stages["t"].command == "a\nb"


# ---------------------------------------------------------------------- writing


def violations(schema, value, place="$"):
    """Yield the differences between a value and a schema, for the parts of JSON Schema that WfFormat uses."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
    if not isinstance(value, kinds[schema["type"]]) or value not in schema.get("enum", [value]):
        return [f"{place} is {value!r}"]
    if schema["type"] == "object":
        known = schema.get("properties", {})
        missing = [f"{place}.{key} is missing" for key in schema.get("required", ()) if key not in value]
        parts = ((known[key], value[key], f"{place}.{key}") for key in known.keys() & value.keys())
        return [*missing, *(text for part in parts for text in violations(*part))]
    if schema["type"] == "array":
        within = [text for i, entry in enumerate(value) for text in violations(schema["items"], entry, f"{place}[{i}]")]
        return within if len(value) >= schema.get("minItems", 0) else [f"{place} is too short"]
    if schema["type"] == "string":
        pattern = schema.get("pattern", "").replace("Z-_", r"Z\-_")
        fits = len(value) >= schema.get("minLength", 0) and re.search(pattern, value)
    else:
        fits = value >= schema.get("minimum", -math.inf)
    return [] if fits else [f"{place} is {value!r}"]


@st.composite
def workflows(draw):
    """Workflows whose tasks all fit beside each other, and whose edges are all direct ones."""
    names = draw(
        st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,12}", fullmatch=True), min_size=1, max_size=7, unique=True)
    )
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((a, b) for i, b in enumerate(names) for a in names[:i] if draw(st.booleans()))
    reduced = nx.transitive_reduction(graph)
    line = st.text(st.characters(min_codepoint=32, max_codepoint=1000, exclude_categories=["Cs", "Cc"]), min_size=1)
    stages = []
    for name in names:
        tasks = tuple(draw(st.lists(line.filter(str.strip), max_size=4)))
        per_task = draw(st.integers(1, 4))
        cores = per_task * (len(tasks) if len(tasks) > 1 else draw(st.integers(1, 30)))
        run_s = float(draw(st.integers(1, 10_000)))
        stage = Stage(
            name,
            cores=cores,
            walltime_s=20_000.0,
            expected_run_s=run_s,
            after=tuple(before for before in names if reduced.has_edge(before, name)),
            memory_bytes=cores * draw(st.integers(0, 4)) << 20,
            tasks=tasks if len(tasks) > 1 else (),
            cpus_per_task=per_task if len(tasks) > 1 else 1,
            command=draw(line.filter(str.strip)) + draw(st.sampled_from(["", "\nnext"])) if len(tasks) < 2 else "",
        )
        stages.append(stage)
    return Workflow(draw(st.sampled_from(["flow", "été"])), stages)


@given(flow=workflows())
def test_what_was_written_reads_back_the_same(flow, tmp_path_factory):
    file = tmp_path_factory.mktemp("wf") / "x.json"
    file.write_text(json.dumps(export_wfformat(flow, made_s=1.7e9)))
    again = import_wfformat(file).workflow
    assert again.name == flow.name
    assert again.stages.keys() == flow.stages.keys()
    for name, stage in flow.stages.items():
        read = again.stages[name]
        assert set(read.after) == set(stage.after)
        for what in ("cores", "cpus_per_task", "expected_run_s", "memory_bytes", "tasks", "command"):
            assert getattr(read, what) == getattr(stage, what), what


@given(flow=workflows())
def test_what_is_written_is_valid(flow, data):
    schema = data / "wf" / "wfcommons-schema-main.json"
    if not schema.exists():
        pytest.skip("no schema of WfFormat here")
    for measured in (None, Measured(1.7e9, 30.0, dict.fromkeys(flow.stages, 3.0))):
        written = export_wfformat(flow, made_s=1.7e9, measured=measured)
        assert violations(json.loads(schema.read_text()), json.loads(json.dumps(written))) == []


def test_a_violation_is_seen(data):
    if not (data / "wf").is_dir():
        pytest.skip("no schema of WfFormat here")
    schema = json.loads((data / "wf" / "wfcommons-schema-main.json").read_text())
    good = export_wfformat(Workflow("x", [Stage("a", cores=1)]), made_s=0.0)
    assert violations(schema, good) == []
    for spoil in (
        lambda d: d.pop("name"),
        lambda d: d.update(schemaVersion="1.4"),
        lambda d: d["workflow"]["specification"]["tasks"][0].update(parents=["a b"]),
        lambda d: d["workflow"]["execution"]["tasks"][0].update(coreCount=0),
    ):
        bad = copy.deepcopy(good)
        spoil(bad)
        assert violations(schema, bad)


def test_measured_times_take_the_place_of_expected_ones():
    flow = Workflow(
        "x", [Stage("a", cores=2, command="true"), Stage("b", cores=1, after=("a",), script="#!/bin/bash\nls\n")]
    )
    written = export_wfformat(flow, made_s=2e9, measured=Measured(1.7e9, 30.0, {"a": 11.0, "b": 12.0}))
    execution = written["workflow"]["execution"]
    assert (execution["makespanInSeconds"], execution["executedAt"]) == (30.0, "2023-11-14T22:13:20+00:00")
    assert [entry["runtimeInSeconds"] for entry in execution["tasks"]] == [11.0, 12.0]
    assert "/bin/bash -c" in execution["tasks"][1]["command"]["arguments"][1]
    assert "measured" in written["description"]
    assert "expectations" in export_wfformat(flow, made_s=2e9)["description"]


def test_whole_nodes_cannot_be_written():
    with pytest.raises(InputError, match="counts cores"):
        export_wfformat(Workflow("x", [Stage("a", nodes=2)]), made_s=0.0)


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("#!/bin/sh -e", "TEXT"),
        ("#!/bin/bash -l", "/bin/bash -l -c"),
        ("#! /usr/bin/env -S python3.11 -u", "/usr/bin/env -S python3.11 -u -c"),
        ("#!/usr/bin/perl", None),
        ("#!/usr/bin/env Rscript", None),
        ("#!/bin/csh -f", None),
    ],
)
def test_only_scripts_that_can_be_a_command_become_one(first, command):
    """`-c` means something else to others: to perl that nothing is run."""
    notes = ImportNotes()
    flow = Workflow("x", [Stage("a", cores=1, script=f"{first}\nls\n"), Stage("b", cores=1, tasks_file="b.tasks")])
    [written, listed] = export_wfformat(flow, made_s=0.0, notes=notes)["workflow"]["execution"]["tasks"]
    told = notes.sentences()
    assert "command" not in listed
    assert "stage 'b': its list of tasks is a file" in told[-1]
    if command is None:
        assert "command" not in written
        assert told[0].startswith(f"stage 'a' ({first.split()[1 if 'env' in first else 0].split('/')[-1]}): ")
    else:
        assert len(told) == 1
        assert written["command"]["arguments"][1].startswith(command if command != "TEXT" else first)

"""The stages that make a file: compared with a plain check of each pair, in time linear in their number."""

import fnmatch
import os
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.elements import parse_array
from asa.spec import made
from asa.spec.calls import Scripts, run_by
from asa.spec.made import MadeFiles
from asa.workflow import Stage, Workflow


def stage(name, **more):
    return Stage(name, cores=1, walltime_s=60.0, command="true", **more)


def same(one, other):
    one, other = os.path.normpath(one), os.path.normpath(other)
    return one == other or fnmatch.fnmatchcase(one, other) or fnmatch.fnmatchcase(other, one)


def meets(path, output):
    one, other = os.path.normpath(path), os.path.normpath(output)
    return same(one, other) or one.startswith(f"{other}/") or other.startswith(f"{one}/")


PATHS = st.lists(st.sampled_from(("a", "b", "?", "*", "[ab]", "%a", "..", "a0", "ab.c")), min_size=1, max_size=3).map(
    "/".join
)


@st.composite
def workflows(draw):
    stages = []
    for number in range(draw(st.integers(1, 6))):
        after = draw(st.sets(st.sampled_from([one.name for one in stages]))) if stages else ()
        outputs = draw(st.lists(PATHS, max_size=3))
        array = parse_array("1-3") if draw(st.booleans()) else None
        if array is not None:
            outputs = [path if "%a" in path else f"{path}/%a" for path in outputs]
        stages.append(stage(f"s{number}", after=tuple(sorted(after)), outputs=tuple(outputs), array=array))
    return Workflow("w", draw(st.permutations(stages)))


@given(workflows(), PATHS)
def test_a_file_is_made_by_whom_a_look_at_each_pair_names(flow, path):
    found, stages = MadeFiles(flow), list(flow.stages.values())
    before = {}
    for name in flow.order:
        before[name] = set(flow.stages[name].after).union(*(before[one] for one in flow.stages[name].after))
    for place, one in enumerate(stages):
        earlier = [flow.stages[name] for name in before[one.name]]
        assert found.is_made_before(one, path) == any(
            meets(one.path_of_any(path), other.path_of_any(output)) for other in earlier for output in other.outputs
        )
        makers = [other.name for other in stages if other is not one and any(meets(path, o) for o in other.outputs)]
        assert found.maker(one, path) == (makers or [""])[0]
        alike = [other.name for other in stages[:place] if any(same(path, output) for output in other.outputs)]
        assert found.earlier_maker(one, path) == (alike or [""])[0]


def chain(count):
    return Workflow(
        "w",
        [
            stage(f"s{n}", after=(f"s{n - 1}",) if n else (), inputs=(f"f{n - 1}",), outputs=(f"f{n}", f"d/{n}", "*.x"))
            for n in range(count)
        ],
    )


def look(flow):
    found = MadeFiles(flow)
    for one in flow.stages.values():
        for path in (*one.inputs, "none", f"none{one.name}"):
            found.is_made_before(one, path)
            found.maker(one, path)
        for path in one.outputs:
            found.earlier_maker(one, path)


def time_of_a_look(flow):
    begin_s = time.process_time()
    look(flow)
    return time.process_time() - begin_s


def test_very_many_stages_take_little_memory_and_time():
    """Before, four times as many took sixteen times as much: 16,000 one after the other took 5 GB."""
    took = {}
    for count in (500, 2000):
        flow = chain(count)
        tracemalloc.start()
        look(flow)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        took[count] = peak, min(time_of_a_look(flow) for _ in range(5))
    assert took[2000][0] < 8 * took[500][0]
    assert took[2000][1] < 9 * took[500][1]


@pytest.mark.parametrize("bound", ["_MAX_STAGES", "_MAX_LOOKS"])
def test_beyond_a_bound_a_file_counts_as_made(monkeypatch, bound):
    monkeypatch.setattr(made, bound, 1)
    flow = Workflow("w", [stage("a", outputs=("x*",)), stage("b", outputs=("y",))])
    found = MadeFiles(flow)
    assert found.is_made_before(flow.stages["b"], "x1")
    assert bound == "_MAX_LOOKS" or not found.is_made_before(flow.stages["b"], "z")


def test_which_of_very_many_scripts_another_runs_is_found_in_a_time_that_grows_as_their_number(tmp_path):
    """Before, four times as many took sixteen times as long."""

    def took_s(count):
        paths = {number: tmp_path / f"{number}.sh" for number in range(count)}
        begin_s = time.process_time()
        scripts = Scripts(paths)
        for number, path in paths.items():
            assert run_by(f"sh {number - 1}.sh\n", [tmp_path], scripts, path) == ([number - 1] if number else [])
        return time.process_time() - begin_s

    assert took_s(1000) < 9 * max(took_s(250) for _ in range(2))

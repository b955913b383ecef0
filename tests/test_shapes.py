"""Shapes of a stage: its run time at each width, and the request there."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from left_out_widths import errors, table, within

from asa.errors import WorkflowError
from asa.shapes import Moldable, RunAt, Scaling, run_time_at
from asa.workflow import Stage

POINTS = [RunAt(7, 12_000.0), RunAt(28, 3600.0), RunAt(112, 1500.0)]


def stage(**other):
    known = {"widths": (7, 28, 56, 112, 224), "run_at": tuple(POINTS), **other}
    return Stage("a", cores=28, walltime_s=8 * 3600.0, expected_run_s=3600.0, moldable=Moldable(**known))


def test_a_width_that_was_measured_runs_as_measured():
    for law in ("measured", "amdahl", "downey"):
        assert [run_time_at(one.width, POINTS, Scaling(law)) for one in POINTS] == POINTS


def test_between_two_widths_the_logarithm_is_interpolated_and_less_sure():
    between = run_time_at(14, POINTS)
    assert between.run_s == pytest.approx(math.sqrt(12_000 * 3600))
    assert 0 < between.spread < 0.3


def test_beyond_what_was_measured_only_a_model_says_anything():
    assert run_time_at(224, POINTS) is None
    assert run_time_at(3, POINTS) is None
    beyond = run_time_at(224, POINTS, Scaling("amdahl"))
    assert 900 < beyond.run_s < 1500
    assert beyond.spread > run_time_at(56, POINTS, Scaling("amdahl")).spread


@pytest.mark.parametrize("parallel", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_amdahls_law_is_found_again_from_two_points(parallel):
    def run_s(width):
        return 10_000.0 * ((1 - parallel) + parallel / width)

    points = [RunAt(4, run_s(4)), RunAt(64, run_s(64))]
    assert run_time_at(16, points, Scaling("amdahl")).run_s == pytest.approx(run_s(16), rel=0.01)
    assert run_time_at(256, points, Scaling("amdahl")).run_s == pytest.approx(run_s(256), rel=0.01)
    assert run_time_at(256, points[:1], Scaling("amdahl", parallel=parallel)).run_s == pytest.approx(run_s(256))


@pytest.mark.parametrize(("parallelism", "variance"), [(20.0, 0.3), (50.0, 1.0), (30.0, 2.0), (100.0, 0.0)])
def test_downeys_model_has_the_speedups_of_its_paper_and_is_found_again(parallelism, variance):
    known = Scaling("downey", parallelism=parallelism, variance=variance)

    def run_s(width):
        return run_time_at(width, [RunAt(1, 10_000.0)], known).run_s

    assert run_time_at(1000, [RunAt(1, 10_000.0)], known).run_s == pytest.approx(10_000 / parallelism)  # S(n) = A
    points = [RunAt(width, run_s(width) if width > 1 else 10_000.0) for width in (1, 4, 16, 64, 256)]
    assert run_time_at(32, points, Scaling("downey")).run_s == pytest.approx(run_s(32), rel=0.03)


def test_benchmarks_of_which_one_width_is_left_out_are_predicted():
    """NAS parallel benchmarks, on two machines; nothing is claimed of what lies beyond unless a law is named."""
    found = {
        place: {name: sum(map(abs, logs)) / len(logs) for name, logs in by_name.items()}
        for place, by_name in errors().items()
    }
    assert found["between two"]["asa, measured"] < 0.1
    assert found["between two"]["asa, amdahl"] <= found["between two"]["Amdahl, fitted"]
    assert found["beyond two"]["asa, amdahl"] < min(
        found["beyond two"][name] for name in ("Amdahl, fitted", "log-log line", "no scaling")
    )
    assert "asa, measured" not in found["beyond two"]
    inside, total = within()
    assert inside / total >= 0.7
    docs = Path(__file__).parents[1] / "docs" / "explanation" / "shapes.md"
    assert table() in docs.read_text(encoding="utf-8"), "write it anew: python tools/left_out_widths.py"


def test_a_bag_of_tasks_runs_in_rounds():
    bag = Scaling("tasks", tasks=10, per_task=2)
    own = [RunAt(2, 1000.0)]  # one after the other, 100 s each
    assert [run_time_at(width, own, bag).run_s for width in (4, 8, 20, 40)] == [500.0, 300.0, 100.0, 100.0]
    assert run_time_at(40, own, Scaling("tasks", per_task=2)).run_s == 50.0  # nobody said how many there are


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(1.0, 1e6)), min_size=1, max_size=5, unique_by=lambda p: p[0]),
       st.integers(1, 10_000), st.sampled_from(["measured", "amdahl", "downey", "tasks"]))  # fmt: skip
def test_a_run_time_is_positive_and_between_its_neighbours(points, width, law):
    known = sorted((RunAt(*point) for point in points), key=lambda one: one.width)
    found = run_time_at(width, known, Scaling(law))
    if found is None:
        return
    assert found.run_s > 0
    assert found.spread >= 0
    if law == "measured":
        assert (
            min(one.run_s for one in known) * (1 - 1e-9) <= found.run_s <= max(one.run_s for one in known) * (1 + 1e-9)
        )
    if law == "amdahl":
        wider = run_time_at(2 * width, known, Scaling(law))
        by_measure = max(one.run_s for one in known) / min(one.run_s for one in known)  # which may contradict the law
        is_known = any(one.width in (width, 2 * width) for one in known)
        assert is_known or wider.run_s <= found.run_s * max(40.0, by_measure * (1 + 1e-9))


def test_a_stage_offers_the_widths_of_which_something_is_known():
    shapes = stage().shapes
    assert [shape.width for shape in shapes] == [7, 28, 56, 112]
    assert [shape.run_s for shape in shapes if shape.width != 56] == [12_000.0, 3600.0, 1500.0]
    assert [shape.width for shape in stage(scaling=Scaling("amdahl")).shapes] == [7, 28, 56, 112, 224]


def test_walltimes_are_in_proportion_to_run_times_and_leave_space_for_doubt():
    of = {shape.width: shape for shape in stage().shapes}
    assert of[28].walltime_s == 8 * 3600
    assert of[7].walltime_s / of[7].run_s == pytest.approx(8.0)
    assert of[56].walltime_s / of[56].run_s > 8.0  # it was not measured


def test_walltimes_that_are_said_hold():
    of = {shape.width: shape.walltime_s for shape in stage(walltime_at=((7, 40_000.0), (28, 28_800.0))).shapes}
    assert (of[7], of[28]) == (40_000.0, 28_800.0)


def test_widths_of_which_no_walltime_is_said_ask_in_proportion_to_the_nearest_of_which_one_is():
    of = {shape.width: shape for shape in stage(walltime_at=((28, 28_800.0), (112, 6000.0))).shapes}
    assert (of[7].walltime_s, of[112].walltime_s) == (pytest.approx(8 * 12_000), 6000.0)
    first = stage(walltime_at=((28, 28_800.0),))
    narrow = first.shaped(first.shapes[0])
    assert [shape.walltime_s for shape in narrow.shapes] == pytest.approx([shape.walltime_s for shape in first.shapes])


def test_what_is_not_said_is_never_shorter_than_the_run_that_is_expected():
    """Its own width, between two that were measured, is less sure than those, and asks for little."""
    points = (RunAt(7, 12_000.0), RunAt(112, 1500.0))
    own_s = run_time_at(28, points).run_s
    tight = Stage("a", cores=28, walltime_s=1.01 * own_s, expected_run_s=own_s, moldable=Moldable((7, 28, 112), points))
    assert [shape.walltime_s >= shape.run_s for shape in tight.shapes] == [True] * 3


def test_shapes_do_not_drift_however_often_it_is_reshaped():
    first = stage(partitions=("", "long"))
    again = first
    for shape in (*first.shapes, *reversed(first.shapes)):
        again = again.shaped(shape)
        for one, other in zip(again.shapes, first.shapes, strict=True):
            assert (one.width, one.partition, one.run_s, one.spread) == (
                other.width,
                other.partition,
                other.run_s,
                other.spread,
            )
            assert one.walltime_s == pytest.approx(other.walltime_s, rel=1e-12)
    model = Stage("a", cores=8, walltime_s=7200.0, expected_run_s=3600.0,
                  moldable=Moldable((8, 16), scaling=Scaling("amdahl", parallel=0.9)))  # fmt: skip
    wide = model.shaped(model.shapes[1])
    assert wide.shaped(wide.shapes[0]).shapes == model.shapes


def test_after_a_time_out_all_shapes_ask_for_more():
    more = replace(stage(), walltime_s=16 * 3600.0)
    assert [b.walltime_s / a.walltime_s for a, b in zip(stage().shapes, more.shapes, strict=True)] == pytest.approx(
        [2.0] * 4
    )


@given(
    st.lists(st.floats(1.0, 1e5), min_size=2, max_size=4),
    st.lists(st.floats(1.0, 1e5), min_size=2, max_size=4),
    st.floats(1.0, 10.0),
)
def test_after_a_time_out_every_shape_can_still_be_asked_for(runs_s, asked_s, factor):
    """Also where walltimes are said at widths: it ran for more than it asked for, at whichever it was."""
    widths = [2**number for number in range(min(len(runs_s), len(asked_s)))]
    points = tuple(
        RunAt(width, min(run_s, most_s)) for width, run_s, most_s in zip(widths, runs_s, asked_s, strict=False)
    )
    moldable = Moldable(tuple(widths), points, walltime_at=tuple(zip(widths, asked_s, strict=False)))
    own = Stage("a", cores=1, walltime_s=asked_s[0], expected_run_s=points[0].run_s, moldable=moldable)
    more = replace(own, walltime_s=factor * asked_s[0], expected_run_s=asked_s[0])
    assert [shape.width for shape in more.shapes] == widths
    assert all(shape.run_s <= shape.walltime_s for shape in more.shapes)
    assert [b.walltime_s / a.walltime_s for a, b in zip(own.shapes, more.shapes, strict=True)] == pytest.approx(
        [factor] * len(widths)
    )


def test_one_shape_is_fixed_for_who_chooses_none():
    assert stage().fixed().shapes == (stage().shapes[1],)
    assert [stage().fixed(width).cores for width in (5, 7, 60, 1000)] == [7, 7, 56, 112]
    plain = Stage("b", cores=4)
    assert plain.fixed(99) is plain


def test_a_width_that_was_never_tried_is_taken_where_it_is_named():
    """With the walltime that is said for it, or else its own; where another is named, one that is known comes first."""
    moldable = Moldable((2, 4, 8), (RunAt(4, 60.0), RunAt(8, 40.0)))
    known = Stage("a", cores=8, walltime_s=100.0, expected_run_s=40.0, moldable=moldable)
    assert [known.fixed(width).cores for width in (1, 2, 3, 4, 7, 99)] == [2, 2, 2, 4, 4, 8]
    tried = known.fixed(2)
    assert (tried.walltime_s, tried.expected_run_s, tried.moldable) == (100.0, None, None)
    said = replace(known, moldable=replace(moldable, walltime_at=((2, 300.0), (8, 100.0))))
    assert said.fixed(2).walltime_s == 300.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"widths": (0, 28)}, "asks for 0 cores"),
        ({"widths": (7, 14)}, "not one of its 7, 14"),
        ({"widths": (28, 28)}, "twice"),
        ({"partitions": ("long",)}, "not one of its long"),
        ({"walltime_at": ((7, 600.0), (28, 28_800.0))}, "3h20m on 7 cores within a walltime of 10m00s"),
    ],
)
def test_shapes_that_contradict_themselves_are_refused(change, words):
    with pytest.raises(WorkflowError, match=words):
        stage(**change)


@pytest.mark.parametrize("other", [{"nodes": 2}, {"local": True}, {"cpus_per_task": 3, "cores": 27}])
def test_shapes_go_with_cores_or_nodes_alone(other):
    with pytest.raises(WorkflowError):
        replace(stage(), **other)


@pytest.mark.parametrize(
    "wrong",
    [{"law": "moore"}, {"parallel": 0.5}, {"law": "amdahl", "parallel": 1.5}, {"law": "downey", "variance": 1.0}],
)
def test_a_law_with_the_parameters_of_another_is_refused(wrong):
    with pytest.raises(WorkflowError):
        Scaling(**wrong)

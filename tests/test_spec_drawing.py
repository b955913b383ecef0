"""Workflows drawn with letters: whoever follows the lines finds the graph."""

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core import plugins
from asa.spec.drawing import draw_graph
from asa.workflow import Stage, Workflow

UP, DOWN, LEFT, RIGHT = (-1, 0), (1, 0), (0, -1), (0, 1)
ARMS = {
    "│": {UP, DOWN}, "─": {LEFT, RIGHT}, "┌": {DOWN, RIGHT}, "┐": {DOWN, LEFT}, "└": {UP, RIGHT}, "┘": {UP, LEFT},
    "┬": {DOWN, LEFT, RIGHT}, "┴": {UP, LEFT, RIGHT}, "├": {UP, DOWN, RIGHT}, "┤": {UP, DOWN, LEFT},
    "┼": {UP, DOWN, LEFT, RIGHT},
}  # fmt: skip


def boxes(rows):
    """Name of the stage by each cell of its frame, and where its line leaves."""
    frame, leaves = {}, {}
    for r, row in enumerate(rows):
        for c, letter in enumerate(row):
            if (
                letter != "┌"
                or r + 2 >= len(rows)
                or rows[r + 1][c + 1 : c + 2] != " "
                or not rows[r + 1][c + 2 : c + 3].isalnum()
            ):
                continue
            end = min(row.index("┐", c), len(row))
            name = rows[r + 1][c + 2 :].split()[0]
            for column in range(c, end + 1):
                frame[r, column] = frame[r + 2, column] = name
                if rows[r + 2][column] == "┬":
                    leaves[name] = (r + 2, column)
    return frame, leaves


def edges(drawing):
    """Follow each line from below its box to the arrows."""
    rows = drawing.split("\n")
    rows = [row.ljust(max(map(len, rows))) for row in rows]
    frame, leaves = boxes(rows)
    found = set()
    for name, (row, column) in leaves.items():
        ways, seen = [(row, column, DOWN)], set()
        while ways:
            r, c, (down, right) = way = ways.pop()
            if way in seen:
                continue
            seen.add(way)
            r, c = r + down, c + right
            letter = rows[r][c]
            if letter == "▼":
                found.add((name, frame[r, c]))
                continue
            if letter == "│" and right:  # a line from left to right is broken where it passes another
                ways.append((r, c, (down, right)))
                continue
            assert (-down, -right) in ARMS[letter], f"a line from {name} ends at row {r}, column {c}:\n{drawing}"
            ways += [(r, c, arm) for arm in ARMS[letter] - {(-down, -right), UP}]  # lines lead down
    return set(frame.values()), found


def flow_of(pairs, names, cores=lambda _: 1):
    after = {name: tuple(a for a, b in pairs if b == name) for name in names}
    return Workflow("w", [Stage(name, cores=cores(name), walltime_s=600, after=after[name]) for name in names])


@st.composite
def graphs(draw):
    names = [f"s{i}" for i in range(draw(st.integers(1, 14)))]
    pairs = draw(
        st.sets(st.sampled_from([(a, b) for i, b in enumerate(names) for a in names[:i]] or [("", "")]), max_size=24)
    )
    return flow_of(pairs, names, lambda name: 1 + 27 * (int(name[1:]) % 2))


@given(graphs(), st.sampled_from([60, 80, 120]))
@settings(max_examples=200, deadline=None)
def test_the_lines_show_the_graph(flow, width):
    """All edges but those that a longer way makes needless, and no others; within the width."""
    drawing = draw_graph(flow, width)
    if drawing is None:
        return  # too wide: the caller has a table
    names, found = edges(drawing)
    assert names == set(flow.stages)
    assert found == set(nx.transitive_reduction(flow.graph).edges), drawing
    assert max(map(len, drawing.split("\n"))) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_wide_fans_are_drawn_in_rows(width):
    """Thirty stages: one, 28 side by side, one."""
    names = ["split", *(f"align-{i:02}" for i in range(28)), "merge"]
    pairs = {("split", name) for name in names[1:-1]} | {(name, "merge") for name in names[1:-1]}
    drawing = draw_graph(flow_of(pairs, names), width)
    assert drawing is not None
    assert edges(drawing) == (set(names), pairs)
    assert max(map(len, drawing.split("\n"))) <= width


def test_a_chain_shows_how_wide_its_stages_are():
    """Montage: the stages that take all cores have the widest boxes."""
    rows = draw_graph(plugins.load("asa.workflows", "montage")(112), 80).split("\n")
    widths = {row.split()[1]: len(row.strip()) for row in rows if row.strip().startswith("│ ")}
    assert min(widths[name] for name in ("mProject", "mDiffFit", "mBackground")) > 2 * max(
        width for name, width in widths.items() if name not in {"mProject", "mDiffFit", "mBackground"}
    )
    assert len(rows) == 27


def test_what_is_too_wide_is_left_to_a_table():
    """No line of the drawing is ever cut."""
    names = ["a" * 40, "b" * 40]
    assert draw_graph(flow_of(set(), names), 12) is None


def test_of_very_many_stages_no_drawing_is_made():
    """Of which nobody could follow it; before, 8000 one after the other took minutes."""
    names = [f"s{number}" for number in range(600)]
    assert draw_graph(flow_of(set(pairwise(names)), names), 80) is None

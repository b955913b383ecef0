"""Common parts of importers: names, notes, and implied predecessors."""

import time

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from asa.importers.base import ImportNotes, Names, direct


@given(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30), st.permutations(range(9)))
def test_what_another_predecessor_follows_is_left_out(pairs, order):
    edges = {str(name): [str(before) for before, after in pairs if after == name and before < name] for name in order}
    graph = nx.DiGraph()
    graph.add_nodes_from(edges)
    graph.add_edges_from((before, name) for name, befores in edges.items() for before in befores)
    reduced = nx.transitive_reduction(graph)
    assert direct(edges) == {name: tuple(b for b in edges if reduced.has_edge(b, name)) for name in edges}


def test_of_very_many_the_time_grows_as_their_number():
    """Before, four times as many took sixteen times as long."""

    def took_s(count):
        names, notes = Names(), ImportNotes()
        begin_s = time.process_time()
        direct({str(n): (str(n - 1),) if n else () for n in range(count)})
        for number in range(count):
            names.take("alike")
            notes.add("said of each", f"{number}")
        return time.process_time() - begin_s

    assert min(took_s(8000) for _ in range(3)) < 9 * max(took_s(2000) for _ in range(3))

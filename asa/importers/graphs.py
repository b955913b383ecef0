"""Reads graphs that other tools draw: Graphviz's dot, and flowcharts of Mermaid."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ID = r'(?:"(?:[^"\\]|\\.)*"|[\w.]+)'
_EDGE = re.compile(rf"\s*+({_ID})\s*+->\s*+({_ID})\s*+(?:\[.*\])?\s*+;?\s*+")
_NODE = re.compile(rf"\s*+({_ID})\s*+\[(.*)\]\s*+;?\s*+")
_ATTRIBUTE = re.compile(r'(?<!\w)(\w++)\s*+=\s*+("(?:[^"\\]|\\.)*"|[^\s,\]]+)')
_DEFAULTS = {"graph", "node", "edge"}

_ARROW = re.compile(r"\s*(\w+)\s*-->\s*(?:\|[^|]*\|\s*)?(\w+)\s*")
_STADIUM = re.compile(r"(\w++)\s*+\(\[(.*)\]\)")


@dataclass(slots=True)
class Drawing:
    """The nodes and edges of a graph that another tool drew."""

    # attributes of nodes, such as `label`; nodes that are only in edges have none
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)


def read_dot(text: str) -> Drawing:
    r"""Read a graph in the dot language, with one node or edge a line, as tools write it.

    Examples
    --------
    >>> read_dot('digraph x {\n 0[label = "align\\ns: a", color = "0.0 0.6"];\n 1 -> 0\n}')
    Drawing(nodes={'0': {'label': 'align\\ns: a', 'color': '0.0 0.6'}, '1': {}}, edges=[('1', '0')])
    """
    drawing = Drawing()
    for line in text.splitlines():
        if edge := _EDGE.fullmatch(line):
            pair = edge[1].strip('"'), edge[2].strip('"')
            drawing.edges.append(pair)
            for end in pair:
                drawing.nodes.setdefault(end, {})
        elif (node := _NODE.fullmatch(line)) and node[1] not in _DEFAULTS:
            attributes = {name: value.strip('"') for name, value in _ATTRIBUTE.findall(node[2])}
            drawing.nodes[node[1].strip('"')] = attributes
    return drawing


def read_mermaid(text: str) -> Drawing:
    r"""Read a Mermaid flowchart; only stadium-shaped nodes, ``v1([NAME])``, get a label.

    `text`: of the file; lines that are neither node nor arrow are skipped.

    Examples
    --------
    >>> read_mermaid("flowchart TB\n  v1([FASTQC])\n  v2(( ))\n  v1 --> v2")
    Drawing(nodes={'v1': {'label': 'FASTQC'}, 'v2': {}}, edges=[('v1', 'v2')])
    """
    drawing = Drawing()
    for line in text.splitlines():
        if arrow := _ARROW.fullmatch(line):
            drawing.edges.append((arrow[1], arrow[2]))
            for end in (arrow[1], arrow[2]):
                drawing.nodes.setdefault(end, {})
        elif stadium := _STADIUM.fullmatch(line.strip()):
            drawing.nodes[stadium[1]] = {"label": stadium[2].strip().removeprefix('"').removesuffix('"')}
    return drawing

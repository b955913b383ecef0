"""Draws a workflow's graph in text: stages as boxes in layers from top to bottom, with the lines between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import networkx as nx

from asa.units import format_cores, format_duration, per_job
from asa.workflow import Stage, Workflow

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_LETTERS = " ╵╷│╴┘┐┤╶└┌├─┴┬┼"  # by the sum of the directions in which a line leaves
_GAP = 2
_BOX_ROWS = 3
_WIDEST_BAR = 64
_SWEEPS = 6
_SHORT_NAME = 14
_MAX_STAGES = 500  # larger graphs cannot be read, and placing them takes time quadratic in the number of stages


@dataclass(eq=False, slots=True)
class _Node:
    """A box, or a place where lines pass a layer on their way to stages further below."""

    label: str = ""
    goals: frozenset[str] = frozenset()  # of a passing line: the stages that it leads to
    width: int = 1
    left: int = 0

    @property
    def is_box(self) -> bool:
        return bool(self.label)

    @property
    def centre(self) -> int:
        return self.left + (self.width - 1) // 2


@dataclass(eq=False, slots=True)
class _Bundle:
    """Lines between two layers from the same sources to the same targets: they share a track."""

    sources: list[_Node]
    targets: list[_Node]
    ports: dict[_Node, int] = field(default_factory=dict)  # columns in which they reach their targets
    track: int = -1  # -1: straight down

    @property
    def columns(self) -> list[int]:
        return [*(source.centre for source in self.sources), *self.ports.values()]


def draw_graph(workflow: Workflow, width: int) -> str | None:
    """Draw a workflow's stages in layers, each stage below those that it follows.

    A box's width shows its stage's cores, if there is space. Where lines cross without meeting, the horizontal one is
    broken.

    Returns lines of text without trailing blanks; None if the graph is too wide to be drawn, or has too many stages.

    Examples
    --------
    >>> flow = Workflow("w", [Stage("a", cores=1, walltime_s=60), Stage("b", cores=1, walltime_s=60, after=("a",))])
    >>> print(draw_graph(flow, 40))
    ┌───────────────┐
    │ a  1 core  1m │
    └───────┬───────┘
    ┌───────▼───────┐
    │ b  1 core  1m │
    └───────────────┘
    """
    if len(workflow.stages) > _MAX_STAGES:
        return None
    peak = max(_size(stage) for stage in workflow.stages.values())
    for label, has_bars, may_split in (
        (_full, True, False),
        (_full, False, False),
        (_brief, False, False),
        (_brief, False, True),
        (_briefest, False, True),
    ):
        labels = {name: label(stage) for name, stage in workflow.stages.items()}
        widths = {name: len(text) + 4 for name, text in labels.items()}
        if has_bars and len(set(map(_size, workflow.stages.values()))) > 1:
            most = min(width, _WIDEST_BAR)
            bars = {name: math.ceil(most * _size(stage) / peak) for name, stage in workflow.stages.items()}
            widths = {name: max(widths[name], bars[name]) for name in widths}
        drawing = _Drawing(workflow, labels, widths, width)
        if drawing.arrange(may_split=may_split):
            return drawing.text()
    return None


def _size(stage: Stage) -> int:
    return stage.cores or stage.nodes or 1


def _needs(stage: Stage) -> str:
    each = stage.of_each_job()
    cores = [] if each.cores is None else [format_cores(each.cores, stage.alike)]
    n_nodes = str(each.nodes) if each.cores is not None else per_job(stage.alike, str(each.nodes))
    nodes = [] if each.nodes is None else [f"{n_nodes} node{'' if n_nodes == '1' else 's'}"]
    return " on ".join([*cores, *nodes])


def _full(stage: Stage) -> str:
    minutes = format_duration(stage.expected_s).replace("m00s", "m").replace("h00m", "h")
    return f"{stage.name}  {_needs(stage)}  {minutes}"


def _brief(stage: Stage) -> str:
    return f"{stage.name} {stage.cores}" if stage.cores is not None else f"{stage.name} {stage.nodes}N"


def _briefest(stage: Stage) -> str:
    return stage.name if len(stage.name) <= _SHORT_NAME else f"{stage.name[: _SHORT_NAME - 1]}…"


class _Drawing:
    """One attempt at a drawing, with labels and boxes of given widths."""

    def __init__(self, workflow: Workflow, labels: Mapping[str, str], widths: Mapping[str, int], width: int) -> None:
        # an edge in addition to a longer path adds nothing
        self._graph = nx.transitive_reduction(workflow.graph)
        self._order = workflow.order
        self._labels = labels
        self._widths = widths
        self._width = width
        self._layers: list[list[_Node]] = []
        self._bundles: list[list[_Bundle]] = []

    def arrange(self, *, may_split: bool) -> bool:
        """Place every box and line; return whether there is enough space."""
        least = dict.fromkeys(self._order, 0)
        while True:
            self._make_layers(self._levels(least))
            wide = next((i for i, layer in enumerate(self._layers) if _taken(layer) > self._width), None)
            if wide is None:
                break
            boxes = [node for node in self._layers[wide] if node.is_box]
            if not may_split or len(boxes) < 2:
                return False
            taken = _taken(self._layers[wide])
            while taken > self._width and len(boxes) > 1:
                moved = boxes.pop()
                least[moved.label] = wide + 1
                taken -= moved.width + _GAP
        self._sort_layers()
        self._place()
        return all(_route(bundles, layer) for bundles, layer in zip(self._bundles, self._layers[1:], strict=True))

    def _levels(self, least: Mapping[str, int]) -> dict[str, int]:
        levels: dict[str, int] = {}
        for name in self._order:
            before = (levels[b] + 1 for b in self._graph.predecessors(name))
            levels[name] = max(least[name], *before, 0)
        return levels

    def _make_layers(self, levels: Mapping[str, int]) -> None:
        """Make boxes, lines that pass layers, and the bundles between each layer and the next."""
        count = max(levels.values()) + 1
        boxes = {name: _Node(name, width=self._widths[name]) for name in self._order}
        self._layers = [[boxes[name] for name in self._order if levels[name] == i] for i in range(count)]
        self._bundles = []
        for i in range(count - 1):
            passing: dict[frozenset[str], _Node] = {}
            by_targets: dict[frozenset[_Node], list[_Node]] = {}
            for node in self._layers[i]:
                goals = frozenset(self._graph.successors(node.label)) if node.is_box else node.goals
                targets = {boxes[goal] for goal in goals if levels[goal] == i + 1}
                if later := frozenset(goal for goal in goals if levels[goal] > i + 1):
                    targets.add(passing.setdefault(later, _Node(goals=later)))
                if targets:
                    by_targets.setdefault(frozenset(targets), []).append(node)
            self._layers[i + 1].extend(passing.values())
            below = {node: number for number, node in enumerate(self._layers[i + 1])}
            self._bundles.append(
                [_Bundle(sources, sorted(targets, key=below.__getitem__)) for targets, sources in by_targets.items()]
            )
            for node in passing.values():
                node.width = 2 * sum(node in bundle.targets for bundle in self._bundles[i]) - 1

    def _neighbours(self, index: int, *, above: bool) -> dict[_Node, list[_Node]]:
        found: dict[_Node, list[_Node]] = {}
        gap = index - 1 if above else index
        for bundle in self._bundles[gap] if 0 <= gap < len(self._bundles) else []:
            mine, theirs = (bundle.targets, bundle.sources) if above else (bundle.sources, bundle.targets)
            for node in mine:
                found.setdefault(node, []).extend(theirs)
        return found

    def _sweeps(self) -> Iterator[tuple[int, bool]]:
        """Return the layers in the order of improvement: downwards by the layers above, upwards by those below."""
        for sweep in range(_SWEEPS):
            indices = range(len(self._layers))
            for index in indices if sweep % 2 == 0 else reversed(indices):
                yield index, sweep % 2 == 0

    def _sort_layers(self) -> None:
        """Order each layer so that few lines cross."""
        for index, above in self._sweeps():
            neighbours = self._neighbours(index, above=above)
            layer = self._layers[index]
            rank = {node: i for other in self._layers for i, node in enumerate(other)}
            scale = {id(other): max(len(other) - 1, 1) for other in self._layers}
            where = {node: rank[node] / scale[id(other)] for other in self._layers for node in other}
            layer.sort(key=lambda n: fmean(where[m] for m in neighbours[n]) if n in neighbours else where[n])

    def _place(self) -> None:
        """Choose the columns of each node, near the middle of its neighbours."""
        for layer in self._layers:
            left = (self._width - _taken(layer)) // 2
            for node in layer:
                node.left = left
                left += node.width + _GAP
        for index, above in self._sweeps():
            layer, neighbours = self._layers[index], self._neighbours(index, above=above)
            wishes = []
            for node in layer:
                centre = fmean(n.centre for n in neighbours[node]) if node in neighbours else node.centre
                wishes.append(centre - (node.width - 1) // 2)
            _spread(layer, wishes, self._width)
        shift = min(node.left for layer in self._layers for node in layer)
        for layer in self._layers:
            for node in layer:
                node.left -= shift

    def text(self) -> str:
        """Write the arranged graph as text."""
        page = _Page()
        row = 0
        for index, layer in enumerate(self._layers):
            above = self._bundles[index - 1] if index else []
            below = self._bundles[index] if index < len(self._bundles) else []
            for node in layer:
                ports = [bundle.ports[node] for bundle in above if node in bundle.ports]
                leaves = any(node in bundle.sources for bundle in below)
                if node.is_box:
                    page.box(row, node, self._labels[node.label], ports, leaves=leaves)
                else:
                    page.passage(row, node, ports)
            row += _BOX_ROWS
            tracks = max((bundle.track + 1 for bundle in below), default=0)
            for bundle in below:
                page.bundle(row, tracks, bundle)
            row += tracks
        return page.text()


def _taken(layer: Sequence[_Node]) -> int:
    return sum(node.width for node in layer) + _GAP * (len(layer) - 1)


def _spread(layer: Sequence[_Node], wishes: Sequence[float], width: int) -> None:
    """Put nodes as near to their desired places as their order and widths allow (pooling adjacent violators)."""
    offsets = [0]
    for node in layer[:-1]:
        offsets.append(offsets[-1] + node.width + _GAP)
    pools: list[list[float]] = []
    for wish, offset in zip(wishes, offsets, strict=True):
        pools.append([wish - offset])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    spots = [fmean(pool) for pool in pools for _ in pool]
    for node, spot, offset in zip(layer, spots, offsets, strict=True):
        node.left = round(min(max(spot, 0), width - _taken(layer))) + offset


def _route(bundles: list[_Bundle], below: Sequence[_Node]) -> bool:
    """Give each bundle the columns of its targets, and a track; return whether no two collide."""
    for node in below:
        _assign_ports(node, [bundle for bundle in bundles if node in bundle.targets], bundles)
    # a bundle whose line comes down where another's goes up must turn aside above it
    over: nx.DiGraph[_Bundle] = nx.DiGraph()
    over.add_nodes_from(bundles)
    for bundle in bundles:
        sources = {source.centre for source in bundle.sources}
        over.add_edges_from((bundle, o) for o in bundles if o is not bundle and sources & set(o.ports.values()))
    if not nx.is_directed_acyclic_graph(over):
        return False
    rows: list[list[_Bundle]] = []
    position = {bundle: i for i, bundle in enumerate(sorted(bundles, key=lambda b: max(b.columns) - min(b.columns)))}
    for bundle in nx.lexicographical_topological_sort(over, key=position.__getitem__):
        if len(set(bundle.columns)) == 1:
            continue
        track = max((other.track + 1 for other in over.predecessors(bundle)), default=0)
        while track < len(rows) and any(_overlap(bundle, other) for other in rows[track]):
            track += 1
        rows.extend([] for _ in range(track + 1 - len(rows)))
        rows[track].append(bundle)
        bundle.track = track
    return True


def _assign_ports(node: _Node, arriving: list[_Bundle], bundles: Sequence[_Bundle]) -> None:
    """Choose a column for each bundle that reaches a node: near the node's middle, not below another's source."""
    arriving.sort(key=lambda bundle: fmean(source.centre for source in bundle.sources))
    edge = 1 if node.is_box else 0
    inside = range(node.left + edge, node.left + node.width - edge)
    taken: set[int] = set()
    for i, bundle in enumerate(arriving):
        others = {source.centre for other in bundles if other is not bundle for source in other.sources}
        free = set(inside) - taken - others or set(inside) - taken
        wanted = node.centre + 2 * i - (len(arriving) - 1)
        above = bundle.sources[0].centre
        if len(arriving) == len(bundle.sources) == 1 and abs(above - wanted) <= 1 and above in free:
            wanted = above  # straight down
        bundle.ports[node] = min((abs(column - wanted), column) for column in free or inside)[1]
        taken.add(bundle.ports[node])


def _overlap(bundle: _Bundle, other: _Bundle) -> bool:
    return max(min(bundle.columns), min(other.columns)) <= min(max(bundle.columns), max(other.columns))


class _Page:
    """A grid of letters; each line knows its bundle, so that crossing lines do not seem to meet."""

    def __init__(self) -> None:
        self._letters: dict[tuple[int, int], str] = {}
        self._lines: dict[tuple[int, int], dict[object, int]] = {}

    def box(self, row: int, node: _Node, label: str, ports: Sequence[int], *, leaves: bool) -> None:
        inner = node.width - 2
        right = node.left + node.width - 1
        self._write(row, node.left, f"┌{'─' * inner}┐")
        self._write(row + 1, node.left, f"│ {label.ljust(inner - 1)}│")
        self._write(row + 2, node.left, f"└{'─' * inner}┘")
        for port in ports:
            self._letters[row, min(max(port, node.left), right)] = "▼"
        if leaves:
            self._letters[row + 2, node.centre] = "┬"

    def passage(self, row: int, node: _Node, ports: Sequence[int]) -> None:
        for port in ports:
            self._line(row, port, _UP, node)
            for column in range(min(port, node.centre), max(port, node.centre)):
                self._line(row, column, _RIGHT, node)
                self._line(row, column + 1, _LEFT, node)
        self._line(row, node.centre, _DOWN, node)
        for below in range(row + 1, row + _BOX_ROWS):
            self._line(below, node.centre, _UP | _DOWN, node)

    def bundle(self, row: int, tracks: int, bundle: _Bundle) -> None:
        if bundle.track < 0:
            for track in range(tracks):
                self._line(row + track, bundle.columns[0], _UP | _DOWN, bundle)
            return
        turn = row + bundle.track
        for source in bundle.sources:
            for above in range(row, turn):
                self._line(above, source.centre, _UP | _DOWN, bundle)
            self._line(turn, source.centre, _UP, bundle)
        for port in bundle.ports.values():
            self._line(turn, port, _DOWN, bundle)
            for below in range(turn + 1, row + tracks):
                self._line(below, port, _UP | _DOWN, bundle)
        for column in range(min(bundle.columns), max(bundle.columns)):
            self._line(turn, column, _RIGHT, bundle)
            self._line(turn, column + 1, _LEFT, bundle)

    def text(self) -> str:
        letters = {place: _letter(list(lines.values())) for place, lines in self._lines.items()} | self._letters
        height = max(row for row, _ in letters) + 1
        width = max(column for _, column in letters) + 1
        rows = ("".join(letters.get((row, column), " ") for column in range(width)).rstrip() for row in range(height))
        return "\n".join(rows)

    def _write(self, row: int, column: int, text: str) -> None:
        for i, letter in enumerate(text):
            self._letters[row, column + i] = letter

    def _line(self, row: int, column: int, directions: int, edge: object) -> None:
        lines = self._lines.setdefault((row, column), {})
        lines[edge] = lines.get(edge, 0) | directions


def _letter(lines: Sequence[int]) -> str:
    if len(lines) > 1 and any(line == _UP | _DOWN for line in lines):
        return "│"
    together = 0
    for line in lines:
        together |= line
    return _LETTERS[together]

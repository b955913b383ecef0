"""A planner that is slow and plain: second by second, written apart from the package's, to check it against.

What is used is a list of numbers for each resource of each node, one a second. A start is found by trying each second,
and where several sorts of chunks can be placed by trying every way there is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from asa.backends.openccs.requests import Arrangement, ResourceRequest
from asa.backends.openccs.system import Admission, CcsSystem, Node, Reserve


@dataclass(frozen=True)
class Sort:
    """Chunks that are alike."""

    count: int
    needs: dict
    properties: dict


@dataclass(frozen=True)
class Held:
    """What a job holds from its start until its end, which is no more its own: amounts by node and resource."""

    request: ResourceRequest
    start: int
    end: int
    nodes: dict

    @staticmethod
    def of(job, system):
        """Return the resources that a job of the plan holds."""
        return Held.placed(job.request, job.placement, system)

    @staticmethod
    def placed(request, placement, system):
        rows = placement.amounts.reshape(-1, len(system.resources)).tolist()
        amounts = [
            {name: items for name, items in zip(system.resources, row, strict=True) if items or name in node.resources}
            for node, row in zip((system.nodes[place] for place in placement.nodes), rows, strict=True)
        ]
        nodes = dict(zip((system.nodes[place].name for place in placement.nodes.tolist()), amounts, strict=True))
        assert len(nodes) == len(placement.nodes), "a node is named once"
        return Held(request, placement.start, placement.end, nodes)


def lasts(request, system):
    return request.walltime_s or system.walltime_s


def totals(request):
    """Return the totals of a job's request, on nodes and as licences."""
    sums = Counter()
    for chunk in request.chunks:
        for name, amount in chunk.needs.items():
            sums[name] += chunk.count * amount
    for name, value in request.job_wide.items():
        sums.update({value: 1} if isinstance(value, str) else {name: value})
    return sums


def sorts(request):
    """The sorts of chunks of a job; those that must be on one node are one chunk. None if no node can have them."""
    if request.place.arrangement is not Arrangement.PACK:
        return [Sort(chunk.count, dict(chunk.needs), dict(chunk.properties)) for chunk in request.chunks]
    needs, properties = Counter(), {}
    for chunk in request.chunks:
        needs.update({name: chunk.count * amount for name, amount in chunk.needs.items()})
        if any(properties.get(name, value) != value for name, value in chunk.properties.items()):
            return None
        properties |= chunk.properties
    return [Sort(1, dict(needs), properties)]


@dataclass
class PlainPlanner:
    """Usage by time from a given time on."""

    system: CcsSystem
    since: int = 0
    down: frozenset = frozenset()
    used: dict = field(init=False)  # of each node and resource, by second
    sums: dict = field(init=False)  # of each licence
    guests: dict = field(init=False)  # how many jobs are on each node
    closed: dict = field(init=False)  # and how many of them have it for themselves
    open: dict = field(init=False)  # by reserve and node, what those use who may not have all

    def __post_init__(self):
        nodes = self.system.nodes
        self.nodes = {node.name: node for node in nodes}
        self.used = {node.name: {name: [] for name in node.resources} for node in nodes}
        self.sums = {name: [] for name in self.system.licences}
        self.guests = {node.name: [] for node in nodes}
        self.closed = {node.name: [] for node in nodes}
        self.open = {(i, n.name): {r: [] for r in n.resources} for i in range(len(self.system.reserves)) for n in nodes}

    # ---- what is held

    def hold(self, held):
        """Book a job's resources."""
        wanted = totals(held.request)
        for name, amounts in held.nodes.items():
            self._add(self.guests[name], held, 1)
            if held.request.place.exclusive:
                self._add(self.closed[name], held, 1)
            for resource, amount in amounts.items():
                self._add(self.used[name][resource], held, amount)
                for i, reserve in enumerate(self.system.reserves):
                    if not wanted[reserve.resource]:
                        self._add(self.open[i, name][resource], held, amount)
        for name, amount in wanted.items():
            if name in self.sums:
                self._add(self.sums[name], held, amount)

    def _add(self, counts, held, amount):
        start, end = max(held.start - self.since, 0), held.end - self.since
        counts.extend([0] * (end - len(counts)))
        for second in range(start, end):
            counts[second] += amount

    def most(self, counts, start, end):
        """Return the maximum usage between two times."""
        return max(counts[start - self.since : end - self.since], default=0)

    def at(self, second):
        """Return the usage of each resource of the whole system at a time, without nodes that are down."""
        at = second - self.since
        sums = Counter(dict.fromkeys([*self.system.resources, *self.sums], 0))
        for node, resources in self.used.items():
            for name, counts in resources.items() if node not in self.down else ():
                sums[name] += counts[at] if at < len(counts) else 0
        for name, counts in self.sums.items():
            sums[name] += counts[at] if at < len(counts) else 0
        return sums

    @property
    def last(self):
        """From when on nothing is held."""
        every = [*self.sums.values(), *self.guests.values()]
        return self.since + max(map(len, every))

    # ---- where there is room

    def suits(self, node, sort, lasts_s):
        """Whether a node has the properties that a chunk requires, and accepts the chunk."""
        admitted = [
            all(sort.needs.get(name, 0) >= least for name, least in reason.at_least.items())
            and (reason.at_most_s == 0 or lasts_s <= reason.at_most_s)
            for reason in node.admits
        ]
        return all(node.properties.get(name) == value for name, value in sort.properties.items()) and (
            not admitted or any(admitted)
        )

    def kept(self, node, request):
        """What of each resource of a node a job may not have, and whether the node is kept for others at all."""
        wanted = totals(request)
        reserves = [r for r in self.system.reserves if not wanted[r.resource] and node.resources.get(r.resource, 0)]
        return {name: sum(r.keeps.get(name, 0) for r in reserves) for name in node.resources}, bool(reserves)

    def room(self, node, request, start, end):
        """What of a node a job could have from a time until another; None if it may not be there."""
        kept, is_kept = self.kept(node, request)
        others = self.guests if request.place.exclusive else self.closed
        if node.name in self.down or self.most(others[node.name], start, end):
            return None
        if request.place.exclusive and is_kept:
            return None
        used = self.used[node.name]
        return {name: items - kept[name] - self.most(used[name], start, end) for name, items in node.resources.items()}

    def ways(self, node, request, start, end):
        """Every choice of chunks for a node: how many of each sort."""
        room, wanted = self.room(node, request, start, end), sorts(request)
        if room is None or wanted is None:
            return {(0,) * len(wanted or [0])}
        lasts_s, most = lasts(request, self.system), []
        for sort in wanted:
            most.append(sort.count if self.suits(node, sort, lasts_s) else 0)
            for name, need in sort.needs.items():
                most[-1] = min(most[-1], max(room.get(name, 0), 0) // need if need else most[-1])
        scattered = request.place.arrangement is Arrangement.SCATTER
        return {
            way
            for way in itertools.product(*(range(many + 1) for many in most))
            if not (scattered and sum(way) > 1)
            and all(
                sum(many * sort.needs.get(name, 0) for many, sort in zip(way, wanted, strict=True)) <= max(free, 0)
                for name, free in room.items()
            )
        }

    def fits(self, request, start, lasts_s=None):
        """Whether there is any way to place a job at a time."""
        end, wanted = start + (lasts_s or lasts(request, self.system)), sorts(request)
        return wanted is not None and self.has_sums(request, start, end) and self._is_placeable(request, start, end)

    def has_sums(self, request, start, end):
        """Whether the licences are there, and nothing is asked for that there is not."""
        there = {*self.system.resources, *self.system.licences}
        return all(name in there for name in totals(request)) and all(
            self.most(self.sums[name], start, end) + amount <= self.system.licences[name]
            for name, amount in totals(request).items()
            if name in self.sums
        )

    def _is_placeable(self, request, start, end):
        full = tuple(sort.count for sort in sorts(request))
        reached = {(0,) * len(full)}
        for node in self.system.nodes:
            ways = self.ways(node, request, start, end)
            reached = {
                tuple(min(a + b, most) for a, b, most in zip(one, way, full, strict=True))
                for one in reached
                for way in ways
            }
            if full in reached:
                return True
        return False

    def first(self, request, since, end=None):
        """The first start of a job, by which it ends no later than `end`; None if there is none."""
        lasts_s = lasts(request, self.system)
        latest = max(self.last, since)  # by then it fits, or never
        latest = latest if end is None else min(latest, end - lasts_s)
        return next((start for start in range(since, latest + 1) if self.fits(request, start)), None)

    def planned(self, request, since, end=None):
        """The first start of a job in its own time: at its start, before its deadline, or as soon as can be."""
        if request.start_s is not None:
            is_there = request.start_s >= since and self.fits(request, request.start_s)
            return request.start_s if is_there else None
        ends = [time for time in (request.deadline_s, end) if time is not None]
        return self.first(request, since, min(ends, default=None))

    # ---- on which nodes

    def weight(self, node):
        """How expensive a node is (Section 5.2)."""
        sums = Counter()
        for one in self.system.nodes:
            sums.update(one.resources)
        shares = [Fraction(items, sums[name]) for name, items in node.resources.items() if sums[name]]
        return (max(shares, default=Fraction(0)) + node.priority) * max(sums["ncpus"], 1)

    def cheapest(self, request, start):
        """What a job of one sort of chunk holds at a start: as much as fits of each node, the cheapest first."""
        end, [sort] = start + lasts(request, self.system), sorts(request)
        left, nodes = sort.count, {}
        for node in sorted(self.system.nodes, key=self.weight):
            many = min(left, max(way[0] for way in self.ways(node, request, start, end)))
            if many:
                left -= many
                amounts = {name: many * sort.needs.get(name, 0) for name in node.resources}
                nodes[node.name] = dict(node.resources) if request.place.exclusive else amounts
        assert not left, "it fits at its start"
        return Held(request, start, end, nodes)

    # ---- whether what is held may be held

    def complaints(self, held):
        """What is wrong with where a job is, by its request alone and whoever else is there."""
        request, wanted = held.request, sorts(held.request)
        full = tuple(sort.count for sort in wanted)
        reached = {(0,) * len(full)}
        empty = PlainPlanner(self.system)
        for name, amounts in held.nodes.items():
            node = self.nodes[name]
            ways = {way for way in empty.ways(node, request, 0, lasts(request, self.system)) if any(way)}
            if request.place.exclusive:
                ways = ways if amounts == node.resources else set()
            else:
                ways = {
                    way
                    for way in ways
                    if all(
                        sum(many * sort.needs.get(one, 0) for many, sort in zip(way, wanted, strict=True)) == amount
                        for one, amount in amounts.items()
                    )
                }
            if not ways:
                yield f"no chunks of {request} make {amounts} on {name}"
            reached = {tuple(a + b for a, b in zip(one, way, strict=True)) for one in reached for way in ways}
            if name in self.down:
                yield f"{name} is down"
        if full not in reached:
            yield f"{held.nodes} are not the chunks of {request}"

    def overbooked(self):
        """Where more is held than there is, or than those may hold who do; and where somebody is not alone."""
        for name, node in self.nodes.items():
            for resource, counts in self.used[name].items():
                if max(counts, default=0) > node.resources[resource]:
                    yield f"{resource} of {name}"
            if any(alone and many > 1 for alone, many in zip(self.closed[name], self.guests[name], strict=False)):
                yield f"{name} is not one job's own"
        yield from (name for name, held in self.sums.items() if max(held, default=0) > self.system.licences[name])
        for (i, name), held in self.open.items():
            reserve, there = self.system.reserves[i], self.nodes[name].resources
            for resource, items in reserve.keeps.items() if there.get(reserve.resource) else ():
                if max(held.get(resource, []), default=0) > max(there.get(resource, 0) - items, 0):
                    yield f"{resource} of {name}, kept for {reserve.resource}"


# ---------------------------------------------------------------------- at random


def a_system(random):
    """Some nodes of several sorts, with what there can be of everything."""
    resources = {"ncpus", *(name for name in ("mem", "gpus") if random.random() < 0.6)}
    has_reasons = random.random() < 0.3
    sorts_of_nodes = []
    for number in range(random.randint(1, 3)):
        items = {"ncpus": random.randint(1, 8)}
        items |= {"mem": random.randint(0, 8)} if "mem" in resources else {}
        items |= {"gpus": random.randint(1, 2)} if "gpus" in resources and random.random() < 0.5 else {}
        properties = {"acc": random.choice(["fpga", "tesla"])} if random.random() < 0.5 else {}
        reasons = [
            Admission({"ncpus": random.randint(1, 4)}),
            Admission({random.choice(sorted(resources - {"gpus"})): random.randint(1, 4)}, random.choice([0, 9])),
            Admission(at_most_s=random.randint(1, 12)),
        ]
        admits = tuple(random.sample(reasons, random.randint(1, 2))) if has_reasons and number else ()
        sorts_of_nodes.append((items, properties, random.choice([0, 0, 0, 1]), admits))
    chosen = [random.choice(sorts_of_nodes) for _ in range(random.randint(2, 6))]
    nodes = tuple(Node(f"n{number}", *sort) for number, sort in enumerate(chosen))
    licences = {"g03": random.randint(1, 3)} if random.random() < 0.5 else {}
    is_kept = any("gpus" in node.resources for node in nodes) and random.random() < 0.6
    reserves = (Reserve("gpus", {"ncpus": random.randint(1, 2)}),) if is_kept else ()
    return CcsSystem("random", nodes, licences, reserves, walltime_s=7)


def a_request(random, system, max_sorts=2, more=""):
    """What some job asks for, in the language of requests; most of it can be."""
    chunks = []
    for _ in range(random.randint(1, max_sorts)):
        node = random.choice(system.nodes)
        needs = [f"ncpus={random.randint(1, node.resources['ncpus'])}"]
        needs += [
            f"{r}={random.randint(1, node.resources.get(r) or 1)}"
            for r in ("mem", "gpus")
            if r in system.resources and random.random() < (0.4 if node.resources.get(r) else 0.03)
        ]
        if system.properties and random.random() < 0.25:
            needs.append(f"acc={node.properties.get('acc') or random.choice(['fpga', 'tesla'])}")
        chunks.append(f"{random.choice([1, 1, 1, 2, 2, 3, 5])}:{':'.join(needs)}")
    place = random.choice(["free", "free", "free", "pack", "scatter"]) + random.choice(["", "", "", ":excl"])
    parts = [f"rset={'+'.join(chunks)}", f"place={place}"]
    if system.licences and random.random() < 0.4:
        parts.append(random.choice(["sw=g03", "g03=1", "g03=2", "sw=g03,g03=1"]))
    if random.random() < 0.95:
        parts.append(f"walltime={random.choice([1, 2, 4, 5, 5, 10, 10, random.randint(1, 20)])}s")  # much ends together
    return ResourceRequest.parse(",".join(parts) + more, system.kinds)


def has_one_sort(request):
    return len(request.chunks) == 1 or request.place.arrangement is Arrangement.PACK

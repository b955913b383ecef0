"""The protocol of `asa.bags` once more, on a plain model of files that are seen late, step by step.

Between any two steps of one taker others may do theirs, and it may be killed, told to end, or reported dead though it
lives. What a node sees of listings and of whether a file is there may be as old as its last look; to make a link, and
to read a file by its name, is true. An answer may be lost, and the disk may be full.
"""

from collections import Counter
from dataclasses import dataclass, field

from asa.bags.folder import _pieces, chunks


@dataclass
class World:
    """The true state of the tasks, whatever the files show."""

    running: dict = field(default_factory=dict)  # by task, who runs it
    ends: Counter = field(default_factory=Counter)
    excused: Counter = field(default_factory=Counter)  # ends of takers that were reported dead before
    reported_dead: set = field(default_factory=set)

    def begin(self, task, who):
        others = self.running.setdefault(task, set()) - self.reported_dead
        assert who in self.reported_dead or not others, f"task {task} runs twice: {others}, {who}"
        self.running[task].add(who)

    def end(self, task, who):
        self.running[task].discard(who)
        self.ends[task] += 1
        self.excused[task] += who in self.reported_dead

    def stop(self, who):
        for runs in self.running.values():
            runs.discard(who)


class Disk:
    """The round's folder."""

    def __init__(self, count, divisor, rng):
        self.chunks, self.divisor, self.rng = list(chunks(count, divisor)), divisor, rng
        self.count = count
        self.claims, self.logs, self.spares, self.returned = {}, {}, {}, {}
        self.is_full, self.loses_answers = False, False

    def link(self, where, name, what):
        """Make a link; false if it is there, or is made and the answer is lost."""
        if name in where or self.is_full:
            return False
        where[name] = what
        return not (self.loses_answers and self.rng.random() < 0.2)

    def ended(self):
        """The places, and codes, of all tasks that count as ended."""
        found = []
        for who in self.logs:
            gone = {at for first, last in self.returned.get(who, ()) for at in range(first, last + 1)}
            found += [(at, code) for at, code in self.logs[who] + self.spares[who] if at not in gone]
        return found


class Eyes:
    """The files as a node sees them: all, or those of its last look."""

    def __init__(self, disk, rng, late):
        self.disk, self.rng, self.late, self.seen = disk, rng, late, {}

    def listing(self, kind):
        now = dict(getattr(self.disk, kind))
        if kind not in self.seen or self.rng.random() >= self.late:
            self.seen[kind] = now
        return self.seen[kind]

    def sees(self, kind, name):
        there = name in getattr(self.disk, kind)
        return there and (name in self.seen.get(kind, ()) or self.rng.random() >= self.late)


def range_of(disk, name):
    if isinstance(name, int):
        return disk.chunks[name]
    giver, line = name
    return disk.returned[giver][line]


def give_back(disk, eyes, who):
    """Give back what a taker had taken and not ended: by itself, by the client, or by its job's next start."""
    if eyes.sees("returned", who):
        return
    taken = [name for name, owner in eyes.listing("claims").items() if owner == who]
    yield
    if not eyes.sees("logs", who):
        return  # it is tried again
    ended = {at for at, _ in disk.logs[who] + disk.spares[who]}
    places = [range_of(disk, name) for name in taken]
    left = [at for first, last in sorted(places) for at in range(first, last + 1) if at not in ended]
    yield
    disk.link(disk.returned, who, list(_pieces(left, max(len(left) // disk.divisor, 1))))


class Taker:
    """A job's taker with one worker."""

    def __init__(self, disk, world, eyes, rng, name, former=()):
        self.disk, self.world, self.eyes, self.rng, self.name = disk, world, eyes, rng, name
        self.is_told_to_end = False
        self.steps = self._run(former)

    def _claim(self, name):
        if self.disk.link(self.disk.claims, name, self.name):
            return True
        return self.disk.claims.get(name) == self.name  # the link itself tells

    def _take(self, at):
        """Take a chunk from a place on, or a piece; give its name, and where to look next. Yields in between."""
        while at < len(self.disk.chunks):
            if not self.eyes.sees("claims", at):
                yield
                if self._claim(at):
                    return at, at + 1
                if at not in self.disk.claims:
                    return None, at  # the disk is full
            at += 1
        for giver, ranges in list(self.eyes.listing("returned").items()):
            for line in range(len(ranges)):
                name = giver, line
                if name not in self.ours and not self.eyes.sees("claims", name):
                    yield
                    if self._claim(name):
                        self.ours.add(name)
                        return name, at
        return None, at

    def _run(self, former):
        self.ours = set()
        for one in former:
            yield from give_back(self.disk, self.eyes, one)
        if self.disk.is_full:
            return
        self.disk.logs.setdefault(self.name, [])
        self.disk.spares.setdefault(self.name, [])
        at, is_full = 0, False
        while not self.is_told_to_end and not is_full:
            name, at = yield from self._take(at)
            if name is None:
                return
            first, last = range_of(self.disk, name)
            for task in range(first, last + 1):
                yield
                if self.is_told_to_end or is_full:
                    break
                if self.eyes.sees("returned", self.name):
                    return
                self.world.begin(task, self.name)
                yield
                if self.is_told_to_end:
                    self.world.stop(self.name)
                    break
                self.world.end(task, self.name)
                record = (task, int(self.rng.random() < 0.1))
                if self.disk.is_full:
                    self.disk.spares[self.name].append(record)  # whose space was taken before
                    is_full = True
                else:
                    self.disk.logs[self.name].append(record)
        yield from give_back(self.disk, self.eyes, self.name)

"""The table: kinds of stages, strategies, and what is behind or beside them."""

from dataclasses import dataclass
from itertools import chain, cycle, product
from random import Random

from asa.core.plugins import names
from pairs.kinds import KINDS, Kind, one
from pairs.plain import refusal_of

STRATEGIES = tuple(sorted(set(names("asa.strategies")) - {"oracle", "asa-asks", "asa-naive-asks"}))
"""Those of `asa run`; the others need a simulator, which knows the future, or a batch system that plans."""
RACES = "asa-plan:races=yes:race-after=0:patience=0:max-racers=3"
BEHIND = {
    "nothing": (),
    "one": (("x", "T"),),
    "two in a row": (("x", "T"), ("y", "x")),
    "two side by side": (("x", "T"), ("y", "T"), ("z", "x y")),
}
"""What follows: names, each with those that it follows, where T are the last stages that are tried."""
GIVEN_BACK = {
    "its job queues": "queued",
    "its job is behind another": "behind",
    "its job came early": "allocated",
    "its next leg queues": "next",
}
"""When the job of the last stage that is tried is given back, once; and what that is in `pairs.gives_back`."""


@dataclass(frozen=True)
class Stage:
    """A stage of a row's workflow."""

    name: str
    kind: Kind
    after: tuple[str, ...] = ()

    @property
    def text(self):
        says = self.kind.says.replace("{name}", self.name)
        keys = {line.partition(" =")[0] for line in says.splitlines()}
        lines = [f'name = "{self.name}"', f"after = {list(self.after)}".replace("'", '"')]
        lines += ['walltime = "10min"'] if "walltime" not in keys else []
        lines += ['expected = "200s"'] if keys.isdisjoint({"expected", "total"}) else []
        lines += [f'when = "{self.kind.when}"'] if self.kind.when != "success" else []
        return "\n".join(["[[stage]]", *lines, says, ""])


@dataclass(frozen=True)
class Row:
    """Kinds that follow each other (``then``) or are side by side (``and``), after one stage of a core, or two."""

    strategy: str
    kinds: tuple[str, ...]
    how: str = "then"
    behind: str = "one"
    gives_back: str = ""  # of `GIVEN_BACK`

    def __str__(self):
        back = f", given back as {self.gives_back}" if self.gives_back else ""
        return f"{self.strategy} | {f' {self.how} '.join(self.kinds)}{back}; behind it {self.behind}"

    @property
    def tried(self):
        return [f"t{number}" for number in range(len(self.kinds))]

    @property
    def stages(self):
        before = ("a", "b") if self.behind == "two side by side" else ("a",)
        stages = [Stage(name, one("cores = 1")) for name in before]
        for name, kind in zip(self.tried, self.kinds, strict=True):
            stages.append(Stage(name, KINDS[kind], before))
            before = (name,) if self.how == "then" else before
        last = self.tried[-1:] if self.how == "then" else self.tried
        for name, after in BEHIND[self.behind]:
            befores = chain.from_iterable(last if other == "T" else (other,) for other in after.split())
            stages.append(Stage(name, one("cores = 2"), tuple(befores)))
        return stages

    @property
    def text(self):
        return "\n".join(['name = "row"', *(stage.text for stage in self.stages)])


def alone(kind, strategies=STRATEGIES):
    """Make the rows of a kind by itself: under each strategy with all that may follow."""
    return [Row(how, (kind,), behind=after) for how, after in product(strategies, BEHIND)]


def given_back(kind, strategies=STRATEGIES, whens=tuple(GIVEN_BACK)):
    """Make the rows in which its job is given back, with what may follow in turn; only legs have a next one."""
    whens = [when for when in whens if GIVEN_BACK[when] != "next" or KINDS[kind].has("continues")]
    rows = zip(product(whens, strategies), cycle(BEHIND), strict=False)
    return [Row(how, (kind,), behind=behind, gives_back=when) for (when, how), behind in rows]


def paired(kind, others, strategies=STRATEGIES):
    """Make the rows of a kind with others, behind it and, from itself on, beside it; all else is in turn."""
    pairs = [(other, "then") for other in others] + [(other, "and") for other in others[others.index(kind) :]]
    turns = list(product(strategies, BEHIND))
    turns = cycle(Random(f"strategies {kind}").sample(turns, len(turns)))
    return [Row(how, (kind, other), goes, behind) for (other, goes), (how, behind) in zip(pairs, turns, strict=False)]


def covering(kind, strategies=STRATEGIES):
    """Make a row of a kind under each strategy, each with another kind, behind or beside it, and something behind both.

    What never completes comes last, as what follows it does not run.
    """
    chance = Random(f"others {kind}")
    rows = []
    for how, behind in zip(chance.sample(strategies, len(strategies)), cycle(BEHIND), strict=False):
        pair = sorted((kind, chance.choice(list(KINDS))), key=lambda one: not KINDS[one].completes)
        rows.append(Row(how, tuple(pair), chance.choice(("then", "and")), behind))
    return rows


def together(strategies, kinds, count, hows=("and",)):
    """Make rows in which each kind is once, with `count` - 1 others, and something behind them; strategies are in turn.

    Those that never complete are with each other, and last: what follows them does not run.
    """
    kinds = sorted(kinds, key=lambda kind: not KINDS[kind].completes)
    some = [tuple(kinds[first : first + count]) for first in range(0, len(kinds), count)]
    return [Row(*row) for row in zip(cycle(strategies), some, cycle(hows), cycle(BEHIND), strict=False)]


def under(strategy, kinds=tuple(KINDS), count=2, hows=("then", "and")):
    """Make rows in which each kind is once under a strategy, before or beside others, and something behind them.

    What the strategy refuses is by itself: else nothing of what it is with would be tried.
    """
    chance = Random(f"others {strategy}")
    kinds = chance.sample(kinds, len(kinds))
    refused = [kind for kind in kinds if refusal_of(Row(strategy, (kind,)))]
    others = [kind for kind in kinds if kind not in refused]
    return together((strategy,), others, count, chance.choices(hows, k=len(kinds))) + together((strategy,), refused, 1)


def few(kind, strategies=STRATEGIES):
    """Make the row of a kind where a row takes long: another strategy, and something else behind it, for each kind."""
    number = list(KINDS).index(kind)
    return Row(strategies[number % len(strategies)], (kind,), behind=list(BEHIND)[number % len(BEHIND)])

"""Draws a trial from its seed: a workflow, a cluster and its load, and faults with their times."""

import itertools
import random
from dataclasses import asdict, dataclass, replace

from slurm_testbed import OLDEST, RELEASES

STRATEGIES = ("big-job", "per-stage", "chained", "asa", "asa-naive", "asa-plan", "elastic", "pool")
SITES = (*itertools.product(RELEASES, ("cli", "rest")), ("", "local"))
NODES, CORES_PER_NODE = 4, 4
MORE_FROM = 7000
"""The first seed whose trials have more in them: each seed below draws what it always drew."""
SHAPES_FROM = 8000
"""Likewise, from which on stages may be asked for in several shapes."""
FANS_FROM = 20_000
"""Likewise, from which on the stages of a layer ask for the same, in one shape."""
TICKS_FROM = 30_000
"""Likewise, from which on a third of the runs are only looked at, each look by a client of its own."""
PAIRS_FROM = 40_000
"""Likewise, from which on a run's stages go to two clusters."""
PAIR = ("big", "small")
"""The two; without more said, commands reach the first."""
WIDTHS = (1, 2, 4, 8, 12, 16)
TOLD = ("save", "stays", "late:2")  # what SIGTERM does to a payload

CLIENT = ("kill", "gone", "term", "int", "hup", "away", "two_resumes", "other_host")
LOCAL = (*CLIENT, "payload_killed", "disk_full", "bank_readonly", "cancel")
SLURM = (
    *CLIENT,
    *("controller_restart", "controller_away", "controller_killed"),
    *("requeue", "requeue", "hold", "requeue_hold", "suspend", "cancelled_running", "cancelled_pending"),
    *("payload_killed", "batch_killed", "cancel"),
    *("drain", "node_down", "slurmd_restart", "slurmd_away", "node_crash"),
    *("disk_full", "bank_readonly", "preempted", "preempted"),
    *("partition_down", "partition_inactive", "limit", "database_away", "munge_away"),
)
ONLY = {
    "cli": ("slow_sbatch", "lost_sbatch", "slow_commands"),
    "rest": ("rest_restart", "rest_away", "rest_lost", "rest_slow"),
}
WORLD: dict[str, tuple[str, ...]] = {
    "identity": ("numbers_anew", "other_cluster"),
    "absence": ("answers_empty", "answers_partial", "answers_cut", "answers_shuffled", "accounting_lags"),
    "faults": ("fails_before", "fails_after", "answers_late", "conf_empty"),
    "words": ("states_unknown", "reasons_unknown"),
    "nodes": ("bad_node",),
    "numbers": ("two_numbers",),
    "memory": ("out_of_memory",),
    "codes": (),
    "files": (),
}
"""A hostile world: what sites do to a client, by kinds; of the last two, steps have more."""
_BY_COMMANDS = {"conf_empty", "two_numbers"}
_LASTS_S = {
    "answers_empty": (5.0, 45.0), "accounting_lags": (20.0, 60.0), "conf_empty": (1.0, 6.0), "bad_node": (15.0, 30.0),
    "out_of_memory": (40.0, 60.0),
}  # fmt: skip
_QUIET = ("kill", "gone", "term", "int", "hup", "away", "two_resumes", "controller_restart", "hold", "time_limit")
"""Of the faults that there always were, those that a hostile world has, too: they end no stage."""
CODES = (2, 42, *range(81, 93), 124, 130, 137, 143, 255)
"""Exit codes of a user's own program: most mean something to asa or a shell, and all are retried."""
HARSH = {
    *("cancelled_running", "cancelled_pending", "payload_killed", "batch_killed", "cancel", "disk_full", "time_limit"),
    *("node_crash", "slurmd_away", "node_down", "preempted", "controller_killed", "told", "tmp_full"),
    *("numbers_anew", "out_of_memory"),
}
"""Faults that may end a stage, so that `asa resume --retry` has to ask for it again; after others the run goes on.

A controller that is killed forgets jobs of its last seconds, which look like some that somebody has cancelled.
"""


@dataclass(frozen=True)
class Step:
    """A stage of a trial's workflow; with `tasks` (seconds each) a list of commands. `how` is as in `step.sh`."""

    name: str
    after: tuple[str, ...]
    cores: int
    seconds: float
    tasks: tuple[float, ...] = ()
    retries: int = 0
    local: bool = False
    how: str = "ok"
    bad_task: int = 0
    when: str = "success"
    script: str = ""  # its file hands over by "exec", has it as a "child", or is in "python"
    tasks_by: str = ""  # who writes the file of its tasks: "before", or a stage
    gives: bool = False  # an output
    needs: tuple[str, ...] = ()  # stages whose output is its input
    expects: float = 0.0  # seconds that asa is told, where these are not what it takes
    widths: tuple[int, ...] = ()  # cores that it may be asked for with, its own first; empty for these alone
    partitions: tuple[str, ...] = ()  # likewise where it may be sent
    late_s: float = 0.0  # for which what it gives cannot be seen by others

    @property
    def fails(self) -> bool:
        """Whether it does so by itself, at first or always."""
        return self.how.startswith(("fail", "lacks"))

    @property
    def bad_times(self) -> int:
        """How often it fails, hangs or lacks its outputs by itself; 0 if never or always."""
        _, times, *_ = (*self.how.split(":"), "")
        return int(times) if times.isdigit() else 0

    @property
    def parts(self) -> dict[str, str]:
        """Name of each of its executions, and how that ends."""
        if not self.tasks:
            return {self.name: self.how}
        return {f"{self.name}.{n}": self.how if n == self.bad_task else "ok" for n in range(len(self.tasks))}


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, so long after a stage begins or ends (or the run begins), for so long."""

    kind: str
    at: str  # "begin", "start", "end"
    step: str
    delay_s: float
    lasts_s: float
    pick: float

    def __str__(self) -> str:
        where = "the run begins" if self.at == "begin" else f"{self.step} {self.at}s"
        return f"{self.kind} {self.delay_s:.1f} s after {where}, for {self.lasts_s:.1f} s"


@dataclass(frozen=True)
class Site:
    """The properties of the cluster."""

    accounting: bool
    min_job_age_s: int
    clock_off_s: int  # the client's
    accrue: bool
    load: int  # jobs of another user that wait
    short_tokens: bool
    preempts: str  # what becomes of a job that is preempted: REQUEUE or CANCEL
    kill_wait_s: int = 1  # from SIGTERM to SIGKILL
    small_tmp: bool = False  # $TMPDIR is a small disk of its own


@dataclass(frozen=True)
class Trial:
    """A whole trial."""

    seed: int
    version: str
    link: str
    strategy: str
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    site: Site
    again_from: str
    fail_fast: bool = False
    world: tuple[str, ...] = ()  # of `WORLD`
    ticks_s: tuple[float, float] | None = None  # the pauses between looks, if nothing but looks goes on with the run
    is_pair: bool = False  # whether there are two clusters

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.strategy.partition(':')[0]}-{self.version or 'this'}-{self.link}"

    @property
    def again(self) -> str:
        """The arguments that repeat it."""
        version = f" --version {self.version}" if self.version else ""
        world = f" --world {','.join(self.world)}" if self.world else ""
        driven = f" --driven {'ticks' if self.ticks_s else 'clients'}"
        strategy = self.strategy.partition(":")[0]
        return f"--seeds {self.seed}{version} --link {self.link} --strategy {strategy}{world}{driven}"

    @property
    def late_s(self) -> float:
        """How much later than a client that stays looks notice something, and act on it."""
        return 3 * (self.ticks_s[1] + 6.0) if self.ticks_s else 0.0

    @property
    def gentle(self) -> bool:
        """Whether no fault is one that may end a stage."""
        return not any(fault.kind in HARSH for fault in self.faults)

    @property
    def rerun(self) -> set[str]:
        """Return which stages are to run once more when all has completed."""
        again = {self.again_from} - {""}
        for step in self.steps:
            if set(step.after) & again:
                again.add(step.name)
        return again

    @property
    def doomed(self) -> tuple[set[str], set[str]]:
        """Return which stages can never complete, and which of these may never begin."""
        fail = {step.name for step in self.steps if step.how == "fail:always"}
        behind: set[str] = set()
        for step in self.steps:  # in an order of the graph
            if step.when == "success" and set(step.after) & (fail | behind):
                behind.add(step.name)
        return fail | behind, behind

    def told(self) -> dict[str, object]:
        return asdict(self)


def draw(
    seed: int, version: str, link: str, strategy: str, world: tuple[str, ...] = (), *, ticks: bool | None = None
) -> Trial:
    """Draw a trial: the same workflow for a seed whatever the strategy is, the same faults for a seed and a link.

    `ticks`: whether nothing but looks goes on with the run; None for what the seed says.
    """
    chance = random.Random(f"workflow {seed}")
    steps = _steps(chance, link)
    if strategy == "pool":  # whose workers have a node
        steps = tuple(replace(step, cores=min(step.cores, CORES_PER_NODE)) for step in steps)
    chance = random.Random(f"site {seed}")
    site = Site(
        accounting=chance.random() < 0.4,
        min_job_age_s=chance.choice([600, 600, 2]),
        clock_off_s=chance.choice([0, 0, 0, 0, 0, 0, -90, 90]) if not _has_local(steps, link) else 0,
        accrue=chance.random() < 0.3,
        load=chance.choice([0, 1, 2, 3]) if link != "local" else 0,
        short_tokens=link == "rest" and version != OLDEST and chance.random() < 0.5,
        preempts=random.Random(f"preemption {seed}").choice(["REQUEUE", "REQUEUE", "CANCEL"]),
    )
    faults = _faults(random.Random(f"faults {seed} {link}"), link, steps)
    if strategy == "asa-plan":
        strategy = chance.choice(["asa-plan", "asa-plan:price=0", "asa-plan:price=1", "asa-plan:at-most=4"])
    chance = random.Random(f"again {seed}")
    again = chance.choice(steps) if chance.random() < 0.25 else None
    again_from = again.name if again is not None and again.when != "failed" else ""
    trial = Trial(seed, version, link, strategy, steps, faults, site, again_from)
    if MORE_FROM <= seed < PAIRS_FROM:
        trial = _more(random.Random(f"more {seed}"), trial)
    if seed >= PAIRS_FROM:
        trial = _pair(random.Random(f"pair {seed}"), trial)
    elif seed >= FANS_FROM:
        trial = _fans(trial)
    elif seed >= SHAPES_FROM:
        trial = _shapes(random.Random(f"shapes {seed}"), trial)
    if world:
        trial = _hostile(random.Random(f"hostile {seed} {link}"), trial, world)
    return _ticks(random.Random(f"ticks {seed}"), trial, ticks)


def _ticks(chance: random.Random, trial: Trial, ticks: bool | None) -> Trial:
    """Let a run be gone on with by looks alone; a pool ends with its client."""
    drawn, pauses_s = chance.random() < 1 / 3, chance.choice([(0.0, 1.0), (1.0, 6.0), (5.0, 20.0)])
    is_so = (drawn and trial.seed >= TICKS_FROM) if ticks is None else ticks
    return replace(trial, ticks_s=pauses_s) if is_so and trial.strategy != "pool" else trial


def _has_local(steps: tuple[Step, ...], link: str) -> bool:
    return link == "local" or any(step.local for step in steps)


def _graph(chance: random.Random) -> list[tuple[str, tuple[str, ...]]]:
    shape = chance.choice(["chain", "diamond", "layers", "layers"])
    if shape == "chain":
        layers = [1] * chance.randint(3, 6)
    elif shape == "diamond":
        layers = [1, chance.randint(2, 4), 1] + [1] * chance.randint(0, 1)
    else:
        layers = [chance.randint(1, 4) for _ in range(chance.randint(2, 4))]
        layers = layers if sum(layers) >= 4 else [*layers, 2, 1]
    graph: list[tuple[str, tuple[str, ...]]] = []
    above: list[str] = []
    for depth, width in enumerate(layers):
        names = [f"{'abcdefgh'[depth]}{n}" for n in range(width)]
        for name in names:
            few = chance.sample(above, chance.randint(1, len(above))) if above else []
            graph.append((name, tuple(sorted(above if shape == "diamond" else few))))
        above = names
    return graph[:12]


def _steps(chance: random.Random, link: str) -> tuple[Step, ...]:
    steps = []
    for name, after in _graph(chance):
        tasks = tuple(round(chance.uniform(0.5, 2.0), 1) for _ in range(chance.randint(2, 5)))
        has_tasks, is_local = chance.random() < 0.25, chance.random() < 0.1
        steps.append(
            Step(
                name,
                after,
                cores=1 if is_local else chance.choice([1, 2, 4, 4, 8, 12, 16]),
                seconds=round(chance.uniform(0.8, 4.0), 1),
                tasks=tasks if has_tasks and not is_local else (),
                retries=chance.choice([0, 0, 0, 1, 2]),
                local=is_local,
            )
        )
    how = chance.choice(["ok", "ok", "ok", "fail:1", "fail:2", "fail:always", "fail:always", "hang:1"])
    at = chance.randrange(len(steps))
    bad = steps[at]
    if how.startswith("hang") and (bad.local or bad.tasks):
        how = "fail:1"
    task = chance.randrange(len(bad.tasks)) if bad.tasks else 0
    steps[at] = replace(bad, how=how, bad_task=task)
    if chance.random() < 0.3:  # what cleans up
        names = chance.sample([step.name for step in steps], chance.randint(1, min(3, len(steps))))
        steps.append(Step("z0", tuple(sorted(names)), 1, 1.0, when=chance.choice(["failed", "always"])))
    return tuple(steps)


def _faults(chance: random.Random, link: str, steps: tuple[Step, ...]) -> tuple[Fault, ...]:
    kinds = LOCAL if link == "local" else (*SLURM, *ONLY[link], *ONLY[link])
    faults = []
    for _ in range(chance.choice([1, 2, 2, 3, 3])):
        kind = chance.choice(kinds)
        at = chance.choice(["begin", "start", "start", "end", "end"])
        step = chance.choice(steps).name
        delay_s = chance.uniform(0, 12.0) if at == "begin" else chance.choice([0.0, 0.1, 0.5, 1.0, 2.0, 4.0])
        delay_s += chance.uniform(0, 0.5)
        lasts_s = chance.uniform(16.0, 22.0) if kind == "slurmd_away" else chance.uniform(1.0, 10.0)
        faults.append(Fault(kind, at, step, round(delay_s, 2), round(lasts_s, 1), chance.random()))
    faults += [Fault("time_limit", "start", one.name, 1.0, 0.0, 0.0) for one in steps if one.how.startswith("hang")]
    return tuple(faults)


# ---------------------------------------------------------------------- from MORE_FROM on


def _more(chance: random.Random, trial: Trial) -> Trial:
    """Draw what the trial has beside what each seed has: files, payloads that are told to end, slow local stages."""
    steps = list(trial.steps)
    for at, step in enumerate(steps):
        steps[at] = _with_files(chance, step, steps[:at], python=trial.version in ("", OLDEST))
    site = replace(trial.site, kill_wait_s=chance.choice([1, 5]), small_tmp=chance.random() < 0.4)
    faults = list(trial.faults)
    if site.small_tmp and chance.random() < 0.6:
        faults.append(Fault("tmp_full", *_moment(chance, steps), round(chance.uniform(2.0, 10.0), 1), chance.random()))
    if (fail_fast := chance.random() < 0.2) and chance.random() < 0.6:  # so that it can be judged by times
        faults = [fault for fault in faults if fault.kind == "time_limit"]
    if chance.random() < 0.5:
        faults += _told(chance, steps)
    strategy = trial.strategy
    if strategy.startswith("asa-plan"):
        more = ["asa-plan:grow=yes", "asa-plan:grow=yes", "asa-plan:deadline=2040-01-01T00:00", "asa-plan:price=30"]
        strategy = chance.choice([strategy, *more])
    if strategy == "asa-naive":
        strategy = chance.choice(["asa-naive", "asa-naive-hold"])
    return replace(trial, steps=tuple(steps), faults=tuple(faults), site=site, fail_fast=fail_fast, strategy=strategy)


def _moment(chance: random.Random, steps: list[Step]) -> tuple[str, str, float]:
    return chance.choice(["begin", "start", "end"]), chance.choice(steps).name, round(chance.uniform(0, 3.0), 2)


def _with_files(chance: random.Random, step: Step, before: list[Step], *, python: bool) -> Step:
    """Let a step be a script, have its tasks in a file, give and need files, or be slower than is told."""
    script = chance.choice(["", "", "exec", "child", "python" if python else "exec"])
    writers = [one.name for one in before if one.name in step.after and step.when == "success"]
    tasks_by = chance.choice(["", "before", *writers])
    givers = [one.name for one in before if one.name in writers and one.gives]
    gives, needs = chance.random() < 0.35, givers if chance.random() < 0.6 else ()
    lacks = gives and step.how == "ok" and not step.tasks and chance.random() < 0.15
    slow = step.local and chance.random() < 0.6
    seconds = chance.choice([15.0, 15.0, 30.0, 140.0]) if slow else step.seconds
    return replace(
        step,
        script="" if step.tasks else script,
        tasks_by=tasks_by if step.tasks else "",
        gives=gives,
        needs=tuple(needs),
        how="lacks:1" if lacks else step.how,
        seconds=seconds,
        expects=1.0 if slow else 0.0,
    )


def _told(chance: random.Random, steps: list[Step]) -> list[Fault]:
    """Have a payload know of SIGTERM, and send it one."""
    able = [at for at, step in enumerate(steps) if step.how == "ok" and not step.local and step.when == "success"]
    if not able:
        return []
    at = chance.choice(able)
    step = steps[at]
    longer = tuple(round(one + 2.0, 1) for one in step.tasks)
    steps[at] = replace(
        step,
        how=chance.choice(TOLD),
        seconds=round(step.seconds + 3.0, 1),
        tasks=longer,
        bad_task=chance.randrange(len(longer)) if longer else 0,
    )
    return [Fault("told", "start", step.name, round(chance.uniform(0.2, 2.5), 2), 0.0, chance.random())]


# ---------------------------------------------------------------------- from FANS_FROM on


def _fans(trial: Trial) -> Trial:
    """Let the stages of a layer ask for the same, so that they are submitted together."""
    of_layer: dict[str, Step] = {}
    steps = []
    for step in trial.steps:
        if step.local or step.tasks or step.partitions:
            steps.append(step)
            continue
        first = of_layer.setdefault(step.name[0], step)
        steps.append(replace(step, cores=first.cores, seconds=first.seconds, retries=first.retries))
    return replace(trial, steps=tuple(steps))


# ---------------------------------------------------------------------- from PAIRS_FROM on

_ON_PAIR = ("one_away", "one_away", "one_fails", "one_fails", "cancelled_running", "cancelled_pending")
_OF_PAIR = ("per-stage", "asa", "asa-naive", "chained", "asa-plan", "asa-plan:races=yes:race-after=2:patience=0")


def _pair(chance: random.Random, trial: Trial) -> Trial:
    """Let each stage name a partition of one of two clusters, one that both have, or none."""
    places = (*(f"normal@{name}" for name in PAIR), "normal", "")
    steps = tuple(replace(step, partitions=(chance.choice(places),)) for step in trial.steps[:8] if not step.local)
    names = {step.name for step in steps}  # of which what cleans up comes last
    steps = tuple(replace(step, after=tuple(one for one in step.after if one in names)) for step in steps)
    steps = tuple(step for step in steps if step.after or step.when == "success")
    faults = tuple(fault for fault in trial.faults if fault.kind == "time_limit" and fault.step in names)
    for _ in range(chance.randint(1, 3)):
        at, step, delay_s = _moment(chance, list(steps))
        delay_s += chance.uniform(0, 10.0) if at == "begin" else 0.0
        kind = chance.choice((*_ON_PAIR, "kill", "kill", "gone", "two_resumes"))
        faults += (Fault(kind, at, step, round(delay_s, 2), round(chance.uniform(5.0, 20.0), 1), chance.random()),)
    site = replace(trial.site, accounting=True, clock_off_s=0, short_tokens=False)
    again_from = trial.again_from if trial.again_from in names else ""
    return replace(
        trial,
        strategy=chance.choice(_OF_PAIR),
        steps=steps,
        faults=faults,
        site=site,
        again_from=again_from,
        is_pair=True,
    )


# ---------------------------------------------------------------------- from SHAPES_FROM on


def _shapes(chance: random.Random, trial: Trial) -> Trial:
    """Let stages be asked for in several widths, and some in either of two partitions."""
    steps = []
    for step in trial.steps:
        others = chance.sample([one for one in WIDTHS if one != step.cores], chance.randint(1, 4))
        either = ("normal", "debug") if chance.random() < 0.3 and trial.link != "local" else ()
        able = chance.random() < 0.7 and not step.local and trial.strategy != "pool"
        steps.append(replace(step, widths=(step.cores, *others), partitions=either) if able else step)
    return replace(trial, steps=tuple(steps))


# ---------------------------------------------------------------------- in a hostile world


def _hostile(chance: random.Random, trial: Trial, world: tuple[str, ...]) -> Trial:
    """Let a site do to the client what it is asked to, beside faults that end no stage; a relay needs no tokens."""
    kinds = [kind for name in world for kind in WORLD[name] if trial.link == "cli" or kind not in _BY_COMMANDS]
    # of a job that runs several stages Slurm does not say which of them it was, and here it is only the client that
    # hears of it, while Slurm would let nothing begin that depends on such a job
    if trial.strategy != "per-stage":
        kinds = [kind for kind in kinds if kind != "out_of_memory"]
    faults = [fault for fault in trial.faults if fault.kind in _QUIET]
    if kinds and trial.link != "local":
        faults += [_hostile_fault(chance, chance.choice(kinds), trial) for _ in range(chance.choice([1, 2, 2, 3]))]
    steps = list(trial.steps)
    if not trial.strategy.startswith("asa-plan"):  # which alone is asked for several shapes
        steps = [replace(one, widths=(), partitions=()) for one in steps]
    if "nodes" in world:  # one of which is to be spared
        most = (NODES - 1) * CORES_PER_NODE
        steps = [
            replace(one, cores=min(one.cores, most), widths=tuple(w for w in one.widths if w <= most)) for one in steps
        ]
    if "codes" in world:
        steps = [_with_code(chance, one) for one in steps]
    if "files" in world:
        for at, step in enumerate(steps):
            steps[at] = _with_late_files(chance, step, steps[:at])
    site = replace(trial.site, short_tokens=False)
    return replace(trial, faults=tuple(faults), steps=tuple(steps), site=site, world=world, again_from="")


def _hostile_fault(chance: random.Random, kind: str, trial: Trial) -> Fault:
    at = chance.choice(["begin", "start", "start", "end"])
    delay_s = chance.uniform(0, 12.0) if at == "begin" else chance.choice([0.0, 0.1, 0.5, 1.0, 2.0])
    lasts_s = chance.uniform(*_LASTS_S.get(kind, (3.0, 20.0)))
    return Fault(kind, at, chance.choice(trial.steps).name, round(delay_s, 2), round(lasts_s, 1), chance.random())


def _with_code(chance: random.Random, step: Step) -> Step:
    """Let a step that fails at first do so with a code that means something to others; and some that do not."""
    code = chance.choice(CODES)
    if step.how.startswith("fail:") and step.bad_times:
        return replace(step, how=f"{step.how}:{code}")
    if step.how == "ok" and not step.local and chance.random() < 0.2:
        return replace(step, how=f"fail:1:{code}", retries=max(step.retries, 1))
    return step


def _with_late_files(chance: random.Random, step: Step, before: list[Step]) -> Step:
    """Let a step give a file that others see late, and need those of steps before it."""
    if step.when != "success" or step.local or step.tasks:
        return step
    gives = step.gives or chance.random() < 0.5
    givers = [one.name for one in before if one.name in step.after and one.gives]
    return replace(step, gives=gives, late_s=chance.choice([2.0, 6.0, 15.0]) if gives else 0.0, needs=tuple(givers))

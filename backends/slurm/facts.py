"""What Slurm tells of a site, for a twin of it: its nodes, partitions and the rules by which its jobs are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from asa.errors import InputError
from asa.facts import Away, PartitionFacts, SiteFacts, Survey
from asa.units import parse_duration

from .accounting import TWIN_COMMAND
from .commands.reading import read_configuration, read_nodes, read_partitions
from .link import SlurmNode, SlurmPartition
from .survey import age_accrues, default_partition, partition_limits

_CONFIG, _PARTITIONS, _NODES, _EVENTS, _JOBS = "config.txt", "partitions.txt", "nodes.txt", "events.txt", "jobs.txt"
_FOR_EVER_S = 10 * 365 * 86_400  # of a half-life that there is not
_UNUSABLE = ("DOWN", "FAIL", "DRAIN", "MAINT", "POWERED_DOWN")
_GPU_WORDS = "asks for GPUs, memory, licences and burst buffers are left out: jobs are told apart by cores alone"


def read_facts(texts: Mapping[str, str]) -> SiteFacts:
    """Make facts of what Slurm's commands printed.

    `texts`: by the names of `survey`; what the configuration does not tell is as Slurm has it by default.
    Raises `InputError`: there are no nodes or no partitions in what was printed.
    """
    nodes, partitions = read_nodes(texts.get(_NODES, "")), read_partitions(texts.get(_PARTITIONS, ""))
    for name, found in ((_NODES, nodes), (_PARTITIONS, partitions)):
        if not found:
            raise InputError("tells of none", where=name, hint=f"Make it with: {_SURVEY.commands[name]} > {name}")
    config = read_configuration(texts.get(_CONFIG, ""))
    pools = _pools(partitions, nodes)
    width = {node.name: node.cores for node in nodes}
    cores = {pool: sum(width[name] for name in names) for pool, names in pools.items()}
    seen = [f"{len(nodes)} nodes of {sum(width.values())} cores in {len(partitions)} partitions"]
    assumed = [_GPU_WORDS]
    if len(pools) > 1:
        seen.append(f"{len(pools)} groups of nodes that share no partition: {', '.join(pools)}")
    assumed += _of_overlaps(partitions, nodes, pools)
    accrues = age_accrues(config)
    if accrues is None:
        assumed.append("jobs gain no priority behind a dependency: the configuration was not to be had")
    scheduler, settings = _scheduler(config, seen, assumed)
    away = _away(texts.get(_EVENTS, ""), pools, width) if _EVENTS in texts else ()
    if _EVENTS in texts:
        seen.append(f"{len(away)} times that nodes were away")
    else:
        assumed.append("no node was ever away: the events were not to be had")
    default = default_partition(partitions)
    tiers = _tier_points(partitions, config)
    facts = [
        PartitionFacts(
            one.name,
            next(pool for pool, names in pools.items() if names & _names(one, nodes)),
            partition_limits(one, nodes),
            tiers[one.name],
        )
        for one in sorted(partitions, key=lambda one: one.name != default)
        if _names(one, nodes)
    ]
    return SiteFacts(
        system=config.get("ClusterName", ""),
        pools=cores,
        partitions=tuple(facts),
        cores_per_node=max(width.values()),
        whole_nodes=config.get("SelectType", "").endswith("linear") or all(one.is_exclusive for one in partitions),
        age_accrues=accrues,
        scheduler=scheduler,
        settings=settings,
        away=away,
        seen=tuple(seen),
        assumed=tuple(assumed),
    )


def _names(partition: SlurmPartition, nodes: Iterable[SlurmNode]) -> set[str]:
    return {node.name for node in nodes if partition.name in node.partitions}


def _pools(partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode]) -> dict[str, set[str]]:
    """Put partitions that share nodes together; each group is called by its first partition."""
    pools: dict[str, set[str]] = {}
    for one in partitions:
        names = _names(one, nodes)
        if not names:
            continue
        shared = [pool for pool, others in pools.items() if others & names]
        for pool in shared[1:]:
            pools[shared[0]] |= pools.pop(pool)
        pools.setdefault(shared[0] if shared else one.name, set()).update(names)
    if not pools:
        raise InputError("tells of no node that is in a partition", where=_NODES, hint="Make it anew.")
    return pools


def _of_overlaps(
    partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode], pools: Mapping[str, set[str]]
) -> list[str]:
    partly = [
        one.name
        for one in partitions
        for pool in pools.values()
        if (own := _names(one, nodes)) and own & pool and own != pool
    ]
    if not partly:
        return []
    return [f"partitions with a part of a group's nodes have all of them: {', '.join(partly)}"]


def _scheduler(config: Mapping[str, str], seen: list[str], assumed: list[str]) -> tuple[str, dict[str, str]]:
    """Give the scheduler and its settings."""
    parameters = dict(part.partition("=")[::2] for part in config.get("SchedulerParameters", "").split(",") if part)

    def whole(name: str, default: int) -> int:
        text = parameters.get(name, "")
        return int(text) if text.isdecimal() and int(text) else default

    backfills = config.get("SchedulerType", "sched/backfill").endswith("backfill")
    settings = {
        "interval_s": str(whole("bf_interval", 30)),
        "depth": str(whole("bf_max_job_test", 500)),
        "window_s": str(60 * whole("bf_window", 1440)),
        "resolution_s": str(whole("bf_resolution", 60)),
    }
    if not config:
        assumed.append("priority by age and fair share, and backfilling, as Slurm has them by default")
    else:
        how = ", ".join(f"{name} {value}" for name, value in settings.items())
        seen.append(f"backfilling: {how}" if backfills else "no backfilling")
    if not backfills:
        return "fcfs", {}
    if config.get("PriorityType", "priority/multifactor").endswith("basic"):
        seen.append("priority by the order of submission")
        return "multifactor", {**settings, "age": "0", "fair_share": "0"}
    weights = {
        "age": "PriorityWeightAge",
        "fair_share": "PriorityWeightFairShare",
        "size": "PriorityWeightJobSize",
    }
    half_life_s = _seconds(config.get("PriorityDecayHalfLife", "7-00:00:00"))
    settings |= {name: str(_weight(config, of)) for name, of in weights.items() if config}
    settings |= {
        "max_age_s": str(max(int(_seconds(config.get("PriorityMaxAge", "7-00:00:00"))), 1)),
        "half_life_s": str(int(half_life_s) or _FOR_EVER_S),
        "favor_small": "yes" if config.get("PriorityFavorSmall", "No").lower() == "yes" else "no",
    }
    if config:
        seen.append("priority: " + ", ".join(f"{name} {settings[name]}" for name in weights))
        if _weight(config, "PriorityWeightFairShare"):
            assumed.append("all users have equal shares of the machine, whatever their accounts")
        left = [name for name in ("PriorityWeightQOS", "PriorityWeightAssoc", "PriorityWeightTRES") if config.get(name)]
        left = [name for name in left if config[name] not in {"0", "(null)"}]
        if left:
            assumed.append(f"{', '.join(left)} counts for nothing: which jobs had how much is not told")
    return "multifactor", settings


def _weight(config: Mapping[str, str], name: str) -> int:
    text = config.get(name, "0")
    return int(text) if text.isdecimal() else 0


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except InputError:
        return 0.0  # as in "0" and "INFINITE"


def _tier_points(partitions: Sequence[SlurmPartition], config: Mapping[str, str]) -> dict[str, float]:
    """Give what each partition adds to its jobs' priority; a higher tier outdoes all that weights can give."""
    most = max((one.priority_factor for one in partitions), default=1) or 1
    weight = _weight(config, "PriorityWeightPartition")
    names = ("PriorityWeightAge", "PriorityWeightFairShare", "PriorityWeightJobSize", "PriorityWeightPartition")
    beyond = 1.0 + sum(_weight(config, name) for name in names)
    lowest = min(one.priority_tier for one in partitions)
    return {one.name: weight * one.priority_factor / most + beyond * (one.priority_tier - lowest) for one in partitions}


def _away(printed: str, pools: Mapping[str, set[str]], width: Mapping[str, int]) -> tuple[Away, ...]:
    """Read what ``sacctmgr show event`` printed: node, begin, end, state."""
    found = []
    for line in printed.splitlines():
        fields = line.split("|")
        if len(fields) < 4 or fields[0] not in width or not any(word in fields[3].upper() for word in _UNUSABLE):
            continue
        begin_s, end_s = _moment(fields[1]), _moment(fields[2])
        if begin_s is not None and (end_s is None or end_s > begin_s):
            pool = next((pool for pool, names in pools.items() if fields[0] in names), None)
            if pool is not None:
                drained = "DRAIN" in fields[3].upper()
                found.append(Away(begin_s, end_s or math.inf, width[fields[0]], pool, drained))
    return tuple(sorted(found, key=lambda one: (one.begin_s, one.end_s)))


def _moment(text: str) -> float | None:
    if text.isdecimal():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None  # as in Unknown, for what lasts


_SURVEY = Survey(
    commands={
        _CONFIG: "scontrol show config",
        _PARTITIONS: "scontrol show partition -o",
        _NODES: "scontrol show node -o",
        _EVENTS: "SLURM_TIME_FORMAT=%s sacctmgr -nP show event start=now-90days"
        " format=NodeName,TimeStart,TimeEnd,State",
        _JOBS: TWIN_COMMAND,
    },
    read=read_facts,
    jobs=_JOBS,
    needed=(_PARTITIONS, _NODES, _JOBS),
)


def survey() -> Survey:
    """Say how Slurm is asked."""
    return _SURVEY

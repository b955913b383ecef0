"""Slurm's facts about a site, for a twin: its nodes, partitions and priority rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from asa.errors import InputError
from asa.facts import Away, PartitionFacts, SiteFacts, Survey
from asa.units import parse_duration

from .accounting import TWIN_COMMAND
from .commands.process import Done
from .commands.reading import read_configuration, read_nodes, read_partitions
from .commands.refusals import no_configuration
from .link import LAST_S, SlurmNode, SlurmPartition, whole
from .survey import age_accrues, default_partition, partition_limits

_CONFIG, _PARTITIONS, _NODES, _EVENTS, _USERS, _JOBS = (
    f"{name}.txt" for name in ("config", "partitions", "nodes", "events", "users", "jobs")
)
_CALCULATED_S = 300  # default interval between computations of priorities
_FOR_EVER_S = 10 * 365 * 86_400  # half-life that means none
_UNUSABLE = {
    "DOWN",
    "FAIL",
    "FAILING",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "MAINT",
}  # not POWERED_DOWN, which saves energy
_GUESSED = 100_000.0  # more than the weights of usual rules
_HIGHEST = 2**31 - 1  # maximum of a weight
_NOT_MODELLED = "limits of users, accounts and QOS, reservations and preemption are left out"
_GPU_WORDS = "asks for GPUs, memory, licences and burst buffers are left out: jobs are told apart by cores alone"


def read_facts(texts: Mapping[str, str]) -> SiteFacts:
    """Return the facts in the output of Slurm's commands.

    `texts`: outputs by the names in `survey`; missing configuration values have Slurm's defaults.
    Raises `InputError`: they have no nodes or no partitions.
    """
    nodes, partitions = read_nodes(texts.get(_NODES, "")), read_partitions(texts.get(_PARTITIONS, ""))
    for name, records in ((_NODES, nodes), (_PARTITIONS, partitions)):
        if not records:
            raise InputError("tells of none", where=name, hint=f"Make it with: {_SURVEY.commands[name]} > {name}")
    config = read_configuration(texts.get(_CONFIG, ""))
    pools = _pools(partitions, nodes)
    width = {node.name: node.cores for node in nodes}
    cores = {pool: sum(width[name] for name in names) for pool, names in pools.items()}
    counts = {"node": len(nodes), "core": sum(width.values()), "partition": len(partitions)}
    of, in_all, within = (f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())
    seen = [f"{of} of {in_all} in {within}"]
    assumed = [_GPU_WORDS, _NOT_MODELLED]
    if len(pools) > 1:
        seen.append(f"{len(pools)} groups of nodes that share no partition: {', '.join(pools)}")
    assumed += _of_overlaps(partitions, nodes, pools)
    accrues = age_accrues(config)
    scheduler, settings = _scheduler(config, _count(texts.get(_USERS, "")), seen, assumed)
    events = texts.get(_EVENTS, "")
    away = _away(events, pools, width)
    if events.strip():
        seen.append(f"{len(away)} times that nodes were away")
    else:
        assumed.append("no node was ever away: the events were not to be had")
    default = default_partition(partitions)
    tiers = _tier_points(partitions, config, settings)
    facts = [
        PartitionFacts(
            partition.name,
            next(pool for pool, names in pools.items() if names & _names(partition, nodes)),
            partition_limits(partition, nodes),
            tiers[partition.name],
        )
        for partition in sorted(partitions, key=lambda partition: partition.name != default)
        if _names(partition, nodes)
    ]
    return SiteFacts(
        system=config.get("ClusterName", ""),
        pools=cores,
        partitions=tuple(facts),
        cores_per_node=max(width.values()),
        whole_nodes=config.get("SelectType", "").endswith("linear")
        or all(partition.is_exclusive for partition in partitions),
        age_accrues=accrues,
        scheduler=scheduler,
        settings=settings,
        knows_rules=bool(config),
        away=away,
        seen=tuple(seen),
        assumed=tuple(assumed),
    )


def _names(partition: SlurmPartition, nodes: Iterable[SlurmNode]) -> set[str]:
    return {node.name for node in nodes if partition.name in node.partitions}


def _pools(partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode]) -> dict[str, set[str]]:
    """Group partitions that share nodes; each group has the name of its first partition."""
    pools: dict[str, set[str]] = {}
    for partition in partitions:
        names = _names(partition, nodes)
        if not names:
            continue
        shared = [pool for pool, others in pools.items() if others & names]
        for pool in shared[1:]:
            pools[shared[0]] |= pools.pop(pool)
        pools.setdefault(shared[0] if shared else partition.name, set()).update(names)
    if not pools:
        raise InputError("tells of no node that is in a partition", where=_NODES, hint="Make it anew.")
    return pools


def _of_overlaps(
    partitions: Sequence[SlurmPartition], nodes: Sequence[SlurmNode], pools: Mapping[str, set[str]]
) -> list[str]:
    partly = [
        partition.name
        for partition in partitions
        for pool in pools.values()
        if (own := _names(partition, nodes)) and own & pool and own != pool
    ]
    if not partly:
        return []
    return [f"partitions with a part of a group's nodes have all of them: {', '.join(partly)}"]


def _count(printed: str) -> int:
    return whole(printed.strip()) or 0


def _scheduler(
    config: Mapping[str, str], users: int, seen: list[str], assumed: list[str]
) -> tuple[str, dict[str, str]]:
    """Return the scheduler and its settings; `users`: number of the machine's users, 0 if not known."""
    given = config.get("SchedulerParameters", "").split(",")
    parameters = dict(part.strip().partition("=")[::2] for part in given if part.strip())

    def amount(name: str, default: int) -> int:
        return whole(parameters.get(name, "")) or default

    backfills = config.get("SchedulerType", "sched/backfill").endswith("backfill")
    settings = {
        "interval_s": str(amount("bf_interval", 30)),
        "depth": str(amount("bf_max_job_test", 500)),
        "window_s": str(60 * amount("bf_window", 1440)),
        "resolution_s": str(amount("bf_resolution", 60)),
    }
    if not config:
        assumed.append("the configuration was not to be had")
    else:
        how = ", ".join(f"{name} {value}" for name, value in settings.items())
        seen.append(f"backfilling: {how}" if backfills else "no backfilling")
    if not backfills:
        assumed.append("jobs start in the order of submission, whatever their priority")
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
        "max_age_s": str(int(_seconds(config.get("PriorityMaxAge", "7-00:00:00"))) or _FOR_EVER_S),
        "half_life_s": str(int(half_life_s) or _FOR_EVER_S),
        "favor_small": "yes" if config.get("PriorityFavorSmall", "No").lower() == "yes" else "no",
        "period_s": str(int(_seconds(config.get("PriorityCalcPeriod", "00:05:00"))) or _CALCULATED_S),
    }
    if config:
        seen.append("priority: " + ", ".join(f"{name} {settings[name]}" for name in weights))
        if _weight(config, "PriorityWeightFairShare"):
            assumed.append("all users have equal shares of the machine, whatever their accounts")
            is_tree = "NO_FAIR_TREE" not in config.get("PriorityFlags", "")
            settings |= {"fair_tree": "yes" if is_tree else "no", "users": str(users)}
            how = "by Slurm's fair tree" if is_tree else "by usage"
            seen.append(f"fair share {how}" + (f", of {users} users" if users else ""))
            if not users:
                assumed.append("nobody shares the machine but those whose jobs are shown")
        left = [name for name in ("PriorityWeightQOS", "PriorityWeightAssoc", "PriorityWeightTRES") if config.get(name)]
        left = [name for name in left if config[name] not in {"0", "(null)"}]
        if left:
            assumed.append(f"{', '.join(left)} counts for nothing: which jobs had how much is not told")
    return "multifactor", settings


def _weight(config: Mapping[str, str], name: str) -> int:
    return min(whole(config.get(name, "0")) or 0, _HIGHEST)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except InputError:
        return 0.0  # such as "0" and "INFINITE"


def _tier_points(
    partitions: Sequence[SlurmPartition], config: Mapping[str, str], settings: Mapping[str, str]
) -> dict[str, float]:
    """Return the points that each partition adds to its jobs' priority; a higher tier exceeds all weights."""
    most = max((partition.priority_factor for partition in partitions), default=1) or 1
    weight = _weight(config, "PriorityWeightPartition")
    known = sum(float(settings.get(name, 0)) for name in ("age", "fair_share", "size"))
    beyond = 1.0 + weight + (known if config else _GUESSED)
    lowest = min(partition.priority_tier for partition in partitions)
    return {
        partition.name: weight * partition.priority_factor / most + beyond * (partition.priority_tier - lowest)
        for partition in partitions
    }


def _away(printed: str, pools: Mapping[str, set[str]], width: Mapping[str, int]) -> tuple[Away, ...]:
    """Parse the output of ``sacctmgr show event``: node, begin, end, state; overlapping events of a node are merged."""
    spans: dict[str, list[tuple[float, float, bool]]] = {}
    for line in printed.splitlines():
        fields = line.split("|")
        if len(fields) < 4 or fields[0] not in width:
            continue
        states = set(re.findall("[A-Z_]+", fields[3].upper())) & _UNUSABLE
        begin_s, end_s = _moment(fields[1]), _moment(fields[2])
        if states and begin_s is not None and (end_s is None or end_s > begin_s):
            drained = not states & {"DOWN", "FAIL"}
            spans.setdefault(fields[0], []).append((begin_s, end_s or math.inf, drained))
    absences = []
    for node, own in spans.items():
        pool = next((pool for pool, names in pools.items() if node in names), None)
        for begin_s, end_s, drained in _merged(sorted(own)) if pool is not None else ():
            end = None if end_s == math.inf else end_s
            absences.append(Away(begin_s, end, width[node], pool or "", drained))
    return tuple(sorted(absences, key=lambda absence: (absence.begin_s, absence.end_s or math.inf)))


def _merged(spans: Sequence[tuple[float, float, bool]]) -> list[tuple[float, float, bool]]:
    """Merge overlapping spans; a merged span is a drain if its first part is one."""
    merged: list[tuple[float, float, bool]] = []
    for begin_s, end_s, drained in spans:
        if merged and begin_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s), merged[-1][2])
        else:
            merged.append((begin_s, end_s, drained))
    return merged


def _moment(text: str) -> float | None:
    if text.isdecimal():
        moment_s = whole(text)
        return float(moment_s) if moment_s and moment_s < LAST_S else None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None  # such as Unknown, for events that last


_SURVEY = Survey(
    commands={
        _CONFIG: "scontrol show config",
        _PARTITIONS: "scontrol -a show partition -o",
        _NODES: "scontrol -a show node -o",
        _EVENTS: "SLURM_TIME_FORMAT=%s sacctmgr -nP show event start=now-90days"
        " format=NodeName,TimeStart,TimeEnd,State",
        _USERS: "sshare -anP -o User | grep -c .",  # only their number, without names
        _JOBS: TWIN_COMMAND,
    },
    read=read_facts,
    jobs=_JOBS,
    needed=(_PARTITIONS, _NODES, _JOBS),
    why_not=lambda command, said: no_configuration(command, Done(1, stderr=said)),
)


def survey() -> Survey:
    """Return the commands that survey a site."""
    return _SURVEY

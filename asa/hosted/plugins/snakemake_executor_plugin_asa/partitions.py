"""A file of partitions, as Snakemake's executor for Slurm reads it: which one takes a job.

Of the partitions that take a job, it is the one whose limits the job's requests come closest to, in sum.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from asa.core.files import read_text
from asa.errors import InputError

from .resources import JobResources

_AMOUNTS: Final = ("mem_mb", "mem_mb_per_cpu", "runtime", "nodes", "tasks", "tasks_per_node", "mpi_tasks")
_LIMITS: Final = frozenset(
    {f"max_{name}" for name in (*_AMOUNTS, "threads", "cpus_per_task", "cpus_per_gpu", "gpu")}
    | {"available_gpu_models", "available_constraints", "supports_mpi"}
)
_CLUSTER: Final = ("slurm_cluster", "cluster", "clusters")
_UNIT_MIN: Final = {"d": 1440.0, "h": 60.0, "m": 1.0, "s": 1 / 60}


@dataclass(frozen=True, slots=True)
class _Partition:
    name: str
    cluster: str
    limits: Mapping[str, Any]

    def fit(self, resources: JobResources, cluster: str) -> float | None:
        """Return how close a job's requests come to the limits; None if the partition does not take it."""
        if self.cluster != cluster:
            return None
        amounts = list(self._amounts(resources))
        if any(amount > limit for amount, limit in amounts):
            return None
        gpus, model = _gpus(resources)
        max_gpus: float = self.limits.get("max_gpu", 0.0)
        if gpus > max_gpus or self._lacks("available_gpu_models", {model} - {""}):
            return None
        wanted = {word.strip() for word in resources.text("constraint").split(",")} - {""}
        if self._lacks("available_constraints", wanted):
            return None
        if resources.text("mpi") and not self.limits.get("supports_mpi", True):
            return None
        of_gpus = gpus / max_gpus if gpus else (-1.0 if max_gpus else 0.0)
        return sum(amount / limit for amount, limit in amounts) + of_gpus

    def _amounts(self, resources: JobResources) -> Iterator[tuple[float, float]]:
        """Yield what the job asks for, each with its limit; an amount of cores counts once for each limit on it."""
        pairs = [(resources.number(name) or 0.0, name) for name in _AMOUNTS]
        threads = max(resources.threads if resources.threads > 1 else resources.count("threads"), 1)
        per_task, per_gpu = resources.number("cpus_per_task"), resources.number("cpus_per_gpu")
        pairs.append((threads, "threads"))
        if per_task is None and per_gpu is not None and _gpus(resources)[0]:
            pairs.append((per_gpu, "cpus_per_gpu"))
        else:
            cores = threads if per_task is None else max(per_task, 1.0)
            pairs += [(cores, "threads"), (cores, "cpus_per_task")]
        for amount, name in pairs:
            limit: float = self.limits.get(f"max_{name}", math.inf)
            if amount > 0 and not math.isinf(limit):
                yield amount, limit

    def _lacks(self, what: str, wanted: set[str]) -> bool:
        there = self.limits.get(what) or ()
        return bool(there) and not wanted <= set(map(str, [there] if isinstance(there, str) else there))


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of a file, in its order."""

    each: tuple[_Partition, ...]

    @classmethod
    def read(cls, path: Path) -> Partitions:
        """Read a file. Raises `InputError`: it cannot be read, or has a limit that is not known."""
        import yaml  # noqa: PLC0415 - Snakemake brings it, and few need it

        where = str(path)
        try:
            content = yaml.safe_load(read_text(path))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise InputError(f"cannot be read: {error}", where=where, hint="It is a file in YAML.") from error
        listed = content.get("partitions") if isinstance(content, dict) else None
        if not isinstance(listed, dict):
            hint = "Write `partitions:`, and under it a name with its limits for each."
            raise InputError("has no table `partitions`", where=where, hint=hint)
        return cls(tuple(_partition(str(name), limits or {}, where) for name, limits in listed.items()))

    def of_job(self, resources: JobResources, asked: str, cluster: str) -> str:
        """Return the partition for a job; empty if none takes it.

        `asked`: the one that its rule names, which counts, unless it is another cluster's.
        """
        named = next((one for one in self.each if one.name == asked), None)
        if asked and not (cluster and named and named.cluster not in {"", cluster}):
            return asked
        fits = [(fit, one.name) for one in self.each if (fit := one.fit(resources, cluster)) is not None]
        return max(fits, key=lambda entry: entry[0], default=(0.0, ""))[1]


def _partition(name: str, limits: Any, where: str) -> _Partition:
    if not isinstance(limits, dict):
        raise InputError(f"partition {name!r} has no table of limits", where=where, hint="Write max_runtime: 60, ...")
    limits = dict(limits)
    cluster = next((str(limits.pop(key)) for key in _CLUSTER if key in limits), "")
    if unknown := sorted(map(str, limits.keys() - _LIMITS)):
        hint = f"The limits are: {', '.join(sorted(_LIMITS))}."
        raise InputError(f"partition {name!r}: no limit is called {unknown[0]!r}", where=where, hint=hint)
    for key in [key for key in limits if key.startswith("max_")]:
        read = _minutes if key == "max_runtime" else _amount
        limits[key] = read(limits[key], f"{where}: {name}: {key}")
    return _Partition(name, cluster, limits)


def _amount(given: Any, where: str) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        hint = "Write a number without a unit; memory is in MB."
        raise InputError(f"{given!r} is no number", where=where, hint=hint) from None


def _minutes(given: Any, where: str) -> float:
    """Read a time in minutes: a number, 2d12h, or as Slurm has it, where 60:30 means hours and minutes."""
    try:
        return _minutes_of(str(given).strip().lower())
    except (ValueError, OverflowError):
        raise InputError(f"{given!r} is no time", where=where, hint="Write minutes, or 2d12h.") from None


def _minutes_of(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return number if number == math.inf else float(math.floor(number + 0.5))
    if match := re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return math.floor(days * 1440 + hours * 60 + minutes + seconds / 60 + 0.5)
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([dhms])", text)
    if not parts:
        raise ValueError(text)
    return math.floor(sum(float(number) * _UNIT_MIN[unit] for number, unit in parts) + 0.5)


def _gpus(resources: JobResources) -> tuple[int, str]:
    """Return the number of GPUs that a job asks for, and their model."""
    if count := resources.count("gpu", "gpus"):
        return count, resources.text("gpu_model")
    for part in resources.text("gres").split(","):
        if match := re.fullmatch(r"gpu(?::([^:\d][^:]*))?(?::(\d+))?", part.strip()):
            return int(match[2] or 1), match[1] or ""
    return 0, ""

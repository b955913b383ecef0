"""Other users' jobs, for a site that hides them: from a workload model with a load that fits the user's waits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.presets import preset
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel

from asa.core.parallel import Progress
from asa.errors import InputError

from .agreement import misfit
from .fitting import compared, first_left_out
from .model import Jobs, Twin
from .queueing import simulated_waits

_MODEL = "uppmax"  # system whose workload is used, scaled in size and load
_LOADS = (0.3, 0.5, 0.6, 0.7, 0.78, 0.84, 0.88, 0.91, 0.935, 0.955, 0.97, 0.98, 0.99)
_USERS = 40
_FEWEST = 30
_BEFORE_S = 7 * 86_400  # before the user's first job, for filling the machine
_FOR_EVER_S = 1e8
_SEED = 1
_WHAT = "fitting the load of others"


def with_others(twin: Twin, on_progress: Progress) -> Twin:
    """Add other users' jobs to a twin with few users' jobs, on all nodes that these use.

    Their load is chosen so that the known jobs' waits are nearest to the recorded ones; the last week is not used for
    this. The added jobs have no recorded waits.

    `twin`: of one user's jobs, or of a few.
    `on_progress`: called with the number of loads tried.
    Raises `InputError`: too few waits are known.
    """
    known = compared(twin.jobs)
    known[first_left_out(twin.jobs) :] = False
    if known.sum() < _FEWEST:
        text = f"shows {known.sum()} waits, by which nobody can tell how busy others keep the machine"
        raise InputError(text, where=twin.about.system or "twin", hint=f"Give {_FEWEST} or more, or all users' jobs.")
    own, recorded = twin.jobs.table.cores[known], twin.jobs.wait_s[known].astype(np.float64)
    found: list[tuple[float, float]] = []
    for number, load in enumerate(_LOADS):
        on_progress(_WHAT, number, len(_LOADS))
        both = _joined(twin, load)
        is_own = both.jobs.users <= twin.jobs.users.max()
        waits_s = simulated_waits(both)[is_own][known]
        found.append((misfit(own, recorded, np.nan_to_num(waits_s, nan=_FOR_EVER_S)), load))
    on_progress(_WHAT, len(_LOADS), len(_LOADS))
    off, load = min(found)
    assumption = (
        f"only a part of the jobs is shown: all others are those of a workload model, {100 * load:.0f} % of what the "
        f"machine can do, fitted to {known.sum()} waits that are known (their quantiles {10**off:.2g} times off in the "
        "mean); what jobs unlike these would wait is a guess"
    )
    chosen = _joined(twin, load)
    return replace(chosen, about=replace(chosen.about, assumed=(*twin.about.assumed, assumption)))


def _joined(twin: Twin, load: float) -> Twin:
    """Add the model's jobs to the visible ones, in each group of nodes that these use."""
    about, own = twin.about, twin.jobs
    places = {partition.name: place for place, partition in enumerate(about.partitions)}
    used = {about.partitions[place].pool for place in np.unique(own.partitions).tolist()}
    last, nobody = int(own.table.submit[-1]) + _BEFORE_S, int(own.users.max()) + 1
    parts = []  # rows of columns
    for number, pool in enumerate(sorted(used)):
        others = _model(about.pools[pool], load).generate(last, _SEED + number)
        place = next(places[partition.name] for partition in about.partitions if partition.pool == pool)
        users = nobody + (31 * others.cores + others.request) % _USERS
        count = len(others)
        parts.append((others.submit, others, users, np.full(count, place), np.full(count, -1)))
    parts.append((own.table.submit + _BEFORE_S, own.table, own.users, own.partitions, own.wait_s))
    tables = [part[1] for part in parts]
    table = JobTable(
        np.concatenate([part[0] for part in parts]),
        np.concatenate([table.run for table in tables]),
        np.concatenate([table.request for table in tables]),
        np.concatenate([table.cores for table in tables]),
    )
    users, where, waits = (
        np.concatenate([column for *_, column in rows])[table.order].astype(np.int32)
        for rows in ([part[:3] for part in parts], [part[:4] for part in parts], parts)
    )
    return replace(twin, jobs=Jobs(table, users, where, waits, own.clock_s - _BEFORE_S))


def _model(cores: int, load: float) -> WorkloadModel:
    """Return the workload scaled to a machine."""
    usual = preset(_MODEL)
    widest = max(min(usual.log2_widest, math.log2(max(cores, 2))), 1.0)
    middle = min(usual.log2_middle, widest)
    machine = Machine("twin", max(cores, 2), 1)
    return replace(usual, machine=machine, load=load, log2_widest=widest, log2_middle=middle)

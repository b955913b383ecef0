"""The jobs of others, where a site shows nobody but oneself: a workload model, as heavy as one's own waits say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.presets import preset
from asa.backends.simulated.table import JobTable

from asa.core.parallel import Progress
from asa.errors import InputError

from .agreement import misfit
from .fitting import compared, first_left_out
from .model import Jobs, Twin
from .site import simulated_waits

_MODEL = "uppmax"  # whose workload the others have, but for its size and how heavy it is
_LOADS = (0.3, 0.5, 0.6, 0.7, 0.78, 0.84, 0.88, 0.91, 0.935, 0.955, 0.97, 0.98, 0.99)
_USERS = 40
_FEWEST = 30
_BEFORE_S = 7 * 86_400  # before one's own first job, in which the machine fills
_FOR_EVER_S = 1e8
_SEED = 1
_WHAT = "fitting the load of others"


def with_others(twin: Twin, on_progress: Progress) -> Twin:
    """Give a twin of one user's jobs the jobs of others.

    Their load is the one by which the user's own jobs wait most nearly as they did; those of the last week have no part
    in that. Others have no recorded waits.

    Parameters
    ----------
    twin
        Of one user's jobs.
    on_progress
        Is told how many loads were tried.

    Raises
    ------
    InputError
        Too few waits are known.
    """
    known = compared(twin.jobs)
    known[first_left_out(twin.jobs) :] = False
    if known.sum() < _FEWEST:
        words = f"shows {known.sum()} waits of one user, by which nobody can tell how busy others keep the machine"
        raise InputError(words, where=twin.about.system or "twin", hint=f"Give {_FEWEST} or more, or all users' jobs.")
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
    told = (
        f"only one user's jobs are shown: all others are those of a workload model, {100 * load:.0f} % of what the "
        f"machine can do, fitted to {known.sum()} waits of that user (their quantiles {10**off:.2g} times off in the "
        "mean); what jobs unlike these would wait is a guess"
    )
    chosen = _joined(twin, load)
    return replace(chosen, about=replace(chosen.about, assumed=(*twin.about.assumed, told)))


def _joined(twin: Twin, load: float) -> Twin:
    """Put the model's jobs beside the user's own, in the largest group of nodes."""
    about, jobs = twin.about, twin.jobs
    pool = max(about.pools, key=about.pools.__getitem__)
    place = next(number for number, one in enumerate(about.partitions) if one.pool == pool)
    whole = about.pools[pool]
    usual = preset(_MODEL)
    widest = min(usual.log2_widest, math.log2(max(whole, 2)))
    middle = min(usual.log2_middle, widest)
    model = replace(usual, machine=Machine("twin", whole, 1), load=load, log2_widest=widest, log2_middle=middle)
    last = int(jobs.table.submit[-1]) + _BEFORE_S
    others = model.generate(last, _SEED)
    own, shift = jobs.table, _BEFORE_S
    table = JobTable(
        np.concatenate([others.submit, own.submit + shift]),
        np.concatenate([others.run, own.run]),
        np.concatenate([others.request, own.request]),
        np.concatenate([others.cores, own.cores]),
    )
    nobody = int(jobs.users.max()) + 1
    users = np.concatenate([nobody + (31 * others.cores + others.request) % _USERS, jobs.users])
    places = np.concatenate([np.full(len(others), place), jobs.partitions])
    waits = np.concatenate([np.full(len(others), -1), jobs.wait_s])
    order = table.order
    return replace(
        twin,
        jobs=Jobs(
            table,
            users[order].astype(np.int32),
            places[order].astype(np.int32),
            waits[order].astype(np.int32),
            jobs.clock_s - shift,
        ),
    )

"""Evaluates choices by estimators: the width that ends first by their forecasts, and the width that really does.

At some times of a log the job is really put into the simulated queue, once in each width, from the same state: this
gives the truth. Each estimator has lived through the same queue until then, and chooses by its forecasts of all widths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asa.backends.simulated.engine import Engine
from asa.backends.simulated.replay import replayed
from asa.backends.simulated.table import NEVER, UNSTARTED, JobTable
from asa.core.parallel import silent
from asa.errors import TraceError
from asa.estimators.joint import together
from asa.history import JobHistory
from asa.studies.accuracy.prequential import Events, MakeEstimator, sees_queue
from asa.studies.harness import counted, run_cells
from asa.studies.programs import BENCHMARKS
from asa.waits import QueuedJob, Surroundings, WaitEstimator
from asa.workflows.paper import TABLE_1

_WIDTHS = (7, 14, 28, 56, 112)
_ASKED = 2  # ratio of walltime to run time
# shares of the log's jobs between which programs are put in; estimators learn from those before
_FROM, _TO = 0.15, 0.95
_WHO = "~chooser"
_MIN_S = 60

_LASTS_S = 4 * 3600.0  # run time of a benchmark at the fewest cores: it is repeated within one job


@dataclass(frozen=True, slots=True)
class ChosenWidth:
    """The choices of an estimator for one program on one log."""

    trace: str
    program: str
    estimator: str
    widths: tuple[int, ...]
    # seconds until each width ended, shape (times, widths), and the index of the chosen one
    took_s: NDArray[np.float64]
    places: NDArray[np.intp]
    # for each pair of widths and each time: the predicted probability that the narrower one ends first, and whether it
    # did
    probabilities: NDArray[np.float64]
    came_true: NDArray[np.bool_]


def programs(machine_cores: int) -> dict[str, dict[int, int]]:
    """Return programs with a choice of widths: their run times in seconds by cores.

    These are: Amdahl's law with parallel shares of 90 and 99 %, with 2 and 16 hours on 7 cores; benchmarks; the paper's
    workflows as one job each.
    """
    found: dict[str, dict[int, float]] = {}
    for share in (0.9, 0.99):
        for hours in (2, 16):
            took = {cores: 1 - share + share / cores for cores in _WIDTHS}
            found[f"Amdahl {share:.0%}, {hours} h"] = {c: 3600 * hours * t / took[7] for c, t in took.items()}
    for name, measured in BENCHMARKS.items():
        times = max(_LASTS_S / max(measured.values()), 1.0)
        found[name] = {cores: times * took_s for cores, took_s in measured.items()}
    for name, rows in TABLE_1.items():
        found[name.capitalize()] = {cores: float(row["big-job"].execution_s) for cores, row in rows.items()}
    fitting = {
        name: {cores: max(round(run_s), _MIN_S) for cores, run_s in by_cores.items() if cores <= machine_cores}
        for name, by_cores in found.items()
    }
    return {name: by_cores for name, by_cores in fitting.items() if len(by_cores) > 1}


def choices(
    histories: Mapping[str, JobHistory],
    estimators: Mapping[str, MakeEstimator],
    *,
    times: int = 200,
    seed: int = 0,
    jobs: int | None = 1,
    on_progress: Callable[[str, int, int], None] = silent,
) -> list[ChosenWidth]:
    """Let every estimator choose widths on every log.

    `histories`: logs with run times, whose jobs are scheduled anew by EASY backfilling.
    `times`: number of times of each log, drawn by the seed, at which each program is put into the queue.
    `jobs`: number of processes; None for as many as this machine allows.
    Returns: by log, estimator and program.
    Raises `TraceError`: a log has no run times, or no jobs.
    """
    pairs = [(trace, name) for trace in histories for name in estimators]
    worlds = {trace: _table(trace, history) for trace, history in histories.items()}
    done = counted(on_progress, "choosing", len(pairs))
    results = run_cells(
        _choose, pairs, worlds, dict(estimators), (times, seed), jobs=jobs, on_end=lambda _pair, _found: done()
    )
    return [choice for made in results for choice in made]


_World = tuple[JobHistory, int]


def _table(trace: str, history: JobHistory) -> _World:
    """Return the jobs of a log that ran, and the size of its machine."""
    ran = history.started & (history.run_s > 0)
    cores = history.machine_cores or int(history.cores.max(initial=0))
    if ran.sum() < 2 or not cores:
        raise TraceError(
            "has no jobs with run times, which are needed to schedule it", where=trace, hint="Leave it out."
        )
    kept = np.flatnonzero(ran & (history.cores <= cores))
    table = JobTable(
        history.submit_s[kept].astype(np.int64),
        np.maximum(history.run_s[kept].astype(np.int64), 1),
        np.maximum(history.walltime_s[kept].astype(np.int64), 1),
        history.cores[kept].astype(np.int64),
    )
    again = replayed(table, cores, source=trace)
    return replace(again, user=history.user[kept], users=history.users), cores


def _choose(
    worlds: Mapping[str, _World],
    estimators: Mapping[str, MakeEstimator],
    drawn: tuple[int, int],
    pair: tuple[str, str],
) -> list[ChosenWidth]:
    """Let one estimator choose on one log."""
    trace, name = pair
    history, cores = worlds[trace]
    at_s = _times(history, *drawn)
    offered = programs(cores)
    truth = _truth(history, cores, at_s, offered)
    estimator = estimators[name](Surroundings(drawn[1], cores))
    places: dict[str, list[int]] = {program: [] for program in offered}
    probabilities: dict[str, list[list[float]]] = {program: [] for program in offered}
    for now in _live_until(estimator, history, at_s):
        for program, by_cores in offered.items():
            run_s = list(by_cores.values())
            asked = [
                QueuedJob(now, width, float(_ASKED * run), _WHO, history.system) for width, run in by_cores.items()
            ]
            joint = together(estimator, asked)
            places[program].append(joint.best(run_s))
            probabilities[program].append([joint.probability_before(*of, run_s) for of in _pairs(len(run_s))])
    return [
        ChosenWidth(
            trace,
            program,
            name,
            tuple(offered[program]),
            truth[program],
            np.array(places[program]),
            np.array(probabilities[program]),
            np.array(
                [truth[program][:, one] < truth[program][:, other] for one, other in _pairs(len(offered[program]))]
            ).T,
        )
        for program in offered
    ]


def _pairs(count: int) -> list[tuple[int, int]]:
    return [(one, other) for other in range(count) for one in range(other)]


def _times(history: JobHistory, times: int, seed: int) -> NDArray[np.int64]:
    first, last = np.quantile(history.submit_s, [_FROM, _TO], method="nearest").astype(np.int64)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    return np.sort(rng.integers(first, max(last, first + 1), times))


def _truth(
    history: JobHistory, cores: int, at_s: NDArray[np.int64], offered: Mapping[str, Mapping[int, int]]
) -> dict[str, NDArray[np.float64]]:
    """Submit each program in each width at each time; return the seconds until it ends."""
    columns = (history.submit_s, history.run_s, history.walltime_s, history.cores)
    engine = Engine(cores, JobTable(*(column.astype(np.int64) for column in columns)))
    took = {program: np.empty((len(at_s), len(by_cores))) for program, by_cores in offered.items()}
    for row, now in enumerate(at_s.tolist()):
        while engine.now < now:
            engine.advance(now)
        for program, by_cores in offered.items():
            for column, (width, run_s) in enumerate(by_cores.items()):
                world = engine.fork()
                job = world.clients[world.submit(cores=width, request=_ASKED * run_s, run=run_s)]
                while job.start == UNSTARTED:
                    world.advance(NEVER)
                took[program][row, column] = job.start - now + run_s
    return took


def _live_until(estimator: WaitEstimator, history: JobHistory, at_s: NDArray[np.int64]) -> Iterator[float]:
    """Let an estimator live through the queue, and yield at each time."""
    timeline = Events(history)
    rows, due = len(timeline.jobs), at_s.astype(float).tolist()[::-1]
    known_s = history.submit_s + history.wait_s
    time_s = (history.submit_s, known_s, known_s + history.run_s)
    tickets = [0] * rows
    for event in timeline.events(ends=sees_queue(estimator)):
        kind, row = divmod(event, rows)
        while due and time_s[kind][row] > due[-1]:
            yield due.pop()
        if not due:
            return
        if kind == 0:
            job = timeline.jobs[row]
            tickets[row] = estimator.submitted(job, estimator.predict(job))
        elif kind == 1:
            estimator.observe(tickets[row], timeline.outcomes[row])
        else:
            estimator.ended(tickets[row], float(history.run_s[row]))
    yield from reversed(due)

"""A stage's run times at each of its widths, from earlier runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from asa.backend import Capabilities
from asa.core.intervals import student_quantile
from asa.core.late import dataclass
from asa.runtimes.forecast import USUAL_SPREAD, RunForecast, Scatter, forecast_run, scatter_of
from asa.runtimes.log import RunTime
from asa.shapes import Moldable, RunAt, run_time_at
from asa.workflow import Stage

_P90_OF_NORMAL = 1.2816
_MAX_SPREAD = 3.0
_USUAL_WEIGHT = 3.0  # weight of the usual spread, in runs
_HALF_LIFE = 1.0  # in further runs at a width, after which that weight is halved


@dataclass(frozen=True, slots=True)
class Seen:
    """A stage with its observed run times.

    `stage`: the stage, with expected run times.
    `forecast`: the forecast for its own width; None if no run is known.
    `at_widths`: if it has several widths, the forecast for each width at which it ran on this system.
    """

    stage: Stage
    forecast: RunForecast | None = None
    at_widths: Mapping[int, RunForecast] = field(default_factory=dict)


def as_seen(stage: Stage, times: Sequence[RunTime], capabilities: Capabilities) -> Seen:
    """Set a stage's expected run times from earlier runs, for each width separately; the walltime is the upper bound.

    Raises `WorkflowError`: the observed run times do not fit its request.
    """
    cores = stage.cores_on(capabilities.cores_per_node)
    known = forecast_run(times, cores, input_size=stage.input_size, system=capabilities.system)
    if known is None:
        return Seen(stage)
    guess, at_widths = _expecting(stage, known), _at_widths(stage, times, capabilities)
    if not at_widths:
        return Seen(guess, known)
    own, reshaped = _reshaped(stage, guess, {width: seen.run for width, seen in at_widths.items()})
    forecasts = {width: seen.forecast for width, seen in at_widths.items()}
    if own is not None and stage.width not in at_widths:
        known = _of_widths(known, own, forecasts, stage)
    return Seen(reshaped, known, forecasts)


@dataclass(frozen=True, slots=True)
class _AtWidth:
    forecast: RunForecast
    run: RunAt


def _at_widths(stage: Stage, times: Sequence[RunTime], capabilities: Capabilities) -> dict[int, _AtWidth]:
    """Forecast each width of a stage of several shapes from runs of exactly that width on this system, if any.

    The spread is learned from all widths together, since few runs at one width say little about it.
    """
    system, size = capabilities.system, stage.input_size
    found: dict[int, tuple[RunForecast, Scatter]] = {}
    for width, cores in _distinct_widths(stage, capabilities.cores_per_node).items():
        if any(run.cores == cores and run.system == system and run.kind == "exact" for run in times):
            known = forecast_run(times, cores, input_size=size, system=system)
            if known is not None:
                found[width] = known, scatter_of(times, cores, input_size=size, system=system)
    spreads = spreads_of([scatter for _, scatter in found.values()])
    return {
        width: _AtWidth(known, RunAt(width, max(known.p50_s, 1.0), spread))
        for (width, (known, _)), spread in zip(found.items(), spreads, strict=True)
    }


def _distinct_widths(stage: Stage, cores_per_node: int) -> dict[int, int]:
    """Return the cores of each width of a stage of several shapes, without widths that get the same cores.

    With whole nodes, several widths may get the same cores, so the run does not show which of them it had.
    """
    if stage.moldable is None:
        return {}
    widths: dict[int, list[int]] = {}
    for width in {*stage.moldable.widths, stage.width, *(point.width for point in stage.moldable.run_at)}:
        cores, nodes = (width, 0) if stage.nodes is None else (0, width)
        widths.setdefault(stage.allocated(cores, nodes, cores_per_node), []).append(width)
    return {alike[0]: cores for cores, alike in widths.items() if len(alike) == 1}


def spreads_of(scatters: Sequence[Scatter]) -> list[float]:
    """Return the spread of the next run at each width around the median of earlier ones, in the logarithm.

    8 in 10 runs lie within 1.28 times the spread.
    """
    freedom = sum(max(scatter.worth - 1.0, 0.0) for scatter in scatters)
    usual = _USUAL_WEIGHT * 0.5 ** (freedom / _HALF_LIFE)
    variance = (usual * USUAL_SPREAD**2 + sum(scatter.squares for scatter in scatters)) / (usual + freedom)
    wider = student_quantile(0.9, max(usual + freedom, 1.0)) / _P90_OF_NORMAL
    return [
        min(math.hypot(wider * math.sqrt(variance * (1.0 + 1.0 / scatter.worth_of_p50)), scatter.further), _MAX_SPREAD)
        for scatter in scatters
    ]


def _reshaped(stage: Stage, guess: Stage, learned: Mapping[int, RunAt]) -> tuple[RunAt | None, Stage]:
    """Set the expected run times of a stage of several shapes from those learned at some widths, and derive its own.

    If the run time at its own width cannot be derived, it is taken from `guess`.
    """
    moldable = stage.moldable or Moldable()
    asked = [RunAt(width, walltime_s) for width, walltime_s in moldable.walltime_at]
    spread = math.sqrt(sum(forecast.spread**2 for forecast in learned.values()) / len(learned))
    points = {point.width: replace(point, spread=spread) for point in moldable.run_at}
    if not points and stage.expected_run_s is not None:
        points[stage.width] = RunAt(stage.width, stage.expected_run_s, spread)
    for width, known in learned.items():
        walltime = run_time_at(width, asked)
        fits = walltime is None or not stage.is_one_job or known.run_s <= walltime.run_s
        points[width] = known if fits or walltime is None else replace(known, run_s=walltime.run_s)
    own = run_time_at(stage.width, list(points.values()), moldable.scaling)
    if own is not None and stage.is_one_job and own.run_s > stage.walltime_s:
        own = points[stage.width] = replace(own, run_s=stage.walltime_s)
    new = replace(moldable, run_at=tuple(points[width] for width in sorted(points)))
    if own is None:
        return None, replace(guess, moldable=new)
    return own, replace(stage, expected_run_s=own.run_s, run_spread=min(own.spread, _MAX_SPREAD), moldable=new)


def _of_widths(guess: RunForecast, own: RunAt, learned: Mapping[int, RunForecast], stage: Stage) -> RunForecast:
    """Return the forecast of a stage that never ran at its own width, from runs at other widths."""
    factor = own.run_s / max(guess.p50_s, 1.0)
    low_s, half_s, high_s, most_s = (factor * quantile_s for quantile_s in guess.quantiles_s)
    count = sum(forecast.count for forecast in learned.values())
    what = "cores" if stage.nodes is None else "nodes"
    how = f"from {count} {'run' if count == 1 else 'runs'} on {', '.join(map(str, sorted(learned)))} {what}"
    return replace(guess, quantiles_s=(low_s, half_s, high_s, most_s), count=count, how=how)


def _expecting(stage: Stage, forecast: RunForecast) -> Stage:
    expected_s = max(forecast.p50_s, 1.0)
    longest_s = stage.walltime_s if stage.is_one_job or stage.queues_in_parts else math.inf
    spread = min(math.log(max(forecast.p90_s, expected_s) / expected_s) / _P90_OF_NORMAL, _MAX_SPREAD)
    return replace(stage, expected_run_s=min(expected_s, longest_s), run_spread=spread)


def with_widths(stage: Stage, times: Sequence[RunTime], capabilities: Capabilities) -> Stage:
    """Add the widths at which a stage ran on this system, if it can request them."""
    if (stage.cores is not None and stage.nodes is not None) or stage.exclusive:
        return stage  # the stage's allocated cores differ from its request
    moldable = stage.moldable or Moldable()
    unit = stage.cpus_per_task if stage.nodes is None else capabilities.cores_per_node
    ran = {run.cores for run in times if run.system == capabilities.system and run.kind == "exact"}
    widths = {cores if stage.nodes is None else cores // unit for cores in ran if cores % unit == 0}
    every = {stage.width, *moldable.widths, *filter(stage.can_be_shared_on, widths)}
    return replace(stage, moldable=replace(moldable, widths=tuple(sorted(every))))

"""Run times of a host's jobs where it gives none: from earlier runs, and from the host's own measurements."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from asa.backend import Capabilities
from asa.core.computer import tells_of
from asa.errors import AsaError
from asa.runtimes import RunTime, RunTimes
from asa.runtimes.advice import advise
from asa.runtimes.forecast import RunForecast, forecast_run
from asa.units import format_duration, round_walltime

_SURELY = 0.001
_MAX_RUN_S = 1e9  # thirty years: a benchmark with more is damaged
_MIN_WALLTIME_S = 300.0  # lower bound of a walltime that was learned
_SAFETY = 1.5  # factor on the longest run time seen


@dataclass(slots=True)
class Expectations:
    """Known run times of kinds of jobs.

    `bank`: its folder; None for none.
    `workflow`: the workflow's name in the bank.
    `site`: the site's rules.
    `default_s`: walltime of jobs with unknown run time.
    `time_limit`, `option`: what the host calls the walltime of a job, and its option for `default_s`.
    """

    bank: Path | None
    workflow: str
    site: Capabilities
    default_s: float
    time_limit: str
    option: str
    _times: dict[str, list[RunTime]] = field(default_factory=dict, init=False)
    _known: dict[tuple[str, int], RunForecast | None] = field(default_factory=dict, init=False)
    _unknown: set[str] = field(default_factory=set, init=False)
    _learned: set[str] = field(default_factory=set, init=False)
    _said: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.bank is not None:
            with suppress(AsaError):
                for kind, times in RunTimes(self.bank).by_stage(self.workflow).items():
                    if told := [run for run in times if tells_of(run.system, self.site.system)]:
                        self._times[kind] = told

    def measured(self, times: Iterable[tuple[str, int, float, float]]) -> None:
        """Add the host's measurements (kind, cores, seconds, moment) for kinds without known run times."""
        found: dict[str, list[RunTime]] = {}
        for kind, cores, run_s, at_s in times:
            if kind not in self._times and 0 <= run_s < _MAX_RUN_S:
                run = RunTime(self.workflow, kind, max(cores, 1), run_s, at_s, self.site.system)
                found.setdefault(kind, []).append(run)
        self._times |= {kind: sorted(runs, key=lambda run: run.at_s) for kind, runs in found.items()}

    def of(self, kind: str, cores: int, walltime_s: float | None, max_s: float) -> tuple[float, float, bool]:
        """Return the walltime to ask for, the expected run time, and whether both are a mere default.

        `walltime_s`: the host's walltime; None if it gives none. `max_s`: the partition's upper bound, or infinity.
        """
        forecast, is_default = self._forecast(kind, cores), False
        if walltime_s is None:
            if is_default := forecast is None:
                self._unknown.add(kind)
                walltime_s = self.default_s
            else:
                self._learned.add(kind)
                advice = advise(kind, 1.0, forecast)
                asked_s = max(advice.suggested_s, _SAFETY * forecast.longest_s, _MIN_WALLTIME_S)
                walltime_s = round_walltime(asked_s)
            walltime_s = min(walltime_s, max_s)
        if forecast is None:
            return walltime_s, walltime_s, is_default
        p50_s = min(max(forecast.p50_s, _SURELY), walltime_s)
        return walltime_s, p50_s, is_default

    def _forecast(self, kind: str, cores: int) -> RunForecast | None:
        if (kind, cores) not in self._known:
            times = self._times.get(kind, [])
            self._known[kind, cores] = forecast_run(times, cores, system=self.site.system) if times else None
        return self._known[kind, cores]

    def news(self) -> str:
        """Return a text that names the kinds with learned run times, and those that get the default walltime.

        Those that were in an earlier text are left out; it is empty if there are no others.
        """
        parts = []
        if learned := self._learned - self._said:
            parts.append(f"Run times learned from earlier runs: {_listed(learned)}.\n")
        if unknown := self._unknown - self._said:
            parts.append(
                f"No `{self.time_limit}`, and none learned yet: {_listed(unknown)}. "
                f"Asked for: {format_duration(self.default_s)} each ({self.option}).\n"
            )
        self._said |= self._learned | self._unknown
        return "".join(parts)


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    return ", ".join(every) if len(every) < 6 else f"{', '.join(every[:5])} and {len(every) - 5} more"

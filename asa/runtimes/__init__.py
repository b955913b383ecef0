"""Observed run times of stages: they are stored for good, predict the next run, and give advice on walltimes."""

from .advice import WalltimeAdvice, advise
from .expected import Expected, expect, run_times_of
from .forecast import LEVELS, RunForecast, forecast_run
from .log import RunTime, RunTimes

__all__ = [
    "LEVELS",
    "Expected",
    "RunForecast",
    "RunTime",
    "RunTimes",
    "WalltimeAdvice",
    "advise",
    "expect",
    "forecast_run",
    "run_times_of",
]

"""How long stages really ran: stored for good, used to forecast the next run, and turned into advice on walltimes."""

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

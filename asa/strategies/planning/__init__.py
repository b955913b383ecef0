"""Planning: which stages share a job, when each job is submitted, and what keeps it from running too early.

A plan is judged by its expected cost, which combines makespan and core-hours, under the forecasts of waits and run
times. `parts` splits a workflow into pieces for jobs, `search` finds the plan with the least cost, and `outlook`
applies it to the present state of a run. Nothing here has side effects, keeps state or reads a clock.
"""

from .molding import impossible
from .outlook import LIKELY, WORTH_OF_SHAPES, Aim, Outlook, jobs_of, look_ahead, read_aim
from .parts import Block, Parts, take_apart
from .search import Question, SearchedJob, Sketch, mode_of, search, sketch_of

__all__ = [
    "LIKELY",
    "WORTH_OF_SHAPES",
    "Aim",
    "Block",
    "Outlook",
    "Parts",
    "Question",
    "SearchedJob",
    "Sketch",
    "impossible",
    "jobs_of",
    "look_ahead",
    "mode_of",
    "read_aim",
    "search",
    "sketch_of",
    "take_apart",
]

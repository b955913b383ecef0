"""Legs: one long computation, continued by one job of a stage after the other, never by two at the same time.

The legs of a stage have a common folder in the run's, with a folder for each *round*: a new round begins when the stage
is submitted again after a failure. In a round's folder are, for each leg K,

- ``over.K``: a symbolic link, made once, atomically: from then on leg K runs nothing and leg K+1 may begin. Leg K makes
  it when its payload has ended. If it did not, the client makes it once the batch system says that the job is gone. Its
  target says how leg K ended: ``left``, with the seconds that it took to save its state after the signal; ``done``; or
  ``gone``.
- ``wanted.K``: leg K is to save its state and end. Made by leg K+1 if it starts while K runs, or by leg K's own watch
  when its walltime is nearly over. The watch then sends the stage's signal. A payload may look for this file instead,
  which ``ASA_LEG_END`` names.
- ``at.K``: the stage's progress when leg K began: a digest, and a line to show to users.

So two payloads of a stage never run at the same time: K+1 begins only once ``over.K`` exists, and from then on K runs
no more, even if the batch system starts its job again. The file system must ensure one thing: making a link fails if it
exists. A check whether it exists may be out of date; that only costs time.
"""

from .folder import LegProgress, Legs
from .running import Turn

__all__ = ["LegProgress", "Legs", "Turn"]

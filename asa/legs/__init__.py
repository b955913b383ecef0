"""Legs: one long computation, continued by one job of a stage after the other, never by two at a time.

The legs of a stage share a folder of the run, with a folder in it for each *round*: from one time that the stage is
asked for to the next, after a failure. In a round's folder are, for each leg K,

- ``over.K``: a symbolic link, made once, from which on leg K runs nothing and leg K+1 may begin. To make it is atomic.
  Leg K makes it itself as its payload has ended; else the client does, once the batch system says that its job is no
  more. Its target says how it ended: ``left``, with the seconds that it took to save its state once it was told to;
  ``done``; or ``gone``.
- ``wanted.K``: leg K is to save its state and end: made by leg K+1 when it starts while K runs, or by leg K's own watch
  when its walltime is nearly over. The watch sends the stage's signal then. A payload may look for the file instead,
  which ``ASA_LEG_END`` names.
- ``at.K``: what the stage showed of its progress when leg K began: a digest of it, and a line to be shown.

So two payloads of a stage never run at a time: K+1 begins once ``over.K`` is there, and K, should the batch system
start its job again, not any more. What is assumed of the file system: to make a link fails if there is one; a look
whether one is there may be late, which costs time and no more.
"""

from .folder import Legs, Standing
from .running import Turn

__all__ = ["Legs", "Standing", "Turn"]

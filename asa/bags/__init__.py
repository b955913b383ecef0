"""Bags: the tasks of one stage, taken by several jobs from one folder, each task once to its end.

A bag is a folder of the run, with a folder in it for each *round*: what the stage's jobs do together until all tasks
have ended, or until no job is left. In a round's folder are

- ``list``: a line ``count divisor before``, then the tasks that are to be run, each with its number before it. The
  first job makes it and links it into its place. It leaves out what completed in earlier rounds, which is how a retry
  repeats what failed only; ``before`` counts these.
- ``claims/``: a symbolic link for all that was taken, to the name of who took it. To make one is atomic, and if the
  answer is lost, as NFS may lose it, the link itself tells whose it is; so is the claim of a job's payload. What is
  taken is a *chunk* of the list, large ones first (`asa.bags.folder.chunks`), or a piece of what was given back.
- ``logs/NAME``: a record for each task that ended, as in ``:12 0 179560559104 179560559114;``: its place in the list,
  its exit code, and when it began and ended, in hundredths of seconds. Only its taker writes to it, by appends. Space
  for the last ones is set aside in ``NAME.spare``, should the disk fill up.
- ``returned/NAME``: what a taker had taken and not ended. It gives that back itself if it is told to end; else whoever
  knows for certain that it is no more does: the client, by the word of the batch system, or the same job when it was
  put back into the queue and began again. The file is linked into its place whole, once: from then on its taker begins
  nothing, and what it may yet log of these tasks does not count.
- ``takers/``: who there was: a link for each job, and for each of its later starts.

So a task has one owner at a time, and its end is counted once. What is assumed of the file system: to make a link
fails if there is one, wherever that was made; and what was closed on one node is seen by who opens it on another
afterwards. A listing, or a look whether a file is there, may be late: what was given back is then taken later, and no
task twice. Of a job that the batch system reports as ended, and that lives on, a task that runs at that moment may run
beside its repetition; nothing else of it does.
"""

from .folder import Bag, Deeds, Progress, chunks

__all__ = ["Bag", "Deeds", "Progress", "chunks"]

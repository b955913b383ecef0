"""Bags: the tasks of one stage, which one or several jobs take from one folder; each task is completed once.

A bag is a folder of the run, with a folder for each *round*. A round lasts until all tasks have ended or no job is
left. In a round's folder are

- ``list``: a line ``count divisor before``, then the tasks to run, each after its number. The first job writes it and
  links it into place. It leaves out tasks that completed in earlier rounds, counted by ``before``; so a retry repeats
  only what failed.
- ``claims/``: a symbolic link for each claim, to the name of the job that took it. Making a link is atomic, and if the
  answer is lost, as on NFS, the link itself shows whose it is; the claim of a job's payload is of the same kind. A
  claim is for a *chunk* of the list, large ones first (`asa.bags.folder.chunks`), or for a part of what was given back.
- ``logs/NAME``: a record for each task that ended, as in ``:12 0 179560559104 179560559114;``: its place in the list,
  exit code, begin and end in hundredths of seconds. Only its taker appends to it. ``NAME.spare`` reserves space for the
  last records, in case the disk fills up.
- ``returned/NAME``: what a taker had taken and not ended. It gives that back itself if it is signalled to end; else
  this is done by whoever knows for certain that it is gone: the client, by the batch system's answer, or the same job
  after a requeue. The complete file is linked into place, once: from then on its taker begins nothing, and its later
  records of these tasks do not count.
- ``takers/``: a link for each job, and for each of its later starts.

In earlier versions a list in one job left a file for each completed task, named by its number, with its text and the
job's token. These are in ``notes/``, next to the rounds, and count as a round before the first.

So a task has one owner at a time, and its end is counted once. Two assumptions are made of the file system: making a
link fails if it exists, on whatever node that was made; and a file closed on one node can be read when it is opened on
another afterwards. Listings and checks whether a file exists may be out of date: then what was given back is taken
later, and no task twice. If a job that the batch system reports as ended lives on, the task that it runs at that moment
may run at the same time as its repetition; nothing else of it does.
"""

from .folder import Bag, Deeds, Progress, chunks

__all__ = ["Bag", "Deeds", "Progress", "chunks"]

"""Bags: the tasks of one stage, which one or several jobs take from one folder; each task is completed once.

A bag is a folder of the run, with a folder for each *round*. A round lasts until all tasks have ended or no job is
left. In a round's folder are

- ``list``: a line ``count divisor before``, then the tasks to run, each after its number. The first job writes it and
  links it into place. It leaves out tasks that completed in earlier rounds, counted by ``before``; so a retry repeats
  only what failed.
- ``claims/``: a symbolic link for each claim, to the name of the taker that made it. Making a link is atomic, and if
  the answer is lost, as on NFS, the link itself shows whose it is; the claim of a job's payload is of the same kind. A
  claim is for a *chunk* of the list, large ones first (`asa.bags.folder.chunks`), or for some tasks that another job
  gave back.
- ``logs/NAME``: a record for each task that ended, as in ``:12 0 179560559104 179560559114;``: its index in the list,
  exit code, begin and end in hundredths of seconds. NAME is that of a *taker*: one start of a job on one of its nodes.
  Only the taker appends to its log. ``NAME.spare`` reserves space for the last records, in case the disk fills up.
- ``returned/NAME``: tasks that a taker had claimed and not ended. A taker that is signalled to end writes this itself.
  For a taker that is gone, the client writes it once the batch system has said so, or the same job does after a
  requeue. The complete file is linked into place, once. From then on its taker begins no task, and its later records of
  these tasks do not count.
- ``takers/``: a link for each job, and for each of its later starts.

Earlier versions wrote a file for each completed task of a list in one job. It is named by the task's number, and
contains its text and the job's token. These files are in ``notes/``, next to the rounds, and count as a round before
the first.

So a task has one owner at a time, and its end is counted once. The file system must ensure two things. Making a link
fails if the link exists, whichever node made it. A file that was closed on one node can then be read on another.
Listings and checks whether a file exists may be out of date: then tasks that were given back are taken later, and none
is taken twice. If a job lives on although the batch system reports its end, the task that it runs then may run at the
same time as its repetition. That job begins no other task.
"""

from .folder import Bag, Deeds, Progress, chunks

__all__ = ["Bag", "Deeds", "Progress", "chunks"]

"""The DMR API: programs that change their number of processes while they run, as the resource manager bids them.

A program calls `check_status` at a reconfiguration point, such as the end of each iteration. It is answered whether to
expand, to shrink or to go on as it is, does so, and says with `acknowledge` that it is done::

    from asa import dmr

    for iteration in range(iterations):
        compute()
        if answer := dmr.check_status(minimum=2, maximum=32, factor=2, preferred=8):
            redistribute(answer.before, answer.processes)
            dmr.acknowledge()

`moves` says which rows go from which process to which; `Pool` is a set of processes of this machine which does all of
that for arrays of numpy.

Who answers
-----------
A resource manager that can resize names in a job's environment where it is to be asked: ``ASA_DMR`` is the path of its
Unix socket, ``ASA_DMR_JOB`` the job, ``ASA_DMR_PROCESSES`` how many processes it begins with.
`asa.backends.dmr.manager` has one for this machine. Where nobody is named, or nobody answers, every answer is to go
on: the same program runs anywhere.

Two more variables are the user's: ``ASA_DMR_PERIOD``, seconds for which checks are ignored after one was answered, and
``ASA_DMR_TIMEOUT``, for how many seconds an expansion is waited for.

One process of a program asks, for all of them. After Iserte et al., "DMR API: Improving the Cluster Productivity by
Turning Applications into Malleable", section 5.
"""

from .distribution import Move, blocks, moves
from .pool import Part, Pool
from .protocol import Action, Wish
from .session import Answer, Session, acknowledge, check_status, icheck_status, inhibit, processes

__all__ = [
    "Action",
    "Answer",
    "Move",
    "Part",
    "Pool",
    "Session",
    "Wish",
    "acknowledge",
    "blocks",
    "check_status",
    "icheck_status",
    "inhibit",
    "moves",
    "processes",
]

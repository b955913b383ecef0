"""The DMR API: programs that change their number of processes while they run, at the resource manager's request.

A program calls `check_status` at a reconfiguration point, such as the end of each iteration. The answer is to expand,
to shrink or to go on. The program does so, and reports it with `acknowledge`::

    from asa import dmr

    for iteration in range(iterations):
        compute()
        if answer := dmr.check_status(minimum=2, maximum=32, factor=2, preferred=8):
            redistribute(answer.before, answer.processes)
            dmr.acknowledge()

`moves` says which rows go from which process to which; `Pool` is a set of processes of this machine that does all of
this for numpy arrays.

Who answers
-----------
A resource manager that can resize jobs says so in a job's environment: ``ASA_DMR`` is the path of its Unix socket,
``ASA_DMR_JOB`` the job, ``ASA_DMR_PROCESSES`` how many processes it begins with. `asa.backends.dmr.manager` has one for
this machine. Without a manager, or if it does not respond, every answer is to go on: the same program runs anywhere.

The user may set two more variables: ``ASA_DMR_PERIOD``, seconds for which checks are ignored after an answer, and
``ASA_DMR_TIMEOUT``, seconds to wait for an expansion.

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

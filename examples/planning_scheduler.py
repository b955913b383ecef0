"""A planning scheduler by itself: every job gets a planned start, which moves when others end early.

python examples/planning_scheduler.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from asa.backends.openccs.journal import open_plan
from asa.backends.openccs.limits import Items, Limit
from asa.backends.openccs.plan import RequestPlan
from asa.backends.openccs.requests import ResourceRequest
from asa.backends.openccs.system import CcsSystem, Node
from asa.backends.openccs.why import why

from asa.units import format_duration

HOUR = 3600


def show(plan: RequestPlan, now: int) -> None:
    """Print when each job starts."""
    for job in plan.jobs.values():
        start_s = job.start_s
        when = job.phase.value if start_s is None else f"{job.phase.value}, from {format_duration(start_s - HOUR)}"
        print(f"  {job.id:<8} {when}")
    print(f"  (it is {format_duration(now - HOUR)})\n")


def main() -> None:
    """Plan some jobs on ten nodes, two of which have a GPU."""
    nodes = [Node(f"n{number}", {"ncpus": 16, "mem": 64 << 30}) for number in range(8)]
    nodes += [Node(f"gpu{number}", {"ncpus": 16, "mem": 64 << 30, "gpus": 1}) for number in range(2)]
    system = CcsSystem("ten", tuple(nodes), licences={"g03": 1})
    limits = [Limit("user", "bob", "ncpus", Items.parse("64"))]

    with tempfile.TemporaryDirectory() as folder:
        plan = open_plan(Path(folder, "journal"), system, limits)

        def ask(name: str, text: str, user: str = "alice") -> None:
            plan.submit(ResourceRequest.parse(text, system.kinds), now=HOUR, user=user, name=name)

        plan.reserve(ResourceRequest.parse(f"rset=4:ncpus=16,start={7 * HOUR},walltime=2h"), now=HOUR, name="course")
        ask("wide", "rset=8:ncpus=16:mem=8g,walltime=3h")
        ask("gpu", "rset=2:ncpus=4:gpus=1,walltime=4h")
        ask("long", "rset=8:ncpus=16,walltime=4h")
        ask("bobs", "rset=4:ncpus=16,walltime=2h", user="bob")
        ask("bobs2", "rset=1:ncpus=16,walltime=1h", user="bob")
        for job in plan.due(HOUR):
            plan.begin(job.id, now=HOUR)
        print("Everybody is promised a start:")
        show(plan, HOUR)
        print(*why(plan, "bobs2", now=HOUR).sentences(), sep="\n", end="\n\n")

        plan.end("wide", now=2 * HOUR)
        moved = plan.backfill(now=2 * HOUR)
        print(f"wide ended two hours early: {', '.join(job.id for job in moved)} start sooner:")
        show(plan, 2 * HOUR)

        again = open_plan(Path(folder, "journal"), system, limits)
        print("After a crash the plan is", "the same." if again.jobs == plan.jobs else "another!")


if __name__ == "__main__":
    main()

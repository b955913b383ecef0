"""What a kind of units says of the jobs of its stages."""

from asa.backend import Capabilities
from asa.runner.kinds.base import Units
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, PlannedJob
from asa.workflow import Stage, Workflow


class Parts(Units):
    """Units that are each a part of their stage."""

    def asks(self, run, planned):
        return {"posts": (f"{run.post(planned.stages[0])}.{self.token(run, planned)}",)}


def test_a_job_that_is_a_part_of_its_stage_posts_a_marker_of_its_own():
    site = Capabilities("m", 8, 8, age_accrues=True)
    state = RunState("w", Workflow("w", [Stage("a", cores=1, command="x")]), site, "r" * 12)
    planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "why")
    assert spec_of(state, planned).posts == (f"{'r' * 12}/a",)
    state.units.whole = Parts()
    assert spec_of(state, planned).posts == (f"{'r' * 12}/a.{'r' * 12}-1-0",)

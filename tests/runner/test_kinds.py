"""The answers of each kind of units about the jobs of its stages."""

from asa.backend import Capabilities
from asa.elements import parse_array
from asa.runner.kinds import UnitsOfRun
from asa.runner.kinds.base import Units
from asa.runner.specs import spec_of
from asa.runner.state import RunState
from asa.strategies import Keep, PlannedJob, load_strategy
from asa.workflow import Stage, Workflow


class Parts(Units):
    """Units that are each one part of their stage."""

    def asks(self, run, planned):
        return {"posts": (f"{run.post(planned.stages[0])}.{self.token(run, planned)}",)}


def test_a_job_that_is_a_part_of_its_stage_posts_a_marker_of_its_own():
    site = Capabilities("m", 8, 8, age_accrues=True)
    state = RunState("w", Workflow("w", [Stage("a", cores=1, command="x")]), site, "r" * 12)
    planned = PlannedJob(("a",), 0.0, Keep.NOTHING, "why")
    assert spec_of(state, planned).posts == (f"{'r' * 12}/a",)
    state.units.whole = Parts()
    assert spec_of(state, planned).posts == (f"{'r' * 12}/a.{'r' * 12}-1-0",)


def test_elements_take_turns_where_a_strategy_has_one_job_for_all_stages():
    """Otherwise a run of an array and other stages would be refused; an array alone stays one job."""
    site = Capabilities("m", 8, 8, age_accrues=True, arrays=True)
    array = Stage("b", cores=2, command="x", array=parse_array("1-4"))
    both, alone = Workflow("w", [Stage("a", cores=1, command="x"), array]), Workflow("w", [array])

    def takes_turns(strategy, workflow):
        used = UnitsOfRun.site_for(load_strategy(strategy), workflow, site)
        return RunState("w", workflow, used, "r" * 12).workflow.stages["b"].takes_turns

    assert takes_turns("big-job", both)
    assert not takes_turns("big-job", alone)
    assert not takes_turns("chained", both)

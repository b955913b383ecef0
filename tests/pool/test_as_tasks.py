"""Stages of a kind that uses jobs of its own, as a pool runs them."""

import pytest

from asa.cli.pooled import facility_for
from asa.continuation import Continuation
from asa.errors import InputError
from asa.pool.stages import PoolOfStages, as_tasks
from asa.shapes import Moldable, RunAt
from asa.sites import open_facility
from asa.workflow import Stage, Workflow

BAG = Stage("a", cores=8, walltime_s=600.0, expected_run_s=900.0, tasks=("true", "false"), jobs=(2, 4))
MOLDABLE = Stage("b", cores=4, command="x", expected_run_s=250.0, moldable=Moldable((4, 16), (RunAt(4, 250.0),)))
LEGS = Stage("c", cores=4, command="x", walltime_s=100.0, expected_run_s=250.0, continues=Continuation())


def test_a_pool_of_a_simulated_site_is_refused():
    """Nothing runs there."""
    opened = open_facility("simulated", settings={"system": "hpc2n"})
    with pytest.raises(InputError, match="'simulated' only simulates them"):
        facility_for("pool", opened, Workflow("w", [Stage("a", cores=1)]))


def test_jobs_that_share_tasks_are_the_pools_and_a_stage_has_its_first_shape():
    """With several jobs it was no stage any more, and the client ended; with a shape of 16 cores no run began."""
    made = as_tasks(Workflow("w", [BAG, MOLDABLE], walltime_s=3600.0))
    assert [(stage.cores, stage.jobs, stage.moldable) for stage in made.stages.values()] == [
        (8, (1, 1), None),
        (4, (1, 1), None),
    ]
    assert made.stages["a"].expected_s == 600.0
    assert made.walltime_s == 3600.0


def test_legs_are_refused_in_words(tmp_path):
    """They ran, and the first that was not done failed the run."""
    opened = open_facility("local", None, {"cores": "4", "spool": str(tmp_path)})
    with pytest.raises(InputError, match="continues in legs") as refused:
        PoolOfStages(opened, Workflow("w", [LEGS])).connect(tmp_path / "run")
    assert refused.value.where == "stage 'c'"

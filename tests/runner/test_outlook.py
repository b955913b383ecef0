"""What is looked at before a run begins."""

import pytest
from asa.backends.slurm.backend import SlurmBackend
from asa.backends.slurm.commands import CommandLink

from asa.backend import Capabilities
from asa.errors import InputError
from asa.runner import RunFolder, RunPlan
from asa.runner.outlook import check_options
from asa.strategies import load_strategy
from asa.workflow import Stage

SITE = Capabilities("x", 112, 28, age_accrues=False)


@pytest.mark.parametrize("strategy", ["asa", "big-job", "per-stage"])
@pytest.mark.parametrize(
    ("option", "hint"), [("--wrap=x", "command"), ("--dependency=afterok:1", "after"), ("-p", "--")]
)
def test_options_of_any_stage_that_would_be_refused_are_told_before_anything_is_sent(tmp_path, strategy, option, hint):
    """Not hours later, when its turn comes."""
    stages = (
        Stage("a", cores=1, walltime_s=60, command="true"),
        Stage("b", cores=1, walltime_s=60, command="true", after=("a",), options=(option,)),
    )
    plan = RunPlan("abcd1234", "x", "x", stages, strategy, "slurm-cli", SITE, created_s=1.7e9)
    folder = RunFolder.create(tmp_path, plan)
    link = CommandLink(prefix=["false"])
    backend = SlurmBackend(link, folder.path, SITE)
    with pytest.raises(InputError) as caught:
        check_options(plan, load_strategy(strategy), backend)
    assert "options" in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("strategy", ["asa", "per-stage"])
def test_options_are_looked_at_beside_what_else_a_stage_asks_for(tmp_path, strategy):
    """The same ones may do for one stage, and say otherwise than a key of the next."""
    options = ("--gpus=a100:2",)
    stages = (
        Stage("a", cores=1, walltime_s=60, command="true", options=options),
        Stage("b", cores=1, walltime_s=60, command="true", after=("a",), options=options, gpus=2),
    )
    plan = RunPlan("abcd1234", "x", "x", stages, strategy, "slurm-cli", SITE, created_s=1.7e9)
    backend = SlurmBackend(CommandLink(prefix=["false"]), RunFolder.create(tmp_path, plan).path, SITE)
    with pytest.raises(InputError, match=r"'b'.*options"):
        check_options(plan, load_strategy(strategy), backend)

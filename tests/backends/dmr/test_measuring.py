"""Fig. 3 measured: constants follow from times, and the command times real MPI programs."""

import importlib.util
import json
import shutil

import pytest
from asa.backends.dmr.mechanics import Costs
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from asa.errors import InputError
from asa.studies.dmr.commands import app
from asa.studies.dmr.measuring import MeasuredResize, costs_of, measure, read_costs

NUMBERS = (1, 2, 4, 8, 16)
PAIRS = [(before, after) for before in NUMBERS for after in NUMBERS if before != after]
TIMES = st.floats(0.001, 10.0)


@given(st.builds(Costs, TIMES, TIMES, TIMES, TIMES, TIMES, TIMES), TIMES)
def test_the_constants_are_found_again(costs, data_gb):
    """From times that follow them: what the simulation takes for a resize is what was measured."""
    resizes = []
    for before, after in PAIRS:
        few, many = sorted((before, after))
        decide_s = costs.expand_s if after > before else costs.shrink_s + costs.per_leaving_s * (before - after)
        spawn_s = costs.per_node_s * after if after > before else 0.0
        move_s = data_gb * (many - few) / many / few / costs.link_gb_s
        resizes.append(MeasuredResize(before, after, costs.none_s, decide_s, spawn_s, move_s))
        assert sum((decide_s, spawn_s, move_s)) == pytest.approx(costs.resize_s(before, after, data_gb))
    found = costs_of(resizes, data_gb)
    for name in ("none_s", "expand_s", "shrink_s", "per_node_s", "per_leaving_s", "link_gb_s"):
        assert getattr(found, name) == pytest.approx(getattr(costs, name), rel=1e-6)


def test_no_constant_is_below_0():
    """Also where larger numbers took less time."""
    resizes = [MeasuredResize(few, many, 0.0, 1.0 / many, 0.0, 0.1) for few, many in PAIRS]
    costs = costs_of(resizes, 1.0)
    assert min(costs.expand_s, costs.per_node_s, costs.shrink_s, costs.per_leaving_s) >= 0


@pytest.mark.parametrize(
    "text", ["", "{}", '{"costs": 1}', '{"costs": {"expand_s": "x"}}', '{"costs": {"none": 1}}',
             '{"costs": {"expand_s": -1}}', '{"costs": {"expand_s": NaN}}',
             '{"costs": {"none_s": Infinity}}', '{"costs": {"link_gb_s": 0}}'],
)  # fmt: skip
def test_what_are_no_constants_is_refused(text, tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_costs(path)
    assert refused.value.where == str(path)


@pytest.mark.parametrize("sizes", [[4], [2, 3], [1, 4, 6]])
def test_sizes_that_the_manager_does_not_give_are_refused(sizes):
    with pytest.raises(InputError, match="powers of two"):
        measure(sizes, 1, 0.001)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun here")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_the_study_takes_what_the_command_has_measured(tmp_path, monkeypatch):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    few = ["measure", "--sizes", "1,2", "--repeats", "2", "--data", "0.01", "--plot", str(tmp_path / "figure-3.png")]
    printed = CliRunner().invoke(app, [*few, "--output", "json"])
    assert printed.exit_code == 0, printed.output
    made = json.loads(printed.stdout)
    assert (tmp_path / "figure-3.png").stat().st_size > 10_000
    assert [(one["before"], one["after"]) for one in made["resizes"]] == [(1, 2), (2, 1)]
    expands, shrinks = made["resizes"]
    assert all(one["none_s"] > 0 and one["decide_s"] > 0 and one["move_s"] > 0 for one in made["resizes"])
    assert expands["spawn_s"] > 0.01
    assert shrinks["spawn_s"] == 0
    path = tmp_path / "costs.json"
    path.write_text(printed.stdout)
    assert read_costs(path).expand_s == made["costs"]["expand_s"]
    study = ["study", "--jobs", "10", "--seeds", "1", "--output", "json"]
    ours = []
    for more in ([], ["--costs", str(path)]):
        done = CliRunner().invoke(app, [*study, *more])
        assert done.exit_code == 0, done.output
        ours.append(json.loads(done.output)["table_2"])
    assert ours[0] != ours[1]

"""Rows of the table in `tests/pairs` on real daemons, all of a Slurm's side by side on one cluster."""

import os
import time
from random import Random

import pytest
from pairs.kinds import KINDS
from pairs.places import Place, what_is_wrong
from pairs.rows import RACES, STRATEGIES, Row, few, under
from slurm_testbed import NEWEST, OLDEST, make_home

FULL = pytest.mark.full
STEADY = (*(name for name in STRATEGIES if name != "pool"), RACES)  # which takes long to begin
HERE = [kind for kind in KINDS if kind != "gpus"]  # of which the cluster has none
IN_SHORT = (Row("asa-plan", ("array",)), Row("per-stage", ("bag",), behind="nothing"))  # of `make test`, too
RACING = ("single", "moldable", "moldable tasks", "retried", "in any case")


def rows(release=OLDEST):
    """Make a row of each kind, some of two kinds, and those that differ on Slurm: arrays in a Big Job, and races.

    On the newest Slurm each kind has another strategy than on the oldest.
    """
    others = [row for strategy in STEADY for row in under(strategy, HERE)]
    arrays = [kind for kind in HERE if KINDS[kind].has("array")]
    turned = STEADY if release == OLDEST else (*STEADY[4:], *STEADY[:4])
    made = [few(kind, turned) for kind in HERE] + Random(f"others {release}").sample(others, 12)
    made += [Row("big-job", (kind,), behind="two in a row") for kind in arrays]
    return list(dict.fromkeys([*made, *(Row(RACES, (kind,), behind="two in a row") for kind in RACING)]))


@pytest.fixture(scope="module")
def ended(slurm, request):
    """Run all rows that are asked for, and return what is wrong with each; their jobs are another user's."""
    before = os.umask(0)
    folder = slurm.folder(f"pairs-{time.time_ns()}")
    reach = ("--option", f"prefix={' '.join(slurm.prefix)}", "--option", "poll=0.5s")
    reach = (*reach, "--option", "max_poll=1s", "--option", "races=true")
    given = [item.callspec.params for item in request.session.items if item.path == request.path]
    wanted = [one["row"] for one in given if one["slurm"] == slurm.release]

    def run(place, number, row):
        (place.check if number % 12 == 11 else place.drive)(
            row
        )  # by commands, which take as much of a core as ten others

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOME": make_home(folder), "ASA_LEG_LOOK_S": "0.2"}.items():
            patch.setenv(name, value)
        try:
            reasons = what_is_wrong(
                wanted, lambda n: Place(folder / f"row{n}", "--backend", "slurm-cli", *reach), run, 8
            )
            yield dict(zip(wanted, reasons, strict=True))
        finally:
            slurm.empty()
            os.umask(before)


@pytest.mark.parametrize("slurm", [OLDEST], indirect=True)
@pytest.mark.parametrize(
    "row", [*IN_SHORT, *(pytest.param(row, marks=FULL) for row in rows() if row not in IN_SHORT)], ids=str
)
def test_each_row_ends_on_slurm_as_it_is_to(row, ended):
    assert ended[row] == ""


@FULL
@pytest.mark.parametrize("slurm", [NEWEST], indirect=True)
@pytest.mark.parametrize("row", rows(NEWEST), ids=str)
def test_each_row_ends_on_the_newest_slurm_as_it_is_to(row, ended):
    assert ended[row] == ""

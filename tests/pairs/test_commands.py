"""Rows of the table by the commands that a user types: on this machine's queue, and on a simulated centre."""

from itertools import count
from random import Random

import pytest
from local_queue import Queue

from pairs.kinds import KINDS
from pairs.places import Place, check_all
from pairs.plain import refusal_of
from pairs.rows import RACES, STRATEGIES, Row, covering, given_back, under

FULL = pytest.mark.full
BACK = ("its job is behind another", "its job came early", "its next leg queues")  # of none that may begin meanwhile
QUICK = tuple(name for name in STRATEGIES if name != "pool")  # which needs seconds to begin


@pytest.fixture
def here(tmp_path):
    """Run rows on a queue of 64 cores, some at a time; raises AssertionError with all that are wrong."""
    queue = Queue(tmp_path, cores=64)
    options = ("--backend", "local", "--option", "cores=64", "--option", f"spool={tmp_path / 'spool'}")
    yield lambda rows, **how: check_all(rows, lambda number: Place(tmp_path / f"row{number}", *options), **how)
    queue.close()


@pytest.fixture
def simulated(tmp_path):
    options = ("--backend", "simulated", "--option", "system=hpc2n")
    return lambda rows: check_all(rows, lambda number: Place(tmp_path / f"row{number}", *options, pays=False))


@pytest.fixture(scope="module")
def place(tmp_path_factory, own_home):
    """Make places that share a queue of 64 cores."""
    root = tmp_path_factory.mktemp("here")
    queue = Queue(root, cores=64)
    options = ("--backend", "local", "--option", "cores=64", "--option", f"spool={root / 'spool'}")
    numbers = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASA_LEG_LOOK_S", "0.2")
        yield lambda: Place(root / f"row{next(numbers)}", *options)
    queue.close()


@FULL
@pytest.mark.parametrize("row", [row for strategy in (*QUICK, RACES) for row in under(strategy)], ids=str)
def test_each_row_ends_here_as_it_is_to(row, place):
    place().drive(row)


@FULL
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_runs_here_where_it_is_given_back(kind, here):
    """It is given back under a strategy that asks ahead: another gives nothing back."""
    chance = Random(f"given back {kind}")
    here([chance.choice(given_back(kind, ("asa", "asa-plan", "chained"), BACK))])


@FULL
@pytest.mark.parametrize("row", under("pool", count=4, hows=("and",)), ids=str)
def test_each_kind_runs_here_side_by_side_with_others_in_a_pool(row, here):
    here([row])


@FULL
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_simulated_and_compared(kind, simulated, tmp_path):
    simulated([Row(Random(f"simulated {kind}").choice(QUICK), (kind,), behind="two in a row")])
    place = Place(tmp_path / "compared")
    place.write(Row("", (kind,), behind="two in a row"))
    can = [strategy for strategy in QUICK if not refusal_of(Row(strategy, (kind,)))]
    compared = Random(f"compared {kind}").sample(can, 3)
    place.asa("compare", "row.toml", "--seeds", "1", "--jobs", "1", "--strategies", ",".join((*compared, "oracle")))


def test_some_of_these_rows(here):
    rows = [row for kind in KINDS for row in (*covering(kind, QUICK), *given_back(kind, ["asa", "chained"], BACK))]
    here(Random(46).sample(rows, 6))


def test_of_several_stages_that_cannot_be_had_the_first_is_named(here):
    here([Row("pool", kinds) for kinds in (("legs", "array"), ("exclusive", "legs"))])


def test_a_list_that_is_read_as_its_stage_begins_runs_in_a_pool(here):
    """What held its folder was another process than the one that was named, and it was taken for another user's."""
    here([Row("pool", ("tasks file",))])

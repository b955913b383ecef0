"""The fault matrix on a stand-in for Slurm; `slurm_faults.py` tries every point, and here those that matter most."""

import pytest
from slurm_fake import FAULTS
from slurm_faults import JOURNAL, RATES, STRATEGIES, VERSIONS, Point, Trial, life

EVERY = 12
"""Of the touches of a journal one in so many is tried; the first differs from strategy to strategy."""
WAYS = [(version, strategy) for version in VERSIONS for strategy in STRATEGIES]


@pytest.fixture(params=WAYS, ids="-".join)
def way(request):
    return request.param


def try_all(points):
    for point in points:
        try:
            point.trial()
        except Exception as error:
            raise AssertionError(f"at {point}") from error


@pytest.mark.full
def test_a_client_may_die_at_any_touch_of_its_journal(way):
    touches, _ = life(*way)
    try_all(Point(*way, JOURNAL, at) for at in range(STRATEGIES.index(way[1]), touches, EVERY))


@pytest.mark.full
@pytest.mark.parametrize("kind", FAULTS)
def test_any_exchange_may_go_wrong(way, kind):
    """For each kind of fault another request that changes something; for every other kind also one that does not."""
    _, exchanges = life(*way)
    changing = [one.index for one in exchanges if one.method != "GET"]
    asking = [one.index for one in exchanges if one.method == "GET"]
    turn = FAULTS.index(kind) + WAYS.index(way)
    tried = [changing[turn % len(changing)]]
    if turn % 2:
        tried.append(asking[7 * turn % len(asking)])
    try_all(Point(*way, kind, at) for at in tried)


def test_who_comes_while_nobody_answers_waits(way, tmp_path):
    """Afterwards it knows what became of the jobs meanwhile."""
    _, exchanges = life(*way)
    late = exchanges[2 * len(exchanges) // 3].index
    one = Trial(tmp_path, *way, {late: "kill-after", **dict.fromkeys(range(late + 1, late + 4), "refuse")})
    one.check(one.run())
    assert one.clients == 2


@pytest.mark.full
@pytest.mark.parametrize("rate", RATES)
def test_any_share_of_all_exchanges_may_go_wrong(way, rate):
    """For each kind of fault other exchanges."""
    try_all([Point(*way, rate, WAYS.index(way))])

"""Workloads: the requests of jobs, their common parts in all workloads, and the measured time."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.bbsched.problem import Window
from asa.backends.bbsched.system import NODES, System
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import ROUND_REQUESTS_S

from asa.errors import AsaError, InputError, UnknownNameError
from asa.studies.bbsched.rates import mean_above
from asa.studies.bbsched.workloads import BUFFER, NAMES, SSD, cori, is_normal, load_workloads, theta

DAY = 86_400
STRESSED = [("s1", 0.5, 5000), ("s2", 0.75, 5000), ("s3", 0.5, 20_000), ("s4", 0.75, 20_000)]
DISKED = [("s5", 0.8), ("s6", 0.5), ("s7", 0.2)]


def log(path, jobs=4000, days=40, nodes=100, begin_s=1000):
    """Return a log of the given number of jobs, some wider than half the machine, some longer than requested."""
    rng = np.random.default_rng(7)
    submit = begin_s + np.sort(rng.integers(0, days * DAY, jobs))
    submit[0], submit[-1] = begin_s, begin_s + days * DAY - 1
    request = rng.integers(60, 7200, jobs)
    run = np.maximum(request * rng.uniform(0.0, 1.3, jobs), 1).astype(np.int64)
    table = JobTable(submit, run, request, rng.integers(1, nodes + 1, jobs), keep_overruns=True)
    write_swf(path, table, cores=nodes)
    return path


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    return log(tmp_path_factory.mktemp("log") / "theta.swf")


@pytest.fixture(scope="module")
def both(logged):
    return load_workloads(NAMES, theta_log=logged)


def buffer(workloads, name):
    return workloads[name].demands[BUFFER]


def test_there_are_ten_and_six(both):
    """They are in the order of the given names."""
    assert tuple(both) == NAMES
    assert [name for name in NAMES if SSD in both[name].demands] == list(NAMES[10:])
    assert all(workload.name == name for name, workload in both.items())
    assert {(name.split("-")[0], workload.order) for name, workload in both.items()} == {
        ("cori", "fcfs"),
        ("theta", "wfp"),
    }


def test_workloads_of_a_machine_are_of_the_same_jobs(both):
    """All have the same jobs, machine and measured time; the machine has two kinds of nodes if SSD is requested."""
    for machine, nodes, gigabytes in (("cori", 12_076, 1_800_000), ("theta", 100, 1_260_000)):
        mine = [both[name] for name in NAMES if name.startswith(machine)]
        assert len({id(workload.table) for workload in mine}) == 1
        assert len({(workload.begin_s, workload.end_s) for workload in mine}) == 1
        for workload in mine:
            assert workload.system.totals[:2] == (nodes, gigabytes)
            kinds = [(kind.nodes, dict(kind.each)) for kind in workload.system.kinds]
            halves = [(nodes // 2, {SSD: 128}), (nodes // 2, {SSD: 256})]
            assert kinds == (halves if SSD in workload.demands else [(nodes, {})])


def test_every_job_could_run_alone(both):
    """A window refuses jobs that request more than the whole machine."""
    for workload in both.values():
        Window(workload.system, {NODES: workload.table.cores, **workload.demands})


def test_theta_asks_as_darshan_saw_it(both):
    """The paper's number of jobs requests amounts with as many in each factor of ten."""
    asked = buffer(both, "theta-original")
    amounts = asked[asked > 0]
    assert len(amounts) == pytest.approx(0.1718 * len(asked), abs=1)
    assert amounts.min() >= 1
    assert amounts.max() <= 285_000
    whole = np.log(285_000)
    for least in (1, 10, 100, 1000, 10_000):
        there = np.mean((amounts >= least) & (amounts < 10 * least))
        assert there == pytest.approx(np.log(10) / whole, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_cori_asks_as_the_paper_says(seed):
    """Shares right to a job, up to 65 TB, and a few for 165 TB."""
    asked = buffer(cori(days=180, seed=seed), "cori-original")
    jobs = len(asked)
    assert np.count_nonzero(asked) == pytest.approx(0.006_18 * jobs, abs=1)
    assert np.count_nonzero(asked > 1000) == pytest.approx(0.002_04 * jobs, abs=1)
    assert np.count_nonzero(asked > 65_000) == np.count_nonzero(asked == 165_000)
    assert 2 <= np.count_nonzero(asked == 165_000) <= 5
    large = asked[(asked > 1000) & (asked < 165_000)]
    assert np.mean(large > np.sqrt(1000 * 65_000)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("machine", ["cori", "theta"])
@pytest.mark.parametrize(("kind", "share", "more_than"), STRESSED)
def test_stressed_workloads_repeat_the_large_original_requests(both, machine, kind, share, more_than):
    """Each of them is repeated about equally often."""
    asked, original = buffer(both, f"{machine}-{kind}"), buffer(both, f"{machine}-original")
    assert np.count_nonzero(asked) == pytest.approx(share * len(asked), abs=1)
    pool = original[original > more_than]
    assert set(asked.tolist()) <= {0, *pool.tolist()}
    mean = asked[asked > 0].mean()
    assert mean == pytest.approx(pool.mean(), abs=4 * pool.std() / np.sqrt(np.count_nonzero(asked)))


@pytest.mark.parametrize("machine", ["cori", "theta"])
def test_who_asks_asks_again(both, machine):
    """Workloads with more requests include those of the others; higher bounds make the same jobs request more."""
    original, s1, s2, s3, s4 = (buffer(both, name) for name in NAMES[:10] if name.startswith(machine))
    assert (s1[original > 0] > 0).all()
    assert (s2[s1 > 0] == s1[s1 > 0]).all()
    assert (s4[s3 > 0] == s3[s3 > 0]).all()
    assert ((s3 > 0) == (s1 > 0)).all()
    assert ((s4 > 0) == (s2 > 0)).all()
    assert (s4 >= s2).all()
    assert (s4 > s2).any()


@pytest.mark.parametrize("machine", ["cori", "theta"])
@pytest.mark.parametrize(("kind", "share"), DISKED)
def test_disks_on_top_of_s2(both, machine, kind, share):
    """Amounts are uniform in either range; a job too wide for the nodes with large disks requests little."""
    workload = both[f"{machine}-{kind}"]
    assert (workload.demands[BUFFER] == buffer(both, f"{machine}-s2")).all()
    asked, cores = workload.demands[SSD], workload.table.cores
    fits = cores <= workload.system.kinds[1].nodes
    assert np.mean(asked[fits] > 128) == pytest.approx(1 - share, abs=0.03)
    small, large = asked[asked <= 128], asked[asked > 128]
    assert (small.min(), small.max(), large.min(), large.max()) == (0, 128, 129, 256)
    for amounts, middle, widest in ((small, 64, 128), (large, 192.5, 127)):
        assert amounts.mean() == pytest.approx(middle, abs=4 * widest / np.sqrt(12 * len(amounts)))


@pytest.mark.parametrize("machine", ["cori", "theta"])
def test_who_asks_for_a_large_disk_does_so_again(both, machine):
    """The same job requests one in S5, S6 and S7."""
    asked = [both[f"{machine}-{kind}"].demands[SSD] for kind, _ in DISKED]
    for less, more in pairwise(asked):
        assert (more[less > 128] == less[less > 128]).all()


def test_the_same_seed_gives_the_same(logged, both):
    """Another seed gives other requests, and other jobs on Cori; jobs on Theta are always the log's."""
    again, other = (load_workloads(NAMES, theta_log=logged, seed=seed) for seed in (0, 1))
    for name, workload in both.items():
        for resource, asked in workload.demands.items():
            assert (again[name].demands[resource] == asked).all()
            assert other[name].demands[resource].tolist() != asked.tolist()
        for column in ("submit", "run", "request", "cores"):
            assert (getattr(again[name].table, column) == getattr(workload.table, column)).all()
    assert (other["theta-s1"].table.run == both["theta-s1"].table.run).all()
    assert other["cori-s1"].table.run.tolist() != both["cori-s1"].table.run.tolist()


def test_requests_do_not_follow_the_jobs(both):
    """Requests are drawn independently of a job's width and run time."""
    for name in ("cori-s4", "theta-original"):
        table, asked = both[name].table, buffer(both, name)
        for column in (table.cores, table.run, np.arange(len(table))):
            assert abs(np.corrcoef(column, asked)[0, 1]) < 4 / np.sqrt(len(table))


def test_a_seed_gives_the_same_on_any_machine(both):
    """The first requests of seed 0 are given here."""
    asked = [both["theta-s5"].demands[name][:6].tolist() for name in (BUFFER, SSD)]
    assert asked == [[0, 5808, 200_038, 0, 23_554, 0], [11, 123, 56, 31, 115, 61]]


def test_half_a_month_at_either_end_is_not_measured(both):
    """Times are submissions, counted from the log's first job on."""
    for name, begin_s, end_s in (("cori-s1", 0, 60 * DAY), ("theta-s1", 1000, 1000 + 40 * DAY)):
        workload = both[name]
        assert (workload.begin_s, workload.end_s) == (begin_s + 15 * DAY, end_s - 15 * DAY)
        submit = workload.table.submit[workload.measured]
        assert begin_s + 15 * DAY <= submit.min() <= submit.max() < end_s - 15 * DAY
        rest = workload.table.submit[~workload.measured]
        assert not ((rest >= workload.begin_s) & (rest < workload.end_s)).any()


def test_days_are_the_first_of_the_log(logged, both):
    """The jobs are the log's first days; run times are cut to the request."""
    whole, part = both["theta-s1"], theta(read_swf(logged, exceed="kill"), days=35)["theta-s1"]
    there = whole.table.submit < 1000 + 35 * DAY
    assert 0 < len(part.table) < len(whole.table)
    assert (part.table.submit == whole.table.submit[there]).all()
    assert (part.table.cores == whole.table.cores[there]).all()
    assert part.end_s == 1000 + 20 * DAY
    kept = theta(read_swf(logged, exceed="keep"))["theta-s1"].table
    assert (kept.run == whole.table.run).all()
    assert (kept.run == kept.request).any()
    assert (kept.run <= kept.request).all()


def offered(workload):
    """Return how much of each resource jobs would hold, as a share of the machine from first to last submission."""
    table, system = workload.table, workload.system
    span_s = max(int(table.submit[-1] - table.submit[0]), 1)
    amounts = {NODES: table.cores, **workload.demands}
    for name in system.per_node:
        amounts[name] = amounts[name] * table.cores
    return {
        name: float(table.run @ amounts[name]) / (total * span_s)
        for name, total in zip(system.resources, system.totals, strict=False)
    }


def test_cori_is_about_as_busy_as_it_says():
    """The mean over seeds: mostly jobs of one node; most nodes are requested, and two thirds of S4's burst buffer."""
    some = [cori(seed=seed) for seed in range(8)]
    tables = [workloads["cori-s4"].table for workloads in some]
    assert np.mean([np.mean(table.cores == 1) for table in tables]) == pytest.approx(0.61, abs=0.02)
    assert np.mean([len(table) for table in tables]) == pytest.approx(23_250, rel=0.03)
    shares = [offered(workloads["cori-s4"]) for workloads in some]
    assert np.mean([one[NODES] for one in shares]) == pytest.approx(0.85, abs=0.04)
    assert np.mean([one[BUFFER] for one in shares]) == pytest.approx(0.63, abs=0.04)
    night = np.mean([np.mean(table.submit // 3600 % 24 < 6) for table in tables])
    weekend = np.mean([np.mean(table.submit // DAY % 7 > 4) for table in tables])
    assert night < 0.23
    assert weekend < 0.27


@pytest.mark.parametrize("seed", range(2))
def test_at_the_papers_rate_cori_has_its_jobs_and_its_load(seed):
    """There are 21,370 jobs a day; S4 requests what jobs use in the paper, and nodes are four fifths requested."""
    made = cori(5, seed, 1, at_paper_rate=True)["cori-s4"]
    table = made.table
    assert len(table) == pytest.approx(5 * 2_607_054 / 122, rel=0.02)
    assert offered(made)[BUFFER] == pytest.approx(0.9474, abs=0.02)
    assert offered(made)[NODES] == pytest.approx(0.8, abs=0.04)
    assert (made.begin_s, made.end_s) == (DAY, 4 * DAY)
    assert set(table.request.tolist()) <= set(ROUND_REQUESTS_S.tolist())


def test_at_the_papers_rate_theta_has_its_jobs_too(tmp_path):
    """To a log of wide jobs narrower ones are added, with which S4 wants what the paper's jobs use."""
    rng = np.random.default_rng(3)
    days, wide = 40, 2400
    submit = np.sort(rng.integers(0, days * DAY, wide))
    submit[0], submit[-1] = 0, days * DAY - 1
    run = rng.integers(600, 12_000, wide)
    path = tmp_path / "wide.swf"
    write_swf(path, JobTable(submit, run, run + 600, rng.integers(128, 1000, wide)), cores=4360)
    workload = theta(read_swf(path, exceed="kill"), at_paper_rate=True)["theta-s4"]
    table = workload.table
    assert len(table) == round(days * 70_507 / 151)
    assert offered(workload)[BUFFER] == pytest.approx(0.8954, abs=0.02)
    narrow = table.cores < 128
    assert sorted(table.run[~narrow].tolist()) == sorted(run.tolist())
    assert table.cores[narrow].min() == 1
    for low in (1, 8, 32):
        share = np.mean((table.cores[narrow] >= low) & (table.cores[narrow] < 2 * low))
        assert share == pytest.approx(np.log(2) / np.log(128), abs=0.02)


def test_requests_above_a_bound_have_the_mean_of_the_draws():
    law = [(0.004, 1, 1000), (0.002, 1001, 65_000), (0.0001, 165_000, 165_000)]
    rng = np.random.default_rng(5)
    drawn = np.concatenate(
        [np.exp(rng.uniform(np.log(low), np.log(high), int(share * 10**8))) for share, low, high in law]
    )
    for bound in (0, 500, 20_000, 70_000):
        assert mean_above(law, bound) == pytest.approx(drawn[drawn > bound].mean(), rel=0.01)


def test_what_is_offered_is_told_by_hand(both):
    """Two jobs, a hundred seconds apart."""
    table = JobTable(*(np.array(column) for column in ([0, 100], [50, 20], [60, 60], [4, 10])))
    demands = {BUFFER: np.array([30, 0]), SSD: np.array([0, 256])}
    workload = replace(both["theta-s5"], table=table, demands=demands)
    assert offered(workload) == pytest.approx(
        {NODES: 400 / (100 * 100), BUFFER: 1500 / (1_260_000 * 100), SSD: 10 * 256 * 20 / (50 * (128 + 256) * 100)}
    )
    small = replace(workload, system=System(50, {BUFFER: 60}), demands={BUFFER: demands[BUFFER]})
    assert offered(small) == pytest.approx({NODES: 0.08, BUFFER: 0.25})


def test_jobs_that_end_at_once_are_not_normal():
    """Jobs that requested little time are an exception."""
    run, request = np.array([1, 59, 60, 29, 30, 5]), np.array([3600, 3600, 3600, 300, 300, 50])
    table = JobTable(np.arange(6), run, request, np.ones(6, dtype=np.int64))
    assert is_normal(table).tolist() == [False, False, True, False, True, True]


def test_only_what_is_asked_for_is_made(both):
    """Cori's workloads need no log; order and repetitions are as given."""
    made = load_workloads(["cori-s7", "cori-s1", "cori-s7"])
    assert list(made) == ["cori-s7", "cori-s1"]
    assert (made["cori-s1"].demands[BUFFER] == buffer(both, "cori-s1")).all()
    assert load_workloads([]) == {}


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["theta-s9"], {}, "no workload is called 'theta-s9'"),
        (["theta-s1"], {}, "none was given"),
        (["theta-s1"], {"theta_log": "nowhere.swf"}, "nowhere.swf"),
        (["cori-s1"], {"days": 30}, "a workload of 30 days cannot be"),
        (["cori-s1"], {"days": 10_000}, "a workload of 10000 days cannot be"),
        (["cori-s1"], {"seed": -1}, "a seed of -1 cannot be"),
    ],
)
def test_what_cannot_be_is_refused(names, options, message):
    with pytest.raises(InputError, match=message):
        load_workloads(names, **options)


def test_an_unknown_name_is_mended():
    with pytest.raises(UnknownNameError, match=r"Did you mean 'cori-s4'\?"):
        load_workloads(["cori-s2", "corri-s4"])


@pytest.mark.parametrize(
    ("made", "days", "message"),
    [
        ({}, 42, r"lasts 40.0 days, and 42 are asked for"),
        ({}, 30, "a workload of 30 days cannot be"),
        ({"days": 30}, None, "lasts 30.0 days; 15 at either end are not measured"),
        ({"jobs": 2}, None, "none of 2 jobs asks for more than 5000 GB of burst buffer, which s1 repeats"),
    ],
)
def test_logs_that_are_too_short_are_refused(tmp_path, made, days, message):
    trace = read_swf(log(tmp_path / "short.swf", **made), exceed="kill")
    with pytest.raises(AsaError, match=message):
        theta(trace, days=days)


def test_a_log_that_has_the_papers_rate_gets_no_more_jobs(tmp_path):
    trace = read_swf(log(tmp_path / "busy.swf", jobs=20_000), exceed="kill")
    with pytest.raises(InputError, match=r"500 jobs a day of .* no narrow ones are missing"):
        theta(trace, at_paper_rate=True)


@pytest.mark.data
def test_theta_itself(data):
    """Its log counts nodes; S4 offers about four tenths of the burst buffer, for few jobs run at once."""
    made = theta(read_swf(data / "swf" / "theta_2022.swf.gz", exceed="kill"))
    s4, s7 = made["theta-s4"], made["theta-s7"]
    assert s4.system.totals == (4360, 1_260_000)
    assert len(s4.table) == 23_911
    assert offered(s4)[NODES] == pytest.approx(0.753, abs=0.001)
    assert offered(s4)[BUFFER] == pytest.approx(0.37, abs=0.02)
    assert np.mean(s7.demands[SSD] > 128) == pytest.approx(0.794, abs=0.005)
    assert np.mean(~is_normal(s4.table)) == pytest.approx(0.064, abs=0.001)

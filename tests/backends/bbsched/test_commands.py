"""``asa bbsched``: tables that fit the terminal, JSON without other output, figures, and early refusals."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from asa.backends.bbsched.methods import METHODS
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable
from forked import asa
from typer.testing import CliRunner

from asa.errors import AsaError
from asa.studies.bbsched import comparison
from asa.studies.bbsched.commands import app
from asa.units import format_duration

DAY = 86_400
KINDS = ("original", "s1", "s2", "s3", "s4", "s5", "s6", "s7")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the log of a machine that is asked for more than it can run."""
    rng = np.random.default_rng(7)
    jobs = 120
    submit = np.sort(rng.integers(0, 32 * DAY, jobs))
    submit[0], submit[-1] = 0, 32 * DAY - 1
    run = rng.integers(60, 2 * DAY, jobs)
    path = tmp_path_factory.mktemp("log") / "small.swf"
    write_swf(path, JobTable(submit, run, run + 3600, rng.integers(1, 81, jobs)), cores=100)
    return path


@pytest.fixture(scope="module", autouse=True)
def _once():
    """Schedule each case once: many tests print the same cases, and another test checks that results are equal."""
    run_case, outcomes = comparison.run_case, {}

    def remembered(workload, case):
        key = case, len(workload.table), tuple(workload.system.pools.items()), workload.order
        if key not in outcomes:
            outcomes[key] = run_case(workload, case)
        return outcomes[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "run_case", remembered)
        yield


def bbsched(*arguments, code=0, columns=120):
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    if isinstance(done.exception, AsaError):
        assert done.exception.exit_code == code, done.exception
        return SimpleNamespace(stdout=done.stdout, stderr=str(done.exception))
    assert done.exit_code == code, (done.output, done.exception)
    return done


def words(text):
    return re.sub(r"\s+", " ", text)


# ---------------------------------------------------------------------- compare


@pytest.mark.full
def test_json_is_a_list_of_all_cases_and_seeds(log):
    """Nothing else is printed."""
    done = bbsched(
        "compare", "--theta", log, "--workloads", "theta-s4,theta-s5", "--methods", "baseline,weighted-cpu,bbsched",
        "--windows", "5,20", "--seeds", 2, "--processes", 1, "--output", "json",
    )  # fmt: skip
    told = json.loads(done.stdout)
    keys = [(one["workload"], one["method"], one["window"], one["seed"]) for one in told]
    plain = {("theta-s4", m, w, s) for m in ("baseline", "weighted-cpu", "bbsched") for w in (5, 20) for s in (0, 1)}
    disked = {("theta-s5", m, w, s) for m in ("baseline", "bbsched") for w in (5, 20) for s in (0, 1)}
    assert set(keys) == plain | disked
    assert len(keys) == len(plain | disked)
    for one in told:
        assert 0 < one["node_usage"] < 1
        assert 0 < one["burst_buffer_usage"] < 1
        assert one["average_wait_s"] > 0
        assert one["average_slowdown"] > 1
        assert one["burst_buffer_gb"] == 1_260_000
        assert (one["ssd_usage"] is None) == (one["workload"] == "theta-s4")
        assert one["solver"] == "exact"
        assert one["nodes"] == 100


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.full
def test_tables_fit_the_terminal(log, columns):
    """The tables of both sections fit; they have the paper's figures where its text gives them."""
    done = bbsched(
        "compare", "--theta", log, "--workloads", "theta-original,theta-s4,theta-s7", "--seeds", 2, "--processes", 1,
        columns=columns,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in done.stdout
    told = words(done.stdout)
    for title in (
        "Theta: node usage, %", "Theta: burst-buffer usage, %", "Theta: average wait", "Theta: average slowdown",
        "Theta: average wait against baseline", "Theta: longest wait", "SSD: SSD usage", "SSD: wasted SSD",
        "area in the Kiviat graph", "Section 4, 2 workloads", "Section 5, 1 workload:", "by nodes",
        "by burst buffer (TB)", "by run time", "What the paper's text says",
    ):  # fmt: skip
        assert title in told
    assert [line.split() for line in lines if line.startswith("  the paper's")][:4] == [
        ["the", "paper's", figure] for figure in ("73.29", "89.54", "2h27m", "8.16")
    ]
    assert ["theta-s4", "bbsched", "average", "wait", "-41.00"] in [line.split()[:5] for line in lines]
    assert re.search(r"bbsched is best or tied in \d of 8 cells \(the others in \d to \d\): best in \d,", told)
    rows = [line for line in lines if line.startswith("weighted ")]
    assert all(("+-" in row) == (columns == 120) for row in rows[:2])


def test_numbers_in_the_tables_are_those_of_json(log):
    arguments = (
        "compare", "--theta", log, "--workloads", "theta-s3,theta-s4", "--methods", "baseline,bbsched", "--seeds", 1,
        "--processes", 1,
    )  # fmt: skip
    outcomes = json.loads(bbsched(*arguments, "--output", "json").stdout)
    told = bbsched(*arguments).stdout
    by_key = {(one["workload"], one["method"]): one for one in outcomes}
    wait_table = told.split("Theta: average wait")[1].split("Theta:")[0]
    for method in ("baseline", "bbsched"):
        row = next(line for line in wait_table.splitlines() if line.startswith(method))
        waits = [by_key[workload, method]["average_wait_s"] for workload in ("theta-s3", "theta-s4")]
        assert [cell.strip("*") for cell in row.split()[1:]] == [format_duration(wait) for wait in waits]
    base, ours = (by_key["theta-s4", method] for method in ("baseline", "bbsched"))
    percent = 100 * (ours["average_wait_s"] / base["average_wait_s"] - 1)
    assert f"-41.00 {percent:+.2f}" in words(told)
    assert "too few for intervals" in words(told)


@pytest.mark.full
def test_windows_and_solvers_are_put_side_by_side(log):
    """The table has the form of Table 3, with the paper's figures below; other tables are for its window."""
    done = bbsched(
        "compare", "--theta", log, "--workloads", "theta-s4", "--methods", "bbsched", "--windows", "20,1,10",
        "--solver", "genetic,exact", "--seeds", 1, "--processes", 1, columns=80,
    )  # fmt: skip
    table = done.stdout.split("Table 3")[1].splitlines()
    assert table[1].split() == ["1", "10", "20"]
    rows = [line.split() for line in table]
    assert ["paper", "67.12", "73.29"] in rows
    assert ["paper", "2h53m", "2h27m"] in rows
    assert [row[-4] for row in rows if len(row) >= 4 and row[-4] in {"genetic", "exact"}] == ["genetic", "exact"] * 4
    assert "a window of 20 and the genetic solver" in words(done.stdout)


@pytest.mark.full
def test_only_cori_without_a_log(monkeypatch):
    """It is said, once nothing else is wrong. Of all that is to be run the first is, as each is much."""
    asked, compare = [], comparison.compare

    def compare_first(workloads, cases, **options):
        asked.extend(cases)
        return compare(workloads, cases[:1], **options)

    monkeypatch.setattr(comparison, "compare", compare_first)
    done = bbsched("compare", "--days", 31, "--methods", "baseline", "--seeds", 1, "--processes", 1, "--output", "json")
    assert "Only Cori's workloads" in done.stderr
    assert [case.workload for case in asked] == [f"cori-{kind}" for kind in KINDS]
    assert [one["workload"] for one in json.loads(done.stdout)] == ["cori-original"]
    assert "Cori" not in bbsched("compare", "--methods", "none", code=2).stderr


def test_a_log_of_another_machine_is_told_apart(log):
    done = bbsched(
        "compare", "--theta", log, "--workloads", "theta-s4,theta-s3", "--methods", "baseline", "--seeds", 2,
        "--processes", 1,
    )  # fmt: skip
    assert done.stderr.count("the log's machine has 100 nodes, and Theta 4,392") == 1
    assert "100 nodes, 1,260 TB of burst buffer" in done.stdout


def test_the_order_and_the_capacity_are_those_that_are_given(log):
    """Waits differ by the base scheduler; the reason for the capacity is printed."""
    arguments = ("compare", "--theta", log, "--workloads", "theta-s4", "--methods", "baseline", "--seeds", 1)
    by_order = {
        order: json.loads(bbsched(*arguments, *order, "--processes", 1, "--output", "json").stdout)[0]["average_wait_s"]
        for order in ((), ("--order", "wfp"), ("--order", "sjf"), ("--order", "multifactor:size=9000"))
    }
    waits = list(by_order.values())
    assert waits[0] == waits[1]
    assert len(set(waits)) == 3
    told = words(bbsched(*arguments, "--processes", 1).stdout)
    assert "Burst buffer: the paper's, in Table 2" in told
    assert "Theta: offered load, % of the machine" in told
    assert "a job that 50 selections passed over must be selected" in " ".join(told.split())
    given = words(bbsched(*arguments, "--processes", 1, "--theta-buffer-tb", 500).stdout)
    assert "500 TB of burst buffer Burst buffer: as given; the paper's is 1,260 TB." in given


@pytest.mark.full
def test_figures_are_drawn(log, tmp_path):
    done = bbsched(
        "compare", "--theta", log, "--workloads", "theta-s3,theta-s4,theta-s6", "--seeds", 1, "--processes", 1,
        "--plot", tmp_path / "new", "--output", "json",
    )  # fmt: skip
    names = [
        *(f"figure-{place}-theta.png" for place in (12, 13, 14, 6, 7, 8)),
        "figures-9-11-theta.png",
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    assert all((tmp_path / "new" / name).stat().st_size > 10_000 for name in names)
    assert all(name in done.stderr for name in names)
    assert len(json.loads(done.stdout)) == 8 + 8 + 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workloads", "cori-s9"], "'cori-s9' is unknown"),
        (["--workloads", "theta-s4"], "Name it with --theta LOG"),
        (["--workloads", ""], "'' is unknown"),
        (["--methods", "bbshced"], "Did you mean 'bbsched'?"),
        (["--methods", "constrained-ssd", "--workloads", "cori-s4"], "constrained-ssd is for s5 to s7"),
        (["--windows", "0"], "'0' is no size of a window, which is a number from 1 to 1,000"),
        (["--windows", "20,"], "'' is no size of a window"),
        (["--windows", "-3"], "'-3' is no size of a window"),
        (["--solver", "greedy"], "Known: exact, genetic."),
        (["--theta-buffer-tb", "500"], "no workloads of Theta without its log"),
        (["--theta", "nowhere.swf"], "nowhere.swf"),
        (["--theta", "LOG", "--days", "33"], "the log lasts 32.0 days, and 33 are asked for"),
        (["--theta", "LOG", "--theta-buffer-tb", "20"], "could never start"),
        (["--workloads", "cori-s4", "--days", "31", "--cori-buffer-tb", "20"], "--cori-buffer-tb 20"),
        (["--workloads", "cori-s4", "--days", "8", "--warm-up", "4"], "Take 9 to 3650 days"),
        (["--order", "dras"], "'dras' does not decide by an order of its queue"),
        (["--plot", "FILE/in"], "cannot be made a folder"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_run(arguments, message, log, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "compare", lambda *_, **__: pytest.fail("something was run"))
    (tmp_path / "file").write_text("")
    places = {"LOG": str(log), "FILE/in": str(tmp_path / "file" / "in")}
    done = bbsched("compare", *(places.get(word, word) for word in arguments), code=2)
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("option", ["--seeds", "--starvation-bound", "--processes"])
def test_numbers_are_from_1_on(option):
    assert re.search("equal to 1|1<=x", bbsched("compare", option, 0, code=2).stderr)


def test_the_exit_code_is_2():
    """The exit code is that of the whole program, which finds the command by its entry point."""
    done = asa("bbsched", "compare", "--windows", "0", code=2)
    assert "--windows 0: '0' is no size of a window" in done.stderr
    assert not done.stdout


# ---------------------------------------------------------------------- gd and bench


def test_the_curve_is_printed_and_drawn(log, tmp_path):
    """The curve is over generations and populations; with more of both the distance is smaller."""
    arguments = ("gd", "--theta", log, "--jobs", 60, "--window", 12)
    told = json.loads(bbsched(*arguments, "--output", "json", "--plot", tmp_path / "gd.png").stdout)
    assert (tmp_path / "gd.png").stat().st_size > 10_000
    assert (told["workload"], told["window"]) == ("theta-s4", 12)
    assert 0 < told["measured"] == max(told["windows"] // 4, 1)
    points = {(point["generations"], point["population"]): point["distance"] for point in told["curve"]}
    assert len(points) == 18
    assert points[0, 10] >= points[2000, 10] >= 0
    printed = bbsched(*arguments, columns=80).stdout
    assert max(map(len, printed.splitlines())) <= 80
    row = next(line.split() for line in printed.splitlines() if line.startswith("G=0 "))
    assert math.isclose(float(row[1]), 100 * points[0, 10], abs_tol=1e-4)


@pytest.mark.full
def test_decisions_are_timed_beside_their_limits(log):
    arguments = ("bench", "--theta", log, "--jobs", 60)
    told = json.loads(bbsched(*arguments, "--output", "json").stdout)
    assert [(one["solver"], one["window"], one["which"]) for one in told][:2] == [
        ("exact", 20, "all"),
        ("exact", 20, "fullest"),
    ]
    assert all(one["exact"] == 1 for one in told if one["solver"] == "exact")
    worst_s = {(one["solver"], one["window"]): one["worst_s"] for one in told if one["which"] == "all"}
    assert worst_s["genetic, G=500", 20] < 0.2  # the paper's, which here is some milliseconds
    assert worst_s["genetic, G=2000", 50] < 2
    printed = bbsched(*arguments, columns=80).stdout
    assert "…" not in printed
    assert "5 / 50" in printed


def test_times_by_size_are_printed_and_drawn(log, tmp_path):
    """Beyond the largest window that is tried, the exhaustive search takes twice as long for each job."""
    arguments = ("scaling", "--theta", log, "--windows", "4,8,10,13", "--exhaustive-to", 8, "--jobs", 60)
    told = json.loads(bbsched(*arguments, "--output", "json", "--plot", tmp_path / "two.png").stdout)
    assert (tmp_path / "two.png").stat().st_size > 10_000
    by_key = {(one["solver"], one["window"]): one for one in told}
    assert set(by_key) == {(solver, size) for solver in ("exhaustive", "exact", "genetic") for size in (4, 8, 10, 13)}
    assert [by_key["exact", size]["windows"] for size in (4, 8, 10, 13)] == [15, 7, 6, 4]
    tried = [by_key["exhaustive", size] for size in (4, 8, 10, 13)]
    assert [one["windows"] > 0 for one in tried] == [True, True, False, False]
    assert tried[3]["seconds"] == pytest.approx(8 * tried[2]["seconds"]) == pytest.approx(32 * tried[1]["seconds"])
    printed = bbsched(*arguments, columns=80).stdout
    assert max(map(len, printed.splitlines())) <= 80
    assert sum(line.split()[1].startswith("~") for line in printed.splitlines() if line[:2] in ("10", "13")) == 2


def test_requests_are_counted_and_drawn(log, tmp_path):
    arguments = ("requests", "--theta", log, "--workloads", "theta-original,theta-s4")
    told = json.loads(bbsched(*arguments, "--output", "json", "--plot", tmp_path / "new").stdout)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["figure-5-theta.png"]
    assert (tmp_path / "new" / "figure-5-theta.png").stat().st_size > 10_000
    original, s4 = told
    assert (original["jobs"], original["asking"]) == (120, 21)
    assert (s4["jobs"], s4["asking"]) == (120, 90)
    for one in told:
        assert sum(one["counts"]) == one["asking"]
        assert sum(10 * place * count for place, count in enumerate(one["counts"])) < one["total_tb"]
        assert one["total_tb"] <= sum(10 * (place + 1) * count for place, count in enumerate(one["counts"]))
    assert s4["counts"][:2] == [0, 0]
    printed = bbsched(*arguments).stdout
    assert re.search(r"in all, PB +[\d.,]+ +[\d.,]+\n", printed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scaling", "--windows", "50", "--jobs", "20"], "so few jobs fill no window"),
        (["scaling", "--plot", "two.docx"], "'.docx' is no kind of figure"),
        (["requests", "--workloads", "theta-s4"], "Name it with --theta LOG"),
        (["gd", "--workload", "theta-s4"], "--workload theta-s4"),
        (["gd", "--workload", "cori-s4,cori-s3"], "there can be one workload only"),
        (["bench", "--workload", "cori"], "'cori' is unknown"),
        (["gd", "--window", "0"], "--window"),
        (["gd", "--window", "8", "--jobs", "100"], "nothing is to be decided among so few jobs"),
        (["gd", "--plot", "gd.docx"], "'.docx' is no kind of figure"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, message):
    assert message in bbsched(*arguments, code=2).stderr


def test_every_method_has_a_style():
    from asa.studies.bbsched.pictures import STYLES

    assert set(STYLES) == set(METHODS)

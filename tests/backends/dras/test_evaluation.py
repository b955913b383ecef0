"""What is tested on is seen by nobody before, and what is measured is what became of it."""

import dataclasses
import json

import numpy as np
import pytest
from asa.backends.dras.commands import app
from asa.backends.dras.evaluation import RIVALS, adapting, check_unseen, evaluate, rivals, split, trace_of
from asa.backends.dras.ppo import ProximalLearning
from asa.backends.dras.ranking import first_ranks
from asa.backends.dras.rewards import Capability
from asa.backends.dras.rivals import First
from asa.backends.dras.scheduler import TwoLevels
from asa.backends.dras.scoring import run
from asa.backends.dras.tables import grouped, kiviat, modes, sizes, target
from asa.backends.dras.training import Config, Training
from asa.backends.dras.weights import Ranked, save_agent
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.policies import easy, scheduler
from asa.backends.simulated.swf import write_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel
from forked import asa
from typer.testing import CliRunner

from asa.errors import InputError

DAY = 86400
NODES = 64
MODEL = WorkloadModel(Machine("tiny", NODES, 1), load=0.8, log2_middle=3.0, log2_widest=6.0)
RANKED = Ranked(first_ranks(np.random.default_rng(0)))


@pytest.fixture(scope="module")
def table():
    return MODEL.generate(30 * DAY, 1)


@pytest.fixture(scope="module")
def log(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "tiny.swf"
    write_swf(path, table, cores=NODES)
    return path


@pytest.fixture(scope="module")
def short_log(table, tmp_path_factory):
    """Its first week."""
    path = tmp_path_factory.mktemp("logs") / "week.swf"
    first = table.submit < table.submit[0] + 7 * DAY
    columns = (table.submit, table.run, table.request, table.cores)
    write_swf(path, JobTable(*(column[first] for column in columns)), cores=NODES)
    return path


def here(*arguments):
    """Run a command that learns in this process: to import PyTorch anew takes longer than to learn so little."""
    pytest.importorskip("torch").set_num_threads(1)
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def altered(table, first_s):
    """Jobs submitted from a moment on run, ask and measure otherwise."""
    late = table.submit >= first_s
    return JobTable(
        table.submit,
        np.where(late, table.run // 2 + 1, table.run),
        np.where(late, table.request + 77, table.request),
        np.where(late, NODES + 1 - table.cores, table.cores),
    )


def seen(cut):
    """All numbers that an agent can learn from or be chosen by."""
    material = cut.material
    tables = [material.training, material.validation]
    tables += [
        material.jobs(phase, number, count=50, seed=3, days=3)
        for phase in ("sampled", "real", "synthetic")
        for number in range(3)
    ]
    columns = [column.tolist() for t in tables for column in (t.submit, t.run, t.request, t.cores)]
    return columns, repr(material.model), material.source


def test_nothing_of_the_test_is_seen_in_training(table):
    """Other test jobs leave all that is learned from as it is; other validation jobs do not, nor earlier ones."""
    cut = split(trace_of(table, NODES, "tiny"), train_days=12, validate_days=6)
    begin = int(table.submit[0])
    assert seen(
        split(trace_of(altered(table, begin + 18 * DAY), NODES, "tiny"), train_days=12, validate_days=6)
    ) == seen(cut)
    for day in (17, 11):
        other = split(trace_of(altered(table, begin + day * DAY), NODES, "tiny"), train_days=12, validate_days=6)
        assert seen(other) != seen(cut)
    assert (cut.from_day, cut.material.seen_days) == (18, 18)
    assert len(cut.material.training) + len(cut.material.validation) + len(cut.test) == len(table)
    assert (cut.material.training.submit - begin).max() < 12 * DAY
    assert cut.test.run.tolist() == table.run[table.submit >= begin + 18 * DAY].tolist()


def test_a_whole_training_depends_on_nothing_of_the_test(table):
    """Nor does the agent."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    how = ProximalLearning(schedules=2)
    config = Config(sampled=1, real=1, synthetic=1, jobs=50, days=1, proximal=how)
    agents = []
    for jobs in (table, altered(table, int(table.submit[0]) + 4 * DAY)):
        cut = split(trace_of(jobs, NODES, "tiny"), train_days=3, validate_days=1)
        training = Training(cut.material, config, kind="ppo", seed=1)
        list(training)
        agents.append(training.best)
        assert training.episodes[-1].updates > 0
    for name, array in agents[0].parameters.items():
        np.testing.assert_array_equal(array, agents[1].parameters[name])


def test_an_agent_that_has_seen_test_jobs_is_refused(table):
    """Of this log; what it saw of another does not matter."""
    cut = split(trace_of(table, NODES, "tiny"), train_days=12, validate_days=6)
    check_unseen(dataclasses.replace(RANKED, source=cut.material.source, seen_days=18), cut, "mine.npz")
    check_unseen(dataclasses.replace(RANKED, source="other: days 1 to 90", seen_days=120), cut, "mine.npz")
    with pytest.raises(InputError, match=r"mine.npz: has seen the log's first 19 days, and the test begins after 18"):
        check_unseen(dataclasses.replace(RANKED, source=cut.material.source, seen_days=19), cut, "mine.npz")


@pytest.mark.parametrize("days", [(29, 5), (0, 5), (5, 0)])
def test_a_log_that_is_too_short_is_refused(table, days):
    with pytest.raises(InputError, match="are to be learned from"):
        split(trace_of(table, NODES, "tiny"), train_days=days[0], validate_days=days[1])


def test_an_outcome_is_counted_by_hand():
    """Three jobs: one runs, a wide one waits for it, a short one goes beside."""
    jobs = JobTable(*(np.array(column) for column in ([0, 10, 20], [100, 50, 30], [100, 50, 40], [4, 8, 2])))
    found = evaluate(jobs, 8, TwoLevels(First()), "fcfs-easy", 2)
    assert (found.method, found.run) == ("fcfs-easy", 2)
    assert (found.mean_wait_s, found.max_wait_s) == (30.0, 90)
    assert found.response_s == pytest.approx(90.0)
    assert found.slowdown == pytest.approx((1 + 140 / 50 + 1) / 3)
    assert found.utilisation == pytest.approx((400 + 400 + 60) / (8 * 150))
    assert [(part.above, part.to, part.jobs, part.mean_wait_s) for part in found.by_size] == [
        (1 / 8, 1 / 4, 1, 0.0),
        (1 / 4, 1 / 2, 1, 0.0),
        (1 / 2, 1.0, 1, 90.0),
    ]
    told = {share.mode: (share.jobs, share.core_hours, share.mean_wait_s) for share in found.modes}
    assert told["ready"] == pytest.approx((1 / 3, 400 / 860, 0.0))
    assert told["reserved"] == pytest.approx((1 / 3, 400 / 860, 90.0))
    assert told["backfilled"] == pytest.approx((1 / 3, 60 / 860, 0.0))
    assert [(week.number, week.core_hours, week.mean_wait_s) for week in found.weeks] == [(0, 860 / 3600, 30.0)]
    assert json.dumps(found.as_dict())


def test_rivals_are_who_they_say(table):
    """EASY is the engine's own; the others differ from it, and Random from itself."""
    jobs = JobTable(table.submit[:200], table.run[:200], table.request[:200], table.cores[:200])
    makers = rivals(Capability(), seed=1)
    assert tuple(makers) == RIVALS
    found = {name: evaluate(jobs, NODES, make(), name) for name, make in makers.items()}
    plain = evaluate(jobs, NODES, easy(), "easy")
    assert found["fcfs-easy"].mean_wait_s == plain.mean_wait_s
    assert found["sjf"].mean_wait_s == evaluate(jobs, NODES, scheduler("sjf"), "sjf").mean_wait_s
    assert len({one.mean_wait_s for one in found.values()}) > 4
    other = evaluate(jobs, NODES, rivals(Capability(), seed=2)["random"](), "random")
    assert other.mean_wait_s != found["random"].mean_wait_s


def outcome(method, number, wait_s, slowdown, longest_s=100):
    jobs = JobTable(*(np.array(column) for column in ([0, 10], [100, 50], [100, 50], [4, 8])))
    made = evaluate(jobs, 8, TwoLevels(First()), method, number)
    return dataclasses.replace(made, mean_wait_s=wait_s, slowdown=slowdown, max_wait_s=longest_s)


def test_a_rival_is_beaten_only_beyond_the_interval():
    """And the longest wait is that of the worst run."""
    easy_, sjf = [outcome("fcfs-easy", 0, 100.0, 9.0, 1000)], [outcome("sjf", 0, 12.5, 4.0, 3000)]
    ours = [
        outcome("dras-ppo", n, wait, 2.0, longest)
        for n, (wait, longest) in enumerate([(10, 900), (11, 900), (12, 1500)])
    ]
    methods = grouped([*easy_, *sjf, *ours])
    assert target(methods, "dras-ppo") == {"fcfs-easy": True, "sjf": False, "longest wait": True}
    methods["dras-ppo"][0] = dataclasses.replace(ours[0], max_wait_s=1501)
    assert not target(methods, "dras-ppo")["longest wait"]


def test_a_kiviat_graph_s_best_is_1_and_worst_is_0():
    methods = grouped([outcome("one", 0, 10.0, 2.0), outcome("two", 0, 20.0, 4.0), outcome("three", 0, 40.0, 3.0)])
    shares = kiviat(methods)
    assert shares["one"][[0, 2]] == pytest.approx([1.0, 1.0])
    assert shares["three"][0] == pytest.approx(0.0)
    assert shares["two"][[0, 2]] == pytest.approx([1 / 3, 0.0])
    assert shares["two"][4] == 1.0  # all are alike


def test_runs_of_a_method_are_averaged():
    some = [outcome("one", 0, 10.0, 2.0), outcome("one", 1, 20.0, 2.0)]
    assert [part.jobs for part in sizes(some)] == [1, 1]
    assert modes(some)["ready"].jobs == 0.5


def test_a_judge_that_goes_on_learning_begins_as_it_is_and_knows_nothing_too_early(table):
    """Starts of the first week are those of one that does not learn; later run times change no earlier start."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    jobs = table.submit < 9 * DAY
    weeks = JobTable(table.submit[jobs], table.run[jobs], table.request[jobs], table.cores[jobs])
    first = 7 * DAY + int(weeks.submit[0])
    learning = adapting(RANKED, weeks, NODES, seed=1)
    start = run(weeks, NODES, learning)
    fixed = run(weeks, NODES, RANKED.scheduler())
    assert start[start < first].tolist() == fixed[fixed < first].tolist()
    learned = learning._learner.parameters
    assert any((learned[name] != array).any() for name, array in RANKED.parameters.items())
    moment = 8 * DAY
    runs = np.where(start >= moment, np.maximum(weeks.run // 2, 1), weeks.run)
    others = JobTable(weeks.submit, runs, weeks.request, weeks.cores)
    again = run(others, NODES, adapting(RANKED, others, NODES, seed=1))
    assert again[again < moment].tolist() == start[start < moment].tolist()


def test_a_log_is_trained_on_evaluated_and_drawn(short_log, tmp_path):
    """From the command line, and gone on with."""
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    days = ("--train-days", 2, "--validate-days", 1)
    arguments = ("dras", "train", short_log, *days, "--sets", 1, "--jobs", 10, "--out", tmp_path / "mine.npz")
    trained = asa(*arguments, "--plot", tmp_path / "curve.png")
    assert "The best agent, of episode" in trained.stderr
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    assert "holds a training already" in asa(*arguments, code=2).stderr
    assert "The best agent" in here(*arguments[1:], "--resume", "--plot", tmp_path).stderr
    assert (tmp_path / "learning.png").exists()
    arguments = (
        "dras",
        "evaluate",
        short_log,
        *days,
        "--weights",
        tmp_path / "mine.npz",
        "--rivals",
        "fcfs-easy,random",
    )
    told = json.loads(asa(*arguments, "--seeds", 2, "--json", "--plot", tmp_path / "figures").stdout)
    assert list(told["methods"]) == ["fcfs-easy", "random", "dras-ppo"]
    assert [run["run"] for run in told["runs"]] == [0, 0, 1, 0]
    assert told["methods"]["random"]["mean_wait_s"]["half_95"] > 0
    assert told["test"]["from_day"] == 3
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == [f"figure-{number}.png" for number in (6, 7, 8, 9)]
    shown = asa(*arguments, "--seeds", 1).stdout
    assert "Table IV" in shown
    assert "30.45" in shown  # the paper's
    early = ("dras", "evaluate", short_log, "--train-days", 1, "--validate-days", 1, "--weights", tmp_path / "mine.npz")
    assert "has seen the log's first 3 days" in asa(*early, code=2).stderr


def test_orders_of_phases_are_compared(short_log, tmp_path):
    """Four of them, in a figure."""
    pytest.importorskip("torch")
    arguments = ("orders", short_log, "--agent", "ppo", "--train-days", 1, "--validate-days", 1)
    arguments += ("--sets", 1, "--jobs", 10)
    told = json.loads(here(*arguments, "--json", "--plot", tmp_path / "figure-4.png").stdout)
    assert list(told["orders"]) == [
        "sampled, real, synthetic", "real, sampled, synthetic", "synthetic, sampled, real", "real"
    ]  # fmt: skip
    assert (tmp_path / "figure-4.png").stat().st_size > 10_000


def test_evaluating_takes_the_package_s_agent_and_needs_no_training(log):
    told = json.loads(
        asa("dras", "evaluate", log, "--train-days", 20, "--validate-days", 5, "--rivals", "sjf", "--json").stdout
    )
    assert list(told["methods"]) == ["sjf", "dras-ppo (shipped)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate", "hpc2n"), "is a model, which has no days to test on"),
        (("evaluate", "LOG", "--rivals", "fcfs"), "'fcfs' is unknown"),
        (("evaluate", "LOG", "--objective", "speed"), "'speed' is unknown"),
        (("train", "LOG", "--agent", "pgg"), "'pgg' is unknown"),
        (("train", "LOG", "--config", "huge"), "'huge' is unknown"),
        (("train", "LOG", "--out", "/nowhere/at/all.npz"), "its folder does not exist"),
        (("train", "LOG", "--train-days", 29, "--validate-days", 9), "are to be learned from"),
        (("train", "hpc2n", "--cores", 8), "8 cores are too few"),
    ],
)
def test_nonsense_is_refused(log, tmp_path, arguments, said):
    given = [log if word == "LOG" else word for word in arguments]
    assert said in asa("dras", *given, cwd=tmp_path, code=2).stderr


def test_a_saved_judge_is_evaluated_beside_the_paper_s_kind(log, tmp_path):
    """Two files of a kind are two runs of one method."""
    for name in ("a", "b"):
        save_agent(RANKED, tmp_path / f"{name}.npz")
    weights = [word for name in ("a", "b") for word in ("--weights", tmp_path / f"{name}.npz")]
    days = ("--train-days", 20, "--validate-days", 5)
    told = json.loads(asa("dras", "evaluate", log, *days, *weights, "--rivals", "wfp", "--json").stdout)
    assert [(run["method"], run["run"]) for run in told["runs"]] == [("wfp", 0), ("dras-ppo", 0), ("dras-ppo", 1)]

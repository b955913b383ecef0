"""Test jobs are unseen in training, and measured figures are those of the outcomes."""

import dataclasses
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from asa.backends.dras.network import NetworkSize, initial
from asa.backends.dras.ranking import first_ranks
from asa.backends.dras.rewards import Capability, Capacity, described_reward
from asa.backends.dras.scheduler import First, TwoLevels
from asa.backends.dras.scoring import run
from asa.backends.dras.weights import Agent, Ranked, load_agent, save_agent
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.policies import easy, scheduler
from asa.backends.simulated.swf import read_swf, write_swf
from asa.backends.simulated.table import JobTable
from asa.backends.simulated.workload import WorkloadModel
from forked import asa
from typer.testing import CliRunner

from asa.errors import InputError, StateError
from asa.studies.dras.ablation import _RunTimeOracle
from asa.studies.dras.asked import Order, days_of
from asa.studies.dras.commands import app
from asa.studies.dras.evaluation import RIVALS, adapting, check_unseen, evaluate, rivals, split, trace_of
from asa.studies.dras.ppo import ProximalLearning
from asa.studies.dras.tables import grouped, kiviat, modes, sizes, target
from asa.studies.dras.training import Config, Training

DAY = 86400
NODES = 64
MODEL = WorkloadModel(Machine("tiny", NODES, 1), load=0.8, log2_middle=3.0, log2_widest=6.0)
SHORT_DAYS = ("--train-days", 2, "--validate-days", 1)
RANKED = Ranked(first_ranks(np.random.default_rng(0)))


@pytest.fixture(scope="module")
def table():
    return MODEL.generate(30 * DAY, 1)


@pytest.fixture(scope="module")
def log(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "tiny.swf"
    write_swf(path, table, cores=NODES)
    return path


def here(*arguments):
    """Run a command in this process: importing PyTorch in a new one would take longer than the command."""
    pytest.importorskip("torch").set_num_threads(1)
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def altered(table, first_s):
    """Change the run times, requests and sizes of jobs submitted from a given time on."""
    late = table.submit >= first_s
    return JobTable(
        table.submit,
        np.where(late, table.run // 2 + 1, table.run),
        np.where(late, table.request + 77, table.request),
        np.where(late, NODES + 1 - table.cores, table.cores),
    )


def seen(cut):
    """Return all numbers from which an agent can learn, or by which it can be chosen."""
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
    """Other test jobs change nothing that is learned from; other validation jobs change no earlier data."""
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


def test_a_whole_training_depends_on_nothing_of_the_test(days):
    """The agent does not depend on it, either."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    how = ProximalLearning(schedules=2)
    config = Config(sampled=1, real=1, synthetic=1, jobs=50, days=1, exams=1, proximal=how)
    agents = []
    for jobs in (days, altered(days, int(days.submit[0]) + 4 * DAY)):
        cut = split(trace_of(jobs, NODES, "tiny"), train_days=3, validate_days=1)
        training = Training(cut.material, config, kind="ppo", seed=1)
        list(training)
        agents.append(training.best)
        assert training.episodes[-1].updates > 0
    for name, array in agents[0].parameters.items():
        np.testing.assert_array_equal(array, agents[1].parameters[name])


def test_an_agent_that_has_seen_test_jobs_is_refused(table):
    """The test jobs must be of this log; those of other logs do not matter."""
    cut = split(trace_of(table, NODES, "tiny"), train_days=12, validate_days=6)
    check_unseen(dataclasses.replace(RANKED, source=cut.material.source, seen_days=18), cut, "mine.npz")
    check_unseen(dataclasses.replace(RANKED, source="other: days 1 to 90", seen_days=120), cut, "mine.npz")
    with pytest.raises(InputError, match=r"mine.npz: has seen the log's first 19 days, and the test begins after 18"):
        check_unseen(dataclasses.replace(RANKED, source=cut.material.source, seen_days=19), cut, "mine.npz")


def test_a_log_is_known_by_its_jobs_and_not_by_its_name(table):
    """A copy under another name, or with another begin, is the same log; another log of that name is not."""
    later = split(trace_of(table, NODES, "tiny"), train_days=16, validate_days=4)
    material = later.material
    agent = dataclasses.replace(RANKED, source=material.source, seen_days=material.seen_days, seen=material.seen)
    moved = JobTable(table.submit + 5 * DAY + 7, table.run, table.request, table.cores)
    for copied in (table, moved):
        cut = split(trace_of(copied, NODES, "copy"), train_days=12, validate_days=6)
        with pytest.raises(InputError, match=r"has seen the log's first 20 days, and the test begins after 18"):
            check_unseen(agent, cut, "mine.npz")
        check_unseen(agent, split(trace_of(copied, NODES, "copy"), train_days=16, validate_days=4), "mine.npz")
    other = altered(table, int(table.submit[0]))
    check_unseen(agent, split(trace_of(other, NODES, "tiny"), train_days=12, validate_days=6), "mine.npz")


@pytest.mark.parametrize("days", [(29, 5), (0, 5), (5, 0)])
def test_a_log_that_is_too_short_is_refused(table, days):
    with pytest.raises(InputError, match="are to be learned from"):
        split(trace_of(table, NODES, "tiny"), train_days=days[0], validate_days=days[1])


def test_days_are_known_for_cori_as_for_a_log():
    """Its 63 days leave some for the test; given numbers come first."""
    assert sum(days_of("cori", None, None)) < 63
    assert days_of("theta.swf", None, None) == (90, 30)
    assert days_of("cori", 40, None) == (40, 7)


def test_an_outcome_is_counted_by_hand():
    """Of three jobs one runs, a wide one waits for it, and a short one runs beside."""
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
    """EASY is the engine's own; the others differ from it, and Random differs from run to run."""
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
    """The longest wait is that of the worst run."""
    easy_, sjf = [outcome("fcfs-easy", 0, 100.0, 9.0, 1000)], [outcome("sjf", 0, 12.5, 4.0, 3000)]
    ours = [
        outcome("dras-ppo", n, wait, 2.0, longest)
        for n, (wait, longest) in enumerate([(10, 900), (11, 900), (12, 1500)])
    ]
    methods = grouped([*easy_, *sjf, *ours])
    assert target(methods, "dras-ppo") == {"fcfs-easy": True, "sjf": False, "longest wait": True}
    methods["dras-ppo"][0] = dataclasses.replace(ours[0], max_wait_s=1501)
    assert not target(methods, "dras-ppo")["longest wait"]


def test_a_single_training_has_no_interval_to_be_beyond():
    """Our agent and a trained rival need one; a rival that is equal in each run needs no interval."""
    rivals_ = [outcome("fcfs-easy", 0, 100.0, 9.0, 1000), outcome("dras-pg", 0, 90.0, 8.0)]
    ours = [outcome("dras-ppo", number, 10.0 + number, 2.0, 900) for number in range(2)]
    single, both = (grouped([*rivals_, *some]) for some in (ours[:1], ours))
    assert target(single, "dras-ppo") == {"fcfs-easy": None, "dras-pg": None, "longest wait": True}
    assert target(both, "dras-ppo") == {"fcfs-easy": True, "dras-pg": None, "longest wait": True}


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


def test_a_judge_that_goes_on_learning_begins_as_it_is_and_knows_nothing_too_early(days):
    """The first week's starts are those of a judge that does not learn; later run times change no earlier start."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    first = 7 * DAY + int(days.submit[0])
    learning = adapting(RANKED, days, NODES, seed=1)
    start = run(days, NODES, learning)
    fixed = run(days, NODES, RANKED.scheduler())
    assert start[start < first].tolist() == fixed[fixed < first].tolist()
    learned = learning._learner.parameters
    assert any((learned[name] != array).any() for name, array in RANKED.parameters.items())
    moment = 8 * DAY
    runs = np.where(start >= moment, np.maximum(days.run // 2, 1), days.run)
    others = JobTable(days.submit, runs, days.request, days.cores)
    again = run(others, NODES, adapting(RANKED, others, NODES, seed=1))
    assert again[again < moment].tolist() == start[start < moment].tolist()


def paper_agent(kind, **others):
    size = NetworkSize(kind, NODES, 5, (16, 8))
    drawn = initial(size, np.random.default_rng(0))
    return Agent(size, drawn, **{"reward": repr(Capability()), "discount": 0.9} | others)


@pytest.mark.parametrize(("kind", "levels"), [("pg", 2), ("dql", 2), ("pg", 1)])
def test_the_paper_s_agents_go_on_learning_by_what_they_chose(days, kind, levels):
    """Until the first update they choose as they are; later run times change no earlier start."""
    pytest.importorskip("torch").set_num_threads(1)
    agent = paper_agent(kind, levels=levels)
    learning = adapting(agent, days, NODES, seed=1)
    start = run(days, NODES, learning)
    fixed = run(days, NODES, agent.scheduler(sample=True, seed=1))
    early = int(days.submit[9])  # of nine jobs at most nine are chosen, and an update follows ten choices
    assert start[start < early].tolist() == fixed[fixed < early].tolist()
    assert start.tolist() != fixed.tolist()
    assert learning.chooser.updates > 10
    assert learning.chooser.parameters["last"].tolist() != agent.parameters["last"].tolist()
    moment = 3 * DAY
    runs = np.where(start >= moment, np.maximum(days.run // 2, 1), days.run)
    others = JobTable(days.submit, runs, days.request, days.cores)
    again = run(others, NODES, adapting(agent, others, NODES, seed=1))
    assert again[again < moment].tolist() == start[start < moment].tolist()
    assert again.tolist() != start.tolist()


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (paper_agent("pg", discount=None), "does not say how it discounted rewards"),
        (paper_agent("dql", reward="Mine(1.0)"), "is no reward that is known here"),
    ],
)
def test_an_agent_that_does_not_say_how_it_learned_cannot_go_on(short_log, agent, said, tmp_path):
    """It is refused before anything runs; without --adapt it is evaluated."""
    pytest.importorskip("torch")
    save_agent(agent, tmp_path / "old.npz")
    given = ("evaluate", short_log, *SHORT_DAYS, "--rivals", "sjf", "--weights", tmp_path / "old.npz")
    with pytest.raises(InputError, match=said):
        here(*given, "--adapt")
    assert "sjf" in here(*given).stdout


def test_no_name_is_cut_off_on_a_narrow_terminal(short_log, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = CliRunner().invoke(app, ["evaluate", str(short_log), *map(str, SHORT_DAYS)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "…" not in done.stdout
    assert all(name in done.stdout for name in ("bin-packing", "optimization", "(shipped)"))


@pytest.mark.parametrize("reward", [Capability(), Capability(0.5, 0.25, 0.25), Capacity(), Capacity("wait", 30, 60)])
def test_a_reward_is_read_as_it_was_written(reward):
    assert described_reward(repr(reward)) == reward


@pytest.mark.parametrize("text", ["", "Capability", "Capability(1, 2, 3)", "Capability(speed=1.0)", "print(end='')"])
def test_what_describes_no_reward_is_refused(text):
    with pytest.raises(InputError, match="is no reward that is known here"):
        described_reward(text)


@pytest.fixture(scope="module")
def trained(short_log, tmp_path_factory):
    """Return an agent trained on the thin week, and the command that trained it."""
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("trained") / "mine.npz"
    arguments = ("train", short_log, *SHORT_DAYS, "--sets", 1, "--jobs", 10, "--out", out)
    assert "The best agent, of episode" in here(*arguments, "--plot", out.with_name("curve.png")).stderr
    return out, arguments


def test_a_log_is_trained_on_and_gone_on_with(trained):
    """The command line trains it and prints a curve; when the training is complete, nothing is left to do."""
    out, arguments = trained
    assert out.with_name("curve.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="holds a training already"):
        here(*arguments)
    assert (out.parent / "mine.npz.training").is_dir()
    told = here(*arguments, "--resume", "--plot", out.parent).stderr
    assert "The best agent" in told
    assert "worth" in told
    assert (out.parent / "learning.png").exists()
    assert load_agent(out).command.endswith("--train-days 2 --validate-days 1 --sets 1 --jobs 10")


def test_files_that_differ_in_their_last_part_only_share_nothing():
    """Otherwise the second training would seem to be complete already."""
    asked = [Order("log.swf", None, (90, 30), "ppo", "small", None, None, None, 0, Path(f"x.v{n}")) for n in (1, 2)]
    assert [order.folder.name for order in asked] == ["x.v1.training", "x.v2.training"]


def test_a_heading_comes_when_there_is_something_to_head(trained, tmp_path):
    """A refused command prints no heading."""
    arguments = [*trained[1][:-1], tmp_path / "mine.npz"]
    done = asa("dras", *arguments, "--cores", 1, code=2).stderr
    assert "episode  set" not in done


@pytest.mark.parametrize("where", ["local", "dask"])
def test_several_are_trained_side_by_side(trained, where, tmp_path, monkeypatch):
    """In one process or several, each agent is the same as alone, and can be resumed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("asa.studies.harness.available_cores", lambda: 1)  # another process takes long to begin
    asked = (*trained[1][:-1], "some.npz", "--seeds", 2)
    with executor_at(where) as executor:
        told = here(*asked, "--executor", executor, "--plot", "curves.png").stderr
        again = told if where == "local" else here(*asked, "--executor", executor, "--resume").stderr
    for text in (told, again):
        assert [f"seed {n}, 5 episodes, the best" in text for n in range(2)] == [True, True], text
        assert "written to some-1.npz" in text
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    alone, first, second = (load_agent(file) for file in (trained[0], "some-0.npz", "some-1.npz"))
    assert first.command == alone.command
    assert all(np.array_equal(value, first.parameters[name]) for name, value in alone.parameters.items())
    assert not all(np.array_equal(value, second.parameters[name]) for name, value in alone.parameters.items())


@contextmanager
def executor_at(where):
    if where == "local":
        yield where
        return
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "protocol": "tcp"}
    with distributed.LocalCluster(n_workers=1, host="127.0.0.1", **options) as cluster:
        yield f"dask:{cluster.scheduler_address}"


def test_an_agent_is_evaluated_and_drawn(trained, short_log, tmp_path):
    """It is evaluated beside rivals, on days that it has not seen."""
    arguments = ("evaluate", short_log, "--weights", trained[0], "--rivals")
    given = (*SHORT_DAYS, "--seeds", 2, "--output", "json", "--plot", tmp_path / "figures")
    told = json.loads(here(*arguments, "fcfs-easy,random", *given).stdout)
    assert list(told["methods"]) == ["fcfs-easy", "random", "dras-ppo"]
    assert [run["run"] for run in told["runs"]] == [0, 0, 1, 0]
    assert told["methods"]["random"]["mean_wait_s"]["half_95"] > 0
    assert told["test"]["from_day"] == 3
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == [f"figure-{number}.png" for number in (6, 7, 8, 9)]
    shown = here(*arguments, "fcfs-easy", *SHORT_DAYS).stdout
    assert "Table IV" in shown
    assert "30.45" in shown  # the paper's
    assert "fcfs-easy: unknown, as one training gives no interval" in " ".join(shown.split())


def test_an_agent_that_cannot_be_used_is_refused_before_anything_runs(short_log, trained, tmp_path, monkeypatch):
    """Such an agent has seen the test, under whatever name it is stored, or is no agent."""

    def evaluate_(*arguments):
        raise AssertionError(f"ran {arguments[3]} first")

    monkeypatch.setattr("asa.studies.dras.evaluation.evaluate", evaluate_)
    later = split(read_swf(short_log, exceed="kill"), train_days=3, validate_days=1).material
    named = dataclasses.replace(RANKED, source=later.source, seen_days=later.seen_days)
    copied = tmp_path / "copy.swf"
    copied.write_bytes(short_log.read_bytes())
    for log, agent in ((short_log, named), (copied, dataclasses.replace(named, seen=later.seen))):
        save_agent(agent, tmp_path / "later.npz")
        with pytest.raises(InputError, match="has seen the log's first 4 days, and the test begins after 3"):
            here("evaluate", log, "--weights", tmp_path / "later.npz", *SHORT_DAYS)
    again = split(read_swf(copied, exceed="kill"), train_days=2, validate_days=1)
    assert load_agent(trained[0]).seen == again.digest(3)
    (tmp_path / "none.npz").write_bytes(b"GARBAGE" * 99)
    with pytest.raises(StateError, match="is no file of an agent"):
        here("evaluate", short_log, "--weights", tmp_path / "none.npz", *SHORT_DAYS)


def test_orders_of_phases_are_compared(short_log, tmp_path):
    """There are four orders, in one figure."""
    arguments = ("orders", short_log, "--agent", "ppo", *SHORT_DAYS, "--sets", 1, "--jobs", 10)
    told = json.loads(here(*arguments, "--output", "json", "--plot", tmp_path / "figure-4.png").stdout)
    assert list(told["orders"]) == [
        "sampled, real, synthetic", "real, sampled, synthetic", "synthetic, sampled, real", "real"
    ]  # fmt: skip
    assert (tmp_path / "figure-4.png").stat().st_size > 10_000


def test_what_an_agent_is_made_of_is_left_out(short_log):
    """The requested variants and the complete agent are compared, as numbers and as a table."""
    arguments = ("ablation", short_log, *SHORT_DAYS, "--sets", 0, "--jobs", 10, "--seeds", 2, "--only")
    told = json.loads(here(*arguments, "kept,no-level-2,fcfs-easy,full-unbounded", "--output", "json").stdout)
    assert list(told["methods"]) == ["full", "full-unbounded", "kept", "no-level-2", "fcfs-easy"]
    assert [run["run"] for run in told["runs"]] == [0, 0, 1, 1, 0, 1, 0, 1, 0]
    assert told["methods"]["kept"]["mean_wait_s"] != told["methods"]["full"]["mean_wait_s"]
    modes_ = {run["method"]: {share["mode"]: share["jobs"] for share in run["modes"]} for run in told["runs"]}
    assert modes_["no-level-2"]["backfilled"] == 0.0 < modes_["full"]["backfilled"]
    assert told["variants"]["no-level-2"] == "nothing starts beside a reservation"
    shown = here(*arguments[:-3], "--seeds", 1, "--only", "by-request,oracle").stdout
    assert "beyond" in shown
    assert "by-request: the shortest request first" in shown


def test_the_oracle_knows_what_a_request_does_not_say():
    """On a machine for one job, the shortest runs first, although all request the same and are submitted at once."""
    run_s = np.array([50, 40, 20, 30])
    four = [np.zeros(4, dtype=np.int64), run_s, np.full(4, 60), np.full(4, 8)]
    start = run(JobTable(*four), 8, _RunTimeOracle(run_s))
    assert np.argsort(start).tolist() == [2, 3, 1, 0]


def test_evaluating_takes_the_package_s_agent_and_needs_no_training(short_log):
    told = json.loads(asa("dras", "evaluate", short_log, *SHORT_DAYS, "--rivals", "sjf", "--output", "json").stdout)
    assert list(told["methods"]) == ["sjf", "dras-ppo (shipped)"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate", "hpc2n"), "is a model, which has no days to test on"),
        (("evaluate", "LOG", "--rivals", "fcfs"), "'fcfs' is unknown"),
        (("evaluate", "LOG", "--objective", "speed"), "'speed' is unknown"),
        (("train", "LOG", "--agent", "pgg"), "'pgg' is unknown"),
        (("train", "LOG", "--config", "huge"), "'huge' is unknown"),
        (("train", "LOG", "--agent", "pg", "--objective", "waiting"), "waiting is a cost, by which only ppo learns"),
        (("train", "LOG", "--objective", "capability:1,0"), "as capability:WAIT,SIZE,USED"),
        (("ablation", "LOG", "--only", "full,no-hops"), "'no-hops' is unknown"),
        (("train", "LOG", "--out", "/nowhere/at/all.npz"), "its folder does not exist"),
        (("train", "LOG", "--train-days", 29, "--validate-days", 9), "are to be learned from"),
        (("train", "LOG", "--out", "."), "is a folder"),
        (("train", "hpc2n", "--cores", 8), "8 cores are too few"),
        (("evaluate", "cori", "--cores", 8), "has a size of its own"),
        (("ablation", "hpc2n"), "is a model, which has no days to test on"),
    ],
)
def test_nonsense_is_refused(log, tmp_path, arguments, said):
    given = [log if word == "LOG" else word for word in arguments]
    assert said in asa("dras", *given, cwd=tmp_path, code=2).stderr


def test_a_saved_judge_is_evaluated_beside_the_paper_s_kind(short_log, tmp_path):
    """Two files of one kind count as two runs of one method."""
    for name in ("a", "b"):
        save_agent(RANKED, tmp_path / f"{name}.npz")
    weights = [word for name in ("a", "b") for word in ("--weights", tmp_path / f"{name}.npz")]
    told = json.loads(
        asa("dras", "evaluate", short_log, *SHORT_DAYS, *weights, "--rivals", "wfp", "--output", "json").stdout
    )
    assert [(run["method"], run["run"]) for run in told["runs"]] == [("wfp", 0), ("dras-ppo", 0), ("dras-ppo", 1)]

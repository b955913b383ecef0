"""The jobs of a log, the networks for a machine, and total rewards by episode are shown as they are."""

import json
from pathlib import Path

import numpy as np
import pytest
from asa.backends.dras.rewards import Capability
from asa.backends.dras.scheduler import First, TwoLevels
from asa.backends.dras.scoring import run
from asa.backends.dras.weights import load_agent
from asa.backends.simulated.swf import read_swf
from asa.backends.simulated.table import JobTable
from forked import asa

from asa.studies.dras.asked import Order, fill
from asa.studies.dras.evaluation import split
from asa.studies.dras.patterns import describe, describe_log, size_edges

DAY, HOUR = 86400, 3600
SHORT_DAYS = ("--train-days", 2, "--validate-days", 1)


def test_jobs_are_described_by_hand():
    """Four jobs from a Monday noon to the next Tuesday; the clock is in the zone of the log."""
    monday = 4 * DAY
    columns = ([0, 1800, 5 * HOUR, 8 * DAY], [30, 60, 100, 10], [60, 60, 1000, 1000], [1, 2, 3, 8])
    table = JobTable(*(np.array(column) for column in columns))
    found = describe(table, [1, 2, 4, 9], clock_s=monday + 12 * HOUR)
    assert [(one.name, one.jobs) for one in found.sizes] == [("1", 0.25), ("2-3", 0.5), ("4-8", 0.25)]
    work = [30, 2 * 60 + 3 * 100, 8 * 10]
    assert [one.core_hours for one in found.sizes] == pytest.approx([part / sum(work) for part in work])
    assert found.weekdays == (1.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0)  # two Mondays, and two Tuesdays
    assert {hour: rate for hour, rate in enumerate(found.hours) if rate} == pytest.approx({12: 3 / 9, 17: 1 / 9})
    assert found.accuracy == (0.5, 0, 0, 0, 0.25, 0, 0, 0, 0, 0.25)


@pytest.mark.parametrize(
    ("smallest", "nodes", "edges"),
    [(128, 4360, [128, 256, 512, 1024, 2048, 4096, 4361]), (1, 12076, [1, 4, 16, 64, 256, 1024, 4096, 12077])],
)
def test_sizes_double_or_grow_faster_so_that_they_are_few(smallest, nodes, edges):
    assert size_edges(np.array([nodes, smallest]), nodes) == edges


def test_drawn_jobs_follow_those_that_are_learned_from(short_log):
    """Of the test nothing is described but sizes, which Figure 2 has of all jobs."""
    trace = read_swf(short_log, exceed="kill")
    found = describe_log(split(trace, train_days=2, validate_days=1))
    submit = trace.table.submit
    assert found.all.jobs == len(submit)
    assert found.learned.jobs == (submit < submit[0] + 2 * DAY).sum()
    sizes = [[one.jobs for one in patterns.sizes] for patterns in (found.learned, found.drawn)]
    assert sizes[0] == pytest.approx(sizes[1], abs=0.12)
    assert sum(found.drawn.accuracy) == pytest.approx(1.0)


def test_the_jobs_of_several_logs_are_printed_and_drawn(short_log, tmp_path):
    """A row of figures for each."""
    pytest.importorskip("matplotlib")
    arguments = ("dras", "jobs", short_log, short_log, *SHORT_DAYS)
    told = json.loads(asa(*arguments, "--output", "json", "--plot", tmp_path / "figures").stdout)
    assert [log["log"] for log in told["logs"]] == ["days.swf"] * 2
    drawn = {path.name: path.stat().st_size for path in (tmp_path / "figures").iterdir()}
    assert set(drawn) == {"figure-2.png", "figure-3.png"}
    assert min(drawn.values()) > 10_000
    shown = asa(*arguments).stdout
    assert shown.count("Fig. 3a") == shown.count("Fig. 3d") == 2


def test_cori_has_its_network_and_any_machine_the_nearer_one(short_log):
    """Table III, with the paper's numbers beside ours."""
    told = json.loads(asa("dras", "network", "cori", "--output", "json").stdout)
    assert told["nodes"] == 12_076
    pg, dql = told["networks"]
    assert (pg["rows"], pg["hidden"], pg["outputs"]) == (12_176, [10000, 4000], 50)
    assert pg["parameters"] == pg["papers"] == 161_960_053
    assert (dql["rows"], dql["parameters"], dql["papers"]) == (12_078, 160_784_004, 161_764_004)
    assert "161,764,004" in asa("dras", "network", "cori").stdout
    told = json.loads(asa("dras", "network", short_log, *SHORT_DAYS, "--output", "json").stdout)
    assert [one["hidden"] for one in told["networks"]] == [[4000, 1000]] * 2
    assert told["networks"][0]["papers"] is None
    assert told["jobs"]["sampled"] == [3200] * 9
    submit = read_swf(short_log).table.submit
    assert told["jobs"]["real"] == [(submit < submit[0] + 2 * DAY).sum()]  # two days are one, incomplete, week
    assert len(told["jobs"]["synthetic"]) == 82
    assert "'huge' is unknown" in asa("dras", "network", "cori", "--config", "huge", code=2).stderr


def test_decisions_and_updates_are_measured(short_log):
    pytest.importorskip("torch")
    arguments = ("dras", "network", short_log, *SHORT_DAYS, "--config", "small", "--decisions", 60)
    told = json.loads(asa(*arguments, "--output", "json").stdout)
    for one in told["networks"]:
        assert 0 < one["updates"] <= 6
        assert 0 < one["decision_s"] < one["update_s"]
    assert "update, median (ms)" in asa(*arguments).stdout


@pytest.fixture(scope="module")
def trained(short_log, tmp_path_factory):
    """Return files of two short trainings, of a pg and of a ppo agent, and the episodes of the first."""
    pytest.importorskip("torch").set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained")
    asked = [
        Order(str(short_log), None, (2, 1), agent, "small", None, 1, 10, 0, folder / f"{agent}.npz")
        for agent in ("pg", "ppo")
    ]
    episodes = [fill(order) for order in asked]
    return [order.out for order in asked], episodes[0]


def test_total_rewards_are_those_of_schedules(trained, short_log, tmp_path):
    """Of agents after each episode, the best as its file schedules the set; of EASY as it does."""
    pytest.importorskip("matplotlib")
    (file, _), episodes = trained
    arguments = ("dras", "rewards", short_log, *SHORT_DAYS, "--weights", file, "--seeds", 2)
    told = json.loads(asa(*arguments, "--output", "json", "--plot", tmp_path / "figure-5.png").stdout)
    assert (tmp_path / "figure-5.png").stat().st_size > 10_000
    validation = split(read_swf(short_log, exceed="kill"), train_days=2, validate_days=1).material.validation
    assert told["validation"]["jobs"] == len(validation)
    [totals] = told["agents"]["dras-pg"]
    best = next(index for index in reversed(range(len(episodes))) if episodes[index].best)
    assert len(totals) == len(episodes)
    for total, scheduler in (
        (totals[best], load_agent(file).scheduler(reward=Capability())),
        (told["rivals"]["fcfs-easy"][0], TwoLevels(First(), reward=Capability())),
    ):
        run(validation, 64, scheduler)
        assert scheduler.selections == len(validation)
        assert total == pytest.approx(scheduler.total_reward)
    assert list(told["rivals"]) == ["fcfs-easy", "bin-packing", "random", "optimization"]
    assert len(set(told["rivals"]["random"])) == 2
    shown = asa(*arguments, "--rivals", "fcfs-easy").stdout
    assert f"{max(totals):.1f}" in shown
    assert "bin-packing" not in shown


@pytest.mark.parametrize(
    ("which", "given", "said"),
    [
        (1, (), "has no rewards to add up"),
        (0, ("--objective", "capacity"), "was rewarded by Capability("),
        (0, ("--train-days", 3), "was trained on days.swf: days 1 to 2"),
        (0, ("--validate-days", 2), "would be scored on days.swf: days 1 to 2, chosen by the 2"),
        (0, ("--rivals", "sjf"), "'sjf' is unknown"),
    ],
)
def test_rewards_that_cannot_be_compared_are_refused(trained, short_log, which, given, said):
    days = dict(zip(SHORT_DAYS[::2], SHORT_DAYS[1::2], strict=True)) | dict(zip(given[::2], given[1::2], strict=True))
    arguments = [word for pair in days.items() for word in pair]
    assert said in asa("dras", "rewards", short_log, "--weights", trained[0][which], *arguments, code=2).stderr


def test_an_agent_without_its_training_is_refused(trained, short_log, tmp_path):
    """Its snapshots are beside it."""
    copied = tmp_path / "pg.npz"
    copied.write_bytes(Path(trained[0][0]).read_bytes())
    told = asa("dras", "rewards", short_log, *SHORT_DAYS, "--weights", copied, code=2).stderr
    assert "pg.npz.training" in told

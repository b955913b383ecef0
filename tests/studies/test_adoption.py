"""The experiment on shares of users who use asa: its windows, its agents, and its figures, computed by hand."""

import csv
import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from asa.backends.simulated.cluster import Cluster, Load
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.policies import easy
from asa.backends.simulated.table import JobTable
from typer.testing import CliRunner

from asa.cli.experiment import app
from asa.errors import InputError
from asa.strategies.racing import Races
from asa.studies.adoption import worlds
from asa.studies.adoption.agents import Draw, SharedWorld
from asa.studies.adoption.habits import Asking, Habits
from asa.studies.adoption.scores import AdoptionVerdicts, judged
from asa.studies.adoption.study import AdoptionQuestion, AdoptionRun, compare_shares
from asa.studies.adoption.window import centre, window_of

USERS = 8
WEEKS = 0.5


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return a log: five weeks of a machine of 32 cores, most of which are in use, with eight users."""
    rng = np.random.default_rng(1)
    lines, now = ["; MaxProcs: 32"], 0
    for number in range(1, 1801):
        now += int(rng.exponential(1700))
        run = int(rng.exponential(3000)) + 60
        cores, user = int(2 ** rng.integers(0, 5)), int(rng.integers(1, USERS + 1))
        lines.append(f"{number} {now} 0 {run} {cores} -1 -1 {cores} {2 * run} -1 1 {user} 1 1 1 -1 -1 -1")
    path = tmp_path_factory.mktemp("adoption") / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def machine(log):
    """Return the machine of the log."""
    return centre(str(log), "replay")


@pytest.fixture(scope="module")
def draw(machine):
    """Return a draw."""
    rng = np.random.default_rng(3)
    return Draw.of(window_of(machine, WEEKS, rng), rng)


def test_a_chain_is_jobs_that_follow_each_other(machine, draw):
    window, log = draw.window, machine.log
    table, users = window.jobs.table, window.jobs.users
    assert sorted(row for chain in window.chains for row in chain) == np.flatnonzero(users < window.able).tolist()
    assert any(len(chain) > 1 for chain in window.chains)
    first = int(np.searchsorted(log.table.submit, table.submit[0]))
    ended = table.submit + log.wait_s[first : first + len(table)] + table.run
    for chain in window.chains:
        assert len(set(users[list(chain)].tolist())) == 1
        for before, after in pairwise(chain):
            assert 0 <= table.submit[after] - ended[before] <= 1200


@pytest.mark.parametrize("accrues", [True, False])
@pytest.mark.parametrize("ways", [(way,) for way in Asking if way is not Asking.PLAIN] + [Habits().ways])
def test_every_job_is_done_once_and_in_order(machine, draw, ways, accrues):
    window = draw.window
    world = SharedWorld(machine, draw, 1.0, Habits(ways, age_accrues=accrues))
    done = world.run()
    table = window.jobs.table
    for chain in window.chains:
        ends = done.end_s[list(chain)]
        for before, after in pairwise(chain):
            if done.start_s[after] >= 0:
                assert 0 <= done.end_s[before] <= done.start_s[after], (
                    "no job begins before the one it follows has ended"
                )
            if 0 <= done.end_s[before] < window.until_s - 60:
                assert done.submit_s[after] >= 0, "no job is forgotten"
        assert (ends[:-1] >= 0).all() or (ends < 0).any()
    engine = world._engine
    assert sum(done.end_s >= 0) > 0.9 * len(table)
    at = np.unique(np.concatenate([done.busy[:, 0], done.busy[:, 1]]))
    since, until, cores = (np.asarray(column) for column in done.busy.T[:3])
    assert all(cores[(since <= moment) & (moment < until)].sum() <= machine.log.cores for moment in at.tolist())
    # work is neither lost nor done twice
    whole = {job.row: job for job in world._jobs.values() if job.end_s >= 0}
    for row, job in whole.items():
        clients = [engine.clients[number] for number in job.numbers]
        worked = sum((c.end - c.payload_start) * c.cores for c in clients if c.payload_start >= 0)
        needed = int(table.run[row] * table.cores[row])
        if job.way is Asking.PARTS:
            assert needed <= worked + 40 * len(clients) * int(table.cores[row]), "all tasks were run"
        elif job.way is Asking.RACES:
            assert sum(c.payload_start >= 0 for c in clients) == 1, "one racer runs the payload"
        else:
            assert worked == needed


def test_users_of_asa_ask_in_its_ways_and_others_do_not(machine, draw):
    for share in (0.0, 0.5, 1.0):
        world = SharedWorld(machine, draw, share, Habits())
        adopters = draw.adopters(share)
        assert len(adopters) == round(share * draw.window.able)
        ways = {job.way for job in world._jobs.values() if draw.window.jobs.users[job.row] in adopters}
        assert ways == (set(Asking) if share else set())
        others = {job.way for job in world._jobs.values() if draw.window.jobs.users[job.row] not in adopters}
        assert others == ({Asking.PLAIN} if share < 1 else set())
    assert draw.adopters(0.25) < draw.adopters(0.5), "those of a smaller share are among those of a larger one"


def test_as_in_the_log_nothing_is_cancelled_and_others_wait_as_without_users_of_asa(machine, draw):
    nobody = SharedWorld(machine, draw, 0.0, Habits()).run()
    none_of_its_ways = SharedWorld(machine, draw, 1.0, Habits(ways=())).run()
    assert not len(nobody.cancellations_s)
    assert (nobody.start_s == none_of_its_ways.start_s).all()
    no_races = SharedWorld(machine, draw, 1.0, Habits(ways=(Asking.RACES,), races=Races(max_racers=0))).run()
    assert (nobody.start_s == no_races.start_s).all(), "without racers a race is one job"


def test_jobs_that_are_asked_for_ahead_queue_before_they_could_run(machine, draw):
    plain = SharedWorld(machine, draw, 0.0, Habits()).run()
    ahead = SharedWorld(machine, draw, 1.0, Habits(ways=(Asking.AHEAD,))).run()
    pairs = [both for chain in draw.window.chains for both in pairwise(chain) if plain.end_s[both[1]] >= 0]
    early, late = ([world.submit_s[row] < world.end_s[by] for by, row in pairs] for world in (ahead, plain))
    assert np.mean(early) > 0.5
    assert not any(late)


def test_it_is_the_same_every_time_and_goes_on_where_it_was(log, tmp_path, monkeypatch):
    question = AdoptionQuestion((log,), ("replay",), (0.5,), 2, WEEKS)
    kept = tmp_path / "runs.jsonl"
    first = compare_shares(question, kept, jobs=1)
    assert [(run.draw, run.share) for run in first] == [(0, 0.0), (0, 0.5), (1, 0.0), (1, 0.5)]
    assert compare_shares(question, jobs=1) == first
    monkeypatch.setattr(worlds, "run_cell", lambda cell: pytest.fail(f"{cell} was run again"))
    assert compare_shares(question, kept, jobs=1) == first


def _run(draw, share, wait_s, before_s, **others):
    fixed = AdoptionRun(
        "x", "replay", True, draw, share, 1, 0.2, 0.3, 0.5, 10, wait_s, 2.0, before_s, 1.0, 0.7, 0.0, 4.0, 1.0, 9.0, 0.9
    )  # fmt: skip
    return replace(fixed, **others)


def test_figures_by_hand():
    runs = [
        run
        for draw, (wait_s, before_s) in enumerate([(110.0, 100.0), (420.0, 400.0)])
        for run in (
            _run(draw, 0.0, before_s, before_s, makespan=1.0, slowdown=1.0, utilisation=0.6, queue_variance=3.0),
            _run(draw, 0.25, wait_s, before_s, makespan=(0.5, 2.0)[draw]),
        )
    ]
    nobody, some = judged(runs)
    assert (nobody.wait.mean, nobody.makespan.mean, nobody.queue_variance.mean) == (1.0, 1.0, 1.0)
    assert some.wait.mean == pytest.approx(530 / 500)
    assert some.makespan.mean == pytest.approx(1.0)
    assert some.slowdown.mean == pytest.approx(2.0)
    assert some.more_utilisation.mean == pytest.approx(0.1)
    assert some.queue_variance.mean == pytest.approx(3.0)
    assert some.wait_before_s == 250.0
    assert not some.is_longer, "of two draws nothing is significant"


def test_longer_waits_are_marked_if_every_draw_has_them():
    def runs(factors):
        return [
            run
            for draw, factor in enumerate(factors)
            for run in (_run(draw, 0.0, 100.0, 100.0), _run(draw, 0.1, 100.0 * factor, 100.0))
        ]

    assert judged(runs([1.1, 1.12, 1.09, 1.11, 1.1, 1.08]))[1].is_longer
    assert not judged(runs([0.9, 0.88, 0.91, 0.89, 0.9, 0.92]))[1].is_longer
    assert not judged(runs([1.5, 0.6, 1.2, 0.8, 1.1, 0.9]))[1].is_longer


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"models": ("exact",)}, "no model"),
        ({"ways": ("magic",)}, "no way of asking"),
        ({"shares": (1.5,)}, "from 0 to 100 %"),
        ({"draws": 1}, "nothing to compare"),
        ({"traces": ()}, "nothing to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(log, changed, words):
    with pytest.raises(InputError, match=words):
        replace(AdoptionQuestion((log,)), **changed).cells()


def test_a_log_that_is_too_short_or_has_no_such_users_is_refused(log, tmp_path):
    with pytest.raises(InputError, match="shorter than 54 weeks"):
        compare_shares(AdoptionQuestion((log,), ("replay",), weeks=52.0), jobs=1)
    path = tmp_path / "alone.swf"
    words = (line.split() for line in log.read_text().splitlines()[1:])
    path.write_text("; MaxProcs: 32\n" + "".join(" ".join([*w[:11], "1", *w[12:]]) + "\n" for w in words))
    with pytest.raises(InputError, match="too few of its users"):
        compare_shares(AdoptionQuestion((path,), ("replay",), weeks=WEEKS), jobs=1)


def test_the_command_prints_a_table_and_json_and_writes_a_table_and_a_figure(log, tmp_path):
    table, plot, kept = (tmp_path / name for name in ("a.csv", "a.svg", "runs.jsonl"))
    words = ["adoption", "--trace", str(log), "--models", "replay", "--draws", "2", "--weeks", f"{WEEKS}"]
    words += ["--shares", "25,100", "--jobs", "1", "--results", str(kept)]
    done = CliRunner().invoke(app, [*words, "--csv", str(table), "--plot", str(plot)], env={"COLUMNS": "140"})
    assert done.exit_code == 0, done.output
    assert "Shares of users who use asa, where jobs gain priority" in done.stdout
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [float(row["share"]) for row in rows] == [0.0, 0.25, 1.0]
    assert float(rows[1]["wait_low"]) <= float(rows[1]["wait"]) <= float(rows[1]["wait_high"])
    assert "<svg" in plot.read_text()
    document = json.loads(CliRunner().invoke(app, [*words, "--output", "json"]).stdout)
    assert [verdict["share"] for verdict in document["verdicts"]] == [0.0, 0.25, 1.0]
    assert document["verdicts"][1]["wait"]["mean"] == pytest.approx(float(rows[1]["wait"]))
    assert all(math.isfinite(run["wait_s"]) for run in document["runs"])
    assert AdoptionVerdicts([AdoptionRun(**run) for run in document["runs"]], ()).as_dict()["runs"] == document["runs"]


@pytest.mark.full
def test_a_twin_has_users_of_its_own(log):
    runs = compare_shares(AdoptionQuestion((log,), ("twin",), (1.0,), 2, WEEKS), jobs=1)
    assert [run.model for run in runs] == ["twin"] * 4
    assert all(0.2 < run.utilisation <= 1.0 for run in runs), [run.utilisation for run in runs]
    assert runs[1].submissions_h > runs[0].submissions_h


def test_a_core_with_shares_refuses_an_unknown_user():
    table = JobTable(*(np.array([number]) for number in (0, 9, 9, 1)))
    core = GeneralCore(Load(table, Cluster({"cores": 4})), easy(), client_user=2)
    with pytest.raises(ValueError, match="no user 2"):
        core.add(1, 60)

"""Strategies under schedulers: exclusions, kept outcomes, and effects on other users."""

import json
from pathlib import Path

import numpy as np
import pytest
from asa.backends.simulated import SimulatedSite
from typer.testing import CliRunner

from asa.backend import JobSpec
from asa.cli.campaign import app
from asa.core.intervals import Interval
from asa.errors import InputError
from asa.studies.others import effect_on_others, lot_of
from asa.studies.schedulers import study as schedulers
from asa.studies.schedulers.graph import graph
from asa.studies.schedulers.study import LeftOut, SchedulerCampaign, SchedulerRun, conclude, run_campaign
from asa.timeline import Timeline


@pytest.fixture(scope="module", autouse=True)
def same_code():
    """Have the source files count as unchanged, even if they are edited during the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedulers, "code_digest", lambda *_: "this")
        yield


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Yield a log: two months of a busy machine of 64 cores."""
    rng = np.random.default_rng(1)
    lines, now = ["; MaxProcs: 64"], 0
    for number in range(1, 2001):
        now += int(rng.exponential(2600))
        run = int(rng.exponential(6000)) + 60
        lines.append(f"{number} {now} 0 {run} {int(2 ** rng.integers(0, 7))} -1 -1 -1 {2 * run} -1 1 1 1 1 1 -1 -1 -1")
    path = tmp_path_factory.mktemp("logs") / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def small(log, **options):
    given = {
        "systems": (),
        "traces": (log,),
        "schedulers": ("easy", "openccs"),
        "strategies": ("chained", "asa-asks"),
        "workflows": ("graph",),
        "seeds": 3,
        "estimator": "median",
    }
    return SchedulerCampaign(**given | options)


@pytest.fixture(scope="module")
def outcome(log):
    return run_campaign(small(log), jobs=1)


# ---------------------------------------------------------------------- the others


class Told:
    """A world that was asked beforehand."""

    def __init__(self, now, **columns):
        self.at, self.columns = now, {name: np.array(column) for name, column in columns.items()}

    def now(self):
        return self.at

    def wait(self, until_s):
        self.at = until_s
        return []

    def others(self):
        return self.columns


def test_who_counts_and_for_how_long_is_worked_out_by_hand():
    """The client begins at 1000; others' jobs until 1100 count, and are followed until 1200."""
    world = Told(
        1000.0,
        #        ran, waited, came and ran, came and waits, starts too late, came later
        submit=[0, 900, 1050, 1060, 1070, 1101],
        start=[999, 1040, 1051, -1, 1250, 1102],
        end=[1300, 1090, 1056, -1, 1300, 1110],
        run=[300, 50, 5, 100, 50, 8],
    )
    lot = lot_of(world, 1000.0, 100.0)
    assert world.now() == 1200.0
    assert lot.wait_s.tolist() == [140.0, 1.0, 140.0, 130.0]
    assert lot.slowdown.tolist() == pytest.approx([190 / 50, 1.0, 240 / 100, 180 / 50])


def test_the_same_jobs_count_with_a_client_as_without():
    """Also a job that would have started as the client began, and then had to wait."""
    without = lot_of(
        Told(1000.0, submit=[900, 950], start=[1000, 1010], end=[1100, 1110], run=[100, 100]), 1000.0, 50.0
    )
    client = Told(1000.0, submit=[900, 950], start=[1060, 1010], end=[1160, 1110], run=[100, 100])
    told = effect_on_others(without, lot_of(client, 1000.0, 50.0, without))
    assert (told.jobs, told.mean_wait_s, told.longer_wait_s) == (2, 80.0, 30.0)
    late = Told(1000.0, submit=[900, 950], start=[999, 1010], end=[1100, 1110], run=[100, 100])
    alone = lot_of(late, 1000.0, 50.0)
    assert effect_on_others(alone, lot_of(client, 1000.0, 50.0, alone)).jobs == 1


def test_a_run_that_a_scheduler_stretched_counts_as_long_as_it_was():
    world = Told(0.0, submit=[10], start=[10], end=[70], run=[30])
    assert lot_of(world, 0.0, 50.0).slowdown.tolist() == [2.0]


def test_the_difference_is_of_the_same_jobs():
    without = lot_of(Told(0.0, submit=[0, 5], start=[10, 5], end=[20, 25], run=[10, 20]), 0.0, 50.0)
    client = lot_of(Told(0.0, submit=[0, 5], start=[30, 5], end=[40, 25], run=[10, 20]), 0.0, 50.0, without)
    told = effect_on_others(without, client)
    assert (told.jobs, told.mean_wait_s, told.longer_wait_s) == (2, 5.0, 10.0)
    assert (told.mean_slowdown, told.more_slowdown) == (1.5, 1.0)
    assert told.waited_more_h == pytest.approx(20 / 3600)


@pytest.mark.parametrize("scheduler", ["easy", "wfp", "dmr"])
def test_a_simulated_world_tells_what_became_of_its_jobs(log, scheduler):
    world = SimulatedSite(trace=log, scheduler=scheduler).open(1)
    began = world.now()
    before = world.others()
    world.wait(began + 86400)
    after = world.others()
    assert (after["submit"] == before["submit"]).all()
    began_before = before["start"] >= 0
    assert (after["start"][began_before] == before["start"][began_before]).all()
    assert (after["start"] >= 0).sum() > began_before.sum()
    ended = after["end"] >= 0
    assert (after["start"][ended] >= after["submit"][ended]).all()
    if scheduler != "dmr":  # which resizes
        assert (after["end"] - after["start"])[ended].tolist() == after["run"][ended].tolist()
    assert not ((after["start"] < 0) & ended).any()


def test_a_client_that_takes_the_machine_makes_others_wait(log):
    """A client without jobs changes nothing."""
    site = SimulatedSite(trace=log)
    alone, again, taken = (site.open(2) for _ in range(3))
    began = alone.now()
    without = lot_of(alone, began, 86400.0)
    assert effect_on_others(without, lot_of(again, began, 86400.0)).longer_wait_s == 0
    taken.submit(JobSpec("all", cores=64, walltime_s=20000.0, run_s=20000.0))
    told = effect_on_others(without, lot_of(taken, began, 86400.0))
    assert told.longer_wait_s > 0
    assert told.waited_more_h == pytest.approx(told.longer_wait_s * told.jobs / 3600)


# ---------------------------------------------------------------------- the campaign


def test_what_a_site_cannot_do_is_left_out_and_said(outcome):
    trials, left_out = outcome
    assert [(one.scheduler, one.strategy) for one in left_out] == [("easy", "asa-asks")]
    assert "plans" in left_out[0].reason
    assert {(t.scheduler, t.strategy, t.seed) for t in trials} == {
        (scheduler, strategy, seed)
        for scheduler in ("easy", "openccs")
        for strategy in ("big-job", "per-stage", "chained", "asa-asks")
        for seed in range(3)
        if (scheduler, strategy) != ("easy", "asa-asks")
    }


def test_all_strategies_meet_the_same_others(outcome):
    trials, _ = outcome
    for scheduler in ("easy", "openccs"):
        for seed in range(3):
            mine = [t for t in trials if (t.scheduler, t.seed) == (scheduler, seed)]
            assert len({(t.others, t.others_wait_s, t.others_slowdown) for t in mine}) == 1
    assert all(trial.others > 10 for trial in trials)


@pytest.mark.full
def test_it_goes_on_where_it_was_whatever_the_processes(log, outcome, tmp_path, monkeypatch):
    kept = tmp_path / "kept.jsonl"
    assert run_campaign(small(log), kept, jobs=2) == outcome
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:-1]) + lines[-1][:50])
    ran = []
    monkeypatch.setattr(schedulers, "run_cell", lambda cell, run=schedulers.run_cell: ran.append(cell) or run(cell))
    assert run_campaign(small(log), kept, jobs=1) == outcome
    assert len(ran) == 1


def trial(strategy, seed, makespan_s, hours, longer_s, *, workflow="w"):
    return SchedulerRun("log", "easy", workflow, 1, strategy, seed, makespan_s, hours, 0.0, 50.0, 60.0, 10, 200.0, 3.0,
                 longer_s, longer_s / 100, longer_s / 360, Timeline(strategy, 0.0, makespan_s, ()))  # fmt: skip


def test_figures_are_worked_out_by_hand():
    trials = [
        one
        for seed in range(4)
        for one in (
            trial("big-job", seed, 100.0, 8.0, 40.0),
            trial("per-stage", seed, 200.0, 2.0, 5.0),
            trial("x", seed, 150.0, 4.0, 10.0 + 20.0 * (seed % 2)),
        )
    ]
    standings = {one.strategy: one for one in conclude(SchedulerCampaign(), trials).standings}
    assert standings["x"].makespan.mean == pytest.approx(1.5)
    assert standings["x"].core_hours.mean == pytest.approx(2.0)
    assert standings["x"].longer_wait_s.mean == pytest.approx(20.0)
    half_s = 3.18244631 * 20 / 3**0.5 / 2  # Student's, of four values 10 s from their mean
    assert (standings["x"].longer_wait_s.low, standings["x"].longer_wait_s.high) == pytest.approx(
        (20 - half_s, 20 + half_s)
    )
    assert standings["x"].beyond_per_stage_s.mean == pytest.approx(15.0)
    assert standings["per-stage"].beyond_per_stage_s == Interval(0.0, 0.0, 0.0)
    assert standings["x"].waited_more_per_core_hour == pytest.approx(80 / 360 / 16)
    assert (standings["big-job"].others_wait_s, standings["big-job"].more_slowdown.mean) == pytest.approx((200.0, 0.4))


def test_cells_of_a_seed_share_its_luck():
    """The interval is over replications: ten workflows of one replication count as one."""
    trials = [
        trial(name, seed, 100.0, 8.0, 10.0 * seed, workflow=f"w{number}")
        for number in range(10)
        for seed in range(2)
        for name in ("big-job", "per-stage")
    ]
    standing = conclude(SchedulerCampaign(), trials).standings[0]
    away_s = 5 * 12.7062047
    assert (standing.longer_wait_s.low, standing.longer_wait_s.high) == pytest.approx((5 - away_s, 5 + away_s))
    assert len(conclude(SchedulerCampaign(), trials).places) == 20


def test_what_jobs_did_is_shown_of_one_replication_for_all(outcome):
    """It is the median replication: otherwise one strategy's good luck would be compared with another's bad luck."""
    trials = [
        trial(name, seed, span, 8.0, 0.0)
        for name, spans in (("big-job", (100.0, 900.0, 200.0)), ("per-stage", (300.0, 800.0, 100.0)))
        for seed, span in enumerate(spans)
    ]
    places = conclude(SchedulerCampaign(), trials).places  # 400, 1700 and 300 together
    assert [(one.strategy, one.seed, one.timeline.end_s) for one in places] == [
        ("big-job", 0, 100.0), ("per-stage", 0, 300.0)
    ]  # fmt: skip
    assert len({place.seed for place in conclude(small(None), outcome[0]).places}) == 1
    for one in outcome[0]:
        assert one.timeline.end_s - one.timeline.begin_s >= one.makespan_s - 1e-6
        assert {stage for lane in one.timeline.lanes for stage in lane.stages} == set(graph(1).stages)


@pytest.mark.parametrize(
    ("options", "told"),
    [({"cores": (65,)}, "more than its machine's 64"), ({"strategies": ("fastest",)}, "fastest"),
     ({"workflows": ("cake",)}, "(?s)cake.*montage.*graph"), ({"seeds": 0}, "nothing to run"),
     ({"traces": ()}, "nothing to run"),
     ({"schedulers": ("luck",)}, "luck"), ({"schedulers": ("easy:fast",)}, "is no scheduler"),
     ({"window_s": -1.0}, "negative"), ({"traces": (Path("no.swf"),)}, "No such file")],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(log, options, told):
    with pytest.raises(InputError, match=told):
        small(log, **options).plan()


def test_both_age_rules_are_tried_where_they_matter(log):
    """Not for strategies without dependencies; chained jobs gain no priority until their turn comes."""
    both = tuple(name for name in schedulers.SCHEDULERS if name.startswith("multifactor"))
    trials, _ = run_campaign(small(log, schedulers=both, strategies=("chained",), window_s=0.0), jobs=1)
    took = {
        (name, rule): [t.makespan_s for t in trials if (t.strategy, t.scheduler) == (name, rule)]
        for name in ("big-job", "chained")
        for rule in both
    }
    assert len(both) == 2
    assert took["big-job", both[0]] == took["big-job", both[1]]
    assert sum(took["chained", both[0]]) < sum(took["chained", both[1]])


def test_the_command_prints_tables_and_json(log, outcome, tmp_path):
    command = ["schedulers", "--trace", str(log), "--schedulers", "easy,openccs", "--strategies", "chained,asa-asks",
               "--workflows", "graph", "--seeds", "3", "--estimator", "median", "--jobs", "1",
               "--results", str(tmp_path / "kept.jsonl")]  # fmt: skip
    told = json.loads(CliRunner().invoke(app, [*command, "--output", "json"]).stdout)
    results = conclude(small(log), *outcome)
    assert told == json.loads(json.dumps(results.as_dict(), allow_nan=False))
    assert {(row["scheduler"], row["strategy"]) for row in told["standings"]} == {
        (t.scheduler, t.strategy) for t in outcome[0]
    }
    tables = " ".join(CliRunner().invoke(app, command).stdout.split())
    assert "openccs: without this workflow others wait" in tables
    assert "Left out: asa-asks under easy" in tables
    assert isinstance(results.left_out[0], LeftOut)

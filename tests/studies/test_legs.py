"""The study of legs on a small log, and the sentences of its results."""

import json
from dataclasses import asdict, replace

import pytest
from asa.backends.simulated import read_swf
from asa.backends.simulated.recorded import RecordedSite
from golden.cases import DATA
from typer.testing import CliRunner

from asa.backend import JobSpec
from asa.cli.experiment import app
from asa.errors import InputError
from asa.studies.legs.scores import judged
from asa.studies.legs.study import WAYS, HandOver, LegQuestion, chain, compare_ways

LOG = DATA / "small.swf.gz"
SMALL = LegQuestion((LOG,), (8,), 7200.0, (False,), starts=2)


@pytest.mark.full
def test_each_rival_is_judged_by_each_hand_over(tmp_path):
    found = compare_ways(SMALL, tmp_path / "kept.jsonl", jobs=1)
    assert {one.way for one in found} == set(WAYS)
    for one in found:
        assert one.interruption_s >= 0
        assert one.overlap_s >= 0
        assert one.interruption_s == 0 or one.overlap_s == 0 or WAYS[one.way].hands_over
        if WAYS[one.way].hands_over:
            assert one.overlap_s <= 120
    by_way = {one.way: one for one in judged(found) if one.load == "all"}
    assert by_way["reactive"].overlap == by_way["at-once"].overlap == 0
    assert compare_ways(SMALL, tmp_path / "kept.jsonl", jobs=1) == found, "kept, and not run again"


def made(way, start, interruption_h, *, overlap_s=0.0, makespan_h=10.0):
    return HandOver("x", 8, False, way, start, 1, interruption_h * 3600, overlap_s, 36_000.0, makespan_h * 3600)


def test_shares_means_and_classes_by_hand():
    found = [made("reactive", 0, 1.0), made("reactive", 1, 5.0), made("reactive", 2, 20.0, makespan_h=20)]
    found += [made("asa", 0, 0.0, overlap_s=360.0), made("asa", 1, 0.0), made("asa", 2, 8.0, makespan_h=10)]
    standings = {(one.load, one.way): one for one in judged(found)}
    whole = standings["all", "asa"]
    assert (whole.without, whole.interruption_h.mean) == (pytest.approx(2 / 3), pytest.approx(8 / 3))
    assert whole.overlap == pytest.approx(360 / 108_000)
    assert whole.makespan_over_reactive.mean == pytest.approx(0.5 ** (1 / 3))
    assert [standings[load, "asa"].starts for load in ("light", "medium", "heavy")] == [1, 1, 1]
    assert standings["heavy", "asa"].interruption_h.mean == 8


@pytest.mark.parametrize(
    ("what", "words"),
    [({"ways": ("x",)}, "no rival"), ({"leg_s": 60.0}, "too short"), ({"cores": (10_000,)}, "more than"),
     ({"starts": 1}, "nothing to compare")],
)  # fmt: skip
def test_what_cannot_be_found_out_is_refused(what, words):
    with pytest.raises(InputError, match=words):
        replace(SMALL, **what).cells()


def test_the_computation_is_longer_than_its_legs():
    [stage] = chain(8, 3600.0, 3, hands_over=True).stages.values()
    assert stage.expected_run_s == 9000.0
    assert stage.continues.hands_over


def test_the_command_prints_a_table_and_json(tmp_path):
    asked = ["legs", "--trace", str(LOG), "--cores", "8", "--leg", "2h", "--starts", "2", "--age", "not"]
    asked += ["--rivals", "reactive,asa", "--jobs", "1", "--results", str(tmp_path / "kept.jsonl")]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "Continuing in the next leg" in shown.output
    found = json.loads(CliRunner().invoke(app, [*asked, "--output", "json"]).stdout)
    assert {one["way"] for one in found["standings"]} == {"reactive", "asa"}
    assert asdict(made("asa", 0, 1.0)).keys() == found["hand_overs"][0].keys()


def test_hand_overs_at_given_times(tmp_path):
    clock_s = read_swf(LOG).clock_s + 20 * 86_400
    asked = replace(SMALL, since_s=float(clock_s), ways=("reactive",), legs=2)
    assert {one.start for one in compare_ways(asked, tmp_path / "kept.jsonl", jobs=1)} == {0, 1}


def test_as_recorded_every_job_waits_as_the_log_says():
    """Others' jobs wait as they did; the user's as the most similar one did, however many jobs the user has."""
    site = RecordedSite(trace=LOG, age_accrues=False)
    trace = site.trace
    world = site.open(0)
    since_s = world.now()
    jobs = [world.submit(JobSpec(f"j{i}", 8, 7200.0, run_s=60.0)) for i in range(3)]
    while not all(one.state.is_final for one in world.status(jobs).values()):
        world.wait(since_s + 30 * 86_400)
    like = [
        (abs(int(submit) - since_s), int(wait))
        for submit, wait, cores, request in zip(
            trace.table.submit, trace.wait_s, trace.table.cores, trace.table.request, strict=True
        )
        if 4 <= cores <= 16 and 3600 <= request <= 14_400
    ]
    waited = {one.start_s - one.submit_s for one in world.status(jobs).values()}
    assert len(waited) == 1
    assert waited.pop() in {wait for far, wait in like if far == min(like)[0]}
    others = world.others()
    began = others["start"] >= 0
    assert ((others["start"] - others["submit"])[began] == trace.wait_s[began]).all()
    assert began.sum() > 100


def test_what_never_ran_there_has_no_recorded_wait():
    world = RecordedSite(trace=LOG).open(0)
    with pytest.raises(InputError, match="jobs are like one of 8 cores"):
        world.foresee_start(JobSpec("long", 8, 10_000_000.0, run_s=60.0), world.now())


@pytest.mark.parametrize(
    ("settings", "words"), [({}, "a log's machine"), ({"trace": LOG, "scheduler": "sjf"}, "nothing")]
)
def test_recorded_waits_are_a_logs(settings, words):
    with pytest.raises(InputError, match=words):
        RecordedSite(**settings)

"""Forecasts on real daemons on which a small log is replayed, as `tools/live_forecasts.py` does with large ones."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import live_forecasts
import numpy as np
import pytest
from live_forecasts import ESTIMATORS, SITE, Forecast, Jobs, Live, facts, from_model, scores, stretch
from slurm_testbed import NEWEST, OLDEST, missing

PREDICTORS = [*ESTIMATORS, SITE, f"asa with {SITE}", f"{SITE}, corrected", f"asa x {SITE}", f"asa-queue x {SITE}"]


def drawn(count=400):
    rng = np.random.default_rng(1)
    run_s = rng.integers(60, 20_000, count)
    columns = [np.sort(rng.integers(0, 200_000, count)), rng.integers(600, 9000, count), run_s, 2 * run_s]
    return Jobs(*columns, rng.integers(1, 64, count), rng.integers(0, 9, count), 64, 3600, "drawn")


def forecast(wait_s, said_s):
    said = dict.fromkeys((*ESTIMATORS, SITE), said_s)
    quantiles = {name: tuple(said_s * place / 5 for place in range(1, 10)) for name in ESTIMATORS}
    return Forecast("1", 0.0, 4, 1, said, quantiles, wait_s)


def test_a_stretch_is_scaled_as_a_whole():
    jobs = drawn()
    there = stretch(jobs, 50, 5.0, seed=3)
    assert len(there.jobs) == 50
    assert there == stretch(jobs, 50, 5.0, seed=3)
    assert there != stretch(jobs, 50, 5.0, seed=4)
    assert 0 <= there.jobs[0].at_s <= there.jobs[-1].at_s <= 300.0
    assert all(job.run_s <= 60 * job.walltime_min for job in (*there.before, *there.jobs))
    assert {job.partition for job in there.jobs} == {"short", "batch"}


def test_who_is_twice_too_long_is_corrected():
    found = Live("x", [forecast(wait_s, 2 * wait_s) for wait_s in (10.0, 20.0, 40.0, 80.0)])
    by_name = {score.predictor: score for score in scores(found)}
    assert by_name[SITE].log10_error == pytest.approx(math.log10(2))
    assert by_name[f"{SITE}, corrected"].forecasts == 2
    assert by_name[f"{SITE}, corrected"].log10_error_later == pytest.approx(0.0)


def test_a_word_that_is_right_is_weighed_in_once_that_is_known():
    """Its weight follows from jobs that had started by then."""

    def error(apart_s):
        found = Live("x", [replace(forecast(10.0 * 2 ** (n % 5), 0.0), at_s=apart_s * n) for n in range(60)])
        for each in found.forecasts:
            each.said_s |= {"asa": 30 * each.wait_s, SITE: each.wait_s}
            each.quantiles_s["asa"] = tuple(6 * each.wait_s * place for place in range(1, 10))
        return {score.predictor: score for score in scores(found)}[f"asa with {SITE}"].log10_error_later

    assert error(apart_s=400.0) < 0.1
    assert error(apart_s=0.0) > 0.5


def test_who_did_not_start_is_counted_and_not_judged():
    found = Live("x", [forecast(10.0, 10.0), forecast(math.nan, 10.0)], unstarted=1)
    assert {score.forecasts for score in scores(found) if "corrected" not in score.predictor} == {1}
    assert facts(found, stretch(drawn(), 20, 1.0, seed=0))["unstarted"] == 1


def test_a_model_takes_the_place_of_a_log():
    assert len(stretch(from_model(1), 100, 1.0, seed=1).jobs) == 100


def written(path):
    """Write a log of short jobs that just fill 64 cores, so that all start in time even if this computer is slow."""
    rng = np.random.default_rng(2)
    columns = zip(rng.integers(80, 300, 45).tolist(), rng.integers(4, 16, 45).tolist(), strict=True)
    rows = [
        f"{n} {30 * n} 0 {run_s} {cores} -1 -1 {cores} 1600 -1 1 {n % 7}" for n, (run_s, cores) in enumerate(columns)
    ]
    path.write_text("; MaxProcs: 64\n" + "".join(f"{row} 1 -1 -1 -1 -1 -1\n" for row in rows))
    return path


@pytest.mark.full
@pytest.mark.slurm
@pytest.mark.parametrize("release", [OLDEST, pytest.param(NEWEST, marks=pytest.mark.full)])
def test_all_are_judged_on_the_same_jobs(release, tmp_path):
    if reason := missing(release):
        pytest.skip(reason)
    asked = ["--log", str(written(tmp_path / "log.swf")), "--jobs", "30", "--minutes", "0.25", "--release", release]
    command = [sys.executable, live_forecasts.__file__, *asked, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, error = process.communicate(timeout=300)
    assert process.returncode == 0, out + error
    assert not list(Path("/tmp").glob(f"asa-live-{process.pid}-*")), "nothing of the cluster is left"
    (document,) = json.loads(out)
    told, judged = document["facts"], document["scores"]
    assert told["forecasts"] == len(document["forecasts"]) == 23, "the last quarter only competes"
    assert [score["predictor"] for score in judged] == PREDICTORS
    assert {score["release"] for score in judged} == {release}
    assert {score["forecasts"] for score in judged if "corrected" not in score["predictor"]} == {23 - told["unstarted"]}
    assert all(0 <= score["log10_error_later"] < 9 and 0 <= score["within_2x_later"] <= 1 for score in judged)
    assert all(0 <= score["coverage_p50"] <= score["coverage_p90"] <= 1 for score in judged[: len(ESTIMATORS)])

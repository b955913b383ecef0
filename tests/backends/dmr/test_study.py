"""The study: the paper's workloads, tables of the measured figures, and the paper's findings."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import typer
from asa.backends.dmr.applications import CG, FS, JACOBI, N_BODY, ApplicationKind
from asa.backends.dmr.mechanics import Checkpoints, Costs
from dmr_times import fit_times, misfit
from typer.testing import CliRunner

from asa.core.intervals import mean_interval
from asa.errors import InputError
from asa.studies.dmr.cluster import JobRecord, MalleableCluster
from asa.studies.dmr.commands import app
from asa.studies.dmr.feitelson import ARRIVAL_S, draw
from asa.studies.dmr.series import compare, evolution
from asa.studies.dmr.study import run_workload, study
from asa.studies.dmr.tables import PaperNumber, table_2, table_3, table_4
from asa.studies.dmr.workloads import measure, preliminary, throughput

SEEDS = 6


@pytest.fixture(scope="module")
def made():
    return study(SEEDS, throughput_jobs=(50, 100), preliminary_jobs=(10, 50, 100), processes=1)


@pytest.fixture(scope="module")
def found(made):
    return {(row.jobs, row.version, row.what): row.ours for make in (table_2, table_3, table_4) for row in make(made)}


# --- workloads ---


def test_jobs_are_as_wide_as_in_feitelsons_model():
    """Few jobs are wide, powers of two are preferred, and some jobs are serial."""
    sizes = Counter(job.nodes for job in draw(20_000, 20, random.Random(1)))
    assert set(sizes) == set(range(1, 21))
    assert all(sizes[power] > sizes[power - 1] + sizes[power + 1] for power in (4, 8, 16))
    assert sizes[1] > sizes[2] > sizes[4] > sizes[8] > sizes[16]


def test_wide_jobs_run_longer_and_times_vary_more_than_exponential_ones():
    jobs = [job for place, job in enumerate(draw(60_000, 20, random.Random(2))) if job.first == place]
    runs = np.array([job.run for job in jobs])
    wide = np.array([job.nodes > 10 for job in jobs])
    assert runs[wide].mean() > 1.3 * runs[~wide].mean()
    assert runs.std() > 1.2 * runs.mean()
    assert runs[~wide].mean() == pytest.approx(0.93 + 0.07 * 7, rel=0.1)


def test_jobs_are_run_again():
    jobs = list(draw(20_000, 20, random.Random(3)))
    times = Counter(Counter(job.first for job in jobs).values())
    assert times[2] / times[1] == pytest.approx(2**-2.5, rel=0.1)
    for one, other in pairwise(jobs):
        assert (one.nodes, one.run) == (other.nodes, other.run) or one.first != other.first
    assert np.mean([b.submit_s - a.submit_s for a, b in pairwise(jobs)]) == pytest.approx(ARRIVAL_S, rel=0.05)


def test_fixed_and_flexible_workloads_are_the_same_but_for_the_kind():
    for make in (preliminary, throughput):
        fixed, flexible = (make(40, 7, kind) for kind in (ApplicationKind.RIGID, ApplicationKind.MALLEABLE))
        assert fixed.jobs == tuple(replace(job, kind=ApplicationKind.RIGID) for job in flexible.jobs)
        assert fixed.jobs != make(40, 8, ApplicationKind.RIGID).jobs


def test_jobs_are_submitted_with_their_most():
    jobs = throughput(300, 1, ApplicationKind.RIGID).jobs
    assert {(job.application.name, job.nodes) for job in jobs} == {("CG", 32), ("Jacobi", 32), ("N-body", 16)}


def test_preliminary_jobs_run_on_their_own_size_as_long_as_the_model_says():
    for job, drawn in zip(preliminary(50, 4, ApplicationKind.RIGID).jobs, draw(50, 20, random.Random(4)), strict=True):
        assert job.application.run_s(job.nodes) == pytest.approx(min(600.0 * drawn.run, 1500.0))


# --- applications ---


@pytest.mark.parametrize("application", [CG, JACOBI, N_BODY])
def test_the_preferred_size_is_the_knee_of_the_curve(application):
    """The square of the speed-up, divided by nodes, which is efficiency over time, is largest there."""
    powers = {n: application.run_s(n) ** -2 / n for n in range(1, 65)}
    assert max(powers, key=powers.get) == application.wish.preferred


def test_flexible_sleep_scales_linearly():
    assert FS.run_s(1) == pytest.approx(20 * FS.run_s(20))


@pytest.mark.full
def test_the_times_are_those_that_the_fixed_workloads_give():
    """The check is on other seeds than the fit; longer or shorter times are further from Table 4."""
    seeds, jobs = range(40, 46), (50, 100, 200)
    cg_s, n_body_s = fit_times(seeds, jobs=jobs)
    assert CG.run_s(32) == pytest.approx(cg_s, rel=0.12)
    assert N_BODY.run_s(16) == pytest.approx(n_body_s, rel=0.12)
    assert misfit(CG.run_s(32), N_BODY.run_s(16), seeds, jobs=jobs) < 0.12
    assert misfit(1.4 * CG.run_s(32), N_BODY.run_s(16), seeds, jobs=jobs) > 0.15


# --- measures ---


def test_measures_are_worked_out_from_records():
    """Two jobs run on 4 nodes: 100 s on 4, then 100 s on 2 of them."""
    jobs = throughput(2, 0, ApplicationKind.RIGID).jobs
    first = JobRecord(replace(jobs[0], submit_s=0.0), 0.0, 100.0, [(0.0, 4)])
    second = JobRecord(replace(jobs[1], submit_s=50.0), 100.0, 200.0, [(100.0, 2)])
    measured = measure([first, second], 4)
    assert (measured.utilisation, measured.waiting, measured.execution) == (75.0, 25.0, 100.0)
    assert (measured.completion, measured.whole) == (125.0, 200.0)


def test_a_row_tells_json_what_is_known():
    """One seed has no spread, and an event that never happened has no mean."""
    [of_one, of_none] = [PaperNumber(50, "fixed", "waiting", None, mean_interval(values)) for values in ([1.0], [])]
    assert of_one.as_dict()["ours"] == {"value": 1.0, "low": None, "high": None}
    assert of_none.as_dict()["ours"]["value"] is None


def test_the_evolution_adds_up():
    records = run_workload("throughput", "synchronous", 30, 1)
    told = evolution(records)
    spans = np.diff(told.times_s)
    assert np.dot(told.allocated[:-1], spans) == pytest.approx(sum(record.node_s for record in records))
    assert np.dot(told.running[:-1], spans) == pytest.approx(sum(record.run_s for record in records))
    assert (told.allocated[-1], told.running[-1], told.completed[-1]) == (0, 0, 30)
    assert max(told.allocated) <= 64


# --- findings ---


@pytest.mark.full
@pytest.mark.parametrize("jobs", [50, 100])
def test_malleable_jobs_wait_and_complete_sooner_execute_longer_and_hold_less(found, jobs):
    """Table 4: waiting falls by about 60 %, execution grows by half or more, completion halves; 25 points less held."""
    change = {what: found[jobs, "change", what].mean for what in ("utilisation", "waiting", "execution", "completion")}
    assert -80 < change["waiting"] < -55
    assert 40 < change["execution"] < 90
    assert -70 < change["completion"] < -45
    assert -35 < change["utilisation"] < -20
    assert found[jobs, "fixed", "utilisation"].mean > 95


@pytest.mark.parametrize("jobs", [50, 100])
def test_flexible_workloads_are_done_sooner(made, jobs):
    """Fig. 4, for each seed: by more than a tenth on average."""
    fixed, flexible = (made.outcomes["throughput", version, jobs] for version in ("fixed", "synchronous"))
    shares = [after.measures.whole / before.measures.whole for before, after in zip(fixed, flexible, strict=True)]
    assert max(shares) < 1
    assert sum(shares) / len(shares) < 0.9


def test_asynchronous_checks_are_worse(found):
    """Tables 2 and 3: fewer nodes are used, jobs run longer and complete later, and expansions time out."""
    for what in ("utilisation", "execution gain", "completion gain"):
        assert found[None, "asynchronous", what].mean < found[None, "synchronous", what].mean
    assert found[None, "fixed", "utilisation"].mean < found[None, "asynchronous", "utilisation"].mean
    assert found[100, "synchronous", "timed_out"].mean == 0
    assert found[100, "asynchronous", "timed_out"].mean > 0.1
    assert found[100, "asynchronous", "expand_s"].mean > 10 * found[100, "synchronous", "expand_s"].mean


def test_resizes_cost_what_table_2_says(found):
    assert found[100, "synchronous", "expand_s"].mean == pytest.approx(0.423, rel=0.2)
    assert found[100, "synchronous", "shrink_s"].mean == pytest.approx(0.425, rel=0.2)


def test_five_jobs_hold_40_nodes_while_the_next_waits_for_32():
    """The pattern of Fig. 6's second half: peaks of 64 nodes, and between them 8 nodes for each of five jobs."""
    told = evolution(run_workload("throughput", "synchronous", 50, 0))
    spans = np.diff(told.times_s)
    half = np.array(told.times_s[:-1]) > told.times_s[-1] / 2
    forty = half & (np.array(told.allocated[:-1]) == 40) & (np.array(told.running[:-1]) == 5)
    assert spans[forty].sum() > 0.5 * spans[half].sum()
    assert 64 in np.array(told.allocated[:-1])[half]


def test_execution_is_longer_for_nearly_every_job_and_waiting_shorter():
    """Figs. 7 and 8; the last job grows when no job waits, and loses nothing."""
    jobs = compare(*(run_workload("throughput", version, 50, 0) for version in ("fixed", "synchronous")))
    gains = np.array([one.gains_s for one in jobs])
    assert (gains[:, 1] < 1).all()
    assert (gains[:, 2] > 0).mean() > 0.9
    assert np.allclose(gains[:, 0] + gains[:, 1], gains[:, 2])


def test_checkpoints_make_malleability_dearer():
    workload = preliminary(50, 1, ApplicationKind.MALLEABLE)
    by_messages, by_files = (
        measure(MalleableCluster(20, workload.jobs, costs=costs).run(), 20)
        for costs in (Costs(), Costs(checkpoints=Checkpoints(disk_gb_s=0.1, restart_s=30.0)))
    )
    assert by_files.execution > by_messages.execution


# --- the command ---


def run(*arguments):
    parent = typer.Typer()
    parent.add_typer(app, name="dmr")
    return CliRunner().invoke(parent, ["dmr", "study", *map(str, arguments)], env={"COLUMNS": "80"})


@pytest.mark.full
def test_the_command_prints_tables_and_draws(tmp_path):
    done = run("--jobs", "50,400", "--seeds", 2, "--plot", tmp_path / "new")
    assert done.exit_code == 0, done.output
    assert all(heading in done.output for heading in ("Table 2", "Table 3", "Table 4", "1h08m"))
    assert "…" not in done.output
    figures = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert figures == ["figure-6.png", "figure-7.png", "figure-8.png", "figures-4-5.png"]


def test_intervals_end_where_a_measure_does():
    """Two seeds say little: without these bounds some intervals would extend below zero or above 100 %."""
    told = json.loads(run("--jobs", 10, "--seeds", 2, "--output", "json").stdout)
    rows = [row for table in ("table_2", "table_3", "table_4") for row in told[table] if row["ours"]["low"] is not None]
    measures = [row for row in rows if row["version"] != "change" and not row["what"].endswith("gain")]
    shares = [row for row in measures if row["what"] == "utilisation"]
    assert {row["ours"]["high"] for row in shares} >= {100.0}
    assert all(row["ours"]["high"] <= 100.0 for row in shares)
    assert min(row["ours"]["low"] for row in measures) == 0.0


def test_the_command_prints_json():
    done = run("--jobs", 10, "--seeds", 1, "--output", "json", "--checkpoints")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {row["what"] for row in told["table_4"]} == {"utilisation", "waiting", "execution", "completion"}
    assert all(row["ours"]["low"] is None for row in told["table_4"])
    assert told["figure_6"]["fixed"]["completed"][-1] == 10
    assert len(told["figures_7_and_8"]) == 10


@pytest.mark.parametrize("wrong", ["", "10,x", "0", "10.5", "100000"])
def test_sizes_that_are_none_are_refused(wrong):
    done = run("--jobs", wrong)
    assert isinstance(done.exception, InputError)
    assert "--jobs" in str(done.exception)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("--jobs", 10, "--plot", tmp_path / "file" / "in")
    assert isinstance(done.exception, InputError)

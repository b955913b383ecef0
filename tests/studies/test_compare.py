"""Comparisons: fair, repeatable, and printed like Table 1."""

import io
import math
from dataclasses import replace

import pytest
from asa.backends.simulated import Machine, SimulatedSite, WorkloadModel
from asa.workflows import blast
from asa.workflows.paper import TABLE_1
from rich.console import Console

from asa.errors import InputError, UnknownNameError
from asa.estimators import readiness
from asa.metrics import RunMetrics, StageTimes
from asa.studies.compare.study import CompareRun, Comparison, compare, group, workflow_maker
from asa.studies.compare.table import cells_of, normalised_averages, render, sentence
from asa.workflow import Stage, Workflow

SMALL = WorkloadModel(Machine("small", 16, 16), load=0.9, log2_middle=3.0, log2_widest=7.0)


def comparison(**changes):
    given = {
        "make_workflow": blast,
        "site": SimulatedSite(model=SMALL),
        "cores": (32, 64),
        "strategies": ("big-job", "per-stage", "asa"),
        "seeds": (1, 2),
    }
    return Comparison(**{**given, **changes})


@pytest.mark.full
def test_the_result_does_not_depend_on_the_processes():
    """With one process or two all runs are equal, and in the requested order."""
    alone = compare(comparison(), jobs=1)
    together = compare(comparison(), jobs=2)
    assert alone == together
    assert [(run.cores, run.strategy, run.seed) for run in alone] == [
        (cores, strategy, seed) for cores in (32, 64) for strategy in ("big-job", "per-stage", "asa") for seed in (1, 2)
    ]
    assert {run.system for run in alone} == {"small"}


@pytest.mark.full
@pytest.mark.parametrize("is_to_keep", [True, False])
@pytest.mark.parametrize("count", [1, 6])
def test_replications_run_in_plain_python_while_code_is_compiled(monkeypatch, is_to_keep, count):
    """They give the same; where all is compiled, none runs in plain Python."""
    alone, said = compare(comparison(history=50, seeds=tuple(range(count))), jobs=1), []
    monkeypatch.setattr(readiness, "is_to_keep", lambda _: is_to_keep)
    monkeypatch.setattr(readiness, "compile_later", lambda: True)
    together = compare(
        comparison(history=50, seeds=tuple(range(count))), jobs=2, on_progress=lambda *one: said.append(one)
    )
    assert together == alone
    early = [done for what, done, _ in said if "while faster code" in what]
    assert early == sorted(early)
    assert bool(early) is is_to_keep
    assert said[-1] == ("running workflows", count, count)


def test_every_strategy_meets_the_same_queue():
    """The first stage waits equally long under all strategies that submit it alone; none affects the next."""
    runs = compare(comparison(strategies=("per-stage", "asa", "chained", "per-stage"), seeds=(1, 2, 3, 4)), jobs=1)
    first = {}
    for run in runs:
        first.setdefault((run.cores, run.seed), set()).add(run.metrics.stages[0].perceived_wait_s)
    assert all(len(waits) == 1 for waits in first.values())
    assert len({waits.copy().pop() for waits in first.values()}) > 1, "seeds differ"


def test_an_estimator_is_shared_by_the_runs_in_order():
    """The second run predicts otherwise than it does alone, since the first taught the estimator."""
    options = {"strategies": ("asa",), "cores": (64,), "history": 0}
    both = compare(comparison(seeds=tuple(range(12)), **options), jobs=1)
    alone = [compare(comparison(seeds=(seed,), **options), jobs=1)[0] for seed in range(12)]
    assert [run.metrics for run in both] != [run.metrics for run in alone]


def test_progress_is_told():
    """For each phase, from none to all."""
    told = []
    compare(comparison(seeds=(1,), cores=(32,)), jobs=1, on_progress=lambda *what: told.append(what))
    assert told[0] == ("warming up the queue", 0, 1)
    assert told[-1] == ("running workflows", 1, 1)
    told.clear()
    compare(comparison(seeds=(1,), cores=(32,), history=0), jobs=1, on_progress=lambda *what: told.append(what))
    assert told[-1] == ("running workflows", 3, 3)


def test_real_run_times_may_stray():
    """They are the same for all strategies of a seed, and differ between seeds."""
    runs = compare(comparison(strategies=("big-job", "per-stage"), cores=(32,), spread=0.2), jobs=1)
    lasted = {(run.strategy, run.seed): [s.run_s for s in run.metrics.stages] for run in runs}
    assert lasted["big-job", 1] == pytest.approx(lasted["per-stage", 1], abs=1.01)
    assert lasted["per-stage", 1] != lasted["per-stage", 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": ()}, "no runs"),
        ({"strategies": ()}, "nothing to compare"),
        ({"cores": (257,)}, "257 cores is larger than 'small', which has 256"),
        ({"spread": 2.0}, "spread"),
        ({"history": -1}, "history"),
    ],
)
def test_senseless_comparisons_are_refused(change, message):
    """They are refused before anything is simulated."""
    with pytest.raises(InputError, match=message):
        compare(comparison(**change))


def test_unknown_names_are_refused():
    """Of strategies and of workflows."""
    with pytest.raises(UnknownNameError, match="no strategy 'bigjob'"):
        compare(comparison(strategies=("bigjob",)))
    with pytest.raises(UnknownNameError, match="no workflow 'montaje'"):
        workflow_maker("montaje")
    assert workflow_maker("blast") is blast


def test_a_run_that_fails_is_recorded_and_the_others_go_on():
    """In one job the workflow has just enough walltime; longer runs are killed."""

    def tight(cores):
        stages = [
            Stage("a", cores=cores, walltime_s=500, expected_run_s=100),
            Stage("b", cores=1, walltime_s=500, expected_run_s=50, after=("a",)),
        ]
        return Workflow("tight", stages, walltime_s=150)

    both = comparison(
        make_workflow=tight, strategies=("big-job", "per-stage"), cores=(32,), seeds=tuple(range(6)), spread=0.3
    )
    runs = compare(both, jobs=1)
    failed = [run for run in runs if run.metrics is None]
    assert 0 < len(failed) < 6
    assert {run.strategy for run in failed} == {"big-job"}
    assert "timeout" in failed[0].reason
    assert failed[0].as_dict()["outcome"] == "failed"
    assert failed[0].as_dict()["makespan_s"] is None
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(runs, seeds=6))
    told = " ".join(console.export_text().split())
    assert f"{len(failed)} of 6 runs of big-job at 32 cores failed" in told
    assert "no run completed" in sentence(cells_of(failed))


def test_nothing_is_learned_from_the_future_of_a_log(tmp_path):
    """Seeds run in the order of their moments, and are listed as asked for."""
    lines = [f"{i} {i * 60} -1 {60 + 7 * i % 500} 1 -1 -1 {1 + i % 8} 900 -1 1 1 1 1 1 1 -1 -1\n" for i in range(3000)]
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 64\n" + "".join(lines))
    site = SimulatedSite(trace=path)
    seeds = tuple(range(8))
    moments = [site.open(seed).now() for seed in site.in_order(seeds)]
    assert moments == sorted(moments)
    assert site.in_order(seeds) != list(seeds)
    assert SimulatedSite(model=SMALL).in_order(seeds) == list(seeds)
    runs = compare(comparison(site=site, seeds=seeds, strategies=("asa",), cores=(32,)), jobs=1)
    assert [run.seed for run in runs] == list(seeds)


def run_of(strategy, cores=28, seed=0, twt=0.0, makespan=100.0, hours=1.0, hits=0, misses=0):
    metrics = RunMetrics(makespan, twt, hours, 0.0, hits, misses, 0, 0, (StageTimes("a", twt, makespan - twt),))
    return CompareRun("montage", "hpc2n", cores, strategy, seed, True, metrics)


@pytest.mark.parametrize(
    ("workflow", "expected"),
    [
        # the percentages below each workflow in Table 1: TWT, makespan, core-hours
        ("montage", {"big-job": (5, 1, 53), "per-stage": (82, 34, 0), "asa": (10, 6, 0)}),
        ("blast", {"big-job": (6, 0, 1), "per-stage": (13, 2, 0), "asa": (2, 0, 1)}),
        ("statistics", {"big-job": (17, 2, 83), "per-stage": (115, 36, 0), "asa": (5, 0, 1)}),
    ],
)
def test_normalised_averages_are_table_1s(workflow, expected):
    """Computed from the table's cells, as near as their rounding allows: the paper averaged unrounded core-hours."""
    runs = [
        run_of(strategy, cores, twt=row.twt_s, makespan=row.makespan_s, hours=row.core_hours)
        for cores, rows in TABLE_1[workflow].items()
        for strategy, row in rows.items()
    ]
    averages = normalised_averages(cells_of(runs))
    for strategy, percents in expected.items():
        for key, percent in zip(("twt_s", "makespan_s", "core_hours"), percents, strict=True):
            assert 100 * averages[strategy][key] == pytest.approx(percent, abs=2.5), (strategy, key)


def test_an_average_to_which_nothing_compares_is_nan():
    """Where the best has no wait at all."""
    averages = normalised_averages(cells_of([run_of("a"), run_of("b", twt=5.0)]))
    assert math.isnan(averages["b"]["twt_s"])
    assert averages["b"]["makespan_s"] == 0


def several(strategy, makespans, hours):
    return [run_of(strategy, seed=i, makespan=m, hours=hours) for i, m in enumerate(makespans)]


def test_the_sentence_says_what_the_table_means():
    """It says sooner, later or the same, and does not claim noise."""
    runs = [
        *several("asa", [100, 110, 90, 100], 20),
        *several("per-stage", [200, 210, 190, 205], 20),
        *several("big-job", [101, 109, 91, 99], 33),
        *several("chained", [80, 88, 72, 81], 20),
    ]
    text = sentence(cells_of(runs))
    assert text.startswith("asa finishes as soon as big-job for 39 % fewer core-hours. ")
    assert "It finishes 50 % (47 to 54) sooner than per-stage for the same core-hours" in text
    assert "25 % (23 to 26) later than chained" in text
    noisy = [*several("asa", [100, 300, 100], 20), *several("big-job", [280, 110, 120], 33)]
    assert "as soon as big-job (no significant difference)" in sentence(cells_of(noisy))
    assert "asa finishes as soon as per-stage for the same" in sentence(cells_of([run_of("asa"), run_of("per-stage")]))
    assert "(one run)" in sentence(cells_of([run_of("asa"), run_of("per-stage", makespan=150.0)]))
    assert sentence(cells_of([run_of("asa")])) == "asa takes 1m40s and 1.0 core-hours."


def test_a_sentence_claims_together_what_is_beyond_chance_together():
    """A difference that would be clear if it were the only one is not where it is one of three."""
    asa = several("asa", [100, 101, 99], 20)
    alone = [*asa, *several("per-stage", [110, 120, 118], 20)]
    assert "14 % (4 to 23) sooner than per-stage" in sentence(cells_of(alone))
    others = [*several("big-job", [101, 107, 91], 33), *several("chained", [95, 108, 100], 20)]
    assert "as soon as per-stage and chained (no significant difference)" in sentence(cells_of([*alone, *others]))


def test_core_hours_that_differ_by_chance_alone_are_not_called_fewer():
    """One of several replications is far off; the same is said of all rivals but one, in one sentence."""
    hours = [(20, 30), (30, 29), (10, 31), (45, 30)]
    runs = [run_of("asa-plan", seed=i, makespan=100 + i, hours=mine) for i, (mine, _) in enumerate(hours)]
    runs += [run_of("big-job", seed=i, makespan=200 + i, hours=his) for i, (_, his) in enumerate(hours)]
    told = sentence(cells_of(runs))
    assert told.startswith(
        "asa-plan finishes 50 % (49 to 50) sooner than big-job for as many core-hours (no significant"
    )
    alike = [*runs, *(replace(run, strategy="asa") for run in runs if run.strategy == "big-job")]
    assert "sooner than big-job and asa for" in sentence(cells_of(alike))


WIDTHS = (8, 16, 64, 128)


def offered(cores):
    return blast(cores, WIDTHS)


def test_shapes_are_chosen_in_a_row_of_their_own_and_all_others_take_the_first():
    """Strategies do with a workflow of several shapes what they do with one that has its first shapes alone."""
    ways = ("big-job", "per-stage", "asa", "chained", "asa-plan:shapes=own")
    found = {"cores": (128,), "seeds": tuple(range(6)), "history": 300}
    several = compare(comparison(make_workflow=offered, strategies=(*ways, "asa-plan"), **found), jobs=1)
    one = compare(comparison(strategies=(*ways[:-1], "asa-plan"), **found), jobs=1)
    assert [run.metrics for run in several[: len(one)]] == [run.metrics for run in one]
    own, chosen = ([run.metrics for run in several[at:][:6]] for at in (4 * 6, 5 * 6))
    assert chosen != own
    assert sum(run.makespan_s for run in chosen) < sum(run.makespan_s for run in own)


def test_a_replication_is_the_same_whatever_others_there_are():
    """It learns what is known at its beginning, and nothing from other replications."""
    options = {"strategies": ("asa", "asa-plan"), "cores": (64,), "history": 300}
    both = compare(comparison(seeds=(1, 2), **options), jobs=1)
    alone = compare(comparison(seeds=(2,), **options), jobs=1)
    assert [run.metrics for run in both if run.seed == 2] == [run.metrics for run in alone]


def test_runs_are_grouped_in_order():
    """By core count and strategy."""
    runs = [run_of("b"), run_of("a"), run_of("b", seed=1)]
    assert list(group(runs)) == [(28, "b"), (28, "a")]
    assert [run.seed for run in group(runs)[28, "b"]] == [0, 1]


def test_what_a_simulated_machine_does_not_look_at_is_said():
    def flow(_cores):
        known = {"cores": 2, "expected_run_s": 60}
        return Workflow("flow", [Stage("a", gpus=1, memory_bytes=10**9, **known), Stage("b", gpus=2, **known)])

    told = comparison(make_workflow=flow).notes
    assert told == (
        "the simulated machine does not look at memory of a",
        "the simulated machine does not look at gpus of a, b",
    )
    assert comparison().notes == ()


def test_run_times_that_nobody_knows_are_said_first():
    """If stages run for their whole walltimes, all strategies are much alike."""

    def flow(_cores):
        return Workflow("flow", [Stage(name, cores=2, memory_bytes=10**9) for name in "abcdef"])

    first, _ = comparison(make_workflow=flow).notes
    assert first.startswith(
        "run times are not known of a, b, c, d and 2 more: each is taken to run for its whole walltime"
    )

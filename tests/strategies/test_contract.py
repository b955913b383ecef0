"""The contract of strategies; a strategy written from the page alone that keeps it runs wherever ours do."""

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from asa.backends.simulated import SimulatedSite
from asa.workflows import blast

from asa.backend import Capabilities, DependencyType
from asa.core import plugins
from asa.errors import InputError
from asa.runner import Run, run_all
from asa.strategies import (
    Cancellation,
    ForecastKind,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    StageView,
    Strategy,
    lacking,
    load_strategy,
)
from asa.strategies.base import whole
from asa.strategies.legs import behind
from asa.strategies.per_stage import PerStage
from asa.testing import check_strategy
from asa.workflow import Stage, Workflow

ASA = Path(sys.executable).with_name("asa")
LOG = Path(__file__).parents[1] / "golden" / "data" / "small.swf.gz"
NAMES = ("per-stage", "relay")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "extending.md"
OURS = [name for name in plugins.names("asa.strategies") if name != "pool"]  # which is one of a site of its own


@pytest.mark.parametrize("name", [*OURS, "asa-plan:grow=yes"])
def test_every_strategy_keeps_the_contract(name):
    check_strategy(lambda: load_strategy(name))


def plan_with(change):
    """Make a strategy that plans as Per-Stage does, but for what is changed."""

    class Changed(PerStage):
        def plan(self, view, forecast):
            return change(view, super().plan(view, forecast))

    return Changed


def each(**changes):
    return lambda _, plan: replace(plan, submissions=tuple(replace(job, **changes) for job in plan.submissions))


def early(keep):
    def change(view, plan):
        later = (name for name in view.left() if view.stages[name].phase is Phase.WAITING and not view.is_ready(name))
        return replace(plan, submissions=(*plan.submissions, *(PlannedJob((n,), view.now_s, keep, "x") for n in later)))

    return plan_with(change)


class Draws(PerStage):
    """A strategy that draws random numbers."""

    count = 0

    def plan(self, view, forecast):
        Draws.count += 1
        return each(reason=f"{self.count}")(view, super().plan(view, forecast))


class Lazy(PerStage):
    """A strategy that never submits the last stage."""

    def plan(self, view, forecast):
        return Plan.of(()) if len(list(view.left())) == 1 else super().plan(view, forecast)


class GivesBackAll(PerStage):
    """A strategy that cancels running jobs."""

    def plan(self, view, forecast):
        jobs = {one.job_id for one in view.stages.values() if one.phase in {Phase.QUEUED, Phase.RUNNING}}
        return Plan.of((), [Cancellation(job, "x") for job in sorted(jobs)]) if jobs else super().plan(view, forecast)


class Idles(PerStage):
    """A strategy whose allocations idle for longer than it declares."""

    max_idle = 0.001

    def plan(self, view, forecast):
        jobs = [
            PlannedJob((name,), view.now_s, Keep.AWAIT, "x", spare_walltime_s=1e6)
            for name in view.left()
            if view.stages[name].phase is Phase.WAITING
        ]
        return Plan.of(jobs)


class Lists(PerStage):
    """A strategy whose needs are a list."""

    needs = [DependencyType.AFTEROK]  # noqa: RUF012 - it is wrong


class Names(PerStage):
    """A strategy that names the forecasts that it needs."""

    forecast = "learned"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Names, "`forecast` is 'learned': it has to be a ForecastKind"),
        (Lists, "`needs` is .*: it has to be a frozenset"),
        (type("Odd", (PerStage,), {"max_idle": -1}), "`max_idle` is -1"),
        (plan_with(lambda *_: None), "a plan has to be a Plan"),
        (Draws, "the same view has to give the same plan"),
        (Lazy, "nothing is submitted, and no time is named"),
        (GivesBackAll, "a job is taken back whose stages run|the run does not end"),
        (plan_with(lambda _, plan: replace(plan, cancellations=(Cancellation("7", "x"),))), "there is no job '7'"),
        (plan_with(lambda _, plan: replace(plan, submissions=2 * plan.submissions)), "each stage is in one job"),
        (plan_with(each(stages=("z",))), "there is no stage 'z'"),
        (plan_with(each(stages=())), "a job has no stages"),
        (plan_with(each(reason="")), "no reason is given"),
        (plan_with(each(submit_s=float("nan"))), "to be submitted at nan"),
        (plan_with(each(widths=(8, 8))), "as many widths as stages"),
        (early(Keep.NOTHING), "nothing keeps it from running before what it follows"),
        (early(Keep.DEPENDENCY), "the site has no dependencies"),
        (Idles, "its allocations idled for"),
    ],
)  # fmt: skip
def test_what_keeps_it_not_is_told_why(make, words):
    with pytest.raises(AssertionError, match=words):
        check_strategy(make)


# ---------------------------------------------------------------------- what a strategy declares


def test_what_a_strategy_does_not_say_is_said_for_it():
    class Plain:
        forecast = ForecastKind.NONE

        def plan(self, view, forecast):
            return load_strategy("per-stage").plan(view, forecast)

    one = whole(Plain())
    assert (one.needs, one.replaces, one.max_idle, one.price_s, one.next_leg) == (frozenset(), False, None, None, None)
    assert not one.is_one_job
    check_strategy(Plain)
    assert whole(one) is one


def test_what_is_said_in_part_is_refused():
    """Otherwise nobody would know whether `needs` is heeded."""

    class Half:
        forecast = ForecastKind.NONE
        needs = frozenset({DependencyType.AFTEROK})

        def plan(self, view, forecast):
            return Plan()

    with pytest.raises(InputError, match="replaces, max_idle, price_s, next_leg, is_one_job") as refused:
        whole(Half())
    assert "asa.strategies.Strategy" in refused.value.hint


def test_ours_declare_what_they_are():
    site = Capabilities("x", 8, 8, age_accrues=True, dependency_types=frozenset())
    assert "afterok" in lacking(load_strategy("chained"), site)
    assert load_strategy("chained").next_leg is behind
    assert load_strategy("asa-plan:price=3").price_s == 3
    assert load_strategy("asa-naive").max_idle == 0.25
    assert (load_strategy("asa-plan").replaces, load_strategy("asa").replaces) == (True, False)


@pytest.mark.parametrize(
    ("phase", "runs", "holds"),
    [
        (Phase.RUNNING, True, True),
        (Phase.ALLOCATED, False, True),
        (Phase.QUEUED, False, False),
        (Phase.DONE, True, True),
        (Phase.FAILED, True, True),
    ],
)
def test_a_stage_that_runs_is_no_stage_that_merely_holds_its_cores(phase, runs, holds):
    flow = Workflow("w", [Stage("a", cores=1), Stage("b", cores=1, after=("a",))])
    stages = {"a": StageView(flow.stages["a"], phase, job_id="1"), "b": StageView(flow.stages["b"])}
    view = RunView(flow, stages, 0.0, Capabilities("x", 8, 8, age_accrues=True))
    assert view.follows_running("b") is runs
    assert view.run_or_hold_cores(("a",)) is holds


# ---------------------------------------------------------------------- a stranger's, from the page


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Make a package with the strategy of the documentation, copied from its page."""
    [code] = [one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class Relay" in one]
    folder = tmp_path_factory.mktemp("packages")
    about = folder / "strangers-1.0.dist-info"
    about.mkdir()
    (folder / "strangers.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[asa.strategies]\nrelay = strangers:Relay\n")
    return folder


def asa(package, *words):
    """Run a command where the package is installed."""
    home = {"HOME": str(package), "PYTHONPATH": str(package)}
    done = subprocess.run(
        [ASA, *map(str, words)], cwd=package, env={**os.environ, **home}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stranger_s_strategy_keeps_the_contract(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    relay = importlib.import_module("strangers").Relay
    assert Strategy in relay.__mro__
    check_strategy(relay)
    world = SimulatedSite("hpc2n").open(seed=3)
    [result] = run_all(world, [Run(blast(28), relay())])
    assert result.outcome == "completed"


def test_a_stranger_s_strategy_is_compared_as_ours_are(package):
    """Where age accrues behind a dependency, it waits less than a strategy that submits stage by stage."""
    how = ("--cores", 28, "--system", "hpc2n", "--seeds", 2, "--history", 50, "--jobs", 1, "--json")
    cells = json.loads(asa(package, "compare", "blast", "--strategies", "per-stage,relay", *how))
    took = {name: [one["makespan_s"] for one in cells if one["strategy"] == name] for name in NAMES}
    assert [len(of) for of in took.values()] == [2, 2]
    assert sum(took["relay"]) <= sum(took["per-stage"])


@pytest.mark.full
def test_a_stranger_s_strategy_is_tried_on_logs_as_ours_are(package):
    how = ("--workflows", "blast", "--cores", 16, "--starts", 2, "--history", 50, "--jobs", 1, "--json")
    told = json.loads(asa(package, "experiment", "strategies", "--trace", LOG, "--strategies", "relay", *how))
    assert "relay" in json.dumps(told)

"""``asa plan``: shows the jobs that asa-plan would submit for a workflow, when, and why, without submitting any."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asa.cli.asked import (
    AskedRun,
    AutoEstimatorOption,
    BankOption,
    CoresOption,
    Forecasting,
    HistoryOption,
    SeedOption,
    WidthOption,
    read_asked,
)
from asa.cli.completing import complete_workflows
from asa.cli.doctor import BackendOption, SiteOption
from asa.cli.given import FormerSetOption, Given, OptionsOption, ParamsOption, price_given
from asa.cli.runs import SCHEMA
from asa.cli.screen import clock, probability
from asa.cli.terminal import write_notice
from asa.core import plugins, temporary
from asa.core.documents import print_json
from asa.core.options import Output, OutputOption
from asa.errors import InputError
from asa.units import format_core_hours, format_duration, format_price, parse_duration, per_job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asa.cli.frontier import PlanOnFrontier
    from asa.cli.weighing import WeighedStage
    from asa.core.console import Console
    from asa.report.frontier import PlanAmongOthers
    from asa.runner import RunPlan
    from asa.runner.outlook import PlannedSpec
    from asa.strategies.base import Choice, Forecast, JobRequest, PlannedJob, PlanStep
    from asa.strategies.planning import Aim, Outlook, SearchedJob, Sketch
    from asa.strategies.planning.parts import Block
    from asa.waits import WaitForecast

_STRATEGY = "asa-plan"
_UNKNOWN = "waits are not known here yet: one job per stage, with dependencies"
_OF_WAITS = ("expected_submit_in_s", "wait_s", "ready_in_s", "start_in_s", "gap_s", "idle_s", "idle_core_hours")
_FROM_NOW = re.compile(r"(\d+(\.\d+)?\s*[a-z]+\s*)+")
_USUAL_WORTH = "1 % of Per-Stage's core-hours counts as much as 0.8 % of its"
_SUBMITTED = {"nothing": "now", "ready": "when ready", "dependency": "with dependency", "await": "ahead of time"}
_NARROW = 40
_FEW = 4
_OTHER_CLOCK_S = 86_400.0


def plan(
    workflow: Annotated[
        str,
        typer.Argument(
            help="A workflow file (.toml), or an installed workflow such as montage.", autocompletion=complete_workflows
        ),
    ],
    backend: BackendOption = None,
    site: SiteOption = None,
    parameters: ParamsOption = None,
    options: OptionsOption = None,
    either: FormerSetOption = None,
    price: Annotated[
        str | None,
        typer.Option(
            help='What an hour sooner is worth to you, as "1 h = 200 core-hours"; or how many seconds one core-hour is '
            "worth, 0 for the fastest plan. [default: the site file's; else one percent more core-hours is worth it if "
            "the workflow ends 0.8 percent sooner, or 0.1 percent where widths are chosen]",
            show_default=False,
            metavar="PRICE",
        ),
    ] = None,
    at_most: Annotated[
        str | None,
        typer.Option(
            help="Take the fastest plan with at most this many times Per-Stage's core-hours, as 1.1.",
            show_default=False,
            metavar="FACTOR",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            help="Take the plan with the fewest core-hours that ends by then with 90 percent probability: "
            "2026-11-30T08:00, or 12h from now.",
            show_default=False,
            metavar="WHEN",
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            help="Show the alternatives for this stage, and why they were not chosen.",
            show_default=False,
            metavar="STAGE",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the core-hours and makespans of the plans (.png, .svg).", metavar="FILE"),
    ] = None,
    estimator: AutoEstimatorOption = "auto",
    bank: BankOption = None,
    history: HistoryOption = 2000,
    seed: SeedOption = 0,
    cores: CoresOption = None,
    width: WidthOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which jobs the strategy asa-plan would submit for a workflow, when, and why. Nothing is submitted.

    Stages that share a job wait in the queue only once, but some of its cores may be idle. A job that is submitted
    early waits while other stages run, but may start too early and idle. asa-plan weighs these costs with the predicted
    waits, and takes the plan with the lowest expected cost of time and core-hours together.

    The first table has the candidates, each with its expected makespan and the range of 8 in 10 runs. The second shows
    what an hour sooner costs, for the plans that no other plan beats in both time and core-hours. The third has the
    jobs of the chosen plan. During a run the plan is revised at every event, so later jobs may differ.

    Example: `asa plan flow.toml --at-most 1.1 --explain merge`

    Then: `asa run flow.toml --strategy asa-plan:at-most=1.1`

    Exit codes: 0 done, 1 the site cannot be asked, 2 the input cannot be used.
    """
    from asa.cli.weighing import weigh
    from asa.core.drawing import check_figure_path

    if picture is not None:
        check_figure_path(picture, "--picture")
    forecasting = Forecasting(estimator, bank, history, seed)
    given = Given(parameters, options, either)
    asked = read_asked(workflow, backend, site, given, cores, forecasting, width=width, only_look=True)
    if explain is not None and explain not in asked.workflow.stages:
        raise plugins.unknown_name("stage", explain, list(asked.workflow.order))
    is_bound = at_most is not None or deadline is not None  # then the site file's price is ignored
    price, price_of = price_given(price, "" if is_bound else asked.opened.price, asked.opened.file)
    shown = replace(looked(asked, {"price": price, "at-most": at_most, "deadline": deadline}), price_of=price_of)
    weighed = weigh(shown.outlook, explain, shown.aim) if explain is not None and shown.is_informed else None
    if output is Output.JSON:
        print_json(shown.as_dict(weighed))
    else:
        also = [("--backend", backend), ("--site", site), ("--width", str(width) if width is not None else None)]
        where = [word for option in also if option[1] is not None for word in option if word]
        where += [*given.words(), *forecasting.words()]
        run = [workflow if asked.source else "flow.toml", *where, "--strategy", shown.made.strategy]
        _print(shown, weighed, shlex.join(["asa", "run", *run]), is_model=not asked.source)
    if picture is not None:
        _draw(shown, picture)


def looked(asked: AskedRun, wanted: Mapping[str, str | None]) -> _Shown:
    """Ask the strategy for its plan as of now."""
    from asa.report.frontier import candidates_of
    from asa.runner.outlook import forecast_of, jobs_by, read_only_bank, view_of
    from asa.strategies.planned import Planned
    from asa.strategies.planning import look_ahead, read_aim

    with (
        temporary.folder("asa-") as folder,
        asked.connected(Path(folder)) as world,
    ):
        now_s = world.now()
        aims = {name: _in_seconds(name, text, now_s) for name, text in wanted.items() if text is not None}
        aim = read_aim(aims)
        who = asked.chosen(world, _STRATEGY)
        made = asked.planned(world, ":".join([_STRATEGY, *(f"{name}={text}" for name, text in aims.items())]), who)
        forecast = _Steady(forecast_of(made, world, read_only_bank(made, asked.bank, now_s), who.events))
        view = view_of(made, now_s)
        strategy = Planned(aim=aim)
        submissions = strategy.plan(view, forecast).submissions
        outlook = look_ahead(view, forecast, aim)
    candidates = tuple(candidates_of(outlook)) if forecast.is_informed else ()
    first = [] if forecast.is_informed else jobs_by(made, strategy, forecast, now_s)
    rivals = tuple(first) if any(job.planned.is_alternative for job in first) else ()
    return _Shown(made, aim, outlook, {job.stages: job for job in submissions}, candidates, rivals)


def _in_seconds(name: str, text: str, now_s: float) -> str:
    """Return a setting as the strategy reads it behind colons, which may not be in a time."""
    return f"{_moment(text, now_s):.0f}" if name == "deadline" else text


def _moment(text: str, now_s: float) -> float:
    if _FROM_NOW.fullmatch(text):
        return now_s + parse_duration(text)
    try:
        return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except ValueError:
        hint = "As in 2026-11-30T08:00, or from now on as in 12h."
        raise InputError(f"{text!r} is no time", where="--deadline", hint=hint) from None


@dataclass
class _Steady:
    """A forecast that stays the same during planning, so that all plans are judged by the same waits."""

    forecast: Forecast
    known: dict[tuple[str, ...], WaitForecast] = field(default_factory=dict)

    @property
    def is_informed(self) -> bool:
        return self.forecast.is_informed

    def predict(self, stages: tuple[str, ...], needed_s: float) -> WaitForecast:
        if stages not in self.known:
            self.known[stages] = self.forecast.predict(stages, needed_s)
        return self.known[stages]

    def predict_each(self, stages: tuple[str, ...], requests: Sequence[JobRequest]) -> Sequence[WaitForecast]:
        from asa.strategies.base import Comparing

        if isinstance(self.forecast, Comparing):
            return self.forecast.predict_each(stages, requests)
        return [self.predict(stages, 0.0)] * len(requests)

    def sample_plans(self, plans: Sequence[Sequence[PlanStep]], samples: int) -> Sequence[NDArray[np.float64]] | None:
        from asa.strategies.base import Joint

        return self.forecast.sample_plans(plans, samples) if isinstance(self.forecast, Joint) else None


# ---------------------------------------------------------------------- display


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the plan, about one job; times in seconds from now."""

    job: SearchedJob
    submit_s: float | None
    walltime_s: float
    waits_s: Any
    now_s: float
    after: tuple[str, ...]
    age_accrues: bool
    is_local: bool
    jobs: int  # number of jobs that share the tasks of its stage
    alike: int  # number of jobs of this size: these jobs, or the elements of an array
    once_ended: bool  # whether it is submitted only when the jobs before it have ended

    @property
    def keep(self) -> str:
        """Return the mechanism that keeps the job from running early, in words."""
        if not self.after:
            return "nothing"
        if self.once_ended:
            return f"submitted after {_names(self.after)}"
        return {
            "ready": f"submitted after {_names(self.after)}",
            "dependency": f"dependency on {_names(self.after)}",
            "await": "nothing: its cores may start early and be idle",
        }[_mode(self.job)]

    def reason(self) -> str:
        """Return when the job is submitted and why then, in words."""
        from asa.cli.weighing import short_name

        job, name, behind = self.job, short_name(self.job.block.stages), _names(self.after)
        if self.is_local:
            when = f"at the end of {behind}" if behind else "at once"
            return f"run {name} on this computer, {when}: it does not wait in a queue"
        half_s, max_s = _quantiles(self.waits_s, 0.5, 0.9)
        waits = f"Half of such jobs start within {format_duration(half_s)}, 9 in 10 within {format_duration(max_s)}"
        if not self.after:
            usual = f"the mean wait is {_expected(self.waits_s)}"
            return f"submit {name} now, {_clock(self.now_s, self.now_s)}. {waits}; {usual}"
        ready_s = float(job.ready_s.mean())
        end = f"the end of {behind}, expected at {_at(ready_s, self.now_s)}"
        starts = f"On average it starts {_expected(job.start_s - job.ready_s)} after the end of {behind}"
        if self.submit_s is None:
            in_turn = job.keep.value == "nothing" or self.once_ended
            turn = f"at {end}. {waits}" if in_turn else "once the jobs before it are submitted"
            return f"submit {name} {turn}. {starts}"
        when = "now, " if self.submit_s < 1 else "at "
        when += _clock(self.now_s + self.submit_s, self.now_s)
        lead_s = max(ready_s - self.submit_s, 0.0)
        chance = probability(float((self.waits_s <= lead_s).mean()))
        in_time = f"The probability that its wait is over by then is {chance}"
        if job.keep.value == "await":
            idle = f"its cores idle for {format_duration(job.idle_s)} on average"
            return f"submit {name} {when}, for {end}. {in_time}; {idle}. {starts}"
        if self.age_accrues:
            return f"submit {name} {when}, held until {end}. {in_time}. {starts}"
        return f"submit {name} {when}, held until {end}; its wait begins then. {waits}. {starts}"

    def as_dict(self) -> dict[str, Any]:
        job, block = self.job, self.job.block
        ready, start, waits = (_spread(times_s) for times_s in (job.ready_s, job.start_s, self.waits_s))
        return {
            "stages": list(block.stages),
            "cores": block.cores,
            "jobs": self.jobs,
            **block.elasticity.shown(),
            "walltime_s": self.walltime_s,
            "core_hours": block.core_hours,
            "mode": _mode(job),
            "submit_in_s": self.submit_s,
            "expected_submit_in_s": job.submit_s,
            "wait_s": waits,
            "ready_in_s": ready,
            "start_in_s": start,
            "gap_s": float((job.start_s - job.ready_s).mean()),
            "idle_s": job.idle_s,
            "idle_core_hours": job.idle_s * block.cores / 3600,
            "after": list(self.after),
            "reason": self.reason(),
        }


def _rival_as_dict(job: PlannedSpec) -> dict[str, Any]:
    from asa.cli.planning import reason_of

    return {
        "stages": list(job.planned.stages),
        "cores": job.spec.cores,
        "jobs": job.spec.jobs_at_once,
        "walltime_s": job.spec.walltime_s,
        "core_hours": job.spec.cores * job.spec.run_s / 3600 if job.spec.run_s is not None else None,
        "mode": "nothing",
        "submit_in_s": job.in_s,
        "after": [],
        "reason": reason_of(job),
        "alternative": job.planned.is_alternative,
        **dict.fromkeys(_OF_WAITS),
    }


@dataclass(frozen=True, slots=True)
class _Shown:
    """The plan of a run that has not begun, and the data to explain it."""

    made: RunPlan
    aim: Aim
    outlook: Outlook
    submissions: Mapping[tuple[str, ...], PlannedJob]
    candidates: tuple[PlanAmongOthers, ...]
    rivals: tuple[PlannedSpec, ...] = ()  # jobs of which the first to start is kept, where no waits are known
    price_of: str = ""  # where the price is from; empty for the usual one

    @property
    def is_informed(self) -> bool:
        """Whether any waits are known."""
        return bool(self.candidates)

    @property
    def now_s(self) -> float:
        return self.outlook.now_s

    @property
    def sketch(self) -> Sketch:
        """The jobs to show: those of the chosen plan, or one job for each stage if no waits are known."""
        from asa.strategies.base import Keep
        from asa.strategies.planning import sketch_of

        if self.is_informed:
            return self.outlook.sketch
        question = self.outlook.question
        keep = Keep.DEPENDENCY if Keep.DEPENDENCY in question.modes else Keep.NOTHING
        return sketch_of(question, [((name,), keep) for name in question.parts.names])

    def lines(self, sketch: Sketch) -> Iterator[_Line]:
        """Describe the jobs of a plan, a line each."""
        from asa.strategies.planning import jobs_of

        stages, is_chosen = self.outlook.question.parts.workflow.stages, sketch is self.outlook.sketch
        for job in sketch.jobs:
            block = job.block
            first = stages[block.stages[0]]
            after = tuple(dict.fromkeys(p for n in block.stages for p in stages[n].after if p not in block.stages))
            planned = self.submissions.get(block.stages) if is_chosen else None
            submit_s = max(planned.submit_s - self.now_s, 0.0) if planned is not None else None
            if not after or (not is_chosen and job.keep.value != "nothing"):
                submit_s = job.submit_s
            once_ended = any(stages[name].has_unknown_last_job for name in after)
            yield _Line(
                job,
                None if once_ended else submit_s,
                block.walltime_s + (planned.spare_walltime_s if planned is not None else 0.0),
                self.outlook.question.waits_s([block])[0] if after else job.start_s,
                self.now_s,
                after,
                self.made.capabilities.age_accrues,
                all(stages[name].local for name in block.stages),
                (jobs := jobs_of(block, first)),
                first.alike if len(block.stages) == 1 else jobs,
                once_ended,
            )

    def as_dict(self, weighed: WeighedStage | None) -> dict[str, Any]:
        from asa.cli.shapes import choice_as_dict

        outlook, choices = self.outlook, self.choices()
        return {
            "schema": SCHEMA,
            "workflow": self.made.workflow,
            "strategy": self.made.strategy,
            "backend": self.made.backend,
            "system": self.made.capabilities.system,
            "now_s": self.now_s,
            "informed": self.is_informed,
            "price_s_per_core_hour": outlook.question.price_s if self.is_informed else None,
            "price_core_hours_per_hour": 3600 / price_s if (price_s := self.deciding_price_s) else None,
            "price_from": self.price_of or "default",
            "at_most": self.aim.at_most,
            "deadline_s": self.aim.deadline_s,
            "per_stage": {
                "core_hours": outlook.per_stage_hours,
                "makespan_s": outlook.per_stage_s if self.is_informed else None,
            },
            "candidates": [self._candidate_as_dict(candidate) for candidate in self.candidates],
            "frontier": [row.as_dict() for row in self.frontier()],
            "jobs": [_rival_as_dict(job) for job in self.rivals]
            or [self._job_as_dict(line) for line in self.lines(self.sketch)],
            **({"shapes": {name: choice_as_dict(choice) for name, choice in choices.items()}} if choices else {}),
            "explain": weighed.as_dict() if weighed is not None else None,
        }

    @property
    def deciding_price_s(self) -> float | None:
        """Seconds that a core-hour is worth, if this price decides; None if a budget or a deadline decides."""
        is_bound = self.aim.at_most is not None or self.aim.deadline_s is not None
        return self.outlook.question.price_s if self.is_informed and not is_bound else None

    def frontier(self) -> list[PlanOnFrontier]:
        """Return the plans that no other plan beats in both time and core-hours."""
        from asa.cli.frontier import frontier_rows

        if not self.is_informed:
            return []
        return frontier_rows(self.outlook, self.candidates, is_priced=self.deciding_price_s is not None)

    def impossible(self) -> Iterator[tuple[str, str]]:
        """Yield the well-known plans that are not possible here, and why."""
        from asa.report.frontier import rigid
        from asa.runner.outlook import refusal_of
        from asa.strategies import load_strategy
        from asa.strategies.base import Keep, lacking

        question, flow, site = self.outlook.question, self.made.make_workflow(), self.made.capabilities
        if rigid(question).parts.block(question.parts.names) is None:
            apart = refusal_of(load_strategy("big-job"), flow, site).partition("; use another")[0]
            yield "Big Job", apart or question.parts.why_apart()
        if Keep.DEPENDENCY not in question.modes:
            yield "Chained", lacking(load_strategy("chained"), site)

    def choices(self) -> Mapping[str, Choice]:
        """Return the shapes that were weighed, by stage."""
        return self.outlook.choices() if self.is_informed else {}

    def _job_as_dict(self, line: _Line) -> dict[str, Any]:
        fields = line.as_dict()
        if not self.is_informed:
            fields |= dict.fromkeys(_OF_WAITS) | {"reason": _UNKNOWN}
        return fields

    def _candidate_as_dict(self, candidate: PlanAmongOthers) -> dict[str, Any]:
        sketch = candidate.sketch
        return {
            "name": candidate.name,
            "chosen": candidate.is_chosen,
            "on_frontier": candidate.is_best,
            "makespan_s": _spread(sketch.end_s),
            "core_hours": sketch.core_hours,
            "times_per_stage": _times(sketch, self.outlook),
            "jobs": [line.as_dict() for line in self.lines(sketch)],
        }

    def why_this(self) -> str:
        """Return a sentence on how the plan was chosen."""
        outlook, aim = self.outlook, self.aim
        if aim.at_most is not None or aim.deadline_s is not None:
            return self._why_within()
        if self.made.capabilities.charges == "used":
            return "Chosen: the fastest plan, because this site charges for what is used, not for what is held."
        price_s = outlook.question.price_s
        if price_s <= 0:
            return "Chosen: the fastest plan, because core-hours do not count (a price of 0)."
        each = f"(a core-hour is worth {format_duration(price_s)})" if price_s >= 1 else ""
        worth = " ".join(filter(None, [f"if {format_price(price_s)}", each]))
        if aim.price_s is not None:
            of = f", as {self.price_of} says" if self.price_of.startswith("site") else ""
            how = f"{worth}{of}."
        else:
            of_shapes = "1 % of its core-hours weighs as much as 0.1 % of its"
            share = of_shapes if outlook.question.typically else _USUAL_WORTH
            how = f"{worth}: {share} makespan. --price, --at-most and --deadline change this."
        if self._is_cheapest_unsure:
            from asa.strategies.planning import LIKELY

            none = f"No plan of lower expected cost ends before it in {LIKELY:.0%} of the sampled queues"
            return f"Chosen: one job per stage. {none}. Costs are compared {how}"
        return f"Chosen: the plan with the lowest cost, {how}"

    @property
    def _is_cheapest_unsure(self) -> bool:
        """Whether another plan costs less on average, but not surely."""
        question, chosen = self.outlook.question, self.outlook.sketch
        costs_s = [question.cost_s(one.sketch) for one in self.candidates]
        return question.is_wary_of_mergers and min(costs_s, default=0.0) < question.cost_s(chosen) - 1.0

    def _why_within(self) -> str:
        """Return a sentence on how the plan was chosen within a budget, a deadline or both."""
        outlook, aim = self.outlook, self.aim
        limit = "" if aim.at_most is None else f"at most {aim.at_most:g} times Per-Stage's core-hours"
        too_many = aim.at_most is not None and (
            outlook.sketch.core_hours > aim.at_most * outlook.per_stage_hours * (1 + 1e-9)
        )
        fewest = f"No plan takes {limit}. Chosen: the plan with the fewest."
        if aim.deadline_s is None:
            return fewest if too_many else f"Chosen: the fastest plan that takes {limit}."
        chance = float((outlook.sketch.end_s <= aim.deadline_s - outlook.now_s).mean())
        by = f"by {_clock(aim.deadline_s, outlook.now_s)}"
        this = f"The probability that it ends {by} is {probability(chance)}."
        if too_many:
            return f"{fewest} {this}"
        sure = f"{by} with a probability of at least 90 %"
        if chance < 0.9:
            among = f" that takes {limit}" if limit else ""
            return f"No plan{among} ends {sure}. Chosen: the fastest plan. {this}"
        among = f" and takes {limit}" if limit else ""
        return f"Chosen: the plan with the fewest core-hours that ends {sure}{among}. {this}"


def _times(sketch: Sketch, outlook: Outlook) -> float:
    return sketch.core_hours / outlook.per_stage_hours if outlook.per_stage_hours else 1.0


def _quantiles(times_s: Any, *levels: float) -> list[float]:
    import numpy as np

    found: list[float] = np.quantile(times_s, levels).tolist()
    return found


def _spread(times_s: Any) -> dict[str, float]:
    p10, p50, p90 = _quantiles(times_s, 0.1, 0.5, 0.9)
    return {"mean": float(times_s.mean()), "p10": p10, "p50": p50, "p90": p90}


def _expected(times_s: Any) -> str:
    """Write a mean; if rare cases dominate it, also the usual value."""
    mean_s, max_s = float(times_s.mean()), _quantiles(times_s, 0.9)[0]
    usual = f" (9 in 10: up to {format_duration(max(max_s, 0.0))})" if mean_s > max(max_s, 1.0) else ""
    return f"{format_duration(max(mean_s, 0.0))}{usual}"


def _names(stages: Sequence[str]) -> str:
    if len(stages) > _FEW:
        return f"{stages[0]} and {len(stages) - 1} more"
    return " and ".join([*filter(None, [", ".join(stages[:-1])]), *stages[-1:]])


def _clock(time_s: float, now_s: float) -> str:
    """Write a time to the minute."""
    return clock(time_s, now_s).rpartition(":")[0]


def _at(in_s: float, now_s: float) -> str:
    return f"{_clock(now_s + in_s, now_s)} (in {format_duration(max(in_s, 0.0))})"


# ---------------------------------------------------------------------- printing


def _print(shown: _Shown, weighed: WeighedStage | None, run: str, *, is_model: bool) -> None:
    from rich.text import Text

    from asa.cli.planning import jobs_table
    from asa.cli.shapes import print_shapes
    from asa.core.console import Console

    console = Console(highlight=False)
    made = shown.made
    console.print(Text.assemble((f"{made.workflow} on {made.capabilities.system} ({made.backend})", "bold"), "\n"))
    if shown.is_informed:
        _print_candidates(console, shown)
    else:
        then = "submits one job per stage, in its first shape (number of cores), with dependencies"
        if shown.rivals:
            then = "requests the same work in several shapes and runs what starts first; the others are withdrawn"
        _say(
            console,
            f"Waits are not known here yet, so plans cannot be compared. asa-plan then {then}. Learn waits first: "
            "`asa learn --since 30d`, or --history where the site shows all users' jobs.\n",
            "yellow",
        )
    if shown.rivals:
        console.print(jobs_table(shown.rivals, shown.made.make_workflow().stages))
    else:
        _print_jobs(console, shown)
    for name, why in shown.impossible():
        _say(console, f"Not possible here: {name}: {why}.", "dim")
    if shown.is_informed:
        print_shapes(console, [job.block.stages for job in shown.sketch.jobs], shown.choices())
    if weighed is not None:
        _print_weighed(console, weighed)
    text = "Nothing was submitted. Run this plan with:"
    if is_model:
        text = "Nothing was submitted: this workflow is a model without commands. A workflow file is run so with:"
    if abs(shown.now_s - time.time()) > _OTHER_CLOCK_S:
        text = f"Times are those of the machine's clock, which shows {clock(shown.now_s)[:-3]} now. {text}"
    _say(console, f"\n{text}", "dim")
    console.print(f"  {run}", markup=False, soft_wrap=True)


def _say(console: Console, text: str, style: str = "") -> None:
    from rich.text import Text

    console.print(Text(text, style=style))


def _table(*columns: str, left: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        is_left = column in left
        table.add_column(column, justify="left" if is_left else "right", overflow="fold", no_wrap=not is_left)
    return table


def _print_candidates(console: Console, shown: _Shown) -> None:
    from asa.cli.frontier import print_frontier
    from asa.report.frontier import CHOSEN, frontier_letters, interval_s

    candidates = shown.candidates
    table = _table("", "Plan", "Jobs", "Makespan", "8 in 10 runs", "Core-h", "x Per-Stage", left=("Jobs",))
    for candidate in candidates:
        sketch = candidate.sketch
        low, high = (format_duration(bound_s) for bound_s in interval_s(sketch))
        table.add_row(
            CHOSEN if candidate.is_chosen else candidate.mark,
            candidate.name,
            _sizes(shown.lines(sketch)),
            format_duration(sketch.makespan_s),
            f"{low} - {high}",
            format_core_hours(sketch.core_hours),
            f"{_times(sketch, shown.outlook):.2f}",
            style="bold green" if candidate.is_chosen else "",
        )
    console.print(table)
    text = (
        "*: chosen. Makespan: expected. Jobs: the number of stages in each job, and how early it is submitted: d "
        "with a dependency, "
    )
    _say(console, f"\n{text}r when its stage is ready, a ahead of time (its cores are idle if it starts early).", "dim")
    if any(candidate.sketch.makespan_s > interval_s(candidate.sketch)[1] for candidate in candidates):
        _say(console, "Where it is longer than the range, rare but very long waits are the reason.", "dim")
    _say(console, f"{shown.why_this()}\n")
    _say(console, "Expected makespan", "dim")
    for line in frontier_letters(candidates, min(console.width, 90)):
        console.print(line, markup=False, no_wrap=True)
    console.print()
    if len(rows := shown.frontier()) > 1:
        is_typical = shown.outlook.question.typically
        print_frontier(console, rows, typically=is_typical, price_s=shown.deciding_price_s)


def _mode(job: SearchedJob) -> str:
    """Name the mechanism that keeps a job back."""
    from asa.strategies.planning import mode_of

    return mode_of(job.keep)


def _sizes(lines: Iterable[_Line]) -> str:
    """Write the number of stages in each job, and a letter for the mechanism that keeps the job back."""
    jobs = [f"{len(line.job.block.stages)}{_mode(line.job)[0] if line.after else ''}" for line in lines]
    alike = [(size, len(list(group))) for size, group in groupby(jobs)]
    words = [f"{count} x {size}" if count > 1 else size for size, count in alike]
    return " + ".join(words) if len(words) <= _FEW else f"{len(jobs)} jobs"


def _partition_of(block: Block, shown: _Shown) -> str:
    """Return the partition of a block's job, with its cluster."""
    own = shown.outlook.question.parts.workflow.stages[block.stages[0]].partition
    return (block.shapes[0].partition if block.shapes else own) or shown.made.capabilities.partition


def _print_jobs(console: Console, shown: _Shown) -> None:
    site = shown.made.capabilities
    of_clusters = ["Partition"] if site.clusters else []
    columns = ("", "Stages", *of_clusters, "Cores", "Walltime", "Submit", "Kept back by")
    table = _table(*columns, left=("Stages", "Partition", "Kept back by"))
    lines = list(shown.lines(shown.sketch))
    for number, line in enumerate(lines, start=1):
        block = line.job.block
        when = "in its turn" if line.submit_s is None else _clock(shown.now_s + line.submit_s, shown.now_s)
        table.add_row(
            f"{number}.",
            ", ".join(block.stages),
            *(_partition_of(block, shown) for _ in of_clusters),
            f"{_cores(line)}{block.elasticity.mark}",
            format_duration(line.walltime_s),
            "now" if line.submit_s is not None and line.submit_s < 1 else when,
            line.keep,
        )
    console.print(table)
    if shown.is_informed:
        console.print()
        for number, line in enumerate(lines, start=1):
            _wrap(console, f"{number}. {line.reason()}", indent=3)
    _print_open(console, shown)


def _print_open(console: Console, shown: _Shown) -> None:
    """Name the stages whose time is not known yet: they depend on a condition or a delay, or follow such a stage."""
    workflow = shown.made.make_workflow()
    not_known: dict[str, None] = {}
    for name in workflow.order:
        stage = workflow.stages[name]
        if stage.is_conditional or any(before in not_known for before in stage.after):
            not_known[name] = None
    for job in shown.sketch.jobs:
        for name in job.block.stages:
            not_known.pop(name, None)
    if not_known:
        console.print()
        when = "When, and whether, they run depends on how others go."
        _wrap(console, f"Not in this plan: {', '.join(not_known)}. {when}", indent=0)


def _cores(line: _Line) -> str:
    """Write the cores of a block's job, or how many jobs, or elements, of how many cores each."""
    cores = line.job.block.cores
    return per_job(line.alike, str(-(-cores // line.jobs)))


def _wrap(console: Console, words: str, indent: int) -> None:
    from textwrap import fill

    text = fill(
        words,
        max(console.width, _NARROW),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(text, markup=False, soft_wrap=True)


def _print_weighed(console: Console, weighed: WeighedStage) -> None:
    from rich.text import Text

    console.print(Text.assemble("\n", (f"Alternatives for {weighed.stage}", "bold"), "\n"))
    table = _table("Job", "Submitted", "Starts in", "Gap", "Idle core-h", "Cost", left=("Job", "Submitted"))
    for alternative in (weighed.chosen, *weighed.others):
        table.add_row(
            alternative.way,
            _SUBMITTED[alternative.kept],
            format_duration(alternative.start_s),
            format_duration(alternative.gap_s),
            f"{alternative.idle_core_hours:,.2f}",
            format_duration(alternative.cost_s),
            style="bold green" if alternative is weighed.chosen else "",
        )
    console.print(table)
    price = format_duration(weighed.price_s)
    which = "typical makespan (geometric mean)" if weighed.typically else "expected makespan"
    _say(console, f"\nCost: {which} of the whole plan, plus {price} per core-hour.\n", "dim")
    for sentence in weighed.sentences():
        _wrap(console, f"- {sentence}", indent=2)


def _draw(shown: _Shown, path: Path) -> None:
    from asa.report.frontier import frontier_figure

    if not shown.is_informed:
        write_notice("No picture was drawn: waits are not known here yet.")
        return
    title = f"{shown.made.workflow} on {shown.made.capabilities.system}: what can be planned"
    frontier_figure(shown.candidates, path, title)
    write_notice(f"Picture written to {path}")

"""asa-plan: the plan with the least expected cost, made anew at each event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from asa.backend import Capabilities, DependencyType
from asa.core.late import dataclass
from asa.units import format_duration

from .base import (
    MIN_IDLE_S,
    Cancellation,
    Forecast,
    ForecastKind,
    IdleAllowance,
    Keep,
    Phase,
    Plan,
    PlannedJob,
    RunView,
    StageView,
    Strategy,
    load_strategy,
)
from .planning import Aim, Outlook, SearchedJob, look_ahead, read_aim
from .planning.elasticity import additions, looked_after
from .planning.keeping import may_be_kept, retimed
from .planning.outlook import WHOLE_STAGES
from .racing import Races, read_races, rival_of
from .replacing import Replacement

_AHEAD_OF_MANY = 20  # number of jobs that are kept submitted ahead, in large workflows
_AT_A_TIME = 8  # number of jobs by which a plan may exceed this, where age accrues, so that one plan serves several
_AHEAD_S = 120.0  # a job that gains nothing by queueing early is submitted this long before its turn
_UNKNOWN = "waits are not known here yet: one job per stage"
_UNDER_WAY = frozenset({Phase.QUEUED, Phase.ALLOCATED, Phase.RUNNING})
_SHORT_IDLE_S, _LONGEST_IDLE_S = 60.0, 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Planned(Strategy):
    """The plan with the least expected makespan plus price times core-hours, under the distributions of the waits.

    The plan says which stages share a job; whether the job gives cores back and, if wanted, gets more before wider
    stages (as in `elastic`); when each job is submitted; and what keeps it from running too early. Submitted jobs stay:
    a queued job is not cancelled because an estimate changed. Only a job whose stages have several shapes may be
    replaced by another, once.

    If many stages are left, only the next ones are planned; the jobs' reasons say so.

    Parameters
    ----------
    aim
        What the user wants.
    max_in_flight
        Upper bound of jobs submitted ahead; further jobs are submitted when they are ready to run. By default all
        planned jobs; or, if only a part of the remaining stages is planned, 20, and up to 28 where age accrues.
    max_resubmissions
        After this number of resubmissions, a stage's job is submitted ahead only with a dependency.
    max_replacements
        How often a queued job may be replaced by one of another shape; `asa.strategies.replacing` has the rule.
    max_idle, max_idle_core_hours
        Upper bounds of all idle core-hours, as a share of the workflow's own and absolute. An early allocation is given
        back before it exceeds them, and no job is submitted early when next to nothing is left.
    forecast
        The source of its forecasts.
    races
        The rule by which several jobs race for the same stages; None for no races.
    races_when
        ``always``, or ``unknown``: while no wait can be predicted, if a stage has several shapes.
    rivals
        Whether the job that replaces a queued one may be submitted while that is queued, if the site allows it.
    """

    aim: Aim = field(default_factory=Aim)
    max_in_flight: int | None = None
    max_resubmissions: int = 3
    max_replacements: int = 1
    max_idle: float = 0.25
    max_idle_core_hours: float = 10.0
    forecast: ForecastKind = ForecastKind.LEARNED
    races: Races | None = field(default_factory=Races)
    races_when: Literal["always", "unknown"] = "unknown"
    rivals: bool = True

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Planned:
        """Make a strategy from settings: ``price``, ``at-most``, ``deadline``, ``grow``, ``shapes``.

        A price is in words, as in ``1 h = 200 core-hours``, or in seconds a core-hour. Also ``races``, ``max-racers``,
        ``race-after`` and ``patience``: see `asa.strategies.racing`. With ``races=no``, only one job at a time is for
        the same work.

        Raises
        ------
        InputError
            A setting is unknown, or its value is invalid.
        """
        rule, when = read_races(settings)
        return cls(aim=read_aim(settings), races=rule, races_when=when, rivals=settings.get("races") != "no")

    @property
    def price_s(self) -> float | None:
        """Value of one core-hour, in seconds of makespan, by its aim."""
        return self.aim.price_s

    @property
    def replaces(self) -> bool:
        """Whether a queued job may be replaced by one of another shape."""
        return self.aim.chooses_shapes and self.max_replacements > 0

    def plan(self, view: RunView, forecast: Forecast) -> Plan:
        """Plan the remaining stages, request cores that jobs will lack, give back allocations that came too early."""
        rule = self.races if self._may_race(view, forecast) else None
        if rule is not None and (raced := rule.plan(view)) is not None:
            return raced
        watched = looked_after(view, forecast)
        if not forecast.is_informed:
            simple = () if watched.cancellations else (*self._a_job_a_stage(view), *watched.submissions)
            return Plan.of(simple, watched.cancellations, watched.wake_s)
        replacement = Replacement(self.max_replacements if self.replaces else 0)
        if not (self._may_act(view) or replacement.candidates(view, forecast)):
            plan = Plan.of(watched.submissions, watched.cancellations, watched.wake_s)
            return replace(plan, kept=view.kept)
        outlook = retimed(view.kept, view, forecast) if isinstance(view.kept, Outlook) else None
        kept = view.kept
        if outlook is None:
            outlook = look_ahead(view, forecast, self.aim)
            kept = outlook if may_be_kept(outlook, self.aim) else None
        replaced = list(replacement.find(view, outlook, forecast, self.aim))
        rivals = [rival_of(view, job) if self.rivals else None for job in replaced]
        given_back = [
            *watched.cancellations,
            *self._given_back(view, outlook),
            *(job for job, rival in zip(replaced, rivals, strict=True) if rival is None),
        ]
        if given_back:
            return Plan.of((), given_back)
        limits_s = [stage.hold_until_s for stage in view.stages.values() if stage.phase is Phase.ALLOCATED]
        looks = (*limits_s, watched.wake_s, replacement.wake_s(view, forecast))
        wakes = [until_s for until_s in looks if until_s is not None and until_s > view.now_s]
        asked = [*self._submissions(view, outlook), *watched.submissions]
        if (rival := next(iter(rivals), None)) is not None:  # what may depend on it is planned once it is accepted
            apart = (job for job in asked if job.is_addition or set(rival.stages).isdisjoint(job.stages))
            asked = [rival, *(job for job in apart if job.is_addition or job.keep is Keep.NOTHING)]
        if rule is None and self.rivals and self.replaces and view.capabilities.races:
            asked = [replace(job, racer=1) if replacement.may_come(view, job, forecast) else job for job in asked]
        plan = Plan.of(asked, wake_s=min(wakes, default=None), choices=outlook.choices())
        return replace(plan, kept=kept)

    def _may_race(self, view: RunView, forecast: Forecast) -> bool:
        if self.races_when == "always":
            return True
        is_free = self.aim.chooses_shapes and self.aim.at_most is None and self.aim.deadline_s is None
        if not is_free or forecast.is_informed:
            return False
        return any(len(view.stages[name].stage.shapes) > 1 for name in view.left())

    def _a_job_a_stage(self, view: RunView) -> Iterator[PlannedJob]:
        """Plan while no wait is known: one job per stage, submitted at once with dependencies.

        At a site without dependencies, each job is submitted when its predecessors have ended.
        """
        if DependencyType.AFTEROK not in view.capabilities.dependency_types:
            for name in view.to_run_now():
                yield PlannedJob((name,), view.now_s, Keep.NOTHING, _UNKNOWN)
            return
        left = sum(stage.phase is Phase.WAITING for stage in view.stages.values())
        under_way = len({stage.job_id for stage in view.stages.values() if stage.phase in _UNDER_WAY})
        free = self._ahead(view, is_part=left > WHOLE_STAGES) - under_way
        waiting: set[str] = set()  # stages that are left to a later plan
        for name in view.left():
            if view.stages[name].phase is not Phase.WAITING:
                continue
            is_ready = view.is_ready(name)
            if not is_ready and (free <= 0 or not waiting.isdisjoint(view.stages[name].stage.after)):
                waiting.add(name)
                continue
            free -= 1
            keep, words = (Keep.NOTHING, "") if is_ready else (Keep.DEPENDENCY, ", with a dependency")
            yield PlannedJob((name,), view.now_s, keep, f"{_UNKNOWN}{words}")

    def _free(self, view: RunView, under_way: int, *, is_part: bool) -> int:
        """Return how many more jobs may be submitted ahead; `is_part`: only a part of the remaining stages is planned.

        A job that is left for later loses nothing where age accrues, while the jobs before it run.
        """
        more = _AT_A_TIME if view.capabilities.age_accrues and self.max_in_flight is None else 0
        return self._ahead(view, more, is_part=is_part) - under_way

    def _ahead(self, view: RunView, more: int = 0, *, is_part: bool) -> int:
        """Return the number of jobs that are kept submitted ahead, and `more` of them if the site allows."""
        ahead = self.max_in_flight
        if ahead is None:
            ahead = _AHEAD_OF_MANY if is_part else WHOLE_STAGES
        most = view.capabilities.max_queued
        return ahead + more if most is None else min(ahead + more, most)

    def _may_act(self, view: RunView) -> bool:
        """Whether a new plan may submit jobs or give allocations back.

        It may not while as many jobs as are kept ahead are still under way. Where age accrues, the last plan has
        submitted more: then no plan is needed for some events, and still no job is submitted later than if each event
        had a plan that submitted one job.
        """
        if view.to_run_now():
            return True
        waiting, under_way = 0, set[str | None]()
        for name in view.left():
            stage = view.stages[name]
            if stage.phase is Phase.ALLOCATED and stage.hold_until_s is not None:
                return True
            if stage.phase is Phase.WAITING:
                waiting += 1
            elif stage.phase in _UNDER_WAY:
                under_way.add(stage.job_id)
        ahead = self._ahead(view, is_part=waiting > WHOLE_STAGES)
        return bool(waiting) and len(under_way) + additions(view) < ahead

    def _submissions(self, view: RunView, outlook: Outlook) -> Iterator[PlannedJob]:
        """Turn a sketch into jobs to submit; leave out jobs that are submitted only once they are ready."""
        free = self._free(view, len(outlook.under_way) + additions(view), is_part=bool(outlook.left_out))
        submits: dict[str, float] = {}
        allowance = IdleAllowance.of(view, self.max_idle, self.max_idle_core_hours)
        for job in _longest_first(view, outlook.sketch.jobs):
            before = _follows(view, job)
            waiting = [p for p in before if view.stages[p].phase is Phase.WAITING]
            keep, at_s = self._how(view, job, is_ready=all(view.stages[p].phase.is_settled for p in before))
            idle_s = self._idle_s(outlook, job, allowance) if keep is Keep.AWAIT else job.block.elasticity.spare_s
            if keep is Keep.AWAIT and not (idle_s >= MIN_IDLE_S and view.run_or_hold_cores(before)):
                continue  # the job might occupy cores that its predecessors need, or may not idle any more
            if keep is None or (keep is not Keep.NOTHING and free <= 0):
                continue
            if keep is not Keep.NOTHING and not all(p in submits for p in waiting):
                continue  # the job cannot depend on a job that does not exist yet
            if keep is Keep.DEPENDENCY:
                at_s = max([at_s, *(submits[p] for p in waiting)])
            free -= 1
            submits |= dict.fromkeys(job.block.stages, at_s)
            block = job.block
            prediction = outlook.predict(block)
            why = reason(job, keep, at_s - view.now_s)
            if keep is Keep.AWAIT:
                why = f"{why}; {allowance.text}"
                allowance.take(block.cores, idle_s)
            if outlook.left_out:
                why = f"{why}; planned {outlook.planned} stages ahead, {outlook.left_out} more later"
            yield PlannedJob(
                block.stages,
                at_s,
                keep,
                why,
                prediction,
                view.now_s + float(job.ready_s.mean()),
                idle_s,
                **block.elasticity.asked(),
            )

    def _how(self, view: RunView, job: SearchedJob, *, is_ready: bool) -> tuple[Keep | None, float]:
        """Return the mechanism that keeps a job back, and when to submit it; None if its time has not come."""
        if is_ready:
            return Keep.NOTHING, view.now_s
        if job.keep is Keep.AWAIT:
            if view.stages[job.block.stages[0]].resubmissions >= self.max_resubmissions:
                return None, view.now_s
            return Keep.AWAIT, view.now_s + job.submit_s
        if job.keep is not Keep.DEPENDENCY:
            return None, view.now_s
        if view.capabilities.age_accrues:
            return Keep.DEPENDENCY, view.now_s
        # queueing earlier saves only the client's delay, and until then the plan may change
        return Keep.DEPENDENCY, max(view.now_s, view.now_s + float(job.ready_s.min()) - _AHEAD_S)

    def _idle_s(self, outlook: Outlook, job: SearchedJob, allowance: IdleAllowance) -> float:
        """Return how long a job may idle: until idling costs more than another wait, or exceeds the allowance."""
        second = job.block.cores / 3600
        wait_s = float(outlook.question.waits_s([job.block]).mean())
        worth_s = wait_s / max(outlook.question.price_s * second, 1e-9)
        return min(max(worth_s, _SHORT_IDLE_S), _LONGEST_IDLE_S, allowance.lasts_s(job.block.cores))

    def _given_back(self, view: RunView, outlook: Outlook) -> Iterator[Cancellation]:
        for job in outlook.under_way:
            stage: StageView = view.stages[job.block.stages[0]]
            if job.phase is not Phase.ALLOCATED or stage.hold_until_s is None or stage.job_id is None:
                continue
            if stage.keep is not Keep.AWAIT:
                continue  # its payload is about to begin, or waits for a local stage
            ready_s = float(job.ready_s.mean())
            if view.now_s >= stage.hold_until_s or (ready_s > 0 and view.now_s + ready_s > stage.hold_until_s):
                idles = "has idled for as long as" if view.now_s >= stage.hold_until_s else "would idle for longer than"
                begins = f": the stage can begin in about {format_duration(ready_s)}" if ready_s >= 1 else ""
                yield Cancellation(stage.job_id, f"it {idles} it may{begins}")


def at_price(strategy: str, price: str) -> str:
    """Add a site's price to a strategy's name, unless the strategy takes none or has a price, budget or deadline.

    `strategy`: its name, with its settings.
    `price`: in words or seconds; empty for none.

    Examples
    --------
    >>> at_price("asa-plan", "1 h = 20 core-hours"), at_price("asa-plan:at-most=1.1", "18"), at_price("chained", "18")
    ('asa-plan:price=1 h = 20 core-hours', 'asa-plan:at-most=1.1', 'chained')
    """
    made = load_strategy(strategy) if price else None
    if not isinstance(made, Planned) or made.aim != replace(made.aim, price_s=None, at_most=None, deadline_s=None):
        return strategy
    return f"{strategy}:price={price}"


def without_rivals(strategy: str) -> str:
    """Return a strategy's name with the setting that only one job at a time asks for the same work.

    `strategy`: its name, with its settings.

    Examples
    --------
    >>> without_rivals("asa-plan:races=yes:price=18"), without_rivals("chained")
    ('asa-plan:price=18:races=no', 'chained')
    """
    if not isinstance(load_strategy(strategy), Planned):
        return strategy
    name, *settings = strategy.split(":")
    return ":".join([name, *(setting for setting in settings if not setting.startswith("races=")), "races=no"])


def may_have_rivals(strategy: str, site: Capabilities) -> bool:
    """Whether a strategy may have several jobs in a site's queue for the same work at a time.

    `strategy`: its name, with its settings.
    """
    made = load_strategy(strategy)
    return isinstance(made, Planned) and made.rivals and site.races


def _longest_first(view: RunView, jobs: Sequence[SearchedJob]) -> Iterator[SearchedJob]:
    """Yield jobs in the order of submission; of parallel jobs, the job that is followed by most work comes first.

    A job comes after those that it depends on. In another order, a job off the critical path might take the cores of a
    job on it.
    """
    to_end_s: dict[str, float] = {}
    for name in reversed(list(view.left())):
        to_end_s[name] = to_end_s.get(name, 0.0) + view.stages[name].stage.expected_s
        for before in view.stages[name].stage.after:
            to_end_s[before] = max(to_end_s.get(before, 0.0), to_end_s[name])
    todo = [(job, _follows(view, job), max(to_end_s[name] for name in job.block.stages)) for job in jobs]
    missing = {name for job in jobs for name in job.block.stages}
    while todo:
        free = [index for index, (_, follows, _) in enumerate(todo) if missing.isdisjoint(follows)]
        job, *_ = todo.pop(max(free, key=lambda index: todo[index][2], default=0))
        missing.difference_update(job.block.stages)
        yield job


def _follows(view: RunView, job: SearchedJob) -> set[str]:
    """Return the stages that a job follows."""
    return {p for name in job.block.stages for p in view.stages[name].stage.after} - set(job.block.stages)


def reason(job: SearchedJob, keep: Keep, in_s: float) -> str:
    """Explain in words why a job is submitted at its time, and which stages share it."""
    alone = len(job.block.stages) == 1
    words = [] if alone else [f"{len(job.block.stages)} stages in one job"]
    if turns := job.block.elasticity.turns:
        words.append(f"which {' and '.join(turns)}")
    ready_s = float(job.ready_s.mean())
    gap_s = max(float((job.start_s - job.ready_s).mean()), 0.0)
    if keep is Keep.NOTHING:
        words.append("all stages that it depends on have ended" if in_s <= 0 else "")
    else:
        words.append(f"needed in {format_duration(max(ready_s, 0.0))}")
    if keep is Keep.AWAIT:
        in_time = float((job.start_s <= job.ready_s).mean())
        words.append(f"in time with {in_time:.0%} probability")
        words.append(f"expected idle {format_duration(job.idle_s)}")
    is_first = keep is Keep.NOTHING and float(job.ready_s.max()) <= 0
    if is_first:
        words.append(f"expected wait {format_duration(gap_s)}")
    else:
        when = "as soon as" if round(gap_s) == 0 else f"{format_duration(gap_s)} after"
        words.append(f"expected to start {when} it is needed")
    return ", ".join(word for word in words if word)

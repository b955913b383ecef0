"""What each job of a run did over time: pending, held back, allocated, running; made from the run's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from asa.backend import JobState
from asa.records import (
    Ended,
    Record,
    Requeued,
    Resized,
    RunEnded,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.strategies.base import Keep

if TYPE_CHECKING:
    from asa.workflow import Workflow

__all__ = ["Kind", "Lane", "Span", "Timeline", "timeline"]

Kind = Literal["kept", "pending", "held", "running"]
"""Kinds of periods of a job: kept back by a dependency; pending; holding idle cores; running a stage."""


@dataclass(frozen=True, slots=True)
class Span:
    """A period in which a job was pending, idle, or ran a stage.

    Parameters
    ----------
    kind
        What the job did; see `Kind`.
    begin_s, end_s
        Begin and end of the period.
    cores
        Cores that the job asked for, while pending; after that, cores that it had.
    stage
        The stage that ran; empty if none did.
    """

    kind: Kind
    begin_s: float
    end_s: float
    cores: int
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """A job in a timeline.

    Parameters
    ----------
    job_id
        Id of the job in the batch system.
    stages
        Stages of the job, in order.
    cores, walltime_s
        What the job asked for.
    submit_s
        When it was submitted.
    predicted_start_s
        Its start as predicted at submission, but not before what kept it back had ended; None if nothing was predicted,
        or that end is not known.
    start_s
        When it started; None if it never did.
    spans
        Its periods, in order, without gaps.
    state
        How it ended; ``running`` or ``pending`` if it had not.
    reason
        Why it was submitted at that time, and how it failed.
    joins
        Id of the job that its cores joined, if any.
    predicted_wait_over_s
        When the predicted wait was over, whether it was kept back then or not; None if none was predicted.
    """

    job_id: str
    stages: tuple[str, ...]
    cores: int
    walltime_s: float
    submit_s: float
    predicted_start_s: float | None
    start_s: float | None
    spans: tuple[Span, ...]
    state: str
    reason: str
    joins: str = ""
    predicted_wait_over_s: float | None = None

    @property
    def runs_in(self) -> str:
        """The job in which its stages run: itself, or the job that its cores joined."""
        return self.joins or self.job_id

    @property
    def end_s(self) -> float:
        """The end of its last known period."""
        return self.spans[-1].end_s if self.spans else self.submit_s

    @property
    def was_withdrawn(self) -> bool:
        """Whether it was cancelled before it started."""
        return self.state == JobState.CANCELLED.value and self.start_s is None

    @property
    def belief(self) -> tuple[Literal["start", "end of wait"], float] | None:
        """The prediction for the job, and its time: the job's start, or only the end of its wait."""
        if self.predicted_start_s is not None:
            return "start", self.predicted_start_s
        return None if self.predicted_wait_over_s is None else ("end of wait", self.predicted_wait_over_s)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The periods of a run's jobs, from the begin of the run to its end.

    Parameters
    ----------
    run
        Name of the run.
    begin_s, end_s
        When the workflow was submitted, and when it ended; if it has not ended, the time of its last record.
    lanes
        The jobs, in order of submission.
    """

    run: str
    begin_s: float
    end_s: float
    lanes: tuple[Lane, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the timeline as JSON-ready data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Timeline:
        """Make a timeline from the data that `as_dict` returned."""
        lanes = tuple(
            Lane(**{**lane, "stages": tuple(lane["stages"]), "spans": tuple(Span(**span) for span in lane["spans"])})
            for lane in document["lanes"]
        )
        return cls(document["run"], document["begin_s"], document["end_s"], lanes)

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat row for each period, for a spreadsheet; times count from the run's begin."""

        def since_begin(time_s: float | None) -> float | None:
            return None if time_s is None else time_s - self.begin_s

        return [
            {
                "run": self.run,
                "job": lane.job_id,
                "stages": "+".join(lane.stages),
                "kind": span.kind,
                "stage": span.stage,
                "begin_s": span.begin_s - self.begin_s,
                "end_s": span.end_s - self.begin_s,
                "cores": span.cores,
                "predicted_wait_over_s": since_begin(lane.predicted_wait_over_s),
                "predicted_start_s": since_begin(lane.predicted_start_s),
                "state": lane.state,
            }
            for lane in self.lanes
            for span in lane.spans
        ]

    def trace_events(self) -> dict[str, Any]:
        """Return trace events for Perfetto and browsers' tracing pages: one track for each job.

        Times are microseconds from the run's beginning.
        """
        process = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": self.run}}
        events: list[dict[str, Any]] = [process]
        for track, lane in enumerate(self.lanes, start=1):
            name = f"{' + '.join(lane.stages)} (job {lane.job_id}, {lane.cores} cores)"
            events.append({"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": name}})
            events.append(
                {"ph": "M", "pid": 1, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
            )
            events += [
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": track,
                    "name": span.stage or span.kind,
                    "cat": span.kind,
                    "ts": round(1e6 * (span.begin_s - self.begin_s)),
                    "dur": round(1e6 * (span.end_s - span.begin_s)),
                    "args": {"cores": span.cores, "job": lane.job_id},
                }
                for span in lane.spans
            ]
            if (belief := lane.belief) is not None:
                name, time_s = belief
                moment = round(1e6 * (time_s - self.begin_s))
                events.append(
                    {
                        "ph": "i",
                        "pid": 1,
                        "tid": track,
                        "s": "t",
                        "name": f"predicted {name}",
                        "cat": "prediction",
                        "ts": moment,
                    }
                )
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def timeline(records: Iterable[Record], workflow: Workflow | None = None, *, age_accrues: bool = True) -> Timeline:
    """Work out what each job of a run did, and when.

    Parameters
    ----------
    records
        Records of one run, in order; the run need not have ended.
    workflow
        The workflow that ran, which shows what each job followed. Without it, time kept back counts as waiting.
    age_accrues
        Whether a job gains priority while a dependency keeps it back; if not, its wait begins when it is eligible.

    Raises
    ------
    ValueError
        The run never began.
    """
    all_records = list(records)
    began = next((r for r in all_records if isinstance(r, RunStarted)), None)
    if began is None:
        raise ValueError("the records are of no run that began")
    last_s = max(r.time_s for r in all_records)
    over_s = next((r.time_s for r in reversed(all_records) if isinstance(r, RunEnded)), last_s)
    of_job: dict[str, list[Record]] = {}
    for record in all_records:
        if (job_id := getattr(record, "job_id", None)) is not None:
            of_job.setdefault(job_id, []).append(record)
    submitted = [r for r in all_records if isinstance(r, Submitted)]
    lanes = tuple(_lane(record, _about(record, of_job), max(last_s, over_s)) for record in submitted)
    if workflow is not None:
        ended = [r for r in all_records if isinstance(r, Ended) and r.state is JobState.COMPLETED]
        lanes = tuple(
            _kept_back(lane, _released_s(record, ended, workflow), age_accrues=age_accrues)
            if _is_kept(record)
            else lane
            for record, lane in zip(submitted, lanes, strict=True)
        )
    return Timeline(began.run, began.time_s, max([over_s, *(lane.end_s for lane in lanes)]), lanes)


def _about(asked: Submitted, of_job: Mapping[str, Sequence[Record]]) -> list[Record]:
    """Return a job's records; if its cores join another job, with those of the stages that ran on them."""
    mine = list(of_job[asked.job_id])
    joined_s = next((r.time_s for r in mine if isinstance(r, Started)), None)
    if not asked.joins or joined_s is None:
        return mine
    ran = [r for r in of_job.get(asked.joins, ()) if isinstance(r, StageStarted | StageEnded) and r.time_s >= joined_s]
    until_s = next((r.time_s for r in mine if isinstance(r, Ended)), None)
    return mine + [r for r in ran if until_s is None or r.time_s < until_s]


def _lane(asked: Submitted, records: Iterable[Record], last_s: float) -> Lane:  # noqa: C901 - one case each
    spans: list[Span] = []
    since_s, cores, stage = asked.time_s, asked.cores, ""
    kind: Kind = "pending"
    start_s: float | None = None
    state, reason = "pending", asked.reason

    def until(time_s: float) -> None:
        nonlocal since_s
        if time_s > since_s:
            spans.append(Span(kind, since_s, time_s, cores, stage))
            since_s = time_s

    for r in sorted(records, key=lambda record: (record.time_s, isinstance(record, StageStarted))):
        match r:
            case Started():
                until(r.time_s)
                kind, start_s, state = "held", r.time_s, "running"
                # only the first of the bag's jobs shows when the stage began
                if asked.shares and asked.keep is not Keep.AWAIT:
                    kind, stage = "running", "+".join(asked.stages)
            case Requeued():
                until(r.time_s)
                kind, stage, state, cores = "pending", "", "pending", asked.cores
            case Resized():
                until(r.time_s)
                cores = r.cores
            case StageStarted():
                until(r.time_s)
                kind, stage = "running", "+".join(r.stages)
            case StageEnded():
                until(r.time_s)
                kind, stage = "held", ""
            case Ended():
                if start_s is None and r.start_s is not None:
                    until(r.start_s)
                    kind, start_s = "held", r.start_s
                if asked.shares and kind == "held" and r.payload_start_s is not None and r.payload_start_s >= since_s:
                    until(r.payload_start_s)
                    kind, stage = "running", "+".join(asked.stages)
                until(r.time_s)
                return Lane(
                    *_what(asked),
                    start_s,
                    tuple(spans),
                    r.state.value,
                    r.reason or reason,
                    asked.joins,
                    _wait_over_s(asked),
                )
            case _:
                pass
    until(last_s)
    return Lane(*_what(asked), start_s, tuple(spans), state, reason, asked.joins, _wait_over_s(asked))


def _what(asked: Submitted) -> tuple[str, tuple[str, ...], int, float, float, float | None]:
    start_s = None if _is_kept(asked) else _wait_over_s(asked)
    return asked.job_id, asked.stages, asked.cores, asked.walltime_s, asked.time_s, start_s


def _is_kept(asked: Submitted) -> bool:
    return asked.keep is Keep.DEPENDENCY


def _wait_over_s(asked: Submitted) -> float | None:
    return None if asked.predicted_wait_s is None else asked.time_s + asked.predicted_wait_s


def _released_s(asked: Submitted, ended: Sequence[Ended], workflow: Workflow) -> float | None:
    """Return when the last predecessor of a job had ended; None if one has not, or did not complete."""
    follows = {b for name in asked.stages if (stage := workflow.stages.get(name)) for b in stage.after}
    released_s = asked.time_s
    for before in follows - set(asked.stages):
        ends_s = [r.time_s for r in ended if before in r.stages]
        if not ends_s:
            return None
        released_s = max(released_s, next((end_s for end_s in ends_s if end_s >= asked.time_s), released_s))
    return released_s


def _kept_back(lane: Lane, released_s: float | None, *, age_accrues: bool) -> Lane:
    """Divide the time before a job's start into time for which a dependency kept it back, and its wait."""
    first, *others = lane.spans or [None]
    if first is None or first.kind != "pending":
        return lane
    if released_s is None:
        return lane if lane.start_s is not None else replace(lane, spans=(replace(first, kind="kept"), *others))
    cut_s = min(released_s, first.end_s)  # a start may be earlier than the reported end that released it
    parts = (replace(first, kind="kept", end_s=cut_s), replace(first, begin_s=cut_s))
    free_s = released_s if lane.start_s is None else cut_s
    over_s = lane.predicted_wait_over_s
    if over_s is not None:
        over_s = max(over_s, free_s) if age_accrues else over_s + free_s - lane.submit_s
    spans = (*(part for part in parts if part.end_s > part.begin_s), *others)
    return replace(lane, spans=spans, predicted_start_s=over_s)

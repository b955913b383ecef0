"""Writes the events of a run, one line each."""

from __future__ import annotations

from asa.cli.notices import Notice
from asa.cli.screen import clock
from asa.records import (
    Cancelled,
    Deferred,
    Ended,
    Observed,
    Record,
    Requeued,
    Resized,
    Retrying,
    RunEnded,
    RunResumed,
    RunStarted,
    StageEnded,
    StageStarted,
    Started,
    Submitted,
)
from asa.units import format_duration


def event_line(record: Record) -> str | None:
    """Describe an event in one line, with its time; None if readers need not see it.

    Examples
    --------
    >>> event_line(StageEnded(time_s=0.0, run="r", stages=("merge",), job_id="7"))[21:]
    'merge: done'
    """
    words = _words(record)
    return None if words is None else _line(record.time_s, getattr(record, "stages", ()), words)


def notice_line(notice: Notice) -> str:
    """Describe a notice in one line, with its time.

    Examples
    --------
    >>> notice_line(Notice("released", 0.0, "job 7 is not on hold any more", ("merge",), "7"))[21:]
    'merge: job 7 is not on hold any more'
    """
    return _line(notice.time_s, notice.stages if notice.kind != "leftout" else (), notice.words)


def _line(time_s: float, stages: tuple[str, ...], text: str) -> str:
    whose = "+".join(stages) if len(stages) < 4 else f"the job of {len(stages)} stages"
    return f"{clock(time_s)}  {f'{whose}: ' if whose else ''}{text}"


def _words(record: Record) -> str | None:  # noqa: C901, PLR0911, PLR0912 - one case each
    match record:
        case RunStarted():
            return "the run begins"
        case RunResumed():
            return "the run goes on"
        case Retrying(reason=reason):
            return f"submitted again{_because(reason)}"
        case RunEnded(outcome=outcome, reason=reason):
            return f"the run {'was cancelled' if outcome == 'cancelled' else outcome}{_because(reason)}"
        case Submitted():
            return _submitted(record)
        case Deferred(reason=reason):
            return f"refused, to be submitted again{_because(reason)}"
        case Started(job_id=job_id):
            return f"job {job_id} has its cores"
        case Resized(job_id=job_id, cores=cores):
            return f"job {job_id} has {cores} {'core' if cores == 1 else 'cores'} from now on"
        case Requeued(job_id=job_id, reason=reason):
            return f"job {job_id} was put back into the queue{_because(reason)}"
        case Cancelled(job_id=job_id, reason=reason):
            return f"job {job_id} is cancelled{_because(reason)}"
        case Observed(bound="exact", wait_s=wait_s, predicted_wait_s=predicted_s):
            # the prediction, or a default where hardly any wait was known
            counted_on = f", {format_duration(predicted_s)} predicted" if predicted_s is not None else ""
            return f"waited {format_duration(wait_s)} in the queue{counted_on}"
        case StageStarted():
            return "runs"
        case StageEnded():
            return "done"
        case Ended(state=state, job_id=job_id, reason="NothingLeft") if state.value == "completed":
            return f"job {job_id} has completed its part"
        case Ended(state=state, job_id=job_id, reason=reason) if state.value != "completed":
            return f"job {job_id} ended: {state.value}{_because(reason)}"
    return None


def _submitted(record: Submitted) -> str:
    from asa.cli.kinds import asked_for

    again = " again" if record.resubmission else ""
    whose = f" to join job {record.runs_in}" if record.runs_in != record.job_id else ""
    return f"submitted{again} as job {record.job_id}{whose}, {asked_for(record)}{_because(record.reason)}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""

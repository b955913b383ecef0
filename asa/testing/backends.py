"""The contract of `asa.backend.Backend`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from asa.backend import (
    Adjustable,
    Backend,
    CancelsMany,
    Dependency,
    DependencyType,
    JobSpec,
    JobState,
    JobStatus,
    Shrinking,
    Step,
    Withdrawing,
)
from asa.elements import parse_array
from asa.errors import JobNotFoundError, SubmitRejectedError
from asa.outcome import JobOutcome, outcome_of


def check_backend(make: Callable[[], Backend], *, run_s: float = 3.0, at_once: bool = False) -> None:
    """Check that a backend fulfils the contract.

    Parameters
    ----------
    make
        Opens a backend on which a few jobs of one core start at once.
    run_s
        How long the short jobs of the check run; they ask for a hundred times as much. If walltimes are counted in
        minutes, give at least 10; else the job that must be killed at its walltime ends before that.
    at_once
        Run all checks at the same time, each on its own backend: for sites in real time.

    Raises
    ------
    AssertionError
        The backend violates the contract; the message says what was expected.
    """
    checks = (
        _runs_a_job,
        _tells_failures,
        _kills_at_the_limit,
        _keeps_dependencies,
        _refuses_hopeless_dependencies,
        _holds,
        _begins_late,
        _cancels,
        _awaits_tokens,
        _can_be_withdrawn,
        _finds_by_token,
        _runs_one_of_a_token,
        _runs_steps,
        _runs_arrays,
        _can_be_changed,
        _tells_its_condition,
        _refuses_the_impossible,
        _wakes_in_time,
    )
    if not at_once:
        for check in checks:
            check(make(), run_s)
        return
    with ThreadPoolExecutor(len(checks)) as threads:
        for done in [threads.submit(check, make(), run_s) for check in checks]:
            done.result()


def _spec(run_s: float, **changes: object) -> JobSpec:
    given: dict[str, object] = {
        "name": "check",
        "cores": 1,
        "walltime_s": 100 * run_s,
        "run_s": run_s,
        "command": f"sleep {run_s}",
        **changes,
    }
    return JobSpec(**given)  # type: ignore[arg-type]  # a check's own keywords


def _until(backend: Backend, job_id: str, done: Callable[[JobStatus], bool]) -> JobStatus:
    for _ in range(10_000):
        status = backend.status([job_id])[job_id]
        if done(status):
            return status
        backend.wait(backend.now() + 1.0)
    raise AssertionError(f"job {job_id} never came to what was waited for; last seen: {status}")


def _ended(status: JobStatus) -> bool:
    return status.state.is_final


def _runs_a_job(backend: Backend, run_s: float) -> None:
    before = backend.now()
    job_id = backend.submit(_spec(run_s))
    first = backend.status([job_id])[job_id]
    assert first.submit_s >= before, "the submission is dated by the backend's clock"
    status = _until(backend, job_id, _ended)
    assert status.state is JobState.COMPLETED, f"a job that exits 0 completes, not {status.state}"
    assert status.exit_code == 0, "its exit code is reported"
    times = (status.submit_s, status.eligible_s, status.start_s, status.end_s)
    assert None not in times, f"a completed job has all its times: {times}"
    known = [time for time in times if time is not None]
    assert known == sorted(known), f"submit <= eligible <= start <= end: {known}"
    assert known[-1] - known[-2] >= run_s - 1, "it ran as long as it should"
    assert backend.now() >= known[-1], "nothing ends in the future"
    assert backend.status([job_id])[job_id] == status, "an ended job does not change"
    backend.cancel(job_id)
    assert backend.status([job_id])[job_id] == status, "cancelling an ended job does nothing"


def _tells_failures(backend: Backend, run_s: float) -> None:
    status = _until(backend, backend.submit(_spec(run_s, command="exit 3", exit_code=3)), _ended)
    assert status.state is JobState.FAILED, "a job that exits 3 failed"
    assert status.exit_code == 3, "its exit code is reported"


def _kills_at_the_limit(backend: Backend, run_s: float) -> None:
    status = _until(backend, backend.submit(_spec(10 * run_s, walltime_s=run_s)), _ended)
    assert status.state is JobState.TIMEOUT, "a job that runs over its walltime is killed and said to be timed out"


def _keeps_dependencies(backend: Backend, run_s: float) -> None:
    began_s, first = backend.now(), backend.submit(_spec(run_s))
    wanted = [
        Dependency(first),
        Dependency(first, DependencyType.AFTERANY),
        Dependency(first, DependencyType.AFTER, delay_s=2 * run_s),
    ]
    known = [d for d in wanted if d.type in backend.capabilities.dependency_types]
    later = {d: backend.submit(_spec(run_s, dependencies=(d,))) for d in known}
    waiting = backend.status(later.values())
    if backend.now() - began_s < run_s:  # on a busy computer it may have ended by now
        assert all(s.state is JobState.PENDING for s in waiting.values()), "a job with an unmet dependency is pending"
        assert all(s.eligible_s is None for s in waiting.values()), "a job with an unmet dependency is not eligible"
    before = _until(backend, first, _ended)
    assert before.start_s is not None
    assert before.end_s is not None
    for dependency, job_id in later.items():
        status = _until(backend, job_id, _ended)
        assert status.state is JobState.COMPLETED, f"a job whose {dependency.type} is met runs"
        assert status.start_s is not None
        earliest = before.end_s
        if dependency.type is DependencyType.AFTER:
            earliest = before.start_s + dependency.delay_s
        assert status.start_s >= earliest, f"{dependency.type} is kept: {status.start_s} >= {earliest}"


def _refuses_hopeless_dependencies(backend: Backend, run_s: float) -> None:
    failing = backend.submit(_spec(run_s, command="exit 1", exit_code=1))
    hopeless = backend.submit(_spec(run_s, dependencies=(Dependency(failing),)))
    anyway = backend.submit(_spec(run_s, dependencies=(Dependency(failing, DependencyType.AFTERANY),)))
    _until(backend, failing, _ended)
    assert _until(backend, anyway, _ended).state is JobState.COMPLETED, "afterany is met by a failure"
    status = _until(backend, hopeless, lambda s: _ended(s) or s.reason == "DependencyNeverSatisfied")
    assert status.start_s is None, "a job whose afterok failed never starts"
    backend.cancel(hopeless)
    assert _until(backend, hopeless, _ended).state is JobState.CANCELLED


def _holds(backend: Backend, run_s: float) -> None:
    job_id = backend.submit(_spec(run_s, held=True))
    backend.wait(backend.now() + 2 * run_s)
    assert backend.status([job_id])[job_id].state is JobState.PENDING, "a held job does not start"
    backend.release(job_id)
    assert _until(backend, job_id, _ended).state is JobState.COMPLETED, "a released job runs"


def _begins_late(backend: Backend, run_s: float) -> None:
    if not backend.capabilities.begin_time:
        return
    begin = backend.now() + 2 * run_s
    status = _until(backend, backend.submit(_spec(run_s, begin_s=begin)), _ended)
    assert status.start_s is not None
    assert status.start_s >= begin, "a job does not begin before its begin time"


def _cancels(backend: Backend, run_s: float) -> None:
    pending = backend.submit(_spec(run_s, held=True))
    backend.cancel(pending)
    status = _until(backend, pending, _ended)
    assert status.state is JobState.CANCELLED, "a cancelled pending job is cancelled"
    assert status.start_s is None, "it never started"
    running = backend.submit(_spec(100 * run_s, walltime_s=1000 * run_s))
    _until(backend, running, lambda s: s.state is JobState.RUNNING)
    backend.cancel(running)
    status = _until(backend, running, _ended)
    assert status.state is JobState.CANCELLED, "a cancelled running job is cancelled"
    assert status.end_s is not None, "when it ended is reported"
    if isinstance(backend, CancelsMany):
        several = [backend.submit(_spec(run_s, held=True)) for _ in range(3)]
        left = backend.cancel_all([*several, "no-such-job"])
        assert left.keys() == {"no-such-job"}, "of several jobs those are named that were not cancelled"
        assert isinstance(left["no-such-job"], JobNotFoundError), "with why"
        ends = [_until(backend, job_id, _ended).state for job_id in several]
        assert ends == [JobState.CANCELLED] * 3, "and the others are cancelled"


def _awaits_tokens(backend: Backend, run_s: float) -> None:
    waiting = backend.submit(_spec(run_s, awaits=("check/first",)))
    status = _until(backend, waiting, lambda s: s.state is JobState.RUNNING)
    assert status.payload_start_s is None, "an allocation may begin before its tokens are posted, its payload not"
    first = backend.submit(_spec(2 * run_s, posts=("check/first",)))
    posted = _until(backend, first, _ended)
    status = _until(backend, waiting, _ended)
    assert status.state is JobState.COMPLETED, "the payload runs once its tokens are posted"
    assert status.payload_start_s is not None
    assert posted.end_s is not None
    # a completion marker is written just before the site's end time
    assert status.payload_start_s >= posted.end_s - 3, "the payload begins after what it awaited ended"


def _finds_by_token(backend: Backend, run_s: float) -> None:
    token = f"find-{secrets.token_hex(6)}"
    assert backend.find([token]) == {token: []}, "a token that no job has finds nothing"
    job_id = backend.submit(_spec(run_s, token=token))
    [found] = _find_until(backend, token, 1)
    assert found.job_id == job_id, "a job is found by its token"
    status = _until(backend, job_id, _ended)
    assert status.state is JobState.COMPLETED
    [found] = _find_until(backend, token, 1)
    assert (found.job_id, found.state) == (job_id, JobState.COMPLETED), "also once it has ended"


def _find_until(backend: Backend, token: str, count: int) -> list[JobStatus]:
    """Look for a token's jobs until all are listed, which may take a site a moment."""
    for _ in range(60):
        if len(statuses := backend.find([token])[token]) >= count:
            break
        backend.wait(backend.now() + 1.0)
    return statuses


def _runs_one_of_a_token(backend: Backend, run_s: float) -> None:
    token = f"duplicate-{secrets.token_hex(6)}"
    both = [backend.submit(_spec(run_s, token=token)) for _ in range(2)]
    ended = [_until(backend, job_id, _ended) for job_id in both]
    states = sorted(status.state for status in ended)
    assert states == [JobState.COMPLETED, JobState.FAILED], f"of two jobs of one token one runs its payload: {states}"
    statuses = _find_until(backend, token, 2)
    assert {status.job_id for status in statuses} == set(both), "both are found"
    assert statuses[0].state is JobState.COMPLETED, "first the one that ran its payload"
    assert statuses[1].reason == "Twin", f"the other says why it did not: {statuses[1].reason}"


def _runs_steps(backend: Backend, run_s: float) -> None:
    steps = (Step("one", f"sleep {run_s / 2}"), Step("two", f"sleep {run_s / 2}"))
    status = _until(backend, backend.submit(_spec(run_s, command="", steps=steps)), _ended)
    assert status.state is JobState.COMPLETED, "a job of several steps completes when all have"
    reported = status.steps
    assert [step.name for step in reported] in ([], ["one", "two"]), (
        f"its steps are reported in order, if at all: {reported}"
    )
    times = [time for step in reported for time in (step.start_s, step.end_s) if time is not None]
    assert times == sorted(times), f"they ran one after the other: {reported}"
    broken = (Step("one", "exit 5"), Step("two", "sleep 0"))
    status = _until(backend, backend.submit(_spec(run_s, command="", steps=broken, exit_code=5)), _ended)
    assert (status.state, status.exit_code) == (JobState.FAILED, 5), "a step that fails ends the job"
    assert "two" not in [step.name for step in status.steps], "and no further step begins"


def _runs_arrays(backend: Backend, run_s: float) -> None:
    """Check job arrays, if there are any: each element runs once and is reported; the rest can be another array."""
    if not backend.capabilities.arrays:
        return
    array, token = parse_array("1-5:2%2"), secrets.token_hex(6)
    fails = f'[ "$SLURM_ARRAY_TASK_ID" -ne 3 ] || exit 4; sleep {run_s}'
    spec = _spec(run_s, command=fails, array=array, token=f"{token}-0", posts=(f"{token}/a",), bag=token)
    awaiting = backend.submit(_spec(run_s, awaits=(f"{token}/a",), walltime_s=1000 * run_s))
    job_id = backend.submit(spec)
    status = _until(backend, job_id, _ended)
    assert status.state is JobState.FAILED, "an array fails if an element does"
    assert status.exit_code == 4, "with what that exited with"
    reported = status.elements
    assert reported is not None, "a job array's status tells of its elements"
    assert (str(reported.completed), str(reported.failed), str(reported.running)) == ("1,5", "3", ""), (
        "and how each ended"
    )
    [ended] = reported.ended
    assert (ended.state, ended.exit_code) == (JobState.FAILED, 4)
    assert reported.ran_s >= 2 * run_s, "what it ran is what its elements did"
    [found] = backend.find([f"{token}-0"])[f"{token}-0"]
    assert (found.job_id, found.elements) == (job_id, reported), "it is found by its token"
    assert backend.status([awaiting])[awaiting].payload_start_s is None, "what awaits the whole has not begun"
    rest = replace(spec, command=f"sleep {run_s}", array=array.only(parse_array("3").elements), token=f"{token}-1")
    again = _until(backend, backend.submit(rest), _ended)
    assert again.state is JobState.COMPLETED, "elements may be asked for again"
    assert again.elements is not None, "and are told of"
    assert str(again.elements.completed) == "3"
    assert _until(backend, awaiting, _ended).state is JobState.COMPLETED, "when the last completes, all is posted"


def _can_be_changed(backend: Backend, run_s: float) -> None:
    if not isinstance(backend, Adjustable):
        return
    job_id = backend.submit(_spec(run_s, held=True))
    backend.change_walltime(job_id, 50 * run_s)
    backend.release(job_id)
    assert _until(backend, job_id, _ended).state is JobState.COMPLETED, "a job whose limit was changed runs"
    _is_unknown(lambda: backend.change_walltime("no-such-job", 60.0))
    if isinstance(backend, Shrinking):
        _is_unknown(lambda: backend.shrink("no-such-job", 1))


def _can_be_withdrawn(backend: Backend, run_s: float) -> None:
    if not isinstance(backend, Withdrawing):
        return
    running, early, held = (f"check-{secrets.token_hex(6)}" for _ in range(3))
    post = f"{running}/x"
    backend.submit(_spec(run_s, posts=(post,)))
    job_id = backend.submit(_spec(5 * run_s, token=running, awaits=(post,)))
    _until(backend, job_id, lambda status: status.payload_start_s is not None)
    assert not backend.withdraw(job_id), "a job whose payload has begun is not withdrawn"
    kept_back = backend.submit(_spec(run_s, token=held, held=True))
    idle = backend.submit(_spec(run_s, token=early, awaits=(f"{early}/x",)))
    for other in (kept_back, idle):
        assert backend.withdraw(other), "one whose payload has not begun is"
        assert backend.withdraw(other), "and to withdraw it once more does nothing"
    backend.release(kept_back)
    status = _until(backend, kept_back, _ended)
    how = (status.state, outcome_of(status))
    assert how == (JobState.FAILED, JobOutcome.GAVE_BACK), f"it ends without beginning its payload, not so: {status}"
    backend.cancel(idle)
    assert _until(backend, idle, _ended).state is JobState.CANCELLED, "it can be cancelled"
    assert _until(backend, job_id, _ended).state is JobState.COMPLETED, "and what had begun completes"
    _is_unknown(lambda: backend.withdraw("no-such-job"))


def _tells_its_condition(backend: Backend, run_s: float) -> None:
    job_id = backend.submit(_spec(run_s))
    _until(backend, job_id, _ended)
    condition = backend.condition
    assert not condition.trouble, "where all is well, no trouble is reported"
    assert condition.heard_s <= backend.now() + 1, "what was heard was not heard in the future"
    assert condition.calls >= 0, "calls are counted"


def _is_unknown(ask: Callable[[], object]) -> None:
    try:
        ask()
    except JobNotFoundError:
        return
    raise AssertionError("an unknown job is said to be unknown")


def _refuses_the_impossible(backend: Backend, run_s: float) -> None:
    for spec in (_spec(run_s, cores=backend.capabilities.max_cores + 1), _spec(run_s, walltime_s=0.0)):
        try:
            backend.submit(spec)
        except SubmitRejectedError:
            continue
        raise AssertionError(f"a job that can never run is refused: {spec}")
    for ask in (lambda: backend.status(["no-such-job"]), lambda: backend.cancel("no-such-job")):
        _is_unknown(ask)


def _wakes_in_time(backend: Backend, run_s: float) -> None:
    until = backend.now() + run_s
    assert list(backend.wait(until)) == [], "without jobs nothing changes"
    assert backend.now() >= until, "a wait lasts until its time"
    job_id = backend.submit(_spec(run_s))
    changed: set[str] = set()
    while not _ended(backend.status([job_id])[job_id]):
        changed |= {status.job_id for status in backend.wait(backend.now() + 100 * run_s)}
    assert changed == {job_id}, "a wait returns the jobs that changed"

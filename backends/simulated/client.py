"""A client's job inside the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.backend import DependencyType, JobState

from .table import NEVER, UNSTARTED
from .together import Work


@dataclass(frozen=True, slots=True)
class Need:
    """An unmet dependency of a client's job: the job that it needs, the kind of dependency, and a delay in seconds."""

    on: int
    type: DependencyType  # the type of dependency on that job
    delay: int = 0
    or_end: bool = False  # whether its end alone is enough, before the delay is over


@dataclass(slots=True)
class ClientJob:
    """A job of the client inside the engine; times in whole seconds."""

    index: int
    cores: int  # requested cores; and duration of the payload
    request: int
    run: int
    exit_code: int
    submit: int
    needs: tuple[Need, ...]  # reasons to keep it back: dependencies, a begin time, a hold
    begin: int
    held: bool
    awaits: frozenset[str]  # tokens whose completion markers its payload waits for; `posts`: tokens of its own markers
    posts: frozenset[str]
    state: JobState = JobState.PENDING  # state as seen by the client
    eligible: int = UNSTARTED
    start: int = UNSTARTED
    payload_start: int = UNSTARTED
    end: int = UNSTARTED
    planned_end: int = NEVER  # end if nothing else happens; NEVER if that is not known
    launched: int = UNSTARTED  # number of jobs started before it; UNSTARTED until it starts
    reason: str = ""  # reason of its wait, or of its end
    doomed: bool = field(default=False)  # whether its dependency can never be met
    is_local: bool = False  # whether it runs on the client's machine and uses no cores of the simulated one
    unended: int = 0  # number of jobs whose ends it still waits for
    # for each change: second of the payload, cores from then on, and whether it waits for them or gives surplus back
    widths: tuple[tuple[int, int, bool], ...] = ()
    place: int = 0  # number of past entries of `widths`
    # for each wait for more cores: second of the payload, and duration in seconds
    stood: tuple[tuple[int, int], ...] = ()
    stands: int = UNSTARTED  # time since which it waits for more cores; UNSTARTED while it does not
    work: Work | None = None  # work shared with other jobs; None if it works alone
    saves: int = UNSTARTED  # seconds that it takes to save its state; UNSTARTED if it is not signalled
    signalled: int = UNSTARTED  # time of the signal, past or future
    skipped: int = 0  # seconds of its work at the beginning that another job has already done

    @property
    def payload_end(self) -> int:
        """Return the end of the payload if nothing else happens; NEVER if it waits for something."""
        return NEVER if self.stands != UNSTARTED else self.moment(self.run)

    @property
    def will_time_out(self) -> bool:
        """Whether the payload needs longer than the allocation lasts."""
        return self.payload_end > self.start + self.request

    def done(self, now: int) -> int:
        """Return the number of done seconds of the payload, once it has begun."""
        until = now if self.stands == UNSTARTED else self.stands
        return until - self.payload_start - sum(lasted for _, lasted in self.stood)

    def moment(self, second: int, *, before: bool = False) -> int:
        """Return the time at which the payload reaches a second: before or after a standstill at that second."""
        if self.payload_start == UNSTARTED:
            return NEVER
        if self.stands != UNSTARTED and (second > (there := self.done(0)) or (second == there and not before)):
            return NEVER
        stood = sum(lasted for at, lasted in self.stood if at < second or (at == second and not before))
        return self.payload_start + second + stood

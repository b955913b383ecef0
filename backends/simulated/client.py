"""A client's job inside the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from asa.backend import DependencyType, JobState

from .table import NEVER, UNSTARTED
from .together import Work


@dataclass(frozen=True, slots=True)
class Need:
    """An unmet dependency of a client's job: on which job, for what of it, with what delay in seconds."""

    on: int
    type: DependencyType  # what is awaited of it
    delay: int = 0
    or_end: bool = False  # whether its end is enough, before the delay is over


@dataclass(slots=True)
class ClientJob:
    """A job of the client inside the engine; times in whole seconds."""

    index: int
    cores: int  # what it asks for, and how long its payload takes
    request: int
    run: int
    exit_code: int
    submit: int
    needs: tuple[Need, ...]  # what keeps it back: dependencies, a begin time, a hold
    begin: int
    held: bool
    awaits: frozenset[str]  # tokens that its payload waits for, and those of its completion markers
    posts: frozenset[str]
    state: JobState = JobState.PENDING  # as the client may see it
    eligible: int = UNSTARTED
    start: int = UNSTARTED
    payload_start: int = UNSTARTED
    end: int = UNSTARTED
    planned_end: int = NEVER  # when it ends if nothing more happens; NEVER if that is not known
    launched: int = UNSTARTED  # how many were started before it; UNSTARTED until it was
    reason: str = ""  # why it waits, or how it ended
    doomed: bool = field(default=False)  # whether its dependency can never be met
    is_local: bool = False  # whether it runs where the client is: it takes none of the machine's cores
    unended: int = 0  # jobs that have not ended and whose end it waits for
    # each: a second of the payload, the cores from then on, and whether it waits for these or gives others back
    widths: tuple[tuple[int, int, bool], ...] = ()
    place: int = 0  # the number of `widths` that are past
    # each: at which second of the payload it had to wait for more cores, and for how many seconds
    stood: tuple[tuple[int, int], ...] = ()
    stands: int = UNSTARTED  # since when it waits for more cores; UNSTARTED while it does not
    work: Work | None = None  # that it does together with other jobs; None if it works alone
    saves: int = UNSTARTED  # seconds that it takes to save its state; UNSTARTED if it is not signalled
    signalled: int = UNSTARTED  # when it is or was
    skipped: int = 0  # seconds of its work at the beginning that another job has done

    @property
    def payload_end(self) -> int:
        """When the payload ends if nothing more happens; NEVER if it waits for something."""
        return NEVER if self.stands != UNSTARTED else self.moment(self.run)

    @property
    def will_time_out(self) -> bool:
        """The payload would need longer than the allocation lasts."""
        return self.payload_end > self.start + self.request

    def done(self, now: int) -> int:
        """Count the seconds of the payload that are done, once it has begun."""
        until = now if self.stands == UNSTARTED else self.stands
        return until - self.payload_start - sum(lasted for _, lasted in self.stood)

    def moment(self, second: int, *, before: bool = False) -> int:
        """When so many seconds of the payload were done, or will be: after it stood still there, or before it did."""
        if self.payload_start == UNSTARTED:
            return NEVER
        if self.stands != UNSTARTED and (second > (there := self.done(0)) or (second == there and not before)):
            return NEVER
        stood = sum(lasted for at, lasted in self.stood if at < second or (at == second and not before))
        return self.payload_start + second + stood

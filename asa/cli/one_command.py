"""The single command whose shapes `asa walltimes --shape` compares, read from options as a workflow of one stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from asa.core.late import dataclass
from asa.errors import InputError
from asa.units import MAX_CORES

if TYPE_CHECKING:
    from asa.shapes import RunAt, Scaling
    from asa.workflow import Workflow

CommandCoresOption = Annotated[
    str | None,
    typer.Option(
        help="With --shape, for a command without a workflow file: the numbers of cores to choose from.",
        metavar="N,N...|N..N",
    ),
]
ExpectedOption = Annotated[
    str | None,
    typer.Option(help="The run times of the command, for some of these numbers of cores.", metavar="N=TIME,..."),
]
ScalingOption = Annotated[
    str | None,
    typer.Option(
        help="The law by which run times on other numbers of cores follow: amdahl, amdahl=0.95, downey, tasks. "
        "[default: none]",
        metavar="LAW",
        show_default=False,
    ),
]
CommandWalltimeOption = Annotated[
    str | None,
    typer.Option(
        help="Its walltime on --now cores, or on the first number of cores with a known run time, and in proportion "
        "on others; or N=TIME,... [default: 1.2 times the run time]",
        metavar="TIME",
        show_default=False,
    ),
]
NowOption = Annotated[
    int | None, typer.Option(help="The number of cores that it asks for now.", metavar="N", min=1, max=MAX_CORES)
]
PlaceOption = Annotated[
    str | None,
    typer.Option(
        help="With --shape: the partition of stages that name none; for a command, several are compared.",
        metavar="NAME[,NAME...]",
    ),
]

NAME = "command"

_SAFETY = 1.2  # the default walltime is this times the run time, rounded up


@dataclass(frozen=True, slots=True)
class Command:
    """The options that describe a command; None for those not given."""

    cores: str | None
    expected: str | None
    scaling: str | None
    walltime: str | None
    now: int | None
    partition: str | None

    @property
    def first(self) -> str | None:
        """Name one of the given options, if any; --partition is left out, since workflows take it, too."""
        given = (("cores", self.cores), ("expected", self.expected), ("scaling", self.scaling),
                 ("walltime", self.walltime), ("now", self.now))  # fmt: skip
        return next((f"--{name}" for name, value in given if value is not None), None)

    def flow(self) -> Workflow:
        """Make a workflow of the command: one stage.

        Raises `InputError`: an option is invalid, contradicts another, or no run time is known.
        """
        from asa.spec.moldable import Expectation
        from asa.spec.stages import fields_of
        from asa.workflow import Stage, Workflow

        widths = self._widths()
        points, law = self._points(widths), self._law()
        own = self._own(widths, points, law)
        partitions = [part.strip() for part in self.partition.split(",")] if self.partition is not None else [""]
        given = {
            "name": NAME,
            "cores": [own, *(width for width in widths if width != own)],
            "walltime": self._walltimes(points),
            "expected": Expectation(until={point.width: point.run_s for point in points}),
            "scaling": law,
            "partition": list(dict.fromkeys(partitions)),
        }
        with _at("--walltime"):
            return Workflow(NAME, [Stage(**fields_of(given, where="the command"))])

    def _widths(self) -> list[int]:
        from asa.spec.moldable import distinct, several

        if self.cores is None:
            hint = "Name the cores that the command may have, as in --cores 7,14,28, or a workflow file."
            raise InputError("is missing", where="--cores", hint=hint)
        with _at("--cores"):
            given = several(self.cores) if ".." in self.cores else self.cores.split(",")
            widths = [_width(str(width).strip()) for width in given]
            return list(distinct(several(widths)))

    def _points(self, widths: Sequence[int]) -> list[RunAt]:
        """Read the run times by width; if no widths are given, there is only one."""
        from asa.shapes import RunAt

        if self.expected is None:
            hint = "Give its run time on some of these numbers of cores, as in --expected 7=6h,28=95min."
            raise InputError("is missing: no run time is known", where="--expected", hint=hint)
        known = _by_width(self.expected, "--expected", widths)
        if isinstance(known, float):
            if len(widths) > 1:
                hint = "Give the number of cores of each, as in --expected 7=6h,28=95min."
                raise InputError(
                    f"names one run time for {len(widths)} numbers of cores", where="--expected", hint=hint
                )
            known = {widths[0]: known}
        return [RunAt(width, run_s) for width, run_s in sorted(known.items())]

    def _law(self) -> Scaling | None:
        return None if self.scaling is None else law_in(self.scaling)

    def _own(self, widths: Sequence[int], points: Sequence[RunAt], law: Scaling | None) -> int:
        """Return the width that the walltime is for: the present one, else the first with a known run time."""
        from asa.shapes import run_time_at

        if self.now is not None and self.now not in widths:
            raise InputError(f"{self.now} is not one of {', '.join(map(str, widths))}", where="--now",
                             hint="Name it among the --cores.")  # fmt: skip
        choice = widths if self.now is None else [self.now]
        own = next((width for width in choice if run_time_at(width, points, law) is not None), None)
        if own is None:
            hint = f"Give it with --expected {choice[0]}=TIME, or give a law with --scaling."
            raise InputError(f"no run time is known on {choice[0]} cores", where="--expected", hint=hint)
        return own

    def _walltimes(self, points: Sequence[RunAt]) -> float | Mapping[int, float]:
        from asa.units import round_walltime

        if self.walltime is None:
            return {point.width: round_walltime(_SAFETY * point.run_s) for point in points}
        return _by_width(self.walltime, "--walltime", self._widths())


def law_in(text: str) -> Scaling:
    """Read a scaling law in the form of ``--scaling``: ``amdahl``, ``amdahl=0.95``, ``downey=60,0.5``."""
    from asa.spec.moldable import read_scaling

    law, sign, values = text.partition("=")
    with _at("--scaling"):
        if not sign:
            return read_scaling(law.strip())
        numbers = [_number(value) for value in values.split(",")]
        if law.strip() != "downey":
            return read_scaling({law.strip(): numbers[0] if len(numbers) == 1 else numbers})
        return read_scaling({"downey": dict(zip(("parallelism", "variance"), numbers, strict=False))})


def _by_width(text: str, option: str, widths: Sequence[int]) -> float | dict[int, float]:
    """Read one time, or a time for each width, as in ``7=6h,28=95min``."""
    from asa.units import parse_duration

    times_s: dict[int, float] = {}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    with _at(option):
        for part in parts:
            width, sign, time = part.rpartition("=")
            seconds = parse_duration(time)
            if not seconds > 0:
                raise InputError(f"{part!r} is not a duration", hint="Give a positive duration, as in 95min.")
            if not sign and len(parts) == 1:
                return seconds
            if not sign:
                raise InputError(f"{part!r} does not say on how many cores", hint=f"Write it as {widths[0]}={time}.")
            if (at := _width(width.strip())) in times_s:
                raise InputError(f"names {at} cores twice", hint="Name each once.")
            if at not in widths:
                raise InputError(
                    f"names {at} cores, which are none of {', '.join(map(str, widths))}",
                    hint="Name them among the --cores, too, or leave them out.",
                )
            times_s[at] = seconds
        if not times_s:
            raise InputError("names nothing", hint="Write it as in 7=6h,28=95min.")
    return times_s


def _width(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_CORES)) and 1 <= int(text) <= MAX_CORES):
        raise InputError(f"{text!r} is not a number of cores", hint=f"Give 1 to {MAX_CORES:,}.")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number", hint="Write it as in amdahl=0.95.") from None


@contextmanager
def _at(option: str) -> Iterator[None]:
    """Add the option to an error."""
    try:
        yield
    except InputError as error:
        raise InputError(error.message, where=option, hint=error.hint) from error

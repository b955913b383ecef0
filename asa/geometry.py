"""The class of a job, by which estimates of queue waits are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.core.late import dataclass
from asa.errors import InputError

if TYPE_CHECKING:  # most commands do not need numpy
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

__all__ = ["JobGeometry", "size_class", "walltime_class"]


def size_class(cores: ArrayLike) -> NDArray[np.int64]:
    """Return classes of widths: powers of two, rounded up, so that 65 to 128 cores are class 7.

    Parameters
    ----------
    cores
        Numbers of cores, each at least 1.

    Returns
    -------
    ndarray of int
        Classes, in the same shape.
    """
    import numpy as np  # noqa: PLC0415 - as above

    return np.ceil(np.log2(cores)).astype(np.int64)


def walltime_class(walltime_s: ArrayLike) -> NDArray[np.int64]:
    """Return classes of requested walltimes: half powers of two of seconds, from one second on.

    Parameters
    ----------
    walltime_s
        Seconds.

    Returns
    -------
    ndarray of int
        ``round(2 log2(walltime_s))``, in the same shape.
    """
    import numpy as np  # noqa: PLC0415 - as above

    return np.round(2 * np.log2(np.maximum(walltime_s, 1.0))).astype(np.int64)


@dataclass(frozen=True, slots=True, order=True)
class JobGeometry:
    """A class of jobs that a queue treats alike: by system and partition, width and walltime.

    Widths and walltimes are in classes, because a queue does not distinguish 110 cores from 112, and an estimator that
    never sees a geometry twice learns nothing. Cores are rounded up to powers of two, so that 28, 56, 112, 160, 320 and
    640 cores (Section 4.3 of the paper) are six classes; walltimes are rounded to half powers of two.

    Parameters
    ----------
    size_class
        ``ceil(log2(cores))``.
    walltime_class
        ``round(2 log2(walltime in seconds))``.
    system, partition
        Where the job is sent; any text, may be empty.

    Examples
    --------
    >>> JobGeometry.of(cores=112, walltime_s=3600, system="hpc2n")
    JobGeometry(size_class=7, walltime_class=24, system='hpc2n', partition='')
    """

    size_class: int
    walltime_class: int
    system: str = ""
    partition: str = ""

    @classmethod
    def of(cls, *, cores: int, walltime_s: float, system: str = "", partition: str = "") -> JobGeometry:
        """Classify a job.

        Parameters
        ----------
        cores
            Cores that the job asks for.
        walltime_s
            Requested walltime in seconds.
        system, partition
            Where it is sent.

        Raises
        ------
        InputError
            Fewer than one core, or no walltime.
        """
        if cores < 1 or not walltime_s > 0:
            raise InputError(
                f"a job of {cores} cores for {walltime_s} s has no geometry",
                hint="Ask for at least 1 core and 1 s.",
            )
        return cls(int(size_class(cores)), int(walltime_class(walltime_s)), system, partition)

    def label(self) -> str:
        """Describe the geometry in words, as in ``hpc2n 65-128 cores, about 1h00m``."""
        from asa.units import format_duration  # noqa: PLC0415 - only for people

        high = 2**self.size_class
        low = high // 2 + 1 if self.size_class else 1
        width = f"{low}-{high}" if low < high else f"{high}"
        place = " ".join(part for part in (self.system, self.partition) if part)
        return f"{place} {width} cores, about {format_duration(2 ** (self.walltime_class / 2))}".strip()

"""The resources of a job of Snakemake, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from asa.errors import InputError

_MIN_MEMORY_MB: Final = 1000  # Snakemake's default for jobs with small inputs
_UNKNOWN: Final = "<TBD>"  # of a resource that depends on inputs which do not exist yet


class JobResources:
    """The resources of a job. Those that are not known before its inputs exist are left out.

    `name`: of the job's rule, for messages. `values`: by name. `threads`: of the job.
    """

    def __init__(self, name: str, values: Mapping[str, Any], threads: int = 1) -> None:
        self.name, self.threads = name, max(threads, 1)
        self._values = values

    @classmethod
    def of_job(cls, job: Any, name: str) -> JobResources:
        """Return those of a job of Snakemake, or of a group."""
        had = getattr(job, "_resources", None)
        values: dict[str, Any] = dict(job.resources.items())
        if job.is_group() and had is None:  # else Snakemake would keep the values that are unknown so far
            job._resources = None  # noqa: SLF001
        resources = cls(name, values)
        resources.threads = max(int(resources.number("_cores") or 1), 1)
        return resources

    def has(self, name: str) -> bool:
        """Whether the job asks for some of it."""
        return bool(self.text(name)) and self.text(name) != "0"

    def number(self, *names: str) -> float | None:
        """Return the first number that is known under these names.

        Raises `InputError`: it is infinite, or not a number.
        """
        for name in names:
            value = self._values.get(name)
            if isinstance(value, bool) or value is None:
                continue
            try:
                number = float(value)
            except (TypeError, ValueError):
                continue  # such as "<TBD>"
            except OverflowError:
                number = math.inf
            if not math.isfinite(number):
                hint = "Give a number, or leave it out."
                raise InputError(f"{name} is {value!r:.40}, which is no amount", where=f"rule {self.name}", hint=hint)
            return number
        return None

    def count(self, *names: str) -> int:
        """Return the first number of these names; 0 if there is none."""
        return max(int(self.number(*names) or 0), 0)

    def text(self, name: str) -> str:
        """Return a resource as a text; empty if it is not known."""
        value = self._values.get(name)
        words = "" if value is None or value is False else str(value)
        return "" if words == _UNKNOWN else words.strip()

    def memory_mb(self, name: str) -> int:
        """Return an amount of memory; of one that depends on inputs, what Snakemake asks for at least."""
        known = self.number(name)
        return _MIN_MEMORY_MB if known is None and self._values.get(name) is not None else int(known or 0)

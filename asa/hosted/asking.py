"""What a host's job asks for, in options of sbatch, and the stage that is made of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from asa.backend import partition_of
from asa.hosted.expected import Expectations
from asa.hosted.graph import HostJob
from asa.requests import SIZES, come_to
from asa.requests.directives import Directive, by_name
from asa.workflow import Stage


@dataclass(frozen=True, slots=True)
class HostRequest:
    """What a job asks for, and where it is sent.

    `size`, `options`: options of sbatch, those that say how large the job is and the others.
    `walltime_s`: what the workflow gives; None if it gives none.
    """

    size: tuple[str, ...]
    options: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    reservation: str = ""
    walltime_s: float | None = None

    @classmethod
    def of(cls, given: Iterable[Directive], *, partition: str = "", account: str = "", clusters: str = "") -> Self:
        """Return the request of options; of those that are given several times the last one holds.

        `partition`, `account`, `clusters`: where the job is sent, unless an option says it.
        """
        named = by_name(given)

        def last(name: str, otherwise: str) -> str:
            option = named.pop(name, None)
            return otherwise if option is None else str(option.value)

        partition = partition_of(last("clusters", clusters), last("partition", partition))
        account = last("account", account)
        size, options = (
            tuple(str(option) for name, option in named.items() if (name in SIZES) is is_size)
            for is_size in (True, False)
        )
        return cls(size, options, partition, account)

    def stage(
        self,
        node: HostJob,
        name: str,
        command: str,
        *,
        after: tuple[str, ...],
        expected: Expectations,
        longer_s: float | None = None,
    ) -> Stage:
        """Return the stage of the job; its walltime and run time are learned where the workflow gives none.

        `longer_s`: what it is to get in that case, since it has run out of time; None if it has not.
        """
        partition = expected.site.name_of(self.partition)
        limit_s = expected.site.limits(partition).max_walltime_s
        max_s = math.inf if limit_s is None else limit_s
        given_s = self.walltime_s
        if given_s is None and longer_s is not None:
            given_s = min(longer_s, max_s)
        cores = come_to(self.size, self.options).cores
        walltime_s, run_s, is_default = expected.of(node.kind, cores, given_s, max_s)
        return Stage(
            name,
            walltime_s=walltime_s,
            expected_run_s=run_s,
            assumes_walltime=is_default,
            after=after,
            command=command,
            partition=partition,
            account=self.account,
            reservation=self.reservation,
            comment=node.label,
            request=self.size,
            options=self.options,
        )


def upper_bound(jobs: object) -> int | None:
    """Return a host's upper bound of jobs at a time; None if it is none, as the huge number that means no bound."""
    return jobs if isinstance(jobs, int) and 0 < jobs < 1 << 31 else None

"""A twin as a simulated site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from asa.backends.simulated.cores.general import GeneralCore
from asa.backends.simulated.engine import Engine
from asa.backends.simulated.machine import Machine
from asa.backends.simulated.site import Partition, SimulatedBackend, SimulatedSite
from asa.backends.simulated.swf import Trace
from asa.backends.simulated.table import JobTable

from asa.backend import Capabilities
from asa.core.parallel import Progress, silent
from asa.errors import InputError

from .model import Twin
from .queueing import engine_of

if TYPE_CHECKING:
    from .making import Made

_TYPICAL = "typical"
_MONTHS_S = 183 * 86_400


class TwinSite(SimulatedSite):
    """A simulated copy of a real site: the folder that `asa twin` made. Runs begin at times of its log.

    Parameters
    ----------
    system
        Not used: there are no systems by name.
    twin
        The twin, or its folder.
    partition
        The default partition; the site's if not given.
    user
        The user who submits jobs, whose fair share applies: a user's number; ``new`` for a user without past jobs; or
        ``typical`` for the user who submitted last before each start. By default the user who made the twin, else
        typical.
    settings
        Of `SimulatedSite`: poll_s, seed, shrink, grow, age_accrues (for another rule than the site's).
    """

    def __init__(
        self,
        system: str | None = None,
        *,
        twin: Twin | str | Path | None = None,
        partition: str = "",
        user: str | int = "",
        **settings: Any,
    ) -> None:
        if system is not None or twin is None:
            raise InputError(
                "is made of a site's own jobs", where="twin", hint="Give its folder: --option twin=FOLDER."
            )
        if lack := next((name for name in ("trace", "model", "scheduler") if settings.get(name) is not None), ""):
            raise InputError(f"a twin has its own {lack}", where=lack, hint="Leave it out.")
        self.twin = twin if isinstance(twin, Twin) else Twin.read(Path(twin))
        about, jobs = self.twin.about, self.twin.jobs
        where = Path(about.system or "twin")
        known = np.full(len(jobs.table), -1, dtype=np.int32)
        trace = Trace(
            where, sum(about.pools.values()), jobs.table, np.arange(1, len(jobs.table) + 1), {}, jobs.users, known,
            known, jobs.partitions, known.astype(np.int64), jobs.wait_s, jobs.clock_s,
        )  # fmt: skip
        rules: dict[str, Any] = {"scheduler": about.scheduler, "scheduler_settings": about.settings}
        super().__init__(trace=trace, **({"age_accrues": about.age_accrues} | settings | rules))
        width = about.cores_per_node
        self.machine = Machine(
            about.system or "twin", -(-self.machine.cores // width), width, whole_nodes=about.whole_nodes
        )
        self._user = self._known_user(user)
        names = [partition.name for partition in about.partitions]
        if partition and partition not in names:
            raise InputError(f"there is no partition {partition!r}", where="partition", hint=f"Known: {names}.")
        first = partition or next(iter(names), "")
        parts = [
            (partition.name, Partition(index, partition.limits, about.cores_of(partition)))
            for index, partition in enumerate(about.partitions)
        ]
        self._partitions = dict(sorted(parts, key=lambda part: part[0] != first))
        self._most = max(self.machine.cores, sum(about.told_pools.values()))

    @staticmethod
    def script() -> str:
        """Return the commands that survey a site, for a shell."""
        from .gathering import script  # noqa: PLC0415 - a simulation contacts no batch system

        return script()

    @staticmethod
    def made(source: Path | None, *, on_progress: Progress = silent, **how: Any) -> Made:
        """Make a twin of a file or folder, or of the batch system here; see `gathering.gathered` and `make_twin`."""
        from .gathering import gathered  # noqa: PLC0415 - likewise
        from .making import make_twin  # noqa: PLC0415 - likewise

        history, facts = gathered(source, on_progress)
        return make_twin(history, facts, on_progress=on_progress, **how)

    @property
    def capabilities(self) -> Capabilities:
        """Abilities of the site."""
        named = {name: partition.limits for name, partition in self._partitions.items() if name}
        return replace(super().capabilities, max_cores=self._most, partition=next(iter(named), ""), partitions=named)

    def _known_user(self, user: str | int) -> int | None:
        """Return the user's index among the users of the load; None for a typical user, -1 for a new user."""
        about, users = self.twin.about, np.unique(self.twin.jobs.users)
        if user == "":
            user = _TYPICAL if about.you is None else about.you
        if user in (_TYPICAL, "new"):
            return None if user == _TYPICAL else -1
        found = np.flatnonzero(users == (int(user) if str(user).isdecimal() else -2))
        if not len(found):
            raise InputError(f"{user!r} is none of its users", where="user", hint="Give a number, typical or new.")
        return int(found[0])

    def _engine(self, table: JobTable) -> Engine:
        return engine_of(self.twin, table)

    def open(self, seed: int) -> SimulatedBackend:
        """Open the world of a seed at the time when the user arrives."""
        engine = self._world(seed)
        core = engine.core
        assert isinstance(core, GeneralCore)
        if self._user != -1:
            core.client_user = self._last_user(core, engine.now) if self._user is None else self._user
        users = self.twin.jobs.users
        return self._backend(engine, users=users, partitions=self._partitions, max_cores=self._most)

    def arrive_evenly(self, moments: int, seed: int) -> None:
        """Let users 0, 1 and so on arrive in the last months, each at a random time in its own equal part of them."""
        assert self.trace is not None
        begin, end = self._span(self.trace)
        begin = max(begin, end - _MONTHS_S)
        within = np.random.default_rng(seed).random(moments)
        at = begin + (np.arange(moments) + within) / moments * (end - begin)
        self.arrive((at + self.trace.clock_s).tolist())

    def _last_user(self, core: GeneralCore, now: int) -> int:
        """Return the user who submitted last."""
        row = max(int(np.searchsorted(self.twin.jobs.table.submit, now, side="right")) - 1, 0)
        return int(core.load.users[row])

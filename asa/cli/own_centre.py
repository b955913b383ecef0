"""The simulated centre of `asa compare` that is as large as the saved site, with waits like those in the bank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asa.cli.terminal import write_notice
from asa.errors import AsaError
from asa.units import format_duration

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asa.sites import SiteFile

_LATEST = 2000  # waits


@dataclass(frozen=True, slots=True)
class OwnCentre:
    """A model of the saved site, and a text on what it is."""

    model: Any
    text: str


def own_centre() -> OwnCentre | None:
    """Make a model of the saved site; None if there is none, or if `asa doctor` has not saved its size."""
    from asa.sites import read_site, saved_site

    try:
        name = saved_site()
        site = read_site(name) if name else None
        return None if site is None else _like(name, site)
    except AsaError as error:  # the comparison does without it
        write_notice(f"Note: the saved site is not simulated: {error}")
        return None


def _like(name: str, site: SiteFile) -> OwnCentre | None:
    from asa.core import plugins

    cores, per_node = (_count(site, key) for key in ("cores", "cores_per_node"))
    if cores < 2 or not per_node:
        return None
    system = str(site.settings.get("system") or site.observed.get("cluster") or name)
    partition = str(site.settings.get("partition") or site.observed.get("partition") or "")
    is_whole = site.observed.get("whole_nodes") is True
    waits = _waits(system, partition)
    simulated: Any = plugins.load("asa.backends", "simulated")
    made = simulated.like(system, max(cores // per_node, 1), min(per_node, cores), waits, whole_nodes=is_whole)
    taken = made.model.machine.cores
    size = f"{taken:,} of its {cores:,}" if taken < cores - per_node else f"{taken:,}"
    of = f" of partition {partition}" if partition else ""
    text = f"a model of the saved site {name} with {size} cores{of}, "
    load = f"{100 * made.model.load:.0f} %"
    if made.waits:
        known, modelled = (format_duration(round(seconds)) for seconds in (made.known_s, made.modelled_s))
        text += f"at a load of {load}: jobs wait {modelled} on average, and {known} in {made.waits:,} waits in the bank"
        text += "" if made.is_near else ", which is far off: asa worth simulates a copy of the site"
    else:
        count = f"only {len(waits)}" if len(waits) else "none"
        text += f"at the load of a usual centre ({load}), since the bank has {count} of its waits (asa learn)"
    return OwnCentre(made.model, text)


def _count(site: SiteFile, key: str) -> int:
    value = site.settings.get(key) or site.observed.get(key)
    try:
        return int(str(value))
    except ValueError:
        return 0


def _waits(system: str, partition: str) -> NDArray[np.float64]:
    """Return cores, walltimes and waits of the saved site's latest jobs in the bank."""
    import numpy as np

    from asa.estimators.store import WaitStore, default_folder

    folder = default_folder()
    records = WaitStore(folder, create=False).read() if folder.exists() else []
    rows = [
        (record.job.cores, record.job.walltime_s, record.observation.wait_s)
        for record in records
        if record.job.system == system
        and record.observation.kind == "exact"
        and (not partition or record.job.partition in {"", partition})
    ]
    return np.array(rows[-_LATEST:], dtype=np.float64).reshape(-1, 3)

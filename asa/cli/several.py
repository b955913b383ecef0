"""Several sites for one workflow: it goes as a whole to where it is forecast to end first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from asa.cli.terminal import write_notice
from asa.errors import AsaError, InputError
from asa.units import format_core_hours, format_duration

if TYPE_CHECKING:
    from asa.cli.asked import AskedRun

_BETWEEN = ","


def one_of(sites: str | None, read: Callable[[str], AskedRun], *, quiet: bool) -> str | None:
    """Return the site that is named; of several, the one where `asa-plan` forecasts that the workflow ends first.

    It says what is forecast of each. A site where nothing is known of waits is taken only if that holds for all: then
    it is the first that can be reached and takes the workflow.

    `sites`: their names, with commas between them. `read`: reads and checks the workflow for one of them.
    Raises `InputError`: no site can be used; the message says why for each.
    """
    if sites is None or _BETWEEN not in sites:
        return sites
    from asa.cli.plan import looked

    names = list(dict.fromkeys(filter(None, (name.strip() for name in sites.split(_BETWEEN)))))
    ends_s: dict[str, float] = {}
    troubles: dict[str, str] = {}
    said: dict[str, str] = {}
    for name in names:
        try:
            shown = looked(replace(read(name), quiet=True), {})
        except AsaError as error:
            troubles[name] = said[name] = f"{error.where}: {error.message}" if error.where else error.message
            continue
        if not shown.is_informed:
            said[name] = "too few waits are known there: `asa learn --site " + name + "`"
            continue
        sketch = shown.outlook.sketch
        ends_s[name] = float(sketch.end_s.mean())
        said[name] = (
            f"expected to end in {format_duration(ends_s[name])}, for {format_core_hours(sketch.core_hours)} core-hours"
        )
    able = [name for name in names if name not in troubles]
    if not able:
        why = "; ".join(f"{name}: {trouble}" for name, trouble in troubles.items())
        hint = "`asa doctor --site NAME` tells more."
        raise InputError(f"no site can be used ({why})", where=f"--site {sites}", hint=hint)
    chosen = min(ends_s, key=ends_s.__getitem__) if ends_s else able[0]
    for name in names if not quiet else ():
        write_notice(f"{'→' if name == chosen else ' '} {name}: {said[name]}.")
    return chosen

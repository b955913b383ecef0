"""The plan's journal: a file with a line for each step, from which the plan is restored after a crash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from asa.core.documents import read_json
from asa.core.store import LineFile, read_lines
from asa.errors import InputError, StateError

from .jobs import Entry
from .limits import FreePool, Limit
from .plan import RequestPlan
from .rules import ConsumerRule
from .system import CcsSystem


def open_plan(
    path: Path,
    system: CcsSystem,
    limits: Sequence[Limit] = (),
    pools: Sequence[FreePool] = (),
    rules: Sequence[ConsumerRule] = (),
) -> RequestPlan:
    """Restore a plan from its journal, and let it append its changes there.

    Each step is on the disk before its method returns. A line cut off by a crash is a step that was never reported; it
    is removed when the next step is written.

    Examples
    --------
    >>> import tempfile
    >>> from asa.backends.openccs.requests import ResourceRequest
    >>> from asa.backends.openccs.system import oculus
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plan = open_plan(Path(folder, "plan"), oculus())
    ...     [job] = plan.submit(ResourceRequest.parse("rset=8:ncpus=16,walltime=1h"), now=60)
    ...     open_plan(Path(folder, "plan"), oculus()).jobs[job.id].start_s
    60
    """
    path = Path(path)
    header = _header(system)
    try:
        entries = _read(path, header)
    except OSError as error:
        raise StateError(f"cannot be read: {error}", where=str(path), hint="Name another file.") from error

    def write(entry: Entry) -> None:
        try:
            with closing(LineFile(path)) as file:
                file.append(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            hint = "Mend that, then open the plan anew: what came last is not in it."
            raise StateError(f"cannot be written: {error}", where=str(path), hint=hint) from error

    if not entries:
        write(header)
    try:
        return RequestPlan.reload(system, entries[1:], limits, pools, rules, on_entry=write)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, InputError) as error:
        raise StateError(f"is no plan: {error!r}", where=str(path), hint="Name another file.") from error


def _header(system: CcsSystem) -> Entry:
    """Describe the system of the plan, because entries name nodes by index."""
    nodes = [[node.name, sorted(node.resources.items())] for node in system.nodes]
    content = json.dumps([nodes, sorted(system.licences.items())]).encode()
    return {"kind": "plan", "version": 1, "system": system.name, "nodes": hashlib.sha256(content).hexdigest()[:16]}


def _read(path: Path, header: Entry) -> list[Entry]:
    """Read the complete lines; a journal of another system is refused."""
    lines, rest = read_lines(path)
    if not lines and not rest:
        return []
    try:
        entries: list[Entry] = [read_json(line) for line in lines]
    except ValueError as error:
        raise StateError(f"is no journal: {error}", where=str(path), hint="Name another file.") from error
    first = entries[0] if entries else {}
    if not isinstance(first, dict) or first.get("kind") != header["kind"]:
        raise StateError("is no journal of a plan", where=str(path), hint="Name another file.")
    if first != header:
        why = f"is of the system {first.get('system')!r} as it was, which is not {header['system']!r} as it is"
        raise StateError(why, where=str(path), hint="Give the system that it was begun with, or another file.")
    return entries

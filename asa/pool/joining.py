"""A pool that several runs of its user share: where its scheduler is, and how a run joins it.

Whoever may join a pool has its workers run any code as the pool's user. So a pool is never shared with another user:
the folder with its address and its certificate has to be that of whoever joins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from asa.core import safe
from asa.core.documents import read_json
from asa.core.files import put
from asa.core.typed import made
from asa.errors import InputError, UnavailableError

if TYPE_CHECKING:
    from .cluster import AsaCluster

JOINED: Final = "ASA_POOL"
"""Variable with the folder of the pool that runs of the strategy ``pool`` join; without it each run has its own."""

_CONTACT = "contact.json"
_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Contact:
    """What a run has to know of a pool that it joins."""

    address: str  # of its scheduler
    system: str  # the site of its jobs
    cores: int  # of each worker process, which are the most that a task can have
    resources: Mapping[str, float]  # all that such a process offers


def offer(cluster: AsaCluster) -> None:
    """Let runs join a pool until it is closed."""
    cores, resources = cluster.shape.threads, cluster.shape.resources
    contact = Contact(cluster.scheduler_address, cluster.capabilities.system, cores, resources)
    put(cluster.folder / _CONTACT, json.dumps(asdict(contact)).encode(), is_private=True)


def withdraw(folder: Path) -> None:
    """Let no run join any more."""
    (folder / _CONTACT).unlink(missing_ok=True)


def named_pool() -> Path | None:
    """Return the folder of the pool that the user wants runs to join; None if each is to have its own."""
    named = os.environ.get(JOINED)
    return Path(named) if named else None


def contact_of(folder: Path) -> Contact:
    """Read what a run has to know of a pool.

    Raises `InputError`: no pool is kept there. Raises `OwnerError`: the folder is another user's.
    """
    hint = f"Keep one there: asa pool {folder}; or unset {JOINED}, and the run has a pool of its own."
    try:
        safe.check(folder)
        document = read_json(safe.read(folder / _CONTACT))
        Contact(**document)  # one of a later version has more
        return made(Contact, document)
    except (OSError, ValueError, TypeError) as error:
        raise InputError("keeps no pool that a run could join", where=f"{JOINED}={folder}", hint=hint) from error


def join(folder: Path) -> Any:
    """Return a client of the pool that is kept in a folder.

    Raises `UnavailableError`: it does not answer.
    """
    from distributed import Client  # noqa: PLC0415 - an extra

    from .credentials import read_credentials  # noqa: PLC0415 - as above

    contact = contact_of(folder)
    try:
        return Client(contact.address, security=read_credentials(folder), timeout=_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        hint = "Is its command, asa pool, still running? Start it again, and go on with: asa resume."
        raise UnavailableError(f"does not answer: {error}", where=f"the pool in {folder}", hint=hint) from error

"""One pool of workers over many allocations: dask's tasks run on all running jobs, and jobs are submitted ahead.

The resources of several jobs look like one pool to the application (Section 3.1 of the paper). `AsaCluster` is a dask
cluster whose workers are jobs of a batch system, or processes of this machine; `Client(cluster)` and all collections
work as with any other. It needs ``pip install 'asa-client[pool]'``; the modules that plan do not.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asa.errors import MissingExtraError
from asa.printable import printable

from .values import AllocationShape

if TYPE_CHECKING:
    from .allocation import Allocation
    from .cluster import AsaCluster

__all__ = ["Allocation", "AllocationShape", "AsaCluster", "Shape"]

Shape = AllocationShape
"""The former name of `AllocationShape`."""

_LAZY = {"Allocation": "asa.pool.allocation", "AsaCluster": "asa.pool.cluster"}


def _check(record: logging.LogRecord) -> bool:
    """Escape control characters in texts of the batch system before they go into the log."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


logging.getLogger("asa.pool").addFilter(_check)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"dask", "distributed"}:
            raise
        raise MissingExtraError(
            "a pool needs dask.distributed, which is not installed", hint="pip install 'asa-client[pool]'"
        ) from error

"""Where the runs of a campaign are done: on this machine, on a dask cluster that is there, or on a pool."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import chdir, contextmanager
from typing import Any, TypeVar

from asa.errors import InputError, MissingExtraError, UnavailableError

__all__ = ["LOCAL", "Elsewhere", "executor_of"]

LOCAL, _DASK, _POOL = "local", "dask:", "pool"

_T = TypeVar("_T")
_alone = threading.Lock()  # of a worker process


class Elsewhere(Executor):
    """Runs functions on the workers of a dask cluster, in the current folder, one at a time in each process.

    Parameters
    ----------
    client
        Of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._here = os.getcwd()  # noqa: PTH109 - a text travels

    def submit(self, function: Callable[..., _T], /, *args: Any, **options: Any) -> Future[_T]:
        """Have a function run on some worker; one that is lost has it run on another."""
        future: Future[_T] = self._executor.submit(_run_alone, self._here, function, *args, **options)
        return future

    def share(self, value: Any) -> Any:
        """Send a value to the workers once; what is returned stands for it as an argument."""
        return self._client.scatter(value, hash=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002 - its shape
        """Let go of what was asked for."""
        self._executor.shutdown(wait=wait)


def _run_alone(folder: str, function: Callable[..., _T], *args: Any, **options: Any) -> _T:
    with _alone, chdir(folder):
        return function(*args, **options)


@contextmanager
def executor_of(named: str, jobs: int | None = None) -> Iterator[Elsewhere | None]:
    """Open what ``--executor`` names.

    Parameters
    ----------
    named
        ``local``; ``dask:`` and the address of a scheduler; or ``pool``, for a pool on the usual site.
    jobs
        Worker processes of a pool at most, each then an allocation of its own; no other takes it from here.

    Yields
    ------
    Elsewhere or None
        None for this machine's own processes.

    Raises
    ------
    InputError
        It means nothing.
    MissingExtraError
        dask.distributed is not installed.
    UnavailableError
        Nobody answers at the address.
    """
    if named == LOCAL:
        yield None
        return
    address = named.removeprefix(_DASK) if named.startswith(_DASK) else ""
    if not address and named != _POOL:
        raise InputError(
            f"{named!r} is no executor", where="--executor", hint="Give local, pool, or dask:ADDRESS of a scheduler."
        )
    if address and jobs is not None:
        raise InputError("a cluster has its own workers", where="--jobs --executor", hint="Leave --jobs out.")
    try:
        from distributed import Client  # noqa: PLC0415 - an extra

        from .cluster import AsaCluster  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "such an executor needs dask.distributed, which is not installed", hint="pip install 'asa-client[dask]'"
        ) from error
    if address:
        try:
            client = Client(address, timeout=10)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise UnavailableError(
                f"no scheduler answers: {error}", where=address, hint="As in dask:tcp://host:8786."
            ) from error
        with client, Elsewhere(client) as executor:
            yield executor
        return
    with AsaCluster(cores=0 if jobs is None else 1, threads=1, n_workers=0, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=math.inf if jobs is None else jobs)
        with Client(cluster) as client, Elsewhere(client) as executor:
            yield executor

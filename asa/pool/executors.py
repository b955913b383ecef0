"""Executors for the runs of a campaign: on this machine, on an existing dask cluster, or on a pool."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from concurrent.futures import wait as wait_for
from contextlib import chdir, contextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from asa.errors import InputError, MissingExtraError, UnavailableError

LOCAL, _DASK, _POOL = "local", "dask:", "pool"

_T = TypeVar("_T")
_alone = threading.Lock()  # each worker process runs one function at a time


class Elsewhere(Executor):
    """Runs functions on the workers of a dask cluster, in the current folder, one at a time in each process.

    `stuck`: returns why no worker will ever join; empty if one may. If none will, all submitted functions fail.
    """

    def __init__(self, client: Any, stuck: Callable[[], str] | None = None) -> None:
        self._client = client
        self._here = os.getcwd()  # noqa: PTH109 - a text can be sent to workers
        self._asked: dict[Future[Any], Any] = {}  # our futures, each with dask's future until that is done
        self._kept: dict[int, Any] = {}
        self._is_over = threading.Event()
        if stuck is not None:
            threading.Thread(target=self._watch, args=(stuck,), daemon=True).start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all submitted functions; after an error or an interrupt cancel them."""
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)

    def submit(self, function: Callable[..., _T], /, *args: Any, **options: Any) -> Future[_T]:
        """Run a function on one of the workers; if that worker is lost, run it on another.

        Workers release the result once it has arrived here.
        """
        there = self._client.submit(_run_alone, self._here, self._kept, function, *args, **options, pure=False)
        here: Future[_T] = Future()
        self._asked[here] = there
        here.add_done_callback(self._release)
        there.add_done_callback(partial(_hand_over, here))
        return here

    def _release(self, here: Future[Any]) -> None:
        there = self._asked.pop(here, None)
        if there is not None and here.cancelled():
            there.cancel()
        elif there is not None:
            there.release()

    def share(self, value: Any) -> Any:
        """Send a value to the workers once; return a reference to be passed as an argument.

        It can be called before any worker has joined. If a worker is lost, the value is sent again.
        """
        return self._client.submit(_given, value, pure=False)

    def keep(self, function: Callable[[Any], _T], each: Iterable[Any]) -> list[_OnWorkers[_T]]:
        """See `asa.core.parallel.Keeping`. Returned values are passed between workers, without this process."""
        kept: list[_OnWorkers[_T]] = []
        for value in each:
            kept.append(_OnWorkers(len(self._kept)))
            self._kept[len(self._kept)] = self._client.submit(_run_alone, self._here, {}, function, value, pure=False)
        return kept

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - inherited
        """Release all submitted functions."""
        self._is_over.set()
        asked = list(self._asked)
        if cancel_futures:
            for future in asked:
                future.cancel()
        if wait:
            wait_for(asked)

    def _watch(self, stuck: Callable[[], str]) -> None:
        while not self._is_over.wait(1.0):
            if why := stuck():
                error = UnavailableError(
                    f"no worker comes: {why}", where="--executor pool", hint="Mend that, and go on."
                )
                for future in list(self._asked):
                    with suppress(InvalidStateError):  # the future was done already
                        future.set_exception(error)


def _hand_over(here: Future[Any], there: Any) -> None:
    """Pass on the result or the error of a task that is done."""
    try:
        if there.status == "finished":
            here.set_result(there.result())
        elif there.status == "cancelled":
            here.cancel()
        else:
            here.set_exception(there.exception())
    except InvalidStateError:
        pass  # the caller no longer wants the result
    except BaseException as error:  # noqa: BLE001 - passed on, also if the result cannot be read here
        with suppress(InvalidStateError):
            here.set_exception(error)


class _OnWorkers(Generic[_T]):
    """A value that each worker keeps as long as it runs functions of the executor that shared it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def value(self) -> _T:
        """Return the value."""
        if self._number not in _kept_here:
            raise OSError("is kept by workers that this process is none of")
        kept: _T = _kept_here[self._number]
        return kept


_kept_here: dict[int, Any] = {}


def _run_alone(folder: str, kept: Mapping[int, Any], function: Callable[..., _T], *args: Any, **options: Any) -> _T:
    with _alone, chdir(folder):
        _kept_here.update(kept)
        try:
            return function(*args, **options)
        finally:
            _kept_here.clear()


def _given(value: _T) -> _T:
    return value


@contextmanager
def executor_of(named: str, jobs: int | None = None) -> Iterator[Elsewhere | None]:
    """Open the executor that ``--executor`` names.

    `named`: ``local``; ``dask:`` and a scheduler's address; or ``pool``, for a pool on the default site.
    `jobs`: upper bound of a pool's worker processes, each in its own allocation; other executors ignore it.
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
        from distributed.comm import parse_address  # noqa: PLC0415 - as above
        from distributed.comm.registry import get_backend  # noqa: PLC0415 - as above

        from .cluster import AsaCluster  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "such an executor needs dask.distributed, which is not installed", hint="pip install 'asa-client[pool]'"
        ) from error
    if address:
        try:
            get_backend(parse_address(address)[0])  # a client would retry a protocol that it does not know for ever
            client = Client(address, timeout=10)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise UnavailableError(
                f"no scheduler answers: {error}", where=address, hint="As in dask:tcp://host:8786."
            ) from error
        with client, Elsewhere(client) as executor:
            yield executor
        return
    with AsaCluster(cores=0 if jobs is None else 1, threads=1, n_workers=0) as cluster:
        cluster.adapt(minimum=0, maximum=math.inf if jobs is None else jobs)
        with Client(cluster) as client, Elsewhere(client, lambda: cluster.stuck) as executor:
            yield executor

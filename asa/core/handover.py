"""Values that processes of one machine hand over without sending them: arrays lie in memory that all of them map."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

_T = TypeVar("_T")
_ALIGNED_BYTES = 64  # of what an array begins at
_MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class MappedValue(Generic[_T]):
    """A reference to a value that a process holds; small, and valid as long as that process lives."""

    path: str  # the holder's memory, as other processes of its user find it
    at_byte: int
    size_bytes: int
    spans: tuple[tuple[int, int], ...]  # where, from there, its mark, each of its arrays, and the rest begin and end
    mark: bytes = b""  # what the value is marked with, in case that another process has its holder's number by now
    value_here: _T | None = field(default=None, compare=False)  # the value itself, where a system has no such memory

    def value(self) -> _T:
        """Give the value: a new one each time, whose arrays may be written to, and are copied only where they are."""
        if not self.path:
            return cast("_T", self.value_here)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            if os.pread(descriptor, len(self.mark), self.at_byte) != self.mark:
                raise FileNotFoundError(errno.ENOENT, "holds something else", self.path)
            mapped = mmap.mmap(
                descriptor,
                self.size_bytes,
                flags=mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ | mmap.PROT_WRITE,
                offset=self.at_byte,
            )
        finally:
            os.close(descriptor)
        _, *arrays, rest = (memoryview(mapped)[begin:end] for begin, end in self.spans)
        loaded: _T = pickle.loads(rest, buffers=arrays)  # noqa: S301 - this program has written it
        return loaded


class HandoverMemory:
    """Holds values of this process for others, until it is closed; processes that have taken one keep it."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("asa") if hasattr(os, "memfd_create") else -1
        self._lock = threading.Lock()

    def publish(self, value: _T) -> MappedValue[_T]:
        """Hold a value; costs one copy of it.

        Examples
        --------
        >>> memory = HandoverMemory()
        >>> memory.publish([1, 2]).value()
        [1, 2]
        """
        mark = secrets.token_bytes(_MARK_BYTES)
        if self._descriptor < 0:
            return MappedValue("", 0, 0, (), mark, value)
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        with self._lock:
            where = self._write([memoryview(mark), *(buffer.raw() for buffer in buffers), memoryview(rest)])
        return MappedValue(f"/proc/{os.getpid()}/fd/{self._descriptor}", *where, mark)

    def _write(self, parts: Iterable[memoryview]) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """Write parts after what is held already; return where, how much, and where each is."""
        first = at = _up(os.fstat(self._descriptor).st_size, mmap.ALLOCATIONGRANULARITY)
        spans: list[tuple[int, int]] = []
        for part in parts:
            begin, at = at, at + part.nbytes
            spans.append((begin - first, at - first))
            while begin < at:  # a call writes two GiB at most
                begin += os.pwrite(self._descriptor, part[part.nbytes - (at - begin) :], begin)
            at = _up(at, _ALIGNED_BYTES)
        os.ftruncate(self._descriptor, at)
        return first, at - first, tuple(spans)

    def close(self) -> None:
        """Hold nothing any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def _up(byte: int, multiple: int) -> int:
    return -(-byte // multiple) * multiple

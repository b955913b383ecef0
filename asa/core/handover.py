"""Values that processes of one machine pass to each other without copying: all of them map the arrays' memory."""

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
_ALIGNED_BYTES = 64  # alignment of arrays
_MARK_BYTES = 16


@dataclass(frozen=True, slots=True)
class MappedValue(Generic[_T]):
    """A small reference to a value that a process holds; valid as long as that process lives."""

    path: str  # of the holder's memory, as other processes of its user can open it
    at_byte: int
    size_bytes: int
    spans: tuple[tuple[int, int], ...]  # begin and end of the mark, of each array, and of the rest, from `at_byte` on
    mark: bytes = b""  # the value's mark, in case another process now has the holder's process id
    pickled: bytes = field(default=b"", compare=False)  # the value itself, on systems without such memory

    def value(self) -> _T:
        """Return a new copy of the value; its arrays may be written to, and only then are copied."""
        if not self.path:
            return cast("_T", pickle.loads(self.pickled))  # noqa: S301 - this program has written it
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
    """Holds values of this process for others until it is closed; processes that already use a value keep it."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("asa") if hasattr(os, "memfd_create") else -1
        self._lock = threading.Lock()

    def publish(self, value: _T) -> MappedValue[_T]:
        """Hold a value, copying it once; return a reference to it.

        Examples
        --------
        >>> memory = HandoverMemory()
        >>> memory.publish([1, 2]).value()
        [1, 2]
        """
        mark = secrets.token_bytes(_MARK_BYTES)
        if self._descriptor < 0:
            return MappedValue("", 0, 0, (), mark, pickle.dumps(value, protocol=5))
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        with self._lock:
            where = self._write([memoryview(mark), *(buffer.raw() for buffer in buffers), memoryview(rest)])
        return MappedValue(f"/proc/{os.getpid()}/fd/{self._descriptor}", *where, mark)

    def _write(self, parts: Iterable[memoryview]) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        """Append parts to the memory; return where they begin, their size, and the span of each."""
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
        """Free the memory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def _up(byte: int, multiple: int) -> int:
    return -(-byte // multiple) * multiple

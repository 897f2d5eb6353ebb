"""Memory that is used again: a pool of idle blocks, and the one for the host memory of downloaded arrays."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import threading
import time
import weakref
from _thread import start_new_thread
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from pyxfer._upload.native_calls import native_call

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Block(Protocol):
    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...


AnyBlock = TypeVar("AnyBlock", bound=Block)

MIN_BLOCK_BYTES = 512
_LARGEST_KEPT = 2
# Blocks are rounded up by an eighth at most, so that arrays of nearly the same size can use the same block.
_STEPS_BITS = 4


class Pool(Generic[AnyBlock]):
    """Blocks for any thread. At most `max_bytes` are idle; None is twice the largest block so far.

    A destructor may return a block or close the pool, in any thread and even during another call of the same thread.
    So `give` and `close` never wait for the lock: the thread that holds the lock looks again after it has released the
    lock.
    """

    out_of_memory: ClassVar[type[Exception]]
    """What `_new` raises."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._largest = 0
        self._lock = threading.Lock()
        self._returned: deque[AnyBlock] = deque()
        # By size, the last used size at the end. With each block the moment of its return.
        self._idle: OrderedDict[int, deque[tuple[AnyBlock, float]]] = OrderedDict()
        self._closed = False

    def _new(self, size: int) -> AnyBlock:
        raise NotImplementedError

    def _moment(self) -> float:
        """The present moment. The moments of the blocks of one size ascend."""
        raise NotImplementedError

    @property
    def idle_bytes(self) -> int:
        return sum(size * len(blocks) for size, blocks in list(self._idle.items()))

    def take(self, nbytes: int) -> AnyBlock:
        size = block_bytes(nbytes)
        try:
            with self._lock:
                self._largest = max(self._largest, size)
                if self._returned:
                    self._sort()
                return self._reuse(size) or self._allocate(size)
        finally:
            self._settle()

    def give(self, block: AnyBlock) -> None:
        self._returned.append(block)
        self._settle()

    def close(self) -> None:
        """Free the idle blocks, and from now on each returned block."""
        self._closed = True
        self._settle()

    def _settle(self) -> None:
        while self._is_unsettled():
            # Python handles Ctrl-C after a call. So the acquisition and its note are one call, and nothing is called
            # before the release.
            held: list[bool] = []
            try:
                held.extend(map(self._lock.acquire, (False,)))
                if not held[0]:
                    return
                self._sort()
            finally:
                if held and held[0]:
                    self._lock.release()

    def _is_unsettled(self) -> bool:
        return bool(self._returned or (self._closed and self._idle))

    def _sort(self) -> None:
        """Move returned blocks to the idle ones; above the limit, free those that were unused for longest."""
        while self._returned:
            block = self._returned.popleft()
            self._idle.setdefault(block.nbytes, deque()).append((block, self._moment()))
            self._idle.move_to_end(block.nbytes)
        self._free_down_to(0 if self._closed else self._limit())

    def _limit(self) -> int:
        return _LARGEST_KEPT * self._largest if self._max_bytes is None else self._max_bytes

    def _reuse(self, size: int) -> AnyBlock | None:
        raise NotImplementedError

    def _allocate(self, size: int) -> AnyBlock:
        try:
            return self._new(size)
        except self.out_of_memory:
            if not self._idle:
                raise
        self._free_down_to(0)
        return self._new(size)

    def _free_down_to(self, max_bytes: int) -> None:
        while self.idle_bytes > max_bytes:
            self._pop(next(size for size, blocks in self._idle.items() if blocks)).close()

    def _pop(self, size: int, *, last: bool = False) -> AnyBlock:
        blocks = self._idle[size]
        block, _ = blocks.pop() if last else blocks.popleft()
        if not blocks:
            self._idle.pop(size, None)  # Ctrl-C may come before, and leave no blocks of a size
        return block


def block_bytes(nbytes: int) -> int:
    step = max(MIN_BLOCK_BYTES, 1 << max(0, nbytes.bit_length() - _STEPS_BITS))
    return max(1, -(-nbytes // step)) * step


# --- host memory -----------------------------------------------------------------------------------------------------

IDLE_S = 10.0
# The C library uses memory below 32 MiB again by itself, unless several arrays are dropped together. The pool takes
# about 4 us for an array, and the page faults of 256 KiB 50 us.
_MIN_BYTES = 256 << 10
_HUGE_PAGE = 2 << 20


class HostPool(Pool["Mapping"]):
    """Host memory of downloaded arrays. What was idle for `IDLE_S` goes back to the system.

    A thread frees it, which exists only while memory is idle or has been within `IDLE_S`.
    """

    out_of_memory = OSError

    def __init__(self) -> None:
        super().__init__()
        self._alarm: threading.Lock | None = None
        """A lock that the thread waits for, and that ends it."""
        _pools.add(self)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array like that of `np.empty`. Its memory is used again when it and its last view are gone."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes >= _MIN_BYTES:
            with suppress(OSError):  # NumPy may find memory, or raises its own error
                memory = np.asarray(_Lease(self, self.take(nbytes), nbytes))
                array: NDArray[Any] = np.ndarray(shape, dtype, memory)
                return array
        return np.empty(shape, dtype)

    def forget(self) -> None:
        """In a forked child, which has a copy of the memory but not the thread, and where the lock may be held."""
        self._lock = threading.Lock()
        self._closed, self._alarm = True, None
        self._returned.clear()
        self._idle.clear()

    def _new(self, size: int) -> Mapping:
        return Mapping(size)

    def _moment(self) -> float:
        return time.monotonic()

    def _reuse(self, size: int) -> Mapping | None:
        return self._pop(size, last=True) if self._idle.get(size) else None

    def _is_unsettled(self) -> bool:
        return super()._is_unsettled() or (self._closed and self._alarm is not None)

    def _sort(self) -> None:
        super()._sort()
        if self._closed and self._alarm is not None:
            self._alarm.release()
            self._alarm = None
        elif self._idle and self._alarm is None:
            self._alarm = threading.Lock()
            self._alarm.acquire()
            try:
                # Not of `threading`, whose locks the thread that runs this destructor may hold.
                start_new_thread(self._free_unused, (self._alarm,))
            except RuntimeError:  # no more threads, or Python is exiting
                self._alarm = None
                self._free_down_to(0)

    def _free_unused(self, alarm: threading.Lock) -> None:
        wait_s: float | None = IDLE_S
        while wait_s is not None and not alarm.acquire(timeout=wait_s):
            with self._lock:
                wait_s = self._free_expired()
                if wait_s is None:
                    self._alarm = None
            self._settle()

    def _free_expired(self) -> float | None:
        """Free what was idle for `IDLE_S`. Returns the seconds until the next block was; None if none is idle."""
        now = self._moment()
        for size in list(self._idle):
            while self._idle.get(size) and self._idle[size][0][1] <= now - IDLE_S:
                self._pop(size).close()
        oldest = min((blocks[0][1] for blocks in self._idle.values() if blocks), default=None)
        return None if oldest is None else max(0.0, oldest + IDLE_S - now)


class Mapping:
    """Private memory of the process. What fills whole huge pages is in such pages, which fault seldom."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        huge_bytes = nbytes - nbytes % _HUGE_PAGE
        spare_bytes = _HUGE_PAGE - mmap.PAGESIZE if huge_bytes else 0
        self._memory = mmap.mmap(-1, nbytes + spare_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        if huge_bytes:
            skipped = -self.address % _HUGE_PAGE
            self.address += skipped
            with suppress(OSError):  # a kernel without huge pages
                self._memory.madvise(mmap.MADV_HUGEPAGE, skipped, huge_bytes)

    def close(self) -> None:
        self._memory.close()


class _Lease:
    """Keeps a mapping for an array, which reads it by the attribute, and for its views."""

    def __init__(self, pool: HostPool, mapping: Mapping, nbytes: int) -> None:
        self._pool = pool
        self._mapping = mapping
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (mapping.address, False),
        }

    def __del__(self, exit_begun: set[bool] = native_call.exit_begun) -> None:  # names may be gone at exit
        if not exit_begun:
            self._pool.give(self._mapping)


_pools: weakref.WeakSet[HostPool] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)

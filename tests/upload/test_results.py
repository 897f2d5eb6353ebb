"""The host memory of downloaded arrays, and when it is used again."""

from __future__ import annotations

import gc
import mmap
import threading
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from measure.fakes import Clock
from numpy.typing import NDArray
from upload.feeding import SOON_S
from upload.memories import held

from pyxfer._upload import pools
from pyxfer._upload.pinning import pin
from pyxfer._upload.pools import IDLE_S, HostPool, Mapping, block_bytes
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.native import Engine

MIB = 1 << 20
FLOAT = np.dtype(np.float32)
BYTE = np.dtype(np.uint8)


class Mappings(weakref.WeakSet[mmap.mmap]):
    """The mappings that pools have made and not given back."""

    def make(self, *arguments: Any, **options: Any) -> mmap.mmap:
        made = mmap.mmap(*arguments, **options)
        self.add(made)
        return made

    @property
    def count(self) -> int:
        return sum(not each.closed for each in self)


@pytest.fixture
def mappings(monkeypatch: pytest.MonkeyPatch) -> Mappings:
    """Mappings that are made from now on."""
    made = Mappings()

    class Module:
        """The module mmap with a function that counts."""

        def __getattr__(self, name: str) -> Any:
            return made.make if name == "mmap" else getattr(mmap, name)

    monkeypatch.setattr(pools, "mmap", Module())
    return made


@pytest.fixture
def pool(mappings: Mappings) -> Iterator[HostPool]:
    made = HostPool()
    yield made
    made.close()
    gc.collect()
    assert mappings.count == 0


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def filled(nbytes: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


# --- what a result is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [256 << 10, MIB + 4, 2 * MIB, 9 * MIB + 4])
def test_a_large_result_is_an_ordinary_array_that_does_not_own_its_memory(pool: HostPool, nbytes: int) -> None:
    x = pool.empty((nbytes // 4,), FLOAT)
    assert (type(x), x.dtype, x.nbytes) == (np.ndarray, FLOAT, nbytes)
    assert (x.flags.c_contiguous, x.flags.writeable, x.flags.aligned, x.flags.owndata) == (True, True, True, False)
    assert address(x) % (2 * MIB if nbytes >= 2 * MIB else mmap.PAGESIZE) == 0
    x[...] = 3
    assert float(x.sum(dtype=np.float64)) == 3 * x.size
    with pytest.raises(ValueError, match="own"):
        x.resize(3)


@pytest.mark.parametrize("shape", [(), (0,), (0, 7), (5, 0, 3), (3, 4), ((256 << 10) - 1,)])
def test_a_small_result_is_one_of_numpy(pool: HostPool, mappings: Mappings, shape: tuple[int, ...]) -> None:
    x = pool.empty(shape, BYTE)
    assert (x.shape, x.flags.owndata, mappings.count) == (shape, True, 0)


def test_a_large_bfloat16_result_is_one_of_ml_dtypes(up: Uploader, own: Target) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(MIB).reshape(4, -1).astype(ml_dtypes.bfloat16)
    back = up.download(up.upload(array, own))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


# --- reuse -----------------------------------------------------------------------------------------------------------


def test_a_dropped_result_is_used_again(pool: HostPool, mappings: Mappings) -> None:
    x = pool.empty((MIB,), BYTE)
    first = address(x)
    del x
    assert pool.idle_bytes == MIB
    x = pool.empty((MIB - 100,), BYTE)
    assert (address(x), pool.idle_bytes, mappings.count) == (first, 0, 1)


def test_the_last_result_that_was_dropped_is_used_first(pool: HostPool) -> None:
    x, y = pool.empty((MIB,), BYTE), pool.empty((MIB,), BYTE)
    last = address(x)
    del y, x
    assert address(pool.empty((MIB,), BYTE)) == last


def test_a_loop_of_results_makes_no_new_mappings(up: Uploader, own: Target, mappings: Mappings) -> None:
    sources = [filled(MIB, seed) for seed in range(3)]
    sent = [up.upload(source, own) for source in sources]
    for turn in range(50):
        back = up.download(sent[turn % 3])
        assert np.array_equal(back, sources[turn % 3])
        assert mappings.count <= 2  # the last result is dropped when the next one exists
    del back
    assert up._results.idle_bytes == 2 * MIB


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[-1:],
        lambda x: x.reshape(2, -1).T[3],
        lambda x: x.view(np.int16)[::2],
        memoryview,
        lambda x: np.from_dlpack(x)[7:],
        lambda x: [x[5:], 0],
    ],
)
def test_a_view_keeps_the_whole_memory(pool: HostPool, view: Callable[[Any], Any]) -> None:
    x = pool.empty((MIB,), BYTE)
    x[...] = 7
    seen = view(x)
    del x
    gc.collect()
    assert pool.idle_bytes == 0
    other = pool.empty((MIB,), BYTE)
    other[...] = 9
    assert np.asarray(seen[0]).ravel()[0] in {7, 0x0707}
    del seen
    gc.collect()
    assert pool.idle_bytes == MIB


def test_a_page_locked_result_is_unlocked_before_its_memory_is_used_again(engine: Engine, pool: HostPool) -> None:
    x = pool.empty((MIB,), BYTE)
    y = pin(engine, x)
    del x
    assert (held("registered"), pool.idle_bytes) == (MIB, 0)
    del y
    assert (held("registered"), pool.idle_bytes) == (0, MIB)


def test_at_most_twice_the_largest_result_is_idle(pool: HostPool, mappings: Mappings) -> None:
    small = [pool.empty((MIB,), BYTE) for _ in range(5)]
    del small
    assert (pool.idle_bytes, mappings.count) == (2 * MIB, 2)
    large = [pool.empty((8 * MIB,), BYTE) for _ in range(3)]
    assert mappings.count == 5
    del large
    assert (pool.idle_bytes, mappings.count) == (16 * MIB, 2)  # the small ones were unused for longer


@pytest.mark.threads
def test_threads_never_share_a_result(up: Uploader, own: Target) -> None:
    right = []

    def use(seed: int) -> None:
        sources = [filled(MIB // 2 + 1000 * seed, seed + turn) for turn in range(3)]
        sent = [up.upload(sources[0], own), *up.upload(sources[1:], own, block=False).result()]
        for _ in range(10):
            backs = [up.download(y) for y in sent]
            right.append(all(map(np.array_equal, backs, sources)))

    threads = [threading.Thread(target=use, args=(10 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 40
    assert up._results.idle_bytes <= 2 * block_bytes(MIB // 2 + 30_000)


# --- given back ------------------------------------------------------------------------------------------------------


class Alarm:
    """A lock that nobody releases: `acquire` lets its time pass, and calls what happens during the wait."""

    def __init__(self, clock: Clock, events: list[Callable[[], object]]) -> None:
        self.clock = clock
        self.events = events
        self.waits: list[float] = []

    def acquire(self, timeout: float) -> bool:
        self.waits.append(timeout)
        self.clock.now_s += timeout
        if self.events:
            self.events.pop(0)()
        return False


class Threads(list[Callable[[Any], None]]):
    """Functions of threads that were to be started."""

    def start(self, function: Callable[[Any], None], arguments: tuple[Any, ...]) -> None:
        assert len(arguments) == 1
        self.append(function)

    def run(self, clock: Clock, *events: Callable[[], object]) -> list[float]:
        """Run the only thread to its end. Returns its waits."""
        (function,) = self
        self.clear()
        alarm = Alarm(clock, list(events))
        function(alarm)
        return alarm.waits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(100.0)
    monkeypatch.setattr(pools, "time", clock)
    return clock


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads()
    monkeypatch.setattr(pools, "start_new_thread", threads.start)
    return threads


@pytest.mark.usefixtures("mappings")
def test_idle_memory_is_given_back_after_ten_seconds_by_a_thread_that_ends(
    clock: Clock, started: Threads, pool: HostPool
) -> None:
    in_use = [pool.empty((MIB,), BYTE), pool.empty((MIB,), BYTE)]
    assert started == []
    in_use.pop()
    assert (len(started), pool.idle_bytes) == (1, MIB)
    left: list[int] = []

    def drop_four_seconds_ago() -> None:
        clock.now_s -= 4
        in_use.pop()
        clock.now_s += 4

    assert started.run(clock, drop_four_seconds_ago, lambda: left.append(pool.idle_bytes)) == [10.0, 6.0]
    assert (left, pool.idle_bytes, clock.now_s) == ([MIB], 0, 116.0)
    pool.empty((MIB,), BYTE)
    assert len(started) == 1


def test_memory_in_use_is_kept_and_the_rest_is_given_back(
    clock: Clock, started: Threads, pool: HostPool, mappings: Mappings
) -> None:
    x, y = pool.empty((MIB,), BYTE), pool.empty((MIB,), BYTE)
    del x, y

    def use() -> None:
        pool.empty((MIB,), BYTE)

    counts: list[int] = []
    waits = started.run(clock, use, use, use, lambda: counts.append(mappings.count))
    assert (waits, counts, mappings.count) == ([10.0, 10.0, 10.0, 10.0], [1], 0)


def test_no_thread_waits_while_all_memory_is_in_use(clock: Clock, started: Threads, pool: HostPool) -> None:
    pool.empty((MIB,), BYTE)
    kept: list[NDArray[Any]] = []
    assert started.run(clock, lambda: kept.append(pool.empty((MIB,), BYTE))) == [IDLE_S]
    kept.clear()
    assert (len(started), pool.idle_bytes) == (1, MIB)


def test_a_result_that_is_dropped_while_memory_is_given_back_is_not_lost(
    clock: Clock, started: Threads, pool: HostPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [pool.empty((2 * MIB,), BYTE)]
    pool.empty((MIB,), BYTE)
    close = Mapping.close

    def close_and_drop(mapping: Mapping) -> None:
        late.clear()  # as the garbage collector may, while this thread holds the lock
        close(mapping)

    monkeypatch.setattr(Mapping, "close", close_and_drop)
    started.run(clock)
    assert (pool.idle_bytes, len(started)) == (2 * MIB, 1)


def test_without_a_thread_nothing_is_kept(pool: HostPool, mappings: Mappings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pools, "start_new_thread", fail)
    pool.empty((MIB,), BYTE)
    assert (pool.idle_bytes, mappings.count) == (0, 0)


@pytest.mark.threads
def test_closing_ends_the_thread(pool: HostPool, mappings: Mappings, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def start_and_tell(function: Callable[[Any], None], arguments: tuple[Any, ...]) -> None:
        def run() -> None:
            function(*arguments)
            ended.set()

        start_new_thread(run, ())

    monkeypatch.setattr(pools, "start_new_thread", start_and_tell)
    monkeypatch.setattr(pools, "IDLE_S", 1e4)
    kept = pool.empty((MIB,), BYTE)
    pool.empty((MIB,), BYTE)
    assert not ended.is_set()
    pool.close()
    assert ended.wait(SOON_S)
    assert mappings.count == 1
    kept[...] = 1


def test_a_pool_is_closed_although_its_lock_is_held(pool: HostPool, mappings: Mappings) -> None:
    """The garbage collector may drop an uploader, and results, in a thread that holds the lock."""
    x, y = pool.empty((MIB,), BYTE), pool.empty((MIB,), BYTE)
    del x
    with pool._lock:
        pool.close()
        del y
    assert mappings.count == 2
    pool.close()
    assert mappings.count == 0


def test_results_outlive_their_uploader(own: Target, mappings: Mappings) -> None:
    array = filled(MIB, 1)
    with Uploader("host", threads=2, chunk_bytes=4096, slots=2) as up:
        kept, dropped = up.download(up.upload(array, own)), up.download(up.upload(array, own))
        del dropped
        assert mappings.count == 2
    assert mappings.count == 1
    assert np.array_equal(kept, array)
    del kept
    assert mappings.count == 0


# --- out of memory ---------------------------------------------------------------------------------------------------


@pytest.mark.unsanitized(reason="a sanitizer ends the process if memory cannot be allocated")
@pytest.mark.usefixtures("mappings")
def test_a_result_that_is_too_large_is_a_memory_error(pool: HostPool) -> None:
    pool.empty((MIB,), BYTE)
    with pytest.raises(MemoryError, match="Unable to allocate"):
        pool.empty((1 << 60,), BYTE)
    assert pool.idle_bytes == 0


def test_idle_memory_is_given_back_before_memory_runs_out(
    pool: HostPool, mappings: Mappings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.empty((MIB,), BYTE)
    make = mappings.make

    def fail_if_idle(*arguments: Any, **options: Any) -> mmap.mmap:
        if pool.idle_bytes:
            raise OSError(12, "Cannot allocate memory")
        return make(*arguments, **options)

    monkeypatch.setattr(mappings, "make", fail_if_idle)
    x = pool.empty((2 * MIB,), BYTE)
    assert (x.flags.owndata, mappings.count) == (False, 1)

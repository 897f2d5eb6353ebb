"""Small arrays, which go past the ring on the framework's own stream."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyxfer._upload import movers, uploader
from pyxfer._upload.native_calls import native_call
from pyxfer._upload.targets import TARGETS, Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import CudaError, ForkedError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

CHUNK = 4096
MAX_BYTES = 1 << 20
SEND = "cuMemcpyHtoDAsync"
OWN: Any = "own"


class OwnTensor:
    """A framework's array on the host."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.nbytes = array.nbytes

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


class OwnStream(Target):
    """A framework with a stream of its own."""

    title, module, allocates = "Own", "own", True

    def __init__(self, pool: Any) -> None:
        super().__init__(pool)
        self.used = self.engine.Stream()

    def stream(self) -> int | None:
        return self.used.handle

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, OwnTensor)

    def upload_at_once(self, ring: Any, x: Any) -> Any:
        address, finish = self.empty(x.array.shape if isinstance(x, OwnTensor) else x.shape, np.dtype(np.uint8))
        array = x.array if isinstance(x, OwnTensor) else x
        return finish() if ring.upload_at_once(array, address, self.used.handle) else None


@pytest.fixture
def up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uploader]:
    monkeypatch.setitem(TARGETS, "own", OwnStream)
    monkeypatch.setattr(movers, "_ASLEEP_S", math.inf)
    with Uploader("host", threads=2, chunk_bytes=CHUNK, slots=2) as made:
        made.upload(np.zeros(1, np.uint8), OWN)
        testing.reset()
        yield made
        used: Any = made._targets["own"]
        used.used.close()


def bytes_of(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def sent(up: Uploader, x: Any) -> Any:
    made = up.upload(x, OWN)
    up.engine.synchronize(0)
    return np.from_dlpack(made)


def at_once() -> int:
    return testing.calls().get(SEND, 0)


SOURCES = {
    "empty": (bytes_of(0), 0),
    "a byte": (bytes_of(1), 1),
    "a chunk": (bytes_of(CHUNK), 1),
    "the largest": (bytes_of(MAX_BYTES), 1),
    "larger": (bytes_of(MAX_BYTES + 1), 0),
    "of the framework": (OwnTensor(bytes_of(100)), 1),
    "view": (bytes_of(100)[10:60], 1),
    "not contiguous": (bytes_of(600).reshape(20, 30).T[::-2], 1),
    "memoryview": (memoryview(bytes_of(100)), 0),
    "view of a view": (bytes_of(100).reshape(10, 10)[2:5][0], 1),
    "scalar": (bytes_of(1)[0], 0),
}


@pytest.mark.parametrize(("x", "calls"), SOURCES.values(), ids=SOURCES)
def test_only_a_small_array_goes_at_once(up: Uploader, x: Any, calls: int) -> None:
    assert np.array_equal(sent(up, x), np.asarray(x))
    assert at_once() == calls


def test_a_small_array_in_memory_of_pyxfers_has_arrived_after_the_call(up: Uploader, own: Target) -> None:
    x = bytes_of(100)
    used: Any = up._targets["own"]
    testing.kernel("earlier", 0.05, used.used.handle)  # of another stream
    assert np.array_equal(np.from_dlpack(up.upload(x, own)), x)
    assert at_once() == 1


def test_the_array_may_be_changed_after_the_call(up: Uploader) -> None:
    x = bytes_of(100)
    expected = x.copy()
    used: Any = up._targets["own"]
    testing.kernel("earlier", 0.05, used.used.handle)
    made = up.upload(x, OWN)
    x[:] = 0
    up.engine.synchronize(0)
    assert np.array_equal(np.from_dlpack(made), expected)


def test_more_than_512_kib_that_must_arrive_go_at_once_while_the_threads_of_the_ring_sleep(
    up: Uploader, own: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movers, "_ASLEEP_S", 0.5)
    now_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    for count, after_s, expected in [
        ((1 << 20) + 1, 1.0, 0),  # the ring's, which wakes its threads
        (1 << 20, 0.4, 0),
        (512 << 10, 0.4, 1),
        (1 << 20, 0.6, 2),
        (1 << 20, 0.2, 2),  # soon after the last one: this one wakes them
        ((1 << 20) + 1, 9.0, 2),
    ]:
        now_s[0] += after_s
        x = bytes_of(count)
        assert np.array_equal(np.from_dlpack(up.upload(x, own)), x)
        assert at_once() == expected


class Alerts:
    """Counts the alerts of a ring."""

    def __init__(self, ring: Any) -> None:
        self.ring, self.count = ring, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ring, name)

    def alert(self) -> None:
        self.count += 1
        self.ring.alert()


def test_sleeping_threads_are_woken_before_the_python_of_a_large_upload(
    up: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(movers, "_ASLEEP_S", 0.5)
    now_s = [9.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    mover: Any = up._mover
    mover.ring = ring = Alerts(mover.ring)
    for count, after_s, alerts in [
        (MAX_BYTES + 1, 1.0, 1),
        (MAX_BYTES + 1, 0.4, 1),
        (MAX_BYTES, 1.0, 1),
        (MAX_BYTES + 1, 0.6, 2),
    ]:
        now_s[0] += after_s
        x = bytes_of(count)
        assert np.array_equal(sent(up, x), x)
        assert ring.count == alerts


def test_a_mapped_file_that_was_cut_is_refused(up: Uploader, tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(bytes(20_000))
    mapped = np.memmap(path, np.uint8, "r+")
    os.truncate(path, 100)
    for x in (mapped, np.asarray(mapped), np.asarray(mapped)[:50]):
        with pytest.raises(UsageError):
            up.upload(x, OWN)


def test_a_captured_stream_is_refused(up: Uploader) -> None:
    used: Any = up._targets["own"]
    testing.begin_capture(used.used.handle, "global")
    with pytest.raises(UsageError, match="CUDA graph"):
        up.upload(bytes_of(100), OWN)
    testing.end_capture(used.used.handle)


def test_an_error_of_the_copy_is_raised(up: Uploader) -> None:
    testing.fail(SEND, 1, 1)
    with pytest.raises(CudaError):
        up.upload(bytes_of(100), OWN)


def test_a_closed_uploader_is_refused(up: Uploader) -> None:
    up.close()
    with pytest.raises(UsageError, match="closed"):
        up.upload(bytes_of(100), OWN)
    assert at_once() == 0


def test_a_forked_child_is_refused(up: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr("os.getpid", lambda: -1)
        with pytest.raises(ForkedError):
            up.upload(bytes_of(100), OWN)


def test_nothing_is_sent_after_the_exit_has_begun(up: Uploader) -> None:
    native_call.exit_begun.add(True)
    try:
        with pytest.raises(UsageError, match="exiting"):
            up.upload(bytes_of(100), OWN)
    finally:
        native_call.exit_begun.clear()
    assert at_once() == 0


@pytest.mark.parametrize("count", [1, CHUNK, movers.MAX_FETCHED_BYTES])
def test_a_small_array_is_fetched_at_once(up: Uploader, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = bytes_of(count)
    made = up.upload(x, OWN)
    used: Any = up._targets["own"]
    monkeypatch.setattr(uploader, "framework_of", lambda _: "own")
    monkeypatch.setattr(used, "plain", lambda y: (y.address, y.shape, y.dtype), raising=False)
    back = up.download(made)
    assert np.array_equal(back, x)
    assert testing.calls()["cuMemcpyDtoHAsync"] == 1
    up.close()
    with pytest.raises(UsageError, match="closed"):
        up.download(made)

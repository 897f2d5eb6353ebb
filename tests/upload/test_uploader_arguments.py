"""The arguments of an uploader, and its use after it was closed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyxfer._upload import uploader
from pyxfer._upload.targets import Target
from pyxfer._upload.uploader import Uploader
from pyxfer.errors import FallbackWarning, UsageError
from pyxfer.native import Choice, Engine

VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def own(engine: Engine) -> Target:
    return Target(engine)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"budget": "4KiB"}, "give at least 32 KiB"),
        ({"budget": 0}, "a budget of 0 B is too small"),
        ({"budget": "much"}, "^budget 'much' is not a size: write a size such as "),
        ({"budget": None}, "^budget None is not a whole number "),
        ({"budget": 1e6}, r"^budget 1000000\.0 is not a whole number "),
        ({"budget": True}, "^budget True is not a whole number "),
        ({"budget": b"1"}, "^budget b'1' is not a whole number "),
        ({"pool": -1}, "^pool -1 is not a whole number of at least 0: "),
        ({"pool": 1.5}, r"^pool 1\.5 is not a whole number "),
        ({"pool": "much"}, "^pool 'much' is not a size: write a size such as "),
        ({"threads": 0}, "threads; got 0"),
        ({"threads": "a"}, "threads; got 'a'"),
        ({"threads": [1]}, r"threads; got \[1\]"),
        ({"chunk_bytes": 5000}, "power of two .*; got 5000"),
        ({"slots": 1}, "slots; got 1"),
    ],
)
def test_invalid_arguments_are_refused_before_any_call(engine: Engine, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Uploader("host", **arguments)
    assert engine.testing.calls() == {}  # type: ignore[attr-defined]


WITHOUT_ARRAYS = [[1.0, 2.0], 5, "x.npy", None, [], {"a": ["b", (3, None)]}]


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("x", WITHOUT_ARRAYS, ids=repr)
def test_a_structure_without_any_array_is_refused(own: Target, x: Any, block: bool) -> None:
    with Uploader("host") as up, pytest.raises(UsageError, match=f"^x: this {type(x).__name__} contains no array: "):
        up.upload(x, own, block)


def test_a_batch_without_any_array_is_refused(own: Target) -> None:
    with Uploader("host") as up, up.prefetch([VALUES, [1.0]], own) as batches:
        next(batches)
        with pytest.raises(UsageError, match=r"^batch: this list contains no array: "):
            next(batches)


@pytest.mark.parametrize("batches", ["abc", b"abc", {"x": VALUES}], ids=["text", "bytes", "dict"])
def test_prefetch_refuses_what_cannot_be_batches(own: Target, batches: Any) -> None:
    with Uploader("host") as up, pytest.raises(UsageError, match=r"^batches must be an iterable of arrays"):
        up.prefetch(batches, own)


def test_settings_may_be_text_and_numbers_of_numpy(engine: Engine, own: Target) -> None:
    assert engine.RUNTIME == "host"
    with Uploader("host", threads=np.int32(2), chunk_bytes="8KiB", slots=np.int64(4), budget=np.int64(1 << 20)) as up:
        up.upload(VALUES, own)
        assert up.pinned_bytes == 32 << 10


@pytest.mark.parametrize("device", ["nonsense", "", -1, 1.5, None, True, []])
def test_without_a_gpu_an_invalid_device_is_refused(
    device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "host", "There is no GPU."))
    with pytest.raises(UsageError, match=r" is not a device: give an index, a UUID, a PCI address, or 'host'$"):
        Uploader(device)
    for named in (0, 7, "GPU-97fb2697-5e33-f94c-e6f8-46badc1872ff", "0000:00:06.0"):
        with pytest.warns(FallbackWarning, match=r"^There is no GPU\. Arrays stay in host memory"):
            Uploader(named).close()


@pytest.mark.parametrize("pool", [0, "0", "0B", "0 B"])
def test_a_pool_of_zero_keeps_nothing(pool: Any, own: Target) -> None:
    with Uploader("host", pool=pool) as up:
        del (y := [up.upload(np.ones(1000), own)])[:]
        assert y == []
        assert up._pool.idle_bytes == 0


def test_an_uploader_closed_by_another_thread_raises_usage_error(own: Target) -> None:
    up = Uploader("host")
    up.upload(VALUES, own)
    mover = up._mover
    assert mover is not None
    mover.close()  # as another thread may, after the check of the uploader
    with pytest.raises(RuntimeError, match="the ring is closed"):
        up.upload(VALUES, own)
    up._closed, ready = True, up._ready
    up._ready = lambda: mover  # type: ignore[method-assign]
    with pytest.raises(UsageError):
        up.upload(VALUES, own)
    up._ready = ready  # type: ignore[method-assign]

"""What an uploader is made of, and when it is none any more."""

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
        ({"budget": "4KiB"}, "a budget of 4 KiB is too small for any ring: give at least 32 KiB"),
        ({"budget": 0}, "a budget of 0 B is too small for any ring"),
        ({"budget": "much"}, "^budget: 'much' is not a size; write a size such as "),
        ({"budget": None}, r"^a budget is a number of bytes, such as '256MiB', and not None$"),
        ({"budget": 1e6}, r"^a budget is a number of bytes, such as '256MiB', and not 1000000\.0$"),
        ({"budget": True}, r"^a budget is a number of bytes, such as '256MiB', and not True$"),
        ({"budget": b"1"}, r"^a budget is a number of bytes, such as '256MiB', and not b'1'$"),
        ({"pool": -1}, "a pool keeps 0 bytes or more, such as '1GiB', and not -1"),
        ({"pool": 1.5}, "a pool keeps 0 bytes or more, such as '1GiB', and not 1.5"),
        ({"pool": "much"}, "^pool: 'much' is not a size; write a size such as "),
        ({"threads": 0}, "a ring has 1 to 64 threads, and not 0"),
        ({"threads": "a"}, "a ring has 1 to 64 threads, and not 'a'"),
        ({"threads": [1]}, r"a ring has 1 to 64 threads, and not \[1\]"),
        ({"chunk_bytes": 5000}, "a power of two, and not of 5000"),
        ({"slots": 1}, "a ring has 2 to 4096 slots, and not 1"),
    ],
)
def test_what_makes_no_uploader_is_refused_at_once(engine: Engine, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Uploader("host", **arguments)
    assert engine.testing.calls() == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("device", ["nonsense", "", -1, 1.5, None, True, []])
def test_without_a_gpu_a_mistyped_device_is_not_host_memory(
    device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "host", "There is no GPU."))
    with pytest.raises(UsageError, match=r" is no device: give an index, a UUID, a PCI address, or 'host'$"):
        Uploader(device)
    for named in (0, 7, "GPU-97fb2697-5e33-f94c-e6f8-46badc1872ff", "0000:00:06.0"):
        with pytest.warns(FallbackWarning, match=r"^There is no GPU\. Arrays stay in host memory"):
            Uploader(named).close()


@pytest.mark.parametrize("pool", [0, "0", "0B", "0 B"])
def test_a_pool_may_keep_nothing(pool: Any, own: Target) -> None:
    with Uploader("host", pool=pool) as up:
        del (y := [up.upload(np.ones(1000), own)])[:]
        assert y == []
        assert up._pool.idle_bytes == 0


def test_a_ring_that_another_thread_has_closed_is_a_closed_uploader(own: Target) -> None:
    up = Uploader("host")
    up.upload(VALUES, own)
    mover = up._mover
    assert mover is not None
    mover.close()  # as between the look at the uploader and the use of its ring
    with pytest.raises(RuntimeError, match="the ring is closed"):
        up.upload(VALUES, own)
    up._closed, ready = True, up._ready
    up._ready = lambda: mover  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r"^this Uploader is closed: make another one$"):
        up.upload(VALUES, own)
    up._ready = ready  # type: ignore[method-assign]

"""The public functions, which share one uploader for each device."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from upload.memories import held

import pyxfer
from pyxfer._upload import api, uploader
from pyxfer.errors import UsageError
from pyxfer.native import Choice, Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.usefixtures("own_uploaders")
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_a_shared_uploader_allocates_nothing_before_its_use() -> None:
    assert api._uploader("host") is api._uploader("host")
    assert testing.allocated() == []


def test_threads_share_one_uploader() -> None:
    found: set[int] = set()
    threads = [threading.Thread(target=lambda: found.add(id(api._uploader("host")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(api._by_index) == 1
    assert found == {id(next(iter(api._by_index.values())))}


def test_arrays_are_page_locked_and_released() -> None:
    x = pyxfer.empty_pinned((3, 4), np.int16, device="host")
    assert (x.shape, x.dtype.name, held("pinned")) == ((3, 4), "int16", 24)
    assert pyxfer.empty_pinned(2, device="host").dtype == np.float64
    y = pyxfer.pin(VALUES, device="host")
    assert held("registered") == VALUES.nbytes
    assert np.array_equal(y, VALUES)
    del x, y
    assert held("pinned") + held("registered") == 0


def test_download_refuses_an_object_that_is_not_an_array() -> None:
    assert api._uploader("host").device == 0
    with pytest.raises(UsageError):
        pyxfer.download(3.0)


@pytest.mark.parametrize("device", ["no such device", -1, 99])
def test_an_unknown_device_is_refused(device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "cuda", ""))
    with pytest.raises(UsageError, match="is none of the devices that CUDA shows"):
        pyxfer.upload(VALUES, to="torch", device=device)

"""The functions of one call: what they give, and that a process has one uploader a device for all of them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import pyxfer
from pyxfer._upload import api, uploader
from pyxfer.errors import UsageError
from pyxfer.native import Choice, Engine
from pyxfer.native._host import testing

pytestmark = pytest.mark.usefixtures("own_uploaders")
VALUES = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def held(kind: str) -> int:
    return sum(nbytes for each, _, nbytes in testing.allocated() if each == kind)


def test_nothing_is_made_before_it_is_needed() -> None:
    assert api._uploader("host") is api._uploader("host")
    assert testing.allocated() == []


def test_threads_and_every_name_of_a_device_share_one() -> None:
    found: set[int] = set()
    threads = [threading.Thread(target=lambda: found.add(id(api._uploader("host")))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(api._made) == 1
    assert found == {id(next(iter(api._made.values())))}


def test_an_array_is_page_locked_for_its_device() -> None:
    x = pyxfer.empty_pinned((3, 4), np.int16, device="host")
    assert (x.shape, x.dtype.name, held("pinned")) == ((3, 4), "int16", 24)
    assert pyxfer.empty_pinned(2, device="host").dtype == np.float64
    y = pyxfer.pin(VALUES, device="host")
    assert held("registered") == VALUES.nbytes
    assert np.array_equal(y, VALUES)
    del x, y
    assert held("pinned") + held("registered") == 0


def test_what_is_no_array_on_a_device_is_not_downloaded() -> None:
    assert api._uploader("host").device == 0
    with pytest.raises(UsageError, match=r"^this float is no array on a device: give what upload returned, or a tens"):
        pyxfer.download(3.0)


@pytest.mark.parametrize("device", ["no such device", -1, 99])
def test_a_device_that_there_is_not_is_refused(device: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "choose", lambda *_: Choice(engine, "cuda", ""))
    with pytest.raises(UsageError, match="is none of the devices that CUDA shows"):
        pyxfer.upload(VALUES, to="torch", device=device)

from __future__ import annotations

import pytest

import pyxfer
from pyxfer import native
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing


def test_a_usable_gpu_is_available(as_gpu: Engine) -> None:
    assert pyxfer.is_available()


@pytest.mark.parametrize("code", [35, 100])
def test_no_gpu_is_available_without_a_driver_or_device(as_gpu: Engine, code: int) -> None:
    testing.set_no_driver(code)
    assert not pyxfer.is_available()


def test_no_gpu_is_available_if_the_driver_has_no_devices(as_gpu: Engine) -> None:
    testing.set_device_count(0)
    assert not pyxfer.is_available()


def test_devices_are_listed_in_the_order_of_cuda(as_gpu: Engine) -> None:
    testing.set_device_count(3)
    assert [device.index for device in pyxfer.devices()] == [0, 1, 2]


def test_without_a_gpu_the_only_device_is_host_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._machine.api.choose", lambda: native.choose("host"))
    (device,) = pyxfer.devices()
    assert device.runtime == "host"
    assert device.pci.reason == device.name
    assert device.memory_bytes > 0


def test_host_memory_has_no_link(engine: Engine) -> None:
    link = pyxfer.link("host")
    assert link.kind == "none"
    assert link.hops == ()
    for fact in (link.now, link.under_load, link.raw_peak_gbps, link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert fact.value is None
        assert fact.reason


@pytest.mark.parametrize("device", [7, "GPU-12345678", "ffff:ff:1f.0", "garbage"])
def test_the_link_of_an_unknown_device_is_refused_with_the_known_ones(as_gpu: Engine, device: int | str) -> None:
    with pytest.raises(UsageError, match="0 host memory"):
        pyxfer.link(device)

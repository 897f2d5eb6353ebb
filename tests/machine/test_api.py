from __future__ import annotations

from types import ModuleType

import pytest

import pyxfer
from pyxfer import native
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing


@pytest.fixture
def as_gpu(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The host runtime in the GPU engine's place: what it is told to say about a driver is what a machine would say."""
    real = native._module

    def module(name: str) -> ModuleType:
        return real("_host" if name == "_cuda" else name)

    monkeypatch.setattr(native, "_module", module)
    return engine


def test_a_gpu_that_answers_is_available(as_gpu: Engine) -> None:
    assert pyxfer.is_available()


@pytest.mark.parametrize("code", [35, 100])
def test_without_a_driver_or_a_device_none_is_available(as_gpu: Engine, code: int) -> None:
    testing.set_no_driver(code)
    assert not pyxfer.is_available()


def test_a_driver_without_devices_has_none_available(as_gpu: Engine) -> None:
    testing.set_device_count(0)
    assert not pyxfer.is_available()


def test_every_device_is_listed_in_cudas_order(as_gpu: Engine) -> None:
    testing.set_device_count(3)
    assert [device.index for device in pyxfer.devices()] == [0, 1, 2]


def test_without_a_gpu_the_hosts_memory_is_the_one_device(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyxfer._machine.api.choose", lambda: native.choose("host"))
    (device,) = pyxfer.devices()
    assert (device.runtime, device.name) == ("host", "host memory, not a PCIe link")
    assert device.pci.reason == "host memory, not a PCIe link"
    assert device.memory_bytes > 0


def test_the_hosts_memory_has_no_link(engine: Engine) -> None:
    link = pyxfer.link("host")
    assert link.kind == "none"
    assert link.hops == ()
    for fact in (link.now, link.under_load, link.raw_peak_gbps, link.h2d_peak_gbps, link.d2h_peak_gbps):
        assert fact.value is None
        assert fact.reason


@pytest.mark.parametrize("device", [7, "GPU-12345678", "ffff:ff:1f.0", "garbage"])
def test_a_link_of_a_device_that_is_not_there_is_refused_with_those_that_are(as_gpu: Engine, device: int | str) -> None:
    with pytest.raises(UsageError, match="none of the devices that CUDA shows: 0 host memory, not a PCIe link"):
        pyxfer.link(device)

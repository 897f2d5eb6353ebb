from __future__ import annotations

import re

import pytest

from pyxfer.native import Engine
from pyxfer.native._host import testing


def test_as_many_devices_as_there_are(engine: Engine) -> None:
    testing.set_device_count(3)
    assert engine.device_count() == 3


def test_the_host_is_openly_no_gpu(engine: Engine) -> None:
    properties = engine.device_properties(0)
    assert properties.name == "host memory, not a PCIe link"
    assert properties.pci is None
    assert re.fullmatch(r"GPU(-[0-9a-f]{4,12}){5}", properties.uuid)


def test_no_more_memory_is_free_than_there_is(engine: Engine) -> None:
    free, total = engine.memory_info(0)
    assert 0 < free <= total
    assert total <= engine.device_properties(0).memory_bytes


def test_the_driver_version_is_zero_without_a_driver(engine: Engine) -> None:
    testing.set_no_driver(35)
    assert engine.driver_version() == 0


@pytest.mark.parametrize(("version", "has"), [(12000, True)])
def test_a_driver_call_that_is_there_is_found(engine: Engine, version: int, has: bool) -> None:
    assert engine.driver_has("cuEventRecord", version) is has


def test_a_driver_call_that_is_missing_is_not_found(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    assert not engine.driver_has("cuMemcpyBatchAsync", 12080)


def test_a_driver_call_that_nobody_has_is_not_found(engine: Engine) -> None:
    assert not engine.driver_has("cuTeleport", 12000)


def test_where_the_driver_cannot_be_asked_it_has_nothing(engine: Engine) -> None:
    engine.memory_info(0)
    testing.fail("cudaGetDriverEntryPointByVersion", 1, 1)
    assert not engine.driver_has("cuEventRecord", 12000)
    engine.synchronize(0)  # and the question leaves no error behind

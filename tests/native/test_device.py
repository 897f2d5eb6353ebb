from __future__ import annotations

import re

from pyxfer.native import Engine
from pyxfer.native._host import testing


def test_the_devices_are_counted(engine: Engine) -> None:
    testing.set_device_count(3)
    assert engine.device_count() == 3


def test_the_host_runtime_is_named_as_host_memory(engine: Engine) -> None:
    properties = engine.device_properties(0)
    assert properties.name == "host memory, not a PCIe link"
    assert properties.pci is None
    assert re.fullmatch(r"GPU(-[0-9a-f]{4,12}){5}", properties.uuid)


def test_free_memory_is_at_most_all_memory(engine: Engine) -> None:
    free, total = engine.memory_info(0)
    assert 0 < free <= total
    assert total <= engine.device_properties(0).memory_bytes


def test_the_driver_version_is_zero_without_a_driver(engine: Engine) -> None:
    testing.set_no_driver(35)
    assert engine.driver_version() == 0


def test_driver_calls_are_found_by_name(engine: Engine) -> None:
    assert engine.driver_has("cuEventRecord", 12000)
    assert not engine.driver_has("cuTeleport", 12000)


def test_a_missing_driver_call_is_not_found(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    assert not engine.driver_has("cuMemcpyBatchAsync", 12080)


def test_a_failed_look_up_finds_no_driver_call(engine: Engine) -> None:
    engine.memory_info(0)
    testing.fail("cudaGetDriverEntryPointByVersion", 1, 1)
    assert not engine.driver_has("cuEventRecord", 12000)
    engine.synchronize(0)  # the failed look-up has left no error

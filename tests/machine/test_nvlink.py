"""NVLink and NVLink-C2C by NVML: links, what they carry, and the bytes counted on them."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest
from machine.fake_host import NO_NVML, NVMLError, gpu, nvml, without_nvml

from pyxfer._document.links import Counter
from pyxfer._document.runs import Fact
from pyxfer._machine import nvlink
from pyxfer._machine import nvml as management
from pyxfer._machine.nvml import Nvml

OTHER = "0000:5d:00.0"


def linked(up: int = 18, fields: dict[Any, int] | None = None, remote: str = "", joined: int = 0) -> Nvml:
    """NVML of a GPU with this many links, and these values of fields."""

    def ask(_handle: object, numbers: list[Any]) -> list[Any]:
        value = (fields or {}).get(numbers[0])
        return [SimpleNamespace(nvmlReturn=3 if value is None else 0, valueType=3, value=SimpleNamespace(ullVal=value))]

    def state(_handle: object, link: int) -> int:
        if not up:
            raise NVMLError("Not Supported")
        return int(link < up)

    def remote_of(_handle: object, link: int) -> Any:
        if not remote or link >= 2:
            raise NVMLError("Not Supported")
        return SimpleNamespace(busId=remote.encode())

    return nvml(
        nvmlDeviceGetFieldValues=ask,
        nvmlErrorString=b"Not Supported",
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemotePciInfo=remote_of,
        nvmlDeviceGetP2PStatus=lambda *_: joined,
    )


def test_every_call_and_number_exists_in_the_binding() -> None:
    binding = management.import_binding()
    names = set(re.findall(r'"(nvml[A-Z]\w+)"', inspect.getsource(nvlink)))
    assert len(names) == 3
    assert [name for name in sorted(names) if not hasattr(binding, name)] == []
    assert (binding.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, binding.NVML_P2P_CAPS_INDEX_NVLINK) == (90, 2)
    assert (binding.NVML_FI_DEV_C2C_LINK_COUNT, binding.NVML_FI_DEV_C2C_LINK_GET_MAX_BW) == (170, 172)
    assert (binding.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, binding.NVML_FI_DEV_PCIE_COUNT_RX_BYTES) == (197, 198)
    assert binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX == 138
    assert binding.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX == 139
    assert binding.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES == 202
    assert binding.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES == 204


def test_active_links_and_their_speed() -> None:
    library = linked(6, {90: 26562})
    assert nvlink.active_links(library, gpu()).value == (0, 1, 2, 3, 4, 5)
    assert nvlink.link_gbps(library, gpu()).value == 26.562
    assert nvlink.active_links(linked(0), gpu()).value == ()
    assert nvlink.link_gbps(linked(fields={90: 0}), gpu()).value is None


def test_without_a_driver_every_fact_has_the_reason() -> None:
    absent = without_nvml()
    facts: list[Fact[Any]] = [
        nvlink.active_links(absent, gpu()),
        nvlink.link_gbps(absent, gpu()),
        nvlink.links_between(absent, gpu(), gpu()),
        nvlink.c2c_gbps(absent, gpu()),
        *nvlink.read_counters(absent, gpu()).values(),
    ]
    assert all(NO_NVML in (fact.reason or "") for fact in facts)


@pytest.mark.parametrize(
    ("library", "links"),
    [
        (linked(18), 18),
        (linked(18, remote=OTHER), 2),
        (linked(18, remote="0000:99:00.0"), 18),
        (linked(18, joined=4), 0),
    ],
    ids=["through-switches", "direct", "another-gpu", "not-joined"],
)
def test_the_links_between_two_gpus(library: Nvml, links: int) -> None:
    assert nvlink.links_between(library, gpu(), gpu(pci=OTHER)).value == links


def test_c2c_carries_its_links_times_their_speed() -> None:
    assert nvlink.c2c_gbps(linked(fields={170: 10, 172: 45000}), gpu()).value == 450.0
    assert nvlink.c2c_gbps(linked(fields={170: 0, 172: 0}), gpu()).value is None
    assert "Not Supported" in (nvlink.c2c_gbps(linked(), gpu()).reason or "")


def test_counters_are_bytes_of_all_links() -> None:
    everything = 0xFFFFFFFF
    read = nvlink.read_counters(linked(fields={197: 5, 198: 6, (138, everything): 7, (139, everything): 8}), gpu())
    assert {name: fact.value for name, fact in read.items()} == {
        "pcie-sent": 5,
        "pcie-received": 6,
        "nvlink-sent": 7 * 1024,
        "nvlink-received": 8 * 1024,
    }


def test_counters_of_nvlink_5_are_those_of_each_link() -> None:
    library = linked(3, {202: 10, (202, 1): 20, (202, 2): 30})
    assert nvlink.read_counters(library, gpu())["nvlink-sent"].value == 60
    assert nvlink.read_counters(library, gpu())["nvlink-received"].value is None
    assert nvlink.read_counters(linked(0), gpu())["nvlink-sent"].value is None


def test_the_bytes_between_two_readings() -> None:
    before: dict[Counter, Fact[int]] = {
        "pcie-sent": Fact(10),
        "pcie-received": Fact(9),
        "nvlink-sent": Fact(reason="no"),
    }
    after: dict[Counter, Fact[int]] = {"pcie-sent": Fact(35), "pcie-received": Fact(3), "nvlink-sent": Fact(8)}
    found = nvlink.counted_between(before, after)
    assert [found[name].value for name in after] == [25, (1 << 32) - 6, None]


def test_a_counter_of_more_than_32_bits_that_went_back_counts_nothing() -> None:
    far: Fact[int] = Fact(1 << 40)
    before: dict[Counter, Fact[int]] = {"pcie-sent": far, "nvlink-sent": Fact(9)}
    after: dict[Counter, Fact[int]] = {"pcie-sent": Fact(1), "nvlink-sent": Fact(8)}
    assert [fact.value for fact in nvlink.counted_between(before, after).values()] == [None, None]

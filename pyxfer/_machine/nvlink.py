"""NVLink and NVLink-C2C: how many links a GPU has, what they carry on paper, and the bytes that NVML counts on them."""

from __future__ import annotations

from collections.abc import Mapping

from pyxfer._document.links import Counter
from pyxfer._document.machines import Device, Fact
from pyxfer._machine.nvml import Nvml, field, is_unsupported, text_of
from pyxfer._machine.pci import canonical_address

# nvml.h: numbers of fields. Speeds are of one link in one direction.
_SPEED_MBPS = 90
_C2C_LINKS, _C2C_MBPS = 170, 172
_PCIE_SENT, _PCIE_RECEIVED = 197, 198
_NVLINK_SENT_KIB, _NVLINK_RECEIVED_KIB = 138, 139
_NVLINK_5_SENT, _NVLINK_5_RECEIVED = 202, 204
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
_MAX_LINKS = 18
_P2P_NVLINK, _P2P_FINE = 2, 0


def active_links(nvml: Nvml, device: Device) -> Fact[tuple[int, ...]]:
    """The numbers of the NVLinks that are up; none for a GPU without NVLink."""
    states = [nvml.ask_device(device, "nvmlDeviceGetNvLinkState", link) for link in range(_MAX_LINKS)]
    known = [link for link, state in enumerate(states) if state.value is not None]
    if not known:
        return Fact(()) if is_unsupported(states[0]) else Fact(reason=states[0].reason)
    return Fact(tuple(link for link in known if states[link].value))


def link_gbps(nvml: Nvml, device: Device) -> Fact[float]:
    """What one active NVLink of the device carries in one direction."""
    still: Fact[float] = Fact(reason="NVML gives NVLink a speed of 0")
    return field(nvml, device, _SPEED_MBPS).and_then(lambda mbps: Fact(mbps / 1e3) if mbps > 0 else still)


def links_between(nvml: Nvml, one: Device, other: Device) -> Fact[int]:
    """The NVLinks that join two GPUs, directly or through a switch; 0 if none does.

    Of links to switches, which reach every other GPU, those of the GPU with fewer count.
    """
    status = nvml.handle(other).and_then(lambda to: nvml.ask_device(one, "nvmlDeviceGetP2PStatus", to, _P2P_NVLINK))
    if status.value is None:
        return Fact(reason=status.reason)
    if status.value != _P2P_FINE:
        return Fact(0)
    here, there = active_links(nvml, one), active_links(nvml, other)
    if here.value is None or there.value is None:
        return Fact(reason=here.reason or there.reason)
    direct = sum(_leads_to(nvml, one, link, other) for link in here.value)
    return Fact(direct or min(len(here.value), len(there.value)))


def _leads_to(nvml: Nvml, one: Device, link: int, other: Device) -> bool:
    remote = nvml.ask_device(one, "nvmlDeviceGetNvLinkRemotePciInfo", link).value
    return remote is not None and canonical_address(text_of(remote.busId)) == (other.pci.value or "")


def c2c_gbps(nvml: Nvml, device: Device) -> Fact[float]:
    """What NVLink-C2C carries in one direction on paper."""
    links, speed = field(nvml, device, _C2C_LINKS), field(nvml, device, _C2C_MBPS)
    if links.value is None or speed.value is None:
        return Fact(reason=links.reason or speed.reason)
    if not links.value or not speed.value:
        return Fact(reason="NVML gives this GPU no NVLink-C2C link")
    return Fact(links.value * speed.value / 1e3)


def read_counters(nvml: Nvml, device: Device) -> dict[Counter, Fact[int]]:
    """The bytes that have crossed the device's links since the driver was loaded."""
    return {
        "pcie-sent": field(nvml, device, _PCIE_SENT),
        "pcie-received": field(nvml, device, _PCIE_RECEIVED),
        "nvlink-sent": _nvlink_bytes(nvml, device, _NVLINK_SENT_KIB, _NVLINK_5_SENT),
        "nvlink-received": _nvlink_bytes(nvml, device, _NVLINK_RECEIVED_KIB, _NVLINK_5_RECEIVED),
    }


def _nvlink_bytes(nvml: Nvml, device: Device, kib: int, nvlink_5: int) -> Fact[int]:
    older, links = field(nvml, device, kib, _ALL_LINKS), active_links(nvml, device)
    if older.value is not None:
        return Fact(older.value * _KIB)
    if not links.value:
        return Fact(reason=older.reason)
    counts = [field(nvml, device, nvlink_5, link) for link in links.value]
    missing = next((count.reason for count in counts if count.value is None), None)
    return Fact(reason=missing) if missing else Fact(sum(count.value or 0 for count in counts))


Counts = Mapping[Counter, Fact[int]]
_PCIE_WRAPS_AT = 1 << 32
"""nvml.h says that the counters of PCIe wrap. Those of an H200 have 32 bits, so at most 4 GiB can be counted."""


def counted_between(before: Counts, after: Counts) -> dict[Counter, Fact[int]]:
    """The bytes between two readings, if they are less than 4 GiB."""
    found: dict[Counter, Fact[int]] = {}
    for counter, end in after.items():
        begin = before[counter]
        if begin.value is None or end.value is None:
            found[counter] = Fact(reason=begin.reason or end.reason)
        elif end.value >= begin.value:
            found[counter] = Fact(end.value - begin.value)
        elif counter.startswith("pcie") and begin.value < _PCIE_WRAPS_AT:
            found[counter] = Fact(end.value + _PCIE_WRAPS_AT - begin.value)
        else:
            found[counter] = Fact(reason="the counter went back, as when the driver is loaded anew")
    return found

"""The link between host memory and a device: its state and its theoretical peaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pyxfer._document import machines
from pyxfer._document.machines import HOST_MEMORY, Device, Fact, Hop, Link, LinkKind, LinkState
from pyxfer._machine import nvml as management
from pyxfer._machine import pci
from pyxfer._machine.devices import find_device
from pyxfer._machine.engine import is_host
from pyxfer._machine.link_remarks import remarks_on
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.sysfs import first_known
from pyxfer.native import HOST, Engine, choose

_NO_FACTS = ("kind", "hops", "remarks")

NOT_UNDER_LOAD = "the link was not read under load"
_NO_PATH = "the kernel shows no PCI path to this device"

# Grace connects its GPUs chip to chip. The name shows it if NVML does not.
_C2C_NAME = re.compile(r"\bG[HB]\d{2,3}\b")

_NO_PCIE_PEAK = "host and device are joined chip to chip (NVLink-C2C), so no PCIe peak applies"


def link(device: int | str = 0) -> Link:
    """Read the link between host memory and a device: its state, its settings and its theoretical peaks.

    Args:
        device: Index, UUID (or its beginning) or PCI address, or "host".

    Raises:
        UsageError: no device or more than one matches.
    """
    engine = choose(device).engine
    return read_link(engine, find_device(engine, 0 if device == HOST else device))


def read_link(engine: Engine, device: Device, *, root: Path = Path("/"), nvml: Nvml | None = None) -> Link:
    """Read the present and the largest state of the link. `with_load` adds its state under load."""
    if is_host(engine):
        return _no_link(HOST_MEMORY)
    if engine.device_properties(device.index).integrated:
        return _no_link("the GPU and the CPU share one memory, so copies cross no link")
    nvml = nvml or management.shared()
    hops, address = _hops(device, root), device.pci.value
    # NVML gives the generation of the device alone, but the width only together with the slot.
    device_most = management.link_device_most(nvml, device)
    if address is not None:
        device_most = first_known(pci.read_device_most(address, root), device_most)
    control = Fact(reason=device.pci.reason) if address is None else pci.read_device_control(address, root)
    idle = Link(
        kind=_link_kind(nvml, device),
        now=first_known(management.link_now(nvml, device), _nearest(hops, lambda hop: hop.now)),
        under_load=Fact(reason=NOT_UNDER_LOAD),
        device_most=device_most,
        system_most=first_known(management.link_system_most(nvml, device), _nearest(hops, lambda hop: hop.most)),
        max_payload_bytes=control.then(lambda read: read.max_payload_bytes),
        max_read_request_bytes=control.then(lambda read: read.max_read_request_bytes),
        relaxed_ordering=control.then(lambda read: read.relaxed_ordering),
        hops=hops,
        narrowest_hop=Fact(reason=NOT_UNDER_LOAD),
        raw_peak_gbps=Fact(reason=NOT_UNDER_LOAD),
        h2d_peak_gbps=Fact(reason=NOT_UNDER_LOAD),
        d2h_peak_gbps=Fact(reason=NOT_UNDER_LOAD),
    )
    return with_load(idle, idle.under_load)


def link_under_load(device: Device, *, root: Path = Path("/"), nvml: Nvml | None = None) -> Fact[LinkState]:
    """The present state of the link. Call it while copies run: an idle link may be slower."""
    if device.runtime == "host":
        return Fact(reason=HOST_MEMORY)
    now = management.link_now(nvml or management.shared(), device)
    return first_known(now, _nearest(_hops(device, root), lambda hop: hop.now))


def with_load(link: Link, state: Fact[LinkState]) -> Link:
    """The link with its state under load, and with the peaks, narrowest hop and remarks that follow from it."""
    if link.kind == "none":
        return link
    whole = _with_peaks(msgspec.structs.replace(link, under_load=state))
    return msgspec.structs.replace(whole, remarks=remarks_on(whole))


def derived_link(link: Link) -> Link:
    """The link with the peaks and the narrowest hop that follow from its states, if it had been read under load."""
    if link.raw_peak_gbps.value is not None:  # that of a link of another kind is not known
        link = msgspec.structs.replace(link, kind="pcie")
    is_read = link.raw_peak_gbps.value is not None or link.narrowest_hop.value is not None
    return _with_peaks(link) if is_read else link


def _with_peaks(link: Link) -> Link:
    state: Fact[LinkState] = Fact(reason=_NO_PCIE_PEAK) if link.kind == "c2c" else bottleneck(link)
    return msgspec.structs.replace(
        link,
        narrowest_hop=narrowest_hop(link),
        raw_peak_gbps=pci.raw_peak_gbps(state),
        h2d_peak_gbps=pci.protocol_peak_gbps(state, link.max_payload_bytes, machines.COMPLETION_OVERHEAD_BYTES),
        d2h_peak_gbps=pci.protocol_peak_gbps(state, link.max_payload_bytes, machines.WRITE_OVERHEAD_BYTES),
    )


def working_states(link: Link) -> list[Fact[LinkState]]:
    """The states of the device's link and of those above it under load; the largest possible states if not known."""
    own = link.under_load
    if own.value is None:
        own = pci.lesser(link.system_most, link.hops[0].most) if link.hops else link.system_most
    return [own, *(hop.working for hop in link.hops[1:])]


def bottleneck(link: Link) -> Fact[LinkState]:
    """The state of the narrowest link on the way, which sets the peaks; unknown if that of the device is."""
    states = working_states(link)
    return states[0] if states[0].value is None else min(states, key=pci.hop_gbps)


def narrowest_hop(link: Link) -> Fact[Hop]:
    """The link on the way that carries the least; of equal ones the nearest to the device."""
    if not link.hops:
        return Fact(reason=_NO_PATH)
    states = working_states(link)
    known = [pair for pair in zip(link.hops, states, strict=True) if pair[1].value is not None]
    if not known:
        return Fact(reason=states[0].reason)
    return Fact(min(known, key=lambda pair: pci.hop_gbps(pair[1]))[0])


def _link_kind(nvml: Nvml, device: Device) -> LinkKind:
    c2c = management.is_c2c(nvml, device)
    if c2c.value or (c2c.value is None and _C2C_NAME.search(device.name)):
        return "c2c"
    return "unknown" if device.pci.value is None else "pcie"


def _hops(device: Device, root: Path) -> tuple[Hop, ...]:
    return () if device.pci.value is None else pci.read_hops(device.pci.value, root)


def _nearest(hops: tuple[Hop, ...], part: Callable[[Hop], Fact[LinkState]]) -> Fact[LinkState]:
    return part(hops[0]) if hops else Fact(reason=_NO_PATH)


def _no_link(reason: str) -> Link:
    missing: dict[str, Any] = {name: Fact(reason=reason) for name in Link.__struct_fields__ if name not in _NO_FACTS}
    return Link(kind="none", hops=(), **missing)

"""The link between host memory and a device: its state, its theoretical peaks, and remarks on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pyxfer._document import machines
from pyxfer._document.machines import HOST_MEMORY, Device, Fact, Hop, Link, LinkKind, LinkState, Remark, describe
from pyxfer._machine import nvml as management
from pyxfer._machine import pci
from pyxfer._machine.devices import find_device
from pyxfer._machine.engine import is_host
from pyxfer._machine.nvml import Nvml
from pyxfer._machine.sysfs import first_known
from pyxfer.native import HOST, Engine, choose

RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"


def _under_load(link: Link) -> Iterator[Remark]:
    seen, most = link.under_load.value, link.system_most.value
    if seen is None or most is None:
        return
    where = f" of {link.hops[0].pci}" if link.hops else ""
    text = f"the link{where} runs at {describe(seen)} under load, though device and slot can do {describe(most)}"
    if seen.width < most.width:
        yield Remark("link-narrow", text, RESEAT)
    elif seen.generation < most.generation:
        yield Remark("link-slow", text, RESEAT)


def _slot(link: Link) -> Iterator[Remark]:
    alone, both = link.device_most.value, link.system_most.value
    if alone is not None and both is not None and pci.hop_gbps(link.system_most) < pci.hop_gbps(link.device_most):
        yield Remark(
            "slot-limit",
            f"the device can do {describe(alone)}, and in this slot at most {describe(both)}",
            "use a slot that can do as much as the device, or lift the slot's limit in the firmware",
        )


def _above(link: Link) -> Iterator[Remark]:
    narrowest = link.narrowest_hop.value
    if narrowest is None or narrowest is link.hops[0]:
        return
    now = narrowest.working.value
    own = (link.under_load if link.under_load.value is not None else link.system_most).value
    if now is not None and own is not None:
        yield Remark(
            "hop-narrow",
            f"the narrowest link between device and CPU is that of {narrowest.pci}, a port above the device: "
            f"{describe(now)}, and the device's own link is {describe(own)}",
            RESEAT,
        )


def _packets(link: Link) -> Iterator[Remark]:
    if link.max_payload_bytes.value == machines.SMALLEST_PAYLOAD_BYTES:
        yield Remark(
            "max-payload-128",
            "MaxPayload is 128 bytes, so packet headers take 14 to 16 % of the link; with 256 bytes they take 7 to 9 %",
            "set MaxPayload to 256 in the firmware, or start the kernel with pci=pcie_bus_perf",
        )
    if link.relaxed_ordering.value is False:
        yield Remark(
            "relaxed-ordering-off",
            "relaxed ordering is off, which can slow down copies, above all in both directions at once",
            "enable PCIe relaxed ordering in the firmware",
        )


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
    remarks = (*_under_load(whole), *_slot(whole), *_above(whole), *_packets(whole)) if link.kind == "pcie" else ()
    return msgspec.structs.replace(whole, remarks=remarks)


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

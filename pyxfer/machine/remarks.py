"""What a reader must know about a link that does less than it could, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from pyxfer.machine.pci import hop_gbps
from pyxfer.model import Link, LinkState, Remark

_SMALLEST_PAYLOAD = 128
_RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"


def link_remarks(link: Link) -> tuple[Remark, ...]:
    """Remarks in the order of what they cost."""
    if link.kind != "pcie":
        return ()
    return (*_under_load(link), *_slot(link), *_above(link), *_packets(link))


def describe(state: LinkState) -> str:
    """`PCIe 5.0 x16`."""
    return f"PCIe {state.generation}.0 x{state.width}"


def _under_load(link: Link) -> Iterator[Remark]:
    seen, most = link.under_load.value, link.system_most.value
    if seen is None or most is None:
        return
    where = f" of {link.hops[0].pci}" if link.hops else ""
    text = f"the link{where} runs at {describe(seen)} under load, though device and slot can do {describe(most)}"
    if seen.width < most.width:
        yield Remark("link-narrow", text, _RESEAT)
    elif seen.generation < most.generation:
        yield Remark("link-slow", text, _RESEAT)


def _slot(link: Link) -> Iterator[Remark]:
    alone, both = link.device_most.value, link.system_most.value
    if alone is not None and both is not None and hop_gbps(link.system_most) < hop_gbps(link.device_most):
        yield Remark(
            "slot-limit",
            f"the device can do {describe(alone)}, and in this slot at most {describe(both)}",
            "use a slot that can do as much as the device, or lift the slot's limit in the firmware",
        )


def _above(link: Link) -> Iterator[Remark]:
    narrowest = link.narrowest_hop.value
    if narrowest is None or narrowest is link.hops[0]:
        return
    now = (narrowest.now if narrowest.now.value is not None else narrowest.most).value
    own = (link.under_load if link.under_load.value is not None else link.system_most).value
    if now is not None and own is not None:
        yield Remark(
            "hop-narrow",
            f"the narrowest link on the way to the CPU is that of {narrowest.pci}, a port above the device: "
            f"{describe(now)}, where the device's own link is {describe(own)}",
            _RESEAT,
        )


def _packets(link: Link) -> Iterator[Remark]:
    if link.max_payload_bytes.value == _SMALLEST_PAYLOAD:
        yield Remark(
            "max-payload-128",
            "MaxPayload is 128 bytes, so packet headers take 14 to 16 % of the link, where 256 would take 7 to 9 %",
            "set MaxPayload to 256 in the firmware, or start the kernel with pci=pcie_bus_perf",
        )
    if link.relaxed_ordering.value is False:
        yield Remark(
            "relaxed-ordering-off",
            "relaxed ordering is off, which can slow copies, above all in both directions at once",
            "enable PCIe relaxed ordering in the firmware",
        )

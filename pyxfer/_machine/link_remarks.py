"""What a link's state says is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator

from pyxfer._document import machines
from pyxfer._document.machines import Link, Remark, describe
from pyxfer._machine import pci

RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"


def remarks_on(link: Link) -> tuple[Remark, ...]:
    return (*_under_load(link), *_slot(link), *_above(link), *_packets(link)) if link.kind == "pcie" else ()


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

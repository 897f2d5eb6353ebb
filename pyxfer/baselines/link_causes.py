"""Why copies have become slow, as far as the link and the way to it say."""

from __future__ import annotations

from collections.abc import Iterator

from pyxfer.baselines.case import LARGE_BYTES, Case
from pyxfer.baselines.differences import iommu_kind, link_state
from pyxfer.machine.iommu import lets_through
from pyxfer.machine.peaks import GIGATRANSFERS, carries_gbps
from pyxfer.machine.remarks import describe
from pyxfer.model import LinkState
from pyxfer.model_baselines import Cause, CellComparison
from pyxfer.units import format_gbps, format_percent

RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"
_WIDTHS = (16, 8, 4, 2, 1)
_LEAST_SHARE = 0.8
"""A copy of page-locked memory reaches at least so much of what its link carries."""
_IOMMU_FIX = "if nothing needs translation for this device, start the kernel with iommu=pt"


def link_causes(case: Case) -> Iterator[Cause]:
    """The surest first."""
    trained = list(_trained_lower(case))
    yield from trained
    if not trained:
        yield from _like_a_lesser_link(case)
    yield from _narrower_hop(case)
    yield from _smaller_packets(case)
    yield from _translation(case)


def _trained_lower(case: Case) -> Iterator[Cause]:
    """Less than before; or where nothing is known of before, less than device and slot can do."""
    now = case.b.link.under_load.value
    if now is None:
        now = _narrow_even_idle(case)
    before = link_state(case.a).value
    known = before is not None
    if before is None:
        before = case.b.link.system_most.value or case.b.link.device_most.value
    if now is None or before is None or carries_gbps(now) >= carries_gbps(before):
        return
    was = f"it was {describe(before)}" if known else f"device and slot can do {describe(before)}"
    share = format_percent(carries_gbps(now) / carries_gbps(before))
    code = "link-narrow" if now.width < before.width else "link-slow"
    text = f"The link is trained at {describe(now)}, and {was}: it carries {share} of that."
    seen = "under load" if case.b.link.under_load.value is not None else "idle; a link keeps its width when it idles"
    yield Cause(code, text, f"the state of the link, read {seen}", RESEAT)


def _narrow_even_idle(case: Case) -> LinkState | None:
    """An idle link may have lowered its generation, and never its width."""
    now, before = case.b.link.now.value, link_state(case.a).value
    if now is None or before is None or now.width >= before.width:
        return None
    return LinkState(before.generation, now.width)


def _like_a_lesser_link(case: Case) -> Iterator[Cause]:
    """Where the link's state cannot be read: its copies fit under the peak of a lesser one, and did not before."""
    full = link_state(case.a).value or case.a.link.system_most.value or case.a.link.device_most.value
    if case.b.link.under_load.value is not None or full is None or case.b.link.kind != "pcie":
        return
    large = [cell for cell in case.slow_among(locked=True) if _is_plain_and_large(cell)]
    for lesser in _lesser_states(full):
        if large and all(_fits_under(cell, carries_gbps(lesser[0])) for cell in large):
            names = " or ".join(map(describe, lesser))
            figures = " and ".join(
                f"{format_gbps(cell.b_gbps.value or 0.0)} {cell.cell.direction}" for cell in large[:2]
            )
            yield Cause(
                "link-lesser",
                f"The link copies like one that is trained at {names}, where it was {describe(full)}.",
                f"{figures} is at most what that carries ({format_gbps(carries_gbps(lesser[0]))}), and before it was "
                "more; the state under load could not be read",
                RESEAT,
            )
            return


def _is_plain_and_large(row: CellComparison) -> bool:
    return row.cell.direction in ("h2d", "d2h") and row.cell.nbytes >= LARGE_BYTES and row.a_gbps.value is not None


def _fits_under(row: CellComparison, peak_gbps: float) -> bool:
    before, now = row.a_gbps.value or 0.0, row.b_gbps.value or 0.0
    return _LEAST_SHARE * peak_gbps <= now <= peak_gbps < before


def _lesser_states(full: LinkState) -> list[list[LinkState]]:
    """What the link may have been trained at instead, states that carry the same together, the fastest first."""
    states = [LinkState(g, w) for g in sorted(GIGATRANSFERS, reverse=True) for w in _WIDTHS]
    lesser = [s for s in states if s.generation <= full.generation and s.width <= full.width and s != full]
    by_rate: dict[float, list[LinkState]] = {}
    for state in lesser:
        by_rate.setdefault(round(carries_gbps(state), 3), []).append(state)
    return [by_rate[rate] for rate in sorted(by_rate, reverse=True)]


def _narrower_hop(case: Case) -> Iterator[Cause]:
    before, now = case.a.link.narrowest_hop.value, case.b.link.narrowest_hop.value
    own = case.b.link.hops[0] if case.b.link.hops else None
    if before is None or now is None or now == own:
        return
    was, has = (hop.now.value or hop.most.value for hop in (before, now))
    if was is not None and has is not None and carries_gbps(has) < carries_gbps(was):
        yield Cause(
            "hop-narrow",
            f"A port above the device, {now.pci}, runs at {describe(has)}; the narrowest was {describe(was)}.",
            "the states of the links between the device and the processor",
            RESEAT,
        )


def _smaller_packets(case: Case) -> Iterator[Cause]:
    a, b = case.a.link, case.b.link
    before, now = a.max_payload_bytes.value, b.max_payload_bytes.value
    if before is not None and now is not None and now < before:
        yield Cause(
            "payload",
            f"Packets carry at most {now} bytes, and carried {before}: more of the link goes to their headers.",
            "MaxPayload in the device's configuration space",
            f"set MaxPayload to {before} in the firmware, or start the kernel with pci=pcie_bus_perf",
        )
    asked, asks = a.max_read_request_bytes.value, b.max_read_request_bytes.value
    if asked is not None and asks is not None and asks < asked:
        yield Cause(
            "read-request",
            f"The device asks for at most {asks} bytes at once, and asked for {asked}: copies to it wait more often.",
            "MaxReadRequest in the device's configuration space",
            f"set MaxReadRequest to {asked} in the firmware",
        )
    if a.relaxed_ordering.value and b.relaxed_ordering.value is False:
        yield Cause(
            "relaxed-ordering",
            "Relaxed ordering has been switched off.",
            "the device's configuration space",
            "enable PCIe relaxed ordering in the firmware",
        )


def _translation(case: Case) -> Iterator[Cause]:
    before, now = iommu_kind(case.a), iommu_kind(case.b)
    if before is None or now is None or before == now or lets_through(now):
        return
    yield Cause(
        "iommu",
        f"The IOMMU is set otherwise: {now}, and it was: {before}. Translated addresses cost most in small copies.",
        "the device's group in /sys and the kernel's command line",
        _IOMMU_FIX,
    )

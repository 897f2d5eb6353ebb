"""The link and what lies above it: what it was trained to, and how its packets are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pyxfer._doctor.case import LEAST_BYTES, Case, Findings, fine, is_raw, state_text, untold
from pyxfer._document.examinations import Counters, Finding, Health, PortControl, Sureness
from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES
from pyxfer._document.runs import Fact, Hop, LinkState
from pyxfer.units import format_percent, format_size

BIT_ERRORS = 1e-12
"""The bit error rate that the PCI Express base specification allows a lane; each wrong bit costs one replay."""
CHANCE = 1e-3
"""How seldom a link that is just as bad as allowed shall be called suspicious."""

_MANY, _DEVIATIONS = 500, 3.1  # from so many on the distribution is a normal one, and its terms leave a float's range

_RESEAT_OR_MOVE = "reseat the card or its riser, look for PCIe errors in the kernel log, and try another slot"
_WHY = "a wrong bit is noticed by its checksum, and the packet is sent again, which costs its time"


def most_errors(nbytes: int) -> int:
    """The most errors that chance makes of the allowed rate in so many bytes, once in a thousand times more."""
    mean = nbytes * 8 * BIT_ERRORS
    if mean > _MANY:
        return math.ceil(mean + _DEVIATIONS * math.sqrt(mean))
    count, term, below = 0, math.exp(-mean), math.exp(-mean)
    while below < 1 - CHANCE:
        count += 1
        term *= mean / count
        below += term
    return count


def replays_beyond(health: Health) -> int | None:
    """How many packets were sent again, where that is more than is allowed."""
    count = _grown(health, lambda counters: counters.replays).value
    return count if count is not None and count > most_errors(health.moved_bytes) else None


def replays(case: Case) -> Findings:
    """Packets that were sent again while it was measured, and whether the link had to train anew for one."""
    expected = "hardly any packet to be sent again"
    if case.health is None:
        return
    count = _grown(case.health, lambda counters: counters.replays)
    rollovers = _grown(case.health, lambda counters: counters.replay_rollovers).value
    if count.value is None:
        yield untold("replays", "replays", expected, count.reason)
        return
    most = most_errors(case.health.moved_bytes)
    expected = f"at most {most}: the specification allows one wrong bit in 1e12"
    seen = f"{_times(count.value)} while {_bytes(case.health)} crossed, {_per_tb(count.value, case.health)}"
    total = case.health.before.replays.value or 0
    seen += f"; {total} before" if total else ""
    if rollovers:
        why = "a packet was sent several times without arriving, and the link had to train anew"
        yield Finding("replays", "replays", "wrong", seen, expected, why, "certain", _RESEAT_OR_MOVE)
    elif count.value > most:
        yield Finding("replays", "replays", "suspicious", seen, expected, _WHY, "likely", _RESEAT_OR_MOVE)
    else:
        yield fine("replays", "replays", seen, expected, _WHY)


def link_errors(case: Case) -> Findings:
    """What the device and every port above it report of errors."""
    if case.health is None:
        return
    expected = f"no fatal error, none that loses a packet, and at most {most_errors(case.health.moved_bytes)} corrected"
    grave = _reported(case.health, "nonfatal") + _reported(case.health, "fatal")
    corrected = _reported(case.health, "correctable")
    known = [count for _, count in (*grave, *corrected) if count.value is not None]
    if not known:
        reasons = [count.reason for _, count in (*grave, *corrected)]
        yield untold("link-errors", "link errors", expected, reasons[0] if reasons else None)
        return
    lost = [f"{count.value} at {where}" for where, count in grave if count.value]
    many = [f"{count.value} at {where}" for where, count in corrected if _too_many(count, case.health)]
    if lost:
        why = "a packet or the link itself was lost, which programs see as Xid errors, hangs or wrong results"
        seen = f"errors that could not be corrected: {', '.join(lost)}"
        yield Finding("link-errors", "link errors", "wrong", seen, expected, why, "certain", _RESEAT_OR_MOVE)
    elif many:
        seen = f"corrected errors while {_bytes(case.health)} crossed: {', '.join(many)}"
        yield Finding("link-errors", "link errors", "suspicious", seen, expected, _WHY, "likely", _RESEAT_OR_MOVE)
    else:
        told = _few(corrected, {where for where, count in (*grave, *corrected) if count.value is not None})
        yield fine("link-errors", "link errors", told, expected, "both ends of every link count them")


def _few(corrected: list[tuple[str, Fact[int]]], places: set[str]) -> str:
    total = sum(count.value or 0 for _, count in corrected)
    where = f"counted in {len(places)} place{'' if len(places) == 1 else 's'}"
    return f"{total} corrected, none graver, {where}" if total else f"no error, {where}"


def _reported(health: Health, kind: str) -> list[tuple[str, Fact[int]]]:
    """How many errors of a kind were added, by the GPU's own count and by each port's."""
    own = _grown(health, lambda counters: getattr(counters, kind))
    later = {port.pci: port for port in health.after.ports}
    ports = [
        (port.pci, _added(getattr(port, kind), getattr(later[port.pci], kind)))
        for port in health.before.ports
        if port.pci in later
    ]
    return [("the GPU", own), *ports]


def _grown(health: Health, part: Callable[[Counters], Fact[int]]) -> Fact[int]:
    return _added(part(health.before), part(health.after))


def _added(before: Fact[int], after: Fact[int]) -> Fact[int]:
    if before.value is None or after.value is None:
        return before if before.value is None else after
    if after.value < before.value:
        return Fact(reason=f"the count went from {before.value} to {after.value}, so it was set back in between")
    return Fact(after.value - before.value)


def _too_many(count: Fact[int], health: Health) -> bool:
    return count.value is not None and count.value > most_errors(health.moved_bytes)


def _times(count: int) -> str:
    return "no packet sent again" if count == 0 else f"{count} sent again"


def _bytes(health: Health) -> str:
    return format_size(health.moved_bytes)


def _per_tb(count: int, health: Health) -> str:
    return f"{count / (health.moved_bytes / 1e12):.3g} per TB" if health.moved_bytes else "nothing crossed"


SMALLEST_PAYLOAD = 128
_GIGA = 1e9
_RESEAT = "reseat the card or its riser, check the slot in the firmware, and look for PCIe errors in the kernel log"
_SLOT = "use a slot that can do as much as the device, or lift the slot's limit in the firmware"
_WHY_STATE = "device and slot agree on the most that both can do, and an idle link falls back until it is used"


def link(case: Case) -> Findings:
    """What the link runs at under load, against what slot and device could do together, and the device alone."""
    now, seen, both = case.run.link.now.value, case.run.link.under_load, case.run.link.system_most
    if case.run.link.kind != "pcie":
        reason = case.run.link.raw_peak_gbps.reason or f"the link is of the kind {case.run.link.kind}"
        yield untold("link", "link", "a PCI Express link", reason)
        return
    if seen.value is None or both.value is None:
        yield untold("link", "link", "what device and slot can do", seen.reason or both.reason)
        return
    expected = f"{state_text(both.value)}, the most that device and slot can do"
    told = f"{state_text(seen.value)} under load"
    if now is not None and now.generation < seen.value.generation:
        told += f"; {state_text(now)} while idle, which saves power and is as it should be"
    if _was_faster(case):
        why = "copies took less time than such a link needs, so what the driver shows is not what the link is"
        do = "measure again; in a virtual machine look at the link from the host below (lspci -vv, LnkSta)"
        yield Finding("link", "link", "suspicious", told, expected, why, "certain", do)
    elif _is_less(seen.value, both.value):
        yield Finding("link", "link", "wrong", told, expected, _why_less(seen.value, both.value), case.read, _RESEAT)
    else:
        yield fine("link", "link", told, expected, _WHY_STATE, case.read)


def _was_faster(case: Case) -> bool:
    """Whether bytes that arrived whole crossed faster than the link that is shown could carry them."""
    raw_gbps = case.run.link.raw_peak_gbps.value
    whole = [each for each in case.run.measurements if is_raw(each) and each.verified.value and each.side != "sum"]
    times = [(each.moved_bytes, each.elapsed_s) for each in whole if each.nbytes >= LEAST_BYTES and each.elapsed_s]
    return raw_gbps is not None and any(nbytes / seconds / _GIGA > raw_gbps for nbytes, seconds in times)


def _is_less(one: LinkState, other: LinkState) -> bool:
    return one.width < other.width or one.generation < other.generation


def _why_less(seen: LinkState, most: LinkState) -> str:
    reasons = []
    if seen.width < most.width:
        lanes = f"only {seen.width} of {most.width} lanes came up"
        reasons.append(f"{lanes}: a bad contact, a riser, or lanes shared with a neighbour")
    if seen.generation < most.generation:
        trained = f"it trained at generation {seen.generation} of {most.generation}"
        reasons.append(f"{trained}: signals too weak for more, an older riser, or a limit in the firmware")
    return "; ".join(reasons)


def slot(case: Case) -> Findings:
    """What the slot leaves of what the device could do."""
    alone, both = case.run.link.device_most, case.run.link.system_most
    if case.run.link.kind != "pcie":
        return
    if alone.value is None or both.value is None:
        yield untold("slot", "slot", "a slot that can do as much as the device", alone.reason or both.reason)
        return
    seen = f"{state_text(both.value)} in this slot"
    expected = f"{state_text(alone.value)}, the most that the device can do"
    if both.value.width < alone.value.width:
        lanes = f"{both.value.width} of the device's {alone.value.width} lanes"
        why = f"the slot gives {lanes}: the card is in the wrong slot"
        yield Finding("slot", "slot", "wrong", seen, expected, why, "likely", _SLOT)
    elif both.value.generation < alone.value.generation:
        why = "the board is of an older generation than the device, or its firmware limits the slot"
        yield Finding("slot", "slot", "suspicious", seen, expected, why, "likely", _SLOT)
    else:
        yield fine("slot", "slot", seen, expected, "the slot can do as much as the device", case.read)


def path(case: Case) -> Findings:
    """The narrowest link on the way up to the processor."""
    links, narrowest = case.run.link.hops, case.run.link.narrowest_hop
    expected = "no link above that carries less than the device's own"
    if case.run.link.kind != "pcie":
        return
    if narrowest.value is None:
        yield untold("path", "path", expected, narrowest.reason)
    elif narrowest.value == links[0]:
        ways = "one link" if len(links) == 1 else f"{len(links)} links, none narrower than its own"
        hidden = ", as far as a virtual machine shows" if case.is_virtual else ""
        why = "what crosses the device's link crosses those above it too"
        sure: Sureness = "possible" if case.is_virtual else "certain"
        yield fine("path", "path", f"{ways}{hidden}", expected, why, sure)
    else:
        yield _narrow(case, narrowest.value, expected)


def _narrow(case: Case, hop: Hop, expected: str) -> Finding:
    now, most = hop.now.value, hop.most.value
    seen = f"the link of {hop.pci}, above the device, is {state_text(now or most)}"
    if now is not None and most is not None and _is_less(now, most):
        why = f"it could be {state_text(most)}: {_why_less(now, most)}"
        return Finding("path", "path", "wrong", seen, expected, why, case.read, _RESEAT)
    why = "whatever is below that port shares it, and none of it is faster"
    do = "use a slot that hangs on the processor itself, or on a wider port"
    return Finding("path", "path", "suspicious", seen, expected, why, case.read, do)


def payload(case: Case) -> Findings:
    """MaxPayload against what every port on the way could take."""
    now = case.run.link.max_payload_bytes
    if case.run.link.kind != "pcie":
        return
    if now.value is None:
        yield untold("payload", "payload", "the largest packets that every port can take", now.reason)
        return
    most = _payload_most(() if case.health is None else case.health.ports)
    seen = f"MaxPayload {now.value} bytes, headers take {_headers(now.value)} of the link"
    if most.value is not None and now.value < most.value:
        why = f"every port on the way can take {most.value} bytes, whose headers would take {_headers(most.value)}"
        yield _small(seen, f"{most.value} bytes", why, case.read)
    elif most.value is None and now.value <= SMALLEST_PAYLOAD:
        why = f"most ports can take 256 bytes, whose headers would take {_headers(256)}; here {most.reason}"
        yield _small(seen, "256 bytes", why, "possible")
    else:
        why = "larger packets need fewer headers, and the smallest port on the way decides"
        yield fine("payload", "payload", seen, "the most that every port on the way can take", why, case.read)


def _small(seen: str, expected: str, why: str, sure: Sureness) -> Finding:
    do = "set MaxPayload in the firmware, or start the kernel with pci=pcie_bus_perf"
    return Finding("payload", "payload", "suspicious", seen, expected, why, sure, do)


def _payload_most(ports: Sequence[PortControl]) -> Fact[int]:
    known = [port.max_payload_most_bytes for port in ports]
    if not known:
        return Fact(reason="what the ports can take was not read")
    values = [each.value for each in known if each.value is not None]
    return Fact(min(values)) if len(values) == len(known) else next(each for each in known if each.value is None)


def _headers(payload_bytes: int) -> str:
    return format_percent(COMPLETION_OVERHEAD_BYTES / (payload_bytes + COMPLETION_OVERHEAD_BYTES))


def ordering(case: Case) -> Findings:
    """Whether the device may ask for its packets in any order."""
    relaxed = case.run.link.relaxed_ordering
    expected = "relaxed ordering on"
    if case.run.link.kind != "pcie":
        return
    if relaxed.value is None:
        yield untold("ordering", "ordering", expected, relaxed.reason)
    elif relaxed.value:
        why = "packets need not wait for each other on the way"
        yield fine("ordering", "ordering", "relaxed ordering is on", expected, why, case.read)
    else:
        why = "packets wait for each other, which can slow copies, above all in both directions at once"
        do = "enable PCIe relaxed ordering in the firmware"
        yield Finding("ordering", "ordering", "suspicious", "relaxed ordering is off", expected, why, "possible", do)

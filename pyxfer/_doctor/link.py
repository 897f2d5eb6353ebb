"""Checks of the link: its state, the slot, the ports above it, its packets, and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pyxfer._doctor.case import SIDES, Case, Check, Findings, fastest_gbps, judges_pcie, state_text
from pyxfer._document.examinations import Counters, Finding, Health, PortControl, Sureness
from pyxfer._document.machines import (
    COMPLETION_OVERHEAD_BYTES,
    MAX_SHARE,
    SMALLEST_PAYLOAD_BYTES,
    USUAL_PAYLOAD_BYTES,
    Fact,
    Hop,
    LinkState,
    protocol_gbps,
)
from pyxfer._machine.link import narrowest_hop
from pyxfer._machine.link_remarks import RESEAT
from pyxfer.units import format_gbps, format_percent, format_size

BIT_ERRORS = 1e-12
"""The bit error rate that the PCI Express base specification allows a lane; each wrong bit costs one replay."""
CHANCE = 1e-3
"""The probability that a link with exactly the allowed error rate is called suspicious."""

_MANY, _DEVIATIONS = 500, 3.1  # from this mean on the normal distribution is used: exp(-mean) would underflow

_RESEAT_OR_MOVE = "reseat the card or its riser, look for PCIe errors in the kernel log, and try another slot"
_WHY = "the checksum reveals a wrong bit, and the packet is sent again, which takes time"


def most_errors(nbytes: int) -> int:
    """The number of errors in these bytes that the allowed rate exceeds with the probability `CHANCE`."""
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
    count = _grown(health, lambda counters: counters.replays).value
    return count if count is not None and count > most_errors(health.moved_bytes) else None


def replays(case: Case) -> Findings:
    """Packets that were sent again during the measurement, and whether the link had to retrain for one."""
    if case.health is not None:
        count = _grown(case.health, lambda counters: counters.replays)
        unknown = Check("replays", "replays", "few packets sent again").unknown(count.reason)
        yield unknown if count.value is None else _replayed(case.health, count.value)


def _replayed(health: Health, count: int) -> Finding:
    most = most_errors(health.moved_bytes)
    check = Check("replays", "replays", f"at most {most}: the specification allows one wrong bit in 1e12")
    per_tb = f"{count / (health.moved_bytes / 1e12):.3g} per TB" if health.moved_bytes else "nothing crossed"
    packets = f"{count} sent again" if count else "no packet sent again"
    seen = f"{packets} while {format_size(health.moved_bytes)} crossed, {per_tb}"
    total = health.before.replays.value or 0
    seen += f"; {total} before" if total else ""
    if _grown(health, lambda counters: counters.replay_rollovers).value:
        why = "a packet was sent several times without arriving, and the link had to retrain"
        return check.wrong(seen, why, "certain", _RESEAT_OR_MOVE)
    return check.suspicious(seen, _WHY, "likely", _RESEAT_OR_MOVE) if count > most else check.fine(seen, _WHY)


def link_errors(case: Case) -> Findings:
    if case.health is None:
        return
    most = most_errors(case.health.moved_bytes)
    expected = f"no fatal error, none that loses a packet, and at most {most} corrected"
    check = Check("link-errors", "link errors", expected)
    uncorrected = _new_errors(case.health, "nonfatal") + _new_errors(case.health, "fatal")
    corrected = _new_errors(case.health, "correctable")
    places = {where for where, count in (*uncorrected, *corrected) if count.value is not None}
    lost = [f"{count.value} at {where}" for where, count in uncorrected if count.value]
    many = [f"{count.value} at {where}" for where, count in corrected if (count.value or 0) > most]
    if not places:
        yield check.unknown(uncorrected[0][1].reason)
    elif lost:
        why = "a packet or the link itself was lost, which programs see as Xid errors, hangs or wrong results"
        yield check.wrong(f"uncorrected errors: {', '.join(lost)}", why, "certain", _RESEAT_OR_MOVE)
    elif many:
        seen = f"corrected errors while {format_size(case.health.moved_bytes)} crossed: {', '.join(many)}"
        yield check.suspicious(seen, _WHY, "likely", _RESEAT_OR_MOVE)
    else:
        total = sum(count.value or 0 for _, count in corrected)
        where = f"counted in {len(places)} place{'' if len(places) == 1 else 's'}"
        seen = f"{total} corrected, none uncorrected, {where}" if total else f"no error, {where}"
        yield check.fine(seen, "both ends of every link count errors")


def _new_errors(health: Health, kind: str) -> list[tuple[str, Fact[int]]]:
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
        return Fact(reason=f"the count went from {before.value} to {after.value}, so it was reset in between")
    return Fact(after.value - before.value)


_SLOT = "use a slot that can do as much as the device, or raise the slot's limit in the firmware"
_WHY_STATE = "device and slot agree on the most that both can do, and an idle link slows down until it is used"


def link(case: Case) -> Findings:
    now, loaded, both = case.run.link.now.value, case.run.link.under_load, case.run.link.system_most
    if case.run.link.kind != "pcie":
        reason = case.run.link.raw_peak_gbps.reason or f"the link is of the kind {case.run.link.kind}"
        yield Check("link", "link", "a PCI Express link").unknown(reason)
        return
    if loaded.value is None or both.value is None:
        yield Check("link", "link", "the most that device and slot can do").unknown(loaded.reason or both.reason)
        return
    check = Check("link", "link", f"{state_text(both.value)}, the most that device and slot can do")
    seen, sure = f"{state_text(loaded.value)} under load", case.kernel_sureness
    if now is not None and now.generation < loaded.value.generation:
        seen += f"; {state_text(now)} while idle, which saves power and is normal"
    # Whether verified copies were faster than the shown link can carry them.
    raw_gbps = case.run.link.raw_peak_gbps.value
    if raw_gbps is not None and _fastest_gbps(case) > raw_gbps * MAX_SHARE:
        why = "copies were faster than such a link can be, so the driver shows a wrong state"
        do = "measure again; in a virtual machine check the link from its host (lspci -vv, LnkSta)"
        yield check.suspicious(seen, why, "certain", do)
    elif _is_less(loaded.value, both.value):
        yield check.wrong(seen, _why_less(loaded.value, both.value), sure, RESEAT)
    else:
        yield check.fine(seen, _WHY_STATE, sure)


def _fastest_gbps(case: Case) -> float:
    return max(fastest_gbps(case.run, side) for side in SIDES)


def _is_less(one: LinkState, other: LinkState) -> bool:
    return one.width < other.width or one.generation < other.generation


def _why_less(seen: LinkState, most: LinkState) -> str:
    reasons = []
    if seen.width < most.width:
        lanes = f"only {seen.width} of {most.width} lanes came up"
        reasons.append(f"{lanes}: a bad contact, a riser, or lanes shared with a neighbour")
    if seen.generation < most.generation:
        trained = f"it trained at generation {seen.generation} of {most.generation}"
        reasons.append(f"{trained}: weak signals, an older riser, or a limit in the firmware")
    return "; ".join(reasons)


def slot(case: Case) -> Findings:
    alone, both = case.run.link.device_most, case.run.link.system_most
    if case.run.link.kind != "pcie":
        return
    if alone.value is None or both.value is None:
        yield Check("slot", "slot", "a slot that can do as much as the device").unknown(alone.reason or both.reason)
        return
    check = Check("slot", "slot", f"{state_text(alone.value)}, the most that the device can do")
    seen = f"{state_text(both.value)} in this slot"
    if both.value.width < alone.value.width:
        lanes = f"{both.value.width} of the device's {alone.value.width} lanes"
        yield check.wrong(seen, f"the slot gives {lanes}: the card is in the wrong slot", "likely", _SLOT)
    elif both.value.generation < alone.value.generation:
        why = "the board is of an older generation than the device, or its firmware limits the slot"
        yield check.suspicious(seen, why, "likely", _SLOT)
    else:
        yield check.fine(seen, "the slot can do as much as the device", case.kernel_sureness)


@judges_pcie("path", "path", "no link above the device carries less than its own", narrowest_hop)
def path(case: Case, check: Check, narrowest: Hop) -> Finding:
    links = case.run.link.hops
    if narrowest != links[0]:
        return _narrow(case, narrowest, check)
    stuck = next((hop for hop in links[1:] if _may_be_stuck(case, hop)), None)
    if stuck is not None:
        seen = (
            f"the link of {stuck.pci}, above the device, was {state_text(stuck.now.value)} when the device's was awake"
        )
        cause = "no copy was faster than it is: weak signals, or an older riser"
        return check.wrong(seen, f"it could be {state_text(stuck.most.value)}, and {cause}", "likely", RESEAT)
    ways = "one link" if len(links) == 1 else f"{len(links)} links, none narrower than its own"
    hidden = ", as far as a virtual machine shows" if case.is_virtual else ""
    idle = "".join(
        f"; that of {hop.pci} was at {state_text(hop.now.value)} while idle, which saves power and is normal"
        for hop in links[1:]
        if _is_idle(hop)
    )
    sure: Sureness = "possible" if case.is_virtual else "likely" if idle else "certain"
    return check.fine(f"{ways}{hidden}{idle}", "copies also cross the links above the device's", sure)


def _is_idle(hop: Hop) -> bool:
    """Whether it had a lower generation than it can have when it was read, which was before the copies."""
    now, most = hop.now.value, hop.most.value
    return now is not None and most is not None and now.generation < most.generation


def _may_be_stuck(case: Case, hop: Hop) -> bool:
    """Whether it had a lower generation beside an awake device, and copies were no faster than that carries."""
    own, loaded = case.run.link.now.value, case.run.link.under_load.value
    if not _is_idle(hop) or hop.now.value is None or own is None or loaded is None:
        return False
    carried = hop.now.value.gbps
    return own.generation >= loaded.generation and carried < loaded.gbps and 0.0 < _fastest_gbps(case) <= carried


def _narrow(case: Case, hop: Hop, check: Check) -> Finding:
    working, most, sure = hop.working.value, hop.most.value, case.kernel_sureness
    seen = f"the link of {hop.pci}, above the device, is {state_text(working)}"
    if working is not None and most is not None and _is_less(working, most):
        return check.wrong(seen, f"it could be {state_text(most)}: {_why_less(working, most)}", sure, RESEAT)
    why = "all devices below that port share it, and none of them can be faster"
    return check.suspicious(seen, why, sure, "use a slot of the processor itself, or of a wider port")


def payload(case: Case) -> Findings:
    now = case.run.link.max_payload_bytes
    if case.run.link.kind != "pcie":
        return
    if now.value is None:
        yield _bounded_payload(case)
        return
    most = _payload_most(() if case.health is None else case.health.ports)
    seen = f"MaxPayload {now.value} bytes, headers take {_headers(now.value)} of the link"
    do = "set MaxPayload in the firmware, or start the kernel with pci=pcie_bus_perf"
    if most.value is not None and now.value < most.value:
        why = f"every port on the way can take {most.value} bytes, whose headers would take {_headers(most.value)}"
        yield Check("payload", "payload", f"{most.value} bytes").suspicious(seen, why, case.kernel_sureness, do)
    elif most.value is None and now.value <= SMALLEST_PAYLOAD_BYTES:
        why = f"most ports can take 256 bytes, whose headers would take {_headers(256)}; here {most.reason}"
        yield Check("payload", "payload", "256 bytes").suspicious(seen, why, "possible", do)
    else:
        why = "larger packets need fewer headers, and the smallest port on the way decides"
        check = Check("payload", "payload", "the most that every port on the way can take")
        yield check.fine(seen, why, case.kernel_sureness)


def _bounded_payload(case: Case) -> Finding:
    """What the copies say of a MaxPayload that cannot be read: how much they exceed what smaller packets carry."""
    raw, least = case.run.link.raw_peak_gbps.value, case.least_payload_bytes
    reason = case.run.link.max_payload_bytes.reason
    check = Check("payload", "payload", "the largest packets that every port can take")
    do = "run pyxfer doctor as root with CAP_SYS_ADMIN, which can read it"
    if raw is None or not _fastest_gbps(case):
        return check.unknown(reason, do)
    side = max(SIDES, key=lambda each: fastest_gbps(case.run, each))
    copied = f"{side} reached {format_gbps(fastest_gbps(case.run, side))}"
    if least == SMALLEST_PAYLOAD_BYTES:
        most = format_gbps(protocol_gbps(raw, USUAL_PAYLOAD_BYTES, side))
        carried = f"{copied}, which {least} bytes can carry; {USUAL_PAYLOAD_BYTES} carry {most}"
        return check.unknown(f"{reason}; {carried}", do)
    smaller = least // 2
    why = f"packets of {smaller} bytes carry at most {format_gbps(protocol_gbps(raw, smaller, side))}; {reason}"
    return check.fine(f"MaxPayload at least {least} bytes, by the copies: {copied}", why, "likely", do)


def _payload_most(ports: Sequence[PortControl]) -> Fact[int]:
    limits = [port.max_payload_most_bytes for port in ports]
    if not limits:
        return Fact(reason="the limits of the ports were not read")
    values = [limit.value for limit in limits if limit.value is not None]
    return Fact(min(values)) if len(values) == len(limits) else next(limit for limit in limits if limit.value is None)


def _headers(payload_bytes: int) -> str:
    return format_percent(COMPLETION_OVERHEAD_BYTES / (payload_bytes + COMPLETION_OVERHEAD_BYTES))


@judges_pcie("ordering", "ordering", "relaxed ordering on", lambda link: link.relaxed_ordering)
def ordering(case: Case, check: Check, is_relaxed: bool) -> Finding:
    if is_relaxed:
        why = "packets need not wait for each other on the way"
        return check.fine("relaxed ordering is on", why, case.kernel_sureness)
    why = "packets wait for each other, which can slow copies, most of all in both directions at once"
    do = "enable PCIe relaxed ordering in the firmware"
    return check.suspicious("relaxed ordering is off", why, "possible", do)

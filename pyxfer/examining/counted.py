"""Errors that the link has counted while bytes crossed it, against what PCI Express allows."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyxfer.examining.case import Case, Findings, fine, untold
from pyxfer.model import Fact
from pyxfer.model_findings import Counters, Finding, Health
from pyxfer.units import format_size

BIT_ERRORS = 1e-12
"""The bit error rate that the PCI Express base specification allows a lane; each wrong bit costs one replay."""
CHANCE = 1e-3
"""How seldom a link that is just as bad as allowed shall be called suspicious."""

_MANY, _DEVIATIONS = 500, 3.1  # from so many on the distribution is a normal one, and its terms leave a float's range

_RESEAT = "reseat the card or its riser, look for PCIe errors in the kernel log, and try another slot"
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
        yield Finding("replays", "replays", "wrong", seen, expected, why, "certain", _RESEAT)
    elif count.value > most:
        yield Finding("replays", "replays", "suspicious", seen, expected, _WHY, "likely", _RESEAT)
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
        yield Finding("link-errors", "link errors", "wrong", seen, expected, why, "certain", _RESEAT)
    elif many:
        seen = f"corrected errors while {_bytes(case.health)} crossed: {', '.join(many)}"
        yield Finding("link-errors", "link errors", "suspicious", seen, expected, _WHY, "likely", _RESEAT)
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

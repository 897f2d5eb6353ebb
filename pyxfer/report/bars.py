"""Bars of parts, each begun where the one before it ends."""

from __future__ import annotations

from collections.abc import Sequence

BAR = "#"


def bars(shares: Sequence[float], room: int) -> list[str]:
    """One for each share of the whole, which is as wide as the room; what is there at all is seen.

    A document that was changed by hand may hold less than nothing or more than the whole; a bar keeps to the room.
    """
    drawn, begin = [], 0.0
    for share in (max(0.0, min(each, 1.0)) for each in shares):
        start = min(round(begin * room), room - 1)
        length = max(1, round((begin + share) * room) - start) if share > 0 else 0
        drawn.append(" " * start + BAR * min(length, room - start))
        begin += share
    return drawn

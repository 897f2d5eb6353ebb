"""What a frameworks run says of each framework, in words with this host's figures."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer import model, units

from .framework_groups import Group, Row, place_text, rate_unit, title
from .text import clean

# Routes that differ by less than this are as fast as each other to a reader.
_AS_FAST = 1.05
_PLAIN_FROM = 10
_WHOLE_FROM = 99.95


def sentences(run: model.Run, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """What was found of each framework that has routes, a line a direction; its name stands before the first."""
    lines: list[tuple[str, str]] = []
    before = ""
    for group in groups:
        if group.routes:
            name = title(group.framework)
            lines.append(("" if name == before else name, f"{group.direction}: {_sentence(run, group)}."))
            before = name
    return lines


def _sentence(run: model.Run, group: Group) -> str:
    usual, best = group.usual, group.best
    if usual is None:
        return f"the fastest is {_does(run, group, best, group.largest)}" if best else _nothing(group)
    nbytes = max((nbytes for nbytes in usual.at if usual.speed(nbytes) is not None), default=None)
    if nbytes is None:
        fastest = f"; the fastest is {_does(run, group, best, group.largest)}" if best else ""
        return f"{usual.name}, the usual call, has no bandwidth: {_reason(usual.any)}{fastest}"
    best = group.best_at(nbytes)
    text = _does(run, group, usual, nbytes, ", the usual call,")
    if best is usual:
        return f"{text}, and no other route is faster" if len(group.routes) > 1 else text
    return text if best is None else f"{text}; {_compared(run, usual, best, nbytes)}"


def _does(run: model.Run, group: Group, row: Row, nbytes: int, role: str = ", which") -> str:
    """What a route reaches at a size, or how soon it is done."""
    place = place_text(run, group, nbytes)
    if row.copies_nothing(nbytes):
        return f"{row.name}{role} copies nothing and takes {_time(row, nbytes)} at {place}"
    text = f"{row.name}{role} reaches {_figure(run, row, nbytes)} {rate_unit(run)[0]} at {place}"
    share = row.at[nbytes].of_ceiling
    if share is None:
        return text
    of = "what one copy in host memory reaches" if group.direction == "ingest" else "the ceiling"
    return f"{text}, {units.format_percent(share)} of {of}"


def _compared(run: model.Run, usual: Row, best: Row, nbytes: int) -> str:
    if best.copies_nothing(nbytes):
        return f"{best.name} copies nothing and takes {_time(best, nbytes)}"
    share = best.at[nbytes].of_ceiling
    text = f"{best.name} reaches {_figure(run, best, nbytes)}"
    text += "" if share is None else f" ({units.format_percent(share)})"
    slow, fast = usual.gbps(nbytes) or 0.0, best.gbps(nbytes) or 0.0
    if slow <= 0:
        return text
    times = fast / slow
    if times < _AS_FAST:
        return f"{text}, about the same"
    return f"{text}, {times:.1f} times as much" if times < _PLAIN_FROM else f"{text}, {times:.0f} times as much"


def _time(row: Row, nbytes: int) -> str:
    return units.format_seconds(row.at[nbytes].elapsed_s or 0.0)


def _reason(m: model.Measurement) -> str:
    return clean(m.rate.reason or "no reason given").rstrip(".")


def _nothing(group: Group) -> str:
    return f"no route has a bandwidth: {_reason(group.routes[0].any)}"


def _figure(run: model.Run, row: Row, nbytes: int) -> str:
    value = (row.gbps(nbytes) or 0.0) * rate_unit(run)[1]
    return f"{value:.0f}" if abs(value) >= _WHOLE_FROM else f"{value:#.3g}"

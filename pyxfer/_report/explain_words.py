"""One route of an explain run and what it is held against, as the page needs them."""

from __future__ import annotations

from dataclasses import dataclass

from pyxfer import units
from pyxfer._document import runs
from pyxfer._document.machines import MOST_SHARE
from pyxfer._report.text import HOST_MEMORY, clean, reason_text

_LONGEST_CALL = 120
# Within this much of each other two clocks say the same.
_AGREE, _AGREE_S = 0.02, 10e-6
_QUEUES_BELOW = 0.5
_HOLDS_FROM = 0.9
_PAGE_BYTES = 4096
# Of raw routes: `cudaMemcpy`, which returns to its caller when it is done, however short that is.
_BLOCKING_MODE = "memcpy"
_BUSY: tuple[tuple[str, tuple[runs.PartName, ...]], ...] = (
    ("copying", ("copying", "staging")),
    ("running kernels", ("kernels",)),
    ("copying in other directions", ("other copies",)),
)
_TENTHS_FROM, _WHOLE_FROM = 10, 100


def headline(explained: Explained) -> str:
    """The route, its size, how fast it is and what that is of what could be."""
    row = explained.row
    words = f"{clean(row.route)}, {explained.way}, {units.format_size(row.nbytes)}"
    if row.gbps is None:
        took = "" if row.elapsed_s is None else f"{units.format_seconds(row.elapsed_s)}, and "
        return f"{words}: {took}no bandwidth: {reason_text(row.rate.reason)}"
    words += f": {units.format_seconds(row.elapsed_s or 0.0)}, {units.format_gbps(row.gbps)}"
    if row.of_ceiling is not None:
        of = "what one copy in host memory reaches" if row.direction == "ingest" else "the ceiling"
        words += f", {units.format_percent(row.of_ceiling)} of {of}"
    return words if row.of_peak is None else f"{words}, {units.format_percent(row.of_peak)} of the peak"


def crossing_text(explained: Explained) -> str:
    """What the device's records say of its copies."""
    row, dma = explained.row, explained.row.dma.value
    if dma is None:
        return reason_text(row.dma.reason)
    if not dma.copies:
        return "no copy at all"
    each = f"{_count(dma.copies)} cop{'y' if dma.copies == 1 else 'ies'} of {units.format_size(dma.nbytes)}"
    way = "to" if row.direction == "d2h" else "from"
    words = f"{each}{' together' if dma.copies > 1 else ''} {way} {clean(dma.source).replace('+', ' and ')} memory"
    if row.nbytes and dma.nbytes != row.nbytes:
        words += f" ({dma.nbytes / row.nbytes:.3g} times what was asked for)"
    seconds = dma.seconds.value
    if seconds is None:
        return f"{words}; {reason_text(dma.seconds.reason)}"
    words += f" in {units.format_seconds(seconds)}"
    return words if dma.gbps is None else f"{words}{_speed_text(explained, dma.gbps)}"


def host_text(row: runs.Measurement) -> str:
    """Page faults and waits of the traced trial."""
    breakdown = row.breakdown.value
    if breakdown is None:
        return ""
    faults = "no page fault"
    if breakdown.faults > 0:
        touched = breakdown.faults * _PAGE_BYTES
        faults = f"{_count(breakdown.faults)} page fault{'' if breakdown.faults == 1 else 's'}"
        if touched > row.nbytes / 10:
            faults += f": pages of {units.format_size(_rounded(touched))} were touched for the first time"
    waited = _often("waited", breakdown.switches, "for something", "for anything")
    lost = _often("lost", breakdown.preemptions, "the processor", "the processor")
    return f"{faults}; the calling thread {waited} and {lost}"


def clock_lines(row: runs.Measurement) -> list[tuple[str, str]]:
    """The clocks that saw it, beside each other."""
    known = [
        ("host", row.wall_s, "the host's clock, until the work was seen to be done"),
        ("events", None if row.bracket == "host" else row.elapsed_s, "between two CUDA events around it"),
        ("call", row.dispatch_s, "the host's clock, until the call returned"),
        ("device", row.dma_s or None, "at least one of its copies was under way"),
    ]
    return [
        (name, f"{units.format_seconds(seconds):>8}  {what}") for name, seconds, what in known if seconds is not None
    ]


def clock_sentences(row: runs.Measurement) -> list[str]:
    """Why they differ, by the figures."""
    elapsed_s = row.elapsed_s
    if elapsed_s is None or elapsed_s <= 0:
        return []
    return [text for text in (_host_and_events(row, elapsed_s), _call(row, elapsed_s), _device(row, elapsed_s)) if text]


def better_text(explained: Explained, better: Better) -> str:
    """What to use, and what that was measured to bring."""
    row = better.row
    call = clean(row.nature.call if row.nature is not None else row.route, longest=_LONGEST_CALL)
    quote = '"' if "`" in call else "`"
    name = f" ({clean(row.route)})" if row.nature is not None else ""
    times = better.times
    interval = "" if times.low is None or times.high is None else f" ({_factor(times.low)} to {_factor(times.high)})"
    words = (
        f"{quote}{call}{quote}{name}: {units.format_seconds(better.seconds)} instead of "
        f"{units.format_seconds(better.instead_of_s)}, {_factor(times.value)} times as fast{interval}"
    )
    if copies_nothing(row):
        return f"{words}; it copies nothing"
    if row.memory != explained.row.memory:
        words += f"; it takes {clean(row.memory)} memory"
    return f"{words}; {_staged_text(row)}" if is_staged(row) else words


def no_link_text(explained: Explained) -> str:
    """Said openly where no link has a part in any of this."""
    if explained.run.runtime == "host":
        return f"This is {HOST_MEMORY}: nothing here says how fast a GPU is reached."
    return "This stays in host memory and crosses no link." if explained.row.direction == "ingest" else ""


def _staged_text(row: runs.Measurement) -> str:
    """What that means for a program's arrays, and of a raw copy, what a program has for it."""
    if row.nature is not None:
        return "arrays stay as they are: threads stage them through page-locked memory"
    return "in a program that is " + ("pyxfer.download(y)" if row.direction == "d2h" else "pyxfer.upload(x, to=...)")


def _host_and_events(row: runs.Measurement, elapsed_s: float) -> str:
    if row.bracket == "host":
        return "Nothing of it is on the device, so the host's clock alone has timed it."
    if row.wall_s is None:
        return "It was queued behind a gate, so the host's clock has no part in its time."
    apart_s = row.wall_s - elapsed_s
    if abs(apart_s) <= _AGREE * elapsed_s + _AGREE_S:
        return "The host's clock and the events agree."
    apart = units.format_seconds(abs(apart_s))
    if apart_s > 0:
        return f"The host's clock says {apart} more than the events: the host learns of the end late."
    return f"The host's clock says {apart} less than the events: they were stamped late."


def _call(row: runs.Measurement, elapsed_s: float) -> str:
    """The same call, timed by who waits for it and by who does not."""
    if row.dispatch_s is None or row.bracket == "gated":
        return ""
    share = row.dispatch_s / elapsed_s
    if share < _QUEUES_BELOW and row.mode == _BLOCKING_MODE:
        return (
            f"The call blocks, and holds its caller for {units.format_seconds(row.dispatch_s)}, "
            f"{units.format_percent(share)} of the time; the rest lies beside it, where the events around it are "
            "queued and stamped."
        )
    if share < _QUEUES_BELOW and is_staged(row):
        return (
            f"The call returns when the array has been read, after {units.format_seconds(row.dispatch_s)}; its last "
            "bytes are still on their way."
        )
    if share < _QUEUES_BELOW:
        return (
            f"The call only queues its work: it returns after {units.format_seconds(row.dispatch_s)}, so a stopwatch "
            f"around the call alone would make it {_factor(1 / max(share, 1e-9))} times too fast."
        )
    if share >= _HOLDS_FROM:
        return "The call holds its caller until the work is done."
    return f"The call holds its caller for {units.format_percent(share)} of the time."


def _device(row: runs.Measurement, elapsed_s: float) -> str:
    """What the device did in the traced trial, by its parts: each of them is a share of that trial and of no other."""
    breakdown = row.breakdown.value
    if breakdown is None or breakdown.elapsed_s <= 0:
        return _beyond_events(row, elapsed_s)
    busy = [(words, sum(map(breakdown.seconds, names)) / breakdown.elapsed_s) for words, names in _BUSY]
    if is_staged(row):  # while slots are filled or emptied the device may have nothing to do
        busy[0] = (busy[0][0], min(1.0, (row.dma_s or 0.0) / breakdown.elapsed_s))
    doing = [(words, share) for words, share in busy if share > 0]
    if not doing:
        return _beyond_events(row, elapsed_s)
    idle = 1 - sum(share for _, share in doing)
    if busy[0][1] >= _HOLDS_FROM:
        told = "In the traced trial the device was copying nearly all of the time."
    else:
        said = _joined([f"{words} for {units.format_percent(share)}" for words, share in doing])
        told = f"In the traced trial the device was {said} of the time."
    if idle > 1 - _HOLDS_FROM:
        idle_s = units.format_seconds(idle * breakdown.elapsed_s)
        told = f"{told[:-1]}, and a timeline of the device shows nothing else: it was idle for the other {idle_s}."
    return " ".join(filter(None, (told, _beyond_events(row, elapsed_s))))


def _beyond_events(row: runs.Measurement, elapsed_s: float) -> str:
    """The device is seen in traced trials only, and these may be longer than those that the events have timed."""
    more_s = (row.dma_s or 0.0) - elapsed_s
    if more_s <= _AGREE * elapsed_s:
        return ""
    return (
        f"The device's clock says {units.format_seconds(more_s)} more than the events: it saw the traced trials, and "
        "the events those that were only timed."
    )


def _speed_text(explained: Explained, gbps: float) -> str:
    """How fast that was, beside the ceiling's copies by the same records; nothing is faster than the link."""
    most = explained.run.link.most_gbps(explained.row.side)
    if most is not None and gbps > most:
        peak = units.format_gbps(most / MOST_SHARE)
        wrong = "so these records or the shown link are wrong"
        return f", which is impossible: it would be above the link's peak of {peak}, {wrong}"
    ceiling = explained.ceiling
    above = None if ceiling is None or ceiling is explained.row else ceiling.dma_gbps
    if not above:
        return f": {units.format_gbps(gbps)}"
    share = f"{units.format_percent(gbps / above)} of" if gbps < above else "no slower than"
    return f": {units.format_gbps(gbps)}, {share} the ceiling's by the same records"


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _factor(times: float) -> str:
    rounded = _rounded(times)
    return (
        f"{rounded:.0f}" if rounded >= _WHOLE_FROM else f"{rounded:.1f}" if rounded >= _TENTHS_FROM else f"{times:.2f}"
    )


def _count(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.2g}"


def _often(verb: str, number: float, what: str, nothing: str) -> str:
    """In a window of several copies it is a fraction for each: of what happens in some of them, in how many."""
    if number == 0:
        return f"never {verb} {nothing}"
    if number < 1:
        return f"{verb} {what} in {units.format_percent(number)} of the transfers"
    whole = round(number)
    times = {1: "once", 2: "twice"}.get(whole, f"{whole} times")
    return f"{verb} {what} {times}"


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


_WAYS = {"h2d": "to the GPU", "d2h": "from the GPU", "both": "both ways", "ingest": "into a tensor in host memory"}
_WAYS_WITHOUT_GPU = {
    "h2d": "h2d over host memory",
    "d2h": "d2h over host memory",
    "both": "both ways over host memory",
    "ingest": _WAYS["ingest"],
}


@dataclass(frozen=True)
class Explained:
    """The row in question, its ceiling in the same rounds, and every other row."""

    run: runs.Run
    row: runs.Measurement
    ceiling: runs.Measurement | None
    others: tuple[runs.Measurement, ...]

    @property
    def on_host(self) -> bool:
        """Whether nothing of it crosses a link, because it stays in host memory or because there is no GPU."""
        return self.row.direction == "ingest" or self.run.runtime == "host"

    @property
    def way(self) -> str:
        """Where its bytes go, in words; no GPU is in them where there is none."""
        return (_WAYS_WITHOUT_GPU if self.run.runtime == "host" else _WAYS)[self.row.direction]

    @property
    def is_wrong(self) -> bool:
        """Whether what arrived was something else, so that none of its time says anything."""
        return self.row.verified.value is False


@dataclass(frozen=True)
class Better:
    """Another route that was faster beyond doubt, and how many times as fast it was.

    `times` is the ratio of the medians that the rows themselves show, each from all of its trials. Its ends are the
    least and the most that the intervals of both medians allow.
    """

    row: runs.Measurement
    seconds: float
    instead_of_s: float
    times: runs.Share


def find_explained(run: runs.Run) -> Explained | None:
    """None in a run that has no row of what was asked for, because it ended before there was one."""
    rows = [m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"]
    if not rows:
        return None
    row = rows[0]
    alike = [m for m in run.measurements if (m.direction, m.nbytes) == (row.direction, row.nbytes) and m is not row]
    raw = [m for m in (*alike, row) if m.may_be_ceiling and m.gbps is not None]
    return Explained(run, row, max(raw, key=lambda m: m.gbps or 0.0, default=None), tuple(alike))


def better_routes(explained: Explained, most: int) -> list[Better]:
    """What could be used in its place, the fastest first; a raw copy only in the place of a raw copy.

    Not every program can have another kind of memory: the fastest of those that do with the same one is among them.
    """
    alike = [other for other in explained.others if (other.nature is None) == (explained.row.nature is None)]
    found = [better for other in alike if (better := _better(explained.row, other)) is not None]
    found.sort(key=lambda better: better.times.value, reverse=True)
    drop_in = next((better for better in found if better.row.memory == explained.row.memory), None)
    if drop_in is None or drop_in in found[:most]:
        return found[:most]
    return [*found[: most - 1], drop_in]


def _better(row: runs.Measurement, other: runs.Measurement) -> Better | None:
    """None where it is not faster, not right, or not beyond doubt: both medians' intervals have to lie apart."""
    if other.verified.value is False or not _is_timed(other) or row.summary is None or other.summary is None:
        return None
    slow, quick = row.summary, other.summary
    if slow.low_s is None or slow.high_s is None or quick.low_s is None or quick.high_s is None:
        return None
    if quick.high_s >= slow.low_s or min(quick.low_s, quick.median_s, quick.high_s) <= 0:
        return None
    times = runs.Share(slow.median_s / quick.median_s, slow.low_s / quick.high_s, slow.high_s / quick.low_s)
    return Better(other, quick.median_s, slow.median_s, times)


def _is_timed(m: runs.Measurement) -> bool:
    """Whether its time is that of a transfer: it has a bandwidth, or it is right without copying anything."""
    return m.gbps is not None or copies_nothing(m)


def copies_nothing(m: runs.Measurement) -> bool:
    """A tensor in host memory that uses the array's own memory."""
    return m.direction == "ingest" and m.rate.value is None and m.verified.value is True and m.summary is not None


def is_staged(m: runs.Measurement) -> bool:
    """Whether threads fill, or empty, page-locked slots for it, raw or as a framework's route."""
    return m.mode == runs.STAGED or (m.nature is not None and m.nature.staged)

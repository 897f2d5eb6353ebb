"""What the traced trials of a route say: what crossed, where the time went, and what that makes of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyxfer._document.runs import UNTRACED, Breakdown, Dma, Fact, Remark, unknown
from pyxfer._trace.breakdown import (
    APART,
    BESIDE,
    NOTHING_CROSSES,
    OUTSIDE,
    Crossed,
    break_down,
    breakdown_of,
    crossed,
    dma_of,
    lost_in,
    why_lost,
)
from pyxfer._trace.collector import Traced, nearest
from pyxfer.units import format_percent, format_seconds, format_size

# Fewer bytes than this beside the data say nothing, however small the data is.
BESIDE_BYTES = 256
# What a short call takes more while it is traced is nobody's news: its framework's threads had fallen asleep.
TRACING_COST, TRACING_COST_S = 0.1, 100e-6
# A traced trial shows what a timed one took when they differ by this part at most.
NEAR = 0.01
_TIMES_FROM, _WHOLE_FROM = 2, 10
_FRACTIONS = {2: "halved it", 4: "made it a quarter", 8: "made it an eighth"}


@dataclass(frozen=True)
class Findings:
    """What is known of a row by the device's records; `elided` says why it gets no bandwidth."""

    dma: Fact[Dma]
    breakdown: Fact[Breakdown]
    elided: str | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether it is known what crossed, so that nothing needs to be taken from what the route says of itself."""
        return self.dma.value is not None


@dataclass(frozen=True)
class Expected:
    """What a route says of itself, at a size: the bytes asked for, how many times they cross, and the memory met."""

    nbytes: int
    inflation: float = 1.0
    memory: str = ""
    verified: bool = False


@dataclass
class Evidence:
    """Traced trials of one row, each reduced at once: a capture may be large."""

    crossed: list[Crossed] = field(default_factory=list)
    breakdowns: list[Fact[Breakdown]] = field(default_factory=list)
    lost: int = 0
    """How many records the breakdowns lack, all of them together."""
    missing: str = UNTRACED
    """Why there are none, as long as there are none."""
    failed: bool = False
    """Whether that is because one failed, which is told also where there are others."""

    def add(self, trial: Traced, ceiling_s: float | None, nbytes: int) -> None:
        """Take in one more."""
        if trial.way is not None:
            self.crossed.append(crossed(trial, trial.way))
        self.breakdowns.append(break_down(trial, ceiling_s, nbytes))
        self.lost += lost_in(trial)

    def is_near(self, median_s: float | None) -> bool:
        """Whether one of them took what those took that were only timed, as far as that can be told."""
        known = [each.value for each in self.breakdowns if each.value is not None]
        if not known or median_s is None:
            return True
        return abs(nearest(known, median_s).elapsed_s - median_s) <= NEAR * median_s

    def findings(self, expected: Expected, median_s: float | None) -> Findings:
        """What they say together, beside the median of the trials that were only timed."""
        if not self.breakdowns:
            return Findings(unknown(self.missing), unknown(self.missing))
        breakdown = breakdown_of(self.breakdowns, median_s)
        if breakdown.value is None and self.lost:
            breakdown = unknown(why_lost(self.lost))
        failure = (Remark("untraced", self.missing),) if self.failed else ()
        cost = (*_cost_remark(breakdown.value, median_s), *failure)
        if not self.crossed:
            return Findings(unknown(NOTHING_CROSSES), breakdown, remarks=cost)
        dma = dma_of(self.crossed, median_s)
        if dma.value is None:
            return Findings(dma, breakdown, remarks=cost)
        remarks = (*_inflated(dma.value, expected), *_wrong_memory(dma.value, expected), *_outside(self.crossed), *cost)
        return Findings(dma, breakdown, _elision(self.crossed, expected), remarks)


def _elision(trials: Sequence[Crossed], expected: Expected) -> str | None:
    """Why a route that moved fewer bytes than it had to gets no bandwidth; the worst trial counts."""
    wanted = int(expected.nbytes * min(expected.inflation, 1.0))
    fewest = min(trial.nbytes for trial in trials)
    if fewest >= wanted:
        return None
    times = sum(trial.nbytes < wanted for trial in trials)
    seldom = f"in {times} of {len(trials)} traced trials " if times < len(trials) else ""
    if fewest == 0:
        return f"elided: {seldom}nothing crossed the link, where {format_size(wanted)} had to"
    words = f"elided: {seldom}only {_of_sizes(fewest, wanted)} crossed the link"
    alike = len({trial.nbytes for trial in trials}) == 1
    return f"{words}{_conversion(wanted / fewest)}" if expected.verified and alike else words


def _of_sizes(fewest: float, wanted: int) -> str:
    """One size of another; in bytes, where rounded ones would hide that they differ."""
    sizes = format_size(fewest), format_size(wanted)
    return f"{sizes[0]} of {sizes[1]}" if sizes[0] != sizes[1] else f"{fewest:.0f} of {wanted} bytes"


def _conversion(part: float) -> str:
    """What arrived right each time with the same fraction of the bytes was made smaller first; a cache differs."""
    done = _FRACTIONS.get(round(part)) if abs(part - round(part)) < BESIDE * part else None
    return f": a conversion on the host {done} before the copy" if done else ""


def _inflated(dma: Dma, expected: Expected) -> tuple[Remark, ...]:
    beside = max(BESIDE * expected.nbytes, BESIDE_BYTES)
    if dma.nbytes - expected.nbytes <= beside:
        return ()
    times = round(dma.nbytes / expected.nbytes)
    # Nothing else is known of a conversion than what the route says; the same bytes again need a copy each time.
    again = expected.inflation <= 1 and dma.copies >= times and abs(dma.nbytes - times * expected.nbytes) <= beside
    return (
        Remark(
            "inflated",
            f"{dma.nbytes / expected.nbytes:.3g} times the bytes cross the link, by the device's records; the "
            "bandwidth counts those that were asked for",
            "send them once, or convert on the GPU, after the copy" if again else "convert on the GPU, after the copy",
        ),
    )


def _outside(trials: Sequence[Crossed]) -> tuple[Remark, ...]:
    """A time that has no copy in it is that of something else than the transfer."""
    if 2 * sum(trial.outside >= 1 - OUTSIDE for trial in trials) <= len(trials):
        return ()
    return (Remark("outside", f"its copies ran outside of the trial: it copies ahead or later, or {APART}"),)


def _wrong_memory(dma: Dma, expected: Expected) -> tuple[Remark, ...]:
    if not expected.memory or dma.source in ("", "unknown", expected.memory):
        return ()
    fix = "make sure that the memory is page-locked when the copy is made" if expected.memory == "pinned" else None
    return (
        Remark(
            "wrong-memory",
            f"its copies met {dma.source.replace('+', ' and ')} memory on the host, by the device's records, and not "
            f"{expected.memory} memory",
            fix,
        ),
    )


def _cost_remark(breakdown: Breakdown | None, median_s: float | None) -> tuple[Remark, ...]:
    """What tracing costs: a breakdown of trials that took longer is one of other trials."""
    if breakdown is None or median_s is None or median_s <= 0:
        return ()
    more_s = breakdown.elapsed_s - median_s
    if abs(more_s) <= TRACING_COST * median_s or abs(more_s) <= TRACING_COST_S:
        return ()
    text = f"traced it takes {format_seconds(breakdown.elapsed_s)}, {_compared(breakdown.elapsed_s / median_s)}"
    return (Remark("traced", f"{text} the median of the trials that were only timed"),)


def _compared(times: float) -> str:
    """A percentage of more is no number that anybody sees from twice as long on."""
    if times >= _TIMES_FROM:
        rounded = float(f"{times:.2g}")
        return f"{rounded:.0f} times as long as" if rounded >= _WHOLE_FROM else f"{rounded:.1f} times as long as"
    return f"{format_percent(abs(times - 1))} {'more' if times > 1 else 'less'} than"

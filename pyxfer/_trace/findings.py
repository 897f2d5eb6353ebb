"""Judge a row by its traced trials: its copies, its breakdown, and remarks on its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import IGNORED_BYTES, IGNORED_SHARE, INFLATED, UNTRACED, Breakdown, Dma
from pyxfer._trace import breakdown as broken
from pyxfer._trace.breakdown import APART, OUTSIDE, Crossed
from pyxfer._trace.collector import Traced, nearest
from pyxfer.units import format_percent, format_seconds, format_size

# A smaller cost of tracing is not reported. Short calls take longer because the framework's threads had gone to sleep.
TRACING_COST, TRACING_COST_S = 0.1, 100e-6
# A traced trial is near the median of the timed ones if it differs by this share at most.
NEAR = 0.01
CONVERT_LATER = "convert on the GPU, after the copy, as pyxfer.upload with a dtype does"
_TIMES_FROM, _WHOLE_FROM = 2, 10
_FRACTIONS = {2: "halved it", 4: "made it a quarter", 8: "made it an eighth"}


@dataclass(frozen=True)
class Findings:
    dma: Fact[Dma]
    breakdown: Fact[Breakdown]
    elided: str | None = None
    remarks: tuple[Remark, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the bytes that crossed the link are known, so that the route's own description is not needed."""
        return self.dma.value is not None


@dataclass(frozen=True)
class Expected:
    """A route's own description at one size: its bytes, how many times they cross, and the copies' host memory."""

    nbytes: int
    inflation: float = 1.0
    memory: str = ""
    verified: bool = False


@dataclass
class Evidence:
    """The traced trials of one row. Each is summed up at once, because a capture may be large."""

    crossed: list[Crossed] = field(default_factory=list)
    breakdowns: list[Fact[Breakdown]] = field(default_factory=list)
    lost: int = 0
    """The number of records that the breakdowns lack in total."""
    missing: str = UNTRACED
    """Why there are no traced trials, or no more of them."""
    failed: bool = False
    """Whether a traced trial failed; it becomes a remark even if there are others."""

    def add(self, trial: Traced, ceiling_s: float | None, nbytes: int) -> None:
        if trial.kind is not None:
            self.crossed.append(broken.crossed(trial, trial.kind))
        self.breakdowns.append(broken.break_down(trial, ceiling_s, nbytes))
        self.lost += broken.lost_records(trial)

    def is_near(self, median_s: float | None) -> bool:
        known = [breakdown.value for breakdown in self.breakdowns if breakdown.value is not None]
        if not known or median_s is None:
            return True
        return abs(nearest(known, median_s).elapsed_s - median_s) <= NEAR * median_s

    def findings(self, expected: Expected, median_s: float | None) -> Findings:
        if not self.breakdowns:
            return Findings(unknown(self.missing), unknown(self.missing))
        breakdown = broken.breakdown_of(self.breakdowns, median_s)
        if breakdown.value is None and self.lost:
            breakdown = unknown(broken.lost_reason(self.lost))
        failure = (Remark("untraced", self.missing),) if self.failed else ()
        cost = (*_cost_remark(breakdown.value, median_s), *failure)
        if not self.crossed:
            return Findings(unknown(broken.NOTHING_CROSSES), breakdown, remarks=cost)
        dma = broken.dma_of(self.crossed, median_s)
        if dma.value is None:
            return Findings(dma, breakdown, remarks=cost)
        remarks = [*inflated(dma.value, expected), *_wrong_memory(dma.value, expected)]
        if 2 * sum(trial.outside >= 1 - OUTSIDE for trial in self.crossed) > len(self.crossed):
            remarks.append(
                Remark("outside", f"its copies ran outside of the trial: it copies ahead or later, or {APART}")
            )
        return Findings(dma, breakdown, _elision(self.crossed, expected), (*remarks, *cost))


def _elision(trials: Sequence[Crossed], expected: Expected) -> str | None:
    wanted = int(expected.nbytes * min(expected.inflation, 1.0))
    fewest = min(trial.nbytes for trial in trials)
    if fewest >= wanted:
        return None
    times = sum(trial.nbytes < wanted for trial in trials)
    seldom = f"in {times} of {len(trials)} traced trials " if times < len(trials) else ""
    if fewest == 0:
        return f"elided: {seldom}nothing crossed the link instead of {format_size(wanted)}"
    part, whole = format_size(fewest), format_size(wanted)
    sizes = f"{part} of {whole}" if part != whole else f"{fewest:.0f} of {wanted} bytes"
    words = f"elided: {seldom}only {sizes} crossed the link"
    parts = wanted / fewest
    converted = _FRACTIONS.get(round(parts)) if abs(parts - round(parts)) < IGNORED_SHARE * parts else None
    # With a cache the bytes would differ between trials.
    if converted and expected.verified and len({trial.nbytes for trial in trials}) == 1:
        words += f": a conversion on the host {converted} before the copy"
    return words


def inflated(dma: Dma, expected: Expected) -> tuple[Remark, ...]:
    ignored = max(IGNORED_SHARE * expected.nbytes, IGNORED_BYTES)
    if dma.nbytes - expected.nbytes <= ignored:
        return ()
    times = round(dma.nbytes / expected.nbytes)
    # A multiple of the bytes in at least as many copies: the same bytes were sent again, unless the route converts.
    again = expected.inflation <= 1 and dma.copies >= times and abs(dma.nbytes - times * expected.nbytes) <= ignored
    return (
        Remark(
            INFLATED,
            f"{dma.nbytes / expected.nbytes:.3g} times the bytes cross the link, by the device's records; the "
            "bandwidth counts each byte once",
            f"send them once, or {CONVERT_LATER}" if again else CONVERT_LATER,
        ),
    )


def _wrong_memory(dma: Dma, expected: Expected) -> tuple[Remark, ...]:
    if not expected.memory or dma.source in ("", "unknown", expected.memory):
        return ()
    fix = "make sure that the memory is page-locked when the copy is made" if expected.memory == "pinned" else None
    return (
        Remark(
            "wrong-memory",
            f"its copies used {dma.source.replace('+', ' and ')} memory on the host, by the device's records, and not "
            f"{expected.memory} memory",
            fix,
        ),
    )


def _cost_remark(breakdown: Breakdown | None, median_s: float | None) -> tuple[Remark, ...]:
    if breakdown is None or median_s is None or median_s <= 0:
        return ()
    more_s = breakdown.elapsed_s - median_s
    if abs(more_s) <= TRACING_COST * median_s or abs(more_s) <= TRACING_COST_S:
        return ()
    times = breakdown.elapsed_s / median_s
    compared = f"{format_percent(abs(times - 1))} {'more' if times > 1 else 'less'} than"
    if times >= _TIMES_FROM:
        rounded = float(f"{times:.2g}")
        compared = f"{rounded:.{0 if rounded >= _WHOLE_FROM else 1}f} times as long as"
    text = f"traced it takes {format_seconds(breakdown.elapsed_s)}, {compared} the median of the trials without tracing"
    return (Remark("traced", text),)

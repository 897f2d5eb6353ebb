"""What the traced trials of a route say: what crossed, where the time went, and what that makes of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyxfer.model import Breakdown, Dma, Fact, Remark, unknown
from pyxfer.tracing.breakdown import break_down, middle
from pyxfer.tracing.dma import BESIDE, NOTHING_CROSSES, Crossed, crossed, dma_of
from pyxfer.tracing.trials import Traced
from pyxfer.units import format_percent, format_seconds

UNTRACED = "the run ended before it was traced"
# Fewer bytes than this beside the data say nothing, however small the data is.
BESIDE_BYTES = 256
# What a short call takes more while it is traced is nobody's news: its framework's threads had fallen asleep.
TRACING_COST, TRACING_COST_S = 0.1, 100e-6
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
    missing: str = UNTRACED
    """Why there are none, as long as there are none."""
    failed: bool = False
    """Whether that is because one failed, which is told also where there are others."""

    def add(self, trial: Traced, ceiling_s: float | None, nbytes: int) -> None:
        """Take in one more."""
        if trial.way is not None:
            self.crossed.append(crossed(trial, trial.way))
        self.breakdowns.append(break_down(trial, ceiling_s, nbytes))

    def findings(self, expected: Expected, median_s: float | None) -> Findings:
        """What they say together, beside the median of the trials that were only timed."""
        failure = (Remark("untraced", self.missing),) if self.failed else ()
        if not self.breakdowns:
            return Findings(unknown(self.missing), unknown(self.missing), remarks=failure)
        breakdown = middle(self.breakdowns)
        cost = (*_cost_remark(breakdown.value, median_s), *failure)
        if not self.crossed:
            return Findings(unknown(NOTHING_CROSSES), breakdown, remarks=cost)
        dma = dma_of(self.crossed)
        if dma.value is None:
            return Findings(dma, breakdown, remarks=cost)
        remarks = (*_inflated(dma.value, expected), *_wrong_memory(dma.value, expected), *cost)
        return Findings(dma, breakdown, _elision(self.crossed, expected), remarks)


def _elision(trials: Sequence[Crossed], expected: Expected) -> str | None:
    """Why a route that moved fewer bytes than it had to gets no bandwidth; the worst trial counts."""
    wanted = expected.nbytes * min(expected.inflation, 1.0)
    fewest = min(trial.nbytes for trial in trials)
    if fewest >= int(wanted):
        return None
    times = sum(trial.nbytes < int(wanted) for trial in trials)
    seldom = f" in {times} of {len(trials)} traced trials" if times < len(trials) else ""
    if fewest == 0:
        return f"elided: nothing crossed the link{seldom}, and {wanted:.0f} bytes had to"
    words = f"elided: {fewest:.0f} of {wanted:.0f} bytes crossed the link{seldom}"
    part = wanted / fewest
    done = _FRACTIONS.get(round(part)) if abs(part - round(part)) < BESIDE * part else None
    return f"{words}: a conversion on the host {done} before the copy" if expected.verified and done else words


def _inflated(dma: Dma, expected: Expected) -> tuple[Remark, ...]:
    if dma.nbytes - expected.nbytes <= max(BESIDE * expected.nbytes, BESIDE_BYTES):
        return ()
    return (
        Remark(
            "inflated",
            f"{dma.nbytes / expected.nbytes:.3g} times the bytes cross the link, by the device's records; the "
            "bandwidth counts those that were asked for",
            "convert on the GPU, after the copy",
        ),
    )


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
    if breakdown is None or median_s is None:
        return ()
    more_s = breakdown.elapsed_s - median_s
    if abs(more_s) <= TRACING_COST * median_s or abs(more_s) <= TRACING_COST_S:
        return ()
    return (
        Remark(
            "traced",
            f"traced it takes {format_seconds(breakdown.elapsed_s)}, {format_percent(abs(more_s) / median_s)} "
            f"{'more' if more_s > 0 else 'less'} than the median of the trials that were only timed",
        ),
    )

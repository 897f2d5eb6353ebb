"""Doubts about medians: too few trials, a drift, two modes, a wide interval, outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pyxfer._document.intervals import CONFIDENCE, MIN_TRIALS, Values
from pyxfer._document.machines import Remark
from pyxfer._document.runs import Summary
from pyxfer._measure import stats
from pyxfer.units import format_percent, format_seconds

DRIFT_Z = 3.8
"""At most one false alarm in a thousand, also where neighbours correlate with 0.7; a run has about fifty rows."""
MODE_TRIALS = 6
MODE_SHARE = 0.2
MODE_GAP = 0.7
"""Halves of normal or even noise stand 0.2 apart by this measure; two normal modes 0.7 from nine deviations on."""
MODE_APART = 0.015
"""Two steps of a coarse event clock at the shortest copies are 1.3 % apart and no modes."""
OUTLIER_SHARE = 0.05
MAX_BUDGET_FACTOR = 100
QUIETER = "let the machine settle, stop other work on it and measure again"


def instability(values: Sequence[float], precision: float, budget_s: float | None = None) -> Remark | None:
    """The most important reason to doubt the median of these trials, given in the order they ran; None without one.

    Causes come before the width that they cause, because more trials narrow noise but not a drift or a second mode.
    Every interval wider than the precision has a remark.
    """
    summary = stats.summarise(values)
    seconds = np.asarray(values, dtype=np.float64)
    if summary.low_s is None:
        trials = "1 trial is" if summary.n == 1 else f"{summary.n} trials are"
        text = f"{trials} too few for a {CONFIDENCE:.0%} interval, which takes {MIN_TRIALS}"
        return Remark("few-trials", text, _give(_longer(MIN_TRIALS / summary.n, budget_s)))
    return (
        _drift(seconds, summary, precision)
        or _bimodal(seconds, summary, precision)
        or _unstable(summary, precision, budget_s)
        or _outliers(seconds, summary, precision)
    )


def _drift(seconds: Values, summary: Summary, precision: float) -> Remark | None:
    """First third against last third by the rank-sum test, which outliers and skew do not affect.

    Its variance is that of correlated trials, with the correlation estimated within both thirds, free of their trends.
    """
    third = seconds.size // 3
    first, last = seconds[:third], seconds[-third:]
    before, after = float(np.median(first)), float(np.median(last))
    if abs(after - before) <= precision * summary.median_s:
        return None
    ranks = stats.mid_ranks(np.concatenate((first, last)))
    independent = third * third * (2 * third + 1) / 12
    spread = math.sqrt(independent * stats.variance_inflation(first, last, detrended=True))
    if abs(ranks[third:].sum() - third * (2 * third + 1) / 2) < DRIFT_Z * spread:
        return None
    thirds = f"{format_seconds(before)} in its first third, {format_seconds(after)} in its last"
    fix = f"{QUIETER}, or span the drift with a longer budget"
    return Remark("drift", f"the time drifted during the run: {thirds}", fix)


def _bimodal(seconds: Values, summary: Summary, precision: float) -> Remark | None:
    """Two modes: the widest gap is most of the way from one side's median to the other's."""
    ordered = np.sort(seconds)
    margin = max(MODE_TRIALS, math.ceil(MODE_SHARE * ordered.size))
    gaps = np.diff(ordered)[margin - 1 : ordered.size - margin]
    if gaps.size == 0:
        return None
    split = margin + int(np.argmax(gaps))
    fast, slow = ordered[:split], ordered[split:]
    near, far = float(np.median(fast)), float(np.median(slow))
    clear = np.quantile(slow, 0.1) - np.quantile(fast, 0.9)
    if clear < MODE_GAP * (far - near) or far - near <= max(MODE_APART, precision) * summary.median_s:
        return None
    share, fix = format_percent(split / ordered.size), f"{QUIETER}; the saved run has every trial"
    text = f"two modes: {share} of the trials near {format_seconds(near)}, the others near {format_seconds(far)}"
    return Remark("bimodal", text, fix)


def _unstable(summary: Summary, precision: float, budget_s: float | None) -> Remark | None:
    half_width = summary.relative_half_width
    if half_width is None:
        text = "half of the trials took no time that the clock could see"
        return Remark("unstable", text, "measure larger sizes")
    if half_width <= precision:
        return None
    factor = stats.trials_needed(summary, precision) / summary.n
    reached, wanted = format_percent(half_width), format_percent(precision)
    if half_width > 1:
        reached = "more than 100 %"
    text = f"the median is known within {f'just over {wanted}' if reached == wanted else reached}, not {wanted}"
    longer = _longer(factor, budget_s)
    return Remark("unstable", text, _give(longer, _looser(half_width)) if longer else QUIETER)


def _outliers(seconds: Values, summary: Summary, precision: float) -> Remark | None:
    """Tukey's far fences, never nearer than the precision: the quartiles of a coarse clock coincide."""
    reach = max(3 * summary.iqr_s, precision * summary.median_s)
    outside = np.count_nonzero(seconds != np.clip(seconds, summary.q1_s - reach, summary.q3_s + reach))
    if outside < max(2, OUTLIER_SHARE * summary.n):
        return None
    most, middle = format_seconds(summary.max_s), format_seconds(summary.median_s)
    text = f"{outside} of {summary.n} trials are far outside the others, up to {most} against a median of {middle}"
    return Remark("outliers", text, f"{QUIETER}, or outnumber them with a longer budget")


def _give(*changes: str) -> str:
    """Advice in words that are both options of the command line and arguments in Python."""
    known = " or ".join(filter(None, changes))
    return known and f"give {known}"


def _longer(factor: float, budget_s: float | None) -> str:
    if factor > MAX_BUDGET_FACTOR:
        return ""
    if budget_s is None:
        return f"a budget {math.ceil(factor)} times as long"
    return f"a budget of {math.ceil(factor * budget_s)}s"


def _looser(half_width: float) -> str:
    """The next rounder precision that these trials do reach."""
    unit = 10.0 ** math.floor(math.log10(half_width))
    reached = math.ceil(half_width / unit) * unit
    return f"a precision of {reached * 100:.3g}%"

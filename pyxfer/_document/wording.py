"""Sentences about documents that exports and terminal pages share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pyxfer._document.baselines import Cause, CellComparison, Comparison
from pyxfer._document.runs import Remark
from pyxfer._document.watches import NO_GPU_WATCHED, CopyClass, Parts, StepPartName, Watched
from pyxfer.units import format_percent, format_seconds, format_size

# --- comparisons -----------------------------------------------------------------------------------------------------

_NO_CHANGE = 1e-4
_FAR_FASTER = -math.log(100)


def change_text(log_ratio: float) -> str:
    """The change of bandwidth, e.g. `4.8 % slower`."""
    if log_ratio < _FAR_FASTER:
        return "many times faster"
    share = math.expm1(-log_ratio)
    if abs(share) < _NO_CHANGE:
        return "no change"
    return f"{format_percent(abs(share))} {'slower' if share < 0 else 'faster'}"


NANO = 1e9


def is_latency(row: CellComparison) -> bool:
    """Whether its times are those of one load, which are shown in nanoseconds."""
    return row.cell.direction == "latency"


def nanoseconds_text(seconds: float | None) -> str:
    """`1180.2`; empty for None."""
    return "" if seconds is None else f"{seconds * NANO:.1f}"


def format_latency(seconds: float) -> str:
    """`1180.2 ns`."""
    return f"{nanoseconds_text(seconds)} ns"


def signed_change(ratio: float | None) -> str:
    """The change of bandwidth that a ratio of times means, e.g. `-4.8 %`; empty for None."""
    if not ratio:
        return ""
    share = 1 / ratio - 1
    return f"{share * 100:+.1f} %".replace("-0.0 ", "0.0 ").replace("+0.0 ", "0.0 ")


def interval_text(row: CellComparison) -> str:
    """The interval of the change of bandwidth, e.g. `-5.1 to -4.4 %`; empty if it is not known."""
    if not row.low.value or not row.high.value:
        return ""
    return f"{signed_change(row.high.value).removesuffix(' %')} to {signed_change(row.low.value)}"


def overall_text(comparison: Comparison) -> str:
    """The geometric mean of the changes of all cells with its interval, or why it is not known."""
    mean, low, high = comparison.overall.value, comparison.overall_low.value, comparison.overall_high.value
    if not mean or not low or not high:
        return f"not known: {comparison.overall.reason or 'no reason given'}"
    ends = f"{signed_change(high).removesuffix(' %')} to {signed_change(low)}"
    measured = not any(row.assumed for row in comparison.cells)
    beyond = measured and comparison.verdict == "AMBIGUOUS" and 1 - 1 / low > comparison.tolerance
    together = ": together they have lost more than the tolerance, though no cell has for certain" if beyond else ""
    return f"{signed_change(mean)} ({ends}), the geometric mean of all cells{together}"


def compared(comparison: Comparison) -> list[CellComparison]:
    """The cells with a time on both sides."""
    return [row for row in comparison.cells if row.ratio.value is not None]


MOST_ROWS = 60


def shown(comparison: Comparison) -> tuple[list[CellComparison], str]:
    """The compared cells that a page has room for, and what it leaves out: cells that are SAME, and smaller changes."""
    rows = compared(comparison)
    if len(rows) <= MOST_ROWS:
        return rows, ""
    others = [row for row in rows if row.verdict != "SAME"]
    most = set(map(id, sorted(others, key=_clearness, reverse=True)[:MOST_ROWS]))
    same, rest = len(rows) - len(others), len(others) - len(most)
    parts = [f"{same} cells that are SAME"] * bool(same) + [f"{rest} others with smaller changes"] * bool(rest)
    return [row for row in others if id(row) in most], f"Not shown: {' and '.join(parts)}."


def _clearness(row: CellComparison) -> tuple[bool, float]:
    """SLOW and FAST come before AMBIGUOUS, and large changes before small ones."""
    return row.verdict != "AMBIGUOUS", abs(math.log(row.ratio.value or 1.0))


def left_out(comparison: Comparison) -> dict[str, list[str]]:
    """The cells that were not compared, by the reason."""
    reasons: dict[str, list[str]] = {}
    for row in comparison.cells:
        if row.ratio.value is None:
            reasons.setdefault(row.why.removeprefix("not compared: "), []).append(row.text)
    return reasons


def doubts(comparison: Comparison) -> list[str]:
    """One line for each AMBIGUOUS cell: why it has no other verdict."""
    return [f"{row.text}: {row.why}" for row in compared(comparison) if row.verdict == "AMBIGUOUS"]


def headline(comparison: Comparison) -> str:
    """The overall verdict and the cells that it rests on."""
    missing = len(comparison.cells) - len(compared(comparison))
    return f"{_verdict(comparison)}{f' {missing} more could not be compared.' if missing else ''}"


def _verdict(comparison: Comparison) -> str:
    rows, limit = compared(comparison), format_percent(comparison.tolerance)
    verdict = comparison.verdict
    those = [row for row in rows if row.verdict == verdict]
    if verdict == "SAME":
        return f"SAME: {_cells(rows)} of {comparison.b} {_is(rows)} within {limit} of {comparison.a}."
    if verdict == "AMBIGUOUS":
        fast = sum(row.verdict == "FAST" for row in rows)
        same = len(rows) - len(those) - fast
        others = ", ".join(f"{count} {word}" for count, word in ((same, "SAME"), (fast, "FAST")) if count)
        may_lose = all((row.high.value or 1.0) * (1 - comparison.tolerance) > 1 for row in those)
        which = f"{len(those)} of {_cells(rows)} {_have(those)}"
        if any(row.assumed for row in those):
            doubt = f"one process on each side cannot show whether {which} changed by {limit}"
        else:
            doubt = f"it is uncertain whether {which} {'lost' if may_lose else 'changed by'} {limit}"
        return f"AMBIGUOUS: {doubt}{'; ' * bool(others)}{others}."
    word = "slower" if verdict == "SLOW" else "faster"
    most = max(those, key=lambda row: abs(math.log(row.ratio.value or 1.0)))
    worst = f"{most.text} by {signed_change(most.ratio.value).lstrip('+-')}"
    sure = [row for row in those if row.confirmed]
    confirmed = f" {_processes(sure)} {len(sure)} of them." if sure else ""
    return (
        f"{verdict}: {len(those)} of {_cells(rows)} of {comparison.b} {_is(those)} {word} than {comparison.a} by more "
        f"than {limit}, most of all {worst}.{confirmed}"
    )


def cause_text(cause: Cause) -> str:
    """A likely cause, its evidence, and what to do."""
    fix = f" To do: {cause.fix}." if cause.fix else ""
    return f"{cause.text} Seen: {cause.evidence}.{fix}"


def remark_text(remark: Remark) -> str:
    """A remark and its fix."""
    return f"{remark.text.rstrip('.')}. To do: {remark.fix}." if remark.fix else remark.text


def _cells(rows: Sequence[CellComparison]) -> str:
    return "1 cell" if len(rows) == 1 else f"{len(rows)} cells"


def _is(rows: Sequence[CellComparison]) -> str:
    return "is" if len(rows) == 1 else "are"


def _have(rows: Sequence[CellComparison]) -> str:
    return "has" if len(rows) == 1 else "have"


def _processes(rows: Sequence[CellComparison]) -> str:
    most = max(row.b_processes for row in rows)
    return "1 process confirms" if most == 1 else f"{most} processes confirm"


# --- watches ---------------------------------------------------------------------------------------------------------

_WORDS: dict[StepPartName, str] = {
    "kernels": "kernels and sets",
    "h2d": "copies to the device",
    "d2h": "copies to the host",
    "other copies": "other copies",
    "input": "input being made",
    "idle": "waiting, device idle",
    "host": "host, device idle",
}
# Without records the work of the device is not known.
_BY_THE_CLOCK: dict[StepPartName, str] = {**_WORDS, "input": "between steps", "host": "inside steps"}


def part_words(parts: Parts) -> Mapping[StepPartName, str]:
    """The reader's names of the parts, which depend on whether records and steps are known."""
    if parts.kernels_s is not None:
        return _WORDS
    return _BY_THE_CLOCK if parts.input_s is not None else {**_BY_THE_CLOCK, "host": "the program"}


def unseen_reason(watched: Watched) -> str:
    """Why there are no records; empty if there are some, or if a remark already says so."""
    reason = watched.activity.reason or ""
    no_gpu = reason == NO_GPU_WATCHED
    said = any(remark.text == reason or (no_gpu and remark.code == "no-gpu") for remark in watched.remarks)
    return "" if said else reason


def slow_text(watched: Watched) -> str:
    """The number of slow steps and their cost; empty without slow steps."""
    steps, slow = watched.steps, watched.steps.slow
    if slow is None:
        return ""
    are, usual = ("is", "a usual one") if slow.count == 1 else ("are", "as many usual ones")
    text = (
        f"{slow.count} of {steps.watched} steps {are} slow: {format_seconds(slow.more_s)} more than {usual}, "
        f"{format_percent(slow.share)} of the time of all steps"
    )
    mostly = "" if slow.mostly is None else f", most of it {part_words(watched.parts)[slow.mostly]}"
    return f"{text}{mostly}; the longest took {format_seconds(slow.longest_s)}"


def size_text(row: CopyClass) -> str:
    """The range of sizes of a class of copies, e.g. `16 to 64 MiB`."""
    if row.below_bytes is None:
        return f"from {format_size(row.least_bytes)}"
    if row.least_bytes == 0:
        return f"below {format_size(row.below_bytes)}"
    least, below = format_size(row.least_bytes), format_size(row.below_bytes)
    return f"{least.split()[0] if least.split()[1] == below.split()[1] else least} to {below}"


def sum_text(nbytes: int) -> str:
    """Three digits in decimal units: a sum of sizes is rarely a multiple of a binary unit."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        text = f"{nbytes / factor:.3g}"
        if float(text) >= 1:
            return f"{text} {unit}"
    return f"{nbytes} B"

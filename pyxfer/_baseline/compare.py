"""Comparing two sides cell by cell; docs/baselines.md describes the method."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from pyxfer._baseline import judge, samples
from pyxfer._baseline.causes import causes, differences
from pyxfer._document.baselines import CellComparison, Comparison, Verdict
from pyxfer._document.cells import Cell
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer.errors import UsageError
from pyxfer.units import format_change, format_percent

replace = msgspec.structs.replace
_FARTHEST = math.log(1e6)
_HOST = Remark("host-memory", "Both sides were measured in host memory, not over a link: this describes no GPU.")


def compare_samples(
    a: samples.Sample,
    b: samples.Sample,
    tolerance: float = judge.DEFAULT_TOLERANCE,
    plan: judge.Plan = judge.COMPARISON,
) -> Comparison:
    if not 0 < tolerance < 1:
        raise UsageError(f"tolerance {tolerance!r} is not between 0 and 1: give 0.03 for 3 %.")
    samples.check_comparable(a, b)
    of_a, of_b = samples.collect(a.runs), samples.collect(b.runs)
    judged = judge.judge(of_a, of_b, tolerance, plan, in_memory=a.first.runtime == "host")
    if not judged:
        raise UsageError(samples.no_common_cell_text(a, b, of_a, of_b))
    pairs = {cell: each.pair for cell, each in judged.items()}
    compared = [_row(cell, each, tolerance) for cell, each in judged.items()]
    left_out = [_missing(cell, a, b, of_a, of_b) for cell in {**of_a, **of_b} if cell not in judged]
    overall, overall_low, overall_high = map(_ratio, _overall(pairs))
    comparison = Comparison(
        a=a.name,
        b=b.name,
        tolerance=tolerance,
        verdict=judge.overall_verdict({row.verdict for row in compared}),
        differences=differences(a.runs, b.runs),
        cells=(*compared, *left_out),
        overall=overall,
        overall_low=overall_low,
        overall_high=overall_high,
        remarks=(
            *a.remarks(),
            *b.remarks(),
            *_remarks(a, b, [each.found for each in judged.values()]),
            *_far_remarks(a, b, pairs),
        ),
    )
    return replace(comparison, causes=causes(a.runs, b.runs, comparison.cells))


def derive_comparison(comparison: Comparison) -> Comparison:
    compared = [row for row in comparison.cells if row.ratio.value is not None]
    # The spread is measured where any cell of the same class has several processes on one side.
    several = {judge.noise_class(row.cell) for row in compared if max(row.a_processes, row.b_processes) > 1}
    assumed = {row.cell for row in compared if judge.noise_class(row.cell) not in several}
    cells = tuple(
        _derived_row(replace(row, assumed=row.cell in assumed), comparison.tolerance) for row in comparison.cells
    )
    verdicts = {row.verdict for row in cells if row.ratio.value is not None}
    mean, high = comparison.overall.value, comparison.overall_high.value
    return replace(
        comparison,
        verdict=judge.overall_verdict(verdicts),
        cells=cells,
        # Of the logarithms, the mean is in the middle of its interval.
        overall_low=Fact(mean * mean / high) if mean and high else comparison.overall_low,
    )


def _derived_row(row: CellComparison, tolerance: float) -> CellComparison:
    cell = row.cell
    if cell.direction != "both" and not cell.is_of_links:
        row = replace(row, cell=replace(cell, side=cell.direction))
    text, a, b, high = row.cell.text, row.a_gbps.value, row.b_gbps.value, row.high.value
    if row.ratio.value is None or not a or not b or not high:
        return replace(row, text=text, verdict="AMBIGUOUS", confirmed=False)
    log_ratio = math.log(a / b)
    low = 2 * log_ratio - math.log(high)
    verdict = judge.verdict_of(judge.Estimate(log_ratio, low, math.log(high), 0.0, row.assumed), tolerance)
    return replace(
        row,
        text=text,
        verdict=verdict,
        ratio=_ratio(log_ratio),
        # An end that is at the limit says nothing about the other one.
        low=row.low if abs(math.log(high)) >= _FARTHEST else _ratio(low),
        high=_ratio(math.log(high)),
        b_s=row.b_s if row.a_s.value is None else Fact(row.a_s.value * a / b),
        confirmed=row.confirmed and verdict == "SLOW",
    )


def certainly_slower(comparison: Comparison, share: float) -> tuple[CellComparison, ...]:
    """The cells whose whole interval is beyond a loss of that share of the bandwidth, by the rule of SLOW."""
    return tuple(row for row in comparison.cells if row.low.value is not None and judge.is_slower(_found(row), share))


def _found(row: CellComparison) -> judge.Estimate:
    ratio, low, high = (math.log(fact.value or 1.0) for fact in (row.ratio, row.low, row.high))
    return judge.Estimate(ratio, low, high, 0.0, row.assumed)


def _row(cell: Cell, judged: judge.Judged, tolerance: float) -> CellComparison:
    pair, found = judged.pair, judged.found
    return replace(
        _not_compared(cell, pair.a, pair.b, _why(judged.verdict, pair, found, tolerance)),
        verdict=judged.verdict,
        ratio=_ratio(found.log_ratio),
        low=_ratio(found.low),
        high=_ratio(found.high),
        confirmed=judged.confirmed,
        assumed=found.assumed,
        least_loss=judged.least_loss,
    )


def _ratio(log: float) -> Fact[float]:
    """The ratio, limited: the interval of very different processes can exceed the range of a float."""
    return Fact(math.exp(min(max(log, -_FARTHEST), _FARTHEST)))


def _why(verdict: Verdict, pair: judge.Pair, found: judge.Estimate, tolerance: float) -> str:
    limit = format_percent(tolerance)
    spread = f"by about {format_percent(found.spread)}"
    if found.assumed and verdict == "SAME":
        return f"within {limit} either way if processes differ {spread}, which is assumed"
    if found.assumed and verdict == "AMBIGUOUS":
        return (
            f"{format_change(found.log_ratio)}, of one process on each side: processes are assumed to differ {spread}, "
            "which does not show this change; measure several processes of each side"
        )
    if found.assumed:
        return f"{format_change(found.log_ratio)}, far more than processes differ ({spread} is assumed)"
    if verdict == "SAME":
        return f"within {limit} either way{_source(pair)}"
    if verdict == "AMBIGUOUS":
        reach = f"anything from {format_change(found.low)} to {format_change(found.high)}"
        return f"{reach}: processes differ {spread}{_source(pair)}"
    surest = found.low if verdict == "SLOW" else found.high
    return f"at least {format_change(surest)}, which is beyond {limit}{_source(pair)}"


def _source(pair: judge.Pair) -> str:
    if pair.a.n == 1 and pair.b.n > 1:
        return " (A is one process; the spread is B's)"
    return " (B is one process; the spread is A's)" if pair.b.n == 1 and pair.a.n > 1 else ""


def _missing(
    cell: Cell, a: samples.Sample, b: samples.Sample, of_a: dict[Cell, samples.Series], of_b: dict[Cell, samples.Series]
) -> CellComparison:
    why = "; ".join(
        f"{name} has no time of it ({side[cell].missing})" if cell in side else f"{name} did not measure it"
        for name, side in ((a.name, of_a), (b.name, of_b))
        if cell not in side or side[cell].n == 0
    )
    return _not_compared(cell, of_a.get(cell), of_b.get(cell), f"not compared: {why}")


def _not_compared(cell: Cell, a: samples.Series | None, b: samples.Series | None, why: str) -> CellComparison:
    nothing: Fact[float] = unknown("it is not on both sides")
    return CellComparison(
        cell=cell,
        text=cell.text,
        verdict="AMBIGUOUS",
        ratio=nothing,
        low=nothing,
        high=nothing,
        a_gbps=_known(a, lambda series: series.gbps),
        b_gbps=_known(b, lambda series: series.gbps),
        a_processes=a.n if a else 0,
        b_processes=b.n if b else 0,
        a_s=_known(a, lambda series: math.exp(series.mean_log)),
        b_s=_known(b, lambda series: math.exp(series.mean_log)),
        why=why,
    )


def _known(series: samples.Series | None, read: Callable[[samples.Series], float]) -> Fact[float]:
    if series is None:
        return unknown("it was not measured")
    return Fact(read(series)) if series.n else unknown(series.missing)


def _overall(pairs: dict[Cell, judge.Pair]) -> tuple[float, float, float]:
    """The mean of the logarithms of the ratios, and its interval.

    A deviation of all cells of one process counts once, not once a cell.
    """
    a, b = (_mean_series([getattr(pair, side) for pair in pairs.values()]) for side in ("a", "b"))
    if a.n and b.n:
        whole = judge.estimate(judge.make_pair(a, b, sum(pair.assumed for pair in pairs.values()) / len(pairs)), ())
        return whole.log_ratio, whole.low, whole.high
    # On one side no process has all cells: the mean of the ratios and the intervals of the cells.
    found = [judge.estimate(pair, ()) for pair in pairs.values()]
    mean = sum(cell.log_ratio for cell in found) / len(found)
    half = math.sqrt(sum(cell.half**2 for cell in found)) / len(found)
    return mean, mean - half, mean + half


def _mean_series(cells: Sequence[samples.Series]) -> samples.Series:
    """The geometric mean of all cells, in each process that has all of them."""
    complete = sorted(set.intersection(*(set(cell.processes) for cell in cells)))
    means = [sum(cell.logs[cell.processes.index(process)] for cell in cells) / len(cells) for process in complete]
    nothing = (0.0,) * len(complete)
    first = cells[0]
    sittings = tuple(first.sittings[first.processes.index(process)] for process in complete)
    return samples.Series(tuple(map(math.exp, means)), nothing, tuple(complete), sittings, 0)


def _far_remarks(a: samples.Sample, b: samples.Sample, pairs: dict[Cell, judge.Pair]) -> list[Remark]:
    found = []
    for side, all_of_side in ((a, [pair.a for pair in pairs.values()]), (b, [pair.b for pair in pairs.values()])):
        out = Counter(each.processes[place] for each in all_of_side for place in each.left_out)
        for process, cells in sorted(out.items()):
            which = f"{cells} of {len(pairs)} cells"
            text = f"Process {process + 1} of {side.name} is far from the others and left out in {which}."
            found.append(Remark("left-out", text, "see what else ran on the host at that time"))
    return found


def _remarks(a: samples.Sample, b: samples.Sample, estimates: Sequence[judge.Estimate]) -> list[Remark]:
    found = []
    if a.first.runtime == "host":
        found.append(_HOST)
    if samples.same_run(a, b):
        found.append(Remark("same-run", "One run is on both sides, and is compared with itself."))
    if samples.other_gpus(a, b):
        found.append(Remark("other-gpu", f"{a.name} and {b.name} are of two different GPUs of one model."))
    if any(cell.assumed for cell in estimates):
        spread = format_percent(max(cell.spread for cell in estimates if cell.assumed))
        found.append(
            Remark(
                "one-process",
                "Each side is one process, so the spread between processes of this host was not measured; up to "
                f"{spread} is assumed, and only far larger changes are SLOW or FAST.",
                "compare several runs of each side, or baselines of three processes or more: pyxfer baseline save",
            )
        )
    return found

"""Checks that a run agrees with itself: summaries with trials, rates with medians, shares with peaks, peaks with links.

A document keeps the trials and everything that is derived from them, so a figure that was changed or damaged disagrees
with another one. The checks run wherever a run is read, so that everything else in pyxfer can rely on them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median, quantiles

from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES, Link
from pyxfer._document.runs import Measurement, Rate, Run, Summary, Trial
from pyxfer.errors import DocumentError

References = dict[tuple[str, str, int], list[Measurement]]
"""Rows of raw copies, which may be ceilings, by direction, side and size."""
TOLERANCE = 1e-6
"""Relative. The figures are sums and quotients of doubles, which another machine may round differently."""


def check_run(run: Run, source: str) -> None:
    """Refuse a run whose figures disagree.

    Raises:
        DocumentError: the text names the first field that disagrees, such as `measurements[3].rate.gbps`.

    """
    for field, problem in _problems(run):
        raise DocumentError(f"{source}: {field} {problem}; it was changed after pyxfer wrote it, so measure again")


def _problems(run: Run) -> Iterator[tuple[str, str]]:
    """Each field that disagrees, and why."""
    parameters = run.parameters
    yield from _not_positive(
        ("parameters.precision", parameters.precision),
        ("parameters.budget_s", parameters.budget_s),
        *((f"parameters.sizes_bytes[{i}]", size) for i, size in enumerate(parameters.sizes_bytes)),
        *((f"parameters.batches[{i}]", count) for i, count in enumerate(parameters.batches)),
    )
    yield from _negative(("duration_s", run.duration_s))
    yield from link_problems(run.link)
    references: References = defaultdict(list)
    for row in run.measurements:
        if row.nature is None and row.variant == "warm":
            references[_place(row)].append(row)
    for i, row in enumerate(run.measurements):
        for field, problem in _row_problems(row, run.link, references):
            yield f"measurements[{i}].{field}", problem
    for i, curve in enumerate(run.curves):
        for name in ("latency_s", "asymptote_gbps", "half_bytes", "worst_misfit"):
            yield from _negative((f"curves[{i}].{name}", getattr(curve, name).value))
    for i, cost in enumerate(run.locking):
        yield from _not_positive((f"locking[{i}].nbytes", cost.nbytes))
        if cost.summary is not None:
            yield from _order_problems(f"locking[{i}].summary", cost.summary)


def link_problems(link: Link) -> Iterator[tuple[str, str]]:
    raw, payload = link.raw_peak_gbps.value, link.max_payload_bytes.value
    yield from _not_positive(("link.max_payload_bytes", payload), ("link.raw_peak_gbps", raw))
    states = [link.now, link.under_load, link.device_most, link.system_most]
    states += [state for hop in link.hops for state in (hop.now, hop.most, hop.working)]
    carried = [state.value.gbps for state in states if state.value is not None]
    if link.kind == "pcie" and raw is not None and carried and not any(_equal(raw, each) for each in carried):
        yield "link.raw_peak_gbps", f"is {raw:g}, which no state of the link carries"
    for name, overhead in (("h2d_peak_gbps", COMPLETION_OVERHEAD_BYTES), ("d2h_peak_gbps", WRITE_OVERHEAD_BYTES)):
        peak = getattr(link, name).value
        if peak is None:
            continue
        if raw is None or payload is None:
            yield f"link.{name}", f"is {peak:g} without a raw peak and a payload to follow from"
        elif not _equal(peak, raw * payload / (payload + overhead)):
            yield f"link.{name}", f"is {peak:g}, which does not follow from {raw:g} GB/s at {payload} B payload"


def _row_problems(row: Measurement, link: Link, references: References) -> Iterator[tuple[str, str]]:
    yield from _negative(("nbytes", row.nbytes), ("moved_bytes", row.moved_bytes), ("first_s", row.first_s.value))
    yield from _not_positive(("batch", row.batch))
    yield from _trial_problems(row.trials)
    valid = [trial for trial in row.trials if trial.invalid is None]
    for name, summary, seconds in (
        ("summary", row.summary, [trial.elapsed_s for trial in valid]),
        ("dispatch", row.dispatch, _taken(trial.dispatch_s for trial in valid)),
        ("wall", row.wall, _taken(trial.wall_s for trial in valid)),
    ):
        if summary is not None:
            yield from _order_problems(name, summary)
        if row.trials:  # an examination's rows have none
            yield from _summary_problems(name, summary, seconds)
    if row.rate.value is not None:
        yield from _rate_problems(row, row.rate.value)
        yield from _peak_problems(row, row.rate.value, link)
    yield from _share_problems(row, valid, references[_place(row)])


def _trial_problems(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    rounds: set[int] = set()
    for i, trial in enumerate(trials):
        amounts = (trial.round, trial.elapsed_s, trial.dispatch_s, trial.wall_s, trial.faults, trial.copies - 1)
        if any(amount is not None and amount < 0 for amount in amounts):
            yield f"trials[{i}]", "has a negative number"
        if trial.round in rounds:
            yield f"trials[{i}].round", f"is {trial.round}, as that of an earlier trial"
        rounds.add(trial.round)


def _summary_problems(name: str, summary: Summary | None, seconds: Sequence[float]) -> Iterator[tuple[str, str]]:
    if (summary is None) != (not seconds):
        yield name, f"is {'missing' if summary is None else 'there'} with {len(seconds)} valid trials"
        return
    if summary is None:
        return
    if summary.n != len(seconds):
        yield f"{name}.n", f"is {summary.n} with {len(seconds)} valid trials"
        return
    middle = median(seconds)
    q1, _, q3 = quantiles(seconds, method="inclusive") if len(seconds) > 1 else [middle] * 3
    expected = {
        "median_s": middle,
        "q1_s": q1,
        "q3_s": q3,
        "mad_s": median(abs(each - middle) for each in seconds),
        "min_s": min(seconds),
        "max_s": max(seconds),
    }
    for part, value in expected.items():
        found = getattr(summary, part)
        # A deviation is a difference of seconds, and is rounded as they are.
        if abs(found - value) > TOLERANCE * max(abs(value), middle):
            yield f"{name}.{part}", f"is {found:g}, and the valid trials give {value:g}"


def _order_problems(name: str, summary: Summary) -> Iterator[tuple[str, str]]:
    yield from _not_positive((f"{name}.n", summary.n))
    parts = ("min_s", "q1_s", "median_s", "q3_s", "max_s")
    values = [getattr(summary, part) for part in parts]
    if not values[0] >= 0 or values != sorted(values):
        yield name, f"has {', '.join(parts)} that are not in this order"
    yield from _interval_problems(f"{name}.low_s", "high_s", (summary.low_s, summary.median_s, summary.high_s))


def _interval_problems(
    low_name: str, high_name: str, figures: tuple[float | None, float, float | None]
) -> Iterator[tuple[str, str]]:
    low, middle, high = figures
    if (low is None) != (high is None):
        yield low_name, f"and {high_name} are not both there"
    elif low is not None and high is not None and not 0 <= low <= middle <= high:
        yield low_name, f"and {high_name}, {low:g} and {high:g}, do not enclose {middle:g}"


def _rate_problems(row: Measurement, rate: Rate) -> Iterator[tuple[str, str]]:
    if row.verified.value is False:
        yield "rate.value", "is there although the contents were wrong"
    if row.summary is None or not row.summary.median_s:
        yield "rate.gbps", f"is {rate.gbps:g} without a median"
        return
    seconds = {"gbps": row.summary.median_s, "low_gbps": row.summary.high_s, "high_gbps": row.summary.low_s}
    for name, each in seconds.items():
        found = getattr(rate, name)
        expected = row.moved_bytes / each / 1e9 if each else None
        if (found is None) != (expected is None) or not _equal(found or 0.0, expected or 0.0):
            yield f"rate.{name}", f"is {found}, and {row.moved_bytes} bytes in {each} s give {expected}"


def _peak_problems(row: Measurement, rate: Rate, link: Link) -> Iterator[tuple[str, str]]:
    most = link.most_gbps(row.side)
    if most is not None and rate.gbps > most:
        yield "rate.gbps", f"is {rate.gbps:g}, above the {most:g} that the link can carry"
    peak, share = link.peak_gbps(row.side).value, row.peak_share.value
    if share is not None and (not peak or not _equal(share, rate.gbps / peak)):
        yield "peak_share.value", f"is {share:g}, which is not {rate.gbps:g} GB/s of the peak"


def _share_problems(
    row: Measurement, valid: Sequence[Trial], references: Sequence[Measurement]
) -> Iterator[tuple[str, str]]:
    share = row.ceiling_share.value
    for name in ("peak_share", "ceiling_share"):
        if row.rate.value is None and getattr(row, name).value is not None:
            yield f"{name}.value", "is there without a rate"
    if share is None:
        return
    yield from _interval_problems("ceiling_share.low", "high", (share.low, share.value, share.high))
    ratios = list(_medians_of_ratios(valid, references))
    if ratios and not any(_equal(share.value, ratio) for ratio in ratios):
        yield "ceiling_share.value", f"is {share.value:g}, which the trials of no raw copy give"


def _place(row: Measurement) -> tuple[str, str, int]:
    return row.direction, row.side, row.nbytes


def _medians_of_ratios(valid: Sequence[Trial], references: Iterable[Measurement]) -> Iterator[float]:
    for reference in references:
        by_round = {trial.round: trial.elapsed_s for trial in reference.trials if trial.invalid is None}
        pairs = [(by_round.get(trial.round, 0.0), trial.elapsed_s) for trial in valid]
        ratios = [above / below for above, below in pairs if above > 0 and below > 0]
        if ratios:
            yield median(ratios)


def _taken(seconds: Iterable[float | None]) -> list[float]:
    return [each for each in seconds if each is not None]


def _equal(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=TOLERANCE)


def _negative(*fields: tuple[str, float | None]) -> Iterator[tuple[str, str]]:
    for name, value in fields:
        if value is not None and value < 0:
            yield name, f"is {value:g}"


def _not_positive(*fields: tuple[str, float | None]) -> Iterator[tuple[str, str]]:
    for name, value in fields:
        if value is not None and value <= 0:
            yield name, f"is {value:g}"

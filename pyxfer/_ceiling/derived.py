"""The figures of a run that follow from its trials, its link and its settings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import msgspec

from pyxfer._ceiling.arena import cost_of
from pyxfer._ceiling.plans import can_be_fresh, plan_of
from pyxfer._ceiling.rows import WRONG_BYTES, ceiling_share, curves, raw_head, shared_rounds, summary_of
from pyxfer._document import runs
from pyxfer._document.machines import Fact, Link, Remark, unknown
from pyxfer._document.sessions import Tested, XferSession
from pyxfer._machine.link import derived_link
from pyxfer._measure import stats
from pyxfer._trace.findings import Expected, inflated

replace = msgspec.structs.replace
Place = tuple[str, str, int]


def derive_run(run: runs.Run) -> runs.Run:
    link = derived_link(run.link)
    references: dict[tuple[str | None, Place], list[runs.Measurement]] = defaultdict(list)
    for row in run.measurements:
        if row.route_info is None and row.variant == "warm":
            references[row.worker, _place(row)].append(row)  # each worker measures its own ceiling
    if run.files is not None:
        rows = tuple(_row_beside(row, link, runs.limits_beside(row, run.measurements)) for row in run.measurements)
    elif run.blocks is not None:
        raw = [row for row in run.measurements if row.is_raw]  # few of a thousand rows
        rows = tuple(_row_beside(row, link, runs.links_beside(row, raw)) for row in run.measurements)
    else:
        rows = tuple(derived_row(row, link, references[row.worker, _place(row)]) for row in run.measurements)
    fitted = {_key(curve): curve for curve in curves(rows)} if run.curves else {}
    return replace(
        run,
        kind=_kind(run),
        ended="failed" if run.failure is not None else "interrupted" if run.ended == "failed" else run.ended,
        device=replace(run.device, runtime=run.runtime),
        link=link,
        measurements=rows,
        blocks=None if run.blocks is None else _pools(run.blocks),
        curves=tuple(fitted.pop(_key(curve)) for curve in run.curves if _key(curve) in fitted),
        locking=tuple(
            each if each.summary is None else cost_of(each.memory, each.nbytes, each.summary, rows)
            for each in run.locking
        ),
    )


def _row_beside(row: runs.Measurement, link: Link, references: Sequence[runs.Measurement]) -> runs.Measurement:
    found = derived_row(row, link, references)
    if references or row.block_bytes is None:
        return found
    return replace(found, ceiling_share=ceiling_share((), (), found.rate))


def _pools(pools: runs.BlockPools) -> runs.BlockPools:
    beside = pools.beside.and_then(
        lambda found: Fact(tuple(replace(each, times=stats.ratio_share(each.beside_s, each.alone_s)) for each in found))
    )
    return replace(pools, beside=beside)


def _kind(run: runs.Run) -> runs.RunKind:
    """What it is for follows from its settings; a run of one call has none of them."""
    if run.files is not None:
        return "files"
    if run.blocks is not None:
        return "blocks"
    if run.parameters.explained:
        return "explain"
    if run.parameters.frameworks or run.workers:
        return "frameworks"
    return "measure" if run.kind == "measure" else "ceiling"


def derive_tests(session: XferSession) -> XferSession:
    places = tuple(
        replace(place, device=replace(place.device, runtime=place.runtime), link=derived_link(place.link))
        for place in session.places
    )
    tests = tuple(_tested(result, places[result.place].link) for result in session.tests)
    return replace(session, places=places, tests=tests)


def _tested(result: Tested, link: Link) -> Tested:
    ceiling, row = result.ceiling.value, result.measurement
    if ceiling is None:
        return replace(result, measurement=derived_row(row, link, ()))
    ceiling = derived_row(ceiling, link, ())
    row = replace(row, direction=ceiling.direction, nbytes=ceiling.nbytes)
    return replace(result, ceiling=Fact(ceiling), measurement=derived_row(row, link, (ceiling,)))


def derived_row(row: runs.Measurement, link: Link, references: Sequence[runs.Measurement]) -> runs.Measurement:
    """A row with its statistics, rate and shares. `references`: the rows that may be its ceiling."""
    valid = [trial for trial in row.trials if trial.invalid is None]
    # Without trials, such as in an examination, the summaries are what the others follow from.
    if row.trials:
        row = replace(
            row,
            summary=summary_of([trial.elapsed_s for trial in valid]),
            dispatch=summary_of([trial.dispatch_s for trial in valid]),
            wall=summary_of([trial.wall_s for trial in valid]),
        )
    row = _as_named(row)
    side = row.direction if row.direction != "both" else row.side
    moved = row.nbytes * (2 if side == "sum" else 1)
    rate = _rate(row, moved)
    return replace(
        row,
        side=side,
        moved_bytes=moved,
        rate=rate,
        peak_share=row.peak_share.and_then(lambda _: stats.share_of_peak(rate, link.peak_gbps(side))),
        ceiling_share=_share(row, rate, references),
        remarks=tuple(_inflated(row, each) if each.code == runs.INFLATED else each for each in row.remarks),
    )


def _as_named(row: runs.Measurement) -> runs.Measurement:
    """The name of a raw route, and of one of blocks, has its memory and its mode, which say how it is timed.

    A framework's route has no gate.
    """
    owner, _, name = row.route.partition(".")
    if owner == runs.BLOCKS:
        memory, _, mode = name.partition("-")
        order = row.variant if row.variant in runs.ORDERS else "random"
        return replace(row, memory=memory, mode=mode, variant=order, bracket="host")
    plan = plan_of(row.route, row.direction, row.variant)
    if plan is None:
        bracket = "drained" if row.bracket == "gated" and not row.is_raw else row.bracket
        is_cold = row.variant == "cold" and row.memory == runs.FILE
        has_form = row.form is not None and row.batch is not None
        return replace(row, variant=row.variant if is_cold or has_form else "warm", bracket=bracket)
    variant = row.variant if can_be_fresh(plan) else "warm"
    return replace(row, memory=plan.memory, mode=plan.mode, variant=variant, bracket=raw_head(plan).bracket)


def _inflated(row: runs.Measurement, said: Remark) -> Remark:
    if row.dma.value is None:
        return said
    found = inflated(row.dma.value, Expected(row.nbytes, 1.0 if row.route_info is None else row.route_info.inflation))
    # The rest of the sentence is that of the version that wrote it.
    same = bool(found) and said.text.partition(" ")[0] == found[0].text.partition(" ")[0]
    return said if same or not found else found[0]


def _rate(row: runs.Measurement, moved: int) -> Fact[runs.Rate]:
    """The rate at the median. Whether there is one depends on more than the times."""
    if row.verified.value is False:
        return unknown(WRONG_BYTES)
    if row.rate.value is None:
        return row.rate
    if row.summary is None or row.summary.median_s <= 0:
        return unknown("there is no median")
    return Fact(stats.rate(moved, row.summary))


def _share(row: runs.Measurement, rate: Fact[runs.Rate], references: Sequence[runs.Measurement]) -> Fact[runs.Share]:
    """The share of the ceiling, which is one of the references: of those with trials the one that gives the nearest."""
    share = row.ceiling_share.value
    if share is None or rate.value is None:
        return row.ceiling_share if rate.value is not None else unknown(rate.reason or "")
    valid = [trial for trial in row.trials if trial.invalid is None]
    medians = {
        place: median(best_s / own_s for best_s, own_s in pairs)
        for place, each in enumerate(references)
        if (pairs := shared_rounds(valid, each.trials))
    }
    if not medians:
        return row.ceiling_share
    least = min(abs(value - share.value) for value in medians.values())
    nearest = [
        ceiling_share(valid, references[place].trials, rate)
        for place, value in medians.items()
        if abs(value - share.value) == least
    ]
    # Two references may have the same ratio, because clocks have ticks, and not the same interval.
    return min(nearest, key=lambda found: _distance(found.value, share))


def _distance(found: runs.Share | None, stated: runs.Share) -> float:
    if found is None:
        return math.inf
    return abs((found.low or 0.0) - (stated.low or 0.0)) + abs((found.high or 0.0) - (stated.high or 0.0))


def _place(row: runs.Measurement) -> Place:
    return row.direction, row.side, row.nbytes


def _key(curve: runs.Curve) -> tuple[str, str, str, str]:
    return curve.route, curve.direction, curve.side, curve.variant

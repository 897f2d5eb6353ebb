"""Charts of documents as Vega-Lite specifications. Their titles are findings; their figures are the documents'.

Everything in a document is data here: names are made harmless by `clean`, and are values of a chart, never code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from pyxfer import units
from pyxfer._document import baselines, examinations, fleets, links, runs, sessions, tunings, watches, wording
from pyxfer._report.baseline import change_text
from pyxfer._report.baseline import group_text as history_text
from pyxfer._report.explain import Explained, find_explained, waterfall_lines
from pyxfer._report.explain import headline as explained_text
from pyxfer._report.fleet_charts import charts_of_fleet, charts_of_host
from pyxfer._report.frameworks import group_text
from pyxfer._report.headlines import is_alone, reached_text, ring_text, titled, trials_text
from pyxfer._report.host import ring_name
from pyxfer._report.link_charts import charts_of_links
from pyxfer._report.notes import label, label_words
from pyxfer._report.plots import (
    COLOURS,
    MOST_BARS,
    WIDE,
    Make,
    Spec,
    Values,
    bar_plot,
    change_plot,
    history_plot,
    rate_plot,
    share_plot,
    stacked,
    step_plot,
    themed,
    timeline_plot,
    waterfall_plot,
)
from pyxfer._report.route_tables import Group, Row, group_rows, rate_unit
from pyxfer._report.text import clean
from pyxfer._report.watch import copies_text, steps_text
from pyxfer.errors import UsageError

_LONGEST_LABEL = 48
_MOST_HISTORIES = 12
_MOST_QUANTILES = 200
_MOST_STEPS = 400
_FIT_POINTS = 40
_PLAIN = "plain copy"


def charts_of(document: object) -> dict[str, Make]:
    """The charts that a document has figures for, by name."""
    return {name: make for name, make in _candidates(document).items() if make is not None}


def chart_of(document: object, name: str, width: int = WIDE) -> Spec:
    """The specification of one chart.

    Raises:
        UsageError: the document has no such chart; the text names those that it has.

    """
    found = charts_of(document)
    if name not in found:
        known = f"it has {', '.join(found)}" if found else "it has no figures to draw"
        raise UsageError(f"this document has no chart {name!r:.80}; {known}")
    return themed(found[name](width))


def altair_chart(document: object, name: str) -> Any:
    """One chart as an Altair chart.

    Raises:
        UsageError: the document has no such chart, or Altair is not installed.

    """
    spec = chart_of(document, name)
    try:
        import altair
    except ModuleNotFoundError as error:
        raise UsageError("charts need Altair, which is not installed: pip install 'pyxfer[report]'") from error
    return altair.Chart.from_dict(spec)


def _candidates(document: object) -> Mapping[str, Make | None]:
    for kind, make in _CHARTS.items():
        if isinstance(document, kind):
            return make(document)
    raise TypeError(f"{type(document).__name__} has no charts")


# --- ceiling runs ----------------------------------------------------------------------------------------------------


def _charts_of_run(run: runs.Run) -> Mapping[str, Make | None]:
    timed = [m for m in run.measurements if m.gbps is not None and m.verified.value is not False]
    if run.kind == "explain":
        return _charts_of_explained(run, timed)
    if run.kind == "frameworks":
        groups = [group for group in group_rows(run, [""] * len(run.measurements)) if _drawn_routes(group)]
        several = [group for group in groups if len(group.sizes) > 1 and any(map(_is_staged, group.routes))]
        return {
            "routes": (lambda width: stacked([_routes_plot(run, group, width) for group in groups]))
            if groups
            else None,
            "uploads": (lambda width: stacked([_uploads_plot(run, group, width) for group in several]))
            if several
            else None,
        }
    return {
        "sizes": (lambda width: _sizes_chart(run, timed, width)) if timed else None,
        "trials": _trials([(label(m, run), m) for m in _largest_of_each(timed)], run.runtime),
    }


def _sizes_chart(run: runs.Run, timed: Sequence[runs.Measurement], width: int) -> Spec:
    """One plot for each direction: bandwidth by size with its interval, the peak, and the fit with its knee."""
    sides: tuple[runs.Side, ...] = ("h2d", "d2h", "sum", "ingest")
    names = list(dict.fromkeys(_series(run, m) for m in timed))
    colours = dict(zip(names, COLOURS, strict=False))
    by_side = {side: [(_series(run, m), m) for m in timed if is_alone(m, side)] for side in sides}
    drawn = [side for side, named in by_side.items() if any(name in colours for name, _ in named)]
    return stacked([_size_plot(run, by_side[side], side, colours, width) for side in drawn])


def _series(run: runs.Run, m: runs.Measurement) -> str:
    return label(m, run) if run.kind == "measure" else " ".join(label_words(m, run))


def _size_plot(
    run: runs.Run,
    named: Sequence[tuple[str, runs.Measurement]],
    side: runs.Side,
    colours: Mapping[str, str],
    width: int,
) -> Spec:
    values = [_rate_value(name, m) for name, m in named if name in colours]
    left_out = {name for name, _ in named} - colours.keys()
    more = f"; {len(left_out)} more series are in the table" if left_out else ""
    names = {(m.route, m.variant, m.direction): name for name, m in named if name in colours}
    fits = [
        point
        for curve in run.curves
        if curve.side == side and (curve.route, curve.variant, curve.direction) in names
        for point in _fit_points(names[curve.route, curve.variant, curve.direction], curve, named)
    ]
    title = titled(run.runtime, f"{reached_text(run, side)}{more}")
    return rate_plot(values, title, width, colours, peak=run.link.peak_gbps(side).value, fits=fits)


def _fit_points(name: str, curve: runs.Curve, named: Sequence[tuple[str, runs.Measurement]]) -> Values:
    """Points of `t = t0 + n/B` at and between the series' sizes, and its knee if that is among them."""
    measured = sorted({m.nbytes for other, m in named if other == name})
    if len(measured) == 1 or curve.gbps(measured[0]) is None:
        return []
    least, largest = measured[0], measured[-1]
    between = [least * (largest / least) ** (place / _FIT_POINTS) for place in range(1, _FIT_POINTS)]
    sizes = sorted({*map(float, measured), *between})
    points: Values = [{"series": name, "nbytes": nbytes, "gbps": curve.gbps(nbytes)} for nbytes in sizes]
    half, most_gbps, misfit = curve.half_size.value, curve.asymptote_gbps.value, curve.worst_misfit.value
    if half is not None and most_gbps is not None and least <= half <= largest:
        words = f"half of the fitted {units.format_gbps(most_gbps)} at {units.format_size(float(f'{half:.3g}'))}"
        words += "" if misfit is None else f"; the fit is up to {units.format_percent(misfit)} off"
        points.append({"series": name, "nbytes": half, "gbps": most_gbps / 2, "knee": words})
    return points


def _rate_value(name: str, m: runs.Measurement, factor: float = 1.0) -> dict[str, Any]:
    """The bandwidth with its interval; without one, the ends are the bandwidth itself."""
    rate = m.rate.value or runs.Rate(0.0, None, None)
    share = "" if m.of_ceiling is None else f", {units.format_percent(m.of_ceiling)}"
    return {
        "series": name,
        "nbytes": m.nbytes,
        "gbps": rate.gbps * factor,
        "low": (rate.gbps if rate.low_gbps is None else rate.low_gbps) * factor,
        "high": (rate.gbps if rate.high_gbps is None else rate.high_gbps) * factor,
        "text": f"{units.format_size(m.nbytes)}: {units.format_gbps(rate.gbps)}{share}",
        "figure": f"{rate.gbps * factor:.3g}{share}",
    }


def _largest_of_each(timed: Sequence[runs.Measurement]) -> list[runs.Measurement]:
    """Each direction's pageable copy at the largest size, whose times vary most; without these, every copy of it."""
    largest = max((m.nbytes for m in timed), default=0)
    alone = [m for m in timed if m.nbytes == largest and m.variant == "warm" and m.direction == m.side]
    return [m for m in alone if m.memory == "pageable"] or alone


def _trials(named: Sequence[tuple[str, runs.Measurement]], runtime: runs.Runtime) -> Make | None:
    drawn = [
        (name, m) for name, m in named if m.summary is not None and any(trial.invalid is None for trial in m.trials)
    ]
    return (lambda width: _trials_chart(drawn[: len(COLOURS)], runtime, width)) if drawn else None


def _trials_chart(named: Sequence[tuple[str, runs.Measurement]], runtime: runs.Runtime, width: int) -> Spec:
    """The share of the trials that took at most so long. Of many trials, every n-th is drawn."""
    values: Values = []
    for name, m in named:
        times = sorted(trial.elapsed_s for trial in m.trials if trial.invalid is None)
        step = max(1, len(times) // _MOST_QUANTILES)
        chosen = [*range(0, len(times) - 1, step), len(times) - 1]
        values += [{"series": name, "ms": times[place] * 1e3, "share": (place + 1) / len(times)} for place in chosen]
    text = "; ".join(trials_text(m, name) for name, m in named[:2])
    return share_plot(values, titled(runtime, text), width)


def _charts_of_measurement(m: runs.Measurement) -> Mapping[str, Make | None]:
    """The distribution of its trials. It does not know its runtime."""
    return {"trials": _trials([(f"{clean(m.route, _LONGEST_LABEL)} {m.side}", m)], "cuda")}


# --- routes of frameworks --------------------------------------------------------------------------------------------


def _drawn_routes(group: Group) -> list[Row]:
    """The routes with a figure at the size at which they are compared, the fastest first."""
    known = [row for row in group.routes if row.gbps(group.largest) is not None]
    right = [row for row in known if row.at[group.largest].verified.value is not False]
    return sorted(right, key=lambda row: -(row.gbps(group.largest) or 0.0))[:MOST_BARS]


def _routes_plot(run: runs.Run, group: Group, width: int) -> Spec:
    """The routes of a framework in one direction as bars, and the ceiling as a line."""
    unit, factor = rate_unit(run)
    bars = [
        {**_rate_value(row.name, row.at[group.largest], factor), "role": _role(row)} for row in _drawn_routes(group)
    ]
    ceiling = group.ceiling.gbps(group.largest) if group.ceiling is not None else None
    whole = "one copy in host memory" if group.direction == "ingest" else "ceiling"
    line = None if ceiling is None else (ceiling * factor, f"{whole}, {ceiling * factor:.4g} {unit}")
    return bar_plot(bars, titled(run.runtime, group_text(run, group)), width, unit, line=line)


def _role(row: Row) -> str:
    return "pyxfer" if _is_staged(row) else "usual" if row.usual else "other"


def _is_staged(row: Row) -> bool:
    return row.any.nature is not None and row.any.nature.staged


def _uploads_plot(run: runs.Run, group: Group, width: int) -> Spec:
    """The usual call, the fastest route, pyxfer's own and the ceiling, by size."""
    staged = next((row for row in _drawn_routes(group) if _is_staged(row)), None)
    chosen = {"usual": group.usual, "pyxfer": staged, "fastest": group.best, "ceiling": group.ceiling}
    named: dict[str, Row] = {}
    for role, row in chosen.items():
        if row is not None and row not in named.values():
            named[f"{role}: {row.name}"] = row
    values = [
        _rate_value(name, m)
        for name, row in named.items()
        for m in row.at.values()
        if m.gbps is not None and m.verified.value is not False
    ]
    shades = dict(zip(chosen, (COLOURS[1], COLOURS[2], COLOURS[0], COLOURS[5]), strict=True))
    colours = {name: shades[name.partition(":")[0]] for name in named}
    return rate_plot(values, titled(run.runtime, group_text(run, group)), width, colours)


# --- explained routes ------------------------------------------------------------------------------------------------


def _charts_of_explained(run: runs.Run, timed: Sequence[runs.Measurement]) -> Mapping[str, Make | None]:
    explained = find_explained(run)
    if explained is None:
        return {}
    lines = [] if explained.is_wrong else waterfall_lines(explained)
    rows = [m for m in (explained.row, *explained.others) if m in timed]
    title = titled(run.runtime, explained_text(explained))
    return {
        "waterfall": (lambda width: waterfall_plot(lines, title, width)) if lines else None,
        "routes": (lambda width: _alternatives_chart(explained, rows, title, width)) if rows else None,
        "trials": _trials([(label(explained.row, run), explained.row)], run.runtime),
    }


def _alternatives_chart(explained: Explained, rows: Sequence[runs.Measurement], title: str, width: int) -> Spec:
    """The explained route and everything measured beside it."""
    bars = []
    for m in sorted(rows, key=lambda m: -(m.gbps or 0.0))[:MOST_BARS]:
        name = clean(m.route, _LONGEST_LABEL) + (" fresh" if m.variant == "fresh" else "")
        role = "explained" if m is explained.row else "raw" if m.nature is None else "other"
        bars.append({**_rate_value(name, m), "role": role})
    return bar_plot(bars, title, width, "GB/s")


# --- watches ---------------------------------------------------------------------------------------------------------


def _charts_of_watch(watched: watches.Watched) -> Mapping[str, Make | None]:
    words = wording.part_words(watched.parts)
    parts = [(words[name], seconds) for name, seconds in watched.parts.named() if seconds > 0]
    activity = watched.activity.value
    copies = [row for row in (activity.copies if activity is not None else ()) if row.gbps.value is not None]
    title = f"{steps_text(watched)}: {clean(watched.verdict.text, 400)}"
    return {
        "parts": (lambda width: waterfall_plot(parts, title, width)) if parts else None,
        "steps": (lambda width: _steps_chart(watched, width)) if watched.steps.each else None,
        "timeline": _timeline(activity) if activity is not None else None,
        "copies": (lambda width: _copies_chart(copies, width)) if copies else None,
    }


def _steps_chart(watched: watches.Watched, width: int) -> Spec:
    """The parts of every step, one above the other."""
    words = wording.part_words(watched.parts)
    steps = watched.steps.each[:_MOST_STEPS]
    values = [
        {"step": step.number, "part": words[name], "ms": seconds * 1e3, "order": place}
        for step in steps
        for place, (name, seconds) in enumerate(step.parts.named())
        if seconds > 0
    ]
    median = watched.steps.period.value
    text = "" if median is None else f"{watched.steps.watched} steps, median {units.format_seconds(median.median_s)}"
    text = "; ".join(filter(None, (text, wording.slow_text(watched))))
    left = len(watched.steps.each) - len(steps)
    return step_plot(values, f"{text}; the first {len(steps)} are drawn" if left else text, width)


def _timeline(activity: watches.Activity) -> Make | None:
    """When the device copied and computed in a few steps."""
    line = activity.timeline
    if line is None or not line.lanes or line.end_s <= line.begin_s:
        return None
    shares = {lane.what: line.share(lane) for lane in line.lanes}
    spans: Values = [
        {"lane": lane.what, "begin": begin * 1e3, "end": end * 1e3, "share": units.format_percent(shares[lane.what])}
        for lane in line.lanes
        for begin, end in lane.spans
    ]
    steps: Values = [
        {
            "lane": "step",
            "begin": step.begin_s * 1e3,
            "end": step.end_s * 1e3,
            "middle": (step.begin_s + step.end_s) * 500,
            "step": str(step.number),
            "text": f"step {step.number}: {units.format_seconds(step.end_s - step.begin_s)}",
        }
        for step in line.steps
    ]
    ends = (line.begin_s * 1e3, line.end_s * 1e3)
    title = _timeline_text(line, shares, activity.overlap)
    return lambda width: timeline_plot(spans, steps, ends, title, width)


def _timeline_text(line: watches.Timeline, shares: Mapping[watches.LaneName, float], overlap: watches.Overlap) -> str:
    numbers = [step.number for step in line.steps]
    what = "The window" if not numbers else f"Steps {numbers[0]} to {numbers[-1]}"
    if len(numbers) == 1:
        what = f"Step {numbers[0]}"
    words = ", ".join(f"{name} {units.format_percent(share)}" for name, share in shares.items())
    gaps = f". Bars also cover gaps up to {units.format_seconds(line.merged_s)}; the shares do not"
    merged = gaps if line.merged_s else ""
    return f"{what}: {words} of the time. All copies of the window: {copies_text(overlap)}{merged}"


def _copies_chart(copies: Sequence[watches.CopyClass], width: int) -> Spec:
    """The bandwidth of each class of copies."""
    bars: Values = []
    for row in copies[:MOST_BARS]:
        share = "" if row.of_ceiling is None else f", {units.format_percent(row.of_ceiling)}"
        gbps = row.gbps.value or 0.0
        name = f"{row.way} {clean(row.memory, _LONGEST_LABEL)}, {wording.size_text(row)}"
        text = f"{name}: {units.format_gbps(gbps)}{share}"
        bars.append(
            {"series": name, "gbps": gbps, "low": gbps, "high": gbps, "text": text, "figure": f"{gbps:.3g}{share}"}
        )
    longest = max(copies, key=lambda row: row.seconds)
    what = f"{longest.way} of {clean(longest.memory)} memory, {wording.size_text(longest)}"
    crossed = f"{wording.sum_text(sum(row.nbytes for row in copies))} in {sum(row.count for row in copies)} copies"
    title = f"{crossed}; most of their time: {what}. Bandwidth, and share of the ceiling"
    return bar_plot(bars, title, width, "GB/s")


# --- comparisons and sessions ----------------------------------------------------------------------------------------


def _cells_chart(comparison: baselines.Comparison, rows: Sequence[baselines.CellComparison], width: int) -> Spec:
    """The change of each cell with its interval, beside the tolerance."""
    values = [_change_value(row) for row in rows[:MOST_BARS]]
    more = f" The first {len(values)} of {len(rows)} cells are drawn." if len(rows) > len(values) else ""
    shaded = f"Shaded: the tolerance of {units.format_percent(comparison.tolerance)}."
    title = f"{clean(wording.headline(comparison), 600)} {shaded}{more}"
    return change_plot(values, comparison.tolerance, title, width)


def _change_value(row: baselines.CellComparison) -> dict[str, Any]:
    """Ratios of times as changes of bandwidth in per cent; without an interval, its ends are the change itself."""

    def change(ratio: float | None) -> float | None:
        return None if not ratio else (1 / ratio - 1) * 100

    middle = change(row.ratio.value)
    low, high = (middle if end is None else end for end in (change(row.high.value), change(row.low.value)))
    cell = clean(row.text, _LONGEST_LABEL)
    words = f"{cell}: {wording.signed_change(row.ratio.value)}, {wording.interval_text(row) or 'interval not known'}"
    return {"cell": cell, "verdict": row.verdict, "change": middle, "low": low, "high": high, "text": words}


def _tests_chart(tests: Sequence[sessions.Tested], width: int) -> Spec:
    """The share of the ceiling that each test reached."""
    bars: Values = []
    for test in tests[:MOST_BARS]:
        share, least = test.measurement.ceiling_share.value, test.expected.min_of_ceiling
        value = 0.0 if share is None else share.value
        ends = (value, value) if share is None or share.low is None or share.high is None else (share.low, share.high)
        words = units.format_percent(value) + ("" if least is None else f", at least {units.format_percent(least)}")
        name = clean(test.test.partition("::")[2] or test.test, _LONGEST_LABEL)
        figures = {"gbps": value * 100, "low": ends[0] * 100, "high": ends[1] * 100}
        bars.append({"series": name, **figures, "text": f"{name}: {words}", "figure": words})
    slow = sum(test.judged.word == "too slow" for test in tests)
    title = f"{slow} of {len(tests)} tests are below their limit" if slow else f"{len(tests)} tests, none too slow"
    return bar_plot(bars, title, width, "% of the ceiling", line=(100.0, "the ceiling"))


def _history_plot(group: baselines.HistoryGroup, width: int) -> Spec:
    """Each run with its interval, the median from change to change, and a line at each change."""
    values: Values = [
        {
            "run": number,
            "gbps": point.gbps,
            "low": point.gbps if point.low_gbps is None else point.low_gbps,
            "high": point.gbps if point.high_gbps is None else point.high_gbps,
            "text": f"{clean(point.taken_at)}: {units.format_gbps(point.gbps)}",
        }
        for number, point in enumerate(group.points, start=1)
    ]
    number_of = {point.run_id: number for number, point in enumerate(group.points, start=1)}
    changes: Values = [
        {
            "run": number_of[change.run_id] - 0.5,
            "before": change.before_gbps,
            "after": change.after_gbps,
            "text": change_text(change),
        }
        for change in group.changes
    ]
    return history_plot(values, changes, history_text(group), width)


def _charts_of_comparison(comparison: baselines.Comparison) -> Mapping[str, Make | None]:
    rows = wording.compared(comparison)
    return {"cells": (lambda width: _cells_chart(comparison, rows, width)) if rows else None}


def _charts_of_session(session: sessions.XferSession) -> Mapping[str, Make | None]:
    tests = [test for test in session.tests if test.measurement.of_ceiling is not None]
    return {"tests": (lambda width: _tests_chart(tests, width)) if tests else None}


def _charts_of_history(history: baselines.History) -> Mapping[str, Make | None]:
    groups = [group for group in history.groups if group.points][:_MOST_HISTORIES]
    return {"history": (lambda width: stacked([_history_plot(group, width) for group in groups])) if groups else None}


# --- tunings ---------------------------------------------------------------------------------------------------------


def _charts_of_ring(state: tunings.RingState) -> Mapping[str, Make | None]:
    """The candidates of a tuning at the largest size, in each direction."""
    tuned = state.tuning.value
    ways: list[tunings.CopyDirection] = list(get_args(tunings.CopyDirection))
    found = (
        []
        if tuned is None or not tuned.rates
        else [(tuned, way, bars) for way in ways if (bars := _ring_bars(tuned, way))]
    )
    return {
        "rings": (
            lambda width: stacked([bar_plot(bars, ring_text(own, way), width, "GB/s") for own, way, bars in found])
        )
        if found
        else None
    }


def _ring_bars(tuned: tunings.Tuned, way: tunings.CopyDirection) -> Values:
    rates = {ring_name(trial.ring): trial.rates for trial in tuned.timed} | {_PLAIN: tuned.plain}
    own = {name: [rate for rate in found if rate.direction == way] for name, found in rates.items()}
    largest = max((rate.nbytes for found in own.values() for rate in found), default=0)
    bars: Values = []
    for name, found in own.items():
        for rate in found:
            if rate.nbytes == largest:
                text = f"{name}, {units.format_size(largest)}: {units.format_gbps(rate.gbps)}"
                role = "chosen ring" if name == ring_name(tuned.ring) else name if name == _PLAIN else "other ring"
                figures = {"gbps": rate.gbps, "low": rate.gbps, "high": rate.gbps}
                bars.append({"series": name, **figures, "text": text, "figure": f"{rate.gbps:.3g}", "role": role})
    return bars[-MOST_BARS:]


_CHARTS: dict[type, Callable[[Any], Mapping[str, Make | None]]] = {
    runs.Run: _charts_of_run,
    runs.Measurement: _charts_of_measurement,
    examinations.Examination: lambda examination: _charts_of_run(examination.run),
    tunings.RingState: _charts_of_ring,
    links.Links: charts_of_links,
    watches.Watched: _charts_of_watch,
    baselines.Comparison: _charts_of_comparison,
    baselines.Baseline: lambda baseline: _CHARTS[type(baseline.processes[0])](baseline.processes[0]),
    sessions.XferSession: _charts_of_session,
    baselines.History: _charts_of_history,
    fleets.Fleet: charts_of_fleet,
    fleets.HostReport: charts_of_host,
}

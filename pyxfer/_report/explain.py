"""The page of an explain run: where the time of one route goes, what each clock saw, and which routes are faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.machines import HOST_MEMORY, MAX_SHARE
from pyxfer._document.remark_codes import severity_of
from pyxfer._document.runs import IGNORED_SHARE, PARTS
from pyxfer._report import plots
from pyxfer._report.layout import Page, waterfall
from pyxfer._report.recipes import NOT_RECOMMENDED, RAW_DOWNLOAD, RAW_UPLOAD, RECIPES
from pyxfer._report.report import Advice
from pyxfer._report.route_tables import WAYS, copies_nothing
from pyxfer._report.text import Lines, capitalised, clean, reason_text, remark_text, sentence
from pyxfer._upload.conversions import MAX_ON_HOST_BYTES, MAX_REORDERED_ITEMS
from pyxfer._upload.on_the_way import DEVICE_BYTES_PER_S, LAUNCH_S, Rates, predicted_on_the_way

MAX_ADVICE = 3
# A traced trial that differs from the median by less than this needs no warning.
_TRACED_LIKE_TIMED = 0.03
_MANY_TIMES, _VERY_MANY_TIMES = 10, 100
# The lines above the table say by how much tracing slows the route.
_SHOWN_ELSEWHERE = "traced"
_WAYS_WITHOUT_GPU = WAYS | {
    way: f"{words} over host memory" for way, words in (("h2d", "h2d"), ("d2h", "d2h"), ("both", "both ways"))
}
_NAMES_IN_CODE = {
    "h2d": "x is your NumPy array, y the array on the GPU.",
    "d2h": "y is your array on the GPU, back the array in host memory.",
    "both": "x is your NumPy array, y the array on the GPU.",
    "ingest": "x is your NumPy array, t the tensor in host memory.",
}
_PART_NAMES: dict[runs.PartName, str] = {
    "preparing": "preparing on the host",
    "waiting": "waiting for the copy to begin",
    "copying": "the copy, at the ceiling's speed",
    "gaps": "gaps in the device's work",
    "kernels": "kernels",
    "other copies": "copies in other directions",
    "returning": "the call returning afterwards",
    "finishing": "seeing that it is done",
}
_CALL, _HOST_COPY, _REST = "the call", "what one copy in host memory takes", "everything else in the call"
# Parts that are alike have the colour of one part of a watched step.
_ALIKE: dict[runs.PartName, str] = {
    "preparing": "input",
    "waiting": "idle",
    "staging": "staging",
    "gaps": "idle",
    "kernels": "kernels",
    "other copies": "other copies",
    "returning": "host",
    "finishing": "host",
}

# A smaller part is not worth a sentence.
_LARGE_PART = 0.3


@dataclass(frozen=True)
class Explained:
    """The explained row, its ceiling in the same rounds, and every other row of its direction and size."""

    run: runs.Run
    row: runs.Measurement
    ceiling: runs.Measurement | None
    others: tuple[runs.Measurement, ...]

    @property
    def is_wrong(self) -> bool:
        return self.row.verified.value is False

    @property
    def other_ceiling(self) -> runs.Measurement | None:
        return None if self.ceiling is self.row else self.ceiling

    @property
    def host_copy_s(self) -> float | None:
        ceiling = self.other_ceiling
        return None if self.row.direction != "ingest" or ceiling is None else ceiling.elapsed_s


@dataclass(frozen=True)
class Better:
    """Another route that was certainly faster.

    `times` is the ratio of the medians of both rows, each from all of its trials. Its ends are the smallest and the
    largest ratio that the intervals of both medians allow.
    """

    row: runs.Measurement
    times: runs.Share


def find_explained(run: runs.Run) -> Explained | None:
    row = next((m for m in run.measurements if m.route == run.parameters.explained and m.variant == "warm"), None)
    if row is None:
        return None
    alike = [m for m in run.measurements if (m.direction, m.nbytes) == (row.direction, row.nbytes) and m is not row]
    raw = [m for m in (*alike, row) if m.may_be_ceiling and m.gbps is not None]
    return Explained(run, row, max(raw, key=lambda m: m.gbps or 0.0, default=None), tuple(alike))


def print_explained(run: runs.Run, page: Page) -> None:
    explained = find_explained(run)
    if page.details:
        page.line()
    if explained is None:
        page.line(f"{clean(run.parameters.explained)}: not measured before the run ended.")
        return
    row = explained.row
    page.line(answer(explained), style="bold")
    if run.runtime == "host":
        page.line(f"Measured in {HOST_MEMORY}: these figures are not those of a GPU.")
    elif row.direction == "ingest":
        page.line("This stays in host memory and crosses no link.")
    if ceiling_line(explained):
        page.line(ceiling_line(explained))
    _print_advice(explained, page)
    _print_parts(explained, page)
    remarks = [remark for remark in row.remarks if remark.code != _SHOWN_ELSEWHERE]
    if page.details:
        if lines := [*crossing_lines(explained), *host_lines(row)]:
            page.line()
            page.hanging(lines)
        page.section("Clocks", clock_lines(row))
    else:
        remarks = [remark for remark in remarks if severity_of(remark.code) != "precision"]
    page.section("Notes", [("-", capitalised(remark_text(remark))) for remark in remarks], style="yellow")


def answer(explained: Explained) -> str:
    texts = [headline(explained)]
    breakdown = None if explained.is_wrong else explained.row.breakdown.value
    if breakdown is not None and breakdown.elapsed_s > 0:
        lost = [part for part in waterfall_lines(explained) if part[0] != _PART_NAMES["copying"]]
        name, seconds = max(lost, key=lambda part: part[1], default=("", 0.0))
        share = seconds / breakdown.elapsed_s
        texts += [f"{share * 100:.0f} % of the time is {name}"] if share >= _LARGE_PART else []
    memory = explained.row.memory
    compared = [each for each in better_routes(explained) if not _shares_instead(explained, each)]
    ordinary = [each for each in compared if each.row.memory == memory]
    named = []
    for each in (*compared[:1], *ordinary[:1]):
        needs = "" if each.row.memory == memory else f" (needs {clean(each.row.memory)} memory)"
        named.append(f"{clean(each.row.route)} is {times_text(each.times.value)} times as fast{needs}")
    times = " and ".join(dict.fromkeys(named))
    return " ".join(map(sentence, [*texts, *([times] if times else [])]))


def ceiling_line(explained: Explained) -> str:
    """Whose clock the ceiling has, where its copies take about as long as their calls; otherwise empty."""
    ceiling = explained.other_ceiling
    if ceiling is None or not ceiling.has_both_clocks:
        return ""
    device, caller = (units.format_gbps(gbps or 0.0) for gbps in (ceiling.gbps, ceiling.caller_gbps))
    return f"The ceiling, {device}, is by the device's clock, without the calls; by the caller's clock it is {caller}."


def headline(explained: Explained) -> str:
    """`tf.function, to the GPU, 96 MiB: 56.1 ms, 1.80 GB/s, 3.2 % of the ceiling, 3.1 % of the peak`."""
    row = explained.row
    way = (_WAYS_WITHOUT_GPU if explained.run.runtime == "host" else WAYS)[row.direction]
    figures = [] if row.elapsed_s is None else [units.format_seconds(row.elapsed_s)]
    if row.gbps is None:
        figures.append(f"no bandwidth: {reason_text(row.rate.reason)}")
    else:
        whole = "one copy in host memory" if row.direction == "ingest" else "the ceiling"
        shares = {whole: row.of_ceiling, "the peak": row.of_peak}
        figures.append(units.format_gbps(row.gbps))
        figures += [f"{units.format_percent(share)} of {of}" for of, share in shares.items() if share is not None]
    return f"{clean(row.route)}, {way}, {units.format_size(row.nbytes)}: {', '.join(figures)}"


# --- where the time goes ---------------------------------------------------------------------------------------------


def _print_parts(explained: Explained, page: Page) -> None:
    row, breakdown = explained.row, explained.row.breakdown
    if explained.is_wrong and breakdown.value is not None:
        page.line()
        page.line("The data that arrived was wrong, so the traced time is not broken down.")
    if explained.is_wrong or (breakdown.reason is not None and breakdown.reason == row.rate.reason):
        return  # the headline has the reason
    page.heading("Where the time goes")
    if breakdown.value is None:
        page.line(sentence(reason_text(breakdown.reason)))
        return
    page.hanging(trial_lines(explained, breakdown.value))
    page.show(waterfall(waterfall_lines(explained), breakdown.value.elapsed_s, page.columns, clean(row.route, 40)))


def trial_lines(explained: Explained, breakdown: runs.Breakdown) -> Lines:
    row, copy_s = explained.row, explained.host_copy_s
    lines = []
    if row.summary is not None:
        lines.append(("timed", f"{units.format_seconds(row.summary.median_s)}, median (trials: {row.summary.n})"))
    unusable = f", not usable: {breakdown.left_out}" if breakdown.left_out else ""
    counts = f"trials: {breakdown.trials}{unusable}"
    lines.append(("traced", f"{units.format_seconds(breakdown.elapsed_s)}, closest to the median ({counts})"))
    times = breakdown.elapsed_s / row.elapsed_s if row.elapsed_s else 1.0
    if abs(times - 1) > _TRACED_LIKE_TIMED:
        lines.append(("ratio", f"{_rounded(times):g} times as long when traced: read the shares with care"))
    if copy_s is not None and not _contains_a_copy(explained, breakdown):
        why = "the call copies nothing" if copies_nothing(row) else "the call is shorter"
        lines.append(("one copy", f"{units.format_seconds(copy_s)} in host memory; {why}"))
    return lines


def waterfall_lines(explained: Explained) -> list[tuple[str, float]]:
    breakdown = explained.row.breakdown.value
    if breakdown is None:
        return []
    order: list[runs.PartName] = ["copying", *(name for name in PARTS if name != "copying")]
    lines = [(_part_name(explained.row, name), breakdown.seconds(name)) for name in order]
    if explained.row.direction == "ingest":  # no device copies, so one copy in host memory is the measure
        call_s, copy_s = breakdown.seconds("preparing"), explained.host_copy_s
        lines = [(_CALL, call_s)]
        if copy_s is not None and _contains_a_copy(explained, breakdown):
            lines = [(_HOST_COPY, copy_s), (_REST, call_s - copy_s)]
        lines.append((_PART_NAMES["finishing"], breakdown.elapsed_s - call_s))
    return [(name, seconds) for name, seconds in lines if seconds > 0]


def _contains_a_copy(explained: Explained, breakdown: runs.Breakdown) -> bool:
    copy_s = explained.host_copy_s
    return copy_s is not None and breakdown.seconds("preparing") > copy_s and not copies_nothing(explained.row)


def part_colours(explained: Explained) -> dict[str, str]:
    row = explained.row
    alike = {**_ALIKE, "copying": "d2h" if row.direction == "d2h" else "h2d"}
    names = {_part_name(row, name): alike[name] for name in PARTS}
    names |= {_CALL: "input", _HOST_COPY: "other copies", _REST: "staging"}
    return {name: plots.PARTS[part] for name, part in names.items()}


def _part_name(row: runs.Measurement, name: runs.PartName) -> str:
    if name != "staging":
        return _PART_NAMES[name]
    if is_staged(row):
        return "staging through the ring's slots"
    return (
        "staging of pageable memory"
        if row.dma.value is not None and "pageable" in row.dma.value.source
        else "copying slower than the ceiling"
    )


# --- what crossed, and what the host did -----------------------------------------------------------------------------


def crossing_lines(explained: Explained) -> Lines:
    row, dma = explained.row, explained.row.dma.value
    crossed = "copied" if explained.run.runtime == "host" else "crossed"
    if row.direction == "ingest":
        return []
    if dma is None:
        is_shown = row.dma.reason == row.breakdown.reason
        return [] if is_shown else [(crossed, reason_text(row.dma.reason))]
    if not dma.copies:
        return [(crossed, "nothing")]
    way = "to" if row.direction == "d2h" else "from"
    bytes_text = f"{units.format_size(dma.nbytes)} {way} {clean(dma.source).replace('+', ' and ')} memory"
    if row.nbytes and dma.nbytes != row.nbytes:
        bytes_text += f", {dma.nbytes / row.nbytes:.3g} times the requested size"
    return [(crossed, bytes_text), ("copies", _count(dma.copies)), ("copy time", _copy_time_text(explained, dma))]


def _copy_time_text(explained: Explained, dma: runs.Dma) -> str:
    if dma.seconds.value is None:
        return reason_text(dma.seconds.reason)
    time = units.format_seconds(dma.seconds.value)
    if dma.gbps is None:
        return time
    most = explained.run.link.most_gbps(explained.row.side)
    if most is not None and dma.gbps > most:
        return f"{time}, impossible: above the link's peak of {units.format_gbps(most / MAX_SHARE)}"
    return f"{time}, {units.format_gbps(dma.gbps)}"


def host_lines(row: runs.Measurement) -> Lines:
    breakdown = row.breakdown.value
    if breakdown is None:
        return []
    touched = breakdown.faults * breakdown.page_bytes
    first = f", {units.format_size(_rounded(touched))} touched for the first time" if touched > row.nbytes / 10 else ""
    counts = {"thread waits": breakdown.switches, "preemptions": breakdown.preemptions}
    faults = f"{_count(breakdown.faults)}{first}"
    return [("page faults", faults), *((name, _count(count)) for name, count in counts.items())]


def clock_lines(row: runs.Measurement) -> Lines:
    ungated = ", without a gate" if row.has_both_clocks else ""
    known = [
        ("host", row.wall_s, f"host clock, until the host saw the work finished{ungated}"),
        ("events", None if row.bracket == "host" else row.elapsed_s, "between two CUDA events around the call"),
        ("call", row.dispatch_s, "host clock, until the call returned"),
        ("device", row.dma_s or None, "while at least one of its copies was running"),
    ]
    return [
        (name, f"{units.format_seconds(seconds):>8}  {what}") for name, seconds, what in known if seconds is not None
    ]


# --- faster routes ---------------------------------------------------------------------------------------------------


def _print_advice(explained: Explained, page: Page) -> None:
    if explained.row.summary is None:
        return
    page.heading("Faster routes, measured in the same run")
    found = [(better_text(explained, each), program_code(each.row)) for each in better_routes(explained)]
    has_code = any(code for _, code in found)
    if not found:
        kind = "other raw route" if explained.row.route_info is None else "route that a program can use instead"
        page.line(f"No {kind} was certainly faster.")
    if has_code:
        page.line(_NAMES_IN_CODE[explained.row.direction])
    for number, (text, code) in enumerate(found, start=1):
        if has_code:
            page.line()
        page.hanging([(f"{number}.", text)])
        if code:
            page.code(code)
    if (predicted := on_the_way(explained)) is not None:
        page.heading("Predicted, not measured")
        page.hanging([("-", text) for text in on_the_way_texts(explained, predicted)])
        page.code(on_the_way_code(predicted))


def advice(run: runs.Run) -> list[Advice]:
    explained = find_explained(run)
    if explained is None:
        return []
    found = [(better_text(explained, better), program_code(better.row)) for better in better_routes(explained)]
    if (predicted := on_the_way(explained)) is not None:
        texts = "; ".join(on_the_way_texts(explained, predicted))
        found.append((f"Predicted, not measured: {texts}", on_the_way_code(predicted)))
    return found


def better_routes(explained: Explained, most: int = MAX_ADVICE) -> list[Better]:
    """The fastest alternatives, the fastest first; only raw copies are alternatives to a raw copy.

    Not every program can change its kind of memory, so the fastest alternative with the same kind is always included.
    Routes that copy nothing follow those that copy, unless the explained route copies nothing either.
    """
    alike = [other for other in explained.others if (other.route_info is None) == (explained.row.route_info is None)]
    found = [better for other in alike if (better := _better(explained.row, other)) is not None]
    found.sort(key=lambda better: (_shares_instead(explained, better), -better.times.value))
    drop_in = next((better for better in found if better.row.memory == explained.row.memory), None)
    return found[:most] if drop_in is None or drop_in in found[:most] else [*found[: most - 1], drop_in]


def better_text(explained: Explained, better: Better) -> str:
    row = better.row
    name = clean(row.route)
    seconds, instead = (units.format_seconds(m.summary.median_s if m.summary else 0.0) for m in (row, explained.row))
    if _shares_instead(explained, better):
        text = f"{name}: {seconds}, because it copies nothing"
    else:
        low, high = better.times.low, better.times.high
        interval = "" if low is None or high is None else f" ({times_text(low)} to {times_text(high)})"
        text = f"{name}: {seconds} instead of {instead}, {times_text(better.times.value)} times as fast{interval}"
    if row.memory != explained.row.memory:
        text += f"; needs {clean(row.memory)} memory"
    if is_staged(row):
        text += "; takes ordinary arrays, staged through page-locked memory"
    if explained.row.route in _CASTS and row.route not in _CASTS:
        text += "; its array keeps the type of the source"
    recipe = RECIPES.get(row.route)
    return f"{text}; {recipe.condition}" if recipe is not None and recipe.condition else text


def program_code(row: runs.Measurement) -> str:
    """Code that a program can copy; empty for a raw copy that only pyxfer makes."""
    if row.route in RECIPES:
        return RECIPES[row.route].code
    if row.route_info is not None:
        return clean(row.route_info.call, longest=120)
    staged = RAW_DOWNLOAD if row.direction == "d2h" else RAW_UPLOAD
    return staged if is_staged(row) else ""


def _shares_instead(explained: Explained, better: Better) -> bool:
    """Whether it copies nothing where the explained route copies, so that their times do not compare."""
    return copies_nothing(better.row) and not copies_nothing(explained.row)


def _better(row: runs.Measurement, other: runs.Measurement) -> Better | None:
    """None unless the other route may be recommended, is correct, and the intervals of both medians do not overlap."""
    is_timed = other.gbps is not None or copies_nothing(other)
    if other.route in NOT_RECOMMENDED or other.verified.value is False or not is_timed:
        return None
    times = times_as_fast(row, other)
    return None if times is None else Better(other, times)


def times_as_fast(row: runs.Measurement, other: runs.Measurement) -> runs.Share | None:
    """How many times as fast the other row is; None unless the intervals of both medians are apart."""
    slow, quick = row.summary, other.summary
    if slow is None or slow.low_s is None or slow.high_s is None:
        return None
    if quick is None or quick.low_s is None or quick.high_s is None:
        return None
    if quick.high_s >= slow.low_s or min(quick.low_s, quick.median_s, quick.high_s) <= 0:
        return None
    return runs.Share(slow.median_s / quick.median_s, slow.low_s / quick.high_s, slow.high_s / quick.low_s)


# --- casts on the way ------------------------------------------------------------------------------------------------

# Of copies of uint8; the workload image-batch casts to float32 in every route.
_CASTS = {"torch.cast-blocking": "float32", "torch.cast-nonblocking": "float32", "tf.cast-eager": "float32"}
_RESULT_BYTES = {"float32": 4}
"""For each byte of the source."""
# What kernels read and write in a second on the memory of a data centre's GPU, and what a conversion costs at any size.
_SLOWEST, _FASTEST = (0.25e12, 30e-6), (8e12, 5e-6)


class PredictedTime(NamedTuple):
    """With the ends of its interval."""

    seconds: float
    low_s: float
    high_s: float


class OnTheWay(NamedTuple):
    """The predicted time of `pyxfer.upload` with the dtype that a route casts to, and what it is predicted from.

    `reordered`: that with the layout NHWC->NCHW too; None if the device would not reorder so many items.
    """

    staged: runs.Measurement
    dtype: str
    took: PredictedTime
    reordered: PredictedTime | None


def on_the_way(explained: Explained) -> OnTheWay | None:
    """None if the route does not cast, or takes no longer than predicted beyond both intervals.

    An upload of the same bytes was measured in the same rounds. The kernels of its trial, which cast all images after
    they have arrived, are replaced by that of the last piece.
    """
    row = explained.row
    dtype = "float32" if explained.run.parameters.workload == "image-batch" else _CASTS.get(row.route)
    rows = [each for each in (*explained.others, row) if each.variant == row.variant]
    staged = next(filter(_is_upload, rows), None)
    if dtype is None or staged is None or row.direction != "h2d" or explained.is_wrong:
        return None
    slow, sent, result_bytes = row.summary, staged.summary, row.nbytes * _RESULT_BYTES[dtype]
    if slow is None or slow.low_s is None or sent is None or sent.low_s is None or sent.high_s is None:
        return None
    if result_bytes <= MAX_ON_HOST_BYTES:
        return None
    kernels_s = 0.0 if staged.breakdown.value is None else staged.breakdown.value.seconds("kernels")

    def predicted(sent_s: float, device_bytes_per_s: float, launch_s: float, permutes: bool) -> float:
        sending = ((row.nbytes, max(0.0, sent_s - kernels_s)),)
        rates = Rates(sending, device_bytes_per_s=device_bytes_per_s, launch_s=launch_s)
        return predicted_on_the_way(row.nbytes, result_bytes, rates, permutes=permutes).seconds

    took, reordered = (
        PredictedTime(
            predicted(sent.median_s, DEVICE_BYTES_PER_S, LAUNCH_S, permutes),
            predicted(sent.low_s, *_FASTEST, permutes),
            predicted(sent.high_s, *_SLOWEST, permutes),
        )
        for permutes in (False, True)
    )
    if took.high_s >= slow.low_s:
        return None
    return OnTheWay(staged, dtype, took, reordered if row.nbytes < MAX_REORDERED_ITEMS else None)


def _is_upload(row: runs.Measurement) -> bool:
    """Whether it is `pyxfer.upload` to a framework that it sends to, and its contents are right."""
    route_info = row.route_info
    is_known = route_info is not None and route_info.staged and route_info.framework in get_args(runs.FrameworkName)
    return is_known and row.verified.value is True


def on_the_way_texts(explained: Explained, predicted: OnTheWay) -> list[str]:
    """What the cast takes, and the same with another layout, which has no ratio: the route does not reorder."""
    row, now_s = explained.row, explained.row.elapsed_s or 0.0
    crossed = row.nbytes * (1.0 if row.route_info is None else row.route_info.inflation)
    crossed = crossed if row.dma.value is None else row.dma.value.nbytes
    less = f" instead of {units.format_size(round(crossed))}" if crossed > row.nbytes * (1 + IGNORED_SHARE) else ""
    texts = [
        f"pyxfer.upload with a cast to {predicted.dtype}: {_time_text(predicted.took)} instead of "
        f"{units.format_seconds(now_s)}, {times_text(now_s / predicted.took.seconds)} times as fast: "
        f"{units.format_size(row.nbytes)} cross{less}, as fast as {clean(predicted.staged.route)} sends them here, and "
        "the GPU casts each piece behind its copy"
    ]
    if predicted.reordered is not None:
        texts.append(
            f'with layout="NHWC->NCHW" too, if x is a batch of images: {_time_text(predicted.reordered)}; '
            "no ratio, because the workload does not reorder"
        )
    return texts


def _time_text(time: PredictedTime) -> str:
    took, low, high = map(units.format_seconds, time)
    return f"{took} ({low} to {high})"


def on_the_way_code(predicted: OnTheWay) -> str:
    route_info = predicted.staged.route_info
    framework = "" if route_info is None else clean(route_info.framework)
    return f'import pyxfer\ny = pyxfer.upload(x, to="{framework}", dtype="{predicted.dtype}")'


def is_staged(m: runs.Measurement) -> bool:
    return m.mode == machines.STAGED or (m.route_info is not None and m.route_info.staged)


def times_text(times: float) -> str:
    rounded = _rounded(times)
    return f"{times:.2f}" if rounded < _MANY_TIMES else f"{rounded:.{1 if rounded < _VERY_MANY_TIMES else 0}f}"


def _count(number: float) -> str:
    return f"{number:.0f}" if number == int(number) else f"{number:.2g}"


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")

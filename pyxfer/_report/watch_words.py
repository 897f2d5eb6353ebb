"""What a watch says in words: lines of its page, which its charts and tables share."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len, set_cell_size

from pyxfer._document import watches
from pyxfer._report.text import Lines, clean, fact_text, machine_lines, memory_text, reason_text, remark_text
from pyxfer.units import first_of, format_percent, format_seconds, format_size

MAX_CALLS = 8
_LONGEST_NAME = 60
_LONGEST_ADVICE = 600
_WORTH_A_LINE = 0.001
"""A share of the window: pinning a loss value that every step fetches would save nothing."""
_DOES: dict[watches.SurpriseKind, str] = {
    "d2h": "fetches",
    "wait": "waits",
    "blocking copy": "copies and waits",
    "allocation": "allocates memory",
}
_RARELY, _MANY = 0.01, 999.5
"""Calls per step: below the first the total count says more; from the second on `.3g` would print an exponent."""
_PARTS: dict[watches.StepPartName, str] = {
    "kernels": "kernels and sets",
    "h2d": "copies to the device",
    "d2h": "copies to the host",
    "other copies": "other copies",
    "input": "input being made",
    "idle": "waiting, device idle",
    "host": "host, device idle",
}
# Without records the work of the device is not known.
_BY_THE_CLOCK: dict[watches.StepPartName, str] = {**_PARTS, "input": "between steps", "host": "inside steps"}


def part_words(parts: watches.Parts) -> Mapping[watches.StepPartName, str]:
    if parts.kernels_s is not None:
        return _PARTS
    return _BY_THE_CLOCK if parts.input_s is not None else {**_BY_THE_CLOCK, "host": "the program"}


def slow_text(watched: watches.Watched) -> str:
    slow = watched.steps.slow
    if slow is None:
        return ""
    are, usual = ("is", "a usual one") if slow.count == 1 else ("are", "as many usual ones")
    mostly = "" if slow.mostly is None else f", most of it {part_words(watched.parts)[slow.mostly]}"
    return (
        f"{slow.count} of {watched.steps.watched} steps {are} slow: {format_seconds(slow.more_s)} more than {usual}, "
        f"{format_percent(slow.share)} of the time of all steps{mostly}; the longest took "
        f"{format_seconds(slow.longest_s)}"
    )


def size_text(row: watches.CopyClass) -> str:
    """The range of sizes of a class of copies, e.g. `16 to 64 MiB`."""
    least = format_size(row.least_bytes)
    if row.below_bytes is None:
        return f"from {least}"
    below = format_size(row.below_bytes)
    if row.least_bytes == 0:
        return f"below {below}"
    return f"{least.split()[0] if least.split()[1] == below.split()[1] else least} to {below}"


def sum_text(nbytes: int) -> str:
    """Three digits in decimal units: a sum of sizes is rarely a multiple of a binary unit."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        text = f"{nbytes / factor:.3g}"
        if float(text) >= 1:
            return f"{text} {unit}"
    return f"{nbytes} B"


def heading_lines(watched: watches.Watched) -> Lines:
    steps, tracing, took = watched.steps, watched.tracing.value, format_seconds(watched.window_s)
    library = "" if tracing is None else clean(tracing.library.rpartition("/")[2], longest=_LONGEST_NAME)
    words = [took, f"steps {steps.watched}" if steps.watched else "without steps"]
    words += [f"skipped before {steps.skipped}"] if steps.skipped else []
    words += [f"failed {steps.failed}"] if steps.failed else []
    words += ["until the program ended"] if watched.ended == "ended" else []
    lines = [*machine_lines(watched, f"records by {library}" if library else ""), ("window", ", ".join(words))]
    return [*lines, ("steps", _found_text(steps))] if steps.finder is not None and steps.watched else lines


def _found_text(steps: watches.Steps) -> str:
    if steps.finder == "keras":
        return "batches of Keras fit"
    if steps.finder == "optimizer":
        return "steps of PyTorch's optimizers"
    names = first_of([shortened(name, _LONGEST_NAME) for name in steps.functions], 3)
    return f"calls of {names} ({'--step' if steps.finder == 'named' else 'tf.function or jax.jit'})"


def first_steps_text(watched: watches.Watched) -> str:
    said = next((remark_text(remark) for remark in watched.remarks if remark.code == watches.FIRST_STEPS), "")
    return said and f"{said[:1].upper()}{said[1:]}."


def ending_text(watched: watches.Watched) -> str:
    failed = "The program failed in this window; the page shows what was recorded until then."
    return failed if watched.ended == "failed" else ""


def steps_text(watched: watches.Watched) -> str:
    took = format_seconds(watched.parts.period_s)
    if watched.steps.slow is not None:
        return f"Where the mean usual step's {took} went (usual steps: {watched.steps.usual})"
    return f"Where {'the mean step' if watched.steps.watched else 'the window'}'s {took} went"


def beside_lines(watched: watches.Watched) -> Lines:
    parts, steps = watched.parts, watched.steps
    texts, slow = [], slow_text(watched)
    if (summary := steps.period.value) is not None:
        median, shortest, longest = map(format_seconds, (summary.median_s, summary.min_s, summary.max_s))
        texts.append(f"steps: {summary.n}, median {median}, shortest {shortest}, longest {longest}")
    texts += [slow] if slow else []
    for way, seconds in {"to the device": parts.hidden_h2d_s, "to the host": parts.hidden_d2h_s}.items():
        if seconds:
            texts.append(f"copies {way} under kernels, in addition: {format_seconds(seconds)}")
    if steps.between_s:
        texts.append(f"host between steps: {format_seconds(steps.between_s)} of a {'usual ' * bool(slow)}step")
    return [("-", text) for text in texts]


def overlap_lines(watched: watches.Watched) -> Lines:
    activity = watched.activity.value
    if activity is None or not activity.streams:
        return []
    overlap, streams = activity.overlap, []
    kernels, at_once = fact_text(overlap.kernels_at_once), overlap.kernels_at_once.value
    if at_once is not None:
        share = fact_text(overlap.kernels_share, format_percent)
        kernels = f"{overlap.kernels}; {at_once:.2f} at once while any runs, two or more for {share} of that time"
    for use in activity.streams:
        words = [f"kernels {use.kernels}"] if use.kernels else []
        words += [f"copies {use.copies}, {sum_text(use.copied_bytes)}"] if use.copies else []
        streams.append(f"stream {use.stream} ({', '.join(words)})")
    return [
        ("device", f"busy for {format_percent(overlap.busy_share)} of the window"),
        ("copies", copies_text(overlap)),
        ("kernels", kernels),
        ("streams", f"{len(streams)}: {first_of(streams, 4, '; ')}"),
    ]


def unseen_text(watched: watches.Watched) -> str:
    """Why there are no records; empty if there are some, or if a remark already says so."""
    reason = watched.activity.reason or ""
    no_gpu = reason == watches.NO_GPU_WATCHED
    said = any(remark.text == reason or (no_gpu and remark.code == "no-gpu") for remark in watched.remarks)
    return f"No device records: {clean(reason)}" if reason and not said else ""


def ceiling_text(watched: watches.Watched) -> str:
    activity, source = watched.activity.value, watched.ceiling_source.value
    if activity is None or source is None or all(row.ceiling_share.value is None for row in activity.copies):
        return ""
    if source.source == "measured":
        return "Ceiling: raw copies from pinned memory, measured here after the window."
    device, host = (shortened(text, _LONGEST_NAME) for text in (source.device, source.host))
    return f"Ceiling: raw copies from pinned memory in a saved run of {device} on {host}, {clean(source.taken_at)}."


def pageable_lines(watched: watches.Watched) -> Lines:
    rows = watched.activity.value.pageable if watched.activity.value is not None else ()
    worth = [row for row in rows if row.seconds >= _WORTH_A_LINE * watched.window_s]
    return [(row.direction, _pageable_text(row, _a_step(watched))) for row in worth]


def call_lines(watched: watches.Watched, most: int = MAX_CALLS) -> Lines:
    activity = watched.activity.value
    rows = activity.surprises if activity is not None else ()
    lines = [(format_seconds(row.seconds), _call_text(row)) for row in rows[:most]]
    return [*lines, ("", f"and {len(rows) - most} more; --export-json has all")] if len(rows) > most else lines


def memory_lines(watched: watches.Watched) -> Lines:
    activity, before, after = watched.activity.value, watched.used_before_bytes.value, watched.used_after_bytes.value
    lines = []
    if before is not None and after is not None:
        text = f"{memory_text(before)} of device memory before the window, {memory_text(after)} after"
        lines.append(("in use", text))
    for row in activity.allocated if activity is not None else ():
        released = f", {sum_text(row.released_bytes)} released ({row.releases} x)" if row.releases else ""
        text = f"{sum_text(row.allocated_bytes)} allocated ({row.allocations} x){released}"
        lines.append((shortened(row.memory, _LONGEST_NAME), text))
    rows = activity.surprises if activity is not None and watched.steps.watched else ()
    if calls := sum(row.count for row in rows if row.what == "allocation"):
        lines.append(("in steps", f"calls that allocate or release memory: {calls}"))
    return lines


def advice_lines(watched: watches.Watched, *, worked_out: bool = True) -> Lines:
    whole = _a_step(watched) if watched.steps.watched else "for the window"
    now = format_seconds(watched.parts.period_s)
    lines = []
    for number, advice in enumerate(watched.advice, start=1):
        predicted, less = format_seconds(advice.predicted_s), format_percent(advice.gain_share)
        how = f": {clean(advice.worked_out, _LONGEST_ADVICE)}" if worked_out else ""
        lines.append((f"{number}.", clean(advice.text, _LONGEST_ADVICE)))
        lines.append(("", f"Predicted: {predicted} {whole} instead of {now}, {less} less{how}."))
    if len(watched.advice) > 1:
        lines.append(("", "These gains do not add up: several may remove the same time."))
    if not lines and watched.verdict.bound_by != "unknown":  # an unknown bound has no predictions
        lines.append(("-", "pyxfer predicts no gain of 2 % or more."))
    return lines


def _a_step(watched: watches.Watched) -> str:
    return "a step" if watched.steps.slow is None else "a usual step"


def copies_text(overlap: watches.Overlap) -> str:
    if overlap.hidden_share.value is None:
        return fact_text(overlap.hidden_share)
    hidden = f"{format_percent(overlap.hidden_share.value)} of their time under kernels"
    if overlap.copies_at_once < 2:  # noqa: PLR2004  # one copy alone is not "at once"
        return f"{hidden}; never two at once"
    share = fact_text(overlap.copies_share, format_percent)
    return f"{hidden}; up to {overlap.copies_at_once} at once, two or more for {share} of their time"


def _pageable_text(row: watches.Pageable, a_step: str) -> str:
    copies = f"{sum_text(row.nbytes)} ({row.count} x) in {format_seconds(row.seconds)}"
    if row.saves_s.value is None or row.pinned_s.value is None:
        return f"{copies}; gain of pinning {fact_text(row.saves_s)}"
    pinned = f"{copies}; pinned, at the ceiling, {format_seconds(row.pinned_s.value)}"
    if row.saves_s.value <= 0:
        return f"{pinned}: no gain"
    per_step = f", {format_seconds(row.saves_per_step_s)} {a_step}" if row.saves_per_step_s else ""
    return f"{pinned}: {format_seconds(row.saves_s.value)} less{per_step}"


def _call_text(row: watches.Surprise) -> str:
    releases = row.what == "allocation" and any(word in row.call for word in ("Free", "Unregister", "Release"))
    does = "releases memory" if releases else _DOES[row.what]
    often = f"{row.count} x"
    if row.per_step is not None and row.per_step >= _RARELY:
        often = f"{row.per_step:.3g} a step" if row.per_step < _MANY else f"{row.per_step:.0f} a step"
    words = [f"{shortened(row.call, _LONGEST_NAME) or 'unnamed call'} {does}"]
    words += [sum_text(row.nbytes)] if row.nbytes else []
    line = row.line.value
    at = f"at {shortened(line, _LONGEST_NAME)}" if line else f"[{reason_text(row.line.reason)}]"
    words += [f"({often})", at, *([f"in {shortened(row.range, _LONGEST_NAME)}"] if row.range else [])]
    return " ".join(words)


def shortened(text: str, most: int) -> str:
    """A harmless line of at most `most` cells; wide letters, such as Chinese ones, take two."""
    line = clean(text)
    if cell_len(line) <= most:
        return line
    return f"{set_cell_size(line, most - 3).rstrip()}..."


def no_share_texts(watched: watches.Watched) -> tuple[str, ...]:
    activity, reasons = watched.activity.value, dict[str, list[str]]()
    known = activity is not None and watched.ceiling_source.value is not None
    for row in activity.copies if activity is not None and known else ():
        if row.direction in ("h2d", "d2h") and row.ceiling_share.reason is not None:
            reasons.setdefault(row.ceiling_share.reason, []).append(f"{row.direction} {size_text(row)}")
    return tuple(f"No share of the ceiling for {', '.join(rows)}: {clean(why)}." for why, rows in reasons.items())

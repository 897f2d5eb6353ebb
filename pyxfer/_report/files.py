"""The page of a run of `pyxfer files`: what limits a load, what each loader reaches, and the gain of a faster way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyxfer import units
from pyxfer._document import runs
from pyxfer._document.runs import Measurement, Run, Variant, limit_of, limits_beside
from pyxfer._report import plots
from pyxfer._report.layout import Column, Page, fitting_table, percent_cells, precision_cells, rate_cells
from pyxfer._report.overview import certain_digits, doubts, footer
from pyxfer._report.rates import ending_text, half_width
from pyxfer._report.report import Advice, Charts
from pyxfer._report.route_tables import title
from pyxfer._report.text import Lines, capitalised, clean, counted, device_text, fact_text, reason_text, titled

OWN = "pyxfer.load-tensors"
STATES: dict[Variant, str] = {"warm": "the page cache", "cold": "the disk"}
# A loader that reaches this share of its limit is not the bottleneck.
_NEAR = 0.9
_ABOVE = 1.05
# Less is within what two runs differ by.
_WORTH_SAYING = 1.1
_LONGEST = 40


@dataclass(frozen=True)
class Verdict:
    """What limits loads in one state. `gain`: how many times as fast the best loader would be without that."""

    state: Variant
    limit: Measurement
    best: Measurement
    bottleneck: str
    gain: float | None
    without: str

    @property
    def share(self) -> float:
        """The share of the limit that the loader reaches, in shared rounds where there are any."""
        known = self.best.of_ceiling
        return (self.best.gbps or 0.0) / (self.limit.gbps or 1.0) if known is None else known

    @property
    def is_sure(self) -> bool:
        """Whether the interval of the share is on one side of the limit for a bottleneck."""
        found = self.best.ceiling_share.value
        if found is None or found.low is None or found.high is None:
            return False
        return found.low >= _NEAR or found.high < _NEAR


def loads_of(run: Run, state: Variant) -> list[Measurement]:
    """The rows of loaders in a state, the fastest first; those without a figure are last."""
    rows = [row for row in run.measurements if row.worker is not None and row.variant == state]
    return sorted(rows, key=lambda row: -(row.gbps or 0.0))


def verdict_of(run: Run, state: Variant) -> Verdict | None:
    best = next((row for row in loads_of(run, state) if row.gbps), None)
    if best is None:
        return None
    limits = limits_beside(best, run.measurements)
    limit = limit_of(limits)
    if limit is None or not limit.gbps:
        return None
    found = Verdict(state, limit, best, _limit_name(limit), None, "without it")
    if found.share < _NEAR:
        without = f"at the rate of {_limit_name(limit)}"
        return replace(found, bottleneck=clean(best.route), gain=1 / found.share, without=without)
    warm = next((row.gbps for row in loads_of(run, "warm") if row.gbps), None)
    if state == "cold" and warm is not None and not limit.is_raw:
        return replace(found, gain=warm / (best.gbps or 1.0), without="from the page cache")
    next_limit = max((row.gbps or 0.0 for row in limits if row.is_raw != limit.is_raw), default=0.0)
    return replace(found, gain=next_limit / (best.gbps or 1.0) if next_limit else None)


def _limit_name(row: Measurement) -> str:
    return "the link" if row.is_raw else STATES[row.variant]


def verdict_text(verdict: Verdict) -> str:
    limit, best, share = verdict.limit, verdict.best, units.format_percent(verdict.share)
    text = f"{capitalised(_limit_name(limit))} limits loads to {_rate_text(limit)}; {clean(best.route)} reaches "
    text += f"{_rate_text(best)}, {share} of that. "
    if verdict.share > _ABOVE:  # such as a loader that maps files, on a host without a GPU
        return f"{text}So it takes another way than what was measured beside it."
    times = verdict.gain or 0.0
    gain = f": {_two_digits(times)} times as fast {verdict.without}" if times > 1 else ""
    probably = "" if verdict.is_sure else "probably "
    return f"{text}The bottleneck is {probably}{verdict.bottleneck}{gain}."


def _rate_text(row: Measurement) -> str:
    return f"{certain_digits(row.gbps or 0.0, half_width(row))} GB/s"


def answer(run: Run) -> str:
    found = [verdict for state in STATES if (verdict := verdict_of(run, state)) is not None]
    texts = [f"From {STATES[verdict.state]}: {verdict_text(verdict)}" for verdict in found]
    return " ".join(texts) or "No load has a rate."


def subject_text(run: Run) -> str:
    """`3 GiB in 144 arrays of model.safetensors (ext4), to PyTorch`."""
    found = run.files
    if found is None:
        return ""
    names = clean(found.paths[0], 200) if len(found.paths) == 1 else f"{len(found.paths)} files"
    framework = next((worker.framework for worker in run.workers), "")
    size = f"{units.format_size(found.nbytes)} in {counted(found.arrays, 'array')}"
    return f"{size} of {names} ({fact_text(found.filesystem)}), to {title(framework)}"


def print_files(run: Run, page: Page) -> None:
    page.line(subject_text(run), style="bold")
    page.line(device_text(run.device))
    if text := ending_text(run):
        page.line(text, style="bold red")
    verdicts = [(state, verdict_of(run, state)) for state in STATES]
    page.section("Limits", [(f"from {STATES[state]}", verdict_text(found)) for state, found in verdicts if found])
    _print_limits(run, page)
    _print_loaders(run, page)
    page.section("Not measured", unmeasured_lines(run), style="yellow")
    page.section("Next", [("-", f"{code}: {text}") for text, code in advice(run)])
    page.section("Checks", [("-", text) for text in (_contents_text(run), *doubts(run)) if text])
    page.line()
    page.line(footer(run))


def _contents_text(run: Run) -> str:
    """What the comparison of the first loads with the files has shown."""
    found = [(clean(row.route, _LONGEST), row.verified.value) for row in run.measurements if row.worker is not None]
    wrong = {name for name, verified in found if verified is False}
    if wrong:
        return f"Contents: wrong from {', '.join(sorted(wrong))}."
    right = {name for name, verified in found if verified}
    loaders = counted(len({name for name, _ in found}), "loader")
    return f"Contents: compared with the files, and right from {len(right)} of {loaders}."


def _limit_rows(run: Run) -> list[Measurement]:
    rows = [row for row in run.measurements if row.worker is None]
    return sorted(rows, key=lambda row: (row.is_raw, row.variant != "cold"))


def _print_limits(run: Run, page: Page) -> None:
    rows = [row for row in _limit_rows(run) if row.gbps is not None]
    if not rows:
        return
    names = [limit_text(row) for row in rows]
    columns = [
        Column(("What a load needs",), tuple(names), left=True),
        Column(("GB/s",), rate_cells([row.gbps for row in rows])),
        Column(("+-",), precision_cells([half_width(row) for row in rows], "-")),
    ]
    page.line()
    page.show(fitting_table(columns, page.columns))


def limit_text(row: Measurement) -> str:
    """`disk, 4 threads`."""
    if row.is_raw:
        return "link, from page-locked memory"
    call = clean("" if row.route_info is None else row.route_info.call, _LONGEST)
    return f"{STATES[row.variant].removeprefix('the ')}, {call}"


def _print_loaders(run: Run, page: Page) -> None:
    names = list(dict.fromkeys(row.route for state in STATES for row in loads_of(run, state) if row.gbps))
    if not names:
        return
    at = {(row.route, row.variant): row for row in run.measurements if row.worker is not None}
    workers = {worker.name: worker for worker in run.workers}
    columns = [Column(("", "Loader"), tuple(clean(name, _LONGEST) for name in names), left=True)]

    cells_of: dict[str, Callable[..., tuple[str, ...]]] = {
        "GB/s": rate_cells,
        "+-": precision_cells,
        "limit": percent_cells,
        "GB": partial(rate_cells, most=2),
    }

    def add(first: str, second: str, values: list[float | None]) -> None:
        if any(value is not None for value in values):
            columns.append(Column((first, second), cells_of[second](values, "-")))

    for state in STATES:
        rows = [at.get((name, state)) for name in names]
        if any(row is not None and row.gbps for row in rows):
            add(state, "GB/s", [None if row is None else row.gbps for row in rows])
            add("", "+-", [None if row is None else half_width(row) for row in rows])
            add("of", "limit", [None if row is None else row.of_ceiling for row in rows])
    add("first", "GB/s", [None if (row := at.get((name, "warm"))) is None else first_gbps(row) for name in names])
    for place, peaks in (
        ("host", [workers[name].host_peak_bytes.value for name in names]),
        ("GPU", [workers[name].device_peak_bytes.value for name in names]),
    ):
        add(place, "GB", [None if peak is None else peak / 1e9 for peak in peaks])
    page.line()
    page.show(fitting_table(columns, page.columns))


def first_gbps(row: Measurement) -> float | None:
    """The rate of the first load of its process."""
    first = row.first_s.value
    return row.nbytes / first / 1e9 if first else None


def unmeasured_lines(run: Run) -> Lines:
    """What has no figure, with the reason once for all that have the same."""
    by_reason: dict[str, list[Measurement]] = {}
    for row in run.measurements:
        if row.gbps is None and row.rate.reason:
            by_reason.setdefault(row.rate.reason, []).append(row)
    return [("-", f"{_names_text(run, rows)}: {reason_text(reason)}") for reason, rows in by_reason.items()]


def _names_text(run: Run, rows: Sequence[Measurement]) -> str:
    for state, place in STATES.items():
        loads = [row for row in rows if row.worker is not None and row.variant == state]
        if loads and len(loads) == len(loads_of(run, state)):
            return f"loads from {place}"
    names = [limit_text(row) if row.worker is None else clean(row.route, _LONGEST) for row in rows]
    return ", ".join(dict.fromkeys(names))


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):g}"


def advice(run: Run) -> list[Advice]:
    rows = {row.route: row for row in loads_of(run, "warm") or loads_of(run, "cold") if row.gbps}
    if not rows:
        return []
    best = next(iter(rows.values()))
    slower = [row for row in rows.values() if row is not best]
    if not slower or best.route_info is None:
        return []
    slowest, times = slower[-1], (best.gbps or 0.0) / (slower[-1].gbps or 1.0)
    if times < _WORTH_SAYING:
        return []
    text = f"{times:.1f} times as fast as {clean(slowest.route, _LONGEST)}"
    return [(text, clean(best.route_info.call, 200))]


def charts_of_files(run: Run) -> Charts:
    return {"routes": plots.stack(partial(_loads_plot, run, state) for state in STATES if verdict_of(run, state))}


def _loads_plot(run: Run, state: Variant, width: int) -> plots.Spec:
    verdict = verdict_of(run, state)
    rows = [row for row in loads_of(run, state) if row.gbps and row.verified.value is not False]
    bars = []
    for row in rows[: plots.MAX_BARS]:
        rate = row.rate.value or runs.Rate(0.0, None, None)
        figure = plots.bar_figure(rate.gbps, row.of_ceiling)
        bar = plots.bar(clean(row.route, _LONGEST), rate.gbps, figure, figure, low=rate.low_gbps, high=rate.high_gbps)
        bars.append({**bar, "role": "pyxfer" if row.route == OWN else "other"})
    limit = None if verdict is None else verdict.limit
    line = None if limit is None or limit.gbps is None else (limit.gbps, f"{_limit_name(limit)}, {limit.gbps:.3g} GB/s")
    return plots.bar_plot(bars, titled(run.runtime, f"Loads from {STATES[state]}"), width, "GB/s", line=line)

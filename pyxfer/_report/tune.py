"""Tunings of the ring: the page with the table of trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pyxfer import units
from pyxfer._document.tunings import CopyDirection, CopyRate, RingSetup, RingState, Tuned
from pyxfer._report.layout import Column, Page, fitting_table, rate_cells
from pyxfer._report.text import Lines, capitalised, clean, reason_text, ring_text

_PLAIN = "plain copy"


def ring_lines(state: RingState) -> Lines:
    tuned = state.tuning.value
    return [
        ("settings", ring_text(state.ring)),
        ("from", reason_text(state.reason)),
        *(_figures(tuned) if tuned is not None else []),
        ("file", clean(state.path.value) if state.path.value else reason_text(state.path.reason)),
        *(("remark", capitalised(reason_text(remark))) for remark in state.remarks),
    ]


def print_tuning(state: RingState, page: Page) -> None:
    page.hanging(ring_lines(state))
    tuned = state.tuning.value
    if tuned is None:
        return
    if tuned.timed:
        page.heading("Trials: GB/s by direction and size, and speed relative to the best before")
        page.show(fitting_table(_ring_columns(tuned), page.columns))
    by_reason: dict[str, list[str]] = {}  # an expired limit applies to many rings
    for trial in tuned.trials:
        if trial.verdict == "not tried":
            by_reason.setdefault(trial.reason or "no reason given", []).append(
                f"{_made_text(trial.ring)} {trial.ring.fill}"
            )
    reasons = [("-", f"{reason_text(why)} ({len(rings)}): {', '.join(rings)}") for why, rings in by_reason.items()]
    page.section("Not tried", reasons)


def _figures(tuned: Tuned) -> Lines:
    rates = [(f"{way} GB/s", _beside_plain(way, tuned.rates, tuned.plain)) for way in get_args(CopyDirection)]
    pays = tuned.pays_from_bytes
    pays_text = f"never: {reason_text(pays.reason)}" if pays.value is None else units.format_size(pays.value)
    return [*rates, ("pays from", pays_text)]


def _beside_plain(way: CopyDirection, rates: Sequence[CopyRate], plain: Sequence[CopyRate]) -> str:
    others = {rate.nbytes: rate for rate in plain if rate.direction == way}
    parts = [
        f"{_rate_text(ring)} at {units.format_size(ring.nbytes)} ({_PLAIN} {_rate_text(others[ring.nbytes])})"
        for ring in rates
        if ring.direction == way and ring.nbytes in others
    ]
    return ", ".join(parts) or "not timed"


def _rate_text(rate: CopyRate) -> str:
    return units.format_gbps(rate.gbps).removesuffix(" GB/s")


def _ring_columns(tuned: Tuned) -> list[Column]:
    trials = tuned.timed
    rings = [trial.ring for trial in trials]
    rows = [{(rate.direction, rate.nbytes): rate.gbps for rate in t.rates} for t in trials]
    rows.append({(rate.direction, rate.nbytes): rate.gbps for rate in tuned.plain})
    places = sorted({place for row in rows for place in row}, key=lambda place: (place[0] != "h2d", place[1]))
    rates = {place: rate_cells([row.get(place) for row in rows], "-", least=1, most=3) for place in places}
    return [
        Column(("threads x", "slots x", "chunk"), (*map(_made_text, rings), ""), left=True),
        Column(("fill",), (*(ring.fill for ring in rings), ""), left=True),
        *(Column((way, *units.format_size(nbytes).split()), cells) for (way, nbytes), cells in rates.items()),
        Column(("x", "best"), (*rate_cells([trial.against_best for trial in trials]), "")),
        Column(("",), (*(trial.verdict for trial in trials), _PLAIN), left=True),
    ]


def _made_text(ring: RingSetup) -> str:
    """`15x512x64 KiB`: threads, slots, and the size of a slot."""
    return f"{ring.threads}x{ring.slots}x{units.format_size(ring.chunk_bytes)}"

"""The ring of a device: its settings, where they are from, and the trials that they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pyxfer import units
from pyxfer.model_tuning import CopyDirection, CopyRate, RingSetup, RingState, Tuned, TuningTrial

from .grid import Column, fitting_table, rate_cells
from .terminal import Page
from .text import capitalised, clean, reason_text

_PLAIN = "plain copy"


def ring_lines(state: RingState) -> list[tuple[str, str]]:
    """A short name and what is known, line by line."""
    tuned = state.tuning.value
    return [
        ("settings", setup_text(state.ring)),
        ("from", reason_text(state.reason)),
        *(_figures(tuned) if tuned is not None else []),
        ("file", clean(state.path.value) if state.path.value else reason_text(state.path.reason)),
        *(("remark", capitalised(reason_text(remark))) for remark in state.remarks),
    ]


def setup_text(ring: RingSetup) -> str:
    """`8 threads, 512 slots of 64 KiB, streaming: 32 MiB page-locked`."""
    threads = f"{ring.threads} {'thread' if ring.threads == 1 else 'threads'}"
    slots = f"{ring.slots} slots of {units.format_size(ring.chunk_bytes)}"
    return f"{threads}, {slots}, {ring.fill}: {units.format_size(ring.pinned_bytes)} page-locked"


def print_tuning(state: RingState, page: Page) -> None:
    """The settings that were found, and every candidate."""
    page.hanging(ring_lines(state))
    tuned = state.tuning.value
    if tuned is None:
        return
    if tuned.timed:
        page.heading("Trials: GB/s each way at each size, and times as fast as the best before")
        page.show(fitting_table(_columns(tuned), page.columns))
    _print_not_tried(tuned, page)


def _figures(tuned: Tuned) -> list[tuple[str, str]]:
    both = [(way, _beside_plain(way, tuned.rates, tuned.plain)) for way in get_args(CopyDirection)]
    return [*((f"{way} GB/s", text) for way, text in both), ("pays from", _pays_from(tuned))]


def _pays_from(tuned: Tuned) -> str:
    found = tuned.pays_from_bytes
    return f"nowhere: {reason_text(found.reason)}" if found.value is None else units.format_size(found.value)


def _beside_plain(way: CopyDirection, rates: Sequence[CopyRate], plain: Sequence[CopyRate]) -> str:
    others = {rate.nbytes: rate for rate in plain if rate.direction == way}
    pairs = [(ring, others[ring.nbytes]) for ring in rates if ring.direction == way and ring.nbytes in others]
    parts = [f"{_gbps(ring)} at {units.format_size(ring.nbytes)} ({_PLAIN} {_gbps(other)})" for ring, other in pairs]
    return ", ".join(parts) or "nothing was timed"


def _gbps(rate: CopyRate) -> str:
    return units.format_gbps(rate.gbps).removesuffix(" GB/s")


def _columns(tuned: Tuned) -> list[Column]:
    """The trials that have figures, and below them the plain copy."""
    trials = tuned.timed
    rings = [trial.ring for trial in trials]
    return [
        Column(("threads x", "slots x", "chunk"), (*map(_made_text, rings), ""), left=True),
        Column(("fill",), (*(ring.fill for ring in rings), ""), left=True),
        *_rate_columns(trials, tuned.plain),
        Column(("x", "best"), (*rate_cells([trial.against_best for trial in trials], [""] * len(trials)), "")),
        Column(("",), (*(trial.verdict for trial in trials), _PLAIN), left=True),
    ]


def _rate_columns(trials: Sequence[TuningTrial], plain: Sequence[CopyRate]) -> list[Column]:
    rows = [
        {(rate.direction, rate.nbytes): rate.gbps for rate in rates}
        for rates in (*(trial.rates for trial in trials), plain)
    ]
    columns = []
    for way in get_args(CopyDirection):
        for nbytes in sorted({size for row in rows for each, size in row if each == way}):
            cells = rate_cells([row.get((way, nbytes)) for row in rows], ["-"] * len(rows), least=1, most=3)
            columns.append(Column((way, *units.format_size(nbytes).split()), cells))
    return columns


def _print_not_tried(tuned: Tuned, page: Page) -> None:
    """One line a reason, because a limit that is over leaves many out."""
    by_reason: dict[str, list[RingSetup]] = {}
    for trial in tuned.trials:
        if trial.verdict == "not tried":
            by_reason.setdefault(trial.reason or "no reason given", []).append(trial.ring)
    if by_reason:
        page.heading("Not tried")
        page.hanging((_count_text(rings), f"{reason_text(why)}: {_names(rings)}") for why, rings in by_reason.items())


def _count_text(rings: Sequence[RingSetup]) -> str:
    return f"{len(rings)} {'ring' if len(rings) == 1 else 'rings'}"


def _names(rings: Sequence[RingSetup]) -> str:
    return ", ".join(f"{_made_text(ring)} {ring.fill}" for ring in rings)


def _made_text(ring: RingSetup) -> str:
    """`15x512x64 KiB`: threads, slots, and what each of these holds."""
    return f"{ring.threads}x{ring.slots}x{units.format_size(ring.chunk_bytes)}"

"""The ring of a device: its settings, where they are from, and the trials that they rest on."""

from __future__ import annotations

from collections.abc import Sequence

from pyxfer import units
from pyxfer.model_tuning import CopyRate, RingSetup, RingState, Tuned, TuningTrial

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
        page.heading("Trials: GB/s at each size, and how many times as fast as the best before")
        page.show(fitting_table(_columns(tuned), page.columns))
    _print_not_tried(tuned, page)


def _figures(tuned: Tuned) -> list[tuple[str, str]]:
    return [
        ("GB/s", _beside_plain(tuned.rates, tuned.plain)),
        ("pays from", _pays_from(tuned)),
    ]


def _pays_from(tuned: Tuned) -> str:
    found = tuned.pays_from_bytes
    return f"nowhere: {reason_text(found.reason)}" if found.value is None else units.format_size(found.value)


def _beside_plain(rates: Sequence[CopyRate], plain: Sequence[CopyRate]) -> str:
    pairs = [(ring, other) for ring in rates for other in plain if ring.nbytes == other.nbytes]
    parts = [f"{_gbps(ring)} at {units.format_size(ring.nbytes)} ({_PLAIN} {_gbps(other)})" for ring, other in pairs]
    return ", ".join(parts) or "nothing was timed"


def _gbps(rate: CopyRate) -> str:
    return units.format_gbps(rate.gbps).removesuffix(" GB/s")


def _columns(tuned: Tuned) -> list[Column]:
    """The trials that have figures, and below them the plain copy."""
    trials = tuned.timed
    rings = [trial.ring for trial in trials]
    return [
        Column(("threads",), (*(str(ring.threads) for ring in rings), "")),
        Column(("chunk",), (*(units.format_size(ring.chunk_bytes) for ring in rings), "")),
        Column(("slots",), (*(str(ring.slots) for ring in rings), "")),
        Column(("fill",), (*(ring.fill for ring in rings), ""), left=True),
        Column(("locked",), (*(units.format_size(ring.pinned_bytes) for ring in rings), "")),
        *_rate_columns(trials, tuned.plain),
        Column(("x best",), (*rate_cells([trial.against_best for trial in trials], [""] * len(trials)), "")),
        Column(("",), (*(trial.verdict for trial in trials), _PLAIN), left=True),
    ]


def _rate_columns(trials: Sequence[TuningTrial], plain: Sequence[CopyRate]) -> list[Column]:
    rows = [*(trial.rates for trial in trials), plain]
    sizes = sorted({rate.nbytes for rates in rows for rate in rates})
    columns = []
    for nbytes in sizes:
        values = [next((rate.gbps for rate in rates if rate.nbytes == nbytes), None) for rates in rows]
        columns.append(Column((units.format_size(nbytes),), rate_cells(values, ["-"] * len(rows), least=1, most=3)))
    return columns


def _print_not_tried(tuned: Tuned, page: Page) -> None:
    """One line a reason, because a limit that is over leaves many out."""
    by_reason: dict[str, list[RingSetup]] = {}
    for trial in tuned.trials:
        if trial.verdict == "not tried":
            by_reason.setdefault(trial.reason or "no reason given", []).append(trial.ring)
    if by_reason:
        page.heading("Not tried")
        page.hanging((", ".join(map(_short, rings)), reason_text(why)) for why, rings in by_reason.items())


def _short(ring: RingSetup) -> str:
    """`8x3x2 MiB`; the way of filling only where it is the one that is not usual."""
    fill = "" if ring.fill == "streaming" else f" {ring.fill}"
    return f"{ring.threads}x{ring.slots}x{units.format_size(ring.chunk_bytes)}{fill}"

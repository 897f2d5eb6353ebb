"""Explain runs with figures like those of an H200 host: a route that is slow on the host, and faster routes."""

from __future__ import annotations

from typing import Any

import msgspec
from framework_samples import make_raw_rows, make_route_info, make_route_row, make_worker
from pages import printed
from samples import MIB, make_link, make_parameters, make_run

from pyxfer._document import runs
from pyxfer._document.machines import Fact
from pyxfer._measure import stats
from pyxfer._report.run import print_run

NBYTES = 96 * MIB
PARTS: tuple[tuple[runs.PartName, float], ...] = (
    ("preparing", 24.8e-3),
    ("waiting", 0.11e-3),
    ("copying", 1.81e-3),
    ("staging", 7.52e-3),
    ("gaps", 0.21e-3),
    ("kernels", 0.31e-3),
    ("other copies", 1.6e-6),
    ("returning", 2.1e-3),
    ("finishing", 0.04e-3),
)


def make_breakdown(parts: tuple[tuple[runs.PartName, float], ...] = PARTS, **overrides: Any) -> runs.Breakdown:
    made = tuple(runs.Part(name, seconds) for name, seconds in parts)
    elapsed_s = sum(part.seconds for part in made)
    breakdown = runs.Breakdown(
        elapsed_s=elapsed_s,
        parts=made,
        dispatch_s=elapsed_s,
        wall_s=elapsed_s,
        faults=24_580.0,
        switches=3.0,
        preemptions=0.0,
        trials=3,
    )
    return msgspec.structs.replace(breakdown, **overrides)


def make_dma(seconds: float | None = 9.33e-3, **overrides: Any) -> runs.Dma:
    """One copy from pageable memory."""
    known: Fact[float] = Fact(reason="the device gave no time for 1 of 1 copies") if seconds is None else Fact(seconds)
    dma = runs.Dma(seconds=known, nbytes=NBYTES, copies=1.0, source="pageable", trials=3)
    return msgspec.structs.replace(dma, **overrides)


def make_explained(seconds: float = 36.9e-3, **overrides: Any) -> runs.Measurement:
    """The explained row: `tf.function`, timed and traced."""
    row = make_route_row("tensorflow", "tf.function", "h2d", NBYTES, (seconds, 1e9))
    around = [seconds * (1 + 1e-4 * step) for step in (-4, 2, -1, 3, 1, -3, -2, 4)]
    rate = stats.rate(NBYTES, stats.summarise(around))
    ceiling = make_raw_rows("tensorflow", "h2d", NBYTES)[0]
    fields: dict[str, Any] = {
        "bracket": "drained",
        "route_info": make_route_info("tf.function", call="tf.function(f)(x)"),
        "summary": stats.summarise(around),
        "rate": Fact(rate),
        "peak_share": Fact(rate.gbps / (make_link().h2d_peak_gbps.value or 0.0)),
        "ceiling_share": Fact(stats.ratio_share([trial.elapsed_s for trial in ceiling.trials], around)),
        "trials": tuple(
            runs.Trial(number, time_s, dispatch_s=seconds * 0.99, wall_s=seconds)
            for number, time_s in enumerate(around)
        ),
        "dispatch": stats.summarise([seconds * 0.99] * 8),
        "wall": stats.summarise([seconds] * 8),
        "dma": Fact(make_dma()),
        "breakdown": Fact(make_breakdown()),
    }
    return msgspec.structs.replace(row, **{**fields, **overrides})


def make_others() -> tuple[runs.Measurement, ...]:
    """Three faster routes, one that may be faster, and a slower one."""
    figures = {
        "tf.dlpack-pinned": (58e-6, 54.1),
        "tf.dlpack-pageable": (60e-6, 11.9),
        "tf.rawop": (80e-6, 11.5),
        "tf.function-jit": (130e-6, 2.74),
        "tf.cast-eager": (120e-6, 1.1),
    }
    rows = [make_route_row("tensorflow", name, "h2d", NBYTES, costs) for name, costs in figures.items()]
    return tuple(msgspec.structs.replace(row, memory="pinned" if "pinned" in row.route else "pageable") for row in rows)


def make_explain_run(row: runs.Measurement | None = None, **overrides: Any) -> runs.Run:
    """A run of `pyxfer explain tf.function --size 96MiB`."""
    fields: dict[str, Any] = {
        "kind": "explain",
        "parameters": make_parameters(
            explained=(row or make_explained()).route, directions=("h2d",), sizes_bytes=(NBYTES,)
        ),
        "measurements": (*make_raw_rows("tensorflow", "h2d", NBYTES), row or make_explained(), *make_others()),
        "workers": (make_worker("tensorflow"),),
        "curves": (),
        "locking": (),
        "remarks": (),
        "tracing": Fact(runs.Tracing("libcupti.so.12", 28)),
    }
    return make_run(**{**fields, **overrides})


def page_of(row: runs.Measurement | None = None, **overrides: Any) -> str:
    return printed(lambda page: print_run(make_explain_run(row, **overrides), page), details=True)


def section(text: str, heading: str) -> str:
    """The text from a heading to the next empty line."""
    begin = text.index(heading) + len(heading)
    return text[begin : text.index("\n\n", begin)] if "\n\n" in text[begin:] else text[begin:]

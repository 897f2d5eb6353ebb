"""Runs with the usual sizes, pages as text, and the parts of charts: their data, plots and titles."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from samples import KIB, MIB, make_device, make_link, make_measurement, make_run, retimed

from pyxfer._ceiling.rows import curves
from pyxfer._document import machines, runs
from pyxfer._document.derivations import derived
from pyxfer._document.machines import Fact, unknown
from pyxfer._report.layout import Page

USUAL_SIZES = tuple(4 * KIB * 4**step for step in range(9))
HOST_REASON = "host memory, not a PCIe link"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def printed(draw: Callable[[Page], None], *, details: bool = False) -> str:
    """The text of a page that is not on a terminal."""
    stream = io.StringIO()
    draw(Page(stream, details=details))
    return stream.getvalue()


def line_with(text: str, *words: str) -> str:
    """The only line that contains all the words."""
    found = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(found) == 1, (words, text)
    return found[0]


def full_run(
    directions: Sequence[runs.Direction] = ("h2d", "d2h", "both"),
    memories: Sequence[str] = ("pinned", "pageable"),
    modes: Sequence[str] = ("async",),
    sizes: Sequence[int] = USUAL_SIZES,
    **overrides: Any,
) -> runs.Run:
    """A run of all combinations, with figures like those of an H200 host."""
    run = _full_run(tuple(directions), tuple(memories), tuple(modes), tuple(sizes))
    return msgspec.structs.replace(run, **overrides)


@functools.cache
def _full_run(
    directions: tuple[runs.Direction, ...], memories: tuple[str, ...], modes: tuple[str, ...], sizes: tuple[int, ...]
) -> runs.Run:
    measurements = tuple(
        _measurement(direction, side, memory, mode, nbytes)
        for direction in directions
        for side in (("h2d", "d2h", "sum") if direction == "both" else (direction,))
        for memory in memories
        for mode in modes
        for nbytes in sizes
    )
    run = make_run(measurements=measurements, curves=curves(measurements)[:1], locking=make_run().locking, remarks=())
    return derived(run)


def host_run(run: runs.Run) -> runs.Run:
    """The run as if it had been made without a GPU: it has no link and no peak."""
    reason: Any = unknown(HOST_REASON)
    names = [name for name in machines.Link.__struct_fields__ if name not in ("kind", "hops", "remarks")]
    link = msgspec.structs.replace(make_link(kind="none", hops=()), **dict.fromkeys(names, reason))
    measurements = tuple(msgspec.structs.replace(m, peak_share=reason) for m in run.measurements)
    device = make_device(runtime="host", name=HOST_REASON, uuid=reason, pci=reason)
    return msgspec.structs.replace(run, runtime="host", device=device, link=link, measurements=measurements)


def _measurement(
    direction: runs.Direction, side: machines.Side, memory: str, mode: str, nbytes: int
) -> runs.Measurement:
    below_pinned = {"pageable": 3.7}.get(memory, 1.0)
    sample = make_measurement(16 * MIB, side, below_pinned * (1 + 2.33e-6 * 55e9 / nbytes))
    times = nbytes / sample.nbytes
    fields = {"direction": direction, "memory": memory, "mode": mode, "nbytes": nbytes}
    row = msgspec.structs.replace(
        sample, route=f"raw.{memory}-{mode}", moved_bytes=round(times * sample.moved_bytes), **fields
    )
    share = runs.Share(value=1 / below_pinned, low=1 / below_pinned, high=1 / below_pinned)
    seconds = [trial.elapsed_s * times for trial in sample.trials]
    return msgspec.structs.replace(retimed(row, seconds, 1.1e-6), ceiling_share=Fact(share))


def with_remark(measurement: runs.Measurement, code: str, text: str, fix: str | None = None) -> runs.Measurement:
    """The measurement with one remark."""
    return msgspec.structs.replace(measurement, remarks=(machines.Remark(code, text, fix),))


def widened(measurement: runs.Measurement, half_width: float) -> runs.Measurement:
    """The measurement with an interval of this relative half width."""
    assert measurement.summary is not None
    median_s = measurement.summary.median_s
    summary = msgspec.structs.replace(
        measurement.summary, low_s=median_s * (1 - half_width), high_s=median_s * (1 + half_width)
    )
    return msgspec.structs.replace(measurement, summary=summary)


def missing(measurement: runs.Measurement, reason: str) -> runs.Measurement:
    """The measurement without a result."""
    nothing: Any = unknown(reason)
    return msgspec.structs.replace(
        measurement, rate=nothing, peak_share=nothing, ceiling_share=nothing, verified=nothing, summary=None, trials=()
    )


def values_of(spec: Any) -> Iterator[dict[str, Any]]:
    """Every datum of a specification."""
    if isinstance(spec, dict):
        yield from spec.get("data", {}).get("values", ())
        for part in spec.values():
            yield from values_of(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from values_of(part)


def plots_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("vconcat", [spec]))


def beyond_of(spec: Any) -> list[dict[str, Any]]:
    """The data of the arrows for what lies beyond an axis."""
    return [value for value in values_of(spec) if "beyond" in value]


def layers_of(plot: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The layers of a plot that draw a mark, also those in groups of layers."""
    if "mark" in plot:
        yield plot
    for layer in plot.get("layer", ()):
        yield from layers_of(layer)


def titles_of(spec: dict[str, Any]) -> list[str]:
    return [" ".join(plot["title"]["text"]).replace("\u00a0", " ") for plot in plots_of(spec)]

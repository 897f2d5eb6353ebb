"""The tables of `readme_figures.py` about the ring: raw copies, frameworks, images, first use."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

import shared
import staged_shares
from figure_parts import caption, gbps_cell, seconds_cell, summary_of
from first_upload import First, Firsts
from prefetched_training import Prefetched
from watched_training import cost_text

from pyxfer._document.runs import Direction, Measurement, Run
from pyxfer._report.files import first_gbps
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer._report.route_tables import title
from pyxfer.units import format_percent, format_seconds, format_size

WAYS: tuple[Direction, ...] = ("h2d", "d2h")
RING = ("upload", "download", "download-into")


def staged_table(run: Run) -> str:
    """Rows are sizes; columns are, for each direction, the driver's copy, the staged copy, and its shares."""
    header = ["size"]
    for way in WAYS:
        header += [f"{way}: cudaMemcpy, GB/s", "ring, GB/s", "of pinned", "times as fast"]
    sizes = sorted({row.nbytes for row in run.measurements})
    body = [[format_size(nbytes), *(cell for way in WAYS for cell in _staged(run, way, nbytes))] for nbytes in sizes]
    below = ""
    if run.ring.value is not None:
        made = run.ring.value
        ring = f"{made.threads} threads, {made.slots} slots of {format_size(made.chunk_bytes)}, {made.fill}"
        below = f"\nThe ring: {escape_markdown(f'{ring}; {made.reason}.')}\n"
    return f"{caption(run)}\n\n{markdown_table(header, body)}{below}"


def loads_table(run: Run) -> str:
    """Rows are loaders of files: their rates, the first load of a process, and the host memory that it took."""
    found = {(row.route, row.variant): row for row in run.measurements if row.worker is not None}
    memory = {worker.name: worker.host_peak_bytes.value for worker in run.workers}
    body = []
    for name in dict.fromkeys(route for route, _ in found):
        warm, cold = found.get((name, "warm")), found.get((name, "cold"))
        first = None if warm is None else first_gbps(warm)
        held = memory.get(name)
        rates = [None if row is None else row.gbps for row in (warm, cold)]
        body.append([name, *map(_rate, (rates[0], first, rates[1])), "" if held is None else f"{held / 1e9:.2f} GB"])
    files = run.files
    what = "" if files is None else f"{format_size(files.nbytes)} in {files.arrays} arrays on {files.filesystem.value}."
    header = ["loader", "from the page cache, GB/s", "first load, GB/s", "from the disk, GB/s", "host memory"]
    return f"{caption(run)}\n\n{what}\n\n{markdown_table(header, body)}"


def _rate(gbps: float | None) -> str:
    return "" if gbps is None else f"{gbps:.3g}"


def uploads_table(run: Run) -> str:
    """Rows are pairs of a route through the ring and another route of the same framework, direction and size."""
    header = ["framework", "direction", "size", "through the ring", "takes", "of ceiling"]
    header += ["instead of", "which takes", "times as long"]
    body = []
    for own in _through_ring(run):
        for other in run.measurements:
            same = (other.worker, other.direction, other.nbytes) == (own.worker, own.direction, own.nbytes)
            if same and other.route_info is not None and not _is_ring(other) and summary_of(other) is not None:
                body.append([*_place(own), *_call(own), other.route, *_against(other, own)])
    return f"{caption(run)}\n\n{markdown_table(header, body)}"


def first_use(result: Firsts, loops: list[Prefetched]) -> str:
    """The cost of the first upload of a process, and the cost of prefetching for each step of a loop."""
    header = ["settings", "CUDA's start", "first upload", "the next", "idle", "page-locked"]
    body = [_first(name, firsts) for name, firsts in (("tuned then", result.tuned), ("kept", result.cached))]
    text = shared.markdown(result, header, body)
    steps = [
        [
            title(loop.framework),
            format_size(loop.batch_bytes),
            format_seconds(statistics.median(itertools.chain(*loop.resident_s))),
            format_seconds(statistics.median(itertools.chain(*loop.prefetched_s))),
            cost_text(loop.cost()),
        ]
        for loop in loops
    ]
    loop_header = ["loop", "batch", "a step, data on the GPU", "through pyxfer.prefetch", "longer"]
    return f"{text}\n{markdown_table(loop_header, steps)}"


def _staged(run: Run, way: Direction, nbytes: int) -> list[str]:
    found = {row.route: row for row in run.measurements if _is_warm(row, way, nbytes)}
    ring, driver = found.get(staged_shares.STAGED), found.get(staged_shares.DRIVERS)
    if ring is None or ring.summary is None:
        return ["-"] * 4
    of_pinned = staged_shares.share(run, ring, staged_shares.CEILING)
    of_driver = staged_shares.share(run, ring, staged_shares.DRIVERS)
    return [
        gbps_cell(driver),
        gbps_cell(ring),
        "-" if of_pinned is None else format_percent(of_pinned.value),
        "-" if of_driver is None else f"{of_driver.value:.2f}",
    ]


def _is_warm(row: Measurement, way: Direction, nbytes: int) -> bool:
    return (row.direction, row.nbytes, row.variant) == (way, nbytes, "warm")


def _through_ring(run: Run) -> Iterator[Measurement]:
    return (row for row in run.measurements if _is_ring(row) and summary_of(row) is not None)


def _is_ring(row: Measurement) -> bool:
    return row.route_info is not None and row.route.partition(".")[2] in RING


def _place(row: Measurement) -> list[str]:
    size = format_size(row.nbytes) if row.batch is None else f"{row.batch} images"
    return [title(row.worker or ""), row.direction, size]


def _call(row: Measurement) -> list[str]:
    share = "-" if row.of_ceiling is None else format_percent(row.of_ceiling)
    return [row.route, seconds_cell(row), share]


def _against(other: Measurement, own: Measurement) -> list[str]:
    return [seconds_cell(other), f"{(other.elapsed_s or 0.0) / (own.elapsed_s or 1.0):.1f}"]


def _first(name: str, firsts: tuple[First, ...]) -> list[str]:
    def median(of: str) -> str:
        return format_seconds(statistics.median(getattr(process, of) for process in firsts))

    idle = format_percent(max(process.idle_share for process in firsts))
    return [
        name,
        *map(median, ("cuda_s", "upload_s", "again_s")),
        idle,
        format_size(max(process.pinned_bytes for process in firsts)),
    ]

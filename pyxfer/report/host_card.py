"""This host in ten seconds: a run of a few sizes as one small card, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pyxfer import model, units

from . import run_sections as sections
from .grid import Column, to_table
from .notes import gather
from .terminal import Page

# Below this share of the ceiling, where the memory lies is worth a reader's time.
_PAGEABLE_IS_SLOW = 0.8

_Row = tuple[str, dict[str, model.Measurement]]


def print_host_card(run: model.Run, page: Page) -> None:
    """Device, link, peaks, ceiling each way, pageable beside it, and what to try next."""
    page.hanging(sections.heading_lines(run), style="bold")
    if sections.ending_text(run):
        page.line()
        page.line(sections.ending_text(run), style="bold red")
    rows = _rows(run)
    shown = tuple({id(m): m for _, measurements in rows for m in measurements.values()}.values())
    marks, notes = gather(msgspec.structs.replace(run, measurements=shown))
    if rows:
        page.line()
        page.show(to_table(_columns(run, rows, dict(zip(map(id, shown), marks, strict=True))), gap=2))
    if notes:
        page.line()
        page.hanging([(note.mark, note.text) for note in notes], style="yellow")
    remarks = sections.remark_lines(run)
    if remarks:
        page.heading("Remarks")
        page.hanging(remarks)
    page.heading("Try next")
    for command, why in suggestions(run):
        page.line(f"  {command}", style="bold")
        page.line(f"    {why}")


def suggestions(run: model.Run) -> list[tuple[str, str]]:
    """Commands that fit what was found, and what each would tell."""
    found = []
    if run.runtime == "host":
        found.append(("pyxfer list", "why no GPU is used here"))
    if run.link.remarks:
        found.append(("pyxfer info", "every part of the link, and which one holds it back"))
    share = _pageable_share(run)
    if share is not None and share < _PAGEABLE_IS_SLOW:
        reaches = f"pageable memory reaches {units.format_percent(share)} of the ceiling: see when pinning pays"
        found.append(("pyxfer ceiling --memory pageable,pinned,registered", reaches))
    if any(remark.fix and "--budget" in remark.fix for m in run.measurements for remark in m.remarks):
        found.append(("pyxfer ceiling --budget 60s", "steadier values from more rounds"))
    found.append(("pyxfer ceiling --export-json run.json", "every size from 4 KiB to 256 MiB, and kept"))
    return found


def _rows(run: model.Run) -> list[_Row]:
    """What the card holds of the run: the largest size, with pageable memory beside it, and the smallest."""
    sizes = sorted({m.nbytes for m in run.measurements})
    if not sizes:
        return []
    large, small = units.format_size(sizes[-1]), units.format_size(sizes[0])
    rows = [
        (f"ceiling at {large}", _best(run, sizes[-1])),
        (f"pageable at {large}", _best(run, sizes[-1], "pageable")),
    ]
    if len(sizes) > 1:
        rows.append((f"ceiling at {small}", _best(run, sizes[0])))
    return [row for row in rows if row[1]]


def _best(run: model.Run, nbytes: int, memory: str | None = None) -> dict[str, model.Measurement]:
    """The fastest of each direction at a size; of a transfer both ways, by the sum of its sides."""
    best: dict[str, model.Measurement] = {}
    for m in run.measurements:
        counts = m.nbytes == nbytes and m.variant == "warm" and (m.direction != "both" or m.side == "sum")
        if counts and memory in (None, m.memory) and (m.gbps or 0.0) >= _gbps(best.get(m.direction)):
            best[m.direction] = m
    return best


def _gbps(measurement: model.Measurement | None) -> float:
    return 0.0 if measurement is None else measurement.gbps or 0.0


def _columns(run: model.Run, rows: Sequence[_Row], marks: dict[int, str]) -> list[Column]:
    """A column a direction; under each measured rate the share that belongs to it."""
    names = _names(run, rows)
    columns = [Column(("GB/s (1 GB = 1e9 bytes)",), tuple(names), left=True)]
    for direction in run.parameters.directions:
        cells = [(cell, "") for cell in _peak_cells(run, direction)]
        for name, measurements in rows:
            measurement = measurements.get(direction)
            cells.append((_rate_cell(measurement), marks.get(id(measurement), "")))
            if _share_name(run, name) is not None:
                cells.append((_share_cell(measurement, name), ""))
        columns.append(Column((direction,), tuple(cell for cell, _ in cells), tuple(mark for _, mark in cells)))
    return columns


def _names(run: model.Run, rows: Sequence[_Row]) -> list[str]:
    names = ["raw peak", "protocol peak"] if _has_peaks(run) else []
    for name, _ in rows:
        share = _share_name(run, name)
        names += [name] if share is None else [name, f"  {share}"]
    return names


def _share_name(run: model.Run, name: str) -> str | None:
    if name.startswith("pageable"):
        return "of the ceiling"
    return "of the protocol peak" if _has_peaks(run) else None


def _has_peaks(run: model.Run) -> bool:
    return run.link.raw_peak_gbps.value is not None


def _peak_cells(run: model.Run, direction: model.Direction) -> list[str]:
    if not _has_peaks(run):
        return []
    raw = run.link.raw_peak_gbps.value
    sides: model.Side = "sum" if direction == "both" else direction
    doubled = None if raw is None else raw * (2 if direction == "both" else 1)
    return [_number(doubled), _number(run.link.peak_gbps(sides).value)]


def _rate_cell(measurement: model.Measurement | None) -> str:
    return "" if measurement is None else _number(measurement.gbps)


def _share_cell(measurement: model.Measurement | None, name: str) -> str:
    if measurement is None:
        return ""
    share = measurement.of_ceiling if name.startswith("pageable") else measurement.of_peak
    return "-" if share is None else f"{share * 100:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _pageable_share(run: model.Run) -> float | None:
    sizes = [m.nbytes for m in run.measurements]
    shares = [m.of_ceiling for m in _best(run, max(sizes, default=0), "pageable").values() if m.of_ceiling is not None]
    return min(shares, default=None)

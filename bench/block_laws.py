"""Leaves cells of a run of `pyxfer blocks` out, and predicts their times from the cells that are left, by several laws.

    python bench/block_laws.py bench/results/blocks.json.gz

Each cell of page-locked memory in random places is left out twice: between the counts beside it, and between the sizes
beside it. The last line is what the trials of a cell say about themselves: the median of one half is predicted by that
of the other half. A law that is as near as that cannot be told from a better one.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyxfer
from pyxfer._blocks.choice import Cell, cells_of
from pyxfer._document.blocks import BlockMethod

METHODS: tuple[BlockMethod, ...] = ("loop", "batch", "kernel")
"""Packing is measured in few cells, and a 2D copy in none of random places."""
NEAR = 0.1
Known = Mapping[float, float]
Law = Callable[[Known, float], float]
"""The seconds at a size or count from those at two others."""


def line(known: Known, wanted: float) -> float:
    """As `pyxfer._blocks.times.Line` does it."""
    (first, below), (last, above) = sorted(known.items())
    return below + (above - below) * (wanted - first) / (last - first)


def on_logarithms(known: Known, wanted: float) -> float:
    """Both on logarithmic scales."""
    return math.exp(line({math.log(at): math.log(seconds) for at, seconds in known.items()}, math.log(wanted)))


def rate(known: Known, wanted: float) -> float:
    """The rate, over the logarithm of the size or count."""
    return wanted / line({math.log(at): at / seconds for at, seconds in known.items()}, math.log(wanted))


LAWS: dict[str, Law] = {"line": line, "logarithms": on_logarithms, "rate": rate}


def errors(cells: list[Cell], law: Law) -> tuple[list[float], list[float]]:
    """The relative errors between counts, and those between sizes."""
    between_counts, between_sizes = list[float](), list[float]()
    for method in METHODS:
        seconds = {
            (cell.block_bytes, cell.count): time
            for cell in cells
            if method in cell.rows and (time := cell.rows[method].elapsed_s) is not None
        }
        for (size, count), measured in seconds.items():
            counts = {other: time for (at, other), time in seconds.items() if at == size}
            sizes = {other: time for (other, at), time in seconds.items() if at == count}
            between_counts += [abs(law(known, count) / measured - 1) for known in beside(counts, count)]
            between_sizes += [abs(law(known, size) / measured - 1) for known in beside(sizes, size)]
    return between_counts, between_sizes


def beside(known: Mapping[int, float], left_out: int) -> Iterator[Known]:
    """The nearest below and above, if there are both."""
    below = max((at for at in known if at < left_out), default=None)
    above = min((at for at in known if at > left_out), default=None)
    if below is not None and above is not None:
        yield {below: known[below], above: known[above]}


def halves(cells: list[Cell]) -> list[float]:
    """The relative errors of every second trial, predicted by the others."""
    found = []
    for cell in cells:
        for method in METHODS:
            times = [trial.elapsed_s for trial in cell.rows[method].trials] if method in cell.rows else []
            if len(times) > 1:
                found.append(abs(statistics.median(times[::2]) / statistics.median(times[1::2]) - 1))
    return found


def said(name: str, found: list[float]) -> str:
    """A line of the page."""
    near = sum(error <= NEAR for error in found) / len(found)
    return f"{name:28} {len(found):5} {statistics.median(found):8.1%} {near:8.1%}"


def main() -> None:
    """Print a line for each law and direction of leaving out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run of pyxfer blocks")
    places = cells_of(pyxfer.Run.load(parser.parse_args().run))
    tables = [found for place, found in places.items() if place[0] != "both" and place[1:] == ("pinned", "random")]
    print(f"{'':28} {'times':>5} {'median':>8} {'< 10 %':>8}")
    for name, law in LAWS.items():
        parts = [errors(cells, law) for cells in tables]
        print(said(f"{name}, between counts", [error for part in parts for error in part[0]]))
        print(said(f"{name}, between sizes", [error for part in parts for error in part[1]]))
    print(said("half of the trials", [error for cells in tables for error in halves(cells)]))


if __name__ == "__main__":
    main()

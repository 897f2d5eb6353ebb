"""Counts how often the judging of fleets is right, over models of noise.

    python bench/fleet_detection.py [--hosts 1000] [--fleets 300] [--seed 1] [--export-json F]

The figures of fleets are drawn from a model of noise and given to the code of `pyxfer fleet`: once, and for the flagged
hosts and two controls once more. A host has 8 GPUs with four kinds of copies. How much the figures differ comes from
the documents in bench/results: the standard deviation between runs on several H200 machines on several days. A part of
it stays with the host, and the rest changes from run to run.

A fleet is clean, or 1 % of its hosts have lost 3 % in one pinned cell. The detection limit that is printed is held
against the true one, the loss that is found in 95 % of cases; and each fleet is judged again after one random host has
lost exactly what was printed in a pinned cell, and another one in a pageable cell.

The exit status is 1 if a row misses a limit: a false alarm in more than 1 % of the clean fleets, or fewer than 95 % of
the printed losses found; of 1,000 hosts also fewer than 99 % of the losses found, or a printed limit of pinned copies
that is more than 20 % off. Counts that such a true share has by chance in more than 1 of 100 rows are no miss.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._document.files import check_writable, read_whole
from pyxfer._document.fleets import FleetSettings
from pyxfer._fleet.losses import Flags, Judged, answers_of, controls_of, judge_figures, looks_again, shift_of
from pyxfer._report.grid import markdown_table
from pyxfer._report.tables import Value
from pyxfer.errors import UsageError
from pyxfer.units import format_percent

RESULTS = Path(__file__).with_name("results")
DEVICE = "H200"
MIN_BYTES = 16 << 20
MIN_RUNS = 4
GPUS = 8
LOST, SLOW_SHARE = 0.03, 0.01
MAX_FALSE, MIN_FOUND, LARGEST_ERROR = 0.01, 0.99, 0.20
GOAL_HOSTS = 1000
SURE = 0.99
MANY_HOSTS, FEWER = 100, 5
"""From this many hosts on, a fifth of the fleets are enough: each has many losses."""
FAMILIES = (("h2d", "pinned"), ("d2h", "pinned"), ("h2d", "pageable"), ("d2h", "pageable"))
PINNED = 2
"""The first families are of pinned copies."""

Rng = np.random.Generator
Floats = NDArray[np.float64]
Draw = Callable[[Rng, tuple[int, int]], Floats]


class Spread(msgspec.Struct, frozen=True):
    """The standard deviation of the logarithms of a copy's rate between runs at one size, pooled over `sizes` sizes."""

    direction: str
    memory: str
    sizes: int
    runs: int
    spread: float


class Row(msgspec.Struct, frozen=True):
    """One model: clean fleets and those with a false alarm, losses and those found, printed and true limits.

    `found_printed`: in how many fleets the loss that is printed was found, in a pinned cell and in a pageable one.
    """

    noise: str
    stays: float
    hosts: int
    fleets: int
    flagged: float
    false: int
    lost: int
    found: int
    printed: tuple[float, ...]
    true: tuple[float, ...]
    found_printed: tuple[int, int]

    def error(self, families: slice = slice(None)) -> float:
        """How far the printed limit is off, of the family where it is most."""
        pairs = zip(self.printed[families], self.true[families], strict=True)
        return max(abs(printed / true - 1) for printed, true in pairs)


class Detection(msgspec.Struct, frozen=True):
    """The document."""

    seed: int
    settings: FleetSettings
    spreads: tuple[Spread, ...]
    rows: tuple[Row, ...]
    kind: Literal["fleet-detection"] = "fleet-detection"
    schema_version: int = 1


def normal(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Normal noise."""
    return rng.standard_normal(shape)


def heavy(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Student's t with three degrees of freedom: one figure of 1,000 is ten times as far off as usual."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def bimodal(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Three of ten runs are in a slower mode."""
    modes = rng.choice([0.48, -1.12], shape, p=[0.7, 0.3])
    noise: Floats = modes + 0.3 * rng.standard_normal(shape)
    return noise / math.sqrt(0.7 * 0.48**2 + 0.3 * 1.12**2 + 0.3**2)


def drifting(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Hosts are measured one after the other, while everything becomes slower."""
    drift = np.linspace(math.sqrt(3), -math.sqrt(3), shape[0])[:, np.newaxis]
    noise: Floats = 0.87 * drift + 0.5 * rng.standard_normal(shape)
    return noise


NOISES: dict[str, Draw] = {"normal": normal, "heavy tails": heavy, "two modes": bimodal, "drift": drifting}
STAYS = (0.5, 0.0)
"""The share of the variance that stays with the host."""


class Model:
    """Draws fleets."""

    def __init__(self, spreads: Sequence[float], draw: Draw, stays: float, hosts: int, rng: Rng) -> None:
        self.families = np.repeat(np.arange(len(spreads)), GPUS)
        self._spreads = np.asarray(spreads)[self.families]
        self._shape = (hosts, self.families.size)
        self._draw, self._stays, self._rng = draw, stays, rng

    def fleet(self) -> tuple[Floats, Floats]:
        """The figures of two looks at the same hosts."""
        host = math.sqrt(self._stays) * self._rng.standard_normal(self._shape)
        looks = [host + math.sqrt(1 - self._stays) * self._draw(self._rng, self._shape) for _ in range(2)]
        return self._spreads * looks[0], self._spreads * looks[1]

    def planted(self) -> Floats:
        """The losses of a fleet of which some hosts have lost a share in one pinned cell."""
        losses = np.zeros(self._shape)
        slow = np.flatnonzero(self._rng.random(self._shape[0]) < SLOW_SHARE)
        losses[slow, self._rng.integers(0, PINNED * GPUS, slow.size)] = math.log1p(-LOST)
        return losses

    def printed(self, limits: Floats) -> tuple[Floats, list[tuple[int, int]]]:
        """The losses of two random hosts that have lost what is printed, in a pinned and a pageable cell, and where."""
        losses, cells = np.zeros(self._shape), PINNED * GPUS
        columns = int(self._rng.integers(cells)), int(self._rng.integers(cells, limits.size))
        places = list(zip(self._rng.choice(self._shape[0], 2, replace=False).tolist(), columns, strict=True))
        for host, cell in places:
            losses[host, cell] = -limits[cell]
        return losses, places


def judged_twice(model: Model, first: Floats, again: Floats, settings: FleetSettings) -> tuple[Judged, Flags]:
    """The judged first look, and where a host is called slow."""
    unknown = np.full(first.shape, np.nan)
    judged = judge_figures(first, unknown, model.families.tolist(), first.size, settings)
    chosen = [*np.flatnonzero(judged.flagged.any(axis=1)), *controls_of(judged)]
    looks = looks_again(judged, {int(row): again[row : row + 1] for row in chosen})
    slow = np.zeros(first.shape, dtype=np.bool_)
    for place, stays in answers_of(judged, looks, settings)[0].items():
        slow[place] = bool(stays)
    return judged, slow


def needed(model: Model, judged: Judged, first: Floats, again: Floats) -> list[Floats]:
    """For each family and host the loss that would have been flagged and confirmed."""
    usual = np.argsort(np.max(np.abs(judged.ratios), axis=1))[:2]
    second = again - judged.centres
    second = second - shift_of(second[usual])
    least = np.maximum(judged.first + judged.ratios, judged.again + second)
    return [least[:, model.families == family].ravel() for family in range(len(FAMILIES))]


def count(name: str, stays: float, spreads: Sequence[float], hosts: int, fleets: int, rng: Rng) -> Row:
    """One row of the table."""
    settings = FleetSettings()
    model = Model(spreads, NOISES[name], stays, hosts, rng)
    false = flagged = lost = found = 0
    found_printed = np.zeros(2, dtype=int)
    printed, least = [], []
    for number in range(fleets):
        first, again = model.fleet()
        judged, slow = judged_twice(model, first, again, settings)
        false += bool(slow.any())
        flagged += int(judged.flagged.sum())
        if number < max(1, fleets // 10):
            printed.append([np.median(judged.limits[model.families == family]) for family in range(len(spreads))])
            least.append(needed(model, judged, first, again))
        losses, places = model.printed(judged.limits)
        _, slow = judged_twice(model, first + losses, again + losses, settings)
        found_printed += [slow[place] for place in places]
        losses = model.planted()
        if not losses.any():
            continue
        _, slow = judged_twice(model, first + losses, again + losses, settings)
        lost += int(np.count_nonzero(losses))
        found += int(np.count_nonzero(slow & (losses < 0)))
    limits = [np.quantile(np.concatenate(each), settings.power) for each in zip(*least, strict=True)]
    return Row(
        noise=name,
        stays=stays,
        hosts=hosts,
        fleets=fleets,
        flagged=flagged / fleets,
        false=false,
        lost=lost,
        found=found,
        printed=tuple((-np.expm1(-np.median(printed, axis=0))).tolist()),
        true=tuple((-np.expm1(-np.array(limits))).tolist()),
        found_printed=(int(found_printed[0]), int(found_printed[1])),
    )


def read_spreads(folder: Path = RESULTS) -> tuple[Spread, ...]:
    """The spreads of large raw copies between the runs in the committed documents."""
    rates: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for path in sorted(folder.glob("*.json.gz")):
        for run in _runs_in(msgspec.json.decode(read_whole(path))):
            for row in run["measurements"]:
                if _is_large_copy(row):
                    key = row["direction"], row["memory"], row["nbytes"]
                    rates[key][run["environment"]["taken_at"]] = row["rate"]["value"]["gbps"]
    return tuple(_spread_of(direction, memory, rates) for direction, memory in FAMILIES)


def _runs_in(document: Any) -> Iterator[Any]:
    """The runs on the device anywhere in a document."""
    if isinstance(document, dict):
        if "measurements" in document and "environment" in document and DEVICE in document["device"]["name"]:
            yield document
        for value in document.values():
            yield from _runs_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from _runs_in(value)


def _is_large_copy(row: Any) -> bool:
    is_raw = row["route"].startswith("raw.") and row["variant"] == "warm" and row["direction"] == row["side"]
    is_usual = row["mode"] == ("memcpy" if row["memory"] == "pageable" else "async")
    return is_raw and is_usual and row["nbytes"] >= MIN_BYTES and row["rate"]["value"] is not None


def _spread_of(direction: str, memory: str, rates: dict[tuple[str, str, int], dict[str, float]]) -> Spread:
    known = [
        np.log(list(found.values()))
        for key, found in rates.items()
        if key[:2] == (direction, memory) and len(found) >= MIN_RUNS
    ]
    degrees = sum(logs.size - 1 for logs in known)
    variance = sum(float(np.var(logs, ddof=1)) * (logs.size - 1) for logs in known) / degrees
    return Spread(direction, memory, len(known), degrees + len(known), math.sqrt(variance))


def collect(hosts: Sequence[int], fleets: int, seed: int) -> Detection:
    """Every row."""
    if fleets < 1:
        raise UsageError(f"--fleets must be 1 or more, not {fleets}.")
    spreads, rng = read_spreads(), np.random.default_rng(seed)
    rows = []
    for size in hosts:
        for name in NOISES:
            for stays in STAYS:
                some = fleets if size < MANY_HOSTS else max(1, fleets // FEWER)
                rows.append(count(name, stays, [each.spread for each in spreads], size, some, rng))
                print(f"{size} hosts, {name}, {stays}: {rows[-1].false} false alarms", file=sys.stderr)
    return Detection(seed, FleetSettings(), spreads, tuple(rows))


def most_by_chance(count: int, share: float) -> int:
    """The most of `count` that happen if each does with a chance of `share`, in 99 of 100 rows."""
    chance, most = (1 - share) ** count, 0
    total = chance
    while total < SURE:
        chance *= (count - most) / (most + 1) * share / (1 - share)
        most += 1
        total += chance
    return most


def misses(document: Detection) -> list[str]:
    """The limits that the counts miss, one sentence each."""
    found = []
    for row in document.rows:
        name = f"{row.hosts} hosts with {row.noise}, of which {format_percent(row.stays)} stays"
        if row.false > most_by_chance(row.fleets, MAX_FALSE):
            found.append(f"{row.false} of {row.fleets} clean fleets have a false alarm: {name}")
        missed = row.fleets - min(row.found_printed)
        if missed > most_by_chance(row.fleets, 1 - document.settings.power):
            found.append(f"{missed} of {row.fleets} printed losses are not found: {name}")
        if row.hosts != GOAL_HOSTS:
            continue
        if row.found < MIN_FOUND * row.lost:
            found.append(f"only {row.found} of {row.lost} losses are found: {name}")
        if row.error(slice(PINNED)) > LARGEST_ERROR:
            found.append(f"the printed limit is {format_percent(row.error(slice(PINNED)))} off: {name}")
    return found


def table(document: Detection) -> str:
    """The table for docs/reliability.md."""
    header = ["noise", "stays with the host", "hosts", "clean fleets", "false alarms", "flagged once", "3 % losses"]
    header += ["found", "limit printed, pinned", "true", "found", "limit printed, pageable", "true", "found"]
    body: list[list[Value]] = [
        [
            row.noise,
            format_percent(row.stays),
            row.hosts,
            row.fleets,
            row.false,
            f"{row.flagged:.1f}",
            row.lost,
            format_percent(row.found / row.lost) if row.lost else "",
            *(format_percent(float(np.max(limits[:PINNED]))) for limits in (row.printed, row.true)),
            format_percent(row.found_printed[0] / row.fleets),
            *(format_percent(float(np.max(limits[PINNED:]))) for limits in (row.printed, row.true)),
            format_percent(row.found_printed[1] / row.fleets),
        ]
        for row in document.rows
    ]
    return f"{caption(document)}\n\n{markdown_table(header, body)}"


def caption(document: Detection) -> str:
    """The parameters, for the documentation."""
    spreads = ", ".join(f"{each.direction} {each.memory} {format_percent(each.spread)}" for each in document.spreads)
    return (
        f"Simulated hosts with {GPUS} GPUs, seed {document.seed}; standard deviations between runs, from the committed "
        f"documents of {DEVICE} machines: {spreads}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, print the table, write the document; 0 if every limit is met."""
    parser = argparse.ArgumentParser(description="Count how often the judging of fleets is right over models of noise.")
    parser.add_argument(
        "--hosts", type=int, nargs="+", default=[5, 6, 8, 12, 20, 60, GOAL_HOSTS], help="sizes of fleets"
    )
    parser.add_argument("--fleets", type=int, default=300, help="fleets of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the noise (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the counts to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    document = collect(options.hosts, options.fleets, options.seed)
    print(table(document))
    return shared.conclude(document, options.export_json, misses(document))


if __name__ == "__main__":
    shared.run_script(main)

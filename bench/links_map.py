"""Counts how often the map of `pyxfer links` is right, over models of noise.

    python bench/links_map.py [--maps 1000] [--seed 1] [--export-json F]

The rates of a host's links are drawn from a model of noise and given to the code that names groups of GPUs that share
an uplink, and slow links. A clean host has neither, so whatever is named is false. A planted host has one of: two
uplinks of half of the GPUs each, uplinks of two GPUs each that carry 1.5 links, one uplink that carries 1.6 links, a
GPU at half its width, a pair at half its rate. It counts as found if exactly what was planted is named. The column
"15 %" is of one pair that loses 15 %, the smallest loss that is claimed to be found in 95 % of cases.

The exit status is 1 if more clean maps than the stated rate allows have a name, in one model with chance 1 in 1,000, or
if fewer than 95 % of the planted hosts or of the losses of 15 % were found.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import shared
from numpy.typing import NDArray

from pyxfer._document.files import check_writable
from pyxfer._links import sharing
from pyxfer._report.grid import markdown_table
from pyxfer.units import format_percent

LINK, PEER = 55.0, 390.0
NOISE = 0.008
GPUS, ROUNDS = (4, 8, 16), (sharing.MIN_ROUNDS, 12)
PLANTED_GPUS = 8
# Two directions of groups; the links of the host in both, and the pairs, read and written.
PARTS = 6

Rng = np.random.Generator
Floats = NDArray[np.float64]
Draw = Callable[[Rng, tuple[int, int]], Floats]
Named = tuple[list[tuple[int, ...]], set[tuple[int, int]]]


class Row(msgspec.Struct, frozen=True):
    """One model of noise: `named` of `maps` clean maps by rounds and GPUs, and `found` of `planted` hosts by rounds."""

    noise: str
    maps: dict[str, int]
    named: dict[str, int]
    planted: dict[str, int]
    found: dict[str, int]


class Maps(msgspec.Struct, frozen=True):
    """The document."""

    seed: int
    error_rate: float
    rows: tuple[Row, ...]
    kind: Literal["links-map"] = "links-map"
    schema_version: int = 1


def normal(rng: Rng, shape: tuple[int, int]) -> Floats:
    """0.8 % in each round."""
    made: Floats = np.exp(NOISE * rng.standard_normal(shape))
    return made


def heavy(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Student's t with three degrees of freedom, to both sides."""
    made: Floats = np.exp(NOISE * rng.standard_t(3, shape))
    return made


def bursts(share: float, least: float = 0.0, most: float = 0.3) -> Draw:
    """Other work slows a share of the trials of each row by `least` to `most`."""

    def draw(rng: Rng, shape: tuple[int, int]) -> Floats:
        lost: Floats = np.where(rng.random(shape) < share, rng.uniform(least, most, shape), 0.0)
        made: Floats = normal(rng, shape) * (1 - lost)
        return made

    return draw


def busy_rounds(rng: Rng, shape: tuple[int, int]) -> Floats:
    """Other work slows every row in a tenth of the rounds."""
    busy = rng.random((1, shape[1])) < 0.1  # noqa: PLR2004 - the model
    return normal(rng, shape) * np.where(busy, 1 - rng.uniform(0, 0.3, shape), 1.0)


def levels(spread: float) -> Draw:
    """Each row has a level of its own in all rounds."""

    def draw(rng: Rng, shape: tuple[int, int]) -> Floats:
        made: Floats = normal(rng, shape) * np.exp(spread * rng.standard_normal((shape[0], 1)))
        return made

    return draw


NOISES: dict[str, Draw] = {
    "normal, 0.8 %": normal,
    "heavy tails (t3)": heavy,
    "bursts in 4 % of the trials": bursts(0.04),
    "bursts in 10 %": bursts(0.10),
    "bursts in 15 %": bursts(0.15),
    "bursts of 20 to 60 % in 10 %": bursts(0.10, 0.2, 0.6),
    "every row slow in 10 % of the rounds": busy_rounds,
    "rows at levels of 1 %": levels(0.01),
    "rows at levels of 1.7 %": levels(0.017),
}


class Host:
    """GPUs, uplinks with their members and capacity, and slow links by their ends; -1 is the host."""

    def __init__(
        self,
        gpus: int,
        uplinks: Sequence[tuple[Sequence[int], float]] = (),
        slow: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        self.gpus, self.uplinks, self.slow = gpus, uplinks, dict(slow or {})

    @property
    def planted(self) -> Named:
        """What a map should name."""
        return sorted(tuple(members) for members, _ in self.uplinks), set(self.slow)

    def alone(self, gpu: int) -> float:
        """The rate of a GPU by itself."""
        return self.slow.get((-1, gpu), LINK)

    def beside(self, pair: tuple[int, int]) -> float:
        """The sum of the rates of two GPUs beside each other."""
        shared_by = [capacity for members, capacity in self.uplinks if set(pair) <= set(members)]
        return min([self.alone(pair[0]) + self.alone(pair[1]), *shared_by])

    def named(self, draw: Draw, rounds: int, rng: Rng) -> Named:
        """What a map of its rates names: groups in either direction, and slow links."""
        rate = sharing.ERROR_RATE / PARTS
        groups: set[tuple[int, ...]] = set()
        slow: set[tuple[int, int]] = set()
        pairs = list(combinations(range(self.gpus), 2))
        for _ in ("h2d", "d2h"):
            rates = [*(self.alone(gpu) for gpu in range(self.gpus)), *map(self.beside, pairs)]
            drawn = np.array(rates)[:, np.newaxis] * draw(rng, (len(rates), rounds))
            alone = dict(enumerate(drawn[: self.gpus].tolist()))
            groups |= set(
                sharing.groups_of(
                    sharing.losses(alone, dict(zip(pairs, drawn[self.gpus :].tolist(), strict=True)), rate)
                )
            )
            slow |= set(sharing.slow_links({(-1, gpu): each for gpu, each in alone.items()}, rate))
        ends = list(permutations(range(self.gpus), 2))
        for _ in ("read", "write"):
            rates = [self.slow.get(each, PEER) for each in ends]
            drawn = np.array(rates)[:, np.newaxis] * draw(rng, (len(rates), rounds))
            slow |= set(sharing.slow_links(dict(zip(ends, drawn.tolist(), strict=True)), rate))
        return sorted(groups), slow


def planted_hosts() -> list[Host]:
    """Each fault once."""
    half = PLANTED_GPUS // 2
    everyone = tuple(range(PLANTED_GPUS))
    twos = [(everyone[i : i + 2], 1.5 * LINK) for i in range(0, PLANTED_GPUS, 2)]
    return [
        Host(PLANTED_GPUS, [(everyone[:half], LINK), (everyone[half:], LINK)]),
        Host(PLANTED_GPUS, twos),
        Host(PLANTED_GPUS, [(everyone, 1.6 * LINK)]),
        Host(PLANTED_GPUS, slow={(-1, 3): LINK / 2}),
        Host(PLANTED_GPUS, slow={(2, 5): PEER / 2}),
    ]


SMALL, MIN_FOUND = "15 %", 0.95
SMALL_HOST = Host(PLANTED_GPUS, [((2, 5), 1.7 * LINK)])


def count(noise: str, maps: int, rng: Rng) -> Row:
    """One row. Of 16 GPUs there are fewer maps, because one takes long."""
    row = Row(noise, {}, {}, {}, {})
    draw = NOISES[noise]
    for rounds in ROUNDS:
        for gpus in GPUS:
            place = f"{rounds} rounds, {gpus} GPUs"
            row.maps[place] = maps if gpus < max(GPUS) else max(1, maps // 4)
            row.named[place] = sum(Host(gpus).named(draw, rounds, rng) != ([], set()) for _ in range(row.maps[place]))
        for name, hosts in (("faults", planted_hosts() * max(1, maps // 20)), (SMALL, [SMALL_HOST] * (maps // 4))):
            place = f"{rounds} rounds, {name}"
            row.planted[place] = len(hosts)
            row.found[place] = sum(host.named(draw, rounds, rng) == host.planted for host in hosts)
    return row


def header_and_lines(result: Maps) -> tuple[list[str], list[list[str]]]:
    """The table: a line for each model."""
    header = ["noise", *result.rows[0].maps, *(f"{place} found" for place in result.rows[0].planted)]
    lines = [
        [
            row.noise,
            *(f"{row.named[place]} of {row.maps[place]}" for place in row.maps),
            *(f"{row.found[place]} of {row.planted[place]}" for place in row.planted),
        ]
        for row in result.rows
    ]
    return header, lines


def markdown(result: Maps) -> str:
    """The table for docs/links.md."""
    header, lines = header_and_lines(result)
    return markdown_table(header, lines)


def misses(result: Maps) -> list[str]:
    """Models with more names than the stated rate allows, or faults that were not found."""
    found = []
    for row in result.rows:
        expected = sum(row.maps.values()) * result.error_rate
        if sum(row.named.values()) > expected + 3.1 * math.sqrt(expected):
            found.append(f"{row.noise}: {sum(row.named.values())} clean maps have a name, {expected:.1f} were expected")
        for place, planted in row.planted.items():
            if row.found[place] < planted * MIN_FOUND:
                found.append(f"{row.noise}, {place}: {row.found[place]} of {planted} were found")
    return found


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description="How often the map of links is right.")
    parser.add_argument("--maps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--export-json", type=Path)
    asked = parser.parse_args()
    if asked.export_json:
        check_writable(asked.export_json)
    seeds = np.random.SeedSequence(asked.seed).spawn(len(NOISES))
    rows = []
    for noise, seed in zip(NOISES, seeds, strict=True):
        rows.append(count(noise, asked.maps, np.random.default_rng(seed)))
        print(f"{noise}: done", file=sys.stderr)
    result = Maps(asked.seed, sharing.ERROR_RATE, tuple(rows))
    print(f"A name by chance is stated as {format_percent(result.error_rate)}.\n")
    print(shared.aligned(*header_and_lines(result)))
    return shared.conclude(result, asked.export_json, misses(result))


if __name__ == "__main__":
    shared.run_script(main)

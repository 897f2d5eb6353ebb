"""Simulated hosts: rates of GPUs whose links share uplinks, by max-min fairness, with noise as on a busy host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations

import numpy as np

LINK, NVLINK = 55.0, 390.0
NOISE, OUTLIERS, OUTLIER_LOSS = 0.008, 0.04, 0.3


@dataclass
class Host:
    """Eight GPUs by default. `uplinks`: members and capacity of each shared uplink; `slow`: rates of other links."""

    count: int = 8
    uplinks: Sequence[tuple[Sequence[int], float]] = ()
    slow: Mapping[tuple[int, int], float] = field(default_factory=dict)
    link: float = LINK

    def rates(self, active: Sequence[int]) -> dict[int, float]:
        """The rate of each active GPU's link, water-filled."""
        found: dict[int, float] = {}
        waiting = set(active)
        while waiting:
            limits = [(self.slow.get((-1, gpu), self.link), {gpu}) for gpu in waiting]
            for members, capacity in self.uplinks:
                inside = waiting & set(members)
                left = capacity - sum(found.get(gpu, 0.0) for gpu in members)
                if inside:
                    limits.append((left / len(inside), inside))
            least, held = min(limits, key=lambda limit: limit[0])
            found |= dict.fromkeys(held, least)
            waiting -= held
        return found

    def beside(self, seed: int, rounds: int = 6) -> dict[tuple[int, int], list[float]]:
        """The sum of both rates of every pair, by round."""
        random = np.random.default_rng(seed)
        sums = {}
        for one, other in combinations(range(self.count), 2):
            both = self.rates([one, other])
            sums[one, other] = list(self._noisy(both[one], random, rounds) + self._noisy(both[other], random, rounds))
        return sums

    def alone(self, seed: int, rounds: int = 6) -> dict[int, list[float]]:
        """The rate of every GPU by itself, by round."""
        random = np.random.default_rng(seed + 1_000_000)
        return {gpu: list(self._noisy(self.rates([gpu])[gpu], random, rounds)) for gpu in range(self.count)}

    def pair_rates(self, seed: int, rounds: int = 6) -> dict[tuple[int, int], list[float]]:
        random = np.random.default_rng(seed)
        pairs = permutations(range(self.count), 2)
        return {pair: list(self._noisy(self.slow.get(pair, NVLINK), random, rounds)) for pair in pairs}

    @staticmethod
    def _noisy(rate: float, random: np.random.Generator, rounds: int) -> np.ndarray:
        noise = np.exp(random.normal(0, NOISE, rounds))
        lost = np.where(random.random(rounds) < OUTLIERS, 1 - OUTLIER_LOSS * random.random(rounds), 1.0)
        return rate * noise * lost

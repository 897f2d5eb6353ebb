"""Which GPUs slow each other down, and which links are slower than the others: from measured rates alone.

A virtual machine hides the PCIe tree, but not that two GPUs share an uplink: beside each other they lose what they do
not lose beside the rest. Other work on a host only ever slows a round down, while wiring slows down every round, the
best ones too. So the best rounds of a pair or link are compared with the medians of what it is compared with. A loss
counts if it is beyond the noise, which all rows show together, and beyond a threshold, because rows of equal links
differ by a per cent or two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from pyxfer._document.intervals import quantile

Values = Sequence[float]
Pair = tuple[int, int]
Key = TypeVar("Key", int, Pair)

ERROR_RATE = 0.001
"""Chance that any pair or link of a map of independent ones is named."""
MIN_ROUNDS = 6
MIN_LIKE = 3
"""Fewer links of a kind do not tell which of them is usual."""
NAMED_BELOW = 0.9
"""Of the rates alone, or of the usual rate. Rows of equal links differ by some per cent."""

# Of this many rounds, the best one may be fast by chance and is left out.
_LUCKY = 12
# The best of normal values, and their median, deviate at most this many times as much as their mean would; their
# standard deviation is this many times their median deviation.
_BEST = 1.6
_NORMAL = 1.4826


@dataclass(frozen=True)
class Loss:
    """What a pair keeps of its rates alone, and the share that noise does not fall below."""

    keeps: float
    bound: float


def losses(
    alone: Mapping[int, Sequence[float]], beside: Mapping[Pair, Sequence[float]], error_rate: float = ERROR_RATE
) -> dict[Pair, Loss]:
    single, double = _with_rounds(alone), _with_rounds(beside)
    double = {pair: each for pair, each in double.items() if set(pair) <= single.keys()}
    if not double:
        return {}
    noise, freedom = _noise([*single.values(), *double.values()])
    z = quantile(1 - error_rate / len(double), freedom)
    found = {}
    for pair, each in double.items():
        fewest = min(len(each), *(len(single[device]) for device in pair))
        bound = 1 - z * _BEST * noise * math.sqrt(2 / fewest)
        found[pair] = Loss(_best(each) / sum(median(single[device]) for device in pair), bound)
    return found


def groups_of(found: Mapping[Pair, Loss]) -> list[tuple[int, ...]]:
    """Devices that lose beside each other: those that one can reach from another over pairs with a loss.

    A group must hold together: most of its measured pairs lose. Otherwise it is divided at its weakest pairs.
    """
    lossy = {pair for pair, loss in found.items() if loss.keeps < min(loss.bound, NAMED_BELOW)}
    groups: list[tuple[int, ...]] = []
    for members in _components(lossy):
        measured = [pair for pair in found if set(pair) <= members]
        if 2 * sum(pair in lossy for pair in measured) > len(measured):
            groups.append(tuple(sorted(members)))
        else:
            strong = {pair for pair in lossy if set(pair) <= members and _shares_partners(pair, lossy)}
            groups += [tuple(sorted(part)) for part in _components(strong)]
    return sorted(groups)


@dataclass(frozen=True)
class Slow:
    gbps: float
    usual_gbps: float


def slow_links(rates: Mapping[Pair, Sequence[float]], error_rate: float = ERROR_RATE) -> dict[Pair, Slow]:
    """The links that are slower than the usual one of their kind, by their rates in each round.

    Most links must be alike for any to be usual, so a minority of slow ones is named and a majority is not.
    """
    rounds = _with_rounds(rates)
    if len(rounds) < MIN_LIKE:
        return {}
    best = {link: _best(each) for link, each in rounds.items()}
    middles = {link: median(each) for link, each in rounds.items()}
    usual = median(middles.values())
    alike = [each for link, each in rounds.items() if best[link] >= NAMED_BELOW * usual]
    if 2 * len(alike) <= len(rounds):
        return {}
    noise, freedom = _noise(alike)
    z = quantile(1 - error_rate / len(rounds), freedom)
    return {
        link: Slow(middles[link], usual)
        for link, each in rounds.items()
        if best[link] < usual * min(1 - z * _BEST * noise / math.sqrt(len(each)), NAMED_BELOW)
    }


def _with_rounds(rates: Mapping[Key, Values]) -> dict[Key, list[float]]:
    return {key: [float(rate) for rate in each] for key, each in rates.items() if len(each) >= MIN_ROUNDS}


def _best(rates: Values) -> float:
    """The best round; of many rounds the second or third best."""
    return sorted(rates)[-1 - len(rates) // _LUCKY]


def _noise(rows: Sequence[Values]) -> tuple[float, float]:
    """The relative deviation of one round that all rows show together, without outliers; its degrees of freedom."""
    freedom = sum(len(each) - 1 for each in rows)
    rest = [abs(rate / middle - 1) for each in rows for middle in (median(each),) for rate in each]
    # Each row's median is taken from its own rounds, which are closer to it by this factor.
    correction = math.sqrt(len(rest) / freedom)
    # A median deviation knows the noise about as well as the standard deviation of a third of the values.
    return _NORMAL * median(rest) * correction, max(freedom / 3, 1.0)


def _components(pairs: set[Pair]) -> list[set[int]]:
    found: list[set[int]] = []
    for pair in pairs:
        joined = set(pair).union(*(part for part in found if part & set(pair)))
        found = [part for part in found if not part & joined] + [joined]
    return found


def _shares_partners(pair: Pair, pairs: set[Pair]) -> bool:
    """Whether both lose beside a third one too, or beside no other: a chance pair between two groups does not."""
    partners = [{other for each in pairs if place in each for other in each} - set(pair) for place in pair]
    return bool(partners[0] & partners[1]) or not (partners[0] or partners[1])

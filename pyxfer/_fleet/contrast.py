"""Facts that slow hosts share and others do not, with the chance that this is a coincidence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import exp, lgamma

import msgspec

from pyxfer._document.cells import Cell
from pyxfer._document.fleets import Contrast

_MAX_CONTRASTS = 5
_MAX_HINTS = 3
_IDENTIFIES = 0.5
"""A fact with more different values than this share of the hosts, such as a serial number, explains nothing."""

Key = tuple[bool, str]
"""Whether it is a label, and its name."""
Member = tuple[int, Mapping[Key, str]]
"""The place of a host in the fleet, and its facts."""


def facts_of(facts: Mapping[str, str], labels: Mapping[str, str]) -> dict[Key, str]:
    return {(is_label, name): given[name] for is_label, given in ((False, facts), (True, labels)) for name in given}


def contrasts(
    slow: Sequence[Member], others: Sequence[Member], cells: tuple[Cell, ...], error_rate: float
) -> tuple[Contrast, ...]:
    """The facts in which the slow hosts differ most from the others.

    A contrast is significant if its chance, times the number of facts tried, is at most the error rate. A few that are
    not significant are given as well if every slow host has the fact and no other host does.
    """
    found = [_contrast(slow, others, key, value, cells) for key, value in _candidates(slow, others)]
    ordered = sorted(found, key=lambda each: (each.chance, each.label, each.what, each.value))
    corrected = [
        msgspec.structs.replace(each, chance=chance, significant=chance <= error_rate)
        for each in ordered
        if each.slow > each.others
        for chance in [min(1.0, each.chance * len(found))]
    ]
    sure = [each for each in corrected if each.significant][:_MAX_CONTRASTS]
    hints = [each for each in corrected if not each.significant and each.slow == each.of_slow and not each.others]
    return tuple(sure or hints[:_MAX_HINTS])


def _candidates(slow: Sequence[Member], others: Sequence[Member]) -> list[tuple[Key, str]]:
    values: dict[Key, Counter[str]] = defaultdict(Counter)
    for _, facts in (*slow, *others):
        for key, value in facts.items():
            values[key][value] += 1
    useful = {key for key, counts in values.items() if 1 < len(counts) <= max(2, _IDENTIFIES * sum(counts.values()))}
    return list(dict.fromkeys(pair for _, facts in slow for pair in facts.items() if pair[0] in useful))


def _contrast(
    slow: Sequence[Member], others: Sequence[Member], key: Key, value: str, cells: tuple[Cell, ...]
) -> Contrast:
    with_fact = tuple(place for place, facts in slow if facts.get(key) == value)
    counts = (
        len(with_fact),
        sum(key in facts for _, facts in slow),
        sum(facts.get(key) == value for _, facts in others),
        sum(key in facts for _, facts in others),
    )
    return Contrast(
        what=key[1],
        value=value,
        label=key[0],
        slow=counts[0],
        of_slow=counts[1],
        others=counts[2],
        of_others=counts[3],
        chance=chance_of(*counts),
        significant=False,
        hosts=with_fact,
        cells=cells,
    )


def chance_of(slow: int, of_slow: int, others: int, of_others: int) -> float:
    """The chance that at least this number of the hosts with a fact are slow (Fisher's exact test)."""
    having, everyone = slow + others, of_slow + of_others
    whole = _log_choose(everyone, of_slow)
    terms = (
        exp(_log_choose(having, count) + _log_choose(everyone - having, of_slow - count) - whole)
        for count in range(slow, min(having, of_slow) + 1)
        if of_slow - count <= everyone - having
    )
    return min(1.0, sum(terms))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)

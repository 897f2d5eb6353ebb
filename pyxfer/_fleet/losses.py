"""Which hosts of a cohort lose in which cells, what loss could have been found, and which losses stay.

This is arithmetic on arrays alone. A figure is a logarithm of its ratio to the cohort's median, with losses below zero.
Rows are hosts, columns are cells; a missing figure is NaN. docs/fleet.md has the method and how often it is right
(bench/fleet_detection.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pyxfer._document.fleets import FleetSettings
from pyxfer._document.intervals import quantile

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
Answers = dict[tuple[int, int], bool | None]
"""For each flagged row and cell whether its loss stays; None if it was not measured again."""
CONTROLS = 2

_MAD_TO_SD = 1.4826
_MAD_EFFICIENCY = 0.37
"""The MAD of n normal figures is as uncertain as the standard deviation of 0.37 n of them."""
_MIN_GROUP_SHARE = 0.2
_TAIL_MARGIN = 4.0
"""The good side has few figures far out, so the two looks together get a quarter of the error rate."""
_MAX_HOSTS_OF_FEW = 100
"""One of more hosts moves neither the median nor the spread of its cohort."""
_FAR_DOWN = 1e6
_LIMIT_MARGIN = 5.0
"""A loss is missed by chance in the second look in a fifth of the cases that the power allows."""
_FEW_MARGIN = 3.0
"""Few hosts whose noise has two modes often show one of them only."""
_HALVINGS = 40
_TINY = 1e-12
_EMPTY_SHARE = 0.5
"""Of the distance of two groups' medians, how much has to be without any host."""
_GROUPS_APART = 6.0
_GROUP_HOSTS = (5, 6, 8, 10, 12, 16, 20, 30)
_GROUP_DISTANCES = (6000.0, 250.0, 75.0, 36.0, 28.0, 14.0, 8.5, 6.0)
"""Simulated: the 0.9999 quantile of the distance of such groups of equal hosts, normal and with heavy tails."""


@dataclass(frozen=True)
class Split:
    slower: Places
    faster: Places


@dataclass(frozen=True)
class Judged:
    """A cohort's figures in logarithms. `ratios` are against the median of the host's own group."""

    medians: Floats
    centres: Floats
    ratios: Floats
    spreads: Floats
    first: Floats
    again: Floats
    limits: Floats
    flagged: Flags
    splits: dict[int, Split]


def judge_figures(
    figures: Floats, errors: Floats, families: Sequence[int], tests: int, settings: FleetSettings
) -> Judged:
    """Judge the logarithms of a cohort's figures, whose losses are negative.

    `errors`: their standard errors within the host, NaN if not known. `families`: of each cell; cells of one family
    have the same noise. `tests`: the number of figures in the whole fleet, over which the error rate is kept.
    """
    medians = _medians(figures)
    deviations = figures - medians
    groups = {cell: find_groups(deviations[:, cell], settings) for cell in range(figures.shape[1])}
    splits = {cell: split for cell, split in groups.items() if split is not None}
    centres = _centres(figures, splits)
    for cell, split in splits.items():
        medians[cell] = centres[split.faster[0], cell]
    ratios = figures - centres
    own_spreads = _MAD_TO_SD * _medians(np.abs(ratios))
    usual = np.array([np.nanmedian(own_spreads[members]) for members in _members(families)])
    # Few hosts do not show a cell's spread reliably, so that of its family counts if it is larger.
    spreads: Floats = np.fmax(own_spreads, usual[np.asarray(families)])
    noise = [_good_side(ratios[:, members], spreads[members]) for members in _members(families)]
    hosts = np.count_nonzero(~np.isnan(ratios), axis=0)
    tails = _tails(noise, families, hosts, _two_looks(tests, settings), _FEW_MARGIN)
    first, again = _thresholds(spreads, tails, tests, settings)
    sureness = _normal(settings.error_rate / tests)
    with np.errstate(invalid="ignore"):
        flagged = ratios < -np.fmax(first, sureness * errors)
    if figures.shape[0] > _MAX_HOSTS_OF_FEW:
        own = sureness * _usual_errors(errors, settings.power)
        limits = _limits(np.fmax(first, own), again, spreads, noise, families, settings)
    else:
        reach = _tails(noise, families, hosts, (1 - settings.power) / _LIMIT_MARGIN)
        limits = _limits_of_few(figures, sureness * errors, splits, spreads, (tails, reach), tests, settings)
    return Judged(medians, centres, ratios, spreads, first, again, limits, flagged, splits)


def shift_of(controls: Floats) -> Floats:
    """How far the controls' cells have all fallen when they were measured again: that is not the hosts' own loss.

    One control that has not fallen is enough to say that the cohort has not.
    """
    if not len(controls):
        return np.zeros(controls.shape[1])
    best = np.max(np.where(np.isnan(controls), -np.inf, controls), axis=0)
    return np.where(np.isfinite(best), np.minimum(best, 0.0), 0.0)


def confirmed(looks: Floats, least: float) -> bool:
    """Whether the measurements after the first show a loss: all together, and most of them."""
    return bool(np.median(looks) <= -least and np.count_nonzero(looks <= -least) * 2 > looks.size)


def is_chance(hosts: int, flagged: int, looked_again: int, kept: int, error_rate: float) -> bool:
    """Whether chance explains the number of hosts that are flagged twice: the cell often has a low figure at random.

    The hosts that were flagged and then were not low show how often that is.
    """
    again = flagged / hosts * (1 - kept / looked_again)
    expected = hosts * again * again
    at_most = sum(math.exp(-expected) * expected**count / math.factorial(count) for count in range(min(kept, 150)))
    return 1 - at_most > error_rate


def find_groups(figures: Floats, settings: FleetSettings) -> Split | None:
    """Two groups of hosts with nothing in between, each of a fifth of the hosts or more.

    The largest gap between neighbours separates them.
    """
    known = np.flatnonzero(~np.isnan(figures))
    least = max(2, int(np.ceil(_MIN_GROUP_SHARE * known.size)))
    if known.size < settings.smallest_cohort or known.size < 2 * least:
        return None
    order = known[np.argsort(figures[known], kind="stable")]
    ordered = figures[order]
    gaps = ordered[least : known.size - least + 1] - ordered[least - 1 : known.size - least]
    place = least + int(np.argmax(gaps))
    slower, faster = ordered[:place], ordered[place:]
    distance = float(np.median(faster) - np.median(slower))
    inside = np.concatenate([np.abs(slower - np.median(slower)), np.abs(faster - np.median(faster))])
    spread = _MAD_TO_SD * float(np.median(inside))
    spreads_apart = float(np.exp(np.interp(known.size, _GROUP_HOSTS, np.log(_GROUP_DISTANCES))))
    apart = max(spreads_apart * spread, _GROUPS_APART * settings.least_spread, settings.least_loss)
    if distance < apart or float(np.max(gaps)) < _EMPTY_SHARE * distance:
        return None
    return Split(order[:place], order[place:])


def _two_looks(tests: int, s: FleetSettings) -> float:
    """The chance that noise with heavy tails passes one of the two looks at a host in a cell."""
    return math.sqrt(s.error_rate / tests / _TAIL_MARGIN)


def _tails(
    noise: Sequence[Floats], families: Sequence[int], hosts: NDArray[np.int_], chance: float, margin: float = 1.0
) -> Floats:
    """For each cell the distance in spreads that noise passes in one look with this chance; `margin` for few hosts."""
    place = max(0.0, 1 - 2 * chance)
    upper = np.array([np.quantile(each, place) if each.size else 0.0 for each in noise])[np.asarray(families)]
    tails: Floats = np.maximum(upper, [_unsure(chance / margin, int(count)) for count in hosts])
    return tails


@lru_cache(maxsize=4096)
def _unsure(chance: float, hosts: int) -> float:
    """The distance in spreads that normal noise passes with this chance if the spread is estimated from few hosts."""
    return -quantile(chance, max(1.0, _MAD_EFFICIENCY * (hosts - 1)))


def _thresholds(spreads: Floats, tails: Floats, tests: int, s: FleetSettings) -> tuple[Floats, Floats]:
    """From which loss a host is flagged, and confirmed; `spreads` may have a row for each of several hosts.

    The first look keeps the error rate by itself if hosts differ normally; both looks together keep it if the noise has
    heavy tails, which the good side shows: nothing makes a host too fast.
    """
    least = np.maximum(spreads * tails, -math.log1p(-s.least_loss))
    assumed = np.maximum(spreads, s.least_spread)
    return (
        np.maximum(least, _normal(s.error_rate / tests) * assumed),
        np.maximum(least, _normal(_two_looks(tests, s)) * assumed),
    )


def _limits_of_few(
    figures: Floats,
    own: Floats,
    splits: Mapping[int, Split],
    spreads: Floats,
    tails: tuple[Floats, Floats],
    tests: int,
    s: FleetSettings,
) -> Floats:
    """The loss of any host that is flagged and confirmed with the settings' power.

    A slow host among few moves the median and widens the spread that judge it. So the loss is put into each host in
    turn: first into its own figure, which is known, and then into a second one, which differs by chance. `tails`: the
    distances in spreads beyond which noise is not expected, and which a second figure rarely passes.
    """
    needed = np.full(figures.shape, np.nan)
    for host in range(figures.shape[0]):
        lost = figures.copy()
        lost[host] = np.where(np.isnan(figures[host]), np.nan, -_FAR_DOWN)
        centres = _centres(lost, splits)
        wider = np.fmax(spreads, _MAD_TO_SD * _medians(np.abs(lost - centres)))
        first, again = _thresholds(wider, tails[0], tests, s)
        needed[host] = np.maximum(np.fmax(first, own[host]) + figures[host] - centres[host], again + wider * tails[1])
    limits: Floats = np.nanquantile(needed, (1 + s.power) / 2, axis=0, method="higher")
    return limits


def _centres(figures: Floats, splits: Mapping[int, Split]) -> Floats:
    """For each figure the median that it is held against: of its cell, or of its group there."""
    centres: Floats = np.broadcast_to(_medians(figures), figures.shape).copy()
    for cell, split in splits.items():
        for group in (split.slower, split.faster):
            centres[group, cell] = np.median(figures[group, cell])
    return centres


def _limits(
    first: Floats, again: Floats, spreads: Floats, noise: Sequence[Floats], families: Sequence[int], s: FleetSettings
) -> Floats:
    """The smallest loss that is flagged and confirmed with the settings' power, under the noise of the good side."""
    limits = np.empty(first.size)
    for cell, family in enumerate(families):
        low, high = max(first[cell], again[cell]), max(first[cell], again[cell]) + 100 * spreads[cell]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            found = 1.0
            for least in (first[cell], again[cell]):
                found *= 1 - _share_above(noise[family], (middle - least) / max(spreads[cell], _TINY)) / 2
            low, high = (low, middle) if found >= s.power else (middle, high)
        limits[cell] = high
    return limits


def _usual_errors(errors: Floats, share: float) -> Floats:
    """For each cell the standard error that this share of the hosts do not exceed; 0 if none is known."""
    known = [column[~np.isnan(column)] for column in errors.T]
    return np.array([float(np.quantile(column, share, method="higher")) if column.size else 0.0 for column in known])


def _medians(figures: Floats) -> Floats:
    """The median of each column's known figures; like `numpy.nanmedian`, which is slow for few rows."""
    ordered, known = np.sort(figures, axis=0), np.count_nonzero(~np.isnan(figures), axis=0)
    middle = [np.take_along_axis(ordered, place[np.newaxis], axis=0)[0] for place in ((known - 1) // 2, known // 2)]
    medians: Floats = (middle[0] + middle[1]) / 2
    return medians


def _members(families: Sequence[int]) -> list[Places]:
    numbers = np.asarray(families)
    return [np.flatnonzero(numbers == family) for family in range(numbers.max() + 1)]


def _good_side(ratios: Floats, spreads: Floats) -> Floats:
    return np.sort((ratios / np.maximum(spreads, _TINY))[ratios > 0])


def _share_above(distances: Floats, least: float) -> float:
    return 1 - float(np.searchsorted(distances, least, side="right")) / distances.size if distances.size else 0.0


def _normal(chance: float) -> float:
    return -NormalDist().inv_cdf(chance)


# --- flagged hosts that were measured again ---------------------------------------------------------------------------


def controls_of(judged: Judged) -> frozenset[int]:
    """The two rows nearest to the medians among those without a flag, if any row has one."""
    if not judged.flagged.any():
        return frozenset()
    far = np.nanmax(np.abs(judged.ratios), axis=1, initial=0.0)
    usual = [row for row in np.argsort(far, kind="stable") if not judged.flagged[row].any()]
    return frozenset(int(row) for row in usual[:CONTROLS])


def looks_again(judged: Judged, measured: Mapping[int, Floats]) -> dict[int, Floats]:
    """For each flagged row its ratios when it was measured again: one row a measurement, one column a cell.

    `measured` has the figures of flagged rows and of controls, which show how far everything has shifted since. Without
    any of the controls that there are, nothing is known, and no row has a look.
    """
    flagged = np.asarray(judged.flagged.any(axis=1))
    ratios = {row: figures - judged.centres[row] for row, figures in measured.items()}
    controls = [look for row, looks in ratios.items() if not flagged[row] for look in looks]
    if not controls and controls_of(judged):
        return {}
    shift = shift_of(np.array(controls).reshape(len(controls), judged.ratios.shape[1]))
    return {row: looks - shift for row, looks in ratios.items() if flagged[row]}


def answers_of(judged: Judged, looks: Mapping[int, Floats], settings: FleetSettings) -> tuple[Answers, list[int]]:
    """Whether each loss stays, and the cells that are low now on one host and now on another."""
    answers: Answers = {}
    for row, cell in zip(*np.nonzero(judged.flagged), strict=True):
        place = (int(row), int(cell))
        seen = looks[place[0]][:, cell] if place[0] in looks else np.array([])
        seen = seen[~np.isnan(seen)]
        answers[place] = confirmed(seen, float(judged.again[cell])) if seen.size else None
    unsteady = [cell for cell in sorted({cell for _, cell in answers}) if _is_unsteady(judged, answers, cell, settings)]
    answers.update({place: False for place, answer in answers.items() if place[1] in unsteady and answer})
    return answers, unsteady


def _is_unsteady(judged: Judged, answers: Answers, cell: int, settings: FleetSettings) -> bool:
    given = [answer for (_, column), answer in answers.items() if column == cell and answer is not None]
    kept = sum(given)
    if not kept or kept == len(given):
        return False
    hosts = int(np.count_nonzero(~np.isnan(judged.ratios[:, cell])))
    flagged = int(np.count_nonzero(judged.flagged[:, cell]))
    return is_chance(hosts, flagged, len(given), kept, settings.error_rate)

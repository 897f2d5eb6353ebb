"""Limits of the figures of a run. What follows from other figures is computed again instead (`derivations`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

from pyxfer._document.baselines import Comparison
from pyxfer._document.machines import GIGATRANSFERS, Device, Fact, Link, LinkState
from pyxfer._document.runs import IGNORED_BYTES, IGNORED_SHARE, INFLATED, Measurement, Run, Summary, Trial
from pyxfer._document.watches import Watched
from pyxfer.errors import DocumentError

Problems = Iterator[tuple[str, str]]
Document = TypeVar("Document")

WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Lanes of a PCI Express link."""
MOST_DEVICES = 1024
PAYLOADS = tuple(128 << step for step in range(6))


def refuse(source: str, problems: Problems) -> None:
    """Refuse a document for its first problem, if it has any."""
    for field, problem in problems:
        raise DocumentError(f"{source}: {field} {problem}; it was changed after pyxfer wrote it, so measure again")


def check_run(run: Run, source: str) -> None:
    """Refuse a run with figures that no run has."""
    refuse(source, _problems(run))


def check_watch(watched: Watched, source: str) -> None:
    """Refuse a watch with figures that none has."""
    refuse(source, _watch_problems(watched))


def _watch_problems(watched: Watched) -> Problems:
    yield from machine_problems(watched.device, watched.link)
    yield from negative(*((name, getattr(watched, name).value) for name in ("used_before_bytes", "used_after_bytes")))
    activity = watched.activity.value
    if activity is None:
        return
    for i, copies in enumerate(activity.copies):
        if copies.way in ("d2d", "p2p") and copies.memory in ("pageable", "pinned"):
            yield f"activity.value.copies[{i}].memory", f"is {copies.memory}, of copies that have no host memory"
    for i, call in enumerate(activity.surprises):
        yield from negative(*((f"activity.value.surprises[{i}].{name}", getattr(call, name)) for name in _OF_CALLS))
    for i, row in enumerate(activity.allocated):
        counts = ((row.allocations, row.allocated_bytes), (row.releases, row.released_bytes))
        if any(not 0 <= count <= nbytes for count, nbytes in counts):
            yield f"activity.value.allocated[{i}]", "has fewer bytes than calls, or a negative number"


_OF_CALLS = ("count", "nbytes", "seconds")


def machine_problems(device: Device, link: Link, place: str = "") -> Problems:
    """Limits of a device and of its link."""
    yield from device_problems(f"{place}device", device)
    yield from within(f"{place}link", link_problems(link))


def check_comparison(comparison: Comparison, source: str) -> None:
    """Refuse a comparison with figures that none has."""
    refuse(source, _comparison_problems(comparison))


def _comparison_problems(comparison: Comparison) -> Problems:
    if not 0 < comparison.tolerance < 1:
        yield "tolerance", f"is {comparison.tolerance:g}"
    low, mean, high = (getattr(comparison, name).value for name in ("overall_low", "overall", "overall_high"))
    yield from _ratio_problems("overall", low, mean, high)
    for i, row in enumerate(comparison.cells):
        yield from within(f"cells[{i}]", _ratio_problems("ratio", row.low.value, row.ratio.value, row.high.value))
        for name in ("a_gbps", "b_gbps", "a_s", "b_s"):
            yield from not_positive((f"cells[{i}].{name}", getattr(row, name).value))
        yield from negative((f"cells[{i}].a_processes", row.a_processes), (f"cells[{i}].b_processes", row.b_processes))


def _ratio_problems(name: str, low: float | None, ratio: float | None, high: float | None) -> Problems:
    known = [each for each in (low, ratio, high) if each is not None]
    if len(known) not in (0, 3):
        yield name, "is not there with both ends of its interval"
    elif known and not 0 < known[0] <= known[1] <= known[2] < math.inf:
        yield name, f"is {known[1]:g}, from {known[0]:g} to {known[2]:g}"


def within(place: str, found: Problems) -> Problems:
    """The problems with the place of what has them before each field."""
    for field, problem in found:
        yield f"{place}.{field}", problem


def _problems(run: Run) -> Problems:
    parameters = run.parameters
    yield from not_positive(
        ("parameters.precision", parameters.precision),
        ("parameters.budget_s", parameters.budget_s),
        *((f"parameters.sizes_bytes[{i}]", size) for i, size in enumerate(parameters.sizes_bytes)),
        *((f"parameters.batches[{i}]", count) for i, count in enumerate(parameters.batches)),
    )
    yield from negative(("duration_s", run.duration_s))
    yield from machine_problems(run.device, run.link)
    for i, row in enumerate(run.measurements):
        yield from within(f"measurements[{i}]", row_problems(row, run.link))
    yield from _asked_problems(run)
    if len({cost.memory for cost in run.locking}) != len(run.locking):
        yield "locking", "has a memory twice"
    for i, cost in enumerate(run.locking):
        yield from not_positive((f"locking[{i}].nbytes", cost.nbytes))
        if cost.memory == "pageable":
            yield f"locking[{i}].memory", "is pageable, which is not page-locked"
        if cost.summary is not None:
            yield from _order_problems(f"locking[{i}].summary", cost.summary)


def _asked_problems(run: Run) -> Problems:
    """Each row is there once, and its direction and its fresh memory were asked for."""
    seen: set[tuple[object, ...]] = set()
    for i, row in enumerate(run.measurements):
        key = (row.route, row.direction, row.side, row.variant, row.nbytes, row.batch, row.worker)
        if key in seen:
            yield f"measurements[{i}]", f"has the direction {row.direction} and is {row.variant}, as another row"
        seen.add(key)
        if row.direction not in run.parameters.directions:
            yield f"measurements[{i}].direction", f"is {row.direction}, which the run was not asked for"
        if row.variant == "fresh" and not run.parameters.fresh:
            yield f"measurements[{i}].variant", "is fresh, which the run was not asked for"


def device_problems(place: str, device: Device) -> Problems:
    """CUDA numbers the devices of a host from zero on, and there are some tens of them."""
    if not 0 <= device.index < MOST_DEVICES:
        yield f"{place}.index", f"is {device.index}"
    yield from negative((f"{place}.memory_bytes", device.memory_bytes))


def link_problems(link: Link) -> Problems:
    """A link has states of PCI Express, and is not above what its device and its slot can do."""
    payload = link.max_payload_bytes.value
    if payload is not None and payload not in PAYLOADS:
        yield "max_payload_bytes", f"is {payload}"
    states = {name: getattr(link, name).value for name in ("now", "under_load", "device_most", "system_most")}
    for i, hop in enumerate(link.hops):
        states |= {f"hops[{i}].now": hop.now.value, f"hops[{i}].most": hop.most.value}
    for name, state in states.items():
        if state is not None and (state.generation not in GIGATRANSFERS or state.width not in WIDTHS):
            yield name, f"is generation {state.generation} with {state.width} lanes"
    yield from _beyond_most(states["now"], (link.device_most, link.system_most), "now")
    yield from _beyond_most(states["under_load"], (link.device_most, link.system_most), "under_load")
    for i, hop in enumerate(link.hops):
        yield from _beyond_most(hop.now.value, (hop.most,), f"hops[{i}].now")


def _beyond_most(state: LinkState | None, limits: Sequence[Fact[LinkState]], name: str) -> Problems:
    for most in (limit.value for limit in limits):
        if state is None or most is None:
            continue
        if state.generation > most.generation or state.width > most.width:
            yield name, "is more than the link can do"


def row_problems(row: Measurement, link: Link) -> Problems:
    """Numbers are not negative, quantiles are in order, and no rate is above what the link can carry."""
    yield from negative(("nbytes", row.nbytes), ("first_s", row.first_s.value))
    yield from not_positive(("batch", row.batch))
    yield from _trial_problems(row.trials)
    for name in ("summary", "dispatch", "wall"):
        summary = getattr(row, name)
        if summary is not None:
            yield from _order_problems(name, summary)
    yield from _crossed_problems(row)
    rate, share, most = row.rate.value, row.ceiling_share.value, link.most_gbps(row.side)
    if rate is not None and most is not None and rate.gbps > most:
        yield "rate.gbps", f"is {rate.gbps:g}, above the {most:g} that the link can carry"
    if share is not None:
        yield from interval_problems("ceiling_share.low", "high", (share.low, share.value, share.high))


def _crossed_problems(row: Measurement) -> Problems:
    """A route with a rate has moved all bytes, and a remark tells if more crossed the link."""
    found, least = row.dma.value, row.nbytes * min(1.0, row.nature.inflation if row.nature is not None else 1.0)
    if found is None or row.rate.value is None:
        return
    most = row.nbytes + max(IGNORED_SHARE * row.nbytes, IGNORED_BYTES)
    if found.nbytes < int(least) or (found.nbytes > most) != any(each.code == INFLATED for each in row.remarks):
        yield "dma.nbytes", f"is {found.nbytes} of a route that moves {row.nbytes}"


def _trial_problems(trials: Sequence[Trial]) -> Problems:
    rounds: set[int] = set()
    for i, trial in enumerate(trials):
        amounts = (trial.round, trial.elapsed_s, trial.dispatch_s, trial.wall_s, trial.faults, trial.copies - 1)
        if any(amount is not None and amount < 0 for amount in amounts):
            yield f"trials[{i}]", "has a negative number"
        if trial.round in rounds:
            yield f"trials[{i}].round", f"is {trial.round}, as that of an earlier trial"
        rounds.add(trial.round)


def _order_problems(name: str, summary: Summary) -> Problems:
    yield from not_positive((f"{name}.n", summary.n))
    parts = ("min_s", "q1_s", "median_s", "q3_s", "max_s")
    values = [getattr(summary, part) for part in parts]
    if not values[0] >= 0 or values != sorted(values) or not values[-1] < math.inf:
        yield name, f"has {', '.join(parts)} that are not in this order"
    yield from interval_problems(f"{name}.low_s", "high_s", (summary.low_s, summary.median_s, summary.high_s))


def interval_problems(low_name: str, high_name: str, figures: tuple[float | None, float, float | None]) -> Problems:
    """Both ends are there or none, and they enclose the figure."""
    low, middle, high = figures
    if (low is None) != (high is None):
        yield low_name, f"and {high_name} are not both there"
    elif low is not None and high is not None and not 0 <= low <= middle <= high:
        yield low_name, f"and {high_name}, {low:g} and {high:g}, do not enclose {middle:g}"


def negative(*fields: tuple[str, float | None]) -> Problems:
    """The fields that are below zero."""
    for name, value in fields:
        if value is not None and value < 0:
            yield name, f"is {value:g}"


def not_positive(*fields: tuple[str, float | None]) -> Problems:
    """The fields that are not above zero."""
    for name, value in fields:
        if value is not None and value <= 0:
            yield name, f"is {value:g}"

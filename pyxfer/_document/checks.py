"""Limits of the figures of all documents. What follows from other figures is computed again (`derivations`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyxfer._document import links
from pyxfer._document.baselines import Baseline, CellComparison, Comparison
from pyxfer._document.cells import is_of_host
from pyxfer._document.derivations import TOLERANCE
from pyxfer._document.examinations import Examination
from pyxfer._document.fleets import MAX_FIGURE, MIN_FIGURE, Cohort, Fleet, FleetHost, HostCell, HostReport
from pyxfer._document.links import HOST_END, Links
from pyxfer._document.machines import GIGATRANSFERS, Device, Link, LinkState
from pyxfer._document.runs import IGNORED_BYTES, IGNORED_SHARE, INFLATED, LockingCost, Measurement, Run, Summary, Trial
from pyxfer._document.sessions import Tested, XferSession
from pyxfer._document.watches import CopyClass, Surprise, Watched
from pyxfer.errors import DocumentError

T = TypeVar("T")
Problems = Iterator[tuple[str, str]]
"""The path of a field, such as `measurements[3].trials[0]`, and what is wrong with it."""

MAX_RUNS = 1000
"""In one baseline."""
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
"""Lanes of a PCI Express link."""
MAX_DEVICES = 1024
PAYLOADS = tuple(128 << step for step in range(6))


def refuse(source: str, problems: Problems) -> None:
    for field, problem in problems:
        raise DocumentError(f"{source}: {field} {problem}, so it was changed after pyxfer wrote it: measure again.")


def within(place: str, found: Problems) -> Problems:
    """The problems with the place of what has them before each field."""
    for field, problem in found:
        yield f"{place}.{field}" if field else place, problem


def of_each(place: str, items: Iterable[T], check: Callable[[T], Problems]) -> Problems:
    for i, item in enumerate(items):
        yield from within(f"{place}[{i}]", check(item))


def repeated(name: str, keys: Collection[Hashable]) -> Problems:
    if len(set(keys)) != len(keys):
        yield name, "has something twice"


def negative(*fields: tuple[str, float | None]) -> Problems:
    """The fields that are below zero or not finite."""
    for name, value in fields:
        if value is not None and not 0 <= value < math.inf:
            yield name, f"is {value:g}"


def not_positive(*fields: tuple[str, float | None]) -> Problems:
    """The fields that are not above zero, or not finite."""
    for name, value in fields:
        if value is not None and not 0 < value < math.inf:
            yield name, f"is {value:g}"


def interval_problems(low_name: str, high_name: str, figures: tuple[float | None, float, float | None]) -> Problems:
    low, middle, high = figures
    if (low is None) != (high is None):
        yield low_name, f"and {high_name} are not both there"
    elif low is not None and high is not None and not 0 <= low <= middle <= high:
        yield low_name, f"and {high_name}, {low:g} and {high:g}, do not enclose {middle:g}"


# --- the machine -----------------------------------------------------------------------------------------------------


def machine_problems(device: Device, link: Link) -> Problems:
    """CUDA numbers the devices of a host from zero on, and there are some tens of them."""
    if not 0 <= device.index < MAX_DEVICES:
        yield "device.index", f"is {device.index}"
    yield from negative(("device.memory_bytes", device.memory_bytes))
    yield from within("link", link_problems(link))


def link_problems(link: Link) -> Problems:
    """A link has states of PCI Express, and is not above what its device and its slot can do."""
    payload = link.max_payload_bytes.value
    if payload is not None and payload not in PAYLOADS:
        yield "max_payload_bytes", f"is {payload}"
    limits = (link.device_most.value, link.system_most.value)
    states: dict[str, tuple[LinkState | None, tuple[LinkState | None, ...]]] = {
        "now": (link.now.value, limits),
        "under_load": (link.under_load.value, limits),
        "device_most": (limits[0], ()),
        "system_most": (limits[1], ()),
    }
    for i, hop in enumerate(link.hops):
        states |= {f"hops[{i}].now": (hop.now.value, (hop.most.value,)), f"hops[{i}].most": (hop.most.value, ())}
    for name, (state, most) in states.items():
        if state is not None and (state.generation not in GIGATRANSFERS or state.width not in WIDTHS):
            yield name, f"is generation {state.generation} with {state.width} lanes"
        if any(_is_beyond(state, limit) for limit in most):
            yield name, "is more than the link can do"


def _is_beyond(state: LinkState | None, most: LinkState | None) -> bool:
    if state is None or most is None:
        return False
    return state.generation > most.generation or state.width > most.width


# --- runs, and what has their rows -----------------------------------------------------------------------------------


def run_problems(run: Run) -> Problems:
    parameters = run.parameters
    yield from not_positive(
        ("parameters.precision", parameters.precision),
        ("parameters.budget_s", parameters.budget_s),
        *((f"parameters.sizes_bytes[{i}]", size) for i, size in enumerate(parameters.sizes_bytes)),
        *((f"parameters.batches[{i}]", count) for i, count in enumerate(parameters.batches)),
    )
    yield from negative(("duration_s", run.duration_s))
    yield from machine_problems(run.device, run.link)
    yield from of_each("measurements", run.measurements, lambda row: row_problems(row, run.link))
    yield from _asked_problems(run)
    yield from repeated("locking", [cost.memory for cost in run.locking])
    yield from of_each("locking", run.locking, _locking_problems)


def _asked_problems(run: Run) -> Problems:
    """Each row is there once, and its direction, its fresh memory and the explained route were asked for."""
    rows = run.measurements
    keys = [(row.route, row.direction, row.side, row.variant, row.nbytes, row.batch, row.worker) for row in rows]
    yield from repeated("measurements", keys)
    for i, row in enumerate(rows):
        if row.direction not in run.parameters.directions:
            yield f"measurements[{i}].direction", f"is {row.direction}, which the run was not asked for"
        if row.variant == "fresh" and not run.parameters.fresh:
            yield f"measurements[{i}].variant", "is fresh, which the run was not asked for"
    explained, has_rows = run.parameters.explained, bool(rows) or run.ended == "complete"
    if run.kind == "explain" and has_rows and all(row.route != explained for row in rows):
        yield "parameters.explained", f"is {explained!r:.80}, of which it has no measurement"


def _locking_problems(cost: LockingCost) -> Problems:
    yield from not_positive(("nbytes", cost.nbytes))
    if cost.memory == "pageable":
        yield "memory", "is pageable, which is not page-locked"
    if cost.summary is not None:
        yield from _summary_problems("summary", cost.summary)


def row_problems(row: Measurement, link: Link) -> Problems:
    """Numbers are not negative, quantiles are in order, and no rate is above what the link can carry."""
    yield from negative(("nbytes", row.nbytes), ("first_s", row.first_s.value))
    yield from not_positive(("batch", row.batch))
    yield from _trial_problems(row.trials)
    for name in ("summary", "dispatch", "wall"):
        summary = getattr(row, name)
        if summary is not None:
            yield from _summary_problems(name, summary)
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


def _summary_problems(name: str, summary: Summary) -> Problems:
    yield from not_positive((f"{name}.n", summary.n))
    parts = ("min_s", "q1_s", "median_s", "q3_s", "max_s")
    values = [getattr(summary, part) for part in parts]
    if not values[0] >= 0 or values != sorted(values) or not values[-1] < math.inf:
        yield name, f"has {', '.join(parts)} that are not in this order"
    yield from interval_problems(f"{name}.low_s", "high_s", (summary.low_s, summary.median_s, summary.high_s))


def baseline_problems(baseline: Baseline) -> Problems:
    if not 1 <= len(baseline.processes) <= MAX_RUNS or (baseline.runs and baseline.links):
        yield "runs", f"are {len(baseline.processes)}; a baseline has 1 to {MAX_RUNS}, of one link or of all links"
    yield from of_each("runs", baseline.runs, run_problems)
    yield from of_each("links", baseline.links, links_problems)


def examination_problems(examination: Examination) -> Problems:
    yield from within("run", run_problems(examination.run))
    if examination.links is not None:
        yield from within("links", links_problems(examination.links))


def session_problems(session: XferSession) -> Problems:
    places = session.places
    yield from of_each("places", places, lambda place: machine_problems(place.device, place.link))

    def of_test(result: Tested) -> Problems:
        if not 0 <= result.place < len(places):
            yield "place", "is none of the places"
            return
        for name, row in (("measurement", result.measurement), ("ceiling.value", result.ceiling.value)):
            if row is not None:
                yield from within(name, row_problems(row, places[result.place].link))

    yield from of_each("tests", session.tests, of_test)


def watch_problems(watched: Watched) -> Problems:
    yield from machine_problems(watched.device, watched.link)
    yield from negative(*((name, getattr(watched, name).value) for name in ("used_before_bytes", "used_after_bytes")))
    activity = watched.activity.value
    if activity is None:
        return
    yield from of_each("activity.value.copies", activity.copies, _copies_problems)
    yield from of_each("activity.value.surprises", activity.surprises, _surprise_problems)
    for i, row in enumerate(activity.allocated):
        counts = ((row.allocations, row.allocated_bytes), (row.releases, row.released_bytes))
        if any(not 0 <= count <= nbytes for count, nbytes in counts):
            yield f"activity.value.allocated[{i}]", "has fewer bytes than calls, or a negative number"


def _copies_problems(copies: CopyClass) -> Problems:
    if copies.way in ("d2d", "p2p") and copies.memory in ("pageable", "pinned"):
        yield "memory", f"is {copies.memory}, of copies that have no host memory"


def _surprise_problems(call: Surprise) -> Problems:
    return negative(("count", call.count), ("nbytes", call.nbytes), ("seconds", call.seconds))


def comparison_problems(comparison: Comparison) -> Problems:
    if not 0 < comparison.tolerance < 1:
        yield "tolerance", f"is {comparison.tolerance:g}"
    low, mean, high = (getattr(comparison, name).value for name in ("overall_low", "overall", "overall_high"))
    yield from _ratio_problems("overall", low, mean, high)
    yield from of_each("cells", comparison.cells, _compared_problems)


def _compared_problems(row: CellComparison) -> Problems:
    yield from _ratio_problems("ratio", row.low.value, row.ratio.value, row.high.value)
    yield from not_positive(*((name, getattr(row, name).value) for name in ("a_gbps", "b_gbps", "a_s", "b_s")))
    yield from negative(("a_processes", row.a_processes), ("b_processes", row.b_processes))


def _ratio_problems(name: str, low: float | None, ratio: float | None, high: float | None) -> Problems:
    known = [each for each in (low, ratio, high) if each is not None]
    if len(known) not in (0, 3):
        yield name, "is not there with both ends of its interval"
    elif known and not 0 < known[0] <= known[1] <= known[2] < math.inf:
        yield name, f"is {known[1]:g}, from {known[0]:g} to {known[2]:g}"


# --- links -----------------------------------------------------------------------------------------------------------


def links_problems(run: Links) -> Problems:
    known = [each.device.index for each in run.devices]
    if not known or len(set(known)) != len(known) or tuple(known) != run.parameters.devices:
        yield "devices", "are not those of the parameters, each once"
        return
    parameters, rows = run.parameters, run.traffics
    yield from not_positive(
        ("parameters.precision", parameters.precision), ("parameters.budget_s", parameters.budget_s)
    )
    yield from negative(("duration_s", run.duration_s))
    keys = [(row.group, row.case, row.engine, *map(row.key, range(len(row.flows)))) for row in rows]
    yield from repeated("traffics", keys)
    yield from repeated("small", [(row.device, row.direction, row.way, row.nbytes) for row in run.small])
    yield from of_each("devices", run.devices, lambda each: within("link", link_problems(each.link)))
    yield from of_each("traffics", rows, lambda row: _traffic_problems(row, known))
    yield from of_each("latencies", run.latencies, lambda row: _latency_problems(row, known))
    yield from of_each("small", run.small, lambda row: _small_problems(row, known))
    sharing = run.sharing
    if sharing is not None and not 0 <= sharing.pairs_measured <= sharing.pairs:
        yield "sharing.pairs", f"is {sharing.pairs}, of which {sharing.pairs_measured} were measured"


def _traffic_problems(row: links.Traffic, known: Sequence[int]) -> Problems:
    if row.nbytes <= 0 or not row.flows:
        yield "nbytes", "or flows is empty"
        return
    yield from repeated("trials", [trial.round for trial in row.trials])
    yield from of_each("trials", row.trials, lambda trial: _link_trial_problems(trial, len(row.flows)))
    sides = {flow.side for flow in row.flows}
    way = "both" if len(sides) > 1 else min(sides)
    if row.group in ("host", "together") and not row.case.endswith(way):
        yield "case", f"is {row.case!r:.40} of copies {way}"
    if (row.group == "pairs") != (sides == {"peer"}) or (row.group == "local") != (sides == {"local"}):
        yield "group", f"is {row.group} of copies {way}"
    yield from of_each("flows", row.flows, lambda flow: _flow_problems(flow, known))


def _link_trial_problems(trial: links.LinkTrial, flows: int) -> Problems:
    if len(trial.nbytes) != flows:
        yield "nbytes", f"has {len(trial.nbytes)} numbers for {flows} flows"
    yield from negative(
        ("round", trial.round), ("seconds", trial.seconds), *(("nbytes", each) for each in trial.nbytes)
    )
    if not 0 <= trial.overlap <= 1:
        yield "overlap", f"is {trial.overlap:g}, not a share"
    if trial.invalid is None and (trial.seconds <= 0 or (flows > 1 and trial.overlap < links.MIN_OVERLAP)):
        yield "invalid", f"is null with an overlap of {trial.overlap:g} in {trial.seconds:g} s"


def _flow_problems(flow: links.LinkFlow, known: Sequence[int]) -> Problems:
    if flow.device not in known or any(end not in (*known, HOST_END) for end in (flow.source, flow.destination)):
        yield "device", "or an end of it is none of the devices"
        return
    ends = {"h2d": (HOST_END, flow.device), "d2h": (flow.device, HOST_END), "local": (flow.device, flow.device)}
    if (flow.source, flow.destination) != ends.get(flow.side, (flow.source, flow.destination)):
        yield "side", f"is {flow.side} from {flow.source} to {flow.destination}"
    if flow.verified.value is False and flow.rate.value is not None:
        yield "rate.value", "is there although the contents were wrong"


def _latency_problems(row: links.Latency, known: Sequence[int]) -> Problems:
    if row.device not in known or row.target not in (*known, HOST_END):
        yield "device", "or target is none of the devices"
    if not 0 <= row.load <= 1:
        yield "load", f"is {row.load:g}, not a share"
    yield from not_positive(("hops", row.hops), ("places", row.places), ("footprint_bytes", row.footprint_bytes))
    for i, trial in enumerate(row.trials):
        if trial.invalid is None and not _is_possible(trial):
            yield f"trials[{i}]", "has a quantile or a load that is negative, not finite or out of order"
    for name in ("p50", "p99"):
        found = getattr(row, name).value
        if found is not None:
            yield from interval_problems(f"{name}.low_ns", "high_ns", (found.low_ns, found.ns, found.high_ns))


def _is_possible(trial: links.LatencyTrial) -> bool:
    p99 = trial.p50_ns if trial.p99_ns is None else trial.p99_ns
    return 0 < trial.p50_ns <= p99 < math.inf and trial.launches > 0 and (trial.load_gbps or 0.0) >= 0


def _small_problems(row: links.SmallCopies, known: Sequence[int]) -> Problems:
    if row.device not in known:
        yield "device", "is none of the devices"
    yield from not_positive(("nbytes", row.nbytes), ("copies", row.copies))
    yield from negative(("caller_copies", row.caller_copies))
    yield from negative(*(("seconds", seconds) for seconds in (*row.seconds, *row.caller_seconds)))


# --- hosts and fleets ------------------------------------------------------------------------------------------------


def host_problems(report: HostReport) -> Problems:
    yield from negative(("duration_s", report.duration_s))
    yield from repeated("cells", [cell.cell for cell in report.cells])
    numbers = {number for cell in report.cells for number in (*cell.cell.source, *cell.cell.destination)}
    if not {number for number in numbers if number >= 0} <= {device.index for device in report.devices}:
        yield "cells", "are of GPUs that are not among the devices"
    yield from of_each("cells", report.cells, _cell_problems)


def _cell_problems(cell: HostCell) -> Problems:
    if not is_of_host(cell.cell):
        yield "cell", "is not a copy or latency of a host"
    yield from not_positive(("peak", cell.peak.value))
    value = cell.value.value
    if value is None:
        return
    low, high = cell.low or value, cell.high or value
    if not MIN_FIGURE <= value <= MAX_FIGURE or not MIN_FIGURE <= low <= high <= MAX_FIGURE:
        yield "value", "is a figure that no host has"
    for name, ends in (("interval", (low, high)), ("samples", cell.samples)):
        if ends and not min(ends) * (1 - TOLERANCE) <= value <= max(ends) * (1 + TOLERANCE):
            yield "value", f"is outside its {name}"


def fleet_problems(fleet: Fleet) -> Problems:
    settings = fleet.settings
    if not 0 < settings.error_rate < 1 or not 0 < settings.power < 1 or not 0 < settings.least_loss < 1:
        yield "settings", "are outside of 0 to 1"
    yield from of_each("cohorts", fleet.cohorts, lambda cohort: _cohort_problems(cohort, len(fleet.hosts)))
    yield from of_each("hosts", fleet.hosts, lambda host: _member_problems(host, fleet.cohorts))
    for number, contrast in enumerate(fleet.contrasts):
        if not _are_places(contrast.hosts, len(fleet.hosts)):
            yield f"contrasts[{number}].hosts", "are not places of hosts"


def _cohort_problems(cohort: Cohort, hosts: int) -> Problems:
    yield from repeated("cells", [cell.cell for cell in cohort.cells])
    for i, cell in enumerate(cohort.cells):
        if not is_of_host(cell.cell):
            yield f"cells[{i}]", "is a cell that no host has"
        if cell.groups is not None and not _are_places(cell.groups.slower + cell.groups.faster, hosts):
            yield f"cells[{i}].groups", "are of hosts that are not in the fleet"


def _member_problems(host: FleetHost, cohorts: Sequence[Cohort]) -> Problems:
    if host.cohort is None:
        if host.values or host.losses:
            yield "", "has figures and no cohort"
        return
    if not 0 <= host.cohort < len(cohorts):
        yield "cohort", "is not in the fleet"
        return
    cells = cohorts[host.cohort].cells
    if any(len(figures) != len(cells) for figures in (host.values, host.errors, *host.again)):
        yield "", "has another number of values, errors or later figures than its cohort has cells"
    if any(value is not None and not MIN_FIGURE / 2 <= value <= 2 * MAX_FIGURE for value in host.values):
        yield "values", "have one that no host has"
    if not {loss.cell for loss in host.losses} <= {cell.cell for cell in cells}:
        yield "losses", "have a cell that its cohort does not have"


def _are_places(places: tuple[int, ...], count: int) -> bool:
    return all(0 <= place < count for place in places)

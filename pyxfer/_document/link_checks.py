"""Checks that a links document agrees with itself: rates and shares with trials, shares of peaks with peaks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from pyxfer._document.checks import link_problems
from pyxfer._document.links import (
    HOST_END,
    LEAST_OVERLAP,
    SHARED_BELOW,
    Alone,
    Chased,
    Latency,
    LatencyTrial,
    LinkFlow,
    Links,
    LinksSharing,
    LinkTrial,
    SmallCopies,
    Traffic,
    alone_by_key,
    alone_of,
    seconds_a_gigabyte,
)
from pyxfer._document.runs import Fact, Rate, Share
from pyxfer.errors import DocumentError

TOLERANCE = 1e-6
"""Relative. The figures are sums and quotients of doubles, which another machine may round differently."""

Problems = Iterator[tuple[str, str]]


def check_links(run: Links, source: str) -> None:
    """Refuse a document whose figures disagree.

    Raises:
        DocumentError: the text names the first field that disagrees, such as `traffics[3].total.gbps`.

    """
    for field, problem in _problems(run):
        raise DocumentError(f"{source}: {field} {problem}; it was changed after pyxfer wrote it, so measure again")


def _problems(run: Links) -> Problems:
    known = [each.device.index for each in run.devices]
    if not known or len(set(known)) != len(known) or tuple(known) != run.parameters.devices:
        yield "devices", "are not those of the parameters, each once"
        return
    if not run.parameters.precision > 0 or not run.parameters.budget_s > 0 or not run.duration_s >= 0:
        yield "parameters", "has a precision, a budget or a duration that is not above zero"
    for i, each in enumerate(run.devices):
        yield from _within(f"devices[{i}]", link_problems(each.link))
    singles = alone_by_key(run.traffics)
    for i, row in enumerate(run.traffics):
        yield from _within(f"traffics[{i}]", _traffic_problems(row, run, known, singles))
    for i, latency in enumerate(run.latencies):
        yield from _within(f"latencies[{i}]", _latency_problems(latency, known))
    for i, small in enumerate(run.small):
        yield from _within(f"small[{i}]", _small_problems(small, known))
    if run.sharing is not None:
        yield from _within("sharing", _sharing_problems(run.sharing, run, known))


def _within(place: str, found: Problems) -> Problems:
    for field, problem in found:
        yield f"{place}.{field}", problem


# --- traffics --------------------------------------------------------------------------------------------------------


def _traffic_problems(row: Traffic, run: Links, known: Sequence[int], singles: Alone) -> Problems:
    if row.nbytes <= 0 or not row.flows:
        yield "nbytes", "or flows is empty"
        return
    rounds = [trial.round for trial in row.trials]
    if len(set(rounds)) != len(rounds):
        yield "trials", "have a round twice"
    for i, trial in enumerate(row.trials):
        yield from _within(f"trials[{i}]", _trial_problems(trial, len(row.flows)))
    numbers = range(len(row.flows))
    if any(len(trial.nbytes) != len(row.flows) for trial in row.trials):
        return
    yield from _rate_problems("total", row.total, seconds_a_gigabyte(row.valid, numbers))
    for i, flow in enumerate(row.flows):
        yield from _within(f"flows[{i}]", _flow_problems(flow, i, row, run, known, singles))
    rates = [flow.gbps for flow in row.flows if flow.gbps is not None]
    yield from _same("slowest_gbps.value", row.slowest_gbps.value, min(rates, default=None))
    if len(row.flows) > 1:
        alone = [alone_of(row, i, singles) for i in numbers]
        sums = [other.gbps for other in alone if other is not None and other.gbps is not None]
        expected = math.fsum(sums) if len(sums) == len(alone) else None
        yield from _same("sum_alone_gbps.value", row.sum_alone_gbps.value, expected)


def _trial_problems(trial: LinkTrial, flows: int) -> Problems:
    if len(trial.nbytes) != flows:
        yield "nbytes", f"has {len(trial.nbytes)} numbers for {flows} flows"
    if not 0 <= trial.seconds < math.inf or not all(0 <= each < math.inf for each in trial.nbytes) or trial.round < 0:
        yield "seconds", "or nbytes is negative or not finite"
    if not 0 <= trial.overlap <= 1:
        yield "overlap", f"is {trial.overlap:g}, not a share"
    if trial.invalid is None and (trial.seconds <= 0 or (flows > 1 and trial.overlap < LEAST_OVERLAP)):
        yield "invalid", f"is null with an overlap of {trial.overlap:g} in {trial.seconds:g} s"


def _flow_problems(
    flow: LinkFlow, number: int, row: Traffic, run: Links, known: Sequence[int], singles: Alone
) -> Problems:
    if flow.device not in known or any(end not in (*known, HOST_END) for end in (flow.source, flow.destination)):
        yield "device", "or an end of it is none of the devices"
        return
    ends = {"h2d": (HOST_END, flow.device), "d2h": (flow.device, HOST_END), "local": (flow.device, flow.device)}
    if (flow.source, flow.destination) != ends.get(flow.side, (flow.source, flow.destination)):
        yield "side", f"is {flow.side} from {flow.source} to {flow.destination}"
    if flow.verified.value is False and flow.rate.value is not None:
        yield "rate.value", "is there although the contents were wrong"
    yield from _rate_problems("rate", flow.rate, seconds_a_gigabyte(row.valid, [number]))
    alone = alone_of(row, number, singles) if len(row.flows) > 1 else None
    yield from _share_problems("alone_share", flow.alone_share, _ratios(row, number, alone))
    peak = _peak(flow, run)
    expected = flow.gbps / peak if peak and flow.gbps is not None else None
    yield from _same("peak_share.value", flow.peak_share.value, expected)


def _peak(flow: LinkFlow, run: Links) -> float | None:
    if flow.side == "local":
        return None
    if flow.side == "peer":
        ends = (flow.source, flow.destination)
        return next((peer.peak_gbps.value for peer in run.peers if (peer.source, peer.destination) == ends), None)
    device = next(each for each in run.devices if each.device.index == flow.device)
    return device.host_peak_gbps(flow.side).value


def _ratios(row: Traffic, number: int, alone: Traffic | None) -> list[float]:
    if alone is None:
        return []
    seconds = dict(zip([t.round for t in alone.valid], seconds_a_gigabyte(alone.valid, [0]), strict=True))
    own = zip([t.round for t in row.valid], seconds_a_gigabyte(row.valid, [number]), strict=True)
    pairs = [(seconds[place], each) for place, each in own if place in seconds]
    return [above / below for above, below in pairs if math.isfinite(above) and 0 < below < math.inf]


def _rate_problems(name: str, rate: Fact[Rate], seconds: Sequence[float]) -> Problems:
    if rate.value is None:
        return
    if not seconds:
        yield f"{name}.gbps", f"is {rate.value.gbps:g} without a valid trial"
        return
    yield from _same(f"{name}.gbps", rate.value.gbps, 1 / median(seconds) if median(seconds) > 0 else None)
    yield from _order(name, rate.value.low_gbps, rate.value.gbps, rate.value.high_gbps)


def _share_problems(name: str, share: Fact[Share], ratios: Sequence[float]) -> Problems:
    if share.value is None:
        return
    if not ratios:
        yield f"{name}.value", "is there without rounds of the same copies alone"
        return
    yield from _same(f"{name}.value", share.value.value, median(ratios))
    yield from _order(name, share.value.low, share.value.value, share.value.high)


def _order(name: str, low: float | None, middle: float, high: float | None) -> Problems:
    if (low is None) != (high is None):
        yield name, "has one end of an interval"
    elif low is not None and high is not None and not 0 <= low <= middle <= high:
        yield name, f"is {middle:g}, which {low:g} and {high:g} do not enclose"


def _same(name: str, found: float | None, expected: float | None) -> Problems:
    if (found is None) != (expected is None):
        yield name, f"is {found}, and the trials give {expected}"
    elif found is not None and expected is not None and not math.isclose(found, expected, rel_tol=TOLERANCE):
        yield name, f"is {found:g}, and the trials give {expected:g}"


# --- latencies and small copies --------------------------------------------------------------------------------------


def _latency_problems(row: Latency, known: Sequence[int]) -> Problems:
    if row.device not in known or row.target not in (*known, HOST_END):
        yield "device", "or target is none of the devices"
    if not 0 <= row.load <= 1 or row.hops < 1 or row.places < 1 or row.footprint_bytes < 1:
        yield "load", "is no share, or hops, places or footprint_bytes is not above zero"
    valid = [trial for trial in row.trials if trial.invalid is None]
    for i, trial in enumerate(valid):
        if not _is_possible(trial):
            yield f"trials[{i}]", "has a quantile or a load that is negative, not finite or out of order"
    yield from _chased_problems("p50", row.p50, [trial.p50_ns for trial in valid])
    yield from _chased_problems("p99", row.p99, [trial.p99_ns for trial in valid if trial.p99_ns is not None])
    loads = [trial.load_gbps for trial in valid if trial.load_gbps is not None]
    yield from _same("load_gbps.value", row.load_gbps.value, median(loads) if loads else None)
    each = [ns for _, ns in row.multiprocessor_ns]
    for name, fact, expected in (("fastest", row.fastest, min), ("slowest", row.slowest, max)):
        found = None if fact.value is None else fact.value.ns
        yield from _same(f"{name}.ns", found, expected(each) if each else None)


def _is_possible(trial: LatencyTrial) -> bool:
    p99 = trial.p50_ns if trial.p99_ns is None else trial.p99_ns
    return 0 < trial.p50_ns <= p99 < math.inf and trial.launches > 0 and (trial.load_gbps or 0.0) >= 0


def _chased_problems(name: str, found: Fact[Chased], values: Sequence[float]) -> Problems:
    yield from _same(f"{name}.ns", None if found.value is None else found.value.ns, median(values) if values else None)
    if found.value is not None:
        yield from _order(name, found.value.low_ns, found.value.ns, found.value.high_ns)


def _small_problems(row: SmallCopies, known: Sequence[int]) -> Problems:
    if row.device not in known or row.nbytes < 1 or row.copies < 1:
        yield "device", "is none of the devices, or nbytes or copies is not above zero"
    if any(not 0 <= seconds < math.inf for seconds in row.seconds):
        yield "seconds", "has a negative number"
        return
    if row.verified.value is False and row.rate.value is not None:
        yield "rate.value", "is there although the contents were wrong"
    if row.rate.value is not None:
        middle = median(row.seconds) if row.seconds else 0.0
        yield from _same("rate.gbps", row.rate.value.gbps, row.nbytes / middle / 1e9 if middle else None)
        yield from _order("rate", row.rate.value.low_gbps, row.rate.value.gbps, row.rate.value.high_gbps)


# --- interference ----------------------------------------------------------------------------------------------------


def _sharing_problems(sharing: LinksSharing, run: Links, known: Sequence[int]) -> Problems:
    if not 0 <= sharing.pairs_measured <= sharing.pairs == len(known) * (len(known) - 1) // 2:
        yield "pairs", f"is {sharing.pairs}, of which {sharing.pairs_measured} were measured"
    shares = {
        (row.case.removeprefix("beside-"), frozenset(each.device for each in row.flows), flow.device): flow.alone_share
        for row in run.traffics
        if row.group == "together" and row.engine == "ce" and len(row.flows) == 2  # noqa: PLR2004 - one beside another
        for flow in row.flows
    }
    for i, keep in enumerate(sharing.keeps):
        found = shares.get((keep.direction, frozenset((keep.device, keep.beside)), keep.device))
        if found is None or found != keep.share:
            yield f"keeps[{i}].share", "is not that of the copies beside each other"
    for i, group in enumerate(sharing.groups.value or ()):
        within = [
            keep.share.value.value
            for keep in sharing.keeps
            if keep.direction == group.direction
            and {keep.device, keep.beside} <= set(group.devices)
            and keep.share.value is not None
        ]
        if len(group.devices) < 2 or not within or min(within) >= SHARED_BELOW:  # noqa: PLR2004
            yield f"groups[{i}].devices", "keep what they have alone"
            continue
        yield from _same(f"groups[{i}].keeps", group.keeps, median(within))
    for i, slow in enumerate(sharing.slow.value or ()):
        if not 0 < slow.gbps < slow.usual_gbps:
            yield f"slow[{i}].gbps", f"is {slow.gbps:g}, and the usual rate {slow.usual_gbps:g}"

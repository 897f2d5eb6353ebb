"""Limits of the figures of links. What follows from other figures is computed again instead (`derivations`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyxfer._document.checks import Problems, interval_problems, link_problems, refuse, within
from pyxfer._document.links import (
    HOST_END,
    LEAST_OVERLAP,
    Latency,
    LatencyTrial,
    LinkFlow,
    Links,
    LinkTrial,
    SmallCopies,
    Traffic,
)


def check_links(run: Links, source: str) -> None:
    """Refuse a document with figures that no run has."""
    refuse(source, _problems(run))


def _problems(run: Links) -> Problems:
    known = [each.device.index for each in run.devices]
    if not known or len(set(known)) != len(known) or tuple(known) != run.parameters.devices:
        yield "devices", "are not those of the parameters, each once"
        return
    if not run.parameters.precision > 0 or not run.parameters.budget_s > 0 or not run.duration_s >= 0:
        yield "parameters", "has a precision, a budget or a duration that is not above zero"
    places: dict[str, list[tuple[object, ...]]] = {
        "traffics": [(row.group, row.case, row.engine, *map(row.key, range(len(row.flows)))) for row in run.traffics],
        "small": [(row.device, row.direction, row.way, row.nbytes) for row in run.small],
    }
    for name, keys in places.items():
        if len(set(keys)) != len(keys):
            yield name, "have a row twice"
    for i, each in enumerate(run.devices):
        yield from within(f"devices[{i}].link", link_problems(each.link))
    for i, row in enumerate(run.traffics):
        yield from within(f"traffics[{i}]", _traffic_problems(row, known))
    for i, latency in enumerate(run.latencies):
        yield from within(f"latencies[{i}]", _latency_problems(latency, known))
    for i, small in enumerate(run.small):
        yield from within(f"small[{i}]", _small_problems(small, known))
    sharing = run.sharing
    if sharing is not None and not 0 <= sharing.pairs_measured <= sharing.pairs:
        yield "sharing.pairs", f"is {sharing.pairs}, of which {sharing.pairs_measured} were measured"


def _traffic_problems(row: Traffic, known: Sequence[int]) -> Problems:
    if row.nbytes <= 0 or not row.flows:
        yield "nbytes", "or flows is empty"
        return
    rounds = [trial.round for trial in row.trials]
    if len(set(rounds)) != len(rounds):
        yield "trials", "have a round twice"
    for i, trial in enumerate(row.trials):
        yield from within(f"trials[{i}]", _trial_problems(trial, len(row.flows)))
    sides = {flow.side for flow in row.flows}
    way = "both" if len(sides) > 1 else min(sides)
    if row.group in ("host", "together") and not row.case.endswith(way):
        yield "case", f"is {row.case!r:.40} of copies {way}"
    if (row.group == "pairs") != (sides == {"peer"}) or (row.group == "local") != (sides == {"local"}):
        yield "group", f"is {row.group} of copies {way}"
    for i, flow in enumerate(row.flows):
        yield from within(f"flows[{i}]", _flow_problems(flow, known))


def _trial_problems(trial: LinkTrial, flows: int) -> Problems:
    if len(trial.nbytes) != flows:
        yield "nbytes", f"has {len(trial.nbytes)} numbers for {flows} flows"
    if not 0 <= trial.seconds < math.inf or not all(0 <= each < math.inf for each in trial.nbytes) or trial.round < 0:
        yield "seconds", "or nbytes is negative or not finite"
    if not 0 <= trial.overlap <= 1:
        yield "overlap", f"is {trial.overlap:g}, not a share"
    if trial.invalid is None and (trial.seconds <= 0 or (flows > 1 and trial.overlap < LEAST_OVERLAP)):
        yield "invalid", f"is null with an overlap of {trial.overlap:g} in {trial.seconds:g} s"


def _flow_problems(flow: LinkFlow, known: Sequence[int]) -> Problems:
    if flow.device not in known or any(end not in (*known, HOST_END) for end in (flow.source, flow.destination)):
        yield "device", "or an end of it is none of the devices"
        return
    ends = {"h2d": (HOST_END, flow.device), "d2h": (flow.device, HOST_END), "local": (flow.device, flow.device)}
    if (flow.source, flow.destination) != ends.get(flow.side, (flow.source, flow.destination)):
        yield "side", f"is {flow.side} from {flow.source} to {flow.destination}"
    if flow.verified.value is False and flow.rate.value is not None:
        yield "rate.value", "is there although the contents were wrong"


def _latency_problems(row: Latency, known: Sequence[int]) -> Problems:
    if row.device not in known or row.target not in (*known, HOST_END):
        yield "device", "or target is none of the devices"
    if not 0 <= row.load <= 1 or row.hops < 1 or row.places < 1 or row.footprint_bytes < 1:
        yield "load", "is no share, or hops, places or footprint_bytes is not above zero"
    for i, trial in enumerate(row.trials):
        if trial.invalid is None and not _is_possible(trial):
            yield f"trials[{i}]", "has a quantile or a load that is negative, not finite or out of order"
    for name in ("p50", "p99"):
        found = getattr(row, name).value
        if found is not None:
            yield from interval_problems(f"{name}.low_ns", "high_ns", (found.low_ns, found.ns, found.high_ns))


def _is_possible(trial: LatencyTrial) -> bool:
    p99 = trial.p50_ns if trial.p99_ns is None else trial.p99_ns
    return 0 < trial.p50_ns <= p99 < math.inf and trial.launches > 0 and (trial.load_gbps or 0.0) >= 0


def _small_problems(row: SmallCopies, known: Sequence[int]) -> Problems:
    if row.device not in known or row.nbytes < 1 or row.copies < 1 or row.caller_copies < 0:
        yield "device", "is none of the devices, or nbytes or copies is not above zero"
    if any(not 0 <= seconds < math.inf for seconds in (*row.seconds, *row.caller_seconds)):
        yield "seconds", "has a negative number"

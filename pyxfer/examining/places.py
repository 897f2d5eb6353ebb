"""Where things are: memory and processors against the device's NUMA node."""

from __future__ import annotations

from pyxfer.examining.case import SIDES, Case, Findings, best, fine, untold
from pyxfer.model import Placement
from pyxfer.model_findings import FarRates, Finding, Status
from pyxfer.units import format_gbps, format_percent, format_size

NEAR_SHARE = 0.99
FAR_FASTER = 1.03
FAR_LEAST = 0.5
_POOR = 0.90


def share_of_pages_near(placement: Placement) -> float | None:
    """How much of the memory that was looked at lay on the device's node; None where that is not known."""
    pages, node = placement.pages_by_node.value, placement.device_node.value
    placed = {name: count for name, count in (pages or {}).items() if name.isdecimal()}
    if node is None or not sum(placed.values()):
        return None
    return placed.get(str(node), 0) / sum(placed.values())


def memory(case: Case) -> Findings:
    """Whether the memory that was measured lay where the device is."""
    placement = case.run.placement
    near, node = share_of_pages_near(placement), placement.device_node.value
    expected = "memory on the NUMA node that the device hangs on"
    if near is None:
        reason = placement.device_node.reason or placement.pages_by_node.reason
        yield untold("numa-memory", "NUMA memory", expected, reason)
        return
    seen = f"{format_percent(near)} of it on node {node}, the device's"
    if near >= NEAR_SHARE:
        why = "what lies on another node crosses from one socket to the other first"
        yield fine("numa-memory", "NUMA memory", seen, expected, why, case.read)
        return
    why = "copies cross from one socket to the other first"
    if placement.cpus.reason is not None:
        why += f"; {placement.cpus.reason}"
    do = f"run near the device: numactl --cpunodebind={node} --membind={node}, or give the container these CPUs"
    status: Status = "wrong" if _is_slow(case) else "suspicious"
    yield Finding("numa-memory", "NUMA memory", status, seen, expected, why, case.read, do)


def processors(case: Case) -> Findings:
    """Whether this process may run near the device at all."""
    count, node = (None if case.health is None else case.health.cpus_near), case.run.placement.device_node.value
    if count is None:
        return
    expected = "processors on the device's NUMA node among those allowed here"
    if count.value is None:
        yield untold("numa-processors", "NUMA processors", expected, count.reason)
    elif count.value:
        why = "they reach the device and its memory the shortest way"
        seen = f"{count.value} usable on node {node}, the device's"
        yield fine("numa-processors", "NUMA processors", seen, expected, why, case.read)
    else:
        why = "whatever this process does for its copies, it does from another socket"
        do = f"let the container or the scheduler give it processors of node {node} (cpuset)"
        seen = f"none usable on node {node}, the device's"
        yield Finding("numa-processors", "NUMA processors", "suspicious", seen, expected, why, case.read, do)


def far_memory(case: Case) -> Findings:
    """What memory of another node reaches, against the device's own."""
    if case.health is None:
        return
    expected = "the device's own node to be the nearest"
    far = case.health.far.value
    if far is None:
        yield untold("numa-far", "NUMA far memory", expected, case.health.far.reason)
        return
    yield _far(case, far, expected)


def _far(case: Case, far: FarRates, expected: str) -> Finding:
    shares = {side: far.far_gbps[side] / far.near_gbps[side] for side in SIDES if _both_known(far, side)}
    if not shares:
        return untold("numa-far", "NUMA far memory", expected, "neither node gave figures in both places")
    told = ", ".join(f"{side} {format_percent(share)}" for side, share in shares.items())
    seen = f"node {far.far_node} reaches {told} of node {far.near_node} at {format_size(far.nbytes)}"
    if max(shares.values()) > FAR_FASTER:
        why = f"the firmware names node {far.near_node} for the device, and node {far.far_node} is the nearer one"
        do = "correct the firmware's or the virtual machine's NUMA table; until then bind to the faster node"
        return Finding("numa-far", "NUMA far memory", "wrong", seen, expected, why, "likely", do)
    if min(shares.values()) < FAR_LEAST:
        rates = ", ".join(format_gbps(rate) for rate in far.far_gbps.values())
        why = f"the sockets' own link carries {rates}, less than half of the device's"
        do = f"keep memory on node {far.near_node}; see whether all links between the sockets are up"
        return Finding("numa-far", "NUMA far memory", "suspicious", seen, expected, why, "possible", do)
    why = "memory of another node crosses from one socket to the other first"
    return fine("numa-far", "NUMA far memory", seen, expected, why, "certain", f"keep memory on node {far.near_node}")


def _both_known(far: FarRates, side: str) -> bool:
    return bool(far.near_gbps.get(side)) and side in far.far_gbps


def _is_slow(case: Case) -> bool:
    found = (best(case.run, side) for side in SIDES)
    shares = [each.of_peak for each in found if each is not None and each.of_peak is not None]
    return any(share < _POOR for share in shares)

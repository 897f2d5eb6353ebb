"""What a run of links says about a host: shared uplinks, slow links, missing NVLinks, bytes that took another way."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pyxfer._doctor.case import Check, Findings
from pyxfer._doctor.examine import examine, in_order, without_trials
from pyxfer._document.examinations import Examination, Finding
from pyxfer._document.links import SHARED_BELOW, Counted, Links, end_name, end_names
from pyxfer._document.machines import unknown
from pyxfer._measure.link_runs import runs_of
from pyxfer.errors import UsageError
from pyxfer.units import format_gbps, format_percent

_WRONG_BELOW = 0.75
_ALONE = "each GPU keeps its rate while the others copy"
_ALIKE = "links of one kind are alike"
_UPLINK = "GPUs below one port share its link to the processor"


def examine_links(links: Links) -> Examination:
    """The findings of a run of links, with those of each GPU's own copies. It keeps the run of the first GPU."""
    runs = runs_of(links)
    if not runs:
        raise UsageError("The run of links has no copies between the host and a GPU: measure the group host.")
    why = "a run of links reads no counters; pyxfer doctor does"
    return Examination(
        run=without_trials(runs[0]),
        health=unknown(why),
        nearest=unknown("a run of links is not compared with known hosts"),
        findings=link_findings(links),
        links=links,
    )


def link_findings(links: Links) -> tuple[Finding, ...]:
    found = [*_contents(links), *_sharing(links), *_slow(links), *_peers(links)]
    for run in runs_of(links):
        found += [
            msgspec.structs.replace(finding, subject=f"GPU {run.device.index}, {finding.subject}")
            for finding in examine(run)
        ]
    return in_order(found)


def _contents(links: Links) -> Findings:
    wrong = [row for row in links.traffics if any(flow.verified.value is False for flow in row.flows)]
    for row in wrong:
        ends = f"{end_name(row.flows[0].source)} to {end_name(row.flows[0].destination)}"
        yield Check("links-contents", f"contents, {ends}", "the bytes that were sent").wrong(
            f"other bytes arrived than were sent ({row.group} {row.case}, {row.engine})",
            "the device, the link or the driver corrupts data",
            "certain",
            "look for Xid in dmesg, and stop using the device",
        )


def _sharing(links: Links) -> Findings:
    sharing = links.sharing
    if sharing is None:
        return
    check = Check("shared-uplink", "shared uplinks", _ALONE)
    if sharing.groups.value is None:
        yield check.unknown(sharing.groups.reason)
        return
    for group in sharing.groups.value:
        yield Check("shared-uplink", f"GPUs {end_names(group.devices)}, {group.direction}", _ALONE).suspicious(
            f"beside another one, each keeps {format_percent(group.keeps)} of its rate alone",
            _UPLINK,
            "likely",
            "spread work over GPUs of different groups, or move cards to slots with ports of their own",
        )
    yield from _whole(links, bool(sharing.groups.value))
    if not sharing.groups.value:
        yield check.fine(f"none, with an error rate of {format_percent(sharing.error_rate)}", _UPLINK)


def _whole(links: Links, has_groups: bool) -> Findings:
    """A limit that no pair shows: of more than two GPUs together."""
    for row in links.traffics:
        is_total = row.group == "together" and row.case in ("h2d", "d2h") and row.engine == "ce"
        if is_total and not has_groups and row.gbps is not None and row.sum_alone_gbps.value:
            share = row.gbps / row.sum_alone_gbps.value
            if share < SHARED_BELOW:
                seen = f"{format_gbps(row.gbps)}, {format_percent(share)} of the sum of separate runs"
                why = "an uplink, a socket or the host's memory carries less than all GPUs could take"
                check = Check("together", f"all GPUs together, {row.case}", _ALONE)
                yield check.suspicious(seen, why, "likely", None)


def _slow(links: Links) -> Findings:
    if links.sharing is None:
        return
    if links.sharing.slow.value is None:
        yield Check("slow-link", "slow links", _ALIKE).unknown(links.sharing.slow.reason)
        return
    for slow in links.sharing.slow.value:
        share = slow.gbps / slow.usual_gbps
        subject = f"{end_name(slow.source)} to {end_name(slow.destination)}, {slow.case}"
        yield Check("slow-link", subject, _ALIKE).finding(
            "wrong" if share < _WRONG_BELOW else "suspicious",
            f"{format_gbps(slow.gbps)}, {format_percent(share)} of the usual {format_gbps(slow.usual_gbps)}",
            "a link that lost lanes or speed, or a way over another socket",
            "likely",
            "look at nvidia-smi topo -m and nvidia-smi nvlink -s, and reseat the card",
        )


def _peers(links: Links) -> Findings:
    missing = Check("no-nvlink", "NVLink", "NVLink joins all pairs or none")
    for text in without_nvlink(links):
        why = "a bridge is missing, or links are down"
        yield missing.suspicious(text, why, "likely", "look at nvidia-smi nvlink -s")
    around = Check("another-way", "way of the bytes", "bytes cross the NVLink that joins the GPUs")
    for text in ways_around(links):
        why = "peer access is off or goes around NVLink"
        yield around.wrong(text, why, "likely", "look at nvidia-smi topo -p2p n")


def ways_around(run: Links) -> Iterator[str]:
    """Pairs whose bytes did not cross the NVLink that joins them."""
    joined = {(peer.source, peer.destination) for peer in run.peers if peer.kind == "nvlink"}
    for row in run.traffics:
        ends = (row.flows[0].source, row.flows[0].destination)
        if row.group == "pairs" and len(row.flows) == 1 and row.peer_access and ends in joined:
            engine = "copy engines" if row.engine == "ce" else "kernels"
            sent = {each.counter: each for each in row.counted if each.device == ends[0]}
            if _is_crossed(sent.get("pcie-sent")) and not _is_crossed(sent.get("nvlink-sent"), unknown=True):
                yield (
                    f"{end_name(ends[0])} to {end_name(ends[1])} ({row.case}, {engine}) went over "
                    "PCI Express, although NVLink joins the two."
                )


def _is_crossed(counted: Counted | None, *, unknown: bool = False) -> bool:
    """Whether a counter saw most of the bytes; `unknown` without a count."""
    if counted is None or counted.counted.value is None or not counted.sent:
        return unknown
    return counted.counted.value >= counted.sent / 2


def without_nvlink(run: Links) -> Iterator[str]:
    """Pairs without NVLink where most pairs have it."""
    bare = [peer for peer in run.peers if peer.kind == "pcie" and peer.source < peer.destination]
    joined = [peer for peer in run.peers if peer.kind == "nvlink" and peer.source < peer.destination]
    if bare and len(joined) > len(bare):
        pairs = ", ".join(f"{peer.source} and {peer.destination}" for peer in bare)
        yield f"No NVLink joins GPUs {pairs}; the other {len(joined)} pairs have one."

"""The likely causes of slow links: what has changed between GPUs, and what has changed at each GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pyxfer._document.baselines import Cause, CellComparison
from pyxfer._document.links import Links, end_name, end_names
from pyxfer.units import first_of, format_gbps, format_percent

_NVLINK = "see nvidia-smi nvlink -s and the kernel log (Xid)"
_MAX_NAMED = 4


def between(a: Links, b: Links) -> Iterator[Cause]:
    """What has changed between GPUs, by the interference map, NVML and the peers of the last runs."""
    yield from _shared_uplinks(a, b)
    yield from _nvlinks(a, b)
    yield from _peers(a, b)
    yield from _slow_links(a, b)


def _shared_uplinks(a: Links, b: Links) -> Iterator[Cause]:
    if a.sharing is None or b.sharing is None or a.sharing.groups.value is None:
        return
    before = [(group.direction, set(group.devices)) for group in a.sharing.groups.value]
    for group in b.sharing.groups.value or ():
        if not any(group.direction == way and set(group.devices) <= members for way, members in before):
            yield Cause(
                "shared-uplink",
                f"GPUs {end_names(group.devices)} share an uplink in {group.direction}, and did not before.",
                f"the interference map: beside another one, each keeps {format_percent(group.keeps)} of its rate alone",
                "check the uplink of their switch (lspci -vv, LnkSta), and whether a card has been moved",
            )


def _nvlinks(a: Links, b: Links) -> Iterator[Cause]:
    before = {each.device.index: each.nvlinks.value for each in a.devices}
    for each in b.devices:
        was, now = before.get(each.device.index), each.nvlinks.value
        if was is not None and now is not None and now < was:
            yield Cause(
                "nvlinks",
                f"GPU {each.device.index} has {now} active NVLinks, and had {was}.",
                "the states of its links in NVML",
                _NVLINK,
            )


def _peers(a: Links, b: Links) -> Iterator[Cause]:
    """Pairs that have lost access or NVLink. The links of each pair are not counted: those of each GPU are."""
    known = {(peer.source, peer.destination): peer for peer in a.peers}
    pairs = [(was, now) for now in b.peers if (was := known.get((now.source, now.destination))) is not None]
    refused = [now for was, now in pairs if was.access.value and now.access.value is False]
    apart = [now for was, now in pairs if was.kind == "nvlink" and now.kind == "pcie"]
    no_access, topology = (
        "can no longer access each other's memory",
        "check the IOMMU, ACS and MIG: nvidia-smi topo -p2p r",
    )
    for code, lost, text, fix in (
        ("peer-access", refused, no_access, topology),
        ("peer-nvlink", apart, "are no longer joined by NVLink", _NVLINK),
    ):
        if lost:
            names = [f"{peer.source} to {peer.destination}" for peer in lost]
            yield Cause(code, f"GPUs {first_of(names, _MAX_NAMED)} {text}.", "what CUDA and NVML say of each pair", fix)


def _slow_links(a: Links, b: Links) -> Iterator[Cause]:
    if a.sharing is None or b.sharing is None or a.sharing.slow.value is None:
        return
    before = {(slow.case, slow.source, slow.destination) for slow in a.sharing.slow.value}
    found = [slow for slow in b.sharing.slow.value or () if (slow.case, slow.source, slow.destination) not in before]
    if found:
        names = [f"{end_name(slow.source)} to {end_name(slow.destination)} ({slow.case})" for slow in found]
        worst = min(found, key=lambda slow: slow.gbps / slow.usual_gbps)
        yield Cause(
            "slow-link",
            f"Links are slower than the others of their kind, and were not before: {first_of(names, _MAX_NAMED)}.",
            f"{format_gbps(worst.gbps)} where {format_gbps(worst.usual_gbps)} is usual",
        )


def patterns(cells: Iterable[CellComparison]) -> Iterator[Cause]:
    compared = [row for row in cells if row.ratio.value is not None]
    slow = [row for row in compared if row.verdict == "SLOW"]
    fine = [row for row in compared if row.verdict in ("SAME", "FAST")]
    named = [frozenset(row.cell.gpus) for row in slow if row.cell.gpus]
    common = frozenset.intersection(*named) if named else frozenset()
    elsewhere = [row for row in fine if row.cell.gpus and not common & set(row.cell.gpus)]
    if len(common) == 1 and elsewhere:
        text = f"All slow cells are of GPU {next(iter(common))}, and those of other GPUs are as fast as before."
        yield Cause("one-gpu", text, f"{len(slow)} cells are slow, and {len(elsewhere)} of other GPUs are not")
    alone = [row for row in compared if row.cell.side == row.cell.direction and row.cell.group in ("host", "pairs")]
    of_several = (
        row.cell.group == "together" or (row.cell.direction, row.cell.side) == ("peer", "sum") for row in slow
    )
    if slow and alone and all(row in fine for row in alone) and all(of_several):
        yield Cause(
            "only-together",
            "Only copies of several GPUs at once are slow: what they share has become slower, and not their own links.",
            f"all {len(alone)} cells of single links are as fast as before",
            "check the uplinks of the switches, the links between sockets, and the host's memory",
        )


def at_gpus(found: Sequence[tuple[int, Cause]], count: int) -> Iterator[Cause]:
    """Causes at single GPUs, each once with the numbers of its GPUs, or without if it is of all of them."""
    of_cause: dict[Cause, list[int]] = {}
    for number, cause in found:
        of_cause.setdefault(cause, []).append(number)
    for cause, numbers in of_cause.items():
        who = "" if len(numbers) == count else f"{'GPU' if len(numbers) == 1 else 'GPUs'} {end_names(numbers)}: "
        yield msgspec.structs.replace(cause, text=f"{who}{cause.text}")

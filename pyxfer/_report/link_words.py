"""Sentences about links: what the GPUs get together, what limits them, and in what they differ from cards in slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pyxfer._doctor.links import ways_around, without_nvlink
from pyxfer._document import links as documents
from pyxfer._document.links import HOST_END, SHARED_BELOW, Links, Traffic, end_name, end_names
from pyxfer._document.machines import Fact, Remark
from pyxfer._document.runs import LEFT_OUT, Rate
from pyxfer._report.overview import certain_digits
from pyxfer._report.text import clean
from pyxfer.units import format_gbps, format_percent

_LOSES_BY = 0.1

# A sentence with the names of many GPUs.
_LONGEST = 2000

TRAITS: dict[documents.Trait, str] = {
    "c2c": "is joined to the host chip to chip: there is no PCIe peak, pageable memory is read through the host's page "
    "tables, and its memory may be a NUMA node, which is no place for host buffers",
    "integrated": "shares its memory with the processor: copies cross no link, and both directions compete",
    "mig": "is a MIG instance: it may have one copy engine, it has no peers, and its neighbours' traffic is not seen",
    "vgpu": "is a virtual GPU: it shares its link with guests that are not seen from here",
    "wsl2": "is used through WSL2: page-locked memory is limited, and launches are batched",
    "hmm": "reads pageable memory by page faults (HMM); every row here uses page-locked memory",
    "no-tree": "shows no PCIe tree: what is shared is inferred from the rates alone",
}


def sentence(run: Links) -> str:
    words = []
    for direction in ("h2d", "d2h"):
        row = found(run, "together", direction)
        if row is not None and row.gbps is not None:
            share = share_of_sum(row)
            of = "" if share is None else f" ({share * 100:.0f} % of the sum of separate runs)"
            words.append(f"{rate_text(row.total)} GB/s {direction}{of}")
    if words:
        return f"Together, {len(run.devices)} GPUs get {' and '.join(words)}. {_shared_words(run)}"
    return alone_text(run) or _other_words(run)


def _other_words(run: Links) -> str:
    """For a run without copies between the host and a GPU."""
    count = sum(row.gbps is not None for row in run.traffics) + sum(row.gbps is not None for row in run.small)
    count += sum(row.ns is not None for row in run.latencies)
    if count:
        return f"{count} {'row was' if count == 1 else 'rows were'} measured."
    reasons = [row.total.reason for row in run.traffics if row.total.reason]
    reasons += [row.p50.reason for row in run.latencies if row.p50.reason]
    return f"Nothing was measured: {clean(run.failure or (reasons or ['the run has no rows'])[0])}."


def rate_text(fact: Fact[Rate]) -> str:
    rate = fact.value
    if rate is None:
        return "-"
    half = None if rate.low_gbps is None or rate.high_gbps is None else (rate.high_gbps - rate.low_gbps) / 2
    return certain_digits(rate.gbps, half)


def share_of_sum(row: Traffic) -> float | None:
    return None if row.gbps is None or not row.sum_alone_gbps.value else row.gbps / row.sum_alone_gbps.value


def numbers(run: Links) -> list[int]:
    return [each.device.index for each in run.devices]


def host_row(run: Links, case: str, device: int, engine: str = "ce") -> Traffic | None:
    return found(run, "host", case, engine, (device, HOST_END) if case == "d2h" else (HOST_END, device))


def _shared_words(run: Links) -> str:
    if run.sharing is None:
        return "No interference was measured."
    if run.sharing.groups.value is None:
        return f"Whether they share a link is not known: {clean(run.sharing.groups.reason or '')}."
    if run.sharing.groups.value:
        members = dict.fromkeys(group.devices for group in run.sharing.groups.value)
        return f"GPUs {'; '.join(end_names(each) for each in members)} slow each other down."
    return "In one direction at a time, none slows another down."


def alone_text(run: Links) -> str:
    first, words = run.devices[0].device.index, []
    for row in run.traffics:
        flow = row.flows[0]
        is_alone = row.group == "host" and row.engine == "ce" and len(row.flows) == 1
        if is_alone and flow.gbps is not None and flow.device == first:
            peak = flow.peak_share.value
            of = "" if peak is None else f" ({peak * 100:.0f} % of the peak)"
            words.append(f"{rate_text(flow.rate)} GB/s {flow.side}{of}")
    who = f"Host memory in place of GPU {first}" if run.runtime == "host" else f"GPU {first}"
    return f"{who} gets {' and '.join(words)} from and to the host." if words else ""


def found(run: Links, group: str, case: str, engine: str = "ce", ends: tuple[int, int] | None = None) -> Traffic | None:
    """The row of a case; with `ends` the one whose first copies are between these."""
    for row in run.traffics:
        if (row.group, row.case, row.engine) == (group, case, engine) and row.node is None:
            first = row.flows[0]
            if ends is None or (first.source, first.destination) == ends:
                return row
    return None


def limits(run: Links) -> Iterator[str]:
    sharing = run.sharing
    groups, slow = (None, None) if sharing is None else (sharing.groups.value, sharing.slow.value)
    of_map = (*map(group_text, groups or ()), *_undecided(run), *map(slow_text, slow or ()))
    return (clean(text, _LONGEST) for text in (*of_map, *losing_sides(run), *ways_around(run), *without_nvlink(run)))


def first_limits(run: Links) -> Iterator[str]:
    return (clean(text, _LONGEST) for text in (*_undecided(run), *losing_sides(run)))


def group_text(group: documents.SharedGroup) -> str:
    tree = {
        "agrees": "the PCIe tree has one port above them",
        "differs": "the PCIe tree shows no port that they share",
        "hidden": "the machine hides its PCIe tree",
    }[group.tree]
    keeps = format_percent(group.keeps)
    return (
        f"GPUs {end_names(group.devices)} share an uplink {group.direction}: beside another one keeps {keeps}; {tree}."
    )


def _undecided(run: Links) -> Iterator[str]:
    sharing = run.sharing
    if sharing is not None and sharing.groups.value is not None:
        rate = format_percent(sharing.error_rate)
        sampled = "" if sharing.pairs_measured == sharing.pairs else f", from {sharing.pairs_measured} pairs"
        none = "" if sharing.groups.value else "No shared uplink was found. "
        yield f"{none}A group or a slow link is named by chance in {rate} of maps like this{sampled}."


def slow_text(slow: documents.SlowLink) -> str:
    ends = f"{end_name(slow.source)} to {end_name(slow.destination)}"
    share = format_percent(slow.gbps / slow.usual_gbps)
    return (
        f"{ends} ({slow.case}) is slow: {format_gbps(slow.gbps)}, {share} of the usual {format_gbps(slow.usual_gbps)}."
    )


def losing_sides(run: Links) -> Iterator[str]:
    """The sides that lose more than the other side of the same traffic."""
    for row in run.traffics:
        if row.group not in ("host", "together") or row.case != "both":
            continue
        kept = {side: [flow.alone_share.value for flow in row.flows if flow.side == side] for side in ("h2d", "d2h")}
        shares = {side: [share for share in found if share is not None] for side, found in kept.items()}
        if not all(shares.values()):
            continue
        mean = {side: sum(share.value for share in known) / len(known) for side, known in shares.items()}
        loser, winner = sorted(mean, key=lambda side: mean[side])
        for_certain = all((share.high or 1.0) < SHARED_BELOW for share in shares[loser])
        if for_certain and mean[winner] - mean[loser] > _LOSES_BY:
            where = "with all GPUs at once" if row.group == "together" else f"on GPU {row.flows[0].device}"
            yield (
                f"In both directions {where} ({engine_words(row.engine)}) {loser} loses to {winner}: it keeps "
                f"{format_percent(mean[loser])} of its rate alone, {winner} {format_percent(mean[winner])}."
            )


def latency_row(
    rows: Sequence[documents.Latency], pair: tuple[int, int], *, quick: bool, load: float
) -> documents.Latency | None:
    """Of the smallest footprint; `quick`: of short launches, as those beside copies are."""
    own = [row for row in rows if (row.device, row.target) == pair and row.load == load]
    near = min((row.footprint_bytes for row in own), default=0)
    return next((row for row in own if row.footprint_bytes == near and (row.hops < row.places) == quick), None)


def engine_words(engine: str) -> str:
    return {"ce": "copy engines", "sm": "kernels"}[engine]


def trait_texts(run: Links) -> Iterator[str]:
    for trait, text in TRAITS.items():
        numbers = tuple(each.device.index for each in run.devices if trait in each.traits)
        if numbers:
            who = f"GPU {numbers[0]}" if len(numbers) == 1 else f"Each of GPUs {end_names(numbers)}"
            yield f"{who} {text}."


def remarks(run: Links) -> list[Remark]:
    missing = [row.total.reason for row in run.traffics]
    missing += [*(row.p50.reason for row in run.latencies), *(row.rate.reason for row in run.small)]
    # A remark on the run counts what was left out.
    reasons = Counter(reason for reason in missing if reason is not None and reason != LEFT_OUT)
    lacking = [
        Remark("missing", f"{count} {'row has' if count == 1 else 'rows have'} no figure: {clean(reason)}")
        for reason, count in reasons.items()
    ]
    wide = sum(any(remark.code == "unstable" for remark in row.remarks) for row in run.traffics)
    if wide:
        what = f"{'row is' if wide == 1 else 'rows are'} known less precisely than within"
        text = f"{wide} {what} {format_percent(run.parameters.precision)}"
        lacking.append(Remark("unstable", text, "a longer --budget helps"))
    return [*run.remarks, *lacking]


def peer_ends(run: Links) -> list[tuple[int, int]]:
    rows = [row.flows[0] for row in run.traffics if row.group == "pairs" and len(row.flows) == 1]
    return sorted({(flow.source, flow.destination) for flow in rows if HOST_END not in (flow.source, flow.destination)})

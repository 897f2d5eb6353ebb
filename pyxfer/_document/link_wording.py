"""Sentences about links that pages and findings share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyxfer._document.links import Counted, Links, end_name

# Above the noise of a counter, which also counts packet headers and other traffic.
_COUNTED_SHARE = 0.5


def listed(numbers: Sequence[int]) -> str:
    """`0, 1 and 2`."""
    words = [end_name(number) for number in numbers]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def engine_words(engine: str) -> str:
    """The reader's name of what copies."""
    return {"ce": "copy engines", "sm": "kernels"}[engine]


def ways_around(run: Links) -> Iterator[str]:
    """Pairs whose bytes did not cross the NVLink that joins them."""
    joined = {(peer.source, peer.destination) for peer in run.peers if peer.kind == "nvlink"}
    for row in run.traffics:
        ends = (row.flows[0].source, row.flows[0].destination)
        if row.group == "pairs" and len(row.flows) == 1 and row.peer_access and ends in joined:
            sent = {each.counter: each for each in row.counted if each.device == ends[0]}
            if _is_crossed(sent.get("pcie-sent")) and not _is_crossed(sent.get("nvlink-sent"), unknown=True):
                yield (
                    f"{end_name(ends[0])} to {end_name(ends[1])} ({row.case}, {engine_words(row.engine)}) went over "
                    "PCI Express, although NVLink joins the two."
                )


def _is_crossed(counted: Counted | None, *, unknown: bool = False) -> bool:
    """Whether a counter saw most of the bytes; `unknown` if there is no count."""
    if counted is None or counted.counted.value is None or not counted.sent:
        return unknown
    return counted.counted.value >= _COUNTED_SHARE * counted.sent


def without_nvlink(run: Links) -> Iterator[str]:
    """Pairs without NVLink where most pairs have it."""
    bare = [peer for peer in run.peers if peer.kind == "pcie" and peer.source < peer.destination]
    joined = [peer for peer in run.peers if peer.kind == "nvlink" and peer.source < peer.destination]
    if bare and len(joined) > len(bare):
        pairs = ", ".join(f"{peer.source} and {peer.destination}" for peer in bare)
        yield f"No NVLink joins GPUs {pairs}; the other {len(joined)} pairs have one."

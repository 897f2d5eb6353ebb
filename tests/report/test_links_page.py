"""Runs of links: the sentence, the page, and what limits what."""

from __future__ import annotations

import io

import msgspec
import pytest
from link_samples import h200_rate, make_links, peer_links

from pyxfer._document.links import Counted, Links, LinksSharing
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._links.plan import FlowPlan, TrafficPlan
from pyxfer._report.layout import Page
from pyxfer._report.link_words import limits, losing_sides, remarks, sentence, ways_around
from pyxfer._report.links import print_links


def page(run: Links, columns: int = 80) -> str:
    stream = io.StringIO()
    print_links(run, Page(stream, columns))
    return stream.getvalue()


def shared(plan: TrafficPlan, flow: FlowPlan) -> float:
    """Four GPUs in pairs below two uplinks, and one slow pair."""
    ends = {flow.source, flow.destination}
    if flow.side == "peer" and ends == {1, 2}:
        return 200.0
    busy = sum(other.side == flow.side and other.device // 2 == flow.device // 2 for other in plan.flows)
    return h200_rate(plan, flow) / (busy if flow.side in ("h2d", "d2h") and plan.engine == "ce" else 1)


FOUR = make_links(4, shared)


def test_the_sentence_has_the_totals_and_their_shares() -> None:
    assert sentence(make_links()).startswith(
        "Together, 2 GPUs get 111.0 GB/s h2d (100.0 % of the sum of separate runs)"
    )
    assert "GPUs 0 and 1; 2 and 3 slow each other down" in sentence(FOUR)
    assert sentence(make_links(1)).startswith("GPU 0 gets 55.50 GB/s h2d (95.0 % of the peak) and 55.40 GB/s d2h")
    assert sentence(make_links(2, groups=("pairs",))).startswith(
        "Copies from one GPU to another reach 370.0 GB/s to 396"
    )
    assert sentence(make_links(2, groups=("latency",))) == "26 rows were measured."


def test_shared_uplinks_and_slow_pairs_are_named() -> None:
    texts = "\n".join(limits(FOUR))
    assert "GPUs 0 and 1 share an uplink h2d: beside another one keeps 50.0 %" in texts
    assert "GPUs 2 and 3 share an uplink d2h" in texts
    assert "1 to 2 (read) is slow: 200.0 GB/s" in texts
    assert "No shared uplink" not in texts


@pytest.mark.parametrize(
    ("tree", "word"), [(((0, 1), (2, 3)), "one port above"), (((0, 2),), "no port that they share")]
)
def test_groups_are_compared_with_the_tree(tree: tuple[tuple[int, ...], ...], word: str) -> None:
    assert any(word in text for text in limits(make_links(4, shared, tree=Fact(tree))))


def test_the_losing_side_is_named_with_what_both_keep() -> None:
    (text,) = losing_sides(make_links(groups=("together",)))
    assert "all GPUs at once (copy engines) h2d loses to d2h: it keeps 53.5 %" in text
    even = make_links(groups=("together",), rate_of=lambda plan, _: 50.0 if len(plan.flows) < 3 else 25.0)
    assert not list(losing_sides(even))


def test_bytes_that_took_another_way_are_named() -> None:
    run = make_links(groups=("pairs",))
    assert not list(ways_around(run))
    place = next(i for i, row in enumerate(run.traffics) if row.case == "read")
    row = run.traffics[place]
    sent = row.counted[0].sent
    around = (
        Counted(row.flows[0].source, "nvlink-sent", Fact(0), sent),
        Counted(row.flows[0].source, "pcie-sent", Fact(sent), sent),
    )
    changed = list(run.traffics)
    changed[place] = msgspec.structs.replace(row, counted=around)
    (text,) = ways_around(msgspec.structs.replace(run, traffics=tuple(changed)))
    assert text.startswith("0 to 1 (read, copy engines) went over PCI Express")
    changed[place] = msgspec.structs.replace(
        row, counted=(msgspec.structs.replace(around[0], counted=unknown("not supported")), around[1])
    )
    assert not list(ways_around(msgspec.structs.replace(run, traffics=tuple(changed))))


def test_a_pair_without_nvlink_where_the_others_have_it_is_named() -> None:
    run = make_links(4, groups=("pairs",), peers=peer_links(4, bare=[(1, 3)]))
    assert any("No NVLink joins GPUs 1 and 3" in text for text in limits(run))


def test_sampled_pairs_and_the_error_rate_are_stated() -> None:
    sharing = FOUR.sharing
    assert isinstance(sharing, LinksSharing)
    fewer = msgspec.structs.replace(FOUR, sharing=msgspec.structs.replace(sharing, pairs_measured=5))
    assert any("0.1 % of maps like this, from 5 pairs" in text for text in limits(fewer))


def test_four_gpus_have_matrices_that_fit() -> None:
    text = page(FOUR)
    assert max(map(len, text.splitlines())) <= 80
    assert "What a GPU keeps beside another one, h2d, %" in text
    assert "GPU to GPU, read, GB/s" in text
    assert "all-to-one-read, to 3" in text


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("columns", [80, 120])
def test_every_page_fits(count: int, columns: int) -> None:
    run = make_links(count, nodes=(0, 1))
    text = page(run, columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "GPU 0, node 0 (near)" in text


def test_rows_without_a_figure_have_their_reason_once() -> None:
    run = make_links(groups=("host",))
    gone = [msgspec.structs.replace(row, total=unknown("no memory")) for row in run.traffics]
    found = remarks(msgspec.structs.replace(run, traffics=tuple(gone), remarks=(Remark("numa", "One node."),)))
    assert [remark.code for remark in found] == ["numa", "missing"]
    assert "12 rows" in found[1].text

"""Runs of links: the sentence, the page, what limits what, and the charts."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from link_samples import h200_rate, make_links, peer_links
from marks import slow
from pages import plots_of, titles_of, values_of
from report_samples import DOCUMENTS, make_links_of_four

from pyxfer._doctor.links import ways_around
from pyxfer._document.links import Counted, FlowPlan, Links, LinksSharing
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import LEFT_OUT
from pyxfer._links.plan import TrafficPlan
from pyxfer._report.kinds import chart_of, charts_of, report_of
from pyxfer._report.link_words import limits, losing_sides, remarks, sentence
from pyxfer._report.plots import BLUES, GRID, INK, ORANGES
from pyxfer._report.webpage import _style


def page(run: Links, columns: int = 80, *, details: bool = True) -> str:
    return run.text(columns, details=details)


def shared(plan: TrafficPlan, flow: FlowPlan) -> float:
    """Four GPUs in pairs below two uplinks, and one slow pair."""
    ends = {flow.source, flow.destination}
    if flow.side == "peer" and ends == {1, 2}:
        return 200.0
    busy = sum(other.side == flow.side and other.device // 2 == flow.device // 2 for other in plan.flows)
    return h200_rate(plan, flow) / (busy if flow.side in ("h2d", "d2h") and plan.engine == "ce" else 1)


SAVED = Path(__file__).parents[2] / "bench" / "results"
FOUR = make_links(4, shared)


def test_the_sentence_has_the_totals_and_their_shares() -> None:
    assert sentence(make_links()).startswith("Together, 2 GPUs get 111 GB/s h2d (100 % of the sum of separate runs)")
    assert "GPUs 0 and 1; 2 and 3 slow each other down" in sentence(FOUR)
    assert sentence(make_links(1)).startswith("GPU 0 gets 55.5 GB/s h2d (95 % of the peak) and 55.4 GB/s d2h")
    assert sentence(make_links(2, groups=("latency",))) == "26 rows were measured."


def test_the_first_page_of_host_memory_names_no_gpu_and_of_parts_has_no_judgement() -> None:
    text = page(msgspec.structs.replace(make_links(1, groups=("latency",)), runtime="host"), details=False)
    assert "One load takes" in text
    assert "by a GPU" not in text
    copies = msgspec.structs.replace(make_links(1, groups=("host",)), runtime="host")
    assert sentence(copies).startswith("Host memory in place of GPU 0 gets ")
    run = Links.load(SAVED / "links_small.json.gz")
    assert "not seen under load. 12 rows were measured." in " ".join(page(run, details=False).split())


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


def test_a_pair_without_nvlink_sampled_pairs_and_the_error_rate_are_named() -> None:
    run = make_links(4, groups=("pairs",), peers=peer_links(4, bare=[(1, 3)]))
    assert any("No NVLink joins GPUs 1 and 3" in text for text in limits(run))
    sharing = FOUR.sharing
    assert isinstance(sharing, LinksSharing)
    fewer = msgspec.structs.replace(FOUR, sharing=msgspec.structs.replace(sharing, pairs_measured=5))
    assert any("0.1 % of maps like this, from 5 pairs" in text for text in limits(fewer))


@pytest.mark.parametrize("count", [1, slow(2), slow(3), 4])
@pytest.mark.parametrize("columns", [80, 120])
def test_every_page_fits(count: int, columns: int) -> None:
    run = make_links(count, nodes=(0, 1))
    text = page(run, columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "Host memory of each NUMA node" in text
    assert max(map(len, page(run, columns, details=False).splitlines())) <= columns


def test_the_first_page_leads_with_what_is_wrong_and_the_remedy() -> None:
    first = " ".join(page(FOUR, details=False).split())
    assert first.startswith("4 x NVIDIA H200, PCIe 5.0 x16, 256 B payload: 1 to 2, read: 200.0 GB/s")
    assert first.index("To do") < first.index("Host and GPU, GB/s")
    assert report_of(FOUR).headline(FOUR).startswith("4 x NVIDIA H200")
    assert report_of(FOUR).badge(FOUR) == ("bad", "wrong")


@pytest.mark.parametrize(("reason", "codes"), [("no memory", ["numa", "missing"]), (LEFT_OUT, ["numa"])])
def test_rows_without_a_figure_have_their_reason_once(reason: str, codes: list[str]) -> None:
    run = make_links(groups=("host",))
    gone = [msgspec.structs.replace(row, total=unknown(reason)) for row in run.traffics]
    found = remarks(msgspec.structs.replace(run, traffics=tuple(gone), remarks=(Remark("numa", "One node."),)))
    assert [remark.code for remark in found] == codes
    assert all("12 rows" in remark.text for remark in found[1:])


# --- charts: heat maps have every value or its reason, and titles say what was found ---------------------------------


DRAWN = make_links_of_four()


def cells_of(plot: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(value["row"], value["column"]): value["figure"] for value in values_of(plot)}


def test_the_map_of_pairs_has_the_rate_of_each_ordered_pair_or_the_letter_of_its_reason() -> None:
    read, write, *_ = plots_of(chart_of(DRAWN, "pairs"))
    assert len(cells_of(write)) == len(cells_of(read)) == 4 * 3
    assert (cells_of(write)["1", "0"], cells_of(read)["1", "0"]) == ("396", "a")
    assert "393.7 GB/s" in titles_of(read)[0]
    assert read["title"]["subtitle"] == ["a: peer access is off"]
    (told,) = [value["text"] for value in values_of(read) if value["figure"] == "a"]
    assert told == "GPU 1 to GPU 0: peer access is off"


def test_many_reasons_leave_the_map_readable() -> None:
    rows = tuple(
        msgspec.structs.replace(row, total=unknown(f"reason {place}")) if row.case == "read" else row
        for place, row in enumerate(DRAWN.traffics)
        if not (row.case == "read" and row.flows[0].source == 0)
    )
    plot = plots_of(chart_of(msgspec.structs.replace(DRAWN, traffics=rows), "pairs"))[0]
    assert "written by the source" in titles_of(plot)[0]  # a map without any figure is left out


def test_the_interference_map_has_what_each_gpu_keeps_and_names_the_uplinks() -> None:
    h2d, d2h = plots_of(chart_of(DRAWN, "interference"))
    assert cells_of(h2d)["0", "1"] == "50 %"
    assert cells_of(d2h)["2", "3"] == "51 %"
    assert cells_of(h2d)["0", "2"] == "100 %"
    assert titles_of(h2d)[0].startswith("GPUs 0 and 1 share an uplink h2d")
    assert report_of(DRAWN).badge(DRAWN)[0] == "doubtful"


def test_a_map_that_does_not_tell_whether_links_are_shared_says_so() -> None:
    sharing = DRAWN.sharing
    assert isinstance(sharing, LinksSharing)
    unsure = msgspec.structs.replace(sharing, groups=unknown("too few rounds"), keeps=sharing.keeps[:3])
    plots = plots_of(chart_of(msgspec.structs.replace(DRAWN, sharing=unsure), "interference"))
    assert "not known: too few rounds" in titles_of(plots[0])[0]
    assert plots[0]["title"]["subtitle"] == ["a: this pair was not measured"]


def test_the_map_of_nodes_compares_the_own_node_with_the_others() -> None:
    h2d, _ = plots_of(chart_of(DRAWN, "numa"))
    assert cells_of(h2d)["3", "1"] == "55.5"
    assert cells_of(h2d)["3", "0"] == "41.2"
    assert "55.50 GB/s with memory of a GPU's own node, 41.20 GB/s" in titles_of(h2d)[0]


def test_latencies_are_drawn_without_load_and_beside_copies() -> None:
    chart = chart_of(make_links(1), "latency")
    drawn = [(value["role"], round(value["gbps"])) for value in values_of(chart) if "role" in value]
    assert drawn == [("without load", 1181), ("beside copies", 1772), ("beside copies", 2362), ("without load", 142)]
    assert "1181 ns from the host, 142 ns from the GPU itself, and up to 2362 ns beside copies" in titles_of(chart)[0]


def test_host_memory_is_named_and_a_run_without_figures_has_no_chart() -> None:
    run = DOCUMENTS["links of the host"]
    for chart in charts_of(run):
        assert all("host memory" in title for title in titles_of(chart_of(run, chart)))
    assert report_of(run).badge(run) == ("none", "host memory")
    assert not charts_of(msgspec.structs.replace(DRAWN, traffics=(), latencies=(), small=(), sharing=None))


def test_wrong_contents_are_no_bar_and_a_bad_light() -> None:
    good = make_links(1, groups=("host",))
    row = good.traffics[0]
    wrong = msgspec.structs.replace(row, flows=(msgspec.structs.replace(row.flows[0], verified=Fact(False)),))
    run = msgspec.structs.replace(good, traffics=(wrong, *good.traffics[1:]))
    assert len(list(values_of(chart_of(run, "host")))) == len(list(values_of(chart_of(good, "host")))) - 1
    assert report_of(run).badge(run) == ("bad", "wrong contents")


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_values_can_be_read_on_every_colour_of_a_cell_in_light_and_dark() -> None:
    dark = dict(re.findall(r'figure \[fill="(#\w+)"\] { fill: (#\w+); }', _style()))
    for shade in (*BLUES, *ORANGES, GRID):
        assert contrast(INK, shade) >= 4.5
        assert contrast(dark[INK], dark[shade]) >= 4.5


@pytest.mark.parametrize("shades", [BLUES, ORANGES])
def test_the_colours_of_a_map_differ_in_lightness(shades: tuple[str, ...]) -> None:
    steps = [luminance(shade) for shade in shades]
    assert all(light > 1.1 * next_ for light, next_ in itertools.pairwise(steps))

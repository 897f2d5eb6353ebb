"""Charts of links: heat maps have every value or its reason, and titles say what was found."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import pytest
from chart_parts import plots_of, titles_of, values_of
from link_samples import make_links
from report_samples import DOCUMENTS, make_links_of_four

from pyxfer._document.links import LinksSharing
from pyxfer._document.machines import Fact, unknown
from pyxfer._report.kinds import badge, chart_of, charts_of
from pyxfer._report.link_words import sentence
from pyxfer._report.plots import BLUES, GRID, INK, NARROW, ORANGES, WIDE
from pyxfer._report.webpage import _style

FOUR = make_links_of_four()


def cells_of(plot: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(value["row"], value["column"]): value["figure"] for value in values_of(plot)}


def test_the_map_of_pairs_has_the_rate_of_each_ordered_pair() -> None:
    read, write, *_ = plots_of(chart_of(FOUR, "pairs"))
    assert len(cells_of(write)) == len(cells_of(read)) == 4 * 3
    assert cells_of(write)["1", "0"] == "396"
    assert "393.7 GB/s" in titles_of(read)[0]


def test_a_cell_without_a_figure_has_the_letter_of_its_reason() -> None:
    read = plots_of(chart_of(FOUR, "pairs"))[0]
    assert cells_of(read)["1", "0"] == "a"
    assert read["title"]["subtitle"] == ["a: peer access is off"]
    (told,) = [value["text"] for value in values_of(read) if value["figure"] == "a"]
    assert told == "GPU 1 to GPU 0: peer access is off"


def test_many_reasons_leave_the_map_readable() -> None:
    rows = tuple(
        msgspec.structs.replace(row, total=unknown(f"reason {place}")) if row.case == "read" else row
        for place, row in enumerate(FOUR.traffics)
        if not (row.case == "read" and row.flows[0].source == 0)
    )
    plot = plots_of(chart_of(msgspec.structs.replace(FOUR, traffics=rows), "pairs"))[0]
    assert "written by the source" in titles_of(plot)[0]  # a map without any figure is left out


def test_the_interference_map_has_what_each_gpu_keeps_and_names_the_uplinks() -> None:
    h2d, d2h = plots_of(chart_of(FOUR, "interference"))
    assert cells_of(h2d)["0", "1"] == "50 %"
    assert cells_of(d2h)["2", "3"] == "51 %"
    assert cells_of(h2d)["0", "2"] == "100 %"
    assert titles_of(h2d)[0].startswith("GPUs 0 and 1 share an uplink h2d")
    assert badge(FOUR)[0] == "doubtful"


def test_a_map_that_does_not_tell_whether_links_are_shared_says_so() -> None:
    sharing = FOUR.sharing
    assert isinstance(sharing, LinksSharing)
    unsure = msgspec.structs.replace(sharing, groups=unknown("too few rounds"), keeps=sharing.keeps[:3])
    plots = plots_of(chart_of(msgspec.structs.replace(FOUR, sharing=unsure), "interference"))
    assert "not known: too few rounds" in titles_of(plots[0])[0]
    assert plots[0]["title"]["subtitle"] == ["a: this pair was not measured"]


def test_the_map_of_nodes_compares_the_own_node_with_the_others() -> None:
    h2d, _ = plots_of(chart_of(FOUR, "numa"))
    assert cells_of(h2d)["3", "1"] == "55.5"
    assert cells_of(h2d)["3", "0"] == "41.2"
    assert "55.50 GB/s with memory of a GPU's own node, 41.20 GB/s" in titles_of(h2d)[0]


def test_the_bars_of_all_gpus_stand_beside_the_sum_of_separate_runs() -> None:
    spec = chart_of(FOUR, "together")
    bars = {value["series"]: value["gbps"] for value in values_of(spec)}
    assert bars["h2d: together"] == pytest.approx(4 * 28.0, rel=1e-3)
    assert bars["h2d: sum of separate"] == pytest.approx(4 * 55.5, rel=1e-3)
    assert titles_of(spec) == [sentence(FOUR)]


def test_latency_under_load_has_the_median_and_the_p99_of_each_load() -> None:
    under_load, idle = plots_of(chart_of(make_links(1), "latency"))
    values = list(values_of(under_load))
    assert [(value["part"], value["load"]) for value in values] == [
        (part, load) for load in (0.0, 0.5, 1.0) for part in ("median", "p99")
    ]
    assert "1181 ns without load, 2362 ns at 100 % load, 2 times as long" in titles_of(under_load)[0]
    assert [round(value["gbps"]) for value in values_of(idle)] == [1181, 142]


def test_small_copies_are_drawn_by_size() -> None:
    values = list(values_of(chart_of(make_links(1), "small")))
    assert {value["series"] for value in values} == {
        f"{direction}, {way}" for direction in ("h2d", "d2h") for way in ("a call each", "all in one call")
    }


def test_host_memory_is_named_and_has_no_share_of_a_peak() -> None:
    run = DOCUMENTS["links of the host"]
    for chart in charts_of(run):
        assert all("host memory" in title for title in titles_of(chart_of(run, chart)))
    assert badge(run) == ("none", "host memory")


def test_wrong_contents_are_no_bar_and_a_bad_light() -> None:
    good = make_links(1, groups=("host",))
    row = good.traffics[0]
    wrong = msgspec.structs.replace(row, flows=(msgspec.structs.replace(row.flows[0], verified=Fact(False)),))
    run = msgspec.structs.replace(good, traffics=(wrong, *good.traffics[1:]))
    assert len(list(values_of(chart_of(run, "host")))) == len(list(values_of(chart_of(good, "host")))) - 1
    assert badge(run) == ("bad", "wrong contents")


def test_a_run_without_figures_has_no_chart() -> None:
    run = msgspec.structs.replace(FOUR, traffics=(), latencies=(), small=(), sharing=None)
    assert charts_of(run).keys() <= charts_of(FOUR).keys()
    assert not charts_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_sixteen_gpus_have_a_map(width: int) -> None:
    run = make_links(16, groups=("pairs",))
    assert all(len(cells_of(plot)) == 16 * 15 for plot in plots_of(chart_of(run, "pairs", width)))


# --- colours ---------------------------------------------------------------------------------------------------------


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

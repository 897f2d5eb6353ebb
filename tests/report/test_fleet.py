"""Fleets: the sentence, the page and the charts."""

from __future__ import annotations

import io
from typing import Any

import pytest
from fleet_samples import CELLS, LATENCY, arrivals, judged, make_host, make_hosts
from report_samples import DOCUMENTS

from pyxfer._document.fleets import Fleet
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.judge import judge
from pyxfer._report.fleet import print_fleet
from pyxfer._report.fleet_charts import losses_of, rows_of
from pyxfer._report.fleet_words import chance_text, contrast_text, sentence
from pyxfer._report.kinds import badge, chart_of, charts_of
from pyxfer._report.layout import Page
from pyxfer._report.plots import NARROW, WIDE


def page(fleet: Fleet, columns: int | None = 100) -> str:
    stream = io.StringIO()
    print_fleet(fleet, Page(stream, columns))
    return stream.getvalue()


def late(count: int) -> list[Arrival]:
    return [Arrival(f"late-{number}", "late", "no answer within 25 s", None, "ssh") for number in range(count)]


def test_the_sentence_has_the_number_the_worst_host_and_the_cause() -> None:
    text = sentence(judged(make_hosts(256, {1: 0.05, 20: 0.08, 30: 0.05, 40: 0.05})))
    assert text.startswith("4 of 256 hosts are slow: n20 ")
    assert "in h2d:gpu0:pinned:256MiB" in text
    assert "rack=r7 on 4 of 4 slow hosts and 0 of 252 others" in text


def test_hosts_that_were_not_measured_are_counted_with_their_reason() -> None:
    text = page(judge([*arrivals(make_hosts(20)), *late(12)]))
    assert "12 not judged" in text
    assert "late-0, late-1, late-2, late-3, late-4 and 7 more: no answer within 25 s" in text


def test_older_documents_of_a_host_are_no_further_hosts() -> None:
    older = [make_host(f"n{n}", began_at="2026-11-22T12:00:00+00:00") for n in range(3)]
    lines = page(judge(arrivals([*older, *make_hosts(20)]))).splitlines()
    assert "hosts   20: 20 fine" in lines
    assert "not judged" not in lines[0]
    assert page(judge(arrivals([make_host("n1", cells=())] * 2))).startswith("None of 1 host could")


@pytest.mark.parametrize("rows", [[], late(3)])
def test_a_fleet_without_figures_says_so(rows: list[Arrival]) -> None:
    assert f"None of {len(rows)} hosts could be judged" in page(judge(rows))


def test_only_the_worst_hosts_are_listed() -> None:
    slow = dict.fromkeys(range(14), 0.05)
    text = page(judged(make_hosts(400, slow)))
    assert "and 4 more; --export-json has all" in text


def test_gpus_of_a_host_have_one_line() -> None:
    cells = {f"h2d:gpu{gpu}:pinned:256MiB": 55.0 for gpu in range(8)}
    lines = [line for line in page(judged(make_hosts(60, cells=cells))).splitlines() if "256MiB" in line]
    assert len(lines) == 1
    assert lines[0].startswith("h2d:gpu:pinned:256MiB")


def test_a_chance_is_told_unless_there_is_none() -> None:
    (sure,) = judged(make_hosts(256, dict.fromkeys((1, 2, 3, 4), 0.05))).contrasts
    assert chance_text(sure) == "no coincidence"
    hosts = [
        make_host(name, {"h2d:gpu0:pinned:4KiB": rate}, facts={"governor": governor})
        for name, rate, governor in (("a", 10.0, "performance"), ("b", 5.0, "powersave"), ("c", 10.1, "performance"))
    ]
    (hint,) = judged(hosts).contrasts
    assert contrast_text(hint) == "governor=powersave on 1 of 1 slow host and 0 of 2 others"
    assert chance_text(hint).startswith("may be a coincidence")


def squares(fleet: Fleet, width: int = WIDE) -> dict[tuple[str, str], dict[str, Any]]:
    values = chart_of(fleet, "fleet", width)["data"]["values"]
    return {(value["host"], value["cell"]): value for value in values}


def test_the_worst_hosts_are_at_the_top() -> None:
    found = squares(judged(make_hosts(20, {7: 0.08, 9: 0.05})))
    hosts = list(dict.fromkeys(host for host, _ in found))
    assert hosts[:2] == ["1. n7 (slow)", "2. n9 (slow)"]
    assert len(hosts) == 20
    worst = found["1. n7 (slow)", "h2d:gpu:pinned:256MiB"]
    assert float(worst["text"]) == pytest.approx(-8, abs=0.3)
    assert worst["shade"] != found["2. n9 (slow)", "d2h:gpu:pinned:256MiB"]["shade"]


def test_many_hosts_are_quantiles() -> None:
    rows = rows_of(judged(make_hosts(300, {7: 0.08})))
    assert len(rows) == 24
    assert rows[0].name == "1. n7 (slow)"
    assert [row.name for row in rows[-3:]] == ["worst of 279 others", "worst 1 % of 279 others", "median of 279 others"]
    cell = "h2d:gpu:pinned:256MiB"
    assert rows[-3].losses[cell] >= rows[-2].losses[cell] >= rows[-1].losses[cell]


def test_gpus_share_a_column_with_their_worst_figure() -> None:
    cells = {f"h2d:gpu{gpu}:pinned:256MiB": 55.0 for gpu in range(8)}
    fleet = judged(make_hosts(20, {7: 0.3}, cell="h2d:gpu3:pinned:256MiB", cells=cells))
    assert losses_of(fleet)[7] == {"h2d:gpu:pinned:256MiB": pytest.approx(0.3, abs=0.01)}


def test_a_latency_is_worse_when_it_is_higher() -> None:
    fleet = judged(make_hosts(20, {7: -0.25}, cell=LATENCY, cells={LATENCY: 1100.0}))
    assert losses_of(fleet)[7]["links.latency.idle:host-gpu:2MiB"] == pytest.approx(0.25, abs=0.01)


def test_a_missing_figure_has_a_square() -> None:
    values: dict[str, float | None] = {**CELLS, "d2h:gpu0:pinned:256MiB": None}
    fleet = judge(arrivals([*make_hosts(20), make_host("n20", values)]))
    missing = [value for value in squares(fleet).values() if value["text"] == "-"]
    assert [value["words"].rpartition(": ")[2] for value in missing] == ["not measured"]


def test_a_narrow_chart_has_fewer_columns() -> None:
    cells = {f"h2d:gpu0:pinned:{size}MiB": 50.0 for size in range(1, 20)}
    fleet = judged(make_hosts(20, cells=cells))
    columns = {width: len({cell for _, cell in squares(fleet, width)}) for width in (WIDE, NARROW)}
    assert columns == {WIDE: 12, NARROW: 5}
    assert "The 5 of 19 figures" in " ".join(chart_of(fleet, "fleet", NARROW)["title"]["text"])


def test_a_fleet_without_figures_has_no_chart() -> None:
    assert charts_of(judge([])) == {}


@pytest.mark.parametrize(
    ("fleet", "colour", "word"),
    [
        (DOCUMENTS["fleet"], "bad", "2 slow"),
        (DOCUMENTS["fleet of two groups"], "doubtful", "two groups"),
        (judge([]), "none", "not judged"),
    ],
)
def test_the_badge_is_the_verdict(fleet: Fleet, colour: str, word: str) -> None:
    assert badge(fleet) == (colour, word)


def test_a_host_has_its_rates_as_bars() -> None:
    values = chart_of(make_host("n1"), "figures")["data"]["values"]
    assert [value["gbps"] for value in values] == list(CELLS.values())

"""The heat map of a fleet and the figures of a host."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_samples import CELLS, LATENCY, arrivals, judged, make_fleet, make_host, make_hosts
from report_samples import DOCUMENTS

from pyxfer._document.fleets import Fleet
from pyxfer._fleet.judge import judge
from pyxfer._report.fleet_charts import losses_of, rows_of
from pyxfer._report.kinds import badge, chart_of, charts_of
from pyxfer._report.plots import NARROW, WIDE


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


def test_a_suspect_host_is_doubtful() -> None:
    assert badge(judge(arrivals(make_hosts(60, {7: 0.05}))))[0] == "doubtful"
    assert badge(judged(make_hosts(60)))[0] == "good"


def test_a_host_has_its_rates_as_bars() -> None:
    values = chart_of(make_host("n1"), "figures")["data"]["values"]
    assert [value["gbps"] for value in values] == list(CELLS.values())


def test_a_hostile_name_is_harmless_in_a_chart() -> None:
    assert "\x1b" not in repr(chart_of(make_fleet(), "fleet"))

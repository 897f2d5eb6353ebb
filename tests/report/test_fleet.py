"""Fleets: the sentence, the page, the charts, and the forms for other programs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fleet_samples import CELLS, HOSTILE, LATENCY, arrivals, judged, make_fleet, make_host, make_hosts
from hypothesis import given
from hypothesis import strategies as st
from pages import titles_of
from report_samples import DOCUMENTS

from pyxfer._document.fleets import Fleet
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.judge import judge
from pyxfer._report.fleet import losses_of, rows_of
from pyxfer._report.fleet_formats import (
    LONGEST_REASON,
    causes_of,
    drain_lines,
    drain_reason,
    nagios_line,
    npd_line,
    prometheus_text,
    safe,
)
from pyxfer._report.fleet_words import chance_text, contrast_text, sentence
from pyxfer._report.kinds import chart_of, charts_of, report_of
from pyxfer._report.plots import NARROW, WIDE
from pyxfer.errors import UsageError


def page(fleet: Fleet) -> str:
    return fleet.text(100)


def late(count: int) -> list[Arrival]:
    return [Arrival(f"late-{number}", "late", "no answer within 25 s", None, "ssh") for number in range(count)]


def test_the_sentence_has_the_number_the_worst_host_and_the_cause() -> None:
    text = sentence(judged(make_hosts(256, {1: 0.05, 20: 0.08, 30: 0.05, 40: 0.05})))
    assert text.startswith("4 of 256 hosts are slow: n20 ")
    assert "in h2d:gpu0:pinned:256MiB" in text
    assert "rack=r7 on 4 of 4 slow hosts and 0 of 252 others" in text


def test_long_lists_of_hosts_are_counted_and_gpus_of_a_host_have_one_line() -> None:
    text = page(judge([*arrivals(make_hosts(20)), *late(12)]))
    assert "12 not judged" in text
    assert "late-0, late-1, late-2, late-3, late-4 and 7 more: no answer within 25 s" in text
    assert "and 4 more; --export-json has all" in page(judged(make_hosts(400, dict.fromkeys(range(14), 0.05))))
    cells = {f"h2d:gpu{gpu}:pinned:256MiB": 55.0 for gpu in range(8)}
    (line,) = [line for line in page(judged(make_hosts(60, cells=cells))).splitlines() if "256MiB" in line]
    assert line.startswith("h2d:gpu:pinned:256MiB")


@pytest.mark.parametrize("rows", [[], late(3)])
def test_a_fleet_without_figures_says_so(rows: list[Arrival]) -> None:
    assert f"None of {len(rows)} hosts could be judged" in page(judge(rows))
    assert charts_of(judge(rows)) == {}


def test_without_figures_the_commonest_reason_leads() -> None:
    full = Arrival("n1", "failed", "the disk is full", None, "ssh")
    assert "None of 4 hosts could be judged; 3 of them: no answer" in page(judge([full, *late(3)]))


def test_older_documents_of_a_host_are_neither_further_hosts_nor_missing() -> None:
    older = [make_host(f"n{n}", began_at="2026-11-22T12:00:00+00:00") for n in range(3)]
    found = judge(arrivals([*older, *make_hosts(20)]))
    lines = page(found).splitlines()
    assert "hosts   20: 20 fine" in lines
    assert npd_line(found, None)[1] == nagios_line(found, None)[1] == 0
    assert nagios_line(found, None)[0].endswith("missing=0")
    assert "not judged" not in lines[0]
    assert page(judge(arrivals([make_host("n1", cells=())] * 2))).startswith("The host could not be judged")


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
    return {(value["row"], value["column"]): value for value in values}


def test_the_worst_hosts_are_at_the_top() -> None:
    found = squares(judged(make_hosts(20, {7: 0.08, 9: 0.05})))
    hosts = list(dict.fromkeys(host for host, _ in found))
    assert hosts[:2] == ["1. n7 (slow)", "2. n9 (slow)"]
    assert len(hosts) == 20
    worst = found["1. n7 (slow)", "h2d:gpu:pinned:256MiB"]
    assert float(worst["figure"]) == pytest.approx(-8, abs=0.3)
    assert worst["shade"] != found["2. n9 (slow)", "d2h:gpu:pinned:256MiB"]["shade"]


def test_only_what_was_judged_low_has_a_strong_colour() -> None:
    fleet = judged(make_hosts(20, {7: 0.3}))
    flagged = squares(fleet)["1. n7 (slow)", "h2d:gpu:pinned:256MiB"]["shade"]
    without = [msgspec.structs.replace(host, verdict="fine", losses=()) for host in fleet.hosts]
    unflagged = squares(msgspec.structs.replace(fleet, hosts=tuple(without)))["1. n7", "h2d:gpu:pinned:256MiB"]
    assert float(unflagged["figure"]) == pytest.approx(-30, abs=1)
    assert not unflagged["shade"].startswith("judged low")
    assert flagged.startswith("judged low")


def test_a_narrow_chart_has_fewer_columns_and_each_its_name() -> None:
    cells = {f"h2d:gpu0:pinned:{size}MiB": 50.0 for size in range(1, 20)}
    fleet = judged(make_hosts(20, cells=cells))
    columns = {width: len({cell for _, cell in squares(fleet, width)}) for width in (WIDE, NARROW)}
    assert columns == {WIDE: 12, NARROW: 5}
    narrow = chart_of(fleet, "fleet", NARROW)
    assert "The 5 of 19 figures" in " ".join(narrow["title"]["text"])
    assert narrow["layer"][0]["encoding"]["x"]["axis"]["labelOverlap"] is False


def test_of_many_hosts_the_worst_are_drawn() -> None:
    fleet = judged(make_hosts(300, {7: 0.08}))
    rows = rows_of(fleet)
    assert len(rows) == 24
    assert rows[0].name == "1. n7 (slow)"
    assert "The worst 24 hosts are drawn." in titles_of(chart_of(fleet, "fleet"))[0]


@pytest.mark.parametrize(
    ("cells", "cell", "loss", "family", "drawn"),
    [
        (
            {f"h2d:gpu{gpu}:pinned:256MiB": 55.0 for gpu in range(8)},
            *("h2d:gpu3:pinned:256MiB", 0.3, "h2d:gpu:pinned:256MiB", 0.3),
        ),
        ({LATENCY: 1100.0}, LATENCY, -0.25, "links.latency.idle:host-gpu:2MiB", 0.25),
    ],
    ids=["the worst of eight GPUs", "a higher latency"],
)
def test_a_column_has_the_worst_figure(
    cells: dict[str, float], cell: str, loss: float, family: str, drawn: float
) -> None:
    fleet = judged(make_hosts(20, {7: loss}, cell=cell, cells=cells))
    assert losses_of(fleet)[7] == {family: pytest.approx(drawn, abs=0.01)}


def test_a_missing_figure_has_a_square() -> None:
    values: dict[str, float | None] = {**CELLS, "d2h:gpu0:pinned:256MiB": None}
    fleet = judge(arrivals([*make_hosts(20), make_host("n20", values)]))
    missing = [value for value in squares(fleet).values() if value["figure"] == "-"]
    assert [value["text"].rpartition(": ")[2] for value in missing] == ["not measured"]


@pytest.mark.parametrize(
    ("name", "colour", "word"),
    [("fleet", "bad", "2 slow"), ("fleet of two groups", "doubtful", "two groups"), ("none", "none", "not judged")],
)
def test_the_badge_is_the_verdict(name: str, colour: str, word: str) -> None:
    fleet = DOCUMENTS[name] if name in DOCUMENTS else judge([])
    assert report_of(fleet).badge(fleet) == (colour, word)


def test_a_host_has_its_rates_as_bars() -> None:
    values = chart_of(make_host("n1"), "figures")["data"]["values"]
    assert [value["gbps"] for value in values] == list(CELLS.values())


# --- for other programs: safe lines, exit codes, and Prometheus  ------------------------------------------------


SLOW = {**CELLS, "h2d:gpu0:pinned:256MiB": 20.0}


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return make_fleet()


@given(st.text(max_size=400))
def test_a_safe_text_is_one_short_line_that_nothing_interprets(text: str) -> None:
    line = safe(text, LONGEST_REASON)
    assert len(line) <= LONGEST_REASON
    assert not set(line) & set("\n\r\t\x1b\"'`$\\|&<!*?[]{}#~;") - {";"}
    assert line.isascii()


def test_a_drain_line_is_the_host_and_its_reason(fleet: Fleet) -> None:
    lines = [line.split(" ", 1) for line in drain_lines(fleet).splitlines()]
    assert [host for host, _ in lines] == ["n3", "n5"]
    assert causes_of(fleet).keys() == {"n3", "n5"}
    reason = lines[0][1]
    assert reason.startswith("pyxfer: ")
    assert "h2d:gpu0:pinned:256MiB" in reason
    assert len(reason) <= LONGEST_REASON
    (contrast, *_) = fleet.contrasts
    long = msgspec.structs.replace(contrast, value="x" * 500, what="y" * 500)
    assert len(drain_reason(fleet.host("n3"), long)) == LONGEST_REASON


def test_a_name_that_no_node_has_is_not_drained() -> None:
    names = (HOSTILE, "-rf", "ALL", "all", "Default", "n[1-3]", "n1,n2", "n1-n[2]", "n1 n2", "{n1}", "@gpu", "n*", "")
    fleet = judged([*make_hosts(59), make_host("c1", SLOW)])
    hosts = tuple(msgspec.structs.replace(fleet.host("c1"), host=name) for name in (*names, "n7", "c1.example"))
    drained = [line.split()[0] for line in drain_lines(msgspec.structs.replace(fleet, hosts=hosts)).splitlines()]
    assert sorted(drained) == ["c1.example", "n7"]


def test_lines_of_node_problem_detector(fleet: Fleet) -> None:
    assert [npd_line(fleet, name)[1] for name in ("n3", "n1", "n99", None)] == [1, 0, 2, 1]
    assert npd_line(judge(arrivals(make_hosts(60, {7: 0.05}))), "n7")[1] == 2
    assert "\n" not in npd_line(fleet, "n3")[0]
    with pytest.raises(UsageError, match="no host 'n1000'"):
        npd_line(fleet, "n1000")


def test_a_line_for_nagios_has_no_quotes() -> None:
    assert safe("no host 'nope'; `x`", 100) == "no host nope; _x_"


def test_lines_of_nagios(fleet: Fleet) -> None:
    line, code = nagios_line(fleet, None)
    assert code == 2
    assert line.startswith("PYXFER CRITICAL - ")
    assert line.endswith("| slow=2;;0 suspect=0;0 missing=1")
    assert line.count("|") == 1
    assert nagios_line(fleet, "n1") == ("PYXFER OK - n1 is as fast as the others | slow=0;;0 suspect=0;0 missing=0", 0)
    assert nagios_line(fleet, "n99")[1] == 3
    assert nagios_line(judge([*arrivals(make_hosts(20)), *late(1)]), None)[1] == 3
    assert nagios_line(judge(arrivals(make_hosts(60, {7: 0.05}))), None)[1] == 1


def test_metrics_have_verdicts_losses_and_limits(fleet: Fleet) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        each.name.removeprefix("pyxfer_fleet_"): each.samples
        for each in parser.text_string_to_metric_families(prometheus_text(fleet))
    }
    counts = {s.labels["verdict"]: s.value for s in families["hosts"]}
    assert counts == {"fine": 39, "slow": 2, "suspect": 0, "not judged": 1}
    assert {s.labels["host"] for s in families["host_slow"] if s.value == 1} == {"n3", "n5"}
    assert HOSTILE in {s.labels["host"] for s in families["host_slow"]}
    assert {s.labels["host"]: s.value for s in families["loss_ratio"]}["n3"] == pytest.approx(0.08, abs=0.01)
    assert all(0 < s.value < 0.1 for s in families["detection_limit_ratio"])

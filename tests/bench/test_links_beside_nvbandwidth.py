"""The rows of `pyxfer links` beside nvbandwidth's testcases."""

from __future__ import annotations

import json

import links_beside_nvbandwidth as beside
import nvbandwidth_json
import pytest
from link_samples import h200_rate, make_links
from msgspec.structs import replace

from pyxfer._document.runs import unknown
from pyxfer._links.plan import FlowPlan, TrafficPlan


def by_ends(plan: TrafficPlan, flow: FlowPlan) -> float:
    """A rate that tells the ends and the issuer of a flow."""
    if flow.side == "peer":
        return 100.0 + 10 * flow.source + flow.destination + (0.5 if flow.device == flow.destination else 0.0)
    return h200_rate(plan, flow)


def output(**cases: list[list[str]]) -> str:
    testcases = [{"name": name, "status": "Passed", "bandwidth_matrix": matrix} for name, matrix in cases.items()]
    return json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": testcases}})


def compared(count: int = 2, **cases: list[list[str]]) -> dict[tuple[str, int, int], beside.Compared]:
    matrices = nvbandwidth_json.read_matrices(output(**cases))
    rows = beside.compare([(matrices, make_links(count, by_ends))])
    return {(row.testcase, row.row, row.column): row for row in rows}


def test_every_single_node_testcase_has_a_row_with_two_gpus() -> None:
    links = make_links()
    for name, (figure, _) in beside.figures().items():
        square = "device_to_device" in name
        assert figure(links, 0, 1) is not None, name
        assert figure(links, 1 if square else 0, 0) is not None, name
    assert len(beside.figures()) == 35


def test_a_read_goes_from_the_column_to_the_row_and_a_write_the_other_way() -> None:
    rows = compared(
        device_to_device_memcpy_read_ce=[["N/A", "110.5"], ["101.5", "N/A"]],
        device_to_device_memcpy_write_ce=[["N/A", "101"], ["110", "N/A"]],
    )
    assert len(rows) == 4
    assert all(row.difference == pytest.approx(0, abs=1e-3) and row.within for row in rows.values())


def test_all_to_one_reads_of_nvbandwidth_leave_the_one() -> None:
    for count in (2, 3):
        links = make_links(count, by_ends)
        figures = beside.figures()
        out = sum(100 + 10 * 1 + other + 0.5 for other in range(count) if other != 1)
        into = sum(100 + 10 * other + 1 + 0.5 for other in range(count) if other != 1)
        assert figures["all_to_one_read_ce"][0](links, 0, 1) == pytest.approx(out, rel=1e-3)
        assert figures["one_to_all_read_ce"][0](links, 0, 1) == pytest.approx(into, rel=1e-3)
        assert figures["one_to_all_write_ce"][0](links, 0, 1) == pytest.approx(out - 0.5 * (count - 1), rel=1e-3)


def test_of_the_matrices_of_both_directions_the_total_counts() -> None:
    halves, total = [["N/A", "1"], ["1", "N/A"]], [["N/A", "212"], ["212", "N/A"]]
    rows = compared(device_to_device_bidirectional_memcpy_read_ce=[*halves, *halves, *total])
    assert {row.nvbandwidth for row in rows.values()} == {212.0}
    assert all(row.within for row in rows.values())


def test_a_difference_beyond_its_tolerance_is_shown() -> None:
    rows = compared(host_to_device_memcpy_ce=[["55.5", "57"]], host_device_latency_sm=[["1190", "1190"]])
    within = {place: row.within for place, row in rows.items()}
    assert within == {
        ("host_to_device_memcpy_ce", 0, 0): True,
        ("host_to_device_memcpy_ce", 0, 1): False,
        ("host_device_latency_sm", 0, 0): True,
        ("host_device_latency_sm", 0, 1): True,
    }
    assert [cells[-1] for cells in beside.table_cells(list(rows.values()))].count("no") == 1


def test_bidirectional_kernels_with_the_host_are_not_judged() -> None:
    rows = compared(host_to_device_bidirectional_memcpy_sm=[["10", "10"]])
    assert all(row.tolerance is None and row.within for row in rows.values())


def test_only_figures_with_an_interval_count() -> None:
    links = make_links()
    counted = beside.figures_of(links)
    first = links.traffics[0]
    bare = replace(
        first, total=unknown("none"), flows=tuple(replace(flow, rate=unknown("none")) for flow in first.flows)
    )
    assert beside.figures_of(replace(links, traffics=(bare, *links.traffics[1:]))) == counted - 1
    assert counted > 50


def make_beside() -> beside.Beside:
    links = make_links()
    rows = tuple(compared(host_to_device_memcpy_ce=[["55.5", "57"]]).values())
    devices = tuple(each.device for each in links.devices)
    return beside.Beside(
        devices, links.environment, unknown("not printed"), 2, (40.0, 42.0), 130, (28.0, 30.0), 90, rows
    )


def test_the_table_for_a_page_has_every_row_and_the_count_of_figures() -> None:
    text = beside.markdown(make_beside())
    assert text.count("| 0, ") == 2
    assert "29.0 s for 90 figures" in text
    assert "41.0 s for 130 figures" in text

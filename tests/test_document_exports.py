"""A run as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from samples import (
    FORMULA,
    MARKUP,
    SCRIPT,
    make_device,
    make_link,
    make_measurement,
    make_missing,
    make_run,
)

from pyxfer import documents
from pyxfer.model import Fact, LinkState, Remark, unknown


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_hold_one_measurement_each_under_named_columns() -> None:
    run = make_run()
    header, rows = documents.rows(run)
    assert header == (
        *("route", "direction", "side", "memory", "mode", "variant", "nbytes"),
        *("gbps", "low_gbps", "high_gbps", "of_ceiling", "of_peak"),
        *("median_s", "low_s", "high_s", "iqr_s", "mad_s", "min_s", "n"),
        *("dispatch_s", "wall_s", "first_s", "verified", "missing", "remarks"),
    )
    assert len(rows) == len(run.measurements)
    assert {len(row) for row in rows} == {len(header)}


def test_csv_figures_are_unrounded() -> None:
    measurement = make_measurement()
    summary = measurement.summary
    assert summary is not None
    row = read_csv(documents.to_csv(make_run(measurements=(measurement,))))[0]
    assert float(row["gbps"]) == measurement.gbps
    assert float(row["median_s"]) == summary.median_s
    assert float(row["iqr_s"]) == summary.iqr_s
    assert float(row["of_ceiling"]) == measurement.of_ceiling
    assert float(row["dispatch_s"]) == measurement.dispatch_s
    assert (row["n"], row["verified"], row["wall_s"]) == ("8", "True", "")


def test_csv_of_what_is_missing_has_the_reason_and_no_figure() -> None:
    row = read_csv(documents.to_csv(make_run(measurements=(make_missing("out of memory"),))))[0]
    assert row["missing"] == "out of memory"
    assert {row[name] for name in ("gbps", "low_gbps", "of_ceiling", "median_s", "n", "first_s", "verified")} == {""}


def test_csv_joins_the_remarks_with_their_fixes() -> None:
    remarks = (Remark(code="a", text="one", fix="--budget 9s"), Remark(code="b", text="two"))
    row = read_csv(documents.to_csv(make_run(measurements=(make_measurement(remarks=remarks),))))[0]
    assert row["remarks"] == "one (--budget 9s); two"


def test_csv_runs_no_formula() -> None:
    routes = [row["route"] for row in read_csv(documents.to_csv(make_run()))]
    assert "'" + FORMULA in routes
    assert FORMULA not in routes


def test_markdown_begins_with_device_link_date_and_version() -> None:
    heading = documents.to_markdown(make_run()).splitlines()[0]
    assert heading == "## NVIDIA H200, PCIe 5.0 x16, 2025-11-21T08:30:00+00:00, pyxfer 0.1.0"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("c2c", "NVLink-C2C"), ("nvlink", "NVLink"), ("none", "no link"), ("unknown", "link unknown"), ("pcie", "PCIe,")],
)
def test_markdown_names_a_link_that_is_not_pci_express_or_has_no_state(kind: Any, words: str) -> None:
    no_state: Fact[LinkState] = unknown("sysfs is not there")
    link = make_link(kind=kind, now=no_state, under_load=no_state)
    assert f"NVIDIA H200, {words}" in documents.to_markdown(make_run(link=link)).splitlines()[0]


def test_markdown_shows_sizes_and_bandwidths_with_their_units() -> None:
    text = documents.to_markdown(make_run(measurements=(make_measurement(),), remarks=()))
    assert text.splitlines()[2:] == [
        "| route | direction | side | memory | mode | variant | size | bandwidth | 95 % interval | of ceiling "
        "| of peak | notes |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | --- | ---: | ---: | --- |",
        "| raw.pinned-async | h2d | h2d | pinned | async | warm | 16 MiB | 55.00 GB/s | 54.80 to 55.19 GB/s | 100.0 % "
        "| 94.1 % |  |",
    ]


def test_markdown_says_why_a_figure_is_missing() -> None:
    text = documents.to_markdown(make_run(measurements=(make_missing("out of memory"),)))
    assert text.rstrip().endswith("|  |  |  |  | out of memory |")


def test_markdown_of_a_broken_off_run_says_so_before_any_figure() -> None:
    run = make_run(ended="failed", failure="the GPU vanished", remarks=())
    lines = documents.to_markdown(run).splitlines()
    assert lines[2:4] == ["- This run has failed before its end.", "- the GPU vanished"]


def test_markdown_of_a_run_without_a_gpu_says_so_before_any_figure() -> None:
    run = make_run(
        runtime="host",
        runtime_reason="no GPU answers: no driver",
        device=make_device(runtime="host", name="host memory, not a PCIe link"),
        link=make_link(kind="none"),
    )
    lines = documents.to_markdown(run).splitlines()
    assert lines[0].startswith("## host memory, not a PCIe link, no link, ")
    assert lines[2] == "- no GPU answers: no driver"


def test_markdown_keeps_labels_text() -> None:
    text = documents.to_markdown(make_run(device=make_device(name=SCRIPT)))
    assert SCRIPT not in text
    assert MARKUP not in text
    assert r"\<script\>" in text


def test_a_run_without_measurements_exports_its_header() -> None:
    run = make_run(measurements=())
    assert documents.to_csv(run).count("\n") == 1
    assert documents.to_markdown(run).endswith("| --- |\n")

"""A run as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
import pytest
from explain_samples import make_breakdown, make_dma, make_explain_run, make_explained
from framework_samples import make_frameworks_run, make_image_batch_run, make_nature, make_raw_rows, make_route_row
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

from pyxfer._document import documents
from pyxfer._document.runs import Fact, LinkState, Measurement, Remark, unknown


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
        *("worker", "framework", "call", "host_copies", "dma", "returns", "batch", "overhead_s", "faults"),
        *("dma_s", "dma_bytes", "dma_copies", "dma_source", "dma_gbps", "dma_missing"),
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


# --- where the time goes ---------------------------------------------------------------------------------------------


def parts_of(text: str) -> list[str]:
    """What follows the table of the routes."""
    return text[text.index("### ") :].splitlines()


def test_markdown_of_an_explained_route_has_the_parts_of_its_time() -> None:
    row = make_explained(breakdown=Fact(make_breakdown((("preparing", 9e-3), ("copying", 1e-3)))))
    assert parts_of(documents.to_markdown(make_explain_run(row))) == [
        "### Where the time of tf.function goes",
        "",
        "One traced transfer; only timed, it takes 36.9 ms.",
        "",
        "| part | time | of it |",
        "| --- | ---: | ---: |",
        "| preparing | 9.00 ms | 90.0 % |",
        "| copying | 1.00 ms | 10.0 % |",
        "| one traced transfer | 10.0 ms | 100.0 % |",
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (make_explained(breakdown=unknown("trace: <unavailable>")), r"Not known: trace: \<unavailable\>"),
        (make_explained(verified=Fact(False)), "Its contents were wrong, so none of its time says anything."),
    ],
)
def test_markdown_of_a_route_that_is_not_broken_down_says_why(row: Measurement, words: str) -> None:
    assert parts_of(documents.to_markdown(make_explain_run(row)))[2:] == [words]


def test_markdown_of_any_other_run_has_no_parts() -> None:
    assert "###" not in documents.to_markdown(make_explain_run(kind="frameworks"))
    assert "###" not in documents.to_markdown(make_explain_run(measurements=()))


# --- frameworks ------------------------------------------------------------------------------------------------------

ROUTE = make_route_row("torch", "torch.to", "h2d", 1 << 24, (9e-6, 17.9))
OF_FRAMEWORKS = ("framework", "call", "host_copies", "dma", "returns", "overhead_s")


def test_csv_of_a_frameworks_route_says_what_the_route_is() -> None:
    row = read_csv(documents.to_csv(make_frameworks_run(measurements=(ROUTE,))))[0]
    assert (row["worker"], row["framework"], row["call"]) == ("torch", "torch", 'torch.from_numpy(x).to("cuda")')
    assert (row["host_copies"], row["dma"], row["returns"]) == ("0", "pageable", "done")
    assert float(row["overhead_s"]) == ROUTE.overhead_s
    assert (row["batch"], row["faults"]) == ("", "")


def test_csv_of_a_raw_row_beside_routes_has_its_worker_alone() -> None:
    row = read_csv(documents.to_csv(make_frameworks_run(measurements=make_raw_rows("torch", "h2d", 1 << 24))))[1]
    assert row["worker"] == "torch"
    assert {row[name] for name in OF_FRAMEWORKS} == {""}


def test_csv_of_a_ceiling_leaves_the_columns_of_frameworks_empty() -> None:
    row = read_csv(documents.to_csv(make_run()))[0]
    assert {row[name] for name in ("worker", "batch", "faults", *OF_FRAMEWORKS)} == {""}


def test_csv_of_an_image_batch_has_the_batch() -> None:
    assert {row["batch"] for row in read_csv(documents.to_csv(make_image_batch_run(batches=(8, 32))))} == {"8", "32"}


def test_csv_counts_page_faults() -> None:
    trials = tuple(msgspec.structs.replace(trial, faults=536.0) for trial in ROUTE.trials)
    run = make_frameworks_run(measurements=(msgspec.structs.replace(ROUTE, trials=trials),))
    assert read_csv(documents.to_csv(run))[0]["faults"] == "536.0"


def test_csv_runs_no_formula_that_a_call_holds() -> None:
    hostile = msgspec.structs.replace(ROUTE, nature=make_nature("torch.to", call=FORMULA))
    assert read_csv(documents.to_csv(make_frameworks_run(measurements=(hostile,))))[0]["call"] == "'" + FORMULA


def test_markdown_of_frameworks_appends_what_a_route_is() -> None:
    lines = documents.to_markdown(make_frameworks_run(measurements=(ROUTE,), workers=())).splitlines()
    assert lines[2].endswith(
        "| notes | worker | framework | call | host copies | dma | returns | batch | overhead | faults |"
    )
    assert lines[-1].endswith(
        '|  | torch | torch | torch.from\\_numpy(x).to("cuda") | 0 | pageable | done |  | 644 us |  |'
    )


def test_markdown_names_a_worker_that_did_not_complete_before_any_figure() -> None:
    lines = documents.to_markdown(make_frameworks_run(measurements=(ROUTE,))).splitlines()
    assert lines[2:4] == [
        "- The worker cupy was not available: CuPy is not installed",
        "- The worker jax nostage ended as crashed: the worker was ended by SIGABRT",
    ]


def test_markdown_of_frameworks_keeps_a_call_text() -> None:
    hostile = msgspec.structs.replace(ROUTE, nature=make_nature("torch.to", call=SCRIPT))
    assert SCRIPT not in documents.to_markdown(make_frameworks_run(measurements=(hostile,)))


def test_an_image_batch_run_is_the_same_after_saving_and_loading() -> None:
    run = make_image_batch_run()
    assert documents.decode(documents.encode(run)) == run


# --- what the device has recorded ------------------------------------------------------------------------------------

OF_DMA = ("dma_s", "dma_bytes", "dma_copies", "dma_source", "dma_gbps", "dma_missing")


def dma_cells(row: Measurement) -> dict[str, str]:
    written = read_csv(documents.to_csv(make_explain_run(row, measurements=(row,))))[0]
    return {name: written[name] for name in OF_DMA}


def test_csv_has_what_crossed_the_link() -> None:
    row = make_explained()
    assert dma_cells(row) == {
        "dma_s": "0.00933",
        "dma_bytes": "100663296",
        "dma_copies": "1.0",
        "dma_source": "pageable",
        "dma_gbps": str(row.dma_gbps),
        "dma_missing": "",
    }


def test_csv_says_why_it_is_not_known_what_crossed() -> None:
    cells = dma_cells(make_explained(dma=unknown("nothing crosses the link")))
    assert cells["dma_missing"] == "nothing crosses the link"
    assert {cells[name] for name in OF_DMA[:-1]} == {""}


def test_csv_counts_the_bytes_of_copies_that_have_no_time() -> None:
    cells = dma_cells(make_explained(dma=Fact(make_dma(None))))
    assert (cells["dma_bytes"], cells["dma_s"], cells["dma_gbps"]) == ("100663296", "", "")
    assert cells["dma_missing"] == "the device gave no time for 1 of 1 copies"


def test_markdown_of_an_explained_route_says_what_each_route_is() -> None:
    assert documents.to_markdown(make_explain_run()).splitlines()[2].endswith("| overhead | faults |")

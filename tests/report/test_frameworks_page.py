"""A frameworks run as a page."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest
from framework_samples import (
    SIZES,
    make_aliased,
    make_frameworks_run,
    make_image_batch_run,
    make_nature,
    make_raw_rows,
    make_refused,
    make_route_row,
    make_worker,
)
from pages import host_run, line_with, printed, with_remark
from samples import KIB, MARKUP, MIB, by_caller

from pyxfer._document import runs
from pyxfer._document.runs import Fact, Run, unknown
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run
from pyxfer.units import format_gbps, format_size

ESCAPE = "\x1b[31m\x07torch\x1b]0;t\x07.[bold]x[/bold]"
TO = "torch.to"


def page_of(run: runs.Run, sort: str | None = None) -> str:
    return printed(lambda page: print_run(run, page, sort))


def lines_at(columns: int, run: runs.Run, sort: str | None = None) -> list[str]:
    stream = io.StringIO()
    print_run(run, Page(stream, columns=columns), sort)
    return stream.getvalue().splitlines()


def section(text: str, heading: str) -> str:
    """From a heading to the next one at the left edge that ends a framework's part."""
    begin = text.index(heading)
    ends = [text.find(mark, begin + 1) for mark in ("\nPyTorch ", "\nTensorFlow ", "\nJAX ", "\nSummary", "\na  ")]
    return text[begin : min(end for end in ends if end > 0)]


def one_route(*sizes: int, ceiling: bool = True, **overrides: Any) -> runs.Run:
    rows: list[runs.Measurement] = []
    for nbytes in sizes:
        rows += make_raw_rows("torch", "h2d", nbytes) if ceiling else ()
        row = make_route_row("torch", TO, "h2d", nbytes, (9e-6, 17.9))
        rows.append(msgspec.structs.replace(row, **({} if ceiling else {"ceiling_share": unknown("no ceiling")})))
    return make_frameworks_run(**{"measurements": tuple(rows), "workers": (make_worker("torch"),), **overrides})


@pytest.mark.parametrize("sort", [None, "size", "gbps"])
@pytest.mark.parametrize("make", [make_frameworks_run, make_image_batch_run])
def test_at_80_columns_no_line_is_longer(make: Any, sort: str | None) -> None:
    assert max(map(len, lines_at(80, make(), sort))) <= 80


def test_twenty_sizes_are_spread_over_tables_that_name_the_routes_again() -> None:
    sizes = tuple(4 * KIB * 2**step for step in range(20))
    lines = lines_at(80, one_route(*sizes))
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(">* torch.to ") for line in lines) >= 3


def test_one_size_needs_no_table_of_sizes() -> None:
    text = page_of(one_route(16 * MIB))
    assert text.count(">* torch.to") == 1
    assert "at 16 MiB; overhead" in text


def test_ingest_is_compared_with_one_copy() -> None:
    rows = (*make_raw_rows("torch", "ingest", MIB), make_route_row("torch", "torch.ingest", "ingest", MIB, (1e-6, 6.0)))
    text = page_of(make_frameworks_run(measurements=rows))
    assert line_with(text, "one copy", "raw.host-copy").split()[:4] == ["PyTorch", "ingest", "one", "copy"]
    assert "of one copy" in text


def test_a_route_with_wrong_data_is_never_the_fastest() -> None:
    run = make_frameworks_run()
    wrong = tuple(
        msgspec.structs.replace(m, verified=Fact(False)) if m.route == "torch.pinned-nonblocking" else m
        for m in run.measurements
    )
    part = section(page_of(msgspec.structs.replace(run, measurements=wrong)), "PyTorch 2.11.0+cu130: h2d")
    assert "* torch.pin-to" in part


def test_heads_of_tables_break_no_words_at_120_columns() -> None:
    stream = io.StringIO()
    print_run(make_frameworks_run(), Page(stream, 120))
    lines = stream.getvalue().splitlines()
    heads = [number for number, line in enumerate(lines) if {"overhead", "dispatch"} <= set(line.split())]
    below = [lines[number + 1] for number in heads]
    assert len(heads) == 6
    assert all({"copies", "ceiling"} <= set(line.split()) for line in below)
    assert not re.search(r"[a-z]-( |$)", stream.getvalue(), re.MULTILINE)


def test_a_note_on_a_raw_row_names_its_worker() -> None:
    run = make_frameworks_run()
    first = with_remark(run.measurements[0], "unstable", "it varies")
    text = page_of(msgspec.structs.replace(run, measurements=(first, *run.measurements[1:])))
    assert "raw.pinned-async h2d of torch at 4 KiB: it varies" in text


def test_a_route_without_a_copy_is_the_fastest() -> None:
    copied = make_route_row("torch", "torch.ingest-copy", "ingest", MIB, (1e-6, 9.0))
    text = page_of(make_frameworks_run(measurements=(copied, make_aliased("torch", "torch.ingest", MIB))))
    assert text.index(">* torch.ingest ") < text.index("   torch.ingest-copy ")


def test_ingest_has_page_faults_per_call() -> None:
    trials = tuple(runs.Trial(round=i, elapsed_s=1e-3, faults=12289.0) for i in range(3))
    row = make_route_row("tensorflow", "tf.ingest", "ingest", 16 * MIB, (1e-5, 5.8), trials=trials)
    text = page_of(make_frameworks_run(measurements=(row,)))
    assert line_with(text, "tf.ingest ", "pageable").split()[-1] == "12289"


def test_a_worker_without_a_gpu_has_the_reason() -> None:
    worker = make_worker("torch", cuda=unknown("torch 2.13.0+cpu was built without CUDA"))
    assert "no GPU: torch 2.13.0+cpu was built without CUDA" in page_of(one_route(MIB, workers=(worker,)))


def test_sorted_rows_have_their_worker() -> None:
    run = make_frameworks_run()
    lines = [line for line in page_of(run, "route").splitlines() if re.match(r"(raw|torch|tf|jax)\.\S+ +[hdi]", line)]
    assert len(lines) == len(run.measurements)
    assert {line.split()[-1] for line in lines if line.startswith("raw.pinned-async")} == {"1", "2", "3", "4"}


def test_sorted_image_batches_have_their_batch() -> None:
    rows = [line.split() for line in page_of(make_image_batch_run(), "size").splitlines() if line[:5] == "torch"]
    assert rows[0][:3] == ["torch.to", "h2d", "1"]
    assert rows[-1][2] == "512"


def test_without_a_ceiling_the_routes_still_have_their_rates() -> None:
    text = page_of(one_route(MIB, 16 * MIB, ceiling=False))
    assert line_with(text, ">* torch.to", "pageable").split()[4] == "17.67"
    assert "ceil-" not in text
    assert "overhead" not in text


def test_without_any_result_the_page_has_the_reason_and_no_dashes() -> None:
    rows = tuple(make_refused("torch", TO, nbytes, "the worker hung") for nbytes in SIZES)
    text = page_of(one_route(MIB, measurements=rows))
    reason = text.split("Nothing was measured\n-  ")[1].splitlines()[0]
    assert reason.endswith(": the worker hung")
    assert "usual" not in text, "no table and no summary of dashes"
    assert "contents  no measurements" in text


def test_a_run_without_any_measurement_lists_its_workers() -> None:
    text = page_of(make_frameworks_run(measurements=()))
    assert "jax nostage" in text
    assert "no measurements" in text


def test_a_run_without_workers_is_still_a_page() -> None:
    assert ">* torch.to" in page_of(one_route(MIB, workers=()))


def test_without_a_gpu_there_is_no_share_of_a_peak() -> None:
    rows = (*make_raw_rows("torch", "ingest", MIB), make_route_row("torch", "torch.ingest", "ingest", MIB, (1e-6, 6.0)))
    text = page_of(host_run(make_frameworks_run(measurements=rows)))
    assert "host memory, not a PCIe link" in text
    assert "peak\n" not in text


def test_text_of_a_document_is_harmless() -> None:
    nature = make_nature(TO, framework=ESCAPE, call=ESCAPE)
    row = make_route_row(ESCAPE, ESCAPE, "h2d", MIB, (9e-6, 17.9), nature=nature, memory=ESCAPE)
    worker = make_worker(
        ESCAPE, framework=ESCAPE, ended="crashed", reason=ESCAPE, log=(ESCAPE, MARKUP), version=Fact(ESCAPE)
    )
    run = one_route(MIB, measurements=(row,), workers=(worker,))
    text = page_of(run) + page_of(run, "size")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "torch.[bold]x[/bold]" in text
    assert MARKUP in text


def test_a_log_line_is_printed_as_one_line() -> None:
    worker = make_worker("torch", ended="crashed", reason="gone", log=("aborted\r\n\x1b[2Jat\u2028last",))
    assert line_with(page_of(one_route(MIB, workers=(worker,))), "aborted").strip() == "aborted at last"


def test_with_a_long_name_heads_and_the_name_stay_whole_at_80_columns() -> None:
    run = make_frameworks_run()
    name = f"loader.{'long-' * 10}"
    rows = [msgspec.structs.replace(m, route=name) if m.route == TO else m for m in run.measurements]
    lines = lines_at(80, msgspec.structs.replace(run, measurements=tuple(rows)))
    details = lines[lines.index("at 256 MiB; overhead is the time beyond the ceiling's copy") :]
    assert details[1:3] == [
        "                                            host        host          +-",
        "  route                                     memory    copies   GB/s    %",
    ]
    named = [line for line in lines if "loader.long" in line]
    assert all("..." in line for line in named)
    assert len([line for line in named if line.endswith("32.2 %")]) == 1
    assert max(map(len, lines)) <= 80


def test_a_long_name_does_not_widen_the_page() -> None:
    rows = tuple(make_route_row("torch", "torch." + "x" * 90, "h2d", nbytes, (9e-6, 17.9)) for nbytes in SIZES)
    lines = lines_at(80, one_route(MIB, measurements=rows))
    assert max(map(len, lines)) <= 80
    assert any("torch.xxx" in line and "..." in line for line in lines)


def test_a_saved_frameworks_run_prints_the_same_page(tmp_path: Any) -> None:
    run = make_frameworks_run()
    run.save(tmp_path / "run.json")
    assert page_of(Run.load(tmp_path / "run.json")) == page_of(run)


def traced(row: runs.Measurement, seconds: float) -> runs.Measurement:
    """The row with what the device has recorded of it."""
    dma = runs.Dma(seconds=Fact(seconds), nbytes=row.nbytes, copies=1.0, source="pageable", trials=3)
    return msgspec.structs.replace(row, dma=Fact(dma))


def test_known_dma_times_have_a_column() -> None:
    rows = [*make_raw_rows("torch", "h2d", MIB), make_route_row("torch", TO, "h2d", MIB, (9.1e-6, 17.9))]
    run = make_frameworks_run((MIB,), measurements=(*rows[:-1], traced(rows[-1], 61e-6)), workers=())
    text = page_of(run)
    assert re.search(r"\bDMA\b", text)
    assert line_with(text, ">* torch.to", "pageable").split()[-3] == "61.0"
    untraced = page_of(make_frameworks_run((MIB,), measurements=tuple(rows), workers=()))
    assert not re.search(r"\bDMA\b", untraced)


def test_the_dma_column_is_dropped_if_it_does_not_fit() -> None:
    long = "torch.a-route-with-a-rather-long-name-of"
    rows = [*make_raw_rows("torch", "h2d", MIB), traced(make_route_row("torch", long, "h2d", MIB, (9e-6, 17.9)), 61e-6)]
    run = make_frameworks_run((MIB,), measurements=tuple(rows), workers=())
    page = lines_at(80, run)
    assert not [line for line in page if "DMA" in line]
    assert max(map(len, page)) <= 80


@pytest.mark.parametrize("code", ["wrong-memory", "inflated"])
def test_findings_of_the_records_are_notes(code: str) -> None:
    row = with_remark(make_route_row("torch", TO, "h2d", MIB, (9e-6, 17.9)), code, "its copies met pageable memory")
    assert "a  torch.to at 1 MiB: its copies met pageable memory" in page_of(
        make_frameworks_run((MIB,), measurements=(row,), workers=())
    )


def test_the_cost_of_tracing_is_not_a_note() -> None:
    row = with_remark(make_route_row("torch", TO, "h2d", MIB, (9e-6, 17.9)), "traced", "traced it takes longer")
    assert "traced it takes" not in page_of(make_frameworks_run((MIB,), measurements=(row,), workers=()))


def test_the_callers_rate_of_the_ceiling_stands_below_its_group() -> None:
    run = make_frameworks_run()
    rows = tuple(by_caller(m) if m.nature is None and m.nbytes <= MIB else m for m in run.measurements)
    assert any(m.has_both_clocks for m in rows)
    text = page_of(msgspec.structs.replace(run, measurements=rows))
    small = next(m for m in rows if m.has_both_clocks and m.direction == "h2d")
    assert f"{format_gbps(small.caller_gbps or 0.0)} at {format_size(small.nbytes)}" in text
    assert "By the caller's clock" not in page_of(run)

"""A frameworks run as a page: tables, image batches, and the summary."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from explain_samples import make_explain_run
from framework_samples import (
    IMAGE_BYTES,
    SIZES,
    make_aliased,
    make_frameworks_run,
    make_image_batch_run,
    make_raw_rows,
    make_refused,
    make_route_row,
    make_worker,
)
from pages import line_with, missing, printed, with_remark
from samples import KIB, MIB, by_caller, retimed

from pyxfer._document import runs
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._report.frameworks import answer, group_text
from pyxfer._report.route_tables import group_rows
from pyxfer._report.run import print_run

TO = "torch.to"


def page_of(run: runs.Run) -> str:
    return printed(lambda page: print_run(run, page), details=True)


def first_page(run: runs.Run) -> str:
    return printed(lambda page: print_run(run, page))


@pytest.mark.parametrize("make", [make_frameworks_run, make_explain_run])
def test_a_first_page_says_why_its_figures_may_be_wrong(make: Any) -> None:
    run = make(ended="interrupted", remarks=(Remark("contended", "another program copied"),))
    late = msgspec.structs.replace(run.workers[0], remarks=(Remark("late", "the budget was too short"),))
    text = first_page(msgspec.structs.replace(run, workers=(late, *run.workers[1:])))
    assert "Interrupted: " in text
    assert "Another program copied." in text
    assert text.count("The budget was too short.") == 1
    wrong = msgspec.structs.replace(run.measurements[-1], verified=Fact(False))
    text = first_page(msgspec.structs.replace(run, measurements=(*run.measurements[:-1], wrong)))
    assert "WRONG in 1" in line_with(text, "Contents: ")


def test_letters_of_the_first_page_are_in_its_table_and_explained() -> None:
    run = make_frameworks_run((MIB,))
    unsteady = (TO, "torch.pin-to")
    rows = tuple(with_remark(m, "bimodal", "two modes") if m.route in unsteady else m for m in run.measurements)
    text = first_page(msgspec.structs.replace(run, measurements=rows))
    assert " a " in line_with(text, "usual >", TO)
    assert line_with(text, "two modes").startswith("a  torch.to at 1 MiB: ")


def test_a_call_that_is_hardly_faster_is_not_recommended() -> None:
    run = make_frameworks_run((MIB,))
    usual = next(m for m in run.measurements if m.route == TO)
    others = tuple(m for m in run.measurements if m.route_info is None or m.route == TO)
    rival = msgspec.structs.replace(
        retimed(usual, [0.9 * trial.elapsed_s for trial in usual.trials]), route="torch.rival"
    )
    assert "torch.rival" in first_page(msgspec.structs.replace(run, measurements=(*others, rival)))
    assert "Faster calls" not in first_page(msgspec.structs.replace(run, measurements=(*others, rival)))


def test_ingest_alone_is_compared_with_one_copy_and_nothing_has_all_reasons() -> None:
    run = make_frameworks_run()
    alone = tuple(m for m in run.measurements if m.direction == "ingest")
    text = answer(msgspec.structs.replace(run, measurements=alone))
    assert "reach 53 % of what one copy in host memory reach" in text
    nothing = tuple(missing(m, "the device was lost") for m in run.measurements)
    assert "the device was lost" in first_page(msgspec.structs.replace(run, measurements=nothing))


def lines_at(columns: int, run: runs.Run) -> list[str]:
    return run.text(columns, details=True).splitlines()


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


def test_twenty_sizes_are_spread_over_tables_that_name_the_routes_again() -> None:
    sizes = tuple(4 * KIB * 2**step for step in range(20))
    lines = lines_at(80, one_route(*sizes))
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(">* torch.to ") for line in lines) >= 2


def test_a_route_with_wrong_data_is_never_the_fastest() -> None:
    run = make_frameworks_run()
    wrong = tuple(
        msgspec.structs.replace(m, verified=Fact(False)) if m.route == "torch.pinned-nonblocking" else m
        for m in run.measurements
    )
    part = section(page_of(msgspec.structs.replace(run, measurements=wrong)), "PyTorch 2.11.0+cu130: h2d")
    assert "* torch.pin-to" in part


def test_a_note_on_a_raw_row_names_its_worker() -> None:
    run = make_frameworks_run()
    first = with_remark(run.measurements[0], "unstable", "it varies")
    text = page_of(msgspec.structs.replace(run, measurements=(first, *run.measurements[1:])))
    assert "raw.pinned-async h2d of torch at 4 KiB: it varies" in text


def test_a_route_without_a_copy_is_the_fastest() -> None:
    copied = make_route_row("torch", "torch.ingest-copy", "ingest", MIB, (1e-6, 9.0))
    text = page_of(make_frameworks_run(measurements=(copied, make_aliased("torch", "torch.ingest", MIB))))
    assert text.index("torch.ingest > * ") < text.index("torch.ingest-copy ")
    assert line_with(text, "torch.ingest > *", "no copy")


@pytest.mark.parametrize(
    ("rows", "end"),
    [
        (
            (
                make_route_row("tensorflow", "tf.ingest", "ingest", MIB, (1e-5, 5.5)),
                make_aliased("tensorflow", "tf.ingest-dlpack", MIB),
            ),
            "of what one copy in host memory reaches, and their fastest routes copy nothing.",
        ),
        ((make_aliased("tensorflow", "tf.ingest", MIB),), ": the usual calls of TensorFlow copy nothing."),
    ],
)
def test_what_copies_nothing_has_no_share_in_the_sentence(rows: tuple[runs.Measurement, ...], end: str) -> None:
    assert answer(make_frameworks_run(measurements=rows)).endswith(end)


def test_ingest_has_page_faults_per_call() -> None:
    trials = tuple(runs.Trial(round=i, elapsed_s=1e-3, faults=12289.0) for i in range(3))
    row = make_route_row("tensorflow", "tf.ingest", "ingest", 16 * MIB, (1e-5, 5.8), trials=trials)
    text = page_of(make_frameworks_run(measurements=(row,)))
    assert line_with(text, "tf.ingest > *", "pageable").split()[-1] == "12289"


def test_without_a_ceiling_the_routes_still_have_their_rates() -> None:
    text = page_of(one_route(MIB, 16 * MIB, ceiling=False))
    details = text.rpartition("\nat 16 MiB\n")[2].partition("\n\n")[0]
    assert line_with(details, "torch.to > *").split()[3] == "17.67"
    assert "ceiling" not in details
    assert "overhead" not in text


def test_without_any_result_the_page_has_the_reason_and_no_dashes() -> None:
    rows = tuple(make_refused("torch", TO, nbytes, "the worker hung") for nbytes in SIZES)
    text = page_of(one_route(MIB, measurements=rows))
    reason = text.split("Nothing was measured\n-  ")[1].splitlines()[0]
    assert reason.endswith(": the worker hung")
    assert "usual" not in text, "no table and no summary of dashes"
    assert "contents  no measurements" in text


def test_a_log_line_is_printed_as_one_line() -> None:
    worker = make_worker("torch", ended="crashed", reason="gone", log=("aborted\r\n\x1b[2Jat\u2028last",))
    assert line_with(page_of(one_route(MIB, workers=(worker,))), "aborted").strip() == "aborted at last"


def test_with_a_long_name_heads_and_the_name_stay_whole_at_80_columns() -> None:
    run = make_frameworks_run()
    name = f"loader.{'long-' * 10}"
    rows = [msgspec.structs.replace(m, route=name) if m.route == TO else m for m in run.measurements]
    lines = lines_at(80, msgspec.structs.replace(run, measurements=tuple(rows)))
    named = [line for line in lines if "loader.long" in line]
    assert all("..." in line for line in named)
    assert max(map(len, lines)) <= 80


def traced(row: runs.Measurement, seconds: float) -> runs.Measurement:
    """The row with what the device has recorded of it."""
    dma = runs.Dma(seconds=Fact(seconds), nbytes=row.nbytes, copies=1.0, source="pageable", trials=3)
    return msgspec.structs.replace(row, dma=Fact(dma))


def test_known_dma_times_have_a_column() -> None:
    rows = [*make_raw_rows("torch", "h2d", MIB), make_route_row("torch", TO, "h2d", MIB, (9.1e-6, 17.9))]
    run = make_frameworks_run((MIB,), measurements=(*rows[:-1], traced(rows[-1], 61e-6)), workers=())
    text = page_of(run)
    assert re.search(r"\bDMA\b", text)
    assert "61.0 us" in line_with(text, "torch.to > *", "pageable")
    untraced = page_of(make_frameworks_run((MIB,), measurements=tuple(rows), workers=()))
    assert not re.search(r"\bDMA\b", untraced)


def test_the_clock_of_the_ceiling_is_named_below_its_group() -> None:
    run = make_frameworks_run()
    rows = tuple(by_caller(m) if m.route_info is None and m.nbytes <= MIB else m for m in run.measurements)
    assert any(m.has_both_clocks for m in rows)
    assert "by the device's clock" in page_of(msgspec.structs.replace(run, measurements=rows))
    assert "by the device's clock" not in page_of(run)


def tables(text: str, framework: str, name: str) -> str:
    """The table below a name in a framework's part."""
    part = text[re.search(rf"^{framework} [0-9.+a-z]+: h2d", text, re.MULTILINE).end() :]  # type: ignore[union-attr]
    part = part[part.index(f"\n{name}\n") + 1 :]
    return re.split(r"\n\n(?=[a-zA-Z])", part, maxsplit=1)[0]


def test_published_figures_of_unmeasured_routes_are_left_out_and_raw_rows_have_their_batch() -> None:
    published = (runs.Published("JAX", "jax.device-put", "H100", {1: 5.0}, "a page"),)
    run = make_image_batch_run(batches=(8,), published=published)
    unnamed = tuple(msgspec.structs.replace(m, batch=m.batch if m.route_info else None) for m in run.measurements)
    text = page_of(msgspec.structs.replace(run, measurements=unnamed))
    assert "H100" not in text
    assert "Published" not in text
    assert f"{8 * IMAGE_BYTES}" not in text


def test_a_failed_route_has_a_note_with_its_batches() -> None:
    run = make_image_batch_run()
    refused = tuple(
        msgspec.structs.replace(make_refused("tensorflow", "tf.function", m.nbytes, "it broke"), batch=m.batch)
        if m.route == "tf.function" and (m.batch or 0) >= 128
        else m
        for m in run.measurements
    )
    text = page_of(msgspec.structs.replace(run, measurements=refused))
    assert line_with(text, "it broke", "tf.function at") == "a  tf.function at batch 128 to 512: it broke"
    assert re.search(r"^ +512 .* - a +2189", tables(text, "TensorFlow", "MB/s"), re.MULTILINE)


SIZE = 256 * MIB
USUAL = make_route_row("torch", "torch.to", "h2d", SIZE, (9e-6, 17.9))
PINNED = make_route_row("torch", "torch.pinned-nonblocking", "h2d", SIZE, (6e-6, 53.5))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([USUAL], "h2d, 256 MiB: usual torch.to 17.8 GB/s, 32.2 % of the ceiling"),
        (
            [USUAL, make_route_row("torch", "torch.noncontiguous", "h2d", SIZE, (9e-6, 3.0))],
            "h2d, 256 MiB: usual and fastest torch.to 17.8 GB/s, 32.2 % of the ceiling",
        ),
        (
            [
                make_route_row("jax", "jax.asarray", "d2h", SIZE, (9e-6, 0.42)),
                make_route_row("jax", "jax.to-pinned-host", "d2h", SIZE, (9e-6, 52.0)),
            ],
            "d2h, 256 MiB: usual jax.asarray 0.419 GB/s, 0.76 % of the ceiling; fastest jax.to-pinned-host 51.7 GB/s, "
            "93.4 % of the ceiling; 124 times as fast",
        ),
        (
            [make_refused("torch", "torch.to", SIZE, "this torch was built without CUDA."), PINNED],
            "h2d, 256 MiB: usual torch.to has no bandwidth; fastest torch.pinned-nonblocking 53.2 GB/s, 96.2 % of the "
            "ceiling",
        ),
        (
            [
                make_route_row("torch", "torch.to", "h2d", 16 * MIB, (9e-6, 17.9)),
                make_refused("torch", "torch.to", SIZE, "out of memory"),
                PINNED,
            ],
            "h2d, 16 MiB: usual and fastest torch.to 17.7 GB/s, 32.1 % of the ceiling",
        ),
        ([PINNED], "h2d, 256 MiB; fastest torch.pinned-nonblocking 53.2 GB/s, 96.2 % of the ceiling"),
        (
            [
                make_route_row("tensorflow", "tf.ingest", "ingest", SIZE, (1e-5, 5.5)),
                make_aliased("tensorflow", "tf.ingest-dlpack", SIZE),
            ],
            "ingest, 256 MiB: usual tf.ingest 5.48 GB/s, 50.0 % of one copy; "
            "fastest tf.ingest-dlpack 422 ns, without a copy",
        ),
    ],
)
def test_the_title_of_a_chart_compares_the_usual_route_with_the_fastest(
    rows: list[runs.Measurement], text: str
) -> None:
    run = make_frameworks_run(measurements=tuple(rows))
    (group,) = group_rows(run, [""] * len(rows))
    assert group_text(run, group).partition(" ")[2] == text

"""An explain run as a page."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from explain_samples import (
    NBYTES,
    make_dma,
    make_explain_run,
    make_explained,
    make_others,
    page_of,
    section,
)
from framework_samples import make_raw_rows
from hypothesis import given
from hypothesis import strategies as st
from numbers_in import numbers, with_number
from pages import printed
from samples import MARKUP, by_caller, make_parameters

from pyxfer._document import codec
from pyxfer._document.runs import Fact, Remark, Run, unknown
from pyxfer._report.run import print_run
from pyxfer.errors import DocumentError
from pyxfer.units import format_gbps

SAVED = json.loads(codec.encode(make_explain_run()))
NUMBERS = list(numbers(SAVED))
ESCAPE = "\x1b[31m\x07tf.function\x1b]0;t\x07"


def test_reason_of_a_missing_bandwidth_is_printed_once() -> None:
    reason: Any = unknown("elided: nothing crossed the link")
    text = page_of(make_explained(rate=reason, breakdown=reason, summary=None, trials=(), dispatch=None, wall=None))
    assert text.count("elided: nothing crossed") == 1
    assert "Where the time goes" not in text
    assert "Faster routes" not in text


def test_a_run_that_ended_before_its_route_has_no_headline() -> None:
    text = page_of(measurements=(), ended="interrupted")
    assert "tf.function: not measured before the run ended." in text
    assert "Interrupted: " in text


def test_remarks_are_notes_with_a_capital_letter_unless_they_begin_with_a_name() -> None:
    remarks = (
        Remark("inflated", "4 times the bytes cross the link", "convert later"),
        Remark("drift", "the time drifted"),
        Remark("untraced", "libcupti.so is not there"),
    )
    lines = section(page_of(make_explained(remarks=remarks)), "Notes\n").splitlines()
    assert lines == [
        "-  4 times the bytes cross the link. Convert later",
        "-  The time drifted",
        "-  libcupti.so is not there",
    ]


def test_the_remark_on_tracing_is_not_repeated() -> None:
    text = page_of(make_explained(18e-3, remarks=(Remark("traced", "traced it takes 36.9 ms, 105 % more"),)))
    assert "105 %" not in text
    assert "ratio " in text


def test_wrong_contents_have_no_waterfall() -> None:
    text = page_of(make_explained(verified=Fact(False)))
    assert "Where the time goes" not in text
    assert "##" not in text


def test_wrong_contents_of_a_traced_route_are_reported() -> None:
    wrong = "The data that arrived was wrong"
    reason: Any = unknown("wrong contents")
    assert wrong in page_of(make_explained(verified=Fact(False), rate=reason))
    untraced: Any = unknown("not traced")
    assert wrong not in page_of(make_explained(verified=Fact(False), rate=reason, breakdown=untraced, dma=untraced))


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_any_number_in_a_document_is_refused_or_printed(place: str, number: float) -> None:
    data = with_number(SAVED, place, number)
    try:
        run = codec.decode(Run, data)
    except DocumentError:
        return
    assert printed(lambda page: print_run(run, page))


def test_remarks_of_other_rows_are_left_out() -> None:
    noisy = msgspec.structs.replace(make_others()[0], remarks=(Remark("drift", "the time drifted"),))
    run = make_explain_run()
    assert "drifted" not in page_of(measurements=(*run.measurements[:3], noisy))


def test_text_from_outside_is_harmless() -> None:
    nature = make_explained().nature
    assert nature is not None
    other = msgspec.structs.replace(
        make_others()[0], route=f"{ESCAPE}{MARKUP}", nature=msgspec.structs.replace(nature, call=f"{ESCAPE}{MARKUP}")
    )
    row = make_explained(route=ESCAPE, dma=Fact(make_dma(source=ESCAPE)))
    parameters = make_parameters(explained=ESCAPE, directions=("h2d",), sizes_bytes=(NBYTES,))
    text = page_of(row, measurements=(*make_raw_rows("tensorflow", "h2d", NBYTES), row, other), parameters=parameters)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert MARKUP in text


def test_sorted_page_has_one_row_per_measurement() -> None:
    text = printed(lambda page: print_run(make_explain_run(), page, "gbps"))
    assert "Where the time goes" not in text
    assert next(line.split()[0] for line in text.splitlines() if "96 MiB" in line) == "raw.pinned-async"


def test_a_saved_run_prints_the_same_page() -> None:
    run = make_explain_run()
    assert printed(lambda page: print_run(codec.decode(Run, codec.encode(run)), page)) == page_of()


def test_a_ceiling_of_small_copies_has_both_clocks() -> None:
    raw = tuple(by_caller(row) for row in make_raw_rows("tensorflow", "h2d", NBYTES))
    text = page_of(measurements=(*raw, make_explained(), *make_others()))
    (line,) = (line for line in text.splitlines() if line.startswith("The ceiling, "))
    best = max(raw, key=lambda row: row.gbps or 0.0)
    assert format_gbps(best.gbps or 0.0) in line
    assert format_gbps(best.caller_gbps or 0.0) in line
    assert "by the device's clock" in line
    assert "by the device's clock" not in page_of()

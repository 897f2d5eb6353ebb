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
from pages import host_run, line_with, printed
from samples import MARKUP, make_parameters

from pyxfer._document import codec
from pyxfer._document.runs import Fact, Remark, Run, unknown
from pyxfer._report.run import print_run
from pyxfer.errors import DocumentError

SAVED = json.loads(codec.encode(make_explain_run()))
NUMBERS = list(numbers(SAVED))
ESCAPE = "\x1b[31m\x07tf.function\x1b]0;t\x07"


# --- the headline ----------------------------------------------------------------------------------------------------


def test_the_headline_says_how_fast_it_is_and_what_that_is_of_what_could_be() -> None:
    line = line_with(page_of(), "tf.function, to the GPU")
    assert line == ("tf.function, to the GPU, 96 MiB: 36.9 ms, 2.73 GB/s, 4.9 % of the ceiling, 4.7 % of the peak")


def test_without_a_bandwidth_the_headline_has_the_reason() -> None:
    reason: Any = unknown("elided: nothing crossed the link, and 100663296 bytes had to")
    text = page_of(make_explained(rate=reason, ceiling_share=reason, peak_share=reason))
    assert "96 MiB: 36.9 ms, and no bandwidth: elided: nothing crossed the link, and 100663296 bytes had to" in text
    missing = page_of(make_explained(rate=reason, breakdown=reason, summary=None, trials=(), dispatch=None, wall=None))
    assert "96 MiB: no bandwidth: elided" in missing
    assert missing.count("elided: nothing crossed") == 1
    assert "Where the time goes" not in missing
    assert "Faster here" not in missing


def test_a_run_that_ended_before_its_route_says_so() -> None:
    text = page_of(measurements=(), ended="interrupted")
    assert "tf.function: the run ended before there was anything to say of it." in text
    assert "Interrupted: " in text


def test_host_memory_is_openly_no_link() -> None:
    text = printed(lambda page: print_run(host_run(make_explain_run()), page))
    assert "tf.function, h2d over host memory, 96 MiB: " in text
    assert "to the GPU" not in text
    assert "This is host memory, not a PCIe link: nothing here says how fast a GPU is reached." in text


# --- everything else on it -------------------------------------------------------------------------------------------


def test_what_must_be_known_of_the_route_stands_under_its_own_heading() -> None:
    text = page_of(make_explained(remarks=(Remark("inflated", "4 times the bytes cross the link", "convert later"),)))
    assert "Mind\n-  4 times the bytes cross the link. Convert later" in text


def test_remarks_begin_with_a_capital_letter_unless_it_is_a_name() -> None:
    remarks = (Remark("drift", "the time drifted"), Remark("untraced", "libcupti.so is not there"))
    lines = section(page_of(make_explained(remarks=remarks)), "Mind\n").splitlines()
    assert lines == ["-  The time drifted", "-  libcupti.so is not there"]


def test_what_tracing_costs_is_said_once() -> None:
    text = page_of(make_explained(18e-3, remarks=(Remark("traced", "traced it takes 36.9 ms, 105 % more"),)))
    assert text.count("raced it takes") == 1
    assert "Mind" not in text


def test_contents_that_were_wrong_leave_no_time_to_explain() -> None:
    text = page_of(make_explained(verified=Fact(False)))
    assert "Where the time goes" not in text
    assert "#" not in text


def test_why_the_parts_of_contents_that_were_wrong_are_missing_is_said_once() -> None:
    wrong = "It was traced, but what arrived was not what was sent: where its time goes would say nothing."
    reason: Any = unknown("what arrived was not what was sent, so no bandwidth is given")
    text = page_of(make_explained(verified=Fact(False), rate=reason))
    assert text.index(wrong) < text.index("on the host  24580 page faults")
    untraced: Any = unknown("nobody traced it")
    assert wrong not in page_of(make_explained(verified=Fact(False), rate=reason, breakdown=untraced, dma=untraced))


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_a_run_with_any_other_number_is_refused_or_is_a_page(place: str, number: float) -> None:
    data = with_number(SAVED, place, number)
    try:
        run = codec.decode(Run, data)
    except DocumentError:
        return
    assert printed(lambda page: print_run(run, page))


def test_other_rows_have_no_notes_here() -> None:
    noisy = msgspec.structs.replace(make_others()[0], remarks=(Remark("drift", "the time drifted"),))
    run = make_explain_run()
    assert "drifted" not in page_of(measurements=(*run.measurements[:3], noisy))


def test_text_from_outside_can_neither_colour_nor_move_anything() -> None:
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


def test_sorted_it_is_one_row_a_measurement() -> None:
    text = printed(lambda page: print_run(make_explain_run(), page, "gbps"))
    assert "Where the time goes" not in text
    assert next(line.split()[0] for line in text.splitlines() if "96 MiB" in line) == "raw.pinned-async"


def test_a_saved_run_is_printed_as_when_it_was_measured() -> None:
    run = make_explain_run()
    assert printed(lambda page: print_run(codec.decode(Run, codec.encode(run)), page)) == page_of()

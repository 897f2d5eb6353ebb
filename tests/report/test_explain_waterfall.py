"""The waterfall of an explained route, and which trial it is of."""

from __future__ import annotations

import io
from typing import Any

import pytest
from explain_samples import NBYTES, make_breakdown, make_dma, make_explain_run, make_explained, page_of, section
from framework_samples import make_aliased, make_raw_rows
from pages import line_with

from pyxfer._document.runs import Fact, unknown
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run


def test_what_goes_through_a_ring_is_staged_in_its_slots() -> None:
    row = make_explained(mode="staged", dma=Fact(make_dma(source="pinned")))
    text = section(page_of(row), "Where the time goes\n")
    assert "staging through the ring's slots" in text
    assert "copying slower" not in text


def test_each_part_has_a_line_with_time_share_and_a_bar_that_begins_where_the_one_before_ends() -> None:
    lines = section(page_of(), "Where the time goes\n").splitlines()
    parts = [line[:34].strip() for line in lines[2:]]
    assert parts == [
        "the copy, at the ceiling's speed",
        "preparing on the host",
        "waiting for the copy to begin",
        "staging of pageable memory",
        "gaps in the device's work",
        "kernels",
        "copies in other directions",
        "the call returning afterwards",
        "seeing that it is done",
        "tf.function",
    ]
    bars = [(line.index("#"), line.rstrip().rindex("#") + 1) for line in lines[2:]]
    assert bars[0][0] == bars[-1][0]
    assert [begin for begin, _ in bars[:-1]] == sorted(begin for begin, _ in bars[:-1])
    assert bars[1][1] - bars[1][0] == max(end - begin for begin, end in bars[:-1])
    assert bars[-1][1] == max(end for _, end in bars)
    assert line_with(page_of(), "preparing on the host").split()[4:7] == ["24.800", "67.2", "%"]


def test_no_line_is_longer_than_the_terminal() -> None:
    stream = io.StringIO()
    print_run(make_explain_run(), Page(stream, columns=80))
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_beside_the_traced_trial_stands_the_median_of_those_that_were_only_timed() -> None:
    assert "of 3 that were traced the one nearest to the median of 8 that were only timed, 36.9 ms." in page_of()


def test_where_nothing_was_traced_the_page_says_why_and_shows_what_is_left() -> None:
    why: Any = unknown("trace: unavailable: another profiler is at work in this process")
    text = page_of(make_explained(dma=why, breakdown=why))
    assert "Where the time goes\nTrace: unavailable: another profiler is at work in this process.\n" in text
    assert "#" not in text
    assert "crossed" not in text
    assert line_with(text, "events   36.9 ms").startswith("events")
    assert "1.  `tf.dlpack-pinned(x)`" in text


def test_pinned_memory_is_not_staged_but_may_be_slower_than_the_ceiling() -> None:
    text = page_of(make_explained(dma=Fact(make_dma(source="pinned"))))
    assert "copying slower than the ceiling" in text
    assert "staging" not in text


def ingest(call_s: float, **overrides: Any) -> str:
    """The page of an ingest route whose call takes so long, traced."""
    parts = make_breakdown((("preparing", call_s), ("finishing", 1e-6)))
    fields: dict[str, Any] = {
        "route": "tf.ingest", "direction": "ingest", "side": "ingest", "bracket": "host", "breakdown": Fact(parts),
        "dma": unknown("nothing crosses the link"), "peak_share": unknown("crosses no link"), **overrides,
    }  # fmt: skip
    row = make_explained(**fields)
    return page_of(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))


def test_what_stays_in_host_memory_is_held_against_one_copy_there() -> None:
    text = ingest(20e-3)
    assert "of what one copy in host memory reaches" in line_with(text, "tf.ingest, into a tensor")
    assert "This stays in host memory and crosses no link." in text
    assert line_with(text, "what one copy in host memory takes").split()[7] == "9.184"
    assert line_with(text, "everything else in the call").split()[5] == "10.816"
    assert "crossed" not in text


def test_a_call_shorter_than_a_copy_is_not_taken_for_one() -> None:
    text = section(ingest(4e-3), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2:5] == ["4.000", "100.0", "%"]
    assert "everything else in the call" not in text
    assert text.endswith("The call is shorter than what one copy in host memory takes, 9.18 ms here.")


def test_a_call_that_copies_nothing_is_not_divided_however_long_it_takes() -> None:
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    text = section(ingest(20e-3, rate=aliased.rate, ceiling_share=aliased.ceiling_share), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2] == "20.000"
    assert "It copies nothing; what one copy in host memory takes is 9.18 ms here." in text


# --- which trial it is of --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"trials": 3}, "One transfer: of 3 that were traced the one nearest to the median of 8 that were only"),
        ({"trials": 1}, "One transfer, the one that was traced; the median of 8"),
        ({"trials": 2, "left_out": 1}, "One transfer: of 2 that could be broken down, of 3 that were traced, the one"),
        ({"trials": 1, "left_out": 1}, "One transfer, the one that could be broken down, of 2 that were traced;"),
    ],
)
def test_it_is_said_which_of_the_traced_trials_the_parts_are_of(counts: dict[str, Any], words: str) -> None:
    assert words in page_of(make_explained(breakdown=Fact(make_breakdown(**counts))))


@pytest.mark.parametrize(
    ("timed_s", "words"),
    [
        (9e-3, "Traced it takes 4.0 times as long: read the shares with care."),
        (0.7e-3, "Traced it takes 52 times as long: read the shares with care."),
        (27.3e-3, "Traced it takes 32.2 % longer: read the shares with care."),
        (42e-3, "Traced it takes 14.0 % less: read the shares with care."),
        (35e-3, "Traced it takes 3.1 % longer: read the shares with care."),
    ],
)
def test_a_traced_trial_unlike_the_timed_ones_is_said_under_the_waterfall(timed_s: float, words: str) -> None:
    breakdown = make_breakdown((("preparing", 36.1e-3),))
    row = make_explained(timed_s, breakdown=Fact(breakdown))
    assert section(page_of(row), "Where the time goes\n").splitlines()[-1] == words


def test_a_traced_trial_like_the_timed_ones_has_no_such_line() -> None:
    assert "Traced it takes" not in page_of(make_explained(36.9e-3))


def test_why_nothing_was_traced_is_said_whole_and_ends_as_it_ended() -> None:
    reason = f"no record came: {'the tracer was refused, ' * 20}run it as root."
    why: Any = unknown(reason)
    assert f"\nN{reason[1:]}\n" in page_of(make_explained(dma=why, breakdown=why))

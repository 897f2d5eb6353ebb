"""The waterfall of an explained route."""

from __future__ import annotations

import io
from typing import Any

from explain_samples import NBYTES, make_breakdown, make_dma, make_explain_run, make_explained, page_of, section
from framework_samples import make_aliased, make_raw_rows
from pages import line_with

from pyxfer._document.runs import Fact, unknown
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run


def test_a_ring_route_has_the_part_of_its_slots() -> None:
    row = make_explained(mode="staged", dma=Fact(make_dma(source="pinned")))
    text = section(page_of(row), "Where the time goes\n")
    assert "staging through the ring's slots" in text
    assert "copying slower" not in text


def test_parts_have_a_time_a_share_and_consecutive_bars() -> None:
    lines = section(page_of(), "Where the time goes\n").splitlines()[3:]
    parts = [line[:34].strip() for line in lines]
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
    bars = [(line.index("#"), line.rstrip().rindex("#") + 1) for line in lines]
    assert bars[0][0] == bars[-1][0]
    assert [begin for begin, _ in bars[:-1]] == sorted(begin for begin, _ in bars[:-1])
    assert bars[1][1] - bars[1][0] == max(end - begin for begin, end in bars[:-1])
    assert bars[-1][1] == max(end for _, end in bars)
    assert line_with(page_of(), "preparing on the host").split()[4:7] == ["24.800", "67.2", "%"]


def test_page_fits_80_columns() -> None:
    stream = io.StringIO()
    print_run(make_explain_run(), Page(stream, columns=80))
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_untraced_page_has_the_reason_and_the_clocks() -> None:
    why: Any = unknown("trace: unavailable: another profiler is active")
    text = page_of(make_explained(dma=why, breakdown=why))
    assert "Where the time goes\nTrace: unavailable: another profiler is active.\n" in text
    assert "##" not in text
    assert "crossed" not in text
    assert line_with(text, "events   36.9 ms").startswith("events")
    assert "1.  tf.dlpack-pinned:" in text


def test_pinned_memory_has_no_staging() -> None:
    text = page_of(make_explained(dma=Fact(make_dma(source="pinned"))))
    assert "copying slower than the ceiling" in text
    assert "staging" not in text


def ingest(call_s: float, **overrides: Any) -> str:
    """The page of an ingest route whose traced call takes `call_s`."""
    parts = make_breakdown((("preparing", call_s), ("finishing", 1e-6)))
    fields: dict[str, Any] = {
        "route": "tf.ingest", "direction": "ingest", "side": "ingest", "bracket": "host", "breakdown": Fact(parts),
        "dma": unknown("nothing crosses the link"), "peak_share": unknown("crosses no link"), **overrides,
    }  # fmt: skip
    row = make_explained(**fields)
    return page_of(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))


def test_ingest_call_is_divided_into_one_copy_and_the_rest() -> None:
    text = ingest(20e-3)
    assert line_with(text, "tf.ingest, into a tensor").endswith("of one copy in host memory")
    assert "This stays in host memory and crosses no link." in text
    assert line_with(text, "what one copy in host memory takes").split()[7] == "9.184"
    assert line_with(text, "everything else in the call").split()[5] == "10.816"
    assert "crossed" not in text


def test_ingest_call_shorter_than_a_copy_is_not_divided() -> None:
    text = section(ingest(4e-3), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2:5] == ["4.000", "100.0", "%"]
    assert "everything else in the call" not in text


def test_ingest_call_without_a_copy_is_not_divided() -> None:
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    text = section(ingest(20e-3, rate=aliased.rate, ceiling_share=aliased.ceiling_share), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2] == "20.000"


def test_reason_of_an_untraced_trial_is_not_cut() -> None:
    reason = f"no record came: {'the tracer was refused, ' * 20}run it as root."
    why: Any = unknown(reason)
    assert f"\nN{reason[1:]}\n" in page_of(make_explained(dma=why, breakdown=why))

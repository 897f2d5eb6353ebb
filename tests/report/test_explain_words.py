"""What the figures of an explained route say in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from explain_samples import (
    NBYTES,
    made,
    make_breakdown,
    make_dma,
    make_explain_run,
    make_explained,
    page_of,
    section,
)
from framework_samples import make_nature, make_raw_rows
from pages import line_with

from pyxfer._document import runs
from pyxfer._document.runs import Fact

# --- what crossed, and what the host did -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dma", "words"),
    [
        (make_dma(), "1 copy of 96 MiB from pageable memory in 9.33 ms: 10.79 GB/s"),
        (make_dma(copies=12.0), "12 copies of 96 MiB together from pageable memory in 9.33 ms"),
        (make_dma(copies=0.25), "0.25 copies of 96 MiB from pageable memory"),
        (make_dma(source="pageable+pinned"), "from pageable and pinned memory"),
        (make_dma(nbytes=4 * NBYTES), "1 copy of 384 MiB from pageable memory (4 times what was asked for)"),
        (make_dma(None), "from pageable memory; the device gave no time for 1 of 1 copies"),
        (make_dma(0.0, nbytes=0, copies=0.0, source=""), "no copy at all"),
    ],
)
def test_what_crossed_is_said_in_a_line(dma: runs.Dma, words: str) -> None:
    assert words in line_with(page_of(make_explained(dma=Fact(dma))), "crossed      ")


def test_what_crossed_is_no_multiple_of_nothing() -> None:
    line = line_with(page_of(make_explained(nbytes=0)), "crossed      ")
    assert line.endswith("1 copy of 96 MiB from pageable memory in 9.33 ms: 10.79 GB/s")


def test_a_copy_back_goes_to_memory() -> None:
    row = make_explained(direction="d2h", side="d2h", dma=Fact(make_dma(source="pinned")))
    assert "to pinned memory" in line_with(page_of(row), "crossed      ")


def beside_ceiling(ceiling_s: float, row: runs.Measurement) -> str:
    """The line of what crossed, where the ceiling's own copies took so long by the records."""
    best, *others = make_raw_rows("tensorflow", "h2d", NBYTES)
    best = msgspec.structs.replace(best, dma=Fact(make_dma(ceiling_s, source="pinned")))
    return line_with(page_of(row, measurements=(best, *others, row)), "crossed      ")


def test_what_crossed_is_held_against_the_ceilings_copies_by_the_same_records() -> None:
    assert beside_ceiling(1.81e-3, make_explained()).endswith(
        ": 10.79 GB/s, 19.4 % of the ceiling's by the same records"
    )


def test_copies_as_quick_as_the_ceilings_are_no_share_above_the_whole() -> None:
    line = beside_ceiling(2.5e-3, make_explained(dma=Fact(make_dma(2e-3))))
    assert line.endswith(": 50.33 GB/s, no slower than the ceiling's by the same records")


def test_the_ceiling_is_not_held_against_itself() -> None:
    best = msgspec.structs.replace(make_raw_rows("tensorflow", "h2d", NBYTES)[0], dma=Fact(make_dma(1.81e-3)))
    parameters = msgspec.structs.replace(make_explain_run().parameters, explained=best.route)
    text = page_of(measurements=(best,), parameters=parameters)
    assert line_with(text, "crossed  ").endswith("in 1.81 ms: 55.62 GB/s")


def test_copies_quicker_than_the_link_are_said_to_be_impossible() -> None:
    line = beside_ceiling(1.81e-3, make_explained(dma=Fact(make_dma(1e-3))))
    assert "in 1.00 ms, which is impossible: it would be above the link's peak of 58.45 GB/s, " in line
    assert line.endswith("so these records or the shown link are wrong")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "24580 page faults: pages of 101 MB were touched for the first time; the calling thread waited for "
             "something 3 times and never lost the processor"),
        ({"faults": 0.0, "switches": 0.0, "preemptions": 1.0}, "no page fault; the calling thread never waited for "
             "anything and lost the processor once"),
        ({"faults": 0.0, "preemptions": 0.29}, "no page fault; the calling thread waited for something 3 times and "
             "lost the processor in 29.0 % of the transfers"),
        ({"faults": 0.0, "preemptions": 1.29}, "no page fault; the calling thread waited for something 3 times and "
             "lost the processor once"),
        ({"faults": 1.0, "switches": 1.0, "preemptions": 2.0}, "1 page fault; the calling thread waited for something "
             "once and lost the processor twice"),
    ],
)  # fmt: skip
def test_page_faults_and_switches_are_said_in_words(counts: dict[str, Any], words: str) -> None:
    text = page_of(make_explained(breakdown=Fact(make_breakdown(**counts))))
    assert line_with(text, "page fault").endswith(words)


# --- clocks ----------------------------------------------------------------------------------------------------------


def clocks(row: runs.Measurement) -> str:
    return section(page_of(row), "Clocks\n")


def test_every_clock_that_saw_it_stands_beside_the_others() -> None:
    lines = clocks(make_explained()).splitlines()
    assert [(line.split()[0], line.split()[1]) for line in lines[:4]] == [
        ("host", "36.9"),
        ("events", "36.9"),
        ("call", "36.5"),
        ("device", "9.33"),
    ]


def test_a_call_that_only_queues_is_told_from_the_work_that_it_queued() -> None:
    text = clocks(made(dispatch=20e-6))
    assert (
        "The call only queues its work: it returns after 20.0 us, so a stopwatch around the call alone would make it "
        "1840 times too fast." in text
    )


def test_a_blocking_copy_never_only_queues_however_much_lies_beside_it() -> None:
    row = made(dispatch=1.87e-6, summary=4.07e-6, wall=3.82e-6)
    text = clocks(msgspec.structs.replace(row, mode="memcpy", nature=None, dma=Fact(make_dma(351e-9))))
    assert "queues its work" not in text
    assert (
        "The call blocks, and holds its caller for 1.87 us, 45.9 % of the time; the rest lies beside it, where the "
        "events around it are queued and stamped." in text
    )


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ({}, "The call holds its caller until the work is done."),
        ({"dispatch": 25e-3}, "The call holds its caller for 67.8 % of the time."),
        ({}, "The host's clock and the events agree."),
        ({"wall": 40e-3}, "The host's clock says 3.10 ms more than the events: the host learns of the end late."),
        ({"wall": 30e-3}, "The host's clock says 6.90 ms less than the events: they were stamped late."),
        ({"wall": None}, "It was queued behind a gate, so the host's clock has no part in its time."),
    ],
)
def test_why_clocks_differ_is_chosen_from_the_figures(figures: dict[str, Any], sentence: str) -> None:
    assert sentence in clocks(made(**figures))


def test_what_the_device_did_and_a_timeline_of_it_leaves_out_is_said_by_the_parts() -> None:
    assert (
        "In the traced trial the device was copying for 25.3 %, running kernels for 0.84 % and copying in other "
        "directions for 0.0043 % of the time, and a timeline of the device shows nothing else: it was idle for the "
        "other 27.3 ms." in clocks(make_explained())
    )


def test_kernels_are_no_time_of_the_host() -> None:
    parts = make_breakdown((("preparing", 1e-3), ("copying", 9e-3), ("kernels", 26.9e-3)))
    text = clocks(make_explained(breakdown=Fact(parts)))
    assert "In the traced trial the device was copying for 24.4 % and running kernels for 72.9 % of the time." in text
    assert "idle" not in text


def test_while_the_slots_of_a_ring_are_filled_the_device_may_have_nothing_to_do() -> None:
    parts = make_breakdown((("staging", 5e-3), ("copying", 2e-3), ("finishing", 1e-3)))
    row = make_explained(8e-3, breakdown=Fact(parts), dma=Fact(make_dma(2e-3, source="pinned")), mode="staged")
    assert "In the traced trial the device was copying for 25.0 %" in clocks(row)
    assert "it was idle for the other 6.00 ms" in clocks(row)


def test_a_routes_own_ring_is_one_too() -> None:
    parts = make_breakdown((("staging", 5e-3), ("copying", 2e-3), ("finishing", 1e-3)))
    nature = make_nature("torch.upload", staged=True)
    row = make_explained(8e-3, breakdown=Fact(parts), dma=Fact(make_dma(2e-3, source="pinned")), nature=nature)
    assert "it was idle for the other 6.00 ms" in clocks(row)
    assert "staging through the ring's slots" in page_of(row)


def test_an_upload_that_returns_early_has_read_the_array_and_not_only_queued_it() -> None:
    text = clocks(msgspec.structs.replace(made(dispatch=10e-3), nature=make_nature("torch.upload", staged=True)))
    assert (
        "The call returns when the array has been read, after 10.0 ms; its last bytes are still on their way." in text
    )
    assert "queues its work" not in text


def test_a_device_that_was_copying_nearly_all_of_the_time_is_said_to() -> None:
    parts = make_breakdown((("preparing", 0.9e-3), ("copying", 26e-3), ("staging", 10e-3)))
    text = clocks(make_explained(breakdown=Fact(parts), dma=Fact(make_dma(36e-3))))
    assert "In the traced trial the device was copying nearly all of the time.\n" in f"{text}\n"


def test_a_device_that_copied_for_longer_than_the_events_say_is_not_hidden() -> None:
    text = clocks(make_explained(8e-3))
    assert (
        "The device's clock says 1.33 ms more than the events: it saw the traced trials, and the events those that "
        "were only timed." in text
    )


def test_without_a_breakdown_nothing_is_said_of_the_devices_share() -> None:
    text = clocks(make_explained(breakdown=Fact(reason="the clocks disagree")))
    assert "the device was" not in text
    assert "device   9.33 ms" in text


def test_a_device_that_did_nothing_has_no_share() -> None:
    idle = make_breakdown((("preparing", 36.9e-3),))
    assert "the device was" not in clocks(make_explained(breakdown=Fact(idle)))


def test_what_copied_nothing_has_no_time_of_the_device() -> None:
    nothing = make_dma(0.0, nbytes=0, copies=0.0, source="")
    assert "one of its copies" not in clocks(make_explained(dma=Fact(nothing)))

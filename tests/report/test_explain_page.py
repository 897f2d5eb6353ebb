"""An explain run as a page."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from explain_samples import NBYTES, make_breakdown, make_dma, make_explain_run, make_explained, make_others
from framework_samples import make_aliased, make_raw_rows
from pages import host_run, line_with, printed
from samples import MARKUP, make_measurement, make_parameters

from pyxfer import documents, model, stats
from pyxfer.model import Fact, Remark, unknown
from pyxfer.report.run_page import print_run
from pyxfer.report.terminal import Page

ESCAPE = "\x1b[31m\x07tf.function\x1b]0;t\x07"


def page_of(row: model.Measurement | None = None, **overrides: Any) -> str:
    return printed(lambda page: print_run(make_explain_run(row, **overrides), page))


def section(text: str, heading: str) -> str:
    """From a heading to the next empty line."""
    begin = text.index(heading) + len(heading)
    return text[begin : text.index("\n\n", begin)] if "\n\n" in text[begin:] else text[begin:]


def made(**figures: Any) -> model.Measurement:
    """The row with other figures, each given as seconds."""
    fields: dict[str, Any] = {
        name: None if value is None else stats.summarise([value] * 8) for name, value in figures.items()
    }
    return make_explained(**fields)


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
    assert "This is host memory, not a PCIe link: nothing here says how fast a GPU is reached." in text


# --- where the time goes ---------------------------------------------------------------------------------------------


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
    assert "the middle one of 3 that were traced; the median of 8 that were only timed is 36.9 ms." in page_of()


def test_where_nothing_was_traced_the_page_says_why_and_shows_what_is_left() -> None:
    why: Any = unknown("trace: unavailable: another profiler is at work in this process")
    text = page_of(make_explained(dma=why, breakdown=why))
    assert "Where the time goes\ntrace: unavailable: another profiler is at work in this process.\n" in text
    assert "#" not in text
    assert "crossed" not in text
    assert line_with(text, "events   36.9 ms").startswith("events")
    assert "1.  `tf.dlpack-pinned(x)`" in text


def test_pinned_memory_is_not_staged_but_may_be_slower_than_the_ceiling() -> None:
    text = page_of(make_explained(dma=Fact(make_dma(source="pinned"))))
    assert "copying slower than the ceiling" in text
    assert "staging" not in text


def test_what_stays_in_host_memory_is_held_against_one_copy_there() -> None:
    parts = make_breakdown((("preparing", 20e-3), ("finishing", 1e-3)))
    row = make_explained(
        route="tf.ingest", direction="ingest", side="ingest", bracket="host", breakdown=Fact(parts),
        dma=unknown("nothing crosses the link"), peak_share=unknown("crosses no link"),
    )  # fmt: skip
    text = page_of(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))
    assert "of what one copy in host memory reaches" in line_with(text, "tf.ingest, into a tensor")
    assert "This stays in host memory and crosses no link." in text
    assert line_with(text, "what one copy in host memory takes").split()[7] == "9.2"
    assert line_with(text, "everything else in the call").split()[5] == "10.8"
    assert "crossed" not in text


# --- what crossed, and what the host did -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dma", "words"),
    [
        (make_dma(), "1 copy of 96 MiB from pageable memory in 9.33 ms: 10.79 GB/s, 19.5 % of the ceiling"),
        (make_dma(copies=12.0), "12 copies of 96 MiB together from pageable memory in 9.33 ms"),
        (make_dma(copies=0.25), "0.25 copies of 96 MiB from pageable memory"),
        (make_dma(source="pageable+pinned"), "from pageable and pinned memory"),
        (make_dma(nbytes=4 * NBYTES), "1 copy of 384 MiB from pageable memory (4 times what was asked for)"),
        (make_dma(None), "from pageable memory; the device gave no time for 1 of 1 copies"),
        (make_dma(0.0, nbytes=0, copies=0.0, source=""), "no copy at all"),
    ],
)
def test_what_crossed_is_said_in_a_line(dma: model.Dma, words: str) -> None:
    assert words in line_with(page_of(make_explained(dma=Fact(dma))), "crossed      ")


def test_a_copy_back_goes_to_memory() -> None:
    row = make_explained(direction="d2h", side="d2h", dma=Fact(make_dma(source="pinned")))
    assert "to pinned memory" in line_with(page_of(row), "crossed      ")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "24580 page faults: pages of 101 MB were touched for the first time; the calling thread waited for "
             "something 3 times and never lost the processor"),
        ({"faults": 0.0, "switches": 0.0, "preemptions": 1.0}, "no page fault; the calling thread never waited for "
             "something and lost the processor once"),
        ({"faults": 1.0, "switches": 1.0, "preemptions": 2.0}, "1 page fault; the calling thread waited for something "
             "once and lost the processor twice"),
    ],
)  # fmt: skip
def test_page_faults_and_switches_are_said_in_words(counts: dict[str, Any], words: str) -> None:
    text = page_of(make_explained(breakdown=Fact(make_breakdown(**counts))))
    assert line_with(text, "page fault").endswith(words)


# --- clocks ----------------------------------------------------------------------------------------------------------


def clocks(row: model.Measurement) -> str:
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


def test_what_a_timeline_of_the_device_leaves_out_is_said() -> None:
    assert (
        "The device was copying for 25.3 % of the time, and that is all that a timeline of the device shows: the other "
        "27.6 ms pass on the host." in clocks(make_explained())
    )
    busy = make_explained(dma=Fact(make_dma(36e-3)))
    assert "The device was copying nearly all of the time." in clocks(busy)


# --- advice ----------------------------------------------------------------------------------------------------------


def advice(*others: model.Measurement, row: model.Measurement | None = None) -> list[str]:
    row = row or make_explained()
    measurements = (*make_raw_rows("tensorflow", "h2d", NBYTES), row, *others)
    return section(page_of(row, measurements=measurements), "Faster here, measured in the same rounds\n").splitlines()


def test_the_three_that_bring_most_are_named_with_what_they_were_measured_to_bring() -> None:
    assert [line.split("`")[1] for line in advice(*make_others())] == [
        "tf.dlpack-pinned(x)",
        "tf.dlpack-pageable(x)",
        "tf.rawop(x)",
    ]
    assert advice(*make_others())[0] == (
        "1.  `tf.dlpack-pinned(x)` (tf.dlpack-pinned): 1.93 ms instead of 36.9 ms, 19.2 times as fast (19.1 to 19.2); "
        "it takes pinned memory"
    )


def test_where_nothing_is_faster_it_is_said() -> None:
    nothing = ["No other route measured in these rounds is faster beyond doubt."]
    assert advice() == nothing
    slower = [other for other in make_others() if (other.gbps or 0) < 2.7]
    assert slower
    assert advice(*slower) == nothing


def test_intervals_that_meet_are_no_advice() -> None:
    other = make_others()[0]
    assert other.summary is not None
    wide = msgspec.structs.replace(other, summary=msgspec.structs.replace(other.summary, high_s=36.9e-3))
    assert len(advice(wide)) == 1
    assert "No other route" in advice(wide)[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"verified": Fact(False)},
        {"rate": unknown("elided: nothing crossed the link")},
        {"trials": ()},
        {"summary": None},
        {"direction": "d2h"},
        {"nbytes": 4096},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_wrong_or_something_else_is_no_advice(fields: dict[str, Any]) -> None:
    assert "No other route" in advice(msgspec.structs.replace(make_others()[0], **fields))[0]


def test_a_ratio_that_may_be_one_is_no_advice() -> None:
    row, other = make_explained(), make_others()[0]
    trials = tuple(model.Trial(trial.round, trial.elapsed_s * (0.9 + 0.2 * (trial.round % 2))) for trial in row.trials)
    assert "No other route" in advice(msgspec.structs.replace(other, trials=trials))[0]


def test_a_ratio_is_taken_between_trials_of_the_same_rounds() -> None:
    other = make_others()[0]
    later = tuple(model.Trial(round=number + 100, elapsed_s=1e-6) for number in range(20))
    assert "1.93 ms instead of 36.9 ms" in advice(msgspec.structs.replace(other, trials=(*other.trials, *later)))[0]


def test_a_tensor_that_copies_nothing_is_advice_for_what_stays_on_the_host() -> None:
    row = make_explained(direction="ingest", side="ingest", dma=unknown("nothing crosses the link"))
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    assert advice(aliased, row=row)[0].endswith("; it copies nothing")


def test_a_raw_copy_is_advice_in_the_place_of_a_raw_copy_alone() -> None:
    slow = make_measurement(nbytes=16 << 20, slower=5.0, route="raw.pageable-memcpy", memory="pageable")
    parameters = make_parameters(explained="raw.pageable-memcpy", directions=("h2d",), sizes_bytes=(16 << 20,))
    text = page_of(measurements=(slow, make_measurement(nbytes=16 << 20)), parameters=parameters, workers=())
    assert "1.  `raw.pinned-async`: 305 us instead of 1.53 ms, 5.00 times as fast" in text
    assert "No other route" in advice()[0]  # of TensorFlow's, beside a faster raw copy


# --- everything else on it -------------------------------------------------------------------------------------------


def test_what_must_be_known_of_the_route_stands_under_its_own_heading() -> None:
    text = page_of(make_explained(remarks=(Remark("inflated", "4 times the bytes cross the link", "convert later"),)))
    assert "Mind\n-  4 times the bytes cross the link. Convert later" in text


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
    assert printed(lambda page: print_run(documents.decode(documents.encode(run)), page)) == page_of()

"""Explained routes: the page, the waterfall, the figures around it, and the faster routes that it advises."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from explain_samples import (
    NBYTES,
    make_breakdown,
    make_dma,
    make_explain_run,
    make_explained,
    make_others,
    page_of,
    section,
)
from framework_samples import make_aliased, make_raw_rows, make_route_info
from hostile import numbers, with_number
from hypothesis import given
from hypothesis import strategies as st
from pages import line_with, printed
from samples import by_caller, make_measurement, make_parameters

from pyxfer._document import codec, runs
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Run
from pyxfer._measure import stats
from pyxfer._report.explain import (
    Explained,
    answer,
    better_routes,
    crossing_lines,
    find_explained,
    headline,
    host_lines,
    on_the_way,
    program_code,
    trial_lines,
)
from pyxfer._report.explain import advice as advised_on
from pyxfer._report.recipes import RAW_DOWNLOAD, RAW_UPLOAD
from pyxfer._report.run import print_run
from pyxfer._upload.on_the_way import DEVICE_BYTES_PER_S, PIECE_BYTES
from pyxfer.errors import DocumentError
from pyxfer.units import format_gbps

SAVED = json.loads(codec.encode(make_explain_run()))
NUMBERS = list(numbers(SAVED))


def test_reason_of_a_missing_bandwidth_is_printed_once() -> None:
    reason: Any = unknown("elided: nothing crossed the link")
    text = page_of(make_explained(rate=reason, breakdown=reason, summary=None, trials=(), dispatch=None, wall=None))
    assert text.count("elided: nothing crossed") == 1
    assert "Where the time goes" not in text
    assert "Faster routes" not in text


def test_wrong_contents_and_a_run_that_ended_early_have_no_waterfall() -> None:
    text = page_of(make_explained(verified=Fact(False)))
    assert "Where the time goes" not in text
    assert "##" not in text
    text = page_of(measurements=(), ended="interrupted")
    assert "tf.function: not measured before the run ended." in text
    assert "Interrupted: " in text


@given(st.sampled_from(NUMBERS), st.sampled_from([0, -1, 5e-324, 0.5, 1e308, -1e308, 10**19]))
def test_any_number_in_a_document_is_refused_or_printed(place: str, number: float) -> None:
    data = with_number(SAVED, place, number)
    try:
        run = codec.decode(Run, data)
    except DocumentError:
        return
    assert printed(lambda page: print_run(run, page))


def test_a_ceiling_of_small_copies_has_both_clocks() -> None:
    raw = tuple(by_caller(row) for row in make_raw_rows("tensorflow", "h2d", NBYTES))
    text = page_of(measurements=(*raw, make_explained(), *make_others()))
    (line,) = (line for line in text.splitlines() if line.startswith("The ceiling, "))
    best = max(raw, key=lambda row: row.gbps or 0.0)
    assert format_gbps(best.gbps or 0.0) in line
    assert format_gbps(best.caller_gbps or 0.0) in line
    assert "by the device's clock" in line
    assert "by the device's clock" not in page_of()


@pytest.mark.parametrize(
    ("fields", "part", "other"),
    [
        ({"mode": "staged"}, "staging through the ring's slots", "copying slower"),
        ({}, "copying slower than the ceiling", "staging"),
    ],
)
def test_slow_copies_from_pinned_memory_are_named_by_their_route(fields: Any, part: str, other: str) -> None:
    text = section(page_of(make_explained(dma=Fact(make_dma(source="pinned")), **fields)), "Where the time goes\n")
    assert part in text
    assert other not in text


def test_untraced_page_has_the_whole_reason_and_the_clocks() -> None:
    reason = f"no record came: {'the tracer was refused, ' * 20}run it as root."
    why: Any = unknown(reason)
    text = page_of(make_explained(dma=why, breakdown=why))
    assert f"Where the time goes\nN{reason[1:]}\n" in text
    assert "##" not in text
    assert "crossed" not in text
    assert line_with(text, "events   36.9 ms").startswith("events")
    assert "1.  tf.dlpack-pinned:" in text


def ingest_row(call_s: float, **overrides: Any) -> runs.Measurement:
    """An ingest route whose traced call takes `call_s`."""
    parts = make_breakdown((("preparing", call_s), ("finishing", 1e-6)))
    fields: dict[str, Any] = {
        "route": "tf.ingest", "direction": "ingest", "side": "ingest", "bracket": "host", "breakdown": Fact(parts),
        "dma": unknown("nothing crosses the link"), "peak_share": unknown("crosses no link"), **overrides,
    }  # fmt: skip
    return make_explained(**fields)


def ingest_page(call_s: float, **overrides: Any) -> str:
    row = ingest_row(call_s, **overrides)
    return page_of(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))


def test_ingest_call_is_divided_into_one_copy_and_the_rest() -> None:
    text = ingest_page(20e-3)
    assert "of one copy in host memory. 54 % of the time is " in line_with(text, "tf.ingest, into a tensor")
    assert "This stays in host memory and crosses no link." in text
    assert line_with(text, "what one copy in host memory takes").split()[7] == "9.184"
    assert line_with(text, "everything else in the call  ").split()[5] == "10.816"
    assert "crossed" not in text


def test_an_ingest_call_that_has_no_whole_copy_is_not_divided() -> None:
    text = section(ingest_page(4e-3), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2:5] == ["4.000", "100.0", "%"]
    assert "everything else in the call" not in text
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    text = section(ingest_page(20e-3, rate=aliased.rate, ceiling_share=aliased.ceiling_share), "Where the time goes\n")
    assert line_with(text, "the call  ").split()[2] == "20.000"


def explained(row: runs.Measurement | None = None, **overrides: Any) -> Explained:
    found = find_explained(make_explain_run(row, **overrides))
    assert found is not None
    return found


def test_headline_without_a_bandwidth_has_the_reason() -> None:
    reason: Any = unknown("elided: nothing crossed the link")
    row = make_explained(rate=reason, ceiling_share=reason, peak_share=reason)
    assert headline(explained(row)).endswith("96 MiB: 36.9 ms, no bandwidth: elided: nothing crossed the link")
    assert headline(explained(msgspec.structs.replace(row, summary=None))).endswith("96 MiB: no bandwidth: elided: "
    "nothing crossed the link")  # fmt: skip


def trials(row: runs.Measurement, **overrides: Any) -> dict[str, str]:
    assert row.breakdown.value is not None
    return dict(trial_lines(explained(row, **overrides), row.breakdown.value))


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"trials": 3}, "36.9 ms, closest to the median (trials: 3)"),
        ({"trials": 2, "left_out": 1}, "36.9 ms, closest to the median (trials: 2, not usable: 1)"),
    ],
)
def test_trials_name_the_traced_trial_and_those_left_out(counts: dict[str, Any], text: str) -> None:
    lines = trials(make_explained(breakdown=Fact(make_breakdown(**counts))))
    assert lines == {"timed": "36.9 ms, median (trials: 8)", "traced": text}


@pytest.mark.parametrize(("timed_s", "times"), [(9e-3, "4.01"), (0.7e-3, "51.6"), (27.3e-3, "1.32"), (42e-3, "0.86")])
def test_a_traced_trial_unlike_the_median_has_their_ratio(timed_s: float, times: str) -> None:
    row = make_explained(timed_s, breakdown=Fact(make_breakdown((("preparing", 36.1e-3),))))
    assert trials(row)["ratio"].split()[0] == times


def ingest_trials(row: runs.Measurement) -> dict[str, str]:
    return trials(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))


def test_an_ingest_call_shorter_than_a_copy_is_compared_with_one() -> None:
    assert ingest_trials(ingest_row(4e-3))["one copy"] == "9.18 ms in host memory; the call is shorter"
    assert "one copy" not in ingest_trials(ingest_row(20e-3))


def crossing(row: runs.Measurement, **overrides: Any) -> dict[str, str]:
    return dict(crossing_lines(explained(row, **overrides)))


@pytest.mark.parametrize(
    ("dma", "lines"),
    [
        (make_dma(), ("96 MiB from pageable memory", "1", "9.33 ms, 10.79 GB/s")),
        (make_dma(copies=12.0), ("96 MiB from pageable memory", "12", "9.33 ms, 10.79 GB/s")),
        (make_dma(copies=0.25), ("96 MiB from pageable memory", "0.25", "9.33 ms, 10.79 GB/s")),
        (make_dma(source="pageable+pinned"), ("96 MiB from pageable and pinned memory", "1", "9.33 ms, 10.79 GB/s")),
        (
            make_dma(nbytes=4 * NBYTES),
            ("384 MiB from pageable memory, 4 times the requested size", "1", "9.33 ms, 43.16 GB/s"),
        ),
        (make_dma(None), ("96 MiB from pageable memory", "1", "the device gave no time for 1 of 1 copies")),
        (make_dma(0.0, nbytes=0, copies=0.0, source=""), ("nothing",)),
    ],
)
def test_copies_have_bytes_memory_count_and_time(dma: runs.Dma, lines: tuple[str, ...]) -> None:
    assert tuple(crossing(make_explained(dma=Fact(dma))).values()) == lines


def test_copies_back_go_to_memory_and_those_of_zero_bytes_have_no_ratio() -> None:
    assert crossing(make_explained(nbytes=0))["crossed"] == "96 MiB from pageable memory"
    row = make_explained(direction="d2h", side="d2h", dma=Fact(make_dma(source="pinned")))
    assert crossing(row)["crossed"] == "96 MiB to pinned memory"


def test_the_copy_time_is_compared_with_the_peak() -> None:
    text = "1.00 ms, impossible: above the link's peak of 58.45 GB/s"
    assert crossing(make_explained(dma=Fact(make_dma(1e-3))))["copy time"] == text
    assert crossing(make_explained(dma=Fact(make_dma(9.33e-3))))["copy time"] == "9.33 ms, 10.79 GB/s"


@pytest.mark.parametrize(
    ("counts", "values"),
    [
        ({}, ("24580, 101 MB touched for the first time", "3", "0")),
        ({"faults": 0.0, "switches": 0.0, "preemptions": 1.0}, ("0", "0", "1")),
        ({"faults": 1.0, "preemptions": 0.29}, ("1", "3", "0.29")),
        ({"faults": 1536.0, "page_bytes": 1 << 16}, ("1536, 101 MB touched for the first time", "3", "0")),
    ],
)
def test_host_lines_count_faults_waits_and_preemptions(counts: dict[str, Any], values: tuple[str, ...]) -> None:
    assert tuple(text for _, text in host_lines(make_explained(breakdown=Fact(make_breakdown(**counts))))) == values


def advised_text(*others: runs.Measurement, row: runs.Measurement | None = None) -> str:
    """The part of the page with the faster routes and their code."""
    row = row or make_explained()
    text = page_of(row, measurements=(*make_raw_rows("tensorflow", "h2d", NBYTES), row, *others))
    begin = text.index("Faster routes, measured in the same run\n")
    ends = (text.find(mark, begin) for mark in ("\nWhere the time goes", "\nClocks", "\nWorkers"))
    return text[begin : min(end for end in ends if end > 0)]


def advice(*others: runs.Measurement, row: runs.Measurement | None = None) -> list[str]:
    """The line of each faster route, or the one that says why there is none."""
    lines = advised_text(*others, row=row).splitlines()
    return [line for line in lines if line[:2] in ("1.", "2.", "3.")] or lines[1:2]


def name_of(line: str) -> str:
    return line.split()[1].rstrip(":")


def test_the_answer_has_the_largest_part_and_the_gain_of_other_routes() -> None:
    text = answer(explained())
    assert "67 % of the time is preparing on the host" in text
    assert "tf.dlpack-pinned is 19.2 times as fast (needs pinned memory) and tf.dlpack-pageable is 4.32 times" in text
    assert "of the time is" not in answer(explained(make_explained(breakdown=unknown("lost"))))


def test_the_three_fastest_routes_are_named_with_their_gain() -> None:
    others = (*make_others(), uploaded(2.5e-3))
    assert [name_of(line) for line in advice(*others)] == ["tf.dlpack-pinned", "tf.upload", "tf.dlpack-pageable"]
    assert advice(*others)[0] == (
        "1.  tf.dlpack-pinned: 1.93 ms instead of 36.9 ms, 19.2 times as fast (19.1 to 19.2); needs pinned memory; "
        "filling that memory is not in this time"
    )


def test_a_route_of_private_calls_is_not_advice() -> None:
    (rawop,) = [other for other in make_others() if other.route == "tf.rawop"]
    assert advice(rawop) == ["No route that a program can use instead was certainly faster."]


@pytest.mark.parametrize(("direction", "code"), [("h2d", RAW_UPLOAD), ("d2h", RAW_DOWNLOAD)])
def test_a_staged_copy_replaces_a_raw_copy_but_is_not_its_ceiling(direction: Any, code: str) -> None:
    pinned, pageable = make_raw_rows("tensorflow", direction, NBYTES)
    quick = msgspec.structs.replace(pinned, route="raw.pageable-staged", mode="staged", memory="pageable")
    found = explained(pageable, measurements=(pageable, quick))
    (better,) = better_routes(found, 3)
    assert (better.row.route, program_code(better.row)) == ("raw.pageable-staged", code)
    assert found.ceiling == pageable


def uploaded(seconds: float, **words: Any) -> runs.Measurement:
    """A route through the ring."""
    route_info = make_route_info("tf.upload", call='pyxfer.upload(x, to="tensorflow")', staged=True)
    row = retimed(make_others()[1], [seconds + step * 1e-9 for step in range(8)])
    return msgspec.structs.replace(
        row, **{"route": "tf.upload", "route_info": route_info, "memory": "pageable", **words}
    )


def test_the_fastest_route_with_the_same_memory_is_always_named() -> None:
    pinned = [
        msgspec.structs.replace(retimed(other, [each * 1e-3] * 8), memory="pinned")
        for other, each in zip(make_others(), (1.0, 1.1, 1.2), strict=False)
    ]
    lines = advice(*pinned, uploaded(2.5e-3), uploaded(3e-3, route="tf.prefetch"))
    assert [name_of(line) for line in lines] == ["tf.dlpack-pinned", "tf.dlpack-pageable", "tf.upload"]
    assert "tf.upload: 2.50 ms" in lines[-1]


def with_summary(**times: float) -> runs.Measurement:
    other = make_others()[0]
    assert other.summary is not None
    return msgspec.structs.replace(other, summary=msgspec.structs.replace(other.summary, **times))


def retimed(row: runs.Measurement, seconds: list[float]) -> runs.Measurement:
    """The row with other trials, one a round."""
    summary = stats.summarise(seconds)
    trials = tuple(runs.Trial(number, each) for number, each in enumerate(seconds))
    return msgspec.structs.replace(row, summary=summary, rate=Fact(stats.rate(NBYTES, summary)), trials=trials)


OTHER = make_others()[0]
WARMING = [*(2e-3 + step * 1e-6 for step in range(8)), *([50e-3] * 40)]


@pytest.mark.parametrize(
    "other",
    [
        msgspec.structs.replace(OTHER, verified=Fact(False)),
        msgspec.structs.replace(OTHER, rate=unknown("elided: nothing crossed the link")),
        msgspec.structs.replace(OTHER, summary=None),
        msgspec.structs.replace(OTHER, direction="d2h"),
        msgspec.structs.replace(OTHER, nbytes=4096),
        with_summary(high_s=36.9e-3),
        *(with_summary(**{name: 0.0}) for name in ("median_s", "low_s", "high_s")),
        retimed(OTHER, [1e-3, 1.1e-3]),
        retimed(OTHER, WARMING),
    ],
    ids=[
        *("wrong", "no rate", "no summary", "direction", "size", "intervals overlap"),
        *("median of 0", "low of 0", "high of 0", "no interval", "fast in the first rounds"),
    ],
)
def test_wrong_or_incomparable_rows_are_not_advice(other: runs.Measurement) -> None:
    lines = advice(other)
    assert len(lines) == 1
    assert "certainly faster" in lines[0]


def test_the_gain_is_the_ratio_of_the_medians_and_the_largest_comes_first() -> None:
    """Both rows share only the first rounds, in which the faster one was still slow."""
    quick, quicker = make_others()[:2]
    slow_first = [40e-3 + step * 1e-6 for step in range(8)] + [2e-3 + step % 7 * 1e-6 for step in range(92)]
    assert "2.00 ms instead of 36.9 ms, 18.4 times as fast (18.4 to 18.4)" in advice(retimed(quick, slow_first))[0]
    warming = retimed(quicker, [30e-3] * 8 + [1e-3 + step % 7 * 1e-6 for step in range(92)])
    assert [name_of(line) for line in advice(quick, warming)] == ["tf.dlpack-pageable", "tf.dlpack-pinned"]


def test_the_code_of_your_own_route_is_its_call_on_one_line() -> None:
    route_info = make_route_info("mine.send", framework="mine", call="send(x)\n\x1b[31m# `out` is new")
    own = msgspec.structs.replace(make_others()[0], route="mine.send", route_info=route_info)
    assert "\n\nsend(x) # `out` is new\n" in advised_text(own)


def as_ingest(row: runs.Measurement) -> runs.Measurement:
    return msgspec.structs.replace(row, direction="ingest", side="ingest", dma=unknown("nothing crosses the link"))


def test_sharing_memory_is_faster_only_than_sharing_memory() -> None:
    """Beside a copy it has no ratio, and comes after the routes that copy although it takes less time."""
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    copying = msgspec.structs.replace(
        as_ingest(uploaded(9e-3)), route="torch.ingest-copy", route_info=make_route_info("tf.ingest")
    )
    lines = advice(aliased, copying, row=as_ingest(make_explained()))
    assert [name_of(line) for line in lines] == ["torch.ingest-copy", "tf.ingest-dlpack"]
    assert "times as fast" not in lines[1]
    assert "; the data must begin at a multiple of 64 bytes" in lines[1]
    slow = retimed(make_aliased("tensorflow", "tf.ingest", NBYTES), [1e-3 + step * 1e-9 for step in range(8)])
    (line,) = advice(aliased, row=msgspec.structs.replace(slow, rate=unknown("no bytes were moved")))
    assert "times as fast" in line


def test_a_raw_copy_is_advice_only_for_a_raw_copy() -> None:
    slow = make_measurement(nbytes=16 << 20, slower=5.0, route="raw.pageable-memcpy", memory="pageable")
    parameters = make_parameters(explained="raw.pageable-memcpy", directions=("h2d",), sizes_bytes=(16 << 20,))
    text = page_of(measurements=(slow, make_measurement(nbytes=16 << 20)), parameters=parameters, workers=())
    assert "1.  raw.pinned-async: 305 us instead of 1.53 ms, 5.00 times as fast" in text
    assert "No route that a program can use" in advice()[0]  # beside a faster raw copy


def casting(seconds: float = 36.9e-3, route: str = "tf.cast-eager", **overrides: Any) -> runs.Measurement:
    """A route whose result has four times the bytes."""
    return make_explained(seconds, route=route, route_info=make_route_info(route, inflation=4.0), **overrides)


def predicted_page(row: runs.Measurement, *others: runs.Measurement, **overrides: Any) -> str:
    text = page_of(row, measurements=(*make_raw_rows("tensorflow", "h2d", NBYTES), row, *others), **overrides)
    _, heading, predicted = text.partition("Predicted, not measured\n")
    return predicted if heading else ""


def test_a_cast_on_the_way_is_predicted_by_the_upload_of_the_same_rounds() -> None:
    text = predicted_page(casting(dma=unknown("not traced")), uploaded(2.5e-3))
    assert text.splitlines()[0] == (
        "-  pyxfer.upload with a cast to float32: 2.51 ms (2.51 ms to 2.57 ms) instead of 36.9 ms, 14.7 times as fast: "
        "96 MiB cross instead of 384 MiB, as fast as tf.upload sends them here, and the GPU casts each piece behind "
        "its copy"
    )
    reordered = text.splitlines()[1]
    assert 'layout="NHWC->NCHW"' in reordered
    assert "2.52 ms (2.51 ms to 2.91 ms)" in reordered
    assert "times as fast" not in reordered
    assert 'y = pyxfer.upload(x, to="tensorflow", dtype="float32")' in text
    run = make_explain_run(casting(), measurements=(casting(), uploaded(2.5e-3)))
    assert any("Predicted, not measured" in words for words, _ in advised_on(run))


def test_images_are_cast_by_every_route_and_the_kernels_of_the_upload_go() -> None:
    parameters = make_parameters(
        explained="tf.function", directions=("h2d",), sizes_bytes=(NBYTES,), workload="image-batch"
    )
    sent = uploaded(2.5e-3, breakdown=Fact(make_breakdown((("copying", 2e-3), ("kernels", 0.5e-3)))))
    text = predicted_page(make_explained(), sent, parameters=parameters)
    assert "with a cast to float32: 2.01 ms (2.01 ms to 2.07 ms)" in text
    assert 'with layout="NHWC->NCHW" too, if x is a batch of images: 2.02 ms (2.01 ms to 2.91 ms)' in text
    assert "96 MiB cross, as fast as" in text


def test_another_layout_adds_the_slower_kernel_of_the_last_piece() -> None:
    found = on_the_way(explained(casting(), measurements=(casting(), uploaded(2.5e-3))))
    assert found is not None
    assert found.reordered is not None
    slower_s = 5 * PIECE_BYTES / DEVICE_BYTES_PER_S * (1 / 0.7 - 1)
    assert found.reordered.seconds - found.took.seconds == pytest.approx(slower_s)
    # On the slowest device the kernels take longer than the copies.
    assert found.reordered.high_s == pytest.approx(5 * NBYTES / (0.7 * 0.25e12) + 30e-6)


@pytest.mark.parametrize(
    ("nbytes", "is_cast", "is_reordered"),
    [(8 << 10, False, False), (12 << 10, True, True), ((1 << 32) - 1, True, True), (1 << 32, True, False)],
    ids=["cast by the host", "cast by a kernel", "most items", "too many items"],
)
def test_only_what_a_kernel_does_is_predicted(nbytes: int, *, is_cast: bool, is_reordered: bool) -> None:
    row, sent = (msgspec.structs.replace(each, nbytes=nbytes) for each in (casting(10.0), uploaded(1e-3)))
    found = on_the_way(explained(row, measurements=(row, sent)))
    assert (found is not None) == is_cast
    assert (found is not None and found.reordered is not None) == is_reordered


@pytest.mark.parametrize(
    ("row", "others"),
    [
        (make_explained(), (uploaded(2.5e-3),)),
        (casting(), ()),
        (casting(2.55e-3), (uploaded(2.5e-3),)),
        (casting(), (uploaded(2.5e-3, verified=Fact(False)),)),
        (casting(), (uploaded(2.5e-3, summary=None),)),
        (casting(), (uploaded(2.5e-3, route_info=make_route_info("mine.send", framework="mine", staged=True)),)),
        (casting(verified=Fact(False)), (uploaded(2.5e-3),)),
    ],
    ids=["no cast", "no upload", "about equal", "wrong upload", "no time", "own framework", "wrong"],
)
def test_without_a_certain_gain_nothing_is_predicted(
    row: runs.Measurement, others: tuple[runs.Measurement, ...]
) -> None:
    assert on_the_way(explained(row, measurements=(*make_raw_rows("tensorflow", "h2d", NBYTES), row, *others))) is None
    assert not predicted_page(row, *others)

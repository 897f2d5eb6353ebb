"""The figures below and around the waterfall: trials, copies, the host, and clocks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from explain_samples import NBYTES, made, make_breakdown, make_dma, make_explain_run, make_explained
from framework_samples import make_aliased, make_nature, make_raw_rows

from pyxfer._document import runs
from pyxfer._document.runs import Fact, unknown
from pyxfer._report.explain import (
    Explained,
    clock_lines,
    clock_notes,
    crossing_lines,
    find_explained,
    headline,
    host_lines,
    trial_lines,
)


def explained(row: runs.Measurement | None = None, **overrides: Any) -> Explained:
    found = find_explained(make_explain_run(row, **overrides))
    assert found is not None
    return found


# --- headline --------------------------------------------------------------------------------------------------------


def test_headline_has_time_bandwidth_and_shares() -> None:
    assert headline(explained()) == (
        "tf.function, to the GPU, 96 MiB: 36.9 ms, 2.73 GB/s, 4.9 % of the ceiling, 4.7 % of the peak"
    )


def test_headline_without_a_bandwidth_has_the_reason() -> None:
    reason: Any = unknown("elided: nothing crossed the link")
    row = make_explained(rate=reason, ceiling_share=reason, peak_share=reason)
    assert headline(explained(row)).endswith("96 MiB: 36.9 ms, no bandwidth: elided: nothing crossed the link")
    assert headline(explained(msgspec.structs.replace(row, summary=None))).endswith("96 MiB: no bandwidth: elided: "
    "nothing crossed the link")  # fmt: skip


# --- trials ----------------------------------------------------------------------------------------------------------


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


def ingest(call_s: float, **overrides: Any) -> runs.Measurement:
    parts = make_breakdown((("preparing", call_s), ("finishing", 1e-6)))
    fields: dict[str, Any] = {
        "route": "tf.ingest", "direction": "ingest", "side": "ingest", "bracket": "host", "breakdown": Fact(parts),
        "dma": unknown("nothing crosses the link"), "peak_share": unknown("crosses no link"), **overrides,
    }  # fmt: skip
    return make_explained(**fields)


def ingest_trials(row: runs.Measurement) -> dict[str, str]:
    return trials(row, measurements=(*make_raw_rows("tensorflow", "ingest", NBYTES), row))


def test_an_ingest_call_shorter_than_a_copy_is_compared_with_one() -> None:
    assert ingest_trials(ingest(4e-3))["one copy"] == "9.18 ms in host memory; the call is shorter"
    assert "one copy" not in ingest_trials(ingest(20e-3))


def test_an_ingest_call_without_a_copy_is_compared_with_one() -> None:
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    row = ingest(20e-3, rate=aliased.rate, ceiling_share=aliased.ceiling_share)
    assert ingest_trials(row)["one copy"].startswith("9.18 ms")


# --- copies and the host ---------------------------------------------------------------------------------------------


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


def test_copies_of_zero_bytes_have_no_ratio_of_sizes() -> None:
    assert crossing(make_explained(nbytes=0))["crossed"] == "96 MiB from pageable memory"


def test_copies_back_go_to_memory() -> None:
    row = make_explained(direction="d2h", side="d2h", dma=Fact(make_dma(source="pinned")))
    assert crossing(row)["crossed"] == "96 MiB to pinned memory"


def copy_time(ceiling_s: float, row: runs.Measurement) -> str:
    """The line beside a ceiling whose copies take `ceiling_s` in the records."""
    best, *others = make_raw_rows("tensorflow", "h2d", NBYTES)
    best = msgspec.structs.replace(best, dma=Fact(make_dma(ceiling_s, source="pinned")))
    return crossing(row, measurements=(best, *others, row))["copy time"]


def test_copy_time_is_compared_with_the_ceiling() -> None:
    assert copy_time(1.81e-3, make_explained()) == "9.33 ms, 10.79 GB/s, 19.4 % of the ceiling's copies"
    fast = make_explained(dma=Fact(make_dma(2e-3)))
    assert copy_time(2.5e-3, fast) == "2.00 ms, 50.33 GB/s, no slower than the ceiling's copies"


def test_copy_time_of_the_ceiling_is_not_compared_with_itself() -> None:
    best = msgspec.structs.replace(make_raw_rows("tensorflow", "h2d", NBYTES)[0], dma=Fact(make_dma(1.81e-3)))
    parameters = msgspec.structs.replace(make_explain_run().parameters, explained=best.route)
    assert crossing(best, measurements=(best,), parameters=parameters)["copy time"] == "1.81 ms, 55.62 GB/s"


def test_copy_time_beyond_the_peak_is_impossible() -> None:
    line = copy_time(1.81e-3, make_explained(dma=Fact(make_dma(1e-3))))
    assert line == "1.00 ms, impossible: above the link's peak of 58.45 GB/s"


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


# --- clocks ----------------------------------------------------------------------------------------------------------


def note(row: runs.Measurement, clock: str) -> str:
    """The one note that begins with this clock."""
    (text,) = [text for text in clock_notes(row) if text.startswith(clock)]
    return text


def test_clocks_have_their_times() -> None:
    times = [(name, text.split()[0]) for name, text in clock_lines(make_explained())]
    assert times == [("host", "36.9"), ("events", "36.9"), ("call", "36.5"), ("device", "9.33")]


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({}, "host and events agree"),
        ({"wall": 40e-3}, "host: 3.10 ms more than events, because the host learns of the end late"),
        ({"wall": 30e-3}, "host: 6.90 ms less than events, because the events were stamped late"),
        ({"wall": None}, "host: not used, because the work was queued behind a gate"),
    ],
)
def test_host_is_compared_with_events(figures: dict[str, Any], text: str) -> None:
    assert note(made(**figures), "host") == text


@pytest.mark.parametrize(
    ("figures", "changes", "text"),
    [
        ({}, {}, "call: blocks until the work is done"),
        ({"dispatch": 25e-3}, {}, "call: blocks for 67.8 % of the time"),
        ({"dispatch": 20e-6}, {}, "call: only queues the work; timed alone it would look 1840 times as fast"),
        (
            {"dispatch": 1.87e-6, "summary": 4.07e-6, "wall": 3.82e-6},
            {"mode": "memcpy", "nature": None, "dma": Fact(make_dma(351e-9))},
            "call: blocks for 45.9 % of the time; recording the events takes the rest",
        ),
        (
            {"dispatch": 10e-3},
            {"nature": make_nature("torch.upload", staged=True)},
            "call: returns when the array has been read; the last bytes are still on their way",
        ),
    ],
)
def test_call_is_compared_with_events(figures: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    assert note(msgspec.structs.replace(made(**figures), **changes), "call") == text


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (None, "copying 25.3 %, kernels 0.84 %, other copies 0.0043 %, idle 73.9 % (27.3 ms)"),
        (
            (("preparing", 1e-3), ("copying", 9e-3), ("kernels", 26.9e-3)),
            "copying 24.4 %, kernels 72.9 %, idle 2.7 % (1.00 ms)",
        ),
        (
            (("preparing", 0.9e-3), ("copying", 26e-3), ("staging", 10e-3)),
            "copying 97.6 %, idle 2.4 % (900 us)",
        ),
    ],
)
def test_device_shares_follow_from_the_parts(parts: Any, text: str) -> None:
    row = make_explained(breakdown=Fact(make_breakdown(parts) if parts else make_breakdown()))
    assert note(row, "device") == f"device: {text} of the traced trial"


@pytest.mark.parametrize("staged", [{"mode": "staged"}, {"nature": make_nature("torch.upload", staged=True)}])
def test_device_may_be_idle_while_slots_are_filled(staged: dict[str, Any]) -> None:
    parts = make_breakdown((("staging", 5e-3), ("copying", 2e-3), ("finishing", 1e-3)))
    row = make_explained(8e-3, breakdown=Fact(parts), dma=Fact(make_dma(2e-3, source="pinned")), **staged)
    assert note(row, "device").startswith("device: copying 25.0 %, idle 75.0 % (6.00 ms)")


def test_device_time_beyond_the_events_is_reported() -> None:
    assert "device: 1.33 ms more than events, because it is of the traced trials" in clock_notes(make_explained(8e-3))


@pytest.mark.parametrize(
    "breakdown",
    [Fact(reason="the clocks disagree"), Fact(make_breakdown((("preparing", 36.9e-3),)))],
    ids=["unknown", "without device work"],
)
def test_device_shares_need_device_work(breakdown: Any) -> None:
    assert not [text for text in clock_notes(make_explained(breakdown=breakdown)) if text.startswith("device: copy")]

"""The faster routes that a page advises."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from explain_samples import NBYTES, make_explain_run, make_explained, make_others, page_of
from framework_samples import make_aliased, make_nature, make_raw_rows
from samples import make_measurement, make_parameters

from pyxfer._document import runs
from pyxfer._document.runs import Fact, unknown
from pyxfer._measure import stats
from pyxfer._report.explain import better_routes, find_explained, program_code
from pyxfer._report.recipes import RAW_DOWNLOAD, RAW_UPLOAD, RECIPES


def advised_text(*others: runs.Measurement, row: runs.Measurement | None = None) -> str:
    """The part of the page with the faster routes and their code."""
    row = row or make_explained()
    text = page_of(row, measurements=(*make_raw_rows("tensorflow", "h2d", NBYTES), row, *others))
    begin = text.index("Faster routes, measured in the same run\n")
    return text[begin : text.index("\nWorkers", begin)]


def advice(*others: runs.Measurement, row: runs.Measurement | None = None) -> list[str]:
    """The line of each faster route, or the one that says why there is none."""
    lines = advised_text(*others, row=row).splitlines()
    return [line for line in lines if line[:2] in ("1.", "2.", "3.")] or lines[1:2]


def name_of(line: str) -> str:
    return line.split()[1].rstrip(":")


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


def test_the_code_of_every_route_follows_its_line() -> None:
    text = advised_text(*make_others())
    for name in ("tf.dlpack-pinned", "tf.dlpack-pageable"):
        assert f"\n\n{RECIPES[name].code.strip()}\n" in text


def test_a_staged_copy_replaces_a_raw_copy_but_is_not_its_ceiling() -> None:
    pinned, pageable = make_raw_rows("tensorflow", "h2d", NBYTES)
    quick = msgspec.structs.replace(pinned, route="raw.pageable-staged", mode="staged", memory="pageable")
    explained = find_explained(make_explain_run(pageable, measurements=(pageable, quick)))
    assert explained is not None
    assert [better.row.route for better in better_routes(explained, 3)] == ["raw.pageable-staged"]
    assert explained.ceiling == pageable


def uploaded(seconds: float, **words: Any) -> runs.Measurement:
    """A route through the ring."""
    nature = make_nature("tf.upload", call='pyxfer.upload(x, to="tensorflow")', staged=True)
    row = retimed(make_others()[1], [seconds + step * 1e-9 for step in range(8)])
    return msgspec.structs.replace(row, **{"route": "tf.upload", "nature": nature, "memory": "pageable", **words})


def test_a_staged_route_takes_ordinary_arrays() -> None:
    assert advice(uploaded(2.5e-3)) == [
        "1.  tf.upload: 2.50 ms instead of 36.9 ms, 14.8 times as fast (14.8 to 14.8); takes ordinary arrays, staged "
        "through page-locked memory"
    ]


def test_a_raw_staged_copy_names_the_call_for_programs() -> None:
    for direction, code in (("h2d", RAW_UPLOAD), ("d2h", RAW_DOWNLOAD)):
        pinned, pageable = make_raw_rows("tensorflow", direction, NBYTES)
        quick = msgspec.structs.replace(pinned, route="raw.pageable-staged", mode="staged", memory="pageable")
        explained = find_explained(make_explain_run(pageable, measurements=(pageable, quick)))
        assert explained is not None
        (better,) = better_routes(explained, 3)
        assert program_code(better.row) == code


def test_the_fastest_route_with_the_same_memory_is_always_named() -> None:
    pinned = [
        msgspec.structs.replace(retimed(other, [each * 1e-3] * 8), memory="pinned")
        for other, each in zip(make_others(), (1.0, 1.1, 1.2), strict=False)
    ]
    lines = advice(*pinned, uploaded(2.5e-3), uploaded(3e-3, route="tf.prefetch"))
    assert [name_of(line) for line in lines] == ["tf.dlpack-pinned", "tf.dlpack-pageable", "tf.upload"]
    assert "tf.upload: 2.50 ms" in lines[-1]


def test_without_a_faster_route_the_page_says_so() -> None:
    nothing = ["No route that a program can use instead was certainly faster."]
    assert advice() == nothing
    slower = [other for other in make_others() if (other.gbps or 0) < 2.7]
    assert slower
    assert advice(*slower) == nothing


def test_overlapping_intervals_are_not_advice() -> None:
    other = make_others()[0]
    assert other.summary is not None
    wide = msgspec.structs.replace(other, summary=msgspec.structs.replace(other.summary, high_s=36.9e-3))
    assert len(advice(wide)) == 1
    assert "certainly faster" in advice(wide)[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"verified": Fact(False)},
        {"rate": unknown("elided: nothing crossed the link")},
        {"summary": None},
        {"direction": "d2h"},
        {"nbytes": 4096},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_wrong_or_incomparable_rows_are_not_advice(fields: dict[str, Any]) -> None:
    assert "certainly faster" in advice(msgspec.structs.replace(make_others()[0], **fields))[0]


def retimed(row: runs.Measurement, seconds: list[float]) -> runs.Measurement:
    """The row with other trials, one a round."""
    summary = stats.summarise(seconds)
    trials = tuple(runs.Trial(number, each) for number, each in enumerate(seconds))
    return msgspec.structs.replace(row, summary=summary, rate=Fact(stats.rate(NBYTES, summary)), trials=trials)


def test_the_gain_is_the_ratio_of_the_medians() -> None:
    """Both rows share only the first rounds, in which the faster one was still slow."""
    other = retimed(
        make_others()[0], [40e-3 + step * 1e-6 for step in range(8)] + [2e-3 + step % 7 * 1e-6 for step in range(92)]
    )
    assert "2.00 ms instead of 36.9 ms, 18.4 times as fast (18.4 to 18.4)" in advice(other)[0]


def test_a_row_with_a_slower_median_is_not_advice_even_if_its_first_rounds_were_fast() -> None:
    first = [2e-3 + step * 1e-6 for step in range(8)]
    assert "certainly faster" in advice(retimed(make_others()[0], [*first, *([50e-3] * 40)]))[0]


def test_the_largest_gain_comes_first() -> None:
    quick, quicker = make_others()[:2]
    warming = retimed(quicker, [30e-3] * 8 + [1e-3 + step % 7 * 1e-6 for step in range(92)])
    assert [name_of(line) for line in advice(quick, warming)] == ["tf.dlpack-pageable", "tf.dlpack-pinned"]


def test_a_median_without_an_interval_is_not_advice() -> None:
    assert "certainly faster" in advice(retimed(make_others()[0], [1e-3, 1.1e-3]))[0]


@pytest.mark.parametrize("figure", ["median_s", "low_s", "high_s"])
def test_a_time_of_zero_is_not_advice(figure: str) -> None:
    other = make_others()[0]
    assert other.summary is not None
    summary = msgspec.structs.replace(other.summary, **{figure: 0.0})
    assert "certainly faster" in advice(msgspec.structs.replace(other, summary=summary))[0]


def test_the_code_of_your_own_route_is_its_call_on_one_line() -> None:
    nature = make_nature("mine.send", framework="mine", call="send(x)\n\x1b[31m# `out` is new")
    own = msgspec.structs.replace(make_others()[0], route="mine.send", nature=nature)
    assert "\n\nsend(x) # `out` is new\n" in advised_text(own)


def ingest(row: runs.Measurement) -> runs.Measurement:
    return msgspec.structs.replace(row, direction="ingest", side="ingest", dma=unknown("nothing crosses the link"))


def test_sharing_memory_is_not_a_faster_copy() -> None:
    """It has no ratio, and comes after the routes that copy although it takes less time."""
    aliased = make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES)
    copying = msgspec.structs.replace(
        ingest(uploaded(9e-3)), route="torch.ingest-copy", nature=make_nature("tf.ingest")
    )
    lines = advice(aliased, copying, row=ingest(make_explained()))
    assert [name_of(line) for line in lines] == ["torch.ingest-copy", "tf.ingest-dlpack"]
    assert "times as fast" not in lines[1]
    assert "; the data must begin at a multiple of 64 bytes" in lines[1]


def test_two_routes_that_share_memory_are_compared() -> None:
    slow = retimed(make_aliased("tensorflow", "tf.ingest", NBYTES), [1e-3 + step * 1e-9 for step in range(8)])
    row = msgspec.structs.replace(slow, rate=unknown("no bytes were moved"))
    (line,) = advice(make_aliased("tensorflow", "tf.ingest-dlpack", NBYTES), row=row)
    assert "times as fast" in line


def test_a_raw_copy_is_advice_only_for_a_raw_copy() -> None:
    slow = make_measurement(nbytes=16 << 20, slower=5.0, route="raw.pageable-memcpy", memory="pageable")
    parameters = make_parameters(explained="raw.pageable-memcpy", directions=("h2d",), sizes_bytes=(16 << 20,))
    text = page_of(measurements=(slow, make_measurement(nbytes=16 << 20)), parameters=parameters, workers=())
    assert "1.  raw.pinned-async: 305 us instead of 1.53 ms, 5.00 times as fast" in text
    assert "No route that a program can use" in advice()[0]  # beside a faster raw copy


def test_advice_for_a_raw_copy_names_no_framework() -> None:
    parameters = make_parameters(explained="raw.pinned-async", directions=("h2d",), sizes_bytes=(16 << 20,))
    text = page_of(measurements=(make_measurement(nbytes=16 << 20),), parameters=parameters, workers=())
    assert "No other raw route was certainly faster." in text

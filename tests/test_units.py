"""Parsing and formatting of sizes, durations, shares and rates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyxfer import units
from pyxfer.errors import UsageError
from pyxfer.units import (
    MAX_SIZES,
    format_gbps,
    format_percent,
    format_seconds,
    format_size,
    parse_duration,
    parse_ratio,
    parse_size,
    parse_sizes,
)

Parse = Callable[[str], float | tuple[int, ...]]

KIB, MIB, GIB = 1024, 1024**2, 1024**3
BINARY = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024**4}


def attempt(parse: Parse, text: str) -> float | tuple[int, ...] | UsageError:
    try:
        return parse(text)
    except UsageError as refusal:
        return refusal


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("4096", 4096),
        ("7B", 7),
        ("4KiB", 4096),
        ("4 KB", 4000),
        ("64 MB", 64_000_000),
        ("1.5GiB", 3 * 512 * MIB),
        ("  2TiB ", 2 * 1024**4),
        ("2TB", 2 * 10**12),
        (".5KiB", 512),
        ("1.KiB", 1024),
        ("4kib", 4096),
        ("+8MiB", 8 * MIB),
        ("9223372036854775807", 2**63 - 1),
        ("0" * 60 + "4KiB", 4096),
    ],
)
def test_a_size_is_whole_bytes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


REFUSED: dict[Parse, list[tuple[str, str]]] = {
    parse_size: [
        ("", 'Size is empty: write a size such as "4KiB", "64MB" or "4096".'),
        ("  ", "Size is empty"),
        ("0", "Size '0' is not above zero"),
        ("-4KiB", "Size '-4KiB' is not above zero"),
        ("0.3KB1", "is not a size"),
        ("1.3B", "Size '1.3B' is not a whole number of bytes"),
        ("0.001KiB", "is not a whole number of bytes"),
        ("4XB", "Size '4XB' has the unknown unit 'XB'"),
        ("4%", "has the unknown unit '%'"),
        ("nan", "'nan' is not a size"),
        ("1e999999999", "'1e999999999' is not a size"),
        ("9223372036854775808", "more than any machine addresses"),
        ("0" * 64 + "1", f"'{'0' * 64}...' is not a size"),
        ("x" * 64, f"'{'x' * 64}' is not a size"),
        ("٤KiB", "is not a size"),
        ("4\x1b[31mKiB", r"'4\x1b[31mKiB' is not a size"),
        ("4k", "is ambiguous: write KB for 1000 bytes or KiB for 1024 bytes"),
        ("2 M", "is ambiguous: write MB for 1000000 bytes or MiB for 1048576 bytes"),
    ],
    parse_sizes: [
        ("4KiB:1KiB:x2", "Size '4KiB:1KiB:x2' ends below its start"),
        ("4KiB:8KiB", "Size '4KiB:8KiB' is not start:end:step"),
        ("4KiB:8KiB:x2:x2", "is not start:end:step"),
        ("1:9:x1", "the factor 'x1' is not a number above 1"),
        ("1:9:x0.5", "the factor 'x0.5' is not a number above 1"),
        ("1:9:x2KiB", "is not a number above 1"),
        ("1:9:x0", "the factor '0' is not above zero"),
        ("1:9:x", "the factor is empty"),
        ("1:9:+0", "Size '0' is not above zero"),
        ("1:9:2", "the step '2' is neither a factor (x4) nor an addend (+1MiB)"),
        ("1KiB,,2KiB", "Size is empty"),
        ("1:201:+1", "more than 200 sizes: take a larger step"),
        ("1GiB:2GiB:x1.0001", "more than 200 sizes"),
        (",".join(str(n) for n in range(1, 202)), "more than 200 sizes"),
        ("1:150:+1,1001:1051:+1", "more than 200 sizes"),
    ],
    parse_ratio: [
        ("0", "Share '0' is not above zero"),
        ("-1%", "is not above zero"),
        ("100%", "Share '100%' is not below 100%"),
        ("5", "Share '5' is not below 100%"),
        ("5s", "has the unknown unit 's'"),
        ("nan", "'nan' is not a share"),
        ("", 'Share is empty: write a share such as "0.5%"'),
    ],
    parse_duration: [
        ("0s", "Duration '0s' is not above zero"),
        ("-1", "is not above zero"),
        ("5 parsecs", "has the unknown unit 'parsecs'"),
        ("5m", "has the unknown unit 'm'"),
        ("inf", "'inf' is not a duration"),
        ("8760.1h", "Duration '8760.1h' is longer than a year"),
        ("", 'Duration is empty: write a duration such as "30s"'),
    ],
}


@pytest.mark.parametrize(
    ("parse", "text", "words"), [(parse, *refused) for parse, table in REFUSED.items() for refused in table]
)
def test_a_wrong_text_is_refused_with_what_is_wrong(parse: Parse, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parse(text)


@given(st.integers(1, 1023), st.sampled_from(sorted(BINARY)))
def test_a_formatted_binary_size_can_be_parsed(count: int, unit: str) -> None:
    nbytes = count * BINARY[unit]
    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4KiB", (4 * KIB,)),
        ("1MiB, 4KiB,1MiB", (4 * KIB, MIB)),
        ("4KiB:256KiB:x4", (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB)),
        ("4KiB:255KiB:x4", (4 * KIB, 16 * KIB, 64 * KIB)),
        ("1MiB:4MiB:+1MiB", (MIB, 2 * MIB, 3 * MIB, 4 * MIB)),
        ("1MiB : 4MiB : + 2MiB", (MIB, 3 * MIB)),
        ("100:250:x1.5", (100, 150, 225)),
        ("8KiB:8KiB:x2", (8 * KIB,)),
        ("64KiB,4KiB:16KiB:X2,10", (10, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB)),
        ("1:200:+1", tuple(range(1, 201))),
        (",".join(str(n) for n in range(1, 201)), tuple(range(1, 201))),
    ],
)
def test_sizes_are_sorted_and_unique(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(2, 64))
def test_a_geometric_range_multiplies_by_its_factor(start: int, more: int, factor: int) -> None:
    sizes = parse_sizes(f"{start}:{start + more}:x{factor}")
    assert sizes[0] == start
    assert all(after == before * factor for before, after in pairwise(sizes))
    assert sizes[-1] <= start + more < sizes[-1] * factor


@given(st.integers(1, 10**9), st.integers(1, MAX_SIZES), st.integers(1, 10**9), st.data())
def test_an_arithmetic_range_has_all_steps(start: int, count: int, step: int, data: st.DataObject) -> None:
    end = start + (count - 1) * step + data.draw(st.integers(0, step - 1))
    assert parse_sizes(f"{start}:{end}:+{step}") == tuple(range(start, end + 1, step))


@pytest.mark.parametrize(("text", "ratio"), [("0.5%", 0.005), ("0.005", 0.005), (" 3 % ", 0.03), ("99.9%", 0.999)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, ratio: float) -> None:
    assert parse_ratio(text) == ratio


@pytest.mark.parametrize("text", ["0.5", " 0.1", ".99"])
def test_a_large_share_without_a_percent_sign_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="%: write "):
        parse_ratio(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("500ms", 0.5),
        ("2min", 120.0),
        ("1.5", 1.5),
        ("90", 90.0),
        ("10us", 1e-5),
        ("1h", 3600.0),
        ("8760h", 31_536_000.0),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("parse", [parse_size, parse_sizes, parse_ratio, parse_duration])
@given(text=st.text() | st.text(alphabet="0123456789.,:+-xkKMGTiBbs% eE\n\u0664\ud800"))
@example("1:9223372036854775807:x1.00000000000000000000000000000000000001")
@example("." + "0" * 62 + "1")
@example("1" * 64)
def test_any_text_is_parsed_or_refused_with_a_printable_message(parse: Parse, text: str) -> None:
    outcome = attempt(parse, text)
    if isinstance(outcome, UsageError):
        assert len(str(outcome)) < 400
        assert str(outcome).isprintable()
    else:
        values = outcome if isinstance(outcome, tuple) else (outcome,)
        assert values
        assert len(values) <= MAX_SIZES
        assert all(0 < value < float("inf") for value in values)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1 KiB"),
        (1000, "1 KB"),
        (4096, "4 KiB"),
        (256 * MIB, "256 MiB"),
        (4 * GIB, "4 GiB"),
        (1536 * MIB, "1536 MiB"),
        (150_754_820_096, "143771 MiB"),
        (1_500_000, "1.5 MB"),
        (999_999, "1 MB"),
        (123_456_789, "123.5 MB"),
        (10**10, "10 GB"),
        (5 * 10**15 + 1, "5000 TB"),
        (129_500.4, "129.5 KB"),
        (-4096, "-4 KiB"),
        (999_999 * KIB, "999999 KiB"),
        (1_000_000 * KIB, "1.024 GB"),
        (9e26, "900000000000000 TB"),
        (1e27, "1e+27 B"),
    ],
)
def test_sizes_are_formatted_in_binary_or_decimal_units(nbytes: float, text: str) -> None:
    assert format_size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (5e-10, "0.500 ns"),
        (12.3e-9, "12.3 ns"),
        (2.514e-6, "2.51 us"),
        (0.9996e-3, "1.00 ms"),
        (4.85e-3, "4.85 ms"),
        (0.999, "999 ms"),
        (1.2, "1.20 s"),
        (3661.0, "3660 s"),
        (-2e-3, "-2.00 ms"),
    ],
)
def test_seconds_are_formatted_with_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("gbps", "text"),
    [
        (0.0, "0 GB/s"),
        (0.00123, "0.00123 GB/s"),
        (0.527, "0.527 GB/s"),
        (0.9996, "1.00 GB/s"),
        (1.617, "1.62 GB/s"),
        (55.314, "55.31 GB/s"),
        (99.996, "100.0 GB/s"),
        (1234.4, "1234 GB/s"),
        (9.994, "9.99 GB/s"),
        (9.996, "9.996 GB/s"),
        (10.0, "10.00 GB/s"),
        (1e15, "1.000e+15 GB/s"),
        (0.9e-12, "9.00e-13 GB/s"),
    ],
)
def test_rates_are_formatted_with_three_or_four_digits(gbps: float, text: str) -> None:
    assert format_gbps(gbps) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.005, "0.5 %"),
        (0.00123, "0.12 %"),
        (0.023, "2.3 %"),
        (0.0994, "9.9 %"),
        (0.1, "10.0 %"),
        (1e12, "100000000000000.0 %"),
        (1e13, "1e+15 %"),
        (0.983, "98.3 %"),
        (1.0, "100.0 %"),
    ],
)
def test_shares_are_formatted_in_percent(share: float, text: str) -> None:
    assert format_percent(share) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.00005, "no change"),
        (1.05, "4.8 % slower"),
        (0.5, "100.0 % faster"),
        (1 / 99, "9800.0 % faster"),
        (0.009, "many times faster"),
    ],
)
def test_a_ratio_of_times_is_a_change_of_bandwidth(ratio: float, text: str) -> None:
    assert units.format_change(math.log(ratio)) == text


@given(st.floats(1e-9, 1e6))
def test_formatted_seconds_are_within_half_a_percent(seconds: float) -> None:
    number, unit = format_seconds(seconds).split()
    factor = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=0.00501)


@pytest.mark.parametrize("value", [1e300, 1e-300, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("write", [format_seconds, format_gbps, format_percent, format_size])
def test_extreme_figures_have_short_texts(write: Callable[[float], str], value: float) -> None:
    assert 0 < len(write(value)) < 16


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T10:00:00Z", 0.0),
        ("2026-01-01t10:00:00z", 0.0),
        ("2026-01-01T10:00:00", 0.0),
        ("2026-01-01T10:00:00+00:00", 0.0),
        ("2026-01-01T10:00:00.5Z", 0.5),
        ("2026-01-01T10:00:00.25", 0.25),
        ("2026-01-01T10:00:00.123456789Z", 0.123457),
        ("2026-01-01T12:00:00.5+02:00", 0.5),
        ("2026-01-01 04:30:00-05:30", 0.0),
        ("2026-01-01", -36000.0),
    ],
)
def test_a_time_with_any_offset_and_fraction_is_the_same_on_every_python(text: str, seconds: float) -> None:
    moment = units.parse_moment(text)
    assert moment.utcoffset() is not None
    assert moment.timestamp() == 1767261600.0 + seconds


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "1767261600", "2026-02-30", "2026-01-01T25:00:00Z", "2026-W01-1", "2026-01-01T10", "9" * 400],
)
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        units.parse_moment(text)


ARGUMENTS: list[tuple[Callable[[Any, str], object], Any, object]] = [
    (units.size_of, "64KiB", 65536),
    (units.size_of, np.int32(4096), 4096),
    (units.sizes_of, "4KiB:64KiB:x4", (4096, 16384, 65536)),
    (units.sizes_of, 4096, (4096,)),
    (units.sizes_of, ["1MiB", 4096, np.uint64(5), "4KiB:8KiB:+4KiB"], (5, 4096, 8192, 1 << 20)),
    (units.counts_of, "16, 1024", (16, 1024)),
    (units.counts_of, "1:64:x8,3", (1, 3, 8, 64)),
    (units.counts_of, [16, "4", np.int32(5)], (4, 5, 16)),
    (units.counts_of, 7, (7,)),
    (units.seconds_of, "500ms", 0.5),
    (units.seconds_of, np.float32(2), 2.0),
    (units.seconds_of, 3, 3.0),
    (units.seconds_of, "24h", 86400.0),
    (units.share_of, "1%", 0.01),
    (units.share_of, np.float32(0.5), 0.5),
    (units.rate_of, "12000tok/s", 12000.0),
    (units.rate_of, " .5 tokens/s ", 0.5),
    (units.rate_of, "8000", 8000.0),
    (units.rate_of, np.float32(2), 2.0),
    (units.items_of, "a, b,a", ("a", "b")),
    (units.items_of, ["a,b", "c"], ("a", "b", "c")),
]


@pytest.mark.parametrize(("read", "value", "found"), ARGUMENTS)
def test_text_and_numbers_are_read_alike(read: Callable[[Any, str], object], value: Any, found: object) -> None:
    result = read(value, "x")
    assert result == found
    assert type(result) is type(found)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        *((units.size_of, value) for value in (0, -1, 1.5, True, None, "", "4K", 1 << 70)),
        *((units.sizes_of, value) for value in ([], None, [4.0], "1:2", ["x"])),
        *((units.counts_of, value) for value in ([], None, "", "0", "16KiB", "1.5", "-3", [4.0], "1:2", "1:999:+1")),
        *(
            (units.seconds_of, value)
            for value in (0, math.nan, math.inf, 10**400, True, None, "5x", "2d", 86401, "25h")
        ),
        *((units.share_of, value) for value in (0, 1.5, math.nan, True, None, "120%", "5s")),
        *(
            (units.rate_of, value)
            for value in (0, "0tok/s", -1, math.nan, 10**400, True, None, "", "5 tok", "1e3", "x")
        ),
        *((units.items_of, value) for value in ("", "a,,b", [], None, [1], 5)),
    ],
)
def test_an_invalid_argument_is_named_as_the_caller_wrote_it(read: Callable[[Any, str], object], value: Any) -> None:
    with pytest.raises(UsageError, match=r"^--option "):
        read(value, "--option")


def test_words_are_known_whatever_their_case() -> None:
    assert units.words_of("H2D, d2h,h2d", ("h2d", "d2h"), "x") == ("h2d", "d2h")
    with pytest.raises(UsageError, match=r"^x 'hd2' is unknown: did you mean h2d\? Choose one of h2d, both\.$"):
        units.word_of("hd2", ("h2d", "both"), "x")
    for value in (None, 5, "", ["h2d"]):
        with pytest.raises(UsageError, match=r"^x .* is unknown"):
            units.word_of(value, ("h2d",), "x")  # type: ignore[arg-type]

"""Parse and format sizes, durations, shares and rates.

KB is 1000 bytes and KiB 1024, everywhere. Parsed sizes are whole bytes, durations seconds, shares fractions of one.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from pyxfer.errors import UsageError

MAX_SIZES = 200
MAX_DURATION_S = 365 * 24 * 3600.0
_MAX_BYTES = 2**63 - 1
_MAX_TEXT = 64
_LEAST_PLAIN, _MOST_PLAIN = 1e-12, 1e15
_NEXT_UNIT = 1000
_FOUR_DIGITS_FROM = 10
_ONE_DECIMAL_FROM = 10
# A larger count of KiB or MiB is hard to read: 10 GB is better than 9765625 KiB.
_MAX_COUNT = 999_999

_PREFIXES = "KMGT"
_DECIMAL = {f"{prefix}B": 1000**power for power, prefix in enumerate(_PREFIXES, start=1)}
_BINARY = {f"{prefix}iB": 1024**power for power, prefix in enumerate(_PREFIXES, start=1)}
_BYTES = {name.lower(): factor for name, factor in {"": 1, "B": 1, **_DECIMAL, **_BINARY}.items()}
_SECONDS = {
    "": Fraction(1),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
# Exponents are not accepted: "1e999999999" would be a number of a billion digits.
_QUANTITY = re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%]*)", re.ASCII)

_SIZE_EXAMPLE = 'write a size such as "4KiB", "64MB" or "4096"'
_SIZES_EXAMPLE = 'write sizes such as "4KiB,1MiB", "4KiB:256MiB:x4" or "1MiB:8MiB:+1MiB"'
_RATIO_EXAMPLE = 'write a share such as "0.5%" or "0.005", above 0 and below 100%'
_DURATION_EXAMPLE = 'write a duration such as "30s", "500ms", "2min" or "1.5"'


def parse_size(text: str) -> int:
    """Parse a size such as `4KiB`, `64 MB`, `1.5GiB` or `4096` into bytes."""
    number, unit = _quantity(text, "size", _SIZE_EXAMPLE)
    if unit.upper() in tuple(_PREFIXES):
        prefix = unit.upper()
        raise UsageError(
            f"the size {_shown(text)} is ambiguous: write {prefix}B for {1000 ** (_PREFIXES.index(prefix) + 1)} bytes "
            f"or {prefix}iB for {1024 ** (_PREFIXES.index(prefix) + 1)} bytes"
        )
    if unit.lower() not in _BYTES:
        raise UsageError(f"the size {_shown(text)} has the unknown unit {_shown(unit)}; {_SIZE_EXAMPLE}")
    nbytes = number * _BYTES[unit.lower()]
    if nbytes.denominator != 1:
        raise UsageError(f"the size {_shown(text)} is not a whole number of bytes; {_SIZE_EXAMPLE}")
    if nbytes > _MAX_BYTES:
        raise UsageError(f"the size {_shown(text)} is more than any machine addresses; {_SIZE_EXAMPLE}")
    return int(nbytes)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes and ranges of sizes: `4KiB`, `4KiB,1MiB`, `4KiB:256MiB:x4`, `1MiB:8MiB:+1MiB`. Sorted, in bytes."""
    items = text.split(",")
    sizes: set[int] = set()
    for item in items[: MAX_SIZES + 1]:
        sizes.update(_range(item) if ":" in item else (parse_size(item),))
    if len(sizes) > MAX_SIZES or len(items) > MAX_SIZES:
        raise _too_many(text)
    return tuple(sorted(sizes))


def parse_ratio(text: str) -> float:
    """Parse a share above 0 and below 1, such as `0.5%` or `0.005`.

    A large one needs the percent sign, because `0.5` may be meant as 0.5 %.
    """
    number, unit = _quantity(text, "share", _RATIO_EXAMPLE)
    if unit not in ("", "%"):
        raise UsageError(f"the share {_shown(text)} has the unknown unit {_shown(unit)}; {_RATIO_EXAMPLE}")
    ratio = number / 100 if unit else number
    if ratio >= 1:
        raise UsageError(f"the share {_shown(text)} is not below 100%; {_RATIO_EXAMPLE}")
    if not unit and 10 * ratio >= 1:
        percent = f"{float(ratio) * 100:g}%"
        raise UsageError(f"the share {_shown(text)} means {percent}; write {text.strip()}% or {percent}")
    return float(ratio)


def parse_duration(text: str) -> float:
    """Parse a duration such as `30s`, `500ms`, `2min` or `1.5` into seconds."""
    number, unit = _quantity(text, "duration", _DURATION_EXAMPLE)
    if unit not in _SECONDS:
        raise UsageError(f"the duration {_shown(text)} has the unknown unit {_shown(unit)}; {_DURATION_EXAMPLE}")
    seconds = number * _SECONDS[unit]
    if seconds > MAX_DURATION_S:
        raise UsageError(f"the duration {_shown(text)} is longer than a year; {_DURATION_EXAMPLE}")
    return float(seconds)


def format_size(nbytes: float) -> str:
    """Format a size in binary units if they are whole (`4 KiB`), else in decimal ones with four digits (`1.5 MB`)."""
    if nbytes < 0:
        return f"-{format_size(-nbytes)}"
    if not nbytes < _MOST_PLAIN * _DECIMAL["TB"]:
        return f"{nbytes:g} B"
    whole = round(nbytes)
    for name, factor in reversed(_BINARY.items()):
        if whole % factor == 0 and 1 <= whole // factor <= _MAX_COUNT:
            return f"{whole // factor} {name}"
    for name, factor in {"B": 1, **_DECIMAL}.items():
        text = f"{whole / factor:.4g}"
        if float(text) < _NEXT_UNIT:
            return f"{text} {name}"
    return f"{whole / _DECIMAL['TB']:.0f} TB"


def format_seconds(seconds: float) -> str:
    """Format a duration with three significant digits: `2.51 us`, `4.85 ms`, `1.20 s`."""
    if seconds == 0:
        return "0 s"
    for name, factor in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        text = _digits(seconds * factor, 3)
        if abs(float(text)) < _NEXT_UNIT:
            return f"{text} {name}"
    return f"{_digits(seconds, 3)} s"


def format_gbps(gbps: float) -> str:
    """Format a rate in 1e9 bytes per second: `0.527 GB/s`, `1.62 GB/s`, `55.31 GB/s`."""
    three = _digits(gbps, 3)
    return f"{three if abs(float(three)) < _FOUR_DIGITS_FROM else _digits(gbps, 4)} GB/s"


def format_percent(share: float) -> str:
    """Format a share in percent: with one decimal from 10 % on, with two significant digits below."""
    percent = share * 100
    if not abs(percent) < _MOST_PLAIN:
        return f"{percent:.2g} %"
    return f"{float(f'{percent:.2g}'):g} %" if abs(percent) < _ONE_DECIMAL_FROM else f"{percent:.1f} %"


def _quantity(text: str, what: str, example: str) -> tuple[Fraction, str]:
    """Split text into an exact number above zero and its unit."""
    stripped = text.strip()
    if not stripped:
        raise UsageError(f"the {what} is empty; {example}")
    match = _QUANTITY.fullmatch(stripped) if len(stripped) <= _MAX_TEXT else None
    if match is None:
        raise UsageError(f"{_shown(text)} is not a {what}; {example}")
    sign, digits, unit = match.groups()
    number = Fraction(digits if not digits.endswith(".") else digits[:-1])
    if sign == "-" or number == 0:
        raise UsageError(f"the {what} {_shown(text)} is not above zero; {example}")
    return number, unit


def _range(text: str) -> list[int]:
    try:
        first, last, step_text = (part.strip() for part in text.split(":"))
    except ValueError:
        raise UsageError(f"the range {_shown(text)} is not start:end:step; {_SIZES_EXAMPLE}") from None
    start, end = parse_size(first), parse_size(last)
    if end < start:
        raise UsageError(f"the range {_shown(text)} ends below its start; {_SIZES_EXAMPLE}")
    if step_text.startswith(("x", "X")):
        return _geometric(start, end, step_text[1:], text)
    if step_text.startswith("+"):
        step = parse_size(step_text[1:])
        if (end - start) // step >= MAX_SIZES:
            raise _too_many(text)
        return list(range(start, end + 1, step))
    raise UsageError(f"the step {_shown(step_text)} is neither a factor (x4) nor an addend (+1MiB); {_SIZES_EXAMPLE}")


def _geometric(start: int, end: int, factor_text: str, text: str) -> list[int]:
    factor, unit = _quantity(factor_text, "factor", _SIZES_EXAMPLE)
    if unit or factor <= 1:
        raise UsageError(f"the factor {_shown('x' + factor_text)} is not a number above 1; {_SIZES_EXAMPLE}")
    if start * factor**MAX_SIZES <= end:
        raise _too_many(text)
    sizes = []
    exact = Fraction(start)
    while exact <= end:
        sizes.append(round(exact))
        exact *= factor
    return sizes


def _too_many(text: str) -> UsageError:
    return UsageError(f"{_shown(text)} is more than {MAX_SIZES} sizes; take a larger step, such as x2 or x4")


def _shown(text: str) -> str:
    """Quote the user's text for a message: control characters escaped, long text cut."""
    return repr(text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "...")


def _digits(value: float, significant: int) -> str:
    """The number with this many significant digits, including zeros; with an exponent only if very large or small."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    if not _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        return f"{value:.{significant - 1}e}"
    rounded = float(f"{value:.{significant - 1}e}")
    decimals = significant - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(decimals, 0)}f}"

"""Parse and format sizes, durations, times, shares and rates, and check arguments that are given as text or numbers.

KB is 1000 bytes and KiB 1024, everywhere. Parsed sizes are whole bytes, durations seconds, shares fractions of one.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from fractions import Fraction
from typing import TypeGuard, TypeVar

from pyxfer.errors import UsageError

Word = TypeVar("Word", bound=str)

MAX_SIZES = 200
MAX_DURATION_S = 365 * 24 * 3600.0
MAX_RUN_S = 24 * 3600.0
_MAX_BYTES = 2**63 - 1
_MAX_TEXT = 64
_ALIKE = 0.65
_MIN_PLAIN, _MAX_PLAIN = 1e-12, 1e15
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

_SIZE_EXAMPLE = 'write a size such as "4KiB", "64MB" or "4096".'
_SIZES_EXAMPLE = 'write sizes such as "4KiB,1MiB", "4KiB:256MiB:x4" or "1MiB:8MiB:+1MiB".'
_RATIO_EXAMPLE = 'write a share such as "0.5%" or "0.005", above 0 and below 100%.'
_DURATION_EXAMPLE = 'write a duration such as "30s", "500ms", "2min" or "1.5".'


def parse_size(text: str, name: str = "Size") -> int:
    """Parse a size such as `4KiB`, `64 MB`, `1.5GiB` or `4096` into bytes. An error begins with the name."""
    number, unit = _quantity(text, name, "a size", _SIZE_EXAMPLE)
    if unit.upper() in tuple(_PREFIXES):
        prefix = unit.upper()
        raise UsageError(
            f"{name} {_shown(text)} is ambiguous: write {prefix}B for {1000 ** (_PREFIXES.index(prefix) + 1)} bytes "
            f"or {prefix}iB for {1024 ** (_PREFIXES.index(prefix) + 1)} bytes."
        )
    if unit.lower() not in _BYTES:
        raise UsageError(f"{name} {_shown(text)} has the unknown unit {_shown(unit)}: {_SIZE_EXAMPLE}")
    nbytes = number * _BYTES[unit.lower()]
    if nbytes.denominator != 1:
        raise UsageError(f"{name} {_shown(text)} is not a whole number of bytes: {_SIZE_EXAMPLE}")
    if nbytes > _MAX_BYTES:
        raise UsageError(f"{name} {_shown(text)} is more than any machine addresses: {_SIZE_EXAMPLE}")
    return int(nbytes)


def parse_sizes(text: str, name: str = "Size") -> tuple[int, ...]:
    """Parse sizes and ranges of sizes: `4KiB`, `4KiB,1MiB`, `4KiB:256MiB:x4`, `1MiB:8MiB:+1MiB`. Sorted, in bytes."""
    items = text.split(",")
    sizes: set[int] = set()
    for item in items[: MAX_SIZES + 1]:
        sizes.update(_range(item, name) if ":" in item else (parse_size(item, name),))
    if len(sizes) > MAX_SIZES or len(items) > MAX_SIZES:
        raise _too_many(text, name)
    return tuple(sorted(sizes))


def parse_ratio(text: str, name: str = "Share", *, may_be_whole: bool = False) -> float:
    """Parse a share above 0 and below 1, or also `100%`, such as `0.5%` or `0.005`.

    A large one needs the percent sign, because `0.5` may be meant as 0.5 %.
    """
    number, unit = _quantity(text, name, "a share", _RATIO_EXAMPLE)
    if unit not in ("", "%"):
        raise UsageError(f"{name} {_shown(text)} has the unknown unit {_shown(unit)}: {_RATIO_EXAMPLE}")
    ratio = number / 100 if unit else number
    if ratio > 1 or (ratio == 1 and not may_be_whole):
        limit = "is above 100%" if may_be_whole else "is not below 100%"
        raise UsageError(f"{name} {_shown(text)} {limit}: {_RATIO_EXAMPLE}")
    if not unit and 10 * ratio >= 1:
        percent = f"{float(ratio) * 100:g}%"
        raise UsageError(f"{name} {_shown(text)} means {percent}: write {text.strip()}% or {percent}.")
    return float(ratio)


def parse_duration(text: str, name: str = "Duration") -> float:
    """Parse a duration such as `30s`, `500ms`, `2min` or `1.5` into seconds."""
    number, unit = _quantity(text, name, "a duration", _DURATION_EXAMPLE)
    if unit not in _SECONDS:
        raise UsageError(f"{name} {_shown(text)} has the unknown unit {_shown(unit)}: {_DURATION_EXAMPLE}")
    seconds = number * _SECONDS[unit]
    if seconds > MAX_DURATION_S:
        raise UsageError(f"{name} {_shown(text)} is longer than a year: {_DURATION_EXAMPLE}")
    return float(seconds)


# --- arguments -------------------------------------------------------------------------------------------------------
# `name` is what the caller wrote: an argument in Python, an option on the command line.


def size_of(value: str | int, name: str) -> int:
    """A size in bytes above zero, from text such as `64KiB` or a whole number."""
    if isinstance(value, str):
        return parse_size(value, name)
    return whole_of(value, name, 1, _MAX_BYTES, 'bytes, or text such as "64KiB"')


def parse_moment(text: str) -> datetime:
    """Parse a time of RFC 3339, or a date, which is its first instant. Without an offset it is in UTC.

    `datetime.fromisoformat` accepts neither `Z` nor `.5` before Python 3.11.
    """
    import msgspec  # not at the top: `pyxfer --version` does not need it

    is_date = re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text)
    try:
        moment = msgspec.convert(f"{text}T00:00:00" if is_date else text, datetime)
    except msgspec.ValidationError:
        raise UsageError(f"{text!r:.60} is not a time: write one such as 2026-01-31T12:00:00+00:00.") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def sizes_of(value: str | int | Iterable[str | int], name: str) -> tuple[int, ...]:
    """Sorted sizes in bytes, from text such as `4KiB:256MiB:x4`, a number, or a sequence of both."""
    if isinstance(value, str):
        return parse_sizes(value, name)
    items = value if isinstance(value, Iterable) else (value,)
    sizes = [
        size for item in items for size in (sizes_of(item, name) if isinstance(item, str) else [size_of(item, name)])
    ]
    if not sizes:
        raise UsageError(f"{name} is empty: {_SIZES_EXAMPLE}")
    return tuple(sorted(set(sizes)))


_COUNTS = r"\s*[1-9]\d*(:\d+:[x+]\d+)?\s*(,\s*[1-9]\d*(:\d+:[x+]\d+)?\s*)*"


def counts_of(value: str | int | Iterable[str | int], name: str) -> tuple[int, ...]:
    """Sorted whole numbers above zero, from text such as `16,1024` or `1:4096:x8`, a number, or a sequence of both."""
    items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if all(re.fullmatch(_COUNTS, item, re.ASCII) for item in items if isinstance(item, str)):
        with suppress(UsageError):
            return sizes_of(items, name)
    raise UsageError(
        f"{name} {value!r:.80} is not a list of at most {MAX_SIZES} whole numbers above zero: write numbers such as "
        '"16,1024" or "1:4096:x8".'
    )


def seconds_of(value: str | float, name: str, most: float = MAX_RUN_S) -> float:
    """Seconds above zero and at most `most`, from text such as `5s` or a number."""
    seconds = parse_duration(value, name) if isinstance(value, str) else value
    if not _is_real(seconds) or not 0 < seconds <= most:
        raise UsageError(f'{name} {value!r:.80} is not above zero and at most {most:g} s: give 30 or "30s".')
    return float(seconds)


def share_of(value: str | float, name: str) -> float:
    """A share above 0 and at most 1, from text such as `1%` or a number."""
    share = parse_ratio(value, name, may_be_whole=True) if isinstance(value, str) else value
    if not _is_real(share) or not 0 < share <= 1:
        raise UsageError(f'{name} {value!r:.80} is not above zero and at most 1: give 0.005 or "0.5%".')
    return float(share)


_RATE = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:tok(?:en)?s?/s)?"


def rate_of(value: str | float, name: str) -> float:
    """Tokens a second above zero, from text such as `12000tok/s` or a number."""
    rate = value
    if isinstance(value, str) and len(value) <= _MAX_TEXT and (match := re.fullmatch(_RATE, value.strip(), re.ASCII)):
        rate = float(match[1])
    if not _is_real(rate) or not 0 < rate <= _MAX_PLAIN:
        raise UsageError(f'{name} {value!r:.80} is not a rate above zero: give 12000 or "12000tok/s".')
    return float(rate)


def whole_of(value: int, name: str, least: int, most: int, example: str) -> int:
    """A whole number within limits, also one of NumPy's."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not least <= value <= most:
        limit = f"of at least {least}" if most >= _MAX_BYTES else f"from {least} to {most}"
        raise UsageError(f"{name} {value!r:.80} is not a whole number {limit}: give {example}.")
    return int(value)


def word_of(value: str, known: Iterable[Word], name: str) -> Word:
    """The known word that `value` is, whatever its case."""
    words = tuple(known)
    if isinstance(value, str):
        for word in words:
            if word.lower() == value.strip().lower():
                return word
    from difflib import get_close_matches  # an error is rare, and the import takes 1 ms

    near = get_close_matches(value.lower(), words, 1, _ALIKE) if isinstance(value, str) else []
    hint = f"did you mean {near[0]}? Choose" if near else "choose"
    raise UsageError(f"{name} {value!r:.80} is unknown: {hint} one of {', '.join(words)}.")


def items_of(value: str | Iterable[str], name: str) -> tuple[str, ...]:
    """Words without duplicates, from text with commas or a sequence of such texts."""
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} {value!r:.80} is not a list: give text such as 'a,b', or a sequence of texts.")
    items = [item.strip() for text in texts for item in text.split(",")]
    if not all(items):
        raise UsageError(f"{name} {value!r:.80} has an empty item: leave out a comma.")
    return tuple(dict.fromkeys(items))


def words_of(value: str | Iterable[str], known: Iterable[Word], name: str) -> tuple[Word, ...]:
    """Known words, from text with commas or a sequence."""
    words = tuple(known)
    return tuple(dict.fromkeys(word_of(item, words, name) for item in items_of(value, name)))


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


# --- text ------------------------------------------------------------------------------------------------------------


def format_size(nbytes: float) -> str:
    """Format a size in binary units if they are whole (`4 KiB`), else in decimal ones with four digits (`1.5 MB`)."""
    if nbytes < 0:
        return f"-{format_size(-nbytes)}"
    if not nbytes < _MAX_PLAIN * _DECIMAL["TB"]:
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
    if not abs(percent) < _MAX_PLAIN:
        return f"{percent:.2g} %"
    return f"{float(f'{percent:.2g}'):g} %" if abs(percent) < _ONE_DECIMAL_FROM else f"{percent:.1f} %"


_NO_CHANGE = 1e-4
_FAR_FASTER = -math.log(100)


def format_change(log_ratio: float) -> str:
    """Format the change of bandwidth that the logarithm of a ratio of times means, e.g. `4.8 % slower`."""
    if log_ratio < _FAR_FASTER:
        return "many times faster"
    share = math.expm1(-log_ratio)
    if abs(share) < _NO_CHANGE:
        return "no change"
    return f"{format_percent(abs(share))} {'slower' if share < 0 else 'faster'}"


def joined(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first_of(texts: Sequence[str], most: int, joint: str = ", ") -> str:
    """`a, b and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{joint.join(texts[:most])}{more}"


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _quantity(text: str, name: str, what: str, example: str) -> tuple[Fraction, str]:
    """Split text into an exact number above zero and its unit."""
    stripped = text.strip()
    if not stripped:
        raise UsageError(f"{name} is empty: {example}")
    match = _QUANTITY.fullmatch(stripped) if len(stripped) <= _MAX_TEXT else None
    if match is None:
        raise UsageError(f"{name} {_shown(text)} is not {what}: {example}")
    sign, digits, unit = match.groups()
    number = Fraction(digits if not digits.endswith(".") else digits[:-1])
    if sign == "-" or number == 0:
        raise UsageError(f"{name} {_shown(text)} is not above zero: {example}")
    return number, unit


def _range(text: str, name: str) -> list[int]:
    try:
        first, last, step_text = (part.strip() for part in text.split(":"))
    except ValueError:
        raise UsageError(f"{name} {_shown(text)} is not start:end:step: {_SIZES_EXAMPLE}") from None
    start, end = parse_size(first, name), parse_size(last, name)
    if end < start:
        raise UsageError(f"{name} {_shown(text)} ends below its start: {_SIZES_EXAMPLE}")
    if step_text.startswith(("x", "X")):
        return _geometric(start, end, step_text[1:], text, name)
    if step_text.startswith("+"):
        step = parse_size(step_text[1:], name)
        if (end - start) // step >= MAX_SIZES:
            raise _too_many(text, name)
        return list(range(start, end + 1, step))
    raise UsageError(
        f"{name}: the step {_shown(step_text)} is neither a factor (x4) nor an addend (+1MiB): {_SIZES_EXAMPLE}"
    )


def _geometric(start: int, end: int, factor_text: str, text: str, name: str) -> list[int]:
    factor, unit = _quantity(factor_text, f"{name}: the factor", "a number", _SIZES_EXAMPLE)
    if unit or factor <= 1:
        raise UsageError(f"{name}: the factor {_shown('x' + factor_text)} is not a number above 1: {_SIZES_EXAMPLE}")
    if start * factor**MAX_SIZES <= end:
        raise _too_many(text, name)
    sizes = []
    exact = Fraction(start)
    while exact <= end:
        sizes.append(round(exact))
        exact *= factor
    return sizes


def _too_many(text: str, name: str) -> UsageError:
    return UsageError(f"{name} {_shown(text)} has more than {MAX_SIZES} sizes: take a larger step, such as x2 or x4.")


def _shown(text: str) -> str:
    """Quote the user's text for a message: control characters escaped, long text cut."""
    return repr(text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "...")


def _digits(value: float, significant: int) -> str:
    """The number with this many significant digits, including zeros; with an exponent only if very large or small."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    if not _MIN_PLAIN <= abs(value) < _MAX_PLAIN:
        return f"{value:.{significant - 1}e}"
    rounded = float(f"{value:.{significant - 1}e}")
    decimals = significant - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(decimals, 0)}f}"

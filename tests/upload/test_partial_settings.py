"""Settings of which only some are given, and the variable PYXFER_RING."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_samples import MIB
from upload.tunings import START

from pyxfer._upload.settings import PartialSettings, settings_from_environment
from pyxfer.errors import UsageError

EXAMPLE = 'Example: PYXFER_RING="threads=8,chunk=64KiB,slots=512,fill=streaming"'


def read(text: str) -> PartialSettings:
    return settings_from_environment({"PYXFER_RING": text})


def test_the_variable_can_have_every_setting() -> None:
    assert read("threads=8,chunk=2MiB,slots=3,fill=plain,spin=20ms") == PartialSettings(8, 2 * MIB, 3, "plain", 20_000)


@pytest.mark.parametrize("text", [" threads = 8 , slots = 3 ", "slots=3,threads=8"])
def test_spaces_and_order_do_not_matter(text: str) -> None:
    assert read(text) == PartialSettings(threads=8, slots=3)


@pytest.mark.parametrize("environ", [{}, {"PYXFER_RING": ""}, {"PYXFER_RING": "  "}])
def test_an_empty_variable_gives_no_settings(environ: dict[str, str]) -> None:
    assert settings_from_environment(environ) == PartialSettings()


@pytest.mark.parametrize("text", ["spin=0", "spin=0ms", "spin=0 us"])
def test_a_spin_of_zero_is_accepted(text: str) -> None:
    assert read(text) == PartialSettings(spin_us=0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threads=65", "1 to 64 threads; got 65"),
        ("chunk=100KiB", "a power of two from 4096 to 67108864 bytes; got 102400"),
        ("slots=1", "2 to 4096 slots; got 1"),
        ("spin=2s", "0 to 1000000 microseconds to spin; got 2000000"),
        ("threads", "'threads' is not a setting"),
        ("threads=", "'' is not a whole number"),
        ("threads=eight", "'eight' is not a whole number"),
        ("threads=-1", "'-1' is not a whole number"),
        ("threads=8.0", "'8.0' is not a whole number"),
        ("threads=\u0665", "is not a whole number"),
        ("threads=8,", "'' is not a setting"),
        ("thread=8", "'thread=8' is not a setting"),
        ("threads=8,threads=9", "threads is given twice"),
        ("chunk=2M", "ambiguous"),
        ("chunk=2 parsecs", "unknown unit"),
        ("spin=long", "duration"),
        ("fill=fast", "plain, streaming or demoting; got 'fast'"),
        ("threads=8;slots=3", "'8;slots=3' is not a whole number"),
    ],
)
def test_an_invalid_variable_is_refused_with_the_cause_and_an_example(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"^PYXFER_RING=") as refused:
        read(text)
    assert why in str(refused.value)
    assert EXAMPLE in str(refused.value)


@given(st.text(max_size=300))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    message = ""
    try:
        read(text)
    except UsageError as error:
        message = str(error)
    assert len(message) < 2000


@pytest.mark.parametrize(
    ("some", "fill"),
    [
        (PartialSettings(threads=8), "streaming"),
        (PartialSettings(threads=9), "demoting"),
        (PartialSettings(slots=64), "demoting"),
        (PartialSettings(threads=2, fill="demoting"), "demoting"),
    ],
)
def test_few_given_threads_replace_demoting_by_streaming(some: PartialSettings, fill: str) -> None:
    assert some.applied_to(START).fill == fill


def test_few_given_threads_keep_other_fills() -> None:
    assert PartialSettings(threads=2).applied_to(replace(START, fill="plain")).fill == "plain"


def test_given_settings_replace_others() -> None:
    given = PartialSettings(threads=8, fill="plain")
    assert given.completed_by(PartialSettings(threads=2, slots=4)) == PartialSettings(8, None, 4, "plain")
    assert PartialSettings(slots=4).applied_to(START).slots == 4
    assert PartialSettings().applied_to(START) == START


@pytest.mark.parametrize(
    ("some", "names"),
    [
        (PartialSettings(), ""),
        (PartialSettings(threads=1), "threads"),
        (PartialSettings(1, MIB), "threads and chunk"),
        (PartialSettings(1, MIB, 2), "threads, chunk and slots"),
    ],
)
def test_names_lists_the_given_settings(some: PartialSettings, names: str) -> None:
    assert some.names == names


def test_threads_chunk_and_slots_need_no_tuning() -> None:
    assert PartialSettings(8, MIB, 3).needs_no_tuning
    assert not PartialSettings(8, MIB, fill="plain").needs_no_tuning

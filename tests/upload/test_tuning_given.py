from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_samples import MIB
from upload.tunings import START

from pyxfer._upload.settings import Given, given_by_environment
from pyxfer.errors import UsageError

RIGHT = 'write some of PYXFER_RING="threads=8,chunk=64KiB,slots=512,fill=streaming"'


def read(text: str) -> Given:
    return given_by_environment({"PYXFER_RING": text})


def test_every_setting_can_be_written() -> None:
    assert read("threads=8,chunk=2MiB,slots=3,fill=plain,spin=20ms") == Given(8, 2 * MIB, 3, "plain", 20_000)


@pytest.mark.parametrize("text", [" threads = 8 , slots = 3 ", "slots=3,threads=8"])
def test_spaces_and_order_do_not_matter(text: str) -> None:
    assert read(text) == Given(threads=8, slots=3)


@pytest.mark.parametrize("environ", [{}, {"PYXFER_RING": ""}, {"PYXFER_RING": "  "}])
def test_nothing_written_is_nothing_given(environ: dict[str, str]) -> None:
    assert given_by_environment(environ) == Given()


@pytest.mark.parametrize("text", ["spin=0", "spin=0ms", "spin=0 us"])
def test_threads_that_never_spin_can_be_asked_for(text: str) -> None:
    assert read(text) == Given(spin_us=0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threads=65", "a ring has 1 to 64 threads, and not 65"),
        ("chunk=100KiB", "a power of two, and not of 102400"),
        ("slots=1", "a ring has 2 to 4096 slots, and not 1"),
        ("spin=2s", "0 to 1000000 microseconds to spin, and not 2000000"),
        ("threads", "'threads' is no setting"),
        ("threads=", "'' is no whole number"),
        ("threads=eight", "'eight' is no whole number"),
        ("threads=-1", "'-1' is no whole number"),
        ("threads=8.0", "'8.0' is no whole number"),
        ("threads=\u0665", "is no whole number"),
        ("threads=8,", "'' is no setting"),
        ("thread=8", "'thread=8' is no setting"),
        ("threads=8,threads=9", "threads is given twice"),
        ("chunk=2M", "ambiguous"),
        ("chunk=2 parsecs", "unknown unit"),
        ("spin=long", "duration"),
        ("fill=fast", "plain, streaming or demoting, and not 'fast'"),
        ("threads=8;slots=3", "'8;slots=3' is no whole number"),
    ],
)
def test_other_text_is_refused_and_shown_a_right_one(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="PYXFER_RING is ") as refused:
        read(text)
    assert why in str(refused.value)
    assert RIGHT in str(refused.value)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    said = ""
    try:
        read(text)
    except UsageError as error:
        said = str(error)
    assert len(said) < 2000


@pytest.mark.parametrize(
    ("some", "fill"),
    [
        (Given(threads=8), "streaming"),
        (Given(threads=9), "demoting"),
        (Given(slots=64), "demoting"),
        (Given(threads=2, fill="demoting"), "demoting"),
    ],
)
def test_few_threads_that_are_given_stream_where_many_were_to_demote(some: Given, fill: str) -> None:
    assert some.applied_to(START).fill == fill


def test_few_threads_leave_any_other_fill() -> None:
    assert Given(threads=2).applied_to(replace(START, fill="plain")).fill == "plain"


def test_what_is_given_goes_over_other_settings() -> None:
    assert Given(threads=8, fill="plain").over(Given(threads=2, slots=4)) == Given(8, None, 4, "plain")
    assert Given(slots=4).applied_to(START).slots == 4
    assert Given().applied_to(START) == START


@pytest.mark.parametrize(
    ("some", "names"),
    [
        (Given(), ""),
        (Given(threads=1), "threads"),
        (Given(1, MIB), "threads and chunk"),
        (Given(1, MIB, 2), "threads, chunk and slots"),
    ],
)
def test_what_is_given_has_names(some: Given, names: str) -> None:
    assert some.names == names


def test_threads_chunk_and_slots_need_no_tuning() -> None:
    assert Given(8, MIB, 3).needs_no_tuning
    assert not Given(8, MIB, fill="plain").needs_no_tuning

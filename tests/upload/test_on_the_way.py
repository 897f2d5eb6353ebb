"""Predictions of uploads that cast or reorder on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._upload.on_the_way import PIECE_BYTES, Rates, predicted_on_the_way

MIB = 1 << 20
# 20 us and 50 GB/s; the host casts 40 GB/s of what it reads.
SIZES = (MIB, 8 * MIB, 64 * MIB, 512 * MIB)
SENDING = tuple((size, 20e-6 + size / 50e9) for size in SIZES)
CASTING = tuple((size, 20e-6 + size / 40e9) for size in SIZES)
RATES = Rates(SENDING, device_bytes_per_s=2e12, launch_s=5e-6)


def test_a_cast_that_grows_adds_the_kernel_of_the_last_piece() -> None:
    found = predicted_on_the_way(64 * MIB, 256 * MIB, RATES)
    assert (found.order, found.crossing_bytes) == ("device", 64 * MIB)
    assert found.seconds == pytest.approx(SENDING[2][1] + 5e-6 + 5 * PIECE_BYTES / 2e12)


def test_less_than_a_piece_is_the_last_piece() -> None:
    found = predicted_on_the_way(MIB, 4 * MIB, RATES)
    assert found.seconds == pytest.approx(SENDING[0][1] + 5e-6 + 5 * MIB / 2e12)


def test_a_slow_device_takes_as_long_as_its_memory() -> None:
    found = predicted_on_the_way(64 * MIB, 512 * MIB, Rates(SENDING, device_bytes_per_s=100e9, launch_s=0.0))
    assert found.seconds == pytest.approx(576 * MIB / 100e9)


@pytest.mark.parametrize(
    ("casting", "order", "crossing"),
    [
        (tuple((size, seconds * 0.6) for size, seconds in SENDING), "host", 32 * MIB),
        (CASTING, "device", 64 * MIB),
        ((), "device", 64 * MIB),
    ],
    ids=["a fast host", "a slow host", "not measured"],
)
def test_a_cast_that_shrinks_is_made_where_that_is_faster(
    casting: tuple[tuple[int, float], ...], order: str, crossing: int
) -> None:
    found = predicted_on_the_way(64 * MIB, 32 * MIB, Rates(SENDING, casting))
    assert (found.order, found.crossing_bytes) == (order, crossing)


def test_a_permutation_of_what_the_host_has_cast_is_made_on_the_device() -> None:
    rates = Rates(SENDING, tuple((size, seconds * 0.6) for size, seconds in SENDING), 2e12, 5e-6)
    found = predicted_on_the_way(64 * MIB, 32 * MIB, rates, permutes=True)
    assert (found.order, found.crossing_bytes) == ("host", 32 * MIB)
    assert found.seconds == pytest.approx(SENDING[2][1] * 0.6 + 5e-6 + 2 * PIECE_BYTES / (0.7 * 2e12))


def test_kernels_that_reorder_are_slower_than_those_that_cast() -> None:
    cast, reordered = (
        predicted_on_the_way(64 * MIB, 256 * MIB, RATES, permutes=permutes) for permutes in (False, True)
    )
    assert reordered.seconds - cast.seconds == pytest.approx(5 * PIECE_BYTES / 2e12 * (1 / 0.7 - 1))
    slow = predicted_on_the_way(
        64 * MIB, 512 * MIB, Rates(SENDING, device_bytes_per_s=100e9, launch_s=0.0), permutes=True
    )
    assert slow.seconds == pytest.approx(576 * MIB / (0.7 * 100e9))


def test_a_cast_that_grows_is_not_made_on_the_host() -> None:
    rates = Rates(SENDING, tuple((size, 1e-9) for size in SIZES))
    assert predicted_on_the_way(8 * MIB, 32 * MIB, rates).order == "device"


def test_a_cast_between_types_of_one_size_is_made_on_the_device() -> None:
    rates = Rates(SENDING, tuple((size, 1e-9) for size in SIZES))
    assert predicted_on_the_way(8 * MIB, 8 * MIB, rates).order == "device"


def test_an_empty_array_takes_the_launch_beside_the_smallest_upload() -> None:
    assert predicted_on_the_way(0, 0, RATES).seconds == pytest.approx(SENDING[0][1] + 5e-6)


def test_kernels_follow_pieces_of_the_size_that_the_engine_has() -> None:
    text = (Path(__file__).parents[2] / "csrc/ring/chunk_mover.hpp").read_text()
    found = re.search(r"converted_piece = std::size_t\{(\d+)\} << (\d+)U", text)
    assert found is not None
    assert int(found[1]) << int(found[2]) == PIECE_BYTES


BENT = ((MIB, 1e-3), (2 * MIB, 4e-3), (4 * MIB, 5e-3), (8 * MIB, 20e-3))


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [
        (MIB // 2, 1e-3),
        (MIB, 1e-3),
        (3 * MIB // 2, 2.5e-3),
        (2 * MIB, 4e-3),
        (3 * MIB, 4.5e-3),
        (6 * MIB, 12.5e-3),
        (8 * MIB, 20e-3),
        (16 * MIB, 50e-3),
    ],
)
def test_a_size_is_on_the_line_through_the_two_nearest(nbytes: int, seconds: float) -> None:
    found = predicted_on_the_way(nbytes, nbytes, Rates(BENT, device_bytes_per_s=1e30, launch_s=0.0))
    assert found.seconds == pytest.approx(seconds)


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 33), st.booleans(), st.booleans())
def test_no_conversion_takes_less_than_its_bytes_need_to_cross(
    source: int, result: int, permutes: bool, casts: bool
) -> None:
    found = predicted_on_the_way(source, result, Rates(SENDING, CASTING if casts else ()), permutes=permutes)
    crossing_s = found.crossing_bytes / 50e9
    assert found.seconds >= crossing_s * 0.999
    assert found.crossing_bytes == (source if found.order == "device" else result)


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [(4 * MIB, 20e-6 + 4 * MIB / 50e9), (1024 * MIB, 20e-6 + 1024 * MIB / 50e9), (4096, SENDING[0][1])],
    ids=["between", "above", "below"],
)
def test_a_cost_and_a_rate_are_known_from_two_sizes(nbytes: int, seconds: float) -> None:
    rates = Rates(SENDING, device_bytes_per_s=1e30, launch_s=0.0)
    assert predicted_on_the_way(nbytes, nbytes, rates).seconds == pytest.approx(seconds)


def test_one_size_gives_a_rate() -> None:
    rates = Rates(((MIB, 1e-3),), device_bytes_per_s=1e30, launch_s=0.0)
    assert predicted_on_the_way(4 * MIB, 4 * MIB, rates).seconds == pytest.approx(4e-3)
    assert predicted_on_the_way(3 * MIB // 2, 3 * MIB // 2, rates).seconds == pytest.approx(1.5e-3)

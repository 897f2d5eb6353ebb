"""The comparison of predicted with measured uploads that convert on the way, on a host of exact rates."""

from __future__ import annotations

import pytest
from way_predictions import (
    CASTING_SIZES,
    FRAMEWORKS,
    LARGEST,
    LAUNCH_BYTES,
    REFUSED,
    SMALLEST,
    Case,
    basis_of,
    drawn,
    launch_s,
    predict,
)

from pyxfer._upload.on_the_way import DEVICE_BYTES_PER_S, PIECE_BYTES

DRAWN = drawn(7, 60, FRAMEWORKS)
COST_S, LAUNCH_S = 30e-6, 12e-6


def took(case: Case) -> float:
    """On a link of 50 GB/s, and threads that cast all that they read at 60 GB/s."""
    if not case.converts:
        return COST_S + case.nbytes / 50e9
    device_s = COST_S + LAUNCH_S + case.nbytes / 50e9 + kernel_s(case.nbytes, case)
    if case.result_bytes >= case.nbytes:
        return device_s
    host_s = COST_S + max(case.nbytes / 60e9, case.result_bytes / 50e9)
    return min(device_s, host_s + (LAUNCH_S + kernel_s(case.result_bytes, case) if case.permutes else 0.0))


def kernel_s(crossing: int, case: Case) -> float:
    rate = DEVICE_BYTES_PER_S * (0.7 if case.permutes else 1.0)
    return (crossing + case.result_bytes) * min(1.0, PIECE_BYTES / crossing) / rate


MEASURED = {case: took(case) for case in (*DRAWN, *basis_of(DRAWN))}


def test_cases_are_those_of_the_seed_and_convert() -> None:
    assert drawn(7, 60, FRAMEWORKS) == DRAWN != drawn(8, 60, FRAMEWORKS)
    assert len(set(DRAWN)) == 60
    for case in DRAWN:
        assert case.converts
        assert 0.9 * SMALLEST <= case.nbytes <= LARGEST
        assert case.target not in REFUSED.get(case.framework, ())
    assert {case.permutes for case in DRAWN} == {True, False}


def test_a_pair_that_shrinks_is_measured_at_five_sizes_without_a_layout() -> None:
    (case, *_) = (each for each in DRAWN if each.result_bytes < each.nbytes)
    basis = [each for each in basis_of([case]) if (each.source, each.target) == (case.source, case.target)]
    assert len(basis) == len(CASTING_SIZES)
    assert not any(each.permutes for each in basis)


def test_the_cost_of_a_conversion_is_the_excess_of_a_small_cast() -> None:
    assert launch_s("torch", MEASURED) == pytest.approx(LAUNCH_S)
    slow = {**MEASURED, **{case: 1.0 for case in MEASURED if case.nbytes < 2 * LAUNCH_BYTES and not case.converts}}
    assert launch_s("torch", slow) == 0.0


def test_uploads_of_exact_rates_are_predicted() -> None:
    launch = {name: launch_s(name, MEASURED) for name in FRAMEWORKS}
    found = [predict(case, MEASURED, launch) for case in DRAWN]
    assert {row.order for row in found} == {"device", "host"}
    assert [row.case for row in found if not row.near] == []
    assert max(abs(row.ratio - 1) for row in found) < 0.02


def test_a_case_that_takes_twice_as_long_is_not_near() -> None:
    (case, *_) = DRAWN
    row = predict(case, {**MEASURED, case: 2 * MEASURED[case]}, {case.framework: LAUNCH_S})
    assert row.ratio == pytest.approx(0.5, rel=0.02)
    assert not row.near

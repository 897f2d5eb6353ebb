"""Copies by way, memory and size, compared with the ceiling."""

from __future__ import annotations

from typing import Any

import pytest
from watch.windows import MIB, Flat, Script, activity_of, analysed, make_window, steps_at

from pyxfer._document.watches import CopyClass
from pyxfer._trace.records import CopyWay
from pyxfer._watch.copies import sizes_needed
from pyxfer._watch.device_records import device_records


def classes(script: Script, ceilings: Flat | None = None) -> tuple[CopyClass, ...]:
    found: tuple[CopyClass, ...] = activity_of(analysed(make_window(script, 10_000), ceilings)).copies
    return found


@pytest.mark.parametrize(
    ("nbytes", "least", "below"),
    [
        (1, 0, 4096),
        (4095, 0, 4096),
        (4096, 4096, 16384),
        (16384, 16384, 65536),
        ((1 << 30) - 1, 1 << 28, 1 << 30),
        (1 << 30, 1 << 30, None),
    ],
)
def test_a_size_class_reaches_from_a_power_of_four_to_the_next(nbytes: int, least: int, below: int | None) -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 10, nbytes=nbytes)
    assert [(row.least_bytes, row.below_bytes) for row in classes(script)] == [(least, below)]


def test_copies_of_one_class_are_summed() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 100, nbytes=MIB)
    script.copy(CopyWay.H2D, 200, 400, nbytes=2 * MIB)
    (row,) = classes(script)
    assert (row.count, row.nbytes, row.seconds) == pytest.approx((2, 3 * MIB, 300e-6))
    assert row.gbps.value == pytest.approx(3 * MIB / 300e-6 / 1e9)


def test_classes_are_sorted_by_way_and_memory() -> None:
    script = Script()
    script.copy(CopyWay.D2D, 0, 1)
    script.copy(CopyWay.D2H, 1, 2, pageable=True)
    script.copy(CopyWay.H2D, 2, 3)
    script.copy(CopyWay.H2D, 3, 4, pageable=True)
    script.copy(CopyWay.P2P, 4, 5)
    assert [(row.way, row.memory) for row in classes(script)] == [
        ("h2d", "pageable"),
        ("h2d", "pinned"),
        ("d2h", "pageable"),
        ("d2d", "device"),
        ("p2p", "device"),
    ]


def test_the_share_of_the_ceiling_is_the_time_at_the_ceiling_over_the_time_taken() -> None:
    script, flat = Script(), Flat(50.0)
    script.copy(CopyWay.H2D, 0, 100, nbytes=1_000_000, pageable=True)
    (row,) = classes(script, flat)
    assert row.ceiling_share.value == pytest.approx(0.2)
    assert {(direction, memory) for direction, memory, _ in flat.asked} == {("h2d", "pinned")}


def test_a_share_without_a_ceiling_has_the_reason() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 100)
    assert classes(script, Flat(None, "the device was busy"))[0].ceiling_share.reason == "the device was busy"


def test_copies_that_stay_on_the_device_have_no_ceiling() -> None:
    script = Script()
    script.copy(CopyWay.D2D, 0, 100)
    assert classes(script)[0].ceiling_share.reason == "only copies between host and device have a ceiling"


def test_copies_below_4_kib_have_no_ceiling() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 1, nbytes=4095)
    script.copy(CopyWay.H2D, 1, 2, nbytes=4096)
    small, large = classes(script)
    assert small.ceiling_share.reason == "a copy below 4 KiB goes within a command and has no ceiling"
    assert large.ceiling_share.value == pytest.approx(4096 / 50e9 / 1e-6)


def test_thousands_of_sizes_need_few_ceilings() -> None:
    script, flat = Script(), Flat(50.0)
    for nbytes in range(4096, 4096 + 3000):
        script.copy(CopyWay.H2D, 0, 1, nbytes=nbytes)
    classes(script, flat)
    assert len(flat.asked) < 20


def test_the_hidden_share_is_a_share_of_the_copies_time() -> None:
    script = Script()
    script.kernel(0, 50)
    script.copy(CopyWay.H2D, 25, 125, stream=8)
    assert classes(script)[0].hidden_share.value == pytest.approx(0.25)


def test_a_batch_counts_all_its_copies_and_has_their_mean_size() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 10, nbytes=100 * 8192, copies=100)
    (row,) = classes(script)
    assert (row.count, row.nbytes, row.least_bytes) == (100, 100 * 8192, 4096)


def test_copies_without_a_time_are_counted_and_have_no_bandwidth() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 0, nbytes=MIB)
    watched = analysed(make_window(script, 100))
    (row,) = activity_of(watched).copies
    assert (row.count, row.nbytes, row.timed_bytes) == (1, MIB, 0)
    assert row.gbps.reason == "the device gave no time for them"
    assert "untimed" in [remark.code for remark in watched.remarks]


def test_copies_of_another_device_are_only_counted() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 10, device=1)
    watched = analysed(make_window(script, 100))
    assert activity_of(watched).copies == ()
    assert "1 record of other devices is not in the figures" in [remark.text for remark in watched.remarks]


def test_pageable_copies_say_what_pinning_would_save() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 1000, nbytes=10_000_000, pageable=True)
    script.copy(CopyWay.H2D, 1000, 1100, nbytes=1_000_000)
    (row,) = activity_of(analysed(make_window(script, 2000, steps_at((0, 0, 2000))))).pageable
    assert (row.way, row.count, row.nbytes, row.seconds) == ("h2d", 1, 10_000_000, pytest.approx(1e-3))
    assert (row.pinned_s.value, row.saves_s.value) == (pytest.approx(200e-6), pytest.approx(800e-6))


def test_ceilings_are_needed_at_the_mean_size_of_each_class() -> None:
    script: Any = Script()
    script.copy(CopyWay.H2D, 0, 1, nbytes=4096)
    script.copy(CopyWay.H2D, 0, 1, nbytes=8192)
    script.copy(CopyWay.H2D, 0, 1, nbytes=MIB)
    script.copy(CopyWay.D2D, 0, 1, nbytes=64)
    window = make_window(script, 10)
    assert window.capture.value is not None
    assert sizes_needed(device_records(window, window.capture.value)) == {"h2d": (6144, MIB)}

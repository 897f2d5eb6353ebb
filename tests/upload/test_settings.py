"""The settings of a ring: their limits, and how they fit a budget."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_samples import MIB
from upload.tunings import START

from pyxfer._upload.settings import RingSettings, default_settings, make_ring, settings_of, setup_of
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
LEAST: dict[str, Any] = {"threads": 1, "chunk_bytes": 4 * KIB, "slots": 2, "spin_us": 0}
MOST: dict[str, Any] = {"threads": 64, "chunk_bytes": 64 * MIB, "slots": 4096, "spin_us": 10**6}
LITTLE = RingSettings(threads=1, chunk_bytes=4 * KIB, slots=2, fill="plain", spin_us=0)

rings = st.builds(
    RingSettings,
    threads=st.integers(1, 64),
    chunk_bytes=st.integers(12, 26).map(lambda power: 1 << power),
    slots=st.integers(2, 4096),
    fill=st.sampled_from(["plain", "streaming", "demoting"]),
    spin_us=st.just(20),
)


def test_pinned_bytes_are_slots_times_chunk() -> None:
    assert START.pinned_bytes == 512 * 64 * KIB


@pytest.mark.parametrize(
    ("budget_bytes", "slots", "chunk_bytes"),
    [
        (START.pinned_bytes, 512, 64 * KIB),
        (START.pinned_bytes - 1, 511, 64 * KIB),
        (MIB, 16, 64 * KIB),
        (MIB - 1, 31, 32 * KIB),
        (256 * KIB, 16, 16 * KIB),
        (32 * KIB, 2, 16 * KIB),
    ],
)
def test_a_budget_reduces_slots_to_16_then_chunks_to_16_kib_then_slots(
    budget_bytes: int, slots: int, chunk_bytes: int
) -> None:
    assert START.within(budget_bytes) == replace(START, slots=slots, chunk_bytes=chunk_bytes)


@given(rings, st.integers(32 * KIB, 1 << 38))
def test_settings_stay_within_a_budget_and_keep_their_threads(settings: RingSettings, budget_bytes: int) -> None:
    within = settings.within(budget_bytes)
    assert within.pinned_bytes <= budget_bytes
    assert within.threads == settings.threads


@given(rings, st.integers(32 * KIB, 1 << 38))
def test_settings_use_at_least_half_of_a_budget(settings: RingSettings, budget_bytes: int) -> None:
    assert settings.within(budget_bytes).pinned_bytes > min(settings.pinned_bytes, budget_bytes) // 2


@given(rings, st.integers(0, 8 * KIB - 1))
def test_a_too_small_budget_is_refused_with_the_smallest_possible_one(settings: RingSettings, budget: int) -> None:
    with pytest.raises(UsageError, match="too small for any ring: give at least") as refused:
        settings.within(budget)
    least = min(32, 2 * settings.chunk_bytes // KIB)
    assert str(refused.value).endswith(f"at least {least} KiB")
    assert settings.within(least * KIB).pinned_bytes == least * KIB


@pytest.mark.parametrize("name", LEAST)
def test_values_outside_the_limits_are_refused_here_and_by_the_engine(name: str, engine: Engine) -> None:
    for value in (LEAST[name] - 1, MOST[name] + 1):
        given = {**vars(LITTLE), name: value}
        with pytest.raises(UsageError, match=f"{LEAST[name]} to {MOST[name]}"):
            RingSettings(**given)
        with pytest.raises(ValueError, match="a ring has"):
            engine.Ring(0, **given)


@pytest.mark.parametrize("name", LEAST)
def test_the_engine_accepts_the_limits(name: str, engine: Engine) -> None:
    for value in (LEAST[name], MOST[name]):
        settings = replace(LITTLE, **{name: value})
        with closing(make_ring(engine, 0, settings)) as ring:
            assert ring.pinned_bytes == settings.pinned_bytes


@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"chunk_bytes": 3 * MIB}, "a power of two"), ({"fill": "fast"}, "plain, streaming or demoting")],
)
def test_invalid_chunks_and_fills_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        replace(START, **wrong)


@pytest.mark.parametrize("wrong", ["4", 4.0, True, None, float("nan")])
def test_threads_must_be_an_integer(wrong: Any) -> None:
    with pytest.raises(UsageError, match="1 to 64 threads"):
        replace(START, threads=wrong)


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 1), (3, 2), (9, 8), (64, 8)])
def test_the_default_leaves_one_cpu(cpus: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert default_settings().threads == threads


def test_make_ring_uses_the_settings(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    with closing(make_ring(engine, 0, replace(START, threads=2, fill="plain"))) as ring:
        assert (ring.threads, ring.chunk_bytes, ring.slots, ring.fill, ring.spin_us) == (2, 64 * KIB, 512, "plain", 20)
        assert sum(nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned") == ring.pinned_bytes
    assert os.sched_getaffinity(0) == before


def test_settings_survive_a_document() -> None:
    assert settings_of(setup_of(START)) == START
    assert setup_of(START).pinned_bytes == START.pinned_bytes

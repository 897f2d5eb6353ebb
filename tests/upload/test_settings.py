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


def test_a_ring_holds_slots_that_all_its_threads_share() -> None:
    assert START.pinned_bytes == 512 * 64 * KIB


def test_settings_that_fit_stay_as_they_are() -> None:
    assert START.within(START.pinned_bytes) == START


def test_slots_go_first() -> None:
    assert START.within(START.pinned_bytes - 1) == replace(START, slots=511)
    assert START.within(MIB) == replace(START, slots=16)


def test_then_chunks_get_smaller() -> None:
    assert START.within(MIB - 1) == replace(START, slots=31, chunk_bytes=32 * KIB)
    assert START.within(256 * KIB) == replace(START, slots=16, chunk_bytes=16 * KIB)


def test_then_slots_again_down_to_two() -> None:
    assert START.within(32 * KIB) == replace(START, slots=2, chunk_bytes=16 * KIB)


@given(rings, st.integers(32 * KIB, 1 << 38))
def test_a_budget_is_held_and_threads_are_not_its_matter(settings: RingSettings, budget_bytes: int) -> None:
    within = settings.within(budget_bytes)
    assert within.pinned_bytes <= budget_bytes
    assert within.threads == settings.threads


@given(rings, st.integers(32 * KIB, 1 << 38))
def test_a_budget_is_used_but_for_less_than_half(settings: RingSettings, budget_bytes: int) -> None:
    assert settings.within(budget_bytes).pinned_bytes > min(settings.pinned_bytes, budget_bytes) // 2


@given(rings, st.integers(0, 8 * KIB - 1))
def test_a_budget_for_nothing_is_refused_with_the_least_that_is_enough(settings: RingSettings, budget: int) -> None:
    with pytest.raises(UsageError, match="too small for any ring: give at least") as refused:
        settings.within(budget)
    least = min(32, 2 * settings.chunk_bytes // KIB)
    assert str(refused.value).endswith(f"at least {least} KiB")
    assert settings.within(least * KIB).pinned_bytes == least * KIB


@pytest.mark.parametrize("name", LEAST)
def test_what_no_ring_can_be_is_refused_as_the_engine_refuses_it(name: str, engine: Engine) -> None:
    for value in (LEAST[name] - 1, MOST[name] + 1):
        given = {**vars(LITTLE), name: value}
        with pytest.raises(UsageError, match=f"{LEAST[name]} to {MOST[name]}"):
            RingSettings(**given)
        with pytest.raises(ValueError, match="a ring has"):
            engine.Ring(0, **given)


@pytest.mark.parametrize("name", LEAST)
def test_the_least_and_the_most_are_what_the_engine_takes(name: str, engine: Engine) -> None:
    for value in (LEAST[name], MOST[name]):
        settings = replace(LITTLE, **{name: value})
        with closing(make_ring(engine, 0, settings)) as ring:
            assert ring.pinned_bytes == settings.pinned_bytes


@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"chunk_bytes": 3 * MIB}, "a power of two"), ({"fill": "fast"}, "plain, streaming or demoting")],
)
def test_other_nonsense_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        replace(START, **wrong)


@pytest.mark.parametrize("wrong", ["4", 4.0, True, None, float("nan")])
def test_what_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="1 to 64 threads, and not"):
        replace(START, threads=wrong)


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 1), (3, 2), (9, 8), (64, 8)])
def test_the_default_leaves_a_processor(cpus: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    assert default_settings().threads == threads


def test_a_ring_is_made_of_its_settings(engine: Engine) -> None:
    before = os.sched_getaffinity(0)
    with closing(make_ring(engine, 0, replace(START, threads=2, fill="plain"))) as ring:
        assert (ring.threads, ring.chunk_bytes, ring.slots, ring.fill, ring.spin_us) == (2, 64 * KIB, 512, "plain", 20)
        assert sum(nbytes for kind, _, nbytes in testing.allocated() if kind == "pinned") == ring.pinned_bytes
    assert os.sched_getaffinity(0) == before


def test_a_document_has_the_same_settings() -> None:
    assert settings_of(setup_of(START)) == START
    assert setup_of(START).pinned_bytes == START.pinned_bytes

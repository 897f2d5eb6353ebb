"""Predictions of what would be faster: figures, premises in the records, and calls that the framework has."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watch.windows import D2H, H2D, MIB, Script, analysed, flat, make_window, steps_at

from pyxfer._document.watches import Advice, StepFinder, Watched
from pyxfer._trace.records import CopyKind
from pyxfer._watch.framework_calls import CALLS, calls_of, framework_in_use

SENT = 10_000_000


def training(made: float, sent: float, computed: float, pageable: bool = True, turns: int = 4) -> tuple[Script, float]:
    """A loop that makes its input, sends it, computes and waits; and how long it takes."""
    script, time = Script(), 0.0
    for _ in range(turns):
        time += made
        script.copy(H2D, time, time + sent, nbytes=SENT, pageable=pageable, call=("cudaMemcpyAsync", time, time + sent))
        time += sent
        script.kernel(time, time + computed)
        script.call("cudaStreamSynchronize", time, time + computed)
        time += computed
    return script, time


def advice_for(
    script: Script, length: float, made: float | None = None, gbps: float | None = 50.0, cpus: int | None = None
) -> dict[str, Advice]:
    """By code; with `made`, for a loop of four steps whose inputs take this long."""
    step = length / 4
    spans = [(step * turn, step * turn + made, step * (turn + 1)) for turn in range(4)] if made is not None else []
    watched = analysed(make_window(script, length, steps_at(*spans)), flat(gbps), cpus=cpus)
    return {row.code: row for row in watched.advice}


def test_a_slow_input_is_shared_by_as_many_processes_as_needed() -> None:
    script, length = training(made=7000, sent=1000, computed=3000)
    found = advice_for(script, length, made=7000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert "3 processes" in found.text


@pytest.mark.parametrize(("cpus", "makers"), [(16, 15), (2, 1), (1, 1)])
def test_a_slow_input_is_shared_by_at_most_the_spare_processors(cpus: int, makers: int) -> None:
    script, length = training(made=60_000, sent=1000, computed=500)
    found = advice_for(script, length, made=60_000, cpus=cpus)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(60_000e-6 / makers)
    assert ("processes" in found.text) == (makers > 1)


def test_a_step_that_only_makes_its_input_is_shared_by_the_spare_processors() -> None:
    found = advice_for(Script().kernel(-20, -10), 4 * 15_000, made=15_000)["prefetch"]
    assert found.predicted_s == pytest.approx(1000e-6)


def test_a_prefetched_step_does_not_send_pageable_memory_itself() -> None:
    script = Script()
    for begin in range(0, 20_000, 5000):
        call = ("cudaMemcpyAsync", begin + 1000, begin + 2000)
        script.copy(H2D, begin + 1700, begin + 2000, nbytes=SENT, pageable=True, call=call)
        script.kernel(begin + 2000, begin + 5000)
    found = advice_for(script, 20_000, made=1000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert "sending pageable memory 700 us" in found.worked_out


def test_a_prefetched_step_is_not_shorter_than_its_copies_at_the_ceiling_or_without_one_as_now() -> None:
    script, length = training(made=100, sent=4000, computed=500)
    assert advice_for(script, length, made=100, gbps=5.0)["pin-and-prefetch"].predicted_s == pytest.approx(2000e-6)
    script, length = training(made=1000, sent=3500, computed=3000)
    found = advice_for(script, length, made=1000, gbps=None)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3500e-6)
    assert "the ceiling is not known" in found.worked_out


def test_pinning_gains_the_difference_to_the_ceiling() -> None:
    script, length = training(made=1000, sent=1600, computed=3000)
    assert advice_for(script, length, made=1000, gbps=62.5)["pin"].gain_s == pytest.approx(1440e-6)


@pytest.mark.parametrize(("slow", "fast"), [(H2D, D2H), (D2H, H2D)])
def test_copies_faster_than_the_ceiling_do_not_reduce_what_pinning_gains(slow: CopyKind, fast: CopyKind) -> None:
    script = Script()
    for begin in range(0, 20_000, 5000):
        script.copy(fast, begin, begin + 100, nbytes=SENT, pageable=True)
        script.copy(slow, begin + 1000, begin + 2000, nbytes=SENT, pageable=True)
        script.kernel(begin + 2000, begin + 5000)
    found = advice_for(script, 20_000, made=1000)["pin"]
    assert found.gain_s == pytest.approx(800e-6)
    assert found.worked_out.startswith(slow.name.lower())


def test_a_host_that_does_not_wait_runs_ahead_of_the_device() -> None:
    script, length = training(made=1000, sent=200, computed=3000, pageable=False)
    found = advice_for(script, length, made=1000)["waits"]
    assert found.predicted_s == pytest.approx(3200e-6)
    assert "(cudaStreamSynchronize)" in found.text
    script.call("cudaEventSynchronize", 1500, 1600)
    assert "(cudaStreamSynchronize and others)" in advice_for(script, length, made=1000)["waits"].text


def test_allocating_once_gains_the_time_of_allocations_while_the_device_is_idle() -> None:
    script = Script()
    for turn in range(4):
        script.call("cudaMalloc", turn * 1000 + 100, turn * 1000 + 400)
        script.kernel(turn * 1000 + 300, turn * 1000 + 1000)
    assert advice_for(script, 4000, made=0)["allocate-once"].gain_s == pytest.approx(200e-6)


def test_pinned_copies_outside_of_kernels_fit_under_them_on_a_second_stream() -> None:
    script, length = training(made=0, sent=1000, computed=3000, pageable=False)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(1000e-6)
    limited, length = training(made=0, sent=3000, computed=1000, pageable=False)
    assert advice_for(limited, length, made=0)["second-stream"].gain_s == pytest.approx(1000e-6)


def test_copies_that_kernels_hide_already_take_room_from_a_second_stream() -> None:
    script, length = training(made=0, sent=3000, computed=1000, pageable=False)
    for turn in range(4):
        begin = 4000 * turn + 3000
        script.copy(H2D, begin, begin + 400, stream=8)
        script.copy(D2H, begin + 400, begin + 700, stream=9)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(300e-6)


def offloading(sizes: list[int], returned: list[int]) -> dict[str, Advice]:
    """Four steps that send tensors, compute for 3 ms, and fetch tensors."""
    script, time = Script(), 0.0
    for _ in range(4):
        for nbytes in sizes:
            script.copy(H2D, time, time + 100, nbytes=nbytes)
            time += 100
        script.kernel(time, time + 3000)
        time += 3000
        for nbytes in returned:
            script.copy(D2H, time, time + 50, nbytes=nbytes)
            time += 50
    return advice_for(script, time, made=0)


WEIGHTS = [2 * MIB, 4 * MIB, 8 * MIB, 8 * MIB] * 3


def test_weights_that_cross_twice_a_step_are_to_be_kept_on_the_device() -> None:
    found = offloading(WEIGHTS, WEIGHTS)
    assert found["keep-on-device"].gain_s == pytest.approx(12 * 150e-6)
    assert "69.2 MB go to it in 12 copies" in found["keep-on-device"].text
    assert not {"prefetch", "pin-and-prefetch"} & set(found)


@pytest.mark.parametrize(
    ("sizes", "returned"),
    [
        (WEIGHTS, WEIGHTS[:6]),
        (WEIGHTS, [size + 4 for size in WEIGHTS]),
        ([4 * MIB] * 12, [4 * MIB] * 12),
        (WEIGHTS[:4], WEIGHTS[:4]),
        ([size // 16 for size in WEIGHTS], [size // 16 for size in WEIGHTS]),
        (WEIGHTS, []),
    ],
    ids=["half", "other sizes", "one size", "few", "small", "none"],
)
def test_copies_that_may_be_input_and_results_are_no_offloading(sizes: list[int], returned: list[int]) -> None:
    assert "keep-on-device" not in offloading(sizes, returned)


def test_advice_is_sorted_by_gain_and_left_out_if_it_gains_less_than_two_percent() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    gains = [row.gain_s for row in advice_for(script, length, made=1000).values()]
    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)
    script, length = training(made=10, sent=10, computed=3000)
    assert advice_for(script, length, made=10) == {}


@pytest.mark.parametrize(("script", "length"), [(None, 100), (Script(), 0)])
def test_without_records_or_time_there_is_no_advice(script: Script | None, length: float) -> None:
    assert analysed(make_window(script, length, steps_at((0, length / 2, length)))).advice == ()


def test_pinning_is_predicted_for_a_window_without_steps() -> None:
    assert "pin" in advice_for(Script().copy(H2D, 0, 1000, nbytes=10 * MIB, pageable=True), 4000)


TURNS, LARGE = 10, 20_000_000
KERNELS, COPIES = 7, 13


@dataclass(frozen=True)
class Loop:
    """Steps of a loop: microseconds of each part, and how its input is sent."""

    made: float = 0.0
    sent: float = 1_000.0
    computed: float = 3_000.0
    pageable: float = 0.0  # share of the input's bytes and of its time
    stream: int = KERNELS
    hidden: bool = False  # the copies run during kernels
    waits: int = 0  # steps that wait for the device, counted from the first
    allocates: int = 0  # steps that allocate for 500 us while the device is idle, counted from the first
    fetched: float = 0.0  # time of a pageable copy to the host
    blocking: bool = False  # the input is sent by cudaMemcpy of page-locked memory, which waits for the copy


def watch(loop: Loop, framework: str = "", gbps: float | None = 50.0) -> Watched:
    script, time, spans = Script(), 0.0, []
    for turn in range(TURNS):
        since, begin = time, time + loop.made
        time = begin
        if turn < loop.allocates:
            script.call("cudaMalloc", time, time + 500)
            time += 500
        plain = loop.sent * loop.pageable
        name = "cudaMemcpy" if loop.blocking else "cudaMemcpyAsync"
        for took, pageable in ((plain, True), (loop.sent - plain, False)):
            if took:
                nbytes, call = int(LARGE * took / loop.sent), (name, time, time + (took if loop.blocking else 1))
                script.copy(H2D, time, time + took, nbytes, pageable, call, stream=loop.stream)
                time += 0 if loop.hidden else took
        script.kernel(time, time + loop.computed, stream=KERNELS)
        if turn < loop.waits:
            script.call("cudaStreamSynchronize", time, time + loop.computed)
        time += loop.computed
        if loop.fetched:
            script.copy(D2H, time, time + loop.fetched, LARGE, True, ("cudaMemcpyAsync", time, time + 1))
            time += loop.fetched
        spans.append((since, begin, time))
    window = make_window(script, time, steps_at(*spans), framework=framework)
    return analysed(window, flat(gbps))


def advised(loop: Loop, framework: str = "", gbps: float | None = 50.0) -> set[str]:
    return {row.code for row in watch(loop, framework, gbps).advice}


SLOW_SEND = 4_000.0  # 5 GB/s, where the ceiling is 50 GB/s
SENDING = Loop(2_000, SLOW_SEND, pageable=1.0)


@pytest.mark.parametrize(
    ("code", "holds", "not_held"),
    [
        ("pin-and-prefetch", SENDING, Loop(2_000, SLOW_SEND, pageable=0.014)),
        ("pin-and-prefetch", Loop(2_000, SLOW_SEND, pageable=0.6), Loop(2_000, SLOW_SEND, pageable=0.4)),
        ("pin-and-prefetch", SENDING, Loop(2_000, 100.0, pageable=1.0)),  # 200 GB/s
        ("prefetch", Loop(2_000), Loop(0, stream=COPIES, hidden=True)),
        ("prefetch", Loop(2_000, SLOW_SEND, pageable=0.014), SENDING),
        ("pin", Loop(0, SLOW_SEND, pageable=1.0), Loop(0, SLOW_SEND, pageable=0.0)),
        ("pin", Loop(0, SLOW_SEND, pageable=0.2), Loop(0, SLOW_SEND, pageable=0.014)),
        ("pin", Loop(0, SLOW_SEND, pageable=1.0), Loop(0, 100.0, pageable=1.0)),
        ("pin", Loop(0, SLOW_SEND, pageable=1.0), Loop(0, 1_000, pageable=1.0, hidden=True, stream=COPIES)),
        ("pin", Loop(0, fetched=SLOW_SEND), Loop(0, fetched=100.0)),
        ("waits", Loop(1_000, 200, waits=TURNS), Loop(1_000, 200, waits=0)),
        ("waits", Loop(1_000, 200, waits=5), Loop(1_000, 200, waits=4)),
        ("waits", Loop(1_000, 200, waits=TURNS), Loop(1_000, 200, blocking=True)),
        ("waits", Loop(1_000, 200, waits=TURNS), Loop(1_000, SLOW_SEND, pageable=1.0, waits=TURNS)),
        ("waits", Loop(1_000, 200, pageable=0.5, waits=TURNS), Loop(1_000, 200, pageable=0.51, waits=TURNS)),
        ("allocate-once", Loop(allocates=TURNS), Loop(allocates=0)),
        ("allocate-once", Loop(allocates=5), Loop(allocates=4)),
        ("second-stream", Loop(stream=KERNELS), Loop(stream=COPIES)),
        ("second-stream", Loop(stream=KERNELS), Loop(stream=KERNELS, pageable=1.0)),
        ("second-stream", Loop(stream=KERNELS), Loop(stream=KERNELS, computed=0.0)),
    ],
)
def test_an_advice_is_given_only_if_its_premise_holds(code: str, holds: Loop, not_held: Loop) -> None:
    assert code in advised(holds)
    assert code not in advised(not_held)


def test_a_copy_stream_with_a_few_small_kernels_is_no_stream_of_kernels() -> None:
    script = Script()
    for turn in range(TURNS):
        begin = turn * 4_000
        script.copy(H2D, begin, begin + 1_000, LARGE, stream=COPIES)
        script.kernel(begin + 1_000, begin + 1_100, name="cast", stream=COPIES)
        script.kernel(begin + 1_100, begin + 4_000, stream=KERNELS)
    steps = steps_at(*((begin, begin, begin + 4_000) for begin in range(0, 4_000 * TURNS, 4_000)))
    assert "second-stream" not in {row.code for row in analysed(make_window(script, 4_000 * TURNS, steps)).advice}


_LOOPS = st.builds(
    Loop,
    made=st.floats(0, 5_000),
    sent=st.floats(50, 5_000),
    computed=st.floats(10, 5_000),
    pageable=st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    stream=st.sampled_from([KERNELS, COPIES]),
    hidden=st.booleans(),
    waits=st.sampled_from([0, TURNS]),
    allocates=st.sampled_from([0, TURNS]),
    fetched=st.sampled_from([0.0, 500.0]),
    blocking=st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(_LOOPS, st.sampled_from(sorted(CALLS)), st.sampled_from([None, 5.0, 50.0]))
def test_a_gain_is_at_most_the_time_of_what_the_advice_removes(loop: Loop, framework: str, gbps: float | None) -> None:
    watched = watch(loop, framework, gbps)
    parts, waiting_s = watched.parts, watched.steps.waiting_s or 0.0
    copied_s, idle_s = (parts.h2d_s or 0.0) + (parts.d2h_s or 0.0), (parts.idle_s or 0.0) + parts.host_s
    input_s = parts.input_s or 0.0
    most_s = {
        "prefetch": input_s + (parts.h2d_s or 0.0) + idle_s,
        "pin-and-prefetch": input_s + (parts.h2d_s or 0.0) + idle_s,
        "pin": copied_s,
        "waits": waiting_s,
        "allocate-once": input_s + idle_s,
        "second-stream": min(copied_s, parts.kernels_s or 0.0),
    }
    for row in watched.advice:
        assert 0 < row.gain_s <= most_s[row.code] * (1 + 1e-9)
        assert row.predicted_s >= (parts.kernels_s or 0.0) * (1 - 1e-9)
        assert row.gain_s == pytest.approx(parts.period_s - row.predicted_s)
        assert row.gain_share == pytest.approx(row.gain_s / parts.period_s)


# What the texts name, and where it is documented.
_NAME = re.compile(r"\b(?:torch|tf|jax|cupyx?|keras|pyxfer)(?:\.[a-z_A-Z]\w*)+")
NAMED = {name for calls in CALLS.values() for name in _NAME.findall(repr(calls))}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_named_call_can_be_imported_where_its_framework_is_installed(name: str) -> None:
    owner, *path = name.split(".")
    found: Any = pytest.importorskip({"tf": "tensorflow"}.get(owner, owner))
    for part in path:
        found = getattr(found, part)


@pytest.mark.parametrize(
    ("framework", "stream"),
    [
        ("", "a second CUDA stream"),
        ("torch", "torch.cuda.Stream()"),
        ("cupy", "cupy.cuda.Stream(non_blocking=True)"),
        *((name, None) for name in CALLS if name not in ("", "torch", "cupy")),
    ],
)
def test_a_second_stream_is_advised_where_the_framework_can_make_one(framework: str, stream: str | None) -> None:
    texts = [row.text for row in watch(Loop(), framework).advice if row.code == "second-stream"]
    assert [f"({stream})" in text for text in texts] == ([] if stream is None else [True])


@pytest.mark.parametrize(
    ("framework", "code", "seconds"),
    [
        ("keras-tensorflow", "prefetch", SLOW_SEND * 1e-6),  # it stays pageable
        ("keras-torch", "pin-and-prefetch", 3_000e-6 + LARGE / 50e9),  # it is copied when its step begins
        ("keras-jax", "prefetch", 3_000e-6 + SLOW_SEND * 1e-6),
    ],
)
def test_input_is_predicted_as_the_framework_sends_it(framework: str, code: str, seconds: float) -> None:
    (row,) = watch(SENDING, framework).advice  # and nothing can be pinned in its fit
    assert row.code == code
    assert row.predicted_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("finder", "stepped", "imported", "framework"),
    [
        (None, True, (), ""),
        (None, True, ("torch",), "torch"),
        (None, True, ("torch", "tensorflow"), ""),
        (None, True, ("tensorflow", "keras"), "tensorflow"),
        (None, False, ("tensorflow", "keras"), "keras-jax"),
        ("keras", True, ("tensorflow", "jax", "keras"), "keras-jax"),
        ("keras", True, (), "keras-"),
        ("optimizer", True, ("torch", "tensorflow"), "torch"),
        ("compiled", True, ("torch", "jax"), "jax"),
        ("compiled", True, ("tensorflow", "jax"), ""),
    ],
)
def test_the_framework_is_that_of_the_steps_or_the_only_one(
    monkeypatch: pytest.MonkeyPatch, finder: StepFinder | None, stepped: bool, imported: tuple[str, ...], framework: str
) -> None:
    class Keras:
        class config:  # noqa: N801 - the name of Keras's own module
            @staticmethod
            def backend() -> str:
                return "jax"

    monkeypatch.setattr(sys, "modules", dict.fromkeys(imported, Keras))
    assert framework_in_use(finder, stepped) == framework
    assert calls_of(framework) is CALLS[framework]

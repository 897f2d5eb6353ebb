"""Predictions of what would be faster, from the parts of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import make_environment
from watch.windows import MACHINE, MIB, Flat, Script, analysed, make_window, steps_at

from pyxfer._document.watches import Advice
from pyxfer._trace.records import CopyWay
from pyxfer._watch.analysis import Machine, analyse

SENT = 10_000_000


def training(made: float, sent: float, computed: float, pageable: bool = True, turns: int = 4) -> tuple[Script, float]:
    """A loop that makes its input, sends it, computes and waits; and how long it takes."""
    script, time = Script(), 0.0
    for _ in range(turns):
        time += made
        script.copy(
            CopyWay.H2D, time, time + sent, nbytes=SENT, pageable=pageable, call=("cudaMemcpyAsync", time, time + sent)
        )
        time += sent
        script.kernel(time, time + computed)
        script.call("cudaStreamSynchronize", time, time + computed)
        time += computed
    return script, time


def advice_for(
    script: Script,
    length: float,
    made: float | None = None,
    gbps: float | None = 50.0,
    machine: Machine = MACHINE,
) -> dict[str, Advice]:
    """By code; with `made`, for a loop of four steps whose inputs take this long."""
    step = length / 4
    spans = [(step * turn, step * turn + made, step * (turn + 1)) for turn in range(4)] if made is not None else []
    watched = analyse(make_window(script, length, steps_at(*spans)), Flat(gbps), machine)
    return {row.code: row for row in watched.advice}


def test_prefetching_a_pinned_input_leaves_only_the_devices_work() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    found = advice_for(script, length, made=1000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert (found.gain_s, found.gain_share) == pytest.approx((2000e-6, 0.4))


def test_a_slow_input_is_shared_by_as_many_processes_as_needed() -> None:
    script, length = training(made=7000, sent=1000, computed=3000)
    found = advice_for(script, length, made=7000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert "let 3 processes make the next ones in pinned memory" in found.text
    assert found.worked_out == (
        "the longest of the step less input 7.00 ms and h2d 1.00 ms (3.00 ms), making the input (7.00 ms shared by 3), "
        "and its copies at the ceiling of pinned memory (200 us)"
    )


@pytest.mark.parametrize(("cpus", "makers"), [(16, 15), (2, 1), (1, 1)])
def test_a_slow_input_is_shared_by_at_most_the_spare_processors(cpus: int, makers: int) -> None:
    script, length = training(made=60_000, sent=1000, computed=500)
    machine = replace(MACHINE, environment=make_environment(cpus_usable=cpus))
    found = advice_for(script, length, made=60_000, machine=machine)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(60_000e-6 / makers)
    assert ("processes" in found.text) == (makers > 1)


def test_a_step_that_only_makes_its_input_is_shared_by_the_spare_processors() -> None:
    script = Script()
    script.kernel(-20, -10)
    found = advice_for(script, 4 * 15_000, made=15_000)["prefetch"]
    assert found.predicted_s == pytest.approx(1000e-6)


def test_a_prefetched_step_does_not_send_pageable_memory_itself() -> None:
    script = Script()
    for begin in range(0, 20_000, 5000):
        call = ("cudaMemcpyAsync", begin + 1000, begin + 2000)
        script.copy(CopyWay.H2D, begin + 1700, begin + 2000, nbytes=SENT, pageable=True, call=call)
        script.kernel(begin + 2000, begin + 5000)
    found = advice_for(script, 20_000, made=1000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert found.worked_out.startswith(
        "the longest of the step less input 1.00 ms, h2d 300 us and sending pageable memory 700 us (3.00 ms)"
    )


def test_a_prefetched_step_is_not_shorter_than_its_copies_at_the_ceiling() -> None:
    script, length = training(made=100, sent=4000, computed=500)
    assert advice_for(script, length, made=100, gbps=5.0)["pin-and-prefetch"].predicted_s == pytest.approx(2000e-6)


def test_without_a_ceiling_copies_are_predicted_to_take_as_long_as_now() -> None:
    script, length = training(made=1000, sent=3500, computed=3000)
    found = advice_for(script, length, made=1000, gbps=None)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3500e-6)
    assert "as long as now, because the ceiling is not known (3.50 ms)" in found.worked_out


def test_pinning_gains_the_difference_to_the_ceiling() -> None:
    script, length = training(made=1000, sent=1600, computed=3000)
    found = advice_for(script, length, made=1000, gbps=62.5)["pin"]
    assert found.gain_s == pytest.approx(1440e-6)
    assert (
        "h2d of pageable memory (100.0 % of its bytes) at 6.25 GB/s could reach 62.50 GB/s, and 1.60 ms of it is "
        "outside of kernels" in found.worked_out
    )


@pytest.mark.parametrize(("slow", "fast"), [(CopyWay.H2D, CopyWay.D2H), (CopyWay.D2H, CopyWay.H2D)])
def test_copies_faster_than_the_ceiling_do_not_reduce_what_pinning_gains(slow: CopyWay, fast: CopyWay) -> None:
    script = Script()
    for begin in range(0, 20_000, 5000):
        script.copy(fast, begin, begin + 100, nbytes=SENT, pageable=True)
        script.copy(slow, begin + 1000, begin + 2000, nbytes=SENT, pageable=True)
        script.kernel(begin + 2000, begin + 5000)
    found = advice_for(script, 20_000, made=1000)["pin"]
    assert found.gain_s == pytest.approx(800e-6)
    assert found.worked_out.startswith(slow.name.lower())


def test_advice_on_pageable_copies_names_the_functions_of_pyxfer_for_their_directions() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    found = advice_for(script, length, made=1000)
    assert "pyxfer.prefetch does both for ordinary arrays" in found["pin-and-prefetch"].text
    assert "; pyxfer.upload would stage" in found["pin"].text
    for turn in range(4):
        script.copy(CopyWay.D2H, 5000 * turn, 5000 * turn + 500, nbytes=SENT, pageable=True)
    both = advice_for(script, length, made=1000)["pin"].text
    assert "pyxfer.upload would stage" in both
    assert "pyxfer.download would stage" in both


def test_a_host_that_does_not_wait_runs_ahead_of_the_device() -> None:
    script, length = training(made=1000, sent=200, computed=3000, pageable=False)
    found = advice_for(script, length, made=1000)["waits"]
    assert found.predicted_s == pytest.approx(3200e-6)
    assert "(cudaStreamSynchronize)" in found.text
    assert found.worked_out == (
        "the longer of the device's work (3.20 ms) and the host's (1.20 ms), which is the period less the 3.00 ms in "
        "calls that wait"
    )


def test_advice_on_different_waits_names_the_longest() -> None:
    script, length = training(made=1000, sent=200, computed=3000, pageable=False)
    script.call("cudaDeviceSynchronize", 1300, 1400)
    script.call("cudaEventSynchronize", 1500, 1600)
    assert "(cudaStreamSynchronize and others)" in advice_for(script, length, made=1000)["waits"].text


@pytest.mark.parametrize(("pageable_bytes", "advised"), [(SENT, True), (SENT + 1, False)])
def test_avoiding_waits_is_advised_if_up_to_half_of_the_input_is_pageable(pageable_bytes: int, advised: bool) -> None:
    script, length = training(made=1000, sent=200, computed=3000, pageable=False)
    for turn in range(4):
        begin = 4200 * turn + 2000
        script.copy(CopyWay.H2D, begin, begin + 100, nbytes=pageable_bytes, pageable=True, stream=8)
    assert ("waits" in advice_for(script, length, made=1000)) == advised


def test_allocating_once_gains_the_time_of_allocations_while_the_device_is_idle() -> None:
    script = Script()
    for turn in range(4):
        script.call("cudaMalloc", turn * 1000 + 100, turn * 1000 + 400)
        script.kernel(turn * 1000 + 300, turn * 1000 + 1000)
    assert advice_for(script, 4000, made=0)["allocate-once"].gain_s == pytest.approx(200e-6)


def test_pinned_copies_outside_of_kernels_fit_under_them_on_a_second_stream() -> None:
    script, length = training(made=0, sent=1000, computed=3000, pageable=False)
    found = advice_for(script, length, made=0)["second-stream"]
    assert found.gain_s == pytest.approx(1000e-6)
    assert found.worked_out == (
        "1.00 ms of pinned copies are on the kernels' own stream and outside of kernels, and kernels have room for "
        "3.00 ms of copies"
    )


def test_a_second_stream_gains_no_more_than_kernels_have_room_for() -> None:
    script, length = training(made=0, sent=3000, computed=1000, pageable=False)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(1000e-6)


def test_pageable_copies_do_not_run_on_a_second_stream() -> None:
    script, length = training(made=500, sent=1000, computed=3000, pageable=False)
    for turn in range(4):
        begin = 4500 * turn
        script.copy(CopyWay.D2H, begin, begin + 200, pageable=True)
        script.copy(CopyWay.H2D, begin + 200, begin + 500, pageable=True)
    assert advice_for(script, length, made=500)["second-stream"].gain_s == pytest.approx(1000e-6)


def test_copies_that_kernels_hide_already_take_room_from_a_second_stream() -> None:
    script, length = training(made=0, sent=3000, computed=1000, pageable=False)
    for turn in range(4):
        begin = 4000 * turn + 3000
        script.copy(CopyWay.H2D, begin, begin + 400, stream=8)
        script.copy(CopyWay.D2H, begin + 400, begin + 700, stream=9)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(300e-6)


def test_advice_is_sorted_by_gain() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    gains = [row.gain_s for row in advice_for(script, length, made=1000).values()]
    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)


def test_advice_that_gains_less_than_two_percent_is_left_out() -> None:
    script, length = training(made=10, sent=10, computed=3000)
    assert advice_for(script, length, made=10) == {}


@pytest.mark.parametrize(("script", "length"), [(None, 100), (Script(), 0)])
def test_without_records_or_time_there_is_no_advice(script: Script | None, length: float) -> None:
    assert analysed(make_window(script, length, steps_at((0, length / 2, length)))).advice == ()


def test_pinning_is_predicted_for_a_window_without_steps() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 1000, nbytes=10 * MIB, pageable=True)
    assert "pin" in advice_for(script, 4000)

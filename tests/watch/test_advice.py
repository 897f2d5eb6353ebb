"""What would be faster, worked out from the step's own parts."""

from __future__ import annotations

import pytest
from watch.windows import MACHINE, MIB, Flat, Script, analysed, make_window, steps_at

from pyxfer._document.watches import Advice
from pyxfer._trace.records import CopyWay

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
    script: Script, length: float, made: float | None = None, gbps: float | None = 50.0
) -> dict[str, Advice]:
    """By code; with `made`, for a loop of four steps whose input takes so long."""
    each = length / 4
    spans = [(each * turn, each * turn + made, each * (turn + 1)) for turn in range(4)] if made is not None else []
    watched = analysed(make_window(script, length, steps_at(*spans)), Flat(gbps))
    return {each.code: each for each in watched.advice}


def test_a_pinned_prefetched_input_leaves_the_device_its_work() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    found = advice_for(script, length, made=1000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert (found.gain_s, found.gain_share) == pytest.approx((2000e-6, 0.4))


def test_an_input_that_takes_longer_to_make_than_the_rest_is_shared_among_as_many_as_it_takes() -> None:
    script, length = training(made=7000, sent=1000, computed=3000)
    found = advice_for(script, length, made=7000)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3000e-6)
    assert "let 3 processes make the next ones in pinned memory" in found.text
    assert found.worked_out == (
        "the longest of the step less input 7.00 ms and h2d 1.00 ms (3.00 ms), making the input (7.00 ms shared by 3), "
        "and its copies at the ceiling of pinned memory (200 us)"
    )


def test_no_more_makers_are_counted_on_than_there_are_processors_to_spare() -> None:
    script, length = training(made=60_000, sent=1000, computed=500)
    assert MACHINE.environment.cpus_usable == 16
    assert advice_for(script, length, made=60_000)["pin-and-prefetch"].predicted_s == pytest.approx(4000e-6)


def test_copies_that_take_longest_even_at_the_ceiling_are_what_is_left() -> None:
    script, length = training(made=100, sent=4000, computed=500)
    assert advice_for(script, length, made=100, gbps=5.0)["pin-and-prefetch"].predicted_s == pytest.approx(2000e-6)


def test_without_a_ceiling_copies_take_as_long_as_now_and_that_is_said() -> None:
    script, length = training(made=1000, sent=3500, computed=3000)
    found = advice_for(script, length, made=1000, gbps=None)["pin-and-prefetch"]
    assert found.predicted_s == pytest.approx(3500e-6)
    assert "as long as now, for want of a ceiling (3.50 ms)" in found.worked_out


def test_a_pinned_input_is_only_to_be_prefetched() -> None:
    script, length = training(made=1000, sent=300, computed=3000, pageable=False)
    found = advice_for(script, length, made=1000)
    assert "pin-and-prefetch" not in found
    assert found["prefetch"].text.startswith("Prefetch the input: let another thread or process make the next one, and")


def test_pinning_alone_gains_what_the_copies_are_slower_than_the_ceiling() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    found = advice_for(script, length, made=1000)["pin"]
    assert found.gain_s == pytest.approx(800e-6)
    assert (
        "h2d of pageable memory at 10.00 GB/s could reach 50.00 GB/s, and 1.00 ms of it lie outside of kernels"
        in found.worked_out
    )


def test_what_pyxfer_has_for_pageable_copies_is_named_for_the_ways_that_matter_and_promises_nothing() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    found = advice_for(script, length, made=1000)
    assert "pyxfer.prefetch does both for ordinary arrays" in found["pin-and-prefetch"].text
    assert found["pin"].text.endswith("lies; pyxfer.upload would stage ordinary ones with several threads.")
    for turn in range(4):
        script.copy(CopyWay.D2H, 5000 * turn, 5000 * turn + 500, nbytes=SENT, pageable=True)
    both = advice_for(script, length, made=1000)["pin"].text
    assert "pyxfer.upload and pyxfer.download would stage" in both


def test_a_pinned_input_is_told_of_no_way_to_stage_it() -> None:
    script, length = training(made=1000, sent=300, computed=3000, pageable=False)
    assert "pyxfer" not in " ".join(each.text for each in advice_for(script, length, made=1000).values())


def test_pinning_copies_that_are_hidden_gains_nothing() -> None:
    script = Script()
    script.kernel(0, 4000)
    script.copy(CopyWay.H2D, 0, 1000, nbytes=SENT, pageable=True, stream=8)
    assert advice_for(script, 4000, made=0) == {}


def test_a_host_that_does_not_wait_runs_ahead_of_the_device() -> None:
    script, length = training(made=1000, sent=200, computed=3000, pageable=False)
    found = advice_for(script, length, made=1000)["waits"]
    assert found.predicted_s == pytest.approx(3200e-6)
    assert "cudaStreamSynchronize" in found.text


def test_nobody_is_told_not_to_wait_while_pageable_copies_would_wait_anyway() -> None:
    script, length = training(made=1000, sent=1000, computed=3000, pageable=True)
    assert "waits" not in advice_for(script, length, made=1000)


def test_memory_that_is_asked_for_in_every_step_costs_the_time_that_the_device_does_nothing_for() -> None:
    script = Script()
    for turn in range(4):
        script.call("cudaMalloc", turn * 1000 + 100, turn * 1000 + 400)
        script.kernel(turn * 1000 + 300, turn * 1000 + 1000)
    assert advice_for(script, 4000, made=0)["allocate-once"].gain_s == pytest.approx(200e-6)


def test_pinned_copies_outside_of_kernels_fit_under_them_on_a_second_stream() -> None:
    script, length = training(made=0, sent=1000, computed=3000, pageable=False)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(1000e-6)


def test_a_second_stream_gains_no_more_than_kernels_have_room_for() -> None:
    script, length = training(made=0, sent=3000, computed=1000, pageable=False)
    assert advice_for(script, length, made=0)["second-stream"].gain_s == pytest.approx(1000e-6)


def test_the_greatest_gain_comes_first() -> None:
    script, length = training(made=1000, sent=1000, computed=3000)
    gains = [each.gain_s for each in advice_for(script, length, made=1000).values()]
    assert len(gains) > 1
    assert gains == sorted(gains, reverse=True)


def test_what_gains_less_than_a_fiftieth_is_not_said() -> None:
    script, length = training(made=10, sent=10, computed=3000)
    assert advice_for(script, length, made=10) == {}


def test_without_records_there_is_no_advice() -> None:
    assert analysed(make_window(None, 100, steps_at((0, 50, 100)))).advice == ()


def test_without_steps_pinning_is_still_worked_out() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 1000, nbytes=10 * MIB, pageable=True)
    assert "pin" in advice_for(script, 4000)

"""The reasons that lower a GPU's clocks."""

from __future__ import annotations

from samples import make_environment

from pyxfer._document.runs import Fact, unknown
from pyxfer._machine.nvml import IDLE, throttled_by


def test_an_idle_gpu_is_not_throttled() -> None:
    assert throttled_by(make_environment(throttle_reasons=Fact((IDLE,)))) == ()


def test_throttle_reasons_are_in_the_order_of_the_driver() -> None:
    hot = make_environment(throttle_reasons=Fact((IDLE, "sync boost", "hardware thermal slowdown")))
    assert throttled_by(hot) == ("sync boost", "hardware thermal slowdown")


def test_unknown_throttle_reasons_are_empty() -> None:
    assert throttled_by(make_environment(throttle_reasons=unknown("no NVML"))) == ()
    assert throttled_by(None) == ()

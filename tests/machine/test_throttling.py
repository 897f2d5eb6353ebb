"""What counts as holding a GPU's clocks down."""

from __future__ import annotations

from samples import make_environment

from pyxfer._document.runs import Fact, unknown
from pyxfer._machine.nvml import IDLE, held_down_by


def test_an_idle_gpu_is_not_held_down() -> None:
    assert held_down_by(make_environment(throttle_reasons=Fact((IDLE,)))) == ()


def test_what_holds_it_down_is_named_in_the_drivers_order() -> None:
    hot = make_environment(throttle_reasons=Fact((IDLE, "sync boost", "hardware thermal slowdown")))
    assert held_down_by(hot) == ("sync boost", "hardware thermal slowdown")


def test_where_nothing_is_known_nothing_is_named() -> None:
    assert held_down_by(make_environment(throttle_reasons=unknown("no NVML"))) == ()
    assert held_down_by(None) == ()

"""What went on around a run and may have lowered its figures."""

from __future__ import annotations

from samples import make_environment

from pyxfer._ceiling.stages import circumstances
from pyxfer._document.runs import Fact


def test_a_quiet_machine_has_no_remark() -> None:
    assert circumstances((), make_environment(), make_environment()) == []


def test_other_measuring_processes_are_named_in_order() -> None:
    (remark,) = circumstances({812, 77}, make_environment(), None)
    assert remark.code == "contended"
    assert "(process 77, 812)" in remark.text


def test_other_processes_on_the_gpu_are_named() -> None:
    (remark,) = circumstances((), make_environment(other_gpu_processes=Fact((4711,))), None)
    assert remark.code == "shared"
    assert "(process 4711)" in remark.text


def test_throttled_clocks_are_one_remark() -> None:
    hot = make_environment(throttle_reasons=Fact(("hardware thermal slowdown",)))
    (remark,) = circumstances((), hot, hot)
    assert remark.text == "The GPU's clocks were held down: hardware thermal slowdown."


def test_an_idle_gpu_is_not_throttled() -> None:
    idle = make_environment(throttle_reasons=Fact(("idle",)))
    assert circumstances((), idle, idle) == []
    (remark,) = circumstances((), make_environment(), make_environment(throttle_reasons=Fact(("idle", "power cap"))))
    assert remark.text == "The GPU's clocks were held down: power cap."

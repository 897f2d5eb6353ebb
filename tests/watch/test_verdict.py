"""What a step is bound by, with the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from watch.windows import MACHINE, Flat, Script, analysed, make_window, steps_at

from pyxfer._document.watches import Verdict
from pyxfer._trace.records import CopyWay
from pyxfer._watch.analysis import analyse


def verdict_of(input_us: float, h2d: float = 0, d2h: float = 0, kernels: float = 0, host: float = 0) -> Verdict:
    script, time = Script(), input_us
    if h2d:
        script.copy(CopyWay.H2D, time, time + h2d)
    time += h2d
    script.kernel(time, time + kernels)
    time += kernels
    if d2h:
        script.copy(CopyWay.D2H, time, time + d2h)
    time += d2h + host
    return analysed(make_window(script, time, steps_at((0, input_us, time)))).verdict


@pytest.mark.parametrize(
    ("input_us", "degree", "bound_by"),
    [(21, "", "input"), (20, "moderately", "input"), (6, "moderately", "input"), (5, "", "device")],
)
def test_the_thresholds_are_those_of_tensorflows_profiler(input_us: float, degree: str, bound_by: str) -> None:
    verdict = verdict_of(input_us, kernels=100 - input_us)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


def test_a_step_is_bound_by_the_link_if_its_copies_take_longer_than_its_input() -> None:
    verdict = verdict_of(10, h2d=25, kernels=65)
    assert verdict.bound_by == "link"
    assert verdict.share.value == pytest.approx(0.35)
    assert verdict.text == (
        "The step is bound by its input. The device waits for input for 35.0 % of the step, most of it while it "
        "crosses the link."
    )


@pytest.mark.parametrize(
    ("input_us", "h2d", "bound_by"), [(20, 20, "input"), (19, 20, "link"), (11, 20, "link"), (21, 20, "input")]
)
def test_the_longer_of_making_and_sending_the_input_is_named(input_us: float, h2d: float, bound_by: str) -> None:
    assert verdict_of(input_us, h2d=h2d, kernels=100 - input_us - h2d).bound_by == bound_by


@pytest.mark.parametrize(
    ("input_us", "d2h", "host", "bound_by", "degree"),
    [
        (7.8, 0, 85, "host", ""),
        (30, 0, 29, "input", ""),
        (30, 0, 31, "host", ""),
        (6, 0, 19, "input", "moderately"),  # the host counts from 20 % on
        (6, 7, 0, "output", "moderately"),
        (7, 6, 0, "input", "moderately"),
        (0, 30, 40, "host", ""),
    ],
)
def test_the_largest_cause_is_named(input_us: float, d2h: float, host: float, bound_by: str, degree: str) -> None:
    verdict = verdict_of(input_us, d2h=d2h, host=host, kernels=100 - input_us - d2h - host)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


@pytest.mark.parametrize(("input_us", "named"), [(4, False), (8, True)])
def test_a_step_bound_by_the_host_says_how_long_it_awaits_input(input_us: float, named: bool) -> None:
    text = verdict_of(input_us, host=80, kernels=20 - input_us).text
    assert ("another 8 %" in text, "not the cause" in text) == (named, not named)


def test_the_evidence_has_the_figures_of_the_parts() -> None:
    assert verdict_of(30, h2d=20, kernels=50).evidence == (
        "input 30.0 us of 100 us (30.0 %): the device does nothing while the host is between steps",
        "h2d 20.0 us of 100 us (20.0 %): copies to the device are under way and no kernel runs",
    )


@pytest.mark.parametrize(
    ("d2h", "degree", "bound_by"),
    [(21, "", "output"), (20, "moderately", "output"), (6, "moderately", "output"), (5, "", "device")],
)
def test_a_step_is_bound_by_its_output_while_no_kernel_runs(d2h: float, degree: str, bound_by: str) -> None:
    verdict = verdict_of(0, d2h=d2h, kernels=100 - d2h)
    assert (verdict.bound_by, verdict.degree) == (bound_by, degree)


def test_a_step_with_an_idle_device_is_bound_by_the_host() -> None:
    verdict = verdict_of(2, kernels=68, host=30)
    assert verdict.bound_by == "host"
    assert verdict.text.endswith("for 30.0 % of the step, and its input is not the cause.")


def test_an_idle_device_without_steps_says_nothing_of_the_input() -> None:
    script = Script()
    script.kernel(0, 70)
    verdict = analysed(make_window(script, 100)).verdict
    assert verdict.bound_by == "host"
    assert "input" not in verdict.text


def test_a_step_with_a_busy_device_is_bound_by_the_device() -> None:
    verdict = verdict_of(2, kernels=98)
    assert verdict.text == "The step is bound by the device. The device computes for 98.0 % of the step."


def test_without_steps_the_input_can_only_be_its_copies() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 60)
    verdict = analysed(make_window(script, 100)).verdict
    assert verdict.bound_by == "link"
    assert verdict.text.startswith("The program is bound by its input. The device does nothing but receive input")


def test_without_records_the_verdict_is_unknown() -> None:
    verdict = analysed(make_window(None, 100, steps_at((0, 60, 100)))).verdict
    assert verdict.bound_by == "unknown"
    assert verdict.text.startswith("What the device did was not recorded, so")
    assert "whether the device was busy in that time is not known" in verdict.evidence[0]


def test_in_host_memory_the_verdict_is_unknown() -> None:
    script = Script()
    script.copy(CopyWay.H2D, 0, 40)
    watched = analyse(make_window(script, 100), Flat(50.0), replace(MACHINE, runtime="host"))
    assert watched.verdict.bound_by == "unknown"
    assert watched.verdict.text.startswith("No GPU was watched, so")
    assert watched.advice == ()
    assert watched.activity.value is not None


def test_without_records_and_steps_there_is_no_evidence() -> None:
    assert analysed(make_window(None, 100)).verdict.evidence == ()


def test_a_window_without_length_has_no_verdict() -> None:
    verdict = analysed(make_window(Script(), 0)).verdict
    assert (verdict.bound_by, verdict.share.reason) == ("unknown", "the window has no length")


def test_a_part_without_time_is_not_in_the_evidence() -> None:
    assert [line.split()[0] for line in verdict_of(30, kernels=70).evidence] == ["input"]
    assert [line.split()[0] for line in verdict_of(0, kernels=70, host=30).evidence] == ["host"]

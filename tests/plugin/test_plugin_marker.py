"""The marker `xfer`: its limits, verdicts and arguments."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Measurement, Rate, Share, Summary
from pyxfer._document.sessions import Expected, Judged
from pyxfer._frameworks.registry import load_framework
from pyxfer._pytest.derived import judged
from pyxfer._pytest.fixture import Outcome, believed
from pyxfer._pytest.session import USUAL_ROUTES, next_command
from pyxfer._pytest.settings import read_marker
from pyxfer.errors import UsageError

MS = 1e-3


def outcome(share: Share | None, summary: Summary | None = None, *, credible: bool = True) -> Outcome:
    none: Fact[Any] = unknown("no reason")
    measurement = Measurement(
        route="a.py::test",
        direction="h2d",
        side="h2d",
        memory="unknown",
        mode="callable",
        variant="warm",
        bracket="drained",
        nbytes=1,
        moved_bytes=1,
        rate=Fact(Rate(1.0, None, None)) if credible else unknown("it is above the peak"),
        peak_share=none,
        ceiling_share=none if share is None else Fact(share),
        verified=none,
        first_s=none,
        summary=summary,
    )
    return Outcome(measurement, none)


def verdict(expected: Expected, found: Outcome) -> Judged:
    return judged(expected, found.measurement, found.ceiling)


def lasting(median_s: float, low_s: float | None, high_s: float | None) -> Summary:
    return Summary(10, median_s, low_s, high_s, median_s, median_s, 0.0, median_s, median_s)


@pytest.mark.parametrize(
    ("share", "word"),
    [
        (Share(0.9, 0.85, 0.95), "fine"),
        (Share(0.7, 0.6, 0.79), "too slow"),
        (Share(0.79, 0.7, 0.85), "unsure"),
        (Share(0.81, 0.79, 0.85), "unsure"),
        (Share(0.9, None, None), "unsure"),
        (Share(0.1, None, None), "unsure"),
        (None, "unsure"),
    ],
)
def test_a_share_is_too_slow_only_with_its_whole_interval(share: Share | None, word: str) -> None:
    assert verdict(Expected(min_of_ceiling=0.8), outcome(share)).word == word


@pytest.mark.parametrize(
    ("summary", "word"),
    [
        (lasting(1 * MS, 0.9 * MS, 1.1 * MS), "fine"),
        (lasting(3 * MS, 2.1 * MS, 3.1 * MS), "too slow"),
        (lasting(2 * MS, 1.9 * MS, 2.1 * MS), "unsure"),
        (lasting(9 * MS, None, None), "unsure"),
        (None, "unsure"),
    ],
)
def test_a_time_is_too_slow_only_with_its_whole_interval(summary: Summary | None, word: str) -> None:
    assert verdict(Expected(max_s=2 * MS), outcome(None, summary)).word == word


def test_a_function_that_moved_too_few_bytes_is_too_slow() -> None:
    found = outcome(None, lasting(MS, MS, MS), credible=False)
    assert verdict(Expected(min_of_ceiling=0.5), found).word == "too slow"


def test_a_reason_has_the_figures_of_both_sides_and_the_limit() -> None:
    found = outcome(Share(0.067, 0.05, 0.106))
    ceiling = msgspec.structs.replace(found.measurement, rate=Fact(Rate(15.0, None, None)))
    (reason,) = judged(Expected(min_of_ceiling=0.8), found.measurement, Fact(ceiling)).reasons
    assert reason == (
        "1.00 GB/s is 6.7 % of the 15.00 GB/s that raw pinned copies reached beside it (at most 10.6 % with 95 % "
        "certainty); the marker asks for 80 %"
    )


def test_a_reason_names_no_ceiling_that_contradicts_the_share() -> None:
    found = outcome(Share(0.067, 0.05, 0.106))
    faster = msgspec.structs.replace(found.measurement, rate=Fact(Rate(11.1, None, None)))
    (reason,) = judged(Expected(min_of_ceiling=0.8), found.measurement, Fact(faster)).reasons
    assert "11.1" not in reason


def test_the_worse_of_two_verdicts_counts() -> None:
    asked = Expected(min_of_ceiling=0.8, max_s=2 * MS)
    found = verdict(asked, outcome(Share(0.9, 0.85, 0.95), lasting(3 * MS, 2.5 * MS, 3.5 * MS)))
    assert found.word == "too slow"
    (reason,) = found.reasons
    assert all(figure in reason for figure in ("3.00 ms", "2.50 ms", "2.00 ms"))


def test_without_limits_there_is_no_verdict() -> None:
    assert verdict(Expected(), outcome(Share(0.1, 0.1, 0.1))).word == "not asked"


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_the_usual_route_of_a_framework_is_to_be_explained(direction: Any) -> None:
    for framework in USUAL_ROUTES:
        found = msgspec.structs.replace(outcome(None).measurement, direction=direction, nbytes=1 << 20)
        said = next_command(found, ("builtins", framework), 1)
        (route,) = [route for route in load_framework(framework.removesuffix("lib")).routes if route.name in said]
        assert (route.usual, route.direction) == (True, direction)
        assert f"pyxfer explain {route.name} --size 1MiB --device 1 " in said


def test_without_a_framework_the_ceiling_is_to_be_measured() -> None:
    found = msgspec.structs.replace(outcome(None).measurement, nbytes=123456789)
    assert next_command(found, ("builtins", "numpy"), 0).startswith("pyxfer ceiling --size 123456789 ")


def test_a_test_that_is_certainly_too_slow_fails(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(min_of_ceiling=0.8, precision="50%", budget="60s")
        def test_copy(xfer, copying):
            with copying(1 << 16, times=8) as copy:
                xfer(copy, nbytes=1 << 16)
    """)
    result = suite.bare("--xfer-device=host", "--xfer-json=out.json", "--junitxml=out.xml")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"xfer: too slow: [0-9.]+ GB/s is [0-9.]+ % of the [0-9.]+ GB/s .* 80 %\.",
            r"test_it.py:6: xfer\(copy, nbytes=1 << 16\)",
            r"Host memory was measured.*",
        ]
    )
    result.stdout.re_match_lines([r"test_copy +h2d +64 KiB .* too slow"])
    found = suite.only()
    assert (found.outcome, found.judged.word, found.expected) == ("failed", "too slow", Expected(0.8, None))
    properties = ElementTree.parse(suite.path / "out.xml").iter("property")
    assert [dict(each.items()) for each in properties] == [{"name": "xfer_verdict", "value": "too slow"}]


def test_on_a_gpu_the_failure_names_the_next_command(suite: Any, link: Any, as_gpu: Any) -> None:
    suite.write("""
        import pytest, time

        @pytest.mark.xfer(max_s="1ms", budget="60s", precision="90%")
        def test_slow(xfer):
            xfer(time.sleep, 2e-3, nbytes=4096)
    """)
    result = suite.bare()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["xfer: too slow: *", "test_it.py:5: xfer(time.sleep*", "pyxfer ceiling --size 4KiB *"])


def test_an_unsure_test_passes_with_a_warning(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(min_of_ceiling=0.8)
        def test_few(xfer, copying):
            with copying(1 << 20) as copy:
                xfer(copy, nbytes=1 << 20)
    """)
    result = suite.run(budget="30ms")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*test_it.py:[0-9]: XferWarning: unsure: * of the * asks for 80 %*"])
    result.stdout.re_match_lines([r"test_few +h2d .* unsure"])


def test_a_failed_test_keeps_its_own_reason(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(max_s="1us")
        def test_own(xfer):
            xfer(lambda: sum(range(10000)), nbytes=4096)
            assert "mine" == "yours"
    """)
    result = suite.run("--xfer-json=out.json")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("xfer:*")
    assert suite.only().outcome == "failed"


def test_an_unused_fixture_is_a_warning(suite: Any, link: Any) -> None:
    suite.write("""
        def test_forgotten(xfer):
            pass
    """)
    result = suite.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*test_it.py:[0-9]: XferWarning: *measured nothing"])


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (
            pytest.mark.xfer(at_least=0.8),
            "'at_least' is not an argument: choose one of min_of_ceiling, max_s, budget, precision, device.",
        ),
        (pytest.mark.xfer(0.8), "(0.8,) has no name: "),
        (pytest.mark.xfer(min_of_ceiling=1.5), "min_of_ceiling 1.5 is not above zero and at most 1"),
        (pytest.mark.xfer(min_of_ceiling="lots"), "min_of_ceiling 'lots' is not a share: "),
        (pytest.mark.xfer(min_of_ceiling=float("nan")), "min_of_ceiling nan is not above zero"),
        (pytest.mark.xfer(min_of_ceiling=True), "min_of_ceiling True is not above zero"),
        (pytest.mark.xfer(max_s=0), "max_s 0 is not above zero"),
        (pytest.mark.xfer(budget=None), "budget None is not above zero"),
        (pytest.mark.xfer(device=-1), "device -1 is not a device: "),
        (pytest.mark.xfer(device="ABC"), "device 'ABC' is not a device: "),
    ],
)
def test_an_invalid_marker_is_refused(mark: pytest.MarkDecorator, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        read_marker([mark.mark])


def test_an_invalid_marker_and_one_without_the_fixture_are_collection_errors(suite: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(max_s=0)
        @pytest.mark.parametrize("a", [1, 2])
        def test_wrong(xfer, a):
            pass

        @pytest.mark.xfer(min_of_ceiling=0.8)
        def test_alone():
            pass

        @pytest.mark.xfer(min_of_ceiling=0.8)
        class TestAll:
            def test_with_others(self):
                pass
    """)
    result = suite.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_wrong[[]1]: The marker xfer: max_s 0 is not above zero*",
            "test_it.py::test_alone: The marker xfer has no effect*",
        ]
    )
    result.stdout.no_fnmatch_line("*test_with_others*")


def test_the_closest_marker_takes_precedence() -> None:
    marks = [pytest.mark.xfer(max_s=1.0).mark, pytest.mark.xfer(max_s=2.0, budget="300ms").mark]
    assert read_marker(marks) == {"max_s": 1.0, "budget": 0.3}


def test_options_take_precedence_over_markers(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest
        pytestmark = pytest.mark.xfer(budget="50ms", precision="20%", device="host")

        class TestAll:
            @pytest.mark.xfer(precision="30%")
            def test_copy(self, xfer):
                xfer(lambda: None, nbytes=4096)
    """)
    suite.bare("--xfer-json=out.json").assert_outcomes(passed=1)
    found = suite.only()
    assert (found.budget_s, found.precision, found.measurement.route) == (0.05, 0.3, "test_it.py::TestAll::test_copy")
    suite.bare("--xfer-json=out.json", "--xfer-budget=70ms").assert_outcomes(passed=1)
    assert suite.only().budget_s == 0.07


def beside(share: Share | None, *remarks: Remark) -> Any:
    measurement = msgspec.structs.replace(outcome(share).measurement, remarks=remarks)
    return SimpleNamespace(measurement=measurement, ceiling=unknown("none"))


@pytest.mark.parametrize(
    ("share", "figures"),
    [
        (Share(1.0, 0.9, 1.1), None),
        (Share(2.0, 1.5, 2.5), "200.0 %"),
        (Share(2.0, 0.5, 2.5), "50.0 % to 250.0 %"),
        (Share(2.0, None, None), "200.0 %"),
    ],
)
def test_a_share_above_the_ceiling_has_one_remark(share: Share, figures: str | None) -> None:
    earlier = () if share.low is None or share.low < 1 else (Remark("above-ceiling", "faster"),)
    found = believed(beside(share, *earlier), None, []).measurement.remarks
    assert [(remark.code, (figures or "?") in remark.text) for remark in found] == [("above-ceiling", True)] * bool(
        figures
    )

"""The marker `xfer`: its limits, verdicts and arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Measurement, Rate, Share, Summary
from pyxfer._document.sessions import Expected
from pyxfer._pytest.derived import judged
from pyxfer._pytest.fixture import Outcome, believed
from pyxfer._pytest.settings import MarkerArguments, read_marker

COPY = """
    import pytest

    {marks}
    def test_copy(xfer, copying):
        with copying(1 << 20, times={times}) as copy:
            xfer(copy, nbytes=1 << 20)
"""
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
    assert judged(Expected(min_of_ceiling=0.8), outcome(share).measurement).word == word


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
    assert judged(Expected(max_s=2 * MS), outcome(None, summary).measurement).word == word


def test_a_function_that_moved_too_few_bytes_is_too_slow() -> None:
    found = outcome(None, lasting(MS, MS, MS), credible=False)
    assert judged(Expected(min_of_ceiling=0.5), found.measurement).word == "too slow"


def test_the_worse_of_two_verdicts_counts() -> None:
    asked = Expected(min_of_ceiling=0.8, max_s=2 * MS)
    found = judged(asked, outcome(Share(0.9, 0.85, 0.95), lasting(3 * MS, 2.5 * MS, 3.5 * MS)).measurement)
    assert found.word == "too slow"
    assert found.reasons == ("time 3.00 ms, at least 2.50 ms; limit: at most 2.00 ms",)


def test_without_limits_there_is_no_verdict() -> None:
    assert judged(Expected(), outcome(Share(0.1, 0.1, 0.1)).measurement).word == "not asked"


def test_a_test_that_is_certainly_too_slow_fails(suite: Any, link: Any) -> None:
    suite.write(COPY.format(marks="@pytest.mark.xfer(min_of_ceiling=0.8)", times=3))
    result = suite.run("--xfer-json=out.json", budget="2s")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"xfer: .* % of the ceiling, at most .* %; limit: .* 80.0 %"])
    result.stdout.re_match_lines([r"test_copy +h2d +1 MiB .* too slow"])
    found = suite.only()
    assert (found.outcome, found.judged.word, found.expected) == ("failed", "too slow", Expected(0.8, None))


def test_an_unsure_test_passes_with_a_warning(suite: Any, link: Any) -> None:
    suite.write("""
        import pytest

        @pytest.mark.xfer(min_of_ceiling=0.8)
        def test_few(xfer, copying):
            with copying(1 << 20) as copy:
                xfer.pedantic(copy, rounds=3, nbytes=1 << 20)
    """)
    result = suite.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*test_it.py:[0-9]: XferWarning: * of the ceiling, without an interval*"])
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
    ("arguments", "message"),
    [
        (
            "at_least=0.8",
            "'at_least' is not an argument: choose one of min_of_ceiling, max_s, budget, precision, device.",
        ),
        ("0.8", "(0.8,) has no name: *"),
        ("min_of_ceiling=1.5", "min_of_ceiling 1.5 is not above zero and at most 1*"),
        ("min_of_ceiling='lots'", "min_of_ceiling 'lots' is not a share: *"),
        ("min_of_ceiling=float('nan')", "min_of_ceiling nan is not above zero*"),
        ("min_of_ceiling=True", "min_of_ceiling True is not above zero*"),
        ("max_s=0", "max_s 0 is not above zero*"),
        ("budget=None", "budget None is not above zero*"),
        ("device=-1", "device -1 is not a device: *"),
        ("device='ABC'", "device 'ABC' is not a device: *"),
    ],
)
def test_an_invalid_marker_is_a_collection_error(suite: Any, arguments: str, message: str) -> None:
    suite.write(f"""
        import pytest

        @pytest.mark.xfer({arguments})
        @pytest.mark.parametrize("a", [1, 2])
        def test_wrong(xfer, a):
            pass
    """)
    result = suite.run()
    result.assert_outcomes(errors=1)
    pattern = message.replace("[", "[[]")
    result.stdout.fnmatch_lines([f"test_it.py::test_wrong[[]1]: The marker xfer: {pattern}"])


def test_a_marker_without_the_fixture_is_a_collection_error(suite: Any) -> None:
    suite.write("""
        import pytest

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
    result.stdout.fnmatch_lines(["test_it.py::test_alone: The marker xfer has no effect*"])


def test_the_closest_marker_takes_precedence() -> None:
    marks = [pytest.mark.xfer(max_s=1.0).mark, pytest.mark.xfer(max_s=2.0, budget="300ms").mark]
    assert read_marker(marks) == MarkerArguments(max_s=1.0, budget=0.3)


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


@pytest.mark.parametrize(
    ("fix", "fixed", "here"),
    [
        ("let it settle, or span it with a longer budget", True, "let it settle, or span it with more rounds"),
        ("give a budget of 4s or a precision of 2%", False, "give a budget of 4s or a precision of 2%"),
        ("give a budget of 4s", True, "use more rounds"),
        ("let it settle", True, "let it settle"),
        (None, True, None),
    ],
)
def test_fixes_of_fixed_rounds_propose_more_rounds(fix: str | None, fixed: bool, here: str | None) -> None:
    measurement = msgspec.structs.replace(outcome(None).measurement, remarks=(Remark("drift", "it drifted", fix),))
    beside: Any = SimpleNamespace(
        measurement=measurement, ceiling=unknown("none"), choice=SimpleNamespace(runtime="host")
    )
    found = believed(beside, None, [], fixed=fixed).measurement.remarks[0]
    assert (found.text, found.fix) == ("it drifted", here)

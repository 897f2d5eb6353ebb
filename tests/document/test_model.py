"""The rules of all structs, and the codes of remarks as a closed set."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from doctor.cases import h200
from samples import SIZES, make_link, make_measurement, make_run
from xfer_samples import row_of, session

import pyxfer
from pyxfer._doctor.examine import examine_run
from pyxfer._document.machines import Fact, unknown
from pyxfer._document.remark_codes import REMARKS, Severity, severity_of
from pyxfer._document.runs import INFLATED
from pyxfer._document.sessions import runs_of
from pyxfer._document.watches import FIRST_STEPS
from pyxfer.errors import UsageError


@pytest.mark.parametrize("value", [0, False, "", (), 0.0])
def test_a_fact_may_have_any_value_but_none(value: object) -> None:
    assert Fact(value).value == value


@pytest.mark.parametrize("arguments", [{}, {"value": 1, "reason": "why"}, {"value": None, "reason": None}])
def test_a_fact_has_a_value_or_a_reason_and_not_both(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a fact has a value, or a reason why it has none, and not both"):
        Fact(**arguments)


@pytest.mark.parametrize("change", [{"mode": "staged"}, {"variant": "fresh"}])
def test_a_ceiling_is_neither_staged_nor_fresh(change: dict[str, str]) -> None:
    slow, quick = make_measurement(slower=1.2), make_measurement()
    run = make_run(measurements=(slow, msgspec.structs.replace(quick, **change)))
    assert make_run(measurements=(slow, quick)).ceiling("h2d", SIZES[1]) == quick
    assert run.ceiling("h2d", SIZES[1]) == run.ceiling("h2d", f"{SIZES[1]} B") == slow


def test_a_ceiling_is_of_the_largest_size_by_default() -> None:
    small, large = (make_measurement(nbytes=nbytes) for nbytes in (SIZES[0], SIZES[1]))
    assert SIZES[0] < SIZES[1]
    assert make_run(measurements=(large, small)).ceiling("h2d") == large
    with pytest.raises(UsageError, match="no ceiling for h2d; it has none"):
        make_run(measurements=()).ceiling("h2d")


def test_the_peak_of_the_sum_adds_both_sides() -> None:
    link = make_link(h2d_peak_gbps=Fact(58.0), d2h_peak_gbps=Fact(57.0))
    assert link.peak_gbps("h2d").value == 58.0
    assert link.peak_gbps("d2h").value == 57.0
    assert link.peak_gbps("sum").value == 115.0


@pytest.mark.parametrize("side", ["h2d", "d2h"])
def test_the_peak_of_the_sum_has_the_reason_of_the_missing_side(side: str) -> None:
    link = make_link(**{f"{side}_peak_gbps": unknown("no PCIe link")})
    assert link.peak_gbps("sum").reason == "no PCIe link"


def test_every_place_of_a_session_is_a_run() -> None:
    sample = session(row_of(), row_of("tests/test_b.py::test_\udc80[<b>&]", None))
    (run,) = runs_of(sample)
    assert (run.kind, run.runtime, run.ended) == ("measure", "host", "complete")
    assert [row.route for row in run.measurements] == [test.test for test in sample.tests]
    assert (run.parameters.sizes_bytes, run.parameters.directions) == ((1 << 20,), ("h2d",))


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (("fine", "unknown"), "fine"),
        (("fine", "suspicious", "unknown"), "suspicious"),
        (("suspicious", "wrong"), "wrong"),
    ],
)
def test_the_worst_status_is_that_of_the_examination(statuses: tuple[Any, ...], worst: str) -> None:
    sample = examine_run(h200())
    findings = tuple(msgspec.structs.replace(sample.findings[0], status=status) for status in statuses)
    assert msgspec.structs.replace(sample, findings=findings).worst == worst


# --- codes of remarks ------------------------------------------------------------------------------------------------


SOURCES = sorted(Path(pyxfer.__file__).parent.rglob("*.py"))
NAMED = {"INFLATED": INFLATED, "FIRST_STEPS": FIRST_STEPS}


def codes_in(path: Path) -> set[str]:
    """The code of each remark that a source makes."""
    text = path.read_text(encoding="utf-8")
    if "Remark(" not in text:
        return set()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    made = [call for call in calls if ast.unparse(call.func).rpartition(".")[2] == "Remark"]
    found = set()
    for call in made:
        code = call.args[0] if call.args else next(each.value for each in call.keywords if each.arg == "code")
        found.add(str(code.value) if isinstance(code, ast.Constant) else NAMED[ast.unparse(code).rpartition(".")[2]])
    return found


def test_the_set_has_the_codes_of_the_sources_and_no_others() -> None:
    assert set().union(*map(codes_in, SOURCES)) == set(REMARKS)


@pytest.mark.parametrize("code", REMARKS)
def test_a_code_has_a_severity_and_a_meaning_in_one_sentence(code: str) -> None:
    assert REMARKS[code].severity in get_args(Severity)
    assert REMARKS[code].meaning.endswith(".")
    assert code == code.lower().replace(" ", "-")


def test_a_code_of_a_later_pyxfer_is_a_doubt() -> None:
    assert severity_of("later") == "doubt"

"""The tests of the guide, on a real link."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from pyxfer._document.sessions import XferSession

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).parents[2] / "bench" / "pytest_example.py"
INSTALLED = any(each.value == "pyxfer.pytest_plugin" for each in entry_points(group="pytest11"))


# Not imported here: pytester removes the modules that a test imports, and PyTorch cannot be imported twice.
@pytest.mark.skipif(find_spec("torch") is None, reason="could not import 'torch'")
def test_the_tests_of_the_guide_measure_the_link(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=EXAMPLE.read_text())
    load = () if INSTALLED else ("-p", "pyxfer.pytest_plugin")
    result = pytester.runpytest_subprocess(*load, "--xfer-json=out.json", "--xfer-budget=1s", timeout=100)
    result.assert_outcomes(passed=8)
    result.stdout.re_match_lines([r"pyxfer: .*GPU 0.*", r"-+ pyxfer: .*GPU 0.* -+"])
    session = XferSession.load(pytester.path / "out.json")
    found = {test.test.partition("::")[2]: test for test in session.tests}
    assert session.places[0].runtime == "cuda"
    kept, pageable, nothing = (found[f"test_{name}[64MiB]"] for name in ("kept_pinned", "to", "already_there"))
    assert 0.85 < (kept.measurement.of_ceiling or 0) < 1.05
    assert kept.judged.word == "fine"
    assert (pageable.measurement.of_ceiling or 1) < (kept.measurement.of_ceiling or 0)
    assert nothing.measurement.gbps is None
    assert "above the link's peak" in (nothing.measurement.rate.reason or "")

"""Sessions of pytest as runs."""

from __future__ import annotations

from xfer_samples import row_of, session

from pyxfer._document.sessions import runs_of


def test_every_place_of_a_session_is_a_run() -> None:
    sample = session(row_of(), row_of("tests/test_b.py::test_\udc80[<b>&]", None))
    (run,) = runs_of(sample)
    assert (run.kind, run.runtime, run.ended) == ("measure", "host", "complete")
    assert [row.route for row in run.measurements] == [test.test for test in sample.tests]
    assert (run.parameters.sizes_bytes, run.parameters.directions) == ((1 << 20,), ("h2d",))

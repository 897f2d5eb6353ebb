"""`explain` of ingest routes of installed frameworks, without a GPU."""

from __future__ import annotations

import io
import re

import pytest
from frameworks.installed.available import PATIENCE_S, SLOW, needs

import pyxfer
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run

pytestmark = SLOW
COPYING = {"torch": "torch.ingest-copy", "tensorflow": "tf.ingest", "jax": "jax.ingest"}
each_framework = pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in COPYING])


@each_framework
def test_explaining_an_ingest_route_shows_its_time_and_a_faster_one(name: str) -> None:
    run = pyxfer.explain(COPYING[name], "16MiB", device="host", budget_s=4.0, seed=1, patience_s=PATIENCE_S)
    (row,) = [each for each in run.measurements if each.route == COPYING[name]]
    assert run.tracing.value is not None
    assert row.dma.reason == "nothing crosses the link"
    breakdown = row.breakdown.value
    assert breakdown is not None
    assert sum(part.seconds for part in breakdown.parts) == breakdown.elapsed_s
    assert {part.name for part in breakdown.parts} <= {"preparing", "finishing"}

    stream = io.StringIO()
    print_run(run, Page(stream, columns=80))
    page = stream.getvalue()
    # Beside the parts if the call takes longer than one copy, else above them.
    assert re.search(
        r"what one copy in host memory takes|^one copy +\S+ \w+ in host memory; the call", page, re.MULTILINE
    )
    assert "because it copies nothing" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80


@each_framework
def test_every_breakdown_of_a_run_sums_to_the_trial(whole_run: pyxfer.Run, name: str) -> None:
    traced = 0
    for row in whole_run.measurements:
        if row.worker == name and row.breakdown.value is not None:
            parts = row.breakdown.value.parts
            assert sum(part.seconds for part in parts) == row.breakdown.value.elapsed_s
            traced += 1
    assert traced

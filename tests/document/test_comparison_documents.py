"""Comparisons in words, as JSON, and as Markdown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from baseline_samples import all_slow, make_processes, make_sample, slow_pinned
from samples import FORMULA, MARKUP, SCRIPT, make_environment, make_run

from pyxfer._baseline.compare import compare_samples
from pyxfer._baseline.samples import Sample
from pyxfer._document import comparison_documents, json_text
from pyxfer._document.baselines import Comparison
from pyxfer._document.comparison_documents import encode, headline, signed_change, to_markdown

SCHEMA = Path(__file__).parents[2] / "docs" / "comparison.schema.json"
SLOW = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3)))
PARTLY = compare_samples(make_sample("A"), Sample("B", make_processes(3, 2, memories=("pinned",))))

makes_schema = pytest.mark.skipif(
    sys.version_info < json_text.SCHEMA_PYTHON, reason="msgspec cannot make this schema with Python 3.10"
)


@makes_schema
def test_the_published_schema_is_current() -> None:
    current = json.loads(json.dumps(comparison_documents.schema()))
    assert json.loads(SCHEMA.read_text()) == current, (
        "python -m pyxfer._document.comparison_documents > docs/comparison.schema.json"
    )


@pytest.mark.parametrize("comparison", [SLOW, PARTLY], ids=["slow", "partly"])
def test_a_comparison_fits_its_schema(comparison: Comparison) -> None:
    jsonschema.validate(json.loads(encode(comparison)), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_a_comparison_survives_json() -> None:
    assert msgspec.json.decode(encode(SLOW), type=Comparison) == SLOW


@pytest.mark.parametrize(
    ("ratio", "text"), [(2.0, "-50.0 %"), (1.0, "0.0 %"), (0.5, "+100.0 %"), (1.00001, "0.0 %"), (None, "")]
)
def test_a_change_is_of_bandwidth(ratio: float | None, text: str) -> None:
    assert signed_change(ratio) == text


def test_a_verdict_of_one_cell_is_in_the_singular() -> None:
    cell: dict[str, Any] = {"memories": ("pinned",), "directions": ("h2d",), "sizes": (2**24,)}
    one = compare_samples(make_sample("A", **cell), make_sample("B", seed=2, **cell))
    assert headline(one) == "SAME: 1 cell of B is within 3 % of A."


def test_cells_that_were_not_compared_are_counted() -> None:
    assert headline(PARTLY) == "SAME: 6 cells of B are within 3 % of A. 6 more could not be compared."


def test_a_gain_is_said() -> None:
    fast = compare_samples(make_sample("A"), make_sample("B", seed=2, slower=all_slow(0.5)))
    assert headline(fast).startswith("FAST: 12 of 12 cells of B are faster than A by more than 3 %, most of all")


def test_markdown_has_the_verdict_the_cells_and_the_causes() -> None:
    text = to_markdown(SLOW)
    assert text.startswith("**SLOW: 6 of 12 cells of B are slower than A")
    assert "| h2d:pinned:16MiB | 54." in text
    assert "Likely causes:" in text


def test_markdown_tells_what_was_not_compared() -> None:
    assert "h2d:pageable:256MiB, d2h:pageable:1MiB" in to_markdown(PARTLY).replace("&#58;", ":")


@pytest.mark.parametrize("hostile", [MARKUP, SCRIPT, FORMULA, "a|b\n# c\n", "`x`**y**"])
def test_names_stay_names_in_markdown(hostile: str) -> None:
    run = make_run(environment=make_environment(host=hostile))
    text = to_markdown(compare_samples(make_sample(hostile), make_sample("B", seed=2, run=run)))
    assert "<script>" not in text
    assert "\n# c" not in text
    assert "**y**" not in text
    assert "a|b" not in text

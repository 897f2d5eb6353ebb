"""Counting how often a check is right, and single checks on modelled links."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import verdicts
from samples import make_device, make_environment

from pyxfer.errors import UsageError


@pytest.fixture(autouse=True)
def _whole_link() -> Iterator[None]:
    """Reset the host runtime afterwards."""
    yield
    from pyxfer.native._host import testing

    testing.reset()


def row(lost: float, **outcomes: int) -> verdicts.Row:
    counted = {name: count for name, count in outcomes.items() if name in verdicts.OUTCOMES}
    return msgspec.convert(
        {"lost": lost, "pairs": sum(outcomes.values()), "outcomes": counted, "runs": 300}, verdicts.Row
    )


def document(*rows: verdicts.Row) -> verdicts.Verdicts:
    return verdicts.Verdicts(make_device(), make_environment(), 0.35, 1 << 20, 3, 2, 0.03, rows)


def test_the_table_has_a_row_for_each_loss() -> None:
    text = verdicts.table(document(row(0.0, SAME=198, AMBIGUOUS=2), row(0.05, confirmed=200)))
    assert "| nothing | 200 | 198 | 0 | 2 | 0 | 0 | 1.5 |" in text
    assert "| 5 % | 200 | 0 | 0 | 0 | 0 | 200 | 1.5 |" in text


def test_counts_within_the_limits_pass() -> None:
    rows = (
        row(0.0, SAME=198, confirmed=2),
        row(0.02, SAME=30, AMBIGUOUS=20),
        row(0.03, AMBIGUOUS=49, SLOW=1),
        row(0.04, AMBIGUOUS=20, confirmed=30),
        row(0.05, confirmed=198, AMBIGUOUS=2),
    )
    assert verdicts.misses(document(*rows)) == []


@pytest.mark.parametrize(
    ("missed", "words"),
    [
        (row(0.0, SAME=197, confirmed=3), ("1.5 %", "200 pairs", " 0 %", "confirmed SLOW")),
        (row(0.05, confirmed=197, AMBIGUOUS=3), ("98.5 %", "200 pairs", " 5 %", "confirmed SLOW")),
        (row(0.02, AMBIGUOUS=49, confirmed=1), ("2 %", "50 pairs", "confirmed SLOW")),
        (row(0.03, AMBIGUOUS=49, SAME=1), ("2 %", "50 pairs", " 3 %", "SAME")),
        (row(0.04, AMBIGUOUS=49, SAME=1), ("2 %", "50 pairs", " 4 %", "SAME")),
    ],
)
def test_a_missed_limit_is_reported_with_its_counts(missed: verdicts.Row, words: tuple[str, ...]) -> None:
    (miss,) = verdicts.misses(document(missed))
    assert all(word in miss for word in words)


def test_a_document_survives_json() -> None:
    before = document(row(0.0, SAME=198, AMBIGUOUS=2))
    assert msgspec.json.decode(msgspec.json.encode(before), type=verdicts.Verdicts) == before


def test_at_least_one_pair_is_required() -> None:
    with pytest.raises(UsageError, match="no pairs"):
        verdicts.collect(0, 0)


@pytest.mark.slow
# These hold on a busy machine too; losses of a few per cent need an idle one.
def test_equal_links_are_not_called_slow() -> None:
    (equal,) = verdicts.collect(2, 0, (0.0,)).rows
    assert (equal.pairs, equal.outcomes.get("confirmed", 0)) == (2, 0)


@pytest.mark.slow
def test_a_loss_of_half_the_rate_is_confirmed() -> None:
    assert verdicts.outcome_of(verdicts.make_pair(verdicts.new_baseline(), 0.5)) == "confirmed"

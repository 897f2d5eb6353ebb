"""How often a check is right: the counting, and a little of the real thing."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import verdicts
from samples import make_device, make_environment

from pyxfer.errors import UsageError


@pytest.fixture(autouse=True)
def _whole_link() -> Iterator[None]:
    """Leave the host runtime as it was."""
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


def test_a_table_has_a_line_for_each_loss() -> None:
    text = verdicts.table(document(row(0.0, SAME=198, AMBIGUOUS=2), row(0.05, confirmed=200)))
    assert "| nothing | 200 | 198 | 0 | 2 | 0 | 0 | 1.5 |" in text
    assert "| 5 % | 200 | 0 | 0 | 0 | 0 | 200 | 1.5 |" in text


def test_what_is_as_often_right_as_it_should_be_misses_nothing() -> None:
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
        (row(0.0, SAME=197, confirmed=3), "1.5 % of 200 pairs that have lost 0 % are confirmed SLOW"),
        (row(0.05, confirmed=197, AMBIGUOUS=3), "only 98.5 % of 200 pairs that have lost 5 % are confirmed SLOW"),
        (row(0.02, AMBIGUOUS=49, confirmed=1), "2 % of 50 pairs that have lost 2 % are confirmed SLOW"),
        (row(0.03, AMBIGUOUS=49, SAME=1), "2 % of 50 pairs that have lost 3 % are called SAME"),
        (row(0.04, AMBIGUOUS=49, SAME=1), "2 % of 50 pairs that have lost 4 % are called SAME"),
    ],
)
def test_what_is_called_what_it_is_not_is_told(missed: verdicts.Row, words: str) -> None:
    assert verdicts.misses(document(missed)) == [words]


def test_a_document_survives_json() -> None:
    before = document(row(0.0, SAME=198, AMBIGUOUS=2))
    assert msgspec.json.decode(msgspec.json.encode(before), type=verdicts.Verdicts) == before


def test_no_pairs_at_all_are_refused() -> None:
    with pytest.raises(UsageError, match="no pairs"):
        verdicts.collect(0, 0)


@pytest.mark.slow
# However busy the machine is; losses of a few per cent are for an idle one.
def test_equal_links_are_not_called_slow() -> None:
    (equal,) = verdicts.collect(2, 0, (0.0,)).rows
    assert (equal.pairs, equal.outcomes.get("confirmed", 0)) == (2, 0)


@pytest.mark.slow
def test_half_a_link_is_found() -> None:
    assert verdicts.outcome_of(verdicts.make_pair(verdicts.new_baseline(), 0.5)) == "confirmed"

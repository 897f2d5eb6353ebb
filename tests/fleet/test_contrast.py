"""Facts that slow hosts share."""

from __future__ import annotations

import pytest
from fleet_samples import cell_named
from hypothesis import given
from hypothesis import strategies as st

from pyxfer._document.fleets import Contrast
from pyxfer._fleet.contrast import Member, chance_of, contrasts, facts_of


def members(count: int, first: int = 0, **facts: str) -> list[Member]:
    return [Member(place, facts_of(facts, {})) for place in range(first, first + count)]


def found(slow: list[Member], others: list[Member]) -> tuple[Contrast, ...]:
    return contrasts(slow, others, (cell_named("h2d:gpu0:pinned:256MiB"),), 0.01)


def test_a_fact_of_all_slow_hosts_and_no_other_is_significant() -> None:
    (contrast,) = found(members(4, driver="old"), members(252, 4, driver="new"))
    assert (contrast.what, contrast.value, contrast.label) == ("driver", "old", False)
    assert (contrast.slow, contrast.of_slow, contrast.others, contrast.of_others) == (4, 4, 0, 252)
    assert contrast.significant
    assert contrast.chance < 1e-6
    assert contrast.hosts == (0, 1, 2, 3)


def test_a_fact_of_most_slow_hosts_and_few_others_is_significant() -> None:
    slow = [*members(6, driver="old"), *members(2, 6, driver="new")]
    others = [*members(3, 8, driver="old"), *members(200, 11, driver="new")]
    assert found(slow, others)[0].significant


def test_a_fact_of_every_host_is_none() -> None:
    assert found(members(4, driver="new"), members(100, 4, driver="new")) == ()


def test_a_fact_that_other_hosts_have_as_often_is_none() -> None:
    slow = [*members(2, rack="a"), *members(2, 2, rack="b")]
    others = [*members(50, 4, rack="a"), *members(50, 54, rack="b")]
    assert found(slow, others) == ()


def test_a_fact_that_names_each_host_is_none() -> None:
    slow = [Member(0, facts_of({"serial": "s0"}, {}))]
    others = [Member(place, facts_of({"serial": f"s{place}"}, {})) for place in range(1, 100)]
    assert found(slow, others) == ()


def test_many_facts_make_a_coincidence_likely() -> None:
    def member(place: int, value: str) -> Member:
        return Member(place, facts_of({f"fact{number}": value for number in range(30)}, {}))

    slow = [member(0, "x")]
    others = [member(place, "y") for place in range(1, 256)]
    assert not any(contrast.significant for contrast in found(slow, others))


def test_of_three_hosts_an_exclusive_fact_is_told_and_not_significant() -> None:
    (contrast,) = found(members(1, governor="powersave"), members(2, 1, governor="performance"))
    assert not contrast.significant
    assert contrast.chance == pytest.approx(1 / 3)


def test_hosts_without_a_fact_are_not_counted() -> None:
    slow = [*members(3, driver="old"), *members(1, 3)]
    (contrast,) = found(slow, members(100, 4, driver="new"))
    assert (contrast.slow, contrast.of_slow) == (3, 3)


def test_labels_are_told_from_facts() -> None:
    slow = [Member(place, facts_of({}, {"rack": "r7"})) for place in range(4)]
    others = [Member(place, facts_of({}, {"rack": "r1"})) for place in range(4, 100)]
    assert found(slow, others)[0].label


def test_chances_are_those_of_drawing_without_putting_back() -> None:
    assert chance_of(4, 4, 0, 252) == pytest.approx(1 / 174792640)
    assert chance_of(1, 1, 0, 9) == pytest.approx(0.1)
    assert chance_of(0, 4, 3, 10) == pytest.approx(1.0)


@given(st.integers(1, 20), st.integers(1, 50), st.data())
def test_a_chance_is_a_probability(of_slow: int, of_others: int, data: st.DataObject) -> None:
    slow, others = data.draw(st.integers(0, of_slow)), data.draw(st.integers(0, of_others))
    assert 0 <= chance_of(slow, of_slow, others, of_others) <= 1

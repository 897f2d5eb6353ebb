"""The spread of the medians of repeats."""

from __future__ import annotations

import msgspec
import pytest
import repeats
from samples import make_device, make_environment, make_measurement, make_run

from pyxfer._document.runs import Fact, Rate, Run
from pyxfer.errors import MeasurementError, UsageError


def row(*gbps: float) -> repeats.Row:
    return repeats.Row("one process", "h2d", 64 << 20, gbps)


def run_at(gbps: float) -> Run:
    rate = Fact(Rate(gbps=gbps, low_gbps=None, high_gbps=None))
    cells = [(side, nbytes) for side in repeats.SIDES for nbytes in repeats.SIZES]
    made = (msgspec.structs.replace(make_measurement(side=side), rate=rate, nbytes=nbytes) for side, nbytes in cells)
    return make_run(measurements=tuple(made))


def test_the_spread_is_the_range_over_the_median() -> None:
    assert row(55.4, 55.5, 55.6).spread == pytest.approx(0.2 / 55.5)


@pytest.mark.parametrize(("largest", "verdict"), [(55.55, "yes"), (55.6, "no")])
def test_the_table_has_the_verdict_on_the_spread(largest: float, verdict: str) -> None:
    last = repeats.table([row(55.4, 55.5, largest)]).splitlines()[-1].split()
    assert last[-1] == verdict


def test_the_table_shows_every_repeat() -> None:
    last = repeats.table([row(55.4, 55.5, 55.55)]).splitlines()[-1]
    assert last.split() == ["one", "process", "h2d", "64", "MiB", "55.40", "55.50", "55.55", "0.270", "%", "yes"]


def test_each_direction_and_size_has_a_row_with_all_repeats() -> None:
    rows = repeats.rows("fresh processes", [run_at(55.0), run_at(56.0)])
    assert [(found.side, found.nbytes) for found in rows] == [(s, n) for s in repeats.SIDES for n in repeats.SIZES]
    assert {found.gbps for found in rows} == {(55.0, 56.0)}


def test_a_repeat_without_a_figure_is_an_error() -> None:
    with pytest.raises(MeasurementError, match="h2d at 16 MiB"):
        repeats.rows("one process", [run_at(55.0), make_run(measurements=())])


def test_the_document_survives_json() -> None:
    before = repeats.Repeats(make_device(), make_environment(), (row(55.4, 55.5),))
    assert msgspec.json.decode(msgspec.json.encode(before), type=repeats.Repeats) == before


def test_one_repeat_is_refused() -> None:
    with pytest.raises(UsageError, match="--repeats"):
        repeats.main(["--repeats", "1"])

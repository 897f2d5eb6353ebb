"""The stages of a measurement, and the remarks on its circumstances."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from measure.fakes import Clock, Timed
from samples import make_environment

from pyxfer._ceiling.plans import CopyPlan, limits_of
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import Item, raw_head
from pyxfer._ceiling.stages import MEASURING_S, PREPARING_S, Stages, circumstances, too_long
from pyxfer._ceiling.subjects import RawCopies
from pyxfer._document.machines import Environment, Fact
from pyxfer._document.runs import LEFT_OUT, NOT_ASKED, UNTRACED, Tracing
from pyxfer._measure.run import SaveNowAndThen
from pyxfer.errors import CancelledError, MeasurementError
from pyxfer.native import Engine


def throttled(*reasons: str) -> Environment:
    return make_environment(throttle_reasons=Fact(reasons))


QUIET, HOT = make_environment(), throttled("idle", "power cap")


@pytest.mark.parametrize(
    ("met", "before", "after", "codes", "words"),
    [
        ((), QUIET, QUIET, [], ""),
        ({812, 77}, QUIET, None, ["contended"], "(process 77, 812)"),
        ((), HOT, HOT, ["throttled"], "The GPU's clocks were held down: power cap."),
        ((), QUIET, HOT, ["throttled"], "power cap"),
        ((), throttled("idle"), throttled("idle"), [], ""),
    ],
)
def test_circumstances_that_lower_figures_are_remarks(
    met: Collection[int], before: Environment, after: Environment | None, codes: list[str], words: str
) -> None:
    remarks = circumstances(met, before, after)
    assert [remark.code for remark in remarks] == codes
    assert all(words in remark.text for remark in remarks)


KIB = 1024


class Measured:
    """Stages over items whose subjects are fakes, and what they reported."""

    def __init__(
        self, engine: Engine, items: list[Item[CopyPlan]], *, trace: bool = False, complete: bool = False
    ) -> None:
        self.clock = Clock()
        self.log: list[tuple[int, str]] = []
        self.prepared: list[int] = []
        self.events: list[str] = []
        self.tracing: list[Fact[Tracing]] = []
        self.resources = RunResources(engine, 0, 1.0)
        self.stages = Stages(
            resources=self.resources,
            limits=limits_of(0.5, 0.1, 1, trace=trace, complete=complete),
            items=items,
            prepare_item=self.prepare_item,
            on_progress=lambda progress: self.events.append(progress.phase),
            save=lambda: self.events.append("saved"),
            on_tracing=self.tracing.append,
        )

    def prepare_item(self, item: Item[Any], number: int) -> None:
        self.prepared.append(number)
        item.subject = Timed(f"{item.nbytes}", self.clock, log=self.log)

    def run(self, left_s: float = 0.0) -> None:
        """Prepare, and measure for this long."""
        self.stages.prepare()
        self.stages.measure(time.perf_counter() + left_s)


def items_of(*sizes: int, unavailable: str | None = None) -> list[Item[CopyPlan]]:
    return [Item(raw_head(CopyPlan("h2d", "pinned", "async")), nbytes, unavailable) for nbytes in sizes]


def test_groups_run_in_the_order_of_their_keys(engine: Engine) -> None:
    items = items_of(4 * KIB, KIB, 2 * KIB)
    measured = Measured(engine, items)
    measured.run()
    assert [key for _, key in measured.log[:3]] == ["1024", "2048", "4096"]
    assert [len(item.trials("h2d")) for item in items] == [6, 6, 6]


def test_large_sizes_are_not_prepared_after_the_deadline(engine: Engine) -> None:
    items = items_of(4 * KIB, KIB, 2 * KIB)
    measured = Measured(engine, items)
    measured.stages.prepare(time.perf_counter() - PREPARING_S - 1)
    assert [item.unavailable for item in items] == [LEFT_OUT, None, LEFT_OUT]
    assert measured.stages.dropped == {2 * KIB, 4 * KIB}


def test_a_complete_run_prepares_everything(engine: Engine) -> None:
    items = items_of(4 * KIB, KIB)
    measured = Measured(engine, items, complete=True)
    measured.stages.prepare(time.perf_counter() - PREPARING_S - 1)
    assert not measured.stages.dropped
    assert not any(item.unavailable for item in items)


def test_an_unavailable_item_is_not_prepared_and_has_no_trials(engine: Engine) -> None:
    items = [*items_of(KIB), *items_of(2 * KIB, unavailable="not here")]
    measured = Measured(engine, items)
    measured.run()
    assert measured.prepared == [0]
    assert items[1].series is None


def test_a_cancelled_run_ends_the_preparation(engine: Engine) -> None:
    measured = Measured(engine, items_of(KIB))
    measured.resources.cancel()
    with pytest.raises(CancelledError):
        measured.stages.prepare()
    assert measured.prepared == []


def test_rows_are_saved_between_rounds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaveNowAndThen, "EVERY_S", 0.0)
    monkeypatch.setattr(SaveNowAndThen, "SHARE", math.inf)
    measured = Measured(engine, items_of(KIB))
    measured.run()
    assert measured.events.count("saved") == 6


def test_rows_are_saved_before_tracing(engine: Engine) -> None:
    measured = Measured(engine, items_of(KIB, unavailable="not here"), trace=True)
    measured.run(0.01)
    assert measured.events.count("saved") == 1
    assert measured.events.index("saved") < measured.events.index("tracing")
    assert len(measured.tracing) == 1


def test_without_tracing_every_item_has_the_reason(engine: Engine) -> None:
    items = items_of(KIB)
    measured = Measured(engine, items)
    measured.run()
    assert "saved" not in measured.events
    assert [tracing.reason for tracing in measured.tracing] == [NOT_ASKED]
    assert items[0].evidence["h2d"].missing == NOT_ASKED


def test_sizes_that_are_not_traced_have_the_reason(engine: Engine) -> None:
    items = [*items_of(KIB), *items_of(2 * KIB, unavailable="not here")]
    measured = Measured(engine, items, trace=True)
    measured.stages.traced_sizes = {2 * KIB}
    measured.run(0.01)
    assert items[0].evidence["h2d"].missing == NOT_ASKED
    assert items[1].evidence["h2d"].missing != NOT_ASKED


def test_after_its_latest_time_a_run_traces_nothing(engine: Engine) -> None:
    items = items_of(KIB)
    measured = Measured(engine, items, trace=True)
    measured.run(-MEASURING_S - 1)
    assert len(items[0].trials("h2d")) == 1
    assert items[0].evidence["h2d"].missing == UNTRACED


def test_windows_are_chosen_again_and_a_copy_that_fails_then_is_left_out(engine: Engine) -> None:
    items = items_of(KIB, 2 * KIB)
    measured = Measured(engine, items)
    measured.stages.prepare()
    subjects = [Mock(spec=RawCopies), Mock(spec=RawCopies)]
    subjects[1].calibrate.side_effect = MeasurementError("the gate timed out")
    for item, subject in zip(items, subjects, strict=True):
        item.subject = subject
    measured.stages.calibrate_again()
    assert [subject.calibrate.call_count for subject in subjects] == [1, 1]
    assert (items[0].subject, items[0].unavailable) == (subjects[0], None)
    assert (items[1].subject, items[1].unavailable) == (None, "the gate timed out")


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ((1 << 10, 1 << 20), "1 KiB, 1 MiB"),
        (tuple(1 << power for power in range(10, 16)), "6 sizes from 1 KiB to 32 KiB"),
    ],
)
def test_a_budget_too_short_for_many_sizes_counts_them(sizes: Sequence[int], named: str) -> None:
    assert f" for {named}:" in too_long(sizes, 0.0, 1.0).text

"""The raw routes by memory, mode and direction, the request of a run, and the stages of measuring it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from itertools import product
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from measure.fakes import Clock, Timed
from samples import make_environment

from pyxfer._ceiling import plans as module
from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, CopyPlan, copy_plans, limits_of
from pyxfer._ceiling.resources import RunResources
from pyxfer._ceiling.rows import Item, raw_head
from pyxfer._ceiling.stages import MEASURING_S, PREPARING_S, Stages, circumstances, too_long
from pyxfer._ceiling.subjects import RawCopies
from pyxfer._document.machines import Environment, Fact
from pyxfer._document.runs import LEFT_OUT, NOT_ASKED, UNTRACED, Tracing
from pyxfer._measure.run import SaveNowAndThen
from pyxfer.errors import CancelledError, MeasurementError, UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

MODES = ("memcpy", "async", "streams:2", "streams:16", "batch")


def test_every_combination_is_one_way() -> None:
    plans = copy_plans(DIRECTIONS, MEMORIES, MODES, fresh=False)
    assert {(plan.direction, plan.memory, plan.mode) for plan in plans} == set(product(DIRECTIONS, MEMORIES, MODES))
    assert len({plan.key for plan in plans}) == len(plans) == 60
    assert {plan.mode: plan.streams for plan in plans if plan.direction == "h2d"} == {
        **dict.fromkeys(MODES, 1),
        "streams:2": 2,
        "streams:16": 16,
    }
    assert {plan.streams for plan in plans if plan.direction == "both"} == {2}


@pytest.mark.parametrize(
    ("direction", "memory", "mode"),
    [
        ("h2d", "pageable", "memcpy"),
        ("d2h", "pageable", "memcpy"),
        ("both", "pageable", "async"),
        ("h2d", "pinned", "async"),
        ("d2h", "registered", "async"),
        ("both", "write-combined", "async"),
    ],
)
def test_auto_depends_on_memory_and_direction(direction: str, memory: str, mode: str) -> None:
    (plan,) = copy_plans([direction], [memory], ["auto"], fresh=False)
    assert plan.mode == mode


def test_repeated_words_are_planned_once() -> None:
    assert len(copy_plans(["h2d", "h2d"], ["pinned"], ["async", "auto", "async"], fresh=False)) == 1
    assert len(copy_plans(["h2d"], ["pinned"], ["streams:4", "streams:04"], fresh=False)) == 1


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("direction", "sideways"),
        ("direction", "d2d"),
        ("memory", "cardboard"),
        *(("mode", word) for word in ("teleport", "streams:1", "streams:17", "streams:", "streams:-2")),
        ("mode", "streams:\u0664"),
    ],
)
def test_an_unknown_word_is_refused_with_the_known_ones(argument: str, word: str) -> None:
    words = {"direction": ["h2d"], "memory": ["pinned"], "mode": ["auto"], argument: [word]}
    with pytest.raises(UsageError, match=rf"^{argument} '{word}' is unknown"):
        copy_plans(**words, fresh=False)
    with pytest.raises(UsageError, match=rf"^{argument} \[\] is not a list"):
        copy_plans(**{**words, argument: []}, fresh=False)


def test_fresh_adds_a_variant_to_pageable_d2h_alone() -> None:
    plans = copy_plans(DIRECTIONS, MEMORIES, ["auto"], fresh=True)
    assert [plan for plan in plans if plan.variant == "fresh"] == [CopyPlan("d2h", "pageable", "memcpy", "fresh")]
    assert plans[:-1] == copy_plans(DIRECTIONS, MEMORIES, ["auto"], fresh=False)


def test_fresh_without_a_pageable_destination_is_refused() -> None:
    with pytest.raises(UsageError, match="add the direction d2h and the memory pageable"):
        copy_plans(["h2d", "both"], ["pinned"], ["auto"], fresh=True)


def staged(direction: str, *memories: str, modes: tuple[str, ...] = ("staged",), fresh: bool = False) -> list[str]:
    return [f"{plan.route} {plan.variant}" for plan in copy_plans([direction], memories, modes, fresh=fresh)]


@pytest.mark.parametrize("direction", ["h2d", "d2h", "both"])
@pytest.mark.parametrize("memories", [("pinned",), ("registered", "write-combined")])
def test_staging_of_page_locked_memory_is_refused(direction: str, memories: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="add the memory pageable"):
        staged(direction, *memories)


def test_other_memory_beside_staged_copies_uses_the_other_modes() -> None:
    assert staged("d2h", "pageable", fresh=True) == ["raw.pageable-staged warm", "raw.pageable-staged fresh"]
    assert staged("h2d", "pageable", "pinned") == ["raw.pageable-staged warm", "raw.pinned-async warm"]
    assert staged("h2d", "pinned", "pageable", modes=("staged", "batch", "auto")) == [
        "raw.pinned-batch warm",
        "raw.pinned-async warm",
        "raw.pageable-staged warm",
        "raw.pageable-batch warm",
        "raw.pageable-memcpy warm",
    ]


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("async", None),
        ("memcpy", "cudaMemcpy uses one stream, so two directions would take turns: use the mode async"),
        ("streams:2", "both directions already use a stream each: use the mode async"),
        ("batch", "both directions already use a stream each: use the mode async"),
    ],
)
def test_only_async_is_available_both_ways(engine: Engine, memory: str, mode: str, reason: str | None) -> None:
    (plan,) = copy_plans(["both"], [memory], [mode], fresh=False)
    assert module.why_unavailable(engine, plan) == reason


def test_the_list_has_every_memory_and_mode_with_its_directions(engine: Engine) -> None:
    listed = {each.name: each for each in module.list_routes(engine)}
    assert len(listed) == len(MEMORIES) * len(module.SHOWN_MODES) - 3
    assert [name for name in listed if name.endswith("staged")] == ["raw.pageable-staged"]
    assert listed["raw.pageable-staged"].direction == ("h2d", "d2h")
    assert listed["raw.pinned-async"].direction == ("h2d", "d2h", "both")
    assert listed["raw.pinned-batch"].direction == ("h2d", "d2h")
    assert all(each.available and each.reason == "" for each in listed.values())


def test_unavailable_routes_in_the_list_have_a_reason(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    missing = [each for each in module.list_routes(engine) if not each.available]
    assert {each.name for each in missing} == {f"raw.{memory}-batch" for memory in MEMORIES}
    reason = "this driver has no cudaMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
    assert {(each.direction, each.reason) for each in missing} == {((), reason)}


KIB, MIB = 1024, 1024**2


def request(**changes: Any) -> module.Request:
    asked: dict[str, Any] = {
        "device": 0,
        "direction": ["h2d", "d2h"],
        "memory": ["pageable", "pinned"],
        "mode": ["auto"],
        "size": "4KiB:1MiB:x16",
    }
    limits = {"precision": 0.005, "budget": 7.0, "seed": 3}
    checked = module.limits_of(**{name: changes.pop(name, given) for name, given in limits.items()})
    return module.make_request(**{**asked, **changes}, limits=checked)


def test_the_parameters_reproduce_the_request() -> None:
    asked = request().parameters()
    assert asked.device == "0"
    assert asked.directions == ("h2d", "d2h")
    assert asked.memories == ("pageable", "pinned")
    assert asked.modes == ("memcpy", "async")
    assert asked.sizes_bytes == (4 * KIB, 64 * KIB, MIB)
    assert (asked.precision, asked.budget_s, asked.seed, asked.fresh) == (0.005, 7.0, 3, False)
    again = request(direction=asked.directions, memory=asked.memories, size=asked.sizes_bytes, seed=asked.seed)
    assert again == request()


def test_without_a_seed_one_is_drawn_and_recorded() -> None:
    seeds = {request(seed=None).parameters().seed for _ in range(8)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("changes", [{"size": [0]}, {"precision": 0}, {"budget": -1.0}, {"seed": -1}], ids=str)
def test_an_invalid_argument_is_refused_by_its_name(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^{next(iter(changes))}"):
        request(**changes)


def test_text_of_the_command_line_makes_the_same_request() -> None:
    lists = {"direction": "h2d,D2H", "memory": "pageable, pinned", "mode": "auto"}
    assert request(**lists, precision="0.5%", budget="7s", seed=np.int64(3)) == request()


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

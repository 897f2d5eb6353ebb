"""The raw routes by memory, mode and direction, and the request of a run."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from pyxfer._ceiling import plans as module
from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, CopyPlan, copy_plans
from pyxfer.errors import UsageError
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

"""The raw routes by memory, mode and direction, and the request of a run."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from pyxfer._ceiling.ways import (
    DIRECTIONS,
    MAX_STREAMS,
    MEMORIES,
    SHOWN_MODES,
    Request,
    Way,
    list_routes,
    make_request,
    plan_ways,
    why_unavailable,
)
from pyxfer.errors import UsageError
from pyxfer.native import Engine
from pyxfer.native._host import testing

MODES = ("memcpy", "async", "streams:2", "streams:16", "batch")


def test_every_combination_is_one_way() -> None:
    ways = plan_ways(DIRECTIONS, MEMORIES, MODES, fresh=False)
    assert {(way.direction, way.memory, way.mode) for way in ways} == set(product(DIRECTIONS, MEMORIES, MODES))
    assert len({way.key for way in ways}) == len(ways) == 60


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
    (way,) = plan_ways([direction], [memory], ["auto"], fresh=False)
    assert way.mode == mode


def test_repeated_words_are_planned_once() -> None:
    assert len(plan_ways(["h2d", "h2d"], ["pinned"], ["async", "auto", "async"], fresh=False)) == 1
    assert len(plan_ways(["h2d"], ["pinned"], ["streams:4", "streams:04"], fresh=False)) == 1


@pytest.mark.parametrize(
    ("way", "streams"),
    [
        (Way("h2d", "pinned", "async"), 1),
        (Way("h2d", "pinned", "batch"), 1),
        (Way("d2h", "pinned", "streams:7"), 7),
        (Way("both", "pinned", "async"), 2),
    ],
)
def test_a_way_knows_its_number_of_streams(way: Way, streams: int) -> None:
    assert way.streams == streams


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((["sideways"], ["pinned"], ["auto"]), "directions 'sideways' is unknown: choose one of h2d, d2h, both"),
        ((["d2d"], ["pinned"], ["auto"]), "directions 'd2d' is unknown: choose one of h2d, d2h, both"),
        (
            (["h2d"], ["cardboard"], ["auto"]),
            "memories 'cardboard' is unknown: choose one of pageable, pinned, registered, write-",
        ),
        (
            (["h2d"], ["pinned"], ["teleport"]),
            "modes 'teleport' is unknown; known are auto, memcpy, async, batch, staged, and streams:N",
        ),
        ((["h2d"], ["pinned"], ["streams:1"]), "modes 'streams:1' is unknown"),
        ((["h2d"], ["pinned"], [f"streams:{MAX_STREAMS + 1}"]), "streams:N with N from 2 to 16"),
        ((["h2d"], ["pinned"], ["streams:"]), "modes 'streams:' is unknown"),
        ((["h2d"], ["pinned"], ["streams:-2"]), "modes 'streams:-2' is unknown"),
        ((["h2d"], ["pinned"], ["streams:\u0664"]), " is unknown; known are auto"),
        ((["h2d"], ["pinned"], [""]), "modes [''] has an empty item"),
        (([], ["pinned"], ["auto"]), "directions [] is not a list"),
        ((["h2d"], [], ["auto"]), "memories [] is not a list"),
        ((["h2d"], ["pinned"], []), "modes [] is not a list"),
    ],
)
def test_an_unknown_word_is_refused_with_the_known_ones(
    words: tuple[list[str], list[str], list[str]], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan_ways(*words, fresh=False)
    assert sentence in str(caught.value)


def test_fresh_adds_a_variant_to_pageable_d2h_alone() -> None:
    ways = plan_ways(DIRECTIONS, MEMORIES, ["auto"], fresh=True)
    assert [way for way in ways if way.variant == "fresh"] == [Way("d2h", "pageable", "memcpy", "fresh")]
    assert ways[:-1] == plan_ways(DIRECTIONS, MEMORIES, ["auto"], fresh=False)


def test_fresh_without_a_pageable_destination_is_refused() -> None:
    with pytest.raises(UsageError, match="add the direction d2h and the memory pageable"):
        plan_ways(["h2d", "both"], ["pinned"], ["auto"], fresh=True)


def staged(direction: str, *memories: str, modes: tuple[str, ...] = ("staged",), fresh: bool = False) -> list[str]:
    return [f"{way.route} {way.variant}" for way in plan_ways([direction], memories, modes, fresh=fresh)]


@pytest.mark.parametrize("direction", ["h2d", "d2h", "both"])
@pytest.mark.parametrize("memories", [("pinned",), ("registered", "write-combined")])
def test_staging_of_page_locked_memory_is_refused(direction: str, memories: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="add the memory pageable"):
        staged(direction, *memories)


def test_other_memory_beside_staged_copies_uses_the_other_modes() -> None:
    assert staged("h2d", "pageable", "pinned") == ["raw.pageable-staged warm", "raw.pinned-async warm"]
    assert staged("h2d", "pinned", "pageable", modes=("staged", "batch", "auto")) == [
        "raw.pinned-batch warm",
        "raw.pinned-async warm",
        "raw.pageable-staged warm",
        "raw.pageable-batch warm",
        "raw.pageable-memcpy warm",
    ]


def test_a_staged_copy_from_the_device_has_a_fresh_variant() -> None:
    assert staged("d2h", "pageable", fresh=True) == ["raw.pageable-staged warm", "raw.pageable-staged fresh"]


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
    (way,) = plan_ways(["both"], [memory], [mode], fresh=False)
    assert why_unavailable(engine, way) == reason


def test_a_driver_without_batched_copies_is_the_reason(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    assert why_unavailable(engine, Way("h2d", "pinned", "batch")) == (
        "this driver has no cudaMemcpyBatchAsync: it came with CUDA 12.8 (driver 570)"
    )


def test_the_list_has_every_memory_and_mode_with_its_directions(engine: Engine) -> None:
    listed = {each.name: each for each in list_routes(engine)}
    assert len(listed) == len(MEMORIES) * len(SHOWN_MODES) - 3
    assert [name for name in listed if name.endswith("staged")] == ["raw.pageable-staged"]
    assert listed["raw.pageable-staged"].direction == ("h2d", "d2h")
    assert listed["raw.pinned-async"].direction == ("h2d", "d2h", "both")
    assert listed["raw.pinned-batch"].direction == ("h2d", "d2h")
    assert all(each.available and each.reason == "" for each in listed.values())


def test_unavailable_routes_in_the_list_have_a_reason(engine: Engine) -> None:
    testing.set_missing("cudaMemcpyBatchAsync", True)
    missing = [each for each in list_routes(engine) if not each.available]
    assert {each.name for each in missing} == {f"raw.{memory}-batch" for memory in MEMORIES}
    assert {(each.direction, "driver 570" in each.reason) for each in missing} == {((), True)}


KIB, MIB = 1024, 1024**2


def request(**changes: Any) -> Request:
    asked: dict[str, Any] = {
        "device": 0,
        "directions": ["h2d", "d2h"],
        "memories": ["pageable", "pinned"],
        "modes": ["auto"],
        "sizes": "4KiB:1MiB:x16",
        "fresh": False,
        "precision": 0.005,
        "budget_s": 7.0,
        "seed": 3,
    }
    return make_request(**{**asked, **changes})


def test_the_parameters_reproduce_the_request() -> None:
    asked = request().parameters()
    assert asked.device == "0"
    assert asked.directions == ("h2d", "d2h")
    assert asked.memories == ("pageable", "pinned")
    assert asked.modes == ("memcpy", "async")
    assert asked.sizes_bytes == (4 * KIB, 64 * KIB, MIB)
    assert (asked.precision, asked.budget_s, asked.seed, asked.fresh) == (0.005, 7.0, 3, False)
    again = request(directions=asked.directions, memories=asked.memories, sizes=asked.sizes_bytes, seed=asked.seed)
    assert again == request()


def test_without_a_seed_one_is_drawn_and_recorded() -> None:
    seeds = {request(seed=None).parameters().seed for _ in range(8)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("changes", [{"sizes": [0]}, {"precision": 0}, {"budget_s": -1.0}, {"seed": -1}], ids=str)
def test_an_invalid_argument_is_refused_by_its_name(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"^{next(iter(changes))}"):
        request(**changes)


def test_text_of_the_command_line_makes_the_same_request() -> None:
    text = request(
        directions="h2d,D2H",
        memories="pageable, pinned",
        modes="auto",
        precision="0.5%",
        budget_s="7s",
        seed=np.int64(3),
    )
    assert text == request()

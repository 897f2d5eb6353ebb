"""Plans: what pays, from where on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from blocks_samples import make_run_with
from offload_samples import affine, batch, kernel, make_run_of
from samples import KIB, MIB, make_run

import pyxfer
from pyxfer._ceiling.derived import derived_row
from pyxfer._document.codec import to_json
from pyxfer._document.offloads import BreakEven
from pyxfer._document.runs import Run
from pyxfer.errors import StoreError, UsageError

RUN = make_run_of({"kernel": affine})
BOTH_S = 2 * affine(16 * KIB, 1000)


def plan(compute_s: float | None = 1.0, run: Run = RUN, **more: Any) -> pyxfer.OffloadPlan:
    return pyxfer.plan_offload("16KiB", 1000, compute_s, run=run, **more)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(2.0, "moving pays"), (0.5, "computing pays"), (1.001, "too close to say")]
)
def test_the_verdict_compares_the_interval_with_computing(factor: float, verdict: str) -> None:
    found = plan(BOTH_S * factor)
    assert found.verdict == verdict
    assert found.seconds == pytest.approx(BOTH_S)
    assert found.low_s < found.seconds < found.high_s


def test_both_ways_have_their_method_time_and_rate() -> None:
    store, load = plan().moves
    assert (store.direction, load.direction, load.method) == ("d2h", "h2d", "kernel")
    assert load.seconds == pytest.approx(BOTH_S / 2)
    assert load.gbps == pytest.approx(1000 * 16 * KIB / load.seconds / 1e9)


def test_loads_alone_take_half_of_it() -> None:
    found = plan(load_only=True)
    assert [move.direction for move in found.moves] == ["h2d"]
    assert found.seconds == pytest.approx(BOTH_S / 2)


def test_with_half_of_the_link_the_bytes_take_twice_as_long_and_the_call_does_not() -> None:
    found = plan(share="50%")
    more_s = 2 * 1000 * 16 * KIB / 50e9
    assert found.seconds == pytest.approx(BOTH_S + more_s, rel=0.01)
    assert sum(move.seconds for move in found.moves) == pytest.approx(found.seconds)
    assert "50.0 % of the link" in str(found)
    assert "of the link" not in str(plan())


def test_with_a_share_a_few_small_blocks_take_as_long_as_before() -> None:
    whole, part = (pyxfer.plan_offload("4KiB", 1, 1.0, run=RUN, share=share) for share in (1.0, 0.1))
    assert part.seconds < 1.2 * whole.seconds


@pytest.mark.parametrize("compute_s", [1e-3, *(0.7e-3 + 0.01e-3 * step for step in range(1, 20)), 2e-3, 8e-3, 60e-3])
def test_from_the_break_even_on_moving_is_faster(compute_s: float) -> None:
    each_s = compute_s / 1000
    found = plan(compute_s).break_even.value
    assert found is not None
    assert 2 * affine(16 * KIB, found.blocks) < each_s * found.blocks
    if found.blocks > 1:
        assert 2 * affine(16 * KIB, found.blocks - 1) >= each_s * (found.blocks - 1)
    assert found.low <= found.blocks
    assert found.high is None or found.high >= found.blocks
    assert {type(found.low), type(found.blocks), type(found.high)} <= {int, type(None)}


def test_the_ends_of_a_break_even_are_those_of_the_interval() -> None:
    compute_s = 0.8e-3
    found = plan(compute_s).break_even.value
    assert found is not None
    for count, which in ((found.low, "low_s"), (found.blocks, "seconds"), (found.high, "high_s")):
        assert count is not None
        at, before = (pyxfer.plan_offload("16KiB", each, 1.0, run=RUN) for each in (count, count - 1))
        assert getattr(at, which) < compute_s / 1000 * count
        assert getattr(before, which) >= compute_s / 1000 * (count - 1)
    assert found.low < found.blocks < (found.high or 0)


def test_a_break_even_at_the_fewest_or_the_most_blocks_measured_says_so() -> None:
    run = make_run_of({"kernel": affine})
    few = make_run_with([row for row in run.measurements if row.batch in (64, 256)])
    found = pyxfer.plan_offload("1MiB", 64, 1.0, run=few)
    assert found.break_even.value == BreakEven(64, 64, 64, None, 64, 256 * 64)
    assert "moving pays from at most 64 blocks on." in str(found)
    assert "moving pays from 1 block on." in str(pyxfer.plan_offload("1MiB", 64, 1.0, run=RUN))
    small = make_run_with([row for row in run.measurements if row.batch in (64, 256) and row.block_bytes == 4 * KIB])
    each_s = sum(affine(4 * KIB, count) / count for count in (255, 256))
    assert "from at least 256 blocks on" in str(pyxfer.plan_offload("4KiB", 64, 64 * each_s, run=small))


def test_computing_that_is_always_faster_has_no_break_even() -> None:
    found = plan(1000 * 16 * KIB / 50e9)
    assert found.break_even.value is None
    assert "moving does not pay, not even for 1,048,576 blocks" in str(found)


def test_where_only_the_slow_end_of_the_interval_never_pays_the_break_even_says_so() -> None:
    found = plan(1000 * 2 * 16 * KIB / 50e9 * 1.005)
    assert found.break_even.value is not None
    assert found.break_even.value.high is None
    assert "at worst not even from 1,048,576" in str(found)


def test_tokens_give_the_break_even_in_tokens_and_the_rate_of_computing() -> None:
    found = plan(2e-3, tokens=16_000)
    assert found.break_even.value is not None
    assert found.break_even.value.tokens == 16 * found.break_even.value.blocks
    assert found.break_even_tokens_per_s == pytest.approx(16_000 / BOTH_S)


def test_a_rate_of_computing_is_a_time_of_all_tokens() -> None:
    assert plan(None, tokens=16_000, prefill="8000tok/s").compute_s == 2.0
    assert plan(None, tokens=16_000, prefill=8000).compute_s == 2.0


def test_the_layout_of_a_model_gives_the_blocks() -> None:
    layout = pyxfer.kv_layout("llama-8b")
    found = pyxfer.plan_offload(layout=layout, tokens=4096, prefill=12000, run=RUN)
    assert (found.block_bytes, found.blocks) == (64 * KIB, 8192)
    assert str(found).startswith(str(layout))


def test_a_plan_of_a_model_that_is_too_large_says_how_many_tokens_are_not() -> None:
    layout = pyxfer.kv_layout("llama-8b")  # 32 blocks of 64 KiB for 16 tokens
    with pytest.raises(UsageError, match=r"give 16 to 131,072 tokens\.$"):
        pyxfer.plan_offload(layout=layout, tokens=140_000, prefill=12000, run=RUN)
    assert pyxfer.plan_offload(layout=layout, tokens=131_072, prefill=12000, run=RUN).blocks == 262_144


def test_numbers_of_numpy_are_taken() -> None:
    found = pyxfer.plan_offload(
        np.int64(4096), np.int32(16), np.float32(1), tokens=np.int64(9), share=np.float32(0.5), run=RUN
    )
    assert json.loads(to_json(found))["tokens"] == 9


def test_a_large_plan_says_that_its_times_are_those_of_several_moves() -> None:
    found = pyxfer.plan_offload("1MiB", 2560, 1.0, run=RUN)
    assert found.times_measured == 10
    assert "smaller by a factor of 10" in str(found)
    assert plan().times_measured == 1


def test_the_fastest_method_of_each_size_is_taken() -> None:
    run = make_run_of({"kernel": kernel, "batch": batch})
    methods = [
        pyxfer.plan_offload(size, 1000, 1.0, run=run, load_only=True).moves[0].method for size in ("16KiB", "64KiB")
    ]
    assert methods == ["kernel", "batch"]


def test_a_plan_is_one_line_sentences_and_json() -> None:
    found = plan(tokens=16_000)
    assert repr(found) == "<OffloadPlan moving pays: 675 us to move, 1.00 s to compute>"
    assert str(found).startswith(
        "Moving pays: storing and loading 1,000 blocks of 16 KiB (16000 KiB, 16,000 tokens) takes"
    )
    assert all(each.endswith(".") for each in found.sentences())
    decoded = json.loads(to_json(found))
    assert decoded["verdict"] == "moving pays"
    assert decoded["moves"][0].keys() == {"direction", "method", "seconds", "low_s", "high_s", "gbps"}


def test_a_run_of_few_trials_is_told() -> None:
    rows = [msgspec.structs.replace(row, trials=row.trials[:1]) for row in RUN.measurements if row.block_bytes]
    few = make_run_with([derived_row(row, RUN.link, ()) for row in rows])
    found = plan(run=few)
    assert found.trials == 1
    assert "cells of as few as 1 trial, and an interval needs 6" in str(found)
    assert "longer --budget" in str(found)
    assert plan().trials == 6
    assert "an interval needs" not in str(plan())


# --- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "A plan needs block_bytes and blocks"),
        ({"block_bytes": "4KiB"}, "A plan needs block_bytes and blocks"),
        ({"block_bytes": "4KiB", "blocks": 4}, "give compute_s or prefill"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "prefill": 3}, "give compute_s or prefill"),
        ({"block_bytes": "4KiB", "blocks": 4, "prefill": 3}, "give tokens"),
        ({"block_bytes": "4KiB", "blocks": 4, "prefill": "3/s", "tokens": 3}, "prefill '3/s' is not a rate"),
        ({"block_bytes": "4KiB", "blocks": 4, "prefill": 0, "tokens": 3}, "prefill 0 is not a rate"),
        ({"block_bytes": "4K", "blocks": 4, "compute_s": 1}, "block_bytes '4K' is ambiguous"),
        ({"block_bytes": "4KiB", "blocks": 0, "compute_s": 1}, "blocks 0 is not a whole number"),
        ({"block_bytes": "4KiB", "blocks": 2.5, "compute_s": 1}, "blocks 2.5"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": -1}, "compute_s -1"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "tokens": 0}, "tokens 0"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "share": 0}, "share 0"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "share": "101%"}, "share '101%' is above 100%"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "load_only": "x"}, "load_only is 'x'"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "order": "sorted"}, "order 'sorted' is unknown"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "memory": "registered"}, "memory 'registered'"),
        ({"layout": "llama-8b", "prefill": 1, "tokens": 1}, "layout 'llama-8b' is not one"),
        ({"layout": pyxfer.kv_layout("llama-8b"), "prefill": 1}, "A layout needs the number of tokens"),
        ({"layout": pyxfer.kv_layout("llama-8b"), "blocks": 3, "tokens": 1, "prefill": 1}, "leave out block_bytes"),
        ({"block_bytes": 256, "blocks": 4, "compute_s": 1}, "nothing near 4 blocks of 256 B: measure this size too"),
        ({"block_bytes": "4KiB", "blocks": 10**8, "compute_s": 1}, "give a number of blocks from 1 to 1,048,576"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "order": "runs"}, "no moves d2h of pinned memory in the"),
        ({"block_bytes": "4KiB", "blocks": 4, "compute_s": 1, "memory": "pageable"}, "no moves d2h of pageable memory"),
    ],
)
def test_what_is_invalid_or_was_not_measured_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pyxfer.plan_offload(**arguments, run=RUN)


@pytest.mark.parametrize("run", [5, {}, b"blocks.json"])
def test_what_is_neither_a_run_nor_a_file_is_refused(run: Any) -> None:
    with pytest.raises(UsageError, match="or the file of one"):
        pyxfer.plan_offload("4KiB", 4, 1.0, run=run)


def test_another_kind_of_run_is_refused() -> None:
    with pytest.raises(UsageError, match="one of pyxfer ceiling"):
        pyxfer.plan_offload("4KiB", 4, 1.0, run=make_run())


def test_without_a_run_or_a_store_it_says_what_to_measure(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.db"):
        pyxfer.plan_offload("4KiB", 4, 1.0, store=str(tmp_path / "none.db"))
    with pyxfer.open_store(str(tmp_path / "made.db")) as store:
        store.add_run(make_run())
    with pytest.raises(UsageError, match="pyxfer blocks --export-json"):
        pyxfer.plan_offload("4KiB", 4, 1.0, store=str(tmp_path / "made.db"))


def test_sizes_of_sixteen_bytes_and_others_are_planned() -> None:
    run = make_run_of({"kernel": kernel, "batch": batch})
    found = pyxfer.plan_offload(MIB + 8, 10, 1.0, run=run, load_only=True)
    assert found.moves[0].method == "batch"

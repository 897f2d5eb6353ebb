"""What is said of each framework in words."""

from __future__ import annotations

from typing import Any

import msgspec
from framework_samples import (
    make_aliased,
    make_frameworks_run,
    make_image_batch_run,
    make_nature,
    make_refused,
    make_route_row,
)
from samples import MIB

from pyxfer._document import runs
from pyxfer._document.runs import unknown
from pyxfer._report.frameworks import sentences
from pyxfer._report.route_tables import group_rows

SIZE = 256 * MIB
USUAL = make_route_row("torch", "torch.to", "h2d", SIZE, (9e-6, 17.9))
PINNED = make_route_row("torch", "torch.pinned-nonblocking", "h2d", SIZE, (6e-6, 53.5))


def said(*measurements: runs.Measurement, **overrides: Any) -> list[tuple[str, str]]:
    run = make_frameworks_run(measurements=measurements, **overrides)
    return sentences(run, group_rows(run, [""] * len(measurements)))


def test_the_usual_call_is_set_against_the_ceiling_and_the_fastest_route() -> None:
    assert said(USUAL, PINNED) == [
        (
            "PyTorch",
            "h2d: torch.to, the usual call, reaches 17.8 GB/s at 256 MiB, 32.2 % of the ceiling; "
            "torch.pinned-nonblocking reaches 53.2 (96.2 %), 3.0 times as much.",
        )
    ]


def test_each_direction_has_a_line_under_its_framework() -> None:
    back = make_route_row("torch", "torch.cpu", "d2h", SIZE, (9e-6, 4.4))
    assert [name for name, _ in said(USUAL, back)] == ["PyTorch", ""]


def test_a_usual_call_that_nothing_beats_is_said_to_be_the_fastest() -> None:
    slow = make_route_row("torch", "torch.noncontiguous", "h2d", SIZE, (9e-6, 3.0))
    assert said(USUAL, slow)[0][1].endswith("32.2 % of the ceiling, and no other route is faster.")


def test_of_one_route_nothing_is_compared() -> None:
    assert said(USUAL)[0][1] == "h2d: torch.to, the usual call, reaches 17.8 GB/s at 256 MiB, 32.2 % of the ceiling."


def test_routes_within_a_few_percent_are_about_the_same() -> None:
    near = make_route_row("torch", "torch.to-nonblocking", "h2d", SIZE, (9e-6, 18.1))
    assert said(USUAL, near)[0][1].endswith("torch.to-nonblocking reaches 18.0 (32.5 %), about the same.")


def test_many_times_as_much_are_told_without_a_fraction() -> None:
    slow = make_route_row("jax", "jax.asarray", "d2h", SIZE, (9e-6, 0.42))
    fast = make_route_row("jax", "jax.to-pinned-host", "d2h", SIZE, (9e-6, 52.0))
    assert said(slow, fast)[0][1].endswith("124 times as much.")


def test_a_usual_call_without_a_result_says_why_and_what_there_is() -> None:
    refused = make_refused("torch", "torch.to", SIZE, "this torch was built without CUDA.")
    assert said(refused, PINNED)[0][1] == (
        "h2d: torch.to, the usual call, has no bandwidth: this torch was built without CUDA; "
        "the fastest is torch.pinned-nonblocking, which reaches 53.2 GB/s at 256 MiB, 96.2 % of the ceiling."
    )


def test_a_usual_call_that_failed_at_the_largest_size_is_told_at_the_next() -> None:
    small = make_route_row("torch", "torch.to", "h2d", 16 * MIB, (9e-6, 17.9))
    text = said(small, make_refused("torch", "torch.to", SIZE, "out of memory"), PINNED)[0][1]
    assert "reaches 17.7 GB/s at 16 MiB" in text


def test_without_the_usual_call_among_the_routes_the_fastest_is_told() -> None:
    assert said(PINNED)[0][1].startswith("h2d: the fastest is torch.pinned-nonblocking, which reaches 53.2 GB/s")


def test_when_nothing_has_a_result_the_reason_is_told() -> None:
    refused = make_refused("torch", "torch.pin-to", SIZE, "no memory left")
    assert said(refused)[0][1] == "h2d: no route has a bandwidth: no memory left."


def test_without_a_ceiling_there_is_no_share() -> None:
    nothing: Any = unknown("no ceiling")
    rows = (msgspec.structs.replace(row, ceiling_share=nothing) for row in (USUAL, PINNED))
    assert said(*rows)[0][1] == (
        "h2d: torch.to, the usual call, reaches 17.8 GB/s at 256 MiB; "
        "torch.pinned-nonblocking reaches 53.2, 3.0 times as much."
    )


def test_a_tensor_that_uses_the_array_takes_time_and_has_no_bandwidth() -> None:
    text = said(make_aliased("torch", "torch.ingest", SIZE))[0][1]
    assert text == "ingest: torch.ingest, the usual call, copies nothing and takes 422 ns at 256 MiB."


def test_a_call_that_copies_is_set_against_one_that_copies_nothing() -> None:
    copied = make_route_row("tensorflow", "tf.ingest", "ingest", SIZE, (1e-5, 5.5))
    text = said(copied, make_aliased("tensorflow", "tf.ingest-dlpack", SIZE))[0][1]
    assert text.endswith("in host memory reaches; tf.ingest-dlpack copies nothing and takes 422 ns.")


def test_what_copies_nothing_is_told_where_the_usual_call_is_not_among_the_routes() -> None:
    text = said(make_aliased("tensorflow", "tf.ingest-dlpack", SIZE))[0][1]
    assert text == "ingest: the fastest is tf.ingest-dlpack, which copies nothing and takes 422 ns at 256 MiB."


def test_ingest_is_set_against_one_copy() -> None:
    text = said(make_route_row("tensorflow", "tf.ingest", "ingest", SIZE, (1e-5, 5.5)))[0][1]
    assert text.endswith("50.0 % of what one copy in host memory reaches.")


def test_image_batches_are_told_in_mb_at_their_batch() -> None:
    run = make_image_batch_run()
    text = sentences(run, group_rows(run, [""] * len(run.measurements)))[0][1]
    assert "torch.to, the usual call, reaches 17454 MB/s at batch 512" in text


def test_a_framework_of_ones_own_is_called_by_its_name() -> None:
    own = msgspec.structs.replace(USUAL, route="mine.loader", nature=make_nature("mine.loader"), worker="mine")
    assert said(own)[0][0] == "mine"

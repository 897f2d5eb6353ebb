"""The summary of a frameworks run: usual and fastest routes."""

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
from pyxfer._report.frameworks import summary_lines

SIZE = 256 * MIB
USUAL = make_route_row("torch", "torch.to", "h2d", SIZE, (9e-6, 17.9))
PINNED = make_route_row("torch", "torch.pinned-nonblocking", "h2d", SIZE, (6e-6, 53.5))


def lines(*measurements: runs.Measurement) -> list[tuple[str, str]]:
    return summary_lines(make_frameworks_run(measurements=measurements), [""] * len(measurements))


def text(*measurements: runs.Measurement) -> str:
    return lines(*measurements)[0][1]


def test_usual_and_fastest_route_have_rate_share_and_ratio() -> None:
    assert lines(USUAL, PINNED) == [
        (
            "PyTorch",
            "h2d, 256 MiB: usual torch.to 17.8 GB/s, 32.2 % of the ceiling; "
            "fastest torch.pinned-nonblocking 53.2 GB/s, 96.2 % of the ceiling; 3.0 times as fast",
        )
    ]


def test_directions_of_a_framework_share_its_name() -> None:
    back = make_route_row("torch", "torch.cpu", "d2h", SIZE, (9e-6, 4.4))
    assert [name for name, _ in lines(USUAL, back)] == ["PyTorch", ""]


def test_the_usual_route_may_be_the_fastest() -> None:
    slow = make_route_row("torch", "torch.noncontiguous", "h2d", SIZE, (9e-6, 3.0))
    assert text(USUAL, slow) == "h2d, 256 MiB: usual and fastest torch.to 17.8 GB/s, 32.2 % of the ceiling"


def test_a_single_route_is_not_called_the_fastest() -> None:
    assert text(USUAL) == "h2d, 256 MiB: usual torch.to 17.8 GB/s, 32.2 % of the ceiling"


def test_large_ratios_are_whole_numbers() -> None:
    slow = make_route_row("jax", "jax.asarray", "d2h", SIZE, (9e-6, 0.42))
    fast = make_route_row("jax", "jax.to-pinned-host", "d2h", SIZE, (9e-6, 52.0))
    assert text(slow, fast).endswith("; 124 times as fast")


def test_a_failed_usual_route_has_its_reason() -> None:
    refused = make_refused("torch", "torch.to", SIZE, "this torch was built without CUDA.")
    assert text(refused, PINNED) == (
        "h2d: usual torch.to has no bandwidth (this torch was built without CUDA); "
        "fastest torch.pinned-nonblocking 53.2 GB/s, 96.2 % of the ceiling at 256 MiB"
    )


def test_a_usual_route_that_failed_at_the_largest_size_is_compared_at_the_next() -> None:
    small = make_route_row("torch", "torch.to", "h2d", 16 * MIB, (9e-6, 17.9))
    refused = make_refused("torch", "torch.to", SIZE, "out of memory")
    assert text(small, refused, PINNED).startswith("h2d, 16 MiB: usual and fastest torch.to 17.7 GB/s")


def test_without_the_usual_route_only_the_fastest_is_named() -> None:
    assert text(PINNED) == "h2d, 256 MiB: fastest torch.pinned-nonblocking 53.2 GB/s, 96.2 % of the ceiling"


def test_without_any_result_the_reason_is_named() -> None:
    refused = make_refused("torch", "torch.pin-to", SIZE, "no memory left")
    assert text(refused) == "h2d: no route has a bandwidth (no memory left)"


def test_without_a_ceiling_there_are_no_shares() -> None:
    nothing: Any = unknown("no ceiling")
    rows = (msgspec.structs.replace(row, ceiling_share=nothing) for row in (USUAL, PINNED))
    assert "%" not in text(*rows)


def test_a_route_that_copies_nothing_has_a_time() -> None:
    copied = make_route_row("tensorflow", "tf.ingest", "ingest", SIZE, (1e-5, 5.5))
    assert text(copied, make_aliased("tensorflow", "tf.ingest-dlpack", SIZE)) == (
        "ingest, 256 MiB: usual tf.ingest 5.48 GB/s, 50.0 % of one copy; "
        "fastest tf.ingest-dlpack 422 ns, without a copy"
    )


def test_image_batches_have_mb_per_second_and_their_batch() -> None:
    run = make_image_batch_run()
    assert "h2d, batch 512: usual torch.to 17454 MB/s" in summary_lines(run, [""] * len(run.measurements))[0][1]


def test_a_users_framework_has_its_own_name() -> None:
    own = msgspec.structs.replace(USUAL, route="mine.loader", nature=make_nature("mine.loader"), worker="mine")
    assert lines(own)[0][0] == "mine"

"""How long each method takes to move blocks between two pools: what a server reads, and what is kept for a device."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from pyxfer._document.machines import Moment
from pyxfer._document.runs import BlockOrder, Ending
from pyxfer._document.tunings import TuningKey

BLOCKS_SCHEMA_VERSION = 1

BlockMethod = Literal["loop", "batch", "strided", "kernel", "packed"]
METHODS: tuple[BlockMethod, ...] = get_args(BlockMethod)
CALLS: dict[BlockMethod, str] = {
    "loop": "cudaMemcpyAsync for each run of neighbours",
    "batch": "cuMemcpyBatchAsync",
    "strided": "cudaMemcpy2DAsync",
    "kernel": "a kernel that reads and writes page-locked memory",
    "packed": "packed by threads, one copy, a kernel",
}
BlockDirection = Literal["h2d", "d2h", "both"]
BlockMemory = Literal["pinned", "pageable"]


class BlockTimes(msgspec.Struct, frozen=True):
    """The times of one cell: `count` blocks of `block_bytes`.

    `method`: the fastest. `equal`: the methods that are not shown to be slower. `seconds`: the caller's median time
    until the blocks have arrived, by method, with its 95 % interval from `low_seconds` to `high_seconds`, or the least
    and the greatest of fewer than six `trials`. `call_seconds`: the median until the call returned.
    """

    block_bytes: int
    count: int
    method: BlockMethod
    equal: tuple[BlockMethod, ...]
    seconds: dict[BlockMethod, float]
    low_seconds: dict[BlockMethod, float]
    high_seconds: dict[BlockMethod, float]
    call_seconds: dict[BlockMethod, float]
    trials: dict[BlockMethod, int]


class BlockTable(msgspec.Struct, frozen=True):
    """The cells of one direction, memory and order. The seconds of `both` are those until both ways have ended."""

    direction: BlockDirection
    memory: BlockMemory
    order: BlockOrder
    cells: tuple[BlockTimes, ...]


class Thresholds(msgspec.Struct, frozen=True):
    """Which method is the fastest on one device, cell by cell.

    `made_by`: a run, or the quick calibration. `ended`: how that run ended; one that was interrupted has fewer cells.
    """

    device: str
    taken_at: Moment
    made_by: Literal["run", "calibration"]
    tables: tuple[BlockTable, ...]
    ended: Ending = "complete"
    schema_version: int = BLOCKS_SCHEMA_VERSION


class KeptThresholds(msgspec.Struct, frozen=True):
    """Thresholds with the conditions that they hold under."""

    key: TuningKey
    thresholds: Thresholds


class ThresholdsFile(msgspec.Struct, frozen=True):
    """The file in which thresholds are kept, the newest last."""

    schema_version: int
    kept: tuple[KeptThresholds, ...]

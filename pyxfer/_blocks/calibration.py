"""The thresholds of a device: kept from its last run of blocks, or measured in less than a second at the first use."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from pyxfer._blocks.choice import Choices, Place, thresholds_of
from pyxfer._blocks.plans import BlockPlan, always_refused
from pyxfer._blocks.trials import BlockResources, Moves
from pyxfer._document.blocks import (
    BLOCKS_SCHEMA_VERSION,
    METHODS,
    BlockMethod,
    BlockTable,
    BlockTimes,
    KeptThresholds,
    Thresholds,
    ThresholdsFile,
)
from pyxfer._upload.settings import cache_path, tuning_key
from pyxfer.errors import CudaMemoryError, MeasurementError, UsageError

if TYPE_CHECKING:
    from pyxfer._blocks.mover import BlockMover
    from pyxfer._document.runs import Run, Trial
    from pyxfer._document.tunings import TuningKey
    from pyxfer.native import Engine

_FILE_NAME = "blocks.json"
# As many as of rings.
_MAX_KEPT = 32
LIMIT_S = 0.8
_POOL_BYTES = 64 << 20
_TRIAL_BYTES = 16 << 20
_SIZES = tuple(kib << 10 for kib in (4, 16, 24, 64, 256, 1024))
_COUNTS = (1, 16, 256, 4096)
_ROUNDS = 3
_PATIENCE_S = 30.0


def choices_for(engine: Engine, device: int, mover: BlockMover, environ: Mapping[str, str] = os.environ) -> Choices:
    """The choices of this device: those of its last run, of an earlier calibration, or of one that is made now.

    Without memory for a calibration there are none: `method_for` then returns None.
    """
    key = tuning_key(engine, device)
    kept = find_kept(key, environ)
    if kept is None:
        try:
            kept = calibrate(engine, device, mover)
        except CudaMemoryError:
            kept = Thresholds(engine.device_properties(device).name, _now(), "calibration", ())
        else:
            keep(key, kept, environ)
    return Choices(kept)


# --- the file --------------------------------------------------------------------------------------------------------


def find_kept(key: TuningKey, environ: Mapping[str, str] = os.environ) -> Thresholds | None:
    path = _path(environ)
    kept = () if path is None else _read(path)
    return next((entry.thresholds for entry in reversed(kept) if entry.key == key), None)


def newest_kept(environ: Mapping[str, str] = os.environ) -> Thresholds | None:
    """The newest thresholds of this host, of any of its GPUs; those of runs before those of calibrations.

    Found without CUDA: a driver that has changed since is not noticed.
    """
    path = _path(environ)
    host = platform.node().encode(errors="backslashreplace").decode()
    kept = [entry.thresholds for entry in (() if path is None else _read(path)) if entry.key.host == host]
    return max(kept, key=lambda found: (found.made_by == "run", found.taken_at), default=None)


def keep_run(engine: Engine, device: int, run: Run) -> None:
    """Keep the thresholds of a run, if it has those of both directions."""
    found = thresholds_of(run)
    places = {(table.direction, table.memory, table.order) for table in found.tables}
    if places >= {("h2d", "pinned", "random"), ("d2h", "pinned", "random")}:
        keep(tuning_key(engine, device), found)


def keep(key: TuningKey, thresholds: Thresholds, environ: Mapping[str, str] = os.environ) -> None:
    """Write them to the file, in place of older ones of that key. A folder that cannot be written keeps nothing."""
    from pyxfer._document.codec import to_json  # it imports every struct, which `pyxfer.copy_blocks` does not need
    from pyxfer._document.files import write_whole

    path = _path(environ)
    if path is None:
        return
    others = [entry for entry in _read(path) if entry.key != key]
    kept = (*others[1 - _MAX_KEPT :], KeptThresholds(key, thresholds))
    with contextlib.suppress(UsageError, OSError, ValueError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, to_json(ThresholdsFile(BLOCKS_SCHEMA_VERSION, kept)) + b"\n")


def _path(environ: Mapping[str, str]) -> Path | None:
    """Beside the tunings of rings."""
    ring = cache_path(environ).value
    return None if ring is None else ring.with_name(_FILE_NAME)


def _read(path: Path) -> tuple[KeptThresholds, ...]:
    try:
        document = msgspec.json.decode(path.read_bytes())
        version = document.get("schema_version") if isinstance(document, dict) else None
        return msgspec.convert(document, ThresholdsFile).kept if version == BLOCKS_SCHEMA_VERSION else ()
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return ()


# --- the quick calibration -------------------------------------------------------------------------------------------


def calibrate(engine: Engine, device: int, mover: BlockMover, limit_s: float = LIMIT_S) -> Thresholds:
    """Time a few cells of page-locked memory a few times each; what the limit does not reach is left out."""
    until_s = time.perf_counter() + limit_s
    resources = BlockResources(engine, device, _PATIENCE_S)
    resources.use(mover, borrowed=True)
    trials: dict[Place, dict[tuple[int, int], dict[BlockMethod, list[Trial]]]] = defaultdict(lambda: defaultdict(dict))
    try:
        resources.make_pools(["pinned"], _POOL_BYTES)
        for plan in _plans(resources, mover):
            if time.perf_counter() > until_s:
                break
            place, at = Place(plan.direction, plan.memory, plan.order), (plan.block_bytes, plan.count)
            with contextlib.suppress(MeasurementError):
                subject = Moves(plan, resources, None, seed=0)
                timed = [next(iter(subject.trial(number).values())) for number in range(_ROUNDS + 1)]
                trials[place][at][plan.method] = timed[1:]
    finally:
        resources.close()
    tables = [
        BlockTable(*place, tuple(_times(at, cells[at]) for at in sorted(cells))) for place, cells in trials.items()
    ]
    return Thresholds(engine.device_properties(device).name, _now(), "calibration", tuple(tables))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _times(at: tuple[int, int], trials: dict[BlockMethod, list[Trial]]) -> BlockTimes:
    times = {method: [trial.elapsed_s for trial in timed] for method, timed in trials.items()}
    seconds = {method: median(each) for method, each in times.items()}
    return BlockTimes(
        *at,
        min(seconds, key=seconds.__getitem__),
        (),
        seconds,
        low_seconds={method: min(each) for method, each in times.items()},
        high_seconds={method: max(each) for method, each in times.items()},
        call_seconds={method: median(trial.dispatch_s or 0.0 for trial in timed) for method, timed in trials.items()},
        trials={method: len(each) for method, each in times.items()},
    )


def _plans(resources: BlockResources, mover: BlockMover) -> Iterator[BlockPlan]:
    """Few bytes first; of each cell all methods but packing, which is for memory that is not page-locked."""
    cells = sorted(((size, count) for size in _SIZES for count in _COUNTS), key=lambda cell: cell[0] * cell[1])
    for size, count in cells:
        if size * count > _TRIAL_BYTES:
            return
        for direction in ("h2d", "d2h"):
            host, device = resources.pool("pinned", size), resources.pool("device", size)
            possible = mover.methods(*((host, device) if direction == "h2d" else (device, host)), size)
            for method in METHODS:
                plan = BlockPlan(direction, "pinned", method, "random", size, count)
                if method in possible and method != "packed" and not always_refused(plan):
                    yield plan

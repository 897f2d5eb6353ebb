"""Measures the work of a framework on an image batch that is already on the GPU: a lower bound for any upload.

    python bench/image_floor.py [torch|tensorflow ...] [--device 0] [--trials 200] [--export-json F]

The work is that of `pyxfer frameworks --workload image-batch`: cast the batch, take one row, read it back. A
page-locked copy of the batch is timed as well. The sum of both is a lower bound for upload and work, because the
framework starts when the copy has ended.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import shared

import pyxfer
from pyxfer._document.machines import Device, Environment
from pyxfer._document.runs import FrameworkName
from pyxfer._frameworks.base import IMAGE_BYTES, IMAGE_SHAPE
from pyxfer._machine.environment import read_environment
from pyxfer._report.route_tables import title
from pyxfer.native import HOST, Engine
from pyxfer.units import format_seconds

BATCHES = (128, 256, 512)
FRAMEWORKS: tuple[FrameworkName, ...] = ("torch", "tensorflow")
WARM = 10


class Row(msgspec.Struct, frozen=True):
    """Trials of one framework and batch size: its work, and a page-locked copy of the batch."""

    framework: FrameworkName
    batch: int
    work_s: tuple[float, ...]
    pinned_s: tuple[float, ...]

    @property
    def least_s(self) -> float:
        """The sum of the median copy and the median work."""
        return statistics.median(self.work_s) + statistics.median(self.pinned_s)


class Floors(msgspec.Struct, frozen=True):
    """The document."""

    device: Device
    environment: Environment
    rows: tuple[Row, ...]


def main() -> int:
    """Measure and print the table."""
    asked = _arguments()
    engine, device = shared.open_device(asked)
    rows = []
    frameworks: Sequence[FrameworkName] = asked.frameworks or FRAMEWORKS
    for framework in frameworks:
        work = WORKS[framework](asked.device)
        with pyxfer.Uploader(asked.device) as up:
            rows += [floor(engine, device.index, up, framework, work, batch, asked.trials) for batch in BATCHES]
    result = Floors(device, read_environment(engine, device), tuple(rows))
    shared.write_document(asked.export_json, result)
    print(shared.page(result, *table(result)))
    return 0


def floor(
    engine: Engine,
    device: int,
    up: pyxfer.Uploader,
    framework: FrameworkName,
    work: Callable[[Any], Any],
    batch: int,
    trials: int,
) -> Row:
    """Time the work on a batch on the device and a copy of the same size, in turn."""
    images = np.random.default_rng(batch).integers(0, 256, (batch, *IMAGE_SHAPE), np.uint8)
    there = up.upload(images, framework)
    nbytes = batch * IMAGE_BYTES
    work_s, pinned_s = [], []
    with (
        closing(engine.HostBuffer(nbytes, "pinned", device)) as pinned,
        closing(engine.DeviceBuffer(nbytes, device)) as other,
        closing(engine.Copier(device)) as copier,
    ):
        lane = engine.Lane("h2d", pinned.address, other.address, nbytes, nbytes, 1)
        for trial in range(trials + WARM):
            copied_s = copier.on_stream("async", lane, 0).elapsed_s
            engine.synchronize(device)
            begun = time.perf_counter()
            row = work(there)
            taken_s = time.perf_counter() - begun
            if not np.array_equal(row, images[0, 0].astype(np.float32)):
                raise pyxfer.PyxferError(f"{framework} returned other values than were uploaded")
            if trial >= WARM:
                work_s.append(taken_s)
                pinned_s.append(copied_s)
    return Row(framework, batch, tuple(work_s), tuple(pinned_s))


def torch_work(device: int | str) -> Callable[[Any], Any]:
    """The work after `torch.upload` in the workload image-batch."""
    import torch

    del device
    return lambda images: images.to(torch.float32)[0, 0].cpu().numpy()


def tensorflow_work(device: int | str) -> Callable[[Any], Any]:
    """The work after `tf.upload` in the workload image-batch."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    place = "/CPU:0" if device == HOST else f"/GPU:{device}"

    def row(images: Any) -> Any:
        with tf.device(place):
            return tf.cast(images, tf.float32)[0, 0]

    function = tf.function(row)
    return lambda images: function(images).numpy()


WORKS: dict[str, Callable[[int | str], Callable[[Any], Any]]] = {"torch": torch_work, "tensorflow": tensorflow_work}


def table(result: Floors) -> tuple[list[str], list[list[str]]]:
    """Header and rows, one per framework and batch size."""
    header = ["framework", "batch", "trials", "its own work", "page-locked copy", "both"]
    return header, [
        [
            title(row.framework),
            f"{row.batch} images",
            str(len(row.work_s)),
            format_seconds(statistics.median(row.work_s)),
            format_seconds(statistics.median(row.pinned_s)),
            format_seconds(row.least_s),
        ]
        for row in result.rows
    ]


def markdown(result: Floors) -> str:
    """The table for docs/results.md."""
    return shared.markdown(result, *table(result))


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("frameworks", choices=[[], *FRAMEWORKS], nargs="*")
    shared.add_measuring_arguments(parser)
    parser.add_argument("--trials", type=int, default=200)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)

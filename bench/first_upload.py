"""Measures the first upload of a process, with and without cached ring settings.

    python bench/first_upload.py [--device 0] [--processes 3] [--export-json F]

Each new process initialises CUDA and uploads 24 MiB twice. Processes come in pairs with a cache directory of their own:
the first tunes the ring and writes the settings, the second reads them.

The exit status is 1 if a first upload takes more than 2 s with tuning or 0.3 s without, if an idle process uses the
CPU, or if more memory is page-locked than the budget allows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import shared

from pyxfer._document.machines import Device, Environment
from pyxfer._machine.environment import read_environment
from pyxfer.errors import UsageError
from pyxfer.native import HOST, choose
from pyxfer.units import format_seconds, format_size

NBYTES = 24 << 20
BUDGET_BYTES = 256 << 20
IDLE_S = 2.0
MAX_TUNED_S, MAX_CACHED_S, MAX_IDLE = 2.0, 0.3, 0.001


class First(msgspec.Struct, frozen=True):
    """The measurements of one process."""

    cuda_s: float
    """Initialisation of CUDA."""
    upload_s: float
    """The first upload after the initialisation."""
    again_s: float
    idle_share: float
    """CPU time as a share of the wall time, while the process is idle."""
    pinned_bytes: int


class Firsts(msgspec.Struct, frozen=True):
    """The measurements of all processes: `tuned` without cached settings, `cached` with them."""

    device: Device
    environment: Environment
    tuned: tuple[First, ...]
    cached: tuple[First, ...]


def main() -> int:
    """Run the processes and print the table; 1 if a limit is exceeded."""
    asked = _arguments()
    if asked.one:
        print(msgspec.json.encode(first(asked.device)).decode())
        return 0
    engine, device = shared.open_device(asked)
    tuned, cached = [], []
    for _ in range(asked.processes):
        with tempfile.TemporaryDirectory() as cache:
            tuned.append(_in_new_process(asked.device, cache))
            cached.append(_in_new_process(asked.device, cache))
    result = Firsts(device, read_environment(engine, device), tuple(tuned), tuple(cached))
    shared.write_document(asked.export_json, result)
    print(page(result))
    wrong = judge(result)
    print("\n".join(wrong))
    return 1 if wrong else 0


def first(device: int | str) -> First:
    """Measure in this process, which must not have used CUDA before."""
    import numpy as np

    import pyxfer
    from pyxfer._upload.device_arrays import DevicePool
    from pyxfer._upload.targets import Target

    array = np.random.default_rng(0).integers(0, 256, NBYTES, np.uint8)
    begun = time.perf_counter()
    engine = choose(device, require_gpu=device != HOST).engine
    engine.memory_info(0 if device == HOST else int(device))
    started = time.perf_counter()
    up = pyxfer.Uploader(device, max_pinned=BUDGET_BYTES)
    own = Target(DevicePool(engine, up.device, 0))
    up.upload(array, own)
    uploaded = time.perf_counter()
    up.upload(array, own)
    again = time.perf_counter()
    time.sleep(0.1)
    used_s = time.process_time()
    time.sleep(IDLE_S)
    used_s = time.process_time() - used_s
    taken = First(started - begun, uploaded - started, again - uploaded, used_s / IDLE_S, up.pinned_bytes)
    up.close()
    return taken


def _in_new_process(device: int | str, cache: str) -> First:
    command = [sys.executable, __file__, "--one", "--device", str(device)]
    ended = subprocess.run(
        command, env={**os.environ, "PYXFER_CACHE": cache}, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise UsageError(f"the uploading process ended with status {ended.returncode}: {ended.stderr.strip()[-500:]}")
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=First)


def page(result: Firsts) -> str:
    """The table: medians, one row per kind of process."""
    rows = [
        [
            name,
            *(format_seconds(statistics.median(getattr(process, field) for process in firsts)) for field in _TIMES),
            f"{100 * max(process.idle_share for process in firsts):.2f} %",
            format_size(max(process.pinned_bytes for process in firsts)),
        ]
        for name, firsts in (("tuned", result.tuned), ("cached", result.cached))
    ]
    header = ["settings", "CUDA's start", "first upload", "the next", "idle", "page-locked"]
    return shared.page(result, header, rows)


_TIMES = ("cuda_s", "upload_s", "again_s")


def judge(result: Firsts) -> list[str]:
    """The exceeded limits, one sentence each; the slowest process counts."""
    wrong = []
    for name, firsts, most_s in (("tuned", result.tuned, MAX_TUNED_S), ("cached", result.cached, MAX_CACHED_S)):
        worst_s = max(process.upload_s for process in firsts)
        if worst_s > most_s:
            wrong.append(
                f"WRONG: {name}: the first upload took {format_seconds(worst_s)}, over {format_seconds(most_s)}"
            )
    both = (*result.tuned, *result.cached)
    if max(process.idle_share for process in both) > MAX_IDLE:
        wrong.append("WRONG: an idle process uses the processor")
    if max(process.pinned_bytes for process in both) > BUDGET_BYTES:
        wrong.append("WRONG: more is page-locked than the budget")
    return wrong


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared.add_measuring_arguments(parser)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)

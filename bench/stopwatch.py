"""What a caller gets of small copies: a stopwatch around calls of the CUDA driver, without pyxfer.

    python bench/stopwatch.py [--device 0] [--rounds 25] [--export-json F]

It needs Python and libcuda.so.1 and nothing else. So small copies of `pyxfer links` and `pyxfer ceiling` can be held
against something that shares no code with them. A window is a number of calls and the wait for the last copy, between
two readings of `time.perf_counter`, with nothing queued before. Its ways are those of pyxfer:

    1 call, 18 calls, 256 calls    cuMemcpyHtoDAsync or cuMemcpyDtoHAsync, one after the other on one stream
    batch of 256                   one cuMemcpyBatchAsync (CUDA 12.8)
    streams:4                      18 copies, each divided over four streams

The calls are made by a loop in C, which `cc` compiles when the script begins, so that they cost what they cost a C
program. Without `cc` the loop is Python's, and the page says how long a call of an empty function takes in it: that
much of each call is Python's. Copies of page-locked memory have gaps of 4 KiB between them, and every byte is compared.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20)
MAX_CALLS, QUEUED, STREAMS = 256, 18, 4
GAP = 4096
WAYS = {
    "1 call": (1, 1),
    "18 calls": (QUEUED, 1),
    "256 calls": (MAX_CALLS, 1),
    "batch of 256": (MAX_CALLS, 0),
    "streams:4": (QUEUED, STREAMS),
}
"""The copies of a window, and the streams that each is divided over; 0 is one call for all."""
LOOP = """
typedef unsigned long long u64;
int run(int (*copy)(u64, u64, u64, u64), int (*wait)(u64), u64 *to, u64 *from, u64 bytes, u64 count, u64 *streams,
        u64 width) {
  int code = 0;
  for (u64 i = 0; i < count; ++i) code |= copy(to[i], from[i], bytes, streams[i % width]);
  for (u64 i = 0; i < width; ++i) code |= wait(streams[i]);
  return code;
}
"""
Word = ctypes.c_uint64
Copy = ctypes.CFUNCTYPE(ctypes.c_int, Word, Word, Word, Word)
Wait = ctypes.CFUNCTYPE(ctypes.c_int, Word)


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes: the order of access, hints for the ends, and flags."""

    _fields_ = [("order", ctypes.c_int), ("hints", ctypes.c_int * 4), ("flags", ctypes.c_uint)]


def checked(code: int, what: str) -> None:
    """End the script if a call of the driver failed."""
    if code:
        raise SystemExit(f"stopwatch: {what} returned {code}")


class Machine:
    """A device, its streams, and page-locked memory: what is sent, the device's own, and what comes back."""

    def __init__(self, driver: Any, device: int, nbytes: int) -> None:
        self.driver = driver
        context, stream, number, version = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        name = ctypes.create_string_buffer(256)
        checked(driver.cuInit(0), "cuInit")
        checked(driver.cuDeviceGet(ctypes.byref(number), device), "cuDeviceGet")
        checked(driver.cuDeviceGetName(name, len(name), number), "cuDeviceGetName")
        checked(driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
        checked(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "cuDevicePrimaryCtxRetain")
        checked(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self.name, self.version = name.value.decode(), version.value
        self.streams = (Word * STREAMS)()
        for i in range(STREAMS):
            checked(driver.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
            self.streams[i] = stream.value or 0
        self.sent, self.device, self.back = (
            self._memory(make, nbytes) for make in ("cuMemAllocHost_v2", "cuMemAlloc_v2", "cuMemAllocHost_v2")
        )
        self.batch: Any = getattr(driver, "cuMemcpyBatchAsync", None)
        self.wait = ctypes.cast(driver.cuStreamSynchronize, Wait)
        self.copies = {
            "h2d": ctypes.cast(driver.cuMemcpyHtoDAsync_v2, Copy),
            "d2h": ctypes.cast(driver.cuMemcpyDtoHAsync_v2, Copy),
        }
        ctypes.memmove(self.sent, os.urandom(nbytes), nbytes)

    def _memory(self, make: str, nbytes: int) -> int:
        found = ctypes.c_void_p()
        checked(getattr(self.driver, make)(ctypes.byref(found), ctypes.c_size_t(nbytes)), make)
        return found.value or 0


Loop = Callable[..., int]


def compiled() -> Loop | None:
    """The loop in C; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "loop.c", Path(folder) / "loop.so"
        source.write_text(LOOP)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, source], check=True)
        run = ctypes.CDLL(str(made)).run
    run.argtypes = [Copy, Wait, *([ctypes.POINTER(Word)] * 2), Word, Word, ctypes.POINTER(Word), Word]
    return run


def interpreted(copy: Any, wait: Any, to: Any, source: Any, nbytes: int, count: int, streams: Any, width: int) -> int:
    """The same loop in Python."""
    code = 0
    for i in range(count):
        code |= copy(to[i], source[i], nbytes, streams[i % width])
    for i in range(width):
        code |= wait(streams[i])
    return code


def window(machine: Machine, loop: Loop, direction: str, way: str, nbytes: int) -> Callable[[], float]:
    """A function that runs one window and returns the seconds of one copy."""
    copies, width = WAYS[way]
    part = nbytes // max(width, 1)
    places = [i * (nbytes + GAP) + j * part for i in range(copies) for j in range(max(width, 1))]
    ends = (machine.device, machine.sent) if direction == "h2d" else (machine.back, machine.device)
    to, source = ((Word * len(places))(*(end + place for place in places)) for end in ends)
    sizes = (ctypes.c_size_t * copies)(*[nbytes] * copies)
    attributes, first, failed = Attributes(order=1), ctypes.c_size_t(0), ctypes.c_size_t()
    stream = ctypes.c_void_p(machine.streams[0])

    def batch() -> int:
        code: int = machine.batch(
            to,
            source,
            sizes,
            ctypes.c_size_t(copies),
            ctypes.byref(attributes),
            ctypes.byref(first),
            ctypes.c_size_t(1),
            ctypes.byref(failed),
            stream,
        )
        waited: int = machine.wait(machine.streams[0])
        return code | waited

    def calls() -> int:
        return loop(machine.copies[direction], machine.wait, to, source, part, len(places), machine.streams, width)

    run = calls if width else batch

    def timed() -> float:
        begun = time.perf_counter()
        code = run()
        ended = time.perf_counter()
        checked(code, f"{way} {direction}")
        return (ended - begun) / copies

    return timed


def arrives(machine: Machine, direction: str, way: str, nbytes: int, run: Callable[[], float]) -> bool:
    """Whether all bytes of a window arrive."""
    copies, stride = WAYS[way][0], nbytes + GAP
    whole = copies * stride
    size = ctypes.c_size_t(whole)
    ctypes.memset(machine.back, 0, whole)
    # What is on the device is zero before h2d, and what was sent before d2h.
    source = machine.back if direction == "h2d" else machine.sent
    checked(machine.driver.cuMemcpyHtoD_v2(Word(machine.device), ctypes.c_void_p(source), size), "cuMemcpyHtoD")
    run()
    if direction == "h2d":
        checked(
            machine.driver.cuMemcpyDtoH_v2(ctypes.c_void_p(machine.back), Word(machine.device), size), "cuMemcpyDtoH"
        )
    found, sent = (ctypes.string_at(at, whole) for at in (machine.back, machine.sent))
    parts = (slice(i * stride, i * stride + nbytes) for i in range(copies))
    return all(found[part] == sent[part] for part in parts)


def empty_call_s() -> float:
    """Seconds of a call of an empty function through ctypes."""
    nothing = ctypes.CDLL(None).labs
    begun = time.perf_counter()
    for _ in range(100_000):
        nothing(1)
    return (time.perf_counter() - begun) / 100_000


def measure(machine: Machine, loop: Loop, sizes: Sequence[int], rounds: int) -> list[dict[str, Any]]:
    """All rows, in rounds of shuffled order."""
    rows: list[tuple[dict[str, Any], Callable[[], float]]] = []
    for nbytes in sizes:
        for direction in ("h2d", "d2h"):
            for way, (_, width) in WAYS.items():
                if width or machine.batch:
                    run = window(machine, loop, direction, way, nbytes)
                    verified = arrives(machine, direction, way, nbytes, run)
                    rows.append(
                        (
                            {"nbytes": nbytes, "direction": direction, "way": way, "verified": verified, "seconds": []},
                            run,
                        )
                    )
    shuffle = random.Random(2).shuffle  # noqa: S311 - an order of rounds
    for _ in range(rounds):
        shuffle(order := list(rows))
        for row, run in order:
            row["seconds"].append(run())
    for row, _ in rows:
        row["gbps"] = row["nbytes"] / median(row["seconds"]) / 1e9
    return [row for row, _ in rows]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each size and direction, a column for each way."""
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    lines = [["GB/s", "", *ways]]
    for nbytes, direction in dict.fromkeys((row["nbytes"], row["direction"]) for row in rows):
        own = {row["way"]: row for row in rows if (row["nbytes"], row["direction"]) == (nbytes, direction)}
        cells = [f"{own[way]['gbps']:.2f}" if own[way]["verified"] else "WRONG" for way in ways]
        lines.append([f"{nbytes >> 10} KiB", direction, *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def main(driver: Any = None, arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description="What a caller gets of small copies, by the driver alone.")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--export-json", type=Path)
    asked = parser.parse_args(arguments)
    machine = Machine(driver or ctypes.CDLL("libcuda.so.1"), asked.device, MAX_CALLS * (max(asked.sizes) + GAP))
    loop = compiled()
    rows = measure(machine, loop or interpreted, asked.sizes, asked.rounds)
    empty_s = empty_call_s()
    by = "a loop in C" if loop else f"Python; an empty call takes {empty_s * 1e6:.2f} us of each"
    print(f"{machine.name}, driver API {machine.version}, {os.uname().nodename}")
    print(f"medians of {asked.rounds} windows; calls by {by}\n")
    print(table(rows))
    if asked.export_json:
        document = {"kind": "stopwatch", "schema_version": 1, "device": machine.name, "driver_api": machine.version}
        document |= {"calls": "c" if loop else "python", "empty_call_s": empty_s, "rows": rows}
        asked.export_json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["verified"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

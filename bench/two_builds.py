"""Compares two builds of pyxfer on one GPU and reports whether the second is slower.

    python bench/two_builds.py BEFORE AFTER [--sizes 4KiB:1GiB:x4] [--rounds 8] [--processes 6] [--export-json F]

BEFORE and AFTER are folders with an installed pyxfer (`pip install --target`). Each build runs in its own process, with
a ring of the same settings; one process copies while the other sleeps. A round is a burst of copies with one build and
then with the other, so that a change of the machine's speed affects both. The placement of a process in memory matters
more than the build, so the script starts several pairs of processes.

The ratio is time after / time before. Each pair of processes gives the median over its rounds; the table has the
median, the least and the greatest of these. With six pairs the true median is between the least and the greatest in
97 % of cases. A row is slower if its least ratio is above `--tolerance`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO, cast

KINDS = ("upload", "upload-pinned", "download", "download-pinned")
BURST_S = 4e-3
MOST_IN_BURST = 200
SPREAD_BYTES = 256 << 20
"""Total size of the arrays of one size, so that they exceed the caches; at least two arrays."""


def serve() -> None:
    """The process of one build: for each line of JSON (kind, size, count), print the seconds of each call."""
    sys.path[:0] = [os.environ["TWO_BUILDS_SITE"]]
    import importlib
    import time

    import numpy as np

    import pyxfer
    from pyxfer.native import load

    engine = load("cuda" if os.environ["TWO_BUILDS_DEVICE"] != "host" else "host")
    settings = json.loads(os.environ["TWO_BUILDS_RING"])
    ring = engine.Ring(0, *settings)
    made: dict[tuple[str, int], list[tuple[int, Any]]] = {}

    def fresh(kind: str, nbytes: int) -> tuple[int, Any]:
        if kind.endswith("pinned"):
            locked = engine.HostBuffer(nbytes, "pinned")
            return locked.address, locked
        array = np.ones(nbytes, np.uint8)
        return array.ctypes.data, array

    def arrays(kind: str, nbytes: int) -> list[tuple[int, Any]]:
        if (kind, nbytes) not in made:
            made.clear()  # arrays of the previous size
            count = max(2, min(8, SPREAD_BYTES // nbytes))
            made[kind, nbytes] = [fresh(kind, nbytes) for _ in range(count)]
        return made[kind, nbytes]

    memory = engine.DeviceBuffer(int(os.environ["TWO_BUILDS_MOST"]))
    print(json.dumps([pyxfer.__file__, engine.device_properties(0).name]), flush=True)
    for line in sys.stdin:
        kind, nbytes, count = json.loads(line)
        hosts = arrays(kind, nbytes)
        times = []
        torch = importlib.import_module("torch") if kind == "torch" else None
        for turn in range(count):
            address, host = hosts[turn % len(hosts)]
            place = (address, 1, (nbytes,), (1,), memory.address, None)
            begun = time.perf_counter()
            if torch is not None:
                pyxfer.upload(host, to="torch")
                torch.cuda.synchronize()
            elif kind.startswith("upload"):
                ring.upload(*place, True)
            else:
                ring.download(*place)
            times.append(time.perf_counter() - begun)
        print(json.dumps(times), flush=True)


class Build:
    """The process of one build."""

    def __init__(self, folder: str, ring: list[Any], most: int, device: str) -> None:
        variables = {
            "TWO_BUILDS_SITE": str(Path(folder).resolve()),
            "TWO_BUILDS_RING": json.dumps(ring),
            "TWO_BUILDS_MOST": str(most),
            "TWO_BUILDS_DEVICE": device,
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self._to = cast("TextIO", self._process.stdin)
        self._from = cast("TextIO", self._process.stdout)
        self.file, self.device = json.loads(self._read())

    def _read(self) -> str:
        line = self._from.readline()
        if not line:
            raise SystemExit(f"the process of a build ended with status {self._process.wait()}")
        return line.strip()

    def median_s(self, kind: str, nbytes: int, count: int) -> float:
        """Median duration of `count` calls."""
        print(json.dumps([kind, nbytes, count]), file=self._to, flush=True)
        return float(statistics.median(json.loads(self._read())))

    def close(self) -> None:
        """End the process."""
        self._to.close()
        self._process.wait(60)


def compare(before: Build, after: Build, kind: str, nbytes: int, rounds: int) -> list[tuple[float, float]]:
    """The medians of both bursts, for each round."""
    warm = min(build.median_s(kind, nbytes, 6) for build in (before, after))
    count = max(3, min(MOST_IN_BURST, int(BURST_S / warm)))
    pairs = []
    for number in range(rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        medians = {build: build.median_s(kind, nbytes, count) for build in order}
        pairs.append((medians[before], medians[after]))
    return pairs


def row_of(kind: str, nbytes: int, processes: list[list[tuple[float, float]]]) -> dict[str, Any]:
    """The table row of one kind and size over all pairs of processes."""
    ratios = [statistics.median(after / before for before, after in pairs) for pairs in processes]
    every = [pair for pairs in processes for pair in pairs]
    return {
        "kind": kind,
        "nbytes": nbytes,
        "before_s": statistics.median(before for before, _ in every),
        "after_s": statistics.median(after for _, after in every),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
        "rounds_s": processes,
    }


def run(given: argparse.Namespace, sizes: list[int], ring: list[Any]) -> tuple[str, list[dict[str, Any]]]:
    """Measure with several pairs of processes; return the name of the device and all rows."""
    device = ""
    kinds = given.kinds.split(",")
    found: dict[tuple[str, int], list[list[tuple[float, float]]]] = {
        (kind, nbytes): [] for kind in kinds for nbytes in sizes
    }
    for number in range(given.processes):
        folders = [given.before, given.after]
        with ExitStack() as stack:
            builds = {}
            for folder in folders if number % 2 == 0 else folders[::-1]:
                builds[folder] = Build(folder, ring, max(sizes), given.device)
                stack.callback(builds[folder].close)
            if number == 0:
                after = builds[given.after]
                device = after.device
                print(f"device  {device}\nring    {ring}")
                print(f"before  {builds[given.before].file}\nafter   {after.file}\n")
            for (kind, nbytes), processes in found.items():
                processes.append(compare(builds[given.before], builds[given.after], kind, nbytes, given.rounds))
    return device, [row_of(kind, nbytes, processes) for (kind, nbytes), processes in found.items()]


def main() -> int:
    """Compare the builds and print the table; 1 if a row is slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--sizes", default="4KiB:1GiB:x4")
    parser.add_argument("--kinds", default=",".join(KINDS), help="also torch: pyxfer.upload of a NumPy array")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--tolerance", type=float, default=1.01)
    parser.add_argument("--ring", default='[16, 262144, 256, "streaming", 50, 65536]', help="engine.Ring's arguments")
    parser.add_argument("--device", default="0")
    parser.add_argument("--export-json")
    given = parser.parse_args()
    sys.path[:0] = [given.after]
    from pyxfer._document.files import write_whole
    from pyxfer.units import sizes_of

    ring = json.loads(given.ring)
    device, rows = run(given, list(sizes_of(given.sizes, "--sizes")), ring)
    print(f"{'':16}{'bytes':>12}{'before us':>12}{'after us':>12}{'ratio':>8}   processes")
    for row in rows:
        mark = "  slower" if row["least"] > given.tolerance else ""
        print(
            f"{row['kind']:16}{row['nbytes']:12}{row['before_s'] * 1e6:12.2f}{row['after_s'] * 1e6:12.2f}"
            f"{row['ratio']:8.4f}   {row['least']:.4f} to {row['greatest']:.4f}{mark}"
        )
    if given.export_json:
        taken_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        about = {"kind": "two-builds", "taken_at": taken_at, "device": device, "ring": ring, "schema_version": 1}
        write_whole(given.export_json, json.dumps({**about, "rows": rows}).encode())
    return 1 if any(row["least"] > given.tolerance for row in rows) else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main())

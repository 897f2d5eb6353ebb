"""Compares two builds of pyxfer on one GPU and reports whether the second is slower.

    python bench/two_builds.py BEFORE AFTER [--sizes 4KiB:1GiB:x4] [--rounds 8] [--processes 6] [--export-json F]

BEFORE and AFTER are folders with an installed pyxfer (`pip install --target`). One process loads both builds, each with
a ring of the same settings, and both copy between the same arrays: placement in memory changes the time of a copy by
more than a build does. A round is a burst of copies with one build and then with the other; the order alternates.
The script starts several processes, because placement also differs between processes.

The ratio is time after / time before. Each process gives the median over its rounds; the table has the median, the
least and the greatest of these. With six processes the true median is between the least and the greatest in 97 % of
cases. A row is slower if its least ratio is above `--tolerance`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

KINDS = ("upload", "upload-pinned", "download", "download-pinned")
BURST_S = 4e-3
MAX_IN_BURST = 200
SPREAD_BYTES = 256 << 20
"""Total size of the arrays of one size, so that they exceed the caches; at least two arrays."""


class Build:
    """One build's modules and ring, in this process."""

    def __init__(self, folder: str, runtime: str, ring: list[Any]) -> None:
        _forget_pyxfer()
        sys.path.insert(0, str(Path(folder).resolve()))
        try:
            self.pyxfer = importlib.import_module("pyxfer")
            self.engine = importlib.import_module("pyxfer.native").load(runtime)
        finally:
            del sys.path[0]
        self.ring = self.engine.Ring(0, *ring)
        self._modules = _forget_pyxfer()

    def activate(self) -> None:
        """Let imports of pyxfer find this build: its functions import some modules at their first call."""
        sys.modules.update(self._modules)

    def deactivate(self) -> None:
        self._modules = _forget_pyxfer()


def _forget_pyxfer() -> dict[str, Any]:
    names = [name for name in sys.modules if name == "pyxfer" or name.startswith("pyxfer.")]
    return {name: sys.modules.pop(name) for name in names}


class Arrays:
    """The arrays that both builds copy from and to."""

    def __init__(self, engine: Any, most: int) -> None:
        self._engine = engine
        self.device_memory = engine.DeviceBuffer(most)
        self._kept: tuple[tuple[bool, int], list[tuple[int, Any]]] = ((False, 0), [])

    def of(self, kind: str, nbytes: int) -> list[tuple[int, Any]]:
        """Address and owner of each array."""
        key = kind.endswith("pinned"), nbytes
        if self._kept[0] != key:
            self._kept = ((False, 0), [])  # releases the previous arrays
            made = [self._make(*key) for _ in range(max(2, min(8, SPREAD_BYTES // nbytes)))]
            self._kept = (key, made)
        return self._kept[1]

    def _make(self, pinned: bool, nbytes: int) -> tuple[int, Any]:
        if pinned:
            locked = self._engine.HostBuffer(nbytes, "pinned")
            return locked.address, locked
        import numpy as np

        array = np.ones(nbytes, np.uint8)
        return array.ctypes.data, array


def burst_s(build: Build, arrays: Arrays, kind: str, nbytes: int, count: int) -> float:
    """Median duration of `count` calls."""
    hosts = arrays.of(kind, nbytes)
    build.activate()
    times = []
    torch: Any = importlib.import_module("torch") if kind == "torch" else None
    for turn in range(count):
        address, host = hosts[turn % len(hosts)]
        place = (address, 1, (nbytes,), (1,), arrays.device_memory.address, None)
        begun = time.perf_counter()
        if torch is not None:
            build.pyxfer.upload(host, to="torch")
            torch.cuda.synchronize()
        elif kind.startswith("upload"):
            build.ring.upload(*place, True)
        else:
            build.ring.download(*place)
        times.append(time.perf_counter() - begun)
    build.deactivate()
    return statistics.median(times)


def compare(
    before: Build, after: Build, arrays: Arrays, kind: str, nbytes: int, rounds: int
) -> list[tuple[float, float]]:
    """The medians of both bursts, for each round."""
    warm = min(burst_s(build, arrays, kind, nbytes, 6) for build in (before, after))
    count = max(3, min(MAX_IN_BURST, int(BURST_S / warm)))
    pairs = []
    for number in range(rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        medians = {build: burst_s(build, arrays, kind, nbytes, count) for build in order}
        pairs.append((medians[before], medians[after]))
    return pairs


def serve(order: str) -> None:
    """One process: load both builds, print their files, then the rounds of each kind and size as a line of JSON."""
    given = json.loads(sys.stdin.readline())
    runtime = "cuda" if given["device"] != "host" else "host"
    folders = {"before": given["before"], "after": given["after"]}
    builds = {name: Build(folders[name], runtime, given["ring"]) for name in order.split(",")}
    arrays = Arrays(builds["after"].engine, max(given["sizes"]))
    device = builds["after"].engine.device_properties(0).name
    print(json.dumps([device, *(builds[name].pyxfer.__file__ for name in ("before", "after"))]), flush=True)
    for kind in given["kinds"]:
        for nbytes in given["sizes"]:
            pairs = compare(builds["before"], builds["after"], arrays, kind, nbytes, given["rounds"])
            print(json.dumps([kind, nbytes, pairs]), flush=True)


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
    """Measure in several processes; return the name of the device and all rows."""
    kinds = given.kinds.split(",")
    folders = {"before": given.before, "after": given.after}
    work = {**folders, "device": given.device, "ring": ring, "kinds": kinds, "sizes": sizes, "rounds": given.rounds}
    device = ""
    found: dict[tuple[str, int], list[list[tuple[float, float]]]] = {(k, n): [] for k in kinds for n in sizes}
    for number in range(given.processes):
        order = "before,after" if number % 2 == 0 else "after,before"
        command = [sys.executable, __file__, "--serve", order]
        ended = subprocess.run(command, input=json.dumps(work) + "\n", stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise SystemExit(f"the measuring process ended with status {ended.returncode}")
        first, *lines = [json.loads(line) for line in ended.stdout.splitlines()]
        if number == 0:
            device = first[0]
            print(f"device  {device}\nring    {ring}\nbefore  {first[1]}\nafter   {first[2]}\n")
        for kind, nbytes, pairs in lines:
            found[kind, nbytes].append(pairs)
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
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())

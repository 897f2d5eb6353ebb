"""Two builds of pyxfer in turns on one GPU: is one of them slower to upload or download?

    python bench/two_builds.py BEFORE AFTER [--sizes 4KiB:1GiB:x4] [--rounds 40] [--export-json F]

BEFORE and AFTER are folders that each hold an installed pyxfer (`pip install --target`). Each build runs in a process
of its own; both keep a ring of the same settings, and one of them moves bytes while the other sleeps. A round moves a
burst of every kind and size with the one build and then with the other, so that a change of the machine meets both.
The ratio is time after / time before: the median over rounds, with the interval that holds it in 95 % of cases where
rounds are independent. A row fails where the interval lies above `--tolerance` as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import comb
from pathlib import Path
from typing import Any

KINDS = ("upload", "upload-pinned", "download", "download-pinned", "torch")
BURST_S = 4e-3
MOST_IN_BURST = 200
SPREAD_BYTES = 256 << 20
"""Arrays of one size together, so that a cache does not hold them; at least two arrays."""


def serve() -> None:
    """The process of one build: answers each line of JSON, a kind, a size and a count, with the seconds of each call."""
    sys.path[:0] = [os.environ["TWO_BUILDS_SITE"]]
    import time

    import numpy as np

    import pyxfer
    from pyxfer.native import load

    engine = load("cuda" if os.environ["TWO_BUILDS_DEVICE"] != "host" else "host")
    settings = json.loads(os.environ["TWO_BUILDS_RING"])
    ring = engine.Ring(0, *settings)
    made: dict[tuple[str, int], Any] = {}

    def arrays(kind: str, nbytes: int) -> list[Any]:
        if (kind, nbytes) not in made:
            made.clear()  # those of the size before
            count = max(2, min(8, SPREAD_BYTES // nbytes))
            if kind.endswith("pinned"):
                held = [engine.HostBuffer(nbytes, "pinned") for _ in range(count)]
                made[kind, nbytes] = [(each.address, each) for each in held]
            else:
                held = [np.ones(nbytes, np.uint8) for _ in range(count)]
                made[kind, nbytes] = [(each.ctypes.data, each) for each in held]
        return made[kind, nbytes]  # type: ignore[no-any-return]

    memory = engine.DeviceBuffer(int(os.environ["TWO_BUILDS_MOST"]))
    torch: Any = None
    print(pyxfer.__file__, flush=True)
    for line in sys.stdin:
        kind, nbytes, count = json.loads(line)
        hosts = arrays(kind, nbytes)
        times = []
        if kind == "torch" and torch is None:
            import torch
        for turn in range(count):
            address, host = hosts[turn % len(hosts)]
            place = (address, 1, (nbytes,), (1,), memory.address, None)
            begun = time.perf_counter()
            if kind == "torch":
                pyxfer.upload(host, to="torch")
                torch.cuda.synchronize()
            elif kind.startswith("upload"):
                ring.upload(*place, True)
            else:
                ring.download(*place)
            times.append(time.perf_counter() - begun)
        print(json.dumps(times), flush=True)


class Build:
    """One build's process."""

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
        self.found = self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"a build's process ended with {self._process.wait()}")
        return line.strip()

    def times(self, kind: str, nbytes: int, count: int) -> list[float]:
        assert self._process.stdin is not None
        print(json.dumps([kind, nbytes, count]), file=self._process.stdin, flush=True)
        return [float(each) for each in json.loads(self._read())]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


@contextmanager
def two(before: str, after: str, ring: list[Any], most: int, device: str) -> Iterator[tuple[Build, Build]]:
    with ExitStack() as stack:
        builds = []
        for folder in (before, after):
            builds.append(Build(folder, ring, most, device))
            stack.callback(builds[-1].close)
        yield builds[0], builds[1]


def compare(before: Build, after: Build, kind: str, nbytes: int, rounds: int) -> dict[str, Any]:
    """The row of one kind and size."""
    least = min(before.times(kind, nbytes, 6)[1:] + after.times(kind, nbytes, 6)[1:])
    count = max(3, min(MOST_IN_BURST, int(BURST_S / least)))
    pairs = []
    for number in range(rounds):
        order = (before, after) if number % 2 == 0 else (after, before)
        medians = {build: statistics.median(build.times(kind, nbytes, count)) for build in order}
        pairs.append((medians[before], medians[after]))
    ratios = sorted(b / a for a, b in pairs)
    out = outside(rounds)
    return {
        "kind": kind,
        "nbytes": nbytes,
        "rounds": rounds,
        "calls_in_burst": count,
        "before_s": statistics.median(a for a, _ in pairs),
        "after_s": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(ratios),
        "low": ratios[out],
        "high": ratios[-1 - out],
        "pairs_s": pairs,
    }


def outside(count: int) -> int:
    """How many order statistics lie below the 95 % interval of a median."""
    below, total = 0, 0.0
    while (total := total + comb(count, below) / 2**count) <= 0.025:
        below += 1
    return max(0, below - 1)


def sizes_of(text: str) -> list[int]:
    from pyxfer.raw.request import checked_sizes

    return list(checked_sizes(text))


def main() -> int:
    """Compare the two builds and print a table; 1 where one row is slower for certain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--sizes", default="4KiB:1GiB:x4")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tolerance", type=float, default=1.01)
    parser.add_argument(
        "--ring", default='[16, 262144, 256, "streaming", 50, 65536]', help="of both, as engine.Ring takes it"
    )
    parser.add_argument("--device", default="0")
    parser.add_argument("--export-json")
    given = parser.parse_args()
    sys.path[:0] = [given.after]
    sizes = sizes_of(given.sizes)
    rows = []
    with two(given.before, given.after, json.loads(given.ring), max(sizes), given.device) as (before, after):
        print(f"before  {before.found}\nafter   {after.found}\nring    {given.ring}\n")
        print(f"{'':16}{'bytes':>12}{'before us':>12}{'after us':>12}{'ratio':>8}   95 %")
        for kind in given.kinds.split(","):
            for nbytes in sizes:
                rounds = given.rounds if nbytes <= 64 << 20 else max(6, given.rounds // 3)
                row = compare(before, after, kind, nbytes, rounds)
                rows.append(row)
                mark = "  slower" if row["low"] > given.tolerance else ""
                print(
                    f"{kind:16}{nbytes:12}{row['before_s'] * 1e6:12.2f}{row['after_s'] * 1e6:12.2f}{row['ratio']:8.4f}"
                    f"   {row['low']:.4f} to {row['high']:.4f}{mark}",
                    flush=True,
                )
    if given.export_json:
        document = {"kind": "two-builds", "ring": json.loads(given.ring), "rows": rows, "schema_version": 1}
        Path(given.export_json).write_text(json.dumps(document), encoding="utf-8")
    return 1 if any(row["low"] > given.tolerance for row in rows) else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main())

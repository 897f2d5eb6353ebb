"""A tracer does not use the program's heap."""

from __future__ import annotations

import subprocess
import sys

# When a mapped block of at most 32 MiB is freed, glibc raises its thresholds permanently. Memory that was trimmed and
# faulted in again before then stays in the heap.
PROGRAM = """
import resource
import numpy as np
from pyxfer.native import load
from pyxfer._trace.collector import Collector

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [np.full(2 << 20, 1, np.uint8) for _ in range(4)]
    kept.clear()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
collector = Collector(load("host"))
collector.start()
for _ in range(3):
    collector.take()
collector.close()
faults()
print(before, faults())
"""


def test_a_tracer_does_not_change_the_programs_heap() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    before, after = map(int, ended.stdout.split())
    assert before > 0
    assert after >= before / 2

"""A tracer takes nothing of the program's heap, and changes nothing about it."""

from __future__ import annotations

import subprocess
import sys

# glibc raises its thresholds for good when a block of at most 32 MiB that it had mapped is freed: what was trimmed and
# faulted in anew each time stays in the heap then.
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


def test_memory_of_the_program_comes_from_where_it_came_before_a_tracer() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    before, after = map(int, ended.stdout.split())
    assert before > 0
    assert after >= before / 2

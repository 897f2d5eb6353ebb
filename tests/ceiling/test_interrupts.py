"""Ctrl-C, once and twice, in programs that use the library: they end soon and keep their results."""

from __future__ import annotations

from pathlib import Path

import pytest
from ceiling.troubles import interrupted
from marks import slow

from pyxfer import Run

SLOW = "link=1e8:1e-3:1e8:1e-3"
HUNG = "stall=cudaMemcpyAsync:200:60"

RUN = """
import sys, pyxfer
ceiling = pyxfer.ceiling
print("started", flush=True)
save = lambda run: run.save(sys.argv[1])
run = ceiling("host", sizes="4KiB:1MiB:x4", modes=("auto", "staged"), precision=1e-6, budget_s=60.0, save_to=save)
print(run.ended, sorted({remark.code for remark in run.remarks}), flush=True)
from pyxfer.native import load
print(load("host").testing.allocated(), flush=True)
"""
# A longer grace period, because a busy machine may need it.
PATIENT = RUN.replace(
    "ceiling = pyxfer.ceiling",
    """
from functools import partial
from pyxfer._ceiling import session
session.run_interruptible = partial(session.run_interruptible, grace_s=30.0)
ceiling = pyxfer.ceiling
""",
)
# These report their start in the preparation, or after the first trials.
STARTED = 'print("started", flush=True)\n'
PREPARING = PATIENT.replace(STARTED, "").replace(
    "save_to=save",
    """save_to=save, on_progress=lambda progress: progress.phase == "preparing" and print("started", flush=True)""",
)
HUNG_MEASURING = RUN.replace(
    STARTED,
    """
from pyxfer.native import load
def hang(progress):
    if progress.phase == "measuring":
        load("host").testing.stall("cudaMemcpyAsync", 1, 60)
        print("started", flush=True)
""",
).replace("save_to=save", "save_to=save, on_progress=hang")
MEASURE = """
import time, pyxfer
from pyxfer.native import load
measure = pyxfer.measure
load("host")
print("started", flush=True)
try:
    measure(lambda: time.sleep(0.001), nbytes=1 << 20, direction="h2d", device="host", precision=1e-6, budget_s=60.0)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(load("host").testing.allocated(), flush=True)
"""


@pytest.mark.parametrize("after_s", [0.2, slow(0.4), slow(0.8), slow(1.2)])
def test_an_interrupted_run_keeps_its_results_and_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    assert interrupted(PREPARING, after_s, tmp_path, SLOW) == ["interrupted []", "[]"]
    assert Run.load(tmp_path / "run.json").ended == "interrupted"


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_device_that_does_not_answer(tmp_path: Path) -> None:
    ended, _ = interrupted(HUNG_MEASURING, 0.5, tmp_path)
    assert ended == "interrupted ['stuck']"
    assert Run.load(tmp_path / "run.json").ended == "interrupted"


@pytest.mark.parametrize("after_s", [0.1, slow(0.0), slow(0.5)])
def test_measuring_a_callable_ends_with_the_interrupt_and_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    assert interrupted(MEASURE, after_s, tmp_path, SLOW) == ["interrupted", "[]"]


@pytest.mark.slow
def test_measuring_a_callable_beside_a_device_that_does_not_answer_can_be_interrupted(tmp_path: Path) -> None:
    assert interrupted(MEASURE, 1.0, tmp_path, HUNG)[0] == "interrupted"

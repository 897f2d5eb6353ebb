"""A process that uses a real GPU: interrupted, forked, restricted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyxfer._document.runs import Run

pytestmark = pytest.mark.gpu

FORKING = """
import os, pyxfer
pyxfer.ceiling(sizes=(1 << 20,), budget_s=0.3)
child = os.fork()
if child == 0:
    try:
        pyxfer.ceiling(sizes=(1 << 20,), budget_s=0.3)
    except pyxfer.ForkedError as error:
        os.write(1, str(error).encode())
        os._exit(0)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
pyxfer.ceiling(sizes=(1 << 20,), budget_s=0.3)
"""


@pytest.mark.parametrize("after_s", [0.3, 1.5, 3.0])
def test_ctrl_c_ends_a_run_within_a_second_and_saves_it(tmp_path: Path, after_s: float) -> None:
    saved = tmp_path / "run.json"
    command = [sys.executable, "-m", "pyxfer", "ceiling", "--budget", "60s", "--export-json", str(saved)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, said = process.communicate(timeout=20)
    # A library load or context creation ends before the signal is handled; the second begins after that.
    assert time.monotonic() - begun < (3.0 if after_s < 1 else 1.8)
    assert process.returncode == 130
    assert "Traceback" not in said
    if after_s > 1:
        assert Run.load(saved).ended == "interrupted"


def test_a_forked_child_raises_and_the_parent_continues() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True)
    assert "CUDA does not survive a fork" in done.stdout
    assert done.stdout.rstrip().endswith("0")


def test_without_visible_devices_the_host_is_measured_and_a_gpu_can_be_required() -> None:
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pyxfer", "list"]
    listed = subprocess.run(command, env=hidden, capture_output=True, text=True, timeout=60, check=True)
    assert "host memory, not a PCIe link" in listed.stdout
    required = [sys.executable, "-m", "pyxfer", "ceiling", "--require-gpu"]
    refused = subprocess.run(required, env=hidden, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 3
    assert "CUDA_VISIBLE_DEVICES" in refused.stderr

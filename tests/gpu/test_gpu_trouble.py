from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import pyxfer
from pyxfer._document.runs import Run
from pyxfer.errors import CudaError, CudaMemoryError, UsageError
from pyxfer.native import Engine

pytestmark = pytest.mark.gpu
MIB, TIB = 1 << 20, 1 << 40


def small() -> Run:
    return pyxfer.ceiling(sizes=(MIB,), directions=("h2d",), memories=("pinned",), precision=1.0, budget_s=1.0)


def test_a_buffer_larger_than_the_device_is_refused_and_a_smaller_one_is_not(gpu_engine: Engine) -> None:
    with pytest.raises(CudaMemoryError, match="ask for smaller sizes"):
        gpu_engine.DeviceBuffer(TIB)
    with closing(gpu_engine.DeviceBuffer(MIB)) as buffer:
        assert buffer.nbytes == MIB


def test_a_missing_device_is_an_error(gpu_engine: Engine) -> None:
    with pytest.raises(CudaError, match="invalid device ordinal"):
        gpu_engine.DeviceBuffer(MIB, gpu_engine.device_count())
    with pytest.raises(UsageError, match="none of the devices that CUDA shows"):
        pyxfer.ceiling(gpu_engine.device_count())


def test_another_process_on_the_device_is_named(meeting_place: Path) -> None:
    script = (
        "import sys, pathlib, pyxfer\n"
        "from pyxfer._measure import exclusive\n"
        "exclusive._shared_folder = lambda: pathlib.Path(sys.argv[1])\n"
        "def began(_): print('measuring', flush=True)\n"
        "while True: pyxfer.ceiling(sizes=[64 << 20], precision=1e-9, budget_s=8.0, on_progress=began)\n"
    )
    command = [sys.executable, "-c", script, str(meeting_place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "measuring\n"
        run = small()
        other.kill()
    (remark,) = (remark for remark in run.remarks if remark.code == "contended")
    assert str(other.pid) in remark.text

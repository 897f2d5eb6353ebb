"""NVIDIA's assembler accepts the text of the kernels for every device, old and new."""

from __future__ import annotations

import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "csrc/links/kernel_text.cpp"
# Every generation that ptxas 12.9 knows from the text's own target on.
ARCHITECTURES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121)


@pytest.fixture(scope="module")
def ptxas() -> Path:
    try:
        found = Path(str(distribution("nvidia-cuda-nvcc-cu12").locate_file("nvidia/cuda_nvcc/bin/ptxas")))
    except PackageNotFoundError:
        pytest.skip("NVIDIA's wheel with ptxas is not installed: pip install 'pyxfer[dev]'")
    if not found.exists():
        pytest.skip("NVIDIA's wheel has no ptxas for this processor")
    return found


@pytest.fixture(scope="module")
def text() -> str:
    if not SOURCE.exists():
        pytest.skip("the sources are not beside the tests")
    return SOURCE.read_text().partition('R"(')[2].partition(')";')[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_text_is_assembled(ptxas: Path, text: str, tmp_path: Path, architecture: int) -> None:
    (tmp_path / "kernels.ptx").write_text(text)
    made = subprocess.run(
        [ptxas, f"-arch=sm_{architecture}", "-v", "-o", tmp_path / "kernels.cubin", tmp_path / "kernels.ptx"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr.count("0 bytes spill stores, 0 bytes spill loads") == 3  # one for each kernel
    assert (tmp_path / "kernels.cubin").stat().st_size > 0

"""The choice of the CUPTI library; some tests use NVIDIA's library if it is installed."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from pyxfer.errors import CudaUnavailableError, TraceUnavailableError
from pyxfer.native import load

KINDS = ["copies"]
CAPACITY_BYTES = 1 << 20


@pytest.fixture
def cupti() -> str:
    """The library of NVIDIA's wheel."""
    try:
        wheel = distribution("nvidia-cuda-cupti-cu12")
    except PackageNotFoundError:
        pytest.skip("CUPTI is not installed (pip install nvidia-cuda-cupti-cu12)")
    return str(wheel.locate_file("nvidia/cuda_cupti/lib/libcupti.so.12"))


@pytest.fixture
def without_driver() -> None:
    try:
        load("cuda").device_count()
    except CudaUnavailableError:
        return
    pytest.skip("this machine has a GPU whose driver accepts the library")


def refusal(*libraries: str) -> str:
    with pytest.raises(TraceUnavailableError) as caught:
        load("cuda").Tracer(libraries, KINDS, CAPACITY_BYTES)
    return str(caught.value)


def test_a_missing_library_is_named() -> None:
    assert refusal("/nowhere/libcupti.so.12") == (
        "no CUPTI library can be used here: /nowhere/libcupti.so.12: cannot open shared object file: "
        "No such file or directory"
    )


def test_a_file_that_is_not_a_library_is_named(tmp_path: Path) -> None:
    file = tmp_path / "libcupti.so"
    file.write_text("not a library")
    assert refusal(str(file)).startswith(f"no CUPTI library can be used here: {file}: ")


def test_a_library_other_than_cupti_is_named() -> None:
    assert refusal("libm.so.6").endswith("libm.so.6: it has no cuptiGetVersion, so it is not CUPTI")


def test_all_tried_libraries_are_named() -> None:
    text = refusal("/nowhere/libcupti.so.12", "libm.so.6")
    assert "/nowhere/libcupti.so.12: " in text
    assert "libm.so.6: " in text


def test_an_empty_list_of_libraries_is_refused() -> None:
    assert refusal() == "no CUPTI library can be used here: none was named"


def test_nvidias_library_is_opened_without_a_driver(cupti: str) -> None:
    with closing(load("cuda").Tracer(["/nowhere/libcupti.so.12", cupti], KINDS, CAPACITY_BYTES)) as tracer:
        assert tracer.library == cupti
        assert 18 <= tracer.version < 30
        assert len(tracer.take().records) == 0


@pytest.mark.usefixtures("without_driver")
def test_nvidias_library_is_refused_without_a_driver(cupti: str) -> None:
    with closing(load("cuda").Tracer([cupti], KINDS, CAPACITY_BYTES)) as tracer:
        for _ in range(2):
            with pytest.raises(TraceUnavailableError) as caught:
                tracer.start()
            assert str(caught.value) == (
                f"no CUPTI library can be used here: {cupti}: cuptiSubscribe failed with "
                "CUPTI_ERROR_NOT_INITIALIZED (15): there is no driver, or it is older than this library"
            )

"""Which library the records come from, and the reason where there is none: with NVIDIA's own where it is installed."""

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
        pytest.skip("there is no CUPTI here: install nvidia-cuda-cupti-cu12")
    return str(wheel.locate_file("nvidia/cuda_cupti/lib/libcupti.so.12"))


@pytest.fixture
def without_driver() -> None:
    try:
        load("cuda").device_count()
    except CudaUnavailableError:
        return
    pytest.skip("there is a GPU here, and its driver takes this library")


def refusal(*libraries: str) -> str:
    with pytest.raises(TraceUnavailableError) as caught:
        load("cuda").Tracer(libraries, KINDS, CAPACITY_BYTES)
    return str(caught.value)


def test_a_library_that_is_not_there_is_named() -> None:
    assert refusal("/nowhere/libcupti.so.12") == (
        "no CUPTI library can be used here: /nowhere/libcupti.so.12: cannot open shared object file: "
        "No such file or directory"
    )


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    file = tmp_path / "libcupti.so"
    file.write_text("not a library")
    assert refusal(str(file)).startswith(f"no CUPTI library can be used here: {file}: ")


def test_a_library_that_is_something_else_is_named() -> None:
    assert refusal("libm.so.6").endswith("libm.so.6: it has no cuptiGetVersion, so it is not CUPTI")


def test_every_library_that_was_tried_is_named() -> None:
    text = refusal("/nowhere/libcupti.so.12", "libm.so.6")
    assert "/nowhere/libcupti.so.12: " in text
    assert "libm.so.6: " in text


def test_without_any_library_that_is_said() -> None:
    assert refusal() == "no CUPTI library can be used here: none was named"


def test_nvidias_library_is_opened_without_a_driver(cupti: str) -> None:
    with closing(load("cuda").Tracer(["/nowhere/libcupti.so.12", cupti], KINDS, CAPACITY_BYTES)) as tracer:
        assert tracer.library == cupti
        assert 18 <= tracer.version < 30
        assert len(tracer.take().records) == 0


@pytest.mark.usefixtures("without_driver")
def test_nvidias_library_is_refused_without_a_driver_with_its_reason(cupti: str) -> None:
    with closing(load("cuda").Tracer([cupti], KINDS, CAPACITY_BYTES)) as tracer:
        for _ in range(2):
            with pytest.raises(TraceUnavailableError) as caught:
                tracer.start()
            assert str(caught.value) == (
                f"no CUPTI library can be used here: {cupti}: cuptiSubscribe failed with "
                "CUPTI_ERROR_NOT_INITIALIZED (15): there is no driver, or it is older than this library"
            )

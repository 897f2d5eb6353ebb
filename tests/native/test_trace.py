"""The tracer on the host runtime, which implements CUPTI, and NVIDIA's library if it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

import pytest
from native.scenarios import NBYTES, lanes

from pyxfer._trace.records import RECORD, Kind
from pyxfer.errors import CudaUnavailableError, TraceUnavailableError
from pyxfer.native import load

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Taken, Tracer


CAPACITY_BYTES = 1 << 20


@pytest.fixture
def tracer(engine: Engine) -> Iterator[Tracer]:
    with closing(engine.Tracer([], engine.trace_kinds, CAPACITY_BYTES)) as made:
        yield made


def copied(engine: Engine, tracer: Tracer) -> Taken:
    """The records of one copy in each direction."""
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0)) as copier:
        tracer.start()
        copier.on_stream("async", h2d, 0)
        copier.on_stream("async", d2h, 0)
        tracer.stop()
        return tracer.take()


def test_the_table_has_the_documented_columns(tracer: Tracer) -> None:
    assert tracer.take().records.dtype == RECORD


def test_the_kinds_of_records_have_words(engine: Engine) -> None:
    assert engine.trace_kinds == ("copies", "sets", "kernels", "calls", "allocations", "marks", "overhead")
    assert len(engine.trace_kinds) == len(Kind)


def test_the_table_outlives_the_tracer(engine: Engine) -> None:
    with closing(engine.Tracer([], ["copies"], CAPACITY_BYTES)) as tracer:
        records = copied(engine, tracer).records
    assert records["nbytes"].tolist() == [NBYTES, NBYTES]


KINDS = ["copies"]


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

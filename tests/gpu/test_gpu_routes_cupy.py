"""Every route of CuPy on a GPU: the right bytes, twice, in the right place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from route_checks import a_place, import_or_skip, verify

from pyxfer._frameworks import cupy as cupy_transfers
from pyxfer._frameworks.base import RefusedError
from pyxfer._frameworks.cupy import FRAMEWORK
from pyxfer._frameworks.place import IMAGE_BYTES

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Make, Route
    from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
SIZES = (64 << 10, 3 << 20)
COPYING = [route for route in FRAMEWORK.routes if route.copy is not None]
BATCHING = [route for route in FRAMEWORK.routes if route.image_batch is not None]


@pytest.fixture(autouse=True)
def cupy() -> Any:
    module = import_or_skip("cupy")
    started = FRAMEWORK.start(0, "")
    if started.cuda.value is None:
        pytest.skip(str(started.cuda.reason))
    return module


def check(route: Route, make: Make | None, engine: Engine, nbytes: int) -> None:
    assert make is not None
    with a_place(engine, nbytes) as place:
        transfer = make(place)
        for seed in (1, 2):
            seen = verify(transfer, place, engine, seed)
            assert seen.right, f"pass {seed}"
            assert seen.where == route.expected_place
            assert not seen.lent


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("route", COPYING, ids=lambda route: route.name)
def test_each_pass_of_a_copy_delivers_its_bytes(route: Route, nbytes: int, gpu_engine: Engine) -> None:
    check(route, route.copy, gpu_engine, nbytes)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("route", BATCHING, ids=lambda route: route.name)
def test_each_pass_of_an_image_batch_reads_its_row(route: Route, batch: int, gpu_engine: Engine) -> None:
    check(route, route.image_batch, gpu_engine, batch * IMAGE_BYTES)


def test_the_stream_of_a_transfer_is_the_current_one(cupy: Any, gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as place, cupy.cuda.Stream(non_blocking=True) as stream:
        assert cupy_transfers.Asarray(place).stream == stream.ptr


def test_a_size_that_is_not_a_whole_number_of_images_is_refused(gpu_engine: Engine) -> None:
    with (
        a_place(gpu_engine, 64 << 10) as place,
        pytest.raises(RefusedError, match="65536 bytes are not a whole number of images"),
    ):
        cupy_transfers.ImageBatch(place, cupy_transfers.Asarray)


def test_a_missing_gpu_gives_a_reason(cupy: Any) -> None:
    missing = cupy.cuda.runtime.getDeviceCount()
    assert (FRAMEWORK.start(missing, "").cuda.reason or "").startswith(f"CuPy cannot use GPU {missing}: ")
    FRAMEWORK.start(0, "")

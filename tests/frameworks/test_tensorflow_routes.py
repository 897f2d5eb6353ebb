"""TensorFlow's table, its ingest routes, and its other routes with a second CPU device in place of the GPU."""

from __future__ import annotations

import logging
import os
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from route_checks import HostPlace, Seen, verify

from pyxfer._frameworks import tensorflow as tensors
from pyxfer._frameworks.base import IMAGE_BYTES, Route, Transfer
from pyxfer._frameworks.context import HostArena, RouteContext
from pyxfer._frameworks.tensorflow import FRAMEWORK, start
from pyxfer.errors import MeasurementError, RefusedError
from pyxfer.native import Engine

NBYTES = 64 << 10
ROUTES = {route.name: route for route in FRAMEWORK.routes}
KDL_CPU = 1

of_copy = pytest.mark.parametrize("name", [name for name, route in ROUTES.items() if route.direction in {"h2d", "d2h"}])
of_images = pytest.mark.parametrize("name", [name for name, route in ROUTES.items() if route.image_batch])
of_ingest = pytest.mark.parametrize("name", [name for name, route in ROUTES.items() if route.direction == "ingest"])


@pytest.fixture(scope="module")
def tf() -> Any:
    """TensorFlow, started without a GPU and with a second CPU device."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("tensorflow")
        cpus = module.config.list_physical_devices("CPU")
        try:
            module.config.set_logical_device_configuration(cpus[0], [module.config.LogicalDeviceConfiguration()] * 2)
            start(None, "")
        except (RuntimeError, RefusedError) as error:
            pytest.skip(f"TensorFlow has been started otherwise in this process: {error}")
        module.config.list_logical_devices()
    return module


@pytest.fixture
def arena(engine: Engine) -> Iterator[HostArena]:
    arena = HostArena(engine, 0, 2 * IMAGE_BYTES, 0)
    yield arena
    arena.close()


@pytest.fixture
def place_of(engine: Engine, arena: HostArena) -> Iterator[Any]:
    """Make a place for a size."""
    copier = engine.Copier(0, 1, 30.0)
    yield lambda nbytes=NBYTES: HostPlace(nbytes, 0, arena, copier, engine)
    copier.close()


@pytest.fixture
def second_cpu(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the second CPU device in place of the GPU."""
    del tf
    monkeypatch.setattr(tensors, "GPU", "/device:CPU:1")
    monkeypatch.setattr(tensors, "KDL_CUDA", KDL_CPU)


def set_up(route: Route, context: RouteContext) -> Transfer:
    assert route.copy is not None
    return route.copy(context)


def check_twice(transfer: Transfer, context: RouteContext, engine: Engine) -> Seen:
    """Send other bytes the second time, so that a cached result is wrong."""
    for seed in (1, 2):
        seen = verify(transfer, context, engine, seed)
        assert seen.right
        assert transfer.result is None
    return seen


def test_without_a_device_it_starts_and_reports_its_settings(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_GPU_ALLOCATOR", "cuda_malloc_async")
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    started = start(None, "")
    assert started.version == tf.__version__
    assert started.cuda.reason == "no GPU was requested"
    assert started.settings["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert "TF_XLA_FLAGS" not in started.settings


@pytest.mark.parametrize(("value", "memory"), [("true", "grows with use"), ("false", "taken whole at the start")])
@pytest.mark.usefixtures("tf")
def test_the_variable_that_forbids_growth_is_reported(value: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", value)
    assert start(None, "").settings["GPU memory"] == memory


def test_warnings_about_retracing_are_not_logged(tf: Any) -> None:
    assert not tf.get_logger().isEnabledFor(logging.WARNING)
    assert tf.get_logger().isEnabledFor(logging.ERROR)


def test_a_build_without_cuda_names_the_package_with_it(tf: Any) -> None:
    if tf.test.is_built_with_cuda():
        pytest.skip("this TensorFlow was built with CUDA")
    reason = f"TensorFlow {tf.__version__} was built without CUDA: pip install 'tensorflow[and-cuda]'"
    assert start(0, "").cuda.reason == reason


@of_ingest
@pytest.mark.usefixtures("tf")
def test_an_ingest_route_aliases_or_copies_the_array_as_described(name: str, place_of: Any, engine: Engine) -> None:
    context = place_of()
    seen = check_twice(set_up(ROUTES[name], context), context, engine)
    assert (seen.where, seen.lent) == ("cpu", ROUTES[name].host_copies == 0)


@of_copy
@pytest.mark.usefixtures("second_cpu")
def test_a_route_delivers_what_was_written_and_nothing_older(name: str, place_of: Any, engine: Engine) -> None:
    context = place_of()
    check_twice(set_up(ROUTES[name], context), context, engine)


@of_images
@pytest.mark.usefixtures("second_cpu")
def test_a_route_for_images_reads_the_first_row_back(name: str, place_of: Any, engine: Engine) -> None:
    context = place_of(2 * IMAGE_BYTES)
    make = ROUTES[name].image_batch
    assert make is not None
    seen = check_twice(make(context), context, engine)
    assert (seen.arrived.shape, seen.where) == ((256, 3), "cpu")


@pytest.mark.usefixtures("tf")
def test_cpu_memory_is_not_accepted_as_gpu_memory(place_of: Any) -> None:
    transfer = set_up(ROUTES["tf.ingest"], place_of())
    transfer.refresh()
    transfer.run()
    with (
        pytest.raises(MeasurementError, match=r"device:CPU:0 is not in the GPU's memory \(DLPack device type 1\)"),
        tensors.device_memory(tensors.import_tensorflow(), transfer.result),
    ):
        pass


@pytest.mark.usefixtures("second_cpu")
def test_a_pipeline_has_as_many_elements_as_its_transfer_declares(place_of: Any) -> None:
    transfer: Any = set_up(ROUTES["tf.data-prefetch"], place_of())
    sizes = [element.shape.num_elements() for element in transfer.dataset]
    assert sizes == [NBYTES] * transfer.copies


@pytest.mark.usefixtures("second_cpu")
def test_a_prefetch_has_as_many_batches_as_its_transfer_declares(place_of: Any) -> None:
    transfer: Any = set_up(ROUTES["tf.prefetch"], place_of())
    transfer.refresh()
    drawn: list[int] = []

    def noted(batches: Iterable[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
        for batch in batches:
            drawn.append(batch.nbytes)
            yield batch

    transfer.batches = noted(transfer.batches)
    transfer.run()
    transfer.release()
    assert drawn == [NBYTES] * transfer.copies


@of_copy
@pytest.mark.usefixtures("tf")
def test_without_a_gpu_a_route_over_the_link_is_refused(name: str, place_of: Any) -> None:
    with pytest.raises(RefusedError, match=r"^TensorFlow has no GPU in this process$"):
        set_up(ROUTES[name], place_of())


@of_images
def test_a_size_of_partial_images_is_refused(name: str, place_of: Any) -> None:
    make = ROUTES[name].image_batch
    assert make is not None
    with pytest.raises(RefusedError, match=r"batches of 196608 bytes \(256 x 256 x 3\); 65536 bytes are not a whole"):
        make(place_of())


@pytest.mark.parametrize("nbytes", [1000, 4096 + 8, 4096 + 256])
def test_a_size_that_does_not_divide_into_aligned_rows_is_refused(nbytes: int, place_of: Any) -> None:
    with pytest.raises(RefusedError, match=rf"{nbytes} bytes are not a multiple of 8 x 64 = 512$"):
        set_up(ROUTES["tf.data-prefetch"], place_of(nbytes))


@pytest.mark.parametrize("name", ["tf.rawop", "tf.cpu-op", "tf.dlpack-pageable", "tf.dlpack-pinned"])
@pytest.mark.usefixtures("second_cpu")
def test_a_version_without_the_internals_is_refused(
    name: str, tf: Any, place_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = "tensorflow.python.framework.ops"
    context = place_of()
    monkeypatch.setitem(sys.modules, inside, types.ModuleType(inside))
    with pytest.raises(RefusedError, match=f"^not available in TensorFlow {tf.__version__}: {inside}.EagerTensor is"):
        set_up(ROUTES[name], context)

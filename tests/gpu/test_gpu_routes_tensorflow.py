"""TensorFlow's routes on a GPU."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pytest
from route_checks import a_place, verify

from pyxfer._frameworks import tensorflow as tensors
from pyxfer._frameworks.base import IMAGE_BYTES, Route, Transfer
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.tensorflow import FRAMEWORK, start
from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
DEVICE = 0
SIZES = (64 << 10, 3 << 20)
IMAGE_SIZES = (IMAGE_BYTES, 3 << 20)
LARGE = 128 << 20
# Faster than any link of a GPU to its host.
MIN_S = LARGE / 1e12

ROUTES = {route.name: route for route in FRAMEWORK.routes}
CROSSING = [name for name, route in ROUTES.items() if route.direction != "ingest"]
WITH_IMAGES = [name for name, route in ROUTES.items() if route.image_batch]


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("tensorflow")
        started = start(DEVICE, "")
    if started.cuda.reason:
        pytest.skip(started.cuda.reason)
    return module


def run_once(transfer: Transfer, engine: Engine) -> float:
    """Run one trial; returns the seconds until all work is done."""
    transfer.refresh()
    engine.synchronize(DEVICE)
    begin = time.perf_counter()
    transfer.run()
    if transfer.waits:
        transfer.wait()
    engine.synchronize(DEVICE)
    return time.perf_counter() - begin


def check_twice(route: Route, transfer: Transfer, context: RouteContext, engine: Engine) -> None:
    """Send different bytes the second time, so that cached ones are wrong."""
    for seed in (1, 2):
        seen = verify(transfer, context, engine, seed)
        assert seen.right, f"pass {seed}"
        assert seen.where == route.expected_place


def set_up(route: Route, context: RouteContext) -> Transfer:
    assert route.copy is not None
    return route.copy(context)


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.usefixtures("tf")
def test_a_route_delivers_the_bytes_to_the_right_place(name: str, nbytes: int, gpu_engine: Engine) -> None:
    with a_place(gpu_engine, nbytes) as context:
        check_twice(ROUTES[name], set_up(ROUTES[name], context), context, gpu_engine)


@pytest.mark.parametrize("nbytes", IMAGE_SIZES)
@pytest.mark.parametrize("name", WITH_IMAGES)
@pytest.mark.usefixtures("tf")
def test_a_route_for_images_casts_on_the_gpu_and_reads_the_row_back(name: str, nbytes: int, gpu_engine: Engine) -> None:
    make = ROUTES[name].image_batch
    assert make is not None
    with a_place(gpu_engine, nbytes) as context:
        check_twice(ROUTES[name], make(context), context, gpu_engine)


@pytest.mark.parametrize("name", CROSSING)
@pytest.mark.usefixtures("tf")
def test_a_later_trial_moves_the_bytes_again(name: str, gpu_engine: Engine) -> None:
    with a_place(gpu_engine, LARGE) as context:
        transfer = set_up(ROUTES[name], context)
        for _ in range(4):
            assert run_once(transfer, gpu_engine) / transfer.copies > MIN_S
            transfer.release()


@pytest.mark.usefixtures("gpu_engine")
def test_a_tensor_on_the_gpu_has_its_own_address(tf: Any) -> None:
    with tf.device(tensors.GPU):
        held = [tf.constant(np.zeros(4096, np.uint8)) for _ in range(2)]
    addresses = []
    for tensor in held:
        with tensors.device_memory(tf, tensor) as address:
            addresses.append(address)
    assert abs(addresses[0] - addresses[1]) >= 4096

"""Every route of the frameworks on a GPU: the right bytes, twice, in the right place; and in the workers of a run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from route_checks import a_place, import_or_skip, verify

import pyxfer
from pyxfer._document.runs import FORMS, Form
from pyxfer._frameworks import cupy as cupy_transfers
from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks import tensorflow as tensors
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.base import IMAGE_BYTES, Route
from pyxfer._frameworks.orders import Order, with_forms
from pyxfer._frameworks.registry import load_framework
from pyxfer._measure.bracket import Bracket
from pyxfer._report.layout import Page
from pyxfer._report.run import print_run
from pyxfer.errors import RefusedError

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Make
    from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
SIZES = (64 << 10, 3 << 20)
LARGE = 128 << 20
# Faster than any link of a GPU to its host.
MIN_S = LARGE / 1e12
OWNERS = ("torch", "jax", "cupy", "tensorflow")
ROUTES = {route.name: route for name in OWNERS for route in load_framework(name).routes if not route.setting}
COPYING = [name for name, route in ROUTES.items() if route.copy is not None]
BATCHING = [name for name, route in ROUTES.items() if route.image_batch is not None]
# A backend reads the setting when it starts, so this needs a separate process.
UNSTAGED = """
import sys
from pyxfer.native import load
from pyxfer._frameworks.jax import FRAMEWORK
from route_checks import a_place, verify
started = FRAMEWORK.start(0, "nostage")
assert started.cuda.value, started.cuda.reason
(route,) = (route for route in FRAMEWORK.routes if route.setting == "nostage")
engine = load("cuda")
for nbytes in map(int, sys.argv[1:]):
    with a_place(engine, nbytes) as place:
        transfer = route.copy(place)
        for seed in (1, 2):
            seen = verify(transfer, place, engine, seed)
            assert seen.right and seen.where == "gpu", (nbytes, seed, seen.where)
print("both passes are right")
"""


def started(name: str) -> Any:
    """The framework's module, started with the GPU."""
    module = import_or_skip(name)
    found = load_framework(name).start(0, "")
    if found.cuda.value is None:
        pytest.skip(str(found.cuda.reason))
    return module


@pytest.fixture(scope="module", autouse=True)
def _environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in OWNERS:
            for variable, value in load_framework(name).environment.items():
                patch.setenv(variable, value)
        yield


@pytest.fixture
def route(name: str) -> Route:
    """The route of that name, whose framework is started."""
    started("tensorflow" if name.startswith("tf.") else ROUTES[name].owner)
    return ROUTES[name]


@pytest.fixture
def torch() -> Any:
    return started("torch")


def check(route: Route, make: Make | None, engine: Engine, nbytes: int) -> None:
    assert make is not None
    with a_place(engine, nbytes) as context:
        transfer = make(context)
        for seed in (1, 2):
            seen = verify(transfer, context, engine, seed)
            assert seen.right, f"pass {seed}"
            assert seen.where == route.expected_place
            if route.owner == "cupy":  # none of its routes aliases the array
                assert not seen.lent


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("name", COPYING)
def test_each_pass_of_a_copy_delivers_its_bytes(route: Route, nbytes: int, gpu_engine: Engine) -> None:
    check(route, route.copy, gpu_engine, nbytes)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", BATCHING)
def test_each_pass_of_an_image_batch_reads_its_row(route: Route, batch: int, gpu_engine: Engine) -> None:
    check(route, route.image_batch, gpu_engine, batch * IMAGE_BYTES)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_missing_gpu_gives_a_reason(name: str, gpu_engine: Engine) -> None:
    started(name)
    missing = gpu_engine.device_count()
    assert f"cannot use GPU {missing}: " in (load_framework(name).start(missing, "").cuda.reason or "")
    load_framework(name).start(0, "")


def test_a_gpu_that_jax_does_not_see_is_refused(gpu_engine: Engine) -> None:
    jax = started("jax")
    with pytest.raises(RefusedError):
        jax_transfers.find_gpu(jax, gpu_engine.device_count())


def test_each_pass_of_jax_without_staging_delivers_its_bytes(gpu_engine: Engine) -> None:
    import_or_skip("jax")
    assert gpu_engine.device_count() > 0
    environment = {**os.environ, **load_framework("jax").environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", UNSTAGED, *map(str, SIZES)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.stdout.endswith("both passes are right\n"), ran.stderr


def test_the_stream_of_a_transfer_of_cupy_is_the_current_one(gpu_engine: Engine) -> None:
    cupy = started("cupy")
    with a_place(gpu_engine, 64 << 10) as context, cupy.cuda.Stream(non_blocking=True) as stream:
        assert cupy_transfers.Asarray(context).stream == stream.ptr


@pytest.mark.parametrize("way", [torch_transfers.PinnedNonBlocking, torch_transfers.UploadThroughRing])
def test_a_bracket_on_the_current_stream_of_torch_times_an_upload(torch: Any, gpu_engine: Engine, way: Any) -> None:
    nbytes = 64 << 20
    stream = torch.cuda.Stream()
    with a_place(gpu_engine, nbytes) as context, torch.cuda.stream(stream):
        transfer = way(context)
        assert transfer.stream == stream.cuda_stream
        bracket = Bracket(gpu_engine, 0, transfer.stream)
        for _ in range(2):  # the first one makes the ring
            transfer.refresh()
            bracket.begin()
            transfer.run()
            bracket.returned()
            bracket.end()
        assert nbytes / 1e12 < bracket.elapsed_s < 30.0
        assert bracket.dispatch_s <= bracket.wall_s
        bracket.close()
        transfer.release()


@pytest.mark.usefixtures("torch")
def test_pinned_routes_of_torch_copy_from_and_to_page_locked_tensors(gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as context:
        upload = torch_transfers.PinnedNonBlocking(context)
        upload.refresh()
        assert upload.source.is_pinned()
        for way in (torch_transfers.CopyToPinned, torch_transfers.ToCpuNonBlocking):
            download = way(context)
            download.refresh()
            download.run()
            gpu_engine.synchronize(0)
            assert download.result.is_pinned()


@pytest.mark.usefixtures("torch")
def test_the_loader_of_torch_returns_page_locked_batches(gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as context:
        transfer = torch_transfers.LoaderPinned(context)
        transfer.refresh()
        assert [batch.is_pinned() for batch in transfer.source] == [True] * transfer.copies


def test_channels_last_is_the_order_in_device_memory(torch: Any, gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as context:
        transfer = torch_transfers.ChannelsLast(context)
        transfer.refresh()
        transfer.run()
        assert transfer.result.is_contiguous(memory_format=torch.channels_last)
        assert not transfer.result.is_contiguous()


def test_the_allocator_of_torch_is_recorded(torch: Any) -> None:
    assert load_framework("torch").start(0, "").settings["allocator"] == torch.cuda.get_allocator_backend()


CROSSING_OF_TENSORFLOW = [name for name in COPYING if name.startswith("tf.") and ROUTES[name].direction != "ingest"]


@pytest.mark.parametrize("name", CROSSING_OF_TENSORFLOW)
def test_a_later_trial_of_tensorflow_moves_the_bytes_again(route: Route, gpu_engine: Engine) -> None:
    assert route.copy is not None
    with a_place(gpu_engine, LARGE) as context:
        transfer = route.copy(context)
        for _ in range(4):
            transfer.refresh()
            gpu_engine.synchronize(0)
            begin = time.perf_counter()
            transfer.run()
            if transfer.waits:
                transfer.wait()
            gpu_engine.synchronize(0)
            assert (time.perf_counter() - begin) / transfer.copies > MIN_S
            transfer.release()


@pytest.mark.usefixtures("gpu_engine")
def test_a_tensor_of_tensorflow_on_the_gpu_has_its_own_address() -> None:
    tf = started("tensorflow")
    with tf.device(tensors.GPU):
        held = [tf.constant(np.zeros(4096, np.uint8)) for _ in range(2)]
    addresses = []
    for tensor in held:
        with tensors.device_memory(tf, tensor) as address:
            addresses.append(address)
    assert abs(addresses[0] - addresses[1]) >= 4096


# An upload that is smaller than the ring pays for is one copy of the driver, from pageable memory.
RING_SIZES = (4 << 20, 16 << 20)
USUAL = {"torch": "torch.to", "tensorflow": "tf.constant", "cupy": "cupy.asarray", "jax": "jax.device-put"}


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("gpu_engine")
def test_each_byte_crosses_once_from_page_locked_memory(name: str) -> None:
    import_or_skip(name)
    through = [route.name for route in load_framework(name).routes if route.staged and route.copy]
    run = pyxfer.frameworks([name], route=through, size=RING_SIZES, budget=4.0)
    rows = [row for row in run.measurements if row.route in through]
    assert [worker.ended for worker in run.workers] == ["complete"]
    assert len(rows) == len(through) * len(RING_SIZES)
    for row in rows:
        assert (row.verified.value, row.rate.reason) == (True, None), row.route
        assert row.dma.value is not None, row.dma.reason
        assert (row.dma.value.nbytes, row.dma.value.source) == (row.nbytes, "pinned"), row.route
        assert not {remark.code for remark in row.remarks} & {"wrong-memory", "inflated", "outside"}, row.remarks


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("gpu_engine")
def test_images_through_the_ring_are_cast_on_the_gpu(name: str) -> None:
    import_or_skip(name)
    through = [route.name for route in load_framework(name).routes if route.staged and route.image_batch]
    run = pyxfer.frameworks([name], route=through, workload="image-batch", batch=(1, 32), budget=2.0)
    rows = [row for row in run.measurements if row.route in through]
    assert [(row.batch, row.verified.value, row.rate.reason) for row in rows] == [(1, True, None), (32, True, None)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", USUAL)
def test_every_order_of_work_brings_the_images_in_its_form(name: str, form: Form, gpu_engine: Engine) -> None:
    started(name)
    found = with_forms(load_framework(name).routes, (form,), ("host", "device"))
    for order in [route for route in found if isinstance(route, Order)]:
        check(order, order.make("image-batch"), gpu_engine, 2 * IMAGE_BYTES)


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("gpu_engine")
def test_the_records_say_what_an_order_of_work_sends(name: str) -> None:
    import_or_skip(name)
    through = [route.name for route in load_framework(name).routes if isinstance(route, Order)]
    run = pyxfer.frameworks([name], route=through, workload="image-batch", layout="nchw", batch=32)
    rows = [row for row in run.measurements if row.form is not None]
    assert len(rows) == 5
    for row in rows:
        assert (row.verified.value, row.rate.reason) == (True, None), row.route
        assert row.dma.value is not None, row.dma.reason
        assert row.route_info is not None
        assert row.dma.value.nbytes == pytest.approx(row.nbytes * row.route_info.inflation, rel=0.01), row.route


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("gpu_engine")
def test_the_first_call_makes_the_ring_before_the_trials(name: str) -> None:
    import_or_skip(name)
    upload = f"{load_framework(name).owner}.upload"
    run = pyxfer.frameworks([name], route=[upload], size=RING_SIZES, direction=["h2d"], budget=2.0, trace=False)
    first, second = [row for row in run.measurements if row.route == upload]
    assert first.first_s.value is not None
    assert second.first_s.value is not None
    assert first.first_s.value > second.first_s.value
    assert (first.elapsed_s or 0.0) < first.first_s.value


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.usefixtures("gpu_engine")
def test_an_explained_usual_call_advises_the_upload(name: str) -> None:
    import_or_skip(name)
    stream = io.StringIO()
    print_run(pyxfer.explain(USUAL[name], "32MiB", budget=8.0), Page(stream, columns=80))
    page = " ".join(stream.getvalue().split())
    advice = page[page.index("Faster routes, measured in the same run") :]
    assert f'pyxfer.upload(x, to="{name}")' in advice or f'pyxfer.prefetch([x], to="{name}")' in advice
    assert "takes ordinary arrays, staged through page-locked memory" in advice

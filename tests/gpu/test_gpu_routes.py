"""Every route of PyTorch, JAX and CuPy on a GPU: the right bytes, twice, in the right place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from route_checks import a_place, import_or_skip, verify

from pyxfer._frameworks import cupy as cupy_transfers
from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.base import IMAGE_BYTES, Route
from pyxfer._frameworks.registry import load_framework
from pyxfer._measure.bracket import Bracket
from pyxfer.errors import RefusedError

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Make
    from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
SIZES = (64 << 10, 3 << 20)
OWNERS = ("torch", "jax", "cupy")
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
    started(name.partition(".")[0])
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

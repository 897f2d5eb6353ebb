"""Every route of PyTorch on a GPU: the right bytes, twice, in the right place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from route_checks import a_place, import_or_skip, verify

from pyxfer._frameworks import torch as torch_host_transfers
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.place import IMAGE_BYTES
from pyxfer._frameworks.torch import FRAMEWORK
from pyxfer._measure.bracket import Bracket

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Make, Route
    from pyxfer.native import Engine

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
SIZES = (64 << 10, 3 << 20)
COPYING = [route for route in FRAMEWORK.routes if route.copy is not None]
BATCHING = [route for route in FRAMEWORK.routes if route.image_batch is not None]


@pytest.fixture(autouse=True)
def torch() -> Any:
    module = import_or_skip("torch")
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


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("route", COPYING, ids=lambda route: route.name)
def test_each_pass_of_a_copy_delivers_its_bytes(route: Route, nbytes: int, gpu_engine: Engine) -> None:
    check(route, route.copy, gpu_engine, nbytes)


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("route", BATCHING, ids=lambda route: route.name)
def test_each_pass_of_an_image_batch_reads_its_row(route: Route, batch: int, gpu_engine: Engine) -> None:
    check(route, route.image_batch, gpu_engine, batch * IMAGE_BYTES)


def test_a_transfer_copies_on_its_stream(torch: Any, gpu_engine: Engine) -> None:
    nbytes = 64 << 20
    stream = torch.cuda.Stream()
    with a_place(gpu_engine, nbytes) as place, torch.cuda.stream(stream):
        transfer = torch_transfers.PinnedNonBlocking(place)
        assert transfer.stream == stream.cuda_stream
        bracket = Bracket(gpu_engine, 0, transfer.stream)
        transfer.refresh()
        bracket.begin()
        transfer.run()
        bracket.returned()
        bracket.end()
    assert nbytes / 1e12 < bracket.elapsed_s < 1.0
    assert bracket.dispatch_s < bracket.elapsed_s
    bracket.close()


def test_a_bracket_on_the_current_stream_times_an_upload_through_the_ring(torch: Any, gpu_engine: Engine) -> None:
    nbytes = 64 << 20
    with a_place(gpu_engine, nbytes) as place, torch.cuda.stream(torch.cuda.Stream()):
        transfer = torch_transfers.UploadThroughRing(place)
        bracket = Bracket(gpu_engine, 0, transfer.stream)
        for _ in range(2):  # the first one makes the ring
            transfer.refresh()
            bracket.begin()
            transfer.run()
            bracket.returned()
            bracket.end()
        assert nbytes / 1e12 < bracket.elapsed_s < 1.0
        assert bracket.dispatch_s <= bracket.wall_s
        bracket.close()
        transfer.release()


def test_pinned_routes_copy_from_and_to_page_locked_tensors(gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as place:
        upload = torch_transfers.PinnedNonBlocking(place)
        upload.refresh()
        assert upload.source.is_pinned()
        for way in (torch_host_transfers.CopyToPinned, torch_host_transfers.ToCpuNonBlocking):
            download = way(place)
            download.refresh()
            download.run()
            gpu_engine.synchronize(0)
            assert download.result.is_pinned()


def test_the_loader_returns_page_locked_batches(gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as place:
        transfer = torch_transfers.LoaderPinned(place)
        transfer.refresh()
        assert [batch.is_pinned() for batch in transfer.source] == [True] * transfer.copies


def test_channels_last_is_the_order_in_device_memory(torch: Any, gpu_engine: Engine) -> None:
    with a_place(gpu_engine, 64 << 10) as place:
        transfer = torch_transfers.ChannelsLast(place)
        transfer.refresh()
        transfer.run()
        assert transfer.result.is_contiguous(memory_format=torch.channels_last)
        assert not transfer.result.is_contiguous()


def test_the_allocator_is_recorded(torch: Any) -> None:
    assert FRAMEWORK.start(0, "").settings["allocator"] == torch.cuda.get_allocator_backend()


def test_a_missing_gpu_gives_a_reason(torch: Any) -> None:
    missing = torch.cuda.device_count()
    assert (FRAMEWORK.start(missing, "").cuda.reason or "").startswith(f"PyTorch cannot use GPU {missing}: ")
    FRAMEWORK.start(0, "")

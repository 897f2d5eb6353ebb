"""PyTorch's table and refusals, and its routes on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from route_checks import HostPlace, a_place, break_import, copies_touched, import_or_skip, usual_directions, verify

from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.base import RefusedError
from pyxfer._frameworks.place import IMAGE_BYTES
from pyxfer._frameworks.torch import FRAMEWORK

if TYPE_CHECKING:
    from pyxfer._frameworks.base import Route
    from pyxfer._frameworks.place import Place
    from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
NBYTES = 64 << 10
ROUTES = {route.name: route for route in FRAMEWORK.routes}
INGESTING = [route for route in FRAMEWORK.routes if route.direction == "ingest"]
UPLOADS = (
    torch_transfers.To,
    torch_transfers.ToNonBlocking,
    torch_transfers.CastBlocking,
    torch_transfers.CastNonBlocking,
    torch_transfers.ChannelsLast,
    torch_transfers.LoaderPinned,
    torch_transfers.UploadThroughRing,
)
UPLOADS_OF_IMAGES = (
    torch_transfers.To,
    torch_transfers.CastBlocking,
    torch_transfers.CastNonBlocking,
    torch_transfers.UploadThroughRing,
)
each_upload = pytest.mark.parametrize("way", UPLOADS, ids=lambda way: way.__name__)


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch")


@pytest.fixture
def place(engine: Engine) -> Iterator[Place]:
    with a_place(engine, NBYTES, HostPlace) as made:
        yield made


def on_cpu(transfer: torch_transfers.TorchTransfer) -> torch_transfers.TorchTransfer:
    """Use the CPU in place of the GPU."""
    transfer.device = transfer.torch.device("cpu")
    return transfer


def test_the_table_has_every_documented_route() -> None:
    promised = (
        "to to-nonblocking pin-to pinned-nonblocking cast-blocking cast-nonblocking noncontiguous channels-last "
        "loader-pinned upload cpu copy-to-pinned to-cpu-nonblocking download download-into ingest ingest-copy"
    )
    assert [route.name for route in FRAMEWORK.routes] == [f"torch.{name}" for name in promised.split()]


def test_each_direction_has_one_usual_route() -> None:
    assert usual_directions(FRAMEWORK) == ["d2h", "h2d", "ingest"]


def test_routes_over_the_link_are_timed_on_the_current_stream() -> None:
    assert {route.bracket for route in FRAMEWORK.routes if route.direction != "ingest"} == {"stream"}


def test_only_the_cast_on_the_cpu_inflates() -> None:
    assert {name: route.inflation for name, route in ROUTES.items() if route.inflation != 1.0} == {
        "torch.cast-blocking": 4.0
    }


def test_routes_through_the_ring_copy_pageable_arrays_once_into_pinned_memory() -> None:
    through = [route for route in FRAMEWORK.routes if route.staged]
    assert [route.name for route in through] == ["torch.upload", "torch.download", "torch.download-into"]
    assert {(route.memory, route.host_copies, route.dma) for route in through} == {("pageable", 1, "pinned")}
    assert [route.returns for route in through] == ["staged", "done", "done"]


def test_without_pytorch_the_refusal_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RefusedError, match=r"^PyTorch is not installed: pip install torch$"):
        FRAMEWORK.start(None, "")


def test_a_broken_installation_is_distinguished_from_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_import("torch", tmp_path, monkeypatch)
    with pytest.raises(RefusedError, match=r"^PyTorch is installed and cannot be imported: libcublas\.so\.12"):
        FRAMEWORK.start(None, "")


def test_ingest_alone_needs_no_gpu(torch: Any) -> None:
    started = FRAMEWORK.start(None, "")
    assert started.version == torch.__version__
    assert started.cuda.reason == "no GPU was requested"


def test_a_build_without_cuda_says_so(torch: Any) -> None:
    if torch.version.cuda is not None:
        pytest.skip("this torch was built with CUDA")
    reason = FRAMEWORK.start(0, "").cuda.reason or ""
    assert reason.startswith(f"torch {torch.__version__} was built without CUDA: install a build with it")


def test_the_allocator_settings_are_recorded(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "pinned_use_cuda_host_register:True")
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    settings = FRAMEWORK.start(None, "").settings
    assert settings["PYTORCH_ALLOC_CONF"] == "pinned_use_cuda_host_register:True"
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "not set"
    assert settings["threads"] == str(torch.get_num_threads())


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("route", INGESTING, ids=lambda route: route.name)
def test_an_ingest_route_has_the_bytes_and_aliases_the_array_as_described(route: Route, engine: Engine) -> None:
    assert route.copy is not None
    with a_place(engine, NBYTES) as place:
        transfer = route.copy(place)
        first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"
    assert second.lent == (route.host_copies == 0)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("route", INGESTING, ids=lambda route: route.name)
def test_an_ingest_route_copies_as_often_as_described(route: Route, engine: Engine) -> None:
    assert route.copy is not None
    nbytes = 48 << 20
    with a_place(engine, nbytes) as place:
        assert copies_touched(route.copy(place), nbytes) == route.host_copies


@pytest.mark.usefixtures("torch")
@each_upload
def test_an_upload_has_the_expected_bytes_and_knows_that_they_are_on_the_cpu(
    way: type[torch_transfers.Upload], place: Place, engine: Engine
) -> None:
    transfer = on_cpu(way(place))
    first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"
    assert transfer.result is None


@pytest.mark.parametrize("name", ["torch.download", "torch.download-into"])
def test_a_download_through_the_ring_has_the_tensors_current_bytes(
    name: str, torch: Any, place: Place, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_transfers, "device_of", lambda *_: torch.device("cpu"))
    make = ROUTES[name].copy
    assert make is not None
    transfer = make(place)
    seen = [verify(transfer, place, engine, seed) for seed in (1, 2, 3, 4)]  # each target that takes turns, and again
    assert all(each.right and each.where == "cpu" for each in seen)


@pytest.mark.usefixtures("torch")
def test_the_noncontiguous_route_copies_every_second_column(place: Place) -> None:
    transfer = on_cpu(torch_transfers.Noncontiguous(place))
    data = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    transfer.write(data)
    for _ in range(2):  # both arrays that take turns
        transfer.refresh()
        transfer.run()
        assert not transfer.result.is_contiguous()
        assert np.array_equal(transfer.result.numpy().reshape(-1), data)


@pytest.mark.usefixtures("torch")
def test_channels_last_makes_the_channels_of_a_pixel_adjacent(place: Place, engine: Engine) -> None:
    transfer = on_cpu(torch_transfers.ChannelsLast(place))
    pictures = np.arange(NBYTES, dtype=np.uint32).astype(np.uint8).reshape(-1, *torch_transfers.PICTURE)
    pictures[3, :, 5, 7] = (1, 2, 3, 4)
    with place.holding(pictures.reshape(-1)):
        transfer.refresh()
        transfer.run()
    in_memory = transfer.arrived().reshape(-1, 32, 32, 4)
    assert in_memory[3, 5, 7].tolist() == [1, 2, 3, 4]


@pytest.mark.usefixtures("torch")
def test_an_epoch_has_as_many_batches_as_its_transfer_declares(place: Place) -> None:
    transfer = torch_transfers.LoaderPinned(place)
    transfer.refresh()
    batches = list(transfer.source)
    assert [batch.numel() for batch in batches] == [NBYTES] * transfer.copies


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("way", UPLOADS_OF_IMAGES)
def test_an_image_batch_gives_the_first_row_of_pixels(way: type[torch_transfers.Upload], engine: Engine) -> None:
    with a_place(engine, 2 * IMAGE_BYTES, HostPlace) as place:
        transfer = torch_transfers.ImageBatch(place, way)
        on_cpu(transfer.way)
        first, second = (verify(transfer, place, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.arrived.shape == (256, 3)
    assert second.where == "cpu"


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("make", "nbytes", "why"),
    [
        (torch_transfers.ChannelsLast, 6000, "give multiples of 4096"),
        (torch_transfers.LoaderPinned, 4097, "give multiples of 8"),
        (
            partial(torch_transfers.ImageBatch, way=torch_transfers.To),
            65536,
            "65536 bytes are not a whole number of images",
        ),
    ],
)
def test_a_size_that_does_not_divide_is_refused(make: Any, nbytes: int, why: str, engine: Engine) -> None:
    with a_place(engine, nbytes) as place, pytest.raises(RefusedError, match=why):
        make(place)

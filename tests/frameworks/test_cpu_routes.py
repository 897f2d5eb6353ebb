"""Routes of PyTorch and JAX with the CPU in place of the GPU: the right bytes, twice, and where they are."""

from __future__ import annotations

from typing import Any

import pytest
from route_checks import HostPlace, a_place, copies_touched, import_or_skip, verify

from pyxfer._frameworks import jax as jax_transfers
from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.base import IMAGE_BYTES, Make
from pyxfer._frameworks.registry import load_framework
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
NBYTES = 64 << 10
MODULES = ("torch", "jax")
ROUTES = {route.name: route for name in MODULES for route in load_framework(name).routes}
INGESTING = [name for name, route in ROUTES.items() if route.direction == "ingest"]
UPLOADS = [
    *("torch.to", "torch.to-nonblocking", "torch.cast-blocking", "torch.cast-nonblocking", "torch.channels-last"),
    *("torch.loader-pinned", "torch.upload"),
    *("jax.device-put", "jax.device-put-pinned", "jax.pinned-host-to-device", "jax.upload"),
]
DOWNLOADS = [name for name, route in ROUTES.items() if route.direction == "d2h" and route.staged]
IMAGES = [
    *("torch.to", "torch.cast-blocking", "torch.cast-nonblocking", "torch.upload"),
    *("jax.device-put", "jax.device-put-pinned", "jax.upload"),
]


@pytest.fixture(autouse=True)
def _installed(name: str) -> Any:
    return import_or_skip(name.partition(".")[0])


@pytest.fixture
def cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the CPU in place of the GPU."""
    if name.startswith("torch."):
        monkeypatch.setattr(torch_transfers, "device_of", lambda torch, _: torch.device("cpu"))
    else:
        monkeypatch.setattr(jax_transfers, "find_gpu", lambda jax, _: jax.local_devices(backend="cpu")[0])


def made(make: Make | None) -> Make:
    assert make is not None
    return make


@pytest.mark.parametrize("name", MODULES)
def test_ingest_alone_needs_no_gpu(name: str) -> None:
    started = load_framework(name).start(None, "")
    assert started.version == import_or_skip(name).__version__
    assert started.cuda.reason == "no GPU was requested"


@pytest.mark.parametrize("name", INGESTING)
def test_an_ingest_route_aliases_or_copies_the_array_as_described(name: str, engine: Engine) -> None:
    route = ROUTES[name]
    with a_place(engine, NBYTES) as context:
        transfer = made(route.copy)(context)
        first, second = (verify(transfer, context, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"
    assert second.lent == (route.host_copies == 0)
    nbytes = 48 << 20
    with a_place(engine, nbytes) as context:
        assert copies_touched(made(route.copy)(context), nbytes) == route.host_copies


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_has_the_expected_bytes_and_knows_that_they_are_on_the_cpu(name: str, engine: Engine) -> None:
    with a_place(engine, NBYTES, HostPlace) as context:
        transfer = made(ROUTES[name].copy)(context)
        first, second = (verify(transfer, context, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.where == "cpu"
    assert transfer.result is None


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", DOWNLOADS)
def test_a_download_through_the_ring_has_the_current_bytes(
    name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_transfers.JaxTransfer, "place_of", lambda *_: "gpu")  # an array on the CPU would be refused
    with a_place(engine, NBYTES, HostPlace) as context:
        transfer = made(ROUTES[name].copy)(context)
        seen = [verify(transfer, context, engine, seed) for seed in (1, 2, 3, 4)]  # each target in turn, and again
    assert all(each.right and each.where == "cpu" for each in seen)


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", IMAGES)
def test_an_image_batch_gives_the_first_row_of_pixels(name: str, engine: Engine) -> None:
    with a_place(engine, 2 * IMAGE_BYTES, HostPlace) as context:
        transfer = made(ROUTES[name].image_batch)(context)
        first, second = (verify(transfer, context, engine, seed) for seed in (1, 2))
    assert first.right
    assert second.right
    assert second.arrived.shape == (256, 3)
    assert second.where == "cpu"

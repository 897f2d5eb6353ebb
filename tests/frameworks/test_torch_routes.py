"""PyTorch's table and refusals, and its routes on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from route_checks import a_place

from pyxfer._frameworks import torch as torch_transfers
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.torch import FRAMEWORK
from pyxfer.errors import RefusedError
from pyxfer.native import Engine

pytestmark = pytest.mark.filterwarnings("ignore")
NBYTES = 64 << 10


def on_cpu(transfer: torch_transfers.TorchTransfer) -> torch_transfers.TorchTransfer:
    """Use the CPU in place of the GPU."""
    transfer.device = transfer.torch.device("cpu")
    return transfer


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
def test_the_noncontiguous_route_copies_every_second_column(context: RouteContext) -> None:
    transfer = on_cpu(torch_transfers.Noncontiguous(context))
    data = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    transfer.write(data)
    for _ in range(2):  # both arrays that take turns
        transfer.refresh()
        transfer.run()
        assert not transfer.result.is_contiguous()
        assert np.array_equal(transfer.result.numpy().reshape(-1), data)


@pytest.mark.usefixtures("torch")
def test_channels_last_makes_the_channels_of_a_pixel_adjacent(context: RouteContext, engine: Engine) -> None:
    transfer = on_cpu(torch_transfers.ChannelsLast(context))
    pictures = np.arange(NBYTES, dtype=np.uint32).astype(np.uint8).reshape(-1, *torch_transfers.PICTURE)
    pictures[3, :, 5, 7] = (1, 2, 3, 4)
    with context.holding(pictures.reshape(-1)):
        transfer.refresh()
        transfer.run()
    in_memory = transfer.arrived().reshape(-1, 32, 32, 4)
    assert in_memory[3, 5, 7].tolist() == [1, 2, 3, 4]


@pytest.mark.usefixtures("torch")
def test_an_epoch_has_as_many_batches_as_its_transfer_declares(context: RouteContext) -> None:
    transfer = torch_transfers.LoaderPinned(context)
    transfer.refresh()
    batches = list(transfer.source)
    assert [batch.numel() for batch in batches] == [NBYTES] * transfer.copies


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("make", "nbytes", "why"),
    [
        (torch_transfers.ChannelsLast, 6000, "give multiples of 4096"),
        (torch_transfers.LoaderPinned, 4097, "give multiples of 8"),
    ],
)
def test_a_size_that_does_not_divide_is_refused(make: Any, nbytes: int, why: str, engine: Engine) -> None:
    with a_place(engine, nbytes) as context, pytest.raises(RefusedError, match=why):
        make(context)

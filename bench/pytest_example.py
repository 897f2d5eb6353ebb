"""The tests of docs/pytest.md: `pytest bench/pytest_example.py --xfer-json=bench/results/pytest_example.json.gz`."""

import pytest
import torch

from pyxfer import Xfer

GPU = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(params=[16, 64], ids="{}MiB".format)
def batch(request: pytest.FixtureRequest) -> torch.Tensor:
    return torch.ones(request.param << 20, dtype=torch.uint8)


def test_to(xfer: Xfer, batch: torch.Tensor) -> None:
    there = xfer(lambda: batch.to(GPU, copy=True), nbytes=batch.nbytes)
    assert there.device.type == GPU


@pytest.mark.xfer(min_of_ceiling=0.8)
def test_kept_pinned(xfer: Xfer, batch: torch.Tensor) -> None:
    pinned = batch.pin_memory() if GPU == "cuda" else batch
    there = torch.empty_like(batch, device=GPU)
    xfer(lambda: there.copy_(pinned, non_blocking=True), nbytes=batch.nbytes)
    assert torch.equal(there.cpu(), batch)


def test_back(xfer: Xfer, batch: torch.Tensor) -> None:
    there = batch.to(GPU)
    back = xfer(lambda: there.to("cpu", copy=True), nbytes=batch.nbytes, direction="d2h")
    assert torch.equal(back, batch)


def test_already_there(xfer: Xfer, batch: torch.Tensor) -> None:
    there = batch.to(GPU)
    xfer(lambda: there.to(GPU), nbytes=batch.nbytes)

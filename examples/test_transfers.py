"""Tests that fail when a transfer gets slower: `pytest test_transfers.py`. Without a GPU: `--xfer-device=host`."""

import numpy as np
import pytest
import torch

import pyxfer

GPU = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def batch() -> torch.Tensor:
    return torch.ones((64, 3, 224, 224))


@pytest.mark.xfer(min_of_ceiling=0.8)  # of what raw copies reach in the same rounds
def test_pinned_batches_reach_the_link(xfer: pyxfer.Xfer, batch: torch.Tensor) -> None:
    pinned = batch.pin_memory() if GPU == "cuda" else batch
    there = torch.empty_like(batch, device=GPU)
    xfer(lambda: there.copy_(pinned, non_blocking=True), nbytes=batch.nbytes)
    assert torch.equal(there.cpu(), batch)


@pytest.mark.xfer(max_s="50ms")
def test_an_upload_takes_less_than_a_step(xfer: pyxfer.Xfer, batch: torch.Tensor) -> None:
    source = batch.numpy()
    there = xfer(lambda: pyxfer.upload(source, to="torch"), nbytes=batch.nbytes)
    assert np.array_equal(pyxfer.download(there), source)

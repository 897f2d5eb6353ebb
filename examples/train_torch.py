"""Train in PyTorch while the next batches are drawn and uploaded. `pyxfer watch train_torch.py` shows the steps."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

import pyxfer

GPU = "cuda" if torch.cuda.is_available() else "cpu"


def batches(steps: int = 60, size: int = 64) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Your DataLoader or data set: here, images whose brightness is their class."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        labels = random.integers(0, 4, size)
        noise = random.random((size, 3, 32, 32), np.float32)
        yield noise + labels.astype(np.float32)[:, None, None, None], labels


torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 15 * 15, 4)
network = torch.nn.Sequential(*layers).to(GPU)
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
losses = []
for images, labels in pyxfer.prefetch(batches(), to="torch"):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())  # loss.item() would wait for the GPU in every step

print(f"loss of the first step {losses[0].item():.3f}, of the last {losses[-1].item():.3f}")

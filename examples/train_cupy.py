"""Fit a linear model in CuPy while the next batches are drawn and uploaded, and download what it predicts."""

from collections.abc import Iterator

import cupy as cp
import numpy as np
from numpy.typing import NDArray

import pyxfer

FEATURES = 1024
TRUE = np.random.default_rng(1).standard_normal(FEATURES, np.float32)


def batches(steps: int = 100, size: int = 2048) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Your data, by any iterable: here, random points and the values of a linear function."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        points = random.standard_normal((size, FEATURES), np.float32)
        yield points, points @ TRUE


weights, losses = cp.zeros(FEATURES, cp.float32), []
for points, values in pyxfer.prefetch(batches(), to="cupy"):
    errors = points @ weights - values
    weights -= 0.3 / len(values) * (points.T @ errors)
    losses.append((errors**2).mean())

fitted = pyxfer.download(weights)  # a NumPy array
print(f"loss of the first step {float(losses[0]):.3f}, of the last {float(losses[-1]):.3f}")
print(f"largest error of a weight {np.abs(fitted - TRUE).max():.4f}")

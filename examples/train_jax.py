"""Train in JAX while the next batches are uploaded. XLA_PYTHON_CLIENT_PREALLOCATE=false leaves memory for them."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import pyxfer


def batches(steps: int = 60, size: int = 64) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Your Grain loader or any iterable: here, images whose brightness is their class."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        labels = random.integers(0, 4, size, np.int32)  # JAX narrows 64-bit integers, so pyxfer refuses them
        noise = random.random((size, 32 * 32 * 3), np.float32)
        yield noise + labels.astype(np.float32)[:, None], labels


def loss_of(weights: Any, images: Any, labels: Any) -> Any:
    """Cross entropy of a linear network."""
    return -jnp.mean(jax.nn.log_softmax(images @ weights)[jnp.arange(len(labels)), labels])


@jax.jit
def step(weights: Any, images: Any, labels: Any) -> tuple[Any, Any]:
    """One step of gradient descent."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    return weights - 1e-4 * gradient, loss


weights, losses = jnp.zeros((32 * 32 * 3, 4)), []
for images, labels in pyxfer.prefetch(batches(), to="jax"):
    weights, loss = step(weights, images, labels)
    losses.append(loss)
print(f"loss of the first step {losses[0]:.3f}, of the last {losses[-1]:.3f}")

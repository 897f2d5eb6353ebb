"""Train in TensorFlow while the next batches are drawn and uploaded."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

import pyxfer

for gpu in tf.config.list_physical_devices("GPU"):  # leave memory for the uploads
    tf.config.experimental.set_memory_growth(gpu, True)


def batches(steps: int = 60, size: int = 64) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Your tf.data.Dataset or any iterable: here, images whose brightness is their class."""
    random = np.random.default_rng(0)
    for _ in range(steps):
        labels = random.integers(0, 4, size)
        noise = random.random((size, 32, 32, 3), np.float32)
        yield noise + labels.astype(np.float32)[:, None, None, None], labels


weights = tf.Variable(tf.zeros((32 * 32 * 3, 4)))


@tf.function
def step(images: Any, labels: Any) -> Any:
    """One step of gradient descent."""
    with tf.GradientTape() as tape:
        logits = tf.reshape(images, (len(images), -1)) @ weights
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    weights.assign_sub(1e-4 * tape.gradient(loss, weights))
    return loss


losses = [step(images, labels) for images, labels in pyxfer.prefetch(batches(), to="tensorflow")]
print(f"loss of the first step {losses[0]:.3f}, of the last {losses[-1]:.3f}")

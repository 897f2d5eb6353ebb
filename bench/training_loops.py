"""A small convolutional network trained in PyTorch or TensorFlow, with two ways to make the batches.

The loop "usual" makes each batch between two steps; the loop "ahead" makes batches ahead of time. Images, network and
step of both are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

CLASSES = 10
STORED = 1024


@dataclass(frozen=True)
class Shape:
    """Sizes that determine the work of a step."""

    batch: int
    side: int
    width: int
    workers: int

    @property
    def stored(self) -> int:
        """Side of a stored image, before it is cropped."""
        return self.side + self.side // 8


@dataclass(frozen=True)
class Loop:
    """A training loop: an endless source of batches, and the step."""

    name: str
    batches: Callable[[], Iterator[Any]]
    step: Callable[[Any], None]


def torch_loops(shape: Shape, device: str) -> list[Loop]:
    """Usual: pageable batches made between the steps. Ahead: page-locked batches made by worker processes."""
    import torch

    net = _torch_network(shape).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()

    def train(batch: tuple[Any, Any], ahead: bool) -> None:
        images, labels = (part.to(device, non_blocking=ahead) for part in batch)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(images.float() / 255), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # most loops read the loss to show it

    usual = {"num_workers": 0}
    ahead = {
        "num_workers": shape.workers,
        "pin_memory": device != "cpu",
        "prefetch_factor": 4,
        "persistent_workers": True,
    }
    return [
        Loop("usual", lambda: _torch_batches(shape, usual), lambda batch: train(batch, ahead=False)),
        Loop("ahead", lambda: _torch_batches(shape, ahead), lambda batch: train(batch, ahead=True)),
    ]


def _torch_network(shape: Shape) -> Any:
    from torch import nn

    width = shape.width
    return nn.Sequential(
        *(nn.Conv2d(3, width, 3, stride=2), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(2 * width, 2 * width, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES)),
    )


class Images:
    """A data set of random images in host memory; each access crops and flips one."""

    def __init__(self, shape: Shape) -> None:
        import torch

        generator = torch.Generator().manual_seed(0)
        side = shape.stored
        self.images = torch.randint(0, 256, (STORED, 3, side, side), dtype=torch.uint8, generator=generator)
        self.side = shape.side

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index % STORED]
        at = index % (image.shape[1] - self.side)
        part = image[:, at : at + self.side, at : at + self.side]
        return part.flip(2).contiguous(), index % CLASSES


def _torch_batches(shape: Shape, options: dict[str, Any]) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    return iter(DataLoader(Images(shape), shape.batch, **options))


def tensorflow_loops(shape: Shape, device: str) -> list[Loop]:
    """Usual: batches made between the steps. Ahead: batches made by threads and sent to the device in advance."""
    import tensorflow as tf

    variables, step = _tensorflow_step(tf, shape, device)
    del variables  # the step keeps them alive
    stored = np.random.default_rng(0).integers(0, 256, (STORED, shape.stored, shape.stored, 3), np.uint8)

    def made(calls: int | None) -> Any:
        images = tf.data.Dataset.from_tensor_slices(stored).repeat()
        numbered = tf.data.Dataset.zip(images, tf.data.Dataset.range(1 << 40))

        def cut(image: Any, index: Any) -> tuple[Any, Any]:
            part = tf.image.random_crop(image, (shape.side, shape.side, 3))
            return tf.image.flip_left_right(part), index % CLASSES

        return numbered.map(cut, num_parallel_calls=calls).batch(shape.batch, drop_remainder=True)

    def ahead() -> Iterator[Any]:
        sent = tf.data.experimental.prefetch_to_device(device, buffer_size=4)
        return iter(made(shape.workers).apply(sent))

    def usual() -> Iterator[Any]:
        options = tf.data.Options()
        options.autotune.enabled = False
        # One of the default optimizations makes the next batch in a thread.
        options.experimental_optimization.apply_default_optimizations = False
        return iter(made(None).with_options(options))

    return [Loop("usual", usual, step), Loop("ahead", ahead, step)]


def _tensorflow_step(tf: Any, shape: Shape, device: str) -> tuple[list[Any], Callable[[Any], None]]:
    width = shape.width
    with tf.device(device):
        draw = tf.random.Generator.from_seed(0)
        filters = [(3, width, 2), (width, 2 * width, 1), (2 * width, 2 * width, 2)]
        kernels = [tf.Variable(0.1 * draw.normal((3, 3, into, out))) for into, out, _ in filters]
        last = tf.Variable(0.1 * draw.normal((2 * width, CLASSES)))

    def train(images: Any, labels: Any) -> Any:
        with tf.device(device), tf.GradientTape() as tape:
            hidden = tf.cast(images, tf.float32) / 255
            for kernel, (_, _, stride) in zip(kernels, filters, strict=True):
                hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, stride, "SAME"))
            logits = tf.reduce_mean(hidden, (1, 2)) @ last
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = [*kernels, last]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        return loss

    compiled = tf.function(train)

    def step(batch: tuple[Any, Any]) -> None:
        compiled(*batch).numpy()

    return [*kernels, last], step


LOOPS: dict[str, Callable[[Shape, str], list[Loop]]] = {"torch": torch_loops, "tensorflow": tensorflow_loops}
"""The loops of each framework; the device is given in the framework's notation."""

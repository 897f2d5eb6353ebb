"""Loops of steps that are fed from the host, for never_slower.py.

A way is a running loop, and a call is one step of it. The loops of a row run on from round to round.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from never_slower_peers import Case, Peer, Prepared, check

import pyxfer
from pyxfer.native import HOST

OWN = "pyxfer"
STORED = 4
AHEAD = 4
"""More batches than are ready when a loop goes on, except those of a loader's workers."""
SETTLING_STEPS = 4
ROUND_S = 0.06
# A loop of 16 workers has 32 batches ready, and they last for a part of a round only if they are taken before it.
LOADER_ROUND_S = 0.15
PER_WORKER = 2  # the default of a DataLoader


class Scale(NamedTuple):
    """Sizes of the loops on a device."""

    images: int
    """In a batch, of 224 x 224 x 3 bytes."""
    side: int
    """Of the matrices whose products are the work of a step. A product takes 20 to 150 us."""
    step_s: float
    loader_step_s: float
    workers: tuple[int, ...]


GPU = Scale(256, 1536, 0.001, 0.003, (8, 16))
SMALL = Scale(8, 64, 0.001, 0.001, (2,))


class Loop:
    """A running loop, which ends with its iterator."""

    def __init__(self, batches: Iterator[Any], step: Callable[[Any], object]) -> None:
        self.batches = batches
        self.step = step

    def __call__(self) -> None:
        self.step(next(self.batches))

    def renew(self) -> None:
        """Start again, if the batches can."""
        if isinstance(self.batches, Renewed):
            self.batches.renew()

    def close(self) -> None:
        _close(self.batches)


def _close(batches: Iterator[Any]) -> None:
    close = getattr(batches, "close", None)
    if close is not None:
        close()


class Renewed:
    """Batches of an iterator that is made again for each round.

    TensorFlow's threads find a fast or a slow pace at the start of an iterator and keep it: 6.5 or 12 ms a step of the
    same dataset in one process, by pyxfer and without.
    """

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.make = make
        self.batches = make()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.batches)

    def renew(self) -> None:
        self.close()
        self.batches = self.make()

    def close(self) -> None:
        _close(self.batches)


def loops_of(peer: Peer, device: int | str) -> Iterator[Case]:
    """Loops over arrays, and over the datasets and loaders of the framework."""
    scale = SMALL if device == HOST else GPU
    nbytes = scale.images * 224 * 224 * 3
    yield Case("prefetch, steps of 1 ms", nbytes, partial(short_steps, peer, device, scale), round_s=ROUND_S)
    if peer.name == "tensorflow":
        for name in DATASETS:
            yield Case(f"tf.data, {name}", nbytes, partial(datasets, peer, device, scale, name), round_s=ROUND_S)
    if peer.name == "torch":
        for workers in sorted({min(count, len(os.sched_getaffinity(0))) for count in scale.workers}):
            prepare = partial(loaders, peer, device, scale, workers)
            yield Case(f"DataLoader, {workers} workers", nbytes, prepare, round_s=LOADER_ROUND_S)


def short_steps(peer: Peer, device: int | str, scale: Scale) -> Prepared:
    """Batches of NumPy, in a loop that works on each for 1 ms."""
    batches = list(images(STORED * scale.images).reshape(STORED, scale.images, 224, 224, 3))
    to: Any = peer.name
    ways = {
        OWN: pyxfer.prefetch(itertools.cycle(batches), to, device=device),
        "plain": map(peer.on_device, itertools.cycle(batches)),
        **peer.prefetches(batches),
    }
    alone = (pyxfer.upload(batch, to, device) for batch in itertools.cycle(batches))
    step = step_of(peer, peer.on_device(batches[0]), scale.side, scale.step_s)
    for found in ways.values():
        check(peer, next(found), batches[0])
    return prepared(peer, batches[0], step, ways, {"one upload alone": alone}, AHEAD)


def images(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random images in ordinary memory."""
    return np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), np.uint8)


def prepared(
    peer: Peer,
    batch: Any,
    step: Callable[[Any], object],
    ways: Mapping[str, Iterator[Any]],
    alone: Mapping[str, Iterator[Any]],
    ahead: int,
) -> Prepared:
    """The loops of a row. Those of `alone` take batches and do nothing with them.

    Before a round of a loop, `ahead` batches are taken that were made while others ran.
    """
    loops = {name: Loop(found, step) for name, found in ways.items()}
    references = {
        "step on the device": Loop(itertools.repeat(peer.on_device(batch)), step),
        **{name: Loop(found, lambda batch: None) for name, found in alone.items()},
    }
    every = {**loops, **references}

    def settle(name: str) -> None:
        loop = every[name]
        loop.renew()
        for _ in range(ahead):
            next(loop.batches)
        for _ in range(SETTLING_STEPS):
            loop()

    def close() -> None:
        for loop in every.values():
            loop.close()

    return Prepared(loops, references, settle, close)


def step_of(peer: Peer, batch: Any, side: int, seconds: float) -> Callable[[Any], object]:
    """A step that takes about `seconds` on the device."""
    one, many = (_seconds_of(peer, peer.step(side, passes), batch) for passes in (1, 33))
    pass_s = max((many - one) / 32, 1e-5)  # on a busy host the difference may be nothing
    return peer.step(side, max(1, 1 + round((seconds - one) / pass_s)))


def _seconds_of(peer: Peer, step: Callable[[Any], object], batch: Any) -> float:
    """Of a step, when the device is warm."""
    found = []
    for _ in range(10):
        peer.synchronize()
        begun = time.perf_counter()
        for _ in range(10):
            step(batch)
        peer.synchronize()
        found.append((time.perf_counter() - begun) / 10)
    return statistics.median(found[5:])


# --- tf.data ---------------------------------------------------------------------------------------------------------


def _from_generator(tf: Any, stored: Any, count: int) -> Any:
    batches = stored.reshape(-1, count, *stored.shape[1:])
    kind = tf.TensorSpec(batches.shape[1:], tf.uint8)
    return tf.data.Dataset.from_generator(lambda: itertools.cycle(batches), output_signature=kind)


def _slices(tf: Any, stored: Any, count: int) -> Any:
    return tf.data.Dataset.from_tensor_slices(stored).repeat().batch(count, drop_remainder=True)


def _mapped(tf: Any, stored: Any, count: int) -> Any:
    slices = tf.data.Dataset.from_tensor_slices(stored).repeat()
    turned = slices.map(lambda image: 255 - image, num_parallel_calls=len(os.sched_getaffinity(0)))
    return turned.batch(count, drop_remainder=True)


DATASETS: dict[str, Callable[[Any, Any, int], Any]] = {
    "from_generator": _from_generator,
    "from_tensor_slices.batch": _slices,
    "map.batch": _mapped,
}


def datasets(peer: Any, device: int | str, scale: Scale, name: str) -> Prepared:
    """A dataset as it is, with the last steps that users add, and by pyxfer."""
    stored = images(STORED * scale.images)
    tf = peer.tf
    with tf.device("CPU"):
        dataset = DATASETS[name](tf, stored, scale.images)
    batch = next(iter(dataset)).numpy()
    ways = {
        OWN: Renewed(lambda: pyxfer.prefetch(dataset, "tensorflow", device=device)),
        "plain": Renewed(lambda: iter(dataset)),
        "prefetch(2)": Renewed(lambda: iter(dataset.prefetch(2))),
        "prefetch_to_device": Renewed(lambda: iter(dataset.apply(peer.to_device()))),
    }
    for found in ways.values():
        check(peer, next(found), batch)
    step = step_of(peer, peer.on_device(batch), scale.side, scale.step_s)
    return prepared(peer, batch, step, ways, {"drawing alone": Renewed(lambda: iter(dataset))}, AHEAD)


# --- DataLoader ------------------------------------------------------------------------------------------------------


class Images:
    """A dataset without an end. An image costs no more than its copy into the batch."""

    def __init__(self) -> None:
        self.stored = images(64)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Any:
        return self.stored[index % len(self.stored)]


def loaders(peer: Any, device: int | str, scale: Scale, workers: int) -> Prepared:
    """A DataLoader with page-locked batches, and by pyxfer.

    Its workers come from a server that knows nothing of CUDA. They share the cores with the loop.
    """
    is_gpu = device != HOST
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])

    def loader(pinned: bool) -> Iterable[Any]:
        found: Iterable[Any] = peer.torch.utils.data.DataLoader(
            Images(), scale.images, num_workers=workers, pin_memory=pinned, multiprocessing_context=context
        )
        return found

    ways = {
        OWN: pyxfer.prefetch(loader(False), "torch", device=device),
        "pin_memory=True": (batch.to(peer.device, non_blocking=True) for batch in loader(is_gpu)),
    }
    alone = iter(loader(False))
    batch = next(alone).numpy()
    for found in ways.values():
        check(peer, next(found), batch)
    step = step_of(peer, peer.on_device(batch), scale.side, scale.loader_step_s)
    return prepared(peer, batch, step, ways, {"drawing alone": alone}, 2 * PER_WORKER * workers)

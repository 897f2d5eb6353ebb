"""The rows of never_slower.py, and how each framework sends and fetches arrays by itself."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, Queue
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

Ways = Mapping[str, Callable[[], object]]
CHUNK = 1 << 20
UNDER_WAY = 2
MIN_ROUND_S = 0.02


def _nothing(*_: object) -> None:
    pass


class Prepared(NamedTuple):
    """What a row measures."""

    ways: Ways
    references: Ways = MappingProxyType({})
    """What is timed in the same rounds to compare with, and does not do the same as the ways."""
    settle: Callable[[str], object] = _nothing
    """Called with the name of a way before it is timed."""
    close: Callable[[], object] = _nothing


class Case(NamedTuple):
    """A row. Its data are made by `prepare`, so that a row that is not measured costs nothing."""

    name: str
    nbytes: int
    prepare: Callable[[], Prepared]
    pause_s: float = 0.0
    """Sleep before each call, which is then timed alone."""
    round_s: float = MIN_ROUND_S


class Peer:
    """A framework, and its ways to move an array."""

    name = ""
    version = ""
    has_tensors = False
    """Whether `on_host` makes an array that `tensor_uploads` sends."""

    def synchronize(self) -> None:
        """Wait for the device."""

    def on_device(self, x: Any) -> Any:
        """A copy on the device."""
        raise NotImplementedError

    def to_numpy(self, y: Any) -> Any:
        """A copy on the host."""
        return np.asarray(y)

    def on_host(self, x: Any) -> Any:
        """The framework's own array on the host."""
        raise NotImplementedError

    def uploads(self, x: Any) -> Ways:
        """Ways to send an array of NumPy."""
        return {"plain": lambda: self.on_device(x)}

    def tensor_uploads(self, x: Any) -> Ways:
        """Ways to send the framework's own array."""
        return {}

    def structures(self, tree: Any) -> Ways:
        """Ways to send a list or a dict of arrays."""
        if isinstance(tree, dict):
            return {"each": lambda: {name: self.on_device(x) for name, x in tree.items()}}
        return {"each": lambda: [self.on_device(x) for x in tree]}

    def downloads(self, y: Any) -> Ways:
        """Ways to fetch an array into new memory."""
        return {"plain": lambda: self.to_numpy(y)}

    def not_fetched(self, y: Any) -> Any:
        """An array like `y`, or itself, whose contents the framework does not keep on the host."""
        return y

    def step(self, side: int, passes: int) -> Callable[[Any], object]:
        """Work on a batch: products of matrices on the device, and a sum over the first item of the batch."""
        raise NotImplementedError

    def prefetches(self, batches: Sequence[Any]) -> Mapping[str, Iterator[Any]]:
        """Ways to send these batches of NumPy again and again, ahead of a loop."""
        return {}


class Torch(Peer):
    """`torch.from_numpy(x).to(device)`, and what users write instead."""

    name = "torch"
    has_tensors = True

    def __init__(self, device: int | str) -> None:
        import torch

        self.torch, self.version = torch, str(torch.__version__)
        self.device = torch.device("cpu" if device == "host" else f"cuda:{device}")

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)

    def on_device(self, x: Any) -> Any:
        return self.torch.from_numpy(x).to(self.device)

    def to_numpy(self, y: Any) -> Any:
        return y.cpu().numpy()

    def on_host(self, x: Any) -> Any:
        return self.torch.from_numpy(x)

    def uploads(self, x: Any) -> Ways:
        ways: dict[str, Callable[[], object]] = {"torch.to": lambda: self.on_device(x)}
        if self.device.type == "cuda":
            whole, chunks = self._through_pinned(x, x.nbytes), self._through_pinned(x, CHUNK)
            ways["own pinned buffer"] = whole
            if x.nbytes > CHUNK:
                ways["own pinned chunks"] = chunks
        return ways

    def tensor_uploads(self, x: Any) -> Ways:
        return {"torch.to": lambda: x.to(self.device)}

    def downloads(self, y: Any) -> Ways:
        return {"torch.cpu": lambda: y.cpu().numpy()}

    def step(self, side: int, passes: int) -> Callable[[Any], object]:
        return _products(self.torch.full((side, side), 1 / side, device=self.device), passes)

    def prefetches(self, batches: Sequence[Any]) -> Mapping[str, Iterator[Any]]:
        return {"own thread and buffers": self._ahead(batches)} if self.device.type == "cuda" else {}

    def _ahead(self, batches: Sequence[Any]) -> Iterator[Any]:
        """A thread copies batches into two page-locked buffers, and sends them on a stream of its own."""
        torch = self.torch
        ready: Queue[tuple[Any, Any]] = Queue(UNDER_WAY)
        stopped = threading.Event()
        thread = threading.Thread(target=self._feed, args=(batches, ready, stopped), daemon=True)
        thread.start()
        try:
            while True:
                sent, copied = ready.get()
                stream = torch.cuda.current_stream(self.device)
                stream.wait_event(copied)
                sent.record_stream(stream)
                yield sent
        finally:
            stopped.set()
            with suppress(Empty):
                while True:
                    ready.get_nowait()
            thread.join()

    def _feed(self, batches: Sequence[Any], ready: Queue[tuple[Any, Any]], stopped: threading.Event) -> None:
        torch = self.torch
        stream = torch.cuda.Stream(self.device)
        pinned = [torch.empty(batches[0].shape, dtype=torch.uint8, pin_memory=True) for _ in range(UNDER_WAY)]
        copied = [torch.cuda.Event() for _ in pinned]
        for number, batch in enumerate(itertools.cycle(batches)):
            turn = number % UNDER_WAY
            copied[turn].synchronize()
            pinned[turn].copy_(torch.from_numpy(batch))  # by several threads, without the GIL
            with torch.cuda.stream(stream):
                sent = pinned[turn].to(self.device, non_blocking=True)
            copied[turn] = stream.record_event()
            ready.put((sent, copied[turn]))
            if stopped.is_set():
                return

    def _through_pinned(self, x: Any, chunk: int) -> Callable[[], object]:
        """Copy into two page-locked buffers in turn, and from there to the device."""
        pinned = [self.torch.empty(chunk, dtype=self.torch.uint8, pin_memory=True) for _ in range(2)]
        views = [buffer.numpy() for buffer in pinned]
        events = [self.torch.cuda.Event() for _ in range(2)]

        def call() -> Any:
            made = self.torch.empty(x.nbytes, dtype=self.torch.uint8, device=self.device)
            for turn, begin in enumerate(range(0, x.nbytes, chunk)):
                end = min(begin + chunk, x.nbytes)
                events[turn % 2].synchronize()
                np.copyto(views[turn % 2][: end - begin], x[begin:end])
                made[begin:end].copy_(pinned[turn % 2][: end - begin], non_blocking=True)
                events[turn % 2].record()
            return made

        return call


class Cupy(Peer):
    """`cupy.asarray` and `get`."""

    name = "cupy"

    def __init__(self, device: int | str) -> None:
        import cupy

        self.cupy, self.version = cupy, cupy.__version__
        cupy.cuda.Device(device).use()

    def synchronize(self) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()

    def on_device(self, x: Any) -> Any:
        return self.cupy.asarray(x)

    def to_numpy(self, y: Any) -> Any:
        return y.get()

    def uploads(self, x: Any) -> Ways:
        return {"asarray": lambda: self.on_device(x)}

    def downloads(self, y: Any) -> Ways:
        return {"get": y.get}

    def step(self, side: int, passes: int) -> Callable[[Any], object]:
        return _products(self.cupy.full((side, side), 1 / side, np.float32), passes)


class Jax(Peer):
    """`jax.device_put` and `np.asarray`."""

    name = "jax"

    def __init__(self, device: int | str) -> None:
        import jax

        self.jax, self.version = jax, jax.__version__
        self.device = jax.devices("cpu")[0] if device == "host" else jax.local_devices(backend="gpu")[int(device)]
        self._sent: deque[Any] = deque()
        self._last: Any = None
        """The result of the last step."""

    def synchronize(self) -> None:
        self.jax.block_until_ready([*self._sent, self._last])
        self._sent.clear()

    def on_device(self, x: Any) -> Any:
        """`device_put` returns early, and its copies may end in any order: so at most three are under way."""
        made = self.jax.device_put(x, self.device)
        self._sent.append(made)
        if len(self._sent) > UNDER_WAY:
            self.jax.block_until_ready(self._sent.popleft())
        return made

    def to_numpy(self, y: Any) -> Any:
        return np.array(y)

    def uploads(self, x: Any) -> Ways:
        return {
            "device_put": lambda: self.on_device(x),
            "device_put of a copy": lambda: self.on_device(x.copy()),
            "device_put and wait": lambda: self.on_device(x).block_until_ready(),
        }

    def structures(self, tree: Any) -> Ways:
        return {"device_put": lambda: self.on_device(tree)}

    def downloads(self, y: Any) -> Ways:
        return {"np.asarray": lambda: np.asarray(self.not_fetched(y))}

    def not_fetched(self, y: Any) -> Any:
        return self.jax.numpy.copy(y)  # `np.asarray` keeps what it has fetched

    def step(self, side: int, passes: int) -> Callable[[Any], object]:
        matrix = self.jax.device_put(np.full((side, side), 1 / side, np.float32), self.device)
        compiled = self.jax.jit(lambda matrix, batch: _products(matrix, passes)(batch))

        def work(batch: Any) -> None:
            self._last = compiled(matrix, batch)

        return work

    def prefetches(self, batches: Sequence[Any]) -> Mapping[str, Iterator[Any]]:
        return {"device_put ahead": self._ahead(batches)}

    def _ahead(self, batches: Sequence[Any]) -> Iterator[Any]:
        waiting: deque[Any] = deque()
        for batch in itertools.cycle(batches):
            waiting.append(self.on_device(batch))
            if len(waiting) > UNDER_WAY:
                yield waiting.popleft()


class Tensorflow(Peer):
    """`tf.constant` on the device, and `numpy`."""

    name = "tensorflow"

    def __init__(self, device: int | str) -> None:
        import tensorflow as tf

        self.tf, self.version = tf, tf.__version__
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        self.device = "CPU:0" if device == "host" else f"GPU:{device}"

    def synchronize(self) -> None:
        if self.device.startswith("GPU"):
            self.tf.test.experimental.sync_devices()

    def on_device(self, x: Any) -> Any:
        with self.tf.device(self.device):
            return self.tf.identity(self.tf.constant(x))

    def to_numpy(self, y: Any) -> Any:
        return y.numpy()

    def uploads(self, x: Any) -> Ways:
        def convert() -> Any:
            with self.tf.device(self.device):
                return self.tf.convert_to_tensor(x)

        return {"tf.constant": lambda: self.on_device(x), "convert_to_tensor": convert}

    def downloads(self, y: Any) -> Ways:
        return {"numpy": lambda: self.not_fetched(y).numpy()}

    def not_fetched(self, y: Any) -> Any:
        with self.tf.device(self.device):
            return self.tf.identity(y)  # `numpy` keeps what it has fetched

    def step(self, side: int, passes: int) -> Callable[[Any], object]:
        with self.tf.device(self.device):
            matrix = self.tf.Variable(self.tf.fill((side, side), 1 / side))

        @self.tf.function  # type: ignore[untyped-decorator]
        def compiled(batch: Any) -> Any:
            made = matrix.read_value()
            for _ in range(passes):
                made = made @ matrix
            return made[0, 0] + self.tf.reduce_sum(self.tf.cast(batch[0], self.tf.float32))

        def work(batch: Any) -> Any:
            with self.tf.device(self.device):
                return compiled(batch)

        return work

    def prefetches(self, batches: Sequence[Any]) -> Mapping[str, Iterator[Any]]:
        with self.tf.device("CPU"):
            data = self.tf.data.Dataset.from_tensor_slices(np.stack(batches)).repeat()
        return {"prefetch_to_device": iter(data.apply(self.to_device()))}

    def to_device(self) -> Any:
        """The last step of a dataset whose elements are sent ahead."""
        return self.tf.data.experimental.prefetch_to_device(self.device, buffer_size=UNDER_WAY)


def check(peer: Peer, y: Any, x: Any) -> None:
    """Compare the bytes of an array on the device with those of its source."""
    if not np.array_equal(peer.to_numpy(y), x):
        raise AssertionError("an upload has other contents than its source")


def _products(matrix: Any, passes: int) -> Callable[[Any], object]:
    def work(batch: Any) -> object:
        made = matrix
        for _ in range(passes):
            made = made @ matrix
        return made[0, 0] + batch[0].sum()

    return work


PEERS: dict[str, Callable[[Any], Peer]] = {kind.name: kind for kind in (Torch, Cupy, Jax, Tensorflow)}

"""How each framework sends and fetches arrays by itself, for never_slower.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

Ways = dict[str, Callable[[], object]]
CHUNK = 1 << 20
UNDER_WAY = 2


class Peer:
    """A framework, and its ways to move an array."""

    name = ""
    version = ""

    def synchronize(self) -> None:
        """Wait for the device."""

    def on_device(self, x: Any) -> Any:
        """A copy on the device."""
        raise NotImplementedError

    def to_numpy(self, y: Any) -> Any:
        """A copy on the host."""
        return np.asarray(y)

    def on_host(self, x: Any) -> Any:
        """The framework's own array on the host, or None if it has none."""
        return None

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


class Torch(Peer):
    """`torch.from_numpy(x).to(device)`, and what users write instead."""

    name = "torch"

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
        ways: Ways = {"torch.to": lambda: self.on_device(x)}
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


class Jax(Peer):
    """`jax.device_put` and `np.asarray`."""

    name = "jax"

    def __init__(self, device: int | str) -> None:
        import jax

        self.jax, self.version = jax, jax.__version__
        self.device = jax.devices("cpu")[0] if device == "host" else jax.local_devices(backend="gpu")[int(device)]
        self._sent: deque[Any] = deque()

    def synchronize(self) -> None:
        self.jax.block_until_ready(list(self._sent))
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
        }

    def structures(self, tree: Any) -> Ways:
        return {"device_put": lambda: self.on_device(tree)}

    def downloads(self, y: Any) -> Ways:
        # An array of JAX keeps what np.asarray has fetched once, so each call gets an array of its own.
        return {"np.asarray": lambda: np.asarray(self.jax.numpy.copy(y))}


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
        return {"numpy": y.numpy}


PEERS: dict[str, Callable[[Any], Peer]] = {kind.name: kind for kind in (Torch, Cupy, Jax, Tensorflow)}

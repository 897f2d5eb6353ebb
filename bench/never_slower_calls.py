"""The calls of never_slower_parts.py, and the parts that each consists of."""

from __future__ import annotations

import ctypes
import itertools
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, NamedTuple

import never_slower_loops as loops
import numpy as np
from never_slower_peers import Peer

import pyxfer
from pyxfer._upload.api import shared_uploader
from pyxfer._upload.device_arrays import DeviceArray
from pyxfer._upload.movers import RingMover
from pyxfer._upload.trees import arrays_of, groups_of, map_arrays
from pyxfer.errors import UsageError
from pyxfer.native import HOST, Engine
from pyxfer.units import format_size

KIB, MIB = 1 << 10, 1 << 20
ROUND_S = 0.01
PAUSED_ROUND_S = 0.1
PAUSE_S = 0.005
OWN = "pyxfer's call"
UINT8 = np.dtype(np.uint8)


class Timed(NamedTuple):
    """A part to measure: the seconds of one call, of as many as are asked for."""

    name: str
    seconds: Callable[[int], float]
    is_floor: bool = False
    round_s: float = ROUND_S


class Driver:
    """Copies by the driver's own calls, which take 1 us more from Python than from C."""

    def __init__(self, device: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context, found = ctypes.c_void_p(), ctypes.c_int()
        self._checked("cuDeviceGet", ctypes.byref(found), device)
        self._checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), found)
        self._checked("cuCtxSetCurrent", context)
        word, size = ctypes.c_void_p, ctypes.c_size_t
        for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
            getattr(self._cuda, name).argtypes = (word, word, size, word)
        for name in ("cuStreamSynchronize", "cuStreamQuery"):
            getattr(self._cuda, name).argtypes = (word,)

    def _checked(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._cuda, name)(*arguments):
            raise UsageError(f"{name} returned {status}.")

    def send(self, to: int, address: int, nbytes: int, stream: int) -> None:
        """To the device; pageable memory has been read when it returns."""
        self._cuda.cuMemcpyHtoDAsync_v2(to, address, nbytes, stream)

    def fetch(self, to: int, address: int, nbytes: int, stream: int) -> None:
        """To pageable memory, which has been written when it returns."""
        self._cuda.cuMemcpyDtoHAsync_v2(to, address, nbytes, stream)

    def wait(self, stream: int) -> None:
        """Until the work of a stream is done."""
        self._cuda.cuStreamSynchronize(stream)

    def query(self, stream: int) -> None:
        """Whether it is."""
        self._cuda.cuStreamQuery(stream)


class HostDriver:
    """The same over host memory."""

    def send(self, to: int, address: int, nbytes: int, stream: int) -> None:
        """A copy."""
        del stream
        ctypes.memmove(to, address, nbytes)

    fetch = send

    def wait(self, stream: int) -> None:
        """Nothing to wait for."""

    query = wait


class Used:
    """What the parts use: the uploader of pyxfer's calls, its ring, and the driver."""

    def __init__(self, engine: Engine, device: int | str, closed: ExitStack) -> None:
        self.engine, self.device, self.closed = engine, device, closed
        self.up = shared_uploader(device)
        self.index = self.up.device
        mover = self.up._ready(of_files=False)
        if not isinstance(mover, RingMover):
            raise UsageError("No ring can be made.")
        self.ring, self.pool = mover.ring, self.up._pool
        self.driver = HostDriver() if device == HOST else Driver(self.index)
        self.stream = closed.enter_context(closing(engine.Stream(self.index))).handle

    def on_device(self, nbytes: int) -> int:
        """The address of memory on the device."""
        return self.closed.enter_context(closing(self.engine.DeviceBuffer(nbytes, self.index))).address

    def page_locked(self, nbytes: int) -> int:
        """The address of page-locked memory."""
        return self.closed.enter_context(closing(self.engine.HostBuffer(nbytes, "pinned", self.index))).address

    def sent(self, to: int, address: int, nbytes: int) -> None:
        """A copy by the driver that has arrived."""
        self.driver.send(to, address, nbytes, self.stream)
        self.driver.wait(self.stream)


class Exported:
    """Memory on the device as an array to take over, without the Python of pyxfer's."""

    def __init__(self, used: Used, address: int, nbytes: int) -> None:
        self._place = (1, 0) if used.device == HOST else (2, used.index)
        self._make = partial(used.engine.to_dlpack, address, *self._place, 1, 8, (nbytes,), False, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place

    def __dlpack__(self, **_: Any) -> Any:
        return self._make()


def repeated(call: Callable[[], object], settle: Callable[[], object]) -> Callable[[int], float]:
    """Seconds of a call, with the wait for the device at the end of all."""

    def seconds(count: int) -> float:
        settle()
        begun = time.perf_counter()
        for _ in range(count):
            call()
        settle()
        return (time.perf_counter() - begun) / count

    return seconds


def paused(call: Callable[[], object], settle: Callable[[], object]) -> Callable[[int], float]:
    """Seconds of a call after a pause, with the wait for the device."""

    def seconds(count: int) -> float:
        found = []
        for _ in range(count):
            time.sleep(PAUSE_S)
            begun = time.perf_counter()
            call()
            settle()
            found.append(time.perf_counter() - begun)
        return statistics.fmean(found)

    return seconds


def kept(make: Callable[[], object]) -> Callable[[int], float]:
    """Seconds to make an object, without those to drop it."""

    def seconds(count: int) -> float:
        begun = time.perf_counter()
        made = [make() for _ in range(count)]
        ended = time.perf_counter()
        made.clear()
        return (ended - begun) / count

    return seconds


def dropped(make: Callable[[], object]) -> Callable[[int], float]:
    """Seconds to drop an object."""

    def seconds(count: int) -> float:
        made = [make() for _ in range(count)]
        begun = time.perf_counter()
        made.clear()
        return (time.perf_counter() - begun) / count

    return seconds


def _nothing() -> None:
    pass


def _bytes(nbytes: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


# --- the parts of each call -------------------------------------------------------------------------------------------


def jax_upload(nbytes: int, used: Used, peer: Any) -> Iterator[Timed]:
    """One array to JAX, which takes over memory of pyxfer's."""
    x = _bytes(nbytes)
    there = used.on_device(nbytes)
    exported = Exported(used, there, nbytes)
    pyxfer.upload(x, "jax", used.device)
    target: Any = used.up._targets["jax"]

    def take() -> Any:
        """What `from_dlpack` calls."""
        place = target._backend(target._platform).device_from_local_hardware_id(used.index)
        return target._take(exported.__dlpack__(), place, None)

    yield Timed(OWN, repeated(lambda: pyxfer.upload(x, "jax", used.device), peer.synchronize))
    ways = peer.uploads(x)
    for name in ("device_put", "device_put and wait"):
        yield Timed(name, repeated(ways[name], peer.synchronize))
    yield Timed(
        "copy by the driver, and wait", repeated(partial(used.sent, there, x.ctypes.data, nbytes), _nothing), True
    )
    yield Timed("from_dlpack", kept(partial(peer.jax.dlpack.from_dlpack, exported)))
    yield Timed("from_dlpack without its Python", kept(take), True)
    yield Timed("dropping the array", dropped(take), True)
    yield Timed("memory from the pool, and back", repeated(lambda: DeviceArray(used.pool, x.shape, UINT8), _nothing))


def torch_upload(nbytes: int, used: Used, peer: Any) -> Iterator[Timed]:
    """One array to PyTorch, on its stream."""
    x = _bytes(nbytes)
    there, locked = used.on_device(nbytes), used.page_locked(nbytes)
    empty = partial(peer.torch.empty, x.shape, dtype=peer.torch.uint8, device=peer.device)
    address, send = x.ctypes.data, used.driver.send
    yield Timed(OWN, repeated(lambda: pyxfer.upload(x, "torch", used.device), peer.synchronize))
    yield Timed("torch.to", repeated(peer.uploads(x)["torch.to"], peer.synchronize))
    yield Timed("torch.empty", repeated(empty, _nothing), True)
    yield Timed("copy by the driver", repeated(lambda: send(there, address, nbytes, 0), peer.synchronize), True)
    yield Timed("page-locked copy", repeated(lambda: send(there, locked, nbytes, 0), peer.synchronize))


def torch_structure(count: int, nbytes: int, used: Used, peer: Any) -> Iterator[Timed]:
    """Many small arrays to PyTorch, in one copy."""
    arrays = [_bytes(nbytes, seed) for seed in range(count)]
    pyxfer.upload(arrays, "torch", used.device)
    target = used.up._targets["torch"]
    there = used.on_device(count * nbytes)
    block = peer.torch.zeros(count * nbytes, dtype=peer.torch.uint8, device=peer.device)

    def walk() -> None:
        tree, found = arrays_of(arrays, "x")
        groups_of(found, target)
        made = iter(found)
        map_arrays(tree, lambda _: next(made), "x")

    def send() -> None:
        used.ring.upload(used.engine.Pack(arrays), there, None if used.device == HOST else 0, False)

    views = partial(peer.torch.unsafe_split_with_sizes, block, [nbytes] * count)
    yield Timed(OWN, repeated(lambda: pyxfer.upload(arrays, "torch", used.device), peer.synchronize))
    yield Timed("finding the arrays", repeated(walk, _nothing))
    yield Timed("gathering and copying by the ring", repeated(send, peer.synchronize), True)
    yield Timed("views of one block", kept(views), True)
    yield Timed("dropping the views", dropped(views), True)


def after_pause(nbytes: int, used: Used, peer: Any) -> Iterator[Timed]:
    """One array to PyTorch after a pause."""
    x = _bytes(nbytes)
    there, locked = used.on_device(nbytes), used.page_locked(nbytes)

    address = x.ctypes.data

    def ring() -> None:
        used.ring.upload(address, 1, (nbytes,), (1,), there, None, True)

    by_pause: dict[str, tuple[Callable[[], object], bool]] = {
        OWN: (lambda: pyxfer.upload(x, "torch", used.device), False),
        "page-locked copy": (partial(used.sent, there, locked, nbytes), True),
        "page-locked copy, 4 bytes": (partial(used.sent, there, locked, 4), False),
        "the ring's copy": (ring, False),
    }
    for name, (call, is_floor) in by_pause.items():
        yield Timed(name, paused(call, peer.synchronize), is_floor, PAUSED_ROUND_S)
    for name, (call, _) in list(by_pause.items())[1:]:
        yield Timed(f"{name}, no pause", repeated(call, peer.synchronize))


def download(nbytes: int, used: Used, peer: Peer) -> Iterator[Timed]:
    """One small array from the device."""
    y = peer.on_device(_bytes(nbytes))
    there = used.on_device(nbytes)
    result = np.empty(nbytes, np.uint8)
    address, fetch = result.ctypes.data, used.driver.fetch
    yield Timed(OWN, repeated(lambda: pyxfer.download(y), peer.synchronize))
    (theirs,) = peer.downloads(y).values()
    used.closed.callback(result.fill, 0)  # keeps it
    yield Timed("get, torch.cpu", repeated(theirs, peer.synchronize))
    yield Timed("np.empty", repeated(partial(np.empty, nbytes, np.uint8), _nothing), True)
    yield Timed("copy by the driver", repeated(lambda: fetch(address, there, nbytes, 0), _nothing), True)
    yield Timed("asking the stream", repeated(partial(used.driver.query, 0), _nothing))


def prefetch(used: Used, peer: Any) -> Iterator[Timed]:
    """Steps of 1 ms on batches of 38.5 MB."""
    scale = loops.SMALL if used.device == HOST else loops.GPU
    batches = list(loops.images(loops.STORED * scale.images).reshape(loops.STORED, scale.images, 224, 224, 3))
    step = loops.step_of(peer, peer.on_device(batches[0]), scale.side, scale.step_s)
    nbytes = batches[0].nbytes
    own: Any = pyxfer.prefetch(itertools.cycle(batches), "torch", device=used.device)
    ways: dict[str, Any] = {OWN: own, **peer.prefetches(batches)}
    there = [peer.on_device(batches[0]) for _ in range(3)]
    places = [used.on_device(nbytes) for _ in there] if used.device == HOST else [y.data_ptr() for y in there]
    sources = itertools.cycle([batch.ctypes.data for batch in batches])
    turn = itertools.cycle(range(len(there)))

    steps = partial(_steps, peer, step)

    def native() -> Generator[Any, None, None]:
        """The next batch is copied by the ring's threads while the loop works on this one."""

        def start() -> tuple[int, Any]:
            at = next(turn)
            return at, used.ring.start_upload(next(sources), 1, (nbytes,), (1,), places[at], None)

        at, ticket = start()
        try:
            while True:
                ticket.result(30.0)
                arrived = at
                at, ticket = start()
                yield there[arrived]
        finally:
            ticket.result(30.0)  # its memory goes next

    def alone() -> None:
        used.ring.upload(next(sources), 1, (nbytes,), (1,), places[0], None, True)

    alongside = native()
    for found in (*ways.values(), alongside):
        used.closed.callback(found.close)
    for name, found in ways.items():
        yield Timed(name, steps(found), round_s=loops.ROUND_S)
    yield Timed("wait for the batch", steps(own, waits=True), round_s=loops.ROUND_S)
    yield Timed("the step alone", steps(itertools.repeat(there[0])), round_s=loops.ROUND_S)
    yield Timed("the ring's copy alone", repeated(alone, peer.synchronize), round_s=loops.ROUND_S)
    yield Timed("the ring's copies beside the steps", steps(alongside), True, loops.ROUND_S)


def _steps(
    peer: Peer, step: Callable[[Any], object], batches: Iterator[Any], *, waits: bool = False
) -> Callable[[int], float]:
    """Seconds of a step or, if `waits`, those of it in which the loop waits for its batch."""

    def seconds(count: int) -> float:
        for _ in range(loops.AHEAD + loops.SETTLING_STEPS):
            step(next(batches))
        peer.synchronize()
        waited, begun = 0.0, time.perf_counter()
        for _ in range(count):
            asked = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - asked
            step(batch)
        peer.synchronize()
        return (waited if waits else time.perf_counter() - begun) / count

    return seconds


Prepare = Callable[[Used, Any], Iterator[Timed]]
DOWNLOAD = "small downloads"
COLUMNS: dict[str, list[tuple[str, str, Prepare]]] = {
    "jax": [
        ("upload to JAX", format_size(nbytes), partial(jax_upload, nbytes)) for nbytes in (64 * KIB, 256 * KIB, MIB)
    ],
    "torch": [
        ("upload to PyTorch", "1 MiB", partial(torch_upload, MIB)),
        ("upload to PyTorch", "500 of 8 KiB", partial(torch_structure, 500, 8 * KIB)),
        *(
            ("upload after 5 ms of pause", format_size(nbytes), partial(after_pause, nbytes))
            for nbytes in (MIB, 4 * MIB, 24 * MIB)
        ),
        *((DOWNLOAD, f"{format_size(nbytes)}, PyTorch", partial(download, nbytes)) for nbytes in (4 * KIB, 64 * KIB)),
        ("prefetch", "38.5 MB, steps of 1 ms", prefetch),
    ],
    "cupy": [(DOWNLOAD, f"{format_size(nbytes)}, CuPy", partial(download, nbytes)) for nbytes in (4 * KIB, 64 * KIB)],
}

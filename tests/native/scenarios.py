"""Small scenarios that together make every CUDA call of the engine, and flows and arrays for other tests."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyxfer.native._cuda import DeviceBuffer
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Bracket, Flow, FlowStamps, Kernels, Lane, Ring


NBYTES = 4 * 4096
SLOTS = 2
MEMORIES = ("pageable", "pinned", "registered", "write-combined")
SEED = 7
MULTIPROCESSOR_COUNT = 16


@contextmanager
def lanes(engine: Engine, memory: str = "pinned") -> Iterator[tuple[Lane, Lane, tuple[int, int]]]:
    """A lane in each direction with separate memory, and address and size of scratch memory."""
    total = NBYTES * SLOTS
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(2 * total, memory)))
        device = stack.enter_context(closing(engine.DeviceBuffer(2 * total)))
        scratch = stack.enter_context(closing(engine.HostBuffer(64 << 10, "pageable")))
        h2d = engine.Lane("h2d", host.address, device.address, NBYTES, NBYTES, SLOTS)
        d2h = engine.Lane("d2h", host.address + total, device.address + total, NBYTES, NBYTES, SLOTS)
        yield h2d, d2h, (scratch.address, scratch.nbytes)


def query_the_device(engine: Engine) -> None:
    engine.device_count()
    engine.driver_version()
    engine.device_properties(0)
    engine.memory_info(0)
    engine.synchronize(0)


def allocate_all_memories(engine: Engine) -> None:
    with ExitStack() as stack:
        stack.enter_context(closing(engine.DeviceBuffer(NBYTES)))
        for memory in MEMORIES:
            stack.enter_context(closing(engine.HostBuffer(NBYTES, memory)))
        own = stack.enter_context(closing(engine.HostBuffer(NBYTES, "pageable")))
        stack.enter_context(closing(engine.Registration(own.address, NBYTES)))


def register_read_only_pages(engine: Engine) -> None:
    pages = np.frombuffer(mmap.mmap(-1, NBYTES, prot=mmap.PROT_READ), np.uint8)
    engine.Registration(pages.ctypes.data, NBYTES, writeable=False).close()


def empty_bracket_on_a_stream(engine: Engine) -> None:
    with closing(engine.Stream()) as stream, closing(engine.Bracket(0, stream.handle)) as bracket:
        _empty_bracket(bracket)


def empty_drained_bracket(engine: Engine) -> None:
    with closing(engine.Bracket(0)) as bracket:
        _empty_bracket(bracket)


def _empty_bracket(bracket: Bracket) -> None:
    bracket.begin()
    bracket.end()
    while not bracket.ended_within(1.0):
        pass
    assert bracket.elapsed_s >= 0


def copy_one_way(engine: Engine) -> None:
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0, 2)) as copier:
        for mode, lane in (("async", h2d), ("split", d2h), ("batch", h2d)):
            copier.gated(mode, lane, 2, 1, 0)
            copier.on_stream(mode, lane, 0)


def copy_blocking(engine: Engine) -> None:
    with lanes(engine, "pageable") as (h2d, d2h, _), closing(engine.Copier(0)) as copier:
        copier.drained(h2d, 0)
        copier.drained(d2h, 0)


def copy_both_ways_queued(engine: Engine) -> None:
    with lanes(engine) as (h2d, d2h, _), closing(engine.Copier(0, 2)) as copier:
        copier.both_gated(h2d, d2h, 2, 1, (1, 1), 0)


def copy_both_ways_in_threads(engine: Engine) -> None:
    with lanes(engine, "pageable") as (h2d, d2h, _), closing(engine.Copier(0, 2)) as copier:
        copier.both_threads(h2d, d2h, 2, 0)


def verify_contents(engine: Engine) -> None:
    with lanes(engine) as (h2d, d2h, scratch), closing(engine.Copier(0)) as copier:
        for lane, slow_reads in ((h2d, False), (d2h, False), (d2h, True)):
            engine.prepare_check(0, lane, 0, SEED, scratch)
            copier.drained(lane, 0)
            assert engine.first_wrong(0, lane, 0, SEED, scratch, slow_reads) is None


def stage_through_a_ring(engine: Engine) -> None:
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(NBYTES, "pageable")))
        device = stack.enter_context(closing(engine.DeviceBuffer(NBYTES)))
        stream = stack.enter_context(closing(engine.Stream()))
        ring = stack.enter_context(closing(small_ring(engine)))
        ring.upload(host.address, 1, (NBYTES,), (1,), device.address, stream.handle, False)
        ring.upload(host.address, 1, (NBYTES,), (1,), device.address, stream.handle, True)
        ring.download(host.address, 1, (NBYTES,), (1,), device.address, stream.handle)
        ring.start_upload(host.address, 1, (NBYTES,), (1,), device.address, stream.handle).result(60.0)


def upload_without_slots(engine: Engine) -> None:
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(NBYTES, "pinned")))
        device = stack.enter_context(closing(engine.DeviceBuffer(NBYTES)))
        ring = stack.enter_context(closing(small_ring(engine)))
        ring.upload(host.address, 1, (NBYTES,), (1,), device.address, None, True)
        ring.download(host.address, 1, (NBYTES,), (1,), device.address, None)


def upload_past_a_ring(engine: Engine) -> None:
    with ExitStack() as stack:
        device = stack.enter_context(closing(engine.DeviceBuffer(NBYTES)))
        stream = stack.enter_context(closing(engine.Stream()))
        ring = stack.enter_context(closing(engine.Ring(0, 2, 4096, 2, "streaming", 0, direct_bytes=NBYTES + 1)))
        array = np.ones(NBYTES, np.uint8)
        assert ring.upload_at_once(array, device.address, stream.handle)
        assert ring.download_at_once(array.ctypes.data, 1, (NBYTES,), (1,), device.address, stream.handle)


def small_ring(engine: Engine) -> Ring:
    return engine.Ring(0, 2, 4096, 2, "streaming", 0)


def peers_and_attributes(engine: Engine) -> None:
    testing.set_device_count(2)
    assert engine.device_attribute(0, MULTIPROCESSOR_COUNT) > 0
    if _has_peer(engine):
        for _ in range(2):  # the second time it is already so
            engine.enable_peer(0, 1)
        for _ in range(2):
            engine.disable_peer(0, 1)


def _has_peer(engine: Engine) -> bool:
    return engine.device_count() > 1 and engine.can_access_peer(0, 1) and engine.can_access_peer(1, 0)


def contents_of_a_device(engine: Engine) -> None:
    with closing(engine.DeviceBuffer(NBYTES)) as device:
        engine.fill_device(0, device.address, NBYTES, SEED)
        assert engine.first_wrong_at(0, device.address, NBYTES, SEED) is None
        assert engine.first_wrong_at(0, device.address, NBYTES, SEED + 1) == 0


def flows_behind_kernels(engine: Engine) -> None:
    _run_flows(engine, "kernel")


def flows_behind_a_function(engine: Engine) -> None:
    _run_flows(engine, "host")


def _run_flows(engine: Engine, gate: Literal["kernel", "host"]) -> None:
    """An upload, and a kernel and a chase that read its device's memory from a peer, if there is one."""
    testing.set_device_count(2)
    # Another thread may end the access of device 0 to device 1, see `peers_and_attributes`.
    peer = 1 if _has_peer(engine) else 0
    if peer:
        engine.enable_peer(1, 0)
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(NBYTES, "pinned")))
        near = stack.enter_context(closing(engine.DeviceBuffer(3 * NBYTES, 0)))
        far = stack.enter_context(closing(engine.DeviceBuffer(NBYTES, peer)))
        kernels = {device: stack.enter_context(closing(engine.Kernels(device))) for device in {0, peer}}
        assert engine.make_cycle(near.address + NBYTES, NBYTES, 64, SEED, 0) == NBYTES // 64
        up = engine.Flow(
            device=0,
            engine="ce",
            destination=near.address,
            source=host.address,
            nbytes=NBYTES,
            kernels=kernels[0],
            destination_device=0,
        )
        stack.enter_context(closing(up))
        across = engine.Flow(
            device=peer,
            engine="sm",
            destination=far.address,
            source=near.address + 2 * NBYTES,
            nbytes=NBYTES,
            kernels=kernels[peer],
            source_device=0,
            destination_device=peer,
        )
        stack.enter_context(closing(across))
        chase = engine.Flow(
            device=peer,
            engine="chase",
            destination=0,
            source=near.address + NBYTES,
            nbytes=NBYTES,
            kernels=kernels[peer],
            source_device=0,
            hops=1,
        )
        stack.enter_context(closing(chase))
        engine.run_flows([up, across, chase], 0.0, 30.0, gate)


def drop_all_owners(engine: Engine) -> None:
    """Release without `close`: the owners are dropped."""
    held = [engine.DeviceBuffer(NBYTES), engine.Stream(), engine.Bracket(0), engine.Copier(0, 2)]
    held += [small_ring(engine), engine.Kernels(0)]
    held += [engine.HostBuffer(NBYTES, memory) for memory in MEMORIES]
    held.clear()


SCENARIOS: tuple[Callable[[Engine], None], ...] = (
    query_the_device,
    allocate_all_memories,
    register_read_only_pages,
    empty_bracket_on_a_stream,
    empty_drained_bracket,
    copy_one_way,
    copy_blocking,
    copy_both_ways_queued,
    copy_both_ways_in_threads,
    verify_contents,
    stage_through_a_ring,
    upload_without_slots,
    upload_past_a_ring,
    peers_and_attributes,
    contents_of_a_device,
    flows_behind_kernels,
    flows_behind_a_function,
    drop_all_owners,
)


HOST = -1
DEADLINE_S = 60.0


class Flows(ExitStack):
    """Makes flows between devices and host memory, which is device -1."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self._kernels: dict[int, Kernels] = {}

    def kernels(self, device: int) -> Kernels:
        """The kernels of a device, which are loaded once."""
        if device not in self._kernels:
            self._kernels[device] = self.enter_context(closing(self.engine.Kernels(device)))
        return self._kernels[device]

    def memory(self, device: int, nbytes: int) -> int:
        """The address of new memory."""
        if device == HOST:
            return self.enter_context(closing(self.engine.HostBuffer(nbytes, "pinned"))).address
        return self.enter_context(closing(self.engine.DeviceBuffer(nbytes, device))).address

    def _allow_access(self, device: int, sides: set[int]) -> None:
        """A kernel needs access to the memory of peers."""
        for peer in sides - {HOST, device}:
            self.engine.enable_peer(device, peer)

    def copy(
        self,
        source_device: int,
        destination_device: int,
        nbytes: int,
        *,
        by: int | None = None,
        engine: Literal["ce", "sm"] = "ce",
        **others: Any,
    ) -> Flow:
        """A flow of copies `by` a device, by default the one that it writes to."""
        device = by if by is not None else max(destination_device, HOST)
        device = source_device if device == HOST else device
        if engine == "sm":
            self._allow_access(device, {source_device, destination_device})
        made = self.engine.Flow(
            device=device,
            engine=engine,
            destination=others.pop("destination", None) or self.memory(destination_device, nbytes),
            source=others.pop("source", None) or self.memory(source_device, nbytes),
            nbytes=nbytes,
            kernels=self.kernels(device),
            source_device=source_device,
            destination_device=destination_device,
            **others,
        )
        return self.enter_context(closing(made))

    def chase(self, device: int, memory_device: int, nbytes: int, hops: int, **others: Any) -> Flow:
        """A chase through new memory, with a pointer every 64 bytes."""
        self._allow_access(device, {memory_device})
        address = others.pop("source", None)
        if address is None:
            address = self.memory(memory_device, nbytes)
            self.engine.make_cycle(address, nbytes, 64, 1, memory_device)
        made = self.engine.Flow(
            device=device,
            engine="chase",
            destination=0,
            source=address,
            nbytes=nbytes,
            kernels=self.kernels(device),
            source_device=memory_device,
            hops=hops,
            **others,
        )
        return self.enter_context(closing(made))

    def run(self, *flows: Flow, seconds: float = 0.0, **others: Any) -> list[FlowStamps]:
        return self.engine.run_flows(flows, seconds, DEADLINE_S, **others)


def durations_s(stamps: FlowStamps) -> NDArray[np.float64]:
    return (stamps.end_ns - stamps.begin_ns) / 1e9


Array = NDArray[Any]

CHUNK = 4096
FOREVER_S = 60.0


def contents_of(memory: DeviceBuffer) -> NDArray[np.uint8]:
    """The device memory as an array that can be read and written."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * memory.nbytes).from_address(memory.address))


def place(array: Array) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return array.__array_interface__["data"][0], array.itemsize, array.shape, array.strides


def filled(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    nbytes = np.dtype(dtype).itemsize * int(np.prod(shape))
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8).view(dtype).reshape(shape)

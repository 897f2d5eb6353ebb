"""The compiled engine. `_host` has the same names, and a submodule `testing`.

Directions, memories and modes are the words of the documents; addresses and stream handles are integers. Errors are
those of `pyxfer.errors`. Calls that may block release the GIL.
"""

from collections.abc import Sequence
from typing import Any, Literal, final, overload

import numpy as np
from numpy.typing import NDArray

RUNTIME: str
RUNTIME_VERSION: int
trace_kinds: tuple[str, ...]

def device_count() -> int: ...
def driver_version() -> int:
    """The newest CUDA version that the driver supports, e.g. 13000; 0 without a driver."""

def device_properties(device: int) -> DeviceProperties: ...
def memory_info(device: int) -> tuple[int, int]: ...
def synchronize(device: int) -> None: ...
def memory_of(address: int, nbytes: int, device: int) -> Literal["device", "pinned", "partly", "pageable"]:
    """What the driver knows about a range: "partly" if its beginning only is page-locked."""

def relax_captures_in_this_thread() -> None: ...
def park_threads_at_exit(seconds: float) -> None: ...
def driver_has(symbol: str, api_version: int) -> bool: ...
def drained_fault(elapsed_s: float, wall_s: float) -> str: ...
def take_cleanup_failures() -> list[str]: ...
def page_nodes(address: int, nbytes: int) -> dict[int, int]:
    """Count the pages of a buffer by NUMA node. A negative node is an error code of the kernel."""

def unmap_shared(address: int, nbytes: int) -> bool:
    """Unmap the pages of memory that processes share, which keeps its contents. False: it is other memory."""

def prefer_node(node: int | None) -> None:
    """Prefer memory of a NUMA node in the calling thread. None restores the earlier policy."""

def fill(address: int, nbytes: int, seed: int) -> None: ...
def to_dlpack(
    address: int,
    device_type: int,
    device_index: int,
    dtype_code: int,
    dtype_bits: int,
    shape: Sequence[int],
    versioned: bool,
    owner: object,
) -> object:
    """Return a capsule for memory in C order. It keeps `owner` until its consumer is done or it is collected."""

def plain_arrays(objects: list[Any]) -> tuple[list[int], list[np.dtype[Any]]]:
    """The bytes of each contiguous array of NumPy's in memory of its own, -1 for others; and the dtypes of the former.

    A view of such memory counts too. An array that may be mapped from a file does not.
    """

def first_unlike(address: int, nbytes: int, seed: int) -> int | None: ...
def prepare_check(device: int, lane: Lane, slot: int, seed: int, scratch: tuple[int, int]) -> None: ...
def first_wrong(
    device: int, lane: Lane, slot: int, seed: int, scratch: tuple[int, int], slow_reads: bool
) -> int | None: ...
def can_access_peer(device: int, peer: int) -> bool: ...
def enable_peer(device: int, peer: int) -> None:
    """Let `device` access the memory of `peer` directly, in the whole process."""

def disable_peer(device: int, peer: int) -> None:
    """End that, also if another library has allowed it. Copies between the two then go through the host."""

def device_attribute(device: int, attribute: int) -> int:
    """The value of a cudaDeviceAttr. Raises CudaError for a number that the driver does not know."""

def fill_device(device: int, address: int, nbytes: int, seed: int) -> None: ...
def first_wrong_at(device: int, address: int, nbytes: int, seed: int) -> int | None:
    """The offset of the first byte of device memory that differs from what `fill_device` writes there."""

def make_cycle(address: int, nbytes: int, stride: int, seed: int, device: int) -> int:
    """Write a pointer every `stride` bytes; together they lead through all places in a random order and back.

    `device` is -1 for host memory. Returns the number of places. What is between the pointers is lost.
    """

def run_flows(
    flows: Sequence[Flow],
    seconds: float,
    deadline_s: float,
    gate: Literal["kernel", "host"] = "kernel",
    gate_timeout_s: float = 1.0,
) -> list[FlowStamps]:
    """Run all flows at the same time, each issued by a thread of its own, and return what each one did.

    They begin when every one has queued its first items, and keep their queues full for `seconds`; with 0 only the
    first items run. The gate is a kernel on each stream if every flow has kernels, else a host function. It opens by
    itself after `gate_timeout_s`; with 0 there is none. Raises DeviceTimeoutError if a device takes more than
    `deadline_s` for an item. On Ctrl-C the flows end, and what the signal handler raises is raised.
    """

@final
class DeviceProperties:
    @property
    def name(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def pci(self) -> str | None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def compute_major(self) -> int: ...
    @property
    def compute_minor(self) -> int: ...
    @property
    def copy_engines(self) -> int: ...
    @property
    def integrated(self) -> bool: ...

@final
class HostBuffer:
    def __init__(self, nbytes: int, memory: str, device: int = 0) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def locking_s(self) -> float: ...
    def forget(self, offset: int, nbytes: int) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class DeviceBuffer:
    def __init__(self, nbytes: int, device: int = 0) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class Registration:
    """Page-locks memory of another owner until it is closed. The memory must live that long."""

    def __init__(self, address: int, nbytes: int, device: int = 0, writeable: bool = True) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class Stream:
    def __init__(self, device: int = 0) -> None: ...
    @property
    def handle(self) -> int: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class Bracket:
    def __init__(self, device: int, stream: int | None = None) -> None: ...
    def begin(self) -> None: ...
    def end(self) -> None: ...
    def ended_within(self, seconds: float) -> bool: ...
    @property
    def elapsed_s(self) -> float: ...
    def close(self) -> None: ...

@final
class Lane:
    def __init__(self, direction: str, host: int, device: int, nbytes: int, stride_bytes: int, slots: int) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def slots(self) -> int: ...

@final
class Sample:
    @property
    def elapsed_s(self) -> float: ...
    @property
    def dispatch_s(self) -> float: ...
    @property
    def wall_s(self) -> float | None: ...
    @property
    def copies(self) -> int: ...
    @property
    def invalid(self) -> str: ...

@final
class Copier:
    def __init__(self, device: int, streams: int = 1, patience_s: float = 30.0) -> None: ...
    def gated(
        self, mode: str, lane: Lane, copies: int, warmups: int, first_slot: int, untimed_bytes: int = 0
    ) -> Sample:
        """Time queued copies by the device. Warm-ups have `untimed_bytes`; 0: those of the lane."""
    def on_stream(self, mode: str, lane: Lane, first_slot: int, copies: int = 1) -> Sample:
        """Time copies without a gate: from the first call to the end of the last copy, divided by their number."""
    def drained(self, lane: Lane, slot: int) -> Sample: ...
    def drained_through(self, ring: Ring, lane: Lane, slot: int) -> Sample: ...
    def both_gated(
        self,
        h2d: Lane,
        d2h: Lane,
        copies: int,
        warmups: int,
        tails: Sequence[int],
        first_slot: int,
        untimed_bytes: int = 0,
    ) -> list[Sample]: ...
    def both_issued(self, h2d: Lane, d2h: Lane, copies: int, first_slot: int) -> Sample:
        """The same for copies in both directions, whose calls alternate."""
    def both_threads(self, h2d: Lane, d2h: Lane, copies: int, first_slot: int) -> list[Sample]: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class Conversion:
    """What becomes of an array's items on the way to a device.

    With `casts_on_host` they are cast in the copy to a slot, else by a kernel on the device. With axes, the items of
    the array in C order go to the sum of each axis' index times its stride, in items.
    """

    def __init__(
        self, source: str, to: str, casts_on_host: bool, extents: Sequence[int], strides: Sequence[int]
    ) -> None: ...
    @property
    def casts_on_host(self) -> bool: ...
    @property
    def has_kernel(self) -> bool: ...
    def crossing_bytes(self, nbytes: int) -> int:
        """Of an array with so many bytes."""

    def cast(self, address: int, itemsize: int, shape: Sequence[int], strides: Sequence[int], to_address: int) -> None:
        """Write what crosses to host memory."""

class Ring:
    """Moves pageable memory through page-locked `slots` of `chunk_bytes`, which all its threads fill or empty.

    An array is given by the address of its first item, its itemsize, its shape and its strides in bytes. On the device
    its items are contiguous, in C order. `stream` is the stream of the caller's other work (0: the legacy default
    stream): the copies wait for its earlier work. With None they wait for nothing, not even for the ring's earlier
    copies.
    """

    def __init__(
        self,
        device: int,
        threads: int,
        chunk_bytes: int,
        slots: int,
        fill: str,
        spin_us: int,
        direct_bytes: int = 0,
    ) -> None:
        """Uploads of fewer than `direct_bytes`, or of two to four chunks, are left to the driver; with 0 none are."""
    def threads_for(self, nbytes: int) -> int:
        """Number of threads that move `nbytes`, including the caller's."""
    @overload
    def upload(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        device_address: int,
        stream: int | None,
        wait: bool,
    ) -> Staged:
        """Return when the array has been read or, with `wait`, when its bytes are on the device.

        Without `wait`, later work of `stream` waits for the bytes.
        """

    @overload
    def upload(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        conversion: Conversion,
        crossed_address: int,
        device_address: int,
        stream: int | None,
        wait: bool,
    ) -> Staged:
        """If the conversion has a kernel, other memory for what crosses, which must exist as long as the result."""

    @overload
    def upload(
        self,
        array: NDArray[Any],
        conversion: Conversion,
        crossed_address: int,
        device_address: int,
        stream: int | None,
        wait: bool,
    ) -> Staged: ...
    @overload
    def upload(self, array: NDArray[Any] | Pack, device_address: int, stream: int | None, wait: bool) -> Staged: ...
    @overload
    def upload_at_once(self, address: int, nbytes: int, device_address: int, stream: int | None) -> bool:
        """Copy a small array on `stream` itself; on None, it has arrived after `await_at_once`.

        False: nothing was copied, the ring is needed.
        """

    @overload
    def upload_at_once(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        conversion: Conversion,
        crossed_address: int,
        device_address: int,
        stream: int | None,
    ) -> bool: ...
    @overload
    def upload_at_once(
        self,
        array: NDArray[Any],
        conversion: Conversion,
        crossed_address: int,
        device_address: int,
        stream: int | None,
    ) -> bool: ...
    @overload
    def upload_at_once(self, array: NDArray[Any] | Pack, device_address: int, stream: int | None) -> bool: ...
    def await_at_once(self) -> None: ...
    def await_uploads(self) -> None:
        """Return when the uploads without a stream that did not wait have arrived."""

    def download(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        device_address: int,
        stream: int | None,
    ) -> Staged: ...
    @overload
    def download_at_once(self, array: NDArray[Any], device_address: int, stream: int) -> bool:
        """Copy to a small array in C order on `stream` itself, and wait for it. False: not done, the ring is needed."""

    @overload
    def download_at_once(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        device_address: int,
        stream: int,
    ) -> bool: ...
    @overload
    def start_upload(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        device_address: int,
        stream: int | None,
    ) -> Ticket:
        """Return at once. Keep the array unchanged, and the stream and the device memory, until the ticket is done."""

    @overload
    def start_upload(
        self,
        address: int,
        itemsize: int,
        shape: Sequence[int],
        strides: Sequence[int],
        conversion: Conversion,
        crossed_address: int,
        device_address: int,
        stream: int | None,
    ) -> Ticket: ...
    @overload
    def start_upload(self, pack: Pack, device_address: int, stream: int | None) -> Ticket: ...
    def prepare(self, conversion: Conversion) -> None:
        """Make the kernels of a conversion, which its first upload would."""

    def start_read(self, window: FileWindow, stream: int | None) -> Ticket:
        """Read from files to the places on the device that the window names; returns at once.

        The memory must exist until the ticket is done.
        """
    def alert(self) -> None:
        """Wake the ring's threads for an upload that comes soon."""

    def cancel(self) -> None:
        """From another thread: end every transfer called so far with CancelledError."""

    def close(self, patience_s: float = 30.0) -> None:
        """Wait for every transfer called so far, and release everything.

        Raises DeviceTimeoutError, and releases nothing, if they have not ended after `patience_s`.
        """

    def abandon(self) -> None: ...
    @property
    def device(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def chunk_bytes(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def fill(self) -> str: ...
    @property
    def fill_kernel(self) -> str: ...
    @property
    def spin_us(self) -> int: ...
    @property
    def direct_bytes(self) -> int: ...
    @property
    def pinned_bytes(self) -> int: ...

@final
class FileSet:
    """Files that stay open, by own descriptors, while transfers read them. Any thread may read.

    Each file has a descriptor, one with O_DIRECT or -1, its size, and its name for messages. What the page cache does
    not hold is read past it.
    """

    def __init__(self, files: Sequence[tuple[int, int, int, str]]) -> None: ...
    def read(self, file: int, offset: int, nbytes: int, address: int) -> None:
        """Read to host memory. Raises OSError."""

class FileWindow:
    """What one transfer reads, and where it puts it: (file, offset, nbytes) and (begin, nbytes, device address).

    Offsets and sizes of ranges are multiples of 4096. Parts begin in the bytes of all ranges one after the other.
    """

    def __init__(
        self, files: FileSet, ranges: Sequence[tuple[int, int, int]], parts: Sequence[tuple[int, int, int]]
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...

class Pack:
    """Contiguous arrays that cross in one copy. The caller keeps them unchanged until it has ended."""

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None: ...
    @property
    def runs(self) -> list[tuple[tuple[int, ...], np.dtype[Any], int, int, int]]:
        """Neighbours that are equally far apart on the device: shape, dtype, the first offset, distance, how many.

        Offsets are multiples of 256.
        """
    @property
    def nbytes(self) -> int: ...

@final
class Staged:
    """Statistics of a transfer; `waited_s` and `filled_s` are sums over its threads."""

    @property
    def wall_s(self) -> float: ...
    @property
    def chunks(self) -> int: ...
    @property
    def copies(self) -> int:
        """Number of copies by the copy engine, each of one or more adjacent chunks."""

    @property
    def threads(self) -> int: ...
    @property
    def waited_s(self) -> float: ...
    @property
    def filled_s(self) -> float: ...

@final
class Ticket:
    """A started upload. It continues if the ticket is dropped."""

    def done(self) -> bool: ...
    def result(self, seconds: float) -> Staged:
        """Wait at most `seconds`. Raises the upload's error, or DeviceTimeoutError if the upload has not ended."""

@final
class Tracer:
    """Records the device's activity and the CUDA calls of the whole process; only one can run at a time.

    The first usable one of `libraries` is used; `kinds` are words of `trace_kinds`. The constructor only opens the
    library. It raises TraceUnavailableError with the reasons if no library can be opened.
    """

    def __init__(self, libraries: Sequence[str], kinds: Sequence[str], capacity_bytes: int) -> None: ...
    @property
    def library(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def refused(self) -> dict[str, str]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take(self) -> Taken: ...
    def close(self) -> None: ...

@final
class Taken:
    """The records since the last `take`."""

    @property
    def records(self) -> NDArray[Any]: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def dropped(self) -> dict[str, int]: ...
    @property
    def clock_error_ns(self) -> int: ...
    @property
    def clock_drift_ns(self) -> int: ...

@final
class Kernels:
    """The engine's kernels in the primary context of one device, compiled by its driver.

    Raises KernelsUnavailableError if the driver has no compiler, may not compile, or refuses the text.
    """

    def __init__(self, device: int) -> None: ...
    @property
    def load_s(self) -> float: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class BlockMover:
    """Copies blocks between two pools, each given by its address, its number of blocks and its stride.

    Work is queued on `stream`; None is the mover's own. Indices are arrays of int64 with one dimension. ValueError is
    raised before anything is copied: an index or a pool is refused, or the method is not possible.
    """

    def __init__(self, device: int) -> None: ...
    @property
    def device(self) -> int: ...
    @property
    def has_batch(self) -> bool: ...
    @property
    def no_kernel(self) -> str: ...
    kernel_shape: tuple[int, int]
    def captures(self, stream: int | None) -> bool: ...
    def move(
        self,
        method: str,
        source: tuple[int, int, int],
        destination: tuple[int, int, int],
        source_indices: NDArray[np.int64],
        destination_indices: NDArray[np.int64],
        block_bytes: int,
        stream: int | None,
        wait: bool,
    ) -> None: ...
    def move_given(
        self,
        source: tuple[int, int, int],
        destination: tuple[int, int, int],
        source_indices: int,
        destination_indices: int,
        count: int,
        block_bytes: int,
        stream: int | None,
    ) -> None:
        """Copy by the kernel, with the addresses of int64 indices on the device."""
    def pack(
        self,
        ring: Ring,
        uploads: bool,
        source: tuple[int, int, int],
        destination: tuple[int, int, int],
        source_indices: NDArray[np.int64],
        destination_indices: NDArray[np.int64],
        block_bytes: int,
        stream: int | None,
    ) -> None:
        """Through a ring. Return when host memory has been read or written."""
    def wait(self, stream: int | None) -> None:
        """Raise IndexError if an index on the device was outside its pool since the last call."""

    def close(self, patience_s: float = 30.0) -> None: ...
    def abandon(self) -> None: ...

@final
class BlockPair:
    """Two pools between which the kernel copies few blocks again and again, by calls with few arguments."""

    def __init__(
        self, mover: BlockMover, source: tuple[int, int, int], destination: tuple[int, int, int], block_bytes: int
    ) -> None: ...
    def move(
        self,
        source_indices: NDArray[np.int64],
        destination_indices: NDArray[np.int64],
        stream: int | None,
        wait: bool,
    ) -> None: ...

@final
class Flow:
    """A copy, a chase of `hops` dependent loads, or a computation, that is repeated on a stream of `device`.

    A side whose device is -1 is host memory, which has to be page-locked; for kernels it may be pageable where the
    device uses the host's page tables. "ce" copies by a copy engine. "sm" copies by a kernel, and needs multiples of 16
    bytes. A "chase" begins at the pointer at `source`, which `make_cycle` wrote, on `multiprocessor` (-1: any; -2: each
    in turn). "compute" multiplies and adds in registers, 16 times in each of `rounds`, and writes a float32 of each
    thread to `destination`, which is a multiple of 1024 bytes of `device`; `source` is 0. All three need `kernels` of
    `device`, and get access to the memory of peers. At most `depth` items are queued at a time. With a pace, items are
    issued at equal intervals.
    """

    def __init__(
        self,
        *,
        device: int,
        engine: Literal["ce", "sm", "chase", "compute"],
        destination: int,
        source: int,
        nbytes: int,
        kernels: Kernels | None = None,
        depth: int = 4,
        pace_bytes_per_s: float = 0.0,
        source_device: int = -1,
        destination_device: int = -1,
        hops: int = 0,
        multiprocessor: int = -1,
        rounds: int = 0,
    ) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

@final
class FlowStamps:
    """What one flow did: an entry for each item. Times are those of the host's steady clock.

    Between flows of one device they have no error; `clock_error_ns` is that between devices, and beside the host. The
    last three arrays are of chases: what their kernels measured, and the multiprocessor they ran on (-1: the wanted one
    got no block, and the item has no figures).
    """

    @property
    def begin_ns(self) -> NDArray[np.int64]: ...
    @property
    def end_ns(self) -> NDArray[np.int64]: ...
    @property
    def clock_error_ns(self) -> float: ...
    @property
    def late(self) -> bool:
        """Whether the gate opened by itself before every flow was queued."""

    @property
    def gate(self) -> Literal["kernel", "host"]: ...
    @property
    def kernel_ns(self) -> NDArray[np.float64]: ...
    @property
    def cycles(self) -> NDArray[np.int64]: ...
    @property
    def multiprocessor(self) -> NDArray[np.int32]: ...

"""The methods by which blocks move between two pools, on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pyxfer._machine.engine import is_host
from pyxfer._upload.api import shared_uploader
from pyxfer._upload.movers import RingMover
from pyxfer._upload.native_calls import native_call
from pyxfer.errors import UsageError
from pyxfer.native import HOST

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from pyxfer._document.blocks import BlockMethod
    from pyxfer.native import Engine
    from pyxfer.native._cuda import BlockPair

    Indices: TypeAlias = NDArray[np.int64]

Kind = Literal["device", "pinned", "pageable"]

WORD_BYTES = 16  # of the kernel
MAX_PACKED_BYTES = 64 << 20
LEGACY_STREAMS = (0, 1)
"""The handles of the legacy default stream."""


class Pool(NamedTuple):
    """Memory of equal blocks. Block i begins at `address + i * stride`."""

    address: int
    blocks: int
    stride: int
    kind: Kind
    keep: Any = None
    """Keeps the memory alive."""


class BlockMover:
    """Moves blocks between pools in host memory and on one device, or between two on it. Any thread may call it."""

    def __init__(self, engine: Engine, device: int) -> None:
        self._engine = engine
        self._device = device
        self._native = engine.BlockMover(device)

    @property
    def has_batch(self) -> bool:
        """Whether the driver has the call for many copies."""
        return self._native.has_batch

    @property
    def no_kernel(self) -> str:
        """Why there is no kernel; empty if there is."""
        return self._native.no_kernel

    @property
    def kernel_blocks(self) -> int:
        """The most blocks of threads that the kernel is launched with."""
        return self._native.kernel_shape[0]

    def methods(self, source: Pool, destination: Pool, block_bytes: int) -> tuple[BlockMethod, ...]:
        """The methods that are possible here. `strided` also needs indices that go up by equal steps."""
        kinds = {source.kind, destination.kind}
        on_device = [pool for pool in (source, destination) if pool.kind == "device"]
        has_kernel = not self._native.no_kernel and all(
            pool.address % WORD_BYTES == pool.stride % WORD_BYTES == 0 for pool in on_device
        )
        has_kernel = has_kernel and block_bytes % WORD_BYTES == 0
        can_pack = has_kernel and len(on_device) == 1 and block_bytes <= MAX_PACKED_BYTES
        if "pageable" in kinds:
            return ("loop", "packed") if can_pack else ("loop",)
        found: list[BlockMethod] = ["loop"]
        if self._native.has_batch:
            found.append("batch")
        found.append("strided")
        if has_kernel and all(
            pool.address % WORD_BYTES == pool.stride % WORD_BYTES == 0 for pool in (source, destination)
        ):
            found.append("kernel")
        if can_pack:
            found.append("packed")
        return tuple(found)

    def move(
        self,
        method: BlockMethod,
        source: Pool,
        destination: Pool,
        source_indices: Indices,
        destination_indices: Indices,
        block_bytes: int,
        stream: int | None,
        *,
        wait: bool = False,
    ) -> None:
        """Copy block `source_indices[k]` of one pool to block `destination_indices[k]` of the other.

        The work is queued on `stream`, or on the mover's own if that is None. When the call returns the indices may
        change, and ordinary memory has been read or written. Page-locked memory must exist until the stream has done
        the work; with `wait` it has.

        Raises:
            UsageError: an index or a pool is refused, or the method is not possible here; nothing was copied.

        """
        pools = source[:3], destination[:3]
        with native_call() as allowed:
            if not allowed:
                raise UsageError("Python is exiting, so no blocks can be copied")
            try:
                if method == "packed":
                    uploads = source.kind != "device"
                    self._pack(*pools, source_indices, destination_indices, block_bytes, stream, uploads)
                    if wait:
                        self._native.wait(stream)
                    return
                if method == "kernel" and "pageable" in (source.kind, destination.kind):
                    raise UsageError("a kernel cannot read or write ordinary memory: page-lock it, see pyxfer.pin")
                self._native.move(method, *pools, source_indices, destination_indices, block_bytes, stream, wait)
            except (ValueError, IndexError) as error:
                raise UsageError(str(error)) from error

    def pair(self, source: Pool, destination: Pool, block_bytes: int) -> BlockPair:
        """For repeated copies of few blocks by the kernel, with less work in Python."""
        return self._engine.BlockPair(self._native, source[:3], destination[:3], block_bytes)

    def move_given(
        self,
        source: Pool,
        destination: Pool,
        source_indices: int,
        destination_indices: int,
        count: int,
        block_bytes: int,
        stream: int | None,
    ) -> None:
        """By the kernel, with the addresses of 64-bit indices on the device.

        An index outside its pool is skipped, and the next `wait` raises UsageError.
        """
        if "pageable" in (source.kind, destination.kind):
            raise UsageError("with indices on the device ordinary memory cannot be used: page-lock it, see pyxfer.pin")
        with native_call() as allowed:
            if not allowed:
                raise UsageError("Python is exiting, so no blocks can be copied")
            try:
                self._native.move_given(
                    source[:3], destination[:3], source_indices, destination_indices, count, block_bytes, stream
                )
            except (ValueError, IndexError) as error:
                raise UsageError(str(error)) from error

    def captures(self, stream: int | None) -> bool:
        """Whether work on the stream would go into a CUDA graph."""
        return self._native.captures(stream)

    def wait(self, stream: int | None = None) -> None:
        """Wait for everything queued on a stream, or on the mover's own."""
        with native_call() as allowed:
            if not allowed:
                return
            try:
                self._native.wait(stream)
            except (ValueError, IndexError) as error:
                raise UsageError(str(error)) from error

    def close(self) -> None:
        """Wait for everything that was queued, and release what the mover holds."""
        self._native.close()

    def end(self) -> None:
        """At exit: leave everything to the end of the process, because the device may never answer."""
        self._native.abandon()

    def _pack(
        self,
        source: tuple[int, int, int],
        destination: tuple[int, int, int],
        source_indices: Indices,
        destination_indices: Indices,
        block_bytes: int,
        stream: int | None,
        uploads: bool,
    ) -> None:
        uploader = shared_uploader(HOST if is_host(self._engine) else self._device)
        with uploader._usable_mover() as mover:
            lists = source_indices, destination_indices
            if isinstance(mover, RingMover):
                self._native.pack(mover.ring, uploads, source, destination, *lists, block_bytes, stream)
            else:  # no memory could be page-locked for a ring
                self._native.move("loop", source, destination, *lists, block_bytes, stream, False)

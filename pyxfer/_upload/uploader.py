"""The uploader: copies arrays to one device and back through a ring with a fixed amount of page-locked memory."""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from pyxfer._document.printing import ShortRepr
from pyxfer._machine.devices import could_be_device, find_device
from pyxfer._machine.engine import is_host
from pyxfer._upload.arrays import DLPACK_TYPES, MAX_BYTES, Source, destination_of, may_be_of_a_file, source_of
from pyxfer._upload.conversions import Converter, require_wishes, wanted_by
from pyxfer._upload.device_arrays import DeviceArray, DevicePool
from pyxfer._upload.movers import MAX_FETCHED_BYTES, MAX_OWN_COPY_BYTES, RingMover, copy_on_host, make_mover
from pyxfer._upload.native_calls import AT_EXIT_S, native_call
from pyxfer._upload.pending import Dropped, FixedTicket, Started, Upload, put
from pyxfer._upload.pools import HostPool, block_bytes
from pyxfer._upload.prefetch import (
    Prefetch,
    Unmapper,
    before_copy_to_device,
    depth_of,
    shared_tensors,
    target_ahead,
    warn_of_pinning,
)
from pyxfer._upload.settings import PartialSettings, default_settings, read_settings
from pyxfer._upload.targets import SHORT_NAMES, TARGETS, Target, device_source_of, framework_of
from pyxfer._upload.trees import MIN_PACKED, RefusedArrayError, arrays_of, groups_of, naming_refused, send_arrays
from pyxfer._upload.tuning import settings_for
from pyxfer.errors import (
    INSTALL,
    CleanupWarning,
    CudaError,
    DeviceTimeoutError,
    FallbackWarning,
    ForkedError,
    UsageError,
)
from pyxfer.native import choose, is_host_name
from pyxfer.units import format_size, size_of, whole_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._document.runs import FrameworkName
    from pyxfer._upload.arrays import Dtype, Source
    from pyxfer._upload.conversions import Wanted
    from pyxfer._upload.movers import Mover, Ticket
    from pyxfer._upload.trees import Group
    from pyxfer.native import Engine
    from pyxfer.native._cuda import Pack


def _pool_bytes(pool: str | int | None) -> int | None:
    if pool is None:
        return None
    if isinstance(pool, str):
        return 0 if pool.replace(" ", "") in ("0", "0B") else size_of(pool, "pool")  # size_of refuses zero
    return whole_of(pool, "pool", 0, MAX_BYTES, "bytes, or text such as '1GiB', or None")


def _whole(value: int | None) -> int | None:
    """A number of NumPy's as Python's; the settings check the rest."""
    return int(value) if isinstance(value, np.integer) else value


_CLOSED = "this Uploader is closed: make a new one"

_open: weakref.WeakSet[Uploader] = weakref.WeakSet()


class Uploader(ShortRepr):
    """Uploads arrays to one device and downloads them. Any thread may use it; calls take turns.

    The first use starts its threads and page-locks memory, which it keeps until it is closed.

    Args:
        device: Index, UUID or PCI address of the GPU, or "host".
        threads: Number of threads that fill and empty the slots of its ring; None tunes it.
        chunk_bytes: Size of a slot; None tunes it.
        slots: Number of slots; None tunes it.
        max_pinned: The most page-locked memory.
        pool: Device memory that arrays of TensorFlow and JAX have released and that is kept for later arrays; None is
            twice the largest array so far, and at least 8 MiB.
        require_gpu: Raise an error, and do not continue over host memory, if no GPU is usable.

    Raises:
        UsageError: the device does not exist, or a setting is not valid.
        CudaUnavailableError: `require_gpu` is true and no GPU is usable.

    """

    def __init__(
        self,
        device: int | str = 0,
        *,
        threads: int | None = None,
        chunk_bytes: str | int | None = None,
        slots: int | None = None,
        max_pinned: str | int = "256MiB",
        pool: str | int | None = None,
        require_gpu: bool = False,
    ) -> None:
        self._given = PartialSettings(
            threads=_whole(threads),
            chunk_bytes=None if chunk_bytes is None else size_of(chunk_bytes, "chunk_bytes"),
            slots=_whole(slots),
        )
        # `within` refuses zero with the smallest budget in the message
        self._budget_bytes = 0 if max_pinned == 0 else size_of(max_pinned, "max_pinned")
        self._given.applied_to(default_settings()).within(self._budget_bytes)  # raises now if they are not valid
        kept_bytes = _pool_bytes(pool)
        self._engine, self._device = device_of(device, require_gpu)
        self._pool = DevicePool(self._engine, self._device, kept_bytes)
        self._converter = Converter(self._engine, self._device, kept_bytes)
        self._results = HostPool()
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._mover: Mover | None = None
        # Of loads: files are read fast with other settings, and a file system that stalls must not stop uploads.
        self._reader: Mover | None = None
        self._closed = False
        self._targets: dict[str, Target] = {}
        self._dropped = Dropped()
        _open.add(self)

    def _summary(self) -> str:
        place = "in host memory" if is_host(self._engine) else f"for GPU {self._device}"
        if self._closed:
            return f"{place}: closed"
        if not self._movers():
            return f"{place}: not used yet"
        return f"{place}: {format_size(self.pinned_bytes)} page-locked"

    @property
    def engine(self) -> Engine:
        """The engine of the device."""
        return self._engine

    @property
    def device(self) -> int:
        """The index of the device in the engine."""
        return self._device

    @property
    def pinned_bytes(self) -> int:
        """The page-locked memory that it holds now, in bytes."""
        return 0 if self._closed else sum(mover.pinned_bytes for mover in self._movers())

    def _movers(self) -> list[Mover]:
        return [mover for mover in (self._mover, self._reader) if mover is not None]

    @overload
    def upload(
        self,
        x: Any,
        to: FrameworkName | Target,
        block: Literal[True] = True,
        *,
        dtype: Any = None,
        layout: Any = None,
    ) -> Any: ...
    @overload
    def upload(
        self, x: Any, to: FrameworkName | Target, block: Literal[False], *, dtype: Any = None, layout: Any = None
    ) -> Upload: ...
    @overload
    def upload(
        self, x: Any, to: FrameworkName | Target, block: bool, *, dtype: Any = None, layout: Any = None
    ) -> Any: ...

    def upload(
        self, x: Any, to: FrameworkName | Target, block: bool = True, *, dtype: Any = None, layout: Any = None
    ) -> Any:
        """Upload an array, or a structure of arrays. Returns the framework's array, or the same structure of them.

        After the call the source may be changed or dropped, and work that is queued on the framework's current stream
        sees the complete array. With `block=False` the call returns an `Upload` at once, and the source must not change
        until that is done.

        `dtype` and `layout` convert arrays on the way; `pyxfer.upload` describes them.

        Raises:
            UsageError: the framework or an array is refused; the message says what to do.

        """
        known = to if isinstance(to, Target) else self._targets.get(to)
        if block and known is not None:
            is_plain = dtype is None and layout is None
            made = self._upload_plain(x, known) if is_plain else self._upload_converted(x, known, dtype, layout)
            if made is not None:
                return made
        target = self._target(to)
        with self._usable_mover() as mover:
            if block:
                return send_arrays(
                    x,
                    lambda arrays: self._upload_all(mover, target, arrays, wanted_by(x, dtype, layout)),
                    "x",
                )
            tree, arrays = arrays_of(x, "x")
            return self._start_all(mover, target, tree, arrays, "x", wanted_by(tree, dtype, layout))

    def download(self, y: Any, out: Any = None) -> Any:
        """Copy an array on the device to `out`, or to a new NumPy array, and return that.

        The memory of a large new array is used again for later ones when the array and all its views are gone. A view
        keeps all of it. NumPy's `resize` in place refuses such an array, which does not own its memory.

        Raises:
            UsageError: `y` is not on the device, or does not fit into `out`; the message says what to do.
            MemoryError: there is no memory for a new array.

        """
        if out is None and (made := self._download_at_once(y)) is not None:
            return made
        return self._download(y, out)

    def _download(self, y: Any, out: Any) -> Any:
        with self._usable_mover() as mover:
            found = device_source_of(y, self._engine, self._device, self._target)
            if out is None:
                result = self._results.empty(found.shape, _numpy_dtype(found.dtype))
                to = _bytes_of(result)
            else:
                result, to = out, destination_of(out, found.shape, found.dtype)
            if is_host(self._engine) and not isinstance(y, DeviceArray):
                copy_on_host(found.address, to)  # a framework's result may be outside the host runtime's memory
            else:
                mover.download(found.address, to, found.stream)
        return result

    def prefetch(
        self,
        batches: Iterable[Any],
        to: FrameworkName | Target,
        depth: int = 2,
        *,
        dtype: Any = None,
        layout: Any = None,
    ) -> Prefetch[Any, Any]:
        """Iterate over batches as arrays on the device, uploaded up to `depth` batches ahead of the loop.

        A thread draws and uploads the batches. If it raises, the error comes out in place of that batch. The iterator
        ends early on `close()`, on leaving `with`, or when it is dropped. At most `depth` + 2 batches are on the
        device, unless the loop keeps more. `dtype` and `layout` are those of `upload`, for each batch.

        Raises:
            UsageError: the framework is refused, `batches` is text or a dict, or `depth` is not a whole number of at
                least 1.

        """
        return self._prefetch(batches, to, depth, dtype, layout)

    def _prefetch(
        self, batches: Iterable[Any], to: FrameworkName | Target, depth: int, dtype: Any, layout: Any
    ) -> Prefetch[Any, Any]:
        """Call it in a function that the user calls: its warnings are for the line of that call."""
        if isinstance(batches, (str, bytes, Mapping)):
            raise UsageError(f"batches must be an iterable of arrays or structures of them; got {batches!r:.40}")
        count = depth_of(depth)
        require_wishes(dtype, layout)
        with self._usable_mover():
            target = target_ahead(self._target(to), count)
        if not is_host(self._engine):
            warn_of_pinning(batches, stacklevel=4)
        unmapper = Unmapper(self._engine)
        return Prefetch(
            before_copy_to_device(batches),
            lambda batch: self._send(target, batch, unmapper, dtype, layout),
            count,
            before_draw=lambda: self._sweep(if_short=True),
            after_send=lambda: self._sweep(if_short=False),
            at_end=unmapper.stop,
        )

    def close(self) -> None:
        """Wait for all uploads, then release threads and memory. Arrays stay. A second call does nothing."""
        if os.getpid() != self._pid:
            return
        with native_call():
            with self._turn:
                self._closed = True
                movers = self._movers()
            self._results.close()
            try:
                for mover in movers:
                    mover.close()
            except DeviceTimeoutError:
                self._abandon_memory()
                raise
            except CudaError:
                with suppress(CudaError):  # the same trouble again
                    self._release_memory()
                raise
            self._release_memory()
            self._mover = self._reader = None  # if closing raised, they are ended at exit
        self._dropped.clear()

    def __enter__(self) -> Uploader:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:  # Ctrl-C, perhaps because the device does not answer
            self._abort()

    def __del__(self, native_call: type[native_call] = native_call) -> None:  # the module's names may be gone at exit
        if native_call.exit_begun or "_dropped" not in self.__dict__:  # `_at_exit` has ended it; the constructor raised
            return
        try:
            if self._closed:
                self._abort()  # after an interrupted or failed close()
            else:
                self.close()
        except (CudaError, DeviceTimeoutError) as error:
            warnings.warn(f"An uploader was not closed completely: {error}", CleanupWarning, stacklevel=2)

    def _abort(self) -> None:
        """Cancel, and release everything if the device answers."""
        if os.getpid() != self._pid:  # the parent's memory
            return
        movers = self._cancel()
        with native_call():
            try:
                is_ended = all([mover.end(AT_EXIT_S) for mover in movers])  # noqa: C419 - each is to end
            except CudaError:
                self._abandon_memory()
                raise
            if is_ended:
                self._release_memory()
            else:
                self._abandon_memory()

    def _release_memory(self) -> None:
        self._pool.close()
        self._converter.scratch.close()

    def _abandon_memory(self) -> None:
        self._pool.abandon()
        self._converter.scratch.abandon()

    def _cancel(self) -> list[Mover]:
        """Cancel running transfers and refuse later ones. Returns the movers, which the caller has to end."""
        if os.getpid() != self._pid:
            return []
        self._closed = True
        self._results.close()
        movers = self._movers()
        for mover in movers:
            mover.cancel()
        return movers

    @contextmanager
    def _usable_mover(self, *, of_files: bool = False) -> Iterator[Mover]:
        with native_call() as allowed:
            if not allowed:
                raise UsageError("Python is exiting, so this Uploader cannot be used")
            self._dropped.sweep()
            try:
                yield self._ready(of_files=of_files)
            except RuntimeError as error:
                if self._closed and type(error) is RuntimeError:  # from the ring, which another thread has closed
                    raise UsageError(_CLOSED) from error
                raise

    def _ready(self, *, of_files: bool) -> Mover:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This Uploader belongs to the parent process, and its threads do not exist in a forked child: start "
                'processes by multiprocessing.get_context("spawn"), and make an Uploader in each.'
            )
        with self._turn:
            if self._closed:
                raise UsageError(_CLOSED)
            if of_files:
                if self._reader is None:
                    settings = read_settings(self._engine, self._device).within(self._budget_bytes)
                    self._reader = make_mover(self._engine, self._device, settings)
                return self._reader
            if self._mover is None:
                chosen = settings_for(self._engine, self._device, given=self._given, budget_bytes=self._budget_bytes)
                self._mover = make_mover(self._engine, self._device, chosen.settings)
            return self._mover

    def _target(self, to: str | Target, *others: str) -> Target:
        """The target of that name. `others` are names that the caller takes too."""
        if isinstance(to, Target):
            return to
        name = SHORT_NAMES.get(to, to) if isinstance(to, str) else None
        if name not in TARGETS:
            known = ", ".join(map(repr, (*TARGETS, *others)))
            raise UsageError(f"{to!r:.80} is not a framework that arrays can be sent to: give one of {known}")
        if name not in self._targets:
            self._targets[name] = TARGETS[name](self._pool)
        return self._targets[name]

    def _upload_plain(self, x: Any, target: Target) -> Any:
        """The short way of an array with nothing special; None if it cannot be taken."""
        kind = type(x)
        mover = self._mover_of_plain(x)
        if mover is None or (kind is not np.ndarray and not target.is_plain(x)):
            return None
        if mover.goes_at_once(x.nbytes, waits=not target.allocates):
            try:
                return target.upload_at_once(mover.ring, x)
            except ValueError:  # the stream is being captured: the usual way says so
                return None
        if kind is not np.ndarray or x.dtype not in DLPACK_TYPES:
            return None
        mover.alert(x.nbytes)
        with native_call() as allowed:
            return self._upload_through_ring(mover, x, target) if allowed else None

    def _upload_through_ring(self, mover: RingMover, x: NDArray[Any], target: Target) -> Any:
        """After a pause the Python of the usual way takes as long as the copy of 4 MiB."""
        self._dropped.sweep()
        try:
            address, finish = target.empty(x.shape, x.dtype)
        except UsageError:  # the usual way says where the array is
            return None
        made = None
        try:
            arrived = mover.upload(x, address, target.stream())
            made = finish()
            arrived()
            return made
        except UsageError:
            return None
        except BaseException as error:
            del finish, made  # the traceback would keep the memory
            if self._closed and type(error) is RuntimeError:  # from the ring, which another thread has closed
                return None
            raise

    def _mover_of_plain(self, x: Any) -> RingMover | None:
        mover = self._mover
        if not isinstance(mover, RingMover) or native_call.exit_begun:
            return None
        return None if os.getpid() != self._pid or may_be_of_a_file(x) else mover

    def _upload_converted(self, x: Any, target: Target, dtype: Any, layout: Any) -> Any:
        """The same for one that is converted on the way."""
        mover = self._mover_of_plain(x)
        if mover is None or type(x) is not np.ndarray or not x.flags.c_contiguous:
            return None
        mover.alert(x.nbytes)
        with native_call() as allowed:
            self._dropped.sweep()
            try:
                return self._converter.upload_plain(mover, target, x, dtype, layout) if allowed else None
            except RuntimeError as error:
                if self._closed and type(error) is RuntimeError:  # from the ring, which another thread has closed
                    return None
                raise

    def _download_at_once(self, y: Any) -> Any:
        """The same for a small array on the device, to a new array."""
        kind: Any = type(y)
        mover, name = self._mover, framework_of(kind)
        target = None if name is None else self._targets.get(name)
        if target is None or not isinstance(mover, RingMover) or os.getpid() != self._pid:
            return None
        if (plain := target.plain(y)) is None:
            return target.fetched(y, MAX_OWN_COPY_BYTES)
        if y.nbytes > MAX_FETCHED_BYTES:
            return None
        address, shape, dtype = plain
        if isinstance(dtype, str) or (stream := target.stream()) is None:
            return None
        result = np.empty(shape, dtype)
        with native_call() as allowed:
            try:
                return result if allowed and mover.ring.download_at_once(result, address, stream) else None
            except ValueError:  # the stream is being captured: the ring's way says so
                return None

    def _upload_all(
        self, mover: Mover, target: Target, arrays: list[Any], wanted: list[Wanted | None] | None
    ) -> list[Any]:
        made: list[Any] = [None] * len(arrays)
        for places, small in self._groups(mover, target, arrays, wanted):
            if wanted is not None and (converts := wanted[places[0]]) is not None:
                made[places[0]] = self._converter.upload(mover, target, arrays, places[0], converts)
                continue
            if small is None and (sent := self._upload_plain(arrays[places[0]], target)) is not None:
                made[places[0]] = sent
                continue
            source, address, finish, _ = self._memory_for(target, arrays, places, small)
            try:
                arrived = mover.upload(source, address, target.stream())
                put(made, places, finish())
                arrived()
            except UsageError as error:
                del finish, made  # the traceback would keep the memory
                raise RefusedArrayError(places[0], error) from error
            except BaseException:
                del finish, made
                raise
        return made

    def _groups(
        self, mover: Mover, target: Target, arrays: list[Any], wanted: list[Wanted | None] | None
    ) -> list[Group]:
        """The numbers of arrays that cross together, and those arrays if they are several."""
        if wanted is None and len(arrays) >= MIN_PACKED and isinstance(mover, RingMover):
            return groups_of(arrays, target)
        return [([place], None) for place in range(len(arrays))]

    def _memory_for(
        self, target: Target, arrays: list[Any], places: list[int], small: list[NDArray[Any]] | None
    ) -> tuple[Source | Pack, int, Callable[[], Any], Any]:
        """What to send, where to, what makes the framework's arrays, and what keeps the source."""
        if small is None:
            try:
                source = source_of(arrays[places[0]])
                return (source, *target.empty(source.shape, source.dtype), source.keep)
            except UsageError as error:
                raise RefusedArrayError(places[0], error) from error
        pack = self._engine.Pack(small)
        return (pack, *target.empty_runs(block_bytes(pack.nbytes), pack.runs), small)

    def _send(self, target: Target, batch: Any, unmapper: Unmapper, dtype: Any, layout: Any) -> Callable[[], Any]:
        """Start the upload of a batch. Call the result in the thread, and on the stream, that will use the batch."""
        # Frameworks allocate and wait for events in this thread, while another one may be capturing a CUDA graph.
        self._engine.relax_captures_in_this_thread()
        target.before_send()
        tree, sources = arrays_of(batch, "batch")
        with self._usable_mover() as mover:
            upload = self._start_all(mover, target, tree, sources, "batch", wanted_by(tree, dtype, layout))
        shared = shared_tensors(sources)

        def taken() -> Any:
            arrays = upload.result()
            unmapper.take_over(shared)
            target.after_take()
            return arrays

        return taken

    def _sweep(self, *, if_short: bool) -> None:
        """Synchronise for the memory of the next batch while the thread of a prefetch has nothing else to do.

        If it did not suffice, before the next batch is drawn: later the wait would include more work.
        """
        with native_call() as allowed:
            if allowed:
                self._pool.sweep(if_short=if_short)

    def _start_all(
        self,
        mover: Mover,
        target: Target,
        tree: Any,
        arrays: list[Any],
        name: str,
        wanted: list[Wanted | None] | None,
    ) -> Upload:
        started: list[Started] = []

        def start() -> None:
            for places, small in self._groups(mover, target, arrays, wanted):
                converts = None if wanted is None else wanted[places[0]]
                started.append(self._started(mover, target, arrays, places, small, converts))

        try:
            naming_refused(tree, start, name)
        except BaseException:
            self._dropped.add(started)
            raise
        return Upload(tree, started, self._dropped, self)

    def _started(
        self,
        mover: Mover,
        target: Target,
        arrays: list[Any],
        places: list[int],
        small: list[NDArray[Any]] | None,
        wanted: Wanted | None,
    ) -> Started:
        start: Callable[[int | None], Ticket]
        if wanted is None:
            source, address, finish, keep = self._memory_for(target, arrays, places, small)
            start = functools.partial(mover.start, source, address)
        else:
            start, finish, keep = self._converter.prepared(mover, target, arrays, places[0], wanted)
        try:
            return Started(start(target.stream()), finish, keep, places)
        except UsageError as error:
            del finish  # the traceback would keep the memory
            raise RefusedArrayError(places[0], error) from error
        except Exception:
            del finish
            raise
        except BaseException:  # Ctrl-C, perhaps after the upload has started
            self._dropped.add([Started(FixedTicket(is_done=False), finish, keep)])
            raise


ON_HOST = 'Arrays stay in host memory; device="host" requests that without this warning.'


def device_of(
    device: int | str, require_gpu: bool = False, stacklevel: int = 3, advice: str = ON_HOST
) -> tuple[Engine, int]:
    """The engine and the index of a device. Without a GPU it is host memory, with a warning at `stacklevel`.

    `advice`: what the warning says after the reason: what that means for the caller, and what to do.
    """
    choice = choose(device, require_gpu)
    if choice.reason and not could_be_device(device):
        raise UsageError(f"{device!r:.60} is not a device: give an index, a UUID, a PCI address, or 'host'")
    if choice.reason:
        warnings.warn(f"{choice.reason} {advice}", FallbackWarning, stacklevel)
    if is_host_name(device) or choice.reason:
        return choice.engine, 0
    if isinstance(device, int) and 0 <= device < choice.engine.device_count():
        return choice.engine, device
    return choice.engine, find_device(choice.engine, device).index


def _numpy_dtype(dtype: Dtype) -> np.dtype[Any]:
    if not isinstance(dtype, str):
        return dtype
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return found
    except ImportError as error:
        raise UsageError(
            f"NumPy has no bfloat16: {INSTALL['ml_dtypes']}, or give an `out`, such as one of torch.empty"
        ) from error


_BYTE = np.dtype(np.uint8)


def _bytes_of(array: NDArray[Any]) -> Source:
    """The bytes of a new array, which is in C order and writable."""
    nbytes = array.nbytes
    address = array.__array_interface__["data"][0]
    return Source(address, _BYTE, 1, (nbytes,), (1,), nbytes, readonly=False, keep=array)


def _at_exit() -> None:
    """End all uploaders within one common time limit, because their devices may not answer."""
    until = time.monotonic() + AT_EXIT_S
    movers = []
    for uploader in list(_open):
        found = uploader._cancel()
        if found:
            uploader._abandon_memory()
        movers += found
    for mover in movers:
        with suppress(CudaError, DeviceTimeoutError):  # the end of the process releases the rest
            mover.end(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)

"""Arrays from files, read straight into page-locked slots and from there to the device.

The names have `tensors`, because `pyxfer.load` reads pyxfer's own documents.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from pyxfer._files.formats import stored_arrays
from pyxfer._files.readers import DeviceReader, HostReader
from pyxfer._files.results import HostArrays, Results, as_sent
from pyxfer._files.windows import Block, Window, blocks_of, even_bytes, windows_of
from pyxfer._machine.engine import is_host
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._upload.api import device_name_of, shared_uploader
from pyxfer._upload.arrays import name_of, type_name
from pyxfer._upload.pending import FixedTicket, Started, ended
from pyxfer._upload.settings import link_state_of
from pyxfer._upload.targets import device_source_of, framework_of
from pyxfer.errors import ArrayFileError, ForkedError, UsageError
from pyxfer.units import format_gbps, format_percent, format_seconds

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from pyxfer._document.runs import FrameworkName
    from pyxfer._files.formats import StoredArray, StoredFiles
    from pyxfer._files.readers import OpenFiles
    from pyxfer._files.stored import Path
    from pyxfer._upload.uploader import Uploader

    Reader: TypeAlias = DeviceReader | HostReader
    Paths: TypeAlias = Path | Iterable[Path]
    Framework: TypeAlias = FrameworkName | Literal["numpy"]

Result = TypeVar("Result")

# The least: smaller windows do not use all slots (csrc/ring/slot_order.cpp). The arrays of the first window are
# allocated before anything is read, and those of the last are made when everything has been.
_WINDOW_BYTES = 256 << 20
# The first arrays come sooner.
_STREAM_WINDOW_BYTES = 128 << 20
# While one transfer reads, the next one waits behind it.
_WINDOWS_AHEAD = 2
# How often the line of a load on a terminal is written again.
_SHOWN_EVERY_S = 0.2
_GB = 1e9
_START_OF_LINE = "\r\x1b[K"  # and clear it


def load_tensors(
    paths: Paths,
    to: Framework = "torch",
    names: Iterable[str] | None = None,
    device: int | str = 0,
    dtype: Any = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Read arrays from files to a GPU. Returns a framework's arrays by their names, in the order of the files.

    Each array owns its memory, except that small neighbours share a block of at most 8 MiB; for JAX and TensorFlow all
    neighbours share blocks of at most 128 MiB. What the page cache does not hold is read past it. Without a GPU the
    arrays stay in host memory, with a `FallbackWarning`.

    Args:
        paths: One file or several: safetensors, an index of its shards or the folder with them, `.npy`, `.npz`, `.pt`.
        to: The framework: "torch", "tensorflow", "jax" or "cupy"; "numpy" reads to host memory.
        names: Only these arrays.
        device: Index, UUID or PCI address of the GPU, or "host".
        dtype: Convert floating-point arrays to this type on the device, such as "bfloat16".
        progress: Show on stderr, if that is a terminal, how far the load is, its rate and the rate's share of the link.

    Raises:
        ArrayFileError: a file cannot be read, is cut short, has changed, or has a format that is not known.
        UsageError: a name is not in the files, or the framework or one of its types is refused.
        CudaMemoryError: the device is out of memory.
        MemoryError: the host is out of memory, for "numpy".

    """
    found: dict[str, Any] = {}
    for arrays in _arrays(paths, to, names, device, dtype, None, progress=progress):
        found |= arrays
    return found


def stream_tensors(
    paths: Paths,
    to: Framework = "torch",
    names: Iterable[str] | None = None,
    device: int | str = 0,
    dtype: Any = None,
) -> Iterator[tuple[str, Any]]:
    """Yield the names and arrays of `load_tensors` as they arrive, in the order of the files.

    At most 384 MiB, or the rest of a larger array, are read before the loop takes them.
    """
    return _one_by_one(_arrays(paths, to, names, device, dtype, _STREAM_WINDOW_BYTES))


def load_tensors_into(targets: Mapping[str, Any], paths: Paths) -> None:
    """Fill arrays that exist on a GPU from files. It needs no other memory there.

    Args:
        targets: PyTorch's or CuPy's contiguous arrays on one GPU, by the names of the stored arrays, whose shapes and
            types they have.
        paths: As for `load_tensors`.

    Raises:
        ArrayFileError: a file cannot be read; its attribute `unfilled` has the names of the targets that are not
            complete.
        UsageError: a target does not fit, cannot be written, or is not in the files.

    """
    if not isinstance(targets, Mapping):
        raise UsageError(f"targets {targets!r:.80} is not a dict: give arrays by the names of the stored ones.")
    if not targets:
        return
    files = _interruptibly(lambda: stored_arrays(paths, targets))
    uploader = shared_uploader(device_name_of(next(iter(targets.values()))))
    found = [_Given(stored, targets[stored.name], uploader) for stored in files.arrays]
    streams = {given.stream for given in found}
    stream = streams.pop()
    if streams:  # arrays of two frameworks
        uploader.engine.synchronize(uploader.device)
    # The host runtime copies only to its own memory, and these arrays are the framework's.
    reader = HostReader() if is_host(uploader.engine) else DeviceReader(uploader, lambda: stream)
    unfilled = dict.fromkeys(stored.name for stored in files.arrays)
    load = _Load(files, [given.block for given in found], reader)
    try:
        for blocks in load.run(None):
            for block in blocks:
                del unfilled[block.placed[0][0].name]
    except ArrayFileError as error:
        error.unfilled = tuple(unfilled)
        raise


class _Given:
    """An array of the caller's that is to be filled."""

    def __init__(self, stored: StoredArray, array: Any, uploader: Uploader) -> None:
        name = f"targets[{stored.name!r:.80}]"
        kind: Any = type(array)
        if framework_of(kind) in {"jax", "tensorflow"}:
            raise UsageError(f"{name}: this {type_name(kind)} cannot be written: use load_tensors")
        try:
            array, shape, needed = as_sent(array, stored)
            found = device_source_of(array, uploader.engine, uploader.device, uploader._target, itself=True)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        dtype = name_of(found.dtype)
        if (found.shape, dtype) != (shape, needed):
            raise UsageError(
                f"{name} is {dtype} of shape {found.shape}, and the stored array {stored.dtype} of shape "
                f"{stored.shape}: give an array of that type and shape"
            )
        if stored.fortran and len(stored.shape) > 1:
            raise UsageError(f"{name}: the stored array is in Fortran order: use load_tensors")
        self.stream = found.stream
        self.block = Block(keep=found)
        self.block.add(stored)
        self.block.address = found.address


def _arrays(
    paths: Paths,
    to: Framework,
    names: Iterable[str] | None,
    device: int | str,
    dtype: Any,
    window_bytes: int | None,
    *,
    progress: bool = False,
) -> Iterator[dict[str, Any]]:
    files = _interruptibly(lambda: stored_arrays(paths, names))
    reader: Reader
    uploader = None
    if to == HostArrays.module:
        results, reader = Results(HostArrays(), dtype), HostReader()
    else:
        uploader = shared_uploader(device, stacklevel=5)
        target = uploader._target(to, HostArrays.module)
        results, reader = Results(target, dtype), DeviceReader(uploader, target.stream)
    for stored in files.arrays:
        results.check(stored)
    is_whole = window_bytes is None  # else the loop may drop the first arrays before the last ones are read
    blocks = blocks_of(files.arrays, large=is_whole and results.driver_allocates)
    if is_whole:
        results.reserve(blocks)
    load = _Load(files, blocks, reader, results.allocate)
    if progress:
        load.progress = _progress_of(sum(stored.nbytes for stored in files.arrays), uploader)
    return _made(load, _STREAM_WINDOW_BYTES if load.progress else window_bytes)


def _made(load: _Load, window_bytes: int | None) -> Iterator[dict[str, Any]]:
    for blocks in load.run(window_bytes):
        for block in blocks:
            made, block.keep = block.keep(), None
            yield made


def _one_by_one(blocks: Iterator[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for arrays in blocks:
        for name in list(arrays):  # no reference stays here while the loop works with the array
            yield name, arrays.pop(name)


class _Running:
    """`files` is None if the window has only arrays without items."""

    def __init__(self, window: Window, files: OpenFiles | None, started: Started) -> None:
        self.window, self.files, self.started = window, files, started


class _Load:
    """Reads blocks of arrays, window after window. A block's `keep` is what `allocate` returned for it."""

    def __init__(
        self,
        files: StoredFiles,
        blocks: list[Block],
        reader: Reader,
        allocate: Callable[[Block], Any] | None = None,
    ) -> None:
        self._files, self._blocks, self._reader, self._allocate = files, blocks, reader, allocate
        self._running: deque[_Running] = deque()
        self._open: OpenFiles | None = None
        self.progress: LoadProgress | None = None
        self._pid = os.getpid()

    def run(self, window_bytes: int | None) -> Iterator[list[Block]]:
        """Yield the blocks of each window, or of equal ones for a whole load, when their bytes have arrived."""
        try:
            for window in windows_of(self._blocks, window_bytes or even_bytes(self._blocks, _WINDOW_BYTES)):
                if len(self._running) == _WINDOWS_AHEAD:
                    yield self._finish_first()
                self._start(window)
            while self._running:
                yield self._finish_first()
        finally:  # after an error, Ctrl-C, or the end of the caller's loop
            self._reader.leave([running.started for running in self._running])
            if self.progress is not None:
                self.progress.end()

    def _start(self, window: Window) -> None:
        if self._allocate is not None:
            for block in window.begun:
                block.keep = self._allocate(block)
        if not window.pieces:
            self._running.append(_Running(window, None, Started(FixedTicket(is_done=True), lambda: None, None)))
            return
        with _naming_files():
            files = self._open
            if files is None or files.numbers != window.files:
                files = self._open = _interruptibly(lambda: self._reader.open(self._files, window.files))
            # The reader adds it: Ctrl-C after a return would lose a transfer that writes to the blocks.
            self._reader.start(files, window, lambda started: self._running.append(_Running(window, files, started)))

    def _finish_first(self) -> list[Block]:
        if os.getpid() != self._pid:
            raise ForkedError(
                "This load belongs to the parent process, and its threads do not exist in a forked child: begin a new "
                "one here."
            )
        first = self._running[0]
        with _naming_files():
            ended(first.started.ticket)
            self._running.popleft()
            first.started.ticket.result(0.0)
            if first.files is not None:
                _interruptibly(first.files.check_unchanged)
        if self.progress is not None:
            self.progress.add(sum(piece.nbytes for piece in first.window.pieces))
        return first.window.done


def _interruptibly(call: Callable[[], Result]) -> Result:
    """Call it in another thread, because Ctrl-C does not end a system call that waits for a network."""
    calls, found = [call], list[Result]()  # emptied, because the thread keeps them a little longer
    if run_interruptible(lambda: found.append(calls.pop()()), lambda: None, kept=True) is not Ending.DONE:
        raise KeyboardInterrupt
    return found.pop()


@contextmanager
def _naming_files() -> Iterator[None]:
    """The engine's messages name the file, and what a system says of it becomes an ArrayFileError."""
    try:
        yield
    except OSError as error:
        raise ArrayFileError(str(error)) from error


# --- one line of a terminal, written again and again -----------------------------------------------------------------


def _progress_of(total_bytes: int, uploader: Uploader | None) -> LoadProgress | None:
    """None if stderr is not a terminal: a log has no use for it."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # of a service without one, or closed
        is_terminal = False
    if not is_terminal:
        return None
    if uploader is None or is_host(uploader.engine):
        return LoadProgress(total_bytes, None, sys.stderr)
    link = link_state_of(uploader.engine.device_properties(uploader.device).pci)
    return LoadProgress(total_bytes, link.then(lambda state: state.gbps).value, sys.stderr)


class LoadProgress:
    """Writes bytes, rate, share of the link's rate and the time left. The last line stays."""

    def __init__(
        self,
        total_bytes: int,
        link_gbps: float | None,
        stream: TextIO,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._total_bytes, self._link_gbps, self._stream, self._clock = total_bytes, link_gbps, stream, clock
        self._bytes = 0
        self._begun_s = self._shown_s = clock()

    def add(self, nbytes: int) -> None:
        """Note bytes that have arrived."""
        self._bytes += nbytes
        now_s = self._clock()
        if now_s - self._shown_s >= _SHOWN_EVERY_S and self._bytes < self._total_bytes:
            self._shown_s = now_s
            left_s = (now_s - self._begun_s) * (self._total_bytes / self._bytes - 1)
            self._write(f", {format_seconds(left_s)} left")

    def end(self) -> None:
        """Write the last line, also of a load that failed."""
        self._write(f" in {format_seconds(self._clock() - self._begun_s)}\n")

    def _write(self, end: str) -> None:
        gbps = self._bytes / max(self._clock() - self._begun_s, 1e-9) / _GB
        share = f", {format_percent(gbps / self._link_gbps)} of the link" if self._link_gbps else ""
        unit, factor = ("GB", _GB) if self._total_bytes >= _GB else ("MB", 1e6)
        sizes = f"{self._bytes / factor:.2f} of {self._total_bytes / factor:.2f} {unit}"
        text = f"pyxfer: {sizes}, {format_gbps(gbps)}{share}"
        with suppress(OSError, ValueError):  # a stderr that is closed
            self._stream.write(f"{_START_OF_LINE}{text}{end}")
            self._stream.flush()

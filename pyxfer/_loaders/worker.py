"""The process of one loader: what it does, how a run starts it, orders a load and waits for its end, and its rows."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pyxfer._document.machines import Fact, unknown
from pyxfer._document.runs import Worker, WorkerEnding
from pyxfer._files.formats import stored_arrays
from pyxfer._files.stored import OpenFile
from pyxfer._frameworks.base import installed_version
from pyxfer._frameworks.messages import Reference
from pyxfer._frameworks.process import die_with_parent, exit_text, start_worker, tail_of
from pyxfer._frameworks.registry import load_framework, resolve_reference
from pyxfer._frameworks.subjects import describe_error
from pyxfer._loaders.loaders import reference_of, why_unavailable
from pyxfer._python import kill_group
from pyxfer.errors import MeasurementError, PyxferError, RefusedError
from pyxfer.native import choose
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._ceiling.rows import Item
    from pyxfer._files.formats import StoredArray, StoredFiles
    from pyxfer._loaders.loaders import Arrays, Loader

HOST = "cpu"
"""The device of a loader without a GPU."""


class Task(msgspec.Struct, frozen=True):
    """What the process loads, and how."""

    framework: str
    load: Reference
    paths: tuple[str, ...]
    device: str


class Order(msgspec.Struct, frozen=True):
    """One load. `verified`: compare the contents too. `emptied`: give the framework's unused memory back afterwards."""

    verified: bool = False
    emptied: bool = False


class Started(msgspec.Struct, frozen=True, tag=True):
    version: str
    cuda: Fact[str]
    start_s: float


class Loaded(msgspec.Struct, frozen=True, tag=True):
    seconds: float
    host_peak_bytes: Fact[int]
    verified: Fact[bool]


class Failed(msgspec.Struct, frozen=True, tag=True):
    reason: str


# --- the run's side --------------------------------------------------------------------------------------------------

MIN_START_S = 60.0
# After the loads of other processes a first one takes up to twice as long: threads sleep, and caches have other bytes.
_AGAIN_BELOW_S = 1.0
_FIRST = "the first load of its process was a warm one"
_SLICE_S = 0.005
_BOOT = "from pyxfer._loaders.worker import main; main(int(sys.argv[1]))"
_Reply = Started | Loaded | Failed


class LoaderProcess:
    """Starts the process of a loader, and ends it. If it crashes, hangs or refuses, a MeasurementError says so."""

    def __init__(self, task: Task, environment: Mapping[str, str], patience_s: float) -> None:
        self.ended: WorkerEnding = "complete"
        self.reason: str | None = None
        self.log: tuple[str, ...] = ()
        self.begun_s = time.monotonic()
        self._patience_s = patience_s
        self._owned = contextlib.ExitStack()
        self._log = self._owned.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._ours, theirs = Pipe()
        self._owned.enter_context(self._ours)
        with theirs:
            self._process = start_worker(_BOOT, (theirs.fileno(),), environment, self._log)
        self._owned.callback(kill_group, self._process)
        self._send(task)

    def started(self) -> Started:
        """Wait until it has imported its framework and made its context."""
        found: Started = self._reply(Started, max(MIN_START_S, self._patience_s), lambda: None)
        return found

    def load(self, order: Order, while_waiting: Callable[[], object] = lambda: None) -> Loaded:
        """Let it load once. `while_waiting` is called every few milliseconds."""
        if self.reason is not None:
            raise MeasurementError(self.reason)
        self._send(order)
        found: Loaded = self._reply(Loaded, self._patience_s, while_waiting)
        return found

    def interrupt(self) -> None:
        """Note that the run has been interrupted."""
        if self.reason is None:
            self.ended, self.reason = "interrupted", "the run was interrupted"

    def close(self) -> None:
        """Kill it if it runs, and keep the end of its log."""
        if not self._log.closed:
            self._ours.close()
            kill_group(self._process)
            self.log = tail_of(self._log.fileno())
        self._owned.close()

    def _send(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # it has ended, which the reply shows
            self._ours.send_bytes(msgspec.json.encode(message))

    def _reply(self, wanted: Any, patience_s: float, while_waiting: Callable[[], object]) -> Any:
        until_s = time.monotonic() + patience_s
        try:
            while not self._ours.poll(_SLICE_S):
                while_waiting()
                if self._process.poll() is not None and not self._ours.poll():
                    raise EOFError
                if time.monotonic() > until_s:
                    raise self._failed("hung", f"it sent nothing for {format_seconds(patience_s)}")
            reply = msgspec.json.decode(self._ours.recv_bytes(), type=_Reply)
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            raise self._failed("crashed", exit_text(self._process)) from None
        except msgspec.MsgspecError as error:
            raise self._failed("failed", f"it sent an invalid message: {error}") from error
        if isinstance(reply, Failed):
            raise self._failed("failed" if wanted is Loaded else "unavailable", reply.reason)
        if not isinstance(reply, wanted):
            raise self._failed("failed", f"it sent an unexpected {type(reply).__name__}")
        return reply

    def _failed(self, ended: WorkerEnding, reason: str) -> MeasurementError:
        self.ended, self.reason = ended, reason
        return MeasurementError(reason)


class RunningLoader:
    """A loader with its process, and what its first load has shown."""

    def __init__(self, loader: Loader, paths: Sequence[str]) -> None:
        self.loader = loader
        self.is_emptied = False
        self._process: LoaderProcess | None = None
        self._unavailable = why_unavailable(loader, paths)
        self._started: Started | None = None
        not_yet = "the run ended before its first load"
        self._first: Fact[Loaded] = unknown(not_yet)
        self._device_peak: Fact[int] = unknown(not_yet)

    @property
    def reference(self) -> Reference:
        return reference_of(self.loader)

    def start(self, task: Task, environment: Mapping[str, str], patience_s: float) -> None:
        if self._unavailable is None:
            self._process = LoaderProcess(task, environment, patience_s)

    def wait(self) -> None:
        """Wait until it has started."""
        if self._process is not None:
            try:
                self._started = self._process.started()
            except MeasurementError as error:
                self._unavailable = str(error)

    def load_first(self, free_bytes: Callable[[], int] | None) -> None:
        """The load of a program that loads once. It shows whether the contents are right, and what memory it takes."""
        if self._process is None or self._started is None:
            return
        try:
            before = least = 0 if free_bytes is None else free_bytes()

            def watch() -> None:
                nonlocal least
                least = min(least, 0 if free_bytes is None else free_bytes())

            self._first = Fact(self._process.load(Order(verified=True, emptied=self.is_emptied), watch))
            self._device_peak = unknown("it loads to host memory") if free_bytes is None else Fact(before - least)
        except MeasurementError as error:
            self._unavailable = str(error)

    def load(self, *, again: bool) -> float:
        """Load once and return the seconds; `again`: before that once untimed, unless that takes long."""
        if self._process is None:
            raise MeasurementError(self._unavailable or "it was not started")
        if again and (self._first.value is None or self._first.value.seconds < _AGAIN_BELOW_S):
            self._process.load(Order(emptied=self.is_emptied))
        return self._process.load(Order(emptied=self.is_emptied)).seconds

    @property
    def is_usable(self) -> bool:
        return self._unavailable is None

    def describe(self, item: Item[Any]) -> None:
        item.unavailable = item.unavailable or self._unavailable
        item.verified = (
            self._first.value.verified if self._first.value is not None else unknown(str(self._first.reason))
        )
        item.first_s = self._first.then(lambda first: first.seconds) if item.head.variant == "warm" else unknown(_FIRST)

    def interrupt(self) -> None:
        if self._process is not None:
            self._process.interrupt()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def worker(self, framework: str) -> Worker:
        process, started = self._process, self._started
        why = self._unavailable or "it was ended before it had started"
        return Worker(
            name=self.loader.name,
            framework=framework,
            setting="",
            version=unknown(why) if started is None else Fact(started.version),
            cuda=unknown(why) if started is None else started.cuda,
            settings={name: installed_version((name,)) or "not installed" for name in self.loader.distributions},
            ended="unavailable" if process is None else process.ended,
            reason=self._unavailable if process is None else process.reason,
            log=() if process is None else process.log,
            start_s=unknown(why) if started is None else Fact(started.start_s),
            duration_s=0.0 if process is None else time.monotonic() - process.begun_s,
            host_peak_bytes=unknown(why) if self._first.value is None else self._first.value.host_peak_bytes,
            device_peak_bytes=self._device_peak,
        )


# --- the process -----------------------------------------------------------------------------------------------------


def main(handle: int) -> None:
    """Serve one task, then end without the framework's own shutdown, which may crash or hang."""
    die_with_parent()
    connection: Connection[bytes, bytes] = Connection(handle)

    def send(message: msgspec.Struct) -> None:
        connection.send_bytes(msgspec.json.encode(message))

    with contextlib.suppress(EOFError, OSError):  # the run has ended
        try:
            serve(msgspec.json.decode(connection.recv_bytes(), type=Task), connection, send)
        except PyxferError as error:
            send(Failed(str(error)))
        except Exception as error:  # noqa: BLE001 - the run gets the message, and the log the traceback
            traceback.print_exc()
            send(Failed(describe_error(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(task: Task, connection: Connection[bytes, bytes], send: Callable[[msgspec.Struct], None]) -> None:
    begun_s = time.perf_counter()
    number = None if task.device == HOST else int(task.device.partition(":")[2])
    version, cuda = "", Fact("no framework's") if number is not None else unknown("no GPU was requested")
    if task.framework != "numpy":
        started = load_framework(task.framework).start(number, "")
        version, cuda = started.version, started.cuda
        if number is not None and cuda.value is None:
            raise RefusedError(str(cuda.reason))
    load = resolve_reference(task.load)
    files = stored_arrays(task.paths)
    engine = choose("host" if number is None else number).engine
    wait = (lambda: None) if number is None else (lambda: engine.synchronize(number))
    send(Started(version, cuda, time.perf_counter() - begun_s))
    while True:
        order = msgspec.json.decode(connection.recv_bytes(), type=Order)
        send(_load_once(load, task, files, wait, order))
        gc.collect()
        if order.emptied:
            _give_back(task.framework)


def _load_once(
    load: Callable[[list[str], str], Arrays], task: Task, files: StoredFiles, wait: Callable[[], object], order: Order
) -> Loaded:
    gc.collect()
    before = _reset_peak()
    begun_s = time.perf_counter()
    found = load(list(task.paths), task.device)
    arrays = dict(found.items() if isinstance(found, Mapping) else found)
    for array in arrays.values():
        if hasattr(array, "block_until_ready"):
            array.block_until_ready()
        elif task.device == HOST:
            _touch(array)
    wait()
    seconds = time.perf_counter() - begun_s
    peak = before.then(lambda nbytes: max(0, _status_bytes("VmHWM") - nbytes))
    _check_all_there(arrays, files.arrays, task.device)
    verified: Fact[bool] = unknown("this load was not verified")
    if order.verified:
        verified = Fact(all(_is_intact(arrays[stored.name], stored, files) for stored in files.arrays))
    return Loaded(seconds, peak, verified)


def _touch(array: Any) -> None:
    """Read a byte of each page, because some loaders map the file and read nothing before."""
    contents_of(array, fortran=False)[::4096].sum()


def _check_all_there(arrays: Mapping[str, Any], stored: Iterable[StoredArray], device: str) -> None:
    missing = [each.name for each in stored if each.name not in arrays]
    if missing:
        others = f" ({len(missing)} arrays are missing)" if missing[1:] else ""
        raise MeasurementError(f"it did not return the array {missing[0]!r:.80}{others}")
    if device != HOST:
        stayed = next((name for name, array in arrays.items() if not _is_on_gpu(array)), None)
        if stayed is not None:
            raise MeasurementError(f"it left the array {stayed!r:.80} in host memory")


def _is_on_gpu(array: Any) -> bool:
    place = getattr(array, "device", None)  # of PyTorch cuda:0, of CuPy <CUDA Device 0>, of TensorFlow .../GPU:0
    return bool(re.search("cuda|gpu", str(place), re.IGNORECASE))


def contents_of(array: Any, *, fortran: bool) -> NDArray[np.uint8]:
    """The bytes of a framework's array as they are in the file, in host memory."""
    kind = type(array).__module__.partition(".")[0]
    if kind == "torch":
        torch: Any = importlib.import_module("torch")
        tensor = array.detach()
        if fortran:
            tensor = tensor.permute(*reversed(range(tensor.dim())))
        # NumPy has no bfloat16 and no float8.
        found: Any = tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
        return np.asarray(found)
    held = array.get() if kind == "cupy" else array.numpy() if hasattr(array, "numpy") else np.asarray(array)
    return np.ascontiguousarray(held.T if fortran else held).reshape(-1).view(np.uint8)


_PIECE_BYTES = 64 << 20


def _is_intact(array: Any, stored: StoredArray, files: StoredFiles) -> bool:
    found = contents_of(array, fortran=stored.fortran)
    if found.size != stored.nbytes:
        return False
    with OpenFile(files.paths[stored.file]) as file:
        for start in range(0, stored.nbytes, _PIECE_BYTES):
            piece = file.read(stored.offset + start, min(_PIECE_BYTES, stored.nbytes - start))
            if not np.array_equal(found[start : start + _PIECE_BYTES], np.frombuffer(piece, np.uint8)):
                return False
    return True


def _give_back(framework: str) -> None:
    if framework == "torch":
        torch: Any = importlib.import_module("torch")
        torch.cuda.empty_cache()
    elif framework == "cupy":
        cupy: Any = importlib.import_module("cupy")
        cupy.get_default_memory_pool().free_all_blocks()


_RESET_PEAK = "5"


def _reset_peak() -> Fact[int]:
    """The process's memory now, from which its largest is counted from here on."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError as error:
        return unknown(f"the system does not count the peak anew ({error.strerror})")
    return Fact(_status_bytes("VmRSS"))


def _status_bytes(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0

"""Worker processes: the supervisor, which starts one and watches for its end, and the main function of a worker.

They exchange the messages of `messages.py` over a pipe. The worker's current step is in a `Marker`, which the
supervisor can still read after a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO

import msgspec

from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Measurement, Tracing, WorkerEnding
from pyxfer._frameworks import messages
from pyxfer._frameworks.base import Framework, Make, Route, Transfer
from pyxfer._frameworks.bench import Bench
from pyxfer._frameworks.context import RouteContext
from pyxfer._frameworks.orders import with_forms
from pyxfer._frameworks.registry import adopt_route, load_framework, resolve_reference
from pyxfer._frameworks.subjects import describe_error
from pyxfer._machine.devices import find_device
from pyxfer._measure.sampler import OnProgress
from pyxfer._python import ending_of, kill_group, last_lines, python_command
from pyxfer._trace.traced_trials import NOT_REACHED
from pyxfer.errors import PyxferError, RefusedError
from pyxfer.native import HOST, choose, is_host_name
from pyxfer.units import format_seconds, format_size

# --- the supervisor --------------------------------------------------------------------------------------------------

# One step: a compilation, a first page-locking, a turn of trials.
STEP_PATIENCE_S = 120.0
# Importing a framework and making its context, from a cold disk, may take longer than a step.
START_FACTOR = 2.5
MIN_START_S = 30.0
# A worker sends its rows between two trials after the order to stop.
STOP_PATIENCE_S = 0.7
END_PATIENCE_S = 10.0
_SLICE_S = 0.2
IN_WORKER = "PYXFER_IN_WORKER"
"""The environment variable that is set in a worker."""
_BOOT = "from pyxfer._frameworks.process import main; main(int(sys.argv[1]), int(sys.argv[2]))"


@dataclass
class Outcome:
    """The messages of a worker, and how it ended."""

    ended: WorkerEnding = "crashed"
    reason: str | None = None
    hello: messages.Hello | None = None
    awake: messages.Awake | None = None
    measurements: tuple[Measurement, ...] = ()
    remarks: tuple[Remark, ...] = ()
    log: tuple[str, ...] = ()
    guilty: messages.Mark | None = None
    how: str | None = None
    """The reason without the step that was under way."""
    duration_s: float = 0.0
    tracing: Fact[Tracing] = field(default_factory=lambda: unknown(NOT_REACHED))


@dataclass
class Supervisor:
    """Starts a worker, receives its messages, and ends it. `_step_s`: how long it may be silent once it has started."""

    _task: messages.Task
    _environment: Mapping[str, str]
    _step_s: float
    _on_progress: OnProgress
    _on_rows: Callable[[Outcome], None]

    def __post_init__(self) -> None:
        self._outcome = Outcome()
        self._done = self._is_started = self._is_ready = False
        self._owned = contextlib.ExitStack()
        self._since_s = 0.0

    def start(self) -> None:
        """Start the process, which imports its framework, prepares its routes and waits for `run`."""
        self._since_s = time.monotonic()
        self._log = self._owned.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        self._marker = self._owned.enter_context(contextlib.closing(messages.Marker()))
        self._ours, theirs = Pipe()
        self._owned.enter_context(self._ours)
        handles = theirs.fileno(), self._marker.handle
        with theirs:
            self._process = start_worker(_BOOT, handles, self._environment, self._log)
        self._is_started = True
        with contextlib.suppress(OSError):  # it has ended, which the first message shows
            self._ours.send_bytes(messages.pack(self._task))

    def wait(self) -> None:
        """Wait until it is prepared, or has ended."""
        self._talk(lambda: self._is_ready)
        self._count_time()

    def run(self) -> Outcome:
        """Run the worker until it ends. On Ctrl-C `ended` is "interrupted", with the results so far."""
        if not self._is_started and not self._done:
            self.start()
        self._since_s = self._since_s or time.monotonic()
        if not self._done:
            with contextlib.suppress(OSError):
                self._ours.send_bytes(messages.pack(messages.Begin()))
            try:
                self._talk(lambda: False)
            except KeyboardInterrupt:
                self.interrupt()
        self.close()
        self._count_time()
        self._blame()
        return self._outcome

    def interrupt(self) -> None:
        """End the worker, after it has sent its results so far."""
        self._note("interrupted", "the run was interrupted")
        if self._is_started:
            with contextlib.suppress(KeyboardInterrupt):
                self._stop()
        self._done = True

    def close(self) -> None:
        """Kill the worker if it runs, and keep the end of its log."""
        if self._is_started and not self._log.closed:
            self._outcome.guilty = self._marker.read()
            self._ours.close()
            kill_group(self._process)
            self._outcome.log = tail_of(self._log.fileno())
        self._owned.close()

    def _count_time(self) -> None:
        self._outcome.duration_s += time.monotonic() - self._since_s
        self._since_s = 0.0

    def _talk(self, is_enough: Callable[[], bool]) -> None:
        try:
            ours, process, last_s = self._ours, self._process, time.monotonic()
            while not self._done and not is_enough():
                if ours.poll(_SLICE_S):
                    self._take(messages.unpack_report(ours.recv_bytes()))
                    last_s = time.monotonic()
                elif process.poll() is not None and not ours.poll():
                    self._note_exit()  # a process that it has forked may hold the pipe open
                elif time.monotonic() - last_s > self._patience_s():
                    self._note("hung", f"it sent nothing for {format_seconds(self._patience_s())}")
            if self._done:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_PATIENCE_S if self._outcome.ended != "hung" else 0)
        except (OSError, EOFError):
            self._note_exit()
        except msgspec.MsgspecError as error:
            self._note("failed", f"it sent an invalid message: {error}")

    def _patience_s(self) -> float:
        return self._step_s if self._outcome.hello else max(MIN_START_S, START_FACTOR * self._step_s)

    def _take(self, message: messages.FromWorker) -> None:
        outcome = self._outcome
        if isinstance(message, messages.Hello):
            outcome.hello = message
        elif isinstance(message, messages.Awake):
            outcome.awake = message
        elif isinstance(message, messages.Ready):
            self._is_ready = True
        elif isinstance(message, messages.Tracer):
            outcome.tracing = message.tracing
        elif isinstance(message, messages.Rows):
            outcome.measurements = message.measurements
            self._on_rows(outcome)
        elif isinstance(message, messages.Doing):
            self._on_progress(message.now)
        elif isinstance(message, messages.Finished):
            self._done, outcome.ended, outcome.remarks = True, "complete", message.remarks
        else:
            self._note("unavailable" if isinstance(message, messages.Refused) else "failed", message.reason)

    def _stop(self) -> None:
        """Order it to stop and take its last messages, without waiting for a long call."""
        ours, process, until = self._ours, self._process, time.monotonic() + STOP_PATIENCE_S
        self._done = False
        try:
            ours.send_bytes(messages.pack(messages.Stop()))
            while not self._done and process.poll() is None and (left := until - time.monotonic()) > 0:
                if ours.poll(left):
                    self._take(messages.unpack_report(ours.recv_bytes()))
        except (OSError, EOFError, msgspec.MsgspecError):
            pass
        self._note("interrupted", "the run was interrupted")

    def _note_exit(self) -> None:
        """Note how the process ended; the pipe closed before the last message."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_PATIENCE_S)
        self._note("crashed", exit_text(self._process))

    def _note(self, ended: WorkerEnding, reason: str) -> None:
        self._outcome.ended, self._outcome.reason = ended, reason
        self._done = True

    def _blame(self) -> None:
        outcome = self._outcome
        outcome.how = outcome.reason
        if outcome.ended not in ("crashed", "hung") or outcome.reason is None:
            return
        if outcome.guilty is not None:
            mark = outcome.guilty
            step = "making its first call" if mark.phase == "first call" else f"being {mark.phase}"
            outcome.reason += f", while {mark.route} at {format_size(mark.nbytes)} was {step}"
        elif outcome.hello is None:
            outcome.reason += ", while it started"


def start_worker(
    boot: str, handles: Sequence[int], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a Python that runs `boot`, with these descriptors as its arguments."""
    return subprocess.Popen(  # noqa: S603 - this Python with fixed arguments
        python_command(boot, *map(str, handles), flags=("-X", "faulthandler")),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**environment, **os.environ, IN_WORKER: "1", "PYTHONUNBUFFERED": "1"},
        pass_fds=handles,
        start_new_session=True,  # Ctrl-C does not reach it, and its own children can be killed with it
    )


def exit_text(process: subprocess.Popen[bytes]) -> str:
    """How a worker ended whose pipe is closed."""
    code = process.returncode
    return "its pipe closed, but it did not end" if code is None else f"it {ending_of(code)}"


LOG_LINES = 12
CRASH_LINES = 5
# The beginning of Python's own report of a crash (faulthandler), and of the part on the thread that crashed.
_CRASH = "Fatal Python error"
_CRASHED_THREAD = "Current thread"
# Two dozen addresses of TensorFlow's native stack would push its error message out of the log.
_NOISE = re.compile(r"\s*@\s+0x|Extension modules: ")


def tail_of(log: int) -> tuple[str, ...]:
    """The last lines of the log. Of Python's own report of a crash, which comes last, only the beginning is kept."""
    lines = [line for line in last_lines(log) if not _NOISE.match(line)]
    crash = next((number for number, line in enumerate(lines) if line.startswith(_CRASH)), len(lines))
    thread = next((number for number, line in enumerate(lines) if line.startswith(_CRASHED_THREAD)), crash)
    return (*lines[:crash][-LOG_LINES:], *lines[crash : crash + 1], *lines[thread + 1 : thread + CRASH_LINES])


# --- the worker ------------------------------------------------------------------------------------------------------

# More frequent progress messages would only wake the other process.
LIFE_EVERY_S = 0.2
ORPHANED = 1
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel kill this process with its parent: no thread here runs while a framework holds the GIL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(connection_handle: int, marker_handle: int) -> None:
    """Serve one task, then end the process without the framework's own shutdown, which may crash or hang."""
    die_with_parent()
    connection: Connection[bytes, bytes] = Connection(connection_handle)
    task = messages.unpack_order(connection.recv_bytes())
    orders = Orders(connection)
    orders.start()
    if isinstance(task, messages.Task):
        serve(task, _sender(connection), messages.Marker(marker_handle), orders)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class Orders(threading.Thread):
    """Waits for the orders to begin and to stop. A closed pipe means that the run has ended, and ends this process."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        super().__init__(name="pyxfer-orders", daemon=True)
        self._connection = connection
        self.begun = threading.Event()
        self.stop: Callable[[], None] = lambda: os._exit(0)
        """Called on the order to stop. Before there are results it ends the process."""

    def run(self) -> None:
        try:
            while not isinstance(order := messages.unpack_order(self._connection.recv_bytes()), messages.Stop):
                if isinstance(order, messages.Begin):
                    self.begun.set()
        except (EOFError, OSError):
            os._exit(ORPHANED)
        self.stop()
        self.begun.set()


def serve(
    task: messages.Task, send: Callable[[messages.FromWorker], None], marker: messages.Marker, orders: Orders
) -> None:
    """Start the framework and measure. The last message says how it ended."""
    try:
        framework, routes = _load_routes(task)
        choice = choose(task.device)
        device = find_device(choice.engine, 0 if is_host_name(task.device) else task.device)
        begun = time.perf_counter()
        started = framework.start(device.index if choice.runtime == "cuda" else None, task.setting)
        start_s = time.perf_counter() - begun
        lack = started.cuda.reason
        if choice.runtime == HOST:
            lack = choice.reason or "the device is host memory, without a link"
        cuda = started.cuda if lack is None else Fact(reason=lack)
        send(messages.Hello(started.version, cuda, dict(started.settings), start_s))
        bench = Bench(task, routes, choice, device, lack)
        orders.stop = bench.cancel
        bench.run(send, marker, orders.begun.wait)
        send(messages.Finished(tuple(bench.remarks)))
    except RefusedError as error:
        send(messages.Refused(str(error)))
    except PyxferError as error:
        send(messages.Failed(str(error)))
    except Exception as error:  # noqa: BLE001 - the run gets the message, and the log the traceback
        traceback.print_exc()
        send(messages.Failed(describe_error(error)))


def _load_routes(task: messages.Task) -> tuple[Framework, Sequence[Route]]:
    # All are imported before any is adopted, because a script may register its routes when it is imported.
    made = [
        Route(**own.fields, copy=_import_make(own.copy), image_batch=_import_make(own.image_batch)) for own in task.own
    ]
    for route in made:
        adopt_route(route, task.framework)
    framework = load_framework(task.framework)
    routes = with_forms(framework.routes, task.forms, task.casts)
    return framework, [route for route in routes if route.name in task.routes]


def _import_make(reference: messages.Reference | None) -> Make | None:
    """The function that sets a route up. If it cannot be imported, a function that raises the reason."""
    if reference is None:
        return None
    try:
        return resolve_reference(reference)
    except BaseException as error:  # noqa: BLE001 - a script may do anything when it is imported
        traceback.print_exc()
        why = describe_error(error)

        def refuse(_: RouteContext) -> Transfer:
            raise RefusedError(f"it could not be imported by the worker: {why}")

        return refuse


def _sender(connection: Connection[bytes, bytes]) -> Callable[[messages.FromWorker], None]:
    last, phase = 0.0, ""

    def send(message: messages.FromWorker) -> None:
        nonlocal last, phase
        now = time.monotonic()
        if isinstance(message, messages.Doing):
            if message.now.phase == phase and phase in ("measuring", "tracing") and now - last < LIFE_EVERY_S:
                return
            phase = message.now.phase
        last = now
        try:
            connection.send_bytes(messages.pack(message))
        except OSError:  # the run has ended, so the results have no reader
            os._exit(ORPHANED)

    return send

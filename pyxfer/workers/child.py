"""The worker process: starts one framework, measures, reports, and ends without asking anybody.

Its standard output and error are a log file, because frameworks write there what they please.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from pyxfer.errors import PyxferError
from pyxfer.machine.devices import find_device
from pyxfer.model import Fact
from pyxfer.native import HOST, choose
from pyxfer.routes.base import Framework, Make, RefusedError, Route, Started, Transfer
from pyxfer.routes.place import Place
from pyxfer.routes.references import Reference, resolve_reference
from pyxfer.routes.registry import adopt_route, load_framework
from pyxfer.workers.bench import Bench
from pyxfer.workers.marker import Marker
from pyxfer.workers.messages import (
    Doing,
    Failed,
    Finished,
    FromWorker,
    Hello,
    OwnRoute,
    Refused,
    Stop,
    Task,
    pack,
    unpack_order,
)
from pyxfer.workers.subjects import in_words

# Signs of life more often than this would only wake the other process.
LIFE_EVERY_S = 0.2
ORPHANED = 1
PR_SET_PDEATHSIG = 1


def main(connection_handle: int, marker_handle: int) -> None:
    """Serve one task, then end the process; a framework's own shutdown may crash or hang, and nobody needs it."""
    _end_with_parent()
    connection: Connection[bytes, bytes] = Connection(connection_handle)
    task = unpack_order(connection.recv_bytes())
    orders = Orders(connection)
    orders.start()
    if isinstance(task, Task):
        serve(task, _sender(connection), Marker(marker_handle), orders)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent() -> None:
    """Ask the kernel: a thread of ours cannot see the pipe close while a framework holds Python's lock."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Orders(threading.Thread):
    """Waits for the order to stop; a pipe that closes means that the run is gone."""

    def __init__(self, connection: Connection[bytes, bytes]) -> None:
        super().__init__(name="pyxfer-orders", daemon=True)
        self._connection = connection
        self.stop: Callable[[], None] = lambda: os._exit(0)
        """What to do when told; before there is anything to save, the end."""

    def run(self) -> None:
        """Until told."""
        try:
            while not isinstance(unpack_order(self._connection.recv_bytes()), Stop):
                pass
        except (EOFError, OSError):
            os._exit(ORPHANED)
        self.stop()


def serve(task: Task, send: Callable[[FromWorker], None], marker: Marker, orders: Orders) -> None:
    """Start the framework and measure; every way to end is a message."""
    try:
        framework, routes = _routes(task)
        choice = choose(task.device)
        device = find_device(choice.engine, 0 if task.device == HOST else task.device)
        begun = time.perf_counter()
        started = framework.start(device.index if choice.runtime == "cuda" else None, task.setting)
        start_s = time.perf_counter() - begun
        lack = _lack_of_gpu(choice.runtime, choice.reason, started)
        cuda = started.cuda if lack is None else Fact(reason=lack)
        send(Hello(started.version, cuda, dict(started.settings), start_s))
        bench = Bench(task, framework, routes, choice, device, lack)
        orders.stop = bench.cancel
        bench.run(send, marker)
        send(Finished(tuple(bench.remarks)))
    except RefusedError as error:
        send(Refused(str(error)))
    except PyxferError as error:
        send(Failed(str(error)))
    except Exception as error:  # noqa: BLE001 - told to the run, and its trace to the log
        traceback.print_exc()
        send(Failed(in_words(error)))


def _lack_of_gpu(runtime: str, why_host: str, started: Started) -> str | None:
    if runtime == HOST:
        return why_host or "host memory was asked for, and no link"
    return None if started.cuda.value is not None else started.cuda.reason


def _routes(task: Task) -> tuple[Framework, Sequence[Route]]:
    """The framework with the routes that are asked for, users' own among them."""
    # All are found before any is adopted: a script that is imported for the first may register them itself.
    for route in [_own_route(own) for own in task.own]:
        adopt_route(route, task.framework)
    framework = load_framework(task.framework)
    chosen = [route for route in framework.routes if route.name in task.routes]
    return framework, chosen


def _own_route(own: OwnRoute) -> Route:
    words: dict[str, Any] = dict(own.words)
    for workload in ("copy", "image_batch"):
        place = getattr(own, workload)
        words[workload] = None if place is None else _maker(*place)
    return Route(**words)


def _maker(module: str, name: str, script: bytes | None) -> Make:
    """What sets a route up; where it cannot be found, what says so in the route's rows."""
    try:
        return resolve_reference(Reference(module, name, None if script is None else os.fsdecode(script)))
    except BaseException as error:  # noqa: BLE001 - a script may do anything when it is imported
        traceback.print_exc()
        why = in_words(error)

        def refuse(_: Place) -> Transfer:
            raise RefusedError(f"it could not be imported by the worker: {why}")

        return refuse


def _sender(connection: Connection[bytes, bytes]) -> Callable[[FromWorker], None]:
    last, phase = 0.0, ""

    def send(message: FromWorker) -> None:
        nonlocal last, phase
        now = time.monotonic()
        if isinstance(message, Doing):
            if message.phase == phase and phase in ("measuring", "tracing") and now - last < LIFE_EVERY_S:
                return
            phase = message.phase
        last = now
        try:
            connection.send_bytes(pack(message))
        except OSError:  # the run is gone, and with it everybody who could use the rest
            os._exit(ORPHANED)

    return send

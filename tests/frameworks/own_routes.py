"""Correct and faulty routes of a user; worker processes import this file by its name."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import pyxfer


class Copied(pyxfer.Transfer):
    """One NumPy copy, as a correct route makes it."""

    source: Any = None

    def refresh(self) -> None:
        self.source = self.context.source()

    def run(self) -> None:
        self.result = self.source.copy()

    def where(self) -> Any:
        return "cpu"

    def arrived(self) -> Any:
        return self.result


class Aliased(Copied):
    def run(self) -> None:
        self.result = self.source


class Cached(Copied):
    """Returns the first result again and again, as a cache would."""

    kept: Any = None

    def run(self) -> None:
        if self.kept is None:
            self.kept = self.source.copy()
        self.result = self.kept


class Elsewhere(Copied):
    def where(self) -> Any:
        return "gpu"


class Later(Copied):
    """Does `late` from its eighth run on."""

    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            self.late()
        super().run()

    def late(self) -> None:
        raise NotImplementedError


class Raising(Later):
    def late(self) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nsecond line")


class Aborting(Later):
    def late(self) -> None:
        os.abort()


class Killed(Later):
    def late(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingLater(Copied):
    """Ends the process shortly after a trial, between two routes."""

    runs = 0

    def run(self) -> None:
        self.runs += 1
        super().run()

    def release(self) -> None:
        super().release()
        if self.runs > 7:
            threading.Thread(target=abort_between_trials, daemon=True).start()


def abort_between_trials() -> None:
    """Waits until the marker of this process is clear."""
    handle = int(sys.argv[-1])
    while os.pread(handle, 1, 0) != b"\0":
        pass
    os.abort()


class Hanging(Later):
    def late(self) -> None:
        time.sleep(1000)


class Slow(Copied):
    def run(self) -> None:
        time.sleep(0.02)
        super().run()


class Leaving(Copied):
    def run(self) -> None:
        os._exit(7)


class Several(Copied):
    """Four copies in one run, 5 ms each."""

    copies = 4

    def run(self) -> None:
        time.sleep(0.020)
        super().run()


def refused(context: pyxfer.RouteContext) -> pyxfer.Transfer:
    raise pyxfer.RefusedError(f"not available in Mine 2.0 for {context.nbytes} bytes: it has moved")


def broken(context: pyxfer.RouteContext) -> pyxfer.Transfer:
    raise ValueError("set up wrongly")


def noisy(context: pyxfer.RouteContext) -> pyxfer.Transfer:
    sys.stdout.write("to standard output\n")
    sys.stderr.write("\x1b[31mto standard error\x1b[0m\n")
    return Copied(context)


# After the first calls and the verification, so that the run is timing its trials.
RUNS_ON_ALIGNED_MEMORY = 7


class Misaligned(pyxfer.Transfer):
    """An array that TensorFlow uses in place; its CPU kernels need a multiple of 64 bytes."""

    array: Any = None
    runs = 0

    def refresh(self) -> None:
        # As malloc places a large array, `pageable` starts 16 bytes after a page boundary.
        self.array = self.context.source("aligned" if self.runs < RUNS_ON_ALIGNED_MEMORY else "pageable")

    def run(self) -> None:
        import tensorflow as tf

        self.runs += 1
        tensor = tf.experimental.dlpack.from_dlpack(self.array.__dlpack__())
        with tf.device("/device:CPU:0"):
            self.result = tf.add(tensor, tensor)

    def where(self) -> Any:
        return "cpu"

    def arrived(self) -> Any:
        return self.result.numpy()

    def expected(self, data: Any) -> Any:
        return data + data


def make_route(name: str, make: Any, **overrides: Any) -> pyxfer.Route:
    """A route from NumPy to NumPy."""
    words: dict[str, Any] = {
        "call": "x.copy()",
        "direction": "ingest",
        "memory": "pageable",
        "host_copies": 1,
        "dma": "none",
        "returns": "done",
        "bracket": "host",
        "copy": make,
    }
    return pyxfer.Route(name=name, **{**words, **overrides})


class Counting(Copied):
    """Takes 2 ms, and counts its calls."""

    calls = 0

    def run(self) -> None:
        type(self).calls += 1
        time.sleep(0.002)
        super().run()


class LateRefused(Later):
    def late(self) -> None:
        raise pyxfer.RefusedError("no more of it")


class LateUsage(Later):
    def late(self) -> None:
        raise pyxfer.UsageError("used wrongly")


class LateExit(Later):
    def late(self) -> None:
        sys.exit(3)


class LateInterrupt(Later):
    def late(self) -> None:
        raise KeyboardInterrupt


class LateRelease(Later):
    def late(self) -> None: ...

    def release(self) -> None:
        super().release()
        if self.runs > 7:
            raise OSError("cannot let go")


class Forking(Later):
    """Ends, but leaves a child that holds all open files."""

    def late(self) -> None:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        os._exit(7)


class LookedAt(Copied):
    """Misbehaves from the third `arrived()` on, which is in its first traced trial."""

    looks = 0

    def arrived(self) -> Any:
        self.looks += 1
        if self.looks > 2:
            self.traced()
        return super().arrived()

    def traced(self) -> None:
        raise NotImplementedError


class AbortingTraced(LookedAt):
    def traced(self) -> None:
        os.abort()


class HangingTraced(LookedAt):
    def traced(self) -> None:
        time.sleep(1000)


class Fractional(Copied):
    copies = 0.5  # type: ignore[assignment]


class NoTransfer:
    def __init__(self, context: pyxfer.RouteContext) -> None: ...


class Lists(Copied):
    def arrived(self) -> Any:
        return [1]


class Cuda(Copied):
    def where(self) -> Any:
        return "cuda"

"""Correct and faulty routes of a user; worker processes import this file by its name."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

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


class Raising(Copied):
    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nsecond line")
        super().run()


class Aborting(Copied):
    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            sys.stderr.write("F tensor.cc:899] Check failed: IsAligned()\n")
            sys.stderr.flush()
            os.abort()
        super().run()


class Killed(Copied):
    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            os.kill(os.getpid(), signal.SIGKILL)
        super().run()


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


class Hanging(Copied):
    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            time.sleep(1000)
        super().run()


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


def doubled(data: Any) -> Any:
    return np.repeat(data, 2)


class Counting(Copied):
    """Takes 2 ms, and counts its calls."""

    calls = 0

    def run(self) -> None:
        type(self).calls += 1
        time.sleep(0.002)
        super().run()


class Late(Copied):
    """Does what `happens` says from its eighth run on."""

    happens = ""
    runs = 0

    def run(self) -> None:
        self.runs += 1
        super().run()
        if self.runs > 7:
            late(self.happens)

    def release(self) -> None:
        super().release()
        if self.runs > 7 and self.happens == "release":
            raise OSError("cannot let go")


def late(happens: str) -> None:
    if happens == "refused":
        raise pyxfer.RefusedError("no more of it")
    if happens == "usage":
        raise pyxfer.UsageError("used wrongly")
    if happens == "exit":
        sys.exit(3)
    if happens == "interrupt":
        raise KeyboardInterrupt


class LateRefused(Late):
    happens = "refused"


class LateUsage(Late):
    happens = "usage"


class LateExit(Late):
    happens = "exit"


class LateInterrupt(Late):
    happens = "interrupt"


class LateRelease(Late):
    happens = "release"


class Forking(Copied):
    """Ends, but leaves a child that holds all open files."""

    runs = 0

    def run(self) -> None:
        self.runs += 1
        if self.runs > 7:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            os._exit(7)
        super().run()


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

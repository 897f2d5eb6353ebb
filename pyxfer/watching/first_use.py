"""When a program first uses CUDA, told without using it ourselves.

A script may still choose its devices (CUDA_VISIBLE_DEVICES) and fork processes that use them, until CUDA has been set
up in it. Whoever watches it from its beginning must not do that for it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

# Setting up a context takes ten times as long, and a look next to nothing.
LOOK_EVERY_S = 0.01
_DRIVER = "libcuda.so.1"
_SUCCESS = 0
_END_PATIENCE_S = 30.0


def is_cuda_in_use() -> bool:
    """Whether somebody in this process has called cuInit; until then the driver answers with an error."""
    try:
        driver = ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:  # not even loaded
        return False
    count = ctypes.c_int()
    return bool(driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS)


class FirstUse(threading.Thread):
    """Waits for it, after so many seconds in which it does not matter, and then calls back from a thread of its own."""

    def __init__(self, after_s: float, on_use: Callable[[], None], *, needs_cuda: bool) -> None:
        super().__init__(name="pyxfer-watch-start", daemon=True)
        self._after_s = after_s
        self._on_use = on_use
        self._needs_cuda = needs_cuda
        self.is_waiting_for_cuda = False
        self._over = threading.Event()

    def run(self) -> None:
        """Until the first use."""
        over = self._over.wait(self._after_s)
        while not over and self._needs_cuda and not is_cuda_in_use():
            self.is_waiting_for_cuda = True
            over = self._over.wait(LOOK_EVERY_S)
        if not over:
            self._on_use()

    def cancel(self) -> None:
        """Call back no more; a call that has begun is waited for, because an interpreter cannot end around it."""
        self._over.set()
        self.join(_END_PATIENCE_S)

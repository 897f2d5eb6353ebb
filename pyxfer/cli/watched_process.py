"""The process that a script is watched in: started, given the signals that we are given, and waited for.

It shares our terminal, our streams and our process group, as if the script had been started alone.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import TracebackType

# Nothing is imported before the path is ours: a json.py beside the script is nobody's json but the script's.
_BOOT = (
    "import sys; own = sys.path[:]; sys.path[:] = sys.argv[1].split('\\n'); from pyxfer.watching.launch import main; "
    "ours = sys.path[:]; sys.path[:] = own; main(sys.argv[2], sys.argv[3:], ours)"
)
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_HEEDED = {*_FORWARDED, signal.SIGCHLD}
# What the terminal sends, the kernel gives to the whole process group; only what somebody sent us has to be passed on.
_SENT_BY_THE_KERNEL = 0x80
_LOOK_EVERY_S = 0.5
SIGNALLED = 128


class BlockedSignals:
    """From before the process is started until it has ended, signals wait for `WatchedProcess.wait` to take them."""

    def __enter__(self) -> tuple[int, ...]:
        """Those that were blocked before."""
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)
        return tuple(int(each) for each in self._before)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class WatchedProcess:
    """One script at work."""

    def __init__(self, launch: str, program: Sequence[str]) -> None:
        command = [sys.executable, *_own_flags(), "-c", _BOOT, "\n".join(sys.path), launch, *program]
        self._process = subprocess.Popen(command, close_fds=False)  # noqa: S603 - this Python; the script inherits all

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait(self, look: Callable[[], None]) -> int:
        """Until it has ended: its exit code, or 128 and the signal that ended it. `look` is called now and then."""
        while self._process.poll() is None:
            came = signal.sigtimedwait(_HEEDED, _LOOK_EVERY_S)
            if came is not None and came.si_signo in _FORWARDED and came.si_code != _SENT_BY_THE_KERNEL:
                self._process.send_signal(came.si_signo)
            look()
        return exit_code(self._process.returncode)


def exit_code(returned: int) -> int:
    """As a shell gives it."""
    return returned if returned >= 0 else SIGNALLED - returned


def _own_flags() -> list[str]:
    """The flags that this Python was started with, for the script."""
    flags: list[str] = vars(subprocess)["_args_from_interpreter_flags"]()
    return flags

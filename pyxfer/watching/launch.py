"""The process of `pyxfer watch`: arms a watch and runs the script, which need not know of it.

Whatever the script does, its window is written down as soon as it closes; the command tells of it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyxfer.errors import PyxferError, UsageError
from pyxfer.tracing.libraries import candidates
from pyxfer.units import format_seconds
from pyxfer.watching import at_work
from pyxfer.watching.first_use import FirstUse, is_cuda_in_use
from pyxfer.watching.optimizer_steps import OPTIMIZER, count_optimizer_steps
from pyxfer.watching.order import Order
from pyxfer.watching.recording import forget_for_nvtx, name_for_nvtx
from pyxfer.watching.script import prepare
from pyxfer.watching.session import WANTED_ENDINGS, Session
from pyxfer.watching.signals import SignalSwitch
from pyxfer.watching.steps_taken import in_words
from pyxfer.watching.stored import store

if TYPE_CHECKING:
    from pyxfer.watching.window import Window, WindowEnding

USAGE = 2
NOTE, REFUSAL = "note", "refusal"


@dataclass(frozen=True)
class Launch:
    """What the command asks of the process. `blocked`: the signals that are blocked where the command was called."""

    order: Order
    folder: str
    is_module: bool = False
    skip_s: float = 0.0
    by_signal: bool = False
    driver: int = 0
    """CUDA's version as the driver gives it, where there is a GPU to wait for; else 0."""
    blocked: tuple[int, ...] = ()

    def pack(self) -> str:
        """As text for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def unpack(cls, text: str) -> Launch:
        """And back."""
        fields = json.loads(text)
        return cls(**{**fields, "order": Order(**fields["order"]), "blocked": tuple(fields["blocked"])})


def window_path(folder: str, number: int) -> Path:
    """Where the window of this number is written."""
    return Path(folder) / f"window-{number}"


def main(text: str, program: Sequence[str], path: Sequence[str] = ()) -> None:
    """Run the program; it ends this process as it would end its own. `path`: where our own modules lie."""
    launch = Launch.unpack(text)
    try:
        run = prepare(program[0], program[1:], is_module=launch.is_module)
        watch = Launched(launch, path)
        watch.arm()
    except UsageError as error:
        _write(launch, REFUSAL, str(error))
        raise SystemExit(USAGE) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, launch.blocked)
    try:
        run()
    except BaseException as error:
        watch.note(error)
        raise


class Launched:
    """The watch around a script."""

    def __init__(self, launch: Launch, path: Sequence[str]) -> None:
        self._launch = launch
        self._pid = os.getpid()
        self._is_written = False
        self._is_interrupted = False
        self._why_not = ""
        self._stop_waiting = _nothing
        self._first_use: FirstUse | None = None
        self._named_for_nvtx: str | None = None
        self._session = _AfterFirstUse(launch.order, bool(launch.driver))
        self._session.gives_way = True
        self._session.path = path

    def arm(self) -> None:
        """Open the window at once, or have it opened later."""
        session, launch = self._session, self._launch
        # The script may use NVTX before its window opens, and NVTX looks for a library only once.
        found = candidates(launch.driver) if launch.driver else ()
        self._named_for_nvtx = name_for_nvtx(found[0]) if found else None
        self._stop_waiting = count_optimizer_steps(self._step_ended)
        atexit.register(self._end)
        if launch.by_signal:
            self._why_not = "no signal came: send SIGUSR1 to start, and again to stop"
            SignalSwitch(session, signal.SIGUSR1, self._keep)
        else:
            session.on_closed = lambda window: self._keep(1, window)
            self._begin()

    def _begin(self) -> None:
        """As soon as the script uses CUDA, and the time to skip is over; on host memory at once."""
        launch = self._launch
        if not launch.driver and not launch.skip_s:
            self._start()
            return
        self._first_use = FirstUse(launch.skip_s, self._start, needs_cuda=bool(launch.driver))
        self._first_use.start()

    def note(self, error: BaseException) -> None:
        """The script has raised something that nobody catches."""
        self._is_interrupted = isinstance(error, KeyboardInterrupt)
        if not isinstance(error, WANTED_ENDINGS):
            self._session.at_end = "failed"
        elif self._is_interrupted:
            self._session.at_end = "ended"

    def _step_ended(self, optimizer: int) -> None:
        self._session.steps.boundary(optimizer)

    def _start(self) -> None:
        """The script runs all the same where that fails."""
        try:
            self._session.start()
        except PyxferError as error:
            self._why_not = str(error)
        except Exception as error:  # noqa: BLE001 - such as that no more threads are to be had
            self._why_not = f"the window could not be opened: {in_words(error)}"

    def _why_not_begun(self) -> str:
        if self._session.begun_at:
            return "the window is lost: it was interrupted while it was being put together"
        if self._first_use is not None and self._first_use.is_waiting_for_cuda:
            return "the script has not used CUDA"
        return f"the script ended within the {format_seconds(self._launch.skip_s)} that were to be skipped"

    def _keep(self, number: int, window: Window) -> None:
        if not self._launch.by_signal:
            self._stop_waiting()
            forget_for_nvtx(self._named_for_nvtx)
        if window.begin_ns == window.end_ns:
            self._why_not = window.remarks[-1].text + _which_steps(window)
            return
        try:
            store(window, window_path(self._launch.folder, number))
            self._is_written = True
        except Exception as error:  # noqa: BLE001 - the script has its end to itself
            self._why_not = f"the window could not be written down: {in_words(error)}"

    def _end(self) -> None:
        """The script has ended in an ordinary way, and whatever else it had to do at its end is done."""
        if os.getpid() != self._pid:
            return
        with at_work.uninterrupted():
            if self._first_use is not None:
                self._first_use.cancel()
            self._session.stop()
            if not self._is_written:
                _write(self._launch, NOTE, self._session.trouble or self._why_not or self._why_not_begun())
            if self._is_interrupted:
                _die_of_the_interrupt()


class _AfterFirstUse(Session):
    """A watch that sets up nothing which the script has not set up."""

    def __init__(self, order: Order, needs_cuda: bool) -> None:
        super().__init__(order)
        self._needs_cuda = needs_cuda
        self.trouble = ""

    def start(self) -> None:
        """Open the library.

        Raises:
            UsageError: it is too early, or another watch is at work.

        """
        if self._needs_cuda and not is_cuda_in_use():
            raise UsageError("The script has not used CUDA yet: send the signal again when it has.")
        super().start()

    def _close(self, ended: WindowEnding, end_ns: int | None) -> None:
        """What goes wrong then is no exception of the script's; a module of its own may be in the way of NumPy."""
        try:
            super()._close(ended, end_ns)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self.trouble = f"the window could not be put together: {in_words(error)}"


def _nothing() -> None:
    """Nobody waits for PyTorch yet."""


def _which_steps(window: Window) -> str:
    """For a script that took none, what would have been one."""
    if window.skipped or OPTIMIZER in sys.modules or window.remarks[-1].code != "never-opened":
        return ""
    return "; steps are those of PyTorch's optimizers, and without them a time can be skipped, such as --skip 2s"


def _die_of_the_interrupt() -> None:
    """Have Python end by SIGINT, as it does after a KeyboardInterrupt that nobody caught.

    It remembers that until some other text is executed, and modules that are loaded at the end do so.
    """
    with suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")  # noqa: S102


def _write(launch: Launch, name: str, text: str) -> None:
    (Path(launch.folder) / name).write_text(text, encoding="utf-8", errors="backslashreplace")

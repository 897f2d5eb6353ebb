"""The process of `pyxfer watch`: starts a watch, and runs the script, which does not have to be changed.

A window is written to a file as soon as it closes. The command reads the file and prints the report.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import importlib.machinery
import importlib.util
import itertools
import os
import pkgutil
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from pyxfer._document.machines import Remark
from pyxfer._trace.libraries import candidates
from pyxfer._watch import step_finding
from pyxfer._watch.marks import PYXFER
from pyxfer._watch.options import WatchOptions
from pyxfer._watch.recording import set_nvtx_library, unset_nvtx_library
from pyxfer._watch.session import WANTED_ENDINGS, Session, ignoring_interrupts
from pyxfer._watch.step_finding import MAIN, FoundSteps, NamedFunction, compile_main_with, find_steps
from pyxfer._watch.step_tracking import error_line
from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._watch.window import Window, WindowEnding


_STEP_FINDING = step_finding.__file__
_RUNNERS = ("<string>", "<frozen runpy>", runpy.__file__)


def prepare(
    program: str, arguments: Sequence[str], *, is_module: bool, named: NamedFunction | None = None
) -> Callable[[], None]:
    """Set `__main__`, `sys.argv` and `sys.path` as Python does. Calling the result runs the program."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]  # exec would set the dictionary instead of the module
    sys.argv[:] = [program, *arguments]
    sys.excepthook = _without_own_frames(sys.excepthook)
    in_main = named if named is not None and named.module == MAIN else None
    run_module: Any = vars(runpy)["_run_module_as_main"]  # what `python -m` itself calls
    if is_module:
        sys.path[0] = os.getcwd()
        try:
            spec = importlib.util.find_spec(program)
        except (ImportError, ValueError):  # of the package that it should be in
            spec = None
        if spec is None:
            raise UsageError(f"There is no module {program!r} to run: check its name.")
        if in_main is not None:
            compile_main_with(in_main)
        return partial(run_module, program)
    if program and pkgutil.get_importer(program) is not None:  # a folder or an archive with a __main__.py
        sys.path[0] = os.path.abspath(program)
        if in_main is not None:
            compile_main_with(in_main)
        return partial(run_module, MAIN, alter_argv=False)
    path = os.path.join(os.getcwd(), program)
    sys.path[0] = os.path.dirname(os.path.realpath(program))
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    try:
        source = Path(path).read_bytes()
        code = compile(source, path, "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"The script {program!r} cannot be read ({error.strerror}): check its name.") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"The script {program!r} cannot be compiled: {error}") from error
    if in_main is not None:
        code = in_main.compiled_main(source, path)
    return partial(exec, code, main.__dict__)


def _without_own_frames(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the frames of pyxfer and runpy at the beginning of a traceback, and those around counted calls."""

    def show(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        while at is not None and at.tb_frame.f_code.co_filename.startswith((*_RUNNERS, PYXFER + os.sep)):
            at = at.tb_next
        _drop_counting_frames(error)
        hook(kind, error.with_traceback(at), at)

    return show


def _drop_counting_frames(error: BaseException) -> None:
    """Drop the frames around counted calls from the tracebacks of an exception and of those that led to it."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        frame = each.__traceback__
        while frame is not None:
            while (inner := frame.tb_next) is not None and inner.tb_frame.f_code.co_filename == _STEP_FINDING:
                frame.tb_next = inner.tb_next
            frame = inner
        waiting += [each.__cause__, each.__context__]


# Creating a CUDA context takes ten times as long, and a check takes microseconds.
CHECK_EVERY_S = 0.01
_DRIVER = "libcuda.so.1"
_SUCCESS = 0
_JOIN_TIMEOUT_S = 30.0


def is_cuda_in_use() -> bool:
    """Whether cuInit was called in this process. Does not load the driver or call cuInit."""
    try:
        driver = ctypes.CDLL(_DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:  # not loaded
        return False
    count = ctypes.c_int()
    return bool(driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS)


class FirstUse(threading.Thread):
    """Calls `on_use` after `after_s` seconds, and with `needs_cuda` not before the first use of CUDA."""

    def __init__(self, after_s: float, on_use: Callable[[], None], *, needs_cuda: bool) -> None:
        super().__init__(name="pyxfer-watch-start", daemon=True)
        self._after_s = after_s
        self._on_use = on_use
        self._needs_cuda = needs_cuda
        self.is_waiting_for_cuda = False
        self._cancelled = threading.Event()

    def run(self) -> None:
        is_cancelled = self._cancelled.wait(self._after_s)
        while not is_cancelled and self._needs_cuda and not is_cuda_in_use():
            self.is_waiting_for_cuda = True
            is_cancelled = self._cancelled.wait(CHECK_EVERY_S)
        if not is_cancelled:
            self._on_use()

    def cancel(self) -> None:
        """Prevent the call, or wait for its end, because the interpreter cannot exit while it runs."""
        self._cancelled.set()
        self.join(_JOIN_TIMEOUT_S)


class SignalSwitch:
    """Starts a session at one signal and stops it at the next.

    `on_window` is called with the number of the window, from 1 on, and the window. Everything runs in the switch's own
    thread, because a signal handler may interrupt the session at any point.
    """

    def __init__(self, session: Session, number: int, on_window: Callable[[int, Window], None]) -> None:
        self._session = session
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name="pyxfer-watch-signals", daemon=True)
        _install_handler(
            number, lambda *_: self._jobs.put(lambda: session.stop() if session.is_active else session.start())
        )
        numbers = itertools.count(1)
        session.on_closed = lambda window: self._jobs.put(lambda: on_window(next(numbers), window))
        self._thread.start()
        atexit.register(self._stop_at_exit)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except PyxferError as error:
                print_message(str(error))

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._pid:
            self._session.stop()
            self._jobs.put(None)
            self._thread.join(_JOIN_TIMEOUT_S)


def _install_handler(number: int, handler: Callable[..., None]) -> None:
    if number not in set(signal.Signals):
        raise UsageError(f"{number!r} is not a signal: name one such as signal.SIGUSR1.")
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        name = signal.Signals(number).name
        raise UsageError(f"The program has a handler for {name} already: name another signal, such as SIGUSR2.")
    try:
        signal.signal(number, handler)
    except (ValueError, OSError) as error:  # not in the main thread, or SIGKILL
        raise UsageError(
            f"Signal {number} cannot be used here ({error}): call this in the main thread, for example with SIGUSR1."
        ) from error


def numbered(path: str, count: int) -> str:
    """`watch-2.json` for the second `watch.json`."""
    stem, extension = os.path.splitext(path)
    if extension == ".gz":
        stem, inner = os.path.splitext(stem)
        extension = inner + extension
    return f"{stem}-{count}{extension}"


def print_message(text: str) -> None:
    """Print to stderr, which the program may have closed."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"pyxfer: {text}\n")
        sys.stderr.flush()


USAGE = 2
# Files in the folder that the command reads: why nothing was watched, and why the script was not run.
NOTE, REFUSAL = "note", "refusal"


@dataclass(frozen=True)
class Launch:
    options: WatchOptions
    folder: str
    """Where windows and messages are written."""
    is_module: bool = False
    skip_s: float = 0.0
    step: str = ""
    """The function whose calls are the steps, as `--step` names it."""
    by_signal: bool = False
    driver: int = 0
    """CUDA's version as the driver gives it, if a GPU is watched; otherwise 0."""
    blocked: tuple[int, ...] = ()
    """The signals that were blocked when the command was called."""

    def pack(self) -> str:
        return msgspec.json.encode(self).decode()


def window_path(folder: str, number: int) -> Path:
    return Path(folder) / f"window-{number}"


def main(text: str, program: Sequence[str]) -> None:
    """Run the program under the `Launch` that `text` contains. The process ends as the program does."""
    launch = msgspec.json.decode(text, type=Launch)
    try:
        named = NamedFunction(launch.step) if launch.step else None
        run = prepare(program[0], program[1:], is_module=launch.is_module, named=named)
        if named is not None:
            named.check()
        watch = ScriptWatch(launch, named)
        watch.arm()
    except UsageError as error:
        _write(launch, REFUSAL, str(error))
        raise SystemExit(USAGE) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, launch.blocked)
    try:
        run()
    except KeyboardInterrupt as error:
        # Python ends by SIGINT only if nothing else is executed after the exception, and the window is still to close.
        watch.set_ending(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(128 + signal.SIGINT) from None
    except BaseException as error:
        watch.set_ending(error)
        raise


_WHAT_STEPS_ARE = (
    "; found no batch of Keras, step of a PyTorch optimizer, or repeated call of a tf.function or jax.jit function: "
    "name the function that is called for each input, --step module:function, or skip a time, such as --skip 2s"
)


class ScriptWatch:
    def __init__(self, launch: Launch, named: NamedFunction | None) -> None:
        self._launch = launch
        self._named = named
        self._pid = os.getpid()
        self._is_written = False
        self._why_nothing = ""
        self._stop_finding: Callable[[], None] | None = None
        self._first_use: FirstUse | None = None
        self._nvtx_library: str | None = None
        self._session = _ScriptSession(launch.options, needs_cuda=bool(launch.driver))
        self._session.is_preemptible = True

    def arm(self) -> None:
        session, launch = self._session, self._launch
        # The script may use NVTX before its window opens, and NVTX looks for a library only once.
        libraries = candidates(launch.driver) if launch.driver else ()
        self._nvtx_library = set_nvtx_library(libraries[0]) if libraries else None
        self._stop_finding = find_steps(FoundSteps(lambda: session.steps), self._named)
        atexit.register(self._finish)
        if launch.by_signal:
            self._why_nothing = "no signal came: send SIGUSR1 to start, and again to stop"
            SignalSwitch(session, signal.SIGUSR1, self._keep)
            return
        session.on_closed = partial(self._keep, 1)
        if launch.driver or launch.skip_s:
            self._first_use = FirstUse(launch.skip_s, self._start, needs_cuda=bool(launch.driver))
            self._first_use.start()
        else:
            self._start()

    def set_ending(self, error: BaseException) -> None:
        if not isinstance(error, WANTED_ENDINGS):
            self._session.ending = "failed"
        elif isinstance(error, KeyboardInterrupt):
            self._session.ending = "ended"

    def _start(self) -> None:
        try:
            self._session.start()
        except PyxferError as error:
            self._why_nothing = str(error)
        except Exception as error:  # noqa: BLE001 - for example no more threads; the script runs without a watch
            self._why_nothing = f"the window could not be opened: {error_line(error)}"

    def _keep(self, number: int, window: Window) -> None:
        if not self._launch.by_signal:
            if self._stop_finding is not None:
                self._stop_finding()
            unset_nvtx_library(self._nvtx_library)
        problem = "" if self._named is None else self._named.problem
        if window.begin_ns == window.end_ns:
            self._why_nothing = window.remarks[-1].text + (f"; --step: {problem}" if problem else "")
            if self._named is None and not window.skipped and window.remarks[-1].code == "never-opened":
                self._why_nothing += _WHAT_STEPS_ARE
            return
        if problem:
            window = replace(window, remarks=(*window.remarks, Remark("step-function", f"--step: {problem}")))
        try:
            from pyxfer._watch.window import save_window

            save_window(window, window_path(self._launch.folder, number))
            self._is_written = True
        except Exception as error:  # noqa: BLE001 - must not change how the script ends
            self._why_nothing = f"the window could not be written: {error_line(error)}"

    def _finish(self) -> None:
        """Close the window at the end of the script, after the script's own exit handlers."""
        if os.getpid() != self._pid:
            return
        with ignoring_interrupts():
            if self._first_use is not None:
                self._first_use.cancel()
            self._session.stop()
            if self._is_written:
                return
            why = f"the script ended within the {format_seconds(self._launch.skip_s)} that were to be skipped"
            if self._session.started_at:
                why = "the window is lost: closing it was interrupted"
            elif self._first_use is not None and self._first_use.is_waiting_for_cuda:
                why = "the script has not used CUDA"
            _write(self._launch, NOTE, self._session.failure or self._why_nothing or why)


class _ScriptSession(Session):
    """A session that never uses CUDA before the script does, and whose failures do not reach the script."""

    def __init__(self, options: WatchOptions, *, needs_cuda: bool) -> None:
        super().__init__(options)
        self._needs_cuda = needs_cuda
        self.failure = ""

    def start(self) -> None:
        if self._needs_cuda and not is_cuda_in_use():
            raise UsageError("The script has not used CUDA yet: send the signal again when it has.")
        super().start()

    def _close(self, ended: WindowEnding, end_ns: int | None) -> None:
        try:
            super()._close(ended, end_ns)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module of the script may hide one that is needed
            self.failure = f"the window could not be closed: {error_line(error)}"


def _write(launch: Launch, name: str, text: str) -> None:
    (Path(launch.folder) / name).write_text(text, encoding="utf-8", errors="backslashreplace")

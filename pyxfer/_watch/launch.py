"""The process of `pyxfer watch`: arms a watch and runs the script, which need not know of it.

Whatever the script does, its window is written down as soon as it closes; the command tells of it.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import importlib.machinery
import importlib.util
import io
import json
import os
import pkgutil
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pyxfer._trace.libraries import candidates
from pyxfer._watch import session as at_work
from pyxfer._watch.order import Order
from pyxfer._watch.recording import forget_for_nvtx, name_for_nvtx
from pyxfer._watch.session import WANTED_ENDINGS, Session
from pyxfer._watch.steps_taken import in_words
from pyxfer._watch.stored import store
from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._watch.window import Window, WindowEnding


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_RUNNERS = ("<string>", "<frozen runpy>", runpy.__file__)

Run = Callable[[], None]


def prepare(name: str, arguments: Sequence[str], *, is_module: bool) -> Run:
    """Make this process look as it would; what is returned runs the program.

    Raises:
        UsageError: there is none, or it is not Python.

    """
    _become_main(ModuleType("__main__"))
    sys.argv[:] = [name, *arguments]
    sys.excepthook = _without_us(sys.excepthook)
    if is_module:
        _put_first(_here())
        _check_module(name)
        sys.argv[0] = "-m"
        return lambda: _run_as_main(name, alter_argv=True)
    if pkgutil.get_importer(name) is not None:  # a folder or an archive, with a __main__ inside
        _put_first(os.path.abspath(name))
        return lambda: _run_as_main("__main__", alter_argv=False)
    code = read_code(name)
    _put_first(os.path.dirname(os.path.realpath(name)))
    return lambda: _run_code(code, name)


def read_code(path: str) -> CodeType:
    """What a script says, compiled.

    Raises:
        UsageError: it cannot be read, or it is not Python.

    """
    place = _absolute(path)
    try:
        with io.open_code(place) as file:
            text = file.read()  # once, for it may be a pipe
        code: CodeType | None = pkgutil.read_code(io.BytesIO(text))  # one that was compiled before
        return code if code is not None else compile(text, place, "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"The script {path!r} cannot be read ({error.strerror}): check its name.") from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(_not_python(path, error)) from error


def _check_module(name: str) -> None:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"There is no module {name!r} to run ({error}): check its name.") from error
    if spec is None:
        raise UsageError(f"There is no module {name!r} that can be run: check its name.")
    get_code: Any = getattr(spec.loader, "get_code", None)
    try:
        if get_code is not None:
            get_code(spec.name)
    except SyntaxError as error:
        raise UsageError(_not_python(spec.origin or name, error)) from error


def _not_python(path: str, error: Exception) -> str:
    where = str(error)
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    return f"{path!r} is not Python ({where}): correct it, or name another script."


def _become_main(module: ModuleType) -> None:
    module.__builtins__ = builtins  # type: ignore[attr-defined]  # as Python gives it to a script
    if "__annotations__" in vars(sys.modules["__main__"]):  # not from 3.14 on
        module.__annotations__ = {}
    sys.modules["__main__"] = module


def _put_first(folder: str) -> None:
    """Where the program's own modules are looked for; with -P or -I nowhere."""
    if sys.path and sys.path[0] == "":
        sys.path[0] = folder


def _run_as_main(name: str, *, alter_argv: bool) -> None:
    run: Any = vars(runpy)["_run_module_as_main"]  # what `python -m` itself calls
    run(name, alter_argv=alter_argv)


def _run_code(code: CodeType, path: str) -> None:
    main = sys.modules["__main__"]
    main.__file__ = _absolute(path)
    main.__cached__ = None  # type: ignore[attr-defined]  # as Python leaves it for a script
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
    exec(code, main.__dict__)  # noqa: S102 - this is what it was asked for


def _absolute(path: str) -> str:
    """As Python makes it of a script's name, which is not as tidy as `abspath`."""
    return os.path.join(_here(), path)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone; what is named from the root runs all the same
        return ""


def _without_us(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Tracebacks begin where the program begins."""

    def show(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        while at is not None and _is_ours(at.tb_frame.f_code.co_filename):
            at = at.tb_next
        hook(kind, error.with_traceback(at), at)

    return show


def _is_ours(path: str) -> bool:
    return path in _RUNNERS or path.startswith(_OURS + os.sep)


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


OPTIMIZER = "torch.optim.optimizer"

OnStep = Callable[[int], None]
"""Given the identity of the optimizer that has taken a step."""


def count_optimizer_steps(on_step: OnStep) -> Callable[[], None]:
    """Have every optimizer step told, as soon as PyTorch is there; what ends the waiting for it is returned.

    PyTorch keeps what it was asked to call: to take that back while it goes through its list would break its step.
    """
    steps = _Steps(on_step)
    loaded = sys.modules.get(OPTIMIZER)
    if loaded is not None:
        steps.hook(loaded)
    else:
        sys.meta_path.insert(0, steps)
    return steps.stop_waiting


class _Steps(MetaPathFinder):
    """Waits for one module to be imported, and finds nothing itself."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module as everybody else finds it, with a loader that tells when it has been loaded."""
        if fullname != OPTIMIZER or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._loaded)
        return spec

    def hook(self, module: ModuleType) -> None:
        """Ask to be called after each step; a PyTorch before 2.0 has no such call, and then there are no steps."""
        register: Any = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(lambda optimizer, *_: self._on_step(id(optimizer)))

    def stop_waiting(self) -> None:
        """Leave the imports alone."""
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def _loaded(self, module: ModuleType) -> None:
        self.stop_waiting()
        self.hook(module)


class _TellingLoader(Loader):
    """Another loader, and a word when it is done."""

    def __init__(self, loader: Loader, on_loaded: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._on_loaded = on_loaded

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the other does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the other does; then the module has the loader that it would have had."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._on_loaded(module)


OnWindow = Callable[[int, "Window"], None]
"""Called with every window that has closed, and its number, from 1 on."""


class _Word(Enum):
    """What the thread is told beside the windows."""

    TURN = "turn"
    END = "end"


class Switched(Protocol):
    """What can be started and stopped."""

    on_closed: Callable[[Window], None] | None

    @property
    def is_at_work(self) -> bool:
        """Whether it is started."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Stop it."""


class SignalSwitch:
    """Starts a watch at one signal and stops it at the next; `on_window` is called in the switch's own thread."""

    def __init__(self, watch: Switched, number: int, on_window: OnWindow) -> None:
        self._watch = watch
        self._on_window = on_window
        self._pid = os.getpid()
        self._words: queue.SimpleQueue[_Word | Window] = queue.SimpleQueue()
        self._count = 0
        self._thread = threading.Thread(target=self._serve, name="pyxfer-watch-signals", daemon=True)
        _install(number, lambda *_: self._words.put(_Word.TURN))
        watch.on_closed = self._words.put
        self._thread.start()
        atexit.register(self._end)

    def _serve(self) -> None:
        while (word := self._words.get()) is not _Word.END:
            try:
                self._obey(word)
            except PyxferError as error:
                tell(str(error))

    def _obey(self, word: _Word | Window) -> None:
        if not isinstance(word, _Word):
            self._count += 1
            self._on_window(self._count, word)
        elif self._watch.is_at_work:
            self._watch.stop()
        else:
            self._watch.start()

    def _end(self) -> None:
        """The program ends: a window that is still open is closed and told of."""
        if os.getpid() == self._pid:
            self._watch.stop()
            self._words.put(_Word.END)
            self._thread.join(_END_PATIENCE_S)


def numbered(path: str, count: int) -> str:
    """`watch-2.json` for the second `watch.json`."""
    stem, extension = os.path.splitext(path)
    if extension == ".gz":
        stem, inner = os.path.splitext(stem)
        extension = inner + extension
    return f"{stem}-{count}{extension}"


def tell(text: str) -> None:
    """On stderr, if anybody listens there."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"pyxfer: {text}\n")
        sys.stderr.flush()


def _install(number: int, handler: Callable[..., None]) -> None:
    """Take a signal that nobody else has taken.

    Raises:
        UsageError: somebody has, or it cannot be taken at all.

    """
    if number not in set(signal.Signals):
        raise UsageError(f"{number!r} is no signal: name one such as signal.SIGUSR1.")
    if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN):
        name = signal.Signals(number).name
        raise UsageError(f"The program has a handler for {name} already: name another signal, such as SIGUSR2.")
    try:
        signal.signal(number, handler)
    except (ValueError, OSError) as error:  # not the main thread; SIGKILL
        raise UsageError(
            f"Signal {number} cannot be used here ({error}): call this in the main thread, with SIGUSR1 for one."
        ) from error


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

"""`pyxfer watch`: where the time of an unchanged script goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import options as opt
from pyxfer._cli.failures import say
from pyxfer._cli.output import STDOUT
from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:
    from pyxfer._document.runs import Run
    from pyxfer._document.watches import Watched
    from pyxfer._watch.launch import Launch
    from pyxfer._watch.options import Target
    from pyxfer._watch.window import Window


Write = Callable[[str, "Window", "Watched"], None]


class WatchExports:
    """With several windows each file has the number of its window in its name."""

    def __init__(self, *, trace: str | None, json: str | None, csv: str | None, md: str | None, several: bool) -> None:
        given: dict[str, tuple[str | None, Write]] = {
            "--trace": (trace, _trace),
            "--export-json": (json, lambda path, _, told: told.save(path)),
            "--export-csv": (csv, lambda path, _, told: _write(path, told.to_csv())),
            "--export-md": (md, lambda path, _, told: _write(path, told.to_markdown())),
        }
        self._several = several
        self._targets = [(option, path, write) for option, (path, write) in given.items() if path is not None]
        self._check()

    def spare(self, script: str) -> None:
        """What is to be watched is not to be written over.

        Raises:
            UsageError: a file that would be written is the script.

        """
        for option, path, _ in self._targets:
            target = self._path(path, 1)
            with suppress(OSError):  # a file that is not there yet is no script
                if os.path.samefile(target, script):
                    raise UsageError(f"{option}: {target!r} is the script itself; give another file name")

    def write(self, number: int, window: Window, told: Watched) -> None:
        """All of them, whatever becomes of one.

        Raises:
            UsageError: says which could not be written, and why.

        """
        failures = []
        for option, path, write in self._targets:
            try:
                write(self._path(path, number), window, told)
            except (PyxferError, OSError, MemoryError) as error:
                failures.append(f"{option}: {str(error) or 'host memory ran out'}")
        if failures:
            raise UsageError("; ".join(failures))

    def _path(self, path: str, number: int) -> str:
        from pyxfer._watch.launch import numbered

        return numbered(path, number) if self._several else path

    def _check(self) -> None:
        from pyxfer._document.files import check_writable

        places = [os.path.realpath(path) for _, path, _ in self._targets]
        for option, path, _ in self._targets:
            if path == STDOUT:
                raise UsageError(f"{option}: standard output is the script's own; give a file name")
            if places.count(os.path.realpath(path)) > 1:
                raise UsageError(f"two options name the file {path!r}; give each its own")
            check_writable(self._path(path, 1))


def _trace(path: str, window: Window, _: Watched) -> None:
    from pyxfer._watch.chrome import write_chrome_trace

    write_chrome_trace(window, path)


def _write(path: str, text: str) -> None:
    from pyxfer._document.files import write_whole

    write_whole(path, text.encode())


# pyxfer is imported with the path of this process. So it is found, and does not import a json.py beside the script.
_BOOT = (
    "import sys; path = sys.path[:]; sys.path[:] = sys.argv[1].split('\\n'); from pyxfer._watch.launch import main; "
    "sys.path[:] = path; main(sys.argv[2], sys.argv[3:])"
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


Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="A script; with -m, the name of a module.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Its own arguments.")]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as for python -m.")]
Skip = Annotated[
    str, typer.Option("--skip", metavar="N|TIME", help="Skip this many steps first, or a time such as 2s.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="Watch for this long, such as 5s.")]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="Watch this many optimizer steps (PyTorch).")]
Trace = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="Write all records for Perfetto; compressed if FILE ends in .gz."),
]
BySignal = Annotated[bool, typer.Option("--signal", help="SIGUSR1 starts a window, and the next SIGUSR1 ends it.")]
CeilingsFrom = Annotated[
    str, typer.Option("--ceilings", metavar="RUN.json|none", help="Compare copies with those of a saved run, or none.")
]
Capacity = Annotated[str, typer.Option("--capacity", metavar="SIZE", help="Memory limit for the records.")]

ExportJson = Annotated[
    str | None,
    typer.Option("--export-json", metavar="FILE", help="Write the whole document; compressed if FILE ends in .gz."),
]
ExportCsv = Annotated[
    str | None, typer.Option("--export-csv", metavar="FILE", help="Write one row per step with all figures.")
]
ExportMd = Annotated[str | None, typer.Option("--export-md", metavar="FILE", help="Write Markdown tables.")]

_MEASURED, _NONE = "measured", "none"


def watch(
    script: Script,
    arguments: Arguments = None,
    *,
    is_module: IsModule = False,
    skip: Skip = "0",
    duration: For = None,
    steps: Steps = None,
    by_signal: BySignal = False,
    trace: Trace = None,
    ceilings: CeilingsFrom = _MEASURED,
    capacity: Capacity = "256MiB",
    device: opt.Device = "0",
    export_json: ExportJson = None,
    export_csv: ExportCsv = None,
    export_md: ExportMd = None,
) -> None:
    """Show where the time of a script goes.

    The script is not changed.

    Runs the script in a process of its own, and prints the report on stderr when it has ended. Without limits the watch
    lasts from the first use of CUDA to the end of the script. Exits with the script's exit code, or with 128 plus the
    number of the signal that ended it.
    """
    from pyxfer._watch.launch import Launch
    from pyxfer._watch.options import checked_ceilings, find_target, make_options

    exports = WatchExports(trace=trace, json=export_json, csv=export_csv, md=export_md, several=by_signal)
    if not is_module:
        exports.spare(script)
    skipped, skip_s = _skip(skip)
    if by_signal and skip_s:
        raise UsageError("--signal: the first signal says when to start, so no time can be skipped; leave --skip out")
    options = make_options(skipped, steps, _seconds(duration), device, True, capacity)
    compared = checked_ceilings(None if ceilings == _NONE else ceilings)
    target = find_target(device)
    with tempfile.TemporaryDirectory(prefix="pyxfer-watch-") as folder:
        driver = target.choice.engine.driver_version() if target.choice.runtime == "cuda" else 0
        launch = Launch(options, folder, is_module, skip_s, by_signal, driver)
        code = _run(launch, [script, *(arguments or ())], _Told(Path(folder), target, compared, exports, by_signal))
    raise SystemExit(code)


def _run(launch: Launch, program: list[str], told: _Told) -> int:
    """The script from its start to its end, and what there is to tell of it."""
    from dataclasses import replace

    with BlockedSignals() as before:
        process = WatchedProcess(replace(launch, blocked=before).pack(), program)
        if launch.by_signal:
            say(f"send SIGUSR1 to process {process.pid} to start watching, and again to stop")
        code = process.wait(told.look if launch.by_signal else _nothing)
    told.finish(code)
    return code


class _Told:
    """Tells of every window that the script's process has written."""

    def __init__(
        self, folder: Path, target: Target, ceilings: Run | str | None, exports: WatchExports, several: bool
    ) -> None:
        self._folder = folder
        self._target = target
        self._ceilings = ceilings
        self._exports = exports
        self._several = several
        self._count = 0

    def look(self) -> None:
        """Tell of new ones while the script runs; raw copies would be in its way, so none are made."""
        self._tell_new(None if self._ceilings == _MEASURED else self._ceilings)

    def finish(self, code: int) -> None:
        """The script has ended.

        Raises:
            UsageError: it could not be run at all.

        """
        refusal = self._words("refusal")
        if refusal:
            raise UsageError(refusal)
        self._tell_new(self._ceilings)
        if not self._count:
            if self._target.choice.reason:
                say(self._target.choice.reason)
            say(f"nothing was watched: {self._words('note') or _why_nothing(code)}")

    def _tell_new(self, ceilings: Run | str | None) -> None:
        from pyxfer._watch.launch import window_path

        while (path := window_path(str(self._folder), self._count + 1)).exists():
            self._count += 1
            try:
                self._tell(path, ceilings)
            except PyxferError as error:  # the script's exit code is worth more
                say(str(error))
            path.unlink()

    def _tell(self, path: Path, ceilings: Run | str | None) -> None:
        from pyxfer._watch.watch import make_document
        from pyxfer._watch.window import load_window, within_capacity

        window = load_window(path)
        watched = make_document(window, self._target, ceilings, unchanged=True)
        try:
            self._exports.write(self._count, within_capacity(window), watched)
        finally:
            self._show(watched)

    def _show(self, watched: Watched) -> None:
        """The page, on a stderr that the script may have filled, closed or lost."""
        from pyxfer._report.layout import Page
        from pyxfer._report.watch import print_watch

        if self._several:
            say(f"watch {self._count}")
        print_watch(watched, Page(sys.stderr))
        sys.stderr.flush()

    def _words(self, name: str) -> str:
        path = self._folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _skip(text: str) -> tuple[int, float]:
    """Steps, or seconds."""
    from pyxfer.units import parse_duration

    if text.isascii() and text.isdigit():
        return int(text), 0.0
    try:
        return 0, parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--skip: {error}; or a number of steps such as 10") from error


def _seconds(text: str | None) -> float | None:
    from pyxfer.units import parse_duration

    return None if text is None else parse_duration(text)


def _why_nothing(code: int) -> str:

    if code > SIGNALLED:
        return f"the script was ended by signal {code - SIGNALLED} before its window had closed"
    return "the script ended at once (os._exit, or by becoming another program) before its window had closed"


def _nothing() -> None:
    """Nothing to look at while the script runs."""

"""`pyxfer watch`: where the time of an unchanged script goes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import options as opt
from pyxfer._cli.failures import NOT_VALID, say
from pyxfer._cli.output import check_report, check_targets
from pyxfer._document.files import is_stdout, write_whole
from pyxfer.errors import PyxferError, UsageError
from pyxfer.units import MAX_DURATION_S, seconds_of, whole_of

if TYPE_CHECKING:
    from pyxfer._document.runs import Run
    from pyxfer._document.watches import Watched
    from pyxfer._watch.launch import Launch
    from pyxfer._watch.options import Target
    from pyxfer._watch.window import Window


Write = Callable[[str, "Window", "Watched"], None]


class WatchExports:
    """The files that a watch writes; with several windows their names contain the number of the window."""

    def __init__(self, given: dict[str, str | None], *, several: bool) -> None:
        self._several = several
        self._targets = [(option, path, WRITERS[option]) for option, path in given.items() if path is not None]
        for option, path, _ in self._targets:
            if is_stdout(path):
                raise UsageError(f"{option} cannot be stdout, which belongs to the script: give a file name.")
        check_targets([self._path(path, 1) for _, path, _ in self._targets])

    def refuse_to_overwrite(self, script: str) -> None:
        for option, path, _ in self._targets:
            target = self._path(path, 1)
            with suppress(OSError):  # the target does not exist yet
                if os.path.samefile(target, script):
                    raise UsageError(f"{option} {target!r} is the script: give another file name.")

    def write(self, number: int, window: Window, watched: Watched) -> None:
        """Write all files, also if one of them fails."""
        failures = []
        for option, path, write in self._targets:
            try:
                write(self._path(path, number), window, watched)
            except (PyxferError, OSError, MemoryError) as error:
                failures.append(f"{option}: {str(error) or 'out of host memory.'}")
        if failures:
            raise UsageError(" ".join(failures))

    def _path(self, path: str, number: int) -> str:
        from pyxfer._watch.launch import numbered

        return numbered(path, number) if self._several else path


def _trace(path: str, window: Window, _: Watched) -> None:
    from pyxfer._watch.chrome import write_chrome_trace

    write_chrome_trace(window, path)


WRITERS: dict[str, Write] = {
    "--trace": _trace,
    "--export-json": lambda path, _, watched: watched.save(path),
    "--export-csv": lambda path, _, watched: write_whole(path, watched.to_csv().encode()),
    "--export-md": lambda path, _, watched: write_whole(path, watched.to_markdown().encode()),
    "--report": lambda path, _, watched: watched.write_report(path),
}


# pyxfer is imported with its own sys.path, so that a json.py beside the script cannot shadow the standard library.
_BOOT = (
    "import sys; path = sys.path[:]; sys.path[:] = sys.argv[1].split('\\n'); from pyxfer._watch.launch import main; "
    "sys.path[:] = path; main(sys.argv[2], sys.argv[3:])"
)
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_WAITED_FOR = {*_FORWARDED, signal.SIGCHLD}
# si_code of a terminal's signals, which the kernel sends to the whole process group; they need no forwarding.
_SENT_BY_THE_KERNEL = 0x80
_LOOK_EVERY_S = 0.5
SIGNALLED = 128


class BlockedSignals:
    """Blocks signals from before the start of the process until its end; `WatchedProcess.wait` handles them."""

    def __enter__(self) -> tuple[int, ...]:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        return tuple(int(number) for number in self._before)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class WatchedProcess:
    def __init__(self, launch: str, program: Sequence[str]) -> None:
        # The interpreter flags of this Python, such as -O, for the script.
        flags: list[str] = vars(subprocess)["_args_from_interpreter_flags"]()
        command = [sys.executable, *flags, "-c", _BOOT, "\n".join(sys.path), launch, *program]
        self._process = subprocess.Popen(command, close_fds=False)  # noqa: S603 - this Python; the script inherits all descriptors
        self.pid = self._process.pid

    def wait(self, look: Callable[[], None]) -> int:
        """Wait for the end and return the exit code as a shell gives it. Calls `look` at least every 0.5 s."""
        while self._process.poll() is None:
            came = signal.sigtimedwait(_WAITED_FOR, _LOOK_EVERY_S)
            if came is not None and came.si_signo in _FORWARDED and came.si_code != _SENT_BY_THE_KERNEL:
                self._process.send_signal(came.si_signo)
            look()
        return exit_code(self._process.returncode)


def exit_code(returned: int) -> int:
    return returned if returned >= 0 else SIGNALLED - returned


Script = Annotated[str, opt.argument("SCRIPT", "A script; with -m, the name of a module.")]
Arguments = Annotated[list[str] | None, opt.argument("ARGS...", "Arguments of the script.")]
IsModule = Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as for python -m.")]
Skip = Annotated[str, opt.option("--skip", "N|TIME", "Skip this many steps first, or a time such as 2s.")]
For = Annotated[str | None, opt.option("--duration", "TIME", "Watch for this long, such as 5s.")]
Steps = Annotated[int | None, opt.option("--steps", "N", "Watch this many steps.")]
Step = Annotated[str | None, opt.option("--step", "MODULE:FUNCTION", "A step is a call of this function.")]
Trace = Annotated[
    str | None, opt.option("--trace", "FILE", "Write all records for Perfetto; compressed if FILE ends in .gz.")
]
BySignal = Annotated[bool, typer.Option("--signal", help="SIGUSR1 starts a window, and the next SIGUSR1 ends it.")]
CeilingsFrom = Annotated[
    str, opt.option("--ceilings", "RUN.json|none", "Compare copies with a saved run, or with none.")
]
Capacity = Annotated[str, opt.option("--capacity", "SIZE", "Memory limit for the records.")]

ExportJson = Annotated[
    str | None, opt.option("--export-json", "FILE", "Write the whole document; compressed if FILE ends in .gz.")
]
ExportCsv = Annotated[str | None, opt.option("--export-csv", "FILE", "Write one row per step with all figures.")]
ExportMd = Annotated[str | None, opt.option("--export-md", "FILE", "Write Markdown tables.")]

_MEASURED, _NONE = "measured", "none"


def watch(
    script: Script,
    arguments: Arguments = None,
    *,
    is_module: IsModule = False,
    skip: Skip = "0",
    duration: For = None,
    steps: Steps = None,
    step: Step = None,
    by_signal: BySignal = False,
    trace: Trace = None,
    ceilings: CeilingsFrom = _MEASURED,
    capacity: Capacity = "256MiB",
    device: opt.Device = "0",
    details: opt.Details = False,
    quiet: opt.Quiet = False,
    export_json: ExportJson = None,
    export_csv: ExportCsv = None,
    export_md: ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Show where the time of a script goes.

    The script needs no changes.

    Runs the script in a separate process, and prints the report on stderr at its end. Without limits the watch lasts
    from the first use of CUDA to the end of the script. Exits with the script's exit code, or with 128 plus the number
    of the signal that ended it; with 4 if the script succeeded and a file could not be written.
    """
    from pyxfer._watch.launch import Launch
    from pyxfer._watch.options import MAX_STEPS, checked_ceilings, find_target, make_options
    from pyxfer._watch.step_finding import NamedFunction

    if re.fullmatch(r"python[0-9.]*", os.path.basename(script)):
        raise UsageError(f"pyxfer starts Python itself: leave {script!r} out, as in pyxfer watch train.py.")
    check_report(report)
    paths = (trace, export_json, export_csv, export_md, report)
    exports = WatchExports(dict(zip(WRITERS, paths, strict=True)), several=by_signal)
    if not is_module:
        exports.refuse_to_overwrite(script)
    os.getcwd()  # raises here and not in the script's process if the folder has been deleted
    skipped, skip_s = _skip(skip)
    if by_signal and skip_s:
        raise UsageError("--signal starts the window, so no time can be skipped: leave --skip out.")
    if step is not None:
        NamedFunction(step)
    watched = None if steps is None else whole_of(steps, "--steps", 1, MAX_STEPS, "the steps to watch, such as 20")
    seconds = None if duration is None else seconds_of(duration, "--duration", MAX_DURATION_S)
    options = make_options(skipped, watched, seconds, device, True, capacity, "--capacity")
    compared = checked_ceilings(None if ceilings == _NONE else ceilings)
    target = find_target(device)
    with tempfile.TemporaryDirectory(prefix="pyxfer-watch-") as folder:
        driver = target.choice.engine.driver_version() if target.choice.runtime == "cuda" else 0
        launch = Launch(options, folder, is_module, skip_s, step or "", by_signal, driver)
        reporter = _Reporter(
            Path(folder), target, compared, exports, several=by_signal, details=details, is_quiet=quiet
        )
        code = _run(launch, [script, *(arguments or ())], reporter)
    raise SystemExit(code)


def _run(launch: Launch, program: list[str], reporter: _Reporter) -> int:
    with BlockedSignals() as before:
        process = WatchedProcess(replace(launch, blocked=before).pack(), program)
        if launch.by_signal and not reporter.is_quiet:
            say(f"send SIGUSR1 to process {process.pid} to start watching, and again to stop")
        code = process.wait(reporter.look if launch.by_signal else lambda: None)
    reporter.finish(code)
    return code or (NOT_VALID if reporter.has_lost_a_report else 0)


@dataclass
class _Reporter:
    """Reports on every window that the script's process has written."""

    folder: Path
    target: Target
    ceilings: Run | str | None
    exports: WatchExports
    several: bool
    details: bool
    is_quiet: bool
    has_lost_a_report: bool = False
    count: int = 0

    def look(self) -> None:
        """Report new windows while the script runs. No ceiling is measured, because it would disturb the script."""
        self._report_new(None if self.ceilings == _MEASURED else self.ceilings)

    def finish(self, code: int) -> None:
        """Report the remaining windows after the script has ended."""
        refusal = self._words("refusal")
        if refusal:
            raise UsageError(refusal)
        self._report_new(self.ceilings)
        if not self.count:
            if self.target.choice.reason:
                say(self.target.choice.reason)
            say(f"nothing was watched: {self._words('note') or _why_nothing(code)}")

    def _report_new(self, ceilings: Run | str | None) -> None:
        from pyxfer._watch.launch import window_path

        while (path := window_path(str(self.folder), self.count + 1)).exists():
            self.count += 1
            try:
                self._report(path, ceilings)
            except PyxferError as error:  # the script's exit code must be kept
                self.has_lost_a_report = True
                say(str(error))
            path.unlink()

    def _report(self, path: Path, ceilings: Run | str | None) -> None:
        from pyxfer._watch.watch import make_document
        from pyxfer._watch.window import load_window, within_capacity

        window = load_window(path)
        watched = make_document(window, self.target, ceilings, unchanged=True)
        try:
            self.exports.write(self.count, within_capacity(window), watched)
        finally:
            self._show(watched)

    def _show(self, watched: Watched) -> None:
        """Print the page on stderr, which the script may have closed."""
        if self.is_quiet:
            return
        from pyxfer._report.layout import Page
        from pyxfer._report.watch import print_watch

        if self.several:
            say(f"watch {self.count}")
        print_watch(watched, Page(sys.stderr, details=self.details))
        sys.stderr.flush()

    def _words(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


def _skip(text: str) -> tuple[int, float]:
    """The steps and the seconds to skip, one of which is 0."""
    if text.isascii() and text.isdigit():
        return int(text), 0.0
    try:
        return 0, seconds_of(text, "--skip", MAX_DURATION_S)
    except UsageError as error:
        raise UsageError(f"{error} Or give a number of steps such as 10.") from error


def _why_nothing(code: int) -> str:
    if code > SIGNALLED:
        return f"signal {code - SIGNALLED} ended the script before its window closed"
    return "the script called os._exit or exec before its window closed"

"""Measuring in a new process: a baseline needs the differences between processes, so each run has its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from pyxfer._baseline.cells import cell_of, is_automatic
from pyxfer._document.runs import Run
from pyxfer.errors import DocumentError, MeasurementError, UsageError
from pyxfer.units import format_seconds

DEFAULT_DIRECTIONS = ("h2d", "d2h")
# Pageable copies also depend on the host's memory, whose speed drifts: on a shared host by more than a useful
# tolerance within minutes (bench/results/compare_one_three.json.gz).
DEFAULT_MEMORIES = ("pinned",)
DEFAULT_MODES = ("auto",)
DEFAULT_SIZES = "1MiB,16MiB,256MiB"
DEFAULT_BUDGET_S = 5.0
DEFAULT_PRECISION = 0.005

STARTING_S = 60.0
"""Time for a process beyond three times its budget: to load, to make a context, to page-lock, to end."""
STOPPING_S = 0.8
"""Time for an interrupted process to save its run."""
_SLICE_S = 0.05
_LOG_BYTES = 64 * 1024
_OUR_PREFIX = "pyxfer: "
_USAGE = 2
_EXIT_CODES = (0, 4, 130)
# Sets sys.path first, so that a json.py in the current directory cannot shadow the standard library.
_BOOT = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from pyxfer.__main__ import main; main()"

OnWait = Callable[[float], None]


@dataclass(frozen=True)
class Order:
    """What each process measures; `device` is an index, a UUID, a PCI address or host."""

    device: str
    directions: tuple[str, ...] = DEFAULT_DIRECTIONS
    memories: tuple[str, ...] = DEFAULT_MEMORIES
    modes: tuple[str, ...] = DEFAULT_MODES
    sizes: str = DEFAULT_SIZES
    budget_s: float = DEFAULT_BUDGET_S
    precision: float = DEFAULT_PRECISION
    fresh: bool = False

    @classmethod
    def again(cls, device: str, earlier: Run) -> Order:
        """The order of an earlier run; `device` is given because its index may have changed."""
        parameters = earlier.parameters
        # A run lists the modes that `auto` selected. Given by name, each of them would be measured for every memory.
        automatic = all(is_automatic(cell_of(measurement)) for measurement in earlier.measurements)
        return cls(
            device=device,
            directions=tuple(parameters.directions),
            memories=tuple(parameters.memories),
            modes=DEFAULT_MODES if automatic else tuple(parameters.modes),
            sizes=",".join(map(str, parameters.sizes_bytes)),
            budget_s=parameters.budget_s,
            precision=parameters.precision,
            fresh=parameters.fresh,
        )

    @property
    def limit_s(self) -> float:
        """The time after which a process counts as hung."""
        return 3 * self.budget_s + STARTING_S

    def arguments(self, path: str) -> list[str]:
        """The arguments of a pyxfer command that measures and writes its run to `path`."""
        values = {
            "--device": self.device,
            "--direction": ",".join(self.directions),
            "--memory": ",".join(self.memories),
            "--mode": ",".join(self.modes),
            "--sizes": self.sizes,
            "--budget": f"{_plain(self.budget_s)}s",
            "--precision": _plain(self.precision),
            "--export-json": path,
        }
        # With =, so that a value may begin with a dash.
        options = [f"{name}={value}" for name, value in values.items()]
        required = ["--require-gpu"] if self.device != "host" else []
        return ["ceiling", *options, "--no-trace", *required, *(["--fresh"] if self.fresh else [])]


def measure_process(order: Order, on_wait: OnWait = lambda waited_s: None) -> Run:
    """The run of one new process. After Ctrl-C it is the part that was measured, and `ended` is "interrupted".

    Raises:
        UsageError: the process refused the order.
        MeasurementError: the process crashed, hung or failed; the text has its last line of output.
        KeyboardInterrupt: Ctrl-C came before anything was measured.

    """
    with tempfile.TemporaryDirectory(prefix="pyxfer-") as folder, tempfile.TemporaryFile() as log:
        path = Path(folder) / "run.json"
        process = _start(order.arguments(str(path)), log)
        try:
            _wait(process, order.limit_s, on_wait)
        except KeyboardInterrupt:
            return _interrupted(process, path)
        finally:
            _end(process)
        return _result(process.returncode, path, _last_line(log))


def _start(arguments: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    flags = ["-I"] if sys.flags.isolated else []
    return subprocess.Popen(  # noqa: S603 - this Python, and arguments of our own
        [sys.executable, *flags, "-c", _BOOT, "\n".join(sys.path), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,  # Ctrl-C on a terminal reaches only this process; the group can be killed as a whole
    )


def _wait(process: subprocess.Popen[bytes], limit_s: float, on_wait: OnWait) -> None:
    begun = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SLICE_S)
            return
        waited_s = time.monotonic() - begun
        if waited_s > limit_s:
            raise MeasurementError(
                f"a measuring process had not ended after {format_seconds(waited_s)} and was killed; if the GPU does "
                "not answer, check nvidia-smi, and dmesg for Xid"
            )
        on_wait(waited_s)


def _interrupted(process: subprocess.Popen[bytes], path: Path) -> Run:
    """Pass the interrupt on, and read the part that was measured."""
    with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait(STOPPING_S)
    _end(process)
    try:
        run = Run.load(path)
    except DocumentError:
        raise KeyboardInterrupt from None
    # The process may have completed at that moment, but Ctrl-C also means that no other process is to follow.
    return msgspec.structs.replace(run, ended="interrupted")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with everything that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(code: int, path: Path, last_line: str) -> Run:
    if code == _USAGE:
        raise UsageError(last_line or "the measuring process refused its options without a message")
    if code not in _EXIT_CODES:
        said = f"; its last line is: {last_line}" if last_line else ""
        raise MeasurementError(f"a measuring process {_ending(code)}{said}")
    try:
        run = Run.load(path)
    except DocumentError as error:
        raise MeasurementError(f"a measuring process measured nothing: {last_line or error}") from error
    if run.ended == "failed":
        raise MeasurementError(f"a measuring process failed: {run.failure or last_line or 'no reason given'}")
    if all(measurement.rate.value is None for measurement in run.measurements):
        reasons = (measurement.rate.reason for measurement in run.measurements if measurement.rate.reason)
        why = next(reasons, last_line or "no reason given")
        raise MeasurementError(
            f"a measuring process measured nothing: {why}; a longer --budget or fewer --sizes may help"
        )
    return run


def _plain(number: float) -> str:
    """The number without an exponent, which no option accepts."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code == signal.SIGKILL:
        return "was killed (SIGKILL; possibly out of memory)"
    return f"crashed ({name})"


def _last_line(log: BinaryIO) -> str:
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix(_OUR_PREFIX) if lines else ""

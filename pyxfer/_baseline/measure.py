"""One process that measures: started, waited for, ended where it hangs, and its run read.

What lies between processes is what a baseline is there to know, so none of them measures in this one.
"""

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
# Pageable copies are the host's memory's as well, whose speed drifts: on a shared host by more than any useful
# tolerance within minutes (bench/results/compare_one_three.json.gz).
DEFAULT_MEMORIES = ("pinned",)
DEFAULT_MODES = ("auto",)
DEFAULT_SIZES = "1MiB,16MiB,256MiB"
DEFAULT_BUDGET_S = 5.0
DEFAULT_PRECISION = 0.005

STARTING_S = 60.0
"""What a process may take beyond thrice its budget: to load, to make a context, to page-lock, to end."""
STOPPING_S = 0.8
"""A run that is interrupted saves what it has within this time."""
_SLICE_S = 0.05
_LOG_BYTES = 64 * 1024
_OUR_PREFIX = "pyxfer: "
_USAGE = 2
_EXIT_CODES = (0, 4, 130)
# Nothing is imported before the path is ours: a json.py in the current directory is nobody's json.
_BOOT = "import sys; sys.path[:] = sys.argv.pop(1).split('\\n'); from pyxfer.__main__ import main; main()"

OnWait = Callable[[float], None]


@dataclass(frozen=True)
class Order:
    """What each process is asked for; `device` is an index, a UUID, a PCI address or host."""

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
        """What an earlier run was asked for, of a device that may have another number today."""
        asked = earlier.parameters
        # A run has the modes that `auto` has become, and asked for by name each memory would have all of them.
        automatic = all(is_automatic(cell_of(measurement)) for measurement in earlier.measurements)
        return cls(
            device=device,
            directions=tuple(asked.directions),
            memories=tuple(asked.memories),
            modes=DEFAULT_MODES if automatic else tuple(asked.modes),
            sizes=",".join(map(str, asked.sizes_bytes)),
            budget_s=asked.budget_s,
            precision=asked.precision,
            fresh=asked.fresh,
        )

    @property
    def limit_s(self) -> float:
        """When a process counts as hung."""
        return 3 * self.budget_s + STARTING_S

    def arguments(self, path: str) -> list[str]:
        """The command that does it."""
        given = {
            "--device": self.device,
            "--direction": ",".join(self.directions),
            "--memory": ",".join(self.memories),
            "--mode": ",".join(self.modes),
            "--sizes": self.sizes,
            "--budget": f"{_plain(self.budget_s)}s",
            "--precision": _plain(self.precision),
            "--export-json": path,
        }
        # A value that begins with a dash is a value all the same.
        options = [f"{name}={value}" for name, value in given.items()]
        required = ["--require-gpu"] if self.device != "host" else []
        return ["ceiling", *options, "--no-trace", *required, *(["--fresh"] if self.fresh else [])]


def measure_process(order: Order, on_wait: OnWait = lambda waited_s: None) -> Run:
    """The run of one process. On Ctrl-C, what it had measured by then; its `ended` is then "interrupted".

    Raises:
        UsageError: what was asked for cannot be.
        MeasurementError: the process crashed, hung or failed; the text says which, and what it said last.
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
        start_new_session=True,  # Ctrl-C on a terminal reaches us alone, and what it starts can be ended with it
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
                f"a measuring process had not ended after {format_seconds(waited_s)} and was ended; if the GPU does "
                "not answer, look at nvidia-smi and for Xid in dmesg"
            )
        on_wait(waited_s)


def _interrupted(process: subprocess.Popen[bytes], path: Path) -> Run:
    """Pass it on, and take what there is."""
    with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait(STOPPING_S)
    _end(process)
    try:
        run = Run.load(path)
    except DocumentError:
        raise KeyboardInterrupt from None
    # It may have come to its end in that moment; whoever pressed Ctrl-C wants no other after it.
    return msgspec.structs.replace(run, ended="interrupted")


def _end(process: subprocess.Popen[bytes]) -> None:
    """And everything that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(code: int, path: Path, said: str) -> Run:
    if code == _USAGE:
        raise UsageError(said or "the measuring process refused what was asked for, and said nothing")
    if code not in _EXIT_CODES:
        raise MeasurementError(f"a measuring process {_how(code)}{f'; it said last: {said}' if said else ''}")
    try:
        run = Run.load(path)
    except DocumentError as error:
        raise MeasurementError(f"a measuring process measured nothing: {said or error}") from error
    if run.ended == "failed":
        raise MeasurementError(f"a measuring process failed: {run.failure or said or 'no reason given'}")
    if all(measurement.rate.value is None for measurement in run.measurements):
        why = next((each.rate.reason for each in run.measurements if each.rate.reason), said or "no reason given")
        raise MeasurementError(
            f"a measuring process measured nothing: {why}; a longer --budget or fewer --sizes may help"
        )
    return run


def _plain(number: float) -> str:
    """Without an exponent, which no option takes."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code == signal.SIGKILL:
        return "was killed (SIGKILL), by somebody or for want of memory"
    return f"crashed ({name})"


def _last_line(log: BinaryIO) -> str:
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix(_OUR_PREFIX) if lines else ""

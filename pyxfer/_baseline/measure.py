"""Measuring in a new process: a baseline needs the differences between processes, so each run has its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast

import msgspec

from pyxfer._baseline.figures import figures_of
from pyxfer._document.baselines import AnyRun
from pyxfer._document.cells import cell_of
from pyxfer._document.links import CopyEngine, LinkGroup, Links
from pyxfer._document.runs import Run
from pyxfer._python import python_command
from pyxfer.errors import DocumentError, MeasurementError, UsageError
from pyxfer.native import HOST
from pyxfer.units import format_seconds

DEFAULT_DIRECTIONS = ("h2d", "d2h")
# Pageable copies also depend on the host's memory, whose speed drifts: on a shared host by more than a useful
# tolerance within minutes (bench/results/compare_one_three.json.gz).
DEFAULT_MEMORIES = ("pinned",)
DEFAULT_MODES = ("auto",)
DEFAULT_SIZES = "1MiB,16MiB,64MiB"
# A verdict depends on how much processes differ, which more trials do not show. The first six trials of page-locked
# memory lie within 0.1 % of the median of hundreds from 16 MiB on, and within 1.4 % at 1 MiB.
DEFAULT_BUDGET_S = 0.6
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
# Loads what it needs, and waits for its arguments; without them its parent has ended or does not need it. The defaults
# that a user keeps in files do not count, because the parent has said what to measure.
_BOOT = """
import json
import pyxfer._ceiling.session
import pyxfer._cli.measure
from pyxfer.__main__ import main
given = sys.stdin.readline()
if given:
    sys.argv[1:] = json.loads(given)
    main(default_map={})
"""

OnWait = Callable[[float], None]


@dataclass(frozen=True)
class RunRequest:
    """What each process measures; `device` is an index, a UUID, a PCI address or host."""

    device: str
    directions: tuple[str, ...] = DEFAULT_DIRECTIONS
    memories: tuple[str, ...] = DEFAULT_MEMORIES
    modes: tuple[str, ...] = DEFAULT_MODES
    sizes: str = DEFAULT_SIZES
    budget_s: float = DEFAULT_BUDGET_S
    precision: float = DEFAULT_PRECISION
    fresh: bool = False

    @staticmethod
    def load(path: Path) -> Run:
        return Run.load(path)

    @classmethod
    def again(cls, device: str, earlier: Run) -> RunRequest:
        parameters = earlier.parameters
        # A run lists the modes that `auto` selected. Given by name, each of them would be measured for every memory.
        automatic = all(cell_of(measurement).is_automatic for measurement in earlier.measurements)
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
        return 3 * self.budget_s + STARTING_S

    def arguments(self, path: str) -> list[str]:
        values = {
            "--device": self.device,
            "--direction": ",".join(self.directions),
            "--memory": ",".join(self.memories),
            "--mode": ",".join(self.modes),
            "--size": self.sizes,
            "--budget": f"{_plain(self.budget_s)}s",
            "--precision": _plain(self.precision),
            "--export-json": path,
        }
        # With =, so that a value may begin with a dash.
        options = [f"{name}={value}" for name, value in values.items()]
        required = ["--require-gpu"] if self.device != HOST else []
        return ["ceiling", *options, "--no-trace", "--complete", *required, *(["--fresh"] if self.fresh else [])]


# Small copies and kernels are left out: they take most of the time, and tell little of a link that the others do not.
DEFAULT_GROUPS: tuple[LinkGroup, ...] = ("host", "together", "pairs", "local", "latency", "numa")
BUDGET_OF_A_DEVICE_S = 15.0
DEFAULT_ENGINES: tuple[CopyEngine, ...] = ("ce",)


@dataclass(frozen=True)
class LinksRequest:
    """Which links each process measures; `devices` are UUIDs or indices, or host. `nbytes`: one size for all copies.

    Without a given budget it is 15 s for each device, as that of pyxfer links.

    All processes have one seed, because above sixteen GPUs it also chooses the pairs.
    """

    devices: tuple[str, ...]
    given_budget_s: float | None = None
    groups: tuple[LinkGroup, ...] = DEFAULT_GROUPS
    engines: tuple[CopyEngine, ...] = DEFAULT_ENGINES
    nbytes: int | None = None
    precision: float = DEFAULT_PRECISION
    seed: int = 1

    @staticmethod
    def load(path: Path) -> Links:
        return Links.load(path)

    @classmethod
    def again(cls, devices: tuple[str, ...], earlier: Links) -> LinksRequest:
        given = earlier.parameters
        return cls(
            devices=devices,
            given_budget_s=given.budget_s,
            groups=given.groups,
            engines=given.engines,
            nbytes=given.host_bytes if given.host_bytes == given.peer_bytes == given.local_bytes else None,
            precision=given.precision,
            seed=given.seed,
        )

    @property
    def budget_s(self) -> float:
        return self.given_budget_s or BUDGET_OF_A_DEVICE_S * len(self.devices)

    @property
    def limit_s(self) -> float:
        return 3 * self.budget_s + STARTING_S

    def arguments(self, path: str) -> list[str]:
        values = {
            "--device": ",".join(self.devices),
            "--group": ",".join(self.groups),
            "--engine": ",".join(self.engines),
            "--budget": f"{_plain(self.budget_s)}s",
            "--precision": _plain(self.precision),
            "--seed": str(self.seed),
            "--export-json": path,
        }
        options = [f"{name}={value}" for name, value in values.items()]
        size = [] if self.nbytes is None else [f"--size={self.nbytes}"]
        return ["links", *options, "--complete", *size, *([] if HOST in self.devices else ["--require-gpu"])]


AnyRequest = RunRequest | LinksRequest
T = TypeVar("T", bound=AnyRun)
T_co = TypeVar("T_co", bound=AnyRun, covariant=True)


class Request(Protocol[T_co]):
    @property
    def limit_s(self) -> float: ...

    def arguments(self, path: str) -> list[str]: ...

    def load(self, path: Path) -> T_co: ...


class Ready:
    """A process that loads its modules and waits for its request, for example while the one before measures.

    Loading takes half a second of processor time and does not touch the GPU.
    """

    def __init__(self) -> None:
        self.log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(  # noqa: S603 - this Python, and code of our own
            python_command(_BOOT),
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            start_new_session=True,  # Ctrl-C on a terminal reaches only this process; the group can be killed whole
        )

    def begin(self, arguments: Sequence[str]) -> None:
        pipe = cast("BinaryIO", self.process.stdin)
        with pipe, suppress(BrokenPipeError):  # if it has ended, its exit code and its last line say why
            pipe.write(json.dumps(arguments).encode() + b"\n")

    def close(self) -> None:
        _end(self.process)
        cast("BinaryIO", self.process.stdin).close()
        self.log.close()


class Processes:
    """Measuring processes, one after the other; the next one loads its modules meanwhile."""

    def __init__(self) -> None:
        self._ready: Ready | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ready is not None:
            self._ready.close()

    def prepare(self) -> None:
        self._ready = self._ready or Ready()

    def take(self, *, more: bool) -> Ready:
        self.prepare()
        taken, self._ready = self._ready, None
        if more:
            self.prepare()
        return cast("Ready", taken)


def measure_process(request: Request[T], on_wait: OnWait = lambda waited_s: None, ready: Ready | None = None) -> T:
    with tempfile.TemporaryDirectory(prefix="pyxfer-") as folder, closing(ready or Ready()) as chosen:
        path = Path(folder) / "run.json"
        try:
            chosen.begin(request.arguments(str(path)))
            _wait(chosen.process, request.limit_s, on_wait)
        except KeyboardInterrupt:
            return _interrupted(chosen.process, request, path)
        finally:
            _end(chosen.process)
        return _result(chosen.process.returncode, request, path, _last_line(chosen.log))


def _wait(process: subprocess.Popen[bytes], limit_s: float, on_wait: OnWait) -> None:
    begun = time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SLICE_S)
            return
        waited_s = time.monotonic() - begun
        if waited_s > limit_s:
            raise MeasurementError(
                f"A measuring process had not ended after {format_seconds(waited_s)} and was killed: give it a longer "
                "--budget, or if the GPU does not answer, check nvidia-smi, and dmesg for Xid."
            )
        on_wait(waited_s)


def _interrupted(process: subprocess.Popen[bytes], request: Request[T], path: Path) -> T:
    """Pass the interrupt on, and read the part that was measured."""
    with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait(STOPPING_S)
    _end(process)
    try:
        run = request.load(path)
    except DocumentError:
        raise KeyboardInterrupt from None
    # The process may have completed at that moment, but Ctrl-C also means that no other process is to follow.
    return msgspec.structs.replace(run, ended="interrupted")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(code: int, request: Request[T], path: Path, last_line: str) -> T:
    if code == _USAGE:
        raise UsageError(last_line or "The measuring process refused its options without a message.")
    if code not in _EXIT_CODES:
        said = f": {last_line}" if last_line else "."
        raise MeasurementError(f"A measuring process {_ending(code)}{said}")
    try:
        run = request.load(path)
    except DocumentError as error:
        raise MeasurementError(f"A measuring process measured nothing: {last_line or error}") from error
    if run.ended == "failed":
        raise MeasurementError(f"A measuring process failed: {run.failure or last_line or 'no reason given'}")
    figures = list(figures_of(run))
    if all(figure.rate is None for figure in figures):
        why = next((figure.missing for figure in figures), last_line or "no reason given")
        raise MeasurementError(
            f"A measuring process measured nothing ({why}): try a longer --budget or fewer sizes (--size)."
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

"""Measuring in a new process: a baseline needs the differences between processes, so each run has its own."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from pyxfer._baseline.figures import figures_of
from pyxfer._document import codec
from pyxfer._document.baselines import AnyRun
from pyxfer._document.cells import cell_of
from pyxfer._document.links import CopyEngine, LinkGroup, Links, LinksParameters
from pyxfer._document.runs import Run
from pyxfer._python import ending_of, kill_group, last_lines, python_command
from pyxfer.errors import DocumentError, MeasurementError, UsageError
from pyxfer.native import HOST
from pyxfer.units import format_seconds

DEFAULT_PRECISION = 0.005

STARTING_S = 60.0
"""Time for a process beyond three times its budget: to load, to make a context, to page-lock, to end."""
STOPPING_S = 0.8
"""Time for an interrupted process to save its run."""
_SLICE_S = 0.05

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
class Request:
    """The command that each process runs."""

    words: tuple[str, ...]
    budget_s: float


def run_request(
    devices: Sequence[str],
    directions: Iterable[str],
    memories: Iterable[str],
    modes: Iterable[str],
    sizes: Iterable[int],
    budget_s: float,
    precision: float = DEFAULT_PRECISION,
    *,
    fresh: bool = False,
) -> Request:
    """The request for one device: its index, UUID or PCI address, or host."""
    lists = {"direction": directions, "memory": memories, "mode": modes, "size": map(str, sizes)}
    return _request("ceiling", devices, lists, budget_s, precision, "--no-trace", *(["--fresh"] if fresh else []))


# Small copies and kernels are left out: they take most of the time, and tell little of a link that the others do not.
DEFAULT_GROUPS: tuple[LinkGroup, ...] = ("host", "together", "pairs", "local", "latency", "numa")
BUDGET_OF_A_DEVICE_S = 15.0
DEFAULT_ENGINES: tuple[CopyEngine, ...] = ("ce",)


def links_request(
    devices: Sequence[str],
    groups: Iterable[str],
    engines: Iterable[str],
    nbytes: int | None = None,
    budget_s: float | None = None,
    precision: float = DEFAULT_PRECISION,
) -> Request:
    """The request for the links of these devices; `nbytes`: one size for all copies."""
    lists = {"group": groups, "engine": engines, "size": [] if nbytes is None else [str(nbytes)]}
    return _request("links", devices, lists, budget_s or BUDGET_OF_A_DEVICE_S * len(devices), precision)


def request_again(devices: Sequence[str], earlier: AnyRun) -> Request:
    """The request with the parameters of an earlier run."""
    given = earlier.parameters
    if isinstance(given, LinksParameters):
        nbytes = given.host_bytes if given.host_bytes == given.peer_bytes == given.local_bytes else None
        return links_request(devices, given.groups, given.engines, nbytes, given.budget_s, given.precision)
    # A run lists the modes that `auto` selected. Given by name, each of them would be measured for every memory.
    automatic = isinstance(earlier, Run) and all(cell_of(row).is_automatic for row in earlier.measurements)
    modes = ("auto",) if automatic else given.modes
    axes = given.directions, given.memories, modes, given.sizes_bytes
    return run_request(devices, *axes, given.budget_s, given.precision, fresh=given.fresh)


def _request(
    verb: str,
    devices: Sequence[str],
    lists: Mapping[str, Iterable[str]],
    budget_s: float,
    precision: float,
    *switches: str,
) -> Request:
    joined = {"device": ",".join(devices), **{name: ",".join(values) for name, values in lists.items()}}
    values = {**joined, "budget": f"{_plain(budget_s)}s", "precision": _plain(precision)}
    # With =, so that a value may begin with a dash.
    options = [f"--{name}={value}" for name, value in values.items() if value]
    required = [] if HOST in devices else ["--require-gpu"]
    return Request((verb, *options, "--complete", *required, *switches), budget_s)


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
        kill_group(self.process)
        cast("BinaryIO", self.process.stdin).close()
        self.log.close()


class Processes:
    """Measuring processes, one after the other; the next one loads its modules meanwhile."""

    def __init__(self) -> None:
        self._ready: Ready | None = Ready()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ready is not None:
            self._ready.close()

    def take(self, *, more: bool) -> Ready:
        taken, self._ready = self._ready or Ready(), None
        if more:
            self._ready = Ready()
        return taken


def measure_process(request: Request, on_wait: OnWait = lambda waited_s: None, ready: Ready | None = None) -> AnyRun:
    with tempfile.TemporaryDirectory(prefix="pyxfer-") as folder, closing(ready or Ready()) as chosen:
        path = Path(folder) / "run.json"
        try:
            chosen.begin([*request.words, f"--export-json={path}"])
            _wait(chosen.process, 3 * request.budget_s + STARTING_S, on_wait)
        except KeyboardInterrupt:
            return _interrupted(chosen.process, path)
        finally:
            kill_group(chosen.process)
        said = last_lines(chosen.log.fileno())
        return _result(chosen.process.returncode, path, said[-1].strip().removeprefix(_OUR_PREFIX) if said else "")


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


def _interrupted(process: subprocess.Popen[bytes], path: Path) -> AnyRun:
    """Pass the interrupt on, and read the part that was measured."""
    with suppress(ProcessLookupError, PermissionError, subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait(STOPPING_S)
    kill_group(process)
    try:
        run = _load(path)
    except DocumentError:
        raise KeyboardInterrupt from None
    # The process may have completed at that moment, but Ctrl-C also means that no other process is to follow.
    return msgspec.structs.replace(run, ended="interrupted")


def _load(path: Path) -> AnyRun:
    run: AnyRun = codec.load_any(path, (Run, Links))
    return run


def _result(code: int, path: Path, last_line: str) -> AnyRun:
    if code == _USAGE:
        raise UsageError(last_line or "The measuring process refused its options without a message.")
    if code not in _EXIT_CODES:
        said = f": {last_line}" if last_line else "."
        raise MeasurementError(f"A measuring process {ending_of(code)}{said}")
    try:
        run = _load(path)
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

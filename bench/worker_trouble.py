"""Checks that a run survives the loss of workers: one aborts, one is killed.

    python bench/worker_trouble.py [--device 0] [--export-json F]

The script times TensorFlow and PyTorch and ends the worker of each during its trials:

- A route of this script runs in the TensorFlow worker and imports, by DLPack, an array whose address is 16 bytes after
  a multiple of 64. pyxfer's own routes refuse such an array because TensorFlow does not: its CPU kernels abort the
  process with `Check failed: IsAligned()`. The first seven imports are aligned, so that the route is verified and timed
  before it aborts.
- This process sends SIGKILL to the PyTorch worker three seconds after its trials have started.

The last lines report whether the run recorded both losses and measured everything else. The exit status is 1 if it did
not, or if a worker could not be ended. Without a GPU the routes within host memory are timed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import shared

import pyxfer
from pyxfer._document.files import check_writable
from pyxfer._document.runs import Measurement, Run
from pyxfer._frameworks.base import Route, Transfer, Where
from pyxfer._frameworks.registry import unregister_route
from pyxfer._frameworks.tensorflow import CPU, view_tensor, where_is
from pyxfer._measure.sampler import Progress
from pyxfer._report.frameworks import worker_lines
from pyxfer._report.layout import Page
from pyxfer._report.text import clean
from pyxfer.units import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.context import RouteContext

FRAMEWORKS = ("tensorflow", "torch")
OTHERS = ("tf.constant", "tf.ingest*", "torch.to", "torch.pinned-nonblocking", "torch.ingest*")
# At 64 MiB the trials of a worker take longer than three seconds.
SIZES = "1MiB,64MiB"
ALIGNED_RUNS = 7
# The phase in a run's progress at which the timer for the SIGKILL starts.
KILLED_PHASE = "PyTorch: measuring"
# Long enough for the worker's first results, and half of its budget.
KILL_AFTER_S = 3.0
BUDGET_S = 6.0
# So fine that the worker is still measuring when it is killed.
PRECISION = 1e-4
WORKER_MODULE = b"pyxfer._frameworks.process"


class MisalignedDlpack(Transfer):
    """A DLPack import and an addition on the CPU, which aborts the process if the array is misaligned."""

    def __init__(self, context: RouteContext) -> None:
        super().__init__(context)
        import tensorflow

        self.tf: Any = tensorflow
        self.source: Any = None
        self.runs = 0

    def refresh(self) -> None:
        """Use aligned memory for the first runs, then memory with the alignment of malloc."""
        self.source = self.context.source("aligned" if self.runs < ALIGNED_RUNS else "pageable")

    def run(self) -> None:
        """The import does not copy; the addition does."""
        self.runs += 1
        with self.tf.device(CPU):
            tensor = self.tf.experimental.dlpack.from_dlpack(self.source.__dlpack__())
            self.result = self.tf.add(tensor, self.tf.zeros((), self.tf.uint8))

    def where(self) -> Where:
        """Where TensorFlow reports the result to be."""
        return where_is(self.result)

    def arrived(self) -> NDArray[Any]:
        """The memory of the result."""
        return view_tensor(self.result)


ABORTING = Route(
    name="bench.misaligned-dlpack",
    call="tf.add(from_dlpack(misaligned.__dlpack__()), 0)",
    direction="ingest",
    memory="pageable",
    host_copies=1,
    dma="none",
    returns="done",
    bracket="drained",
    copy=MisalignedDlpack,
)


class Killer:
    """A progress callback that kills the worker `after_s` after the start of a phase."""

    def __init__(self, phase: str = KILLED_PHASE, after_s: float = KILL_AFTER_S) -> None:
        self.killed: list[int] = []
        self._phase = phase
        self._timer = threading.Timer(after_s, self._kill)

    def __call__(self, progress: Progress) -> None:
        """Start the timer at the first progress of the phase."""
        if progress.phase == self._phase and self._timer.ident is None:
            self._timer.start()

    def close(self) -> None:
        """Cancel the timer."""
        self._timer.cancel()
        if self._timer.ident is not None:
            self._timer.join()

    def _kill(self) -> None:
        for pid in worker_processes(os.getpid()):
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)


def worker_processes(parent: int) -> list[int]:
    """Process ids of the pyxfer workers that are children of `parent`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_bytes().rpartition(b")")[2].split()  # state, parent, and so on
            command = (folder / "cmdline").read_bytes()
        except OSError:  # the process has ended
            continue
        if int(after_name[1]) == parent and WORKER_MODULE in command:
            found.append(int(folder.name))
    return found


class Finding(msgspec.Struct, frozen=True):
    """A statement about the run, and whether it is true."""

    code: str
    what: str
    shown: bool


def make_trouble(device: str, killer: Killer) -> Run:
    """Run the benchmark with the aborting route and the killer."""
    pyxfer.register_route(ABORTING, framework="tensorflow")
    try:
        return pyxfer.frameworks(
            FRAMEWORKS,
            route=(ABORTING.name, *OTHERS),
            size=SIZES,
            ingest=True,
            device=device,
            precision=PRECISION,
            budget=BUDGET_S,
            on_progress=killer,
        )
    finally:
        unregister_route(ABORTING.name)


def judge(run: Run, killed: Sequence[int]) -> list[Finding]:
    """Check that the run recorded both losses and measured everything else."""
    own = [row for row in run.measurements if row.route == ABORTING.name]
    spared = [row for row in run.measurements if is_lost(row) and row.route != ABORTING.name]
    only_the_killed = len({row.route for row in spared}) <= 1 and all("SIGKILL" in why(row) for row in spared)
    return [
        Finding("complete", "the run is complete", run.ended == "complete"),
        Finding("abort", "the abort of the TensorFlow worker is recorded", _crashed_by(run, "tensorflow", "SIGABRT")),
        Finding("reason", f"the abort is the reason of {ABORTING.name}", bool(own) and all(map(_names_the_abort, own))),
        Finding("killed", "the PyTorch worker was killed while it measured", len(killed) == 1),
        Finding("kill", "the SIGKILL of the PyTorch worker is recorded", _crashed_by(run, "torch", "SIGKILL")),
        Finding("others", "every other route has a result", only_the_killed),
        Finding("frameworks", "both frameworks have results", _measured(run) == set(FRAMEWORKS)),
    ]


def is_lost(row: Measurement) -> bool:
    """Whether the row is a framework's route without a result."""
    return row.route_info is not None and row.summary is None


def why(row: Measurement) -> str:
    """The reason why a row has no rate."""
    return row.rate.reason or "no reason given"


def _crashed_by(run: Run, framework: str, name: str) -> bool:
    crashed = (worker for worker in run.workers if worker.framework == framework and worker.ended == "crashed")
    return any(name in (worker.reason or "") for worker in crashed)


def _names_the_abort(row: Measurement) -> bool:
    return is_lost(row) and "SIGABRT" in why(row) and f"while {ABORTING.name} at" in why(row)


def _measured(run: Run) -> set[str]:
    return {
        row.route_info.framework for row in run.measurements if row.route_info is not None and row.summary is not None
    }


def table(run: Run) -> str:
    """The table: trials and rate of every route at every size."""
    rows = [row for row in run.measurements if row.route_info is not None]
    lines = [[row.route, format_size(row.nbytes), str(len(row.trials)), _outcome(row)] for row in rows]
    return shared.aligned(["route", "size", "trials", "GB/s"], lines)


def _outcome(row: Measurement) -> str:
    if row.gbps is not None:
        return f"{row.gbps:.2f}"
    return "no copy" if row.summary is not None else "-"


def show(run: Run, findings: Sequence[Finding]) -> None:
    """Print how each worker ended, the table, and the findings."""
    print(shared.machine_line(run.device, run.environment))
    if run.runtime_reason:
        print(clean(run.runtime_reason))
    Page(sys.stdout).hanging(worker_lines(run))
    print(table(run))
    for route, reason in dict.fromkeys((row.route, why(row)) for row in run.measurements if is_lost(row)):
        print(f"{route}: {clean(reason)}")
    for finding in findings:
        print(f"{finding.what}: {'yes' if finding.shown else 'no'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, print the findings, write the document; 0 if all findings are true."""
    parser = argparse.ArgumentParser(description="Abort one worker, kill another, and check that the run survives.")
    parser.add_argument("--device", default="0", help="a GPU's number, or host (default: %(default)s)")
    parser.add_argument("--export-json", type=Path, metavar="F", help="write the run to this file")
    options = parser.parse_args(arguments)
    if options.export_json:
        check_writable(options.export_json)
    with closing(Killer()) as killer:
        run = make_trouble(options.device, killer)
    if run.ended == "interrupted":
        raise KeyboardInterrupt
    findings = judge(run, killer.killed)
    show(run, findings)
    if options.export_json:
        run.save(options.export_json)
    return 0 if all(finding.shown for finding in findings) else 1


if __name__ == "__main__":
    shared.run_script(main)

"""The command `fleet host`: the job that a fleet runs on each of its hosts."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import completion
from pyxfer._cli import options as opt
from pyxfer._cli.failures import INTERRUPTED, NOT_VALID, CtrlC, nothing_measured, say
from pyxfer._cli.output import Exports, document_json, rescued
from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:
    from pyxfer._document.fleets import HostReport

Labels = Annotated[list[str] | None, opt.option("--label", "KEY=VALUE", "A label such as rack=r7; repeat it for more.")]
Name = Annotated[str | None, opt.option("--name", "NAME", "Name of the host, for a container; default the machine's.")]
Budget = Annotated[str, opt.option("--budget", "TIME", "Time limit of the whole command, such as 25s.")]
_DEVICES = "Comma-separated list of GPUs by index, UUID or PCI address, or host (its memory); all GPUs by default."
Devices = Annotated[str | None, opt.listed("--device", _DEVICES, completion.devices)]
Save = Annotated[
    bool, typer.Option("--save", help="Also save the document in the store, for pyxfer fleet run --via store.")
]

_LONGEST_NAME = 253


def host(
    *,
    export_json: opt.WholeJson = None,
    label: Labels = None,
    name: Name = None,
    budget: Budget = "25s",
    device: Devices = None,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    save: Save = False,
    store: opt.Store = None,
) -> None:
    """Measure what a fleet judges of this host.

    Measures copies of every GPU alone and of all together, latencies, and what the doctor examines, and reads facts
    that may explain a loss, within the budget. Also reads labels from PYXFER_LABELS, such as rack=r7,switch=s2. After
    Ctrl-C, SIGTERM or the budget the document has what was measured until then.
    """
    import msgspec

    from pyxfer._fleet.job import CLOSING_S, Job, budget_of, find_devices, labels_of

    exports: Exports[HostReport] = Exports((export_json, document_json), quiet=quiet)
    budget_s = budget_of(budget)
    if name is not None and not 0 < len(name) <= _LONGEST_NAME:
        raise UsageError(f"--name has {len(name)} characters: give 1 to {_LONGEST_NAME}.")
    labels = labels_of(label or (), os.environ)
    saving = _Saving(store, name or platform.node(), exports) if save else None
    early = _EarlyEnd(budget_s, CLOSING_S)
    with early.last_resort(export_json, saving), exports.progress() as progress:
        choice, found = find_devices(device, require_gpu=require_gpu)
        if choice.reason:
            say(choice.reason)
        job = Job(choice, found, labels, budget_s, progress, name)
        early.report = job.report
        try:
            with early.signals():
                report = job.run()
        except KeyboardInterrupt:  # when the job had just ended
            report = job.report()
    if report.ended == "interrupted":
        report = msgspec.structs.replace(report, failure=early.failure)
    kept_in = None
    try:
        exports.deliver(report)
        kept_in = export_json
    finally:
        with _sigterm_as_ctrl_c():
            is_stored = saving is None or saving.save(report, kept_in)
    _end_as(report)
    if not is_stored:
        raise SystemExit(NOT_VALID)


class _Saving:
    """Saves the document in the store. A store that cannot take it is refused before anything is measured."""

    def __init__(self, store: str | None, host: str, exports: Exports[HostReport]) -> None:
        from pyxfer._baseline.store import check_store

        check_store(store)
        self._exports = exports
        self._store = store
        self._host = host

    def save(self, report: HostReport, kept_in: str | None) -> bool:
        """Save it, or say why not and where else the document is. `kept_in`: the file that has it already."""
        from pyxfer._baseline.store import open_store

        try:
            with open_store(self._store) as opened:
                kept, shown = opened.add_host_report(report, self._host), opened.shown
        except PyxferError as error:
            say(f"{_place(report, kept_in)} The store did not take it: {error}")
            return False
        except KeyboardInterrupt:
            say(f"{_place(report, kept_in)} It may not have been stored (interrupted).")
            raise
        self._exports.note(f"saved {kept}, the document of {report.host or self._host}, in {shown}")
        return True


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """While a store does not answer, what ends the command must not lose the document."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise CtrlC

    usual = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _place(report: HostReport, kept_in: str | None) -> str:
    """Where the document is that the store did not take: in its file, or in a new one."""
    from pyxfer._document.files import is_stdout

    if kept_in is not None:
        return "The document was written to stdout." if is_stdout(kept_in) else f"The document is in {kept_in!r}."
    return rescued(report, "document", "pyxfer-host-", "pyxfer fleet judge")


def _end_as(report: HostReport) -> None:
    if report.ended == "interrupted" and report.failure is None:
        say("interrupted")
        raise SystemExit(INTERRUPTED)
    if report.ended != "complete":
        say(f"The host job was not completed: {report.failure or 'no reason given'}")
        raise SystemExit(NOT_VALID)
    if all(cell.value.value is None for cell in report.cells):
        say(nothing_measured([cell.value for cell in report.cells]))
        raise SystemExit(NOT_VALID)


class _EarlyEnd:
    """Ends the job by SIGTERM or before its time is over, as Ctrl-C does; and the process if the job is stuck."""

    def __init__(self, budget_s: float, closing_s: float) -> None:
        self._budget_s = budget_s
        self._closing_s = closing_s
        self._asked = False
        self._ending = threading.Lock()
        self.failure: str | None = None
        self.report: Callable[[str], HostReport] | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        usual = signal.signal(signal.SIGTERM, self._on_sigterm)
        timer = _timer(self._budget_s - self._closing_s, self._ask)
        try:
            yield
        finally:
            timer.cancel()
            signal.signal(signal.SIGTERM, usual)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if not self._asked:
            self._asked = True
            raise CtrlC

    def _ask(self) -> None:
        self.failure = f"the budget of {self._budget_s:g} s was not enough; the job stopped in time to save what it had"
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    @contextmanager
    def last_resort(self, path: str | None, saving: _Saving | None) -> Iterator[None]:
        """Write what there is and end the process, if no signal can end it because it is stuck in the driver."""
        timer = _timer(self._budget_s, lambda: self._leave(path, saving))
        try:
            yield
        finally:
            timer.cancel()
            self._ending.acquire()  # forever, if the other thread has begun to end the process

    def _leave(self, path: str | None, saving: _Saving | None) -> None:
        if not self._ending.acquire(blocking=False):
            return
        failure = f"it was stuck in the driver when its time was over ({self._budget_s:g} s)"
        try:
            if self.report is not None:
                report = self.report(failure)
                kept_in = _written(report, path)
                if saving is not None:
                    saving.save(report, kept_in)
            with suppress(OSError):
                say(f"the host job failed: {failure}")
        except (PyxferError, OSError, MemoryError, SystemExit):
            pass
        finally:
            os._exit(NOT_VALID)


def _written(report: HostReport, path: str | None) -> str | None:
    """The path, or None if the document could not be written to it."""
    from pyxfer._document import codec
    from pyxfer._document.files import is_stdout, write_whole

    if path is None:
        return None
    try:
        data = codec.encode(report)
        if is_stdout(path):
            sys.stdout.write(data.decode(errors="backslashreplace"))
            sys.stdout.flush()
        else:
            write_whole(path, data)
    except (PyxferError, OSError, MemoryError):
        return None
    return path


def _timer(seconds: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer

"""Shared by several verbs: exports, the progress bar, the page with its exit code, the runtime, and JSON on stdout."""

from __future__ import annotations

import math
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from pyxfer._cli.failures import NotKeptError, end_as, say
from pyxfer._document import files
from pyxfer.errors import PyxferError, UsageError

if TYPE_CHECKING:  # `pyxfer --help` loads neither rich nor NumPy
    from rich.progress import Progress as Bar

    from pyxfer._document.links import Links
    from pyxfer._document.machines import SavedDocument
    from pyxfer._document.runs import Run
    from pyxfer._measure.sampler import Progress
    from pyxfer._report.layout import Page
    from pyxfer.native import Choice


Document = TypeVar("Document")
Measured = TypeVar("Measured", "Run", "Links")
# node_exporter collects these files and runs as another user.
COLLECTED = ".prom"
_FOR_ALL_TO_READ = 0o644


class Exports(Generic[Document]):
    """The files and streams that a result is written to: what the options --export-FORMAT and --report name.

    Files get a run while it measures, from a thread of their own; a failed write is retried at the end and does not end
    the run. Streams and the report get the result once, at the end; a file of `complete` too, and only that of a
    complete run. Targets that cannot be written are refused at once. With `quiet` neither a page nor progress is
    printed.
    """

    def __init__(
        self,
        *targets: tuple[str | None, Callable[[Document], str]],
        complete: tuple[str | None, Callable[[Document], str]] | None = None,
        report: str | None = None,
        quiet: bool = False,
    ) -> None:
        self._quiet = quiet
        check_report(report)
        self._of_complete = None if complete is None or complete[0] is None else complete[0]
        every = targets if complete is None else (*targets, complete)
        given = [(path, encode) for path, encode in every if path is not None]
        check_targets([path for path, _ in given] + ([] if report is None else [report]))
        self._to_stdout = [encode for path, encode in given if files.is_stdout(path)]
        self._files: dict[str, Callable[[Document], bytes]] = {}
        self._once: dict[str, Callable[[Document], bytes]] = {}
        for path, encode in given:
            if not files.is_stdout(path):
                is_once = files.is_stream(path) or path.endswith(COLLECTED) or path == self._of_complete
                (self._once if is_once else self._files)[path] = partial(_encoded, encode)
        if report is not None:
            self._once[report] = partial(_report, report)
        self._checkpoints = files.Checkpoints(self._warn_once)
        self._has_warned = False
        self._saved: Document | None = None

    @property
    def takes_stdout(self) -> bool:
        """Whether an export goes to stdout, so that the page must not."""
        return bool(self._to_stdout)

    @property
    def saver(self) -> Callable[[Document], None] | None:
        """`save`, or None without a file: making a document takes time from the measurement."""
        return self.save if self._files else None

    def save(self, document: Document) -> None:
        """Rewrite the files with the result so far, soon and in another thread."""
        for path, encode in self._files.items():
            if document is not self._saved:
                self._checkpoints.put(path, encode(document))
        self._saved = document

    def keep(self, document: Document) -> None:
        """Write the result to all files, before anything that happens to the terminal could lose it."""
        self.save(document)
        self._checkpoints.wait()

    def finish(self, document: Document) -> None:
        """Write to the streams, and to the files whose last write failed."""
        self.keep(document)
        retried = {path: self._files[path] for path in self._checkpoints.failures}
        failures = []
        for path, encode in {**retried, **self._once}.items():
            if path == self._of_complete and getattr(document, "ended", "complete") != "complete":
                say(f"{path!r} was left as it is, because the run is not complete: measure again.")
                continue
            try:
                _write(path, encode(document))
            except (PyxferError, MemoryError) as error:
                failures.append(str(error) or f"{path!r} cannot be written (out of host memory).")
        for print_document in self._to_stdout:
            sys.stdout.write(print_document(document))
        if failures:
            raise NotKeptError(" ".join(failures))

    def deliver(
        self, document: Document, print_page: Callable[[Page], object] | None = None, *, details: bool = False
    ) -> None:
        """Write a finished result to all targets, and print its page unless an export goes to stdout."""
        try:
            self.finish(document)
        finally:
            if not self._to_stdout:
                self.print(document, print_page, details=details)
            sys.stdout.flush()

    def print(
        self, document: Document, print_page: Callable[[Page], object] | None = None, *, details: bool = False
    ) -> None:
        """Print the page, on stderr if an export goes to stdout."""
        if self._quiet:
            return
        from pyxfer._report.kinds import print_document
        from pyxfer._report.layout import Page

        page = Page(sys.stderr if self._to_stdout else sys.stdout, details=details)
        (print_page or partial(print_document, document))(page)

    def note(self, text: str) -> None:
        """Say what has been done; errors are said by `say`."""
        if not self._quiet:
            say(text)

    def progress(self) -> ProgressReport:
        return ProgressReport(quiet=self._quiet)

    def _warn_once(self, failure: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            say(f"{failure} The write is retried at the end.")


def _write(path: str, data: bytes) -> None:
    if not path.endswith(COLLECTED):
        files.write_whole(path, data)
        return
    with files.whole_file(path) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), _FOR_ALL_TO_READ)
        file.write(data)


def write_result(path: str, data: bytes) -> None:
    """Write a result to a file whose name was checked before, so that a failure is no usage error."""
    try:
        files.write_whole(path, data)
    except UsageError as error:
        raise NotKeptError(str(error)) from error


def check_report(path: str | None) -> None:
    if path is not None:
        from pyxfer._report import webpage

        webpage.check_report(path)


def check_targets(paths: Sequence[str]) -> None:
    if sum(map(files.is_stdout, paths)) > 1:
        raise UsageError("Only one export can go to stdout (-): give the others a file name.")
    named = [path for path in paths if not files.is_stdout(path)]
    places = [os.path.realpath(path) for path in named]
    for path, place in zip(named, places, strict=True):
        if places.count(place) > 1:
            raise UsageError(f"Two exports name the file {path!r}: give them different names.")
        files.check_writable(path)


def _encoded(encode: Callable[[Document], str], document: Document) -> bytes:
    return encode(document).encode(errors="backslashreplace")


def _report(path: str, document: object) -> bytes:
    from pyxfer._report import webpage

    return webpage.report_bytes([document], webpage.suffix_of(path))


_REFRESH_S = 0.1
_SAY_S = 10.0


class ProgressReport:
    """A bar with the time left on a terminal, and elsewhere a line for each phase and every 10 s.

    It is drawn only when it is called, because a drawing thread would disturb the trials.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._phase = ""
        self._drawn_at = 0.0
        self._bar: Bar | None = None
        from pyxfer._report.layout import is_plain

        if not (quiet or is_plain(sys.stderr)):
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=Console(file=sys.stderr),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> ProgressReport:
        if self._bar is not None:
            self._bar.add_task("", total=1.0, left="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        is_new, now = progress.phase != self._phase, time.monotonic()
        every_s, is_full = (_SAY_S, False) if self._bar is None else (_REFRESH_S, progress.done >= 1)
        if self._quiet or not (is_new or is_full or now - self._drawn_at >= every_s):
            return
        from pyxfer._report.text import clean

        left = "" if progress.left_s is None else f"about {math.ceil(progress.left_s)} s left"
        if self._bar is not None:
            with suppress(OSError):
                words = clean(f"{progress.phase} {progress.text}", longest=50)
                self._bar.update(self._bar.task_ids[0], completed=progress.done, description=words, left=left)
                self._bar.refresh()
        else:
            words = progress.phase if is_new else f"{progress.phase} {clean(progress.text, longest=100)}".strip()
            say(f"{words}, {left}" if left else words)
        self._phase, self._drawn_at = progress.phase, now


def run_exports(
    json: str | None,
    csv: str | None,
    md: str | None,
    report: str | None = None,
    *,
    quiet: bool = False,
    complete: tuple[str | None, Callable[[Measured], str]] | None = None,
) -> Exports[Measured]:
    return Exports(
        (json, document_json),
        (csv, lambda run: run.to_csv()),
        (md, lambda run: run.to_markdown()),
        complete=complete,
        report=report,
        quiet=quiet,
    )


def measure_and_deliver(
    measure: Callable[..., Measured],
    exports: Exports[Measured],
    device: int | str,
    *,
    require_gpu: bool,
    details: bool,
) -> None:
    """Announce the runtime, measure, save, print the page, write to the streams, and exit with the run's code.

    The command line is parsed by then.
    """
    announce_runtime(device, require_gpu)
    with exports.progress() as progress:
        run = measure(require_gpu=require_gpu, on_progress=progress, save_to=exports.saver)
    exports.keep(run)
    try:
        exports.print(run, details=details)
    except (SystemExit, NotKeptError):  # stdout is closed or full
        exports.finish(run)
        raise
    try:
        exports.finish(run)
    except NotKeptError as error:
        if run.ended != "interrupted":
            raise
        say(str(error))
    end_as(run)


def announce_runtime(device: int | str, require_gpu: bool = False) -> Choice:
    """Choose the runtime for a device. If it is the one over host memory, print the reason."""
    from pyxfer import native

    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    return choice


def document_json(document: object) -> str:
    """A document as its file has it."""
    from pyxfer._document import codec

    return codec.encode(document).decode(errors="backslashreplace")


def json_text(value: object) -> str:
    """The JSON of a value that is no document."""
    from pyxfer._document.codec import to_json

    return to_json(value).decode() + "\n"


def rescued(document: SavedDocument, what: str, prefix: str, reader: str) -> str:
    """Save a document that a store refused to a new file in the temporary folder, and say where it is."""
    handle, path = tempfile.mkstemp(prefix=prefix, suffix=".json")
    os.close(handle)
    try:
        document.save(path)
    except PyxferError:
        os.unlink(path)
        return f"The {what} could not be written to a file either."
    return f"The {what} is in {path}, which {reader} reads."

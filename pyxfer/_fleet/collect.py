"""The documents of hosts, read from files and folders. A bad document is a row with its reason, and never an error."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from urllib.parse import quote

import msgspec

from pyxfer._document import codec
from pyxfer._document.cells import Cell
from pyxfer._document.files import Path, read_whole
from pyxfer._document.fleets import MAX_HOST_BYTES, HostReport, HostState
from pyxfer._python import python_command
from pyxfer.errors import DocumentError, PyxferError, UsageError

CONFIRMATIONS = "confirmations"
"""The folder with documents of hosts that were measured again."""
_LONGEST_NAME = 180
_ENDINGS = (".json", ".json.gz")
_MANY = 500
"""The least number of files for which starting other processes saves time."""
_BATCH = 1000
_BOOT = "from pyxfer._fleet.collect import read_batch; read_batch()"
_Files = Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class Arrival:
    """What came back from a host. `source`: the file, or what launched the host's job.

    `named`: whether the launcher or the name of the file says which host it is of, not the document alone.
    """

    host: str
    state: HostState
    reason: str | None
    report: HostReport | None
    source: str
    named: bool = False


def read_reports(paths: Iterable[Path]) -> list[Arrival]:
    """Read the documents of hosts: files, and the .json and .json.gz files of folders.

    The reports come without the samples of their cells, which would fill the memory with 10,000 hosts.
    """
    found = list(_files(paths))
    if len(found) < _MANY:
        return [arrival for file in found if (arrival := _read(*file)) is not None]
    workers = min(len(os.sched_getaffinity(0)), 8)
    size = min(_BATCH, -(-len(found) // workers))
    batches = [found[start : start + size] for start in range(0, len(found), size)]
    decoder = msgspec.msgpack.Decoder(list[Arrival])
    arrivals: list[Arrival] = []
    cells: dict[Cell, Cell] = {}
    with ThreadPoolExecutor(workers) as pool:
        for data in pool.map(_read_in_process, batches):
            read = decoder.decode(data)
            for figure in (each for arrival in read if arrival.report is not None for each in arrival.report.cells):
                # One object for equal cells: those of 10,000 hosts would take half a GiB.
                msgspec.structs.force_setattr(figure, "cell", cells.setdefault(figure.cell, figure.cell))
            arrivals += read
    return arrivals


def read_confirmations(paths: Iterable[Path]) -> list[Arrival]:
    """The documents of hosts that were measured again.

    They are in folders `confirmations` in and beside the given folders, and those of the given files.
    """
    given = dict.fromkeys(path if os.path.isdir(path) else os.path.dirname(path) for path in paths)
    folders = [os.path.join(path, place, CONFIRMATIONS) for path in given for place in ("", "..")]
    return read_reports(dict.fromkeys(os.path.realpath(folder) for folder in folders if os.path.isdir(folder)))


def arrival_of(data: bytes, host: str | None, source: str) -> Arrival:
    """The row of a document that came from `host`; without a host, from the one that the document names."""
    try:
        report = codec.decode(HostReport, data, "the document", recomputed=False)
    except DocumentError as error:
        return Arrival(host or source, "unreadable", str(error), None, source)
    return row_of(report, host or report.host or source, source)


def row_of(report: HostReport, host: str, source: str) -> Arrival:
    if report.runtime == "host" and report.runtime_reason:
        return Arrival(host, "no GPU", report.runtime_reason, report, source)
    if report.ended == "failed" or not has_figures(report):
        reason = report.failure or f"the run has ended ({report.ended}) without a figure"
        return Arrival(host, "failed", reason, report, source)
    if report.ended == "interrupted":
        return Arrival(host, "incomplete", report.failure or "the run was interrupted", report, source)
    return Arrival(host, "measured", None, report, source)


def has_figures(report: HostReport) -> bool:
    return any(cell.value.value is not None for cell in report.cells)


def without_samples(report: HostReport) -> HostReport:
    cells = tuple(msgspec.structs.replace(cell, samples=()) for cell in report.cells)
    return msgspec.structs.replace(report, cells=cells)


def _files(paths: Iterable[Path]) -> Iterator[tuple[str, bool]]:
    for path in (os.fspath(each) for each in paths):
        if not os.path.isdir(path):
            yield path, False
            continue
        unreadable: list[OSError] = []
        for folder, inner, names in os.walk(path, onerror=unreadable.append):
            inner[:] = sorted(name for name in inner if name != CONFIRMATIONS)
            for name in sorted(names):
                file = os.path.join(folder, name)
                if name.endswith(_ENDINGS) and not name.startswith(".") and os.path.isfile(file):
                    yield file, True
        for error in unreadable:
            if isinstance(error, FileNotFoundError):  # removed since
                continue
            raise UsageError(f"The folder {str(error.filename)!r:.200} cannot be read ({error.strerror}).") from error


def _read_in_process(files: _Files) -> bytes:
    ended = subprocess.run(  # noqa: S603 - this Python, and code of our own
        python_command(_BOOT),
        input=msgspec.msgpack.encode(files),
        stdout=subprocess.PIPE,
        check=False,
        start_new_session=True,  # Ctrl-C is for the process that waits
    )
    if ended.returncode:
        raise PyxferError(
            f"A process that reads documents ended with {ended.returncode}: give it fewer files, or memory."
        )
    return ended.stdout


def read_batch() -> None:
    """Read the files that stdin names, and write their rows to stdout."""
    gc.disable()  # documents have no circles, so collecting garbage would only take time
    files = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[tuple[str, bool]])
    read = (_read(*file) for file in files)
    # Encoded one by one, because decoded they take much more memory.
    rows = [msgspec.Raw(msgspec.msgpack.encode(arrival)) for arrival in read if arrival is not None]
    sys.stdout.buffer.write(msgspec.msgpack.encode(rows))


def _read(path: str, in_folder: bool) -> Arrival | None:
    """A file's row; None for the verdicts of a fleet that were saved beside the documents of its hosts."""
    try:
        data = read_whole(path, MAX_HOST_BYTES)
    except DocumentError as error:
        if in_folder and _host_named_by(path) == "fleet":  # the verdicts are larger than the document of a host
            return None
        return Arrival(_host_named_by(path), "unreadable", str(error), None, path)
    arrival = arrival_of(data, None, path)
    if arrival.report is None:
        is_verdicts = in_folder and codec.kind_of(data) is codec.FLEET
        return None if is_verdicts else replace(arrival, host=_host_named_by(path))
    named = file_name(arrival.host) == _host_named_by(path)
    return replace(arrival, report=without_samples(arrival.report), named=named)


def file_name(host: str) -> str:
    """The name of a host's file. That of the host may have any characters; a long one is cut, and gets its digest."""
    name = quote(host, safe="@ ")
    if name.startswith("."):  # a hidden file is not read
        name = f"%2E{name[1:]}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}+{digest}"


def _host_named_by(path: str) -> str:
    name = os.path.basename(path)
    return next((name[: -len(end)] for end in reversed(_ENDINGS) if name.endswith(end)), name)

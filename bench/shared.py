"""Shared by the scripts in bench/: tables as text, documents, devices, exit statuses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from pyxfer._document.files import check_writable, write_whole
from pyxfer._document.machines import Device, Environment
from pyxfer._machine.devices import find_device
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.errors import CudaUnavailableError, DocumentError, PyxferError, UsageError
from pyxfer.native import HOST, Engine, choose


class Measured(Protocol):
    """A document with the device and environment of its measurements."""

    @property
    def device(self) -> Device:
        """The measured device."""
        ...

    @property
    def environment(self) -> Environment:
        """The rest of the machine and software."""
        ...


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text; the first column is left-aligned, the others are right-aligned."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in (header, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def machine_line(device: Device, environment: Environment) -> str:
    """The machine, software versions and date of a measurement."""
    cpu = environment.cpu_model.value or "CPU unknown"
    driver = environment.driver.value or "unknown"
    day = environment.taken_at[:10]
    return f"{device.name}, {cpu}, driver {driver}, pyxfer {environment.pyxfer}, {day}"


def page(result: Measured, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The machine line and a table, for a terminal."""
    return f"{machine_line(result.device, result.environment)}\n\n{aligned(header, rows)}"


def markdown(result: Measured, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The machine line and a table, in Markdown."""
    return f"{escape_markdown(machine_line(result.device, result.environment))}.\n\n{markdown_table(header, rows)}"


def write_document(path: Path | None, document: msgspec.Struct) -> None:
    """Write the document as indented JSON, unless `path` is None."""
    if path is not None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def conclude(document: msgspec.Struct, path: Path | None, misses: Sequence[str]) -> int:
    """Write the document and say which limits were missed; the exit status, 1 if any was."""
    write_document(path, document)
    for line in misses:
        print(line, file=sys.stderr)
    return 1 if misses else 0


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --device and --export-json."""
    parser.add_argument("--device", type=lambda word: word if word == HOST else int(word), default=0)
    parser.add_argument("--export-json", type=Path)


def open_device(asked: argparse.Namespace) -> tuple[Engine, Device]:
    """Open the device of the arguments, after checking that the document can be written."""
    if asked.export_json:
        check_writable(asked.export_json)
    choice = choose(asked.device, require_gpu=asked.device != HOST)
    return choice.engine, find_device(choice.engine, 0 if asked.device == HOST else asked.device)


def run_script(main: Callable[[], int]) -> None:
    """Exit with the status of `main`; a `PyxferError` is printed and has its own exit status."""
    try:
        status = main()
    except KeyboardInterrupt:
        print("Interrupted; nothing was written.", file=sys.stderr)
        status = 130
    except PyxferError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        status = _status_of(error)
    sys.exit(status)


def _status_of(error: PyxferError) -> int:
    if isinstance(error, (UsageError, DocumentError)):
        return 2
    return 3 if isinstance(error, CudaUnavailableError) else 4

"""What the scripts here share: plain tables, result files, and how a script ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from pyxfer._document.exports import escape_markdown, markdown_table
from pyxfer._document.files import check_writable, write_whole
from pyxfer._document.runs import Device, Environment
from pyxfer._machine.devices import find_device
from pyxfer.errors import CudaUnavailableError, DocumentError, PyxferError, UsageError
from pyxfer.native import HOST, Engine, choose


class Measured(Protocol):
    """A document that says where it was measured."""

    @property
    def device(self) -> Device:
        """The one that was copied to and from."""
        ...

    @property
    def environment(self) -> Environment:
        """All else that the figures depend on."""
        ...


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))])
        for line in (header, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def machine_line(device: Device, environment: Environment) -> str:
    """Which machine, which software and which day: what a figure needs beside it."""
    cpu = environment.cpu_model.value or "CPU unknown"
    driver = environment.driver.value or "unknown"
    day = environment.taken_at[:10]
    return f"{device.name}, {cpu}, driver {driver}, pyxfer {environment.pyxfer}, {day}"


def page(result: Measured, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table under its machine, for a terminal."""
    return f"{machine_line(result.device, result.environment)}\n\n{aligned(header, rows)}"


def markdown(result: Measured, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same for the documentation."""
    return f"{escape_markdown(machine_line(result.device, result.environment))}.\n\n{markdown_table(header, rows)}"


def write_document(path: Path | None, document: msgspec.Struct) -> None:
    """Write the document, if it was asked for, as JSON that a person can read too, whole or not at all."""
    if path is not None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """On which device it is measured, and where the document goes."""
    parser.add_argument("--device", type=lambda word: word if word == HOST else int(word), default=0)
    parser.add_argument("--export-json", type=Path)


def open_device(asked: argparse.Namespace) -> tuple[Engine, Device]:
    """The device of these arguments; the document could be written, as far as that can be told."""
    if asked.export_json:
        check_writable(asked.export_json)
    choice = choose(asked.device, require_gpu=asked.device != HOST)
    return choice.engine, find_device(choice.engine, 0 if asked.device == HOST else asked.device)


def run_script(main: Callable[[], int]) -> None:
    """Run `main` and end the process with its status; an error becomes one sentence and the status of its kind."""
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

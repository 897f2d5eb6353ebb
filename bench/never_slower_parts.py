"""Times the parts of the calls that never_slower.py finds slower than their goal.

    python bench/never_slower_parts.py [--frameworks jax,torch,cupy] [--only WORD] [--rounds 9] [--device 0]
        [--export-json F]

A part marked * is what no library can leave out: a call of the driver or of the framework, made without pyxfer's
Python. The last line of a table is what such parts leave of the call. All parts of a call take turns in one process. A
round repeats a part for 10 ms at least and waits for the device at its end; what is timed after a pause is called once
after each. Times are medians over the rounds. With `--device host` copies are those of the C library, so that the
figures show only that the script runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import shared
from never_slower_calls import COLUMNS, PAUSE_S, PAUSED_ROUND_S, Timed, Used
from never_slower_peers import PEERS

from pyxfer._document.machines import Device, Environment
from pyxfer._machine.environment import read_environment
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer.units import format_seconds

MAX_REPEATS = 1000


class Part(msgspec.Struct, frozen=True):
    """Seconds of one call in each round."""

    name: str
    is_floor: bool
    seconds: list[float]


class Column(msgspec.Struct, frozen=True):
    """One call and its parts."""

    table: str
    title: str
    parts: list[Part]

    def part(self, name: str) -> Part | None:
        """None if this call has no such part."""
        return next((part for part in self.parts if part.name == name), None)

    def left_s(self) -> float:
        """Seconds of the call beyond its floors."""
        floor_s = sum(statistics.median(part.seconds) for part in self.parts if part.is_floor)
        return max(0.0, statistics.median(self.parts[0].seconds) - floor_s)


class CallParts(msgspec.Struct, frozen=True):
    """The document."""

    versions: dict[str, str]
    device: Device
    environment: Environment
    columns: list[Column]


def main() -> int:
    """Measure and print the tables."""
    asked = _arguments()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would leave no memory to the others
    engine, device = shared.open_device(asked)
    columns: list[Column] = []
    versions: dict[str, str] = {}
    for name in asked.frameworks.split(","):
        peer = PEERS[name](asked.device)
        versions[name] = peer.version
        for table, title, prepare in COLUMNS[name]:
            if asked.only not in f"{table}, {title}":
                continue
            with ExitStack() as closed:
                parts = list(prepare(Used(engine, asked.device, closed), peer))
                columns.append(Column(table, title, measured(parts, asked.rounds)))
            own = statistics.median(columns[-1].parts[0].seconds)
            print(f"{table}, {title}: {format_seconds(own)}", file=sys.stderr, flush=True)
    result = CallParts(versions, device, read_environment(engine, device), columns)
    print(shared.machine_line(device, result.environment))
    for header, rows in tables(result):
        print(f"\n{shared.aligned(header, rows)}")
    return shared.conclude(result, asked.export_json, [])


def measured(parts: Sequence[Timed], rounds: int) -> list[Part]:
    """Seconds of each part in each round; the order changes from round to round."""
    counts = [_repeats(part) for part in parts]
    found: list[list[float]] = [[] for _ in parts]
    for number in range(rounds):
        for place in range(len(parts)):
            at = (number + place) % len(parts)
            found[at].append(parts[at].seconds(counts[at]))
    return [Part(part.name, part.is_floor, seconds) for part, seconds in zip(parts, found, strict=True)]


def _repeats(part: Timed) -> int:
    """Warm up, and find how often to repeat a part in a round."""
    if part.round_s == PAUSED_ROUND_S:
        return round(PAUSED_ROUND_S / PAUSE_S)
    count = 4
    while (seconds := part.seconds(count) * count) < part.round_s and count < MAX_REPEATS:
        count = min(MAX_REPEATS, 8 * count, int(1.25 * count * part.round_s / max(seconds, 1e-9)) + 1)
    return count


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(result: CallParts) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows for each kind of call."""
    for table in dict.fromkeys(column.table for column in result.columns):
        columns = [column for column in result.columns if column.table == table]
        names = dict.fromkeys(part.name for column in columns for part in column.parts)
        rows = [[name, *(_cell(column, name) for column in columns)] for name in names]
        yield (
            [table, *(column.title for column in columns)],
            [
                *([f"{name} *" if is_floor(columns, name) else name, *cells] for name, *cells in rows),
                ["left of the call", *(format_seconds(column.left_s()) for column in columns)],
            ],
        )


def is_floor(columns: Sequence[Column], name: str) -> bool:
    """Whether it is a part that no library can leave out."""
    return any(part.is_floor for column in columns if (part := column.part(name)))


def _cell(column: Column, name: str) -> str:
    part = column.part(name)
    return "-" if part is None else format_seconds(statistics.median(part.seconds))


def markdown(result: CallParts) -> str:
    """The tables for docs/never-slower.md."""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    caption = escape_markdown(f"{versions}: {shared.machine_line(result.device, result.environment)}.")
    return "\n\n".join([caption, *(markdown_table(header, rows) for header, rows in tables(result))])


def _arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared.add_measuring_arguments(parser)
    parser.add_argument("--frameworks", default="jax,torch,cupy")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    shared.run_script(main)

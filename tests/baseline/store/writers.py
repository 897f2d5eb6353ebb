"""Processes that save without a pause and print how each save ended. Run as a program:

    python writers.py URL PROCESSES SAVES

Every third save is a baseline of three runs, the others are runs. A line is `stored` or `refused` with the key of the
save: the label of the run, or the name of the baseline. A refused save is repeated until it is stored.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from baseline.store.making import make_baseline, run_at

from pyxfer import StoreError
from pyxfer._baseline.store import Store, open_store

TESTS = Path(__file__).resolve().parents[2]


@contextmanager
def started(url: str, processes: int, saves: int) -> Iterator[subprocess.Popen[str]]:
    """Start the processes, and kill them at the end of the block."""
    paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    with subprocess.Popen(
        [sys.executable, __file__, url, str(processes), str(saves)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            kill(process)


def lines_of(process: subprocess.Popen[str], most: int | None = None) -> Iterator[tuple[str, str]]:
    """The ending and the key of each save, or of the next `most` saves."""
    assert process.stdout is not None
    for number, line in enumerate(process.stdout, start=1):
        ended, _, key = line.strip().partition(" ")
        yield ended, key
        if number == most:
            return


def kill(process: subprocess.Popen[str]) -> None:
    """Kill all processes at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _save(store: Store | None, url: str, key: str, number: int) -> tuple[Store | None, str]:
    try:
        store = store or open_store(url)
        if number % 3 < 2:
            store.add_run(run_at(), {"key": key})
        else:
            store.add_baseline(make_baseline(name=key))
    except StoreError as error:
        sys.stderr.write(f"{key}: {error}\n")
        return store, "refused"
    return store, "stored"


def _write(url: str, saves: int) -> None:
    store = None
    for number in range(saves):
        key = f"{os.getpid()}-{number}"
        ended = ""
        while ended != "stored":
            store, ended = _save(store, url, key, number)
            os.write(1, f"{ended} {key}\n".encode())


def _main(url: str, processes: str, saves: str) -> None:
    children = []
    for _ in range(int(processes)):
        child = os.fork()
        if child == 0:
            try:
                _write(url, int(saves))
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    _main(*sys.argv[1:])

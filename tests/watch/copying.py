"""Copies of the engine over ordinary memory, which a watch sees by the engine's own records, and programs of them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyxfer._watch.options import Target, WatchOptions
from pyxfer._watch.session import Session
from pyxfer._watch.window import Window
from pyxfer.native import load

if TYPE_CHECKING:
    from pyxfer.native._cuda import Copier, Lane


NBYTES = 64 << 10


class Copies:
    """Copies in both directions, one at a time."""

    def __init__(self, copier: Copier, there: Lane, back: Lane) -> None:
        self._copier = copier
        self._there = there
        self._back = back

    def send(self) -> None:
        """To the device."""
        self._copier.drained(self._there, 0)

    def fetch(self) -> None:
        """From the device."""
        self._copier.drained(self._back, 0)


@contextmanager
def copies(nbytes: int = NBYTES) -> Iterator[Copies]:
    """Memory and a stream, released at the end of the block."""
    engine = load("host")
    with ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(2 * nbytes, "pinned")))
        device = stack.enter_context(closing(engine.DeviceBuffer(2 * nbytes)))
        copier = stack.enter_context(closing(engine.Copier(0)))
        there = engine.Lane("h2d", host.address, device.address, nbytes, nbytes, 1)
        back = engine.Lane("d2h", host.address + nbytes, device.address + nbytes, nbytes, nbytes, 1)
        yield Copies(copier, there, back)


@contextmanager
def session(skip: int = 0, steps: int | None = None, **words: object) -> Iterator[Session]:
    """A watch that has been started, and is stopped at the end."""
    made = Session(WatchOptions(skip, steps, **{"device": "host", "lines": False, **words}))  # type: ignore[arg-type]
    made.start()
    try:
        yield made
    finally:
        made.stop()


def window_of(watched: Session) -> Window:
    """The window of a session, which must have closed."""
    assert watched.window is not None, "the window has not closed"
    return watched.window


def target_of(watched: Session) -> Target:
    assert watched.target is not None
    return watched.target


def take(watched: Session, steps: int = 1) -> None:
    """Steps in which nothing happens."""
    for _ in range(steps):
        with watched.steps.step():
            pass


def in_threads(*works: Callable[[], object]) -> None:
    """Each in a thread of its own, at the same time, until they have ended."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


TESTS = Path(__file__).resolve().parent.parent
TIMEOUT_S = 60.0
LONGEST_S = 300.0  # a framework may have to be imported
# The beginning of every program.
HEAD = """
import os, signal, sys, threading, time
import pyxfer
from watch.copying import copies
"""


def environment() -> dict[str, str]:
    """The environment, with the folder of the tests in the path."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def call(folder: Path | None, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in this folder or the current one, with these variables in its environment."""
    return subprocess.run(
        command,
        input="what it reads",
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        cwd=folder,
        env={**environment(), **variables},
    )


def run_program(body: str, *arguments: str, head: str = HEAD) -> subprocess.CompletedProcess[str]:
    return call(None, sys.executable, "-c", head + textwrap.dedent(body), *arguments)


def start_program(body: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program without waiting for its end."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + textwrap.dedent(body), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def output(body: str, *arguments: str, head: str = HEAD) -> list[str]:
    """The lines that a program printed, which must end without an error."""
    result = run_program(body, *arguments, head=head)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()

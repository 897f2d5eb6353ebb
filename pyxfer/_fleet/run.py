"""A run over a fleet: collect the documents of all hosts, judge them, measure flagged hosts again, and judge again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pyxfer._document.files import write_whole
from pyxfer._document.fleets import Fleet
from pyxfer._fleet.collect import Arrival, file_name, read_reports, row_of, without_samples
from pyxfer._fleet.judge import hosts_to_confirm, judge
from pyxfer._fleet.launch import Answer, Launcher
from pyxfer._measure.sampler import OnProgress, Progress, silent
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._baseline.store import Store

POLL_S = 0.2
_LOOK_AGAIN_S = 2.0
_INTERRUPTED = "the run was interrupted before it had answered"

FIRST, AGAIN = "hosts", "confirmations"
"""The folders of the documents of the first measurement, and of the one that confirms it."""


@contextmanager
def ctrl_c_noted() -> Iterator[Event]:
    """An event that Ctrl-C or SIGTERM sets. An exception could come between taking a document and keeping it."""
    pressed = Event()
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in usual.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


@dataclass
class Kept:
    """Saves each document as it comes. What could not be written stays in memory, and is tried again at the end."""

    folder: Path
    on_failure: Callable[[str], None]
    _unwritten: dict[Path, bytes] = field(default_factory=dict)
    _failure: str = ""

    def put(self, name: str, data: bytes) -> None:
        """Write a document to a file of this name in the folder."""
        self._write(self.folder / name, data)

    def finish(self) -> str:
        """Try again what could not be written, and return why some of it still cannot; empty if all is written."""
        left, self._unwritten = self._unwritten, {}
        for path, data in left.items():
            self._write(path, data)
        return f"{len(self._unwritten)} documents were not written: {self._failure}" if self._unwritten else ""

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except (UsageError, OSError) as error:
            is_first = not self._failure
            self._failure = str(error)
            self._unwritten[path] = data
            if is_first:
                self.on_failure(f"{error} It stays in memory, and the write is tried again at the end.")


@dataclass
class FleetRun:
    """One run. `interrupted` after Ctrl-C, which ends the measuring and not the judging."""

    launcher: Launcher
    kept: Kept
    on_progress: OnProgress = silent
    interrupted: bool = False

    def run(self, *, confirm: bool = True) -> Fleet:
        """Measure all hosts and judge them, and measure those again that are flagged, beside two that are not."""
        try:
            arrivals = self._measure(self.launcher.hosts, FIRST)
            fleet = judge(arrivals)
            flagged = hosts_to_confirm(fleet) if confirm and not self.interrupted else ()
            if flagged:
                fleet = judge(arrivals, confirmations=self._measure(flagged, AGAIN))
        finally:
            self.launcher.stop()
        return fleet

    def _measure(self, hosts: Sequence[str], part: str) -> list[Arrival]:
        left = dict.fromkeys(hosts)
        found: list[Arrival] = []
        with ctrl_c_noted() as pressed:
            self.launcher.start(hosts)
            while left and not pressed.is_set():
                for answer in self.launcher.poll(POLL_S):
                    del left[answer.host]
                    found.append(self._taken(answer, part))
                late = sum(arrival.state == "late" for arrival in found)
                text = f"{len(found)}/{len(hosts)} hosts, {self.launcher.running} running, {late} late"
                phase = "measuring" if part == FIRST else "confirming"
                self.on_progress(Progress(phase, len(found) / len(hosts), text))
        self.interrupted = pressed.is_set()
        return found + [Arrival(host, "late", _INTERRUPTED, None, self.launcher.name) for host in left]

    def _taken(self, answer: Answer, part: str) -> Arrival:
        if answer.output.strip():
            self.kept.put(f"{part}/{file_name(answer.host)}.json", answer.output)
        arrival = answer.arrival(self.launcher.name)
        report = None if arrival.report is None else without_samples(arrival.report)
        return replace(arrival, report=report, named=answer.host in self.launcher.named)


def wait_for_files(
    folder: Path, hosts: Sequence[str], wait_s: float, on_progress: OnProgress = silent
) -> tuple[list[Arrival], bool]:
    """The documents in a folder, and whether Ctrl-C ended the wait. Hosts without a document after it are late."""
    arrivals: list[Arrival] = []

    def look() -> list[str]:
        arrivals[:] = read_reports([folder])
        # The hosts that no document names, nor the name of its file.
        known = {name for each in arrivals for name in (each.host, Path(each.source).name.partition(".json")[0])}
        return [host for host in hosts if not {host, file_name(host)} & known]

    missing, interrupted = _wait_for(look, len(hosts), wait_s, on_progress)
    reason = "its document was not in the folder when the time was over"
    return [*arrivals, *(Arrival(host, "late", reason, None, "files") for host in missing)], interrupted


def _wait_for(
    look: Callable[[], list[str]], hosts: int, wait_s: float, on_progress: OnProgress
) -> tuple[list[str], bool]:
    """The hosts that `look` still misses when the wait is over, and whether Ctrl-C ended it."""
    until = time.monotonic() + wait_s
    with ctrl_c_noted() as pressed:
        while (missing := look()) and time.monotonic() < until and not pressed.is_set():
            done = hosts - len(missing)
            on_progress(Progress("waiting", done / hosts, f"{done}/{hosts} hosts"))
            pressed.wait(min(_LOOK_AGAIN_S, max(0.0, until - time.monotonic())))
    return missing, pressed.is_set()


def read_stored(store: Store, since_s: float) -> list[Arrival]:
    """The newest document of each host that was stored since then; the earlier ones are rows without a document.

    If one cannot be read, the one before it counts, as with files.
    """
    left: dict[str, list[str]] = {}
    for kept in store.host_reports(since_s):
        left.setdefault(kept.host, []).append(kept.id)
    found: list[Arrival] = []
    while wanted := [ids.pop(0) for ids in left.values()]:
        for stored in store.read_host_reports(wanted):
            if stored.report is None:
                found.append(Arrival(stored.host, "unreadable", stored.reason, None, stored.id))
            else:
                found.append(row_of(without_samples(stored.report), stored.host, stored.id))
                reason = f"another document of this host is judged, the newest: {stored.id}"
                found += [Arrival(stored.host, "duplicate", reason, None, older) for older in left.pop(stored.host)]
        left = {host: ids for host, ids in left.items() if ids}
    return found


def wait_for_stored(
    store: Store, since: str, hosts: Sequence[str], wait_s: float, on_progress: OnProgress = silent
) -> tuple[list[Arrival], bool]:
    """`read_stored` after a wait, and whether Ctrl-C ended it. Hosts without a document after it are late."""
    since_s, named = store.moment(since), list(dict.fromkeys(hosts))

    def look() -> list[str]:
        known = {kept.host for kept in store.host_reports(since_s)}
        return [host for host in named if host not in known]

    _, interrupted = _wait_for(look, len(named), wait_s, on_progress)
    arrivals = read_stored(store, since_s)
    known = {arrival.host for arrival in arrivals}
    reason = "it had stored no document when the time was over"
    late = [Arrival(host, "late", reason, None, "store") for host in named if host not in known]
    return [*arrivals, *late], interrupted

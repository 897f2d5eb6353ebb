"""Runs into trouble: failing calls, and programs that Ctrl-C ends. The settings of a small ring."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyxfer import ceiling
from pyxfer._measure.sampler import Progress
from pyxfer._upload.settings import RingSettings
from pyxfer._upload.tuning import ChosenSettings
from pyxfer.errors import CleanupWarning, PyxferError

KIB = 1024
CHOSEN = ChosenSettings(
    RingSettings(threads=2, chunk_bytes=32 << 10, slots=2, fill="plain", spin_us=0), "given", "by a test"
)
# Half of the time that each interrupted program takes without the interrupt.
SOON_S = 30.0
# No more than the trials that every row has.
BRIEF_S = 0.05


@dataclass
class Ended:
    """How a run ended, and its messages."""

    run: Any
    error: PyxferError | None
    warned: list[str]

    @property
    def texts(self) -> list[str]:
        """Every sentence that a user would read."""
        texts = [str(self.error or ""), *self.warned]
        if self.run is not None:
            rows = self.run.measurements
            texts += [self.run.failure or "", *(remark.text for remark in self.run.remarks)]
            texts += [reason or "" for row in rows for reason in (row.rate.reason, row.verified.reason)]
            texts += [remark.text for row in rows for remark in row.remarks]
            texts += [row.dma.reason or "" for row in rows]
        return texts

    def says(self, text: str) -> bool:
        return any(text in each for each in self.texts)


def run_into(**changes: Any) -> Ended:
    """Make a small run with every kind of copy; `changes` replace its settings."""
    settings: dict[str, Any] = {
        "size": (4 * KIB,),
        "direction": ("h2d", "both"),
        "memory": ("pageable", "registered", "pinned"),
        "precision": 1.0,
        "budget": 5.0,
        "seed": 1,
    }
    run, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run = ceiling("host", **{**settings, **changes})
        except PyxferError as raised:
            error = raised.with_traceback(None)
            error.__context__ = None
    assert {each.category for each in caught} <= {CleanupWarning}
    return Ended(run, error, [str(each.message) for each in caught])


def once_measuring(act: Callable[[], None]) -> Callable[[Progress], None]:
    """Call the function once, after the first trials."""
    done: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        if progress.phase == "measuring" and not done:
            done.append(progress)
            act()

    return on_progress


def interrupted(script: str, after_s: float, place: Path, orders: str = "", times: int = 1) -> list[str]:
    """The output of a program that was interrupted `after_s` seconds after its start; it may write to `place`."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(place / "run.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYXFER_HOSTRT": orders, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(after_s)
    begun = time.perf_counter()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    out, err = process.communicate(timeout=60)
    assert time.perf_counter() - begun < SOON_S
    assert process.returncode == 0, err
    return [line for line in out.splitlines() if line != "started"]

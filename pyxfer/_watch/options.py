"""The options of a watch, checked before anything is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pyxfer._document.machines import Device, Fact, Remark
from pyxfer._document.runs import Run
from pyxfer._machine import nvml
from pyxfer._machine.devices import find_device
from pyxfer.errors import UsageError
from pyxfer.native import HOST, Choice, choose
from pyxfer.units import MAX_DURATION_S, format_size, seconds_of, size_of, whole_of


@dataclass(frozen=True)
class Target:
    choice: Choice
    device: Device

    def used_bytes(self) -> Fact[int]:
        """Bytes of the device's memory in use by all processes. NVML is asked, which creates no CUDA context."""
        return nvml.shared().ask_device(self.device, "nvmlDeviceGetMemoryInfo").then(lambda memory: int(memory.used))

    def remarks(self) -> tuple[Remark, ...]:
        if not self.choice.reason:
            return ()
        return (Remark("no-gpu", f"{self.choice.reason} What other libraries do is not seen"),)


def find_target(device: int | str) -> Target:
    choice = choose(device)
    return Target(choice, find_device(choice.engine, 0 if device == HOST else device))


MEASURED = "measured"
MAX_STEPS = 2**63 - 1
# A record takes 64 bytes. This is room for four million, some minutes of a busy program.
DEFAULT_CAPACITY = "256MiB"
MIN_CAPACITY_BYTES = 1 << 20


@dataclass(frozen=True)
class WatchOptions:
    skip: int = 0
    steps: int | None = None
    seconds: float | None = None
    device: int | str = 0
    lines: bool = True
    capacity_bytes: int = 256 << 20


def make_options(
    skip: int,
    steps: int | None,
    duration: str | float | None,
    device: int | str,
    lines: bool,
    capacity: str | int,
    capacity_name: str = "capacity",
) -> WatchOptions:
    skip = whole_of(skip, "skip", 0, MAX_STEPS, "the steps to leave out first, such as 10")
    if steps is not None:
        steps = whole_of(steps, "steps", 1, MAX_STEPS, "the steps to watch, such as 20, or None for no end")
    seconds = None if duration is None else seconds_of(duration, "duration", MAX_DURATION_S)
    return WatchOptions(skip, steps, seconds, device, bool(lines), _checked_capacity(capacity, capacity_name))


def checked_ceilings(ceilings: Run | str | os.PathLike[str] | None) -> Run | str | None:
    """The `ceilings` argument; a saved run is read now, so that a wrong path is reported before the program runs."""
    if ceilings is None or ceilings == MEASURED or isinstance(ceilings, Run):
        return ceilings
    if isinstance(ceilings, (str, os.PathLike)):
        return Run.load(Path(ceilings))
    raise UsageError(
        f"ceilings {ceilings!r} is none of the choices: give {MEASURED!r}, a run, the path of a saved run, or None."
    )


def _checked_capacity(capacity: str | int, name: str) -> int:
    nbytes = size_of(capacity, name)
    if nbytes < MIN_CAPACITY_BYTES:
        raise UsageError(
            f"{name} {capacity!r} is too little memory for records: give {format_size(MIN_CAPACITY_BYTES)} or more, "
            f"for example {DEFAULT_CAPACITY!r}."
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if nbytes > memory:
        raise UsageError(
            f"{name} {capacity!r} is more memory than this machine has ({format_size(memory)}): give less, for example "
            f"{DEFAULT_CAPACITY!r}."
        )
    return nbytes

"""Where a watch takes place: the engine and the device, as they are found before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass

from pyxfer.machine import nvml
from pyxfer.machine.devices import find_device
from pyxfer.model import Device, Fact, Remark
from pyxfer.native import HOST, Choice, choose


@dataclass(frozen=True)
class Place:
    """An engine and one of its devices."""

    choice: Choice
    device: Device

    def used_bytes(self) -> Fact[int]:
        """How much of the device's memory is in use, everybody's; asked of NVML, which makes no context for it."""
        library = nvml.shared()
        answer = library.ask_device(self.device, "nvmlDeviceGetMemoryInfo")
        return Fact(reason=answer.reason) if answer.value is None else Fact(int(answer.value.used))

    def remarks(self) -> tuple[Remark, ...]:
        """Why it is not a GPU, where that was not asked for."""
        if not self.choice.reason:
            return ()
        return (Remark("no-gpu", f"{self.choice.reason} What other libraries do is not seen"),)


def find_place(device: int | str) -> Place:
    """The engine that serves a device.

    Raises:
        UsageError: no such device.

    """
    choice = choose(device)
    return Place(choice, find_device(choice.engine, 0 if device == HOST else device))

"""Values from NVIDIA's management library (NVML), as facts. Only this module uses its binding, and nothing here raises.

Devices are found by UUID, then by PCI address, and never by number: NVML counts all GPUs of the machine in bus order,
CUDA only the visible ones in another order.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyxfer._document.machines import HOST_MEMORY, Clocks, Device, Environment, Fact, LinkState
from pyxfer.errors import INSTALL

IDLE = "idle"
"""The driver's reason for an unused GPU. A run whose workers use the GPU reads it between them."""


def throttled_by(environment: Environment | None) -> tuple[str, ...]:
    """The throttle reasons without `idle`; empty if they are not known."""
    reasons = environment.throttle_reasons.value if environment is not None else None
    return tuple(reason for reason in reasons or () if reason != IDLE)


# The names that nvidia-smi gives the bits of the clocks' event reasons (nvml.h, nvmlClocksEventReasons).
_THROTTLE_REASONS = {
    0x001: IDLE,
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
}
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWEST_STATE = 15
_VGPU_GUEST = 2
_PROTECTED_PCIE = 1
_NODE_WORDS = 16
# NVML_VALUE_TYPE_*: which member of the union holds the answer.
_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}


def import_binding() -> Any:
    return importlib.import_module("pynvml")


class Nvml:
    """The opened library. If it cannot be opened, every answer is the reason for that."""

    def __init__(self, load: Callable[[], Any] = import_binding) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._opened: Fact[Any] | None = None
        self._handles: dict[tuple[str | None, str | None], Fact[Any]] = {}

    def ask(self, call: str, *arguments: object) -> Fact[Any]:
        binding = self._open()
        function = getattr(binding.value, call, None)
        if function is None:
            return Fact(reason=binding.reason or f"the installed nvidia-ml-py has no {call}")
        try:
            answer = function(*arguments)
        except Exception as error:  # noqa: BLE001 - no error of the binding may end a run
            return Fact(reason=f"{call}: {error}")
        return Fact(reason=f"{call} gave no answer") if answer is None else Fact(answer)

    def handle(self, device: Device) -> Fact[Any]:
        """NVML's handle of a device; of the whole GPU if the device is a MIG instance."""
        if device.runtime == "host":
            return Fact(reason=HOST_MEMORY)
        key = (device.uuid.value, device.pci.value)
        found = self._handles.get(key) or self._find(device)
        if found.value is not None:
            self._handles[key] = found
        return found

    def ask_device(self, device: Device, call: str, *arguments: object) -> Fact[Any]:
        """The answer to one call with the device's handle as its first argument."""
        return self.handle(device).and_then(lambda handle: self.ask(call, handle, *arguments))

    def ask_whether(self, device: Device, call: str, says_yes: Callable[[Any], bool]) -> Fact[bool]:
        """The answer to a yes-or-no question about a device. "Not Supported" means no."""
        answer = self.ask_device(device, call)
        if answer.value is None:
            return Fact(False) if is_unsupported(answer) else answer
        return Fact(says_yes(answer.value))

    def _find(self, device: Device) -> Fact[Any]:
        found: Fact[Any] = Fact(reason=f"CUDA gives no UUID and no PCI address for device {device.index}")
        for call, key in _keys(device):
            found = self.ask(call, key)
            if found.value is not None:
                break
        if found.value is not None and self.ask("nvmlDeviceIsMigDeviceHandle", found.value).value:
            return self.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", found.value)
        return found

    def _open(self) -> Fact[Any]:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_now()
            return self._opened

    def _open_now(self) -> Fact[Any]:
        try:
            binding = self._load()
            binding.nvmlInit()
        except ImportError:
            return Fact(reason=f"nvidia-ml-py is not installed ({INSTALL['pynvml']})")
        except Exception as error:  # noqa: BLE001 - as above
            return Fact(reason=f"NVML cannot be opened: {error}")
        return Fact(binding)


def field(nvml: Nvml, device: Device, number: int, scope: int = 0) -> Fact[int]:
    """One of NVML's numbered fields, such as a counter; `scope` is a link of the device for some of them."""
    answers = nvml.ask_device(device, "nvmlDeviceGetFieldValues", [(number, scope) if scope else number])
    if answers.value is None:
        return Fact(reason=answers.reason)
    answer = answers.value[0]
    if answer.nvmlReturn:
        why = text_of(nvml.ask("nvmlErrorString", answer.nvmlReturn).value)
        return Fact(reason=f"nvmlDeviceGetFieldValues {number}: {why or f'error {answer.nvmlReturn}'}")
    member = _MEMBERS.get(answer.valueType)
    if member is None:
        return Fact(reason=f"nvmlDeviceGetFieldValues {number} gave a value that is not an integer")
    return Fact(int(getattr(answer.value, member)))


def text_of(words: Any) -> str:
    return words.decode() if isinstance(words, bytes) else str(words or "")


def is_unsupported(answer: Fact[Any]) -> bool:
    return answer.reason is not None and answer.reason.endswith(": Not Supported")


def _keys(device: Device) -> Iterator[tuple[str, str]]:
    if device.uuid.value is not None:
        yield "nvmlDeviceGetHandleByUUID", device.uuid.value
        # CUDA gives the sixteen bytes without the prefix, so they may be of a GPU or of a MIG instance.
        yield "nvmlDeviceGetHandleByUUID", "MIG-" + device.uuid.value.partition("-")[2]
    if device.pci.value is not None:
        yield "nvmlDeviceGetHandleByPciBusId", device.pci.value


@functools.cache
def shared() -> Nvml:
    """The library of this process, opened at the first call."""
    return Nvml()


# A forked child inherits the lock, which another thread of the parent may have held.
os.register_at_fork(after_in_child=shared.cache_clear)


def driver_version(nvml: Nvml) -> Fact[str]:
    return nvml.ask("nvmlSystemGetDriverVersion")


def link_now(nvml: Nvml, device: Device) -> Fact[LinkState]:
    return _state(nvml, device, "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth")


def link_device_most(nvml: Nvml, device: Device) -> Fact[LinkState]:
    """The largest state that the device supports, in any slot."""
    return _state(nvml, device, "nvmlDeviceGetGpuMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth")


def link_system_most(nvml: Nvml, device: Device) -> Fact[LinkState]:
    """The largest state that the device and this system support together."""
    return _state(nvml, device, "nvmlDeviceGetMaxPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkWidth")


def _state(nvml: Nvml, device: Device, generation_call: str, width_call: str) -> Fact[LinkState]:
    generation, width = nvml.ask_device(device, generation_call), nvml.ask_device(device, width_call)
    if generation.value is None or width.value is None:
        return Fact(reason=generation.reason or width.reason)
    if not generation.value or not width.value:
        return Fact(reason=f"NVML gives generation {generation.value} and width {width.value}, which no link has")
    return Fact(LinkState(int(generation.value), int(width.value)))


def is_mig(nvml: Nvml, device: Device) -> Fact[bool]:
    return nvml.ask_whether(device, "nvmlDeviceGetMigMode", lambda modes: bool(modes[0]))


def is_vgpu(nvml: Nvml, device: Device) -> Fact[bool]:
    return nvml.ask_whether(device, "nvmlDeviceGetVirtualizationMode", lambda mode: bool(mode == _VGPU_GUEST))


def is_confidential(nvml: Nvml, device: Device) -> Fact[bool]:
    """Whether the link is encrypted: confidential computing, or its Protected PCIe mode."""
    state = nvml.handle(device).and_then(lambda _: nvml.ask("nvmlSystemGetConfComputeState"))
    if state.value is None:
        return Fact(False) if is_unsupported(state) else state
    return Fact(bool(state.value.ccFeature) or _is_protected_pcie(nvml))


def _is_protected_pcie(nvml: Nvml) -> bool:
    settings = nvml.ask("c_nvmlSystemConfComputeSettings_v1_t")
    code = settings.and_then(lambda given: nvml.ask("nvmlSystemGetConfComputeSettings", ctypes.byref(given)))
    return code.value == 0 and settings.then(lambda given: given.multiGpuMode == _PROTECTED_PCIE).value is True


def is_c2c(nvml: Nvml, device: Device) -> Fact[bool]:
    return nvml.ask_whether(device, "nvmlDeviceGetC2cModeInfoV1", lambda info: bool(info.isC2cEnabled))


def memory_node(nvml: Nvml, device: Device) -> Fact[int]:
    # Not nvmlDeviceGetNumaNodeId: if the GPU's own memory is a node, it returns that node.
    def nearest(words: Iterable[int]) -> Fact[int]:
        mask = sum(int(word) << 64 * i for i, word in enumerate(words))
        nodes = [i for i in range(mask.bit_length()) if mask >> i & 1]
        return Fact(nodes[0]) if len(nodes) == 1 else Fact(reason=f"NVML names {len(nodes)} NUMA nodes as nearest")

    return nvml.ask_device(device, "nvmlDeviceGetMemoryAffinity", _NODE_WORDS, 0).and_then(nearest)


def clocks(nvml: Nvml, device: Device) -> Fact[Clocks]:
    calls = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo")
    answers = [nvml.ask_device(device, call, which) for call in calls for which in (_SM_CLOCK, _MEMORY_CLOCK)]
    reason = next((answer.reason for answer in answers if answer.value is None), None)
    return Fact(reason=reason) if reason else Fact(Clocks(*(int(answer.value or 0) for answer in answers)))


def throttle_reasons(nvml: Nvml, device: Device) -> Fact[tuple[str, ...]]:
    """Why the clocks are below their maxima, as nvidia-smi names it; empty if they are not."""
    answer = nvml.ask_device(device, "nvmlDeviceGetCurrentClocksEventReasons")
    if answer.value is None:
        answer = nvml.ask_device(device, "nvmlDeviceGetCurrentClocksThrottleReasons")
    if answer.value is None:
        return answer
    bits = int(answer.value)
    known = tuple(words for bit, words in _THROTTLE_REASONS.items() if bits & bit)
    rest = bits & ~sum(_THROTTLE_REASONS)
    return Fact((*known, f"unnamed reason {rest:#x}") if rest else known)


def performance_state(nvml: Nvml, device: Device) -> Fact[str]:
    """The performance state, `P0` (fastest) to `P15`."""
    unknown: Fact[str] = Fact(reason="NVML does not know the performance state")
    state = nvml.ask_device(device, "nvmlDeviceGetPerformanceState")
    return state.and_then(lambda number: Fact(f"P{number}") if 0 <= int(number) <= _SLOWEST_STATE else unknown)


def temperature_c(nvml: Nvml, device: Device) -> Fact[int]:
    return nvml.ask_device(device, "nvmlDeviceGetTemperature", 0)


def persistence(nvml: Nvml, device: Device) -> Fact[bool]:
    return nvml.ask_device(device, "nvmlDeviceGetPersistenceMode").then(bool)


def process_ids(nvml: Nvml, device: Device) -> Fact[tuple[int, ...]]:
    """The ids of the processes that compute on the device, in the machine's first pid namespace."""
    processes = nvml.ask_device(device, "nvmlDeviceGetComputeRunningProcesses")
    return processes.then(lambda found: tuple(sorted({int(process.pid) for process in found})))

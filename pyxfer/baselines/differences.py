"""What differs between two machines, or two days of one, and whether it can cost bandwidth."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyxfer.model import Fact, LinkState, Placement, Run
from pyxfer.model_baselines import Difference

T = TypeVar("T")

_GROUP = re.compile(r"\bgroup \d+, ")
_GIB = 1024**3


def differences(a: Sequence[Run], b: Sequence[Run]) -> tuple[Difference, ...]:
    """All that is known of both sides and is not the same; what may cost bandwidth comes first."""
    found = []
    for what, matters, read in _ALL:
        one, other = _values(a, read), _values(b, read)
        if one and other and one != other:
            found.append(Difference(what, ", ".join(one), ", ".join(other), matters))
    return tuple(sorted(found, key=lambda difference: not difference.matters))


def link_state(run: Run) -> Fact[LinkState]:
    """The link as traffic has seen it, or else as it was before."""
    return run.link.under_load if run.link.under_load.value is not None else run.link.now


def most_pages_on(placement: Placement) -> int | None:
    """The NUMA node on which most of the host memory really lay; None where that is not known."""
    pages = placement.pages_by_node.value
    if pages:
        node = max(pages, key=lambda name: pages[name])
        return int(node) if node.isdecimal() and node.isascii() else None
    return placement.memory_node.value


def iommu_kind(run: Run) -> str | None:
    """Whether and how addresses are translated, without the number of the group, which a boot may change."""
    text = run.environment.iommu.value
    return None if text is None else _GROUP.sub("", text)


def throttle_reasons(run: Run) -> tuple[str, ...]:
    """Why the GPU's clocks were held back, before the run or after it."""
    environments = [each for each in (run.environment, run.environment_after) if each is not None]
    return tuple(dict.fromkeys(reason for each in environments for reason in each.throttle_reasons.value or ()))


def _values(runs: Sequence[Run], read: Callable[[Run], str | None]) -> tuple[str, ...]:
    """What the runs of one side have, each once; nothing where one of them does not know."""
    values = [read(run) for run in runs]
    return () if None in values else tuple(sorted({value for value in values if value is not None}))


def _fact(read: Callable[[Run], Fact[T]], say: Callable[[T], str] = str) -> Callable[[Run], str | None]:
    def value(run: Run) -> str | None:
        found = read(run).value
        return None if found is None else say(found)

    return value


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _state(state: LinkState) -> str:
    return f"PCIe {state.generation}.0 x{state.width}"


def _memory_node(run: Run) -> str | None:
    node = most_pages_on(run.placement)
    return None if node is None else str(node)


def _throttled(run: Run) -> str | None:
    if run.environment.throttle_reasons.value is None:
        return None
    return " and ".join(throttle_reasons(run)) or "none"


def _processes(numbers: tuple[int, ...]) -> str:
    return str(len(numbers)) if numbers else "none"


_ALL: tuple[tuple[str, bool, Callable[[Run], str | None]], ...] = (
    ("host", False, lambda run: run.environment.host),
    ("GPU", False, _fact(lambda run: run.device.uuid)),
    ("device", True, lambda run: run.device.name),
    ("slot (PCI address)", True, _fact(lambda run: run.device.pci)),
    ("link", True, _fact(link_state, _state)),
    ("most that the device can do", True, _fact(lambda run: run.link.device_most, _state)),
    ("most that the slot can do", True, _fact(lambda run: run.link.system_most, _state)),
    ("narrowest hop", True, _fact(lambda run: run.link.narrowest_hop, lambda hop: hop.pci)),
    ("payload, bytes", True, _fact(lambda run: run.link.max_payload_bytes)),
    ("read request, bytes", True, _fact(lambda run: run.link.max_read_request_bytes)),
    ("relaxed ordering", True, _fact(lambda run: run.link.relaxed_ordering, _yes_no)),
    ("NUMA node of the GPU", True, _fact(lambda run: run.placement.device_node)),
    ("NUMA node of the memory", True, _memory_node),
    ("processors used", True, _fact(lambda run: run.placement.cpus)),
    ("IOMMU", True, iommu_kind),
    ("transparent huge pages", True, _fact(lambda run: run.environment.transparent_huge_pages)),
    ("CPU governor", True, _fact(lambda run: run.environment.cpu_governor)),
    ("CPU", True, _fact(lambda run: run.environment.cpu_model)),
    ("processors usable", True, lambda run: str(run.environment.cpus_usable)),
    ("memory, GiB", True, _fact(lambda run: run.environment.memory_bytes, lambda size: str(round(size / _GIB)))),
    ("clocks held back", True, _throttled),
    ("performance state", False, _fact(lambda run: run.environment.performance_state)),
    ("other processes on the GPU", True, _fact(lambda run: run.environment.other_gpu_processes, _processes)),
    ("MIG", True, _fact(lambda run: run.device.mig, _yes_no)),
    ("vGPU", True, _fact(lambda run: run.device.vgpu, _yes_no)),
    ("confidential computing", True, _fact(lambda run: run.device.confidential, _yes_no)),
    ("virtual machine", True, _fact(lambda run: run.environment.virtual_machine)),
    ("persistence mode", True, _fact(lambda run: run.environment.persistence, _yes_no)),
    ("driver", True, _fact(lambda run: run.environment.driver)),
    ("CUDA of the runtime", True, lambda run: run.environment.cuda_runtime),
    ("kernel", True, lambda run: run.environment.kernel),
    ("pyxfer", True, lambda run: run.environment.pyxfer),
    ("container", False, _fact(lambda run: run.environment.container)),
    ("system", False, _fact(lambda run: run.environment.system)),
    ("NumPy", False, lambda run: run.environment.numpy),
    ("Python", False, lambda run: run.environment.python),
    ("precision asked for", False, lambda run: f"{run.parameters.precision * 100:g} %"),
    ("budget, s", False, lambda run: f"{run.parameters.budget_s:g}"),
)

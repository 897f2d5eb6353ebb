"""Facts of a host that may explain why it is slower than others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pyxfer._baseline.causes import facts_of
from pyxfer._document.machines import Fact, LinkState
from pyxfer._document.runs import Run
from pyxfer._machine.link import describe
from pyxfer._machine.sysfs import read_text

# Of one host alone, so that they have nothing in common with a loss; or known from elsewhere in the document.
_LEFT_OUT = {"slot (PCI address)", "link", "best link of the device", "best link of the slot", "narrowest hop"}
_OWN_PARAMETERS = {"BOOT_IMAGE", "initrd", "root", "resume", "ip", "rd.luks.uuid", "rootflags", "hostname", "ro", "rw"}
_MOST_PARAMETERS = 100
_LONGEST_PARAMETER = 100
_LONGEST = 200

_FILES = {
    "BIOS": "sys/class/dmi/id/bios_version",
    "BIOS date": "sys/class/dmi/id/bios_date",
    "board": "sys/class/dmi/id/board_name",
    "NUMA balancing": "proc/sys/kernel/numa_balancing",
    "processor turned down (no_turbo)": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "ASPM policy": "sys/module/pcie_aspm/parameters/policy",
    "deepest C-state": "sys/module/intel_idle/parameters/max_cstate",
    "microcode": "sys/devices/system/cpu/cpu0/microcode/version",
}


def read_facts(
    runs: Sequence[Run], root: Path = Path("/"), variables: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The known facts by name. A fact of several GPUs has each distinct value once, whichever GPU has it."""
    return {name: value[:_LONGEST] for name, value in _found(runs, root, variables)}


def _found(runs: Sequence[Run], root: Path, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    of_runs = [facts_of(run) for run in runs]
    for name in dict.fromkeys(name for facts in of_runs for name in facts):
        if name not in _LEFT_OUT:
            yield name, _joined([facts[name] for facts in of_runs if name in facts])
    links = {
        "link capability": [_described(run.link.system_most, run.link.device_most) for run in runs],
        "link state": [_described(run.link.under_load, run.link.now) for run in runs],
        "narrowest hop": [_narrowest(run) for run in runs],
    }
    for name, texts in links.items():
        if known := [text for text in texts if text is not None]:
            yield name, _joined(known)
    for name, file in _FILES.items():
        if (text := read_text(root / file).value) is not None:
            yield name, text
    yield from _kernel_parameters(root)
    if "CUDA_MPS_PIPE_DIRECTORY" in variables:
        yield "MPS", "on"


def _joined(values: Sequence[str]) -> str:
    return " and ".join(sorted(set(values)))


def _described(*states: Fact[LinkState]) -> str | None:
    return next((describe(state.value) for state in states if state.value is not None), None)


def _narrowest(run: Run) -> str | None:
    hop = run.link.narrowest_hop.value
    return None if hop is None else _described(hop.working)


def _kernel_parameters(root: Path) -> Iterator[tuple[str, str]]:
    """Each parameter of the kernel's command line by itself, because whole lines name disks and differ everywhere.

    What follows a `--` is for the first process, and addresses and long values are of one installation.
    """
    words = (read_text(root / "proc/cmdline").value or "").split()
    for word in words[: words.index("--") if "--" in words else _MOST_PARAMETERS]:
        name, _, value = word.partition("=")
        if name not in _OWN_PARAMETERS and "://" not in value and len(word) <= _LONGEST_PARAMETER:
            yield f"kernel parameter {name}", value or "given"

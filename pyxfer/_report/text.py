"""Text for a terminal: names from outside made harmless, and facts, devices, links and remarks as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pyxfer import units
from pyxfer._document import machines, runs
from pyxfer._document.machines import HOST_MEMORY, describe
from pyxfer._document.tunings import RingSetup
from pyxfer._document.watches import Watched

T = TypeVar("T")

Lines = list[tuple[str, str]]
"""Lines of a page, each a short label and its text."""

NANO = 1e9
_LONGEST = 300
# A reason may end with a remedy, which must not be cut off.
_LONGEST_REASON = 2000
# Whole CSI and OSC sequences, so that "\x1b[31m" does not leave "[31m".
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b."
)


def clean(text: str, longest: int = _LONGEST) -> str:
    """Text from outside as one line of printable characters, which cannot colour, move or hide anything."""
    if len(text) <= longest and text.isprintable():
        return " ".join(text.split())
    bare = _ESCAPES.sub("", text[: 4 * longest])
    line = "".join(character if character.isprintable() else " " for character in bare)
    line = " ".join(line.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def escaped(text: str, longest: int = _LONGEST) -> str:
    """A name with escapes for unprintable characters, so that different names look different."""
    shown = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:longest])
    line = "".join(shown)
    return line if len(line) <= longest and len(text) <= longest else f"{line[: longest - 3]}..."


def reason_text(reason: str | None) -> str:
    return clean(reason or "no reason given", longest=_LONGEST_REASON)


def capitalised(text: str) -> str:
    """With a capital first letter, unless the first word is a name such as `libcupti.so` or `cudaMalloc`."""
    first = text.partition(" ")[0].rstrip(",:;")
    return f"{text[:1].upper()}{text[1:]}" if first.isalpha() and first.islower() else text


def sentence(text: str) -> str:
    """Capitalised, and with a full stop unless it already ends with `.`, `!` or `?`."""
    begun = capitalised(text)
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def counted(count: int, one: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def fact_text(fact: machines.Fact[T], say: Callable[[T], str] = str) -> str:
    if fact.value is None:
        return f"unknown: {clean(fact.reason or 'no reason given')}"
    return clean(say(fact.value))


def moment_text(moment: str) -> str:
    """`2025-11-21 08:30:00`, in UTC as in documents."""
    return escaped(moment.replace("T", " ").removesuffix("+00:00").partition(".")[0], 32)


def format_latency(seconds: float) -> str:
    return f"{seconds * NANO:.1f} ns"


def rate_interval(rate: runs.Rate | None) -> str:
    if rate is None or rate.low_gbps is None or rate.high_gbps is None:
        return ""
    low = units.format_gbps(rate.low_gbps).removesuffix(" GB/s")
    return f"{low} to {units.format_gbps(rate.high_gbps)}"


def ring_text(ring: machines.Ring | RingSetup) -> str:
    slots = f"{ring.slots} slots of {units.format_size(ring.chunk_bytes)}"
    locked = f"{clean(ring.fill)}: {units.format_size(ring.pinned_bytes)} page-locked"
    return f"{counted(ring.threads, 'thread')}, {slots}, {locked}"


def titled(runtime: machines.Runtime, text: str) -> str:
    return f"{text} ({HOST_MEMORY})" if runtime == "host" else text


def memory_text(nbytes: float) -> str:
    return f"{nbytes / 1024**3:.1f} GiB"


def link_text(link: machines.Link) -> str:
    """`PCIe 5.0 x16, 256 B payload`: the state under load if it is known, else the state now."""
    if link.kind != "pcie":
        return clean(link.raw_peak_gbps.reason or link.kind)
    state = link.under_load if link.under_load.value is not None else link.now
    if state.value is None:
        return fact_text(link.now)
    words = [describe(state.value)]
    if link.max_payload_bytes.value is not None:
        words.append(f"{link.max_payload_bytes.value} B payload")
    if state is link.now:
        words.append("not seen under load")
    return ", ".join(words)


def device_text(device: machines.Device) -> str:
    """`NVIDIA H200, GPU 0, 0000:19:00.0`, or that it is host memory."""
    if device.runtime == "host":
        return HOST_MEMORY
    address = [] if device.pci.value is None else [clean(device.pci.value)]
    words = [clean(device.name), f"GPU {device.index}", *address]
    labels = {"MIG instance": device.mig, "vGPU": device.vgpu, "confidential computing": device.confidential}
    return ", ".join([*words, *(label for label, fact in labels.items() if fact.value)])


def place_text(run: runs.Run) -> str:
    """`NVIDIA H200, PCIe 5.0 x16, 256 B payload`, or that it is host memory."""
    return HOST_MEMORY if run.runtime == "host" else f"{clean(run.device.name)}, {link_text(run.link)}"


def machine_lines(document: runs.Run | Watched, more: str = "") -> Lines:
    """Device, link, host and versions; `more` is another one."""
    environment = document.environment
    versions = [f"pyxfer {clean(environment.pyxfer)}"]
    lines = [("device", device_text(document.device))]
    if document.runtime == "cuda":
        versions += [f"CUDA runtime {clean(environment.cuda_runtime)}", f"driver {fact_text(environment.driver)}"]
        lines.append(("link", link_text(document.link)))
    lines.append(("host", f"{clean(environment.host)}, {clean(environment.taken_at)}"))
    lines.append(("with", ", ".join([*versions, *([more] if more else [])])))
    return lines


def remark_text(remark: machines.Remark) -> str:
    text = clean(remark.text)
    if remark.fix is None:
        return text
    fix = clean(remark.fix)
    return f"{text.rstrip('.')}{f'; try {fix}' if fix.startswith('-') else f'. {fix[:1].upper()}{fix[1:]}'}"


def remark_lines(remarks: Iterable[machines.Remark], label: str = "-") -> Lines:
    return [(label, remark_text(remark)) for remark in remarks]


def environment_lines(environment: machines.Environment) -> Lines:
    of_the_gpu: list[tuple[str, machines.Fact[Any], Callable[[Any], str]]] = [
        ("driver's CUDA", environment.driver_cuda, str),
        ("CUDA_VISIBLE_DEVICES", environment.visible_devices, str),
        ("GPU clocks", environment.gpu_clocks, _clocks_text),
        ("throttled by", environment.throttle_reasons, _list_text),
        ("performance state", environment.performance_state, str),
        ("GPU temperature", environment.temperature_c, lambda c: f"{c} C"),
        ("persistence", environment.persistence, units.yes_no),
        ("other GPU processes", environment.other_gpu_processes, _list_text),
    ]
    return [
        ("host", f"{clean(environment.host)}, {clean(environment.taken_at)}"),
        ("pyxfer", clean(environment.pyxfer)),
        ("Python", clean(environment.python)),
        ("NumPy", clean(environment.numpy)),
        ("CUDA runtime", clean(environment.cuda_runtime)),
        ("driver", fact_text(environment.driver)),
        *((name, fact_text(fact, say)) for name, fact, say in of_the_gpu if fact.reason != HOST_MEMORY),
        ("CPU", f"{fact_text(environment.cpu_model)}, {environment.cpus_usable} usable"),
        ("CPU governor", fact_text(environment.cpu_governor)),
        ("memory", fact_text(environment.memory_bytes, memory_text)),
        ("memory available", fact_text(environment.memory_available_bytes, memory_text)),
        ("transparent huge pages", fact_text(environment.transparent_huge_pages)),
        ("IOMMU", fact_text(environment.iommu)),
        ("kernel", clean(environment.kernel)),
        ("system", fact_text(environment.system)),
        ("container", fact_text(environment.container)),
        ("virtual machine", fact_text(environment.virtual_machine)),
    ]


def _clocks_text(clocks: machines.Clocks) -> str:
    return (
        f"SM {clocks.sm_mhz} MHz of at most {clocks.sm_most_mhz}, "
        f"memory {clocks.memory_mhz} MHz of at most {clocks.memory_most_mhz}"
    )


def _list_text(items: Sequence[object]) -> str:
    return ", ".join(map(str, items)) or "none"

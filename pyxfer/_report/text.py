"""Text for a terminal: names from outside made harmless, and facts, devices, links and remarks as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from pyxfer._document import runs

T = TypeVar("T")

Lines = list[tuple[str, str]]
"""Lines of a page, each a short label and its text."""

HOST_MEMORY = "host memory, not a PCIe link"
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
    """A reason with its remedy, for the end of a line."""
    return clean(reason or "no reason given", longest=_LONGEST_REASON)


def capitalised(text: str) -> str:
    """With a capital first letter, unless the first word is a name such as `libcupti.so` or `cudaMalloc`."""
    first = text.partition(" ")[0].rstrip(",:;")
    return f"{text[:1].upper()}{text[1:]}" if first.isalpha() and first.islower() else text


def sentence(text: str) -> str:
    """Capitalised, and with a full stop unless it already ends with `.`, `!` or `?`."""
    begun = capitalised(text)
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def fact_text(fact: runs.Fact[T], say: Callable[[T], str] = str) -> str:
    """The value, or `unknown:` and the reason."""
    if fact.value is None:
        return f"unknown: {clean(fact.reason or 'no reason given')}"
    return clean(say(fact.value))


def memory_text(nbytes: float) -> str:
    return f"{nbytes / 1024**3:.1f} GiB"


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


def link_state_text(state: runs.LinkState) -> str:
    """`PCIe 5.0 x16`."""
    return f"PCIe {state.generation}.0 x{state.width}"


def link_text(link: runs.Link) -> str:
    """`PCIe 5.0 x16, 256 B payload`: the state under load if it is known, else the state now."""
    if link.kind != "pcie":
        return clean(link.raw_peak_gbps.reason or link.kind)
    state = link.under_load if link.under_load.value is not None else link.now
    if state.value is None:
        return fact_text(link.now)
    words = [link_state_text(state.value)]
    if link.max_payload_bytes.value is not None:
        words.append(f"{link.max_payload_bytes.value} B payload")
    if state is link.now:
        words.append("not seen under load")
    return ", ".join(words)


def device_text(device: runs.Device) -> str:
    """`NVIDIA H200, GPU 0, 0000:19:00.0`, or that it is host memory."""
    if device.runtime == "host":
        return HOST_MEMORY
    words = [clean(device.name), f"GPU {device.index}"]
    if device.pci.value is not None:
        words.append(clean(device.pci.value))
    labels = {"MIG instance": device.mig, "vGPU": device.vgpu, "confidential computing": device.confidential}
    return ", ".join([*words, *(label for label, fact in labels.items() if fact.value)])


def remark_text(remark: runs.Remark) -> str:
    """The remark and its fix."""
    text = clean(remark.text)
    if remark.fix is None:
        return text
    fix = clean(remark.fix)
    if fix.startswith("-"):
        return f"{text.rstrip('.')}; try {fix}"
    return f"{text.rstrip('.')}. {fix[:1].upper()}{fix[1:]}"

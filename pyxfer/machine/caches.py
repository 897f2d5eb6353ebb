"""How large the processor's caches are."""

from __future__ import annotations

from pathlib import Path

from pyxfer.errors import UsageError
from pyxfer.machine.kernel_files import read_text
from pyxfer.model import Fact
from pyxfer.units import parse_size

_CACHES = "sys/devices/system/cpu/cpu0/cache"


def last_level_bytes(root: Path = Path("/")) -> Fact[int]:
    """The size of the largest cache that the first processor sees."""
    sizes = [_size(path) for path in sorted((root / _CACHES).glob("index*/size"))]
    known = [size for size in sizes if size is not None]
    return Fact(max(known)) if known else Fact(reason="the kernel shows no processor caches")


def _size(path: Path) -> int | None:
    text = read_text(path).value
    if text is None:
        return None
    try:
        return parse_size(f"{text.strip()}iB" if text.strip()[-1:] in "KMG" else text)
    except UsageError:
        return None

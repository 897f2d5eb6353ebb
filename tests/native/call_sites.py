"""The CUDA calls in the engine's sources that this build compiles."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("csrc/cuda", "csrc/copy", "csrc/ring", "csrc/links")

_CALL = re.compile(r"\b(cu(?:da)?[A-Z]\w*)\(")
_CHECKED = re.compile(r"PYXFER_TRY\(\s*(?:driver\(\)\.)?(cu\w+)\(")
_CHECKED_STATUS = re.compile(r'PYXFER_TRY_STATUS\(\s*"(cu\w+)",')
_MACRO = re.compile(r"PYXFER_TRY(?:_STATUS)?\(")
_PROCESSOR = re.compile(r"#\s*ifdef __(\w+)__$")
_CONDITION = re.compile(r"#\s*if CUDART_VERSION (>=|<) (\d+)")


@dataclass(frozen=True, order=True)
class Site:
    """A call whose failure becomes an error, and the place that the error names."""

    call: str
    where: str


@dataclass(frozen=True, order=True)
class Unchecked:
    """A call whose failure is not an error."""

    call: str
    file: str


def checked_sites(runtime_version: int) -> set[Site]:
    """All calls in error macros; the error has the line on which the macro begins."""
    return {
        Site(found[1], f"{file}:{text.count(chr(10), 0, found.start()) + 1}")
        for file, text in _compiled(runtime_version)
        for pattern in (_CHECKED, _CHECKED_STATUS)
        for found in pattern.finditer(text)
    }


def unchecked_calls(runtime_version: int) -> set[Unchecked]:
    """All calls outside of error macros, without those whose status a macro of the same file checks."""
    return {
        Unchecked(call, file)
        for file, text in _compiled(runtime_version)
        for call in _CALL.findall(_without_strings(_CHECKED.sub("", text)))
        if call not in _CHECKED_STATUS.findall(text)
    }


def macro_uses(runtime_version: int) -> int:
    """The number of uses of the error macros."""
    return sum(len(_MACRO.findall(text)) for _, text in _compiled(runtime_version))


def _compiled(runtime_version: int) -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.[ch]pp")):
            yield str(path.relative_to(ROOT)), _kept(path.read_text(), runtime_version)


def _kept(text: str, runtime_version: int) -> str:
    """The text with empty lines for comments, directives, and code of other CUDA versions."""
    branches: list[bool] = []
    kept = []
    for line in text.splitlines():
        bare = line.partition("//")[0]
        if bare.startswith("#if"):
            branches.append(_holds(bare, runtime_version))
        elif bare.startswith("#else"):
            branches[-1] = not branches[-1]
        elif bare.startswith("#endif"):
            branches.pop()
        kept.append(bare if all(branches) and not bare.startswith("#") else "")
    return "\n".join(kept)


def _holds(condition: str, runtime_version: int) -> bool:
    if processor := _PROCESSOR.match(condition):
        return platform.machine() == processor[1]
    found = _CONDITION.match(condition)
    assert found, f"unknown condition: {condition}"
    least = int(found[2])
    return runtime_version >= least if found[1] == ">=" else runtime_version < least


def _without_strings(text: str) -> str:
    return re.sub(r'"[^"\n]*"', '""', text)

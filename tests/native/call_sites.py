"""The CUDA calls in `csrc/cuda` and `csrc/copy`, read from the sources as the preprocessor of this build sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("csrc/cuda", "csrc/copy")

_CALL = re.compile(r"\b(cu(?:da)?[A-Z]\w*)\(")
_CHECKED = re.compile(r"PYXFER_TRY\((?:driver\(\)\.)?(cu\w+)\(")
_CHECKED_STATUS = re.compile(r'PYXFER_TRY_STATUS\("(cu\w+)",')
_CONDITION = re.compile(r"#\s*if CUDART_VERSION (>=|<) (\d+)")


@dataclass(frozen=True, order=True)
class Site:
    """A call whose failure the source turns into an error, and the place that the error names."""

    call: str
    where: str


@dataclass(frozen=True, order=True)
class Unchecked:
    """A call whose failure the source takes for an answer."""

    call: str
    file: str


def checked_sites(runtime_version: int) -> set[Site]:
    """Every call in an error macro."""
    return {
        Site(call, f"{file}:{number}")
        for file, number, line in _compiled_lines(runtime_version)
        for call in [*_CHECKED.findall(line), *_CHECKED_STATUS.findall(line)]
    }


def unchecked_calls(runtime_version: int) -> set[Unchecked]:
    """Every call in no error macro, except where a macro names the call for the status that it gave."""
    status_of = {
        (file, call) for file, _, line in _compiled_lines(runtime_version) for call in _CHECKED_STATUS.findall(line)
    }
    return {
        Unchecked(call, file)
        for file, _, line in _compiled_lines(runtime_version)
        for call in _CALL.findall(_without_text(_CHECKED.sub("", line)))
        if (file, call) not in status_of
    }


def macro_uses(runtime_version: int) -> int:
    """How often the error macros are used, whatever stands in them."""
    lines = (line for _, _, line in _compiled_lines(runtime_version))
    return sum(len(re.findall(r"PYXFER_TRY(?:_STATUS)?\(", line)) for line in lines)


def _compiled_lines(runtime_version: int) -> Iterator[tuple[str, int, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).glob("*.[ch]pp")):
            file = str(path.relative_to(ROOT))
            yield from ((file, number, line) for number, line in _kept(path.read_text(), runtime_version))


def _kept(text: str, runtime_version: int) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, comments and what another CUDA version would compile left out."""
    branches: list[bool] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.partition("//")[0]
        if bare.startswith("#if"):
            branches.append(_holds(bare, runtime_version))
        elif bare.startswith("#else"):
            branches[-1] = not branches[-1]
        elif bare.startswith("#endif"):
            branches.pop()
        elif all(branches) and not bare.startswith("#"):
            yield number, bare


def _holds(condition: str, runtime_version: int) -> bool:
    found = _CONDITION.match(condition)
    assert found, f"cannot tell whether this is compiled: {condition}"
    least = int(found[2])
    return runtime_version >= least if found[1] == ">=" else runtime_version < least


def _without_text(line: str) -> str:
    return re.sub(r'"[^"]*"', '""', line)

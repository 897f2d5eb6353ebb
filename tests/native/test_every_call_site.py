"""Every CUDA call of the engine fails once: it raises a typed error, nothing stays allocated, nothing hangs.

The calls are found in the sources. A new call needs a scenario, or a test here fails.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from native.scenarios import SCENARIOS, register_read_only_pages

from pyxfer.errors import CudaError
from pyxfer.native import load
from pyxfer.native._host import testing

if TYPE_CHECKING:
    from pyxfer.native import Engine


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


INVALID_VALUE = 1
# A scenario makes some calls thousands of times. Failures after this many show nothing new.
MAX_FAILURES = 40
# After this failure the engine tries again for read-only memory.
ANSWERED = {(register_read_only_pages, "cudaHostRegister", 1)}
# A fault would wait for a second behind a closed gate, and forever in the driver.
SOON_S = 30.0
_NOTED = re.compile(r"(cu\w+) failed with .*(csrc/[\w/.]+:\d+)")

# In a new process, because the driver's functions are looked up once. After a failure they are looked up again.
FIRST_USE = """
import json
from pyxfer.errors import CudaError
from pyxfer.native import load
engine = load("host")
for nth in range(2, 100):
    try:
        engine.memory_info(0)
    except CudaError as error:
        print(json.dumps([error.call, error.where, str(error)]))
    else:
        break
    engine.testing.reset()
    engine.testing.fail("cudaGetDriverEntryPointByVersion", nth, 1)
"""


@dataclass(frozen=True)
class Outcome:
    """The result of one failure."""

    scenario: str
    call: str
    nth: int
    error: CudaError | None
    notes: tuple[str, ...]
    left: tuple[tuple[str, int, int], ...]
    seconds: float
    reached: bool

    @property
    def sites(self) -> set[Site]:
        """The places that the error and the notes name."""
        noted = {Site(call, where) for note in self.notes for call, where in _NOTED.findall(note)}
        return noted | ({Site(self.error.call, self.error.where)} if self.error else set())


def counted(engine: Engine, scenario: Callable[[Engine], None]) -> dict[str, int]:
    """The number of times that a scenario makes each call without failures."""
    testing.reset()
    scenario(engine)
    assert engine.take_cleanup_failures() == []
    return testing.calls()


def failed(engine: Engine, scenario: Callable[[Engine], None], call: str, nth: int) -> Outcome:
    """One run of a scenario in which one call fails."""
    testing.reset()
    testing.fail(call, nth, INVALID_VALUE)
    begun = time.perf_counter()
    error = None
    try:
        scenario(engine)
    except CudaError as caught:
        error = caught.with_traceback(None)  # the traceback would keep the scenario's objects
        error.__context__ = None
    seconds = time.perf_counter() - begun
    notes, left = engine.take_cleanup_failures(), testing.allocated()
    reached = testing.calls().get(call, 0) >= nth
    return Outcome(scenario.__name__, call, nth, error, tuple(notes), tuple(left), seconds, reached)


@pytest.fixture(scope="module")
def sites() -> set[Site]:
    return checked_sites(load("host").RUNTIME_VERSION)


@pytest.fixture(scope="module")
def outcomes(sites: set[Site]) -> list[Outcome]:
    engine = load("host")
    engine.memory_info(0)  # looks up the driver's functions, which is done once
    found = [
        failed(engine, scenario, call, nth)
        for scenario in SCENARIOS
        for call, count in counted(engine, scenario).items()
        if call in {site.call for site in sites}
        for nth in range(1, min(count, MAX_FAILURES) + 1)
        if (scenario, call, nth) not in ANSWERED
    ]
    testing.reset()
    return [outcome for outcome in found if outcome.reached]  # the number of event queries varies


@pytest.fixture(scope="module")
def first_uses() -> list[tuple[str, str, str]]:
    script = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYXFER_HOSTRT": f"fail=cudaGetDriverEntryPointByVersion:1:{INVALID_VALUE}"},
    )
    return [tuple(json.loads(line)) for line in script.stdout.splitlines()]


@pytest.mark.slow
def test_every_failed_call_is_raised_or_noted(outcomes: list[Outcome]) -> None:
    assert [outcome for outcome in outcomes if outcome.call not in {site.call for site in outcome.sites}] == []


def test_the_error_has_the_code_and_a_sentence(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            assert type(outcome.error) is CudaError
            assert outcome.error.code == INVALID_VALUE
            assert outcome.error.name in {"cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE"}
            assert str(outcome.error).startswith(f"{outcome.call} failed with {outcome.error.name} (1): ")


def test_nothing_stays_allocated(outcomes: list[Outcome]) -> None:
    assert [outcome for outcome in outcomes if outcome.left] == []


def test_nothing_hangs(outcomes: list[Outcome]) -> None:
    assert [outcome for outcome in outcomes if outcome.seconds > SOON_S] == []


def test_a_failed_look_up_of_the_driver_is_repeated(
    first_uses: list[tuple[str, str, str]],
) -> None:
    assert len(first_uses) > 10
    for call, where, text in first_uses:
        assert call == "cudaGetDriverEntryPointByVersion"
        assert where.startswith("csrc/cuda/driver.cpp:")
        assert "cudaErrorInvalidValue (1)" in text


def test_every_call_site_has_failed(
    sites: set[Site], outcomes: list[Outcome], first_uses: list[tuple[str, str, str]]
) -> None:
    seen = {Site(call, where) for call, where, _ in first_uses}.union(*(outcome.sites for outcome in outcomes))
    assert seen - sites == set(), "an error names a line where the sources have no such call: build the engine again"
    assert sites - seen == set(), "no scenario makes these calls: add one that does"


@pytest.mark.parametrize("runtime_version", [12090, 13000])
def test_every_use_of_the_error_macros_is_parsed(runtime_version: int) -> None:
    assert len(checked_sites(runtime_version)) == macro_uses(runtime_version)


def test_calls_without_an_error_macro_are_known(sites: set[Site]) -> None:
    """A comment names the test of each one. A new call belongs into a macro, or here with a test."""
    assert unchecked_calls(load("host").RUNTIME_VERSION) == {
        Unchecked("cuGetErrorName", "csrc/cuda/driver.cpp"),  # test_native_errors: the text without a name
        Unchecked("cuGetErrorString", "csrc/cuda/driver.cpp"),
        Unchecked("cudaDriverGetVersion", "csrc/cuda/error.cpp"),  # test_native_errors: the hint without a version
        Unchecked("cudaGetDriverEntryPointByVersion", "csrc/cuda/driver.cpp"),  # test_native_errors: it finds none
        Unchecked("cudaGetErrorName", "csrc/cuda/error.cpp"),  # these three cannot fail
        Unchecked("cudaGetErrorString", "csrc/cuda/error.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/error.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/device.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/driver.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/memory.cpp"),
        Unchecked("cudaGetLastError", "csrc/ring/chunk_mover.cpp"),
    }

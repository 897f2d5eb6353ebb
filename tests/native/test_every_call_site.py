"""Every CUDA call of the engine fails once: the error reaches Python typed, nothing stays allocated, nothing hangs.

The calls are found in the sources, so a new one is made by a scenario here or the last test fails.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from native.call_sites import Site, Unchecked, checked_sites, macro_uses, unchecked_calls
from native.scenarios import SCENARIOS, Host

from pyxfer.errors import CudaError
from pyxfer.native import load

INVALID_VALUE = 1
# A scenario makes most calls a few times and some thousands of times; beyond this a failure meets nothing new.
MOST_FAILURES = 40
# Behind a closed gate a mistake would wait a second, and in the driver for ever.
SOON_S = 3.0

# In a new process, so that the driver's functions are looked up anew; after a failure they are looked up again.
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
    """What came of one failure."""

    scenario: str
    call: str
    nth: int
    error: CudaError | None
    notes: tuple[str, ...]
    left: tuple[tuple[str, int, int], ...]
    seconds: float

    @property
    def where(self) -> str | None:
        """The place that the error names."""
        return self.error.where if self.error else None


def counted(engine: Host, scenario: Callable[[Host], None]) -> dict[str, int]:
    """How often a scenario makes each call when nothing fails."""
    engine.testing.reset()
    scenario(engine)
    assert engine.take_cleanup_failures() == []
    made: dict[str, int] = engine.testing.calls()
    return made


def failed(engine: Host, scenario: Callable[[Host], None], call: str, nth: int) -> Outcome:
    """One run of a scenario in which one call fails."""
    engine.testing.reset()
    engine.testing.fail(call, nth, INVALID_VALUE)
    begun = time.perf_counter()
    error = None
    try:
        scenario(engine)
    except CudaError as caught:
        error = caught.with_traceback(None)  # which would keep what the scenario held
        error.__context__ = None
    seconds = time.perf_counter() - begun
    gc.collect()
    notes, left = engine.take_cleanup_failures(), engine.testing.allocated()
    return Outcome(scenario.__name__, call, nth, error, tuple(notes), tuple(left), seconds)


@pytest.fixture(scope="module")
def sites() -> set[Site]:
    return checked_sites(load("host").RUNTIME_VERSION)


@pytest.fixture(scope="module")
def outcomes(sites: set[Site]) -> list[Outcome]:
    engine = load("host")
    found = [
        failed(engine, scenario, call, nth)
        for scenario in SCENARIOS
        for call, count in counted(engine, scenario).items()
        if call in {site.call for site in sites}
        for nth in range(1, min(count, MOST_FAILURES) + 1)
    ]
    engine.testing.reset()
    return found


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


def test_a_failed_call_raises_an_error_that_names_it_or_is_noted_when_it_was_a_release(outcomes: list[Outcome]) -> None:
    silent = [
        outcome
        for outcome in outcomes
        if not (outcome.error and outcome.error.call == outcome.call)
        and not any(note.startswith(f"{outcome.call} failed with ") for note in outcome.notes)
    ]
    assert silent == []


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


def test_a_failure_while_the_driver_is_first_looked_up_says_so_and_the_next_use_tries_again(
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
    seen = {Site(outcome.call, outcome.where) for outcome in outcomes if outcome.where}
    seen |= {Site(call, where) for call, where, _ in first_uses}
    assert seen <= sites, "an error names a line where the sources have no such call: build the engine again"
    # A note has no place; where the call has one site in all, that is the one.
    noted = {note.partition(" ")[0] for outcome in outcomes for note in outcome.notes}
    alone = {call for call, count in Counter(site.call for site in sites).items() if count == 1}
    assert {site for site in sites - seen if site.call not in noted & alone} == set()


@pytest.mark.parametrize("runtime_version", [12090, 13000])
def test_every_use_of_the_error_macros_was_understood(runtime_version: int) -> None:
    assert len(checked_sites(runtime_version)) == macro_uses(runtime_version)


def test_a_call_without_an_error_macro_is_one_whose_failure_is_an_answer(sites: set[Site]) -> None:
    """The tests beside each say which answer; a new one belongs into a macro, or here with a test of its own."""
    assert unchecked_calls(load("host").RUNTIME_VERSION) == {
        Unchecked("cuGetErrorName", "csrc/cuda/driver.cpp"),  # test_native_errors: the text without a name
        Unchecked("cuGetErrorString", "csrc/cuda/driver.cpp"),
        Unchecked("cudaDriverGetVersion", "csrc/cuda/hints.cpp"),  # test_native_errors: the hint without a version
        Unchecked("cudaGetDriverEntryPointByVersion", "csrc/cuda/driver.cpp"),  # test_device: driver_has is False
        Unchecked("cudaGetErrorName", "csrc/cuda/error.cpp"),  # these three cannot fail
        Unchecked("cudaGetErrorString", "csrc/cuda/error.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/error.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/device.cpp"),
        Unchecked("cudaGetLastError", "csrc/cuda/driver.cpp"),
    }

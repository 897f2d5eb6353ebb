"""How a run chooses the settings of its ring: once, in the calling thread, and only for staged copies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ceiling.rings import CHOSEN

from pyxfer import Run, ceiling
from pyxfer._ceiling import resources as module
from pyxfer._ceiling.resources import RunResources
from pyxfer._upload.tuning import ChosenSettings
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError
from pyxfer.native import Engine
from pyxfer.native._host import testing

KIB = 1024
REFUSED = CudaError(1, "cudaErrorInvalidValue", "cudaMemcpyAsync", "here", "invalid argument", "")


class Choosing:
    """Replaces the search for settings; raises the given error, and counts its calls."""

    def __init__(self, patch: pytest.MonkeyPatch, made: ChosenSettings | BaseException) -> None:
        self.made = made
        self.threads: list[threading.Thread] = []
        patch.setattr(module, "settings_for", self)

    def __call__(self, engine: Engine, device: int) -> ChosenSettings:
        self.threads.append(threading.current_thread())
        if isinstance(self.made, BaseException):
            raise self.made
        return self.made


def run(**changes: Any) -> Run:
    asked: dict[str, Any] = {"modes": ("memcpy", "staged"), "memories": ("pageable",), "directions": ("h2d", "d2h")}
    sizes = (4 * KIB, 64 * KIB)
    return ceiling("host", **{**asked, **changes}, sizes=sizes, precision=1.0, budget_s=2.0, seed=1, trace=False)


@pytest.fixture
def resources(engine: Engine) -> Iterator[RunResources]:
    made = RunResources(engine, 0, 30.0)
    yield made
    assert made.close() == []
    assert testing.allocated() == []


def test_settings_are_chosen_once_in_the_calling_thread(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing = Choosing(monkeypatch, ChosenSettings(CHOSEN.settings, "cached", "cached on a day"))
    ring = run().ring.value
    assert choosing.threads == [threading.current_thread()]
    assert ring is not None
    assert (ring.threads, ring.source, ring.reason) == (2, "cached", "cached on a day")


@pytest.mark.parametrize("changes", [{"modes": ("memcpy",)}, {"directions": ("both",)}])
def test_without_staged_copies_no_settings_are_chosen(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    choosing = Choosing(monkeypatch, CHOSEN)
    run(**changes)
    assert choosing.threads == []


def test_problems_of_choosing_settings_are_remarks_of_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    Choosing(monkeypatch, ChosenSettings(CHOSEN.settings, "tuned", "tuned", None, ("the file is read-only",)))
    assert [(each.code, each.text) for each in run().remarks] == [("ring", "the file is read-only")]


def test_ctrl_c_while_settings_are_chosen_ends_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    Choosing(monkeypatch, KeyboardInterrupt())
    saved: list[Run] = []
    ended = run(save_to=saved.append)
    assert ended.ended == "interrupted"
    assert saved == [ended]
    assert testing.allocated() == []


def test_an_error_of_the_search_affects_only_staged_rows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    choosing = Choosing(monkeypatch, REFUSED)
    measured = run()
    assert measured.ended == "complete"
    staged = [each for each in measured.measurements if each.mode == "staged"]
    assert {each.rate.reason for each in staged} == {str(REFUSED)} == {measured.ring.reason}
    assert all(each.gbps for each in measured.measurements if each.mode == "memcpy")
    assert len(choosing.threads) == 1


@pytest.mark.parametrize("kind", [CudaUnavailableError, DeviceLostError])
def test_a_device_lost_during_the_search_ends_the_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: type[CudaError]
) -> None:
    Choosing(monkeypatch, kind(719, "cudaErrorLaunchFailure", "cudaMemcpyAsync", "here", "failed", ""))
    with pytest.raises(kind):
        run()
    assert testing.allocated() == []


def test_a_run_creates_and_frees_one_ring(resources: RunResources, monkeypatch: pytest.MonkeyPatch) -> None:
    Choosing(monkeypatch, CHOSEN)
    assert resources.staged_copier() is resources.staged_copier()
    assert resources.ring.value == resources.staged_copier().made
    assert resources.close() == []
    assert testing.allocated() == []


def test_a_failed_ring_is_not_created_again(resources: RunResources, monkeypatch: pytest.MonkeyPatch) -> None:
    Choosing(monkeypatch, CHOSEN)
    testing.fail("cudaHostAlloc", 1, 2)
    reasons = []
    for _ in range(3):
        with pytest.raises(MeasurementError) as refused:
            resources.staged_copier()
        reasons.append(str(refused.value))
    assert len(set(reasons)) == 1
    assert reasons[0].startswith("no ring, and PYXFER_RING=slots=16 asks for a smaller one: cudaHostAlloc ")
    assert testing.calls()["cudaHostAlloc"] == 1

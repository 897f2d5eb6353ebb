"""The tracer's libraries, its records of single trials, and the number of traced trials of a row."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pyxfer._document.machines import Fact
from pyxfer._document.runs import Tracing
from pyxfer._trace import libraries, traced_trials
from pyxfer._trace.collector import Collector, TrialRecorder
from pyxfer._trace.libraries import SONAMES, candidates
from pyxfer._trace.records import RECORD, CopyKind, Kind, MemoryKind
from pyxfer._trace.traced_trials import Candidate, tracing
from pyxfer.errors import CancelledError, CudaError, MeasurementError
from pyxfer.native import Engine
from pyxfer.native._host import testing

NBYTES = 1 << 20


def copy_once(engine: Engine, memory: str = "pinned") -> None:
    with (
        closing(engine.HostBuffer(NBYTES, memory)) as host,
        closing(engine.DeviceBuffer(NBYTES)) as device,
        closing(engine.Copier(0)) as copier,
    ):
        copier.drained(engine.Lane("h2d", host.address, device.address, NBYTES, NBYTES, 1), 0)


@pytest.mark.parametrize(("memory", "kind"), [("pinned", MemoryKind.PINNED), ("pageable", MemoryKind.PAGEABLE)])
def test_a_copy_is_recorded_with_times_on_the_hosts_clock(engine: Engine, memory: str, kind: MemoryKind) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        collector.take()
        begun = time.perf_counter_ns()
        copy_once(engine, memory)
        ended = time.perf_counter_ns()
        capture = collector.take()
    assert capture.records.dtype == RECORD
    (copy,) = capture.of(Kind.COPY)
    ends = copy["way"], copy["source"], copy["target"]
    assert (copy["nbytes"], *ends) == (NBYTES, CopyKind.H2D, kind, MemoryKind.DEVICE)
    slack = capture.clock.error_ns
    assert begun - slack <= copy["start_ns"] < copy["end_ns"] <= ended + slack
    calls = [call for call in capture.of(Kind.CALL) if call["correlation"] == copy["correlation"]]
    assert {capture.name(call) for call in calls} >= {"cudaMemcpy"}
    assert not any(capture.dropped.values())


def test_a_collector_stops_when_its_block_raises(engine: Engine) -> None:
    with closing(Collector(engine)) as collector:
        with pytest.raises(ZeroDivisionError), collector.running():
            raise ZeroDivisionError
        copy_once(engine)
        assert len(collector.take().of(Kind.COPY)) == 0
        with collector.running():
            copy_once(engine)
            assert len(collector.take().of(Kind.COPY)) == 1


def test_without_a_collector_there_is_a_reason(engine: Engine) -> None:
    testing.other_subscriber(True)
    with tracing(engine, 0) as (recorder, found):
        assert recorder is None
        assert (found.reason or "").startswith("trace: unavailable: ")
        assert "another profiler" in (found.reason or "")


def test_tracing_can_be_repeated(engine: Engine) -> None:
    for _ in range(2):
        with tracing(engine, 0) as (recorder, found):
            assert recorder is not None
            assert found.value is not None


@pytest.fixture
def recorder(engine: Engine) -> Iterator[TrialRecorder]:
    with (
        closing(Collector(engine)) as collector,
        collector.running(),
        closing(TrialRecorder(engine, collector, 0)) as made,
    ):
        yield made


def test_neither_earlier_work_nor_the_recorders_copy_is_in_a_capture(engine: Engine, recorder: TrialRecorder) -> None:
    copy_once(engine)
    recorder.begin()
    copy_once(engine)
    capture = recorder.take()
    assert capture.of(Kind.COPY)["nbytes"].tolist() == [NBYTES]
    assert {capture.name(call) for call in capture.of(Kind.CALL)} >= {"cudaMemcpy"}
    recorder.begin()
    assert not len(recorder.take().of(Kind.COPY))


def test_a_closed_recorder_leaves_no_memory(engine: Engine) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        with closing(TrialRecorder(engine, collector, 0)):
            assert testing.allocated()
        assert not testing.allocated()


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithFlags"])
def test_a_failed_allocation_frees_the_others(engine: Engine, call: str) -> None:
    with closing(Collector(engine)) as collector, collector.running():
        testing.fail(call, 1, 2)
        with pytest.raises(CudaError):
            TrialRecorder(engine, collector, 0)
        assert not testing.allocated()


class Row:
    """Counts its trials. From trial `near_after` on, one is near the median."""

    def __init__(self, near_after: int | None = None, *, fails_at: int | None = None) -> None:
        self.made, self.near_after, self.fails_at = 0, near_after, fails_at
        self.given_up: list[str] = []
        self.candidate = Candidate(self.trial, self.give_up, self.is_near if near_after is not None else None)

    def trial(self, _recorder: TrialRecorder, _fresh: bool) -> None:
        self.made += 1
        if self.made == self.fails_at:
            raise MeasurementError("made to fail")

    def give_up(self, why: str, _failed: bool) -> None:
        self.given_up.append(why)

    def is_near(self) -> bool:
        assert self.near_after is not None
        return self.made >= self.near_after


def traced(
    engine: Engine,
    *rows: Row,
    seconds: float = 30.0,
    latest_s: float = math.inf,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    started: list[Fact[Tracing]] = []
    traced_trials.trace_candidates(
        engine,
        0,
        [row.candidate for row in rows],
        seconds=seconds,
        latest_s=latest_s,
        seed=1,
        cancelled=cancelled,
        on_start=started.append,
    )
    assert [fact.reason for fact in started] == [None]


@pytest.mark.parametrize("least", [1, 2])
def test_without_time_a_row_has_the_least_trials(engine: Engine, least: int) -> None:
    row = Row()
    row.candidate.least_trials = least
    traced(engine, row, seconds=-1.0)
    assert row.made == least


def test_after_the_latest_time_nothing_is_traced(engine: Engine) -> None:
    plain, explained = Row(), Row(near_after=31)
    traced(engine, plain, explained, latest_s=-math.inf)
    assert (plain.made, explained.made) == (0, 0)


@pytest.mark.parametrize(
    ("near_after", "fails_at", "made"),
    [
        (31, None, 31),
        (1, None, traced_trials.TRIALS * traced_trials.EXPLAINED_TRIALS),
        (10**9, None, traced_trials.MAX_EXPLAINED_TRIALS),
        (10**9, 20, 20),
    ],
)
def test_an_explained_row_is_traced_until_a_trial_is_near_the_median_or_fails(
    engine: Engine, near_after: int, fails_at: int | None, made: int
) -> None:
    plain, explained = Row(), Row(near_after, fails_at=fails_at)
    traced(engine, plain, explained)
    assert (plain.made, explained.made) == (traced_trials.TRIALS, made)
    assert explained.given_up == (["its traced trial failed: made to fail"] if fails_at else [])


def test_the_search_ends_when_the_run_is_cancelled(engine: Engine) -> None:
    explained = Row(near_after=10**9)
    with pytest.raises(CancelledError):
        traced(engine, explained, cancelled=lambda: explained.made >= 20)
    assert explained.made == 20


# When a mapped block of at most 32 MiB is freed, glibc raises its thresholds permanently. Memory that was trimmed and
# faulted in again before then stays in the heap.
PROGRAM = """
import resource
import numpy as np
from pyxfer.native import load
from pyxfer._trace.collector import Collector

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [np.full(2 << 20, 1, np.uint8) for _ in range(4)]
    kept.clear()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
collector = Collector(load("host"))
running = collector.running()
running.__enter__()
for _ in range(3):
    collector.take()
collector.close()
faults()
print(before, faults())
"""


def test_a_tracer_does_not_change_the_programs_heap() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    before, after = map(int, ended.stdout.split())
    assert before > 0
    assert after >= before / 2


@pytest.fixture(autouse=True)
def no_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without CUPTI."""
    (tmp_path / "maps").write_text("")
    monkeypatch.setattr(libraries, "MAPS", tmp_path / "maps")
    monkeypatch.setattr(libraries, "TOOLKITS", tmp_path / "local")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


def library(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return str(folder / name)


def install_wheels(root: Path, monkeypatch: pytest.MonkeyPatch, *files: tuple[str, str]) -> list[str]:
    """Pretend that these wheels of NVIDIA are installed."""
    spec = importlib.machinery.ModuleSpec("nvidia", None, is_package=True)
    spec.submodule_search_locations = [str(root)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "nvidia" else None)
    return [library(root / package / "lib", name) for package, name in files]


def test_without_files_or_a_readable_map_there_are_only_names_for_the_loader(tmp_path: Path) -> None:
    assert candidates(13000) == SONAMES == ("libcupti.so.13", "libcupti.so.12")
    (tmp_path / "maps").unlink()
    assert candidates(12090) == ("libcupti.so.12", "libcupti.so.13")


def test_the_newest_wheel_that_fits_the_driver_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = install_wheels(
        tmp_path / "nvidia", monkeypatch, ("cuda_cupti", "libcupti.so.12"), ("cu13", "libcupti.so.13")
    )
    assert candidates(12090)[:2] == (old, new)
    assert candidates(13000)[:2] == (new, old)


def test_a_loaded_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = install_wheels(tmp_path / "nvidia", monkeypatch, ("cu13", "libcupti.so.13"))
    loaded = "/opt/with a space/libcupti.so.12"
    (tmp_path / "maps").write_text(
        f"7f00-7f10 r-xp 00000000 08:01 42                     {loaded}\n"
        "7f10-7f20 r-xp 00000000 08:01 43                     /opt/libcupti.so.12.bak\n"
        "7f20-7f30 rw-p 00000000 00:00 0 \n"
    )
    assert candidates(13000) == (loaded, wheel, *SONAMES)


def test_toolkits_come_after_wheels_and_before_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = library(tmp_path / "local" / "cuda-12.4" / "lib64", "libcupti.so.12")
    named = library(tmp_path / "mine" / "extras" / "CUPTI" / "lib64", "libcupti.so.12")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "mine"))
    (wheel,) = install_wheels(tmp_path / "nvidia", monkeypatch, ("cuda_cupti", "libcupti.so.12"))
    assert candidates(12090) == (wheel, named, usual, "libcupti.so.12", "libcupti.so.13")


@pytest.mark.parametrize(
    ("machine", "found"), [("x86_64", ["x86_64-linux"]), ("aarch64", ["sbsa-linux", "aarch64-linux"]), ("riscv64", [])]
)
def test_a_toolkit_is_searched_for_this_architecture_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, found: list[str]
) -> None:
    folder = tmp_path / "local" / "cuda-13.0" / "targets"
    for target in ("x86_64-linux", "sbsa-linux", "aarch64-linux"):
        library(folder / target / "lib", "libcupti.so.13")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert [Path(path).parents[1].name for path in candidates(13000)[: -len(SONAMES)]] == found


def test_a_library_with_several_names_is_tried_once(tmp_path: Path) -> None:
    folder = tmp_path / "local" / "cuda" / "lib64"
    library(folder, "libcupti.so.2025.1.1")
    for name, behind in (("", "2025.1.1"), (".13", "2025.1.1"), (".99", "gone")):
        (folder / f"libcupti.so{name}").symlink_to(f"libcupti.so.{behind}")
    (tmp_path / "local" / "cuda-13.0").symlink_to("cuda")
    first, *others = candidates(13000)
    assert (Path(first).name, Path(first).resolve()) == ("libcupti.so.13", folder / "libcupti.so.2025.1.1")
    assert tuple(others) == SONAMES

"""`pyxfer.watch` as a program uses it: arguments, the block, the report, its exports, and its ceilings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from samples import KIB, MIB, known, make_device, make_link, make_run
from watch.copying import copies, session, target_of, window_of
from watch.windows import H2D, Script, activity_of, analysed, make_window, steps_at

import pyxfer
from pyxfer import UsageError, Watch
from pyxfer._document.machines import Fact, LinkState
from pyxfer._document.runs import Run
from pyxfer._document.watches import Watched
from pyxfer._watch.ceilings import (
    measure_ceilings,
    points_of,
    remarks_on_saved,
    remarks_on_shares,
    seconds_at,
    sizes_to_measure,
    source_of,
)
from pyxfer._watch.copies import sizes_needed
from pyxfer._watch.options import WatchOptions, make_options
from pyxfer._watch.watch import make_document
from pyxfer.native import Engine
from pyxfer.native._host import testing

MAX_CALLS = 12


@pytest.fixture
def watched(engine: Engine) -> Watch:
    """A watch of five steps, with a copy in each direction in every step."""
    with copies() as made, pyxfer.watch(skip=2, steps=5, device="host", ceilings=None) as w:
        for _ in range(10):
            with pyxfer.mark("make"):
                pass
            with w.step():
                made.send()
                made.fetch()
    return w


def test_the_result_is_of_the_steps_of_the_window(watched: Watch) -> None:
    result = watched.result
    assert (result.steps.watched, result.steps.skipped, result.ended) == (5, 2, "complete")
    assert {row.direction: row.count for row in activity_of(result).copies} == {"h2d": 5, "d2h": 5}
    assert {row.name: row.count for row in result.ranges} == {"make": 5}
    assert result.device.runtime == "host"


def test_the_result_is_saved_and_its_tables_have_a_row_for_each_step_and_class(watched: Watch, tmp_path: Path) -> None:
    result = watched.result
    assert "host memory, not a PCIe link" in result.text()
    result.save(tmp_path / "w.json")
    assert Watched.load(tmp_path / "w.json") == result
    assert result.to_csv().count("\n") == 1 + 5
    assert result.to_csv("copies").count("\n") == 1 + 2


def test_limits_may_be_text_and_numbers_of_numpy() -> None:
    options = make_options(np.int64(2), np.int32(3), "1.5s", 0, True, "64MiB")
    assert options == WatchOptions(2, 3, 1.5, 0, True, 64 << 20)


def test_a_watch_can_be_used_again(engine: Engine) -> None:
    w = pyxfer.watch(device="host", ceilings=None)
    counts = []
    for steps in (1, 3):
        with w:
            for _ in range(steps):
                with w.step():
                    pass
        counts.append(w.result.steps.watched)
    assert counts == [1, 3]


@pytest.mark.parametrize(
    ("kind", "ended"),
    [(ZeroDivisionError, "failed"), (BaseException, "failed"), (KeyboardInterrupt, "ended"), (SystemExit, "ended")],
)
def test_an_exception_in_the_block_keeps_the_window(engine: Engine, kind: type[BaseException], ended: str) -> None:
    w = pyxfer.watch(device="host", ceilings=None)

    def block() -> None:
        with w:
            with w.step():
                pass
            raise kind

    with pytest.raises(kind):
        block()
    assert (w.result.ended, w.result.steps.watched) == (ended, 1)


def test_the_result_before_the_end_of_the_window_is_a_usage_error(engine: Engine) -> None:
    w = pyxfer.watch(device="host")
    with pytest.raises(UsageError, match="never started: use it in a with statement"):
        _ = w.result
    with w, pytest.raises(UsageError, match="still active: use its result after the window has closed"):
        _ = w.result


@pytest.mark.slow
def test_copies_are_compared_with_measured_ceilings_by_default(engine: Engine) -> None:
    testing.model_link(1e8, 20e-6, 1e8, 20e-6)  # 40 ms a copy: a pause of a few milliseconds makes no difference
    with copies(4 << 20) as made:
        made.send()  # its pages are touched for the first time
        with pyxfer.watch(device="host") as w, w.step():
            made.send()
    (row,) = activity_of(w.result).copies
    assert row.ceiling_share.value == pytest.approx(1.0, abs=0.3)


def test_ceilings_may_be_the_path_of_a_saved_run(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    pyxfer.ceiling("host", direction=["h2d"], size=[64 << 10], budget=0.5).save(path)
    testing.model_link(1e7, 20e-6, 1e7, 20e-6)  # much slower than the ceiling, so that there is a share
    with copies() as made, pyxfer.watch(device="host", ceilings=path) as w, w.step():
        made.send()
    before = testing.calls()["cudaMalloc"]
    assert activity_of(w.result).copies[0].ceiling_share.value is not None
    assert testing.calls()["cudaMalloc"] == before, "nothing was measured anew"


def test_without_a_gpu_the_report_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    if pyxfer.is_available():
        pytest.skip("there is a GPU here")
    with pyxfer.watch(ceilings=None) as w:
        pass
    assert w.result.remarks[0].code == "no-gpu"
    assert w.result.runtime_reason.startswith("No usable GPU")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"skip": -1}, "skip -1 is not a whole number"),
        ({"steps": 0}, "steps 0 is not a whole number"),
        ({"duration": 0}, "duration 0 is not above zero"),
        ({"duration": "5x"}, "duration .* unknown unit"),
        ({"capacity": 100}, "capacity 100 is too little memory for records: give 1 MiB or more"),
        ({"capacity": 1 << 62}, "more memory than this machine has .*: give less"),
        ({"ceilings": 3}, "the path of a saved run, or None"),
    ],
    ids=str,
)
def test_an_invalid_argument_is_a_usage_error(words: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        pyxfer.watch(**words)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["skipped", "after"])
def test_steps_and_marks_outside_of_the_window_make_few_calls(engine: Engine, phase: str) -> None:
    """No calls within `with w.step(): pass` but those of `step`, `__enter__` and `__exit__`; a mark is made as well."""
    made: list[str] = []
    mark = pyxfer.mark  # imported at its first use
    with pyxfer.watch(skip=0 if phase == "after" else 10**9, steps=1, device="host") as w:
        if phase == "after":
            with w.step():
                pass
        sys.setprofile(lambda frame, event, _: made.append(frame.f_code.co_name) if event == "call" else None)
        with w.step():
            pass
        with mark("x"):
            pass
        sys.setprofile(None)
    assert len(made) <= MAX_CALLS, made


def watched_copy(ceilings: Run | str) -> Watched:
    with copies(64 * KIB) as made, session() as watched:
        made.send()
    return make_document(window_of(watched), target_of(watched), ceilings)


OTHER_LINK = structs.replace(make_link(), under_load=Fact(LinkState(generation=4, width=8)))


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"device": make_device(name="NVIDIA L4")}, "other-device", ("NVIDIA L4", "NVIDIA H200")),
        ({"link": OTHER_LINK}, "other-link", ("PCIe 4.0 x8", "PCIe 5.0 x16")),
        (
            {"measurements": tuple(row for row in make_run().measurements if row.nbytes == 4 * KIB)},
            "other-sizes",
            ("h2d", "16 MiB", "4 KiB"),
        ),
    ],
)
def test_a_run_of_something_else_gets_a_remark(given: dict[str, Any], code: str, words: tuple[str, ...]) -> None:
    (remark,) = remarks_on_saved(make_run(**given), make_device(), make_link(), {"h2d": (16 * MIB,)})
    assert remark.code == code
    assert all(word in remark.text for word in words)
    assert "pyxfer ceiling" in (remark.fix or "")


@pytest.mark.parametrize("sizes", [(16 * MIB,), (4, 64 * MIB, 1 << 34)])
def test_a_run_of_the_same_device_and_link_and_of_similar_sizes_needs_no_remark(sizes: tuple[int, ...]) -> None:
    assert remarks_on_saved(make_run(), make_device(), make_link(), {"h2d": sizes}) == ()


def sent(us: float, nbytes: int) -> Watched:
    """One copy of a step, with a ceiling of 50 GB/s."""
    return analysed(make_window(Script().copy(H2D, 0, us, nbytes=nbytes), 500, steps_at((0, 1, 500))))


def test_copies_faster_than_the_ceiling_get_a_remark() -> None:
    watched = sent(100, 10 * MIB)
    assert [remark.code for remark in watched.remarks] == ["above-ceiling"]
    assert "52.3 % less time than the ceiling" in watched.remarks[0].text
    assert watched.remarks[0].fix == "watch again with other work stopped"
    saved = structs.replace(known(watched.ceiling_source), source="saved")
    (remark,) = remarks_on_shares(activity_of(watched).copies, saved)
    assert "pyxfer ceiling" in (remark.fix or "")


@pytest.mark.parametrize(("us", "share"), [(400, 0.524), (209, 1.0), (206, 1.0), (205, None)])
def test_a_share_is_never_above_100_percent(us: float, share: float | None) -> None:
    watched = sent(us, 10 * MIB)
    (row,) = activity_of(watched).copies
    assert row.of_ceiling == (share if share is None else pytest.approx(share, abs=1e-3))
    assert ("above-ceiling" in {remark.code for remark in watched.remarks}) == (share is None)


def test_small_copies_may_be_faster_than_the_ceiling() -> None:
    watched = sent(1, 100_000)
    assert watched.remarks == ()
    (row,) = activity_of(watched).copies
    assert row.of_ceiling is None
    assert "the time to issue a copy" in (row.ceiling_share.reason or "")


def test_the_source_of_a_ceiling_is_measured_or_saved_with_its_machine_and_time(engine: Engine) -> None:
    assert known(watched_copy("measured").ceiling_source).source == "measured"
    watched, run = watched_copy(make_run()), make_run()
    source = known(watched.ceiling_source)
    assert (source.source, source.device, source.host) == ("saved", run.device.name, run.environment.host)
    assert source.taken_at == run.environment.taken_at
    assert "other-device" in {remark.code for remark in watched.remarks}


def best_s(nbytes: int) -> float:
    rows = [row for row in RUN.measurements if (row.direction, row.memory, row.nbytes) == ("h2d", "pinned", nbytes)]
    return min(row.elapsed_s for row in rows if row.elapsed_s is not None)


# A saved run with two sizes, and how long they take.
RUN = make_run()
SMALL_S, LARGE_S = best_s(4 * KIB), best_s(16 * MIB)


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [
        (16 * MIB, LARGE_S),
        (256 * KIB, (SMALL_S * LARGE_S) ** 0.5),  # as many octaves from 4 KiB as from 16 MiB
        (4, SMALL_S),
        (1024 * MIB, 64 * LARGE_S),
    ],
)
def test_the_time_is_interpolated_constant_below_and_of_the_same_rate_above(nbytes: int, seconds: float) -> None:
    assert seconds_at(known(points_of(source_of(RUN), "h2d")), nbytes) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "other",
    [{"memory": "write-combined"}, {"memory": "pinned", "mode": "staged", "route": "raw.pageable-staged"}],
    ids=["memory", "staged"],
)
def test_memory_that_was_not_measured_has_no_ceiling_and_the_reason(other: dict[str, Any]) -> None:
    rows = tuple(structs.replace(row, **other) for row in RUN.measurements[:1])
    found = points_of(source_of(structs.replace(RUN, measurements=rows)), "h2d")
    assert found.reason == "no ceiling was measured for h2d and pinned memory"


def test_close_sizes_are_measured_as_one(engine: Engine) -> None:
    with session() as watched:
        for nbytes in (8 * KIB, 10 * KIB, MIB):
            with copies(nbytes) as made:
                made.send()
    assert sizes_to_measure(sizes_needed(window_of(watched))) == (9 * KIB, MIB)


def test_nothing_is_measured_for_a_window_without_copies(engine: Engine) -> None:
    with session() as watched:
        pass
    before = testing.calls()
    ceilings, _ = measure_ceilings(sizes_needed(window_of(watched)), target_of(watched))
    assert testing.calls() == before
    assert ceilings.reason == "nothing crossed the link in this window"


def test_a_device_that_fails_leaves_the_reason_and_a_remark(engine: Engine) -> None:
    with copies() as made, session() as watched:
        made.send()
    testing.fail("cudaMalloc", 1, 2)
    ceilings, remarks = measure_ceilings(sizes_needed(window_of(watched)), target_of(watched))
    assert "the ceiling could not be measured: " in (ceilings.reason or "")
    assert [remark.code for remark in remarks] == ["no-ceiling"]

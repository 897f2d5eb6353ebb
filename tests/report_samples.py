"""One document of each kind for reports, and a run whose labels are hostile."""

from __future__ import annotations

from typing import Any

from baseline.store.making import make_baseline
from baseline_samples import make_sample, slow_pinned
from doctor.cases import h200, health
from explain_samples import make_explain_run
from framework_samples import make_frameworks_run, make_image_batch_run
from pages import full_run, host_run
from samples import SCRIPT, make_device, make_hostile, make_measurement, make_missing, make_run
from watch_samples import make_stalled, make_unseen, make_watched
from xfer_samples import row_of, session

from pyxfer._baseline.compare import compare_samples
from pyxfer._doctor.session import examine, nearest_known, without_trials
from pyxfer._document import runs
from pyxfer._document.baselines import Cell, History, HistoryChange, HistoryGroup, HistoryPoint
from pyxfer._document.examinations import Examination
from pyxfer._document.runs import Fact

RIGHT_TO_LEFT = "abc\u202edef\u05d0"
BREAKOUT = (
    "</script></svg><script>document.title = 'injected'</script>\"'<img src=x onerror=\"document.title='injected'\">"
)


def make_examination() -> Examination:
    run = h200()
    nearest = nearest_known(run)
    return Examination(without_trials(run), Fact(health()), nearest, examine(run, health(), nearest.value))


def make_outside_run() -> runs.Run:
    """A run whose names come from somebody who wants to break the page."""
    rows = (
        make_hostile(),
        make_measurement(route=BREAKOUT, memory=BREAKOUT, mode=RIGHT_TO_LEFT),
        make_missing(BREAKOUT, route=SCRIPT),
    )
    return make_run(
        device=make_device(name=BREAKOUT), remarks=(runs.Remark("x", BREAKOUT, SCRIPT),), measurements=rows, curves=()
    )


def make_history(step: float = 0.05) -> History:
    """60 runs of one cell, from the 41st on slower by `step`."""
    cell = Cell("raw.pinned-async", "h2d", "h2d", "pinned", "async", "warm", 256 << 20)
    rates = [55.0 * (1 + 0.002 * (number * 7 % 5 - 2)) * (1 - step * (number >= 40)) for number in range(60)]
    moments = [f"2026-01-{1 + number // 3:02}T{number % 3 * 8:02}:00:00+00:00" for number in range(60)]
    points = tuple(
        HistoryPoint(f"run{number}", moment, gbps, gbps * 0.999, gbps * 1.001, 0.256 / gbps, gbps / 55)
        for number, (moment, gbps) in enumerate(zip(moments, rates, strict=True))
    )
    change = HistoryChange(points[40].run_id, points[40].taken_at, 55.0, 55.0 * (1 - step))
    group = HistoryGroup(
        *("node-7", "cuda", "NVIDIA H200", Fact("GPU-1"), cell, "h2d:pinned:256MiB", None, 55.0, points),
        changes=(change,) if step else (),
    )
    return History((group,))


DOCUMENTS: dict[str, Any] = {
    "ceiling": full_run(),
    "ceiling of the host": host_run(full_run(ended="interrupted")),
    "frameworks": make_frameworks_run(),
    "image batches": make_image_batch_run(),
    "explain": make_explain_run(),
    "watch": make_watched(),
    "watch with slow steps": make_stalled(),
    "watch without records": make_unseen(),
    "comparison": compare_samples(make_sample("A"), make_sample("B", seed=2, slower=slow_pinned(1.3))),
    "examination": make_examination(),
    "baseline": make_baseline(),
    "history": make_history(),
    "history without changes": make_history(step=0.0),
    "pytest": session(row_of(), row_of("tests/test_b.py::test_other", None)),
    "nothing measured": make_run(measurements=(make_missing(),), curves=()),
    "one point": make_run(measurements=(make_measurement(),), curves=()),
    "hostile": make_outside_run(),
}

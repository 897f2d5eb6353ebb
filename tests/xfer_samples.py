"""Sessions of pytest with invented figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pyxfer._ceiling.rows import ceiling_share
from pyxfer._document.machines import Fact, Remark, unknown
from pyxfer._document.runs import Measurement, Trial
from pyxfer._document.sessions import Expected, Tested, TestMachine, XferSession
from pyxfer._machine.devices import find_device
from pyxfer._machine.environment import read_environment
from pyxfer._machine.link import read_link
from pyxfer._measure import stats
from pyxfer._pytest.derived import judged
from pyxfer.native import load

MIB = 1 << 20


def row_of(test: str = "tests/test_a.py::test_copy", gbps: float | None = 2.0, **changes: Any) -> Tested:
    """A test that copied 1 MiB, beside raw copies at 2 GB/s."""
    nbytes = changes.pop("nbytes", MIB)
    none: Fact[Any] = unknown("the bandwidth cannot be")
    ceiling = _measurement("raw.pinned-async", nbytes, 2.0, (1, 0, -2, 1, 3, 0, -1, 2), memory="pinned", mode="async")
    measurement = _measurement(
        test, nbytes, gbps or 1.0, (-1, 1, -2, 2, 0, 0, -3, 3), memory="unknown", mode="callable"
    )
    share = ceiling_share(measurement.trials, ceiling.trials, measurement.rate)
    measurement = msgspec.structs.replace(
        measurement,
        bracket="drained",
        rate=none if gbps is None else measurement.rate,
        ceiling_share=none if gbps is None else share,
        remarks=changes.pop("remarks", (Remark("drift", "the time drifted"),)),
    )
    given: dict[str, Any] = {
        "test": test,
        "outcome": "passed",
        "place": 0,
        "measurement": measurement,
        "ceiling": Fact(ceiling),
        "expected": Expected(0.8, None),
        "precision": 0.005,
        "budget_s": 2.0,
        **changes,
    }
    return Tested(**{"judged": judged(given["expected"], given["measurement"], given["ceiling"]), **given})


def _measurement(route: str, nbytes: int, gbps: float, steps: Sequence[int], **given: Any) -> Measurement:
    elapsed = nbytes / gbps / 1e9
    trials = tuple(Trial(place, elapsed * (1 + 0.002684 * step)) for place, step in enumerate(steps))
    summary = stats.summarise([trial.elapsed_s for trial in trials])
    return Measurement(
        route=route,
        direction="h2d",
        side="h2d",
        variant="warm",
        bracket="gated",
        nbytes=nbytes,
        moved_bytes=nbytes,
        rate=Fact(stats.rate(nbytes, summary)),
        peak_share=unknown("host memory"),
        ceiling_share=unknown("it is the ceiling"),
        verified=unknown("pyxfer does not know what the callable moves"),
        first_s=Fact(elapsed),
        summary=summary,
        trials=trials,
        **given,
    )


def session(*tests: Tested) -> XferSession:
    """A session on this machine's host memory."""
    engine = load("host")
    device = find_device(engine, 0)
    place = TestMachine("host", "", device, read_link(engine, device), read_environment(engine, device))
    return XferSession("pytest", "complete", "2026-11-22T01:00:00+00:00", "9.2.0", (place,), tests or (row_of(),))

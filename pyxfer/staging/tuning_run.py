"""A tuning from its start to its end: within its time, ended by Ctrl-C, and told who else was at it."""

from __future__ import annotations

import datetime
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyxfer.errors import UsageError
from pyxfer.machine import numa
from pyxfer.model_machine import Fact
from pyxfer.model_tuning import Tuned
from pyxfer.sampling.exclusive import Presence
from pyxfer.sampling.interruptible import Ending, run_interruptible
from pyxfer.staging.settings import DEFAULT_BUDGET_BYTES, default_settings, node_of, setup_of, usable_cpus
from pyxfer.staging.tuning_candidates import Candidates, fills_of
from pyxfer.staging.tuning_descent import Descent, Found
from pyxfer.staging.tuning_trials import Bench, Deadline

if TYPE_CHECKING:
    from pyxfer.native import Engine
    from pyxfer.staging.settings import RingSettings

LIMIT_S = 1.0
SIZES = (4 << 20, 24 << 20, 96 << 20)
# On any device: what tunings take from each other is processors and memory.
_MEETING = "ring tuning"


def tune(
    engine: Engine,
    device: int,
    *,
    limit_s: float = LIMIT_S,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    sizes: Sequence[int] = SIZES,
) -> Tuned:
    """Find by measuring, within a time limit, how a ring is fastest here; nothing is stored.

    All rings at a time stay within the budget, so the one that is found has half of it where that is small. Without
    the time for a single trial there is none, and the settings are the default ones.

    Raises:
        UsageError: the limit is no time, or no ring fits the budget.
        MemoryError: memory ran out, of the host, page-locked, or of the device.
        KeyboardInterrupt: Ctrl-C; whatever the device does.

    """
    if not (math.isfinite(limit_s) and limit_s > 0):
        raise UsageError(f"a tuning lasts some time above zero, such as 1s, and not {limit_s:g} s")
    taken_at = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    run = _Run(engine, device, default_settings().within(budget_bytes), budget_bytes, sizes)
    with Presence(_MEETING) as presence:
        if run_interruptible(lambda: run.work(limit_s), run.cancel) is not Ending.DONE:
            raise KeyboardInterrupt
    return Tuned(
        taken_at=taken_at,
        ring=setup_of(run.found.settings),
        budget_bytes=budget_bytes,
        trials=run.found.trials,
        plain=run.found.plain,
        pays_from_bytes=run.found.pays_from_bytes,
        limit_s=limit_s,
        seconds=run.seconds,
        remarks=_disturbed_by(presence.met),
    )


class _Run:
    """What one thread does, and another may end."""

    def __init__(
        self, engine: Engine, device: int, unless_timed: RingSettings, budget_bytes: int, sizes: Sequence[int]
    ) -> None:
        self.found = Found(unless_timed, (), (), Fact(reason="the limit left no time to look for it"))
        self.seconds = 0.0
        self._engine = engine
        self._device = device
        self._budget_bytes = budget_bytes
        self._sizes = sizes
        self._cancelled = threading.Event()
        self._bench: Bench | None = None

    def work(self, limit_s: float) -> None:
        engine, device = self._engine, self._device
        engine.memory_info(device)  # CUDA's own start, which is not the tuning's
        deadline = Deadline(limit_s)
        with numa.bind(engine, node_of(engine, device)), self._made_bench() as bench:
            if deadline.left_s > 0:
                candidates = Candidates.here(usable_cpus(), fills_of(engine, device))
                self.found = Descent(bench, candidates, self._budget_bytes, self._sizes, deadline).run()
        self.seconds = deadline.spent_s

    def _made_bench(self) -> Bench:
        self._bench = Bench(self._engine, self._device, max(self._sizes), self._cancelled)
        return self._bench

    def cancel(self) -> None:
        self._cancelled.set()  # also for a bench that is still being made
        if self._bench is not None:
            self._bench.cancel()


def _disturbed_by(others: set[int]) -> tuple[str, ...]:
    if not others:
        return ()
    who = f"process {min(others)}" if len(others) == 1 else f"processes {', '.join(map(str, sorted(others)))}"
    return (f"{who} tuned at the same time, which takes processors from both; pyxfer tune does it anew",)

"""The settings of a device's ring: given by hand, kept from an earlier tuning, or found by measuring."""

from __future__ import annotations

import datetime
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyxfer._document.machines import Fact, RingSource
from pyxfer._document.tunings import RingState, Tuned, TuningKey
from pyxfer._machine import numa
from pyxfer._machine.engine import HOST_REASON, is_host
from pyxfer._measure.exclusive import Presence
from pyxfer._measure.interruptible import Ending, run_interruptible
from pyxfer._upload.settings import (
    DEFAULT_BUDGET_BYTES,
    RING_VARIABLE,
    Given,
    RingSettings,
    TuningCache,
    cache_path,
    default_settings,
    given_by_environment,
    key_of,
    node_of,
    settings_of,
    setup_of,
    usable_cpus,
)
from pyxfer._upload.tuning_search import Bench, Candidates, Deadline, Descent, Found, fills_of
from pyxfer.errors import UsageError
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer._upload.settings import RingSettings
    from pyxfer.native import Engine

__all__ = ["Chosen", "Given", "Tuned", "settings_for", "state_of", "tune", "tune_and_keep"]


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


NOT_TUNED = "not tuned yet: tuned on first use"

_one_at_a_time = threading.Lock()
# What could not be kept in the file, so that one process tunes once.
_kept_here: dict[tuple[TuningKey, Path | None], tuple[Tuned, tuple[str, ...]]] = {}


@dataclass(frozen=True)
class Chosen:
    """The settings of a ring, where they are from, and the trials that they rest on."""

    settings: RingSettings
    source: RingSource
    reason: str
    evidence: Tuned | None = None
    remarks: tuple[str, ...] = ()


def settings_for(
    engine: Engine,
    device: int,
    *,
    given: Given | None = None,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    limit_s: float = LIMIT_S,
    may_tune: bool = True,
    on_host: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Chosen:
    """The settings of the ring of a device: as given here, by PYXFER_RING, kept from before, or now found and kept.

    What is measured over host memory means nothing for a link, so there the settings are the default ones unless
    `on_host` asks for more. The ring stays within the budget, and so do the rings of a tuning: what was found within a
    larger one is made to fit, and what was found within a smaller one is found anew.

    Raises:
        UsageError: what is given is no ring, or none fits the budget; says what is.

    """
    by_hand = given or Given()
    whole = by_hand.over(given_by_environment(environ))
    _within(Chosen(whole.applied_to(default_settings()), "given", ""), budget_bytes)
    room_bytes = min(budget_bytes, DEFAULT_BUDGET_BYTES)
    may_tune = may_tune and not whole.needs_no_tuning
    rest = _not_given(engine, device, room_bytes, limit_s, may_tune, on_host, environ)
    chosen = rest if whole == Given() else _with_given(rest, whole, by_hand, environ)
    return _within(chosen, budget_bytes)


def tune_and_keep(
    engine: Engine,
    device: int,
    *,
    limit_s: float = LIMIT_S,
    on_host: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Chosen:
    """Tune anew, whatever was kept, and keep that; not over host memory, unless `on_host` asks for it."""
    with _one_at_a_time:
        tuned = tune(engine, device, limit_s=limit_s)
        if is_host(engine) and not on_host:
            return _tuned(tuned, (f"the tuning is not kept: this is {HOST_REASON}",))
        return _tuned(tuned, _keep(key_of(engine, device), cache_path(environ), tuned) if tuned.timed else ())


def state_of(chosen: Chosen, device: int, environ: Mapping[str, str] = os.environ) -> RingState:
    """As a document has it."""
    path = cache_path(environ)
    no_tuning = Fact[Tuned](reason=chosen.reason)
    return RingState(
        device=device,
        ring=setup_of(chosen.settings),
        source=chosen.source,
        reason=chosen.reason,
        remarks=chosen.remarks,
        tuning=no_tuning if chosen.evidence is None else Fact(chosen.evidence),
        path=Fact(reason=path.reason) if path.value is None else Fact(str(path.value)),
    )


def _with_given(rest: Chosen, whole: Given, by_hand: Given, environ: Mapping[str, str]) -> Chosen:
    names = [f"{by_hand.names} given by hand"] if by_hand.names else []
    if whole != by_hand:
        names.append(f"given by {RING_VARIABLE}={environ[RING_VARIABLE]}")
    settings = whole.applied_to(rest.settings)
    others = "" if whole.needs_no_tuning and whole.fill else f"; the others {rest.reason}"
    return replace(rest, settings=settings, source="given", reason="; ".join(names) + others)


def _within(chosen: Chosen, budget_bytes: int) -> Chosen:
    settings = chosen.settings.within(budget_bytes)
    if settings == chosen.settings:
        return chosen
    why = f"made smaller for a budget of {format_size(budget_bytes)}"
    return replace(chosen, settings=settings, reason=f"{chosen.reason}; {why}")


def _not_given(
    engine: Engine,
    device: int,
    room_bytes: int,
    limit_s: float,
    may_tune: bool,
    on_host: bool,
    environ: Mapping[str, str],
) -> Chosen:
    if is_host(engine) and not on_host:
        return Chosen(default_settings(), "default", f"default, for this is {HOST_REASON}")
    key = key_of(engine, device)
    path = cache_path(environ)
    with _one_at_a_time:
        known = _known(key, path)
        if not may_tune or (known.evidence is not None and known.evidence.budget_bytes >= room_bytes):
            return known
        try:
            tuned = tune(engine, device, limit_s=limit_s, budget_bytes=room_bytes)
        except MemoryError as error:  # page-locked memory and the device's among it
            if known.evidence is not None:
                return known
            return replace(known, reason=f"default, for there was no memory to tune with: {error}")
        return _tuned(tuned, _keep(key, path, tuned) if tuned.timed else ())


def _known(key: TuningKey, path: Fact[Path]) -> Chosen:
    """As found before by this process or another; else the default."""
    if (key, path.value) in _kept_here:
        return _tuned(*_kept_here[key, path.value])
    found = Fact[Tuned](reason="") if path.value is None else TuningCache(path.value).find(key)
    if found.value is None:
        return Chosen(default_settings(), "default", NOT_TUNED, None, (found.reason,) if found.reason else ())
    return Chosen(
        settings_of(found.value.ring), "cached", f"cached {_summary(found.value)}", found.value, found.value.remarks
    )


def _keep(key: TuningKey, path: Fact[Path], tuned: Tuned) -> tuple[str, ...]:
    """In the file, else in this process; remarks on what was in the way."""
    trouble = path.reason if path.value is None else TuningCache(path.value).store(key, tuned)
    _kept_here.pop((key, path.value), None)
    if not trouble:
        return ()
    remarks = (f"{trouble}; every process tunes for itself",)
    _kept_here[key, path.value] = tuned, remarks
    return remarks


def _tuned(tuned: Tuned, remarks: tuple[str, ...] = ()) -> Chosen:
    settings = settings_of(tuned.ring)
    if not tuned.timed:
        limit = format_seconds(tuned.limit_s)
        return Chosen(
            settings, "default", f"default, for the limit of {limit} left no time for a trial", tuned, remarks
        )
    return Chosen(settings, "tuned", f"tuned {_summary(tuned)}", tuned, (*tuned.remarks, *remarks))


def _summary(tuned: Tuned) -> str:
    """When, and what it took."""
    trials = len(tuned.timed)
    day = tuned.taken_at.partition("T")[0]
    return f"on {day} from {trials} {'trial' if trials == 1 else 'trials'} in {format_seconds(tuned.seconds)}"

"""The settings of a device's ring: as they are given, or from a tuning.

`settings_for` chooses them, and tunes if it has to (`tuning_search.py`). The result is kept in a file for later
processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyxfer._document.machines import HOST_MEMORY, Fact, RingSource
from pyxfer._document.tunings import RingState, Tuned, TuningKey
from pyxfer._machine.engine import is_host
from pyxfer._upload.settings import (
    DEFAULT_BUDGET_BYTES,
    PartialSettings,
    RingSettings,
    cache_path,
    default_settings,
    find_tuning,
    keep_tuning,
    settings_of,
    settings_set,
    setup_of,
    tuning_key,
)
from pyxfer.units import format_seconds, format_size

if TYPE_CHECKING:
    from pyxfer.native import Engine

LIMIT_S = 1.0

_one_at_a_time = threading.Lock()
# Tunings that could not be written to the file: they serve this process, which so tunes only once.
_not_in_file: dict[tuple[TuningKey, Path | None], ChosenSettings] = {}


class ChosenSettings(NamedTuple):
    settings: RingSettings
    source: RingSource
    reason: str
    tuning: Tuned | None = None
    remarks: tuple[str, ...] = ()


def settings_for(
    engine: Engine,
    device: int,
    *,
    given: PartialSettings | None = None,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    limit_s: float = LIMIT_S,
    may_tune: bool = True,
    on_host: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> ChosenSettings:
    """Choose the settings of a device's ring: as given, by PYXFER_RING or a file, or from an old or new tuning.

    Over host memory a tuning says nothing about a link, so the default settings are used unless `on_host` is true. Both
    the ring and the rings of a tuning stay within the budget: a tuning made within a larger budget is reduced to fit,
    one made within a smaller budget is repeated.
    """
    by_hand = given or PartialSettings()
    lasting, where = settings_set(environ)
    partial = by_hand.completed_by(lasting)
    partial.applied_to(default_settings()).within(budget_bytes)  # raises before anything is tuned
    if is_host(engine) and not on_host:
        chosen = ChosenSettings(default_settings(), "default", f"default, because this is {HOST_MEMORY}")
    else:
        may_tune = may_tune and not partial.needs_no_tuning
        chosen = _kept_or_tuned(engine, device, min(budget_bytes, DEFAULT_BUDGET_BYTES), limit_s, may_tune, environ)
    if partial != PartialSettings():
        reasons = [f"{by_hand.names} given by hand"] if by_hand.names else []
        if partial != by_hand:
            reasons.append(f"given by {where}")
        if not (partial.needs_no_tuning and partial.fill):
            reasons.append(f"the others {chosen.reason}")
        settings = partial.applied_to(chosen.settings)
        chosen = chosen._replace(settings=settings, source="given", reason="; ".join(reasons))
    if (settings := chosen.settings.within(budget_bytes)) != chosen.settings:
        reason = f"{chosen.reason}; made smaller for a limit of {format_size(budget_bytes)}"
        chosen = chosen._replace(settings=settings, reason=reason)
    return chosen


def tune_and_keep(
    engine: Engine,
    device: int,
    *,
    limit_s: float = LIMIT_S,
    on_host: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> ChosenSettings:
    """Tune again and keep the result. A tuning over host memory is kept only if `on_host` is true."""
    with _one_at_a_time:
        tuned = _tuned(engine, device, limit_s)
        if is_host(engine) and not on_host:
            return _chosen_by(tuned, f"the tuning is not kept: this is {HOST_MEMORY}")
        return _keep(tuning_key(engine, device), cache_path(environ), tuned)


def state_of(chosen: ChosenSettings, device: int, environ: Mapping[str, str] = os.environ) -> RingState:
    return RingState(
        device=device,
        ring=setup_of(chosen.settings),
        source=chosen.source,
        reason=chosen.reason,
        remarks=chosen.remarks,
        tuning=Fact(reason=chosen.reason) if chosen.tuning is None else Fact(chosen.tuning),
        path=cache_path(environ).then(str),
    )


def _kept_or_tuned(
    engine: Engine, device: int, budget_bytes: int, limit_s: float, may_tune: bool, environ: Mapping[str, str]
) -> ChosenSettings:
    key = tuning_key(engine, device)
    path = cache_path(environ)
    with _one_at_a_time:
        kept = _kept(key, path)
        if not may_tune or (kept.tuning is not None and kept.tuning.budget_bytes >= budget_bytes):
            return kept
        try:
            tuned = _tuned(engine, device, limit_s, budget_bytes)
        except MemoryError as error:  # CudaMemoryError too
            if kept.tuning is not None:
                return kept
            return kept._replace(reason=f"default, because there was no memory to tune with: {error}")
        return _keep(key, path, tuned)


def _tuned(engine: Engine, device: int, limit_s: float, budget_bytes: int = DEFAULT_BUDGET_BYTES) -> Tuned:
    from pyxfer._upload.tuning_search import tune  # importing it takes 5 ms, and few processes tune

    return tune(engine, device, limit_s=limit_s, budget_bytes=budget_bytes)


def _kept(key: TuningKey, path: Fact[Path]) -> ChosenSettings:
    """The settings of an earlier tuning, by this process or another; the default ones if there was none."""
    if found := _not_in_file.get((key, path.value)):
        return found
    tuned, trouble = (None, "") if path.value is None else find_tuning(path.value, key)
    if tuned is None:
        reason = "not tuned yet: tuned on first use"
        return ChosenSettings(default_settings(), "default", reason, None, (trouble,) if trouble else ())
    return ChosenSettings(settings_of(tuned.ring), "cached", f"cached {_summary(tuned)}", tuned, tuned.remarks)


def _keep(key: TuningKey, path: Fact[Path], tuned: Tuned) -> ChosenSettings:
    _not_in_file.pop((key, path.value), None)
    trouble = path.reason if path.value is None else keep_tuning(path.value, key, tuned)
    if not trouble:
        return _chosen_by(tuned)
    chosen = _not_in_file[key, path.value] = _chosen_by(tuned, f"{trouble}; every process tunes again")
    return chosen


def _chosen_by(tuned: Tuned, *remarks: str) -> ChosenSettings:
    settings = settings_of(tuned.ring)
    return ChosenSettings(settings, "tuned", f"tuned {_summary(tuned)}", tuned, (*tuned.remarks, *remarks))


def _summary(tuned: Tuned) -> str:
    trials = len(tuned.timed)
    day = tuned.taken_at.partition("T")[0]
    return f"on {day} from {trials} {'trial' if trials == 1 else 'trials'} in {format_seconds(tuned.seconds)}"

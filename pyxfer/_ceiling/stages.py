"""The stages of a ceiling run around its trials: preparing, tracing, and what a reader must know of the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from pyxfer._ceiling.rows import Ceilings, Item, candidate, page_locked_trials
from pyxfer._ceiling.subjects import RawSubject, StagedCopies, make_subject
from pyxfer._ceiling.ways import Way
from pyxfer._document.runs import Environment, Fact, Remark, Tracing
from pyxfer._machine.nvml import throttled_by
from pyxfer._measure.sampler import Reserve
from pyxfer._trace import phase
from pyxfer.errors import CudaError, CudaUnavailableError, DeviceLostError, MeasurementError
from pyxfer.units import format_seconds

if TYPE_CHECKING:
    from pyxfer._ceiling.subjects import RawSubject
    from pyxfer._ceiling.workshop import Workshop
    from pyxfer.native import Engine


def trace_items(
    engine: Engine,
    device: int,
    items: Sequence[Item[Any]],
    ceilings: Ceilings,
    *,
    trace: bool,
    explained: str,
    seed: int,
    seconds: float,
    cancelled: Callable[[], bool],
    on_start: Callable[[Fact[Tracing]], None],
    on_round: Callable[[int], None] = lambda _: None,
) -> None:
    """A few trials of each item with the device's records."""
    locked = page_locked_trials(items)
    candidates = [
        candidate(item, locked if item.head.staged else ceilings, seed + 2 * number, explained)
        for number, item in enumerate(items)
    ]
    if not trace:
        phase.leave_out(candidates, on_start)
        return
    phase.trace_candidates(
        engine,
        device,
        candidates,
        seconds=seconds,
        seed=seed,
        cancelled=cancelled,
        on_start=on_start,
        on_round=on_round,
    )


def after_timing(budget_s: float, *, trace: bool) -> Reserve:
    """What the traced trials are left of a budget."""
    return Reserve(phase.TRIALS, phase.OPENING_S, phase.TAKING_S, phase.SHARE * budget_s) if trace else Reserve()


def prepare(item: Item[Way], shop: Workshop, seed: int) -> None:
    """Give it a subject, or the reason why it has none."""
    try:
        subject = _subject(item, shop)
        item.first_s = Fact(subject.calibrate())
        item.verified = subject.verify(seed)
    except (CudaUnavailableError, DeviceLostError):
        raise
    except (CudaError, MeasurementError) as error:
        item.unavailable = str(error)
    else:
        item.subject = subject


def _subject(item: Item[Way], shop: Workshop) -> RawSubject | StagedCopies:
    way, nbytes = item.head.source, item.nbytes
    if way.staged:
        return StagedCopies(shop.engine, way, nbytes, shop.arena, shop.stager(), shop.device)
    return make_subject(shop.engine, way, nbytes, shop.arena, shop.copier(way.streams), shop.device)


STUCK = Remark(
    "stuck",
    "What was under way could not be ended in time, a large allocation or a device that does not answer; its memory is "
    "left to the end of this process.",
    "if the device is to blame, look at nvidia-smi and for Xid in dmesg",
)


def circumstances(met: Collection[int], before: Environment, after: Environment | None) -> list[Remark]:
    """Who else was there, and whether the clocks were held down; `met` are the processes that measured too."""
    remarks = [_others(sorted(met))] if met else []
    others = before.other_gpu_processes.value
    if others:
        remarks.append(_holders(others))
    for environment in (before, after):
        reasons = throttled_by(environment)
        if reasons:
            remarks.append(
                Remark(
                    "throttled",
                    f"The GPU's clocks were held down: {', '.join(reasons)}.",
                    "see nvidia-smi -q -d PERFORMANCE, and measure again when it is cool and has its power",
                )
            )
            break
    return remarks


def late(prepared_s: float) -> Remark:
    """Preparation has taken the whole budget, so each row has only the fewest trials."""
    return Remark(
        "late",
        f"Preparation took {format_seconds(prepared_s)}, the whole budget, so no row has more than the fewest trials.",
        f"ask for smaller sizes, or give --budget {math.ceil(3 * prepared_s)}s",
    )


def _others(pids: Sequence[int]) -> Remark:
    who = ", ".join(str(pid) for pid in pids)
    return Remark(
        "contended",
        f"Another pyxfer measured this device at the same time (process {who}), so figures may be low.",
        "measure again when it has ended",
    )


def _holders(pids: Sequence[int]) -> Remark:
    who = ", ".join(str(pid) for pid in pids)
    return Remark(
        "shared",
        f"Other processes use this GPU (process {who}); while they copy or compute, figures are lower.",
        "end them, or measure when they are idle",
    )

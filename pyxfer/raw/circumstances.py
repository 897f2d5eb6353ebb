"""What went on around a run, and may have lowered its figures or ended it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pyxfer.machine.throttling import held_down_by
from pyxfer.model import Environment, Remark
from pyxfer.units import format_seconds

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
        reasons = held_down_by(environment)
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

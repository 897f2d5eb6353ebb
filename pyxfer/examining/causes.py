"""Why a link that is what it should be carries less than it could: what was read that explains it, surest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyxfer.examining.case import Case
from pyxfer.examining.counted import replays_beyond
from pyxfer.examining.places import share_of_pages_near
from pyxfer.machine.iommu import UNTRANSLATED
from pyxfer.machine.throttling import held_down_by
from pyxfer.model import Measurement
from pyxfer.units import format_percent

_FULL = (0.88, 1.02)
_LESSER_LINKS = (2, 4, 8)


class Cause(NamedTuple):
    """What may be to blame, by what was seen, and what to do about it."""

    text: str
    do: str


def likely_causes(case: Case, judged: Measurement, share: float | None) -> list[Cause]:
    """All that is not as it should be and can cost `judged` bandwidth; `share` is what it reaches of the peak."""
    return [
        *_memory_far(case),
        *_shared(case),
        *_sent_again(case),
        *_translated(case),
        *_throttled(case),
        *_unsteady(judged),
        *_lesser_link(case, share),
    ]


def _memory_far(case: Case) -> Iterator[Cause]:
    near, node = share_of_pages_near(case.run.placement), case.run.placement.device_node.value
    if near is not None and near < 1 / 2:
        yield Cause(
            f"{format_percent(1 - near)} of its memory lay on another NUMA node than the device's ({node})",
            f"keep memory and process near the device: numactl --cpunodebind={node} --membind={node}",
        )


def _shared(case: Case) -> Iterator[Cause]:
    others = case.run.environment.other_gpu_processes.value
    contended = any(remark.code == "contended" for remark in case.run.remarks)
    if others or contended:
        yield Cause("other processes use this GPU at the same time", "end them, or measure when they are idle")
    if case.run.device.mig.value or case.run.device.vgpu.value:
        kind = "a MIG instance" if case.run.device.mig.value else "a vGPU"
        yield Cause(f"{kind} shares its link with the others on the GPU", "measure when the others are idle")


def _sent_again(case: Case) -> Iterator[Cause]:
    count = None if case.health is None else replays_beyond(case.health)
    if count is not None:
        yield Cause(
            f"packets were sent again {count} times while it was measured",
            "reseat the card or its riser; see the kernel log for PCIe errors",
        )


def _translated(case: Case) -> Iterator[Cause]:
    kind = None if case.health is None else case.health.iommu.value
    if kind is not None and kind not in UNTRANSLATED:
        yield Cause(
            f"the IOMMU translates the device's addresses (domain {kind})",
            "start the kernel with iommu=pt, if nothing on this host needs the translation, and measure again",
        )


def _throttled(case: Case) -> Iterator[Cause]:
    for environment in (case.run.environment, case.run.environment_after):
        reasons = held_down_by(environment)
        if reasons:
            yield Cause(f"the GPU's clocks were held down: {', '.join(reasons)}", "see nvidia-smi -q -d PERFORMANCE")
            return


def _unsteady(judged: Measurement) -> Iterator[Cause]:
    """By its own remarks alone: small copies and the other direction are unsteady for reasons of their own."""
    if {remark.code for remark in judged.remarks} & {"drift", "bimodal", "unstable"}:
        yield Cause(
            "the copies were not steady, so something else was at work",
            "measure again with pyxfer ceiling --budget 60s",
        )


def _lesser_link(case: Case, share: float | None) -> Iterator[Cause]:
    """A link that is less than is shown gives itself away by the figures."""
    for factor in _LESSER_LINKS if share is not None else ():
        if _FULL[0] <= (share or 0.0) * factor <= _FULL[1]:
            shown = "; a hypervisor may show a better link than there is" if case.is_virtual else ""
            yield Cause(
                f"it is what a link of 1/{factor} of this one's lanes, or of lower generation, gives{shown}",
                look_at_link(case),
            )


def look_at_link(case: Case) -> str:
    """Where the link tells of itself; a virtual machine may show a made-up one."""
    where = " from the host below" if case.is_virtual else ""
    return f"look at the link{where} (lspci -vv, LnkSta), and at every port above the device"

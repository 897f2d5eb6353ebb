"""What was measured: pinned copies against the link's peak and a known host, pageable ones against pinned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyxfer._doctor.case import LEAST_BYTES, SIDES, Case, Findings, best, fine, is_raw, state_text, untold
from pyxfer._doctor.host import share_of_pages_near
from pyxfer._doctor.link import replays_beyond
from pyxfer._document.examinations import MOST_SHARE, Finding, Nearest, Status, Sureness, is_beyond_peak
from pyxfer._document.runs import Measurement, Rate, Side
from pyxfer._machine.environment import UNTRANSLATED
from pyxfer._machine.nvml import throttled_by
from pyxfer.units import format_gbps, format_percent, format_size

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
        reasons = throttled_by(environment)
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


FINE_SHARE, SUSPICIOUS_SHARE = 0.90, 0.85
ALIKE_SHARE = 0.95
PAGEABLE_SHARE = 0.5
"""Of what the known host of the same kind reaches; one thread copies here, and its speed varies."""
PAGEABLE_LEAST_GBPS = 3.0
PAGEABLE_ABOVE = 1.05

_WHY_PEAK = "the rest goes to acknowledgements, flow control and the start of each copy"
_CHECK = "measure again with pyxfer ceiling --budget 60s; if it stays, see which other finding speaks of it"
_COMPARE = "compare with a baseline taken in the same mode (pyxfer baseline save)"
_STAGE = "page-lock what is sent often (pyxfer.empty_pinned, pin_memory=True), or send it with pyxfer.upload"


def contents(case: Case) -> Findings:
    """Whether what arrived is what was sent."""
    checked = [each for each in case.run.measurements if each.verified.value is not None]
    wrong = sum(each.verified.value is False for each in checked)
    expected = "every byte arrives as it was sent"
    if wrong:
        yield Finding(
            *("contents", "contents", "wrong", f"wrong in {wrong} of {len(checked)} measurements", expected),
            *("fresh random data was sent and compared outside the timed copies", "certain"),
            "do not use this device: see dmesg for Xid and PCIe errors, and have it checked",
        )
    elif checked:
        why = "fresh random data was sent and compared outside the timed copies"
        yield fine("contents", "contents", f"whole in all {len(checked)} measurements", expected, why)
    else:
        yield untold("contents", "contents", expected, "no measurement was verified")


def ceilings(case: Case) -> Findings:
    """Pinned copies each way against the protocol peak at the MaxPayload in force."""
    for side in SIDES:
        yield _ceiling(case, side)


def _ceiling(case: Case, side: Side) -> Finding:
    subject, peak = f"ceiling {side}", case.run.link.peak_gbps(side)
    found = best(case.run, side)
    if found is None or found.rate.value is None:
        return untold("ceiling", subject, "copies of page-locked memory", _why_none(case, side))
    if found.nbytes < LEAST_BYTES:
        least, largest = format_size(LEAST_BYTES), format_size(found.nbytes)
        reason = f"{largest} is the largest size measured, and below {least} the start of a copy hides the link"
        return untold("ceiling", subject, f"copies of at least {least}", reason)
    if case.run.device.confidential.value:
        reason = f"{format_gbps(found.gbps or 0.0)} at {format_size(found.nbytes)}, of which encryption takes its part"
        return untold("ceiling", subject, "what is known of encrypted copies, which is nothing", reason, _COMPARE)
    if peak.value is None:
        return _without_peak(case, side, found)
    if is_beyond_peak(case.run, found):
        return _beyond_peak(case, "ceiling", subject, found, peak.value)
    return _against_peak(case, side, found, found.rate.value, peak.value)


def _beyond_peak(case: Case, code: str, subject: str, found: Measurement, peak_gbps: float) -> Finding:
    """Quicker than the link can be: figure or peak is not right, and neither tells which."""
    gbps, rate = found.gbps or 0.0, found.rate.value
    low = None if rate is None else rate.low_gbps
    share = f", {format_percent(gbps / peak_gbps)} of the protocol peak" if peak_gbps > 0 else ""
    seen = f"{format_gbps(gbps)} at {format_size(found.nbytes)}{share}"
    expected = f"no more than {_peak_text(case, peak_gbps)}"
    made_up = ", which a virtual machine may make up" if case.is_virtual else ""
    why = f"no copy is quicker than its link: the figure is not right, or the link or MaxPayload shown{made_up}"
    sure: Sureness = "certain" if low is not None and low > peak_gbps * MOST_SHARE else "likely"
    do = f"believe neither, measure again with pyxfer ceiling, and {look_at_link(case)}"
    return Finding(code, subject, "suspicious", seen, expected, why, sure, do)


def _peak_text(case: Case, peak_gbps: float) -> str:
    state = case.run.link.under_load.value or case.run.link.system_most.value
    payload = case.run.link.max_payload_bytes.value
    return f"{format_gbps(peak_gbps)}, which {state_text(state)} carries at {payload} B payload"


def _against_peak(case: Case, side: Side, found: Measurement, rate: Rate, peak_gbps: float) -> Finding:
    share = rate.gbps / peak_gbps
    status = _judged(share)
    if status == "wrong" and (case.run.device.mig.value or case.run.device.vgpu.value):
        status = "suspicious"  # a part of a GPU has a part of its copy engines, and of the link
    seen = f"{format_gbps(rate.gbps)} at {format_size(found.nbytes)}, {format_percent(share)} of the protocol peak"
    expected = f"at least {FINE_SHARE * 100:.0f} % of {_peak_text(case, peak_gbps)}"
    if status == "fine":
        return fine("ceiling", f"ceiling {side}", seen, expected, _WHY_PEAK, _sure(rate, peak_gbps))
    causes = likely_causes(case, found, share)
    why = "; ".join(cause.text for cause in causes) or "nothing that was read explains it"
    do = causes[0].do if causes else look_at_link(case)
    return Finding("ceiling", f"ceiling {side}", status, seen, expected, why, _sure(rate, peak_gbps), do)


def _judged(share: float) -> Status:
    return "fine" if share >= FINE_SHARE else "suspicious" if share >= SUSPICIOUS_SHARE else "wrong"


def _sure(rate: Rate, peak_gbps: float) -> Sureness:
    """Certain where the whole interval of the median says the same."""
    ends = [end for end in (rate.low_gbps, rate.high_gbps) if end is not None]
    alike = all(_judged(end / peak_gbps) == _judged(rate.gbps / peak_gbps) for end in ends)
    return "certain" if ends and alike else "likely"


def _without_peak(case: Case, side: Side, found: Measurement) -> Finding:
    """By the known host alone, where one is of the same kind."""
    reason = case.run.link.peak_gbps(side).reason
    share = None if case.nearest is None else _share_of_known(case.nearest, found)
    if case.nearest is None or share is None or not case.nearest.alike:
        return untold("ceiling", f"ceiling {side}", "a share of the protocol peak, or of a known host", reason)
    seen = f"{format_gbps(found.gbps or 0.0)} at {format_size(found.nbytes)}; the peak is not known: {reason}"
    expected = f"as {case.nearest.reference.name} reaches"
    if share >= ALIKE_SHARE:
        return fine("ceiling", f"ceiling {side}", seen, expected, "it is a host of the same kind", "likely")
    why = f"it is {format_percent(share)} of what a host of the same kind reaches"
    return Finding("ceiling", f"ceiling {side}", "suspicious", seen, expected, why, "likely", _CHECK)


def _why_none(case: Case, side: Side) -> str:
    rows = [each for each in case.run.measurements if is_raw(each) and each.side == each.direction == side]
    reasons = [each.rate.reason for each in rows if each.rate.reason is not None and each.memory != "pageable"]
    return reasons[0] if reasons else case.run.failure or f"the run holds no {side} copy of page-locked memory"


def known_host(case: Case) -> Findings:
    """What share of the figures of the same kind of host is reached, where the peak finds no fault."""
    nearest = case.nearest
    if nearest is None or not nearest.alike:
        return
    for side in SIDES:
        found = best(case.run, side)
        share = None if found is None else _share_of_known(nearest, found)
        if found is None or share is None or is_beyond_peak(case.run, found):
            continue
        if _reaches_peak(case, side, found):
            yield _like_known(case, side, found, share)


def _reaches_peak(case: Case, side: Side, found: Measurement) -> bool:
    peak = case.run.link.peak_gbps(side).value
    return peak is not None and found.nbytes >= LEAST_BYTES and (found.gbps or 0.0) / peak >= FINE_SHARE


def _share_of_known(nearest: Nearest, found: Measurement) -> float | None:
    memory = "pageable" if found.memory == "pageable" else "pinned"
    known = nearest.reference.gbps(found.direction, memory, found.nbytes)
    return None if known is None or found.gbps is None else found.gbps / known


def _like_known(case: Case, side: Side, found: Measurement, share: float) -> Finding:
    assert case.nearest is not None  # noqa: S101 - the caller has looked
    reference = case.nearest.reference
    seen = f"{format_percent(share)} of what it reaches at {format_size(found.nbytes)}"
    expected = f"at least {ALIKE_SHARE * 100:.0f} % of {reference.name}"
    why = "device, link and payload are the same"
    if share >= ALIKE_SHARE:
        return fine("known-host", f"known host {side}", seen, expected, why, "likely")
    causes = likely_causes(case, found, None)
    words = "; ".join([why, *(cause.text for cause in causes)])
    do = causes[0].do if causes else _CHECK
    return Finding("known-host", f"known host {side}", "suspicious", seen, expected, words, "likely", do)


def pageable(case: Case) -> Findings:
    """Ordinary memory against page-locked memory at the same size."""
    for side in SIDES:
        pinned, plain = best(case.run, side), best(case.run, side, pageable=True)
        if plain is not None and pinned is not None and plain.nbytes == pinned.nbytes >= LEAST_BYTES:
            yield _pageable(case, side, plain, pinned)


def _pageable(case: Case, side: Side, plain: Measurement, pinned: Measurement) -> Finding:
    subject, peak = f"pageable {side}", case.run.link.peak_gbps(side).value
    if peak is not None and is_beyond_peak(case.run, plain):
        return _beyond_peak(case, "pageable", subject, plain, peak)
    if is_beyond_peak(case.run, pinned):
        reason = f"{format_gbps(plain.gbps or 0.0)}, beside pinned copies that are quicker than the link can be"
        return untold("pageable", subject, "a share of pinned copies that can be believed", reason)
    share = (plain.gbps or 0.0) / (pinned.gbps or 1.0)
    seen = f"{format_gbps(plain.gbps or 0.0)} at {format_size(plain.nbytes)}, {format_percent(share)} of pinned"
    if share > PAGEABLE_ABOVE and case.run.link.kind == "pcie":
        expected = "page-locked memory to be no slower, since nothing is copied twice"
        why = "something holds page-locked copies back: the memory may lie on another NUMA node, or be translated"
        return Finding("pageable", subject, "suspicious", seen, expected, why, "possible", _CHECK)
    least, expected, sure = _pageable_least(case, plain, pinned)
    if (plain.gbps or 0.0) >= least:
        why = "the driver copies such memory into page-locked memory of its own first, with one thread"
        return fine("pageable", subject, seen, expected, why, sure, _STAGE)
    why = "one thread of the processor copies here: its clock is low, it is busy, or the memory is far from it"
    do = "see the CPU governor (pyxfer info) and what else runs; pyxfer.upload uses several threads"
    return Finding("pageable", subject, "suspicious", seen, expected, why, sure, do)


def _pageable_least(case: Case, plain: Measurement, pinned: Measurement) -> tuple[float, str, Sureness]:
    """From where on it is as it should be, in words, and how sure that is."""
    nearest = case.nearest
    known = nearest.reference.gbps(plain.direction, "pageable", plain.nbytes) if nearest and nearest.alike else None
    if known is not None:
        least = known * PAGEABLE_SHARE
        return least, f"at least half of the {format_gbps(known)} of the known host of this kind", "likely"
    least = min(PAGEABLE_LEAST_GBPS, (pinned.gbps or 0.0) * PAGEABLE_SHARE)
    return least, f"at least {format_gbps(least)}, which one thread of any current processor copies", "possible"

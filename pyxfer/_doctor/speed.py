"""Checks of the measured copies: pinned ones against the link's peak and a known host, pageable against pinned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyxfer._doctor.case import MIN_BYTES, MIN_FINE, SIDES, Case, Check, Findings, best, gbps_of, is_raw, state_text
from pyxfer._doctor.host import share_of_pages_near
from pyxfer._doctor.link import replays_beyond
from pyxfer._document.examinations import Finding, Nearest, Reference, Status, Sureness
from pyxfer._document.machines import MAX_SHARE, SMALLEST_PAYLOAD_BYTES, USUAL_PAYLOAD_BYTES, Side, protocol_gbps
from pyxfer._document.runs import Measurement, Rate
from pyxfer._machine.environment import UNTRANSLATED
from pyxfer._machine.link import bottleneck
from pyxfer._machine.nvml import throttled_by
from pyxfer.units import format_gbps, format_percent, format_size

_LESSER_LINKS = (2, 4, 8)


class Cause(NamedTuple):
    text: str
    do: str


def likely_causes(case: Case, judged: Measurement, share: float | None) -> list[Cause]:
    """The findings that can explain a low bandwidth of `judged`; `share` is its share of the peak."""
    of_host = (_remote_memory, _other_users, _replays, _translation, _throttling)
    found = [cause for rule in of_host for cause in rule(case)]
    return [*found, *_unsteady(judged), *_lesser_link(case, judged, share), *_small_payload(case, judged)]


def _remote_memory(case: Case) -> Iterator[Cause]:
    near, node = share_of_pages_near(case.run.placement), case.run.placement.device_node.value
    if near is not None and near < 1 / 2:
        yield Cause(
            f"{format_percent(1 - near)} of its memory is on another NUMA node than the device's ({node})",
            f"keep memory and process near the device: numactl --cpunodebind={node} --membind={node}",
        )


def _other_users(case: Case) -> Iterator[Cause]:
    others = case.run.environment.other_gpu_processes.value
    contended = any(remark.code == "contended" for remark in case.run.remarks)
    if others or contended:
        yield Cause("other processes use this GPU at the same time", "end them, or measure when they are idle")
    if case.run.device.mig.value or case.run.device.vgpu.value:
        kind = "a MIG instance" if case.run.device.mig.value else "a vGPU"
        yield Cause(f"{kind} shares its link with the others on the GPU", "measure when the others are idle")


def _replays(case: Case) -> Iterator[Cause]:
    count = None if case.health is None else replays_beyond(case.health)
    if count is not None:
        yield Cause(
            f"packets were sent again {count} times during the measurement",
            "reseat the card or its riser; see the kernel log for PCIe errors",
        )


def _translation(case: Case) -> Iterator[Cause]:
    kind = None if case.health is None else case.health.iommu.value
    if kind is not None and kind not in UNTRANSLATED:
        yield Cause(
            f"the IOMMU translates the device's addresses (domain {kind})",
            "start the kernel with iommu=pt, if nothing on this host needs the translation, and measure again",
        )


def _throttling(case: Case) -> Iterator[Cause]:
    for environment in (case.run.environment, case.run.environment_after):
        reasons = throttled_by(environment)
        if reasons:
            yield Cause(f"the GPU's clocks were held down: {', '.join(reasons)}", "see nvidia-smi -q -d PERFORMANCE")
            return


def _unsteady(judged: Measurement) -> Iterator[Cause]:
    """Looks only at the judged measurement: small copies and the other direction vary for other reasons."""
    if {remark.code for remark in judged.remarks} & {"drift", "bimodal", "unstable"}:
        yield Cause(
            "the copies were not steady, so something disturbed them", "measure again with pyxfer ceiling --budget 60s"
        )


def _lesser_link(case: Case, judged: Measurement, share: float | None) -> Iterator[Cause]:
    """The figures fit a link with fewer lanes, or of a lower generation, than is shown."""
    most_gbps = case.run.link.most_gbps(judged.side)
    if share is None or most_gbps is None:
        return
    for factor in _LESSER_LINKS:
        if share * factor >= MIN_FINE and gbps_of(judged) * factor <= most_gbps:
            shown = "; a hypervisor may show a better link than there is" if case.is_virtual else ""
            yield Cause(
                f"a link with 1/{factor} of the lanes, or of a lower generation, would be as fast{shown}",
                _link_advice(case),
            )


def _unexplained(case: Case) -> str:
    """What else makes copies slow and is not examined."""
    unseen = ["other devices that copy below the same port", "power saving of the link"]
    unseen += ["the IOMMU and the NUMA nodes of this virtual machine's host"] if case.is_virtual else []
    return f"no other finding explains it; not examined are {', '.join(unseen)}"


def _small_payload(case: Case, judged: Measurement) -> Iterator[Cause]:
    """A MaxPayload that cannot be read may be the smallest, if a healthy link of that payload would be as fast."""
    if case.run.link.max_payload_bytes.value is not None or case.least_payload_bytes > SMALLEST_PAYLOAD_BYTES:
        return
    small_gbps = case.peak_at(judged.side, SMALLEST_PAYLOAD_BYTES)
    if small_gbps is not None and gbps_of(judged) >= case.shares.fine * small_gbps:
        yield Cause(
            f"MaxPayload may be {SMALLEST_PAYLOAD_BYTES} bytes, with which the peak is {format_gbps(small_gbps)}",
            "run pyxfer doctor as root, which can read MaxPayload; pci=pcie_bus_perf lets the kernel raise it",
        )


def _link_advice(case: Case) -> str:
    """Advice to check the link; a virtual machine may show a wrong state."""
    where = " from the host of this virtual machine" if case.is_virtual else ""
    return f"check the link{where} (lspci -vv, LnkSta), and every port above the device"


ALIKE_SHARE = 0.95
PAGEABLE_SHARE = 0.5
"""The least share of a known host's pageable bandwidth: one thread copies, and its speed varies."""
MIN_PAGEABLE_GBPS = 3.0
PAGEABLE_ABOVE = 1.05

_WHY_PEAK = "the rest goes to acknowledgements, flow control and the start of each copy"
_MEASURE_AGAIN = "measure again with pyxfer ceiling --budget 60s; if it stays, see the other findings"
_COMPARE = "compare with a baseline taken in the same mode (pyxfer baseline save)"
# As fast as pinned memory, there is nothing to gain by page-locking.
_LIKE_PINNED = 0.95
_STAGING = {"h2d": "pyxfer.upload", "d2h": "pyxfer.download"}


def contents(case: Case) -> Findings:
    checked = [row for row in case.run.measurements if row.verified.value is not None]
    wrong = sum(row.verified.value is False for row in checked)
    check = Check("contents", "contents", "every byte arrives as it was sent")
    why = "fresh random data was sent and compared outside the timed copies"
    if wrong:
        seen = f"wrong in {wrong} of {len(checked)} measurements"
        do = "do not use this device: see dmesg for Xid and PCIe errors, and have it checked"
        yield check.wrong(seen, why, "certain", do)
    elif checked:
        yield check.fine(f"whole in all {len(checked)} measurements", why)
    else:
        yield check.unknown("no measurement was verified")


def ceilings(case: Case) -> Findings:
    for side in SIDES:
        yield _ceiling(case, side)


def _ceiling(case: Case, side: Side) -> Finding:
    found = best(case.run, side)
    if found is None or found.rate.value is None:
        rows = [row for row in case.run.measurements if is_raw(row) and row.side == row.direction == side]
        reasons = [row.rate.reason for row in rows if row.rate.reason is not None and row.memory != "pageable"]
        why = case.run.failure or f"the run has no {side} copy of page-locked memory"
        return _of_ceiling(side, "copies of page-locked memory").unknown(reasons[0] if reasons else why)
    if found.nbytes < MIN_BYTES:
        least, largest = format_size(MIN_BYTES), format_size(found.nbytes)
        reason = f"{largest} is the largest measured size, and below {least} the fixed cost of a copy hides the link"
        return _of_ceiling(side, f"copies of at least {least}").unknown(reason)
    if case.run.device.confidential.value:
        reason = f"{_rate_text(found)}, lowered by encryption"
        return _of_ceiling(side, "not known for encrypted copies").unknown(reason, _COMPARE)
    if case.is_beyond_peak(found):
        return _beyond_peak(case, "ceiling", f"ceiling {side}", found)
    peak_gbps, status = case.usual_peak_gbps(side), case.status(side, found.rate.value.gbps)
    if peak_gbps is None or status is None:
        return _without_peak(case, side, found)
    judged = _against_peak(case, side, found, found.rate.value, status, peak_gbps)
    unsure = judged.status == "fine" and case.run.link.peak_gbps(side).value is None
    return _without_peak(case, side, found) if unsure and _alike_share(case, found) is not None else judged


def _of_ceiling(side: Side, expected: str) -> Check:
    return Check("ceiling", f"ceiling {side}", expected)


def _beyond_peak(case: Case, code: str, subject: str, found: Measurement) -> Finding:
    """For a copy that is faster than its link can be: either the figure or the peak is wrong."""
    side, rate = found.side, found.rate.value
    low = None if rate is None else rate.low_gbps
    most_gbps = min(each for each in (case.run.link.most_gbps(side), case.most_of_device_gbps) if each is not None)
    peak_gbps, name = most_gbps / MAX_SHARE, _highest_peak_name(case, side)
    seen = f"{_rate_text(found)}, {format_percent(gbps_of(found) / peak_gbps)} of {name}"
    expected = f"no more than {format_gbps(peak_gbps)}, {name}, and 1 % for the clock"
    made_up = ", which a virtual machine may make up" if case.is_virtual else ""
    why = f"a copy cannot be faster than its link: the figure is wrong, or the shown link or MaxPayload{made_up}"
    if case.exceeds_device(found):
        why = "no state of this device's link carries as much, so the figure is wrong, or the device is another one"
    sure: Sureness = "certain" if low is not None and low > most_gbps else "likely"
    do = f"trust neither, measure again with pyxfer ceiling, and {_link_advice(case)}"
    status: Status = "wrong" if case.exceeds_device(found) else "suspicious"
    return Finding(code, subject, status, seen, expected, why, sure, do)


def _highest_peak_name(case: Case, side: Side) -> str:
    state, payload = state_text(bottleneck(case.run.link).value), case.run.link.max_payload_bytes.value
    if case.run.link.peak_gbps(side).value is None or payload is None:
        return f"the raw peak of {state}"
    headers = " with 12-byte write headers" if side == "d2h" else ""
    return f"the protocol peak of {state} at {payload} B payload{headers}"


def _rate_text(row: Measurement) -> str:
    return f"{format_gbps(gbps_of(row))} at {format_size(row.nbytes)}"


def _peak_text(case: Case, side: Side, peak_gbps: float) -> str:
    """The peak, what it follows from, and for writes to the host the other length of their headers."""
    link = case.run.link
    raw, payload = link.raw_peak_gbps.value, link.max_payload_bytes.value
    carries = f"{format_gbps(peak_gbps)}, which {state_text(bottleneck(link).value)} carries"
    if link.peak_gbps(side).value is None:
        assumed = max(case.least_payload_bytes, USUAL_PAYLOAD_BYTES)
        return f"{carries} at the usual payload of {assumed} B ({link.peak_gbps(side).reason})"
    words = f"{carries} at {payload} B payload"
    if side == "d2h" and raw is not None and payload is not None:
        short = format_gbps(protocol_gbps(raw, payload, side, short=True))
        words += f" with 16-byte write headers ({short} with the 12-byte ones of addresses below 4 GiB)"
    return words


def _against_peak(case: Case, side: Side, found: Measurement, rate: Rate, status: Status, peak_gbps: float) -> Finding:
    # Certain if the whole interval of the median has the same status, also at any larger payload.
    ends = [end for end in (rate.low_gbps, rate.high_gbps) if end is not None]
    alike = all(case.status(side, end) == status for end in ends)
    known = case.run.link.peak_gbps(side).value is not None or status == "wrong"
    sure: Sureness = "certain" if ends and alike and known else "likely"
    share = rate.gbps / peak_gbps
    if status == "wrong" and (case.run.device.mig.value or case.run.device.vgpu.value):
        status = "suspicious"  # a part of a GPU has only a part of the copy engines and the link
    seen = f"{_rate_text(found)}, {format_percent(share)} of the protocol peak"
    if case.run.link.peak_gbps(side).value is None:
        seen += f" at {max(case.least_payload_bytes, USUAL_PAYLOAD_BYTES)} B payload"
    check = _of_ceiling(side, f"at least {case.shares.fine * 100:.0f} % of {_peak_text(case, side, peak_gbps)}")
    if status == "fine":
        return check.fine(seen, _WHY_PEAK, sure)
    causes = likely_causes(case, found, share)
    why = "; ".join(cause.text for cause in causes) or _unexplained(case)
    do = causes[0].do if causes else _link_advice(case)
    return check.finding(status, seen, why, sure, do)


def _alike_share(case: Case, found: Measurement) -> float | None:
    """The share of a known host of the same kind, if there is one."""
    return None if case.nearest is None or not case.nearest.alike else _share_of_known(case.nearest, found)


def _without_peak(case: Case, side: Side, found: Measurement) -> Finding:
    """The ceiling without a peak, compared with a known host of the same kind if there is one."""
    reason = case.run.link.peak_gbps(side).reason
    share = _alike_share(case, found)
    if case.nearest is None or share is None:
        return _of_ceiling(side, "a share of the protocol peak, or of a known host").unknown(reason)
    check = _of_ceiling(side, f"as fast as {case.nearest.reference.name}")
    seen = f"{_rate_text(found)}; the peak is not known: {reason}"
    if share >= ALIKE_SHARE:
        return check.fine(seen, "it is a host of the same kind", "likely")
    why = f"a host of the same kind is faster, and this one reaches {format_percent(share)} of it"
    return check.suspicious(seen, why, "likely", _MEASURE_AGAIN)


def known_host(case: Case) -> Findings:
    """Copies compared with a known host of the same kind, if the comparison with the peak finds no fault."""
    nearest = case.nearest
    if nearest is None or not nearest.alike:
        return
    for side in SIDES:
        found = best(case.run, side)
        share = None if found is None else _share_of_known(nearest, found)
        if found is None or share is None or case.is_beyond_peak(found):
            continue
        is_judged = case.run.link.peak_gbps(side).value is not None and found.nbytes >= MIN_BYTES
        reaches_peak = is_judged and case.status(side, gbps_of(found)) == "fine"
        if reaches_peak and (share >= ALIKE_SHARE or not _explained(case)):
            yield _against_known(nearest.reference, case, side, found, share)


def _explained(case: Case) -> bool:
    """Whether another finding is the cause of slow copies already, so that they are not one more."""
    return any((*_remote_memory(case), *_other_users(case), *_replays(case), *_throttling(case)))


def _share_of_known(nearest: Nearest, found: Measurement) -> float | None:
    memory = "pageable" if found.memory == "pageable" else "pinned"
    known = nearest.reference.gbps(found.direction, memory, found.nbytes)
    return None if known is None else gbps_of(found) / known


def _against_known(reference: Reference, case: Case, side: Side, found: Measurement, share: float) -> Finding:
    seen = f"{format_percent(share)} of what it reaches at {format_size(found.nbytes)}"
    check = Check("known-host", f"known host {side}", f"at least {ALIKE_SHARE * 100:.0f} % of {reference.name}")
    why = "device, link and payload are the same"
    if share >= ALIKE_SHARE:
        return check.fine(seen, why, "likely")
    causes = likely_causes(case, found, None)
    words = "; ".join([why, *(cause.text for cause in causes)])
    do = causes[0].do if causes else _MEASURE_AGAIN
    return check.suspicious(seen, words, "likely", do)


def pageable(case: Case) -> Findings:
    for side in SIDES:
        pinned, plain = best(case.run, side), best(case.run, side, pageable=True)
        if plain is not None and pinned is not None and plain.nbytes == pinned.nbytes >= MIN_BYTES:
            yield _pageable(case, side, plain, pinned)


def _pageable(case: Case, side: Side, plain: Measurement, pinned: Measurement) -> Finding:
    subject = f"pageable {side}"
    if case.is_beyond_peak(plain):
        return _beyond_peak(case, "pageable", subject, plain)
    if case.is_beyond_peak(pinned):
        reason = f"{format_gbps(gbps_of(plain))}; the pinned copies are faster than the link can be"
        return Check("pageable", subject, "a share of valid pinned copies").unknown(reason)
    share = gbps_of(plain) / gbps_of(pinned)
    seen = f"{_rate_text(plain)}, {format_percent(share)} of pinned"
    if share > PAGEABLE_ABOVE and case.run.link.kind == "pcie":
        expected = "slower than page-locked memory, which the driver need not copy first"
        why = "something slows page-locked copies: their memory may be on another NUMA node, or be translated"
        return Check("pageable", subject, expected).suspicious(seen, why, "possible", _MEASURE_AGAIN)
    least, expected, sure = _pageable_least(case, plain, pinned)
    check = Check("pageable", subject, expected)
    if gbps_of(plain) >= least:
        why = "the driver first copies such memory into page-locked buffers, with one thread"
        locked = "page-lock arrays that are copied often (pyxfer.empty_pinned, pin_memory=True of PyTorch)"
        do = f"{locked}, or copy them with {_STAGING[side]}" if share < _LIKE_PINNED else None
        return check.fine(seen, why, sure, do)
    why = "one thread copies: its processor has a low clock or is busy, or the memory is far from it"
    do = f"check the CPU governor (pyxfer info) and what else runs; {_STAGING[side]} uses several threads"
    return check.suspicious(seen, why, sure, do)


def _pageable_least(case: Case, plain: Measurement, pinned: Measurement) -> tuple[float, str, Sureness]:
    """The least rate that is fine, in GB/s and in words, and how sure that is."""
    nearest = case.nearest
    known = nearest.reference.gbps(plain.direction, "pageable", plain.nbytes) if nearest and nearest.alike else None
    if known is not None:
        least = known * PAGEABLE_SHARE
        return least, f"at least half of the {format_gbps(known)} of a known host of the same kind", "likely"
    least = min(MIN_PAGEABLE_GBPS, gbps_of(pinned) * PAGEABLE_SHARE)
    return least, f"at least {format_gbps(least)}, which one thread of any current processor copies", "possible"

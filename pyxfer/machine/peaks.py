"""What a PCI Express link could carry on paper, in GB/s (1e9) each way.

Per-packet overheads after Intel AN 708: framing and sequence number 4 bytes, LCRC 4 bytes, and a header of 12 (a
completion, which carries host-to-device data) or 16 (a memory write with a 64-bit address, device-to-host). Generations
1 and 2 frame differently and come to the same sums. What is not modelled (acknowledgements, flow control, skip symbols,
completions split at the 64-byte read boundary) only takes away, so these are upper bounds.
"""

from __future__ import annotations

from pyxfer.model import Fact, LinkState

_FIRST_WITH_FLITS = 6

COMPLETION_OVERHEAD_BYTES = 20
WRITE_OVERHEAD_BYTES = 24

GIGATRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}

# Generation 6 has no line code; every 256-byte flit leaves 236 bytes to packets (PCIe 6.0 base specification, 4.2.3.2).
_ENCODING = {1: 8 / 10, 2: 8 / 10, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 236 / 256}


def carries_gbps(state: LinkState) -> float:
    """Transfers x lanes x encoding; 0.0 for a generation that is not in the table."""
    transfers = GIGATRANSFERS.get(state.generation, 0.0)
    return transfers * state.width * _ENCODING.get(state.generation, 0.0) / 8


def raw_peak_gbps(state: Fact[LinkState]) -> Fact[float]:
    """The raw peak of a link in this state."""
    if state.value is None:
        return Fact(reason=state.reason)
    if state.value.generation not in GIGATRANSFERS:
        return Fact(reason=f"PCIe generation {state.value.generation} is not modelled")
    return Fact(carries_gbps(state.value))


def protocol_peak_gbps(state: Fact[LinkState], max_payload_bytes: Fact[int], overhead_bytes: int) -> Fact[float]:
    """The raw peak less the packet headers at this MaxPayload."""
    raw = raw_peak_gbps(state)
    if raw.value is None or state.value is None:
        return raw
    if state.value.generation >= _FIRST_WITH_FLITS:
        return Fact(reason="the protocol overhead of PCIe generation 6 (flit mode) is not modelled")
    if max_payload_bytes.value is None:
        return Fact(reason=f"MaxPayload is not known: {max_payload_bytes.reason}")
    payload = max_payload_bytes.value
    return Fact(raw.value * payload / (payload + overhead_bytes))

from __future__ import annotations

import pytest

from pyxfer._document.machines import COMPLETION_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES
from pyxfer._document.runs import Fact, LinkState
from pyxfer._machine.pci import protocol_peak_gbps, raw_peak_gbps


def x16(generation: int) -> Fact[LinkState]:
    return Fact(LinkState(generation, 16))


@pytest.mark.parametrize(("generation", "gbps"), [(1, 4.0), (2, 8.0), (3, 15.75), (4, 31.51), (5, 63.02), (6, 118.0)])
def test_raw_peak_of_each_generation(generation: int, gbps: float) -> None:
    assert raw_peak_gbps(x16(generation)).value == pytest.approx(gbps, abs=0.005)


def test_raw_peak_is_proportional_to_the_width() -> None:
    assert raw_peak_gbps(Fact(LinkState(5, 8))).value == pytest.approx(31.51, abs=0.005)


@pytest.mark.parametrize(
    ("generation", "payload", "gbps"),
    [
        *[(3, 64, 12.00), (3, 128, 13.62), (3, 256, 14.61), (3, 512, 15.16)],
        *[(4, 64, 24.01), (4, 128, 27.25), (4, 256, 29.22), (4, 512, 30.32)],
        *[(5, 64, 48.01), (5, 128, 54.50), (5, 256, 58.45), (5, 512, 60.65)],
    ],
)
def test_h2d_peak_includes_the_overhead_of_completions(generation: int, payload: int, gbps: float) -> None:
    peak = protocol_peak_gbps(x16(generation), Fact(payload), COMPLETION_OVERHEAD_BYTES)
    assert peak.value == pytest.approx(gbps, abs=0.006)


@pytest.mark.parametrize(
    ("generation", "payload", "gbps"),
    [
        *[(3, 128, 13.27), (3, 256, 14.40), (3, 512, 15.05)],
        *[(4, 128, 26.53), (4, 256, 28.81), (4, 512, 30.10)],
        *[(5, 128, 53.07), (5, 256, 57.61), (5, 512, 60.19)],
    ],
)
def test_d2h_peak_includes_the_overhead_of_writes(generation: int, payload: int, gbps: float) -> None:
    peak = protocol_peak_gbps(x16(generation), Fact(payload), WRITE_OVERHEAD_BYTES)
    assert peak.value == pytest.approx(gbps, abs=0.006)


def test_generation_6_has_no_protocol_peak() -> None:
    peak = protocol_peak_gbps(x16(6), Fact(256), WRITE_OVERHEAD_BYTES)
    assert "PCIe generation 6" in (peak.reason or "")


def test_unknown_generation_has_no_peak() -> None:
    assert "PCIe generation 9" in (raw_peak_gbps(x16(9)).reason or "")
    assert "PCIe generation 9" in (protocol_peak_gbps(x16(9), Fact(256), WRITE_OVERHEAD_BYTES).reason or "")


def test_unknown_max_payload_gives_no_protocol_peak() -> None:
    peak = protocol_peak_gbps(x16(5), Fact(reason="root is required"), WRITE_OVERHEAD_BYTES)
    assert all(words in (peak.reason or "") for words in ("MaxPayload", "root is required"))


def test_unknown_state_keeps_its_reason() -> None:
    assert raw_peak_gbps(Fact(reason="no driver")).reason == "no driver"

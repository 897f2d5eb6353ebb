"""Text made harmless, and bars of a breakdown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import make_device, make_link

from pyxfer._document.machines import Fact, LinkState, Remark, unknown
from pyxfer._report.layout import bars
from pyxfer._report.text import (
    capitalised,
    clean,
    device_text,
    link_text,
    reason_text,
    remark_text,
    sentence,
)


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;new title\x07name", "name"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("one\ntwo\rthree\tfour", "one two three four"),
        ("right\u202eleft", "right left"),
        ("bell\x07 null\x00 delete\x7f", "bell null delete"),
        ("[red]markup stays[/red] :smile:", "[red]markup stays[/red] :smile:"),
    ],
)
def test_clean_removes_control_sequences(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text(alphabet=st.characters(), max_size=400))
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()


def test_a_long_name_is_cut() -> None:
    assert clean("x" * 10_000_000, longest=20) == "x" * 17 + "..."


def test_a_link_has_its_state_under_load() -> None:
    idle = make_link(now=Fact(LinkState(generation=1, width=16)))
    assert link_text(idle) == "PCIe 5.0 x16, 256 B payload"


def test_a_link_not_seen_under_load_has_its_current_state() -> None:
    idle = make_link(now=Fact(LinkState(generation=1, width=16)), under_load=unknown("not asked"))
    assert link_text(idle) == "PCIe 1.0 x16, 256 B payload, not seen under load"


def test_a_chip_to_chip_link_has_the_reason_for_no_peak() -> None:
    assert link_text(make_link(kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))) == "joined chip to chip"


def test_a_device_names_its_sharing() -> None:
    assert device_text(make_device(mig=Fact(True))) == "NVIDIA H200, GPU 0, 0000:19:00.0, MIG instance"


def test_host_memory_is_not_named_as_a_gpu() -> None:
    assert device_text(make_device(runtime="host", name="NVIDIA H200")) == "host memory, not a PCIe link"


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        (Remark("a", "It varies.", "--budget 60s"), "It varies; try --budget 60s"),
        (Remark("a", "It is narrow.", "reseat the card."), "It is narrow. Reseat the card."),
        (Remark("a", "It is so."), "It is so."),
    ],
)
def test_a_remark_has_its_fix(remark: Remark, text: str) -> None:
    assert remark_text(remark) == text


def test_a_long_reason_is_not_cut() -> None:
    reason = f"the tracer was refused {'by the driver ' * 40}: run it as root"
    assert reason_text(reason) == reason
    assert reason_text(None) == "no reason given"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("the run ended", "The run ended."),
        ("trace: unavailable.", "Trace: unavailable."),
        ("was it cut off...", "Was it cut off..."),
        ("libcupti.so is not there", "libcupti.so is not there."),
        ("cudaMalloc failed", "cudaMalloc failed."),
    ],
)
def test_a_sentence_is_capitalised_except_names(text: str, line: str) -> None:
    assert sentence(text) == line
    assert capitalised(text) == line[: len(text)]


def test_bars_are_consecutive() -> None:
    assert bars([0.25, 0.5, 0.25], 8) == ["##", "  ####", "      ##"]


def test_a_small_share_has_a_bar() -> None:
    assert bars([1e-9, 0.0, 1.0], 4) == ["#", "", "####"]


@pytest.mark.parametrize("share", [1e19, 1e308, math.inf])
def test_shares_above_1_are_clipped(share: float) -> None:
    assert bars([share, share], 4) == ["####", "   #"]


@pytest.mark.parametrize("share", [-1e19, -math.inf, math.nan])
def test_shares_below_0_have_no_bar(share: float) -> None:
    assert bars([share, 0.5], 4) == ["", "##"]

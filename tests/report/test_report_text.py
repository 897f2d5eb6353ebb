from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import make_device, make_link

from pyxfer._document.runs import Fact, LinkState, Remark, unknown
from pyxfer._report.text import (
    capitalised,
    clean,
    device_text,
    fact_text,
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
def test_what_a_terminal_would_act_on_is_gone_and_the_rest_stays(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text(alphabet=st.characters(), max_size=400))
def test_clean_text_is_one_printable_line(text: str) -> None:
    assert clean(text).isprintable()


def test_a_name_without_end_is_cut_and_says_so() -> None:
    assert clean("x" * 10_000_000, longest=20) == "x" * 17 + "..."


def test_a_fact_that_is_missing_says_why() -> None:
    assert fact_text(unknown("no driver")) == "unknown: no driver"


def test_a_fact_that_is_there_says_no_more_than_itself() -> None:
    assert fact_text(Fact(3)) == "3"


def test_a_link_is_told_as_it_runs_under_load() -> None:
    idle = make_link(now=Fact(LinkState(generation=1, width=16)))
    assert link_text(idle) == "PCIe 5.0 x16, 256 B payload"


def test_a_link_that_was_not_seen_under_load_says_so() -> None:
    idle = make_link(now=Fact(LinkState(generation=1, width=16)), under_load=unknown("not asked"))
    assert link_text(idle) == "PCIe 1.0 x16, 256 B payload, not seen under load"


def test_a_chip_to_chip_link_tells_why_it_has_no_peak() -> None:
    assert link_text(make_link(kind="c2c", raw_peak_gbps=unknown("joined chip to chip"))) == "joined chip to chip"


def test_a_device_is_told_with_what_shares_it() -> None:
    assert device_text(make_device(mig=Fact(True))) == "NVIDIA H200, GPU 0, 0000:19:00.0, MIG instance"


def test_host_memory_is_never_told_as_a_device() -> None:
    assert device_text(make_device(runtime="host", name="NVIDIA H200")) == "host memory, not a PCIe link"


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        (Remark("a", "It varies.", "--budget 60s"), "It varies; try --budget 60s"),
        (Remark("a", "It is narrow.", "reseat the card."), "It is narrow. Reseat the card."),
        (Remark("a", "It is so."), "It is so."),
    ],
)
def test_a_remark_says_what_would_change_it(remark: Remark, text: str) -> None:
    assert remark_text(remark) == text


def test_a_reason_keeps_the_cure_at_its_end() -> None:
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
def test_a_line_of_its_own_is_a_sentence_and_leaves_names_alone(text: str, line: str) -> None:
    assert sentence(text) == line
    assert capitalised(text) == line[: len(text)]

"""An examination as its reader sees it."""

from __future__ import annotations

import io

import msgspec
import pytest
from doctor.cases import bare_metal, copies, counters, h200, h200_link, health
from samples import MARKUP

from pyxfer._doctor.session import examine, nearest_known
from pyxfer._document.examinations import Examination, Finding, Health
from pyxfer._document.runs import Fact, LinkState, Run
from pyxfer._report.doctor import print_examination, summary
from pyxfer._report.layout import Page


def examined(run: Run, seen: Health | None = None) -> Examination:
    nearest = nearest_known(run)
    return Examination(run, Fact(seen or health()), nearest, examine(run, seen or health(), nearest.value))


def page(examination: Examination, columns: int | None = 80) -> str:
    out = io.StringIO()
    print_examination(examination, Page(out, columns=columns))
    return out.getvalue()


RIGHT = examined(h200())
WRONG = examined(bare_metal(link=h200_link(LinkState(5, 8)), measurements=copies(0.48)), health(after=counters(99)))


def test_a_host_that_is_right_says_so_in_one_sentence() -> None:
    fine, unknown = len(RIGHT.of("fine")), len(RIGHT.of("unknown"))
    assert summary(RIGHT) == (
        f"Nothing is wrong with this host, as far as it could be told ({fine} findings fine, {unknown} unknown)."
    )
    assert summary(RIGHT) in " ".join(page(RIGHT).split())


def test_a_host_that_is_wrong_names_what_is() -> None:
    assert summary(WRONG).startswith("Something is wrong with this host: link, ")
    assert "Wrong" in page(WRONG).splitlines()


def test_what_is_wrong_has_what_was_seen_and_expected_and_why_and_what_to_do() -> None:
    text = page(WRONG, columns=None)
    for line in (
        "  link             PCIe 5.0 x8 under load (certain)",
        "    expected       PCIe 5.0 x16, the most that device and slot can do",
        "    why            only 8 of 16 lanes came up: a bad contact, a riser, or lanes shared with a neighbour",
        "    do             Reseat the card or its riser,",
    ):
        assert " ".join(line.split()) in " ".join(text.split())


def test_what_is_fine_is_a_line_each_in_eighty_columns() -> None:
    lines = page(RIGHT).split("Fine\n")[1].splitlines()
    assert len(lines) == len(RIGHT.of("fine"))
    assert all(len(line) <= 80 for line in page(RIGHT).splitlines())


def test_the_gravest_come_first() -> None:
    lines = page(WRONG).splitlines()
    headings = [line for line in lines if line in ("Wrong", "Suspicious", "Unknown", "Fine")]
    assert headings == ["Wrong", "Suspicious", "Unknown", "Fine"]


def test_the_known_host_is_named_with_its_figures() -> None:
    text = " ".join(page(RIGHT).split())
    assert "one H200 SXM in a Firecracker VM, 2026-11-21: the same device, link and payload." in text
    assert "Reached: h2d 100.0 % of its 55.55 GB/s, d2h 100.0 % of its 55.41 GB/s" in text


def test_a_known_host_of_another_kind_is_named_with_what_differs() -> None:
    text = " ".join(page(WRONG).split())
    assert "is the nearest, and not the same: link PCIe 5.0 x8 here, PCIe 5.0 x16 there" in text


def test_host_memory_has_no_link_and_no_green_sentence() -> None:
    device = msgspec.structs.replace(h200().device, runtime="host")
    examination = examined(h200(device=device, runtime="host", runtime_reason="No usable GPU: none is visible."))
    text = page(examination)
    assert "There is no link to examine here" in text
    assert "device  host memory, not a PCIe link" in text


def test_what_is_suspicious_alone_is_not_called_wrong() -> None:
    examination = examined(h200(environment={"persistence": Fact(False)}))
    assert summary(examination).startswith("Nothing is wrong for certain, and something is suspicious: persistence (")


@pytest.mark.parametrize("hostile", [MARKUP, "\x1b[2Jgone", "a\nb"])
def test_text_from_outside_stays_text(hostile: str) -> None:
    run = h200(environment={"host": hostile, "virtual_machine": Fact(hostile)})
    finding = Finding("x", hostile, "wrong", hostile, hostile, hostile, "certain", hostile)
    shown = page(msgspec.structs.replace(examined(run), findings=(finding,)), columns=None)
    assert "\x1b" not in shown
    assert "a\nb" not in shown
    if hostile == MARKUP:
        assert MARKUP in shown

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


def test_the_summary_of_a_good_host_counts_its_findings() -> None:
    fine, unknown = len(RIGHT.of("fine")), len(RIGHT.of("unknown"))
    assert summary(RIGHT).startswith("Nothing is wrong with this host")
    assert f"{fine} fine, {unknown} unknown" in summary(RIGHT)
    assert summary(RIGHT) in " ".join(page(RIGHT).split())


def test_the_summary_of_a_wrong_host_names_the_subjects() -> None:
    assert summary(WRONG).startswith("Something is wrong with this host: link, ")
    assert "Wrong" in page(WRONG).splitlines()


def test_a_wrong_finding_has_all_of_its_fields() -> None:
    text = page(WRONG, columns=None)
    for line in (
        "  link             PCIe 5.0 x8 under load (certain)",
        "    expected       PCIe 5.0 x16, the most that device and slot can do",
        "    why            only 8 of 16 lanes came up: a bad contact, a riser, or lanes shared with a neighbour",
        "    do             Reseat the card or its riser,",
    ):
        assert " ".join(line.split()) in " ".join(text.split())


def test_fine_findings_are_one_line_each() -> None:
    lines = page(RIGHT).split("Fine\n")[1].splitlines()
    assert len(lines) == len(RIGHT.of("fine"))
    assert all(len(line) <= 80 for line in page(RIGHT).splitlines())


def test_the_most_serious_findings_are_first() -> None:
    lines = page(WRONG).splitlines()
    headings = [line for line in lines if line in ("Wrong", "Suspicious", "Unknown", "Fine")]
    assert headings == ["Wrong", "Suspicious", "Unknown", "Fine"]


def test_a_known_host_has_its_figures() -> None:
    text = " ".join(page(RIGHT).split())
    assert "one H200 SXM in a Firecracker VM, 2026-11-21: the same device, link and payload." in text
    assert "Reached: h2d 100.0 % of its 55.55 GB/s, d2h 100.0 % of its 55.41 GB/s" in text


def test_a_different_known_host_has_the_differences() -> None:
    text = " ".join(page(WRONG).split())
    assert "the nearest but different: link PCIe 5.0 x8 here, PCIe 5.0 x16 there" in text


def test_host_memory_has_no_link() -> None:
    device = msgspec.structs.replace(h200().device, runtime="host")
    examination = examined(h200(device=device, runtime="host", runtime_reason="No usable GPU: none is visible."))
    text = page(examination)
    assert "No link was examined" in text
    assert "device  host memory, not a PCIe link" in text


def test_a_suspicious_finding_is_not_called_wrong() -> None:
    examination = examined(h200(environment={"persistence": Fact(False)}))
    assert summary(examination).startswith("Nothing is certainly wrong, but something is suspicious: persistence (")


@pytest.mark.parametrize("hostile", [MARKUP, "\x1b[2Jgone", "a\nb"])
def test_text_from_outside_stays_text(hostile: str) -> None:
    run = h200(environment={"host": hostile, "virtual_machine": Fact(hostile)})
    finding = Finding("x", hostile, "wrong", hostile, hostile, hostile, "certain", hostile)
    shown = page(msgspec.structs.replace(examined(run), findings=(finding,)), columns=None)
    assert "\x1b" not in shown
    assert "a\nb" not in shown
    if hostile == MARKUP:
        assert MARKUP in shown

"""An examination as its reader sees it."""

from __future__ import annotations

import io

import msgspec
import pytest
from doctor.cases import h200, health
from samples import MARKUP

from pyxfer._doctor.session import examine, nearest_known
from pyxfer._document.examinations import Examination, Finding, Health
from pyxfer._document.runs import Fact, Run
from pyxfer._report.doctor import print_examination, summary
from pyxfer._report.layout import Page


def examined(run: Run, seen: Health | None = None) -> Examination:
    nearest = nearest_known(run)
    return Examination(run, Fact(seen or health()), nearest, examine(run, seen or health(), nearest.value))


def page(examination: Examination, columns: int | None = 80) -> str:
    out = io.StringIO()
    print_examination(examination, Page(out, columns=columns))
    return out.getvalue()


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

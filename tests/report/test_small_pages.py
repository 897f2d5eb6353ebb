"""Pages of an examination, a tuning and of the available routes."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from doctor.cases import h200, health
from msgspec.structs import replace
from pages import line_with, printed
from report.test_golden_pages import TO
from ring_samples import make_state, make_tuned

from pyxfer._doctor.examine import examine, nearest_known
from pyxfer._document.examinations import Examination, Health
from pyxfer._document.machines import Fact
from pyxfer._document.routes import FrameworkStatus
from pyxfer._document.runs import Run
from pyxfer._document.tunings import RingSetup, RingState, TuningTrial
from pyxfer._report.doctor import print_examination, summary
from pyxfer._report.host import print_framework_routes
from pyxfer._report.layout import Page
from pyxfer._report.tune import print_tuning


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
    assert "no link was examined" in text
    assert "device  host memory, not a PCIe link" in text


def test_a_suspicious_finding_is_not_called_wrong() -> None:
    examination = examined(h200(environment={"persistence": Fact(False)}))
    assert summary(examination).startswith("NVIDIA H200, PCIe 5.0 x16, 256 B payload: nothing is certainly wrong, but")


def page_of(state: RingState) -> str:
    return printed(lambda page: print_tuning(state, page))


def test_untried_rings_are_grouped_by_reason() -> None:
    many = tuple(
        TuningTrial(RingSetup(threads, 64 << 10, 512, "streaming", 20), "not tried", reason="the limit is over")
        for threads in (10, 12)
    )
    tuned = make_tuned()
    text = page_of(make_state(tuning=Fact(msgspec.structs.replace(tuned, trials=(*tuned.trials, *many)))))
    assert line_with(text, "-  the limit is over (2)").endswith(": 10x512x64 KiB streaming, 12x512x64 KiB streaming")
    assert line_with(text, "(1): ").endswith(": 15x512x64 KiB plain")


@pytest.mark.parametrize("verdict", ["faster", "not faster", "given up", "cut short"])
def test_the_widest_table_fits_a_narrow_terminal(verdict: Any) -> None:
    widest = RingSetup(31, 128 << 10, 1024, "streaming", 20)
    tuned = make_tuned()
    trials = (*tuned.trials, msgspec.structs.replace(tuned.trials[1], ring=widest, verdict=verdict, against_best=1.281))
    stream = io.StringIO()
    print_tuning(make_state(tuning=Fact(msgspec.structs.replace(tuned, trials=trials))), Page(stream, columns=80))
    assert "1.28 " in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_names_and_calls_are_harmless() -> None:
    hostile = replace(TO, name="mine.[red]x[/red]", call="\x1b[2Jf(x)")
    status = FrameworkStatus("mine", "\x1b[31mMine", "1\x07", "", (hostile,))
    text = printed(lambda page: print_framework_routes([status], page))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "mine.[red]x[/red]" in text

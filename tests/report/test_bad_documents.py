"""Reports of every kind of document: with hostile names, without figures, of several versions, and very large."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from baseline.store.making import make_baseline
from hostile import with_text
from link_samples import make_links
from report_samples import BREAKOUT, DOCUMENTS, RIGHT_TO_LEFT
from ring_samples import make_state
from samples import make_measurement, make_missing, make_run
from watch_samples import make_unseen
from xfer_samples import session

from pyxfer._document import runs
from pyxfer._document.baselines import Comparison, History
from pyxfer._document.machines import unknown
from pyxfer._report.kinds import charts_of
from pyxfer._report.webpage import page_html, report_bytes

pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
HOSTILE = f"{BREAKOUT}{RIGHT_TO_LEFT}\x1b[31m\x00\x9b2J\ufffe"
MAX_BYTES = 1_500_000


# --- hostile names ---------------------------------------------------------------------------------------------------


QUICK = {"ceiling", "explain", "comparison", "links of one GPU"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DOCUMENTS]
)
def test_hostile_text_in_every_field_stays_text(name: str) -> None:
    page = page_html([with_text(DOCUMENTS[name], HOSTILE)])
    assert page.count("<script") == page.count("</script>") == 1
    assert "<img" not in page
    assert not {"\u202e", "\x1b", "\x00", "\x9b", "\ufffe"} & set(page)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["explain", "comparison", "watch", "links of four GPUs"])
def test_hostile_text_is_drawn(name: str) -> None:
    document = with_text(DOCUMENTS[name], HOSTILE)
    assert report_bytes([document], ".png").startswith(b"\x89PNG")
    assert report_bytes([document], ".pdf").startswith(b"%PDF")


@pytest.mark.parametrize("name", [name for name, document in DOCUMENTS.items() if hasattr(document, "text")])
def test_hostile_text_does_not_reach_the_terminal(name: str) -> None:
    page = with_text(DOCUMENTS[name], HOSTILE).text()
    assert not {"\u202e", "\x1b", "\x00", "\x9b"} & set(page)


# --- without figures -------------------------------------------------------------------------------------------------


def empty_run() -> runs.Run:
    return make_run(measurements=(make_missing(),), curves=())


EMPTY: dict[str, Any] = {
    "run": empty_run(),
    "frameworks": make_run(kind="frameworks", measurements=(), curves=()),
    "explain": make_run(kind="explain", measurements=(), curves=()),
    "failed": make_run(ended="failed", failure="the device is gone", measurements=(), curves=()),
    "links": msgspec.structs.replace(make_links(1), traffics=(), latencies=(), small=()),
    "baseline": msgspec.structs.replace(make_baseline(), runs=(empty_run(),)),
    "comparison": msgspec.structs.replace(DOCUMENTS["comparison"], cells=(), verdict="AMBIGUOUS"),
    "examination": msgspec.structs.replace(DOCUMENTS["examination"], run=empty_run(), findings=()),
    "pytest": msgspec.structs.replace(session(), tests=()),
    "history": History(()),
    "tuning": make_state(tuning=unknown("the limit left no time")),
}


@pytest.mark.parametrize("name", EMPTY)
def test_without_figures_a_report_has_no_chart_and_says_so(name: str) -> None:
    page = page_html([EMPTY[name]])
    assert "<svg" not in page
    assert "no figure can be drawn" in page


def test_a_watch_without_records_still_has_the_parts_that_the_host_saw() -> None:
    assert "timeline" not in charts_of(make_unseen())
    assert "No device records" in page_html([make_unseen()])


# --- several documents -----------------------------------------------------------------------------------------------


def test_a_comparison_and_its_own_runs_share_a_page() -> None:
    assert isinstance(DOCUMENTS["comparison"], Comparison)
    page = page_html([DOCUMENTS["comparison"], DOCUMENTS["ceiling"], DOCUMENTS["ceiling"]])
    assert [f'id="document-{number}"' in page for number in (1, 2, 3)] == [True] * 3


# --- large documents -------------------------------------------------------------------------------------------------


def test_ten_thousand_trials_of_each_row_fit_into_the_page() -> None:
    trials = tuple(runs.Trial(number, 1e-3 + number * 1e-7) for number in range(10_000))
    row = msgspec.structs.replace(make_measurement(), trials=trials)
    rows = tuple(msgspec.structs.replace(row, nbytes=4096 << place) for place in range(10))
    page = page_html([make_run(measurements=rows, curves=())])
    assert len(page.encode()) < MAX_BYTES
    assert "trials" in charts_of(make_run(measurements=rows, curves=()))

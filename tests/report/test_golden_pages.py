"""Whole pages at 80 columns, two for each command.

`PYXFER_WRITE_PAGES=1 pytest tests/report/test_golden_pages.py` writes them again; read the difference before a commit.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from baseline_samples import Slower, as_usual, make_sample, slow_pinned
from doctor.cases import bare_metal, copies, counters, h200, h200_link, health
from explain_samples import make_explain_run
from framework_samples import make_frameworks_run, make_image_batch_run
from link_samples import make_links
from pages import full_run, host_run
from ring_samples import make_state
from samples import KIB, MIB, make_link, make_run
from watch_samples import make_stalled, make_watched

from pyxfer._baseline.compare import compare_samples
from pyxfer._doctor.session import examine, nearest_known
from pyxfer._document import runs
from pyxfer._document.examinations import Examination, Health
from pyxfer._document.runs import Fact, LinkState
from pyxfer._report.baseline import print_comparison
from pyxfer._report.doctor import print_examination
from pyxfer._report.host import print_host_card, print_machine, print_tuning
from pyxfer._report.layout import Page
from pyxfer._report.links import print_links
from pyxfer._report.run import print_run
from pyxfer._report.watch import print_watch

FOLDER = Path(__file__).parent / "pages"
CARD = full_run(sizes=(4 * KIB, MIB, 64 * MIB))


def info(run: runs.Run, page: Page) -> None:
    print_machine([run.device], [run.link], [run.placement], [make_state()], run.environment, page)


def doctor(run: runs.Run, seen: Health, page: Page) -> None:
    nearest = nearest_known(run)
    print_examination(Examination(run, Fact(seen), nearest, examine(run, seen, nearest.value)), page)


def compare(slower: Slower, page: Page, **run: runs.Link) -> None:
    # Without noise, which may differ between versions of NumPy.
    a = make_sample("old.json", between=0.0, within=0.0)
    b = make_sample("new.json", slower=slower, run=make_run(**run), between=0.0, within=0.0)
    print_comparison(compare_samples(a, b), page)


FOUR_GPUS = make_links(4, groups=("host", "together", "pairs", "numa"), nodes=(0, 1))
NARROW = h200_link(LinkState(5, 8))
PAGES: dict[str, Callable[[Page], None]] = {
    "ceiling": lambda page: print_run(full_run(), page),
    "ceiling-host": lambda page: print_run(host_run(full_run(ended="interrupted")), page),
    "compare-same": lambda page: compare(as_usual, page),
    "compare-slow": lambda page: compare(
        slow_pinned(2.0), page, link=make_link(under_load=Fact(LinkState(generation=5, width=8)))
    ),
    "doctor-fine": lambda page: doctor(h200(), health(), page),
    "doctor-wrong": lambda page: doctor(
        bare_metal(link=NARROW, measurements=copies(0.48)), health(after=counters(99)), page
    ),
    "explain": lambda page: print_run(make_explain_run(), page),
    "explain-host": lambda page: print_run(host_run(make_explain_run()), page),
    "frameworks": lambda page: print_run(make_frameworks_run(), page),
    "frameworks-images": lambda page: print_run(make_image_batch_run(), page),
    "host-card": lambda page: print_host_card(CARD, page),
    "host-card-host": lambda page: print_host_card(host_run(CARD), page),
    "info": lambda page: info(make_run(), page),
    "info-host": lambda page: info(host_run(make_run()), page),
    "links": lambda page: print_links(make_links(), page),
    "links-four": lambda page: print_links(
        make_links(4, groups=("host", "together", "pairs", "numa"), nodes=(0, 1)), page
    ),
    "tune": lambda page: print_tuning(make_state(), page),
    "tune-untuned": lambda page: print_tuning(make_state(tuning=Fact(reason="not tuned yet")), page),
    "watch": lambda page: print_watch(make_watched(), page),
    "watch-stalled": lambda page: print_watch(make_stalled(), page),
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_as_written(name: str) -> None:
    stream = io.StringIO()
    PAGES[name](Page(stream, columns=80))
    text, path = stream.getvalue(), FOLDER / f"{name}.txt"
    assert max(map(len, text.splitlines())) <= 80
    if os.environ.get("PYXFER_WRITE_PAGES"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")

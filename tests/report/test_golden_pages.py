"""Whole pages at 80 columns and the same documents as Markdown, which has what a report in HTML has.

`PYXFER_WRITE_PAGES=1 pytest tests/report/test_golden_pages.py` writes them again; read the difference before a commit.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from baseline.store.making import make_baseline
from baseline_samples import Slower, as_usual, make_sample, slow_pinned
from blocks_samples import make_blocks_run, make_without_kernels
from doctor.cases import bare_metal, copies, counters, h200, h200_link, health
from explain_samples import make_explain_run
from files_samples import make_files_run, make_warm_run
from fleet_samples import CELLS, judged, make_host
from framework_samples import make_frameworks_run, make_image_batch_run
from link_samples import make_links
from msgspec.structs import replace
from offload_samples import LAWS, make_run_of
from order_samples import make_orders_run
from pages import full_run, host_run
from report_samples import make_history, make_links_of_four
from ring_samples import make_state
from samples import KIB, MIB, Made, make_device, make_environment, make_link, make_run
from watch_samples import make_stalled, make_unseen, make_watched
from xfer_samples import row_of

from pyxfer._baseline.compare import compare_samples
from pyxfer._blocks.layouts import kv_layout
from pyxfer._blocks.offload import plan_offload
from pyxfer._doctor.examine import examine, nearest_known
from pyxfer._document import machines, runs, sessions
from pyxfer._document.baselines import Comparison, KeptBaseline
from pyxfer._document.examinations import Examination, Health
from pyxfer._document.fleets import Fleet
from pyxfer._document.machines import Fact, LinkState
from pyxfer._document.offloads import OffloadPlan
from pyxfer._document.routes import FrameworkStatus, RouteStatus
from pyxfer._document.sessions import Expected, XferSession
from pyxfer._fleet.collect import Arrival
from pyxfer._fleet.judge import judge
from pyxfer._report.baseline import print_baselines
from pyxfer._report.grid import csv_table
from pyxfer._report.host import print_framework_routes, print_machine, print_routes
from pyxfer._report.kinds import page_text, table_of, to_markdown
from pyxfer._report.layout import Page
from pyxfer._report.offload import print_plan
from pyxfer._report.tune import print_tuning

FOLDER = Path(__file__).parent / "pages"
DETAILED = (
    "ceiling",
    "ceiling-doubts",
    "ceiling-host",
    "explain",
    "frameworks",
    "frameworks-images",
    "frameworks-orders",
    "links",
    "links-slow",
    "doctor-fine",
    "watch",
    "compare-slow",
)


def info(run: runs.Run, page: Page) -> None:
    print_machine([run.device], [run.link], [run.placement], [make_state()], run.environment, page)


def doctor(run: runs.Run, seen: Health) -> Examination:
    nearest = nearest_known(run)
    return Examination(run, Fact(seen), nearest, examine(run, seen, nearest.value))


def compare(slower: Slower, **run: machines.Link) -> Comparison:
    # Without noise, which may differ between versions of NumPy.
    a = make_sample("old.json", between=0.0, within=0.0)
    b = make_sample("new.json", slower=slower, run=make_run(**run), between=0.0, within=0.0)
    return compare_samples(a, b)


def fleet() -> Fleet:
    """Twenty hosts, of which one is slow and one has not answered."""
    hosts = [
        make_host(
            f"n{number}",
            {
                name: usual * (1 + 0.0004 * (number * place % 5 - 2)) * (0.92 if (number, place) == (3, 3) else 1)
                for place, (name, usual) in enumerate(CELLS.items(), start=3)
            },
            labels={"rack": f"r{number % 5}"},
        )
        for number in range(20)
    ]
    late = judge([Arrival("n99", "late", "no answer within 25 s", None, "ssh")]).hosts
    found = judged(hosts)
    return replace(found, hosts=(*found.hosts, *late), judged_at="2026-11-23T12:00:00+00:00", pyxfer="0.1.0")


def pytest_session() -> XferSession:
    tests = (
        row_of(),
        row_of("tests/test_b.py::test_slow", 0.5, outcome="failed"),
        row_of("tests/test_b.py::test_other", None, outcome="failed"),
        row_of("tests/test_b.py::test_wrong", outcome="failed"),
        row_of("tests/test_b.py::test_no_limit", None, expected=Expected()),
    )
    place = sessions.TestMachine("cuda", "", make_device(), make_link(), make_environment())
    return XferSession("pytest", "complete", "2026-11-22T01:00:00+00:00", "9.2.0", (place,), tests)


def model_plan() -> OffloadPlan:
    layout = kv_layout("llama-70b", split="none", tensor_parallel=2)
    return plan_offload(layout=layout, tokens=32_768, prefill=3000, run=make_run_of(LAWS), share="45%")


def close_plan() -> OffloadPlan:
    return plan_offload("16KiB", 64, "31.4us", run=make_run_of(LAWS), load_only=True)


def kept_baseline() -> KeptBaseline:
    baseline = make_baseline()
    made = baseline.made_at
    return KeptBaseline("3f2a", "default", "f1-0a", baseline.fingerprint, made, made, {}, ("a", "b", "c"), 1)


def raw(name: str, direction: tuple[runs.Direction, ...], mode: str, reason: str = "") -> RouteStatus:
    return RouteStatus(name, "raw", direction, "pinned", mode, 0, "queued", "f(x)", False, not reason, reason)


def route(name: str, call: str, **fields: Any) -> RouteStatus:
    usual = RouteStatus(name, "torch", ("h2d",), "pageable", "framework", 0, "done", call, False, True, "")
    return replace(usual, **fields)


OLD_DRIVER = "the driver knows CUDA 12.4, and this needs 12.8"
ROUTES = [
    raw("raw.pinned-async", ("h2d", "d2h", "both"), "async"),
    raw("raw.pageable-async", ("h2d", "d2h"), "async", "not here"),
    raw("raw.pinned-batch", ("h2d", "d2h"), "batch", OLD_DRIVER),
]
TO = route("torch.to", 'torch.from_numpy(x).to("cuda")', usual=True)
PIN_TO = route("torch.pin-to", "x.pin_memory()", host_copies=1, available=False, reason="not in this version")
LONGEST = route("tf.data-prefetch-compatible", "next(x) " * 20, direction=("ingest",), host_copies=2, returns="queued")
NO_GPU = "PyTorch 2.13+cpu was built without CUDA"
FRAMEWORKS = [
    FrameworkStatus("torch", "PyTorch", "2.11.0", "", (TO, replace(PIN_TO, available=False, reason="it is gone"))),
    FrameworkStatus("torch", "PyTorch", "2.13+cpu", NO_GPU, (replace(TO, available=False, reason=NO_GPU),)),
    FrameworkStatus("tensorflow", "TensorFlow", "2.21.0", "no GPU answers", (LONGEST,)),
    FrameworkStatus("cupy", "CuPy", None, "CuPy is not installed", ()),
]
NARROW = h200_link(LinkState(5, 8))
DOCUMENTS = Made(
    {
        "baseline": lambda: make_baseline(labels={"slot": "3"}),
        "blocks": make_blocks_run,
        "blocks-loop": make_without_kernels,
        "ceiling": full_run,
        "ceiling-doubts": make_run,
        "ceiling-host": lambda: host_run(full_run(ended="interrupted")),
        "ceiling-few": lambda: full_run(sizes=(4 * KIB, MIB, 64 * MIB)),
        "compare-same": lambda: compare(as_usual),
        "compare-slow": lambda: compare(
            slow_pinned(2.0), link=make_link(under_load=Fact(LinkState(generation=5, width=8)))
        ),
        "doctor-fine": lambda: doctor(h200(), health()),
        "doctor-wrong": lambda: doctor(bare_metal(link=NARROW, measurements=copies(0.48)), health(after=counters(99))),
        "explain": make_explain_run,
        "explain-host": lambda: host_run(make_explain_run()),
        "files": make_files_run,
        "files-warm": make_warm_run,
        "fleet": fleet,
        "fleet-host": lambda: make_host(labels={"rack": "r7"}),
        "frameworks": make_frameworks_run,
        "frameworks-images": make_image_batch_run,
        "frameworks-orders": make_orders_run,
        "frameworks-orders-alone": lambda: make_orders_run(with_routes=False),
        "history": make_history,
        "links": make_links,
        "links-slow": make_links_of_four,
        "links-four": lambda: make_links(4, groups=("host", "together", "pairs", "numa"), nodes=(0, 1)),
        "session": pytest_session,
        "watch": make_watched,
        "watch-stalled": make_stalled,
        "watch-unseen": make_unseen,
    }
)
MARKDOWN = (
    *("baseline", "blocks-loop", "ceiling-doubts", "compare-slow", "doctor-wrong", "explain", "files", "fleet"),
    *("fleet-host", "frameworks-images", "history", "links", "session", "watch-stalled"),
)
CSV = (
    *("baseline", "ceiling-doubts", "compare-slow", "explain", "explain-host", "fleet", "fleet-host", "history"),
    *("links", "session", "watch-stalled", "watch-unseen"),
)
PAGES: dict[str, Callable[[Page], None]] = {
    "baseline-list": lambda page: print_baselines([kept_baseline()], "SQLite file xfer.db", page),
    "info": lambda page: info(make_run(), page),
    "list": lambda page: print_routes([make_device()], ROUTES, page),
    "list-frameworks": lambda page: print_framework_routes(FRAMEWORKS, page),
    "plan": lambda page: print_plan(model_plan(), page),
    "plan-close": lambda page: print_plan(close_plan(), page),
    "tune": lambda page: print_tuning(make_state(), page),
    "tune-untuned": lambda page: print_tuning(make_state(tuning=Fact(reason="not tuned yet")), page),
    "info-host": lambda page: info(host_run(make_run()), page),
}


def compared(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("PYXFER_WRITE_PAGES"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*DOCUMENTS, *PAGES])
def test_page_is_as_written(name: str) -> None:
    if name in DOCUMENTS:
        text = page_text(DOCUMENTS[name], 80)
    else:
        stream = io.StringIO()
        PAGES[name](Page(stream, columns=80))
        text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    compared(f"{name}.txt", text)


@pytest.mark.parametrize("name", DETAILED)
def test_details_are_as_written(name: str) -> None:
    text = page_text(DOCUMENTS[name], 80, details=True)
    assert max(map(len, text.splitlines())) <= 80
    compared(f"{name}-details.txt", text)


@pytest.mark.parametrize("name", MARKDOWN)
def test_markdown_is_as_written(name: str) -> None:
    """It has the tables and lists of the report in HTML."""
    compared(f"{name}.md", to_markdown(DOCUMENTS[name]))


@pytest.mark.parametrize("name", CSV)
def test_csv_is_as_written(name: str) -> None:
    """With fewer digits: the last ones may differ between versions of NumPy."""
    table = table_of(DOCUMENTS[name]).table()
    rows = [[f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row] for row in table.rows]
    compared(f"{name}.csv", csv_table(table.names, rows))

"""Public objects on one line, as a page, and as a small table of a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from explain_samples import make_explain_run
from framework_samples import make_frameworks_run, make_route_row
from pages import full_run
from report_samples import DOCUMENTS
from samples import make_device, make_link, make_measurement, make_missing, make_run

import pyxfer
from pyxfer._measure import bracket
from pyxfer._upload.device_arrays import DevicePool
from pyxfer._upload.pending import Dropped, FixedTicket, Started, Upload
from pyxfer._upload.targets import Target
from pyxfer.errors import UsageError
from pyxfer.native import Choice, Engine


def test_a_run_says_what_it_is_and_its_main_figure() -> None:
    main = "raw.pinned-async h2d 256 MiB: 54.97 GB/s, 100.0 % of the ceiling"
    assert repr(full_run()) == f"<Run ceiling of NVIDIA H200: 90 measurements, {main}>"
    assert "tf.function h2d 96 MiB: 2.73 GB/s" in repr(make_explain_run())
    assert "torch.pinned-nonblocking h2d 256 MiB" in repr(make_frameworks_run())


def test_a_run_is_iterated_by_its_measurements() -> None:
    run = full_run()
    assert len(run) == len(run.table()) == 90
    assert tuple(run) == run.measurements


def test_the_main_figure_is_one_over_the_link() -> None:
    ingest = make_route_row("torch", "torch.ingest-copy", "ingest", 1 << 20, (1e-6, 900.0))
    run = make_frameworks_run(measurements=(*make_frameworks_run().measurements, ingest))
    assert "torch.pinned-nonblocking h2d" in repr(run)


def test_parts_of_a_run_are_one_line() -> None:
    assert repr(make_measurement()) == "<Measurement raw.pinned-async h2d 16 MiB: 55.00 GB/s, 100.0 % of the ceiling>"
    assert repr(make_missing("no memory")).endswith(": no bandwidth: no memory>")
    assert repr(make_device()) == "<Device 0: NVIDIA H200>"
    assert repr(make_link()) == "<Link pcie 5.0 x16, h2d peak 58.45 GB/s, d2h peak 57.61 GB/s>"


def test_other_documents_say_their_result() -> None:
    assert repr(DOCUMENTS["comparison"]).startswith("<Comparison A with B: SLOW, ")
    examination = DOCUMENTS["examination"]
    assert repr(examination).startswith(f"<Examination of NVIDIA H200: {examination.worst}, ")
    assert repr(examination.findings[0]).startswith(f"<Finding {examination.findings[0].code}, ")
    assert repr(DOCUMENTS["watch"]).startswith("<Watched 20 steps of ")


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not name.startswith("history")])
def test_a_repr_is_short_and_on_one_line(name: str) -> None:
    assert len(repr(DOCUMENTS[name])) <= 250
    assert "\n" not in repr(DOCUMENTS[name])


def test_names_from_outside_cannot_break_the_line() -> None:
    device = make_device(name="H200\n\x1b[31m" + "x" * 1000)
    assert repr(make_run(device=device)).isprintable()
    assert len(repr(device)) <= 250


@pytest.mark.parametrize("name", ["ceiling", "comparison", "watch", "fleet", "host", "links", "baseline"])
def test_a_document_of_any_kind_is_loaded_by_one_function_and_str_is_its_page(name: str, tmp_path: Path) -> None:
    document = DOCUMENTS[name]
    document.save(tmp_path / "it.json.gz")
    loaded = pyxfer.load(tmp_path / "it.json.gz")
    assert type(loaded) is type(document)
    assert str(loaded) == document.text() == document.text(10)


def test_a_document_writes_its_page_with_charts(tmp_path: Path) -> None:
    make_run().write_report(tmp_path / "run.html")
    assert "NVIDIA H200" in (tmp_path / "run.html").read_text()
    with pytest.raises(UsageError, match=r"run\.xyz"):
        make_run().write_report(str(tmp_path / "run.xyz"))


def test_columns_are_a_whole_number() -> None:
    assert make_run().text(np.int64(80)) == make_run().text(80)
    for columns in (0, True, "80"):
        with pytest.raises(UsageError, match="columns"):
            make_run().text(columns)  # type: ignore[arg-type]


def test_a_table_escapes_names_and_counts_the_rows_that_it_leaves_out() -> None:
    row = msgspec.structs.replace(make_measurement(), route="<script>")
    html = make_run(measurements=(row,) * 25)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<p>5 more rows" in html


def test_a_baseline_says_whose_it_is() -> None:
    from pyxfer._baseline.fingerprints import fingerprint_of

    run = make_run()
    baseline = pyxfer.Baseline("monday", fingerprint_of(run), "2026-01-01", {}, (run, run))
    assert repr(baseline) == "<Baseline 'monday' of node-7, NVIDIA H200: 2 runs>"


@pytest.fixture
def up(engine: Engine) -> Iterator[pyxfer.Uploader]:
    assert engine.RUNTIME == "host"
    with pyxfer.Uploader("host", threads=2, chunk_bytes=4096, slots=2, pool=0) as made:
        yield made


def test_an_uploader_and_its_uploads_show_their_state(up: pyxfer.Uploader, engine: Engine) -> None:
    own = Target(DevicePool(engine, 0, 0))
    assert repr(up) == "<Uploader in host memory: not used yet>"
    sent = up.upload({"x": np.ones(5000, np.uint8), "y": np.ones(3, np.uint8)}, own, block=False)
    sent.result()
    assert repr(sent) == "<Upload done>"
    assert repr(up) == "<Uploader in host memory: 8 KiB page-locked>"
    batches = up.prefetch([np.ones(3, np.uint8)], own, depth=3)
    assert repr(batches) == "<Prefetch of depth 3: open>"
    list(batches)
    assert repr(batches) == "<Prefetch of depth 3: ended>"
    up.close()
    assert repr(up) == "<Uploader in host memory: closed>"


def test_an_upload_counts_the_arrays_that_have_arrived() -> None:
    running = Started(FixedTicket(is_done=False), lambda: None, None)
    assert repr(Upload([0, 0], [running, running], Dropped(), None)) == "<Upload running: 0 of 2 arrays done>"


def test_a_watch_shows_its_state(engine: Engine) -> None:
    del engine
    watch = pyxfer.watch(device="host", ceilings=None)
    assert repr(watch) == "<Watch not started>"
    with watch:
        assert repr(watch) == "<Watch watching>"
        for _ in range(3):
            with watch.step():
                pass
    assert repr(watch) == "<Watch closed: 3 steps>"


def test_a_timer_shows_its_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bracket, "choose", lambda *_: Choice(engine, "host", ""))
    timer = pyxfer.Timer()
    assert repr(timer) == "<Timer without a time>"
    with timer:
        assert repr(timer) == "<Timer running>"
    assert repr(timer) == f"<Timer {pyxfer.units.format_seconds(timer.elapsed_s)}>"


def test_routes_are_one_line() -> None:
    from pyxfer._frameworks.torch import FRAMEWORK

    assert repr(FRAMEWORK.routes[0]) == '<Route torch.to, h2d: torch.from_numpy(x).to("cuda")>'
    listed = next(each for each in pyxfer.list_routes() if each.name == "raw.pageable-memcpy")
    assert repr(listed).startswith("<RouteStatus raw.pageable-memcpy, h2d, d2h: ")

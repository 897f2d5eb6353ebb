"""Filling the figures of the pages, and the check for pages that are out of date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import peers
import pytest
import readme_figures
import shared
import timers
import trace_figures
from bench.test_first_upload import firsts as make_firsts
from bench.test_fleet_detection import document as make_detection
from bench.test_fleet_detection import row as make_detection_row
from bench.test_history_changes import document as make_changes
from bench.test_history_changes import row as make_changes_row
from bench.test_image_floor import make_floors
from bench.test_interval_coverage import document as make_coverage
from bench.test_links_beside_nvbandwidth import make_beside
from bench.test_links_map import document as make_maps
from bench.test_prefetched_training import result as make_prefetched
from bench.test_ring_pauses import make_pauses
from bench.test_upload_soak import soak as make_soak
from bench.test_upload_soak import soaked as make_soaked
from bench.test_verdicts import document as make_verdicts
from bench.test_verdicts import row as make_row
from explain_samples import make_dma, make_explain_run
from figure_parts import IncompleteRunError
from fleet_samples import make_fleet, make_host
from framework_samples import make_frameworks_run, make_image_batch_run
from link_samples import make_links
from samples import make_device, make_environment, make_link, make_measurement, make_missing, make_run, retimed
from training_samples import make_training
from xfer_samples import row_of, session

from pyxfer._doctor.session import examine_run
from pyxfer._document.runs import Fact, Rate, unknown
from pyxfer._measure import stats
from pyxfer.errors import DocumentError, UsageError

MIB = 1 << 20
TABLES = {"one": lambda: "| a |\n| --- |\n| 1 |\n"}


def test_only_the_lines_between_the_markers_are_replaced() -> None:
    text = "before\n<!-- figures:one -->\nold\n<!-- /figures -->\nafter\n"
    filled = readme_figures.fill(text, TABLES, "README.md")
    assert filled == "before\n<!-- figures:one -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- /figures -->\nafter\n"


def test_filling_twice_changes_nothing() -> None:
    once = readme_figures.fill("<!-- figures:one -->\n<!-- /figures -->\n", TABLES, "README.md")
    assert readme_figures.fill(once, TABLES, "README.md") == once


def test_markers_in_a_fenced_block_are_ignored() -> None:
    text = "```\n<!-- figures:one -->\n<!-- /figures -->\n```\n"
    assert readme_figures.fill(text, TABLES, "README.md") == text


def test_markers_after_a_fenced_block_are_filled() -> None:
    text = "```\ncode\n```\n<!-- figures:one -->\n<!-- /figures -->\n"
    assert "| 1 |" in readme_figures.fill(text, TABLES, "README.md")


@pytest.mark.parametrize("rest", ["old\n", "<!-- figures:one -->\n<!-- /figures -->\n"], ids=["end", "next place"])
def test_a_marker_that_is_not_closed_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match=r"docs/a\.md.*figures:one"):
        readme_figures.fill(f"<!-- figures:one -->\n{rest}", TABLES, "docs/a.md")


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"`two`.* one"):
        readme_figures.fill("<!-- figures:two -->\n<!-- /figures -->\n", TABLES, "README.md")


def test_the_ceiling_table_has_rates_and_their_share_of_the_peak() -> None:
    pinned = retimed(make_measurement(16 * MIB), [0.3e-3] * 10)
    text = readme_figures.ceiling_table(make_run(measurements=(pinned,)))
    assert "| 16 MiB | 55.92 (55.92 to 55.92) | 95.7 % | - | - | - | - | - | - |" in text


def test_a_row_without_an_interval_has_no_figure() -> None:
    few = retimed(make_measurement(16 * MIB), [0.3e-3] * 5)
    text = readme_figures.ceiling_table(make_run(measurements=(few,)))
    assert "| 16 MiB | - | - | - | - | - | - | - | - |" in text


def test_the_ceiling_table_has_machine_date_and_peaks() -> None:
    text = readme_figures.ceiling_table(make_run())
    assert text.startswith("NVIDIA H200, INTEL(R) XEON(R) PLATINUM 8568Y+, driver 570.124.06, pyxfer 0.1.0, 2025-11-21")
    assert "The protocol peak of PCIe 5.0 x16 is 58.45 GB/s h2d and 57.61 GB/s d2h." in text


def test_a_missing_peak_has_its_reason() -> None:
    none: Fact[float] = unknown("host memory, not a PCIe link")
    link = make_link(h2d_peak_gbps=none, d2h_peak_gbps=none)
    assert "No protocol peak: host memory, not a PCIe link." in readme_figures.ceiling_table(make_run(link=link))


def test_a_measurement_without_a_rate_is_a_dash() -> None:
    text = readme_figures.ceiling_table(make_run(measurements=(make_missing(),)))
    assert "| 16 MiB | - | - |" in text


def test_the_fastest_mode_of_a_memory_is_shown() -> None:
    slow, fast = (
        make_measurement(mode=mode, rate=Fact(Rate(gbps=gbps, low_gbps=None, high_gbps=None)))
        for mode, gbps in (("memcpy", 50.0), ("async", 55.0))
    )
    assert readme_figures.best(make_run(measurements=(fast, slow)), "h2d", "pinned", 16 * MIB) is fast


@pytest.mark.parametrize("other", [{"variant": "fresh"}, {"direction": "both"}, {"memory": "pageable"}])
def test_another_variant_direction_or_memory_is_not_used(other: dict[str, Any]) -> None:
    run = make_run(measurements=(make_measurement(**other),))
    assert readme_figures.best(run, "h2d", "pinned", 16 * MIB) is None


def test_small_sizes_end_at_one_mib() -> None:
    text = readme_figures.small_sizes(make_run())
    assert "| 4 KiB |" in text
    assert "16 MiB" not in text


def test_small_sizes_have_the_time_of_one_copy() -> None:
    found = make_measurement(4096)
    assert found.elapsed_s is not None
    text = readme_figures.small_sizes(make_run(measurements=(found,)))
    assert f"| {found.elapsed_s * 1e6:.2f} | - | - |" in text


def make_peers() -> peers.Peers:
    readings = [peers.Reading(tool, 0, "h2d", "h2d", 64 * MIB, Fact(gbps)) for tool, gbps in PAIR]
    return peers.Peers(
        device=make_device(),
        environment=make_environment(),
        nvbandwidth_version=Fact("v0.8"),
        nvbandwidth_git_version=Fact("v0.8"),
        nvbandwidth_driver=Fact("570.124.06"),
        tolerance=0.005,
        rounds=3,
        rows=peers.compare(readings, 0.005),
        readings=tuple(readings),
    )


PAIR: tuple[tuple[peers.Tool, float], ...] = (("nvbandwidth", 55.5), ("pyxfer", 55.4))


def test_the_peers_table_has_versions_and_date() -> None:
    text = readme_figures.peers_table(make_peers())
    assert "pyxfer 0.1.0, 2025-11-21; nvbandwidth v0.8; 3 rounds in turns." in text
    assert "| h2d | 64 MiB | 55.50 | 55.40 | -0.18 % |" in text


def make_timers() -> timers.Timers:
    seconds = (1.0e-3, 1.001e-3, 1.002e-3, 1.003e-3, 1.004e-3, 1.005e-3, 1.006e-3, 1.007e-3)
    summary = Fact(stats.summarise(seconds))
    rows = (timers.Row("torch.to", "torch", (seconds,), summary), timers.Row("torch.to", "pyxfer", (seconds,), summary))
    lost = timers.Row("torch.to", "cupyx", (), unknown("cupyx is not installed"))
    return timers.Timers(make_device(), make_environment(), {}, 64 * MIB, (*rows, lost), ())


def test_the_timers_table_has_a_row_for_each_timer_with_the_verdict() -> None:
    text = readme_figures.timers_table(make_timers())
    assert "pyxfer 0.1.0, 2025-11-21; 64 MiB to the GPU a call." in text
    summary = make_timers().rows[1].summary.value
    assert summary is not None
    interval = f"{(summary.low_s or 0) * 1e6:.1f} to {(summary.high_s or 0) * 1e6:.1f}"
    assert f"| torch.to | pyxfer | 1003.5 | {interval} | {interval} | 8 | yes |" in text
    assert "1 of 1 pairs agree within noise; the 95 % intervals of 0 pairs do not overlap." in text


def test_the_timers_table_has_the_reason_of_a_missing_figure() -> None:
    assert "\ntorch.to, cupyx: cupyx is not installed.\n" in readme_figures.timers_table(make_timers())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with a page that has markers for every table, and all documents."""
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    make_run().save(results / "ceiling.json.gz")
    make_run().save(results / "host.json.gz")
    examine_run(make_run()).save(results / "doctor.json.gz")
    make_frameworks_run((64 * 1024, 16 * MIB)).save(results / "frameworks.json.gz")
    make_image_batch_run((1, 512)).save(results / "image_batch.json.gz")
    row = make_measurement()
    row = make_measurement(dma=Fact(make_dma(304e-6, nbytes=row.nbytes)))
    make_run(measurements=(row,)).save(results / "dma.json.gz")
    for name in trace_figures.CALLS:
        make_explain_run().save(results / f"explain_{name}.json.gz")
    for name in trace_figures.FRAMEWORKS:
        shared.write_document(results / f"watched_{name}.json.gz", make_training(name))
    for name in ("staged", "uploads", "upload_images"):
        make_run().save(results / f"{name}.json.gz")
    shared.write_document(results / "first_upload.json.gz", make_firsts())
    shared.write_document(results / "prefetched_torch.json.gz", make_prefetched(0.02))
    shared.write_document(results / "interval_coverage.json.gz", make_coverage())
    shared.write_document(results / "upload_soak.json.gz", make_soak(make_soaked()))
    shared.write_document(results / "ring_pauses.json.gz", make_pauses())
    shared.write_document(results / "image_floor.json.gz", make_floors())
    make_links().save(results / "links.json.gz")
    shared.write_document(results / "links_peers.json.gz", make_beside())
    make_links().save(results / "links_small.json.gz")
    watch = readme_figures.Stopwatch([readme_figures.Timed(4096, "h2d", "256 calls", verified=True, gbps=1.5)])
    shared.write_document(results / "stopwatch.json.gz", watch)
    shared.write_document(results / "links_map.json.gz", make_maps())
    make_host("n1").save(results / "host_job.json.gz")
    make_fleet().save(results / "fleet_ray.json.gz")
    session().save(results / "pytest_example.json.gz")
    shared.write_document(results / "peers.json.gz", make_peers())
    shared.write_document(results / "timers.json.gz", make_timers())
    shared.write_document(results / "verdicts.json.gz", make_verdicts(make_row(0.05, confirmed=200)))
    shared.write_document(results / "fleet_detection.json.gz", make_detection(make_detection_row()))
    shared.write_document(results / "history_changes.json.gz", make_changes(make_changes_row()))
    places = "".join(f"<!-- figures:{name} -->\n<!-- /figures -->\n" for name in readme_figures.figures(results))
    (tmp_path / "README.md").write_text(places)
    (tmp_path / "docs" / "plain.md").write_text("no figures\n")
    return tmp_path


def test_check_names_the_stale_page_and_does_not_write_it(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (tree / "README.md").read_text()
    assert readme_figures.main(["--check"], tree) == 1
    assert "README.md" in capsys.readouterr().err
    assert (tree / "README.md").read_text() == before


def test_a_filled_page_passes_the_check(tree: Path) -> None:
    assert readme_figures.main([], tree) == 0
    assert readme_figures.main(["--check"], tree) == 0


def test_a_page_of_docs_is_filled_too(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme_figures.main([], tree)
    (tree / "docs" / "results.md").write_text("<!-- figures:peers-table -->\n<!-- /figures -->\n")
    assert readme_figures.main(["--check"], tree) == 1
    assert "docs/results.md" in capsys.readouterr().err
    assert readme_figures.main([], tree) == 0
    assert "| test |" in (tree / "docs" / "results.md").read_text()


def test_a_new_document_makes_the_page_stale(tree: Path) -> None:
    readme_figures.main([], tree)
    slower = msgspec.structs.replace(make_run(), measurements=(), curves=(), locking=())
    slower.save(tree / "bench" / "results" / "ceiling.json.gz")
    assert readme_figures.main(["--check"], tree) == 1


def test_a_missing_document_is_named(tree: Path) -> None:
    (tree / "bench" / "results" / "peers.json.gz").unlink()
    with pytest.raises(DocumentError, match=r"peers\.json"):
        readme_figures.main([], tree)


def test_every_run_of_uploads_has_a_table(tree: Path) -> None:
    make_run().save(tree / "bench" / "results" / "uploads_jax.json.gz")
    (tree / "README.md").write_text("<!-- figures:uploads-table -->\n<!-- /figures -->\n")
    assert readme_figures.main([], tree) == 0
    assert (tree / "README.md").read_text().count("| framework |") == 2
    for path in (tree / "bench" / "results").glob("uploads*.json.gz"):
        path.unlink()
    with pytest.raises(UsageError, match=r"uploads\*\.json\.gz"):
        readme_figures.main([], tree)


def test_an_interrupted_run_has_a_reason_and_no_figures(tree: Path) -> None:
    make_run(ended="interrupted").save(tree / "bench" / "results" / "uploads.json.gz")
    (tree / "README.md").write_text("<!-- figures:uploads-table -->\n<!-- /figures -->\n")
    assert readme_figures.main([], tree) == 0
    text = (tree / "README.md").read_text()
    assert "No figures: uploads.json.gz of 2025-11-21 is interrupted" in text
    assert "| framework |" not in text


def test_an_interrupted_run_of_the_only_document_of_a_table_is_refused(tree: Path) -> None:
    make_run(ended="interrupted").save(tree / "bench" / "results" / "ceiling.json.gz")
    with pytest.raises(IncompleteRunError, match=r"ceiling\.json\.gz of 2025-11-21 is interrupted"):
        readme_figures.main([], tree)


def test_documents_of_tables_on_no_page_are_not_read(tree: Path) -> None:
    (tree / "README.md").write_text("<!-- figures:peers-table -->\n<!-- /figures -->\n")
    (tree / "bench" / "results" / "frameworks.json.gz").unlink()
    assert readme_figures.main([], tree) == 0


def test_a_page_without_markers_needs_no_documents(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("plain\n")
    assert readme_figures.main(["--check"], tmp_path) == 0


def test_the_page_of_a_session_is_that_of_pytest() -> None:
    lines = readme_figures.session_page(session(row_of(), row_of("tests/test_b.py::test_other", None))).splitlines()
    assert lines[0] == lines[-1] == "```"
    assert lines[1] == "--------------------- pyxfer: host memory, not a PCIe link ---------------------"
    assert lines[2].split() == ["test", "dir", "size", "GB/s", "+-", "of", "ceiling", "verdict"]
    assert max(map(len, lines)) <= 80


def test_the_guide_shows_the_code_of_the_summarised_tests() -> None:
    _, _, body = (readme_figures.ROOT / "bench" / "pytest_example.py").read_text().partition('"""\n\n')
    assert f"```python\n{body}```" in (readme_figures.ROOT / "docs" / "pytest.md").read_text()


def test_the_first_screen_has_a_figure_for_each_of_four_questions() -> None:
    rows = readme_figures.first_screen(readme_figures.ROOT / "bench" / "results").splitlines()[2:]
    commands = ["pyxfer", "pyxfer frameworks", "pyxfer explain tf.function", "pyxfer doctor"]
    assert [row.split("`")[1] for row in rows] == commands
    for words, row in zip(("GB/s", "usual torch.to", "tf.function, to the GPU", "findings:"), rows, strict=True):
        assert words in row.rpartition("`")[2]

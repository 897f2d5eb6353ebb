"""The known hosts in the package are those that the script generates from bench/results."""

from __future__ import annotations

from pathlib import Path

import make_reference
import pytest
from doctor.cases import copy, h200

from pyxfer._doctor.session import examine_run
from pyxfer._document.codec import decode_reference
from pyxfer._document.runs import Run

ROOT = Path(make_reference.__file__).resolve().parent.parent
MOST_BYTES = 300_000


@pytest.mark.skipif(not (ROOT / "bench/results").is_dir(), reason="the documents are not in a source distribution")
def test_the_files_in_the_package_are_up_to_date() -> None:
    assert make_reference.refresh(ROOT, check=True) == [], "python bench/make_reference.py"


def test_the_files_in_the_package_are_small() -> None:
    folder = ROOT / "pyxfer" / "references"
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES


def test_figures_are_the_fastest_raw_copies_of_pinned_and_pageable_memory() -> None:
    rows = (
        copy("h2d", 50.0),
        copy("h2d", 55.0),
        copy("h2d", 60.0, mode="staged"),
        copy("d2h", 40.0, memory="registered"),
    )
    (figure,) = make_reference.figures(rows)
    assert (figure.direction, figure.memory, figure.rate.gbps) == ("h2d", "pinned", 55.0)


def test_references_are_written_read_and_stale_after_a_change_of_the_run(tmp_path: Path) -> None:
    results = tmp_path / "bench" / "results"
    results.mkdir(parents=True)
    (tmp_path / "pyxfer").mkdir()
    h200().save(results / "known_h200.json.gz")
    names = ["h200_pcie5_x16.json", "h200_pcie5_x16.run.json"]
    assert make_reference.main(["--check"], tmp_path) == 1
    assert make_reference.refresh(tmp_path, check=False) == names
    assert make_reference.main([], tmp_path) == 0
    folder = tmp_path / "pyxfer" / "references"
    reference = decode_reference((folder / names[0]).read_bytes(), names[0])
    assert Run.load(folder / reference.document).measurements[0].trials == ()
    h200(measurements=()).save(results / "known_h200.json.gz")
    assert make_reference.refresh(tmp_path, check=True) == names


@pytest.mark.parametrize("name", ["ceiling.json.gz", "host.json.gz", "modes.json.gz", "frameworks.json.gz"])
def test_the_doctor_finds_nothing_wrong_in_the_documents(name: str) -> None:
    path = ROOT / "bench" / "results" / name
    if not path.exists():
        pytest.skip("the documents are not in a source distribution")
    examination = examine_run(Run.load(path))
    assert examination.worst == "fine"
    assert {finding.subject for finding in examination.of("unknown")} == {"health"}
    assert {"ceiling h2d", "ceiling d2h", "link", "payload", "NUMA memory"} <= {
        finding.subject for finding in examination.of("fine")
    }

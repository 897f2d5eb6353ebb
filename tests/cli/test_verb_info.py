from __future__ import annotations

import json
from pathlib import Path

import msgspec
from command_line import pyxfer

from pyxfer._document import runs
from pyxfer._document.tunings import RingState


def test_the_page_names_device_link_placement_and_environment() -> None:
    result = pyxfer("info", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0
    for name in ("host memory, not a PCIe link", "Link: ", "Placement", "Ring for staging", "Environment", "  kernel"):
        assert name in result.stdout


def test_json_holds_the_same_documents_as_a_run() -> None:
    whole = json.loads(pyxfer("info", "--export-json", "-", CUDA_VISIBLE_DEVICES="").stdout)
    assert msgspec.convert(whole["devices"], list[runs.Device])[0].runtime == "host"
    assert msgspec.convert(whole["links"], list[runs.Link])[0].kind == "none"
    assert msgspec.convert(whole["placements"], list[runs.Placement])
    assert msgspec.convert(whole["rings"], list[RingState])[0].source == "default"
    assert msgspec.convert(whole["environment"], runs.Environment).cpus_usable > 0


def test_why_no_gpu_is_used_goes_to_stderr() -> None:
    result = pyxfer("info", "--export-json", "-", CUDA_VISIBLE_DEVICES="")
    assert "No usable GPU" in result.stderr


def test_a_ring_that_was_given_is_told_with_where_from() -> None:
    result = pyxfer("info", CUDA_VISIBLE_DEVICES="", PYXFER_RING="threads=2,chunk=1MiB")
    assert "2 threads, 256 slots of 1 MiB" in result.stdout
    assert "given by PYXFER_RING=threads=2,chunk=1MiB; the others default" in result.stdout
    assert "made smaller for a budget of 256 MiB" in result.stdout  # as upload makes it


def test_a_ring_that_cannot_be_is_refused_with_one_that_can() -> None:
    result = pyxfer("info", CUDA_VISIBLE_DEVICES="", PYXFER_RING="threads=many")
    assert result.returncode == 2
    assert 'PYXFER_RING="threads=8,chunk=64KiB,slots=512,fill=streaming"' in result.stderr


def test_looking_tunes_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    pyxfer("info", CUDA_VISIBLE_DEVICES="", PYXFER_CACHE=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()

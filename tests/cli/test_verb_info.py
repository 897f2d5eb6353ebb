from __future__ import annotations

import json

import msgspec
from command_line import pyxfer

from pyxfer import model


def test_the_page_names_device_link_placement_and_environment() -> None:
    result = pyxfer("info", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0
    for name in ("host memory, not a PCIe link", "Link: ", "Placement", "Environment", "  kernel"):
        assert name in result.stdout


def test_json_holds_the_same_documents_as_a_run() -> None:
    whole = json.loads(pyxfer("info", "--json", CUDA_VISIBLE_DEVICES="").stdout)
    assert msgspec.convert(whole["devices"], list[model.Device])[0].runtime == "host"
    assert msgspec.convert(whole["links"], list[model.Link])[0].kind == "none"
    assert msgspec.convert(whole["placements"], list[model.Placement])
    assert msgspec.convert(whole["environment"], model.Environment).cpus_usable > 0


def test_why_no_gpu_is_used_goes_to_stderr() -> None:
    result = pyxfer("info", "--json", CUDA_VISIBLE_DEVICES="")
    assert "No usable GPU" in result.stderr

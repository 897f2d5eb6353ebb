from __future__ import annotations

import json

from command_line import pyxfer
from pages import line_with


def test_devices_routes_and_modes_are_listed() -> None:
    result = pyxfer("list", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0
    assert line_with(result.stdout, "  raw.pinned-async ").endswith("h2d, d2h, both: available")
    assert line_with(result.stdout, "  memcpy ").endswith("available")


def test_what_is_not_available_says_why() -> None:
    line = line_with(pyxfer("list", CUDA_VISIBLE_DEVICES="").stdout, "  raw.pinned-batch ")
    assert "available" in line
    assert "not available: this driver has no cudaMemcpyBatchAsync" in line or line.endswith(": available")


def test_json_holds_every_route_with_its_reason() -> None:
    whole = json.loads(pyxfer("list", "--json", CUDA_VISIBLE_DEVICES="").stdout)
    assert {"devices", "routes", "modes"} == set(whole)
    assert all(route["available"] or route["reason"] for route in whole["routes"])

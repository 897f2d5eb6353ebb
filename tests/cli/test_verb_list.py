from __future__ import annotations

import functools
import json
import subprocess

from command_line import pyxfer
from in_process import Command
from pages import line_with

from pyxfer._frameworks.registry import FRAMEWORKS, load_framework


@functools.cache
def listed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The output of `pyxfer list` without a GPU."""
    return pyxfer("list", *arguments, CUDA_VISIBLE_DEVICES="")


def test_devices_routes_and_modes_are_listed() -> None:
    result = listed()
    assert result.returncode == 0
    assert line_with(result.stdout, "  raw.pinned-async ").endswith("h2d, d2h, both: available")
    assert line_with(result.stdout, "  memcpy ").endswith("available")


def test_staged_copies_are_listed_for_pageable_memory_alone() -> None:
    text = listed().stdout
    assert line_with(text, "  raw.pageable-staged ").endswith("h2d, d2h: available")
    assert "pinned-staged" not in text


def test_unavailable_items_have_the_reason() -> None:
    line = line_with(listed().stdout, "  raw.pinned-batch ")
    assert "available" in line
    assert "not available: this driver has no cudaMemcpyBatchAsync" in line or line.endswith(": available")


def test_json_holds_every_route_with_its_reason() -> None:
    whole = json.loads(listed("--export-json", "-").stdout)
    assert {"devices", "routes", "modes"} == set(whole)
    assert all(route["available"] or route["reason"] for route in whole["routes"])


def test_with_routes_every_framework_is_a_heading_and_every_route_a_line_with_its_call() -> None:
    result = listed("routes")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    headings = [line.partition(" ")[0].rstrip(":") for line in lines if line and line[0] not in "> "]
    assert headings == ["PyTorch", "TensorFlow", "CuPy", "JAX"]
    names = [line[2:].split()[0] for line in lines[1:] if line[:2] in ("> ", "  ") and line[2:3].strip()]
    assert names == [route.name for name in FRAMEWORKS for route in load_framework(name).routes]
    assert '     torch.from_numpy(x).to("cuda")' in lines


def test_usual_calls_are_marked() -> None:
    lines = listed("routes").stdout.splitlines()
    usual = [route.name for name in FRAMEWORKS for route in load_framework(name).routes if route.usual]
    assert [line[2:].split()[0] for line in lines[1:] if line.startswith("> ")] == usual


def test_json_of_routes_holds_the_raw_ones_and_every_frameworks() -> None:
    routes = json.loads(listed("routes", "--export-json", "-").stdout)
    assert list(dict.fromkeys(route["framework"] for route in routes)) == ["raw", *FRAMEWORKS]
    assert all(bool(route["reason"]) != route["available"] for route in routes)
    (found,) = [route for route in routes if route["name"] == "tf.dlpack-pinned"]
    assert (found["direction"], found["memory"], found["host_copies"], found["usual"]) == (["h2d"], "pinned", 0, False)


def test_an_unknown_list_exits_with_2(command: Command) -> None:
    result = command("list", "tables")
    assert (result.returncode, result.stdout) == (2, "")
    assert "write pyxfer list, or pyxfer list routes" in result.stderr

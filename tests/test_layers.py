"""Imports go down only: docs/design.md, read against every source file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyxfer"
ENGINE = ROOT / "csrc"
if not ENGINE.is_dir():
    pytest.skip("the sources are not beside the tests", allow_module_level=True)

BOTTOM = {
    "baseline_documents",
    "comparison_documents",
    "documents",
    "errors",
    "files",
    "finding_documents",
    "fit",
    "json_text",
    "model",
    "model_baselines",
    "model_findings",
    "model_machine",
    "model_ring",
    "model_routes",
    "model_steps",
    "model_store",
    "model_trace",
    "model_tuning",
    "model_watch",
    "model_xfer",
    "stats",
    "table",
    "units",
    "watch_documents",
    "xfer_documents",
}
PYTHON_LAYERS = {
    **dict.fromkeys(BOTTOM, BOTTOM),
    "native": {"native", "errors", "units"},
    "machine": {"machine", "native"} | BOTTOM,
    "sampling": {"sampling", "native"} | BOTTOM,
    "tracing": {"tracing", "native"} | BOTTOM,
    "raw": {"raw", "staging", "tracing", "machine", "sampling", "native"} | BOTTOM,
    "routes": {"routes", "raw", "staging", "machine", "sampling", "native"} | BOTTOM,
    "workers": {"workers", "routes", "raw", "tracing", "machine", "sampling", "native"} | BOTTOM,
    "watching": {"watching", "report", "raw", "tracing", "machine", "sampling", "native"} | BOTTOM,
    "staging": {"staging", "machine", "sampling", "native"} | BOTTOM,
    "examining": {"examining", "raw", "machine", "sampling", "native"} | BOTTOM,
    "metrics": {"metrics"} | BOTTOM,
    "baselines": {"baselines", "machine", "native"} | BOTTOM,
    "benching": {"benching", "baselines", "report", "raw", "machine", "sampling", "native"} | BOTTOM,
    "pytest_plugin": {"pytest_plugin", "benching"} | BOTTOM,
    "report": {"report"} | BOTTOM,
    "api": {"raw", "machine", "sampling", "native"} | BOTTOM,
    "cli": {"cli", "api", "baselines", "examining", "metrics", "raw", "routes", "watching", "workers", "staging"}
    | {"report", "machine", "sampling", "native"}
    | BOTTOM,
    "__init__": {"api", "baselines", "examining", "raw", "routes", "staging", "watching", "workers", "machine"}
    | {"sampling", "native"}
    | BOTTOM,
    "__main__": {"cli"},
}
FRAMEWORKS = {"torch", "tensorflow", "jax", "cupy"}
KEPT_FOR_LATER = {*FRAMEWORKS, "pynvml"}  # imported inside functions only
MESSAGES = PACKAGE / "workers" / "messages.py"  # what processes tell each other is no document
PAGES = {"rich", "typer"}
MAY_DRAW = {"cli", "report"}

CPP_LAYERS = {
    "numa": {"numa"},
    "cuda": {"cuda", "numa"},
    "copy": {"copy", "cuda"},
    "ring": {"ring", "copy", "cuda"},
    "trace": {"trace", "cuda"},
    "hostrt": {"hostrt", "numa"},
    "bind": {"bind", "copy", "cuda", "numa", "ring", "trace"},
    "tests": {"tests", "hostrt", "copy", "cuda", "numa", "ring", "trace"},
}
CUPTIS_OWN = {"trace/cupti.hpp", "trace/cupti_records.hpp"}  # which the host runtime speaks as it speaks CUDA
MAY_ORDER_THE_HOST_RUNTIME = {"bind/module_host.cpp"}

PY_LINES, CPP_LINES, HPP_LINES, FUNCTION_LINES = 350, 300, 150, 60

MODULES = sorted(PACKAGE.rglob("*.py"))
CPP_FILES = sorted(path for path in ENGINE.rglob("*") if path.suffix in (".cpp", ".hpp"))
PYTHON_FILES = sorted(path for part in ("pyxfer", "tests", "bench") for path in (ROOT / part).rglob("*.py"))

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
each_cpp_file = pytest.mark.parametrize("path", CPP_FILES, ids=lambda path: path.relative_to(ENGINE).as_posix())


@each_module
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    layer = _layer(path)
    assert layer in PYTHON_LAYERS, f"{layer} has no place in the layers: give it one in docs/design.md and here"
    upwards = {name for name in _imports_of_pyxfer(path) if name not in PYTHON_LAYERS[layer]}
    assert not upwards, f"{path.relative_to(ROOT)} must not import {', '.join(sorted(upwards))}"


def test_nobody_imports_the_command_line_but_the_command() -> None:
    users = {_layer(path) for path in MODULES if "cli" in _imports_of_pyxfer(path)}
    assert users <= {"cli", "__main__"}


@each_module
def test_nothing_heavy_is_imported_before_it_is_needed(path: Path) -> None:
    early = {name.partition(".")[0] for name in _imported(_statements_at_import(path))}
    assert not early & KEPT_FOR_LATER


@each_module
def test_only_the_pages_and_the_command_line_know_how_to_draw(path: Path) -> None:
    if _layer(path) not in MAY_DRAW:
        everything = {name.partition(".")[0] for name in _imported(ast.walk(_tree(path)))}
        assert not everything & PAGES


@each_module
def test_only_the_document_module_defines_structs(path: Path) -> None:
    structs = [node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef) and _is_struct(node)]
    assert path.name in {f"{name}.py" for name in BOTTOM if name.startswith("model")} or path == MESSAGES or not structs


def test_no_module_bears_the_name_of_a_public_function() -> None:
    import pyxfer

    functions = {name for name in pyxfer.__all__ if not isinstance(getattr(pyxfer, name), type)}
    assert not functions & {_layer(path) for path in MODULES}, "the later import would shadow the other"


@each_cpp_file
def test_a_source_includes_only_what_lies_below_it(path: Path) -> None:
    where = path.relative_to(ENGINE)
    allowed = CPP_LAYERS[where.parts[0]] | ({"hostrt"} if where.as_posix() in MAY_ORDER_THE_HOST_RUNTIME else set())
    spoken = CUPTIS_OWN if where.parts[0] == "hostrt" else set()
    used = {_home(path, name) for name in _includes(path, '"') if name not in spoken}
    assert used <= allowed, f"csrc/{where} must not include {', '.join(sorted(used - allowed))}"


@each_cpp_file
def test_only_the_binding_knows_python(path: Path) -> None:
    if path.parent.name != "bind":
        assert not [name for name in _includes(path, "<") if name == "Python.h" or name.startswith("pybind11/")]


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_python_file_does_one_thing(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= PY_LINES, f"{lines} lines: it has become two things"
    functions = [node for node in ast.walk(_tree(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = {node.name: _length(node) for node in functions if _length(node) > FUNCTION_LINES}
    assert not long, f"functions of more than {FUNCTION_LINES} lines: {long}"


@each_cpp_file
def test_a_cpp_file_does_one_thing(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= (HPP_LINES if path.suffix == ".hpp" else CPP_LINES), f"{lines} lines: it has become two things"


def _layer(path: Path) -> str:
    """The module or package directly under pyxfer that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports_of_pyxfer(path: Path) -> set[str]:
    """What a file imports of pyxfer by its place directly under it, also inside functions."""
    inside = ["pyxfer", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for name in _imported(ast.walk(_tree(path)), inside):
        parts = name.split(".")
        if parts[0] == "pyxfer":
            found.add(parts[1] if len(parts) > 1 else "__init__")
    return found


def _imported(nodes: Iterator[ast.AST], inside: list[str] | None = None) -> Iterator[str]:
    """Full dotted names; `from a import b` gives `a.b`, which may be a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (inside or [])[: len(inside or []) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def _statements_at_import(path: Path) -> Iterator[ast.AST]:
    """What runs when the module is imported: all but the insides of functions and what only type checkers read."""
    waiting: list[ast.AST] = [_tree(path)]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _is_for_types(node):
            continue
        waiting.extend(ast.iter_child_nodes(node))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _is_struct(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("Struct") for base in node.bases)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _includes(path: Path, opening: str) -> list[str]:
    return re.findall(rf'^\s*#\s*include\s*{opening}([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE)


def _home(path: Path, name: str) -> str:
    """The folder of csrc in which an included header lies."""
    beside = path.parent / name
    found = beside if beside.exists() else ENGINE / name
    return found.resolve().relative_to(ENGINE).parts[0]

"""The rules of docs/design.md for source files: layers, sizes, and what may be imported when."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyxfer"
ENGINE = ROOT / "csrc"
if not ENGINE.is_dir():
    pytest.skip("the sources are not beside the tests", allow_module_level=True)

# From the bottom up. The values are the layers that a layer may import.
LOWEST = {"errors", "units", "_config", "_python"}
SHARED = {"native", "_document", "_machine", "_measure"} | LOWEST
COMMANDS = {
    "_baseline",
    "_blocks",
    "_ceiling",
    "_doctor",
    "_files",
    "_fleet",
    "_frameworks",
    "_links",
    "_loaders",
    "_upload",
    "_watch",
}
PYTHON_LAYERS = {
    "_config": LOWEST,
    "_python": LOWEST,
    "errors": LOWEST,
    "units": LOWEST,
    "native": {"native"} | LOWEST,
    "_document": {"_document"} | LOWEST,
    "_machine": {"_machine", "_document", "native"} | LOWEST,
    "_measure": {"_measure", "_document", "native"} | LOWEST,
    "_trace": {"_trace", "_document", "native"} | LOWEST,
    "_upload": {"_upload"} | SHARED,
    "_ceiling": {"_ceiling", "_upload", "_trace"} | SHARED,
    "_blocks": {"_blocks", "_baseline", "_ceiling", "_upload"} | SHARED,
    "_files": {"_files", "_ceiling", "_upload"} | SHARED,
    "_frameworks": {"_frameworks", "_ceiling", "_upload", "_trace"} | SHARED,
    "_loaders": {"_loaders", "_ceiling", "_files", "_frameworks", "_upload"} | SHARED,
    "_links": {"_links", "_ceiling", "_trace"} | SHARED,
    "_doctor": {"_doctor", "_ceiling"} | SHARED,
    "_fleet": {"_fleet", "_baseline", "_ceiling", "_doctor", "_links"} | SHARED,
    "_baseline": {"_baseline"} | SHARED,
    "_report": {"_report", "_baseline", "_blocks", "_doctor", "_document", "_upload"} | LOWEST,
    "_watch": {"_watch", "_ceiling", "_trace", "_report"} | SHARED,
    "_pytest": {"_pytest", "_baseline", "_ceiling", "_report"} | SHARED,
    "_cli": {"_cli", "__init__", "_report", *COMMANDS} | SHARED,
    "pytest_plugin": {"pytest_plugin", "_pytest"} | LOWEST,
    "asv": {"_pytest"} | SHARED,
    "__init__": {"_pytest", *COMMANDS} | SHARED,
    "__main__": {"_cli"},
}
FRAMEWORKS = {"torch", "tensorflow", "jax", "cupy"}
LATE_IMPORTS = {*FRAMEWORKS, "pynvml"}  # imported inside functions only
PRINTING = PACKAGE / "_document" / "printing.py"  # documents print themselves
# Between processes, and never in a file.
MESSAGES = PACKAGE / "_frameworks" / "messages.py", PACKAGE / "_loaders" / "worker.py"
# Entries of other programs' files, 100,000 of them in one.
HEADERS = PACKAGE / "_files" / "safetensors.py", PACKAGE / "_files" / "stored.py"
DOCUMENTS = PACKAGE / "_document"
SAVE_AND_LOAD = {"save", "load"}  # these methods use modules that import the structs
PAGES = {"rich", "typer"}
CLOCKS = {"perf_counter", "monotonic", "elapsed_s", "wall_s", "dispatch_s", "duration_s", "window_s", "first_s"}
HANG_S = 30.0  # a wait that takes longer is a hang
MAY_DRAW = {"_cli", "_report"}

CPP_LAYERS = {
    "casts": {"casts"},
    "numa": {"numa"},
    "cuda": {"cuda", "numa"},
    "copy": {"copy", "cuda"},
    "convert": {"convert", "casts", "cuda"},
    "ring": {"ring", "casts", "convert", "copy", "cuda"},
    "blocks": {"blocks", "ring", "cuda"},
    "links": {"links", "copy", "cuda"},
    "trace": {"trace", "cuda"},
    "hostrt": {"hostrt", "casts", "numa"},
    "bind": {"bind", "blocks", "casts", "convert", "copy", "cuda", "links", "numa", "ring", "trace"},
    "tests": {"tests", "hostrt", "blocks", "casts", "convert", "copy", "cuda", "links", "numa", "ring", "trace"},
}
CUPTI_HEADERS = {"trace/cupti.hpp", "trace/cupti_records.hpp"}  # the host runtime also implements CUPTI
MAY_CONTROL_THE_HOST_RUNTIME = {"bind/module_host.cpp"}

PY_LINES, CPP_LINES, HPP_LINES, FUNCTION_LINES = 700, 500, 250, 60

MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in MODULES}
CPP_FILES = sorted(path for path in ENGINE.rglob("*") if path.suffix in (".cpp", ".hpp"))
PYTHON_FILES = sorted(path for part in ("pyxfer", "tests", "bench") for path in (ROOT / part).rglob("*.py"))


@pytest.fixture(autouse=True, scope="module")
def _forget_the_trees() -> Iterator[None]:
    yield
    _tree.cache_clear()


def test_a_module_imports_only_lower_layers() -> None:
    assert not {_layer(path) for path in MODULES} - set(PYTHON_LAYERS), "give them a place in docs/design.md and here"

    def too_high(path: Path) -> set[str]:
        return _imports_of_pyxfer(path) - PYTHON_LAYERS[_layer(path)] - ({"_report"} if path == PRINTING else set())

    assert not _offenders(MODULES, too_high)


def test_documents_import_their_pages_in_one_place() -> None:
    loaded = [node for node in ast.walk(_tree(PRINTING)) if isinstance(node, ast.FunctionDef)]
    found = [name for name in _imported(each for node in loaded for each in ast.walk(node)) if "._report" in name]
    assert found == ["pyxfer._report.kinds"]


def test_only_the_command_imports_the_command_line() -> None:
    users = {_layer(path) for path in MODULES if "_cli" in _imports_of_pyxfer(path)}
    assert users <= {"_cli", "__main__"}


def test_heavy_modules_are_imported_in_functions() -> None:
    def early(path: Path) -> set[str]:
        return {name.partition(".")[0] for name in _imported(_statements_at_import(path))} & LATE_IMPORTS

    assert not _offenders(MODULES, early)


def test_only_pages_and_command_line_import_rich_and_typer() -> None:
    def drawing(path: Path) -> set[str]:
        return {name.partition(".")[0] for name in _imported(ast.walk(_tree(path)))} & PAGES

    assert not _offenders([path for path in MODULES if _layer(path) not in MAY_DRAW], drawing)


def test_only_the_document_package_defines_structs() -> None:
    def structs(path: Path) -> set[str]:
        return {node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef) and _is_struct(node)}

    others = [path for path in MODULES if _layer(path) != "_document" and path not in (*MESSAGES, *HEADERS)]
    assert not _offenders(others, structs)


def test_no_module_has_the_name_of_a_public_function() -> None:
    import pyxfer

    functions = {name for name in pyxfer.__all__ if not isinstance(getattr(pyxfer, name), type)}
    assert not functions & {_layer(path) for path in MODULES}, "the later import would shadow the other"


def test_a_source_includes_only_lower_layers() -> None:
    def too_high(path: Path) -> set[str]:
        where = path.relative_to(ENGINE)
        controls = where.as_posix() in MAY_CONTROL_THE_HOST_RUNTIME
        allowed = CPP_LAYERS[where.parts[0]] | ({"hostrt"} if controls else set())
        exempt = CUPTI_HEADERS if where.parts[0] == "hostrt" else set()
        return {_home(path, name) for name in _includes(path, '"') if name not in exempt} - allowed

    assert not _offenders(CPP_FILES, too_high)


def test_only_the_binding_includes_python() -> None:
    def of_python(path: Path) -> set[str]:
        return {name for name in _includes(path, "<") if name == "Python.h" or name.startswith("pybind11/")}

    assert not _offenders([path for path in CPP_FILES if path.parent.name != "bind"], of_python)


def test_a_python_file_is_not_too_long() -> None:
    assert not _offenders(PYTHON_FILES, lambda path: _too_long(path, PY_LINES))


def test_imports_have_no_circles() -> None:
    graph = {_name(path): _modules_imported(path) for path in MODULES}
    waiting = dict(graph)
    while free := [name for name, needs in waiting.items() if not needs & waiting.keys() - {name}]:
        for name in free:
            del waiting[name]
    assert not waiting


def test_modules_of_documents_import_only_those_before_them() -> None:
    listed = re.findall(r"^- `(\w+)`:", ast.get_docstring(_tree(DOCUMENTS / "__init__.py")) or "", re.MULTILINE)
    modules = {path.stem: path for path in DOCUMENTS.glob("*.py") if path.stem != "__init__"}
    assert sorted(listed) == sorted(modules)

    def not_before(path: Path) -> set[str]:
        late = (
            node
            for node in ast.walk(_tree(path))
            if _is_for_types(node) or (isinstance(node, ast.FunctionDef) and node.name in SAVE_AND_LOAD)
        )
        exempt = {id(inner) for node in late for inner in ast.walk(node)}
        found = _imported(node for node in ast.walk(_tree(path)) if id(node) not in exempt)
        parts = {name.split(".")[2] for name in found if name.startswith("pyxfer._document.")}
        return parts - set(listed[: listed.index(path.stem)])

    assert not _offenders(modules.values(), not_before)


def test_a_python_function_is_not_too_long() -> None:
    def long(path: Path) -> set[str]:
        functions = (
            node for node in ast.walk(_tree(path)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        )
        return {f"{node.name}: {_length(node)} lines" for node in functions if _length(node) > FUNCTION_LINES}

    assert not _offenders(PYTHON_FILES, long)


def test_a_cpp_file_is_not_too_long() -> None:
    def long(path: Path) -> set[str]:
        return _too_long(path, HPP_LINES if path.suffix == ".hpp" else CPP_LINES)

    assert not _offenders(CPP_FILES, long)


@pytest.mark.parametrize("clock", ["elapsed_s", "time.perf_counter() - begun", "abs(a.wall_s - b.wall_s)"])
def test_an_upper_bound_of_a_real_duration_is_found(clock: str) -> None:
    for text, found in (("{} < 5", True), ("0 <= {} <= 0.5", True), ("1e9 > {}", False), ("{} < 30", False)):
        (node,) = (each for each in ast.walk(ast.parse(text.format(clock))) if isinstance(each, ast.Compare))
        assert _bounds_a_clock(node) is found


def test_no_test_bounds_a_real_duration_from_above() -> None:
    def bounded(path: Path) -> set[str]:
        comparisons = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Compare))
        return {f"line {node.lineno}" for node in comparisons if _bounds_a_clock(node)}

    tests = [path for path in PYTHON_FILES if path.is_relative_to(ROOT / "tests") and path.parent.name != "gpu"]
    assert tests
    assert not _offenders(tests, bounded), "a busy machine exceeds it; see docs/developing.md, Time"


def _bounds_a_clock(node: ast.Compare) -> bool:
    """Whether a reading or a duration of the real clock has to be below a number of seconds that is not a hang."""
    terms = [node.left, *node.comparators]
    for operation, left, right in zip(node.ops, terms, terms[1:], strict=False):
        less, more = (left, right) if isinstance(operation, (ast.Lt, ast.LtE)) else (right, left)
        is_order = isinstance(operation, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        bound = more.value if isinstance(more, ast.Constant) else None
        if is_order and isinstance(bound, (int, float)) and 0 < bound < HANG_S and _names(less) & CLOCKS:
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)} | {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name)
    }


def _offenders(paths: Iterable[Path], faults: Callable[[Path], set[str]]) -> dict[str, list[str]]:
    """The faults of each file that has some."""
    return {path.relative_to(ROOT).as_posix(): sorted(found) for path in paths if (found := faults(path))}


def _too_long(path: Path, most: int) -> set[str]:
    lines = path.read_text(encoding="utf-8").count("\n")
    return {f"{lines} lines, more than {most}"} if lines > most else set()


def _layer(path: Path) -> str:
    """The module or package directly under pyxfer that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _modules_imported(path: Path) -> set[str]:
    """The modules of pyxfer that are imported with a file."""
    found = {full if full in NAMES else full.rpartition(".")[0] for full in _imported(_statements_at_import(path))}
    return found & NAMES - {"pyxfer"}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports_of_pyxfer(path: Path) -> set[str]:
    """The layers of pyxfer that a file imports, also inside functions."""
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
    """The statements that run at import: those outside of functions and of `if TYPE_CHECKING`."""
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
    """The folder of csrc that contains an included header."""
    beside = path.parent / name
    found = beside if beside.exists() else ENGINE / name
    return found.resolve().relative_to(ENGINE).parts[0]

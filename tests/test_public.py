"""The public names, and the public errors."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import pickle
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import pyxfer
from pyxfer import errors
from pyxfer.errors import (
    ArrayFileError,
    CleanupWarning,
    CudaError,
    CudaMemoryError,
    CudaUnavailableError,
    DeviceLostError,
    DeviceTimeoutError,
    DocumentError,
    FallbackWarning,
    ForkedError,
    MeasurementError,
    PyxferError,
    UsageError,
)

STUB = Path(pyxfer.__file__).with_suffix(".pyi")

NAMES = sorted(pyxfer.__all__)


def _homes() -> dict[str, str]:
    """The module that a type checker sees for every name."""
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: node.module
        for node in imports
        if node.module and node.module.startswith("pyxfer.")
        for alias in node.names
    }


def test_public_names_are_those_imported_for_type_checkers() -> None:
    assert set(_homes()) == set(pyxfer.__all__)


def test_public_names_are_the_objects_that_type_checkers_see() -> None:
    homes = _homes()
    assert not [name for name in NAMES if _of_pyxfer(name) is not getattr(importlib.import_module(homes[name]), name)]


def test_dir_lists_public_names_alone() -> None:
    assert dir(pyxfer) == sorted([*pyxfer.__all__, "__version__"])


def test_a_star_import_gives_all_public_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from pyxfer import *", namespace)
    assert set(pyxfer.__all__) <= set(namespace)


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="bandwidth"):
        pyxfer.bandwidth  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_installed_distribution() -> None:
    try:
        installed = importlib.metadata.version("pyxfer")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pyxfer is used from its source and has no version")
    assert pyxfer.__version__ == installed


def test_every_public_name_has_a_docstring() -> None:
    documented = {name: inspect.getdoc(_of_pyxfer(name)) or "" for name in NAMES}
    assert not [name for name, text in documented.items() if not text]
    made_by_dataclass = [name for name, text in documented.items() if text.startswith(f"{name}(")]
    assert not made_by_dataclass


def test_every_public_function_is_fully_annotated() -> None:
    missing = []
    for label, function in _functions():
        signature = inspect.signature(function)
        bare = [item.name for item in signature.parameters.values() if item.annotation is inspect.Parameter.empty]
        missing += [f"{label}: {name}" for name in bare if name not in ("self", "cls")]
        missing += [f"{label}: its result"] if signature.return_annotation is inspect.Signature.empty else []
    assert not missing


def test_every_public_method_has_a_docstring() -> None:
    public = [(label, function) for label, function in _functions() if not label.rpartition(".")[2].startswith("_")]
    assert not [label for label, function in public if not inspect.getdoc(function)]


def _of_pyxfer(name: str) -> object:
    return getattr(pyxfer, name)


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions, and the methods and properties of public classes, that pyxfer defines."""
    for name in NAMES:
        yield from _functions_of(name, _of_pyxfer(name))


def _functions_of(name: str, thing: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isfunction(thing):
        yield name, thing
    for label, member in vars(thing).items() if isinstance(thing, type) else ():
        plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(plain) and (label == "__init__" or not label.startswith("_")):
            yield f"{name}.{label}", plain


LINK_DIRECTIONS = {"h2d", "d2h", "both"}

WORDS = {
    (pyxfer.ceiling, "direction"): LINK_DIRECTIONS,
    (pyxfer.ceiling, "memory"): {"pageable", "pinned", "registered", "write-combined"},
    (pyxfer.frameworks, "direction"): {"h2d", "d2h"},
    (pyxfer.frameworks, "workload"): {"copy", "image-batch"},
    (pyxfer.explain, "direction"): {"h2d", "d2h"},
    (pyxfer.measure, "direction"): LINK_DIRECTIONS,
    (pyxfer.upload, "to"): {"torch", "tensorflow", "jax", "cupy"},
    (pyxfer.prefetch, "to"): {"torch", "tensorflow", "jax", "cupy"},
}


@pytest.mark.parametrize(("function", "argument"), WORDS)
def test_a_type_checker_knows_the_words_of_an_argument(function: Callable[..., Any], argument: str) -> None:
    module = importlib.import_module(function.__module__)
    runs = importlib.import_module("pyxfer._document.runs")
    annotation = str(inspect.signature(function).parameters[argument].annotation)
    found = eval(annotation, {**vars(module), **vars(runs)})
    assert str not in get_args(found)
    words = {word for word in _words_in(found) if "," not in word}
    assert words == WORDS[function, argument]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.get_overloads is new in Python 3.11")
def test_a_type_checker_knows_the_array_of_an_upload() -> None:
    overloads: Any = typing.get_overloads(pyxfer.upload)  # type: ignore[attr-defined]
    of_array = [each.__annotations__ for each in overloads if each.__annotations__["x"] == "NDArray[Any]"]
    assert {each["to"]: each["return"] for each in of_array} == {
        "Literal['torch']": "torch.Tensor",
        "Literal['tensorflow']": "tensorflow.Tensor",
        "Literal['jax']": "jax.Array",
        "Literal['cupy']": "cupy.ndarray",
    }


def _words_in(annotation: Any) -> Iterator[str]:
    for each in get_args(annotation):
        if isinstance(each, str):
            yield each
        else:
            yield from _words_in(each)


CUDA_ERRORS = (CudaError, CudaUnavailableError, CudaMemoryError, DeviceLostError)

ARGUMENTS = (
    2,
    "cudaErrorMemoryAllocation",
    "cudaMalloc",
    "csrc/cuda/memory.cpp:14",
    "out of memory",
    "Free some.",
)


def test_every_error_is_a_pyxfer_error() -> None:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    assert len(found) > 10
    assert [kind for kind in found if not issubclass(kind, (PyxferError, CleanupWarning, FallbackWarning))] == []


@pytest.mark.parametrize(
    ("error", "also"),
    [
        (UsageError, ValueError),
        (ArrayFileError, ValueError),
        (DocumentError, ValueError),
        (MeasurementError, RuntimeError),
        (DeviceTimeoutError, TimeoutError),
        (ForkedError, RuntimeError),
        (CudaError, RuntimeError),
        (CudaMemoryError, MemoryError),
        (CleanupWarning, ResourceWarning),
        (FallbackWarning, RuntimeWarning),
    ],
)
def test_errors_derive_from_builtin_ones(error: type[Exception], also: type[Exception]) -> None:
    assert issubclass(error, also)


@pytest.mark.parametrize("kind", CUDA_ERRORS)
def test_a_cuda_error_can_be_pickled(kind: type[CudaError]) -> None:
    error = kind(*ARGUMENTS)
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is kind
    assert (str(copied), vars(copied)) == (str(error), vars(error))

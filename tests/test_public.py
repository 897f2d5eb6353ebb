"""The public face: what `import pyxfer` gives, no more, and all of it typed and documented."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyxfer

FACE = Path(pyxfer.__file__)
NAMES = sorted(pyxfer.__all__)


def _homes() -> dict[str, str]:
    """Where a type checker sees each name come from."""
    tree = ast.parse(FACE.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: node.module
        for node in imports
        if node.module and node.module.startswith("pyxfer.")
        for alias in node.names
    }


def test_all_names_are_exactly_those_that_a_type_checker_sees() -> None:
    assert set(_homes()) == set(pyxfer.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_one_that_a_type_checker_sees(name: str) -> None:
    home = importlib.import_module(_homes()[name])
    assert getattr(pyxfer, name) is getattr(home, name)


def test_names_can_be_completed_before_they_are_loaded() -> None:
    assert {*pyxfer.__all__, "__version__"} <= set(dir(pyxfer))


def test_all_names_are_named_once_and_in_order() -> None:
    assert list(pyxfer.__all__) == sorted(set(pyxfer.__all__))


def test_a_star_import_gives_all_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from pyxfer import *", namespace)
    assert set(pyxfer.__all__) <= set(namespace)


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="bandwidth"):
        pyxfer.bandwidth  # noqa: B018


def test_the_version_is_that_of_the_installed_distribution() -> None:
    try:
        installed = importlib.metadata.version("pyxfer")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("pyxfer is used from its source and has no version")
    assert pyxfer.__version__ == installed


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_it_is(name: str) -> None:
    documented = inspect.getdoc(getattr(pyxfer, name)) or ""
    assert documented, f"pyxfer.{name} has no docstring"
    assert not documented.startswith(f"{name}("), f"pyxfer.{name} has only the docstring that dataclass makes"


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_annotated_throughout(name: str) -> None:
    for label, function in _functions(name, getattr(pyxfer, name)):
        signature = inspect.signature(function)
        bare = [each.name for each in signature.parameters.values() if each.annotation is inspect.Parameter.empty]
        assert [each for each in bare if each not in ("self", "cls")] == [], f"{label}: not annotated"
        assert signature.return_annotation is not inspect.Signature.empty, f"{label}: its result is not annotated"


@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_a_public_class_says_what_it_does(name: str) -> None:
    for label, function in _functions(name, getattr(pyxfer, name)):
        if not label.rpartition(".")[2].startswith("_"):
            assert inspect.getdoc(function), f"{label} has no docstring"


def _functions(name: str, thing: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions that a public name brings with it, written in pyxfer itself."""
    if inspect.isfunction(thing):
        yield name, thing
    for label, member in vars(thing).items() if isinstance(thing, type) else ():
        plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(plain) and (label == "__init__" or not label.startswith("_")):
            yield f"{name}.{label}", plain

"""References to functions that another process can import."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from frameworks import own_routes

from pyxfer._frameworks.registry import Reference, find_reference, resolve_reference
from pyxfer.errors import UsageError


def test_a_function_of_a_module_is_found_by_its_name() -> None:
    reference = find_reference(own_routes.refused)
    assert reference == Reference("frameworks.own_routes", "refused")
    assert resolve_reference(reference) is own_routes.refused


def test_a_class_is_found_by_its_name() -> None:
    assert resolve_reference(find_reference(own_routes.Copied)) is own_routes.Copied


def test_a_function_that_cannot_be_imported_is_refused() -> None:
    def within() -> None: ...

    for function in (within, lambda: None):
        with pytest.raises(UsageError, match="cannot be imported by a worker process: use a function or a class at"):
            find_reference(function)


def test_a_function_of_a_script_is_found_by_the_scripts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "mine.py"
    script.write_text("def make(place):\n    return 7\n")
    names = runpy.run_path(str(script), run_name="elsewhere")
    main = sys.modules["__main__"]
    make = names["make"]
    monkeypatch.setattr(make, "__module__", "__main__")
    monkeypatch.setattr(main, "make", make, raising=False)
    monkeypatch.setattr(main, "__file__", str(script), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    reference = find_reference(make)
    assert reference == Reference("__main__", "make", str(script))
    assert resolve_reference(reference)(None) == 7


def test_a_function_typed_at_a_prompt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "typed", typed, raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.delattr(main, "__file__", raising=False)
    with pytest.raises(UsageError, match="typed at a prompt, where a worker process cannot find it"):
        find_reference(typed)

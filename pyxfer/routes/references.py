"""Functions by name, so that a worker process can find what was registered in this one."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyxfer.errors import UsageError

_MAIN = "__main__"
# Not __main__: what a script does under that name must not be done again.
_MAIN_IN_WORKER = "__pyxfer_worker__"


@dataclass(frozen=True)
class Reference:
    """Where a function is: its module, the script's file where that is the main module, and its name in there."""

    module: str
    name: str
    script: str | None = None


def find_reference(function: Callable[..., Any]) -> Reference:
    """Where another process finds this function.

    Raises:
        UsageError: it cannot: a lambda, a function inside a function, one typed at a prompt.

    """
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", "") or ""
    home = sys.modules.get(module)
    if home is None or "<" in name or _attribute(home, name) is not function:
        raise UsageError(
            f"{name or function!r} cannot be imported by a worker process: use a function or a class at the top of a "
            "module or of a script."
        )
    if module != _MAIN:
        return Reference(module, name)
    spec = getattr(home, "__spec__", None)
    if spec is not None:  # python -m package.module
        return Reference(spec.name, name)
    path = getattr(home, "__file__", None)
    if path is None or not os.path.isfile(path):
        raise UsageError(f"{name} was typed at a prompt, where a worker process cannot find it: put it into a module.")
    return Reference(_MAIN, name, os.path.abspath(path))


def resolve_reference(reference: Reference) -> Callable[..., Any]:
    """The function; runs in the worker."""
    if reference.script is not None:
        names = runpy.run_path(reference.script, run_name=_MAIN_IN_WORKER)
        first, _, rest = reference.name.partition(".")
        found = names[first] if not rest else _attribute(names[first], rest)
    else:
        found = _attribute(importlib.import_module(reference.module), reference.name)
    function: Callable[..., Any] = found
    return function


def _attribute(home: Any, name: str) -> Any:
    for part in name.split("."):
        home = getattr(home, part, None)
    return home

"""Functions by name, so that a worker process can find what was registered in this one."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pyxfer.errors import UsageError
from pyxfer.routes.base import RefusedError

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
    if spec is not None and spec.name != _MAIN:  # python -m package.module
        return Reference(spec.name, name)
    # A folder or an archive with a __main__.py is run by its own name.
    path = getattr(home, "__file__", None) if spec is None else sys.argv[0]
    if path is None or not os.path.exists(path):
        raise UsageError(f"{name} was typed at a prompt, where a worker process cannot find it: put it into a module.")
    return Reference(_MAIN, name, os.path.abspath(path))


def resolve_reference(reference: Reference) -> Callable[..., Any]:
    """The function; runs in the worker.

    Raises:
        RefusedError: it is not there when the module or the script is imported.

    """
    home = importlib.import_module(reference.module) if reference.script is None else _script(reference.script)
    found = _attribute(home, reference.name)
    if found is None:
        where = reference.script or reference.module
        raise RefusedError(
            f"{reference.name} is not there when {where} is imported: define it at the top, outside of any condition"
        )
    function: Callable[..., Any] = found
    return function


def _script(path: str) -> ModuleType:
    """The script as a module, run once, and known by its name so that its classes can be pickled."""
    if _MAIN_IN_WORKER not in sys.modules:
        module = ModuleType(_MAIN_IN_WORKER)
        sys.modules[_MAIN_IN_WORKER] = module
        sys.argv[:] = [path]
        module.__dict__.update(runpy.run_path(path, run_name=_MAIN_IN_WORKER))
    return sys.modules[_MAIN_IN_WORKER]


def _attribute(home: Any, name: str) -> Any:
    for part in name.split("."):
        home = getattr(home, part, None)
    return home

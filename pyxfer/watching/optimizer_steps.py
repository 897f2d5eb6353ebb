"""The steps of a script that names none: those of PyTorch's optimizers, if the script imports PyTorch."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

OPTIMIZER = "torch.optim.optimizer"

OnStep = Callable[[int], None]
"""Given the identity of the optimizer that has taken a step."""


def count_optimizer_steps(on_step: OnStep) -> Callable[[], None]:
    """Have every optimizer step told, as soon as PyTorch is there; what ends the waiting for it is returned.

    PyTorch keeps what it was asked to call: to take that back while it goes through its list would break its step.
    """
    steps = _Steps(on_step)
    loaded = sys.modules.get(OPTIMIZER)
    if loaded is not None:
        steps.hook(loaded)
    else:
        sys.meta_path.insert(0, steps)
    return steps.stop_waiting


class _Steps(MetaPathFinder):
    """Waits for one module to be imported, and finds nothing itself."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step
        self._is_looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module as everybody else finds it, with a loader that tells when it has been loaded."""
        if fullname != OPTIMIZER or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._loaded)
        return spec

    def hook(self, module: ModuleType) -> None:
        """Ask to be called after each step; a PyTorch before 2.0 has no such call, and then there are no steps."""
        register: Any = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(lambda optimizer, *_: self._on_step(id(optimizer)))

    def stop_waiting(self) -> None:
        """Leave the imports alone."""
        with suppress(ValueError):
            sys.meta_path.remove(self)

    def _loaded(self, module: ModuleType) -> None:
        self.stop_waiting()
        self.hook(module)


class _TellingLoader(Loader):
    """Another loader, and a word when it is done."""

    def __init__(self, loader: Loader, on_loaded: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._on_loaded = on_loaded

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the other does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the other does; then the module has the loader that it would have had."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._on_loaded(module)

"""Routes set up over a place, and run and looked at as a worker does it."""

from __future__ import annotations

import contextlib
import resource
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyxfer._frameworks.place import HostArena, Place, as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.base import Framework, Transfer
    from pyxfer.native import Engine

PATIENCE_S = 30.0
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class HostPlace(Place):
    """A place whose device memory is a framework's own memory on the CPU."""

    def fetch(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Read it past the framework."""
        found: NDArray[np.uint8] = as_array(address, nbytes).copy()
        return found

    def store(self, address: int, data: NDArray[Any]) -> None:
        """Write it past the framework."""
        as_array(address, data.nbytes)[:] = data


@dataclass(frozen=True)
class Seen:
    """What came of one verified run."""

    arrived: NDArray[Any]
    expected: NDArray[Any]
    where: str
    lent: bool

    @property
    def right(self) -> bool:
        """Contents, size and type are as they should be."""
        same_type = self.arrived.dtype == self.expected.dtype
        return same_type and np.array_equal(self.arrived.reshape(-1), self.expected.reshape(-1))


@contextlib.contextmanager
def a_place(engine: Engine, nbytes: int, kind: type[Place] = Place) -> Iterator[Place]:
    """A place of one size with memory of its own."""
    copier = engine.Copier(0, 1, PATIENCE_S)
    arena = HostArena(engine, 0, nbytes, 0)
    try:
        yield kind(nbytes, 0, arena, copier, engine)
    finally:
        arena.close()
        copier.close()


def verify(transfer: Transfer, place: Place, engine: Engine, seed: int) -> Seen:
    """Run once with random bytes; a second call with another seed shows what a cache kept of the first."""
    data = np.random.default_rng(seed).integers(0, 256, place.nbytes, np.uint8)
    with place.holding(data):
        transfer.write(data)
        transfer.refresh()
        transfer.run()
        if transfer.waits:
            transfer.wait()
        engine.synchronize(0)
        arrived = transfer.arrived()
        seen = Seen(arrived.copy(), transfer.expected(data), transfer.where(), place.lent(arrived))
    transfer.release()
    return seen


def copies_touched(transfer: Transfer, nbytes: int) -> int:
    """How often one run writes as many new pages as the size has; beyond 32 MiB malloc takes new ones every time."""
    if "[always]" in HUGE_PAGES.read_text():
        pytest.skip("transparent huge pages are always on, so that page faults do not count copies")
    for _ in range(2):  # the first may compile
        transfer.refresh()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        transfer.run()
        if transfer.waits:
            transfer.wait()
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        transfer.release()
    return round(faults * resource.getpagesize() / nbytes)


def import_or_skip(name: str) -> ModuleType:
    """The framework, with whatever it warns of while it is imported let pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip(name)
    return module


def usual_directions(framework: Framework) -> list[str]:
    """The directions of the routes that most users take."""
    return sorted(route.direction for route in framework.routes if route.usual)


def break_import(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a module of this name be found that cannot be imported, as a framework whose libraries are missing."""
    (folder / f"{name}.py").write_text('raise ImportError("libcublas.so.12: cannot open shared object file")\n')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError):
        import_module(name)

"""Set routes up, and run and verify them as a worker does."""

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

from pyxfer._frameworks.context import HostArena, RouteContext, as_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyxfer._frameworks.base import Transfer
    from pyxfer.native import Engine

PATIENCE_S = 30.0
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class HostPlace(RouteContext):
    """A place whose device memory is a framework's own memory on the CPU."""

    def fetch(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """Read the memory without the framework."""
        found: NDArray[np.uint8] = as_array(address, nbytes).copy()
        return found

    def store(self, address: int, data: NDArray[Any]) -> None:
        """Write the memory without the framework."""
        as_array(address, data.nbytes)[:] = data


@dataclass(frozen=True)
class Seen:
    """The result of one run."""

    arrived: NDArray[Any]
    expected: NDArray[Any]
    where: str
    lent: bool

    @property
    def right(self) -> bool:
        """Whether contents, size and type are as expected."""
        same_type = self.arrived.dtype == self.expected.dtype
        return same_type and np.array_equal(self.arrived.reshape(-1), self.expected.reshape(-1))


@contextlib.contextmanager
def a_place(engine: Engine, nbytes: int, kind: type[RouteContext] = RouteContext) -> Iterator[RouteContext]:
    """A place of one size with separate memory."""
    copier = engine.Copier(0, 1, PATIENCE_S)
    arena = HostArena(engine, 0, nbytes, 0)
    try:
        yield kind(nbytes, 0, arena, copier, engine)
    finally:
        arena.close()
        copier.close()


def verify(transfer: Transfer, context: RouteContext, engine: Engine, seed: int) -> Seen:
    """Run once with random bytes. A second call with another seed reveals a cache."""
    data = np.random.default_rng(seed).integers(0, 256, context.nbytes, np.uint8)
    with context.holding(data):
        transfer.write(data)
        transfer.refresh()
        transfer.run()
        if transfer.waits:
            transfer.wait()
        engine.synchronize(0)
        arrived = transfer.arrived()
        seen = Seen(arrived.copy(), transfer.expected(data), transfer.where(), context.lent(arrived))
    transfer.release()
    return seen


def copies_touched(transfer: Transfer, nbytes: int) -> int:
    """The number of host copies of one run, by its page faults: beyond 32 MiB malloc uses new pages every time."""
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
    """Import a framework without its warnings, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip(name)
    return module


def break_import(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the import of a module fail, as of a framework whose libraries are missing."""
    (folder / f"{name}.py").write_text('raise ImportError("libcublas.so.12: cannot open shared object file")\n')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError):
        import_module(name)

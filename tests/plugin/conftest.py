"""Suites of somebody's own, run by a pytest of their own inside of this one."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from pyxfer._document.sessions import Tested, XferSession
from pyxfer.native import Engine
from pyxfer.native._host import testing

INSTALLED = any(each.value == "pyxfer.pytest_plugin" for each in entry_points(group="pytest11"))
# What an inner pytest imports is forgotten at its end, unless it was there before.
for _name in ("session", "against"):
    importlib.import_module(f"pyxfer._pytest.{_name}")

# Where it is not installed, pytest does not find it by itself; and what is an error here is none in there.
QUIET = (*(() if INSTALLED else ("-p", "pyxfer.pytest_plugin")), "-p", "no:cacheprovider", "-W", "default")
# Slow enough that what a busy machine adds to a copy is little of it.
H2D, D2H, LATENCY_S = 1e8, 5e7, 20e-6
COPIES = '''
"""Copies over the modelled link, as a framework would make them."""
import contextlib
from contextlib import closing
import pytest
from pyxfer.native import load

@contextlib.contextmanager
def _copying(nbytes, times=1, direction="h2d"):
    engine = load("host")
    with contextlib.ExitStack() as stack:
        host = stack.enter_context(closing(engine.HostBuffer(nbytes, "pinned")))
        device = stack.enter_context(closing(engine.DeviceBuffer(nbytes)))
        copier = stack.enter_context(closing(engine.Copier(0)))
        lane = engine.Lane(direction, host.address, device.address, nbytes, nbytes, 1)
        def copy():
            for _ in range(times):
                copier.on_stream("async", lane, 0)
            return "copied"
        yield copy

@pytest.fixture
def copying():
    return _copying
'''


class Suite:
    """Test files in a folder, and what a pytest says of them."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeconftest(COPIES)

    def write(self, text: str) -> None:
        """The tests."""
        self.pytester.makepyfile(test_it=text)

    def run(self, *arguments: str, device: str = "host", budget: str = "150ms") -> pytest.RunResult:
        """In this process, quickly, and over host memory, which the tests of this one may have given a speed."""
        return self.bare(f"--xfer-device={device}", f"--xfer-budget={budget}", *arguments)

    def bare(self, *arguments: str) -> pytest.RunResult:
        """With nothing said but this."""
        return self.pytester.runpytest_inprocess(*QUIET, *arguments)

    def apart(self, *arguments: str) -> pytest.RunResult:
        """In a process of its own."""
        return self.pytester.runpytest_subprocess(*QUIET, *arguments, timeout=60)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same, and do not wait for it."""
        command = [sys.executable, "-m", "pytest", *QUIET, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.path)

    def session(self, name: str = "out.json") -> XferSession:
        """What it has written."""
        return XferSession.load(self.path / name)

    def only(self, name: str = "out.json") -> Tested:
        """The one test of it."""
        (found,) = self.session(name).tests
        return found


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Suite:
    """An empty one."""
    return Suite(pytester)


@pytest.fixture
def link(engine: Engine) -> Callable[[float], None]:
    """A link of known speed; a factor makes it faster."""

    def model(factor: float = 1.0) -> None:
        testing.model_link(H2D * factor, LATENCY_S, D2H * factor, LATENCY_S)

    model()
    return model

"""Test suites that an inner pytest runs."""

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

INSTALLED = any(entry.value == "pyxfer.pytest_plugin" for entry in entry_points(group="pytest11"))
# An inner pytest removes the modules that it imported, unless they were imported before.
for _name in ("session", "against"):
    importlib.import_module(f"pyxfer._pytest.{_name}")

# pytest finds the plugin only if it is installed. Warnings are errors here, but not in the inner pytest.
QUIET = (*(() if INSTALLED else ("-p", "pyxfer.pytest_plugin")), "-p", "no:cacheprovider", "-W", "default")
# The finder of an editable installation was imported by this pytest already.
EDITABLE = ("-W", "ignore:Module already imported so cannot be rewritten; _editable_")
# So slow that the delays of a busy machine are small in comparison.
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
    """Test files in a folder, and the results of an inner pytest."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        pytester.makeconftest(COPIES)

    def write(self, text: str) -> None:
        """Write the test file."""
        self.pytester.makepyfile(test_it=text)

    def run(self, *arguments: str, device: str = "host", budget: str = "150ms") -> pytest.RunResult:
        """Run in this process in host memory, whose speed a test may have modelled, with a short budget."""
        return self.bare(f"--xfer-device={device}", f"--xfer-budget={budget}", *arguments)

    def bare(self, *arguments: str) -> pytest.RunResult:
        """Run in this process with only these options."""
        return self.pytester.runpytest_inprocess(*QUIET, *arguments, *EDITABLE)

    def apart(self, *arguments: str) -> pytest.RunResult:
        """Run in a separate process."""
        return self.pytester.runpytest_subprocess(*QUIET, *arguments, timeout=60)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start in a separate process and return it."""
        command = [sys.executable, "-m", "pytest", *QUIET, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=self.path)

    def session(self, name: str = "out.json") -> XferSession:
        """The session that it wrote."""
        return XferSession.load(self.path / name)

    def only(self, name: str = "out.json") -> Tested:
        """The only test of the session."""
        (found,) = self.session(name).tests
        return found


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Suite:
    """An empty suite."""
    return Suite(pytester)


@pytest.fixture
def link(engine: Engine) -> Callable[[float], None]:
    """Models a link of known speed times a factor."""

    def model(factor: float = 1.0) -> None:
        testing.model_link(H2D * factor, LATENCY_S, D2H * factor, LATENCY_S)

    model()
    return model

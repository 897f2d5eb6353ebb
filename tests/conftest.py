"""What every test can rely on: where it runs, what it runs with, and that the host runtime is left as it was found."""

from __future__ import annotations

import functools
import gc
import os
import platform
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

from pyxfer._measure import exclusive
from pyxfer.errors import CudaUnavailableError
from pyxfer.native import choose, load

if TYPE_CHECKING:
    from pyxfer.native.engine import Engine

pytest_plugins = ["pytester"]

# More do not end sooner: each process collects all tests and starts servers of its own.
MOST_PROCESSES = 8
SANITIZER = os.environ.get("PYXFER_SANITIZER", "")

# The same examples in every run: what fails, fails again. The gate tries more of them.
settings.register_profile("here", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads its options
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use a process for each core where the whole suite runs; a selection of tests is quicker in one process."""
    option = config.option
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (option.keyword or option.usepdb)
    if whole and option.numprocesses is None and not option.tx:
        cores = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
        option.numprocesses, option.dist = (cores if cores > 1 else 0), "worksteal"


def pytest_configure() -> None:
    """Heed Ctrl-C: a shell that starts the tests in the background has them, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What the collecting has made is searched for garbage this once."""
    _collect_garbage()


def pytest_report_header() -> list[str]:
    """Name what is tested, and on what."""
    chosen = choose()
    driver = load("cuda").driver_version()
    sanitized = f", built with {SANITIZER}" if SANITIZER else ""
    return [
        f"pyxfer {_version()}{sanitized}; Python {platform.python_version()}, NumPy {np.__version__}",
        f"runtime: {chosen.runtime}{f' ({chosen.reason})' if chosen.reason else ''}",
        f"driver: {f'for CUDA {driver // 1000}.{driver % 1000 // 10}' if driver else 'none'}",
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine or this build cannot show, with the reason."""
    if item.get_closest_marker("gpu") and (trouble := _gpu_trouble()):
        pytest.skip(trouble)
    marker = item.get_closest_marker("unsanitized")
    if marker and SANITIZER:
        pytest.skip(f"built with {SANITIZER}: {marker.kwargs['reason']}")


@pytest.fixture(autouse=True, scope="session")
def meeting_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder where processes that measure find each other: for this test process alone."""
    folder = tmp_path_factory.mktemp("measuring")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "_shared_folder", lambda: folder)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _away_from_the_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in another folder: a Python started in the checkout would import the sources and not what is installed.

    Temporary files have a folder of this process, in which no other process that measures is met and waited for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The engine over ordinary memory, without orders; what the test allocates it must free.

    Orders are given through `pyxfer.native._host.testing`.
    """
    from pyxfer.native._host import testing

    testing.reset()
    before = sorted(testing.allocated())
    yield load("host")
    testing.reset()
    _collect_garbage()
    assert sorted(testing.allocated()) == before, "the test left something allocated"


def _collect_garbage() -> None:
    """And leave what stays out of every later search: frameworks and the tests themselves are a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def gpu_engine() -> Engine:
    """The engine of the GPU; the test is skipped where none is usable."""
    if trouble := _gpu_trouble():
        pytest.skip(trouble)
    return load("cuda")


@functools.cache
def _gpu_trouble() -> str:
    try:
        load("cuda").device_count()
    except CudaUnavailableError as error:
        return str(error)
    return ""


def _version() -> str:
    try:
        return version("pyxfer")
    except PackageNotFoundError:
        return "not installed"

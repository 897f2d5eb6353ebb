"""Fixtures and hooks for all tests."""

from __future__ import annotations

import functools
import gc
import os
import platform
import signal
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import settings
from in_process import Command
from route_checks import import_or_skip

from pyxfer import native
from pyxfer._ceiling import callables, session
from pyxfer._frameworks import bench
from pyxfer._measure import exclusive
from pyxfer.errors import CudaUnavailableError
from pyxfer.native import choose, load

if TYPE_CHECKING:
    from pyxfer.native import Engine

pytest_plugins = ["pytester"]

# More processes are not faster: each one collects all tests and starts its own servers.
MAX_PROCESSES = 8
SANITIZER = os.environ.get("PYXFER_SANITIZER", "")

# All runs use the same examples, so that a failure can be repeated. CI uses more of them.
settings.register_profile("here", deadline=None, derandomize=True, max_examples=25)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "here")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads its options
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use one process more than cores for the whole suite, which often waits. A few tests are faster in one process."""
    option = config.option
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (option.keyword or option.usepdb)
    if whole and option.numprocesses is None and not option.tx:
        cores = len(os.sched_getaffinity(0))
        option.numprocesses, option.dist = (min(cores + 1, MAX_PROCESSES) if cores > 1 else 0), "worksteal"


def pytest_configure() -> None:
    """Handle Ctrl-C. A shell makes background processes, and all that they start, ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exclude the objects of the collection from later garbage collections."""
    _collect_garbage()


def pytest_report_header() -> list[str]:
    chosen = choose()
    driver = load("cuda").driver_version()
    sanitized = f", built with {SANITIZER}" if SANITIZER else ""
    return [
        f"pyxfer {_version()}{sanitized}; Python {platform.python_version()}, NumPy {np.__version__}",
        f"runtime: {chosen.runtime}{f' ({chosen.reason})' if chosen.reason else ''}",
        f"driver: {f'for CUDA {driver // 1000}.{driver % 1000 // 10}' if driver else 'none'}",
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a GPU, or a build without sanitizers."""
    if item.get_closest_marker("gpu") and (trouble := _gpu_trouble()):
        pytest.skip(trouble)
    marker = item.get_closest_marker("unsanitized")
    if marker and SANITIZER:
        pytest.skip(f"built with {SANITIZER}: {marker.kwargs['reason']}")


@pytest.fixture(autouse=True, scope="session")
def meeting_place() -> Iterator[str]:
    """Where a `Presence` meets others. This test process has its own, so that it meets no other process."""
    place = f"pyxfer-test-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "PLACE", place)
        yield place


@pytest.fixture(autouse=True, scope="session")
def _no_files_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The defaults that a developer keeps in files do not change the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _away_from_the_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in another folder: a Python started in the checkout would import the sources, not the installed package.

    Temporary files are in a separate folder, so that no other measuring process is met or waited for.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _small_cache() -> Iterator[None]:
    """Without a GPU, measure in small buffers. A machine with a large cache would fill a gigabyte for each run."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (session, callables, bench) if choose().runtime == "host" else ():
            patch.setattr(module, "last_level_bytes", lambda: 0)
        yield


@pytest.fixture
def protected_memory() -> Iterator[None]:
    """Make device memory of the host runtime unreadable by its address, as on a GPU: a direct access is a SIGSEGV."""
    from pyxfer.native._host import testing

    testing.protect_device_memory(True)
    yield
    testing.protect_device_memory(False)


@pytest.fixture
def engine() -> Iterator[Engine]:
    """The engine on the host runtime, reset before and after. The test must free all that it allocates.

    Tests control the runtime with `pyxfer.native._host.testing`.
    """
    from pyxfer.native._host import testing

    testing.reset()
    before = sorted(testing.allocated())
    yield load("host")
    testing.reset()
    _collect_garbage()
    assert sorted(testing.allocated()) == before, "the test left something allocated"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process: for pages and refusals, which need neither signals nor streams of their own."""
    for name in ("NO_COLOR", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Command(capsys)


@pytest.fixture
def as_gpu(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The host runtime in place of the GPU engine, so that a test can choose driver and devices."""
    real = native._module
    monkeypatch.setattr(native, "_module", lambda name: real("_host" if name == "_cuda" else name))
    return engine


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the GPUs of this machine from this process, as `CUDA_VISIBLE_DEVICES=` does from another."""

    def hidden() -> int:
        raise CudaUnavailableError(100, "cudaErrorNoDevice", "cudaGetDeviceCount", "", "no device", "Make one visible.")

    monkeypatch.setattr(load("cuda"), "device_count", hidden)


def _collect_garbage() -> None:
    # Frameworks and tests are a million objects. Freezing excludes them from later collections.
    gc.collect()
    gc.freeze()


@pytest.fixture
def torch() -> Any:
    return import_or_skip("torch")


@pytest.fixture
def jax() -> Any:
    return import_or_skip("jax")


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    return import_or_skip("tensorflow")


@pytest.fixture
def gpu_engine() -> Engine:
    """The engine of the GPU. The test is skipped without a usable GPU."""
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

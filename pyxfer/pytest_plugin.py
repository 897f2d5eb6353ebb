"""The pytest plugin: the fixture `xfer`, the marker `xfer`, and the options that begin with `--xfer`.

pytest loads this module in every run if pyxfer is installed. So it imports nothing heavy, and makes no CUDA call before
a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pyxfer._pytest import settings as options
from pyxfer._pytest.reporting import WITHOUT_GPU, Reporting
from pyxfer._pytest.settings import MARKER_LINE, marker_error
from pyxfer.errors import CudaUnavailableError, UsageError

if TYPE_CHECKING:
    from pyxfer._pytest.fixture import Xfer
    from pyxfer._pytest.session import Bench

SETTINGS = pytest.StashKey[options.Settings]()
BENCH: pytest.StashKey[Bench] = pytest.StashKey()
NO_GPU = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options. Workers of xdist do not report; their controller does."""
    config.addinivalue_line("markers", MARKER_LINE)
    try:
        settings = options.read_settings(config)
        config.stash[SETTINGS] = settings
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Reporting(config, settings), "pyxfer-reporting")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture
def xfer(request: pytest.FixtureRequest) -> Iterator[Xfer]:
    """Time a function that moves bytes between host and GPU: `xfer(fn, *args, nbytes=..., direction="h2d")`."""
    from pyxfer._pytest.session import Bench

    item, settings = request.node, request.config.stash[SETTINGS]
    try:
        item.stash[BENCH] = Bench(item, settings)
    except CudaUnavailableError as error:
        reason = f"no usable GPU: {error.name} ({error.code}). {error.hint}"
        if settings.require_gpu:
            pytest.fail(f"--xfer-require-gpu: {reason}", pytrace=False)
        item.stash[NO_GPU] = f"{reason} To measure host memory instead: --xfer-device=host."
        pytest.skip(f"xfer: {item.stash[NO_GPU]}")
    yield item.stash[BENCH].fixture
    del item.stash[BENCH]


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Check the limits of the marker after a test that has not failed."""
    bench = item.stash.get(BENCH, None)
    if bench is not None:
        bench.judge()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the measurement to the report, or why there is none. xdist sends the report to its controller."""
    outcome: Any = yield
    report = outcome.get_result()
    bench = item.stash.get(BENCH, None)
    if bench is not None and call.when == "call":
        bench.add_to(report)
    if NO_GPU in item.stash and call.when == "setup":
        setattr(report, WITHOUT_GPU, item.stash[NO_GPU])


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Make an invalid marker an error of the collection."""
    outcome: Any = yield
    report = outcome.get_result()
    items = [node for node in report.result or () if isinstance(node, pytest.Item)]
    if errors := list(dict.fromkeys(text for text in map(marker_error, items) if text is not None)):
        report.outcome, report.longrepr, report.result = "failed", "\n".join(errors), []

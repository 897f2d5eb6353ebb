"""The pytest plugin: the fixture `xfer`, the marker of that name, and the options that begin with `--xfer`.

pytest loads it in every run on every machine where pyxfer is installed, so it imports nothing heavy, and makes no CUDA
call before a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pyxfer._pytest import settings as options
from pyxfer._pytest.reporting import Reporting
from pyxfer._pytest.settings import MARKER_LINE, wrong_markers
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._pytest.fixture import Xfer
    from pyxfer._pytest.session import Bench

SETTINGS = pytest.StashKey[options.Settings]()
BENCH: pytest.StashKey[Bench] = pytest.StashKey()
TOLD = "pyxfer_measured"
"""The attribute of a report that holds what its test has measured."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read them, and be ready to report, where this is not a worker of xdist, whose reports go to its controller."""
    config.addinivalue_line("markers", MARKER_LINE)
    try:
        settings = options.read_settings(config)
        config.stash[SETTINGS] = settings
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Reporting(config, settings, TOLD), "pyxfer-reporting")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture
def xfer(request: pytest.FixtureRequest) -> Iterator[Xfer]:
    """Time a function that moves bytes over the link, beside raw copies: `xfer(fn, nbytes=..., direction="h2d")`."""
    from pyxfer._pytest.session import Bench

    item = request.node
    item.stash[BENCH] = Bench(item, request.config.stash[SETTINGS])
    yield item.stash[BENCH].fixture
    del item.stash[BENCH]


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """After the test itself, where that has not failed."""
    bench = item.stash.get(BENCH, None)
    if bench is not None:
        bench.judge()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """What was measured goes with the report, which xdist hands on."""
    outcome: Any = yield
    bench = item.stash.get(BENCH, None)
    if bench is not None and call.when == "call":
        report = outcome.get_result()
        setattr(report, TOLD, bench.told(report.outcome))


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A marker with a wrong argument is an error of the collection."""
    outcome: Any = yield
    report = outcome.get_result()
    items = [each for each in report.result or () if isinstance(each, pytest.Item)]
    if wrong := list(dict.fromkeys(text for text in map(wrong_markers, items) if text is not None)):
        report.outcome, report.longrepr, report.result = "failed", "\n".join(wrong), []

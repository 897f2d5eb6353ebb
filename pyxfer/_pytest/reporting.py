"""The hooks of a pytest session: files, comparison and summary. Imports heavy modules only when needed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyxfer._pytest.settings import naming, shown_path
from pyxfer._report.prose import folded
from pyxfer.errors import PyxferError

if TYPE_CHECKING:
    from pyxfer._document.sessions import XferSession
    from pyxfer._pytest.against import Against, Compared
    from pyxfer._pytest.session import Gathered
    from pyxfer._pytest.settings import Settings

MEASURED, WITHOUT_GPU = "pyxfer_measured", "pyxfer_without_gpu"
"""Attributes of a test's report: its measurement as JSON; why it was skipped."""
# The most that a crash loses; writing after every test would take longer than some tests.
WRITE_EVERY_S = 10.0


class Reporting:
    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        """Load the saved sessions and check that files can be written, before anything is measured."""
        self._config = config
        self._settings = settings
        self._gathered: Gathered | None = None
        self._session: XferSession | None = None
        self._against: Against | None = None
        self._compared: Compared | None = None
        self._written_s = time.monotonic()
        self._messages: list[str] = []
        self._without_gpu: list[str] = []
        self._failures: list[str] = []
        with naming("--xfer-compare"):
            if settings.compare:
                from pyxfer._pytest.against import Against

                self._against = Against(settings.compare, settings.limit)
        if settings.json is not None:
            from pyxfer._document.files import check_writable

            with naming("--xfer-json"):
                check_writable(settings.json)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the measurement of a test, also from workers of xdist."""
        if (reason := getattr(report, WITHOUT_GPU, None)) is not None:
            self._without_gpu.append(reason)
        measured = getattr(report, MEASURED, None)
        if measured is None:
            return
        from pyxfer._pytest.session import Gathered

        self._gathered = self._gathered or Gathered()
        self._gathered.add(measured)
        if self._settings.json is not None and time.monotonic() - self._written_s > WRITE_EVERY_S:
            self._write(self._gathered.session(interrupted=True), self._settings.json)
            self._written_s = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write and compare; called also without a terminal and after Ctrl-C."""
        if self._gathered is None:
            self._report_nothing_measured()
            return
        early = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        interrupted = early or bool(session.shouldstop or session.shouldfail)
        self._session = self._gathered.session(interrupted=interrupted)
        path = self._settings.json
        if path is not None and self._write(self._session, path):
            self._messages.append(f"written: {shown_path(path, self._config)}")
        if self._against is not None:
            self._compared = self._against.compare(self._session)
            self._failures += self._compared.failures
        if self._failures and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._session is not None:
            from pyxfer._pytest.session import write_summary

            name = self._against.name if self._against else ""
            write_summary(terminalreporter, self._session, self._compared, name)
        if self._without_gpu:
            tests = "1 test" if len(self._without_gpu) == 1 else f"{len(self._without_gpu)} tests"
            self._messages.append(f"{tests} skipped: {self._without_gpu[0]}")
        for lines, colours in ((self._messages, {}), (self._failures, {"red": True})):
            for line in lines:
                terminalreporter.write_line(folded(f"pyxfer: {line}"), **colours)

    def _report_nothing_measured(self) -> None:
        if self._settings.json is not None:
            path = shown_path(self._settings.json, self._config)
            self._messages.append(f"nothing was measured; not written: {path}")
        if self._against is not None:
            self._messages.append(f"nothing was measured; not compared with {self._against.name}")

    def _write(self, session: XferSession, path: Path) -> bool:
        try:
            session.save(path)
        except PyxferError as error:
            self._failures.append(str(error))
            return False
        return True

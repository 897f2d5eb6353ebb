"""What a session of pytest says and writes of the tests that have measured. Loads nothing heavy before there is one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyxfer._document.files import check_writable
from pyxfer._pytest.settings import FOLDER, under
from pyxfer._report.prose import folded
from pyxfer.errors import PyxferError

if TYPE_CHECKING:
    from pyxfer._document.sessions import XferSession
    from pyxfer._pytest.against import Against, Compared
    from pyxfer._pytest.session import Gathered
    from pyxfer._pytest.settings import Settings

FIXTURE = "xfer"
# A crash loses no more than this; encoding every trial after every test would take longer than some tests.
WRITE_EVERY_S = 10.0


class Reporting:
    """The hooks of a session that tells, writes and compares."""

    def __init__(self, config: pytest.Config, settings: Settings, told: str) -> None:
        """Read what is to be compared with, and see whether files can be written, before anything is measured.

        Raises:
            UsageError: it cannot be; says why.

        """
        self._config = config
        self._settings = settings
        self._told = told
        self._gathered: Gathered | None = None
        self._session: XferSession | None = None
        self._compared: Compared | None = None
        self._written_s = time.monotonic()
        self._said: list[str] = []
        self._troubles: list[str] = []
        with under("--xfer-compare"):
            self._against = self._read() if settings.compare else None
        for option, path in (("--xfer-json", settings.json), ("--xfer-save", settings.save)):
            if path is not None:
                with under(option):
                    self._prepare(path)

    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Which device and link, where a test is going to measure."""
        wanted = any(FIXTURE in getattr(item, "fixturenames", ()) for item in items)
        if not wanted or self._settings.disabled or self._config.option.collectonly or self._config.option.verbose < 0:
            return []
        from pyxfer._pytest.heading import device_line

        return [f"pyxfer: {device_line(self._settings.device)}"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in what a test has measured, in whichever process."""
        told = getattr(report, self._told, None)
        if told is None:
            return
        from pyxfer._pytest.session import Gathered

        self._gathered = self._gathered or Gathered()
        self._gathered.add(told)
        if self._settings.json is not None and time.monotonic() - self._written_s > WRITE_EVERY_S:
            self._write(self._gathered.session(interrupted=True), self._settings.json)
            self._written_s = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write, and compare; also without a terminal, and after Ctrl-C."""
        if self._gathered is None:
            self._say_nothing_measured()
            return
        early = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        interrupted = early or bool(session.shouldstop or session.shouldfail)
        self._session = self._gathered.session(interrupted=interrupted)
        for path in (self._settings.json, self._settings.save):
            if path is not None and self._write(self._session, path):
                self._said.append(f"written: {self._shown(path)}")
        if self._against is not None:
            self._compared = self._against.compare(self._session)
            self._troubles += self._compared.failures
        if self._troubles and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if self._session is not None:
            from pyxfer._pytest.session import write_summary

            name = self._against.name if self._against else ""
            write_summary(terminalreporter, self._session, self._compared, name)
        for lines, colours in ((self._said, {}), (self._troubles, {"red": True})):
            for line in lines:
                terminalreporter.write_line(folded(f"pyxfer: {line}"), **colours)

    def _read(self) -> Against:
        from pyxfer._pytest.against import Against

        return Against(self._settings.compare, self._settings.limits)

    def _prepare(self, path: Path) -> None:
        if path.parent == self._config.rootpath / FOLDER:
            path.parent.mkdir(exist_ok=True)
        check_writable(path)

    def _say_nothing_measured(self) -> None:
        files = [self._shown(path) for path in (self._settings.json, self._settings.save) if path is not None]
        if files:
            self._said.append(f"nothing was measured, so {' and '.join(files)} {_was(files)} not written")
        if self._against is not None:
            self._said.append(f"nothing was measured, so nothing was compared with {self._against.name}")

    def _write(self, session: XferSession, path: Path) -> bool:
        try:
            session.save(path)
        except PyxferError as error:
            self._troubles.append(str(error))
            return False
        return True

    def _shown(self, path: Path) -> str:
        here = self._config.invocation_params.dir
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _was(files: Sequence[str]) -> str:
    return "was" if len(files) == 1 else "were"

"""Chromium without a window, driven through the pipe of its DevTools protocol."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
)
_INPUT, _OUTPUT = 3, 4  # the descriptors that Chromium reads and writes


class Browser:
    """One tab. `events` are those since the last `open`."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its result."""
        return self._call(method, **parameters)

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        """Load a file at a width in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.show_in(scheme)
        self.events = []
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def show_in(self, scheme: str) -> None:
        """Colours for `light` or `dark`, also of the page that is open."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"])
        return found["result"].get("value")

    def _call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            pass
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 16)
            if not data:
                raise AssertionError("Chromium has ended")
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def started() -> Iterator[Browser]:
    """A browser with a profile of its own, ended afterwards."""
    assert PROGRAM is not None
    # Above the descriptors that the child gets, so that none is overwritten before it is copied.
    ours = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
    child_read, write, read, child_write = ours
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        actions = [
            (os.POSIX_SPAWN_DUP2, child_read, _INPUT),
            (os.POSIX_SPAWN_DUP2, child_write, _OUTPUT),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        arguments = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}"]
        process = os.posix_spawn(PROGRAM, arguments, os.environ, file_actions=actions, setpgroup=0)
        os.close(child_read)
        os.close(child_write)
        try:
            yield Browser(write, read)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(write)
            os.close(read)

"""Reports in a browser: nothing fails, nothing is fetched, everything fits, can be read, sorted and reached."""

from __future__ import annotations

import base64
import fcntl
import importlib.util
import io
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

import pytest
from report_samples import DOCUMENTS

from pyxfer._report.webpage import page_html

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


if PROGRAM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)
pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
pytestmark = pytest.mark.slow

WIDTHS = (1280, 390)
# The smallest contrast of any visible text with the colour behind it (WCAG 2.2, 1.4.3), and its words.
CONTRAST = """
(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const weights = [0.2126, 0.7152, 0.0722];
  const luminance = (rgb) => weights.reduce((sum, weight, i) => sum + weight * linear(rgb[i]), 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parts(getComputedStyle(node).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.getClientRects().length || node.tagName === "SCRIPT") continue;
    const style = getComputedStyle(node);
    const front = parts(node.closest("svg") ? style.fill : style.color);
    const [x, y] = [luminance(front), luminance(behind(node))].sort((a, b) => b - a);
    const ratio = (x + 0.05) / (y + 0.05);
    if (ratio < worst[0]) worst = [ratio, walker.currentNode.data.trim().slice(0, 60)];
  }
  return worst;
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name}.html" for name in DOCUMENTS}
    for name, path in paths.items():
        path.write_text(page_html([DOCUMENTS[name]]), encoding="utf-8")
    return paths


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_report_is_whole_in_a_browser(name: str, pages: dict[str, Path], browser: Browser) -> None:
    for width in WIDTHS:
        browser.open(pages[name], width)
        asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        failures = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        assert [event["params"] for event in browser.events if event["method"] in failures] == []
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.title").startswith(("pyxfer", "pytest"))
        drawn = browser.run(
            "[...document.querySelectorAll('figure')].map((f) => [...f.querySelectorAll('[role=img]')]"
            ".filter((d) => d.getClientRects().length).map((d) => [...d.querySelectorAll('svg')]"
            ".every((s) => s.getBoundingClientRect().width > 200 && s.querySelector('.role-mark, .mark-text'))))"
        )
        assert drawn == [[True]] * len(drawn)
        assert bool(drawn) == (name not in ("nothing measured", "plan"))


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, which checks names, roles, landmarks, headings, tables, languages and contrast; not that of SVG."""
    package = importlib.util.find_spec("axe_core_python")
    if package is None or package.origin is None:
        pytest.skip("axe-core-python is not installed")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


# The rules with a result, and the violations. A scheme changes only colours, so the second run checks only these.
AXE = """
axe.run(document, {resultTypes: ['violations'], ...OPTIONS}).then((result) => [result.passes.map((rule) => rule.id),
  result.violations.map((v) => [v.id, v.nodes.map((node) => node.html.slice(0, 200))])])
"""


# The page of another document has the same parts, and longer names or more rows.
REPEATED = ("ceiling of the host", "links of four GPUs", "links of the host", "one point")


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in REPEATED])
def test_axe_finds_no_barrier(name: str, axe: str, pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages[name], 1280)
    browser.run(f"{axe}; for (const part of document.querySelectorAll('details')) part.open = true;")
    passed, violations = browser.run(AXE.replace("OPTIONS", "{}"))
    assert len(passed) > 10
    assert "color-contrast" in passed
    assert violations == []
    browser.show_in("dark")
    assert browser.run(AXE.replace("OPTIONS", "{runOnly: ['color-contrast']}")) == [["color-contrast"], []]


@pytest.mark.parametrize("name", ["ceiling", "frameworks", "comparison", "watch", "links of four GPUs", "hostile"])
def test_text_has_enough_contrast(name: str, pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages[name], 1280)
    for scheme in ("light", "dark"):
        browser.show_in(scheme)
        ratio, words = browser.run(CONTRAST)
        assert ratio >= 4.5, (scheme, words)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("hostile")])
def test_markup_from_outside_does_not_run(name: str, pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages[name], 1280)
    assert browser.run("document.title") != "injected"
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert "onerror" in browser.run("document.body.textContent")


def test_a_table_is_sorted_by_the_exact_values_of_a_column_with_the_keyboard(
    pages: dict[str, Path], browser: Browser
) -> None:
    browser.open(pages["ceiling"], 1280)
    browser.run("[...document.querySelectorAll('th button')].find((b) => b.textContent === 'bandwidth').focus()")
    values = (
        "(() => { const at = document.activeElement.closest('th').cellIndex; "
        "return [...document.activeElement.closest('table').tBodies[0].rows]"
        ".map((r) => r.cells[at].dataset.value).filter((v) => v !== undefined).map(Number); })()"
    )
    for order in ("ascending", "descending"):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
            )
        found = browser.run(values)
        assert len(found) > 10
        assert found == sorted(found, reverse=order == "descending")
        assert browser.run("document.activeElement.closest('th').getAttribute('aria-sort')") == order


def test_a_mark_tells_its_figure_to_a_pointer(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["ceiling"], 1280)
    shown = browser.run(
        "(() => { const mark = document.querySelector('figure .wide .mark-symbol [aria-label]'); "
        "mark.dispatchEvent(new PointerEvent('pointerover', {bubbles: true})); "
        "return [document.getElementById('tip').hidden, document.getElementById('tip').textContent]; })()"
    )
    assert shown[0] is False
    assert "GB/s" in shown[1]


def test_a_report_can_be_read_without_its_script(pages: dict[str, Path], browser: Browser) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages["explain"], 1280)
        assert browser.run("document.querySelectorAll('figure svg').length") >= 1
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_charts_are_drawn_in_their_own_size(pages: dict[str, Path], browser: Browser) -> None:
    """So their type has the size that it is drawn for."""
    for width, kind, size in ((1280, "wide", 14), (390, "narrow", 12)):
        browser.open(pages["ceiling"], width)
        scales = browser.run(
            f"[...document.querySelectorAll('.{kind} svg')]"
            ".map((s) => s.getBoundingClientRect().width / s.width.baseVal.value)"
        )
        assert scales == [1] * len(scales)
        sizes = browser.run(
            f"[...document.querySelectorAll('.{kind} .role-axis-label text')].map((t) => getComputedStyle(t).fontSize)"
        )
        assert set(sizes) == {f"{size}px"}


def test_a_route_is_one_line_and_a_wide_table_fades_out_where_it_has_more(
    pages: dict[str, Path], browser: Browser
) -> None:
    browser.open(pages["ceiling"], 390)
    heights = browser.run("[...document.querySelectorAll('td.whole')].map((cell) => cell.clientHeight)")
    assert max(heights) < 40
    table = "document.querySelector('.table')"
    assert browser.run(f"{table}.scrollWidth > {table}.clientWidth")
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    for left, image in (("0", "linear-gradient"), (f"{table}.scrollWidth", "none")):
        browser.run(f"{table}.scrollLeft = {left}; {frames}")
        assert browser.run(f"getComputedStyle({table}).maskImage").startswith(image)


def printed(browser: Browser, path: Path) -> Any:
    browser.open(path, 1280)
    found = browser.call("Page.printToPDF", preferCSSPageSize=True)
    return pytest.importorskip("pypdf").PdfReader(io.BytesIO(base64.b64decode(found["data"])))


@pytest.mark.parametrize("name", ["ceiling", "watch", "links of four GPUs", "comparison"])
def test_a_report_is_printed_on_a4_with_no_heading_at_the_end_of_a_page(
    name: str, pages: dict[str, Path], browser: Browser
) -> None:
    sheets = printed(browser, pages[name]).pages
    assert {(round(sheet.mediabox.width), round(sheet.mediabox.height)) for sheet in sheets} == {(595, 842)}
    headings = set(browser.run("[...document.querySelectorAll('h2')].map((h) => h.textContent)"))
    assert not headings & {sheet.extract_text().splitlines()[-1] for sheet in sheets}
    charts = browser.run("[...document.querySelectorAll('figure')].map((f) => f.closest('section').textContent)")
    assert len(charts) <= 2 * len(sheets)


def test_each_page_of_a_printed_table_has_its_head(pages: dict[str, Path], browser: Browser) -> None:
    sheets = [sheet.extract_text() for sheet in printed(browser, pages["ceiling"]).pages]
    of_table = [text for text in sheets if text.count("GB/s") > 100]
    assert len(of_table) >= 1
    assert all("bandwidth" in text for text in of_table)


def test_a_printed_report_shows_its_charts(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["explain"], 1280)
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = browser.run("[...document.querySelectorAll('figure svg')].filter((s) => s.getClientRects().length).length")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert shown == browser.run("document.querySelectorAll('figure').length")

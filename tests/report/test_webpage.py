"""The page of a report as a file: what it holds, that it is the same each time, and its errors."""

from __future__ import annotations

import base64
import gzip
import re
import struct
from html.parser import HTMLParser

import msgspec
import pytest
from baseline.store.making import make_baseline
from hostile import with_text
from link_samples import make_links
from pages import full_run
from report_samples import BREAKOUT, DOCUMENTS, RIGHT_TO_LEFT
from samples import Made, make_missing, make_run
from watch_samples import make_unseen
from xfer_samples import session

from pyxfer._document import codec, runs
from pyxfer._document.baselines import History
from pyxfer._document.derivations import derived
from pyxfer._report import history, webpage
from pyxfer._report.grid import number, text_grid
from pyxfer._report.kinds import charts_of
from pyxfer._report.webpage import page_html, report_bytes
from pyxfer.errors import UsageError

pytest.importorskip("vl_convert", reason="the extra `report` is not installed")
MAX_BYTES = 1_500_000


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """A page of each kind of document; test_webpage_in_chromium.py opens those of all samples."""
    first = {type(document): name for name, document in reversed([*DOCUMENTS.items()])}
    return {name: page_html([DOCUMENTS[name]]) for name in (*first.values(), "hostile", "nothing measured")}


def embedded(page: str) -> bytes:
    (link,) = (attributes for attributes in Tags(page).of("a") if "download" in attributes)
    return gzip.decompress(base64.b64decode((link["href"] or "").partition(",")[2]))


def test_a_page_of_a_reasonable_size_refers_to_nothing_outside_of_itself(pages: dict[str, str]) -> None:
    for page in pages.values():
        tags = Tags(page)
        assert len(page.encode()) < MAX_BYTES
        targets = [
            value or "" for _, attributes in tags.tags for name, value in attributes.items() if name in ("href", "src")
        ]
        assert all(target.startswith(("#", "data:application/gzip;base64,")) for target in targets)
        assert not tags.of("link") + tags.of("iframe") + tags.of("img")
        ids = [attributes["id"] for _, attributes in tags.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        assert {target[1:] for target in targets if target.startswith("#")} <= set(ids)
        assert len(tags.of("script")) == 1
        (policy,) = (attributes["content"] or "" for attributes in tags.of("meta") if "http-equiv" in attributes)
        assert "default-src 'none'" in policy
        assert "script-src 'sha256-" in policy


def test_the_embedded_document_is_the_document(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        if not name.startswith("history"):  # no file of its own kind
            document = DOCUMENTS[name]
            assert codec.decode(type(document), embedded(page)) == codec.decode(type(document), codec.encode(document))


def test_a_large_document_is_embedded_without_its_trials_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    run = derived(full_run())
    monkeypatch.setattr(webpage, "MAX_EMBEDDED", len(gzip.compress(codec.to_sealed_json(run), mtime=0)) - 1)
    page = page_html([run])
    found = codec.decode(runs.Run, embedded(page))
    assert [row.rate for row in found.measurements] == [row.rate for row in run.measurements]
    assert not any(row.trials for row in found.measurements)
    assert "without its trials" in page
    monkeypatch.setattr(webpage, "MAX_EMBEDDED", 10)
    page = page_html([DOCUMENTS["comparison"]])
    assert not [attributes for attributes in Tags(page).of("a") if "download" in attributes]
    assert "too large to be embedded" in page


@pytest.mark.parametrize("suffix", [".html", ".svg", ".png"])
def test_the_same_document_gives_the_same_bytes(suffix: str) -> None:
    document = DOCUMENTS["explain"]
    assert report_bytes([document], suffix) == report_bytes([document], suffix)


def test_the_table_has_every_measurement_with_its_exact_rate(pages: dict[str, str]) -> None:
    run = DOCUMENTS["ceiling"]
    found = re.findall(r'data-value="([^"]+)">[^<]* GB/s<', pages["ceiling"])
    assert {m.gbps for m in run.measurements if m.gbps is not None} <= {float(value) for value in found}


@pytest.mark.parametrize("name", ["ceiling", "links"])
def test_a_page_begins_with_what_it_is_of(pages: dict[str, str], name: str) -> None:
    run = DOCUMENTS[name]
    device = run.devices[0].device if name == "links" else run.device
    head = re.findall(r"<h1>([^<]*)</h1>", pages[name])
    assert head == [f"{device.name}, {run.environment.taken_at[:10]}: pyxfer {name}"]
    assert pages[name].index("<h1>") < pages[name].index("<p ")


def test_short_cells_are_not_broken_and_long_ones_are() -> None:
    rows = [("raw.pageable-memcpy", 1.5, "because of " * 20), ("raw.pinned-async", 2.5, "")]
    grid = text_grid("Rows", ("route", "rate", "why"), [(name, number(rate, str), why) for name, rate, why in rows])
    cells = [attributes.get("class") for attributes in Tags(webpage._table(grid, "rows")).of("td")]
    assert cells == ["whole", "number", None] * 2


def test_the_tables_of_a_watch_are_sorted_by_their_numbers(pages: dict[str, str]) -> None:
    times = re.findall(r'data-value="([^"]+)">([\d.]+) (ms|us)<', pages["watch"])
    factors = {"ms": 1e-3, "us": 1e-6}
    assert {unit for *_, unit in times} == set(factors)
    assert all(float(value) == pytest.approx(float(shown) * factors[unit], rel=0.01) for value, shown, unit in times)


def test_a_long_history_shows_its_last_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MAX_POINTS", 10)
    page = page_html([DOCUMENTS["history"]])
    assert "The last 10 of 60 points" in page
    assert page.count("<tr>") == 1 + 10
    assert "run59" in page


def test_pictures_have_the_form_of_their_suffix_and_all_charts_unless_one_is_named() -> None:
    document = DOCUMENTS["explain"]
    svg, png = (report_bytes([document], suffix, "waterfall") for suffix in (".svg", ".png"))
    assert svg.startswith(b"<svg")
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20])[0] > 1000
    assert len(report_bytes([document], ".svg")) > len(svg)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UsageError, match="Nothing can be drawn"):
        report_bytes([DOCUMENTS["nothing measured"]], ".svg", None)


HOSTILE = f"{BREAKOUT}{RIGHT_TO_LEFT}\x1b[31m\x00\x9b2J\ufffe"


QUICK = {"ceiling", "explain", "comparison", "links of one GPU"}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DOCUMENTS]
)
def test_hostile_text_in_every_field_stays_text(name: str) -> None:
    page = page_html([with_text(DOCUMENTS[name], HOSTILE)])
    assert page.count("<script") == page.count("</script>") == 1
    assert "<img" not in page
    assert not {"\u202e", "\x1b", "\x00", "\x9b", "\ufffe"} & set(page)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["explain", "comparison", "watch", "links of four GPUs"])
def test_hostile_text_is_drawn(name: str) -> None:
    document = with_text(DOCUMENTS[name], HOSTILE)
    assert report_bytes([document], ".png").startswith(b"\x89PNG")


WITHOUT_TEXT = ("history", "history without changes", "plan")


def test_all_other_documents_have_a_text() -> None:
    assert tuple(name for name, document in DOCUMENTS.items() if not hasattr(document, "text")) == WITHOUT_TEXT


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in WITHOUT_TEXT])
def test_hostile_text_does_not_reach_the_terminal(name: str) -> None:
    page = with_text(DOCUMENTS[name], HOSTILE).text()
    assert not {"\u202e", "\x1b", "\x00", "\x9b"} & set(page)


def empty_run() -> runs.Run:
    return make_run(measurements=(make_missing(),), curves=())


EMPTY = Made(
    {
        "run": empty_run,
        "frameworks": lambda: make_run(kind="frameworks", measurements=(), curves=()),
        "explain": lambda: make_run(kind="explain", measurements=(), curves=()),
        "failed": lambda: make_run(ended="failed", failure="the device is gone", measurements=(), curves=()),
        "links": lambda: msgspec.structs.replace(make_links(1), traffics=(), latencies=(), small=()),
        "baseline": lambda: msgspec.structs.replace(make_baseline(), runs=(empty_run(),)),
        "comparison": lambda: msgspec.structs.replace(DOCUMENTS["comparison"], cells=(), verdict="AMBIGUOUS"),
        "examination": lambda: msgspec.structs.replace(DOCUMENTS["examination"], run=empty_run(), findings=()),
        "pytest": lambda: msgspec.structs.replace(session(), tests=()),
        "history": lambda: History(()),
    }
)


@pytest.mark.parametrize("name", EMPTY)
def test_without_figures_a_report_has_no_chart_and_says_so(name: str) -> None:
    page = page_html([EMPTY[name]])
    assert "<svg" not in page
    assert "no figure can be drawn" in page


def test_a_watch_without_records_still_has_the_parts_that_the_host_saw() -> None:
    assert "timeline" not in charts_of(make_unseen())
    assert "No device records" in page_html([make_unseen()])

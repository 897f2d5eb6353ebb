"""Fills the figures in README.md and docs/*.md from the documents in bench/results/.

    python bench/readme_figures.py [--check]

The script replaces the lines between `<!-- figures:NAME -->` and `<!-- /figures -->` by the table NAME, so that no
figure is typed by hand. It draws the pictures that the pages show (pictures.py). With --check it writes nothing; its
exit status is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import block_winners
import fleet_detection
import framework_figures as frameworks
import history_changes
import image_floor
import interval_coverage as intervals
import links_beside_nvbandwidth as link_peers
import links_map
import msgspec
import never_slower
import never_slower_parts
import on_the_way
import peers
import pictures
import plan_agreement
import ring_pauses
import shared
import timers
import trace_figures as traces
import upload_figures as uploads
import upload_soak
import verdicts
from figure_parts import (
    Document,
    IncompleteRunError,
    caption,
    complete_job,
    complete_links,
    complete_run,
    fenced,
    gbps_cell,
    load_own,
    page_of,
)
from first_upload import Firsts
from prefetched_training import Prefetched

from pyxfer._document.examinations import Examination
from pyxfer._document.files import write_whole
from pyxfer._document.fleets import Fleet
from pyxfer._document.machines import Link, Side
from pyxfer._document.remark_codes import REMARKS
from pyxfer._document.runs import Measurement, Memory, Run
from pyxfer._document.sessions import XferSession
from pyxfer._report.doctor import print_examination, summary
from pyxfer._report.explain import answer as explained_answer
from pyxfer._report.explain import find_explained
from pyxfer._report.fleet import print_fleet, print_host_report
from pyxfer._report.frameworks import answer as copied_answer
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer._report.layout import NARROWEST
from pyxfer._report.links import print_links
from pyxfer._report.overview import answer
from pyxfer._report.run import print_run
from pyxfer._report.session import place_lines, title
from pyxfer.errors import UsageError
from pyxfer.units import format_percent, format_size

ROOT = Path(__file__).resolve().parent.parent
SMALL_BYTES = 1 << 20
COLUMNS: tuple[tuple[Side, Memory], ...] = (
    ("h2d", "pinned"),
    ("h2d", "pageable"),
    ("d2h", "pinned"),
    ("d2h", "pageable"),
)

_OPEN = re.compile(r"^<!-- figures:([a-z0-9-]+) -->$")
_CLOSE = "<!-- /figures -->"
_FENCE = re.compile(r"^\s*(```|~~~)")

Figures = Mapping[str, Callable[[], str]]


class Timed(msgspec.Struct):
    """A row of stopwatch.py."""

    nbytes: int
    direction: str
    way: str
    verified: bool
    gbps: float


class Stopwatch(msgspec.Struct):
    """The document of stopwatch.py, which imports nothing of pyxfer."""

    rows: list[Timed]


def figures(results: Path) -> Figures:
    """A function for each table, by name; it reads the documents when it is called."""
    return {
        "first-screen": lambda: first_screen(results),
        "ceiling-table": lambda: ceiling_table(complete_run(results / "ceiling.json.gz")),
        "small-sizes": lambda: small_sizes(complete_run(results / "ceiling.json.gz")),
        "first-page": lambda: page_of(complete_run(results / "host.json.gz"), print_run),
        "doctor-page": lambda: page_of(Examination.load(results / "doctor.json.gz"), print_examination),
        "ceiling-page": lambda: page_of(complete_run(results / "ceiling.json.gz"), print_run),
        "ceiling-details": lambda: page_of(complete_run(results / "ceiling.json.gz"), print_run, details=True),
        "frameworks-page": lambda: frameworks.overview_page(complete_run(results / "frameworks.json.gz")),
        "frameworks-usual-best": lambda: frameworks.usual_best(complete_run(results / "frameworks.json.gz")),
        "image-batch-table": lambda: frameworks.image_batches(complete_run(results / "image_batch.json.gz")),
        "image-orders-page": lambda: page_of(complete_run(results / "image_orders.json.gz"), print_run),
        "image-orders-table": lambda: each_run(results, "image_orders*.json.gz", frameworks.image_orders),
        "explain-page": lambda: traces.explain_page(traces.explained(results / "explain_tf_function.json.gz")),
        "explained-calls": lambda: traces.explained_calls(traces.calls(results)),
        "dma-table": lambda: traces.dma_table(traces.raw_copies(results / "dma.json.gz")),
        "watched-table": lambda: traces.watched_table(traces.trainings(results)),
        "watch-page": lambda: traces.watch_page(traces.training(results / "watched_torch.json.gz")),
        "staged-table": lambda: each_run(results, "staged*.json.gz", uploads.staged_table),
        "uploads-table": lambda: each_run(results, "uploads*.json.gz", uploads.uploads_table),
        "upload-images-table": lambda: each_run(results, "upload_images.json.gz", uploads.uploads_table),
        "blocks-page": lambda: page_of(complete_run(results / "blocks.json.gz"), print_run),
        "block-choices": lambda: block_winners.table(each_own(results, "block_winners", block_winners.Winners)),
        "plan-agreement": lambda: plan_agreement.table(each_own(results, "plan_agreement", plan_agreement.Agreements)),
        "files-page": lambda: page_of(complete_run(results / "files.json.gz"), print_run),
        "files-table": lambda: each_run(results, "files*.json.gz", uploads.loads_table),
        "ring-pauses": lambda: ring_pauses.markdown(own(results, "ring_pauses", ring_pauses.Pauses)),
        "image-floor": lambda: image_floor.markdown(own(results, "image_floor", image_floor.Floors)),
        "upload-soak": lambda: upload_soak.markdown(own(results, "upload_soak", upload_soak.Soak)),
        "never-slower": lambda: never_slower.markdown(never_slower_documents(results)),
        "never-slower-summary": lambda: never_slower.summary(never_slower_documents(results)),
        "on-the-way": lambda: on_the_way_tables(results),
        "never-slower-parts": lambda: call_parts(results),
        "first-upload-table": lambda: uploads.first_use(*first_use_of(results)),
        "pytest-page": lambda: session_page(XferSession.load(results / "pytest_example.json.gz")),
        "host-job": lambda: page_of(complete_job(results / "host_job.json.gz"), print_host_report),
        "fleet-ray": lambda: page_of(Fleet.load(results / "fleet_ray.json.gz"), print_fleet),
        "links-page": lambda: page_of(complete_links(results / "links.json.gz"), print_links),
        "links-peers": lambda: link_peers.markdown(peers_of(results / "links_peers.json.gz")),
        "links-peers-two": lambda: link_peers.ranges_markdown(peers_of(results / "links_peers_two.json.gz")),
        "links-stopwatch": lambda: beside_stopwatch(results),
        "links-map": lambda: links_map.markdown(own(results, "links_map", links_map.Maps)),
        "peers-table": lambda: peers_table(own(results, "peers", peers.Peers)),
        "verdicts": lambda: verdicts.table(counted_verdicts(results)),
        "verdicts-compared": lambda: verdicts.comparison_table(counted_verdicts(results)),
        "verdicts-printed": lambda: verdicts.printed_table(counted_verdicts(results)),
        "fleet-detection": lambda: fleet_detection.table(own(results, "fleet_detection", fleet_detection.Detection)),
        "history-changes": lambda: history_changes.table(own(results, "history_changes", history_changes.Found)),
        "coverage-simulated": lambda: intervals.simulated_table(coverage_of(results)),
        "coverage-widths": lambda: intervals.widths_table(coverage_of(results)),
        "coverage-committed": lambda: intervals.committed_table(coverage_of(results)),
        "coverage-drift": lambda: intervals.drift_table(coverage_of(results)),
        "remark-codes": remark_table,
        "timers-table": lambda: timers_table(own(results, "timers", timers.Timers)),
    }


def own(results: Path, script: str, kind: type[Document]) -> Document:
    """The document that a script in bench/ has written."""
    return load_own(results / f"{script}.json.gz", kind, f"{script}.py")


def each_own(results: Path, script: str, kind: type[Document]) -> list[Document]:
    """The documents that a script in bench/ has written on each machine."""
    return [load_own(path, kind, f"{script}.py") for path in sorted(results.glob(f"{script}*.json.gz"))]


def remark_table() -> str:
    """Every code of a remark."""
    rows = [(code, kind.severity, kind.meaning) for code, kind in sorted(REMARKS.items())]
    return markdown_table(("code", "severity", "meaning"), rows)


def counted_verdicts(results: Path) -> verdicts.Verdicts:
    """The counts that verdicts.py has written."""
    return load_own(results / "verdicts.json.gz", verdicts.Verdicts, "verdicts.py")


def first_screen(results: Path) -> str:
    """Four questions, the command that answers each, and what its page says in one line."""
    copied = complete_run(results / "frameworks.json.gz")
    explained = find_explained(complete_run(results / "explain_tf_function.json.gz"))
    if explained is None:
        raise UsageError("explain_tf_function.json.gz has no explained route")
    answers = (
        (
            "How fast can this machine copy between host memory and the GPU?",
            "pyxfer",
            answer(complete_run(results / "host.json.gz")).text,
        ),
        (
            "How fast do TensorFlow, PyTorch, CuPy and JAX copy on it?",
            "pyxfer frameworks",
            copied_answer(copied),
        ),
        ("Where does the rest of the time go?", "pyxfer explain tf.function", explained_answer(explained)),
        (
            "Is this host as fast as it should be?",
            "pyxfer doctor",
            summary(Examination.load(results / "doctor.json.gz")),
        ),
    )
    rows = [f"| {question} | `{command}` | {escape_markdown(line)} |\n" for question, command, line in answers]
    return "".join(["| question | command | what it says on an H200 |\n", "|---|---|---|\n", *rows])


def coverage_of(results: Path) -> intervals.Coverage:
    """The document of interval_coverage.py."""
    return load_own(results / "interval_coverage.json.gz", intervals.Coverage, "interval_coverage.py")


def each_run(results: Path, pattern: str, table: Callable[[Run], str]) -> str:
    """A table of each run whose file name matches, or the reason why it has none; `UsageError` if no name matches."""
    paths = sorted(results.glob(pattern))
    if not paths:
        raise UsageError(f"{results} has no {pattern}.")
    return "\n".join(_table_or_reason(path, table) for path in paths)


def _table_or_reason(path: Path, table: Callable[[Run], str]) -> str:
    try:
        return table(complete_run(path))
    except IncompleteRunError as error:
        return f"No figures: {escape_markdown(str(error))}.\n"


def never_slower_documents(results: Path) -> list[never_slower.NeverSlower]:
    """Of all measured frameworks and machines; `UsageError` if there is none."""
    paths = sorted(results.glob("never_slower_*.json.gz"))
    if not paths:
        raise UsageError(f"{results} has no never_slower_*.json.gz.")
    return [load_own(path, never_slower.NeverSlower, "never_slower.py") for path in paths]


def on_the_way_tables(results: Path) -> str:
    """Uploads that convert, of all frameworks measured."""
    paths = sorted(results.glob("on_the_way_*.json.gz"))
    if not paths:
        raise UsageError(f"{results} has no on_the_way_*.json.gz.")
    return on_the_way.markdown([load_own(path, on_the_way.OnTheWay, "on_the_way.py") for path in paths])


def call_parts(results: Path) -> str:
    """The parts of the calls that miss their goal."""
    path = results / "call_parts.json.gz"
    return never_slower_parts.markdown(load_own(path, never_slower_parts.CallParts, "never_slower_parts.py"))


def first_use_of(results: Path) -> tuple[Firsts, list[Prefetched]]:
    """The documents of first_upload.py and prefetched_training.py."""
    loops = [
        load_own(path, Prefetched, "prefetched_training.py") for path in sorted(results.glob("prefetched_*.json.gz"))
    ]
    return load_own(results / "first_upload.json.gz", Firsts, "first_upload.py"), loops


def fill(text: str, tables: Figures, name: str) -> str:
    """Replace the lines between all markers, except markers inside a fenced block."""
    out: list[str] = []
    opened: str | None = None
    fenced = False
    for line in text.splitlines(keepends=True):
        marker = _OPEN.match(line.strip())
        fenced ^= opened is None and _FENCE.match(line) is not None
        if opened is None:
            out.append(line)
            if marker and not fenced:
                opened = marker[1]
                out.append(_table(tables, opened, name))
        elif line.strip() == _CLOSE:
            opened = None
            out.append(line)
        elif marker:
            break
    if opened is not None:
        raise UsageError(f"{name}: `<!-- figures:{opened} -->` is not closed; put `{_CLOSE}` on a line below it.")
    return "".join(out)


def _table(tables: Figures, wanted: str, name: str) -> str:
    if wanted not in tables:
        raise UsageError(f"{name}: there is no table `{wanted}`; there are {', '.join(sorted(tables))}.")
    return f"\n{tables[wanted]().strip()}\n\n"


# --- the tables ------------------------------------------------------------------------------------------------------


def ceiling_table(run: Run) -> str:
    """Rows are sizes; columns are the rate of each direction and memory, and its share of the protocol peak."""
    header = ["size"]
    for side, memory in COLUMNS:
        header += [f"{side} {memory}, GB/s", "of peak"]
    body = []
    for nbytes in _sizes(run):
        cells = [_rate_cells(best(run, side, memory, nbytes)) for side, memory in COLUMNS]
        body.append([format_size(nbytes), *chain.from_iterable(cells)])
    return f"{caption(run)}\n\n{markdown_table(header, body)}\n{_peaks(run.link)}"


def small_sizes(run: Run) -> str:
    """Sizes up to 1 MiB: rate and duration of one copy of pinned memory in each direction."""
    header = ["size", "h2d, GB/s", "h2d, us a copy", "d2h, GB/s", "d2h, us a copy"]
    body = [
        [
            format_size(nbytes),
            *_time_cells(best(run, "h2d", "pinned", nbytes)),
            *_time_cells(best(run, "d2h", "pinned", nbytes)),
        ]
        for nbytes in _sizes(run)
        if nbytes <= SMALL_BYTES
    ]
    return f"{caption(run)}\n\n{markdown_table(header, body)}"


def peers_of(path: Path) -> link_peers.Beside:
    return load_own(path, link_peers.Beside, "links_beside_nvbandwidth.py")


def peers_table(document: peers.Peers) -> str:
    """The medians of nvbandwidth and pyxfer, and their difference."""
    header = ["test", "size", "nvbandwidth, GB/s", "pyxfer, GB/s", "difference"]
    version = document.nvbandwidth_version.value or "of unknown version"
    where = shared.machine_line(document.device, document.environment)
    caption = escape_markdown(f"{where}; nvbandwidth {version}; {document.rounds} rounds in turns. GB = 1e9 bytes.")
    return f"{caption}\n\n{markdown_table(header, peers.cells(document.rows))}"


def beside_stopwatch(results: Path) -> str:
    """What a caller gets of small copies, by the stopwatch and by pyxfer."""
    run = complete_links(results / "links_small.json.gz")
    stopwatch = load_own(results / "stopwatch.json.gz", Stopwatch, "stopwatch.py")
    timed = {(row.nbytes, row.direction, row.way): row.gbps for row in stopwatch.rows if row.verified}
    ways = {"queue": "256 calls", "batch": "batch of 256"}
    header = ["size", *(f"{way}, {by}" for way in ways for by in ("stopwatch", "pyxfer"))]
    rows: dict[tuple[int, str], list[str]] = {}
    for nbytes, direction in dict.fromkeys((row.nbytes, row.direction) for row in run.small):
        own: dict[str, float | None] = {
            row.mode: row.caller_gbps for row in run.small if (row.nbytes, row.direction) == (nbytes, direction)
        }
        pairs = [(timed.get((nbytes, direction, ways[way])), own.get(way)) for way in ways]
        rows[nbytes, direction] = ["-" if gbps is None else f"{gbps:.2f}" for pair in pairs for gbps in pair]
    body = [[f"{format_size(nbytes)} {direction}", *cells] for (nbytes, direction), cells in sorted(rows.items())]
    where = escape_markdown(f"{shared.machine_line(run.devices[0].device, run.environment)}. GB/s, GB = 1e9 bytes.")
    return f"{where}\n\n{markdown_table(header, body)}"


def timers_table(document: timers.Timers) -> str:
    """The figures of each timer for each route, and whether the timers agree."""
    where = shared.machine_line(document.device, document.environment)
    what = escape_markdown(f"{where}; {format_size(document.nbytes)} to the GPU a call.")
    reasons = "".join(f"\n{escape_markdown(line)}.\n" for line in timers.missing_lines(document.rows))
    below = f"\n{timers.pairs_line(document.rows)}\n"
    return f"{what}\n\n{markdown_table(timers.HEADER, timers.cells(document.rows))}{below}{reasons}"


def session_page(session: XferSession) -> str:
    """The summary that pytest prints for a session, in 80 columns, as a fenced code block."""
    lines = []
    for number, place in enumerate(session.places):
        lines.append(f" {title(place)} ".center(NARROWEST, "-"))
        lines += [line for line, _ in place_lines(session, number, {}, NARROWEST)]
    return fenced("\n".join(lines))


def best(run: Run, side: Side, memory: Memory, nbytes: int) -> Measurement | None:
    """The fastest warm measurement of one side, memory and size over all modes, as for a ceiling."""
    found = [
        m
        for m in run.measurements
        if (m.direction, m.side, m.memory, m.nbytes, m.variant) == (side, side, memory, nbytes, "warm")
    ]
    return max(found, key=lambda m: m.gbps or 0.0, default=None)


def _sizes(run: Run) -> list[int]:
    return sorted({m.nbytes for m in run.measurements})


def _rate_cells(found: Measurement | None) -> list[str]:
    rate = gbps_cell(found)
    peak = None if found is None or rate == "-" else found.of_peak
    return [rate, "-" if peak is None else format_percent(peak)]


def _time_cells(found: Measurement | None) -> list[str]:
    rate = gbps_cell(found)
    seconds = None if found is None or rate == "-" else found.elapsed_s
    return [rate, "-" if seconds is None else f"{seconds * 1e6:.2f}"]


def _peaks(link: Link) -> str:
    h2d, d2h, state = link.h2d_peak_gbps, link.d2h_peak_gbps, link.under_load.value or link.system_most.value
    if h2d.value is None or d2h.value is None:
        return f"No protocol peak: {h2d.reason or d2h.reason}.\n"
    where = f"PCIe {state.generation}.0 x{state.width}" if state else "this link"
    return f"The protocol peak of {where} is {h2d.value:.2f} GB/s h2d and {d2h.value:.2f} GB/s d2h.\n"


# --- the script ------------------------------------------------------------------------------------------------------


def pages(root: Path) -> list[Path]:
    """README.md and the pages in docs/."""
    return [path for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if path.exists()]


def refresh(root: Path, *, check: bool) -> list[Path]:
    """Write the files that are out of date, unless `check` is set; return their paths."""
    tables = figures(root / "bench" / "results")
    stale, texts = [], []
    for path in pages(root):
        old = path.read_text(encoding="utf-8")
        texts.append(old)
        new = fill(old, tables, path.relative_to(root).as_posix())
        if new != old:
            stale.append(path)
            if not check:
                write_whole(path, new.encode())
    return [*stale, *pictures.refresh(root, "".join(texts), check=check)]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Fill the figures, or print which files are out of date."""
    parser = argparse.ArgumentParser(description="Fill the figures of README.md and docs/ from bench/results/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    options = parser.parse_args(arguments)
    stale = [path.relative_to(root).as_posix() for path in refresh(root, check=options.check)]
    if not stale:
        print("All figures are up to date.")
        return 0
    if not options.check:
        print(f"Filled {', '.join(stale)}.")
        return 0
    print(f"Out of date: {', '.join(stale)}. Run python bench/readme_figures.py.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    shared.run_script(main)

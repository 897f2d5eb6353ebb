"""The tables of `readme_figures.py` made from activity records: explained routes, raw copies, watched training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import dma_agreement
import msgspec
import shared
from figure_parts import GB, INTERVAL, complete_run, fenced, load_own, printed, seconds_cell
from watched_training import PHASES, Phase, Trained, Training, cost_text

from pyxfer._document.runs import Breakdown, Direction, Dma, Measurement, PartName, Run
from pyxfer._report.explain import find_explained
from pyxfer._report.grid import escape_markdown, markdown_table
from pyxfer._report.layout import NARROWEST
from pyxfer._report.route_tables import title
from pyxfer._report.run import print_run
from pyxfer.errors import UsageError
from pyxfer.units import format_percent, format_seconds, format_size

# A usual call of each framework.
CALLS = ("tf_function", "torch_to", "cupy_asarray", "jax_asarray")
# In the order of a transfer. The page calls `staging` either "staging" or "copying slower".
PARTS: Mapping[PartName, str] = {
    "copying": "the copy, at the ceiling's speed",
    "preparing": "preparing",
    "waiting": "waiting to begin",
    "staging": "staging, or copying slower",
    "gaps": "gaps",
    "kernels": "kernels",
    "other copies": "other copies",
    "returning": "returning",
    "finishing": "seeing that it is done",
}
RAW_ROUTE = "raw.pinned-async"
WAYS: tuple[Direction, ...] = ("h2d", "d2h")
FRAMEWORKS = ("torch", "tensorflow")
LOOPS = 2


@dataclass(frozen=True)
class Call:
    """An explained route with its median, breakdown and records."""

    run: Run
    row: Measurement
    median_s: float
    breakdown: Breakdown
    dma: Dma


# --- the documents ---------------------------------------------------------------------------------------------------


def explained(path: Path) -> Call:
    """The explained route of a saved run; `UsageError` if the run has none or it was not traced."""
    run = complete_run(path)
    found = find_explained(run) if run.kind == "explain" else None
    if found is None:
        raise UsageError(f"{path} explains no route; make it with pyxfer explain --export-json.")
    row = found.row
    if not row.elapsed_s or row.breakdown.value is None or row.dma.value is None:
        why = row.breakdown.reason or row.dma.reason or row.rate.reason
        raise UsageError(f"{path} has no breakdown of {row.route}: {why}; make it again where records are available.")
    return Call(run, row, row.elapsed_s, row.breakdown.value, row.dma.value)


def calls(results: Path) -> list[Call]:
    """The explained routes of the table."""
    return [explained(results / f"explain_{name}.json.gz") for name in CALLS]


def raw_copies(path: Path) -> Run:
    """A ceiling run reduced to the raw copies that have records."""
    run = complete_run(path)
    rows = tuple(row for row in dma_agreement.traced_rows(run, RAW_ROUTE) if row.variant == "warm")
    if run.kind != "ceiling" or not rows:
        raise UsageError(
            f"{path} holds no traced copy of {RAW_ROUTE}; make it with pyxfer ceiling --export-json where records are "
            "available."
        )
    return msgspec.structs.replace(run, measurements=rows)


def training(path: Path) -> Training:
    """The watched training of a framework; `UsageError` if the document is incomplete."""
    document = load_own(path, Training, "watched_training.py")
    if len(document.loops) != LOOPS or not all(map(_is_whole, document.loops)):
        raise UsageError(f"{path} does not hold {LOOPS} complete loops; make it again with bench/watched_training.py.")
    return document


def trainings(results: Path) -> list[Training]:
    """The watched training of every framework in the tables."""
    return [training(results / f"watched_{name}.json.gz") for name in FRAMEWORKS]


def _is_whole(loop: Trained) -> bool:
    """Whether all phases have the same number of blocks, and every block has steps with a duration."""
    phases = [loop.steps_s.get(phase, []) for phase in PHASES]
    blocks = [block for phase in phases for block in phase]
    return bool(blocks) and len(set(map(len, phases))) == 1 and all(min(block, default=0) > 0 for block in blocks)


# --- explained routes ------------------------------------------------------------------------------------------------


def explain_page(call: Call) -> str:
    """The page of an explained route on a terminal."""
    return fenced(printed(call.run, print_run))


def explained_calls(found: Sequence[Call]) -> str:
    """Rows are calls; columns are the median, the parts of the traced trial, its records, and its deviation."""
    names = [name for name in PARTS if any(call.breakdown.seconds(name) > 0 for call in found)]
    header = ["route", "direction", "size", "median", "of ceiling", *(PARTS[name] for name in names)]
    header += ["crossed", "memory", "GB/s", "traced trial against the median"]
    body = [
        [
            call.row.route,
            call.row.direction,
            format_size(call.row.nbytes),
            seconds_cell(call.row),
            "-" if call.row.of_ceiling is None else format_percent(call.row.of_ceiling),
            *(_share(call.breakdown.seconds(name), call.breakdown.elapsed_s) for name in names),
            format_size(call.dma.nbytes),
            call.dma.source,
            "-" if call.dma.gbps is None else f"{call.dma.gbps:.2f}",
            f"{100 * (call.breakdown.elapsed_s / call.median_s - 1):.1f} %",
        ]
        for call in found
    ]
    return f"{_caption([call.run for call in found], f'{GB} {INTERVAL}')}\n\n{markdown_table(header, body)}"


def _share(part_s: float, whole_s: float) -> str:
    """A percentage with one decimal, or "0 %" if the part is absent."""
    return f"{100 * part_s / whole_s:.1f} %" if part_s > 0 else "0 %"


# --- records and events ----------------------------------------------------------------------------------------------


def dma_table(run: Run) -> str:
    """Rows are sizes; columns are, for each direction, the times of events and records, their difference, the bound."""
    header = ["size"]
    for way in WAYS:
        header += [f"{way} events, us", "records, us", "apart, us", "bound, us"]
    rows = {(row.direction, row.nbytes): row for row in run.measurements}
    body = [
        [format_size(nbytes), *(cell for way in WAYS for cell in _agreement(rows.get((way, nbytes))))]
        for nbytes in sorted({row.nbytes for row in run.measurements})
    ]
    agreeing = sum(map(dma_agreement.agrees, run.measurements))
    short = (
        f"{format_seconds(dma_agreement.APART_S)} or {format_percent(dma_agreement.APART_OF_SHORT)} of the events' time"
    )
    bound = f"{format_percent(dma_agreement.APART)} of the events' time and the lesser of {short}"
    below = f"{agreeing} of {len(run.measurements)} agree within the bound, {bound}."
    return f"{_caption([run], 'Times of one copy.')}\n\n{markdown_table(header, body)}\n{escape_markdown(below)}\n"


def _agreement(row: Measurement | None) -> list[str]:
    if row is None:
        return ["-"] * 4
    times = (row.elapsed_s, row.dma_s, dma_agreement.apart_s(row), dma_agreement.bound_s(row))
    return [f"{1e6 * (seconds or 0.0):.2f}" for seconds in times]


# --- watched training ------------------------------------------------------------------------------------------------


def watched_table(found: Sequence[Training]) -> str:
    """Rows are loops: the step, the cost of watching, what it is bound by, and the predicted and the measured gain."""
    header = ["framework", "loop", "unwatched", "watched", "cost", "after the window", "cost"]
    header += ["bound by", "predicted gain", "real gain", "apart"]
    body = []
    for document in found:
        for loop in document.loops:
            phases = [cell for phase in PHASES[1:] for cell in (_median(loop, phase), cost_text(loop.cost(phase)))]
            line = [title(document.framework), loop.loop, _median(loop, "unwatched"), *phases]
            body.append([*line, _bound_by(loop), *_gains(document, loop)])
    return f"{_training_caption(found)}\n\n{markdown_table(header, body)}"


def watch_page(document: Training) -> str:
    """The page of the usual loop's watch on a terminal."""
    return fenced(document.loops[0].watched.text(NARROWEST))


def _median(loop: Trained, phase: Phase) -> str:
    return format_seconds(loop.summary(phase).median_s)


def _bound_by(loop: Trained) -> str:
    verdict = loop.watched.verdict
    return f"{verdict.bound_by}, {verdict.degree}" if verdict.degree else verdict.bound_by


def _gains(document: Training, loop: Trained) -> list[str]:
    """Predicted gain, measured gain and relative error; dashes for the second loop, which gains nothing."""
    if loop is not document.loops[0]:
        return ["-"] * 3
    predicted, real = document.predicted_gain_s, document.real_gain_s
    if predicted is None:
        return ["none", format_seconds(real), "-"]
    apart = format_percent(abs((predicted - real) / real)) if real else "-"
    return [format_seconds(predicted), format_seconds(real), apart]


def _training_caption(found: Sequence[Training]) -> str:
    shapes = [", ".join(f"{name} {value}" for name, value in document.shape.items()) for document in found]
    return _caption(found, f"Training: {'; '.join(dict.fromkeys(shapes))}.")


def _caption(found: Sequence[Run | Training], words: str) -> str:
    """The machines, software and dates of the figures, followed by `words`."""
    where = dict.fromkeys(shared.machine_line(document.device, document.environment) for document in found)
    return escape_markdown(f"{'; '.join(where)}. {words}")

"""Baselines: the pages of one and of all in a store. A report has the figures of each process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyxfer._document.baselines import Baseline, KeptBaseline
from pyxfer._document.links import Links
from pyxfer._document.machines import HOST_MEMORY
from pyxfer._document.runs import Run
from pyxfer._report import grid, links, run
from pyxfer._report.history import LONGEST_HOST, gpu_text
from pyxfer._report.layout import Page, rate_cells
from pyxfer._report.report import Report, Section
from pyxfer._report.text import clean, escaped, fact_text, moment_text
from pyxfer.units import yes_no


def print_baselines(kept: Sequence[KeptBaseline], shown: str, page: Page) -> None:
    page.line(f"Baselines in {clean(shown)}: {len(kept)}", style="bold")
    columns = {
        "name": [escaped(baseline.name, 20) for baseline in kept],
        "host": [escaped(baseline.fingerprint.host, LONGEST_HOST) for baseline in kept],
        "GPU": [gpu_text(baseline.fingerprint) for baseline in kept],
        "made (UTC)": [moment_text(baseline.made_at)[:16] for baseline in kept],
        "runs": [str(len(baseline.run_ids)) for baseline in kept],
        "id": [baseline.id for baseline in kept],
    }
    page.table(columns.items(), columns.keys() - {"runs"})


def print_baseline(baseline: Baseline, page: Page, kept: KeptBaseline | None = None) -> None:
    from pyxfer._baseline.samples import rates_of

    page.line(f"{escaped(baseline.name)}: {escaped(baseline.fingerprint.host)}", style="bold")
    earlier = f", earlier ones of this name: {kept.earlier}" if kept and kept.earlier else ""
    of_store = [("baseline", f"{kept.id}{earlier}")] if kept else []
    page.hanging([*of_store, ("made", moment_text(baseline.made_at)), *_machine_lines(baseline)])
    page.section("Labels", [(escaped(name, 40), escaped(value)) for name, value in sorted(baseline.labels.items())])
    taken = [moment_text(run.environment.taken_at) for run in baseline.processes]
    names = kept.run_ids if kept else [str(number) for number in range(1, len(taken) + 1)]
    page.section("Processes", list(zip(names, taken, strict=False)))
    cells = {cell.text: sorted(rates) for cell, rates in rates_of(baseline.processes).items()}
    page.table(
        [
            ("cell", map(clean, cells)),
            ("median", rate_cells([rates[len(rates) // 2] for rates in cells.values()])),
            ("slowest", rate_cells([rates[0] for rates in cells.values()])),
            ("fastest", rate_cells([rates[-1] for rates in cells.values()])),
            ("processes", [str(len(rates)) for rates in cells.values()]),
        ],
        left=("cell",),
        heading="GB/s of the median, the slowest and the fastest process",
    )


def _machine_lines(baseline: Baseline) -> list[tuple[str, str]]:
    one = baseline.fingerprint
    if one.runtime == "host":
        return [("device", HOST_MEMORY), ("CPU", fact_text(one.cpu))]
    return [
        ("device", clean(one.device)),
        ("GPU", fact_text(one.gpu)),
        ("link", fact_text(one.link_now) if one.link_kind == "pcie" else clean(one.link_kind)),
        ("CPU", fact_text(one.cpu)),
        ("MIG", fact_text(one.mig, yes_no)),
        ("confidential", fact_text(one.confidential, yes_no)),
        ("virtual", fact_text(one.virtual_machine)),
        ("driver", fact_text(one.driver_major)),
        ("CUDA", fact_text(one.runtime_major)),
    ]


_OF_PROCESSES: dict[type, Report[Any]] = {Run: run.REPORT, Links: links.REPORT}


def _first(baseline: Baseline) -> tuple[Report[Any], Run | Links]:
    process = baseline.processes[0]
    return _OF_PROCESSES[type(process)], process


def _headline(baseline: Baseline) -> str:
    name, host, device = map(clean, (baseline.name, baseline.fingerprint.host, baseline.fingerprint.device))
    count = "1 process" if len(baseline.processes) == 1 else f"{len(baseline.processes)} processes"
    made = f"made at {clean(baseline.made_at)}. The charts show the first process"
    return f"Baseline {name} of {host}, {device}: {count}, {made}."


def _grids(baseline: Baseline) -> list[grid.Grid]:
    return [
        replace(each, name=f"{each.name} of process {number}")
        for number, process in enumerate(baseline.processes, start=1)
        for each in _OF_PROCESSES[type(process)].grids(process)
    ]


def _table(baseline: Baseline) -> grid.Grid:
    reports = [(process, _OF_PROCESSES[type(process)]) for process in baseline.processes]
    tables = [report.table(process, "") if report.table else report.grids(process)[0] for process, report in reports]
    rows = [{"process": number, **row} for number, table in enumerate(tables, start=1) for row in table.rows]
    return grid.Grid("Measurements", (grid.Column("process", "whole"), *tables[0].columns), rows)


def _sections(baseline: Baseline) -> list[Section]:
    report, process = _first(baseline)
    labels = [(clean(name), clean(value)) for name, value in baseline.labels.items()]
    return [("Labels", labels), *report.sections(process)]


REPORT = Report(
    struct=Baseline,
    title=lambda _: "pyxfer baseline",
    page=print_baseline,
    headline=_headline,
    badge=lambda _: ("none", "baseline"),
    heading=lambda baseline: _first(baseline)[0].heading(_first(baseline)[1]),
    grids=_grids,
    table=lambda baseline, _: _table(baseline),
    sections=_sections,
    charts=lambda baseline: _first(baseline)[0].charts(_first(baseline)[1]),
    captions={**run.REPORT.captions, **links.REPORT.captions},
    environment=lambda baseline: baseline.processes[0].environment,
)

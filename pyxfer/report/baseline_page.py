"""Baselines on a page: all that a store keeps, and one with what its processes reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyxfer.model import Fact
from pyxfer.model_baselines import Baseline
from pyxfer.model_store import KeptBaseline

from .grid import Column, fitting_table, rate_cells
from .terminal import Page
from .text import HOST_MEMORY, clean, escaped, fact_text, yes_no

_LONGEST_NAME, _LONGEST_HOST, _GPU_CHARACTERS = 20, 24, 12


@dataclass(frozen=True)
class CellLine:
    """A cell in words, and its bandwidth in each process that has it."""

    text: str
    gbps: tuple[float, ...]


def print_baselines(kept: Sequence[KeptBaseline], shown: str, page: Page) -> None:
    """One line for each name on each machine."""
    page.line(f"{len(kept)} {'baseline' if len(kept) == 1 else 'baselines'} in {clean(shown)}", style="bold")
    columns = {
        "name": [escaped(each.name, _LONGEST_NAME) for each in kept],
        "host": [escaped(each.fingerprint.host, _LONGEST_HOST) for each in kept],
        "GPU": [gpu_text(each.fingerprint) for each in kept],
        "made (UTC)": [moment_text(each.made_at)[:16] for each in kept],
        "runs": [str(len(each.run_ids)) for each in kept],
        "id": [each.id for each in kept],
    }
    left = {"name", "host", "GPU", "made (UTC)", "id"}
    made = [Column((name,), tuple(cells), left=name in left) for name, cells in columns.items()]
    page.show(fitting_table(made, page.columns))


def print_baseline(baseline: Baseline, lines: Sequence[CellLine], page: Page, kept: KeptBaseline | None = None) -> None:
    """The machine and its state, the processes, and the cells; with the ids that a store has given, where one has."""
    page.line(f"{escaped(baseline.name)}: {escaped(baseline.fingerprint.host)}", style="bold")
    page.hanging(
        [
            *([("baseline", _id_text(kept))] if kept else []),
            ("made", moment_text(baseline.made_at)),
            *_machine_lines(baseline),
        ]
    )
    if baseline.labels:
        page.heading("Labels")
        page.hanging([(escaped(name, 40), escaped(value)) for name, value in sorted(baseline.labels.items())])
    page.heading("Processes")
    taken = [moment_text(run.environment.taken_at) for run in baseline.runs]
    names = kept.run_ids if kept else [str(number) for number in range(1, len(taken) + 1)]
    page.hanging(list(zip(names, taken, strict=False)))
    if lines:
        page.heading("GB/s in each process, the slowest and the fastest of them")
        page.show(fitting_table(_cell_columns(lines), page.columns))


def moment_text(moment: str) -> str:
    """A moment as a person writes it; documents have it in UTC."""
    return escaped(moment.replace("T", " ").removesuffix("+00:00").partition(".")[0], 32)


class Machine(Protocol):
    """What tells one device of a host from another."""

    @property
    def runtime(self) -> str:
        """`cuda`, or `host` for host memory."""

    @property
    def device(self) -> str:
        """Its name."""

    @property
    def gpu(self) -> Fact[str]:
        """Its UUID."""


def gpu_text(machine: Machine) -> str:
    """Which GPU, short enough for a column: the end of a UUID tells as much as the whole."""
    if machine.runtime == "host":
        return "host memory"
    if machine.gpu.value is None:
        return escaped(machine.device, _GPU_CHARACTERS + 3)
    uuid = escaped(machine.gpu.value)
    return uuid if len(uuid) <= _GPU_CHARACTERS else f"...{uuid[-_GPU_CHARACTERS:]}"


def _id_text(kept: KeptBaseline) -> str:
    earlier = f", after {kept.earlier} earlier of its name" if kept.earlier else ""
    return f"{kept.id}{earlier}"


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


def _cell_columns(lines: Sequence[CellLine]) -> list[Column]:
    middle = [sorted(line.gbps)[len(line.gbps) // 2] for line in lines]
    rates = {
        ("median",): middle,
        ("slowest",): [min(line.gbps) for line in lines],
        ("fastest",): [max(line.gbps) for line in lines],
    }
    missing = [""] * len(lines)
    return [
        Column(("cell",), tuple(clean(line.text) for line in lines), left=True),
        *(Column(heading, rate_cells(values, missing)) for heading, values in rates.items()),
        Column(("processes",), tuple(str(len(line.gbps)) for line in lines)),
    ]

"""`pyxfer doctor`: what is not as it should be with this host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer.errors import UsageError

from . import options as opt
from .failures import end_as, say

if TYPE_CHECKING:
    from pyxfer.model_findings import Examination

_DEVICE, _BUDGET = "0", "6s"

File = Annotated[
    str | None,
    typer.Argument(metavar="[RUN.json]", help="A saved run, or a saved examination, in place of this host."),
]


def doctor(
    file: File = None,
    *,
    device: opt.Device = _DEVICE,
    budget: opt.Budget = _BUDGET,
    require_gpu: opt.RequireGpu = False,
    json: opt.Json = False,
) -> None:
    """What is not as it should be with this host: its link, its settings, its limits.

    Measures for a few seconds between two readings of the error counters, and holds it all against what the link could
    do on paper and what hosts of its kind reach; no baseline is needed. Whatever is found, the exit code is 0: --json
    has the status of each finding, and pyxfer baseline check fails where a host has become slower.
    """
    from pyxfer import finding_documents
    from pyxfer.report.doctor_page import print_examination
    from pyxfer.report.terminal import Page

    if file is not None and (device, budget, require_gpu) != (_DEVICE, _BUDGET, False):
        raise UsageError("A saved run is not measured again: leave out the file, or --device, --budget, --require-gpu.")
    examination = _measured(device, budget, require_gpu) if file is None else _saved(file)
    if json:
        sys.stdout.write(finding_documents.encode(examination).decode(errors="backslashreplace"))
    else:
        print_examination(examination, Page(sys.stdout))
    if file is None:
        if examination.run.ended == "interrupted":
            say("interrupted")
        end_as(examination.run)


def _measured(device: str, budget: str, require_gpu: bool) -> Examination:
    from pyxfer import native, units
    from pyxfer.examining import session

    from .progress import ProgressReport

    budget_s = units.parse_duration(budget)
    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    with ProgressReport() as report:
        return session.doctor(device, budget_s=budget_s, require_gpu=require_gpu, on_progress=report)


def _saved(file: str) -> Examination:
    from pyxfer import documents, finding_documents, json_text
    from pyxfer.examining.session import examine_run
    from pyxfer.files import read_whole

    data, source = read_whole(file), repr(file)
    if json_text.kind_of(data) == "examination":
        return finding_documents.decode(data, source)
    return examine_run(documents.decode(data, source))

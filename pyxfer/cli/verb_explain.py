"""`pyxfer explain`: where the time of one route goes, and what to use in its place."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options as opt
from .deliver import deliver
from .failures import say

RouteName = Annotated[str, typer.Argument(metavar="ROUTE", help="Such as tf.function; see pyxfer list routes.")]
Size = Annotated[str, typer.Option("--size", metavar="SIZE", help="One size, such as 96MiB.")]
Direction = Annotated[
    str | None, typer.Option("--direction", metavar="WAY", help="Of a raw route: h2d, if not given, or d2h.")
]
ExportCsv = Annotated[
    str | None,
    typer.Option("--export-csv", metavar="FILE", help="One row a route, without the parts; - is standard output."),
]
ExportMd = Annotated[
    str | None,
    typer.Option("--export-md", metavar="FILE", help="A table of the routes, and one of the parts; - as above."),
]


def explain(
    route: RouteName,
    *,
    size: Size = "96MiB",
    direction: Direction = None,
    device: opt.Device = "0",
    precision: opt.Precision = "0.5%",
    budget: opt.Budget = "15s",
    patience: opt.Patience = "2min",
    seed: opt.Seed = None,
    require_gpu: opt.RequireGpu = False,
    export_json: opt.ExportJson = None,
    export_csv: ExportCsv = None,
    export_md: ExportMd = None,
) -> None:
    """Where the time of one route goes, and what to use in its place.

    Measures the route beside every other one that could do the same, in one run, and traces a few trials: what the
    host prepared, what crossed the link and from which memory, and what waited for what. Advice is what this run has
    measured.
    """
    from pyxfer import native, units, workers

    from .exports import Exports
    from .progress import ProgressReport

    exports = Exports(export_json, export_csv, export_md)
    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    with ProgressReport() as report:
        run = workers.explain(
            route,
            size,
            direction=direction,
            device=device,
            precision=units.parse_ratio(precision),
            budget_s=units.parse_duration(budget),
            patience_s=units.parse_duration(patience),
            seed=seed,
            require_gpu=require_gpu,
            on_progress=report,
            save_to=exports.save,
        )
    deliver(run, exports)

"""`pyxfer frameworks`: how fast bytes cross when a framework moves them."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options as opt
from .deliver import deliver
from .failures import say

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="FRAMEWORK", help="Of torch, tensorflow, cupy, jax; all, if none is named."),
]
Routes = Annotated[
    str | None,
    typer.Option(
        "--routes", metavar="LIST", help="Names or patterns, such as 'tf.*,torch.to'; see pyxfer list routes."
    ),
]
Workload = Annotated[
    str, typer.Option("--workload", metavar="NAME", help="copy: bytes alone; image-batch: copy, cast, read a row back.")
]
Sizes = Annotated[
    str | None,
    typer.Option("--sizes", metavar="SIZES", help="Of copy: such as 1MiB,96MiB; 4KiB:256MiB:x16 if not given."),
]
Batches = Annotated[
    str | None,
    typer.Option("--batches", metavar="COUNTS", help="Of image-batch: such as 8,512; 1:512:x2 if not given."),
]
Directions = Annotated[str | None, typer.Option("--direction", metavar="LIST", help="Of h2d, d2h; both if not given.")]
Ingest = Annotated[
    bool, typer.Option("--ingest", help="Also how each framework takes in a NumPy array; all that runs without a GPU.")
]
Budget = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="How long each framework may be measured, preparing apart.")
]


def frameworks(
    names: Names = None,
    *,
    routes: Routes = None,
    workload: Workload = "copy",
    sizes: Sizes = None,
    batches: Batches = None,
    direction: Directions = None,
    ingest: Ingest = False,
    device: opt.Device = "0",
    precision: opt.Precision = "0.5%",
    budget: Budget = "15s",
    patience: opt.Patience = "2min",
    seed: opt.Seed = None,
    no_trace: opt.NoTrace = False,
    require_gpu: opt.RequireGpu = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
) -> None:
    """How fast bytes cross the link when TensorFlow, PyTorch, CuPy or JAX move them.

    Times every route of each framework, in a process of its own, through the same CUDA events and in the same rounds as
    raw copies, and sets it against the ceiling at its size.
    """
    from pyxfer import native, units, workers

    from .exports import Exports
    from .progress import ProgressReport

    exports = Exports(export_json, export_csv, export_md)
    choice = native.choose(device, require_gpu)
    if choice.reason:
        say(choice.reason)
    with ProgressReport() as report:
        run = workers.frameworks(
            names,
            routes=opt.split_list(routes, "--routes") if routes is not None else (),
            workload=workload,
            sizes=sizes,
            batches=batches,
            directions=opt.split_list(direction, "--direction") if direction is not None else None,
            ingest=ingest,
            device=device,
            precision=units.parse_ratio(precision),
            budget_s=units.parse_duration(budget),
            patience_s=units.parse_duration(patience),
            seed=seed,
            require_gpu=require_gpu,
            trace=not no_trace,
            on_progress=report,
            save_to=exports.save,
        )
    deliver(run, exports)

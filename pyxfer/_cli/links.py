"""The verb `links`."""

from __future__ import annotations

from typing import Annotated

import typer

from pyxfer._cli import completion
from pyxfer._cli import options as opt
from pyxfer._cli.completion import some_of
from pyxfer._cli.output import Exports, ProgressReport, announce_runtime, deliver

Groups = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="LIST",
        help="Comma-separated list of host, together, pairs, local, latency, numa, small.",
        autocompletion=some_of(completion.link_groups),
    ),
]
Engines = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="LIST",
        help="Comma-separated list of ce (copy engines), sm (kernels).",
        autocompletion=some_of(completion.copy_engines),
    ),
]
Size = Annotated[
    str | None,
    typer.Option("--sizes", metavar="SIZE", help="Size of each copy, such as 512MiB; by default it fits the link."),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="Comma-separated list of GPUs by index, UUID or PCI address; all by default.",
        autocompletion=some_of(completion.devices),
    ),
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help="Time limit for measuring; default 15s for each GPU.")
]


def links(
    *,
    group: Groups = "host,together,pairs,local,latency,numa,small",
    engine: Engines = "ce,sm",
    sizes: Size = None,
    devices: Devices = None,
    precision: opt.Precision = "0.5%",
    budget: Budget = None,
    seed: opt.Seed = None,
    require_gpu: opt.RequireGpu = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Measure every link of this host, alone and together.

    Measures the links between the host and each GPU, and between the GPUs: one at a time, and all at once for equal
    times. Shows which GPUs slow each other down, which side loses, and which links are slower than the others.
    """
    import pyxfer
    from pyxfer import units
    from pyxfer._document.links import COPY_ENGINES, GROUPS, Links
    from pyxfer._report.links import print_links

    exports = Exports[Links](export_json, export_csv, export_md, report)
    groups = units.words_of(group, GROUPS, "--group")
    engines = units.words_of(engine, COPY_ENGINES, "--engine")
    announce_runtime(0 if devices is None else devices, require_gpu)
    with ProgressReport() as progress:
        run = pyxfer.links(
            devices,
            groups=groups,
            engines=engines,
            size=sizes,
            precision=units.share_of(precision, "--precision"),
            budget_s=None if budget is None else units.seconds_of(budget, "--budget"),
            seed=seed,
            require_gpu=require_gpu,
            on_progress=progress,
            save_to=exports.save,
        )
    deliver(run, exports, print_links)

"""The verb `links`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pyxfer._cli import completion
from pyxfer._cli import options as opt
from pyxfer._cli.completion import some_of
from pyxfer._cli.output import Exports, deliver, document_json, measured

Groups = Annotated[
    str,
    opt.option(
        "--groups",
        "LIST",
        "Comma-separated list of host, together, pairs, local, latency, numa, small.",
        some_of(completion.link_groups),
    ),
]
Engines = Annotated[
    str,
    opt.option(
        "--engines",
        "LIST",
        "Comma-separated list of ce (copy engines), sm (kernels).",
        some_of(completion.copy_engines),
    ),
]
Size = Annotated[
    str | None, opt.option("--size", "SIZE", "Size of each copy, such as 512MiB; by default it fits the link.")
]
Devices = Annotated[
    str | None,
    opt.option(
        "--devices",
        "LIST",
        "Comma-separated list of GPUs by index, UUID or PCI address; all by default.",
        some_of(completion.devices),
    ),
]
Budget = Annotated[str | None, opt.option("--budget", "TIME", "Time limit for measuring; default 15s for each GPU.")]


def links(
    *,
    groups: Groups = "host,together,pairs,local,latency,numa,small",
    engines: Engines = "ce,sm",
    size: Size = None,
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

    exports: Exports[Links] = Exports(
        (export_json, document_json),
        (export_csv, lambda run: run.to_csv()),
        (export_md, lambda run: run.to_markdown()),
        report=report,
    )
    measure = partial(
        pyxfer.links,
        devices,
        groups=units.words_of(groups, GROUPS, "--groups"),
        engines=units.words_of(engines, COPY_ENGINES, "--engines"),
        size=None if size is None else units.size_of(size, "--size"),
        precision=units.share_of(precision, "--precision"),
        budget_s=None if budget is None else units.seconds_of(budget, "--budget"),
        seed=seed,
    )
    run = measured(measure, exports, 0 if devices is None else devices, require_gpu=require_gpu)
    deliver(run, exports, print_links)

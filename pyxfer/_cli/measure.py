"""The verbs that measure: ceiling, frameworks, explain, files, blocks, tune, doctor and links."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import pyxfer
from pyxfer import units
from pyxfer._cli import options as opt
from pyxfer._cli import output
from pyxfer._cli.defaults import is_given
from pyxfer._cli.failures import end_as, say
from pyxfer.errors import UsageError

if TYPE_CHECKING:
    from pyxfer._document.examinations import Examination
    from pyxfer._document.runs import Run
    from pyxfer._document.tunings import RingState
    from pyxfer._report.layout import Page


Names = Annotated[
    list[str] | None,
    opt.argument("FRAMEWORK...", "torch, tensorflow, cupy or jax; all by default."),
]
_ROUTES = "Route names or patterns, such as 'tf.*,torch.to'; see pyxfer list routes."
Routes = Annotated[str | None, opt.option("--route", "LIST", _ROUTES)]
_WORKLOAD = "copy (bytes only) or image-batch (copy, cast, read a row back)."
Workload = Annotated[str, opt.option("--workload", "NAME", _WORKLOAD)]
Sizes = Annotated[
    str | None, opt.option("--size", "SIZES", "Sizes for copy, such as 1MiB,96MiB; default 4KiB:256MiB:x16.")
]
Batches = Annotated[
    str | None,
    opt.option(
        "--batch", "COUNTS", "Batch sizes for image-batch, such as 8,512; default 1:512:x2, or 128,512 with --layout."
    ),
]
Layouts = Annotated[
    str | None,
    opt.option(
        "--layout", "LIST", "Layouts of image-batch on the GPU: nhwc, nchw; both if --cast or --dtype is given."
    ),
]
Casts = Annotated[
    str | None,
    opt.option("--cast", "LIST", "Where image-batch casts: host, device; both if --layout or --dtype is given."),
]
Dtypes = Annotated[
    str | None,
    opt.option("--dtype", "LIST", "Dtypes of image-batch on the GPU: uint8, float16, float32; default float32."),
]
Directions = Annotated[
    str | None, opt.option("--direction", "LIST", "Comma-separated list of h2d, d2h; both by default.")
]
Ingest = Annotated[
    bool, typer.Option("--ingest", help="Also time how each framework imports a NumPy array; needs no GPU.")
]
AllSettings = Annotated[
    bool, typer.Option("--all-settings", help="Also time routes that need other settings of a framework.")
]
Budget = Annotated[str, opt.option("--budget", "TIME", "Time limit per framework, without preparation.")]


def frameworks(
    names: Names = None,
    *,
    route: Routes = None,
    workload: Workload = "copy",
    size: Sizes = None,
    batch: Batches = None,
    layout: Layouts = None,
    cast: Casts = None,
    dtype: Dtypes = None,
    direction: Directions = None,
    ingest: Ingest = False,
    all_settings: AllSettings = False,
    device: opt.Device = "0",
    precision: opt.Precision = "2%",
    budget: Budget = "5s",
    patience: opt.Patience = "2min",
    complete: opt.Complete = False,
    details: opt.Details = False,
    no_trace: opt.NoTrace = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Time the transfers of TensorFlow, PyTorch, CuPy and JAX.

    Times every route of each framework in a separate process, with the same CUDA events and in the same rounds as raw
    copies, and compares it with the ceiling at its size.
    """
    from pyxfer._frameworks.session import DIRECTIONS, DTYPES, LAYOUTS, PLACES, WORKLOADS

    exports: output.Exports[Run] = output.run_exports(export_json, export_csv, export_md, report, quiet=quiet)
    chosen = units.word_of(workload, WORKLOADS, "--workload")
    if chosen != "image-batch" and (layout, cast, dtype) != (None, None, None):
        raise UsageError("--layout, --cast and --dtype are for images: add --workload image-batch, or leave them out.")
    measure = partial(
        pyxfer.frameworks,
        names,
        route=units.items_of(route, "--route") if route is not None else (),
        workload=chosen,
        size=None if size is None else units.sizes_of(size, "--size"),
        batch=None if batch is None else units.counts_of(batch, "--batch"),
        layout=None if layout is None else units.words_of(layout, LAYOUTS, "--layout"),
        cast=None if cast is None else units.words_of(cast, PLACES, "--cast"),
        dtype=None if dtype is None else units.words_of(dtype, DTYPES, "--dtype"),
        direction=None if direction is None else units.words_of(direction, DIRECTIONS, "--direction"),
        ingest=ingest,
        all_settings=all_settings,
        device=device,
        precision=units.share_of(precision, "--precision"),
        budget=units.seconds_of(budget, "--budget"),
        patience=units.seconds_of(patience, "--patience"),
        complete=complete,
        trace=not no_trace,
    )
    output.measure_and_deliver(measure, exports, device, require_gpu=require_gpu, details=details)


def explain(
    route: Annotated[str, opt.argument("ROUTE", "A route such as tf.function; see pyxfer list routes.")],
    *,
    size: Annotated[str, opt.option("--size", "SIZE", "One size, such as 96MiB.")] = "96MiB",
    direction: Annotated[
        str | None,
        opt.option("--direction", "WAY", "Direction of a raw route: h2d (default) or d2h."),
    ] = None,
    device: opt.Device = "0",
    precision: opt.Precision = "2%",
    budget: opt.Budget = "15s",
    patience: opt.Patience = "2min",
    complete: opt.Complete = False,
    details: opt.Details = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Show where the time of one route goes.

    Measures the route and all alternatives in one run, and traces a few trials: preparation on the host, copies over
    the link and their memory, and waiting. Lists faster alternatives with their measured gain.
    """
    from pyxfer._frameworks.session import DIRECTIONS

    exports: output.Exports[Run] = output.run_exports(export_json, export_csv, export_md, report, quiet=quiet)
    measure = partial(
        pyxfer.explain,
        route,
        units.size_of(size, "--size"),
        direction=None if direction is None else units.word_of(direction, DIRECTIONS, "--direction"),
        device=device,
        precision=units.share_of(precision, "--precision"),
        budget=units.seconds_of(budget, "--budget"),
        patience=units.seconds_of(patience, "--patience"),
        complete=complete,
    )
    output.measure_and_deliver(measure, exports, device, require_gpu=require_gpu, details=details)


def tune(
    device: opt.Device = "0",
    budget: opt.Budget = "1s",
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.WholeJson = None,
) -> None:
    """Find the best upload settings for this host.

    Measures the fastest way to stage pageable memory, and saves the settings for later programs. The first upload of a
    program does the same; run this if the machine was busy at that time.
    """
    from pyxfer._machine.devices import find_device
    from pyxfer._report.text import device_text
    from pyxfer._report.tune import print_tuning
    from pyxfer._upload import tuning

    exports: output.Exports[RingState] = output.Exports((export_json, output.json_text), quiet=quiet)
    budget_s = units.seconds_of(budget, "--budget")
    choice = output.announce_runtime(device, require_gpu)
    found = find_device(choice.engine, device)
    chosen = tuning.tune_and_keep(choice.engine, found.index, limit_s=budget_s)
    state = tuning.state_of(chosen, found.index)

    def print_page(page: Page) -> None:
        page.line(device_text(found), style="bold")
        print_tuning(state, page)

    exports.deliver(state, print_page)


def doctor(
    context: typer.Context,
    file: Annotated[
        str | None, opt.argument("[RUN.json]", "Examine a saved run, links or examination instead of this host.")
    ] = None,
    *,
    device: opt.Device = "0",
    budget: opt.Budget = "6s",
    details: opt.Details = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.WholeJson = None,
    report: opt.Report = None,
) -> None:
    """Find faults in this host's link, settings and limits.

    Measures for a few seconds between two readings of the error counters. Compares the results with the theoretical
    peak of the link and with known hosts of the same kind; no baseline is needed. Findings do not change the exit code,
    which is 0: --export-json has their status, and pyxfer baseline check fails if a host has become slower.
    """
    exports: output.Exports[Examination] = output.Exports(
        (export_json, output.document_json), report=report, quiet=quiet
    )
    if file is not None and any(is_given(context, name) for name in ("device", "budget", "require_gpu")):
        raise UsageError("A saved run is not measured again: leave out --device, --budget, --require-gpu, or the file.")
    examination = _measured(device, budget, require_gpu, exports) if file is None else _saved(file)
    exports.deliver(examination, details=details)
    if file is None:
        if examination.run.ended == "interrupted":
            say("interrupted")
        end_as(examination.run)


def _measured(device: str, budget: str, require_gpu: bool, exports: output.Exports[Examination]) -> Examination:
    from pyxfer._doctor import session

    budget_s = units.seconds_of(budget, "--budget")
    output.announce_runtime(device, require_gpu)
    with exports.progress() as progress:
        return session.doctor(device, budget=budget_s, require_gpu=require_gpu, on_progress=progress)


def _saved(file: str) -> Examination:
    from pyxfer._doctor.examine import examine_run
    from pyxfer._doctor.links import examine_links
    from pyxfer._document import codec
    from pyxfer._document.examinations import Examination
    from pyxfer._document.links import Links
    from pyxfer._document.runs import Run

    document: Run | Links | Examination = codec.load_any(file, (Run, Links, Examination))
    if isinstance(document, Links):
        return examine_links(document)
    return examine_run(document) if isinstance(document, Run) else document


def ceiling(
    *,
    device: opt.Device = "0",
    direction: opt.Directions = "h2d,d2h,both",
    memory: opt.Memories = "pageable,pinned",
    mode: opt.Modes = "auto",
    size: opt.Sizes = "4KiB:256MiB:x4",
    fresh: opt.Fresh = False,
    precision: opt.Precision = "2%",
    budget: opt.Budget = "8.5s",
    details: opt.Details = False,
    complete: opt.Complete = False,
    no_trace: opt.NoTrace = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Measure how fast raw copies between host and GPU are.

    Measures raw copies of every size, direction, memory and mode in the same rounds, and compares them with the
    theoretical peak of the link. Results that miss the target precision are marked, with the reason and a remedy.
    """
    from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, modes_of

    exports: output.Exports[Run] = output.run_exports(export_json, export_csv, export_md, report, quiet=quiet)
    measure = partial(
        pyxfer.ceiling,
        device,
        direction=units.words_of(direction, DIRECTIONS, "--direction"),
        memory=units.words_of(memory, MEMORIES, "--memory"),
        mode=modes_of(mode, "--mode"),
        size=units.sizes_of(size, "--size"),
        fresh=fresh,
        precision=units.share_of(precision, "--precision"),
        budget=units.seconds_of(budget, "--budget"),
        complete=complete,
        trace=not no_trace,
    )
    output.measure_and_deliver(measure, exports, device, require_gpu=require_gpu, details=details)


_LOADERS = "Loader names, patterns, or your own as module:function or file.py:function; by default all installed."


def files(
    paths: Annotated[list[str], opt.argument("PATH...", "Files, indexes, or folders of safetensors files.")],
    *,
    loader: Annotated[str | None, opt.option("--loader", "LIST", _LOADERS)] = None,
    to: Annotated[
        str | None, opt.option("--to", "NAME", "torch, cupy, jax, tensorflow or numpy; by default the first installed.")
    ] = None,
    state: Annotated[
        str, opt.option("--state", "LIST", "Comma-separated list of warm (page cache), cold (disk).")
    ] = "warm,cold",
    device: opt.Device = "0",
    precision: opt.Precision = "2%",
    budget: opt.Budget = "60s",
    patience: opt.Patience = "2min",
    details: opt.Details = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Measure how fast files reach the GPU, and what limits them.

    Measures the disk, the page cache and the link, and beside them every loader of safetensors, .npy, .npz and .pt
    files that is installed, each in a process of its own. Names what limits a load, and the gain of a faster way.
    """
    from pyxfer._loaders.loaders import FRAMEWORKS
    from pyxfer._loaders.session import STATES

    exports: output.Exports[Run] = output.run_exports(export_json, export_csv, export_md, report, quiet=quiet)
    measure = partial(
        pyxfer.files,
        paths,
        loader=() if loader is None else units.items_of(loader, "--loader"),
        to=None if to is None else units.word_of(to, FRAMEWORKS, "--to"),
        state=units.words_of(state, STATES, "--state"),
        device=device,
        precision=units.share_of(precision, "--precision"),
        budget=units.seconds_of(budget, "--budget"),
        patience=units.seconds_of(patience, "--patience"),
    )
    output.measure_and_deliver(measure, exports, device, require_gpu=require_gpu, details=details)


Count = Annotated[
    str | None, opt.option("--count", "COUNTS", "Numbers of blocks, such as 16,1024 or 1:4096:x8, with any --size.")
]
BlockSize = Annotated[
    str | None, opt.option("--size", "SIZES", "Sizes of a block, such as 4KiB,1MiB; by default 512 B to 4 MiB.")
]
Thresholds = Annotated[
    str | None,
    opt.option(
        "--export-thresholds",
        "FILE",
        "Write the fastest method of each cell as JSON, for a server, if the run is complete; - is stdout.",
    ),
]


def blocks(
    *,
    size: BlockSize = None,
    count: Count = None,
    direction: opt.Directions = "h2d,d2h,both",
    memory: Annotated[
        str, opt.option("--memory", "LIST", "Comma-separated list of pinned, pageable.")
    ] = "pinned,pageable",
    method: Annotated[
        str, opt.option("--method", "LIST", "Comma-separated list of loop, batch, strided, kernel, packed.")
    ] = "loop,batch,strided,kernel,packed",
    order: Annotated[
        str, opt.option("--order", "LIST", "Places of the blocks: comma-separated list of ordered, runs, random.")
    ] = "ordered,runs,random",
    device: opt.Device = "0",
    precision: opt.Precision = "5%",
    budget: opt.Budget = "16s",
    details: opt.Details = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_thresholds: Thresholds = None,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Measure which way of moving many small blocks is the fastest.

    Moves blocks between a pool in host memory and one on the GPU, such as the pages of a KV cache, by copies, by the
    driver's batch call, by a kernel and packed. Shows the fastest method by size and count, from which size on copies
    are as fast as a kernel, and what fixed rules cost on this host.
    """
    from pyxfer._blocks.choice import thresholds_json
    from pyxfer._blocks.plans import DIRECTIONS, MEMORIES
    from pyxfer._document.blocks import METHODS
    from pyxfer._document.runs import ORDERS

    exports: output.Exports[Run] = output.run_exports(
        export_json, export_csv, export_md, report, quiet=quiet, complete=(export_thresholds, thresholds_json)
    )
    measure = partial(
        pyxfer.blocks,
        device,
        direction=units.words_of(direction, DIRECTIONS, "--direction"),
        memory=units.words_of(memory, MEMORIES, "--memory"),
        method=units.words_of(method, METHODS, "--method"),
        order=units.words_of(order, ORDERS, "--order"),
        size=None if size is None else units.sizes_of(size, "--size"),
        count=None if count is None else units.counts_of(count, "--count"),
        precision=units.share_of(precision, "--precision"),
        budget=units.seconds_of(budget, "--budget"),
    )
    output.measure_and_deliver(measure, exports, device, require_gpu=require_gpu, details=details)


_GROUPS = "Comma-separated list of host, together, pairs, local, latency, numa, small."
Groups = Annotated[str, opt.option("--group", "LIST", _GROUPS)]
Engines = Annotated[str, opt.option("--engine", "LIST", "Comma-separated list of ce (copy engines), sm (kernels).")]
LinkSize = Annotated[
    str | None, opt.option("--size", "SIZE", "Size of each copy, such as 512MiB; by default it fits the link.")
]
_DEVICES = "Comma-separated list of GPUs by index, UUID or PCI address; all by default."
Devices = Annotated[str | None, opt.option("--device", "LIST", _DEVICES)]
LinksBudget = Annotated[
    str | None, opt.option("--budget", "TIME", "Time limit for measuring; default 15s for each GPU.")
]


def links(
    *,
    group: Groups = "host,together,pairs,local,latency,numa,small",
    engine: Engines = "ce,sm",
    size: LinkSize = None,
    device: Devices = None,
    precision: opt.Precision = "0.5%",
    budget: LinksBudget = None,
    complete: opt.Complete = False,
    details: opt.Details = False,
    require_gpu: opt.RequireGpu = False,
    quiet: opt.Quiet = False,
    export_json: opt.ExportJson = None,
    export_csv: opt.ExportCsv = None,
    export_md: opt.ExportMd = None,
    report: opt.Report = None,
) -> None:
    """Measure every link of this host, alone and together.

    Measures the links between the host and each GPU, and between the GPUs: one at a time, and all at once for equal
    times. Shows which GPUs slow each other down, which side loses, and which links are slower than the others.
    """
    from pyxfer._document.links import COPY_ENGINES, GROUPS, Links

    exports: output.Exports[Links] = output.run_exports(export_json, export_csv, export_md, report, quiet=quiet)
    measure = partial(
        pyxfer.links,
        device,
        group=units.words_of(group, GROUPS, "--group"),
        engine=units.words_of(engine, COPY_ENGINES, "--engine"),
        size=None if size is None else units.size_of(size, "--size"),
        precision=units.share_of(precision, "--precision"),
        budget=None if budget is None else units.seconds_of(budget, "--budget"),
        complete=complete,
    )
    first = 0 if device is None else device
    output.measure_and_deliver(measure, exports, first, require_gpu=require_gpu, details=details)

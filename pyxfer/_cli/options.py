"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def example(*commands: str) -> str:
    """The end of a help page; the backspace keeps typer from joining its lines."""
    return "\b\nExample:\n" + "\n".join(f"  {command}" for command in commands)


def option(name: str, metavar: str, text: str, **limits: int) -> Any:
    """An option with a value; `limits` are the bounds of a number."""
    return typer.Option(name, metavar=metavar, help=text, **limits)  # type: ignore[call-overload]


def flag(names: str, text: str) -> Any:
    """A switch, with the name that turns it off again where a file has turned it on."""
    return typer.Option(*names.split(), help=text, show_default=False)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


Device = Annotated[
    str,
    option("--device", "0|UUID|PCI|host", "Index, UUID or PCI address of a GPU, or host (its memory)."),
]
Directions = Annotated[str, option("--direction", "LIST", "Comma-separated list of h2d, d2h, both.")]
Memories = Annotated[
    str,
    option("--memory", "LIST", "Comma-separated list of pageable, pinned, registered, write-combined."),
]
Modes = Annotated[
    str, option("--mode", "LIST", "Comma-separated list of auto, memcpy, async, streams:N, batch, staged.")
]
Sizes = Annotated[str, option("--size", "SIZES", "Sizes and ranges, such as 4KiB,1MiB or 4KiB:256MiB:x4.")]
Details = Annotated[bool, flag("--details/--no-details", "Print all figures: sizes, intervals, fits, peaks, checks.")]
Quiet = Annotated[
    bool, flag("--quiet/--no-quiet -q", "Print neither progress nor the page, only exports, warnings and errors.")
]
Fresh = Annotated[bool, flag("--fresh/--no-fresh", "Also time copies into freshly allocated destinations.")]
Precision = Annotated[str, option("--precision", "SHARE", "Target precision of each median, such as 0.5%.")]
Budget = Annotated[str, option("--budget", "TIME", "Time limit for measuring, such as 30s.")]
Complete = Annotated[
    bool, flag("--complete/--no-complete", "Measure everything, even if that takes far more than the budget.")
]
NoTrace = Annotated[bool, flag("--no-trace/--trace", "Skip the traced trials at the end of the run.")]
Patience = Annotated[str, option("--patience", "TIME", "Kill a framework process that is silent for this long.")]
RequireGpu = Annotated[bool, flag("--require-gpu/--no-require-gpu", "Fail with exit code 3 if no GPU is usable.")]
ExportJson = Annotated[
    str | None,
    option(
        "--export-json", "FILE", "Write the whole run, for pyxfer show; compressed if FILE ends in .gz; - is stdout."
    ),
]
ExportCsv = Annotated[
    str | None, option("--export-csv", "FILE", "Write one row per measurement with all figures; - is stdout.")
]
ExportMd = Annotated[str | None, option("--export-md", "FILE", "Write a Markdown table; - is stdout.")]
ExportPrometheus = Annotated[
    str | None, option("--export-prometheus", "FILE", "Write Prometheus metrics; - is stdout.")
]
Report = Annotated[
    str | None, option("--report", "FILE", "Write a page with charts (.html), or pictures (.svg, .png).")
]
WholeJson = Annotated[
    str | None, option("--export-json", "FILE", "Write JSON; compressed if FILE ends in .gz; - is stdout.")
]
Store = Annotated[
    str | None,
    option(
        "--store",
        "URL",
        "Store: a file or database URL; default $PYXFER_STORE, the settings file's, or this user's.",
    ),
]

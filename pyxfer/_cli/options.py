"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from pyxfer._cli import completion
from pyxfer._cli.completion import one_of, some_of


def example(*commands: str) -> str:
    """The end of a help page; the backspace keeps typer from joining its lines."""
    return "\b\nExample:\n" + "\n".join(f"  {command}" for command in commands)


Device = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="0|UUID|PCI|host",
        help="Index, UUID or PCI address of a GPU, or host (its memory).",
        autocompletion=one_of(completion.devices),
    ),
]
Directions = Annotated[
    str,
    typer.Option(
        "--directions",
        metavar="LIST",
        help="Comma-separated list of h2d, d2h, both.",
        autocompletion=some_of(completion.directions),
    ),
]
Memories = Annotated[
    str,
    typer.Option(
        "--memories",
        metavar="LIST",
        help="Comma-separated list of pageable, pinned, registered, write-combined.",
        autocompletion=some_of(completion.memories),
    ),
]
Modes = Annotated[
    str,
    typer.Option(
        "--modes",
        metavar="LIST",
        help="Comma-separated list of auto, memcpy, async, streams:N, batch, staged.",
        autocompletion=some_of(completion.modes),
    ),
]
Sizes = Annotated[
    str, typer.Option("--sizes", metavar="SIZES", help="Sizes and ranges, such as 4KiB,1MiB or 4KiB:256MiB:x4.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Also time copies into freshly allocated destinations.")]
Precision = Annotated[
    str, typer.Option("--precision", metavar="SHARE", help="Target precision of each median, such as 0.5%.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="Time limit for measuring, such as 30s.")]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", min=0, help="Seed for the order of trials; a run stores its seed.")
]
NoTrace = Annotated[
    bool,
    typer.Option("--no-trace", help="Skip the traced trials at the end of the run."),
]
Patience = Annotated[
    str, typer.Option("--patience", metavar="TIME", help="Kill a framework process that is silent for this long.")
]
RequireGpu = Annotated[bool, typer.Option("--require-gpu", help="Fail with exit code 3 if no GPU is usable.")]
ExportJson = Annotated[
    str | None,
    typer.Option(
        "--export-json",
        metavar="FILE",
        help="Write the whole run, for pyxfer show; compressed if FILE ends in .gz; - is stdout.",
    ),
]
ExportCsv = Annotated[
    str | None,
    typer.Option("--export-csv", metavar="FILE", help="Write one row per measurement with all figures; - is stdout."),
]
ExportMd = Annotated[
    str | None, typer.Option("--export-md", metavar="FILE", help="Write a Markdown table; - is stdout.")
]
Report = Annotated[
    str | None,
    typer.Option("--report", metavar="FILE", help="Write a page with charts (.html), or pictures (.svg, .png, .pdf)."),
]
WholeJson = Annotated[
    str | None,
    typer.Option("--export-json", metavar="FILE", help="Write JSON; compressed if FILE ends in .gz; - is stdout."),
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Store: a file or a database URL; default $PYXFER_STORE or this user's own file.",
    ),
]

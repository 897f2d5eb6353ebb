"""The options of `pyxfer ceiling`, and how a list is typed."""

from __future__ import annotations

from typing import Annotated

import typer

from pyxfer.errors import UsageError

Device = Annotated[
    str,
    typer.Option("--device", metavar="0|UUID|PCI|host", help="Index, UUID or PCI address of a GPU, or host for none."),
]
Directions = Annotated[str, typer.Option("--direction", metavar="LIST", help="Of h2d, d2h, both.")]
Memories = Annotated[
    str, typer.Option("--memory", metavar="LIST", help="Of pageable, pinned, registered, write-combined.")
]
Modes = Annotated[
    str,
    typer.Option("--mode", metavar="LIST", help="Of auto, memcpy, async, streams:N, batch, staged; see pyxfer list."),
]
Sizes = Annotated[
    str, typer.Option("--sizes", metavar="SIZES", help="Sizes and ranges, such as 4KiB,1MiB or 4KiB:256MiB:x4.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Also with destinations that are touched for the first time.")]
Precision = Annotated[
    str, typer.Option("--precision", metavar="SHARE", help="How well each median is to be known, such as 0.5%.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long the measuring may last, such as 30s.")]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Repeat the order of an earlier run; it holds its seed.")
]
NoTrace = Annotated[
    bool,
    typer.Option("--no-trace", help="Without the few trials at the end that are traced for what crossed the link."),
]
Patience = Annotated[
    str, typer.Option("--patience", metavar="TIME", help="How long a framework may be silent before it is ended.")
]
RequireGpu = Annotated[bool, typer.Option("--require-gpu", help="Fail (exit code 3) where no GPU is usable.")]
ExportJson = Annotated[
    str | None,
    typer.Option(
        "--export-json",
        metavar="FILE",
        help="The whole run, for pyxfer show; compressed if FILE ends in .gz; - is standard output.",
    ),
]
ExportCsv = Annotated[
    str | None,
    typer.Option("--export-csv", metavar="FILE", help="One row a measurement, all figures; - is standard output."),
]
ExportMd = Annotated[
    str | None, typer.Option("--export-md", metavar="FILE", help="A table for a page; - is standard output.")
]
Json = Annotated[bool, typer.Option("--json", help="As JSON, for a program.")]


def split_list(text: str, option: str) -> tuple[str, ...]:
    """The items of a comma list, each once."""
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise UsageError(f"{option} {text!r} holds an empty item; write a list such as {option} {_EXAMPLES[option]}")
    return tuple(dict.fromkeys(items))


_EXAMPLES = {
    "--routes": "'tf.*,torch.to'",
    "--direction": "h2d,d2h",
    "--memory": "pageable,pinned",
    "--mode": "memcpy,streams:2",
}

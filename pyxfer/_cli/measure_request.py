"""What `pyxfer baseline save` and `check` measure: the link of one device, or with --links those of all GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pyxfer._cli import options as opt
from pyxfer._cli.defaults import is_given
from pyxfer.errors import UsageError
from pyxfer.native import is_host_name
from pyxfer.units import seconds_of, sizes_of, words_of

if TYPE_CHECKING:
    from pyxfer._baseline.measure import Request

LinksFlag = Annotated[
    bool, typer.Option("--links", help="Measure the links of all GPUs, as pyxfer links does, and not that of one.")
]
_DEVICES = "A GPU by index, UUID or PCI address, or host; default 0. With --links a list; default all."
_GROUPS = "With --links: list of host, together, pairs, local, latency, numa, small; all but small by default."
_ENGINES = "With --links: list of ce (copy engines, the default), sm (kernels)."
Devices = Annotated[str | None, opt.option("--device", "LIST", _DEVICES)]
Groups = Annotated[str | None, opt.option("--group", "LIST", _GROUPS)]
Engines = Annotated[str | None, opt.option("--engine", "LIST", _ENGINES)]
_OF_ONE_DEVICE = ("direction", "memory", "mode")
_OF_LINKS = ("group", "engine")


def check_options(context: typer.Context, *, links: bool, require_gpu: bool) -> None:
    for name in _OF_ONE_DEVICE if links else _OF_LINKS:
        if name in context.params and is_given(context, name):
            other = "leave out --links" if links else "add --links"
            raise UsageError(
                f"--{name} is for {'the link of one device' if links else 'links'}: leave it out, or {other}."
            )
    if not links and "," in (context.params.get("device") or ""):
        raise UsageError("Several devices are for links: name one, or add --links.")
    if require_gpu and is_host_name(context.params.get("device")):
        raise UsageError("--device host and --require-gpu exclude each other: leave one of them out.")


Asked = Callable[[Sequence[str]], "Request"]
"""What a process measures; it takes the devices, which are found later."""


def asked_of_device(direction: str, memory: str, mode: str, size: str, budget: str) -> Asked:
    from pyxfer._baseline.measure import run_request
    from pyxfer._ceiling.plans import DIRECTIONS, MEMORIES, modes_of

    return partial(
        run_request,
        directions=words_of(direction, DIRECTIONS, "--direction"),
        memories=words_of(memory, MEMORIES, "--memory"),
        modes=modes_of(mode, "--mode"),
        sizes=sizes_of(size, "--size"),
        budget_s=seconds_of(budget, "--budget"),
    )


def asked_of_links(context: typer.Context, group: str | None, engine: str | None, size: str, budget: str) -> Asked:
    """Sizes and budget have the defaults of pyxfer links."""
    from pyxfer._baseline.measure import DEFAULT_ENGINES, DEFAULT_GROUPS, DEFAULT_PRECISION, links_request
    from pyxfer._links.plan import make_request

    request = make_request(
        None,
        DEFAULT_GROUPS if group is None else group,
        DEFAULT_ENGINES if engine is None else engine,
        size if is_given(context, "size") else None,
        DEFAULT_PRECISION,
        budget if is_given(context, "budget") else None,
        None,
    )
    return partial(
        links_request, groups=request.groups, engines=request.engines, nbytes=request.nbytes, budget_s=request.budget_s
    )
